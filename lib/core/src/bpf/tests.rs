// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each program as a listing, and run over every kind, access and device against the rules themselves.

use super::*;
use crate::device::{Access, DeviceId, DeviceRule};

const RW: Access = Access::READ.union(Access::WRITE);

fn rule(major: u32, minor: u32, access: Access) -> DeviceRule {
    DeviceRule { id: DeviceId::new(major, minor), access }
}

fn some_rules() -> Vec<DeviceRule> {
    vec![
        rule(195, 255, RW),
        rule(195, 0, RW),
        rule(509, 1, RW),
        rule(509, 0, RW),
        rule(237, 7, Access::READ),
        rule(237, 2, Access::READ),
    ]
}

fn listing(program: &[Insn]) -> String {
    program.iter().map(|insn| format!("{insn}\n")).collect()
}

fn attempts() -> impl Iterator<Item = Attempt> {
    [DeviceKind::Block, DeviceKind::Character].into_iter().flat_map(|kind| {
        (0..8).flat_map(move |access| {
            [1, 10, 195, 237, 238, 509].into_iter().flat_map(move |major| {
                [0, 1, 2, 3, 5, 7, 200, 254, 255, 256].map(|minor| Attempt {
                    kind,
                    access: Access::from_bits_truncate(access),
                    id: DeviceId::new(major, minor),
                })
            })
        })
    })
}

fn is_ours(rules: &[DeviceRule], attempt: Attempt) -> bool {
    attempt.kind == DeviceKind::Character
        && rules.iter().any(|rule| rule.id == attempt.id && rule.access.contains(attempt.access))
}

/// As LXC 5 lays an allow-list out: type, access, major, minor in r2-r5, one block for each rule.
fn lxc_shaped() -> Vec<Insn> {
    let mut program = vec![
        Insn::new(op::LDX_W, 2, 1, 0, 0),
        Insn::new(0x54, 2, 0, 0, 0xffff),
        Insn::new(op::LDX_W, 3, 1, 0, 0),
        Insn::new(0x74, 3, 0, 0, 16),
        Insn::new(op::LDX_W, 4, 1, 4, 0),
        Insn::new(op::LDX_W, 5, 1, 8, 0),
    ];
    // c 1:3 rwm
    program.extend([
        Insn::new(op::JNE_K, 2, 0, 4, 2),
        Insn::new(op::JNE_K, 4, 0, 3, 1),
        Insn::new(op::JNE_K, 5, 0, 2, 3),
        Insn::new(op::MOV_K, 0, 0, 0, 1),
        Insn::new(op::EXIT, 0, 0, 0, 0),
    ]);
    // c *:* m
    program.extend([
        Insn::new(op::JNE_K, 2, 0, 5, 2),
        Insn::new(0xbc, 1, 3, 0, 0),
        Insn::new(0x54, 1, 0, 0, 1),
        Insn::new(0x5d, 1, 3, 2, 0),
        Insn::new(op::MOV_K, 0, 0, 0, 1),
        Insn::new(op::EXIT, 0, 0, 0, 0),
    ]);
    program.extend([Insn::new(op::MOV_K, 0, 0, 0, 0), Insn::new(op::EXIT, 0, 0, 0, 0)]);
    program
}

fn lxc_model(attempt: Attempt) -> bool {
    attempt.kind == DeviceKind::Character
        && (attempt.id == DeviceId::new(1, 3) || Access::MKNOD.contains(attempt.access))
}

/// As runc lays it out: r1 is a scratch once the context is read, and the deny comes last.
fn runc_shaped() -> Vec<Insn> {
    vec![
        Insn::new(0x69, 2, 1, 0, 0),
        Insn::new(op::LDX_W, 3, 1, 0, 0),
        Insn::new(0x74, 3, 0, 0, 16),
        Insn::new(op::LDX_W, 4, 1, 4, 0),
        Insn::new(op::LDX_W, 5, 1, 8, 0),
        // c 10:200 rw
        Insn::new(op::JNE_K, 2, 0, 7, 2),
        Insn::new(0xbc, 1, 3, 0, 0),
        Insn::new(0x54, 1, 0, 0, 6),
        Insn::new(0x5e, 1, 3, 4, 0),
        Insn::new(op::JNE_K, 4, 0, 3, 10),
        Insn::new(op::JNE_K, 5, 0, 2, 200),
        Insn::new(0xb4, 0, 0, 0, 1),
        Insn::new(op::EXIT, 0, 0, 0, 0),
        Insn::new(0xb4, 0, 0, 0, 0),
        Insn::new(op::EXIT, 0, 0, 0, 0),
    ]
}

fn runc_model(attempt: Attempt) -> bool {
    attempt.kind == DeviceKind::Character && attempt.id == DeviceId::new(10, 200) && RW.contains(attempt.access)
}

fn verdict(allowed: bool) -> Verdict {
    if allowed { Verdict::Allow } else { Verdict::Deny }
}

#[test]
fn instructions_survive_the_kernels_bytes() {
    let insn = Insn::new(op::JNE_K, 3, 9, -7, i32::MIN);
    assert_eq!(Insn::from_bytes(insn.to_bytes()), insn);
    #[cfg(target_endian = "little")]
    assert_eq!(insn.to_bytes(), [0x55, 0x93, 0xf9, 0xff, 0, 0, 0, 0x80]);
}

#[test]
fn the_wrap_of_two_majors_reads_like_this() {
    let rules = [rule(195, 0, RW), rule(195, 255, RW), rule(509, 0, RW), rule(509, 1, RW)];
    let expected = "\
r0 = *(u32 *)(r1 +0)
r0 &= 65535
if r0 != 2 goto +24
r0 = *(u32 *)(r1 +4)
if r0 != 195 goto +10
r0 = *(u32 *)(r1 +0)
r0 >>= 16
r0 &= -7
if r0 != 0 goto +6
r0 = *(u32 *)(r1 +8)
if r0 == 0 goto +2
if r0 == 255 goto +1
goto +2
r0 = 1
exit
r0 = *(u32 *)(r1 +4)
if r0 != 509 goto +10
r0 = *(u32 *)(r1 +0)
r0 >>= 16
r0 &= -7
if r0 != 0 goto +6
r0 = *(u32 *)(r1 +8)
if r0 < 0 goto +1
if r0 <= 1 goto +1
goto +2
r0 = 1
exit
r2 = map[fd 9]
0x00 dst=0 src=0 off=0 imm=0
r3 = 0
call 12
r0 = 0
exit
";
    assert_eq!(listing(&wrap(&rules, 9).unwrap()), expected);
}

#[test]
fn the_wrap_allows_its_rules_and_hands_the_rest_over() {
    let rules = some_rules();
    let program = wrap(&rules, 9).unwrap();
    for attempt in attempts() {
        let expected = if is_ours(&rules, attempt) { Verdict::Allow } else { Verdict::Unknown };
        assert_eq!(evaluate(&program, attempt), expected, "{attempt:?}");
    }
    assert!(hands_over(&program, rule(195, 1, RW)));
    assert!(!hands_over(&program, rule(195, 0, RW)));
}

#[test]
fn the_bridge_overrides_for_its_rules_only() {
    let program = override_denial(&some_rules()).unwrap();
    assert!(some_rules().into_iter().all(|rule| hands_over(&program, rule)));
    assert_eq!(allows(&program, rule(195, 1, RW)), Verdict::Allow);
    assert!(!hands_over(&program, rule(195, 1, RW)));
}

#[test]
fn a_prepended_program_allows_its_rules_and_what_the_old_one_allowed() {
    for (name, old, model) in
        [("lxc", lxc_shaped(), lxc_model as fn(Attempt) -> bool), ("runc", runc_shaped(), runc_model)]
    {
        for rules in [some_rules(), Vec::new()] {
            let program = prepend(&rules, &old, 41).unwrap();
            for attempt in attempts() {
                assert_eq!(evaluate(&old, attempt), verdict(model(attempt)), "{name} alone, {attempt:?}");
                let expected = is_ours(&rules, attempt) || model(attempt);
                assert_eq!(evaluate(&program, attempt), verdict(expected), "{name}, {attempt:?}");
            }
            let parts = Prepended::read(&program).unwrap();
            assert_eq!((parts.original, &parts.old), (41, &old));
            assert!(parts.has_rules(&rules));
            assert!(!parts.has_rules(&[rule(195, 0, RW)]));
        }
        assert_eq!(Prepended::read(&old), None, "{name}");
    }
}

#[test]
fn the_prefix_touches_no_register_but_r0() {
    let program = prepend(&some_rules(), &lxc_shaped(), 1).unwrap();
    let prefix = &program[..program.len() - lxc_shaped().len()];
    assert!(prefix.iter().all(|insn| insn.dst == 0));
}

#[test]
fn what_cannot_be_loaded_again_is_refused() {
    let exit = Insn::new(op::EXIT, 0, 0, 0, 0);
    let zero = Insn::new(0, 0, 0, 0, 0);
    for (old, expected) in [
        (vec![], PrependError::Hidden),
        (vec![zero; 8], PrependError::Hidden),
        (vec![exit; MAX_OLD_INSNS + 1], PrependError::TooLong { insns: MAX_OLD_INSNS + 1 }),
        (vec![Insn::new(op::CALL, 0, 0, 0, 5), exit], PrependError::Call { at: 0 }),
        (vec![Insn::new(op::LD_IMM64, 1, 1, 0, 5), zero, exit], PrependError::Address { at: 0 }),
        (vec![exit, Insn::new(op::MOV_K, 0, 0, 0, 5)], PrependError::NoEnd),
        (vec![Insn::new(op::MOV_K, 11, 0, 0, 5), exit], PrependError::Hidden),
    ] {
        assert_eq!(prepend(&[], &old, 1), Err(expected));
    }
}

#[test]
fn unknown_programs_have_no_verdict() {
    let exit = Insn::new(op::EXIT, 0, 0, 0, 0);
    for (name, program) in [
        ("empty", vec![]),
        ("endless loop", vec![Insn::new(op::JA, 0, 0, -1, 0)]),
        ("r0 never set", vec![exit]),
        ("jump out", vec![Insn::new(op::JA, 0, 0, 40, 0), exit]),
        ("jump before the start", vec![Insn::new(op::JA, 0, 0, -40, 0), exit]),
        ("stack", vec![Insn::new(0x7b, 10, 1, -8, 0), Insn::new(op::MOV_K, 0, 0, 0, 1), exit]),
        ("past the context", vec![Insn::new(op::LDX_W, 0, 1, 12, 0), exit]),
        ("zeros", vec![Insn::new(0, 0, 0, 0, 0); 8]),
        ("odd answer", vec![Insn::new(op::MOV_K, 0, 0, 0, 2), exit]),
    ] {
        assert_eq!(allows(&program, rule(1, 3, RW)), Verdict::Unknown, "{name}");
    }
}

#[test]
fn a_rule_counts_as_allowed_only_when_each_way_is() {
    // runc's program allows 10:200 for r, w and rw.
    assert_eq!(allows(&runc_shaped(), rule(10, 200, RW)), Verdict::Allow);
    assert_eq!(allows(&runc_shaped(), rule(10, 200, RW | Access::MKNOD)), Verdict::Deny);
    assert_eq!(allows(&lxc_shaped(), rule(10, 200, RW)), Verdict::Deny);
}

/// Blinds each constant as the kernel does, with a fixed "random" number.
fn blind(program: &[Insn]) -> Vec<Insn> {
    const RANDOM: i32 = 0x1234_5678;
    let long =
        |insn: &Insn| insn.code & 8 == 0 && matches!(insn.class(), 4..=7) && !matches!(insn.code, 5 | 0x85 | 0x95);
    let is_zero = |insn: &Insn| insn.code == op::MOV_K && insn.imm == 0;
    let starts: Vec<usize> = program
        .iter()
        .scan(0, |next, insn| {
            let start = *next;
            *next += if long(insn) && !is_zero(insn) { 3 } else { 1 };
            Some(start)
        })
        .collect();
    let mut out = Vec::new();
    for (at, insn) in program.iter().enumerate() {
        let mut user = *insn;
        if is_zero(insn) {
            out.push(Insn::new(0xaf, insn.dst, insn.dst, 0, 0));
            continue;
        }
        if long(insn) {
            out.push(Insn::new(0xb7, 11, 0, 0, RANDOM ^ insn.imm));
            out.push(Insn::new(0xa7, 11, 0, 0, RANDOM));
            user = Insn { code: insn.code | 8, src: 11, imm: 0, ..*insn };
        }
        if insn.is_jump() {
            let target = at.checked_add_signed(isize::from(insn.off) + 1).unwrap();
            user.off = i16::try_from(starts[target] - out.len() - 1).unwrap();
        }
        out.push(user);
    }
    out
}

#[test]
fn blinded_constants_are_found_again() {
    for program in [lxc_shaped(), runc_shaped(), prepend(&some_rules(), &lxc_shaped(), 7).unwrap()] {
        let blinded = blind(&program);
        assert_ne!(blinded, program);
        for attempt in attempts() {
            assert_eq!(evaluate(&blinded, attempt), evaluate(&program, attempt), "{attempt:?}");
        }
        let plain = unblind(&blinded).unwrap();
        for attempt in attempts() {
            assert_eq!(evaluate(&plain, attempt), evaluate(&program, attempt), "{attempt:?}");
        }
        assert_eq!(plain.len(), program.len());
        assert!(plain.iter().all(|insn| insn.dst != 11 && insn.src != 11));
    }
}
