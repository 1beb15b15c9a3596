// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real OCI runtime behind `gpuhook runtime`: where it is, becoming it, and its log.

use std::convert::Infallible;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use gpuhook_core::oci::State;

use crate::sys::{SysError, memfd, process};

/// Where runtimes are looked for where the administrator names none: never in a caller's `PATH`.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// The names that are looked for, the first one first.
const NAMES: [&str; 2] = ["runc", "crun"];

/// Why there is no runtime to execute.
#[derive(Debug)]
pub enum RuntimeError {
    /// None is installed.
    Absent,
    /// The file that the administrator named cannot be looked at.
    Look {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is no program that only root can change.
    NotTrusted {
        /// The file.
        path: String,
        /// What it is.
        why: &'static str,
    },
    /// Its standard input could not be made.
    Input(SysError),
    /// It could not be executed.
    Execute(SysError),
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => {
                let (names, directories) = (NAMES.join(" or "), DIRECTORIES.join(", "));
                write!(f, "no {names} in {directories}; hint: set runtime in /etc/gpuhook/config.toml")
            }
            Self::Look { path, .. } => write!(f, "look at the runtime {path}"),
            Self::NotTrusted { path, why } => {
                write!(f, "the runtime {path} is {why}; hint: set runtime in /etc/gpuhook/config.toml")
            }
            Self::Input(_) => f.write_str("hand the new limits to the runtime"),
            Self::Execute(_) => f.write_str("execute the runtime"),
        }
    }
}

impl Error for RuntimeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Look { source, .. } => Some(source),
            Self::Input(source) | Self::Execute(source) => Some(source),
            Self::Absent | Self::NotTrusted { .. } => None,
        }
    }
}

/// The runtime that the administrator names, or the first that is installed where `named` is empty.
///
/// # Errors
/// [`RuntimeError`]: there is none, or it is not to be executed.
pub fn find(named: &str) -> Result<String, RuntimeError> {
    if !named.is_empty() {
        return check(named).map(|()| named.to_owned());
    }
    let mut places = NAMES.iter().flat_map(|name| DIRECTORIES.map(|directory| format!("{directory}/{name}")));
    places.find(|path| check(path).is_ok()).ok_or(RuntimeError::Absent)
}

/// It runs as root on every container, so nobody else may be able to change it, and it may not be this very program.
fn check(path: &str) -> Result<(), RuntimeError> {
    let not = |why| Err(RuntimeError::NotTrusted { path: path.to_owned(), why });
    if !Path::new(path).is_absolute() {
        return not("no absolute path");
    }
    let file = fs::metadata(path).map_err(|source| RuntimeError::Look { path: path.to_owned(), source })?;
    let own = fs::metadata("/proc/self/exe").ok();
    match file {
        _ if !file.is_file() || file.mode() & 0o111 == 0 => not("no program"),
        _ if file.uid() != 0 || file.mode() & 0o022 != 0 => not("not root's alone to change"),
        _ if own.is_some_and(|own| (own.dev(), own.ino()) == (file.dev(), file.ino())) => not("gpuhook itself"),
        _ => Ok(()),
    }
}

/// Where the bundle of its container `id` is, by the word of the runtime at `path` itself. `global` are the options that
/// come before its command. Nothing where it knows no such container.
pub fn bundle(path: &str, global: &[OsString], id: &str) -> Option<String> {
    let mut state = Command::new(path);
    let said = state.args(global).args(["state", id]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    Some(State::parse(&said.ok()?.stdout).ok()?.bundle)
}

/// Makes `bytes` what the runtime will read on its standard input, in the place of what was there and was read.
///
/// # Errors
/// [`RuntimeError::Input`]: there is no memory for it.
pub fn give_input(bytes: &[u8]) -> Result<(), RuntimeError> {
    memfd::input("gpuhook-resources", bytes).map_err(RuntimeError::Input)
}

/// Becomes the runtime at `path`: descriptors, environment, signal mask, working directory and process stay.
///
/// # Errors
/// [`RuntimeError::Execute`]; where all is well, it does not return.
pub fn execute(path: &str, arguments: &[OsString]) -> Result<Infallible, RuntimeError> {
    Err(RuntimeError::Execute(process::execute(path, arguments)))
}

/// Adds `line` to the runtime's log, where an engine looks for the reason of a failure. It says it on standard error as
/// well, so a log that cannot be written is no failure of its own.
pub fn log(path: &str, line: &str) {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
        log::debug!("{path}: {error}");
    }
}
