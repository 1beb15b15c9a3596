// SPDX-License-Identifier: MIT OR Apache-2.0
//! The least that `gpuhook oci createRuntime` takes for a container, so that its own cost can be seen: no runtime, no init.

use std::fs::{self, File};
use std::io::{Read, Write, pipe};
use std::path::{Path, PathBuf};

use gpuhook_core::bpf::Insn;
use gpuhook_linux::sys::bpf::{self, AttachFlags};
use gpuhook_linux::sys::process::{self, Child};
use gpuhook_linux::sys::{confine, ns};
use serde_json::json;

use crate::bed::Bed;

/// A container as at createRuntime: a process in a mount namespace and a cgroup of its own, whose device program refuses
/// all but /dev/null.
#[derive(Debug)]
pub struct Arena {
    process: Child,
    cgroup: PathBuf,
    bundle: PathBuf,
}

impl Arena {
    /// One in `bed`, with its root at `rootfs`.
    pub fn new(bed: &Bed, rootfs: &Path) -> Self {
        let cgroup = bed.cgroup2().join(format!("{}-c", bed.name()));
        fs::create_dir(&cgroup).expect("cgroup");
        attach(&cgroup);
        let (mut ready, say) = pipe().expect("pipe");
        let mut say = Some(say);
        let process = process::fork(|| {
            confine::die_with_parent().expect("death with the parent");
            ns::private_mounts().expect("mount namespace");
            rustix::mount::mount_bind(rootfs, rootfs).expect("bind");
            // As a runtime does for every container; what was mounted there stays with it.
            rustix::mount::mount("none", rootfs.join("dev"), "tmpfs", rustix::mount::MountFlags::empty(), None)
                .expect("tmpfs");
            fs::write(cgroup.join("cgroup.procs"), "0").expect("cgroup");
            say.take().expect("one end").write_all(b"x").expect("word");
            loop {
                std::thread::park();
            }
        })
        .expect("container");
        drop(say);
        ready.read_exact(&mut [0]).expect("container");
        let bundle = rootfs.parent().expect("bundle").to_owned();
        let config = json!({ "ociVersion": "1.0.2", "root": { "path": "rootfs" },
            "process": { "args": ["x"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "env": [] },
            "linux": { "namespaces": [{ "type": "mount" }] } });
        fs::write(bundle.join("config.json"), config.to_string()).expect("config");
        let state = json!({ "ociVersion": "1.0.2", "id": "bench", "status": "creating", "pid": process.pid(),
            "bundle": bundle });
        fs::write(bundle.join("state.json"), state.to_string()).expect("state");
        Self { process, cgroup, bundle }
    }

    /// The file with the state that a runtime hands to its hooks.
    pub fn state(&self) -> PathBuf {
        self.bundle.join("state.json")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        fs::write(self.cgroup.join("cgroup.kill"), "1").expect("kill");
        let pid = rustix::process::Pid::from_raw(self.process.pid().cast_signed());
        rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).expect("wait");
        fs::remove_dir(&self.cgroup).expect("an empty cgroup");
        fs::remove_dir_all("/run/gpuhook").ok();
    }
}

/// `c 1:3 rwm` and nothing else, laid out as LXC does.
fn only_null() -> Vec<[u8; 8]> {
    let insns = [
        (0x61, 2, 1, 0, 0),
        (0x54, 2, 0, 0, 0xffff),
        (0x61, 4, 1, 4, 0),
        (0x61, 5, 1, 8, 0),
        (0x55, 2, 0, 4, 2),
        (0x55, 4, 0, 3, 1),
        (0x55, 5, 0, 2, 3),
        (0xb7, 0, 0, 0, 1),
        (0x95, 0, 0, 0, 0),
        (0xb7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ];
    insns.map(|(code, to, from, offset, value)| Insn::new(code, to, from, offset, value).to_bytes()).to_vec()
}

/// Puts the program that only_null makes on a cgroup, beside others.
pub fn attach(cgroup: &Path) {
    let program = bpf::prog_load(c"bench", &only_null(), 0).expect("program");
    let directory = File::open(cgroup).expect("cgroup");
    bpf::attach(&directory, &program, AttachFlags::ALLOW_MULTI, None).expect("attach");
}
