// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configs that people posted, as containers of LXC: under changed numbers the old ones fail, and what `gpuhook config
//! migrate` makes of them works. And lines on which LXC does not start, as lint says of them.
//!
//! Proxmox's files are started as the raw lines that Proxmox hands to LXC. Not here, with the reason: 039, 048, 052, 166,
//! 167, 169 and 170 (no NVIDIA's), 040 and 059 without rules in force (no GPU was asked for), 043 (`a` opens everything, so
//! nothing can be stale), 180 (id maps, see below), 185 (its hooks are programs that this machine does not have).

use std::fs;
use std::path::Path;
use std::process::Output;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::golden::fixtures;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, install};
use gpuhook_tests::program::{both, command, gpuhook, output};
use gpuhook_tests::rootfs::make_node;
use serde_json::Value;

/// Numbers that nobody posted: every rule for a dynamic one is stale.
const CHANGED: Majors = Majors { uvm: 499, caps: 498, imex: 497 };

/// The config below `fixtures/cases`, and how many of the host's two GPUs it was written for.
const CONFIGS: &[(&str, usize)] = &[
    ("021-pve-stale-509-now-mei-234-nvswitch/pve.conf", 1),
    ("022-pve-rewrites-layout-sentinels-lost/before_pct_restart.conf", 1),
    ("022-pve-rewrites-layout-sentinels-lost/after_pct_restart.conf", 1),
    ("024-pve-inline-comments-after-rule/pve.conf", 1),
    ("026-pve-v1-key-and-wrong-uvm-506-vs-235/pve.conf", 1),
    ("028-pve-both-v1-v2-and-guessing-510-511/pve.conf", 1),
    ("029-pve-equals-spelling-with-minors-rw/pve.conf", 1),
    ("030-lxc-plain-equals-0-0-fields/lxc.conf", 1),
    ("031-lxc-circleci-250/lxc.conf", 1),
    ("033-lxd-raw-lxc-multiline/raw_lxc.txt", 2),
    ("035-terraform-request-195-506-509/pve.conf", 1),
    ("040-pve-snapshot-section-parent/pve_variant_with_gpu_rules.conf", 2),
    ("041-pve-blank-line-between-every-line/pve.conf", 1),
    ("044-pve-pci-sysfs-mount-is-not-passthrough/pve.conf", 2),
    ("046-pve-195-only-uvm-bound-not-allowed/pve.conf", 1),
    ("049-pve-line-wrapped-mount-entry/pve.conf", 1),
    ("050-pve-jellyfin-535-505-508/pve.conf", 1),
    ("054-pve-openwebui-195-234-509/pve.conf", 1),
    ("055-pve-uvm-507-libs-bind/pve.conf", 1),
    ("058-lxc-test-vector-device-policy-rewrite/lxc_stale.conf", 1),
    ("088-mig-lxc-caps-dir-bound-237/pve.conf", 1),
    ("118-sig-999-uvm-never-built/pve_before.conf", 1),
    ("118-sig-999-uvm-never-built/pve_after.conf", 1),
    ("143-bpf-query-eperm-docker-in-lxc/pve.conf", 2),
];

/// The lines that LXC gets: of Proxmox's file the raw ones before the first section.
fn raw_lines(text: &str) -> Vec<String> {
    let own = text.lines().take_while(|line| !line.starts_with('['));
    let line = |line: &str| match line.split_once([':', '=']) {
        Some((key, value)) if key.starts_with("lxc.") => format!("{} = {}", key.trim(), value.trim()),
        _ => line.to_owned(),
    };
    // Proxmox's own keys stay with Proxmox; the orphan of a wrapped line is LXC's to pass over.
    let proxmox = |text: &&str| text.split_once(':').is_some_and(|(key, _)| !key.contains('.') && !key.contains(' '));
    own.filter(|text| !text.trim().is_empty() && !proxmox(text)).map(line).collect()
}

/// The nodes of a host with two GPUs, as its driver has them now.
fn nodes(dev: &Path) {
    fs::create_dir_all(dev.join("nvidia-caps")).expect("folder");
    for (name, number) in [
        ("nvidia0", (195, 0)),
        ("nvidia1", (195, 1)),
        ("nvidiactl", (195, 255)),
        ("nvidia-modeset", (195, 254)),
        ("nvidia-uvm", (CHANGED.uvm, 0)),
        ("nvidia-uvm-tools", (CHANGED.uvm, 1)),
        ("nvidia-caps/nvidia-cap1", (CHANGED.caps, 1)),
        ("nvidia-caps/nvidia-cap2", (CHANGED.caps, 2)),
    ] {
        make_node(&dev.join(name), number);
    }
}

#[test]
fn each_posted_config_fails_under_changed_numbers_and_works_once_it_is_migrated() {
    let Some(bed) = Bed::pure("posted") else { return };
    let host = Host::new(bed.dir("host"), CHANGED, 2);
    let installed = install(&bed.dir("prefix"), &host.lxc_hook(""));
    let dev = bed.dir("dev");
    nodes(&dev);
    let mut wrong = Vec::new();
    for (index, (posted, gpus)) in CONFIGS.iter().enumerate() {
        let mut lxc = Lxc::privileged(&bed, &format!("c{index}"));
        let text = fs::read_to_string(fixtures().join("cases").join(posted)).expect(posted);
        for line in raw_lines(&text) {
            // The bed's own nodes stand for the host's.
            lxc.line(&line.replace("lxc.mount.entry = /dev/", &format!("lxc.mount.entry = {}/", dev.display())));
        }
        lxc.rootfs().first("cuda-check\n");
        lxc.write_config();
        if let Err(story) = fails_then_works(&installed, &host, &mut lxc, *gpus) {
            wrong.push(format!("{posted}: {story}"));
        }
        bed.wait_for(&gpuhook());
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CONFIGS.len(), wrong.join("\n\n"));
}

fn fails_then_works(installed: &Path, host: &Host, lxc: &mut Lxc<'_>, gpus: usize) -> Result<(), String> {
    let config = |words: &[&str]| -> Output {
        let mut program = command(installed, &["config"]);
        program.args(words).arg(lxc.config()).arg("--host-root").arg(host.root());
        output(program)
    };
    // A config on which LXC does not start fails as well.
    if let Ok(old) = lxc.try_start()
        && old.report().cuinit() == 0
    {
        return Err(format!("the old one works\n{}", old.story()));
    }
    let lint = config(&["lint"]);
    if lint.status.code() != Some(1) {
        return Err(format!("lint finds nothing in the old one\n{}", both(&lint)));
    }
    let about_nvidia = |lint: &Output| {
        let answer: Value = serde_json::from_slice(&lint.stdout).expect("an answer");
        let findings = answer["findings"].as_array().expect("findings").iter();
        let about: Vec<String> = findings.filter(|found| found["severity"] != "info").map(Value::to_string).collect();
        about.into_iter().filter(|found| found.contains("nvidia") || found.contains("195")).collect::<Vec<_>>()
    };
    let writes = config(&["migrate", "--write", "--remove-foreign"]);
    if !writes.status.success() {
        return Err(both(&writes));
    }
    let left = about_nvidia(&config(&["lint", "--json"]));
    if !left.is_empty() {
        return Err(format!("lint of the new one\n{}\n{}", left.join("\n"), both(&writes)));
    }
    lxc.read_config();
    let new = lxc.try_start()?;
    match (new.report().cuinit(), new.report().devices()) {
        (0, found) if usize::try_from(found) == Ok(gpus) => Ok(()),
        other => Err(format!("the new one says {other:?}\n{}\n{}", new.story(), both(&writes))),
    }
}

/// What LXC does with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lxc5 {
    /// It starts, and the line is in force.
    Takes,
    /// It starts without it.
    PassesOver,
    /// It does not start.
    Refuses,
}
use Lxc5::{PassesOver, Refuses, Takes};

/// Where lint says that the container does not start, LXC does not; where it starts, lint does not say so.
#[test]
fn lxc_does_not_start_on_what_lint_says_so_of() {
    let Some(bed) = Bed::pure("refused") else { return };
    let dev = bed.dir("dev");
    nodes(&dev);
    let mount = |rest: &str| format!("lxc.mount.entry = {}/nvidia0 {rest}", dev.display());
    let rule = |rule: &str| format!("lxc.cgroup2.devices.allow = {rule}");
    let rows = [
        (rule("c 195:* rwm"), Takes),
        (rule("c 195:* rwm   # nvidia"), Takes),
        (rule("c 195:255 rw"), Takes),
        (rule("c 195:* rw # nvidia"), PassesOver),
        (rule("c  195:* rwm"), PassesOver),
        (rule("c 195 rwm"), PassesOver),
        (rule("char 195:* rwm"), PassesOver),
        (rule("c :* rwm"), PassesOver),
        (rule("c"), PassesOver),
        (rule("a *:* rwm"), Refuses),
        ("lxc.cgroup2.devices.allow: c 195:* rwm".to_owned(), Refuses),
        ("lxc.include = /absent/nvidia.conf".to_owned(), Refuses),
        ("lxc.include = /absent/nvidia.d/".to_owned(), Takes),
        (mount("dev/nvidia0 none bind,create=file"), Takes),
        (mount("dev/nvidia0 none"), Refuses),
        (mount("dev/nvidia0 none create=file"), Refuses),
        (mount("dev/nvidia0 none bind,create=dir"), Refuses),
        (mount("dev/nvidia0 none bind,optional,create=dir"), Takes),
        ("lxc.mount.entry = dev/nvidia0 dev/nvidia0 none bind,create=file".to_owned(), Refuses),
        ("lxc.idmap = g 0 100000 65536".to_owned(), Refuses),
        ("lxc.idmap = u 0 100000 65536".to_owned(), Refuses),
    ];
    let mut wrong = Vec::new();
    for (index, (line, does)) in rows.iter().enumerate() {
        let mut lxc = Lxc::privileged(&bed, &format!("c{index}"));
        lxc.line(line);
        lxc.rootfs().node("/hand/nvidiactl", (195, 255));
        lxc.rootfs().first("node-check /hand/nvidiactl\n");
        lxc.write_config();
        let mut lint = command(gpuhook(), &["config", "lint"]);
        lint.arg(lxc.config());
        let said = both(&output(lint));
        let says = match (said.contains("container does not start"), said.contains("malformed-rule")) {
            (true, _) => Refuses,
            (false, true) => PassesOver,
            (false, false) => Takes,
        };
        let did = match lxc.try_start() {
            Err(_) => Refuses,
            // Without a rule the strict container refuses it; no driver is behind the number.
            Ok(running) if line.contains("devices.allow") && running.report().open("/hand/nvidiactl") == "EPERM" => {
                PassesOver
            }
            Ok(_) => Takes,
        };
        if (says, did) != (*does, *does) {
            wrong.push(format!("{line}: lint says {says:?}, LXC does {did:?}, expected {does:?}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
