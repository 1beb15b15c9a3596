// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every parser gets texts made of real ones, cut, joined and bent by a generator whose seed is printed; the filters that
//! are built get the evaluator's judgement on every class of attempts. A parser may refuse, and may not panic.
//!
//! `GPUHOOK_FUZZ_SECONDS` says how long each target runs (1 where it is not set; CI 15, `make endurance` 300), and
//! `GPUHOOK_FUZZ_SEED` repeats a run. Not cargo-fuzz: its sanitizer coverage and libFuzzer need a nightly toolchain, and
//! this project has one stable toolchain.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gpuhook_core::bpf::{self, Insn, Verdict};
use gpuhook_core::cgroup_v1::DeviceList;
use gpuhook_core::config::Config;
use gpuhook_core::device::{Access, DeviceId, DeviceRule};
use gpuhook_core::facts::{Capability, CgroupLocation, Driver, Gpu, HostNode, IdMap, Majors, Params, PciAddress};
use gpuhook_core::lxc_config::{LxcConfig, Source};
use gpuhook_core::oci::{Spec, State};
use gpuhook_core::request::{Arguments, Request};

/// xorshift64*: enough to bend texts, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 16).expect("64 bits") % end.max(1)
    }
}

/// Real texts: the fixtures of the tests.
fn corpus() -> Vec<Vec<u8>> {
    fn collect(dir: &Path, found: &mut Vec<Vec<u8>>) {
        let mut paths: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                collect(&path, found);
            } else if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() < 1 << 16) {
                found.extend(fs::read(&path));
            }
        }
    }
    let mut found = vec![Vec::new()];
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"), &mut found);
    found
}

const WORDS: &[&str] = &[
    "\n",
    " ",
    ":",
    ",",
    "=",
    "*",
    "-1",
    "4294967296",
    "18446744073709551616",
    "nvidia-uvm",
    "Character devices:\n",
    "c ",
    "{",
    "}",
    "[",
    "\"",
    "\\",
    "0::",
    "/../",
    "\u{0}",
    "é",
    "lxc.include = ",
    "lxc.cgroup2.devices.allow = ",
    "GPU-",
    "all",
    "MIG-",
    "rwm",
    "0-2047",
    "\t",
    "#",
    "- cgroup2 ",
];

fn bend(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut text = corpus[random.below(corpus.len())].clone();
    text.truncate(4096);
    for _ in 0..=random.below(8) {
        let at = random.below(text.len() + 1);
        match random.below(5) {
            0 => text.truncate(at),
            1 => text.splice(at..at, WORDS[random.below(WORDS.len())].bytes()).for_each(drop),
            2 if !text.is_empty() => {
                let at = random.below(text.len());
                text[at] = random.next().to_le_bytes()[0];
            }
            3 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let piece = &other[from..other.len().min(from + 64)];
                text.splice(at..at, piece.iter().copied()).for_each(drop);
            }
            _ => {
                let end = at + random.below(text.len() - at + 1);
                text.drain(at..end).for_each(drop);
            }
        }
    }
    text
}

/// Runs `target` on bent texts as long as is wanted.
fn fuzz(name: &str, mut target: impl FnMut(&[u8], &str)) {
    let seed = u64::from(gpuhook_tests::repeat::of("GPUHOOK_FUZZ_SEED", std::process::id())).max(1);
    println!("{name}: GPUHOOK_FUZZ_SEED={seed}");
    let (mut random, corpus, mut count) = (Random(seed), corpus(), 0_u64);
    let end = Instant::now() + Duration::from_secs(u64::from(gpuhook_tests::repeat::of("GPUHOOK_FUZZ_SECONDS", 1)));
    while Instant::now() < end {
        let bytes = bend(&mut random, &corpus);
        target(&bytes, &String::from_utf8_lossy(&bytes));
        count += 1;
    }
    println!("COUNT {name}: {count} texts");
}

#[test]
fn texts_of_the_kernel_and_the_driver() {
    fuzz("facts", |_, text| {
        let majors = Majors::parse(text);
        let _ = majors.only("nvidia-uvm");
        let _ = majors.primary();
        let _ = Driver::parse(text);
        let _ = Params::parse(text);
        let _ = Capability::parse("mig/config", text);
        if let Some(address) = PciAddress::parse("0000:07:00.0") {
            let _ = Gpu::parse(address, text);
        }
        let _ = PciAddress::parse(text);
        let _ = HostNode::parse_listing(text);
        let _ = IdMap::parse(text);
    });
}

#[test]
fn texts_of_cgroups_and_mounts() {
    fuzz("cgroups", |_, text| {
        let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        let (cgroup, mounts) = text.split_at(half);
        let _ = CgroupLocation::parse(cgroup, mounts);
        let _ = CgroupLocation::parse(text, text);
        let _ = DeviceList::parse(text);
    });
}

#[test]
fn states_and_specs_of_oci() {
    fuzz("oci", |bytes, _| {
        let _ = State::parse(bytes).and_then(|state| state.live_pid());
        if let Ok(spec) = Spec::parse(bytes) {
            let _ = Request::from_spec(&Arguments::default(), &spec);
        }
    });
}

#[test]
fn lxc_configs_rules_and_our_own_file() {
    fuzz("configs", |bytes, text| {
        let mut depth = 0;
        let mut source = |_: &str| {
            depth += 1;
            if depth > 8 { Err(()) } else { Ok(Source::File(bytes.to_vec())) }
        };
        if let Ok(config) = LxcConfig::read("/c", &mut source) {
            let _ = (config.idmap(), config.init_uid(), config.registered("start-host"));
            let _ = Request::from_lxc(&Arguments::default(), &config, false);
        }
        let _ = Config::parse(text);
    });
}

#[test]
fn the_selection_grammar() {
    fuzz("selection", |_, text| {
        let arguments = Arguments {
            devices: Some(text),
            capabilities: Some(text),
            mig_config: Some(text),
            mig_monitor: Some(text),
            imex_channels: Some(text),
        };
        let _ = Request::from_arguments(&arguments);
    });
}

/// Random instructions must be judged without a panic, and our rules in front of any program must keep what they promise.
#[test]
fn filters_against_the_evaluator() {
    fuzz("filters", |bytes, _| {
        let insns: Vec<Insn> =
            bytes.chunks_exact(8).map(|chunk| Insn::from_bytes(chunk.try_into().expect("8 bytes"))).collect();
        let number = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0)) % 4;
        let rules: Vec<DeviceRule> = (0..number(0) as usize)
            .map(|at| DeviceRule {
                id: DeviceId::new(number(at + 1), number(at + 2)),
                access: Access::READ | Access::WRITE,
            })
            .collect();
        let _ = bpf::unblind(&insns);
        let deny = [Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)];
        for old in [&insns[..], &deny[..]] {
            let Ok(program) = bpf::prepend(&rules, old, 7) else { continue };
            for (major, minor) in (0..5).flat_map(|major| (0..5).map(move |minor| (major, minor))) {
                for access in [Access::READ, Access::WRITE, Access::READ | Access::WRITE] {
                    let asked = DeviceRule { id: DeviceId::new(major, minor), access };
                    let verdict = bpf::allows(&program, asked);
                    let ours = rules.iter().any(|rule| rule.id == asked.id);
                    let before = bpf::allows(old, asked);
                    assert!(!ours || verdict == Verdict::Allow, "{asked}: {verdict:?} in {program:?}");
                    assert!(ours || verdict == before, "{asked}: {before:?} became {verdict:?} in {program:?}");
                }
            }
        }
    });
}
