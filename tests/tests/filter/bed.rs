// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups of a test's own, programs of a manager, and processes inside that try to open.

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, CString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use gpuhook_core::bpf::Insn;
use gpuhook_core::facts::CgroupLocation;
use gpuhook_linux::cgroup::CgroupPath;
use gpuhook_linux::filter::Pins;
use gpuhook_linux::sys::bpf::{self, AttachFlags, Query};
use gpuhook_linux::sys::process::{Child, fork};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, makedev, mknodat, openat};

pub(crate) const OK: i32 = 0;
pub(crate) const EPERM: i32 = libc::EPERM;
pub(crate) const ENXIO: i32 = libc::ENXIO;

/// One test's cgroups and nodes; gone at its end.
pub(crate) struct Bed {
    mount: PathBuf,
    /// Below the mount, `/gpuhook-filter-PID`.
    root: String,
    is_v1: bool,
    nodes: tempfile::TempDir,
    made: Cell<u32>,
    bpffs: OnceCell<PathBuf>,
    _turn: fs::File,
}

/// A manager's program, held as a manager does.
pub(crate) struct Program {
    fd: OwnedFd,
}

impl Program {
    pub(crate) fn id(&self) -> u32 {
        bpf::prog_info(&self.fd).unwrap().id
    }
}

/// A sysctl that gets its value back.
pub(crate) struct Sysctl {
    path: &'static str,
    before: String,
}

impl Sysctl {
    pub(crate) fn set(path: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(path).unwrap();
        fs::write(path, value).unwrap();
        Self { path, before }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        let _ = fs::write(self.path, &self.before);
    }
}

/// "Return 0".
pub(crate) fn deny_all() -> Vec<Insn> {
    vec![Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)]
}

/// A helper call first (bpf_ktime_get_ns), whose number no dump shows.
pub(crate) fn deny_all_with_a_call() -> Vec<Insn> {
    vec![Insn::new(0x85, 0, 0, 0, 5), Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)]
}

/// `c major:minor rwm` and nothing else, laid out as LXC does.
pub(crate) fn only((major, minor): (u32, u32)) -> Vec<Insn> {
    vec![
        Insn::new(0x61, 2, 1, 0, 0),
        Insn::new(0x54, 2, 0, 0, 0xffff),
        Insn::new(0x61, 4, 1, 4, 0),
        Insn::new(0x61, 5, 1, 8, 0),
        Insn::new(0x55, 2, 0, 4, 2),
        Insn::new(0x55, 4, 0, 3, major.cast_signed()),
        Insn::new(0x55, 5, 0, 2, minor.cast_signed()),
        Insn::new(0xb7, 0, 0, 0, 1),
        Insn::new(0x95, 0, 0, 0, 0),
        Insn::new(0xb7, 0, 0, 0, 0),
        Insn::new(0x95, 0, 0, 0, 0),
    ]
}

pub(crate) fn bytes(program: &[Insn]) -> Vec<[u8; 8]> {
    program.iter().map(|insn| insn.to_bytes()).collect()
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

impl Bed {
    /// On cgroup2; nothing where the machine has none or we are not root.
    pub(crate) fn new() -> Option<Self> {
        Self::on(" cgroup2 ", "", false, FlockOperation::LockShared)
    }

    /// On cgroup2, while no other test of this file runs there: for one that changes the machine.
    pub(crate) fn alone() -> Option<Self> {
        Self::on(" cgroup2 ", "", false, FlockOperation::LockExclusive)
    }

    /// On the v1 devices controller.
    pub(crate) fn v1() -> Option<Self> {
        Self::on(" cgroup ", "devices", true, FlockOperation::LockShared)
    }

    fn on(kind: &str, option: &str, is_v1: bool, lock: FlockOperation) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| {
            line.contains(&format!(" -{kind}"))
                && (option.is_empty()
                    || line.rsplit(' ').next().is_some_and(|all| all.split(',').any(|it| it == option)))
        });
        let mount = mount.and_then(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let Some(mount) = mount.filter(|_| rustix::process::geteuid().is_root()) else {
            assert!(std::env::var_os("GPUHOOK_MUST_WORK").is_none(), "no{kind}hierarchy with {option:?}, or not root");
            println!("SKIP no{kind}hierarchy with {option:?}, or not root");
            return None;
        };
        let turn = fs::File::open(&mount).unwrap();
        rustix::fs::flock(&turn, lock).unwrap();
        let nodes = tempfile::tempdir().unwrap();
        let root = format!("/gpuhook-filter-{}", nodes.path().file_name().unwrap().to_str().unwrap().replace('.', ""));
        fs::create_dir(mount.join(&root[1..])).unwrap();
        Some(Self { mount, root, is_v1, nodes, made: Cell::new(0), bpffs: OnceCell::new(), _turn: turn })
    }

    /// A new cgroup below the bed's root; its path in the hierarchy.
    pub(crate) fn cgroup(&self, name: &str) -> String {
        let path = self.path_of(name);
        fs::create_dir(self.at(&path)).unwrap();
        path
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    pub(crate) fn remove(&self, cgroup: &str) {
        fs::remove_dir(self.at(cgroup)).unwrap();
    }

    fn at(&self, cgroup: &str) -> PathBuf {
        self.mount.join(&cgroup[1..])
    }

    pub(crate) fn path(&self, leaf: &str, top: &str) -> CgroupPath {
        let (mount, path) = (self.mount.to_str().unwrap().to_owned(), leaf.to_owned());
        let location = if self.is_v1 { CgroupLocation::V1 { mount, path } } else { CgroupLocation::V2 { mount, path } };
        CgroupPath::open(&location, top).unwrap()
    }

    /// Pins on a bpffs of this test alone.
    pub(crate) fn pins(&self) -> Pins {
        self.pins_of("c.1")
    }

    pub(crate) fn pins_of(&self, container: &str) -> Pins {
        Pins::new(self.bpffs.get_or_init(|| self.mount_bpffs()), container)
    }

    /// In a mount namespace of this thread, so that it is gone with the test whatever happens.
    #[expect(unsafe_code, reason = "unshare is unsafe to the compiler for the sake of flags not used here")]
    fn mount_bpffs(&self) -> PathBuf {
        // SAFETY: NEWNS leaves descriptors alone, and the thread's view of the file system is its own afterwards.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
        let flags = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", flags).unwrap();
        let directory = self.nodes.path().join("bpf");
        fs::create_dir(&directory).unwrap();
        rustix::mount::mount("bpf", &directory, "bpf", rustix::mount::MountFlags::empty(), None).unwrap();
        directory
    }

    /// How many program arrays are pinned.
    pub(crate) fn pinned(&self) -> usize {
        let names = fs::read_dir(self.bpffs.get().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        // Beside ours stand the kernel's own iterators.
        names.filter(|name| name.to_str().unwrap().starts_with("c")).count()
    }

    pub(crate) fn attach(&self, cgroup: &str, program: &[Insn], flags: AttachFlags) -> Program {
        self.attach_named(c"manager", cgroup, program, flags)
    }

    pub(crate) fn attach_named(&self, name: &CStr, cgroup: &str, program: &[Insn], flags: AttachFlags) -> Program {
        self.attach_program(cgroup, bpf::prog_load(name, &bytes(program), 0).unwrap(), flags)
    }

    pub(crate) fn attach_program(&self, cgroup: &str, fd: OwnedFd, flags: AttachFlags) -> Program {
        bpf::attach(self.directory(cgroup), &fd, flags, None).unwrap();
        Program { fd }
    }

    /// Attached by a link, as long as the answer lives.
    #[expect(unsafe_code, reason = "gpuhook itself makes no links")]
    pub(crate) fn link(&self, cgroup: &str, program: &[Insn]) -> OwnedFd {
        const LINK_CREATE: libc::c_long = 28;
        let (directory, fd) = (self.directory(cgroup), bpf::prog_load(c"linked", &bytes(program), 0).unwrap());
        let mut attr = [0_u32; 16];
        attr[0] = fd.as_raw_fd().cast_unsigned();
        attr[1] = directory.as_raw_fd().cast_unsigned();
        attr[2] = bpf::CGROUP_DEVICE_ATTACH;
        // SAFETY: the kernel reads 64 bytes of `attr`, which outlives the call.
        let link = unsafe { libc::syscall(libc::SYS_bpf, LINK_CREATE, attr.as_ptr(), 64) };
        assert!(link >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made this descriptor for us.
        unsafe { OwnedFd::from_raw_fd(i32::try_from(link).unwrap()) }
    }

    /// As a manager does at a live update: its own program by the next one.
    pub(crate) fn replace(&self, cgroup: &str, old: &Program, program: &[Insn]) -> Program {
        let fd = bpf::prog_load(c"manager", &bytes(program), 0).unwrap();
        let flags = AttachFlags::ALLOW_MULTI | AttachFlags::REPLACE;
        bpf::attach(self.directory(cgroup), &fd, flags, Some(&old.fd)).unwrap();
        Program { fd }
    }

    fn directory(&self, cgroup: &str) -> OwnedFd {
        fs::File::open(self.at(cgroup)).unwrap().into()
    }

    pub(crate) fn ids(&self, cgroup: &str) -> Vec<u32> {
        bpf::query(self.directory(cgroup), Query::Own).unwrap().ids
    }

    fn first(&self, cgroup: &str) -> bpf::ProgInfo {
        bpf::prog_info(bpf::prog_by_id(self.ids(cgroup)[0]).unwrap()).unwrap()
    }

    pub(crate) fn insns(&self, cgroup: &str) -> usize {
        self.first(cgroup).insns.unwrap().len()
    }

    pub(crate) fn name(&self, cgroup: &str) -> String {
        self.first(cgroup).name
    }

    pub(crate) fn write(&self, cgroup: &str, file: &str, text: &str) {
        fs::write(self.at(cgroup).join(file), text).unwrap();
    }

    pub(crate) fn read(&self, cgroup: &str, file: &str) -> String {
        fs::read_to_string(self.at(cgroup).join(file)).unwrap()
    }

    /// The kernel frees programs and empties arrays a grace period after their last user is gone.
    pub(crate) fn wait_until_deferred_work_is_done(&self) {
        let membarrier_global = 1;
        // MEMBARRIER_CMD_GLOBAL waits for a grace period; twice, since the work starts another one.
        for _ in 0..2 {
            bed_membarrier(membarrier_global);
        }
    }

    /// 0 or the errno of an open for reading and writing, by a process in the cgroup.
    pub(crate) fn open(&self, cgroup: &str, device: (u32, u32)) -> i32 {
        let node = self.node(device);
        self.inside(cgroup, || match openat(CWD, &*node, OFlags::RDWR, Mode::empty()) {
            Ok(_) => OK,
            Err(errno) => errno.raw_os_error(),
        })
    }

    /// 0 or the errno of a mknod, by a process in the cgroup.
    pub(crate) fn mknod(&self, cgroup: &str, (major, minor): (u32, u32)) -> i32 {
        let node = self.fresh("made");
        let number = makedev(major, minor);
        self.inside(cgroup, || match mknodat(CWD, &*node, FileType::CharacterDevice, Mode::RUSR, number) {
            Ok(()) => OK,
            Err(errno) => errno.raw_os_error(),
        })
    }

    fn node(&self, (major, minor): (u32, u32)) -> CString {
        let path = self.fresh(&format!("node-{major}-{minor}"));
        mknodat(CWD, &*path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(major, minor)).unwrap();
        path
    }

    fn fresh(&self, name: &str) -> CString {
        self.made.set(self.made.get() + 1);
        c_path(&self.nodes.path().join(format!("{name}-{}", self.made.get())))
    }

    fn inside(&self, cgroup: &str, body: impl Fn() -> i32) -> i32 {
        self.start_inside(cgroup, || u8::try_from(body()).unwrap_or(u8::MAX)).wait().unwrap().unwrap()
    }

    /// A process that joins the cgroup and then runs `body`, which must not use the heap: other tests' threads may hold
    /// its lock at the fork.
    fn start_inside(&self, cgroup: &str, body: impl FnOnce() -> u8) -> Child {
        let procs = c_path(&self.at(cgroup).join("cgroup.procs"));
        fork(|| {
            die_with_parent();
            let joined = openat(CWD, &*procs, OFlags::WRONLY, Mode::empty()).and_then(|fd| rustix::io::write(fd, b"0"));
            if joined.is_ok() { body() } else { 200 }
        })
        .unwrap()
    }

    /// A process in the cgroup that opens the device again and again until it is dropped.
    pub(crate) fn open_forever(&self, cgroup: &str, device: (u32, u32)) -> Opener {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let node = self.node(device);
        theirs.set_nonblocking(true).unwrap();
        let child = self.start_inside(cgroup, || {
            let (mut refused, mut owed) = (0_u8, 0);
            loop {
                if openat(CWD, &*node, OFlags::RDWR, Mode::empty()).is_err() {
                    refused = refused.saturating_add(1);
                }
                if owed > 0 {
                    owed -= 1;
                    if owed == 0 {
                        let _ = (&theirs).write(b"k");
                    }
                }
                let mut word = [0];
                match (&theirs).read(&mut word) {
                    Ok(1) if word == *b"p" => owed = 300,
                    // The end, or the test is gone.
                    Ok(_) => return refused,
                    _ => {}
                }
            }
        });
        Opener { socket: ours, child: Running(Some(child)) }
    }

    /// A process that replaces `first` and its successors until someone else has done so.
    pub(crate) fn swap_forever(&self, cgroup: &str, first: Program, program: &[Insn]) -> Swapper {
        let second = bpf::prog_load(c"manager", &bytes(program), 0).unwrap();
        let (directory, first) = (self.directory(cgroup), first.fd);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let child = fork(|| {
            die_with_parent();
            let flags = AttachFlags::ALLOW_MULTI | AttachFlags::REPLACE;
            let (mut old, mut new) = (&first, &second);
            for round in 0_u32.. {
                if bpf::attach(&directory, new, flags, Some(old)).is_err() {
                    break;
                }
                (old, new) = (new, old);
                if round == 20 {
                    let _ = (&theirs).write(b"s");
                }
                // Comes back at any point of the other side's work, and leaves it a chance.
                let start = std::time::Instant::now();
                while start.elapsed().as_micros() < u128::from(round % 16) * 200 {}
            }
            0
        })
        .unwrap();
        ours.read_exact(&mut [0]).unwrap();
        Swapper { child: Running(Some(child)) }
    }
}

#[expect(unsafe_code, reason = "no wrapper of membarrier is at hand")]
fn bed_membarrier(command: libc::c_long) {
    // SAFETY: membarrier touches no memory of ours.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    assert_eq!(done, 0);
}

/// A test that fails must not leave processes behind.
fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

impl Drop for Bed {
    fn drop(&mut self) {
        fn remove(directory: &Path) {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove(&entry.path());
                }
            }
            let _ = fs::remove_dir(directory);
        }
        remove(&self.at(&self.root));
        if let Some(bpffs) = self.bpffs.get() {
            let _ = rustix::mount::unmount(bpffs, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// A child that is killed where the test fails before it ends: its cgroup could not be removed.
struct Running(Option<Child>);

impl Running {
    fn wait(&mut self) -> i32 {
        self.0.take().unwrap().wait().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            let _ = child.kill();
        }
    }
}

/// See [`Bed::open_forever`].
pub(crate) struct Opener {
    socket: UnixStream,
    child: Running,
}

impl Opener {
    /// Waits until it has opened 300 times more.
    pub(crate) fn opens_some_more(&mut self) {
        self.socket.write_all(b"p").unwrap();
        self.socket.read_exact(&mut [0]).unwrap();
    }

    /// Ends it; how often it was refused.
    pub(crate) fn refused(mut self) -> i32 {
        self.socket.write_all(b"e").unwrap();
        self.child.wait()
    }
}

/// See [`Bed::swap_forever`].
pub(crate) struct Swapper {
    child: Running,
}

impl Swapper {
    /// Waits until it has found a program that is not its own.
    pub(crate) fn ends(mut self) {
        assert_eq!(self.child.wait(), 0);
    }
}
