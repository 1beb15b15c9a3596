// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions and an attempt to open -> the answer. Knows what the programs of LXC, runc, crun, systemd and gpuhook
//! are made of: loads from the context, arithmetic, forward jumps. Anything else is answered by "unknown".

use super::{Attempt, DeviceKind, Insn, op};
use crate::device::{Access, DeviceRule};

/// More steps than any filter takes that has no loop.
const MAX_STEPS: usize = 1 << 17;

/// What a filter answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The attempt passes this program.
    Allow,
    /// It cannot be told from the instructions.
    Unknown,
    /// The attempt gets EPERM.
    Deny,
}

/// What `program` answers to `attempt`. It takes a dump as the kernel gives it, also one with blinded constants.
pub fn evaluate(program: &[Insn], attempt: Attempt) -> Verdict {
    match run(program, attempt) {
        // The verifier allows filters to return 0 and 1 only.
        End::Exit(0) => Verdict::Deny,
        End::Exit(1) => Verdict::Allow,
        End::Exit(_) | End::Call | End::Odd => Verdict::Unknown,
    }
}

/// Whether `program` lets the device of `rule` be opened in each of the ways that the rule names: the worst answer.
pub fn allows(program: &[Insn], rule: DeviceRule) -> Verdict {
    attempts(rule).map(|attempt| evaluate(program, attempt)).max().unwrap_or(Verdict::Allow)
}

/// Whether `program` reaches a call for every way that `rule` names: in the wrap that is the hand-over to the program
/// that it wraps, in the bridge the decision to forget a refusal.
pub fn hands_over(program: &[Insn], rule: DeviceRule) -> bool {
    attempts(rule).all(|attempt| matches!(run(program, attempt), End::Call))
}

fn attempts(rule: DeviceRule) -> impl Iterator<Item = Attempt> {
    (1..8)
        .map(Access::from_bits_truncate)
        .filter(move |access| rule.access.contains(*access))
        .map(move |access| Attempt { kind: DeviceKind::Character, access, id: rule.id })
}

enum End {
    Exit(u64),
    Call,
    Odd,
}

#[derive(Clone, Copy, PartialEq)]
enum Value {
    Unset,
    Context,
    Number(u64),
}

fn run(program: &[Insn], attempt: Attempt) -> End {
    let access_type = attempt.access.bits() << 16 | attempt.kind as u32;
    let mut context = [0; 12];
    for (field, value) in context.chunks_exact_mut(4).zip([access_type, attempt.id.major.0, attempt.id.minor.0]) {
        field.copy_from_slice(&value.to_ne_bytes());
    }
    // r0-r10 and the hidden r11 of blinded programs; a register field has four bits.
    let mut registers = [Value::Unset; 16];
    registers[1] = Value::Context;
    let mut at = 0;
    for _ in 0..MAX_STEPS {
        let Some(insn) = program.get(at).copied() else { return End::Odd };
        at += 1;
        match insn.code {
            op::CALL => return End::Call,
            op::EXIT => return if let Value::Number(value) = registers[0] { End::Exit(value) } else { End::Odd },
            // The address of a map, say: of use only to a call, which ends the run.
            op::LD_IMM64 => {
                let high = program.get(at).map_or(0, |next| next.imm.cast_unsigned());
                let number = u64::from(high) << 32 | u64::from(insn.imm.cast_unsigned());
                registers[usize::from(insn.dst)] = if insn.src == 0 { Value::Number(number) } else { Value::Unset };
                at += 1;
            }
            _ => {
                let Some(next) = step(insn, at, &mut registers, &context) else { return End::Odd };
                at = next;
            }
        }
    }
    End::Odd
}

/// The index of the next instruction.
fn step(insn: Insn, at: usize, registers: &mut [Value; 16], context: &[u8; 12]) -> Option<usize> {
    let destination = registers[usize::from(insn.dst)];
    let source = registers[usize::from(insn.src)];
    let operand = if insn.code & op::X == 0 { Value::Number(i64::from(insn.imm).cast_unsigned()) } else { source };
    match insn.class() {
        op::LDX => {
            let value = if source == Value::Context { load(insn, context)? } else { return None };
            registers[usize::from(insn.dst)] = Value::Number(value);
        }
        class @ (op::ALU | op::ALU64) => registers[usize::from(insn.dst)] = compute(insn, class, destination, operand)?,
        op::JMP if insn.code == op::JA => return jump(at, insn.off),
        class @ (op::JMP | op::JMP32) => {
            if holds(insn.code, class, destination, operand)? {
                return jump(at, insn.off);
            }
        }
        _ => return None,
    }
    Some(at)
}

fn jump(at: usize, distance: i16) -> Option<usize> {
    at.checked_add_signed(isize::from(distance))
}

fn load(insn: Insn, context: &[u8; 12]) -> Option<u64> {
    let start = usize::try_from(insn.off).ok()?;
    match insn.code {
        0x61 => context.get(start..start + 4)?.try_into().ok().map(|bytes| u64::from(u32::from_ne_bytes(bytes))),
        0x69 => context.get(start..start + 2)?.try_into().ok().map(|bytes| u64::from(u16::from_ne_bytes(bytes))),
        0x71 => context.get(start).map(|byte| u64::from(*byte)),
        _ => None,
    }
}

fn compute(insn: Insn, class: u8, destination: Value, operand: Value) -> Option<Value> {
    const MOV: u8 = 0xb0;
    let wide = class == op::ALU64;
    // The plain forms only: an offset means sign extension or signed division.
    if insn.off != 0 {
        return None;
    }
    if insn.code & 0xf0 == MOV && (wide || operand != Value::Context) {
        return match operand {
            Value::Number(value) if !wide => Some(Value::Number(value & 0xffff_ffff)),
            other => Some(other),
        };
    }
    let (same, b) = (insn.code & op::X != 0 && insn.dst == insn.src, operand);
    let (a, b) = match (destination, b) {
        (Value::Number(a), Value::Number(b)) => (a, b),
        // r ^ r is zero whatever r was, and how a blinded zero is made.
        (_, _) if insn.code & 0xf0 == 0xa0 && same => (0, 0),
        _ => return None,
    };
    let (a, b, bits) = if wide { (a, b, 64) } else { (a & 0xffff_ffff, b & 0xffff_ffff, 32) };
    let shift = u32::try_from(b % bits).ok()?;
    let value = match insn.code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << shift,
        0x70 => a >> shift,
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xc0 if wide => (a.cast_signed() >> shift).cast_unsigned(),
        _ => return None,
    };
    Some(Value::Number(if wide { value } else { value & 0xffff_ffff }))
}

fn holds(code: u8, class: u8, destination: Value, operand: Value) -> Option<bool> {
    let (Value::Number(a), Value::Number(b)) = (destination, operand) else { return None };
    let sign = |value: u64| value.cast_signed() << 32 >> 32;
    let (a, b, sa, sb) = match class {
        op::JMP => (a, b, a.cast_signed(), b.cast_signed()),
        _ => (a & 0xffff_ffff, b & 0xffff_ffff, sign(a), sign(b)),
    };
    Some(match code & 0xf0 {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => sa > sb,
        0x70 => sa >= sb,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => sa < sb,
        0xd0 => sa <= sb,
        _ => return None,
    })
}
