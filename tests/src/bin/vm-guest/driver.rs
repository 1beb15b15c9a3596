// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stand-in driver: its modules, its numbers, its counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gpuhook_tests::host::Majors;
use gpuhook_tests::program;
use gpuhook_tests::rootfs::make_node;

/// What modprobe gives the modules, whoever calls it.
const OPTIONS: &str = "/etc/modprobe.d/standin.conf";
const OPENS: &str = "/proc/driver/nvidia/standin_opens";

/// What one boot of a kernel decides: the numbers, and what hardware there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver {
    pub(crate) majors: Majors,
    pub(crate) gpus: u32,
    pub(crate) options: &'static str,
}

impl Driver {
    /// Two GPUs and no MIG, under these numbers.
    pub(crate) fn with(majors: Majors) -> Self {
        Self { majors, gpus: 2, options: "" }
    }

    /// Takes the old driver out and puts this one in, all modules, as after the boot of another kernel.
    pub(crate) fn load(self) -> Self {
        self.load_only(&["nvidia", "nvidia-uvm", "nvidia-modeset"])
    }

    /// The same, with these modules alone; who loads another one later gets the same numbers.
    pub(crate) fn load_only(self, modules: &[&str]) -> Self {
        unload();
        self.write_options();
        for module in modules {
            program::stdout(program::command("modprobe", &[module]));
        }
        self
    }

    /// Fixes the numbers for whoever loads the modules next.
    pub(crate) fn write_options(self) {
        let Self { majors: Majors { uvm, caps, imex }, gpus, options } = self;
        let text = format!(
            "options nvidia gpus={gpus} caps_major={caps} imex_major={imex} {options}\noptions nvidia-uvm uvm_major={uvm}\n"
        );
        fs::write(OPTIONS, text).expect("modprobe.d");
    }

    /// Makes the host's nodes as nvidia-modprobe does: right after a reboot, with the numbers of the day.
    pub(crate) fn make_host_nodes(self) {
        make_node(Path::new("/dev/nvidiactl"), (195, 255));
        for minor in 0..self.gpus {
            make_node(Path::new(&format!("/dev/nvidia{minor}")), (195, minor));
        }
        for (name, minor) in [("nvidia-uvm", 0), ("nvidia-uvm-tools", 1)] {
            make_node(&Path::new("/dev").join(name), (self.majors.uvm, minor));
        }
    }
}

/// Takes the driver out, and the host's nodes away. Panics where somebody still holds a node open.
pub(crate) fn unload() {
    for entry in fs::read_dir("/dev").expect("/dev").flatten() {
        if entry.file_name().to_string_lossy().starts_with("nvidia") {
            let _a_folder_stays = fs::remove_file(entry.path());
        }
    }
    for module in ["nvidia_modeset", "nvidia_uvm", "nvidia"] {
        if Path::new("/sys/module").join(module).exists() {
            program::stdout(program::command("rmmod", &[module]));
        }
    }
}

/// How often each node was opened since the last [`forget_opens`], by name and minor; refused opens do not count.
pub(crate) fn opens() -> BTreeMap<(String, u32), u32> {
    let text = fs::read_to_string(OPENS).expect("the stand-in's counters");
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let counts = lines.map(|words| {
        let number = |at: usize| words[at].parse::<u32>().expect("a number");
        ((words[0].to_owned(), number(1)), number(2))
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Sets all counters to 0.
pub(crate) fn forget_opens() {
    fs::write(OPENS, "0").expect("the stand-in's counters");
}

/// Lets every open of the GPU with that minor fail with EIO; -1 lets all of them live.
pub(crate) fn kill_gpu(minor: i32) {
    fs::write("/sys/module/nvidia/parameters/dead_minor", minor.to_string()).expect("parameter of the stand-in");
}
