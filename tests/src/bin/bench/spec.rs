// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the edit of a spec costs, on a host with 8 GPUs and 56 MIG devices: `precreate` beside `/bin/true`, and the
//! wrapper with `/bin/true` in the place of runc beside `/bin/true` itself.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::program;
use gpuhook_tests::runc::Runc;

use super::{compare, spawned};

pub(crate) fn measure(bed: &Bed, runs: usize) {
    let host = Host::new(bed.dir("spec-host"), Majors::NEW, 8);
    host.configure("runtime = \"/bin/true\"\n");
    for (gpu, instance) in (0..8_u32).flat_map(|gpu| (1..8_u32).map(move |instance| (gpu, instance))) {
        for (path, minor) in [("", 0), ("/ci0", 1)] {
            host.overwrite(
                &format!("proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{instance}{path}/access"),
                &format!("DeviceFileMinor: {}\nDeviceFileMode: 292\n", 135 * gpu + 9 * instance + minor),
            );
        }
    }
    let mut runc = Runc::new(bed, "spec");
    let quiet = bed.dir("spec-quiet").join("config.json");
    fs::write(&quiet, runc.spec().to_string()).expect("a spec");
    let asking = bed.dir("spec-asking").join("config.json");
    fs::write(&asking, runc.env("NVIDIA_VISIBLE_DEVICES=all").spec().to_string()).expect("a spec");
    let bundle = runc.bundle().display().to_string();
    let config = runc.bundle().join("config.json");

    let timed = |mut command: Command| {
        command.env_clear().stdout(Stdio::null());
        spawned(command)
    };
    let precreate = |spec| {
        let mut command = host.gpuhook(&["oci", "precreate"]);
        command.stdin(File::open(spec).expect("a spec"));
        timed(command)
    };
    let wrapped = |words: &[&str]| {
        fs::copy(&asking, &config).expect("a spec");
        let wrapper = host.runtime();
        let mut command = program::command(&wrapper[0], &[]);
        command.args(&wrapper[1..]).args(words);
        timed(command)
    };
    let mut bare = || -> Duration { timed(program::command("/bin/true", &[])) };
    compare(
        "the edit of a spec, 8 GPUs and 56 MIG devices (budget + 1 ms)",
        runs,
        &mut [
            ("/bin/true", &mut bare),
            ("precreate, nothing asked", &mut || precreate(&quiet)),
            ("precreate, all GPUs", &mut || precreate(&asking)),
            ("runtime state, then /bin/true", &mut || wrapped(&["state", "c1"])),
            ("runtime create, then /bin/true", &mut || wrapped(&["create", "--bundle", &bundle, "c1"])),
        ],
    );
}
