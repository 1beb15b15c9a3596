// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the filter back to a manager that replaces its own program (LXC's monitor) and will carry the rules itself.
//!
//! The manager can replace only a program that is attached, so its own has to come back before it knows the rules. A
//! bridge, attached behind it, forgets its refusals of our devices meanwhile:
//!
//! ```text
//! [ours]            begin   attach the bridge           [ours, bridge]
//!                           replace ours by the owner's [owner's, bridge]
//!                   caller  has the owner add the rules [owner's + rules, bridge]
//!                   finish  detach the bridge           [owner's + rules]
//! ```
//!
//! In each of these states our devices can be opened, so a kill at any point costs nothing; `filter::allow` removes a
//! bridge that was left.

use std::fmt;
use std::os::fd::OwnedFd;

use gpuhook_core::bpf::{Verdict, allows, override_denial};
use gpuhook_core::device::DeviceRule;

use super::program::{BRIDGE, Kind, Program};
use super::{FilterError, v2};
use crate::cgroup::{CgroupPath, Level};
use crate::failpoint;
use crate::sys::bpf::{self, AttachFlags};
use crate::sys::{Errno, SysError};
use crate::systemd;

/// A bridge that stands: the owner's programs are back. Dropping it leaves it standing.
#[derive(Debug)]
#[must_use = "the bridge stands until it is finished"]
pub struct Bridge {
    spans: Vec<Span>,
    rules: Vec<DeviceRule>,
}

#[derive(Debug)]
struct Span {
    level: Level,
    flags: AttachFlags,
    bridge: OwnedFd,
    /// Ours and the owner's, of each program that was put back.
    pairs: Vec<(OwnedFd, OwnedFd)>,
}

/// Why the filter cannot be handed back.
#[derive(Debug)]
pub enum HandbackError {
    /// Nothing of ours is attached whose owner still holds its own program.
    Nothing,
    /// This kernel has no bridge (before 5.18), or the cgroup takes no second program: the caller may instead undo its
    /// [`super::Applied`] and accept a short time in which opens are refused.
    Unsupported(SysError),
    /// The owner's programs do not allow a rule yet; the bridge still stands.
    NotYet {
        /// On which cgroup.
        cgroup: String,
        /// Which rule.
        rule: DeviceRule,
    },
    /// A program could not be read, attached or detached.
    Filter(Box<FilterError>),
}

impl fmt::Display for HandbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no device program of an owner to hand back to"),
            Self::Unsupported(_) => f.write_str("cannot bridge the hand-back (hint: Linux 5.18 is needed)"),
            Self::NotYet { cgroup, rule } => write!(f, "owner's device program of cgroup {cgroup} lacks {rule}"),
            Self::Filter(_) => f.write_str("cannot hand the device filter back"),
        }
    }
}

impl std::error::Error for HandbackError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Nothing | Self::NotYet { .. } => None,
            Self::Unsupported(source) => Some(source),
            Self::Filter(source) => Some(source.as_ref()),
        }
    }
}

/// Whose programs are put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Everyone's: the container has one manager.
    Any,
    /// systemd's alone, by the name that it gives them; a runtime's program beside it on the same cgroup stays ours.
    Systemd,
}

impl Owner {
    fn is_of(self, program: &Program) -> bool {
        match self {
            Self::Any => true,
            Self::Systemd => program.info.name == systemd::DEVICE_PROGRAM,
        }
    }
}

/// Puts the programs of `owner` back, with a bridge behind each.
///
/// # Errors
/// After which all is as before: nothing to hand back, a kernel without the means, or a failed step.
///
/// # Minimum kernel
/// 5.18 (`bpf_set_retval`, commit b44123b4a3dc).
pub fn begin(path: &CgroupPath, rules: &[DeviceRule], owner: Owner) -> Result<Bridge, HandbackError> {
    let mut bridge = Bridge { spans: Vec::new(), rules: rules.to_vec() };
    for level in &path.own {
        match span(level, rules, owner) {
            Ok(Some(span)) => bridge.spans.push(span),
            Ok(None) => {}
            Err(error) => {
                // The error that is told is the first one; what cannot be taken back keeps the devices open.
                let _ = bridge.undo();
                return Err(error);
            }
        }
    }
    if bridge.spans.is_empty() { Err(HandbackError::Nothing) } else { Ok(bridge) }
}

/// Bridges one cgroup, or finds nothing of ours on it.
fn span(level: &Level, rules: &[DeviceRule], owner: Owner) -> Result<Option<Span>, HandbackError> {
    let attached = v2::query(level).map_err(filter)?;
    let mut pairs = Vec::new();
    for id in attached.ids {
        let Some(ours) = v2::open(level, id).map_err(filter)? else { continue };
        let original = v2::original(level, &ours).map_err(filter)?;
        if let Some(owners) = original.filter(|program| owner.is_of(program)) {
            pairs.push((ours, owners));
        }
    }
    if pairs.is_empty() {
        return Ok(None);
    }
    let program = override_denial(rules).map_err(|source| {
        let (cgroup, program) = (level.name.clone(), "gpuhook_bridge".to_owned());
        let source = Box::new(super::ReplaceError::Rules(source));
        filter(FilterError::Replace { cgroup, program, prepend: None, source })
    })?;
    // The helper is there for programs of this attach type only, not of 0 as managers leave it.
    let bridge = bpf::prog_load(BRIDGE, &v2::bytes(&program), bpf::CGROUP_DEVICE_ATTACH);
    let bridge = bridge.map_err(HandbackError::Unsupported)?;
    // Without ALLOW_MULTI it would take the only place there is.
    if !attached.flags.contains(AttachFlags::ALLOW_MULTI) {
        let refused = SysError::new("BPF_PROG_ATTACH", format!("flags {:#x}", attached.flags.bits()), Errno::PERM);
        return Err(HandbackError::Unsupported(refused));
    }
    failpoint::reach("handback.bridge").map_err(HandbackError::Unsupported)?;
    bpf::attach(level, &bridge, attached.flags, None).map_err(HandbackError::Unsupported)?;
    let mut span = Span { level: level.clone(), flags: attached.flags, bridge, pairs: Vec::new() };
    for (ours, owners) in pairs {
        let swapped = failpoint::reach("handback.swap");
        if let Err(source) = swapped.and_then(|()| v2::swap(level, attached.flags, &ours.fd, &owners.fd)) {
            let (cgroup, program) = (level.name.clone(), ours.info.name);
            let _ = span.undo();
            return Err(filter(FilterError::Attach { cgroup, program, source }));
        }
        span.pairs.push((ours.fd, owners.fd));
    }
    Ok(Some(span))
}

fn filter(source: FilterError) -> HandbackError {
    HandbackError::Filter(Box::new(source))
}

impl Bridge {
    /// The cgroups on which programs were put back.
    pub fn cgroups(&self) -> impl Iterator<Item = &str> {
        self.spans.iter().map(|span| span.level.name.as_str())
    }

    /// Takes the bridge down, now that the owners' programs allow the rules themselves.
    ///
    /// # Errors
    /// [`HandbackError::NotYet`] beside the bridge, which stands, where one does not.
    pub fn finish(self) -> Result<(), (Self, HandbackError)> {
        let ready = self.check().and_then(|()| failpoint::reach("handback.finish").map_err(HandbackError::Unsupported));
        match ready.and_then(|()| self.spans.iter().try_for_each(Span::take_down)) {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Puts ours in the place of the owners' programs again, and takes the bridge down.
    ///
    /// # Errors
    /// Where an owner has replaced its program meanwhile, the bridge stands there.
    pub fn undo(self) -> Result<(), HandbackError> {
        let results: Vec<_> = self.spans.iter().rev().map(Span::undo).collect();
        results.into_iter().collect()
    }

    fn check(&self) -> Result<(), HandbackError> {
        for Span { level, .. } in &self.spans {
            for id in v2::query(level).map_err(filter)?.ids {
                let program = v2::open(level, id).map_err(filter)?;
                let Some(Program { insns: Some(insns), .. }) =
                    program.as_ref().filter(|program| !matches!(program.kind(), Kind::Bridge))
                else {
                    continue;
                };
                if let Some(rule) = self.rules.iter().find(|rule| allows(insns, **rule) == Verdict::Deny) {
                    return Err(HandbackError::NotYet { cgroup: level.name.clone(), rule: *rule });
                }
            }
        }
        Ok(())
    }
}

impl Span {
    fn undo(&self) -> Result<(), HandbackError> {
        for (ours, owners) in self.pairs.iter().rev() {
            v2::swap(&self.level, self.flags, owners, ours).map_err(|source| self.failed(source))?;
        }
        self.take_down()
    }

    fn take_down(&self) -> Result<(), HandbackError> {
        match bpf::detach(&self.level, &self.bridge) {
            Err(source) if source.errno() != Errno::NOENT => Err(self.failed(source)),
            _ => Ok(()),
        }
    }

    fn failed(&self, source: SysError) -> HandbackError {
        let (cgroup, program) = (self.level.name.clone(), "gpuhook_bridge".to_owned());
        filter(FilterError::Attach { cgroup, program, source })
    }
}
