// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rung L2: which filters apply to the container, and what each says of the rules. Reads only.

use gpuhook_core::bpf::{Verdict, allows, hands_over};
use gpuhook_core::device::DeviceRule;

use super::program::{Kind, Program};
use super::{FilterError, v1, v2};
use crate::cgroup::{CgroupPath, Level, Version};
use crate::sys::bpf::{self, Query};

/// What one program, or one v1 list, says of each rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The cgroup that it is attached to.
    pub cgroup: String,
    /// Whether that is the container's own; else it is the operator's policy.
    pub own: bool,
    /// The program's name, which may be empty; `devices.list` for v1.
    pub program: String,
    /// The program's id; none for v1.
    pub id: Option<u32>,
    /// The rules in the order in which they were asked for.
    pub verdicts: Vec<(DeviceRule, Verdict)>,
}

impl Judgement {
    /// The worst verdict.
    pub fn worst(&self) -> Verdict {
        self.verdicts.iter().map(|(_, verdict)| *verdict).max().unwrap_or(Verdict::Allow)
    }

    /// The rules that it refuses.
    pub fn refused(&self) -> impl Iterator<Item = DeviceRule> {
        self.verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Deny).map(|(rule, _)| *rule)
    }
}

/// What each filter that applies to the leaf says of `rules`, from the leaf up. Empty: everything is allowed.
///
/// # Errors
/// A cgroup that is gone, or missing capabilities.
pub fn judge(path: &CgroupPath, rules: &[DeviceRule]) -> Result<Vec<Judgement>, FilterError> {
    let levels = path.own.iter().map(|level| (level, true)).chain(path.above.iter().map(|level| (level, false)));
    match path.version {
        Version::V1 => levels.map(|(level, own)| judge_list(level, own, rules)).collect(),
        Version::V2 => judge_programs(path.leaf(), levels, rules),
    }
}

fn judge_list(level: &Level, own: bool, rules: &[DeviceRule]) -> Result<Judgement, FilterError> {
    let list = v1::list(level)?;
    let verdict = |rule: DeviceRule| if list.allows(rule) { Verdict::Allow } else { Verdict::Deny };
    Ok(Judgement {
        cgroup: level.name.clone(),
        own,
        program: "devices.list".to_owned(),
        id: None,
        verdicts: rules.iter().map(|rule| (*rule, verdict(*rule))).collect(),
    })
}

fn judge_programs<'a>(
    leaf: &Level,
    levels: impl Iterator<Item = (&'a Level, bool)>,
    rules: &[DeviceRule],
) -> Result<Vec<Judgement>, FilterError> {
    let effective = bpf::query(leaf, Query::Effective)
        .map_err(|source| FilterError::Query { cgroup: leaf.name.clone(), source })?
        .ids;
    let mut seen = Vec::new();
    // In the order in which the kernel runs them, since a bridge looks back.
    let mut judgements: Vec<Judgement> = Vec::new();
    for (level, own) in levels {
        for id in v2::query(level)?.ids {
            // A program that a cgroup below overrides is attached but does not run.
            if !effective.contains(&id) {
                continue;
            }
            seen.push(id);
            // Gone meanwhile: it applies no more.
            let Some(program) = v2::open(level, id)? else { continue };
            if matches!(program.kind(), Kind::Bridge) {
                override_refusals(&program, &mut judgements);
            }
            judgements.push(judge_program(level, own, &program, rules)?);
        }
    }
    // Attached above the directory where the hierarchy is mounted, as a container that looks at itself finds it.
    for id in effective.into_iter().filter(|id| !seen.contains(id)) {
        if let Some(program) = v2::open(leaf, id)? {
            let above = judge_program(leaf, false, &program, rules)?;
            judgements.push(Judgement { cgroup: "(above the mounted hierarchy)".to_owned(), ..above });
        }
    }
    Ok(judgements)
}

fn override_refusals(bridge: &Program, judgements: &mut [Judgement]) {
    let Some(insns) = &bridge.insns else { return };
    for (rule, verdict) in judgements.iter_mut().flat_map(|judgement| &mut judgement.verdicts) {
        if hands_over(insns, *rule) {
            *verdict = Verdict::Allow;
        }
    }
}

fn judge_program(level: &Level, own: bool, program: &Program, rules: &[DeviceRule]) -> Result<Judgement, FilterError> {
    // Once: it takes the program apart, and there can be thousands of rules.
    let kind = program.kind();
    let wrapped = match kind {
        Kind::Wrap => Some(v2::original(level, program)?),
        _ => None,
    };
    let verdict = |rule: DeviceRule| match (&kind, &program.insns, &wrapped) {
        (Kind::Bridge, ..) => Verdict::Allow,
        (_, None, _) => Verdict::Unknown,
        (Kind::Wrap, Some(insns), Some(wrapped)) if hands_over(insns, rule) => match wrapped {
            // An emptied array lets the tail call fall through.
            None => Verdict::Deny,
            Some(wrapped) => wrapped.insns.as_ref().map_or(Verdict::Unknown, |insns| allows(insns, rule)),
        },
        (_, Some(insns), _) => allows(insns, rule),
    };
    Ok(Judgement {
        cgroup: level.name.clone(),
        own,
        program: program.info.name.clone(),
        id: Some(program.info.id),
        verdicts: rules.iter().map(|rule| (*rule, verdict(*rule))).collect(),
    })
}
