// SPDX-License-Identifier: MIT OR Apache-2.0
//! What only a real reboot shows: numbers that changed while nothing of ours ran, containers that start before anything
//! has loaded nvidia-uvm, and a kernel that was hardened from its first second.

use std::fs;
use std::path::Path;

use gpuhook_tests::host::Majors;
use gpuhook_tests::inside::{Container, Inside};
use gpuhook_tests::program;

use crate::driver::Driver;
use crate::kept;
use crate::lxc::{INCLUDE, Lxc};
use crate::oci::{Bundle, Runtime};
use crate::{seen, story};

const BEFORE: Majors = Majors::OLD;
const AFTER: Majors = Majors::NEW;
const STORY: &str = "story";
const AUTO: &str = "auto";

/// Leaves two containers, the hardening, and the next kernel's numbers for the second boot.
pub(crate) fn prepare() {
    story::host(BEFORE).load().make_host_nodes();
    for (name, auto) in [(STORY, 0), (AUTO, 1)] {
        let mut lxc = story::container_129(name);
        lxc.line(INCLUDE).line(&format!("lxc.start.auto = {auto}")).write_config();
        if auto == 0 {
            story::assert_129(&lxc.start(), BEFORE, "OK", 0);
            fs::write("/var/lib/story.config", fs::read(lxc.config()).expect("config")).expect("copy of the config");
        } else {
            // Nobody reads this one's report at boot; init must not wait for a reader.
            let init = "#!/bin/busybox sh\nexec busybox sleep 2147483647\n";
            lxc.rootfs().write("/sbin/init", init);
        }
        // It must outlive this process.
        std::mem::forget(lxc);
    }
    let hardened = "net.core.bpf_jit_harden = 2\nkernel.kptr_restrict = 2\n";
    fs::write("/etc/sysctl.d/hardened.conf", hardened).expect("sysctl.d");
    // The next kernel has other numbers; at boot only nvidia.ko is loaded, as udev does for the PCI device.
    story::host(AFTER).write_options();
    fs::write("/etc/modules-load.d/nvidia.conf", "nvidia\n").expect("modules-load.d");
}

/// One of the containers that [`prepare`] left.
struct Left(&'static str, Inside);

impl Container for Left {
    fn report(&self) -> &Inside {
        &self.1
    }

    fn run(&self, args: &[&str]) -> Inside {
        let mut attach = program::command("lxc-attach", &["-n", self.0, "--clear-env", "--"]);
        attach.args(args);
        Inside(program::both(&program::output(attach)))
    }

    fn story(&self) -> String {
        crate::lxc::journal()
    }
}

pub(crate) fn a_container_started_at_boot_loads_uvm_itself() {
    // lxc.service has started it: nobody else loads nvidia-uvm on this machine.
    let loaded = "journalctl -q -b -o cat -u systemd-modules-load | grep -c nvidia.uvm || true";
    assert_eq!(program::stdout(program::command("sh", &["-c", loaded])).trim(), "0");
    let left = Left(AUTO, Inside(String::new()));
    let said = left.run(&["/bin/cuda-check"]);
    assert_eq!((said.cuinit(), said.devices()), (0, 8), "{}\n{}", said.0, left.story());
    let uvm = left.nodes(&["/dev/nvidia-uvm"]);
    assert_eq!(uvm.node("/dev/nvidia-uvm").expect("it is there").number, (AFTER.uvm, 0));
}

pub(crate) fn the_story_after_a_real_reboot() {
    let config = Path::new("/var/lib/lxc").join(STORY).join("config");
    let rootfs = Path::new("/srv").join(STORY);
    story::host(AFTER).make_host_nodes();
    let script = format!(
        "cat {0}/report & lxc-start -n {STORY} -l DEBUG -o /run/{STORY}.log || {{ kill $!; grep ERROR /run/{STORY}.log; }}; wait",
        rootfs.display()
    );
    let said = program::output(program::command("sh", &["-c", &script]));
    kept::wait_for_gpuhook();
    let left = Left(STORY, Inside(program::both(&said)));
    story::assert_129(&left, AFTER, "OK", 0);
    program::stdout(program::command("lxc-stop", &["-k", "-n", STORY]));
    let before = fs::read("/var/lib/story.config").expect("copy of the config");
    assert_eq!(fs::read(config).expect("config"), before, "not a byte of the config changed");
}

fn assert_hardened() {
    for (file, value) in [("net/core/bpf_jit_harden", "2"), ("kernel/kptr_restrict", "2")] {
        assert_eq!(fs::read_to_string(format!("/proc/sys/{file}")).expect("sysctl").trim(), value, "{file}");
    }
}

/// Ends what boot has started, so that the driver can be reloaded.
fn stop_auto() {
    program::output(program::command("lxc-stop", &["-k", "-n", AUTO]));
}

pub(crate) fn hardened_bpf_works_with_lxc() {
    assert_hardened();
    stop_auto();
    Driver::with(AFTER).load();
    let mut lxc = Lxc::privileged("c1");
    lxc.ask(AFTER, INCLUDE);
    let running = lxc.start();
    seen::assert_exact(&running, AFTER);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, AFTER);
}

pub(crate) fn hardened_bpf_works_with_runc() {
    assert_hardened();
    stop_auto();
    Driver::with(AFTER).load();
    for systemd in [false, true] {
        let bundle = Bundle::asking(Runtime { program: "runc", systemd }, AFTER, "createRuntime");
        let running = bundle.start();
        seen::assert_exact(&running, AFTER);
        seen::assert_still_exact(&running, AFTER);
    }
}
