// SPDX-License-Identifier: MIT OR Apache-2.0
//! LXC's own commands, for a container that runs: never from inside a hook, since the monitor answers them only after
//! its hooks have returned.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use gpuhook_core::container_id::ContainerId;
use gpuhook_core::device::DeviceRule;

use crate::{command as host_command, failpoint};

/// One LXC container and the directory under which its monitor listens.
#[derive(Clone, Debug)]
pub struct LxcContainer {
    name: ContainerId,
    lxcpath: String,
}

/// Why an LXC command did not do its job.
#[derive(Debug)]
pub enum LxcError {
    /// The command could not be started: LXC's tools may not be installed (Incus brings none).
    NotStarted {
        /// The command.
        command: &'static str,
        /// Why.
        source: io::Error,
    },
    /// This version's monitor cannot take rules over.
    TooOld(String),
    /// The command failed.
    Failed {
        /// The command and its arguments.
        command: String,
        /// What it said.
        said: String,
    },
}

impl fmt::Display for LxcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { command, .. } => write!(f, "start {command}"),
            Self::TooOld(version) => {
                write!(f, "LXC {version} cannot replace its own device program; hint: LXC 4.0.12 or newer can")
            }
            Self::Failed { command, said } => write!(f, "{command} failed: {said}"),
        }
    }
}

impl Error for LxcError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotStarted { source, .. } => Some(source),
            Self::TooOld(_) | Self::Failed { .. } => None,
        }
    }
}

/// `6.0.4`, `5.0.2`, `4.0.0~rc1`: the first three numbers.
fn version(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.trim().split(|letter: char| !letter.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    let major = numbers.next().filter(|major| *major > 0)?;
    Some([major, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
}

/// Where LXC looks when nobody says otherwise (lxc.conf(5), `lxc.lxcpath`).
const DEFAULT_LXCPATH: &str = "/var/lib/lxc";

/// How long a command may take that only asks or tells the monitor.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

impl LxcContainer {
    /// Container `name` whose configuration is the file `config`, as LXC tells its hooks. The monitor's socket says
    /// which directory it belongs to; before there is one, the place of the configuration does.
    pub fn new(name: &ContainerId, config: Option<&str>) -> Self {
        let of_config = config.and_then(|path| path.strip_suffix("/config")?.strip_suffix(name.as_str()));
        let of_config = of_config.and_then(|path| path.strip_suffix('/')).map(str::to_owned);
        let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let listening = monitors(&sockets, name.as_str());
        let lxcpath = match of_config {
            Some(path) if listening.is_empty() || listening.contains(&path.as_str()) => path,
            found => listening.first().map(|path| (*path).to_owned()).or(found).unwrap_or(DEFAULT_LXCPATH.to_owned()),
        };
        Self { name: name.clone(), lxcpath }
    }

    /// The container's own configuration file.
    pub fn config_path(&self) -> String {
        format!("{}/{}/config", self.lxcpath, self.name)
    }

    /// Its name.
    pub fn name(&self) -> &ContainerId {
        &self.name
    }

    /// The process id of its init, on the host; `None` where it does not run.
    ///
    /// # Errors
    /// [`LxcError::NotStarted`] without LXC's tools.
    pub fn init_pid(&self) -> Result<Option<u32>, LxcError> {
        match self.run("lxc-info", &["--pid", "--no-humanize"]) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(LxcError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until it runs, or fails where it stopped instead or `seconds` have passed.
    pub fn wait_running(&self, seconds: u32) -> Result<(), LxcError> {
        let limit = Duration::from_secs(seconds.into()) + COMMAND_LIMIT;
        let arguments = ["--state", "RUNNING|STOPPED|ABORTING", "--timeout", &seconds.to_string()];
        self.run_within(limit, "lxc-wait", &arguments)?;
        self.run("lxc-info", &["--state", "--no-humanize"]).and_then(|state| match state.trim() {
            "RUNNING" | "FROZEN" => Ok(()),
            other => {
                Err(LxcError::Failed { command: format!("lxc-wait {}", self.name), said: format!("it is {other}") })
            }
        })
    }

    /// Gives one rule to the monitor, which rebuilds its own device program with it.
    ///
    /// # Errors
    /// The monitor refused it, or does not answer.
    pub fn allow(&self, rule: DeviceRule) -> Result<(), LxcError> {
        failpoint::reach("lxc.allow")
            .map_err(|error| LxcError::Failed { command: "lxc-cgroup".to_owned(), said: error.to_string() })?;
        self.run("lxc-cgroup", &["devices.allow", &rule.to_string()]).map(drop)
    }

    /// Whether its monitor replaces its own program on a live update.
    ///
    /// # Errors
    /// [`LxcError::TooOld`] before 4.0.12: such a monitor adds a second program instead, with which nothing is gained.
    pub fn check_version(&self) -> Result<(), LxcError> {
        let text = self.run("lxc-info", &["--version"])?;
        match version(&text) {
            Some(version) if version < [4, 0, 12] => Err(LxcError::TooOld(text.trim().to_owned())),
            _ => Ok(()),
        }
    }

    fn run(&self, command: &'static str, arguments: &[&str]) -> Result<String, LxcError> {
        self.run_within(COMMAND_LIMIT, command, arguments)
    }

    /// A command that has not ended after `limit` is killed: a monitor that is in a hook answers nobody, and its
    /// post-stop may wait for the lock that our caller holds.
    fn run_within(&self, limit: Duration, command: &'static str, arguments: &[&str]) -> Result<String, LxcError> {
        let all = [&["-P", &self.lxcpath, "-n", self.name.as_str()], arguments].concat();
        let output = host_command::run(&program(command), &all, limit)
            .map_err(|source| LxcError::NotStarted { command, source })?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(LxcError::Failed {
                command: format!("{command} -P {} -n {} {}", self.lxcpath, self.name, arguments.join(" ")),
                said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    }
}

/// The program by its absolute path, where LXC's packages put it; otherwise by name, to fail with its name.
fn program(command: &'static str) -> String {
    let places = ["/usr/bin", "/usr/local/bin", "/bin"].into_iter().map(|place| format!("{place}/{command}"));
    places.into_iter().find(|path| Path::new(path).exists()).unwrap_or_else(|| command.to_owned())
}

/// The lxcpaths whose monitors listen for container `name`: abstract sockets `@LXCPATH/NAME/command`
/// (lxc commands_utils.c, lxc_make_abstract_socket_name).
fn monitors<'a>(sockets: &'a str, name: &str) -> Vec<&'a str> {
    let suffix = format!("/{name}/command");
    let names = sockets.lines().filter_map(|line| line.split_ascii_whitespace().last()?.strip_prefix('@'));
    let mut paths: Vec<&str> = names.filter_map(|socket| socket.strip_suffix(suffix.as_str())).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (text, old) in
            [("4.0.6\n", true), ("4.0.12", false), ("5.0.2", false), ("6.0.4-1", false), ("4.0.0~rc1", true)]
        {
            assert_eq!(version(text).is_some_and(|version| version < [4, 0, 12]), old, "{text}");
        }
        assert_eq!(version("lxc"), None);
    }

    #[test]
    fn a_monitor_is_found_by_its_abstract_socket() {
        let sockets = "Num RefCount Protocol Flags Type St Inode Path\n\
                       0000: 00000002 00000000 00010000 0001 01 1 @/srv/lxc/c1/command\n\
                       0000: 00000003 00000000 00000000 0001 03 2 @/srv/lxc/c1/command\n\
                       0000: 00000002 00000000 00010000 0001 01 3 @/var/lib/lxc/c10/command\n\
                       0000: 00000002 00000000 00010000 0001 01 4 /run/systemd/journal/stdout\n";
        assert_eq!(monitors(sockets, "c1"), ["/srv/lxc"]);
        assert_eq!(monitors(sockets, "c10"), ["/var/lib/lxc"]);
        assert_eq!(monitors(sockets, "0"), [""; 0]);
    }
}
