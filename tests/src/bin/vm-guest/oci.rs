// SPDX-License-Identifier: MIT OR Apache-2.0
//! OCI bundles under runc and crun, with the cgroupfs and the systemd driver.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::inside::{Container, Inside};
use gpuhook_tests::program;
use gpuhook_tests::rootfs::Rootfs;
use serde_json::{Value, json};

use crate::{lxc, seen};

/// Who runs the container, and who makes its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    pub(crate) program: &'static str,
    pub(crate) systemd: bool,
}

/// A bundle that is written down and not running.
#[derive(Debug)]
pub(crate) struct Bundle {
    runtime: Runtime,
    rootfs: Rootfs,
    spec: Value,
}

const ID: &str = "vmt-c1";

/// The scope that the systemd driver makes of [`ID`].
pub(crate) const SCOPE: &str = "vmt-c1.scope";

impl Bundle {
    /// A bundle with the usual device rules and the usual request, and gpuhook at `stage` and at its end.
    pub(crate) fn asking(runtime: Runtime, majors: Majors, stage: &str) -> Self {
        let rootfs = seen::rootfs("bundle/rootfs");
        injected::prepare(&rootfs, majors);
        let capabilities = ["CAP_MKNOD", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"];
        let namespaces: Vec<_> =
            ["pid", "ipc", "uts", "mount", "network", "cgroup"].iter().map(|kind| json!({ "type": kind })).collect();
        let environment: Vec<_> = ["PATH=/bin:/sbin"].into_iter().chain(injected::ENVIRONMENT).collect();
        let hook = |stage: &str| json!([{ "path": "/usr/bin/gpuhook", "args": ["gpuhook", "oci", stage], "env": [] }]);
        let arguments = ["gpuhook", "oci", stage].into_iter().chain(injected::ARGUMENTS).collect::<Vec<_>>();
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": ["/sbin/init"],
                "env": environment,
                "cwd": "/",
                "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
                "noNewPrivileges": true,
            },
            "root": { "path": "rootfs", "readonly": false },
            "hostname": "standin",
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                  "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            ],
            "hooks": {
                stage: [{ "path": "/usr/bin/gpuhook", "args": arguments, "env": [] }],
                "poststop": hook("poststop"),
            },
            "linux": {
                "cgroupsPath": if runtime.systemd { "system.slice:vmt:c1" } else { "/vmt-c1" },
                "namespaces": namespaces,
                "resources": { "devices": [
                    { "allow": false, "access": "rwm" },
                    { "allow": true, "type": "c", "access": "m" },
                    { "allow": true, "type": "b", "access": "m" },
                ] },
            },
        });
        Self { runtime, rootfs, spec }
    }

    fn dir(&self) -> &Path {
        self.rootfs.dir().parent().expect("the bundle")
    }

    /// Writes the spec down for a manager that does not run in the bundle, and says where.
    pub(crate) fn write_absolute(&self) -> PathBuf {
        let mut spec = self.spec.clone();
        spec["root"]["path"] = json!(self.rootfs.dir());
        let path = self.dir().join("config.json");
        fs::write(&path, spec.to_string()).expect("config.json");
        path
    }

    pub(crate) fn into_rootfs(self) -> Rootfs {
        self.rootfs
    }

    /// Starts it and waits for init's report.
    pub(crate) fn start(&self) -> Running<'_> {
        fs::write(self.dir().join("config.json"), self.spec.to_string()).expect("config.json");
        let said = File::create(self.said()).expect("file for the output of the runtime");
        let listener = self.rootfs.listen();
        let mut run = self.tool(&["run", "--detach", "--bundle"]);
        run.arg(self.dir()).arg(ID).stdout(said.try_clone().expect("dup")).stderr(said);
        let mut starter = run.spawn().expect("the runtime");
        let Some(report) = listener.report(&mut starter) else {
            panic!("the container did not start:\n{}", self.story());
        };
        assert!(starter.wait().expect("wait for the runtime").success(), "{}", self.story());
        Running { bundle: self, report }
    }

    fn said(&self) -> PathBuf {
        self.dir().join("said")
    }

    fn story(&self) -> String {
        format!("{}\n{}", fs::read_to_string(self.said()).unwrap_or_default(), lxc::journal())
    }

    fn tool(&self, args: &[&str]) -> Command {
        let mut tool = program::command(self.runtime.program, &[]);
        if self.runtime.systemd {
            tool.arg("--systemd-cgroup");
        }
        tool.args(args);
        tool
    }
}

/// A container that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'bundle> {
    bundle: &'bundle Bundle,
    report: Inside,
}

impl Running<'_> {
    /// A command of the runtime that ends in the container's id.
    pub(crate) fn runtime(&self, args: &[&str]) {
        program::stdout(self.bundle.tool(&[args, &[ID]].concat()));
    }
}

impl Container for Running<'_> {
    fn report(&self) -> &Inside {
        &self.report
    }

    fn run(&self, args: &[&str]) -> Inside {
        Inside(program::both(&program::output(self.bundle.tool(&[&["exec", ID], args].concat()))))
    }

    fn story(&self) -> String {
        self.bundle.story()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _gone_already = self.bundle.tool(&["delete", "--force", ID]).output();
    }
}
