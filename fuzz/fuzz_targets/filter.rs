// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as rules and an old program, and the filters that are built of them, against the evaluator over all classes
//! of attempts: a rule's device is allowed, and of every other one the old program's answer stays.
#![no_main]

use gpuhook_core::bpf::{self, Attempt, DeviceKind, Insn, Prepended, Verdict};
use gpuhook_core::device::{Access, DeviceId, DeviceRule};
use libfuzzer_sys::fuzz_target;

/// Few numbers, so that rules and attempts meet; neighbours, so that ranges come up; the last is the largest that a minor
/// can be (include/linux/kdev_t.h). A comparison's constant is signed, so no rule could be made of one above 2^31.
const NUMBERS: [u32; 6] = [0, 1, 2, 3, 255, 0xf_ffff];

fn number(byte: u8) -> u32 {
    NUMBERS[usize::from(byte) % NUMBERS.len()]
}

fuzz_target!(|bytes: &[u8]| {
    let Some((count, bytes)) = bytes.split_first() else { return };
    let (rules, old) = bytes.split_at(bytes.len().min(usize::from(count % 16) * 3));
    let rules: Vec<DeviceRule> = rules
        .chunks_exact(3)
        .map(|rule| DeviceRule {
            id: DeviceId::new(number(rule[0]), number(rule[1])),
            access: Access::from_bits_truncate(u32::from(rule[2] % 7) + 1),
        })
        .collect();
    let old: Vec<Insn> =
        old.chunks_exact(8).map(|chunk| Insn::from_bytes(chunk.try_into().expect("8 bytes"))).collect();
    let _ = bpf::unblind(&old);
    let deny = [Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)];
    for old in [&old[..], &deny[..]] {
        let Ok(program) = bpf::prepend(&rules, old, 7) else { continue };
        if let Some(parts) = Prepended::read(&program) {
            assert!(parts.has_rules(&rules), "it is read as it was built: {program:?}");
        }
        let mut attempts = Vec::new();
        for kind in [DeviceKind::Block, DeviceKind::Character] {
            for access in 0..8 {
                for (major, minor) in NUMBERS.iter().flat_map(|major| NUMBERS.iter().map(move |minor| (*major, *minor)))
                {
                    let access = Access::from_bits_truncate(access);
                    attempts.push(Attempt { kind, access, id: DeviceId::new(major, minor) });
                }
            }
        }
        for attempt in attempts {
            let ours = attempt.kind == DeviceKind::Character
                && rules.iter().any(|rule| rule.id == attempt.id && rule.access.contains(attempt.access));
            let (before, after) = (bpf::evaluate(old, attempt), bpf::evaluate(&program, attempt));
            let expected = if ours { Verdict::Allow } else { before };
            assert_eq!(after, expected, "{attempt:?} under {rules:?}");
        }
    }
});
