// SPDX-License-Identifier: MIT OR Apache-2.0
//! The running systemd, which rebuilds the device filter of its units from their properties at every `daemon-reload`.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Why a unit's properties were not read or set.
#[derive(Debug)]
pub enum SystemdError {
    /// systemctl could not be started.
    NotStarted(io::Error),
    /// systemctl failed.
    Failed {
        /// Its command.
        command: String,
        /// The unit.
        unit: String,
        /// What it said.
        said: String,
    },
}

impl fmt::Display for SystemdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(_) => f.write_str("start systemctl"),
            Self::Failed { command, unit, said } => write!(f, "systemctl {command} {unit} failed: {said}"),
        }
    }
}

impl Error for SystemdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotStarted(source) => Some(source),
            Self::Failed { .. } => None,
        }
    }
}

/// The name that systemd gives its device programs (src/core/bpf-devices.c).
pub const DEVICE_PROGRAM: &str = "sd_devices";

/// Whether systemd manages this system (sd_booted(3)).
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The unit whose cgroup is `cgroup`: its last component, where that is a unit's name.
pub fn unit(cgroup: &str) -> Option<&str> {
    let name = cgroup.rsplit('/').next()?;
    [".scope", ".service"].iter().any(|suffix| name.ends_with(suffix)).then_some(name)
}

/// Whether systemd restricts the devices of `unit` (`DevicePolicy=`, `DeviceAllow=`); not of one that it does not know.
///
/// # Errors
/// systemd does not answer.
pub fn restricts_devices(unit: &str) -> Result<bool, SystemdError> {
    let properties = systemctl(unit, &["show", "--property=DevicePolicy,DeviceAllow", unit])?;
    Ok(properties.lines().any(|line| !matches!(line.trim_end(), "DevicePolicy=auto" | "DeviceAllow=" | "")))
}

/// What `DeviceAllow=` of `unit` holds, entry by entry: `/dev/char/195:0 rw`. Empty where systemd does not restrict the
/// unit's devices.
///
/// # Errors
/// systemd does not answer.
pub fn allowed_devices(unit: &str) -> Result<Vec<String>, SystemdError> {
    Ok(entries(&systemctl(unit, &["show", "--property=DeviceAllow", unit])?))
}

fn entries(properties: &str) -> Vec<String> {
    let values = properties.lines().filter_map(|line| line.strip_prefix("DeviceAllow="));
    values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

/// Adds `values` to `DeviceAllow=` of `unit` until the next boot. systemd resolves names (`char-nvidia-uvm`) from
/// `/proc/devices` whenever it builds the filter, so they follow the live numbers.
///
/// # Errors
/// systemd refused, or does not answer.
pub fn allow_devices(unit: &str, values: &[String]) -> Result<(), SystemdError> {
    let values: Vec<String> = values.iter().map(|value| format!("DeviceAllow={value}")).collect();
    let values = values.iter().map(String::as_str);
    systemctl(unit, &["set-property", "--runtime", unit].into_iter().chain(values).collect::<Vec<_>>())?;
    Ok(())
}

fn systemctl(unit: &str, args: &[&str]) -> Result<String, SystemdError> {
    let mut command = Command::new("/usr/bin/systemctl");
    let output = command.args(args).env_clear().stdin(Stdio::null()).output().map_err(SystemdError::NotStarted)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(SystemdError::Failed { command: args[0].to_owned(), unit: unit.to_owned(), said })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_is_not_restricted_shows_one_empty_entry() {
        assert_eq!(entries("DeviceAllow=\n"), [""; 0]);
        assert_eq!(
            entries("DeviceAllow=char-* m\nDeviceAllow=/dev/char/195:0 rw\n"),
            ["char-* m", "/dev/char/195:0 rw"]
        );
    }

    #[test]
    fn a_unit_is_the_last_component_of_its_cgroup() {
        for (cgroup, name) in [
            ("/system.slice/runc-c1.scope", Some("runc-c1.scope")),
            ("/machine.slice/libpod-1a.scope/container", None),
            ("/system.slice/x.service", Some("x.service")),
            ("/lxc.payload.c1", None),
            ("/", None),
        ] {
            assert_eq!(unit(cgroup), name, "{cgroup}");
        }
    }
}
