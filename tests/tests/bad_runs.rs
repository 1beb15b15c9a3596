// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two runs at once for one container, and a container that dies during one: what remains is whole, or nothing.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use gpuhook_tests::bed::Bed;
use gpuhook_tests::footprint::Witness;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::Lxc;
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::Runc;
use rustix::process::{Pid, Signal, kill_process};

/// A host on which every check but the open of a device without driver counts.
fn host(bed: &Bed) -> Host {
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    host.configure("load-modules = false\n[verify]\nl3 = \"off\"\nl5 = \"enforce\"\n");
    host
}

const REQUEST: [&str; 6] = ["--devices", "0", "--mig-config", "all", "--imex-channels", "0"];

fn start(host: &Host, words: &[&str]) -> Child {
    let mut command = host.gpuhook(&[words, &REQUEST].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("gpuhook")
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("wait for gpuhook")
}

/// Looks again until `what` is there.
fn wait_until(what: &str, there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !there() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The lock of a container's run state, as another run would hold it.
struct Lock {
    dir: PathBuf,
    file: File,
}

impl Lock {
    fn take(engine: &str, id: &str) -> Self {
        let dir = Path::new("/run/gpuhook").join(engine).join(id);
        fs::create_dir_all(&dir).expect("folder of the run state");
        let file = File::open(&dir).expect("folder of the run state");
        file.lock().expect("the lock");
        Self { dir, file }
    }

    /// Waits until some process waits for it (proc(5): `->` marks a blocked one).
    fn wait_for_a_waiter(&self) {
        let inode = format!(":{} ", self.file.metadata().expect("metadata").ino());
        wait_until(&format!("a waiter for {}", self.dir.display()), || {
            let locks = fs::read_to_string("/proc/locks").expect("/proc/locks");
            locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode))
        });
    }
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::KILL).expect("kill of init");
}

fn assert_one_of_each(witness: &Witness, bed: &Bed, programs: usize) {
    let footprint = witness.footprint(bed);
    for (path, _) in injected::asked(Majors::NEW) {
        let mount = if path.contains("imex") { "/dev/nvidia-caps-imex-channels" } else { path };
        assert_eq!(footprint.mounts_at(mount), 1, "{mount}: {footprint:#?}");
    }
    assert_eq!(footprint.programs.len(), programs, "{footprint:#?}");
}

#[test]
fn two_injections_at_once_by_pid_both_succeed_and_leave_one_set() {
    let Some(bed) = Bed::pure("two-pid") else { return };
    let host = host(&bed);
    for round in 0..5 {
        let runc = Runc::new(&bed, &format!("c{round}"));
        let running = runc.start();
        let pid = running.init_pid().to_string();
        let witness = Witness::of(&bed, running.init_pid());
        let programs = witness.footprint(&bed).programs.len();
        for child in [(); 2].map(|()| start(&host, &["inject", "--pid", &pid])) {
            let output = end(child);
            assert!(output.status.success(), "round {round}: {}", program::both(&output));
        }
        assert_one_of_each(&witness, &bed, programs);
        injected::assert_still_open(&running, host.majors());
        assert_eq!(bed.kept(), [format!("/run/gpuhook/pid/{pid}/report.json")]);
        fs::remove_dir_all("/run/gpuhook").expect("run state of a container that nobody stops");
    }
}

#[test]
fn two_injections_at_once_into_lxc_both_succeed_and_the_monitor_owns_the_rules() {
    let Some(bed) = Bed::pure("two-lxc") else { return };
    let host = host(&bed);
    for round in 0..5 {
        let lxc = Lxc::privileged(&bed, &format!("c{round}"));
        let running = lxc.start();
        let witness = Witness::of(&bed, running.init_pid());
        let before = witness.footprint(&bed);
        for child in [(); 2].map(|()| start(&host, &["inject", "--lxc", lxc.name()])) {
            let output = end(child);
            println!("{}", program::both(&output));
            assert!(output.status.success(), "round {round}: {}", program::both(&output));
        }
        assert_one_of_each(&witness, &bed, before.programs.len());
        let names = |footprint: &gpuhook_tests::footprint::Footprint| -> Vec<String> {
            footprint.programs.iter().map(|(_, name)| name.clone()).collect()
        };
        let after = witness.footprint(&bed);
        assert_eq!(names(&after), names(&before), "in the end it is LXC's own program\n{}", running.story());
        running.live_allow("c 10:200 rw");
        injected::assert_still_open(&running, host.majors());
        fs::remove_dir_all("/run/gpuhook").expect("run state");
    }
}

#[test]
fn two_hooks_at_once_in_create_runtime_both_succeed_and_leave_one_set() {
    let Some(bed) = Bed::pure("two-oci") else { return };
    let host = host(&bed);
    let hook = host.oci_hook("createRuntime", &injected::ARGUMENTS).join(" ");
    let script = bed.dir("hooks").join("two.sh");
    let state = bed.dir("hooks").join("state").display().to_string();
    let text = format!(
        "/bin/busybox cat >{state}\n{hook} <{state} & one=$!\n{hook} <{state} & two=$!\n\
         wait $one || exit 1\nwait $two || exit 2\n"
    );
    fs::write(&script, text).expect("script");
    for round in 0..5 {
        let mut runc = Runc::new(&bed, &format!("c{round}"));
        injected::prepare(runc.rootfs(), host.majors());
        runc.env(injected::ENVIRONMENT[0]);
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let command = [busybox.expect("busybox"), "sh", &script.to_string_lossy()].map(str::to_owned);
        runc.hook("createRuntime", &command).hook("poststop", &host.oci_hook("poststop", &[]));
        let running = runc.start();
        injected::assert_exact(&running, host.majors());
        assert_one_of_each(&Witness::of(&bed, running.init_pid()), &bed, 1);
        drop(running);
        assert_eq!(bed.kept(), [""; 0]);
    }
}

/// The hook waits for the lock when init is killed: nothing was done, and nothing is done any more.
fn dies_before(bed: &Bed, engine: &str, id: &str, init: u32, words: &[&str]) {
    let host = host(bed);
    let witness = Witness::of(bed, init);
    let before = witness.footprint(bed);
    let lock = Lock::take(engine, id);
    let hook = start(&host, words);
    lock.wait_for_a_waiter();
    kill(init);
    wait_until("init has ended", || fs::read_link(format!("/proc/{init}/exe")).is_err());
    drop(lock);
    let sentence = refusal(&end(hook), 1);
    assert!(sentence.contains(&init.to_string()) || sentence.contains("ended"), "{sentence}");
    assert_eq!(witness.footprint(bed), before);
    assert!(!fs::exists("/run/gpuhook").expect("look at /run"), "not even a folder is left");
}

#[test]
fn a_runc_container_that_dies_before_the_mounts_is_left_as_it_was() {
    let Some(bed) = Bed::pure("dies-runc") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let pid = running.init_pid();
    dies_before(&bed, "pid", &pid.to_string(), pid, &["inject", "--pid", &pid.to_string()]);
}

/// The probe is in cuInit, so mounts and filter stand, when init is killed: all of it is taken back.
fn dies_after(bed: &Bed, policy: &str, user_namespace: bool) {
    let host = host(bed);
    host.configure(&format!("load-modules = false\n[verify]\nl3 = \"off\"\nl5 = \"{policy}\"\n"));
    let mut runc = Runc::new(bed, policy);
    if user_namespace {
        runc.user_namespace();
    }
    runc.rootfs().write("/etc/standin-cuda", "sleep");
    let running = runc.start();
    let init = running.init_pid();
    let witness = Witness::of(bed, init);
    let before = witness.footprint(bed);
    let hook = start(&host, &["inject", "--pid", &init.to_string()]);
    let beside = format!("/sys/fs/cgroup/{}/cgroup.procs", runc.id());
    wait_until("the probe is in libcuda", || {
        let processes = fs::read_to_string(&beside).unwrap_or_default();
        let maps = |pid: &str| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        processes.lines().any(|pid| maps(pid).contains("libcuda.so.1"))
    });
    let during = witness.footprint(bed);
    assert!(during.mounts_at("/dev/nvidia-uvm") == 1 && during.programs != before.programs, "{during:#?}");
    kill(init);
    let sentence = refusal(&end(hook), 1);
    assert!(sentence.contains("ended"), "{sentence}");
    assert_eq!(witness.footprint(bed), before, "no mount, no file, the very same programs");
    assert!(!fs::exists("/run/gpuhook").expect("look at /run"), "not even a folder is left");
}

#[test]
fn a_container_that_dies_after_the_mounts_is_left_as_it_was() {
    let Some(bed) = Bed::pure("dies-later") else { return };
    dies_after(&bed, "enforce", false);
}

#[test]
fn a_container_that_dies_after_the_mounts_is_left_as_it_was_where_cuda_only_warns() {
    let Some(bed) = Bed::pure("dies-warned") else { return };
    dies_after(&bed, "warn", true);
}

#[test]
fn an_lxc_container_that_dies_before_the_mounts_is_left_as_it_was() {
    let Some(bed) = Bed::pure("dies-lxc") else { return };
    let lxc = Lxc::privileged(&bed, "c1");
    let running = lxc.start();
    let host = host(&bed);
    let lock = Lock::take("lxc", lxc.name());
    let hook = start(&host, &["inject", "--lxc", lxc.name()]);
    lock.wait_for_a_waiter();
    drop(running);
    drop(lock);
    refusal(&end(hook), 1);
    assert!(!fs::exists("/run/gpuhook").expect("look at /run"), "not even a folder is left");
}
