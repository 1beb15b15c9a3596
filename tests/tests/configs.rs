// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden answers of `gpuhook config lint` and `gpuhook config migrate` for configs that people posted
//! (`tests/fixtures/cases`), on the host that they had or on one whose numbers have moved on.
//!
//! `GPUHOOK_BLESS=1 cargo test -p gpuhook-tests --test configs` writes the files anew; judge the difference before you
//! commit it.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use gpuhook_tests::golden::{Golden, fixtures};
use gpuhook_tests::program::{command, gpuhook, output};

/// Where the config is judged.
#[derive(Clone, Copy)]
enum On {
    /// `tests/fixtures/hosts/upgraded`: eight GPUs, uvm 509, caps 237, one MIG instance; 234 is hidraw, 235 aux, 511 mei.
    Upgraded,
    /// The `/proc/devices` that was posted with the config, or with another case.
    Posted(&'static str),
    /// A host of these majors, with nothing else known.
    Majors(&'static [(u32, &'static str)]),
}

use On::{Majors, Posted, Upgraded};

const NVIDIA: (u32, &str) = (195, "nvidia");

/// The golden files' name, the config below `tests/fixtures/cases`, its kind, and the host.
const CONFIGS: &[(&str, &str, &str, On)] = &[
    // Unprivileged, so no rule does anything (the post wonders why stale rules did no harm). 234 is NVSwitch's, which
    // nothing brings in, and goes; 509 is mei's and could be meant, so it stays without --remove-foreign, other than the
    // case's proposal. The binds go too: gpuhook brings the nodes in.
    ("021", "021-pve-stale-509-now-mei-234-nvswitch/pve.conf", "pve", Posted("021-pve-stale-509-now-mei-234-nvswitch")),
    ("022-before", "022-pve-rewrites-layout-sentinels-lost/before_pct_restart.conf", "pve", Upgraded),
    ("022-after", "022-pve-rewrites-layout-sentinels-lost/after_pct_restart.conf", "pve", Upgraded),
    // Each line says that it was meant for NVIDIA, so foreign numbers go without being asked for; each is told.
    ("024", "024-pve-inline-comments-after-rule/pve.conf", "pve", Upgraded),
    ("026", "026-pve-v1-key-and-wrong-uvm-506-vs-235/pve.conf", "pve", Majors(&[NVIDIA, (506, "nvidia-uvm")])),
    ("026-foreign", "026-pve-v1-key-and-wrong-uvm-506-vs-235/pve.conf", "pve", Upgraded),
    // Other than the case's proposal, 510 and 511 stay: on this host they are ipmidev's and mei's.
    ("028", "028-pve-both-v1-v2-and-guessing-510-511/pve.conf", "pve", Upgraded),
    ("028-live", "028-pve-both-v1-v2-and-guessing-510-511/pve.conf", "pve", Majors(&[NVIDIA, (511, "nvidia-uvm")])),
    (
        "029",
        "029-pve-equals-spelling-with-minors-rw/pve.conf",
        "pve",
        Majors(&[NVIDIA, (235, "nvidia-uvm"), (239, "nvidia-caps")]),
    ),
    ("030", "030-lxc-plain-equals-0-0-fields/lxc.conf", "lxc", Upgraded),
    ("031", "031-lxc-circleci-250/lxc.conf", "lxc", Upgraded),
    ("033", "033-lxd-raw-lxc-multiline/raw_lxc.txt", "raw", Upgraded),
    // MIG instances exist on this host and are not gpuhook's to bring in, so nvidia-caps stays.
    ("035", "035-terraform-request-195-506-509/pve.conf", "pve", Upgraded),
    // Intel's: nothing to say, nothing to do. `--to dev[n]`, which the case asks for, is not offered.
    ("039-before", "039-pve-old-to-dev-pair-jellyfin/pve_before.conf", "pve", Upgraded),
    ("039-after", "039-pve-old-to-dev-pair-jellyfin/pve_after.conf", "pve", Upgraded),
    ("040", "040-pve-snapshot-section-parent/pve.conf", "pve", Upgraded),
    ("040-rules", "040-pve-snapshot-section-parent/pve_variant_with_gpu_rules.conf", "pve", Upgraded),
    ("041", "041-pve-blank-line-between-every-line/pve.conf", "pve", Upgraded),
    // Narrowing `a` is not offered: what else the container needs is not known. It is reported.
    ("043", "043-pve-allow-a-everything/pve.conf", "pve", Upgraded),
    ("044", "044-pve-pci-sysfs-mount-is-not-passthrough/pve.conf", "pve", Upgraded),
    ("046", "046-pve-195-only-uvm-bound-not-allowed/pve.conf", "pve", Upgraded),
    ("048", "048-pve-wrong-mount-target/pve.conf", "pve", Upgraded),
    ("049", "049-pve-line-wrapped-mount-entry/pve.conf", "pve", Upgraded),
    ("050", "050-pve-jellyfin-535-505-508/pve.conf", "pve", Upgraded),
    // Not renamed to the cgroup2 key, other than the case's proposal: no byte of another device's line is changed.
    ("052-before", "052-pve-v1-key-no-effect-since-pve7/pve_before.conf", "pve", Upgraded),
    ("052-after", "052-pve-v1-key-no-effect-since-pve7/pve_after.conf", "pve", Upgraded),
    ("054", "054-pve-openwebui-195-234-509/pve.conf", "pve", Upgraded),
    ("054-stale", "054-pve-openwebui-195-234-509/pve.conf", "pve", Posted("003-proc-580-nvidia-modeset-nvidiactl")),
    ("055", "055-pve-uvm-507-libs-bind/pve.conf", "pve", Upgraded),
    ("058", "058-lxc-test-vector-device-policy-rewrite/lxc_stale.conf", "lxc", Upgraded),
    ("059", "059-pve-append-after-snapshot-section/pve.conf", "pve", Posted("059-pve-append-after-snapshot-section")),
    // Other than the case's proposal nothing is put into the active section: the container has no GPU today, and whoever
    // took it away before the snapshot would get it back. The line to add is told.
    (
        "059-naive",
        "059-pve-append-after-snapshot-section/pve_naive_append.conf",
        "pve",
        Posted("059-pve-append-after-snapshot-section"),
    ),
    // The caps directory stays where the host has MIG instances, and goes where it has none.
    ("088", "088-mig-lxc-caps-dir-bound-237/pve.conf", "pve", Upgraded),
    (
        "088-stale",
        "088-mig-lxc-caps-dir-bound-237/pve.conf",
        "pve",
        Majors(&[NVIDIA, (236, "nvidia-caps"), (511, "nvidia-uvm")]),
    ),
    // Posted among the nodes, the codes and the cgroups, and configs all the same.
    ("118-before", "118-sig-999-uvm-never-built/pve_before.conf", "pve", Upgraded),
    ("118-after", "118-sig-999-uvm-never-built/pve_after.conf", "pve", Upgraded),
    ("143", "143-bpf-query-eperm-docker-in-lxc/pve.conf", "pve", Upgraded),
    ("166", "166-amd-pve-kfd-234-v620/pve.conf", "pve", Posted("007-proc-amd-kfd-234-accel-261")),
    ("166-bypath", "166-amd-pve-kfd-234-v620/pve_bypath.conf", "pve", Majors(&[(511, "kfd")])),
    ("167", "167-amd-pve-kfd-createdir-and-235-0/pve.conf", "pve", Posted("007-proc-amd-kfd-234-accel-261")),
    // Whose groups 44 and 992 are inside the container stands in no config, but kfd and the render nodes belong together.
    ("169-before", "169-amd-devN-kfd-gid/pve_before.conf", "pve", Posted("007-proc-amd-kfd-234-accel-261")),
    ("169-after", "169-amd-devN-kfd-gid/pve_after.conf", "pve", Posted("007-proc-amd-kfd-234-accel-261")),
    // 10:237 is loop-control, as the line is told; kvm, which it was copied for, never had it.
    ("170", "170-misc-minor-drift-kvm/raw_lxc.txt", "raw", Upgraded),
    // Id maps are no GPU's lines, but the container does not start on half of one.
    ("180-broken", "180-idmap-missing-u-line/pve_broken.conf", "pve", Upgraded),
    ("180-fixed", "180-idmap-missing-u-line/pve_fixed.conf", "pve", Upgraded),
    ("185", "185-chown-host-nodes-100000/pve.conf", "pve", Upgraded),
];

#[test]
fn every_lint_is_the_golden_one() {
    let mut golden = Golden::folder("lint");
    for (name, file, kind, on) in CONFIGS {
        let host = Host::new(*on);
        let text = host.run(&["lint", "--kind", kind, file]);
        let json = host.run(&["lint", "--kind", kind, "--json", file]);
        assert_eq!(text.status.code(), json.status.code(), "{name}");
        golden.check(&format!("{name}.txt"), &told(&text));
        golden.check(&format!("{name}.json"), &json.stdout);
    }
    golden.done();
}

#[test]
fn every_migration_is_the_golden_one() {
    let mut golden = Golden::folder("migrate");
    for (name, file, kind, on) in CONFIGS {
        golden.check(&format!("{name}.txt"), &told(&Host::new(*on).run(&["migrate", "--kind", kind, file])));
    }
    for (name, words) in [
        ("028-remove-foreign", &["--remove-foreign"][..]),
        ("028-pre-start", &["--pre-start"]),
        ("028-live-dev", &["--dev-entries"]),
    ] {
        let file = "028-pve-both-v1-v2-and-guessing-510-511/pve.conf";
        let words = [&["migrate", "--kind", "pve", file], words].concat();
        golden.check(&format!("{name}.txt"), &told(&Host::new(Upgraded).run(&words)));
    }
    golden.done();
}

/// The vectors for LXC's grammar of rules (098) and for Proxmox's of lines (099).
#[test]
fn every_vector_of_a_grammar_is_read_as_it_says() {
    let vectors = |case: &str| fs::read_to_string(fixtures().join("cases").join(case).join("vectors.txt")).expect(case);
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("config");
    let lint = |kind: &str, line: &str| {
        fs::write(&config, format!("{line}\n")).expect("config");
        let said = Host::new(Upgraded).run(&["lint", "--kind", kind, config.to_str().expect("UTF-8")]);
        String::from_utf8_lossy(&told(&said)).into_owned()
    };
    for vector in vectors("098-lxc-rule-value-parser-quirks").lines() {
        let (verdict, value) = vector.split_at(8);
        let said = lint("lxc", &format!("lxc.cgroup2.devices.allow = {value}"));
        assert_eq!(said.contains("malformed-rule"), verdict.trim() == "reject", "{vector}\n{said}");
    }
    for vector in vectors("099-pve-parser-grammar-and-write-order").lines() {
        let (verdict, line) = vector.split_at(6);
        let said = lint("pve", line);
        let read = match (said.contains("ignored-line"), said.contains("opens nvidia")) {
            (true, _) => "lost",
            (false, true) => "ok",
            (false, false) if line.starts_with('#') => "descr",
            (false, false) => "ok",
        };
        assert_eq!(read, verdict.trim(), "{vector}\n{said}");
    }
}

/// What is on standard output and standard error, and the exit code.
fn told(output: &Output) -> Vec<u8> {
    let exit = format!("exit {}\n", output.status.code().unwrap_or(-1)).into_bytes();
    [output.stderr.as_slice(), output.stdout.as_slice(), &exit].concat()
}

struct Host {
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Host {
    fn new(on: On) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let devices = match on {
            Upgraded => return Self { root: fixtures().join("hosts/upgraded"), _dir: dir },
            Posted(case) => fs::read_to_string(fixtures().join("cases").join(case).join("proc_devices")).expect(case),
            Majors(majors) => {
                let lines: String = majors.iter().map(|(major, name)| format!("{major:3} {name}\n")).collect();
                format!("Character devices:\n{lines}\nBlock devices:\n  8 sd\n")
            }
        };
        fs::create_dir(dir.path().join("proc")).expect("proc");
        fs::write(dir.path().join("proc/devices"), devices).expect("devices");
        Self { root: dir.path().to_owned(), _dir: dir }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut program = command(gpuhook(), &["config"]);
        program.current_dir(fixtures().join("cases")).args(words).arg("--host-root").arg(&self.root);
        // Another machine's administrator must not change what these tests see.
        program.arg("--config").arg(fixtures().join("../../install/config.toml"));
        output(program)
    }
}
