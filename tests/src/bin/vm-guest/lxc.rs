// SPDX-License-Identifier: MIT OR Apache-2.0
//! LXC containers as Debian makes them: its shared configs, its AppArmor profile, its `/var/lib/lxc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::inside::{Container, Inside};
use gpuhook_tests::program;
use gpuhook_tests::rootfs::{MAPPED_ROOT, Rootfs};

use crate::seen;

pub(crate) const INCLUDE: &str = "lxc.include = /usr/share/gpuhook/lxc.conf";
pub(crate) const PRE_START: &str = "lxc.hook.pre-start = /usr/bin/gpuhook lxc";

/// Debian's own choice for new containers: a profile made for each.
const GENERATED: &str = "generated";
/// A profile that Debian ships. It is loaded at boot, while LXC makes the generated one anew at each start, and takes it out
/// at each stop, which is seconds of work for a slow machine.
const SHIPPED: &str = "lxc-container-default-cgns";

/// A container that is written down and not running.
#[derive(Debug)]
pub(crate) struct Lxc {
    name: String,
    rootfs: Rootfs,
    lines: Vec<String>,
    idmapped: bool,
}

impl Lxc {
    /// What `lxc-create` writes for root.
    pub(crate) fn privileged(name: &str) -> Self {
        let mut lxc = Self::new(name);
        lxc.line("lxc.include = /usr/share/lxc/config/common.conf");
        lxc
    }

    /// Confines it by the profile that LXC generates for it.
    pub(crate) fn generated_profile(&mut self) -> &mut Self {
        self.lines.iter_mut().for_each(|line| *line = line.replace(SHIPPED, GENERATED));
        self
    }

    /// The same for a container whose root is host id 100000: Debian's userns.conf takes the device rules out.
    pub(crate) fn unprivileged(name: &str) -> Self {
        let mut lxc = Self::privileged(name);
        lxc.line("lxc.include = /usr/share/lxc/config/userns.conf");
        for kind in ["u", "g"] {
            lxc.line(&format!("lxc.idmap = {kind} 0 {MAPPED_ROOT} 65536"));
        }
        lxc.idmapped = true;
        lxc
    }

    fn new(name: &str) -> Self {
        let rootfs = seen::rootfs(name);
        let default = fs::read_to_string("/etc/lxc/default.conf").expect("Debian's default.conf");
        let mut lines: Vec<String> = default.lines().map(|line| line.replace(GENERATED, SHIPPED)).collect();
        lines.push(format!("lxc.uts.name = {name}"));
        lines.push(format!("lxc.rootfs.path = dir:{}", rootfs.dir().display()));
        Self { name: name.to_owned(), rootfs, lines, idmapped: false }
    }

    /// Adds a line to the config.
    pub(crate) fn line(&mut self, line: &str) -> &mut Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Lets it make the usual request, and registers gpuhook by the line `registration`.
    pub(crate) fn ask(&mut self, majors: Majors, registration: &str) -> &mut Self {
        injected::prepare(&self.rootfs, majors);
        for pair in injected::ENVIRONMENT {
            self.line(&format!("lxc.environment = {pair}"));
        }
        self.line(registration)
    }

    pub(crate) fn rootfs(&self) -> &Rootfs {
        &self.rootfs
    }

    pub(crate) fn config(&self) -> PathBuf {
        Path::new("/var/lib/lxc").join(&self.name).join("config")
    }

    /// Writes the config file.
    pub(crate) fn write_config(&self) {
        let config = self.config();
        fs::create_dir_all(config.parent().expect("a file lies in a folder")).expect("folder of the container");
        fs::write(config, self.lines.join("\n") + "\n").expect("config of the container");
    }

    /// Starts it in the background and waits for init's report.
    pub(crate) fn start(&self) -> Running<'_> {
        self.try_start(&[]).unwrap_or_else(|story| panic!("the container did not start:\n{story}"))
    }

    /// Starts it in the foreground, with lxc-start as its parent, and waits for init's report.
    pub(crate) fn start_in_foreground(&self) -> Running<'_> {
        self.try_start(&["-F"]).unwrap_or_else(|story| panic!("the container did not start:\n{story}"))
    }

    /// Starts it; where LXC refuses, what it said. The config is written if there is none.
    pub(crate) fn try_start(&self, options: &[&str]) -> Result<Running<'_>, String> {
        if !self.config().exists() {
            self.write_config();
        }
        if self.idmapped {
            self.rootfs.give_to(MAPPED_ROOT);
        }
        let _started_anew = fs::remove_file(self.log());
        let listener = self.rootfs.listen();
        let mut start = self.tool("lxc-start");
        start.args(["-l", "DEBUG", "-o"]).arg(self.log()).args(options);
        start.stdout(Stdio::null()).stderr(Stdio::null());
        let mut starter = start.spawn().expect("lxc-start");
        let Some(report) = listener.report(&mut starter) else { return Err(self.story()) };
        let running = Running { lxc: self, starter, report };
        running.wait_for("RUNNING");
        Ok(running)
    }

    /// One of LXC's programs, on this container.
    pub(crate) fn tool(&self, program: &str) -> Command {
        program::command(program, &["-n", &self.name])
    }

    /// What LXC and its hooks said of the last start.
    pub(crate) fn story(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let telling =
            |line: &&str| [" ERROR ", " WARN ", "run_script", "produced output"].iter().any(|word| line.contains(word));
        let log: Vec<_> = log.lines().filter(telling).collect();
        let report = fs::read_to_string(format!("/run/gpuhook/lxc/{}/report.json", self.name)).unwrap_or_default();
        format!("{}\n{report}\n{}", log.join("\n"), journal())
    }

    fn log(&self) -> PathBuf {
        Path::new("/run").join(format!("{}.log", self.name))
    }
}

impl Drop for Lxc {
    fn drop(&mut self) {
        // The folder stays: LXC keeps a generated AppArmor profile there.
        let _removed = fs::remove_file(self.config());
    }
}

/// The last words of gpuhook, and what AppArmor refused, in the journal.
pub(crate) fn journal() -> String {
    let script = "journalctl -q -b -t gpuhook -o cat -n 8; journalctl -q -k -b -o cat -n 8 -g 'apparmor=\"DENIED\"'";
    String::from_utf8_lossy(&program::output(program::command("sh", &["-c", script])).stdout).into_owned()
}

/// A container that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'lxc> {
    lxc: &'lxc Lxc,
    /// lxc-start: the monitor itself in the foreground, else gone already.
    starter: Child,
    report: Inside,
}

impl Running<'_> {
    /// Waits until LXC says so.
    pub(crate) fn wait_for(&self, state: &str) {
        let mut wait = self.lxc.tool("lxc-wait");
        wait.args(["-s", state, "-t", "60"]);
        program::stdout(wait);
    }

    /// The host's pid of init.
    pub(crate) fn init_pid(&self) -> u32 {
        let mut info = self.lxc.tool("lxc-info");
        info.arg("-pH");
        program::stdout(info).trim().parse().expect("a pid")
    }

    /// A live change by LXC itself.
    pub(crate) fn cgroup(&self, key: &str, value: &str) {
        let mut set = self.lxc.tool("lxc-cgroup");
        set.args([key, value]);
        program::stdout(set);
    }

    /// One of LXC's programs, which must succeed.
    pub(crate) fn tool(&self, name: &str, args: &[&str]) -> String {
        let mut tool = self.lxc.tool(name);
        tool.args(args);
        program::stdout(tool)
    }

    /// Reboots it from inside and waits for the new init's report.
    pub(crate) fn reboot_from_inside(&mut self) {
        let listener = self.lxc.rootfs.listen();
        let mut reboot = Command::new("sh");
        // The command dies with the container that it reboots, so its own status says nothing.
        let script = "lxc-attach -n \"$0\" -- /bin/busybox reboot -f; exit 0";
        reboot.args(["-c", script, &self.lxc.name]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut reboot = reboot.spawn().expect("lxc-attach");
        self.report = listener.report(&mut reboot).expect("a report after the reboot");
        self.wait_for("RUNNING");
    }
}

impl Container for Running<'_> {
    fn report(&self) -> &Inside {
        &self.report
    }

    fn run(&self, args: &[&str]) -> Inside {
        let mut attach = self.lxc.tool("lxc-attach");
        attach.args(["--clear-env", "--set-var", "PATH=/bin:/sbin", "--"]).args(args);
        Inside(program::both(&program::output(attach)))
    }

    fn story(&self) -> String {
        self.lxc.story()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut stop = self.lxc.tool("lxc-stop");
        stop.arg("-k");
        let _stopped_already = stop.output();
        let mut wait = self.lxc.tool("lxc-wait");
        wait.args(["-s", "STOPPED", "-t", "60"]);
        let _stopped_already = wait.output();
        let _reaped = self.starter.wait();
    }
}
