// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device filter of one container: opens it to exactly the given rules, takes that back, judges it, hands it back
//! to its owner.
//!
//! All programs of a cgroup and of its ancestors have to allow an open, so a further program grants nothing: each one
//! that refuses has to be replaced by one that allows our devices and else answers as before. There are two ways:
//!
//! - *prepend*: our rules in front of the instructions that the kernel shows of it. Needs nothing beside itself, so it
//!   comes first.
//! - *wrap*: our rules, then a tail call to the very program. Works where its instructions are hidden or not loadable
//!   (`net.core.bpf_jit_harden` with `kernel.kptr_restrict=2`, helper calls). The kernel empties the program array when
//!   the last descriptor and pin of it are gone, and then everything would be refused: hence `Pins`.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use gpuhook_core::bpf::{BuildError, PrependError};
use gpuhook_core::cgroup_v1::OddLine;
use gpuhook_core::device::DeviceRule;

pub use self::judge::{Judgement, judge};
pub use self::pins::Pins;
use crate::cgroup::{CgroupPath, Level, Version};
use crate::sys::bpf::{self, AttachFlags};
use crate::sys::{Errno, SysError};

/// Gives the filter back to a manager that will carry the rules itself.
pub mod handback;
mod judge;
mod pins;
mod program;
mod v1;
mod v2;

/// How a program is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Prepend, and wrap where that cannot be done.
    #[default]
    Auto,
    /// Only prepend.
    Prepend,
    /// Only wrap.
    Wrap,
}

/// What [`allow`] may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// How a program is replaced.
    pub method: Method,
    /// Where program arrays are kept; without it no program is wrapped.
    pub pins: Option<&'a Pins>,
}

/// Opens the filter of the container's own cgroups to `rules`. A second call with the same rules changes nothing; one
/// with other rules puts them in the place of the earlier ones. Where nothing is attached, everything is allowed, and
/// nothing is done.
///
/// # Errors
/// Whatever could not be done, after all that had been done is undone.
///
/// # Minimum kernel
/// 5.6 (`BPF_F_REPLACE`).
pub fn allow(path: &CgroupPath, rules: &[DeviceRule], options: Options<'_>) -> Result<Applied, FilterError> {
    let mut applied = Applied::default();
    let done = match path.version {
        Version::V1 => v1::allow(path, rules, &mut applied.journal),
        Version::V2 => v2::allow(path, rules, options, &mut applied.journal),
    };
    match done {
        Ok(()) => Ok(applied),
        Err(cause) => match applied.undo() {
            Ok(()) => Err(cause),
            Err(undo) => Err(FilterError::NotUndone { undo: Box::new(undo), cause: Box::new(cause) }),
        },
    }
}

/// What was changed, so that it can be undone. Dropping it keeps the changes.
#[derive(Debug, Default)]
pub struct Applied {
    journal: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Replaced { level: Level, flags: AttachFlags, old: OwnedFd, new: OwnedFd, pin: Option<PathBuf>, step: String },
    BridgeRemoved { level: Level, flags: AttachFlags, bridge: OwnedFd },
    Listed { level: Level, added: DeviceRule },
}

impl Applied {
    /// Whether the filter was found as it should be.
    pub fn is_unchanged(&self) -> bool {
        self.journal.is_empty()
    }

    /// What was changed, as sentences in the order in which it was done.
    pub fn steps(&self) -> impl Iterator<Item = String> {
        self.journal.iter().map(|change| match change {
            Change::Replaced { step, .. } => step.clone(),
            Change::BridgeRemoved { level, .. } => format!("removed a left-over bridge from cgroup {}", level.name),
            Change::Listed { level, added } => format!("allowed {added} on cgroup {}", level.name),
        })
    }

    /// Puts everything back as it was, the last change first. A program of ours that its owner has replaced or removed
    /// meanwhile needs no undoing.
    ///
    /// # Errors
    /// The first step back that failed; the others are done.
    pub fn undo(self) -> Result<(), FilterError> {
        let mut first = None;
        for change in self.journal.into_iter().rev() {
            if let Err(error) = change.undo() {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}

impl Change {
    fn undo(self) -> Result<(), FilterError> {
        let (level, done) = match self {
            Self::Replaced { level, flags, old, new, pin, .. } => {
                let done = v2::swap(&level, flags, &new, &old);
                if let (Ok(()), Some(pin)) = (&done, pin) {
                    pins::remove(&pin)?;
                }
                (level, done)
            }
            Self::BridgeRemoved { level, flags, bridge } => {
                let done = bpf::attach(&level, &bridge, flags, None);
                (level, done)
            }
            Self::Listed { level, added } => {
                let done = v1::deny(&level, added);
                (level, done)
            }
        };
        match done {
            Err(source) if source.errno() != Errno::NOENT => Err(FilterError::Undo { cgroup: level.name, source }),
            _ => Ok(()),
        }
    }
}

/// Why the filter could not be opened, read or put back.
#[derive(Debug)]
pub enum FilterError {
    /// The programs of a cgroup could not be listed.
    Query {
        /// Which cgroup.
        cgroup: String,
        /// Why.
        source: SysError,
    },
    /// A program could not be read.
    Look {
        /// On which cgroup.
        cgroup: String,
        /// Why.
        source: SysError,
    },
    /// No program could be made that allows the rules and else answers as this one.
    Replace {
        /// On which cgroup.
        cgroup: String,
        /// The name of the program that is there.
        program: String,
        /// Why prepending failed, where it was tried.
        prepend: Option<String>,
        /// Why the last way failed.
        source: Box<ReplaceError>,
    },
    /// The new program could not be attached.
    Attach {
        /// To which cgroup.
        cgroup: String,
        /// The name of the program that is there.
        program: String,
        /// Why.
        source: SysError,
    },
    /// The program is attached by a link, which only its owner can change.
    Linked {
        /// To which cgroup.
        cgroup: String,
        /// Its name.
        program: String,
    },
    /// Someone else replaced the programs each time between our reading and our replacing.
    Changing {
        /// On which cgroup.
        cgroup: String,
    },
    /// A wrap of ours has lost the program that it wraps: its array was unpinned.
    Lost {
        /// On which cgroup.
        cgroup: String,
    },
    /// A file of the v1 controller could not be read or written.
    List {
        /// On which cgroup.
        cgroup: String,
        /// Why.
        source: SysError,
    },
    /// A line of `devices.list` is none.
    OddList {
        /// On which cgroup.
        cgroup: String,
        /// Which line.
        source: OddLine,
    },
    /// The v1 controller took a rule and does not show it.
    NotListed {
        /// On which cgroup.
        cgroup: String,
        /// Which rule.
        rule: DeviceRule,
    },
    /// A step back failed.
    Undo {
        /// On which cgroup.
        cgroup: String,
        /// Why.
        source: SysError,
    },
    /// A pin could not be removed.
    Unpin {
        /// Why.
        source: SysError,
    },
    /// A step failed, and then a step back.
    NotUndone {
        /// What failed on the way back.
        undo: Box<FilterError>,
        /// What failed first.
        cause: Box<FilterError>,
    },
}

impl FilterError {
    /// Whether this process may not even look at device filters: it is root of a user namespace only, or of nothing.
    pub fn is_unprivileged(&self) -> bool {
        match self {
            Self::Query { source, .. } | Self::Look { source, .. } => source.errno() == Errno::PERM,
            _ => false,
        }
    }
}

/// Why a program has no replacement.
#[derive(Debug)]
pub enum ReplaceError {
    /// The rules make no program.
    Rules(BuildError),
    /// The program that is there cannot be loaded again.
    Prepend(PrependError),
    /// The kernel refused the new program.
    Load(SysError),
    /// The kernel refused the program array or its content.
    Array(SysError),
    /// There is no place to keep a program array.
    NoPins,
    /// The program array could not be pinned.
    Pin(SysError),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query { cgroup, .. } => {
                write!(f, "cannot list the device programs of cgroup {cgroup} (hint: root of the host is needed)")
            }
            Self::Look { cgroup, .. } => write!(f, "cannot read a device program of cgroup {cgroup}"),
            Self::Replace { cgroup, program, prepend: None, .. } => {
                write!(f, "cannot extend device program {program:?} of cgroup {cgroup}")
            }
            Self::Replace { cgroup, program, prepend: Some(prepend), .. } => {
                write!(f, "cannot extend device program {program:?} of cgroup {cgroup} ({prepend}), nor wrap it")
            }
            Self::Attach { cgroup, program, .. } => {
                write!(f, "cannot replace device program {program:?} of cgroup {cgroup} (hint: Linux 5.6 is needed)")
            }
            Self::Linked { cgroup, program } => write!(
                f,
                "device program {program:?} of cgroup {cgroup} is held by a link (hint: its owner has to allow the \
                 devices)"
            ),
            Self::Changing { cgroup } => {
                write!(f, "device programs of cgroup {cgroup} keep changing (hint: try again)")
            }
            Self::Lost { cgroup } => write!(
                f,
                "device filter of cgroup {cgroup} has lost the program of its manager (hint: restart the container)"
            ),
            Self::List { cgroup, .. } => write!(f, "cannot change the device list of cgroup {cgroup}"),
            Self::OddList { cgroup, .. } => write!(f, "cannot read the device list of cgroup {cgroup}"),
            Self::NotListed { cgroup, rule } => write!(f, "device list of cgroup {cgroup} does not show {rule}"),
            Self::Undo { cgroup, .. } => write!(f, "cannot put the device filter of cgroup {cgroup} back"),
            Self::Unpin { .. } => f.write_str("cannot remove a pin"),
            Self::NotUndone { undo, .. } => write!(f, "device filter is left half changed ({undo})"),
        }
    }
}

impl std::error::Error for FilterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Query { source, .. }
            | Self::Look { source, .. }
            | Self::Attach { source, .. }
            | Self::List { source, .. }
            | Self::Undo { source, .. }
            | Self::Unpin { source } => Some(source),
            Self::Replace { source, .. } => Some(source.as_ref()),
            Self::OddList { source, .. } => Some(source),
            Self::NotUndone { cause, .. } => Some(cause.as_ref()),
            Self::Linked { .. } | Self::Changing { .. } | Self::Lost { .. } | Self::NotListed { .. } => None,
        }
    }
}

impl fmt::Display for ReplaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(_) => f.write_str("cannot build a program"),
            Self::Prepend(_) => f.write_str("cannot load it again"),
            Self::Load(_) => f.write_str("kernel refuses the new program"),
            Self::Array(_) => f.write_str("kernel refuses a tail call to it"),
            Self::NoPins => f.write_str("no bpffs to pin a program array in (hint: mount -t bpf bpf /sys/fs/bpf)"),
            Self::Pin(_) => f.write_str("cannot pin a program array (hint: mount -t bpf bpf /sys/fs/bpf)"),
        }
    }
}

impl std::error::Error for ReplaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Rules(source) => Some(source),
            Self::Prepend(source) => Some(source),
            Self::Load(source) | Self::Array(source) | Self::Pin(source) => Some(source),
            Self::NoPins => None,
        }
    }
}
