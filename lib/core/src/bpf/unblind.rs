// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dump of a program with blinded constants -> the program as it was loaded.
//!
//! With `net.core.bpf_jit_harden` the kernel replaces each constant by an exclusive or of two random ones in the hidden
//! register r11, and a privileged dump shows that (kernel/bpf/core.c, `bpf_jit_blind_insn`). The verifier refuses r11,
//! so such a dump cannot be loaded again as it stands.

use super::{Insn, op};

/// The hidden register, `BPF_REG_AX`.
const AX: u8 = 11;
const XOR: u8 = 0xa0;
const MOV: u8 = 0xb0;

/// The program as it was loaded; `dump` itself where nothing is blinded; nothing where r11 is used in a way that is not
/// known.
pub fn unblind(dump: &[Insn]) -> Option<Vec<Insn>> {
    if !dump.iter().any(|insn| insn.dst == AX || insn.src == AX) {
        return Some(dump.to_vec());
    }
    let mut out = Vec::with_capacity(dump.len());
    // Where each instruction of the dump went; the two that make a constant go where their user goes.
    let mut moved = Vec::with_capacity(dump.len() + 1);
    let mut from = Vec::with_capacity(dump.len());
    let mut at = 0;
    while at < dump.len() {
        let (insn, used) = match &dump[at..] {
            [high, xor, user, ..] if sets_ax(*high) && xors_ax(*xor) && user.src == AX && user.code & op::X != 0 => {
                let imm = high.imm ^ xor.imm;
                (Insn { code: user.code & !op::X, src: 0, imm, ..*user }, 3)
            }
            // A zero is not blinded but made from the register itself.
            [xor, ..] if xor.class() == op::ALU64 && xor.code == op::ALU64 | XOR | op::X && xor.src == xor.dst => {
                (Insn::new(op::MOV_K, xor.dst, 0, 0, 0), 1)
            }
            [insn, ..] if insn.dst != AX && insn.src != AX => (*insn, 1),
            _ => return None,
        };
        moved.extend(std::iter::repeat_n(out.len(), used));
        from.push(at + used - 1);
        out.push(insn);
        at += used;
    }
    moved.push(out.len());
    for (new, insn) in out.iter_mut().enumerate() {
        if insn.is_jump() {
            let target = usize::try_from(i64::try_from(from[new]).ok()? + 1 + i64::from(insn.off)).ok()?;
            let distance = i64::try_from(*moved.get(target)?).ok()? - i64::try_from(new).ok()? - 1;
            insn.off = i16::try_from(distance).ok()?;
        }
    }
    Some(out)
}

fn sets_ax(insn: Insn) -> bool {
    insn.dst == AX && matches!(insn.class(), op::ALU | op::ALU64) && insn.code & !7 == MOV
}

fn xors_ax(insn: Insn) -> bool {
    insn.dst == AX && matches!(insn.class(), op::ALU | op::ALU64) && insn.code & !7 == XOR
}
