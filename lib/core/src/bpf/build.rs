// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules -> instructions: three programs that share one prefix, "if the attempt is one of ours, then".
//!
//! The prefix keeps r1, from which an old program reads its context, and has r0 as its only scratch register: nothing
//! valid depends on r0 at entry, while an old program may come to rely on r2-r5 only after it has set them itself.

use std::collections::BTreeMap;
use std::fmt;

use super::{Insn, op, unblind};
use crate::device::{Access, DeviceId, DeviceRule};

/// The longest old program that is put behind a prefix: the kernel's limit for loaders without `CAP_BPF`, far above
/// what any container manager makes.
pub const MAX_OLD_INSNS: usize = 4096;

/// In r0 at the end of a prepended prefix, followed by the id of the program that was replaced: how a later run
/// finds where its own part ends.
const MARK: i32 = 0x6770_7568;

/// Block or character (`BPF_DEVCG_DEV_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A block device.
    Block = 1,
    /// A character device.
    Character = 2,
}

/// What a process wants: the context of one run of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Block or character.
    pub kind: DeviceKind,
    /// What for. Empty for `access(path, F_OK)`, which the kernel also asks the filter about.
    pub access: Access,
    /// Which device.
    pub id: DeviceId,
}

/// Why no program can be built of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// More minors of one major than a jump can cross.
    TooManyRules {
        /// How many rules there were.
        rules: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRules { rules } => write!(f, "{rules} device rules are more than one filter can hold"),
        }
    }
}

impl std::error::Error for BuildError {}

/// Why a rule cannot be put before an old program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrependError {
    /// The kernel shows no instructions: constants are blinded (`net.core.bpf_jit_harden`) and hidden.
    Hidden,
    /// More instructions than [`MAX_OLD_INSNS`].
    TooLong {
        /// How many.
        insns: usize,
    },
    /// It calls a helper or function: the dump has an address where the loader needs a number.
    Call {
        /// Which instruction.
        at: usize,
    },
    /// It holds a map or another address.
    Address {
        /// Which instruction.
        at: usize,
    },
    /// Its last instruction is neither exit nor a jump, so the dump is not whole.
    NoEnd,
    /// The rules make no program.
    Rules(BuildError),
}

impl fmt::Display for PrependError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden => f.write_str("the kernel hides its instructions (net.core.bpf_jit_harden)"),
            Self::TooLong { insns } => write!(f, "it has {insns} instructions"),
            Self::Call { at } => write!(f, "its instruction {at} calls a function"),
            Self::Address { at } => write!(f, "its instruction {at} holds an address"),
            Self::NoEnd => f.write_str("its last instruction is no exit"),
            Self::Rules(_) => f.write_str("the rules make no program"),
        }
    }
}

impl std::error::Error for PrependError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Rules(source) => Some(source),
            _ => None,
        }
    }
}

/// The program "one of `rules`: allow; anything else: what the program in slot 0 of the map says, and deny if there
/// is none". `map_fd` is the loader's descriptor of a `BPF_MAP_TYPE_PROG_ARRAY`.
///
/// The kernel empties such a map when its last descriptor and pin are gone, whoever still runs its programs
/// (kernel/bpf/arraymap.c, `prog_array_map_ops.map_release_uref`): the map has to be pinned.
///
/// # Errors
/// More rules than a program holds.
pub fn wrap(rules: &[DeviceRule], map_fd: i32) -> Result<Vec<Insn>, BuildError> {
    let mut program = when(rules, &[mov(0, 1), exit()])?;
    program.extend([
        Insn::new(op::LD_IMM64, 2, op::PSEUDO_MAP_FD, 0, map_fd),
        Insn::new(0, 0, 0, 0, 0),
        mov(3, 0),
        Insn::new(op::CALL, 0, 0, 0, op::TAIL_CALL),
        mov(0, 0),
        exit(),
    ]);
    Ok(program)
}

/// The program "one of `rules`: allow; anything else: `old`", where `old` is the dump of a loaded program and
/// `original` its id, kept inside so that a later run can tell the two parts and find the owner's program.
///
/// # Errors
/// `old` cannot be loaded again from its dump.
pub fn prepend(rules: &[DeviceRule], old: &[Insn], original: u32) -> Result<Vec<Insn>, PrependError> {
    let old = unblind(old).ok_or(PrependError::Hidden)?;
    loadable(&old)?;
    let mut program = prefix(rules).map_err(PrependError::Rules)?;
    program.push(mov(0, original.cast_signed()));
    program.extend(old);
    Ok(program)
}

/// The program "one of `rules`: forget what earlier programs of this cgroup refused; always allow". It works only
/// behind the others, and it also forgets what programs of cgroups below refused: a bridge for moments, not a rule.
///
/// # Errors
/// More rules than a program holds.
///
/// # Minimum kernel
/// 5.18 (`bpf_set_retval`, commit b44123b4a3dc).
pub fn override_denial(rules: &[DeviceRule]) -> Result<Vec<Insn>, BuildError> {
    let body = [mov(1, 0), Insn::new(op::CALL, 0, 0, 0, op::SET_RETVAL), mov(0, 1), exit()];
    let mut program = when(rules, &body)?;
    program.extend([mov(0, 1), exit()]);
    Ok(program)
}

/// A program made by [`prepend`], taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepended {
    prefix: Vec<Insn>,
    /// Id of the program that was replaced. It is still loaded where its owner holds it.
    pub original: u32,
    /// Its instructions.
    pub old: Vec<Insn>,
}

impl Prepended {
    /// The parts of a dump, or nothing where [`prepend`] did not make it or the kernel hides it.
    pub fn read(dump: &[Insn]) -> Option<Self> {
        let program = unblind(dump)?;
        let mark = program.iter().position(|insn| *insn == mov(0, MARK))?;
        let id = program.get(mark + 1)?;
        (id.code == op::MOV_K && id.dst == 0).then(|| Self {
            prefix: program[..=mark].to_vec(),
            original: id.imm.cast_unsigned(),
            old: program[mark + 2..].to_vec(),
        })
    }

    /// Whether it was made for exactly these rules.
    pub fn has_rules(&self, rules: &[DeviceRule]) -> bool {
        prefix(rules).is_ok_and(|wanted| wanted == self.prefix)
    }
}

fn prefix(rules: &[DeviceRule]) -> Result<Vec<Insn>, BuildError> {
    let mut program = when(rules, &[mov(0, 1), exit()])?;
    program.push(mov(0, MARK));
    Ok(program)
}

fn loadable(old: &[Insn]) -> Result<(), PrependError> {
    if old.len() > MAX_OLD_INSNS {
        return Err(PrependError::TooLong { insns: old.len() });
    }
    // Naive readers of a hidden dump see zeros (libnvidia-container#176).
    if old.iter().all(|insn| *insn == Insn::new(0, 0, 0, 0, 0)) {
        return Err(PrependError::Hidden);
    }
    for (at, insn) in old.iter().enumerate() {
        match insn.code {
            op::CALL => return Err(PrependError::Call { at }),
            op::LD_IMM64 if insn.src != 0 => return Err(PrependError::Address { at }),
            _ => {}
        }
    }
    match old.last() {
        Some(Insn { code: op::EXIT | op::JA, .. }) => Ok(()),
        _ => Err(PrependError::NoEnd),
    }
}

/// "If the attempt is one of `rules`, `body`", falling through to whatever follows. One block for each major and
/// access, so that an open pays one comparison for every other major; neighbouring minors are one range.
fn when(rules: &[DeviceRule], body: &[Insn]) -> Result<Vec<Insn>, BuildError> {
    let mut groups = BTreeMap::<_, Vec<u32>>::new();
    for rule in rules {
        groups.entry((rule.id.major, rule.access)).or_default().push(rule.id.minor.0);
    }
    let too_many = BuildError::TooManyRules { rules: rules.len() };
    let distance = |insns: usize| i16::try_from(insns).ok().ok_or(too_many);
    let mut blocks = Vec::new();
    for ((major, access), minors) in groups {
        let minors = minor_tests(minors, body.len(), distance)?;
        let rest = minors.len() + body.len();
        // An access fits a rule when nothing of it is outside the rule; none at all (F_OK) fits any.
        blocks.extend([
            load(MAJOR),
            Insn::new(op::JNE_K, 0, 0, distance(rest + 4)?, major.0.cast_signed()),
            load(ACCESS_TYPE),
            Insn::new(op::RSH_K, 0, 0, 0, 16),
            Insn::new(op::AND_K, 0, 0, 0, (!access.bits()).cast_signed()),
            Insn::new(op::JNE_K, 0, 0, distance(rest)?, 0),
        ]);
        blocks.extend(minors);
        blocks.extend(body);
    }
    if blocks.is_empty() {
        return Ok(blocks);
    }
    let mut program = vec![
        load(ACCESS_TYPE),
        Insn::new(op::AND_K, 0, 0, 0, 0xffff),
        Insn::new(op::JNE_K, 0, 0, distance(blocks.len())?, DeviceKind::Character as i32),
    ];
    program.extend(blocks);
    Ok(program)
}

/// "r0 = minor; one of `minors`: go to what follows; none: go past the `body` that follows".
fn minor_tests<E>(
    mut minors: Vec<u32>,
    body: usize,
    distance: impl Fn(usize) -> Result<i16, E>,
) -> Result<Vec<Insn>, E> {
    minors.sort_unstable();
    minors.dedup();
    let runs: Vec<_> =
        minors.chunk_by(|a, b| a.checked_add(1) == Some(*b)).map(|run| (run[0], run[run.len() - 1])).collect();
    let mut tests = vec![load(MINOR)];
    let total = 2 + runs.iter().map(|(first, last)| if first == last { 1 } else { 2 }).sum::<usize>();
    for (first, last) in runs {
        let (first, last_imm) = (first.cast_signed(), last.cast_signed());
        if first == last_imm {
            tests.push(Insn::new(op::JEQ_K, 0, 0, distance(total - tests.len() - 1)?, first));
        } else {
            tests.push(Insn::new(op::JLT_K, 0, 0, 1, first));
            tests.push(Insn::new(op::JLE_K, 0, 0, distance(total - tests.len() - 1)?, last_imm));
        }
    }
    tests.push(Insn::new(op::JA, 0, 0, distance(body)?, 0));
    Ok(tests)
}

const ACCESS_TYPE: i16 = 0;
const MAJOR: i16 = 4;
const MINOR: i16 = 8;

fn load(field: i16) -> Insn {
    Insn::new(op::LDX_W, 0, 1, field, 0)
}

fn mov(dst: u8, imm: i32) -> Insn {
    Insn::new(op::MOV_K, dst, 0, 0, imm)
}

fn exit() -> Insn {
    Insn::new(op::EXIT, 0, 0, 0, 0)
}
