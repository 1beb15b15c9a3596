// SPDX-License-Identifier: MIT OR Apache-2.0
//! LXC containers: the config as an administrator would write it, `lxc-start`, `lxc-attach`, `lxc-stop`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::bed::Bed;
use crate::inside::{Container, Inside};
use crate::program;
use crate::rootfs::{MAPPED_ROOT, Rootfs, make_node};

/// The nodes that Debian's common.conf lets every privileged container use.
const STRICT: &[&str] = &[
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 5:0 rwm",
    "c 5:1 rwm",
    "c 5:2 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 136:* rwm",
];

/// A container that is written down and not running.
#[derive(Debug)]
pub struct Lxc<'bed> {
    bed: &'bed Bed,
    name: String,
    rootfs: Rootfs,
    lines: Vec<String>,
    idmapped: bool,
}

/// How gpuhook is registered with a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// `lxc.include` of the file that gpuhook installs, which has all its stages.
    Include,
    /// `lxc.hook.start-host` and nothing else.
    StartHost,
    /// `lxc.hook.pre-start` and nothing else: all that Proxmox accepts without an include.
    PreStartAlone,
}

impl<'bed> Lxc<'bed> {
    /// A privileged container with the strict rules of Debian's common.conf.
    pub fn privileged(bed: &'bed Bed, name: &str) -> Self {
        let mut lxc = Self::new(bed, name);
        lxc.strict();
        lxc
    }

    /// A privileged container with the same rules, but without the one that lets it make any node.
    pub fn privileged_without_mknod(bed: &'bed Bed, name: &str) -> Self {
        let mut lxc = Self::new(bed, name);
        lxc.rules(STRICT);
        lxc
    }

    /// A container whose root is host id 100000, without device rules, as Debian's userns.conf leaves it.
    pub fn unprivileged(bed: &'bed Bed, name: &str) -> Self {
        let mut lxc = Self::new(bed, name);
        lxc.idmapped = true;
        for kind in ["u", "g"] {
            lxc.line(&format!("lxc.idmap = {kind} 0 {MAPPED_ROOT} 65536"));
        }
        lxc
    }

    fn new(bed: &'bed Bed, name: &str) -> Self {
        let rootfs = Rootfs::new(bed.dir(&format!("{name}.rootfs")));
        let name = format!("{}-{name}", bed.name());
        let lines = vec![
            "lxc.uts.name = standin".to_owned(),
            format!("lxc.rootfs.path = dir:{}", rootfs.dir().display()),
            "lxc.net.0.type = empty".to_owned(),
            "lxc.tty.max = 0".to_owned(),
            "lxc.pty.max = 16".to_owned(),
            "lxc.mount.auto = proc:mixed sys:mixed".to_owned(),
        ];
        Self { bed, name, rootfs, lines, idmapped: false }
    }

    /// Adds the strict rules of Debian's common.conf: make any node, use the usual ones.
    pub fn strict(&mut self) -> &mut Self {
        self.rules(&[&["c *:* m", "b *:* m"], STRICT].concat())
    }

    fn rules(&mut self, rules: &[&str]) -> &mut Self {
        for key in ["lxc.cgroup.devices", "lxc.cgroup2.devices"] {
            self.line(&format!("{key}.deny = a"));
            for rule in rules {
                self.line(&format!("{key}.allow = {rule}"));
            }
        }
        self
    }

    /// Adds a device rule, for both cgroup versions.
    pub fn allow(&mut self, rule: &str) -> &mut Self {
        self.line(&format!("lxc.cgroup.devices.allow = {rule}"));
        self.line(&format!("lxc.cgroup2.devices.allow = {rule}"))
    }

    /// Adds a line to the config.
    pub fn line(&mut self, line: &str) -> &mut Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Binds a node of that number into the container by a line of the config, as people do with the host's nodes.
    pub fn bind_node(&mut self, path: &str, number: (u32, u32)) -> &mut Self {
        let node = self.bound_node(path);
        make_node(&node, number);
        let target = path.trim_start_matches('/');
        self.line(&format!("lxc.mount.entry = {} {target} none bind,optional,create=file 0 0", node.display()))
    }

    /// Where the node lies on the host that [`Self::bind_node`] binds to `path`.
    pub fn bound_node(&self, path: &str) -> PathBuf {
        self.bed.dir(&format!("{}.nodes", self.name)).join(path.replace('/', "_"))
    }

    /// Puts init into a cgroup below the one that has the device filter, as Proxmox does.
    pub fn inner_cgroup(&mut self) -> &mut Self {
        let top = self.bed.name().to_owned();
        self.line("lxc.cgroup.relative = 0");
        let name = self.name.clone();
        self.line(&format!("lxc.cgroup.dir.monitor = {top}.monitor/{name}"));
        self.line(&format!("lxc.cgroup.dir.container = {top}.lxc/{name}"));
        self.line("lxc.cgroup.dir.container.inner = ns")
    }

    /// Registers `hook`, a command line without the arguments that LXC appends.
    pub fn register(&mut self, how: Registration, hook: &str) -> &mut Self {
        match how {
            Registration::Include => {
                let file = self.bed.dir("include").join("gpuhook.conf");
                fs::write(&file, include_file(hook)).expect("include file");
                self.line(&format!("lxc.include = {}", file.display()))
            }
            Registration::StartHost => self.line(&format!("lxc.hook.start-host = {hook}")),
            Registration::PreStartAlone => self.line(&format!("lxc.hook.pre-start = {hook}")),
        }
    }

    /// Its root filesystem.
    pub fn rootfs(&self) -> &Rootfs {
        &self.rootfs
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder for `lxc-* -P`.
    pub fn lxcpath(&self) -> PathBuf {
        self.bed.dir("lxc")
    }

    /// Its config file.
    pub fn config(&self) -> PathBuf {
        self.lxcpath().join(&self.name).join("config")
    }

    /// Takes over what somebody has made of the config file.
    pub fn read_config(&mut self) -> &mut Self {
        let text = fs::read_to_string(self.config()).expect("config of the container");
        self.lines = text.lines().map(str::to_owned).collect();
        self
    }

    /// Writes the config file.
    pub fn write_config(&self) {
        let config = self.config();
        fs::create_dir_all(config.parent().expect("a file lies in a folder")).expect("folder of the container");
        fs::write(config, self.lines.join("\n") + "\n").expect("config of the container");
    }

    /// Starts it and waits for init's report.
    pub fn start(&self) -> RunningLxc<'_> {
        self.try_start().unwrap_or_else(|story| panic!("the container did not start:\n{story}"))
    }

    /// Starts it and waits for init's report; where LXC refuses, what it said. The config is written if there is none.
    pub fn try_start(&self) -> Result<RunningLxc<'_>, String> {
        if !self.config().exists() {
            self.write_config();
        }
        if self.idmapped {
            self.rootfs.give_to(MAPPED_ROOT);
        }
        let _started_anew = fs::remove_file(self.log());
        let listener = self.rootfs.listen();
        let mut start = self.tool("lxc-start");
        start.arg("-F").arg("-l").arg("DEBUG").arg("-o").arg(self.log());
        start.stdout(Stdio::null()).stderr(Stdio::null());
        let mut monitor = start.spawn().expect("lxc-start");
        match listener.report_while(&mut monitor) {
            Some(report) => {
                let running = RunningLxc { lxc: self, monitor, report };
                let mut wait = self.tool("lxc-wait");
                wait.args(["-s", "RUNNING", "-t", "60"]);
                program::stdout(wait);
                Ok(running)
            }
            None => Err(self.story()),
        }
    }

    /// What LXC and its hooks said of the last start.
    pub fn story(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        // `lxc.seccomp` is what LXC asks of itself whenever it was built without seccomp's newer key.
        let telling = |line: &&str| {
            [" ERROR ", "run_script", "produced output"].iter().any(|word| line.contains(word))
                && !line.contains("\"lxc.seccomp\"")
        };
        let log: Vec<_> = log.lines().filter(telling).collect();
        let report = fs::read_to_string(format!("/run/gpuhook/lxc/{}/report.json", self.name)).unwrap_or_default();
        format!("{}\n{report}", log.join("\n"))
    }

    /// One of LXC's programs for this container.
    pub fn tool(&self, program: &str) -> Command {
        let mut tool = program::command(program, &["-n", &self.name, "-P"]);
        tool.arg(self.lxcpath());
        tool
    }

    fn log(&self) -> PathBuf {
        self.bed.dir("log").join(&self.name)
    }
}

/// A container that runs until this is dropped.
#[derive(Debug)]
pub struct RunningLxc<'lxc> {
    lxc: &'lxc Lxc<'lxc>,
    monitor: Child,
    report: Inside,
}

impl RunningLxc<'_> {
    /// What `lxc-attach -- ARGS` printed and returned.
    pub fn attach(&self, args: &[&str]) -> Output {
        let mut attach = self.lxc.tool("lxc-attach");
        attach.args(["--clear-env", "--set-var", "PATH=/bin:/sbin", "--"]).args(args);
        program::output(attach)
    }

    /// The host's pid of init.
    pub fn init_pid(&self) -> u32 {
        let mut info = self.lxc.tool("lxc-info");
        info.arg("-pH");
        program::stdout(info).trim().parse().expect("a pid")
    }

    /// Waits a while for its end.
    pub fn has_stopped(&self) -> bool {
        stopped(&self.lxc.lxcpath(), &self.lxc.name)
    }

    /// A live change of the device rules by LXC itself.
    pub fn live_allow(&self, rule: &str) {
        let mut set = self.lxc.tool("lxc-cgroup");
        set.args(["devices.allow", rule]);
        program::stdout(set);
    }
}

impl Container for RunningLxc<'_> {
    fn report(&self) -> &Inside {
        &self.report
    }

    fn run(&self, args: &[&str]) -> Inside {
        let output = self.attach(args);
        Inside(program::both(&output))
    }

    fn story(&self) -> String {
        self.lxc.story()
    }
}

impl Drop for RunningLxc<'_> {
    fn drop(&mut self) {
        let mut stop = self.lxc.tool("lxc-stop");
        stop.arg("-k");
        let _the_bed_ends_what_is_left = stop.output();
        if self.monitor.try_wait().ok().flatten().is_none() && !stopped(&self.lxc.lxcpath(), &self.lxc.name) {
            let _gone_already = self.monitor.kill();
        }
        let _reaped = self.monitor.wait();
    }
}

fn stopped(lxcpath: &Path, name: &str) -> bool {
    let mut wait = program::command("lxc-wait", &["-n", name, "-s", "STOPPED", "-t", "20", "-P"]);
    wait.arg(lxcpath);
    wait.status().is_ok_and(|status| status.success())
}

/// Installs this build's gpuhook below `prefix`, with the include whose hooks are `hook`; returns the program.
pub fn install(prefix: &Path, hook: &str) -> PathBuf {
    for folder in ["bin", "share/gpuhook"] {
        fs::create_dir_all(prefix.join(folder)).expect("folder of the prefix");
    }
    let installed = prefix.join("bin/gpuhook");
    fs::copy(program::gpuhook(), &installed).expect("gpuhook");
    fs::write(prefix.join("share/gpuhook/lxc.conf"), include_file(hook)).expect("include");
    installed
}

/// The file that gpuhook installs, with the command of this build in place of the installed one.
pub fn include_file(hook: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install/lxc/gpuhook.conf");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = text.lines().map(|line| match line.split_once('=') {
        Some((key, _)) if key.trim().starts_with("lxc.hook.") => format!("{}= {hook}\n", key),
        _ => format!("{line}\n"),
    });
    lines.collect()
}
