// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may stand at a node's place in a running container: what is covered, what is accepted, what is refused, with
//! nothing changed on either side.

use std::fs;
use std::path::PathBuf;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::footprint::Witness;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::Lxc;
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::{Runc, RunningRunc};
use serde_json::json;

const UVM: &str = "/dev/nvidia-uvm";

fn host(bed: &Bed) -> Host {
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    host.configure("load-modules = false\n[verify]\nl3 = \"off\"\nl5 = \"enforce\"\n");
    host
}

fn inject(host: &Host, pid: u32) -> std::process::Output {
    let pid = pid.to_string();
    program::output(host.gpuhook(&["inject", "--pid", &pid, "--devices", "0", "--mig-config", "all"]))
}

/// The injection is refused with a sentence that has `words`, and everything stays as it was.
fn is_refused(bed: &Bed, running: &RunningRunc, words: &[&str]) {
    let witness = Witness::of(bed, running.init_pid());
    let before = witness.footprint(bed);
    let sentence = refusal(&inject(&host(bed), running.init_pid()), 1);
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in {sentence}");
    }
    assert_eq!(witness.footprint(bed), before);
}

/// The injection works, and there is one node of the live number at uvm's place.
fn is_covered(bed: &Bed, container: &dyn Container, pid: u32) {
    let output = inject(&host(bed), pid);
    assert!(output.status.success(), "{}", program::both(&output));
    let node = container.nodes(&[UVM]).node(UVM).expect("the node");
    assert_eq!((node.kind.as_str(), node.number, node.open.as_str()), ("char", (509, 0), "ENXIO"));
    assert_eq!(container.cuda().cuinit(), 0);
    assert_eq!(Witness::of(bed, pid).footprint(bed).mounts_at(UVM), 1);
}

#[test]
fn what_is_no_node_and_no_file_is_refused_by_its_name() {
    let Some(bed) = Bed::pure("target-odd") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    for (make, name) in [
        (&["ln", "-s", "/dev/null", UVM][..], "a symbolic link"),
        (&["ln", "-s", "/nowhere", UVM], "a symbolic link"),
        (&["mkfifo", UVM], "a FIFO"),
        (&["mkdir", UVM], "a directory"),
        (&["mknod", UVM, "b", "7", "0"], "block device"),
    ] {
        let output = running.exec(&[&["/bin/busybox"], make].concat());
        assert!(output.status.success(), "{}", program::both(&output));
        is_refused(&bed, &running, &[name, UVM, "hint"]);
        running.exec(&["/bin/busybox", "rm", "-r", UVM]);
    }
    is_covered(&bed, &running, running.init_pid());
}

#[test]
fn a_link_in_place_of_a_directory_does_not_lead_out_of_the_container() {
    let Some(bed) = Bed::pure("target-link") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let outside = bed.dir("outside");
    let link = format!("{}", outside.display());
    running.exec(&["/bin/busybox", "ln", "-s", &link, "/dev/nvidia-caps"]);
    refusal(&inject(&host(&bed), running.init_pid()), 1);
    assert_eq!(fs::read_dir(&outside).expect("the folder").count(), 0);
}

#[test]
fn an_empty_file_is_covered() {
    let Some(bed) = Bed::pure("target-file") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    running.exec(&["/bin/busybox", "touch", UVM]);
    is_covered(&bed, &running, running.init_pid());
}

#[test]
fn a_node_with_yesterdays_number_is_covered_in_runc() {
    let Some(bed) = Bed::pure("target-stale") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    assert!(running.exec(&["/bin/busybox", "mknod", UVM, "c", "504", "0"]).status.success());
    is_covered(&bed, &running, running.init_pid());
}

#[test]
fn a_bound_node_with_yesterdays_number_is_covered_in_lxc() {
    let Some(bed) = Bed::pure("target-stale-lxc") else { return };
    let mut lxc = Lxc::privileged(&bed, "c1");
    lxc.bind_node(UVM, (504, 0));
    let running = lxc.start();
    let output = inject(&host(&bed), running.init_pid());
    assert!(output.status.success(), "{}", program::both(&output));
    assert_eq!(running.nodes(&[UVM]).node(UVM).expect("the node").number, (509, 0));
    assert_eq!(running.cuda().cuinit(), 0);
}

#[test]
fn a_read_only_dev_is_refused_with_a_word_on_it() {
    let Some(bed) = Bed::pure("target-ro") else { return };
    let mut runc = Runc::new(&bed, "c1");
    for mount in runc.spec()["mounts"].as_array_mut().expect("mounts") {
        if mount["destination"] == "/dev" {
            mount["options"].as_array_mut().expect("options").push(json!("ro"));
        }
    }
    let running = runc.start();
    is_refused(&bed, &running, &["read-only", "hint"]);
}

/// A directory in the host's own `/dev`, removed at the end.
struct InDev(PathBuf);

impl Drop for InDev {
    fn drop(&mut self) {
        let _gone_already = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn no_file_is_made_in_a_directory_of_the_hosts_dev() {
    let Some(bed) = Bed::pure("target-host") else { return };
    let dir = InDev(PathBuf::from("/dev").join(bed.name()));
    fs::create_dir(&dir.0).expect("a folder in /dev");
    let mut runc = Runc::new(&bed, "c1");
    let mount = json!({ "destination": "/dev/nvidia-caps", "type": "bind", "source": dir.0, "options": ["bind"] });
    runc.spec()["mounts"].as_array_mut().expect("mounts").push(mount);
    let running = runc.start();
    is_refused(&bed, &running, &["/dev/nvidia-caps/nvidia-cap1", "host's /dev", "hint"]);
    assert_eq!(fs::read_dir(&dir.0).expect("the folder").count(), 0, "nothing appeared on the host");
}
