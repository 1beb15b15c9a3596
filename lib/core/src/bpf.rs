// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device filters as values: instructions of programs of type `BPF_PROG_TYPE_CGROUP_DEVICE`, how to build them, and
//! what a given one answers. Loading and attaching is `gpuhook-linux`'s.
//!
//! A program gets `struct bpf_cgroup_dev_ctx { u32 access_type /* access << 16 | type */; u32 major; u32 minor; }` in
//! r1 and answers 1 (allow) or 0 (EPERM). Source: include/uapi/linux/bpf.h.

use std::fmt;

pub use self::build::{
    Attempt, BuildError, DeviceKind, MAX_OLD_INSNS, PrependError, Prepended, override_denial, prepend, wrap,
};
pub use self::evaluate::{Verdict, allows, evaluate, hands_over};
pub use self::unblind::unblind;

/// Rules -> instructions.
mod build;
/// Instructions and an attempt to open -> the answer.
mod evaluate;
#[cfg(test)]
mod tests;
/// The dump of a program with blinded constants -> the program as it was loaded.
mod unblind;

/// One instruction, `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Class, operation and source of the operand.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or the kind of a pseudo constant.
    pub src: u8,
    /// Jump distance from the next instruction, or offset from a pointer.
    pub off: i16,
    /// Constant operand.
    pub imm: i32,
}

impl Insn {
    /// The instruction `code dst, src, off, imm`.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Self { code, dst, src, off, imm }
    }

    /// The instruction in the kernel's eight bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        let [code, regs, o0, o1, i0, i1, i2, i3] = bytes;
        // The two registers are bit fields of one byte, so their order follows the machine's byte order.
        let (dst, src) = if cfg!(target_endian = "little") { (regs & 15, regs >> 4) } else { (regs >> 4, regs & 15) };
        Self::new(code, dst, src, i16::from_ne_bytes([o0, o1]), i32::from_ne_bytes([i0, i1, i2, i3]))
    }

    /// The kernel's eight bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        let (low, high) = if cfg!(target_endian = "little") { (self.dst, self.src) } else { (self.src, self.dst) };
        let ([o0, o1], [i0, i1, i2, i3]) = (self.off.to_ne_bytes(), self.imm.to_ne_bytes());
        [self.code, (low & 15) | (high << 4), o0, o1, i0, i1, i2, i3]
    }

    fn class(self) -> u8 {
        self.code & 7
    }

    /// Whether `off` is a jump distance.
    fn is_jump(self) -> bool {
        matches!(self.class(), op::JMP | op::JMP32) && !matches!(self.code, op::CALL | op::EXIT)
    }
}

impl fmt::Display for Insn {
    /// As `bpftool prog dump xlated` writes it, for what gpuhook emits; anything else as its fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, dst, src, off, imm } = *self;
        match code {
            op::LDX_W => write!(f, "r{dst} = *(u32 *)(r{src} {off:+})"),
            op::MOV_K => write!(f, "r{dst} = {imm}"),
            op::AND_K => write!(f, "r{dst} &= {imm}"),
            op::RSH_K => write!(f, "r{dst} >>= {imm}"),
            op::JEQ_K => write!(f, "if r{dst} == {imm} goto {off:+}"),
            op::JNE_K => write!(f, "if r{dst} != {imm} goto {off:+}"),
            op::JLT_K => write!(f, "if r{dst} < {imm} goto {off:+}"),
            op::JLE_K => write!(f, "if r{dst} <= {imm} goto {off:+}"),
            op::JA => write!(f, "goto {off:+}"),
            op::LD_IMM64 if src == op::PSEUDO_MAP_FD => write!(f, "r{dst} = map[fd {imm}]"),
            op::CALL => write!(f, "call {imm}"),
            op::EXIT => f.write_str("exit"),
            _ => write!(f, "{code:#04x} dst={dst} src={src} off={off} imm={imm}"),
        }
    }
}

/// Operation codes and helper numbers (include/uapi/linux/bpf.h, bpf_common.h).
mod op {
    pub(super) const LDX: u8 = 1;
    pub(super) const ALU: u8 = 4;
    pub(super) const JMP: u8 = 5;
    pub(super) const JMP32: u8 = 6;
    pub(super) const ALU64: u8 = 7;
    pub(super) const X: u8 = 8;

    pub(super) const LD_IMM64: u8 = 0x18;
    pub(super) const LDX_W: u8 = 0x61;
    pub(super) const MOV_K: u8 = 0xb7;
    pub(super) const AND_K: u8 = 0x57;
    pub(super) const RSH_K: u8 = 0x77;
    pub(super) const JA: u8 = 0x05;
    pub(super) const JEQ_K: u8 = 0x15;
    pub(super) const JNE_K: u8 = 0x55;
    pub(super) const JLT_K: u8 = 0xa5;
    pub(super) const JLE_K: u8 = 0xb5;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;

    pub(super) const PSEUDO_MAP_FD: u8 = 1;
    pub(super) const TAIL_CALL: i32 = 12;
    pub(super) const SET_RETVAL: i32 = 187;
}
