// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that is attached to a cgroup: what the kernel shows of it, and what it is to us.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use gpuhook_core::bpf::{Insn, Prepended, unblind};

use crate::sys::bpf::{self, ProgInfo};
use crate::sys::{Errno, SysResult};

/// Our rules, then a tail call.
pub(super) const WRAP: &CStr = c"gpuhook_dev";
/// Our rules, then the instructions of the owner's program.
pub(super) const PREPENDED: &CStr = c"gpuhook_pre";
/// Overrides refusals while the owner's program comes back.
pub(super) const BRIDGE: &CStr = c"gpuhook_bridge";

/// An open program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) fd: OwnedFd,
    pub(super) info: ProgInfo,
    /// Its instructions, where the kernel shows them.
    pub(super) insns: Option<Vec<Insn>>,
}

/// What a program is to us.
#[derive(Debug)]
pub(super) enum Kind {
    /// Someone else's.
    Foreign,
    /// Made by us of rules and someone's instructions.
    Prepended(Prepended),
    /// Made by us of rules and a tail call.
    Wrap,
    /// Ours, for the moments of a hand-back.
    Bridge,
}

impl Program {
    /// The program with this id, or nothing where it is gone.
    pub(super) fn open(id: u32) -> SysResult<Option<Self>> {
        match bpf::prog_by_id(id) {
            Ok(fd) => Self::of(fd).map(Some),
            Err(error) if error.errno() == Errno::NOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of(fd: OwnedFd) -> SysResult<Self> {
        let info = bpf::prog_info(&fd)?;
        let insns = info.insns.as_ref().map(|insns| insns.iter().copied().map(Insn::from_bytes).collect());
        Ok(Self { fd, info, insns })
    }

    pub(super) fn kind(&self) -> Kind {
        let is = |name: &CStr| self.info.name.as_bytes() == name.to_bytes();
        match &self.insns {
            _ if is(WRAP) => Kind::Wrap,
            _ if is(BRIDGE) => Kind::Bridge,
            // Where it is hidden it cannot be told from a foreign one, and is treated as one.
            Some(insns) if is(PREPENDED) => Prepended::read(insns).map_or(Kind::Foreign, Kind::Prepended),
            _ => Kind::Foreign,
        }
    }

    /// The owner's program that this one of ours stands for, while it is loaded.
    pub(super) fn original(&self) -> SysResult<Option<Self>> {
        match self.kind() {
            Kind::Foreign | Kind::Bridge => Ok(None),
            Kind::Wrap => {
                let Some(map) = self.info.map_ids.first() else { return Ok(None) };
                match bpf::get_slot(bpf::map_by_id(*map)?)? {
                    Some(id) => Self::open(id),
                    None => Ok(None),
                }
            }
            Kind::Prepended(parts) => {
                // Ids are used again only after all others, but a wrong program would be a wrong filter.
                let same = |found: &Self| found.insns.as_deref().and_then(unblind).as_ref() == Some(&parts.old);
                Ok(Self::open(parts.original)?.filter(same))
            }
        }
    }
}
