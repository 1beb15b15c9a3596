// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/run/gpuhook/ENGINE/ID`: the last report of a container, and the lock that keeps two runs for it apart.

use std::error::Error;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gpuhook_core::container_id::ContainerId;

use crate::{failpoint, rootless};

/// Where run state lives: a tmpfs on every system with systemd, so nothing survives a reboot. A rootless manager's hooks
/// are root of a user namespace alone, and have the directory of its user.
fn base() -> PathBuf {
    match rootless::user() {
        None => PathBuf::from("/run/gpuhook"),
        Some(uid) => PathBuf::from(format!("/run/user/{uid}/gpuhook")),
    }
}

/// The state directory of one container, locked until this value is dropped.
#[derive(Debug)]
pub struct RunState {
    path: PathBuf,
    // Closing it releases the lock.
    _lock: File,
    keep: bool,
}

/// Why the state directory cannot be used.
#[derive(Debug)]
pub struct RunStateError {
    path: PathBuf,
    verb: &'static str,
    source: io::Error,
}

impl fmt::Display for RunStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.path.display())
    }
}

impl Error for RunStateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl RunState {
    /// The state directory of container `id` of `engine`, made where it is missing. Waits while another run for the
    /// same container holds it.
    pub fn lock(engine: &str, id: &ContainerId) -> Result<Self, RunStateError> {
        let path = base().join(engine).join(id.as_str());
        loop {
            point("state.make").map_err(error("make", &path))?;
            if let Err(source) = DirBuilder::new().recursive(true).mode(0o700).create(&path) {
                // Some of those above it may have been made.
                remove_empty(&path);
                return Err(error("make", &path)(source));
            }
            let lock = match File::open(&path) {
                // Removed by a post-stop between the two calls.
                Err(found) if found.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(error("open", &path))?,
            };
            point("state.lock").and_then(|()| lock.lock()).map_err(error("lock", &path))?;
            // The run that we waited for may have removed the directory: then this lock guards nothing.
            let held = lock.metadata().map_err(error("stat", &path))?;
            if fs::metadata(&path).is_ok_and(|now| now.ino() == held.ino() && now.dev() == held.dev()) {
                return Ok(Self { path, _lock: lock, keep: false });
            }
        }
    }

    /// Keeps `report` until [`RunState::remove`]. Without this call the directory goes when the value is dropped, unless
    /// an earlier run left its report there.
    pub fn save(&mut self, report: &[u8]) -> Result<(), RunStateError> {
        let temporary = self.temporary();
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let written = opened
            .and_then(|mut file| file.write_all(report))
            .and_then(|()| point("state.rename"))
            .and_then(|()| fs::rename(&temporary, self.report()));
        if let Err(source) = written {
            // A half-written file is worth nothing, and ENOSPC is likely to meet the next one too.
            fs::remove_file(&temporary).ok();
            return Err(error("write", &temporary)(source));
        }
        self.keep = true;
        point("state.saved").map_err(error("write", &temporary))
    }

    /// Whether a report is kept: nobody has removed it since.
    pub fn is_kept(&self) -> bool {
        self.report().exists()
    }

    /// Removes everything that was kept of the container, and the empty directories of others: a hook that was killed
    /// before its report leaves one, and a container of that id may never come back.
    pub fn remove(mut self) {
        self.keep = point("state.remove").is_ok();
        self.discard();
        for other in self.path.parent().and_then(|engine| fs::read_dir(engine).ok()).into_iter().flatten().flatten() {
            let path = other.path();
            let Ok(directory) = File::open(&path) else { continue };
            // Who holds the lock is about to write, and whoever waits for it looks whether the directory is still there.
            if path != self.path && directory.try_lock().is_ok() {
                fs::remove_dir(path).ok();
            }
        }
    }

    /// Removes the report that was saved through this very value: what it tells of was undone.
    pub fn discard(&mut self) {
        if std::mem::take(&mut self.keep) {
            // The new one is there where a run was killed while it wrote.
            for path in [self.report(), self.temporary()] {
                fs::remove_file(path).ok();
            }
        }
    }

    fn temporary(&self) -> PathBuf {
        self.path.join("report.json.new")
    }

    fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }
}

impl Drop for RunState {
    fn drop(&mut self) {
        // rmdir takes only empty directories, so a report of an earlier run is safe, and so are other containers.
        if !self.keep && fs::remove_dir(&self.path).is_ok() {
            remove_empty(&self.path);
        }
    }
}

/// Removes what is empty of the directories above a container's: its engine's, and all of them.
fn remove_empty(path: &Path) {
    for parent in path.ancestors().skip(1).take(2) {
        // ENOTEMPTY is the rule: other containers.
        fs::remove_dir(parent).ok();
    }
}

/// The report that the last run for container `id` of `engine` left, if there is one.
pub fn last_report(engine: &str, id: &ContainerId) -> Option<Vec<u8>> {
    fs::read(base().join(engine).join(id.as_str()).join("report.json")).ok()
}

/// A failpoint, in this module's kind of error.
fn point(name: &'static str) -> io::Result<()> {
    failpoint::reach(name).map_err(|error| io::Error::from(error.errno()))
}

fn error<'a>(verb: &'static str, path: &'a Path) -> impl Fn(io::Error) -> RunStateError + 'a {
    move |source| RunStateError { path: path.to_owned(), verb, source }
}
