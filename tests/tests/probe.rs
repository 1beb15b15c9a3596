// SPDX-License-Identifier: MIT OR Apache-2.0
//! The opens and the cuInit from inside a container: a process in namespaces of its own, made by unshare(1), with the
//! stand-in libcuda. What the guest may do is asserted from inside, by a libcuda that tells.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gpuhook_core::device::{ContainerPath, DeviceId};
use gpuhook_linux::probe::{self, CuInit, Opened};
use gpuhook_linux::sys::Errno;
use gpuhook_linux::sys::process;
use gpuhook_linux::target::{Target, User};
use gpuhook_probe::Stage;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::inside::Inside;
use gpuhook_tests::rootfs::{MAPPED_ROOT, Rootfs};
use gpuhook_tests::{program, standin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Long enough for a busy machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(30);

/// A mapped user namespace, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unprivileged,
    Privileged,
}

/// A process in namespaces of its own, and a cgroup for the probe.
struct Container<'bed> {
    bed: &'bed Bed,
    starter: Child,
    pid: u32,
}

const PIVOT: &str = "pivot_root . tmp\nexec bin/busybox sh -c 'umount -l /tmp; exec /sbin/init'\n";
/// As an OCI runtime at createRuntime: everything is mounted, and the root is still the host's.
const STAY: &str = "exec bin/busybox sh -c 'echo up >report; exec bin/busybox sleep 2147483647'\n";

impl<'bed> Container<'bed> {
    fn start(bed: &'bed Bed, rootfs: &Rootfs, kind: Kind, last_step: &str) -> Self {
        let mut unshare = program::command("unshare", &["--mount", "--pid", "--fork"]);
        unshare.args(["--ipc", "--uts", "--net", "--cgroup"]);
        if kind == Kind::Unprivileged {
            rootfs.give_to(MAPPED_ROOT);
            let map = format!("{MAPPED_ROOT},0,65536");
            unshare.args(["--user", "--setuid=0", "--setgid=0"]);
            unshare.args(["--map-users", &map, "--map-groups", &map]);
        }
        let script = format!("set -e\nmount --bind \"$1\" \"$1\"\ncd \"$1\"\nmount -t proc proc proc\n{last_step}");
        unshare.args(["sh", "-c", &script, "sh"]).arg(rootfs.dir()).stdout(Stdio::null()).stderr(Stdio::null());
        let listener = rootfs.listen();
        let mut starter = unshare.spawn().expect("unshare");
        listener.report(&mut starter).expect("the container comes up");
        let children = format!("/proc/{0}/task/{0}/children", starter.id());
        let pid = fs::read_to_string(children).expect("children").trim().parse().expect("one child");
        let container = Self { bed, starter, pid };
        fs::create_dir(container.leaf()).expect("cgroup for the probe");
        container
    }

    fn target(&self) -> Target {
        Target::open(self.pid).expect("target")
    }

    fn leaf(&self) -> PathBuf {
        self.bed.cgroup2().join(format!("{}-{}", self.bed.name(), self.pid))
    }

    /// Calls cuInit, and checks what must be true after every call: nobody is left.
    fn cuinit(&self, target: &Target, limit: Duration) -> CuInit {
        let leaf = File::open(self.leaf()).expect("leaf");
        let result = probe::cuinit(target, Some(leaf.as_fd()), limit).expect("a check that could be made");
        assert_eq!(self.processes(), [] as [u32; 0], "processes left by {result:?}");
        result
    }

    fn processes(&self) -> Vec<u32> {
        let procs = fs::read_to_string(self.leaf().join("cgroup.procs")).expect("processes of the leaf");
        procs.lines().map(|line| line.parse().expect("pid")).collect()
    }

    fn namespace(&self, name: &str) -> String {
        fs::read_link(format!("/proc/{}/ns/{name}", self.pid)).expect("namespace").display().to_string()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let init = Pid::from_raw(self.pid.cast_signed()).expect("pid");
        let _ended_before = rustix::process::kill_process(init, rustix::process::Signal::KILL);
        let _ended_before = self.starter.wait();
        let _still_in_use_where_the_test_failed = fs::remove_dir(self.leaf());
    }
}

/// A root filesystem whose GPU nodes have no driver behind them, as the stand-in libcuda wants it.
fn rootfs(bed: &Bed) -> Rootfs {
    let rootfs = Rootfs::new(bed.dir("rootfs"));
    for (path, number) in [
        ("/dev/null", (1, 3)),
        ("/dev/zero", (1, 5)),
        ("/dev/nvidiactl", (195, 255)),
        ("/dev/nvidia0", (195, 0)),
        ("/dev/nvidia7", (195, 7)),
        ("/dev/nvidia-uvm", (509, 0)),
    ] {
        rootfs.node(path, number);
    }
    rootfs
}

/// Every file of that name in the root filesystem.
fn find(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("folder").map(|entry| entry.expect("entry")) {
        if entry.file_type().expect("type").is_dir() {
            find(&entry.path(), name, found);
        } else if entry.file_name() == name {
            found.push(entry.path());
        }
    }
}

fn libraries(rootfs: &Rootfs, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    find(rootfs.dir(), name, &mut found);
    assert!(!found.is_empty(), "{name} in the root filesystem");
    found
}

fn remove(rootfs: &Rootfs, name: &str) {
    libraries(rootfs, name).iter().for_each(|path| fs::remove_file(path).expect("removal"));
}

fn let_libcuda_tell(rootfs: &Rootfs) {
    for path in libraries(rootfs, "libcuda.so.1") {
        fs::copy(standin::confessor(), path).expect("copy of the confessor");
    }
    // It can be opened for writing by whoever the guest is.
    fs::set_permissions(rootfs.path("/report"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("mode");
}

/// What the telling libcuda said while `call` ran.
fn told(rootfs: &Rootfs, call: impl FnOnce() -> CuInit) -> (CuInit, Inside) {
    let listener = rootfs.listen();
    let result = call();
    // The FIFO holds it all; a process that has nothing to do with it stands for the one who starts a container.
    let mut anyone = program::command("true", &[]).spawn().expect("true");
    (result, listener.report(&mut anyone).expect("a confession"))
}

fn values<'a>(said: &'a Inside, key: &str) -> Vec<&'a str> {
    said.0.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).collect()
}

fn status<'a>(said: &'a Inside, key: &str) -> Vec<&'a str> {
    let lines = values(said, "status").into_iter();
    let line = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(':')).next();
    line.unwrap_or_else(|| panic!("{key} in {}", said.0)).split_whitespace().collect()
}

fn assert_powerless(container: &Container<'_>, kind: Kind, user: &User, said: &Inside) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(said, set), ["0000000000000000"], "{set}");
    }
    assert_eq!(status(said, "NoNewPrivs"), ["1"]);
    assert_eq!(status(said, "Uid"), [&*user.uid.to_string(); 4]);
    assert_eq!(status(said, "Gid"), [&*user.gid.to_string(); 4]);
    assert_eq!(status(said, "Groups"), user.groups.iter().map(u32::to_string).collect::<Vec<_>>());
    assert_eq!(status(said, "SigBlk"), ["0000000000000000"]);

    let descriptors = values(said, "fd");
    let [a, b, c, records] = descriptors[..] else { panic!("four descriptors, not {descriptors:?}") };
    assert_eq!([a, b, c], ["/dev/null"; 3]);
    assert!(records.starts_with("pipe:"), "{records}");
    assert_eq!(values(said, "env"), [] as [&str; 0]);
    assert_eq!(values(said, "cwd"), ["/"]);
    assert_eq!(values(said, "dumpable"), ["0"]);
    assert_eq!(values(said, "session"), ["1"]);

    let leaf = container.leaf().file_name().expect("a name").display().to_string();
    let cgroups = values(said, "cgroup");
    assert!(cgroups.iter().any(|line| line.ends_with(&leaf)), "{cgroups:?}");
    for name in ["net", "ipc", "uts", "cgroup"] {
        assert_eq!(values(said, &format!("ns:{name}")), [container.namespace(name)], "{name}");
    }
    assert_eq!(values(said, "ns:user"), [container.namespace("user")]);
    assert_eq!(status(said, "NSpid").len(), 2, "the container's /proc shows it there and in a namespace below");
    let own_user = fs::read_link("/proc/self/ns/user").expect("namespace").display().to_string();
    assert_eq!(container.namespace("user") == own_user, kind == Kind::Privileged, "the bed gave what was asked for");

    assert_eq!(values(said, "limit:core"), ["1"]);
    assert_eq!(values(said, "limit:data"), [(8u64 << 30).to_string()]);
    for path in ["/tmp/made", "/etc/passwd", "/proc/sys/kernel/core_pattern"] {
        let refused = values(said, &format!("open:{path}"));
        assert!(["EROFS", "EACCES"].contains(&refused[0]), "{path}: {refused:?}");
    }
    assert_eq!(values(said, "open:/proc/1/mem"), ["EACCES"]);
    assert_eq!(values(said, "open:/dev/null"), ["OK"]);
    assert_eq!(values(said, "open:/dev/zero"), ["OK"], "a root-owned node of mode 0666");
}

#[test]
fn guest_of_an_unprivileged_container_has_no_power() {
    let Some(bed) = Bed::pure("probe-unprivileged") else { return };
    let rootfs = rootfs(&bed);
    let_libcuda_tell(&rootfs);
    let container = Container::start(&bed, &rootfs, Kind::Unprivileged, PIVOT);
    for user in [User::default(), User { uid: 1000, gid: 1001, groups: vec![44, 1002] }] {
        let target = container.target().with_user(user.clone());
        let (result, said) = told(&rootfs, || container.cuinit(&target, LIMIT));
        assert_eq!(result, CuInit::Answered { code: 0, count_code: 0, devices: 1, driver_version: 13000 });
        assert_powerless(&container, Kind::Unprivileged, &user, &said);
    }
}

#[test]
fn guest_of_a_privileged_container_has_no_power() {
    let Some(bed) = Bed::pure("probe-privileged") else { return };
    let rootfs = rootfs(&bed);
    let_libcuda_tell(&rootfs);
    let container = Container::start(&bed, &rootfs, Kind::Privileged, PIVOT);
    for user in [User::default(), User { uid: 1000, gid: 1001, groups: vec![44, 1002] }] {
        let target = container.target().with_user(user.clone());
        let (result, said) = told(&rootfs, || container.cuinit(&target, LIMIT));
        assert_eq!(result, CuInit::Answered { code: 0, count_code: 0, devices: 1, driver_version: 13000 });
        assert_powerless(&container, Kind::Privileged, &user, &said);
    }
}

#[test]
fn guest_before_pivot_root_has_the_containers_root_and_no_power() {
    let Some(bed) = Bed::pure("probe-prestart") else { return };
    let rootfs = rootfs(&bed);
    let_libcuda_tell(&rootfs);
    let container = Container::start(&bed, &rootfs, Kind::Privileged, STAY);
    let target = container.target().with_rootfs(rootfs.dir().display().to_string());
    let (result, said) = told(&rootfs, || container.cuinit(&target, LIMIT));
    assert_eq!(result, CuInit::Answered { code: 0, count_code: 0, devices: 1, driver_version: 13000 });
    assert_powerless(&container, Kind::Privileged, &User::default(), &said);
    // Its own root could not be written, and neither can the host's, which its mounts still hold.
    assert_eq!(values(&said, "open:/proc/sys/kernel/core_pattern"), ["EROFS"]);
}

#[test]
fn answers_are_those_of_the_containers_libcuda() {
    let Some(bed) = Bed::pure("probe-answers") else { return };
    let rootfs = rootfs(&bed);
    let container = Container::start(&bed, &rootfs, Kind::Unprivileged, PIVOT);
    let target = container.target();
    let answer = |code, devices| CuInit::Answered { code, count_code: 0, devices, driver_version: 13000 };
    assert_eq!(container.cuinit(&target, LIMIT), answer(0, 2), "the stand-in reaches two GPUs and uvm");

    fs::remove_file(rootfs.path("/dev/nvidia-uvm")).expect("removal");
    assert_eq!(container.cuinit(&target, LIMIT), answer(999, 0), "without uvm");
    for code in [3, 100, 803] {
        rootfs.write("/etc/standin-cuda", &code.to_string());
        assert_eq!(container.cuinit(&target, LIMIT), answer(code, 0));
    }
    // What it prints goes nowhere, also where there is no /dev/null.
    rootfs.write("/etc/standin-cuda", "print");
    assert_eq!(container.cuinit(&target, LIMIT), answer(999, 0));
    fs::remove_file(rootfs.path("/dev/null")).expect("removal");
    assert_eq!(container.cuinit(&target, LIMIT), answer(999, 0));
}

#[test]
fn libcuda_that_misbehaves_is_told_and_ended() {
    let Some(bed) = Bed::pure("probe-misbehaviour") else { return };
    let rootfs = rootfs(&bed);
    let container = Container::start(&bed, &rootfs, Kind::Unprivileged, PIVOT);
    let target = container.target();

    rootfs.write("/etc/standin-cuda", "abort");
    assert_eq!(container.cuinit(&target, LIMIT), CuInit::Crashed { signal: 6, stage: Some(Stage::Loaded) });
    rootfs.write("/etc/standin-cuda", "fork");
    let answer = container.cuinit(&target, LIMIT);
    assert!(matches!(answer, CuInit::Answered { code: 0, .. }), "{answer:?}; its child is gone");

    rootfs.write("/etc/standin-cuda", "sleep");
    let (limit, start) = (Duration::from_secs(2), Instant::now());
    assert_eq!(container.cuinit(&target, limit), CuInit::TimedOut { stage: Some(Stage::Loaded) });
    assert!((limit..limit + Duration::from_secs(1)).contains(&start.elapsed()), "{:?}", start.elapsed());

    let_libcuda_tell(&rootfs);
    for (deed, outcome) in [
        ("scribble", CuInit::Garbled),
        ("flood", CuInit::Garbled),
        ("exit", CuInit::Quit { code: 7, stage: Stage::Loaded }),
    ] {
        rootfs.write("/etc/confessor", deed);
        let start = Instant::now();
        let (result, _) = told(&rootfs, || container.cuinit(&target, LIMIT));
        assert_eq!(result, outcome, "{deed}");
        assert!(start.elapsed() < LIMIT / 2, "{deed} is ended at once");
    }
}

#[test]
fn containers_that_cannot_have_cuda_are_told_apart() {
    let Some(bed) = Bed::pure("probe-without") else { return };
    let rootfs = rootfs(&bed);
    let container = Container::start(&bed, &rootfs, Kind::Unprivileged, PIVOT);
    let target = container.target();
    remove(&rootfs, "libcuda.so.1");
    assert_eq!(container.cuinit(&target, LIMIT), CuInit::NoLibrary);
    // A C library that has the loader's name but not the library that programs need: the loader gives up.
    remove(&rootfs, "libdl.so.2");
    assert_eq!(container.cuinit(&target, LIMIT), CuInit::NoLoader);
    remove(&rootfs, "ld-linux-x86-64.so.2");
    assert_eq!(container.cuinit(&target, LIMIT), CuInit::NoLoader);
}

#[test]
fn guest_ends_with_a_hook_that_is_killed() {
    let Some(bed) = Bed::pure("probe-killed") else { return };
    let rootfs = rootfs(&bed);
    rootfs.write("/etc/standin-cuda", "sleep");
    let container = Container::start(&bed, &rootfs, Kind::Unprivileged, PIVOT);
    let (target, leaf) = (container.target(), File::open(container.leaf()).expect("leaf"));
    let hook = process::fork(|| {
        let _killed_before = probe::cuinit(&target, Some(leaf.as_fd()), LIMIT);
        0
    })
    .expect("fork");
    let guests = wait_for_guests(&container);
    assert_eq!(hook.kill().expect("kill"), Err(9), "it was killed, and had not ended");
    let limit = Timespec::try_from(LIMIT / 2).expect("a short time");
    for guest in &guests {
        let ended = poll(&mut [PollFd::new(guest, PollFlags::IN)], Some(&limit)).expect("poll");
        assert_eq!(ended, 1, "a process of the check outlives its hook");
    }
}

/// Waits until the image runs in the leaf, and returns a descriptor of every process there.
fn wait_for_guests(container: &Container<'_>) -> Vec<rustix::fd::OwnedFd> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let pids = container.processes();
        let exe = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default().display().to_string();
        let runs = |pid: &u32| exe(pid).starts_with("/memfd:gpuhook-probe");
        if pids.iter().any(runs) {
            let pid = |pid: &u32| Pid::from_raw(pid.cast_signed()).expect("pid");
            return pids.iter().map(|each| pidfd_open(pid(each), PidfdFlags::empty()).expect("pidfd")).collect();
        }
        assert!(Instant::now() < deadline, "no guest in {pids:?}");
        std::thread::yield_now();
    }
}

/// The leaf in the devices hierarchy of a hybrid bed, which allows nothing but `rules`.
fn device_leaf(bed: &Bed, rules: &[&str]) -> PathBuf {
    let leaf = Path::new("/sys/fs/cgroup/devices").join(bed.name());
    fs::create_dir(&leaf).expect("cgroup");
    fs::write(leaf.join("devices.deny"), "a").expect("deny all");
    rules.iter().for_each(|rule| fs::write(leaf.join("devices.allow"), rule).expect("allow"));
    leaf
}

fn path(text: &str) -> ContainerPath {
    ContainerPath::new(text).expect("plain path")
}

fn open_nodes_of(kind: Kind, name: &str) {
    let Some(bed) = Bed::hybrid(name) else { return };
    let rootfs = rootfs(&bed);
    rootfs.node("/dev/private", (1, 3));
    fs::set_permissions(rootfs.path("/dev/private"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("mode");
    rootfs.write("/dev/file", "");
    std::os::unix::fs::symlink("/proc/1/root/dev/zero", rootfs.path("/dev/magic")).expect("link");
    std::os::unix::fs::symlink("../../../../dev/null", rootfs.path("/dev/link")).expect("link");
    let container = Container::start(&bed, &rootfs, kind, PIVOT);
    let leaf = device_leaf(&bed, &["c 1:3 rw", "c 509:0 rw"]);
    let leaf = File::open(leaf).expect("leaf");

    let user = User { uid: 1000, gid: 1000, groups: vec![] };
    let target = container.target().with_user(user);
    let expected = [
        ("/dev/null", Ok(()), Some(DeviceId::new(1, 3)), 0o666),
        ("/dev/link", Ok(()), Some(DeviceId::new(1, 3)), 0o666),
        ("/dev/private", Err(Errno::ACCESS), Some(DeviceId::new(1, 3)), 0o600),
        ("/dev/zero", Err(Errno::PERM), Some(DeviceId::new(1, 5)), 0o666),
        ("/dev/nvidia-uvm", Err(Errno::NXIO), Some(DeviceId::new(509, 0)), 0o666),
        ("/dev/nvidia0", Err(Errno::PERM), Some(DeviceId::new(195, 0)), 0o666),
        ("/dev/nvidia1", Err(Errno::NOENT), None, 0),
        ("/dev/file", Err(Errno::ACCESS), None, 0o644),
        ("/dev/magic", Err(Errno::ACCESS), None, 0),
    ];
    let paths: Vec<ContainerPath> = expected.iter().map(|(text, ..)| path(text)).collect();
    let opened = probe::open_nodes(&target, Some(leaf.as_fd()), &paths).expect("opens");
    let expected =
        expected.map(|(text, result, device, mode)| Opened { path: path(text), result, device, mode, uid: 0, gid: 0 });
    assert_eq!(opened, expected);

    // As root of the container, still without CAP_DAC_OVERRIDE; and without the cgroup no filter refuses.
    let opened = probe::open_nodes(&container.target(), None, &paths).expect("opens");
    let fine: BTreeSet<&str> =
        opened.iter().filter(|opened| opened.result.is_ok()).map(|opened| opened.path.as_str()).collect();
    assert_eq!(fine, BTreeSet::from(["/dev/file", "/dev/link", "/dev/null", "/dev/private", "/dev/zero"]));
}

#[test]
fn opens_in_an_unprivileged_container_say_what_refuses_them() {
    open_nodes_of(Kind::Unprivileged, "opens-unprivileged");
}

#[test]
fn opens_in_a_privileged_container_say_what_refuses_them() {
    open_nodes_of(Kind::Privileged, "opens-privileged");
}

#[test]
fn a_cgroup_that_cannot_be_joined_is_an_error_and_no_answer() {
    let Some(bed) = Bed::pure("probe-no-cgroup") else { return };
    let rootfs = rootfs(&bed);
    let container = Container::start(&bed, &rootfs, Kind::Privileged, PIVOT);
    let not_a_cgroup = File::open(rootfs.dir()).expect("folder");
    let error = probe::cuinit(&container.target(), Some(not_a_cgroup.as_fd()), LIMIT).expect_err("no cgroup");
    assert!(error.to_string().contains("cgroup.procs"), "{error}");
    assert!(probe::open_nodes(&container.target(), Some(not_a_cgroup.as_fd()), &[path("/dev/null")]).is_err());
}
