// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does what a plan says to one container: mounts first, in a child inside its namespaces, then the device filter.
//! Whatever fails, everything before it is undone in reverse.

use std::error::Error;
use std::fmt;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

use gpuhook_core::chain::Chain;
use gpuhook_core::plan::Plan;

use self::mounts::{Journal, MountError};
use crate::failpoint;
use crate::sys::ns::Namespaces;
use crate::sys::process::{self, Child};
use crate::sys::{Errno, SysError, mount};
use crate::target::Target;

mod mounts;
mod nodes;

/// Mounts that stand but are not yet kept: dropped, or left by a death of this process, they are undone by the child
/// that made them.
#[derive(Debug)]
pub struct Mounts {
    child: Option<Child>,
    keep: Option<PipeWriter>,
    steps: Vec<String>,
}

/// Mounts that are being made. Dropped, they are undone.
#[derive(Debug)]
pub struct Mounting {
    answer: Option<PipeReader>,
    mounts: Mounts,
}

/// Why nothing was mounted. Nothing was left behind.
#[derive(Debug)]
pub enum ApplyError {
    /// The child said why, as one line.
    Mount(String),
    /// The child died before it could say anything.
    ChildDied,
    /// The child undid what was to be kept.
    Undone,
    /// A system call failed.
    Sys(SysError),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(text) => f.write_str(text),
            Self::ChildDied => f.write_str("the child that mounts in the container died"),
            Self::Undone => f.write_str("the child that mounts in the container has undone its mounts"),
            Self::Sys(_) => f.write_str("start the child that mounts in the container"),
        }
    }
}

impl Error for ApplyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Sys(source) => Some(source),
            _ => None,
        }
    }
}

impl From<SysError> for ApplyError {
    fn from(source: SysError) -> Self {
        Self::Sys(source)
    }
}

impl Mounting {
    /// No mount at all, for a container whose nodes are its runtime's.
    pub fn none() -> Self {
        Self { answer: None, mounts: Mounts { child: None, keep: None, steps: Vec::new() } }
    }

    /// Begins to make the planned nodes and to mount them in `target`, in a child, beside whatever the caller does
    /// meanwhile.
    ///
    /// # Errors
    /// No process could be made.
    pub fn start(plan: &Plan, target: &Target) -> Result<Self, ApplyError> {
        let (answer, tell) = pipe().map_err(|error| SysError::of_io("pipe2", "", &error))?;
        let (kept, keep) = pipe().map_err(|error| SysError::of_io("pipe2", "", &error))?;
        let (mut answer, mut keep) = (Some(answer), Some(keep));
        let (mut tell, mut kept) = (Some(tell), Some(kept));
        let child = process::fork(|| {
            // The child must see its parent die, so it may not hold the parent's end of a pipe.
            drop((answer.take(), keep.take()));
            match (tell.take(), kept.take()) {
                (Some(tell), Some(kept)) => mount_and_wait(plan, target, tell, kept),
                _ => 1,
            }
        })?;
        drop((tell, kept));
        Ok(Self { answer, mounts: Mounts { child: Some(child), keep, steps: Vec::new() } })
    }

    /// Waits until all is mounted.
    ///
    /// # Errors
    /// As [`Mounts::make`].
    pub fn done(self) -> Result<Mounts, ApplyError> {
        let Self { answer, mut mounts } = self;
        let Some(answer) = answer else { return Ok(mounts) };
        let mut text = Vec::new();
        let read = answer.take(MESSAGE_LIMIT).read_to_end(&mut text);
        read.map_err(|error| SysError::of_io("read", "[child]", &error))?;
        let text = String::from_utf8_lossy(&text);
        match text.strip_prefix(DONE) {
            Some(steps) => {
                mounts.steps = steps.lines().map(str::to_owned).collect();
                Ok(mounts)
            }
            None if text.is_empty() => Err(ApplyError::ChildDied),
            None => Err(ApplyError::Mount(text.into_owned())),
        }
    }
}

impl Mounts {
    /// Makes the planned nodes and mounts them in `target`; what is there already stays as it is.
    ///
    /// # Errors
    /// [`ApplyError::Mount`] says which path and why; everything is as it was.
    pub fn make(plan: &Plan, target: &Target) -> Result<Self, ApplyError> {
        Mounting::start(plan, target)?.done()
    }

    /// What was mounted, as sentences in the order in which it was done; what was there already is not among them.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// Keeps them: from now on they are the container's.
    ///
    /// # Errors
    /// [`ApplyError::Undone`] where the child could not hear it. A child that was killed meanwhile had mounted all, and
    /// undoes nothing any more.
    pub fn keep(mut self) -> Result<(), ApplyError> {
        if let Some(keep) = &mut self.keep {
            // EPIPE: the child is dead. What became of the mounts its end tells.
            keep.write_all(KEEP).ok();
        }
        match self.wait()? {
            Some(Ok(code)) if code != i32::from(KEPT) => Err(ApplyError::Undone),
            None | Some(_) => Ok(()),
        }
    }

    /// How the child ended.
    fn wait(&mut self) -> Result<Option<Result<i32, i32>>, ApplyError> {
        drop(self.keep.take());
        Ok(self.child.take().map(Child::wait).transpose()?)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        match self.wait() {
            Ok(None | Some(Ok(_))) => {}
            Ok(Some(Err(signal))) => log::warn!("undo mounts: the child was killed by signal {signal}"),
            Err(error) => log::warn!("undo mounts: {error}"),
        }
    }
}

/// The child: mounts, says so, and undoes it all unless the parent says to keep it.
fn mount_and_wait(plan: &Plan, target: &Target, mut tell: PipeWriter, mut kept: PipeReader) -> u8 {
    let mut journal = Journal::default();
    let done = mount_all(plan, target, &mut journal);
    if failpoint::reach("mounts.tell").is_err() {
        journal.undo();
        return UNDONE;
    }
    let text = match &done {
        Ok(steps) => format!("{DONE}{}", steps.join("\n")),
        Err(error) => format!("{}{}", Chain(error), advice(error)),
    };
    let told = tell.write_all(text.as_bytes());
    drop(tell);
    let mut word = Vec::new();
    let heard = kept.read_to_end(&mut word).is_ok() && failpoint::reach("mounts.keep").is_ok();
    if done.is_ok() && told.is_ok() && heard && word == KEEP {
        return KEPT;
    }
    journal.undo();
    UNDONE
}

/// What helps where root is refused a mount: only a security module does that.
fn advice(error: &MountError) -> &'static str {
    let mut cause: Option<&dyn Error> = Some(error);
    let mut refused = false;
    while let Some(error) = cause {
        refused |= error.downcast_ref::<SysError>().is_some_and(|error| error.errno() == Errno::ACCESS);
        cause = error.source();
    }
    match refused {
        true => {
            "; hint: journalctl -k -g apparmor shows what AppArmor denied; a profile of lxc-start must hold \
             \"change_profile -> unconfined,\", as /etc/apparmor.d/abstractions/lxc/start-container does when shipped"
        }
        false => "",
    }
}

/// How the child ends where the mounts stand, and where they do not.
const KEPT: u8 = 0;
const UNDONE: u8 = 1;

/// Most that the mounting child may say, in bytes: a line per mount of the largest MIG machine.
const MESSAGE_LIMIT: u64 = 1 << 20;

/// What the mounting child says first where all went well.
const DONE: &str = "done\n";

/// What the parent writes to keep the mounts; its death closes the pipe without it.
const KEEP: &[u8] = b"keep";

fn mount_all(plan: &Plan, target: &Target, journal: &mut Journal) -> Result<Vec<String>, MountError> {
    let host_dev = mount::open_dev().and_then(mount::status).map_err(MountError::HostDev)?.file_system;
    let ready = nodes::make(plan).map_err(MountError::Nodes)?;
    failpoint::reach("mounts.enter").map_err(|source| MountError::Enter(source.into()))?;
    let root = target.enter(Namespaces::USER | Namespaces::MOUNT).map_err(MountError::Enter)?;
    let mut steps = Vec::new();
    for mount in ready {
        let target = &mount.planned.target;
        if journal.attach(&root, host_dev, plan, mount)? {
            steps.push(format!("mounted {target}"));
        }
    }
    Ok(steps)
}
