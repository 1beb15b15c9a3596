// SPDX-License-Identifier: MIT OR Apache-2.0
//! cgroup2: each program that refuses is replaced by one of ours.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use gpuhook_core::bpf::{self as filter, Insn, Verdict};
use gpuhook_core::chain::Chain;
use gpuhook_core::device::DeviceRule;

use super::program::{Kind, PREPENDED, Program, WRAP};
use super::{Change, FilterError, Method, Options, ReplaceError, pins};
use crate::cgroup::{CgroupPath, Level};
use crate::failpoint;
use crate::sys::bpf::{self, AttachFlags, Query};
use crate::sys::{Errno, SysResult};

/// How often a cgroup is looked at anew when its owner replaces programs meanwhile; crun does as many.
const TRIES: u32 = 20;

pub(super) fn allow(
    path: &CgroupPath,
    rules: &[DeviceRule],
    options: Options<'_>,
    journal: &mut Vec<Change>,
) -> Result<(), FilterError> {
    if rules.is_empty() {
        return Ok(());
    }
    path.own.iter().try_for_each(|level| settle(level, rules, options, journal))
}

/// Goes over the programs of one cgroup until a pass changes nothing and finds nothing gone.
fn settle(
    level: &Level,
    rules: &[DeviceRule],
    options: Options<'_>,
    journal: &mut Vec<Change>,
) -> Result<(), FilterError> {
    for _ in 0..TRIES {
        if pass(level, rules, options, journal)? {
            return Ok(());
        }
    }
    Err(FilterError::Changing { cgroup: level.name.clone() })
}

/// Whether all was found as it should be.
fn pass(
    level: &Level,
    rules: &[DeviceRule],
    options: Options<'_>,
    journal: &mut Vec<Change>,
) -> Result<bool, FilterError> {
    let attached = query(level)?;
    let mut bridges = Vec::new();
    let mut settled = true;
    for id in attached.ids {
        let Some(program) = open(level, id)? else { return Ok(false) };
        if matches!(program.kind(), Kind::Bridge) {
            bridges.push(program);
            continue;
        }
        let Some(new) = replacement(level, &program, rules, options)? else { continue };
        settled = false;
        let swapped = failpoint::reach("filter.swap");
        match swapped.and_then(|()| swap(level, attached.flags, &program.fd, &new.fd)) {
            Ok(()) => {
                journal.push(Change::Replaced {
                    level: level.clone(),
                    flags: attached.flags,
                    step: format!("{} device program {:?} of cgroup {}", new.verb, program.info.name, level.name),
                    old: program.fd,
                    new: new.fd,
                    pin: new.pin,
                });
                failpoint::reach("filter.swapped")
                    .map_err(|source| FilterError::Undo { cgroup: level.name.clone(), source })?;
            }
            Err(source) => {
                if let Some(pin) = new.pin {
                    pins::remove(&pin)?;
                }
                let (cgroup, program) = (level.name.clone(), program.info.name);
                if source.errno() != Errno::NOENT {
                    return Err(FilterError::Attach { cgroup, program, source });
                }
                // Not attached as a program, and yet there: by a link (kernel/bpf/cgroup.c, find_attach_entry).
                if query(level)?.ids.contains(&id) {
                    return Err(FilterError::Linked { cgroup, program });
                }
                return Ok(false);
            }
        }
    }
    // A hand-back that was killed leaves its bridge; with the programs in order it is not needed.
    for bridge in bridges.into_iter().filter(|_| settled) {
        match bpf::detach(level, &bridge.fd) {
            Ok(()) => {
                journal.push(Change::BridgeRemoved { level: level.clone(), flags: attached.flags, bridge: bridge.fd })
            }
            Err(source) if source.errno() == Errno::NOENT => {}
            Err(source) => {
                let (cgroup, program) = (level.name.clone(), bridge.info.name);
                return Err(FilterError::Attach { cgroup, program, source });
            }
        }
    }
    Ok(settled)
}

pub(super) fn query(level: &Level) -> Result<bpf::Attached, FilterError> {
    bpf::query(level, Query::Own).map_err(|source| FilterError::Query { cgroup: level.name.clone(), source })
}

pub(super) fn open(level: &Level, id: u32) -> Result<Option<Program>, FilterError> {
    Program::open(id).map_err(|source| FilterError::Look { cgroup: level.name.clone(), source })
}

pub(super) fn original(level: &Level, program: &Program) -> Result<Option<Program>, FilterError> {
    program.original().map_err(|source| FilterError::Look { cgroup: level.name.clone(), source })
}

/// Puts `new` in the place of `old`, which is attached with `flags`. A program without `ALLOW_MULTI` is the only one of
/// its cgroup, and attaching with the same flags replaces it.
pub(super) fn swap(level: &Level, flags: AttachFlags, old: &OwnedFd, new: &OwnedFd) -> SysResult<()> {
    if flags.contains(AttachFlags::ALLOW_MULTI) {
        bpf::attach(level, new, flags | AttachFlags::REPLACE, Some(old))
    } else {
        bpf::attach(level, new, flags, None)
    }
}

struct Replacement {
    fd: OwnedFd,
    pin: Option<PathBuf>,
    verb: &'static str,
}

/// The program to put in the place of `program`, or nothing where it can stay.
fn replacement(
    level: &Level,
    program: &Program,
    rules: &[DeviceRule],
    options: Options<'_>,
) -> Result<Option<Replacement>, FilterError> {
    let failed = |prepend: Option<String>, source: ReplaceError| FilterError::Replace {
        cgroup: level.name.clone(),
        program: program.info.name.clone(),
        prepend,
        source: Box::new(source),
    };
    let (insns, id, target) = match program.kind() {
        Kind::Bridge => return Ok(None),
        Kind::Wrap => {
            let Some(original) = original(level, program)? else {
                return Err(FilterError::Lost { cgroup: level.name.clone() });
            };
            let wrap = Wrap::new(rules, &original).map_err(|source| failed(None, source))?;
            // The tag is a hash of the instructions before blinding, so it tells also where they are hidden.
            if wrap.tag(level)? == program.info.tag {
                return Ok(None);
            }
            return wrap.keep(options).map(Some).map_err(|source| failed(None, source));
        }
        Kind::Prepended(parts) if parts.has_rules(rules) => return Ok(None),
        Kind::Prepended(parts) => (Some(parts.old), parts.original, original(level, program)?),
        Kind::Foreign => {
            let insns = program.insns.clone();
            let allowed = |insns: &Vec<Insn>| rules.iter().all(|rule| filter::allows(insns, *rule) == Verdict::Allow);
            if insns.as_ref().is_some_and(allowed) {
                return Ok(None);
            }
            (insns, program.info.id, None)
        }
    };
    let prepended = match options.method {
        Method::Wrap => None,
        Method::Auto | Method::Prepend => Some(prepended(rules, &insns.unwrap_or_default(), id)),
    };
    match prepended {
        Some(Ok(fd)) => Ok(Some(Replacement { fd, pin: None, verb: "extended" })),
        Some(Err(source)) if options.method == Method::Prepend => Err(failed(None, source)),
        other => {
            let prepend = other.and_then(Result::err).map(|error| Chain(&error).to_string());
            Wrap::new(rules, target.as_ref().unwrap_or(program))
                .and_then(|wrap| wrap.keep(options))
                .map(Some)
                .map_err(|source| failed(prepend, source))
        }
    }
}

fn prepended(rules: &[DeviceRule], old: &[Insn], id: u32) -> Result<OwnedFd, ReplaceError> {
    let program = filter::prepend(rules, old, id).map_err(ReplaceError::Prepend)?;
    failpoint::reach("filter.prepend").map_err(ReplaceError::Load)?;
    bpf::prog_load(PREPENDED, &bytes(&program), 0).map_err(ReplaceError::Load)
}

struct Wrap {
    fd: OwnedFd,
    array: OwnedFd,
}

impl Wrap {
    /// A wrap of `original`, not yet attached.
    fn new(rules: &[DeviceRule], original: &Program) -> Result<Self, ReplaceError> {
        // Since 6.17 an array holds programs of one expected attach type, and which one a program has cannot be asked
        // (commit 4540aed51b12): managers leave it 0, loaders made with libbpf set it.
        match Self::with_type(rules, original, 0) {
            Err(ReplaceError::Array(_)) => Self::with_type(rules, original, bpf::CGROUP_DEVICE_ATTACH),
            other => other,
        }
    }

    fn with_type(rules: &[DeviceRule], original: &Program, attach_type: u32) -> Result<Self, ReplaceError> {
        let array = bpf::prog_array(WRAP).map_err(ReplaceError::Array)?;
        let program = filter::wrap(rules, std::os::fd::AsRawFd::as_raw_fd(&array)).map_err(ReplaceError::Rules)?;
        let fd = bpf::prog_load(WRAP, &bytes(&program), attach_type).map_err(ReplaceError::Load)?;
        bpf::set_slot(&array, &original.fd).map_err(ReplaceError::Array)?;
        Ok(Self { fd, array })
    }

    fn tag(&self, level: &Level) -> Result<[u8; 8], FilterError> {
        let info = bpf::prog_info(&self.fd);
        info.map(|info| info.tag).map_err(|source| FilterError::Look { cgroup: level.name.clone(), source })
    }

    /// Makes it outlive this process.
    fn keep(self, options: Options<'_>) -> Result<Replacement, ReplaceError> {
        failpoint::reach("wrap.pin").map_err(ReplaceError::Pin)?;
        let pin = options.pins.ok_or(ReplaceError::NoPins)?.keep(&self.array).map_err(ReplaceError::Pin)?;
        Ok(Replacement { fd: self.fd, pin: Some(pin), verb: "wrapped" })
    }
}

pub(super) fn bytes(program: &[Insn]) -> Vec<[u8; 8]> {
    program.iter().map(|insn| insn.to_bytes()).collect()
}
