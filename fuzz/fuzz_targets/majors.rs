// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as `/proc/devices`: what is read of them stands in them.
#![no_main]

use gpuhook_core::device::DeviceId;
use gpuhook_core::facts::Majors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = gpuhook_fuzz::text(bytes);
    let majors = Majors::parse(&text);
    for name in majors.by_name.keys() {
        assert!(text.contains(name.as_str()), "{name:?}");
    }
    let uvm = majors.only("nvidia-uvm");
    for major in uvm.into_iter().chain(majors.primary()) {
        assert!(!majors.names_of(major).is_empty());
        let _ = majors.node_of(DeviceId::new(major.0, 0));
    }
});
