// SPDX-License-Identifier: MIT OR Apache-2.0
//! A root filesystem for containers: busybox, this machine's C library, the stand-in libcuda, the checkers, and an init
//! that reports what its first instructions saw.
//!
//! The report goes through the FIFO `/report`, which also works where the root is read-only. Reading it is waiting for
//! init: no test sleeps.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::inside::Inside;
use crate::{program, standin};

/// The first host id of an unprivileged container's map.
pub const MAPPED_ROOT: u32 = 100_000;

/// How long any container may take to come up before the test fails.
const LIMIT: Duration = Duration::from_secs(60);

const INIT: &str =
    "#!/bin/busybox sh\nexport PATH=/bin:/sbin\n. /etc/first >/report 2>&1\nexec busybox sleep 2147483647\n";

/// A folder that a container can have as its root.
#[derive(Debug)]
pub struct Rootfs {
    dir: PathBuf,
}

impl Rootfs {
    /// Fills `dir`.
    pub fn new(dir: PathBuf) -> Self {
        for folder in ["bin", "sbin", "dev", "etc", "hand", "proc", "sys", "tmp", "root", "run"] {
            fs::create_dir_all(dir.join(folder)).expect("folder of the root filesystem");
        }
        let rootfs = Self { dir };
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find(|path| Path::new(path).exists());
        rootfs.copy(Path::new(busybox.expect("busybox")), "/bin/busybox");
        for name in ["sh", "ls", "cat", "id", "sleep", "true", "mount", "mkdir", "rm"] {
            symlink("busybox", rootfs.path("/bin").join(name)).expect("link to busybox");
        }
        rootfs.copy(&standin::node_check(), "/bin/node-check");
        rootfs.copy(&standin::cuda_check(), "/bin/cuda-check");
        rootfs.add_libraries();
        rootfs.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n");
        rootfs.write("/etc/group", "root:x:0:\nuser:x:1000:\n");
        rootfs.write("/etc/first", "echo up\n");
        rootfs.write("/sbin/init", INIT);
        fs::set_permissions(rootfs.path("/sbin/init"), PermissionsExt::from_mode(0o755)).expect("mode of init");
        mknodat(CWD, rootfs.path("/report"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .expect("fifo for the report");
        rootfs
    }

    /// Where a path of the container is on the host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The shell commands that init runs before all else; what they print is the report.
    pub fn first(&self, commands: &str) {
        self.write("/etc/first", commands);
    }

    /// A file with that text.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folder of the root filesystem");
        fs::write(path, text).expect("file of the root filesystem");
    }

    /// A hand-made character node that all may read and write.
    pub fn node(&self, path: &str, number: (u32, u32)) {
        make_node(&self.path(path), number);
    }

    /// Gives everything in it to the container whose root is host user and group `root`.
    pub fn give_to(&self, root: u32) {
        fn give(path: &Path, root: u32) {
            lchown(path, Some(root), Some(root)).expect("chown of the root filesystem");
            if path.symlink_metadata().expect("metadata").is_dir() {
                for entry in fs::read_dir(path).expect("folder of the root filesystem") {
                    give(&entry.expect("entry").path(), root);
                }
            }
        }
        give(&self.dir, root);
    }

    /// Opens the report before the container starts.
    pub fn listen(&self) -> Listener {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let fifo =
            OpenOptions::new().read(true).custom_flags(flags).open(self.path("/report")).expect("the report's fifo");
        Listener { fifo }
    }

    /// Puts a program or library of this machine at `to`. A process of its own writes it: while this one had it open for
    /// writing, a child that another thread forks would hold it too, and whoever executes it before that child's own exec
    /// would be refused (ETXTBSY).
    pub fn copy(&self, from: &Path, to: &str) {
        let to = self.path(to);
        fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("folder of the root filesystem");
        let mut copy = program::command("cp", &["--"]);
        copy.arg(from).arg(to);
        program::stdout(copy);
    }

    /// The loader and the libraries where `ldd` finds them on this machine, and the stand-in beside the C library.
    fn add_libraries(&self) {
        let mut ldd = program::command("ldd", &[]);
        ldd.arg(standin::cuda_check());
        let listed = program::stdout(ldd);
        for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            self.copy(Path::new(library), library);
            let folder = Path::new(library).parent().expect("a library lies in a folder");
            if !library.contains("/libc.so") {
                continue;
            }
            for name in ["libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"] {
                let path = folder.join(name);
                if path.exists() {
                    self.copy(&path, &path.to_string_lossy());
                }
            }
            self.copy(&standin::libcuda(), &folder.join("libcuda.so.1").to_string_lossy());
        }
    }
}

/// Makes a character node that all may read and write, in place of what is there.
pub fn make_node(path: &Path, number: (u32, u32)) {
    let _there_may_be_none = fs::remove_file(path);
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(number.0, number.1)).expect("mknod");
    // The umask does not count for the nodes that the driver's own tools make.
    fs::set_permissions(path, PermissionsExt::from_mode(0o666)).expect("mode of a node");
}

/// The reading end of a report.
#[derive(Debug)]
pub struct Listener {
    fifo: File,
}

impl Listener {
    /// Waits for the report of the container that `starter` starts; `None` where `starter` fails before there is one.
    pub fn report(self, starter: &mut Child) -> Option<Inside> {
        self.listen(starter, false)
    }

    /// The same where `starter` runs as long as the container: its end before there is a report is the container's.
    pub fn report_while(self, starter: &mut Child) -> Option<Inside> {
        self.listen(starter, true)
    }

    fn listen(mut self, starter: &mut Child, foreground: bool) -> Option<Inside> {
        let deadline = Instant::now() + LIMIT;
        let pid = Pid::from_child(starter);
        let starter_ended = pidfd_open(pid, PidfdFlags::empty()).expect("pidfd of the starter");
        let mut watch_starter = true;
        let mut said = Vec::new();
        loop {
            let mut watched = vec![PollFd::new(&self.fifo, PollFlags::IN)];
            if watch_starter {
                watched.push(PollFd::new(&starter_ended, PollFlags::IN));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a short time");
            let ready = poll(&mut watched, Some(&left)).expect("poll");
            let said_something = watched[0].revents();
            let ended = watched.get(1).is_some_and(|starter| !starter.revents().is_empty());
            if ready == 0 {
                starter.kill().expect("kill of the starter");
                panic!("no container came up within {LIMIT:?}; so far: {:?}", String::from_utf8_lossy(&said));
            }
            if !said_something.is_empty() && self.drain(&mut said) {
                return Some(Inside(String::from_utf8_lossy(&said).into_owned()));
            }
            if ended {
                watch_starter = false;
                let failed = !starter.wait().expect("wait for the starter").success();
                if (failed || foreground) && said.is_empty() {
                    return None;
                }
            }
        }
    }

    /// Reads what there is; true at the end of the report.
    fn drain(&mut self, said: &mut Vec<u8>) -> bool {
        let mut block = [0; 4096];
        loop {
            match self.fifo.read(&mut block) {
                Ok(0) => return true,
                Ok(count) => said.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("read of the report: {error}"),
            }
        }
    }
}
