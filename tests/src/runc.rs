// SPDX-License-Identifier: MIT OR Apache-2.0
//! OCI bundles and runc with its cgroupfs driver.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::inside::{Container, Inside};
use crate::program;
use crate::rootfs::{MAPPED_ROOT, Rootfs, make_node};

/// A bundle that is written down and not running.
#[derive(Debug)]
pub struct Runc<'bed> {
    bed: &'bed Bed,
    id: String,
    rootfs: Rootfs,
    spec: Value,
    idmapped: bool,
    runtime: Vec<String>,
}

impl<'bed> Runc<'bed> {
    /// A bundle with runc's default device rules: everything denied, any node may be made.
    pub fn new(bed: &'bed Bed, name: &str) -> Self {
        let rootfs = Rootfs::new(bed.dir(&format!("{name}.bundle")).join("rootfs"));
        let id = format!("{}-{name}", bed.name());
        let capabilities = ["CAP_MKNOD", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"];
        let namespaces: Vec<_> =
            ["pid", "ipc", "uts", "mount", "network", "cgroup"].iter().map(|kind| json!({ "type": kind })).collect();
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": ["/sbin/init"],
                "env": ["PATH=/bin:/sbin"],
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
            "linux": {
                "cgroupsPath": format!("/{id}"),
                "namespaces": namespaces,
                "resources": { "devices": [
                    { "allow": false, "access": "rwm" },
                    { "allow": true, "type": "c", "access": "m" },
                    { "allow": true, "type": "b", "access": "m" },
                ] },
            },
        });
        Self { bed, id, rootfs, spec, idmapped: false, runtime: vec!["runc".to_owned()] }
    }

    /// Gives it a user namespace whose root is host id 100000.
    pub fn user_namespace(&mut self) -> &mut Self {
        self.idmapped = true;
        let map = json!([{ "containerID": 0, "hostID": MAPPED_ROOT, "size": 65536 }]);
        self.spec["linux"]["uidMappings"] = map.clone();
        self.spec["linux"]["gidMappings"] = map;
        self.push("/linux/namespaces", json!({ "type": "user" }))
    }

    /// Lets another program stand for runc: a wrapper with its first arguments.
    pub fn through(&mut self, runtime: Vec<String>) -> &mut Self {
        self.runtime = runtime;
        self
    }

    /// Lets `precreate` edit the spec, as podman does.
    pub fn edited_by(&mut self, precreate: Command) -> &mut Self {
        let output = program::fed(precreate, self.spec.to_string().as_bytes());
        assert!(output.status.success(), "{}", program::both(&output));
        self.spec = serde_json::from_slice(&output.stdout).expect("a spec");
        self
    }

    /// Mounts its root read-only.
    pub fn read_only(&mut self) -> &mut Self {
        self.spec["root"]["readonly"] = json!(true);
        self
    }

    /// Adds a variable to init's environment.
    pub fn env(&mut self, pair: &str) -> &mut Self {
        self.push("/process/env", json!(pair))
    }

    /// Adds a device rule for one character number, or for all minors.
    pub fn allow(&mut self, major: u32, minor: Option<u32>) -> &mut Self {
        let mut rule = json!({ "allow": true, "type": "c", "major": major, "access": "rw" });
        if let Some(minor) = minor {
            rule["minor"] = json!(minor);
        }
        self.push("/linux/resources/devices", rule)
    }

    /// Binds a node of that number into the container.
    pub fn bind_node(&mut self, path: &str, number: (u32, u32)) -> &mut Self {
        let node = self.bed.dir(&format!("{}.nodes", self.id)).join(path.replace('/', "_"));
        make_node(&node, number);
        self.push("/mounts", json!({ "destination": path, "type": "bind", "source": node, "options": ["bind"] }))
    }

    /// Adds a hook at `stage`, in the spec's words. Its environment is empty.
    pub fn hook(&mut self, stage: &str, command: &[String]) -> &mut Self {
        if self.spec["hooks"][stage].is_null() {
            self.spec["hooks"][stage] = json!([]);
        }
        self.push(&format!("/hooks/{stage}"), json!({ "path": command[0], "args": command, "env": [] }))
    }

    /// The spec, to write what no method above does.
    pub fn spec(&mut self) -> &mut Value {
        &mut self.spec
    }

    /// Its root filesystem.
    pub fn rootfs(&self) -> &Rootfs {
        &self.rootfs
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The bundle's folder.
    pub fn bundle(&self) -> PathBuf {
        self.rootfs.dir().parent().expect("the bundle").to_owned()
    }

    /// Starts it and waits for init's report.
    pub fn start(&self) -> RunningRunc<'_> {
        self.try_start().unwrap_or_else(|story| panic!("the container did not start:\n{story}"))
    }

    /// Starts it and waits for init's report; where runc refuses, what it said.
    pub fn try_start(&self) -> Result<RunningRunc<'_>, String> {
        self.write();
        self.try_run()
    }

    /// Writes the spec down.
    pub fn write(&self) {
        fs::write(self.bundle().join("config.json"), self.spec.to_string()).expect("config.json");
    }

    /// Starts the bundle as it is written down.
    pub fn try_run(&self) -> Result<RunningRunc<'_>, String> {
        if self.idmapped {
            self.rootfs.give_to(MAPPED_ROOT);
        }
        let said = self.bed.dir("log").join(&self.id);
        let console = File::create(&said).expect("file for the output of runc");
        let listener = self.rootfs.listen();
        let mut run = self.tool(&["run", "--detach", "--bundle"]);
        run.arg(self.bundle()).arg(&self.id);
        run.stdout(console.try_clone().expect("dup")).stderr(console);
        let mut starter = run.spawn().expect("runc");
        match listener.report(&mut starter) {
            Some(report) => {
                starter.wait().expect("wait for runc");
                Ok(RunningRunc { runc: self, report })
            }
            None => Err(self.story()),
        }
    }

    /// What runc and its hooks said of the last start.
    pub fn story(&self) -> String {
        fs::read_to_string(self.bed.dir("log").join(&self.id)).unwrap_or_default()
    }

    /// `runc ARGS`, or what stands for it, with the bed's own state.
    pub fn tool(&self, args: &[&str]) -> Command {
        let mut tool = program::command(&self.runtime[0], &[]);
        tool.args(&self.runtime[1..]).arg("--root").arg(self.bed.dir("runc")).args(args);
        tool
    }

    fn push(&mut self, pointer: &str, value: Value) -> &mut Self {
        let list = self.spec.pointer_mut(pointer).and_then(Value::as_array_mut);
        list.unwrap_or_else(|| panic!("{pointer} is a list")).push(value);
        self
    }
}

/// A container that runs until this is dropped.
#[derive(Debug)]
pub struct RunningRunc<'runc> {
    runc: &'runc Runc<'runc>,
    report: Inside,
}

impl RunningRunc<'_> {
    /// What `runc exec ID ARGS` printed and returned.
    pub fn exec(&self, args: &[&str]) -> Output {
        let mut exec = self.runc.tool(&["exec", &self.runc.id]);
        exec.args(args);
        program::output(exec)
    }

    /// The host's pid of init.
    pub fn init_pid(&self) -> u32 {
        let state = program::stdout(self.runc.tool(&["state", &self.runc.id]));
        let state: Value = serde_json::from_str(&state).expect("runc state");
        state["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
    }
}

impl Container for RunningRunc<'_> {
    fn report(&self) -> &Inside {
        &self.report
    }

    fn run(&self, args: &[&str]) -> Inside {
        Inside(program::both(&self.exec(args)))
    }

    fn story(&self) -> String {
        self.runc.story()
    }
}

impl Drop for RunningRunc<'_> {
    fn drop(&mut self) {
        let _the_bed_ends_what_is_left = self.runc.tool(&["delete", "--force", &self.runc.id]).output();
    }
}
