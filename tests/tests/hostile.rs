// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile containers: what an image can put where a node is to go, and what its libcuda can try. Each test also does the
//! obvious thing instead of gpuhook's, and asserts that it falls: else the trap would prove nothing.
//!
//! That the probe is confined is asserted from inside by `tests/probe.rs`.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container as _;
use gpuhook_tests::rootfs::Rootfs;
use gpuhook_tests::runc::Runc;
use gpuhook_tests::{program, standin};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

/// A container as at createRuntime: it has a mount namespace of its own, in which the whole tree of the host can still
/// be seen, and its root filesystem is mounted somewhere in it.
struct Trap<'bed> {
    bed: &'bed Bed,
    rootfs: Rootfs,
    /// A directory of the host with one file in it.
    victim: PathBuf,
    host: Host,
    starter: Option<Child>,
}

const SECRET: &str = "of the host";
const UVM: &str = "/dev/nvidia-uvm";

impl<'bed> Trap<'bed> {
    /// `set` gets the root filesystem and the host's directory, and arranges the trap.
    fn new(bed: &'bed Bed, name: &str, set: impl Fn(&Rootfs, &Path)) -> Self {
        let rootfs = Rootfs::new(bed.dir(name).join("rootfs"));
        let victim = bed.dir(&format!("{name}.victim"));
        fs::write(victim.join("secret"), SECRET).expect("file of the host");
        fs::set_permissions(victim.join("secret"), PermissionsExt::from_mode(0o600)).expect("mode");
        let host = Host::new(bed.dir("host"), Majors::NEW, 1);
        host.configure("load-modules = false\n[verify]\nl3 = \"off\"\nl5 = \"off\"\n");
        set(&rootfs, &victim);
        Self { bed, rootfs, victim, host, starter: None }
    }

    /// Everything of the host that an attack could have changed.
    fn of_host(&self) -> Vec<String> {
        let mut seen: Vec<String> = fs::read_dir(&self.victim)
            .expect("the host's directory")
            .map(|entry| {
                let entry = entry.expect("entry");
                let metadata = entry.metadata().expect("metadata");
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                format!("{:?} {:o} {} {} {text:?}", entry.file_name(), metadata.mode(), metadata.uid(), metadata.rdev())
            })
            .collect();
        seen.sort();
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts");
        let its = self.starter.as_ref().map(|child| fs::read_to_string(format!("/proc/{}/mountinfo", child.id())));
        let its = its.map(|text| text.expect("mounts of the container")).unwrap_or_default();
        let points = mounts.lines().chain(its.lines()).filter_map(|line| line.split(' ').nth(4));
        seen.extend(points.filter(|point| Path::new(point).starts_with(&self.victim)).map(str::to_owned));
        seen
    }

    /// What stands in the container's root filesystem, links as such.
    fn of_container(&self) -> Vec<String> {
        fn names(dir: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let kind = entry.file_type().expect("type");
                found.push(format!("{} {kind:?}", entry.path().display()));
                if kind.is_dir() && entry.file_name() != "proc" {
                    names(&entry.path(), found);
                }
            }
        }
        let mut found = Vec::new();
        names(self.rootfs.dir(), &mut found);
        found.sort();
        found
    }

    /// `gpuhook oci createRuntime` for the container, as a runtime calls it.
    fn inject(&mut self) -> (Output, Duration) {
        let mut unshare = program::command("unshare", &["--mount", "sh", "-c"]);
        let script = "mount --bind \"$1\" \"$1\" && mount -t proc proc \"$1/proc\" && echo up && exec sleep 2147483647";
        unshare.args([script, "sh"]).arg(self.rootfs.dir()).stdout(Stdio::piped());
        let mut starter = unshare.spawn().expect("unshare");
        let mut word = [0; 3];
        starter.stdout.take().expect("pipe").read_exact(&mut word).expect("the container comes up");
        let bundle = self.rootfs.dir().parent().expect("bundle");
        let config = json!({
            "ociVersion": "1.0.2",
            "process": { "args": ["/sbin/init"], "cwd": "/", "user": { "uid": 0, "gid": 0 },
                         "env": ["NVIDIA_VISIBLE_DEVICES=all"] },
            "root": { "path": "rootfs" },
            "linux": { "namespaces": [{ "type": "mount" }] },
        });
        fs::write(bundle.join("config.json"), config.to_string()).expect("config.json");
        let state = json!({ "ociVersion": "1.0.2", "id": "trap", "status": "creating", "pid": starter.id(),
                            "bundle": bundle });
        self.starter = Some(starter);
        let began = Instant::now();
        let hook = self.host.oci_hook("createRuntime", &["--mig-config", "all"]);
        let mut command = Command::new("timeout");
        command.arg("30").args(hook);
        (program::fed(command, state.to_string().as_bytes()), began.elapsed())
    }
}

impl Drop for Trap<'_> {
    fn drop(&mut self) {
        if let Some(mut starter) = self.starter.take() {
            let _ended_before = starter.kill();
            let _ended_before = starter.wait();
        }
        let _of_this_trap = fs::remove_dir_all("/run/gpuhook");
        let _still_there_where_the_test_failed = fs::remove_dir_all(self.bed.dir("host"));
    }
}

/// What a hook in shell does: `touch "$ROOTFS/dev/nvidia-uvm"`, `chmod`, in words of this language. Whether it comes
/// back at all is found out without waiting.
fn naively(rootfs: &Rootfs) -> std::io::Result<()> {
    let path = rootfs.path(UVM);
    fs::create_dir_all(path.parent().expect("a directory"))?;
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(nonblock).open(&path)?;
    file.set_permissions(PermissionsExt::from_mode(0o666))
}

/// What is to be seen of an injection into a trap.
enum Answer {
    /// The start is refused with these words.
    Refused(&'static str),
    /// The trap is stepped over: the node stands in the container.
    Injected,
}

/// How the naive way ends.
enum Fall {
    /// The host is changed.
    Host,
    /// The open fails or would wait for ever.
    Stuck,
}

fn trap(name: &str, set: impl Fn(&Rootfs, &Path), answer: Answer, fall: Fall) {
    let Some(bed) = Bed::pure(name) else { return };
    let mut trap = Trap::new(&bed, "ours", &set);
    let (host, inside) = (trap.of_host(), trap.of_container());
    let (output, took) = trap.inject();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    assert_eq!(trap.of_host(), host, "the host is as it was: {}", program::both(&output));
    match answer {
        Answer::Refused(words) => {
            let sentence = program::refusal(&output, 1);
            assert!(sentence.contains(words), "{words:?} is not in {sentence}");
            assert_eq!(trap.of_container(), inside, "the container is as it was: {sentence}");
            assert_eq!(bed.kept(), [""; 0], "{sentence}");
        }
        Answer::Injected => assert!(output.status.success(), "{}", program::both(&output)),
    }
    drop(trap);

    let naive = Trap::new(&bed, "naive", &set);
    let host = naive.of_host();
    let result = naively(&naive.rootfs);
    match fall {
        Fall::Host => assert_ne!(naive.of_host(), host, "the naive way falls into the trap: {result:?}"),
        Fall::Stuck => assert!(result.is_err(), "the naive way is stuck"),
    }
}

fn replace_dev(rootfs: &Rootfs, target: impl AsRef<Path>) {
    fs::remove_dir(rootfs.path("/dev")).expect("an empty /dev");
    symlink(target, rootfs.path("/dev")).expect("link");
}

#[test]
fn dev_as_a_link_to_a_host_directory_is_refused() {
    trap("dev-link", |rootfs, victim| replace_dev(rootfs, victim), Answer::Refused("/dev"), Fall::Host);
}

#[test]
fn dev_as_a_relative_link_out_of_the_root_is_refused() {
    let set = |rootfs: &Rootfs, victim: &Path| {
        let up = "../".repeat(32);
        replace_dev(rootfs, format!("{up}{}", victim.strip_prefix("/").expect("absolute").display()));
    };
    trap("dev-relative", set, Answer::Refused("/dev"), Fall::Host);
}

#[test]
fn dev_as_a_link_to_what_exists_below_the_root_too_stays_below_the_root() {
    let set = |rootfs: &Rootfs, victim: &Path| {
        fs::create_dir_all(rootfs.path(&victim.display().to_string())).expect("twin");
        replace_dev(rootfs, victim);
    };
    trap("dev-twin", set, Answer::Injected, Fall::Host);
}

#[test]
fn dev_through_a_magic_link_of_proc_is_refused() {
    let set = |rootfs: &Rootfs, victim: &Path| {
        replace_dev(rootfs, format!("/proc/thread-self/root{}", victim.display()));
    };
    trap("dev-magic", set, Answer::Refused("ELOOP"), Fall::Host);
}

#[test]
fn a_node_that_is_a_link_to_a_host_file_is_refused() {
    let set = |rootfs: &Rootfs, victim: &Path| symlink(victim.join("secret"), rootfs.path(UVM)).expect("link");
    trap("node-link", set, Answer::Refused("a symbolic link at /dev/nvidia-uvm"), Fall::Host);
}

#[test]
fn a_dangling_link_makes_no_file_on_the_host() {
    let set = |rootfs: &Rootfs, victim: &Path| symlink(victim.join("new"), rootfs.path(UVM)).expect("link");
    trap("node-dangling", set, Answer::Refused("a symbolic link at /dev/nvidia-uvm"), Fall::Host);
}

#[test]
fn a_fifo_is_refused_without_waiting_for_a_reader() {
    let set = |rootfs: &Rootfs, _: &Path| {
        mknodat(CWD, rootfs.path(UVM), FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("fifo");
    };
    trap("node-fifo", set, Answer::Refused("a FIFO"), Fall::Stuck);
}

#[test]
fn a_directory_is_refused() {
    let set = |rootfs: &Rootfs, _: &Path| fs::create_dir(rootfs.path(UVM)).expect("directory");
    trap("node-directory", set, Answer::Refused("a directory at /dev/nvidia-uvm"), Fall::Stuck);
}

/// The mount covers the name in the container; the file, which the host has under another name, is not opened.
#[test]
fn a_hard_link_to_a_host_file_is_covered_and_the_file_untouched() {
    let set = |rootfs: &Rootfs, victim: &Path| fs::hard_link(victim.join("secret"), rootfs.path(UVM)).expect("link");
    trap("node-hard", set, Answer::Injected, Fall::Host);
}

#[test]
fn a_directory_on_the_way_that_is_a_link_to_the_host_is_refused() {
    let set = |rootfs: &Rootfs, victim: &Path| {
        symlink(victim, rootfs.path("/dev/nvidia-caps")).expect("link");
    };
    let Some(bed) = Bed::pure("caps-link") else { return };
    let mut trap = Trap::new(&bed, "ours", set);
    let host = trap.of_host();
    let (output, _) = trap.inject();
    assert_eq!(trap.of_host(), host, "{}", program::both(&output));
    assert!(program::refusal(&output, 1).contains("/dev/nvidia-caps"), "{}", program::both(&output));
    drop(trap);
    let naive = Trap::new(&bed, "naive", set);
    File::create(naive.rootfs.path("/dev/nvidia-caps/nvidia-cap1")).expect("the naive way");
    assert_ne!(naive.of_host(), host);
}

/// The race, in its short form; `make race` runs the long one. The naive way must lose it, or it is no race.
#[test]
fn a_directory_that_is_swapped_during_the_mounts_leads_nowhere() {
    let run = |words: &[&str]| program::output(program::command(program::build_dir().join("race"), words));
    let naive = run(&["--naive", "200000"]);
    assert!(program::both(&naive).contains("escapes: 1"), "{}", program::both(&naive));
    let ours = run(&[&std::env::var("GPUHOOK_RACE").unwrap_or_else(|_| "200".to_owned())]);
    let said = program::both(&ours);
    assert!(ours.status.success() && said.contains("escapes: 0"), "{said}");
    println!("COUNT {}", said.trim().replace('\n', "; "));
}

/// A FIFO for what the hostile library says, open before it speaks.
fn ear(rootfs: &Rootfs) -> File {
    let path = rootfs.path("/told");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("fifo");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("mode");
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path).expect("fifo")
}

fn told(mut ear: File) -> String {
    let mut text = Vec::new();
    match ear.read_to_end(&mut text) {
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => panic!("{error}"),
        _ => String::from_utf8_lossy(&text).into_owned(),
    }
}

fn replace_libcuda(dir: &Path) {
    for entry in fs::read_dir(dir).expect("folder").map(|entry| entry.expect("entry")) {
        if entry.file_type().expect("type").is_dir() {
            replace_libcuda(&entry.path());
        } else if entry.file_name() == "libcuda.so.1" {
            fs::copy(standin::hostile(), entry.path()).expect("copy");
        }
    }
}

/// Everything at once, through a real runc, at the moment at which the host's tree can still be seen in the container's
/// mount namespace.
fn hostile_libcuda(name: &str, ending: &str, report: &str) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 1);
    host.configure("load-modules = false\n[verify]\nl3 = \"off\"\nl5 = \"warn\"\ntime-limit-seconds = 2\n");
    let victim = bed.dir("victim").join("secret");
    fs::write(&victim, SECRET).expect("file of the host");
    fs::set_permissions(&victim, PermissionsExt::from_mode(0o666)).expect("mode");
    let mut runc = Runc::new(&bed, "c1");
    replace_libcuda(runc.rootfs().dir());
    runc.rootfs().write("/etc/hostile", ending);
    runc.rootfs().write("/etc/victim", &victim.display().to_string());
    let ear = ear(runc.rootfs());
    runc.env("NVIDIA_VISIBLE_DEVICES=all");
    runc.hook("createRuntime", &host.oci_hook("createRuntime", &[]));
    let began = Instant::now();
    let running = runc.start();
    let took = began.elapsed();
    let said = told(ear);
    for attack in ["host", "fds", "ptrace", "signal"] {
        assert!(said.lines().any(|line| line == format!("{attack} none")), "{attack} was of use:\n{said}");
    }
    for attack in ["stay", "print", "end"] {
        assert!(said.lines().any(|line| line == format!("{attack} tried")), "{attack} was not tried:\n{said}");
    }
    assert_eq!(fs::read_to_string(&victim).expect("file of the host"), SECRET);
    assert!(took < Duration::from_secs(15), "the start took {took:?}");
    assert_eq!(running.story(), "", "a hook that succeeds is silent");
    let kept = fs::read_to_string(format!("/run/gpuhook/oci/{}/report.json", runc.id())).expect("report");
    assert!(kept.contains(report), "{report:?} is not in {kept}");
    let cgroup = bed.cgroup2().join(runc.id());
    let left = fs::read_to_string(cgroup.join("cgroup.procs")).expect("processes");
    assert_eq!(left.trim(), running.init_pid().to_string(), "only init is left of the start");
}

#[test]
fn a_hostile_libcuda_gets_nowhere_and_is_reported() {
    hostile_libcuda("cuda-returns", "return", "sees 1 GPUs");
}

#[test]
fn a_hostile_libcuda_that_sleeps_is_ended_with_all_it_started() {
    hostile_libcuda("cuda-sleeps", "sleep", "no answer within the time limit");
}

#[test]
fn a_hostile_libcuda_that_dies_is_named() {
    hostile_libcuda("cuda-dies", "die", "killed by signal 6");
}

/// What `chroot ROOTFS nvidia-smi`, as root, would let the same library do.
#[test]
fn the_same_libcuda_in_a_mere_chroot_owns_the_host() {
    let Some(bed) = Bed::pure("cuda-naive") else { return };
    let victim = bed.dir("victim").join("secret");
    fs::write(&victim, SECRET).expect("file of the host");
    let rootfs = Rootfs::new(bed.dir("rootfs"));
    replace_libcuda(rootfs.dir());
    rootfs.write("/etc/hostile", "careless");
    rootfs.write("/etc/victim", &victim.display().to_string());
    let ear = ear(&rootfs);
    // In a pid namespace, so that what it leaves behind ends with it; without /proc, or it would trace this test.
    let mut chroot = program::command("unshare", &["--pid", "--fork", "--kill-child", "sh", "-c"]);
    // chroot's own codes say that it could not execute the program, and the library prints megabytes.
    let script = "chroot \"$1\" /bin/cuda-check >/dev/null 2>&1; code=$?; [ $code -lt 125 ] || echo $code; exit 0";
    chroot.args([script, "sh"]).arg(rootfs.dir());
    assert_eq!(program::stdout(chroot), "", "it was not started");
    let said = told(ear);
    assert!(said.contains("host out-of-chroot") && said.contains("ptrace parent"), "the naive way held: {said:?}");
    assert!(fs::read_to_string(&victim).expect("file of the host").starts_with(&format!("{SECRET}owned")));
}
