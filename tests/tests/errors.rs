// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine lacks something: a system call, descriptors, room in `/run`. The container then has its GPU all the same,
//! or its start is refused with one line that says what is missing; gpuhook does not panic, and leaves nothing behind.

use std::fs;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::runc::Runc;
use gpuhook_tests::{program, standin};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// What came of a start.
enum Outcome {
    /// It runs, and the node can be reached.
    Whole,
    /// The sentence of gpuhook.
    Refused(String),
}

/// Starts a container whose hook has `words` before its command.
fn start(bed: &Bed, host: &Host, runc: &mut Runc, words: &[&str]) -> Outcome {
    let hook = host.oci_hook("createRuntime", &["--devices", "all"]);
    let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(hook).collect();
    runc.spec()["hooks"] = serde_json::json!({});
    runc.hook("createRuntime", &command).hook("poststop", &host.oci_hook("poststop", &[]));
    let outcome = match runc.try_start() {
        Ok(running) => {
            assert_eq!(running.nodes(&["/dev/nvidia-uvm"]).open("/dev/nvidia-uvm"), "ENXIO", "{words:?}");
            Outcome::Whole
        }
        Err(story) => {
            assert!(!story.contains("panicked"), "{words:?}: {story}");
            let sentence =
                story.split("gpuhook: ").nth(1).unwrap_or_else(|| panic!("{words:?}: no sentence in {story}"));
            Outcome::Refused(sentence.lines().next().unwrap_or_default().to_owned())
        }
    };
    bed.wait_for(&program::gpuhook());
    assert_eq!(bed.kept(), [""; 0], "{words:?}");
    assert!(!bed.cgroup2().join(runc.id()).exists(), "{words:?}: the container's cgroup is left");
    outcome
}

fn host(bed: &Bed) -> Host {
    let host = Host::new(bed.dir("host"), Majors::NEW, 1);
    host.configure("load-modules = false\n[verify]\nl3 = \"warn\"\nl5 = \"warn\"\n");
    host
}

#[test]
fn a_missing_system_call_has_a_fallback_or_is_named_with_its_kernel() {
    let Some(bed) = Bed::pure("syscalls") else { return };
    let (host, tool) = (host(&bed), standin::deny_syscall().display().to_string());
    let mut runc = Runc::new(&bed, "c1");
    runc.rootfs().first("node-check /dev/nvidia-uvm\n");
    // Since 6.15 the nodes need no mount namespace on their way (see lib/linux/src/apply/nodes.rs).
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    let mut version = release.split('.').map_while(|word| word.parse::<u32>().ok());
    let needs_namespace = (version.next(), version.next()) < (Some(6), Some(15));
    for (call, errno, words) in [
        ("openat2", "ENOSYS", Some(["openat2", "Linux 5.6"])),
        ("move_mount", "ENOSYS", Some(["move_mount", "Linux 5.2"])),
        ("open_tree", "ENOSYS", Some(["open_tree", "Linux 5.2"])),
        ("fsopen", "ENOSYS", Some(["fsopen", "Linux 5.2"])),
        ("fsmount", "ENOSYS", Some(["fsmount", "Linux 5.2"])),
        ("pidfd_open", "ENOSYS", Some(["pidfd_open", "Linux 5.3"])),
        // What a kernel before 5.8 answers to a pidfd.
        ("setns", "EINVAL", Some(["setns", "EINVAL"])),
        ("setns", "ENOSYS", Some(["setns", "Linux 5.8"])),
        ("unshare", "EPERM", needs_namespace.then_some(["unshare", "EPERM"])),
        ("bpf", "EPERM", Some(["BPF_PROG_QUERY", "EPERM"])),
        ("bpf", "ENOMEM", Some(["BPF_PROG_QUERY", "ENOMEM"])),
        ("bpf", "ENOSYS", Some(["BPF_PROG_QUERY", "ENOSYS"])),
        ("BPF_PROG_LOAD", "ENOMEM", Some(["BPF_PROG_LOAD", "ENOMEM"])),
        ("BPF_PROG_ATTACH", "ENOMEM", Some(["BPF_PROG_ATTACH", "ENOMEM"])),
        // CLONE_INTO_CGROUP.
        ("clone3", "ENOSYS", None),
        ("close_range", "ENOSYS", None),
        ("mount_setattr", "ENOSYS", None),
        ("memfd_create", "ENOSYS", None),
        ("execveat", "ENOSYS", None),
    ] {
        match (start(&bed, &host, &mut runc, &[&tool, call, errno, "--"]), words) {
            (Outcome::Whole, None) => {}
            (Outcome::Whole, Some(_)) => panic!("{call} {errno}: it runs"),
            (Outcome::Refused(sentence), Some(words)) if words.iter().all(|word| sentence.contains(word)) => {
                println!("{call} {errno}: {sentence}");
            }
            (Outcome::Refused(sentence), _) => panic!("{call} {errno}: {sentence}"),
        }
    }
}

#[test]
fn a_lack_of_descriptors_refuses_or_does_not_matter() {
    let Some(bed) = Bed::pure("descriptors") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    runc.rootfs().first("node-check /dev/nvidia-uvm\n");
    let (mut whole, mut refused) = (0, 0);
    for limit in 3..28 {
        let script = format!("ulimit -n {limit} && exec \"$@\"");
        match start(&bed, &host, &mut runc, &["/bin/sh", "-c", &script, "sh"]) {
            Outcome::Whole => whole += 1,
            Outcome::Refused(sentence) => {
                assert!(sentence.contains("EMFILE") || sentence.contains("os error 24"), "{limit}: {sentence}");
                refused += 1;
            }
        }
    }
    println!("COUNT ulimit -n 3 to 27: {whole} starts with GPU, {refused} refused");
    assert!(whole > 0 && refused > 0, "the limits go from too few to enough");
}

#[test]
fn a_full_run_refuses_and_says_so() {
    let Some(bed) = Bed::pure("full-run") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    runc.rootfs().first("node-check /dev/nvidia-uvm\n");
    fs::create_dir_all("/run/gpuhook").expect("mount point");
    for (options, fill) in
        [(c"nr_inodes=1", false), (c"nr_inodes=2", false), (c"nr_inodes=3", false), (c"size=4k", true)]
    {
        mount("none", "/run/gpuhook", "tmpfs", MountFlags::empty(), options).expect("small tmpfs");
        if fill {
            fs::write("/run/gpuhook/.fill", [0; 4096]).expect("the one page");
        }
        let outcome = hidden(&bed, || {
            let hook = host.oci_hook("createRuntime", &["--devices", "all"]);
            runc.spec()["hooks"] = serde_json::json!({});
            runc.hook("createRuntime", &hook);
            runc.try_start().map(drop)
        });
        let story = outcome.expect_err("refused");
        assert!(story.contains("/run/gpuhook") && story.contains("os error 28"), "{options:?}: {story}");
        let left: Vec<_> =
            fs::read_dir("/run/gpuhook").expect("tmpfs").flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name == ".fill"), "{options:?}: {left:?}");
        unmount("/run/gpuhook", UnmountFlags::empty()).expect("nobody holds it");
    }
    assert!(matches!(start(&bed, &host, &mut runc, &[]), Outcome::Whole), "with room it works");
}

/// Runs `start` and waits for what it leaves running.
fn hidden<T>(bed: &Bed, start: impl FnOnce() -> T) -> T {
    let outcome = start();
    bed.wait_for(&program::gpuhook());
    outcome
}
