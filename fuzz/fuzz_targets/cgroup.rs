// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as `/proc/PID/cgroup`, an empty line and `/proc/self/mountinfo`, and as a v1 device list: the container's top
//! cgroup is its leaf or above it.
#![no_main]

use gpuhook_core::cgroup_top::{CgroupHint, container_top};
use gpuhook_core::cgroup_v1::DeviceList;
use gpuhook_core::facts::CgroupLocation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = gpuhook_fuzz::text(bytes);
    let (cgroup, mounts) = text.split_once("\n\n").unwrap_or((&text, &text));
    if let CgroupLocation::V1 { path, .. } | CgroupLocation::V2 { path, .. } = CgroupLocation::parse(cgroup, mounts) {
        let word = mounts.lines().next();
        for hint in [
            CgroupHint::None,
            CgroupHint::Lxc { dir_container: None },
            CgroupHint::Lxc { dir_container: word },
            CgroupHint::Oci { cgroups_path: word },
        ] {
            let names =
                |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>();
            let top = container_top(&path, hint);
            assert!(names(&path).starts_with(&names(&top)), "{top:?} is not above {path:?}");
        }
    }
    let _ = DeviceList::parse(&text);
});
