// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line each: which finding, how grave.

use std::collections::BTreeMap;

use super::*;
use crate::config_text::Document;
use crate::device::DeviceId;
use crate::facts::{HostNode, Majors, NodeKind};
use crate::findings::Severity::{Error, Info, Warning};

const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n226 drm\n234 mei\n236 kfd\n\
                       237 nvidia-caps\n509 nvidia-uvm\n\nBlock devices:\n";

const GPU: &str = "lxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\n";
const UVM: &str = "lxc.mount.entry = /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n\
                   lxc.mount.entry = /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\n";
const RULES: &str = "lxc.cgroup2.devices.allow = c 195:* rwm\nlxc.cgroup2.devices.allow = c 509:* rwm\n";

fn lint_on(kind: Kind, file: &str, text: &str, controller: Controller, nodes: Vec<HostNode>) -> Lint {
    let facts = HostFacts { majors: Some(Majors::parse(DEVICES)), nodes, ..HostFacts::default() };
    let lines = DeviceLines::read(file, kind, &Document::parse(text.as_bytes()), &BTreeMap::new());
    let host = Host { facts: &facts, controller, nodes_are_whole: !facts.nodes.is_empty() };
    Lint::of(&[(lines, Reason::Told)], host)
}

/// Id, severity and line of each finding, in the file's order.
fn found(lint: &Lint) -> Vec<(&'static str, Severity, usize)> {
    let findings = lint.findings.findings.iter();
    let mut found: Vec<_> = findings.map(|f| (f.id.word(), f.severity, f.line.unwrap_or_default())).collect();
    found.sort_by_key(|(id, severity, line)| (*line, *severity, *id));
    found
}

fn lint(kind: Kind, text: &str) -> Vec<(&'static str, Severity, usize)> {
    found(&lint_on(kind, "c", text, Controller::V2, vec![]))
}

/// What a config with a GPU and unified memory that works gets from one line more.
fn with(kind: Kind, line: &str) -> Vec<(&'static str, Severity)> {
    let text = format!("{GPU}{UVM}{RULES}{line}\n");
    lint(kind, &text).into_iter().map(|(id, severity, _)| (id, severity)).collect()
}

#[test]
fn a_config_that_works_has_no_finding() {
    assert_eq!(with(Kind::Proxmox, ""), []);
    assert_eq!(with(Kind::Lxc, ""), []);
    for line in [
        "lxc.cgroup2.devices.allow = c 226:* rwm",
        "lxc.cgroup2.devices.allow = c 10:200 rwm",
        "lxc.cgroup2.devices.allow = c 189:* rwm",
        "lxc.cgroup2.devices.allow = c *:* m",
        "lxc.cgroup2.devices.allow = c 236:0 rwm",
        "lxc.mount.entry = /dev/dri dev/dri none bind,optional,create=dir 0 0",
        "lxc.mount.entry = /dev/dri/by-path/x dev/dri/renderD128 none bind,optional,create=file",
        "# lxc.cgroup2.devices.allow = c 504:* rwm",
        "lxc.hook.mount = /bin/chown root /srv",
    ] {
        assert_eq!(with(Kind::Lxc, line), [], "{line}");
    }
}

#[test]
fn one_line_more_gets_its_finding() {
    for (kind, line, finding) in [
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c 504:* rwm", ("stale-rule", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c 255:* rwm", ("stale-rule", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c 234:* rwm", ("foreign-grant", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = a", ("wide-grant", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c *:* rw", ("wide-grant", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = a *:* rwm", ("malformed-rule", Error)),
        // Passed over, and another rule allows the same.
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c", ("malformed-rule", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c  509:* rwm", ("malformed-rule", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow = c 509:* rw # uvm", ("malformed-rule", Warning)),
        (Kind::Lxc, "lxc.cgroup2.devices.allow: c 509:* rwm", ("malformed-rule", Error)),
        (Kind::Lxc, "236:* rwm", ("ignored-line", Warning)),
        (Kind::Proxmox, "236:* rwm", ("ignored-line", Warning)),
        (Kind::Proxmox, "lxc.cgroup2.devices.allow : c 509:* rwm", ("ignored-line", Warning)),
        (Kind::Proxmox, "lxc.hook.start-host: /usr/bin/gpuhook lxc", ("ignored-line", Warning)),
        (Kind::Lxc, "lxc.cgroup.devices.allow = c 195:0 rwm", ("inactive-rule", Warning)),
        (Kind::Lxc, "lxc.cgroup.devices.allow = c 195:* rwm", ("inactive-rule", Info)),
        (Kind::Lxc, "lxc.cgroup.devices.allow = c 10:200 rwm", ("inactive-rule", Warning)),
        (Kind::Proxmox, "[snap]\nlxc.cgroup2.devices.allow: c 504:* rwm", ("inactive-rule", Info)),
        (Kind::Lxc, "lxc.mount.entry = /dev/nvidia1 dev/nvidia0 none bind,create=file", ("mount-target", Warning)),
        (Kind::Lxc, "lxc.mount.entry = /dev/nvidia1 /dev/nvidia1 none bind,create=file", ("mount-target", Warning)),
        (Kind::Lxc, "lxc.mount.entry = dev/nvidia1 dev/nvidia1 none bind,create=file", ("mount-source", Error)),
        (Kind::Lxc, "lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none", ("mount-option", Error)),
        (Kind::Lxc, "lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none create=file", ("mount-option", Error)),
        (Kind::Lxc, "lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none bind", ("mount-option", Warning)),
        (
            Kind::Lxc,
            "lxc.mount.entry = /dev/kfd dev/kfd none bind,create=dir\nlxc.cgroup2.devices.allow = c 236:0 rw",
            ("mount-option", Error),
        ),
        (
            Kind::Lxc,
            "lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none bind,create=file,uid=5",
            ("mount-option", Warning),
        ),
        (Kind::Lxc, "lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none bind,create=file 0, 0", ("mount-option", Warning)),
        (
            Kind::Lxc,
            "lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none bind,create=file,rubbish",
            ("mount-option", Warning),
        ),
        (Kind::Lxc, "lxc.hook.pre-start = sh -c 'chmod 666 /dev/nvidia*'", ("host-chown", Warning)),
        (Kind::Proxmox, "dev0: /dev/nvidia0", ("duplicate-injection", Error)),
        (Kind::Proxmox, "dev0: /dev/nvidia-caps", ("mount-source", Error)),
        (Kind::Lxc, "lxc.hook.mount = /usr/share/lxc/hooks/nvidia", ("legacy-hook", Warning)),
        // A piece of a config does not say that the container is privileged.
        (Kind::Proxmox, "lxc.hook.mount: /usr/share/lxc/hooks/nvidia", ("legacy-hook", Warning)),
        (Kind::Proxmox, "rootfs: a:1\nlxc.hook.mount: /usr/share/lxc/hooks/nvidia", ("legacy-hook", Error)),
        (Kind::Lxc, "lxc.rootfs.path = a\nlxc.hook.mount = /usr/share/lxc/hooks/nvidia", ("legacy-hook", Error)),
        (
            Kind::Lxc,
            "lxc.rootfs.path = a\nlxc.include = /x\nlxc.hook.mount = /usr/share/lxc/hooks/nvidia",
            ("legacy-hook", Warning),
        ),
        (Kind::Lxc, "lxc.idmap = g 0 100000 65536", ("malformed-rule", Error)),
        (Kind::Proxmox, "lxc.idmap: u 0 100000 65536", ("malformed-rule", Error)),
    ] {
        assert_eq!(with(kind, line), [finding], "{kind}: {line}");
    }
}

#[test]
fn the_line_that_was_written_for_a_device_is_the_cause_and_the_missing_rule_its_consequence() {
    let stale = format!("lxc.cgroup2.devices.allow = c 195:* rwm\nlxc.cgroup2.devices.allow = c 504:* rwm\n{GPU}{UVM}");
    assert_eq!(lint(Kind::Lxc, &stale), [("stale-rule", Error, 2), ("missing-rule", Warning, 4)]);
    let none = format!("lxc.cgroup2.devices.allow = c 195:* rwm\n{GPU}{UVM}");
    assert_eq!(lint(Kind::Lxc, &none), [("missing-rule", Error, 3)]);
    let broken =
        format!("lxc.cgroup2.devices.allow = c 195:* rwm\nlxc.cgroup2.devices.allow = c  509:* rwm\n{GPU}{UVM}");
    assert_eq!(lint(Kind::Lxc, &broken), [("malformed-rule", Error, 2), ("missing-rule", Warning, 4)]);
    let beside = format!("lxc.cgroup2.devices.allow = c 195:* rwm\n{GPU}");
    assert_eq!(lint(Kind::Lxc, &beside), [("missing-rule", Error, 2), ("missing-mount", Warning, 2)]);
    let unmounted = format!("{RULES}{GPU}");
    assert_eq!(lint(Kind::Lxc, &unmounted), [("missing-mount", Error, 2), ("missing-mount", Warning, 3)]);
    let unfiltered = format!("unprivileged: 1\n{GPU}");
    assert_eq!(lint(Kind::Proxmox, &unfiltered), [("missing-mount", Error, 2), ("missing-mount", Warning, 2)]);
    assert_eq!(lint(Kind::Lxc, RULES), [("missing-mount", Warning, 1)]);
    for clearing in ["lxc.cgroup2.devices.allow =", "lxc.cgroup2 =", "lxc.cgroup2.devices.deny = a"] {
        let cleared = format!("{RULES}{clearing}\n{GPU}{UVM}");
        assert_eq!(
            lint(Kind::Lxc, &cleared),
            [
                ("inactive-rule", Error, 1),
                ("inactive-rule", Error, 2),
                ("missing-rule", Warning, 4),
                ("missing-rule", Warning, 5),
            ]
        );
    }
}

#[test]
fn an_unprivileged_proxmox_container_misses_no_rule() {
    let text = format!("unprivileged: 1\nlxc.cgroup2.devices.allow = c 504:* rwm\n{GPU}{UVM}");
    assert_eq!(lint(Kind::Proxmox, &text), [("stale-rule", Warning, 2), ("unprivileged-noop", Info, 2)]);
    let v1 = "unprivileged: 1\nlxc.cgroup.devices.allow: c 509:* rwm\n";
    assert_eq!(lint(Kind::Proxmox, v1)[0], ("inactive-rule", Warning, 2), "wins over unprivileged-noop");
    // LXC makes a filter of the rules for an idmapped container too; without a rule there is none.
    let idmap = "lxc.idmap = u 0 100000 65536\nlxc.idmap = g 0 100000 65536\n";
    assert_eq!(lint(Kind::Lxc, &format!("{idmap}{GPU}{UVM}")), []);
    let rules = format!("{idmap}lxc.cgroup2.devices.allow = c 195:* rwm\n{GPU}{UVM}");
    assert_eq!(lint(Kind::Lxc, &rules), [("missing-rule", Error, 5)]);
    // A whole config without rules: LXC attaches no program.
    assert_eq!(lint(Kind::Lxc, &format!("lxc.rootfs.path = dir:/x\n{GPU}{UVM}")), []);
    assert_eq!(lint(Kind::Lxc, &format!("lxc.rootfs.path = dir:/x\nlxc.cgroup2.devices.deny = a\n{GPU}{UVM}")), []);
    let includes = format!("lxc.rootfs.path = dir:/x\nlxc.include = /y\n{GPU}{UVM}");
    assert_eq!(
        lint(Kind::Lxc, &includes)[0],
        ("missing-rule", Error, 3),
        "an include that was not read may have rules"
    );
    let home = "/home/a/.local/share/lxc/c/config";
    let user = lint_on(Kind::Lxc, home, &rules, Controller::V2, vec![]);
    assert_eq!(found(&user), [("unprivileged-noop", Info, 3)]);
}

#[test]
fn a_config_that_calls_gpuhook_needs_no_rule_and_no_mount() {
    for line in ["lxc.include = /usr/share/gpuhook/lxc.conf", "lxc.hook.pre-start = /usr/bin/gpuhook lxc"] {
        assert_eq!(lint(Kind::Lxc, &format!("{GPU}{UVM}{line}\n")), [], "{line}");
    }
    let both = "lxc.include = /usr/share/gpuhook/lxc.conf\nlxc.hook.mount = /usr/share/lxc/hooks/nvidia\n";
    assert_eq!(lint(Kind::Lxc, both), [("duplicate-injection", Warning, 2), ("legacy-hook", Warning, 2)]);
}

#[test]
fn on_cgroup_v1_it_is_the_other_way_round() {
    let text = format!("lxc.cgroup.devices.allow = c 195:* rwm\nlxc.cgroup.devices.allow = c 509:* rwm\n{GPU}{UVM}");
    assert_eq!(found(&lint_on(Kind::Lxc, "c", &text, Controller::V1, vec![])), []);
    let text = format!("{RULES}{GPU}{UVM}");
    let lint = lint_on(Kind::Lxc, "c", &text, Controller::V1, vec![]);
    assert_eq!(found(&lint).iter().filter(|(id, ..)| *id == "inactive-rule").count(), 2);
    let v1 = "30 23 0:26 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";
    let v2 = "31 23 0:27 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    assert_eq!(Controller::of_mountinfo(&format!("{v2}{v1}")), Controller::V1);
    assert_eq!(Controller::of_mountinfo(v2), Controller::V2);
    assert_eq!(Controller::of_mountinfo(""), Controller::Assumed);
}

#[test]
fn a_source_that_is_no_device_or_absent_is_told_where_the_nodes_are_known() {
    let node = |path: &str, kind| HostNode { path: path.to_owned(), kind, mode: 0o666, uid: None, gid: None };
    let nodes = || {
        vec![
            node("/dev/nvidia0", NodeKind::NotADevice),
            node("/dev/nvidiactl", NodeKind::Character(DeviceId::new(195, 255))),
            node("/dev/nvidia-caps/nvidia-cap1", NodeKind::Character(DeviceId::new(237, 1))),
        ]
    };
    let caps = "lxc.mount.entry = /dev/nvidia-caps dev/nvidia-caps none bind,create=dir\n";
    let text = format!("{RULES}lxc.cgroup2.devices.allow = c 237:* rwm\n{GPU}{}{caps}", UVM.replace("optional,", ""));
    let known = lint_on(Kind::Lxc, "c", &text, Controller::V2, nodes());
    assert_eq!(found(&known), [("mount-source", Warning, 4), ("mount-source", Error, 5)]);
}

/// What a person copies into a shell does what it says.
#[test]
fn a_fix_is_a_command_that_takes_the_line_out() {
    let fix = |kind, text: &str, line: usize| {
        let lint = lint_on(kind, "my file", text, Controller::V2, vec![]);
        let found = lint.findings.findings.iter().find(|finding| finding.line == Some(line)).expect("a finding");
        found.fix.clone().unwrap_or_default()
    };
    let config = |rule: &str| format!("{GPU}{UVM}{RULES}lxc.cgroup2.devices.allow = {rule}\n");
    for (rule, words) in [
        ("c 504:* rwm", "gpuhook config migrate --write --kind lxc 'my file'   #"),
        ("c 234:* rwm", "gpuhook config migrate --write --remove-foreign --kind lxc 'my file'   #"),
        ("c 234:* rwm # nvidia-uvm", "gpuhook config migrate --write --kind lxc 'my file'   #"),
        ("c 10:200 rw # tun", "write it as LXC reads it"),
    ] {
        let fix = fix(Kind::Lxc, &config(rule), 6);
        assert!(fix.starts_with(words), "{rule}: {fix}");
    }
    let kfd = "lxc.mount.entry: /dev/kfd dev/kfd none bind,create=file\nlxc.cgroup2.devices.allow: c 504:* rwm\ndev0: /dev/dri/card0\n";
    assert!(fix(Kind::Proxmox, kfd, 2).starts_with("dev1: /dev/kfd"), "{}", fix(Kind::Proxmox, kfd, 2));
    assert!(fix(Kind::Lxc, "lxc.cgroup2.devices.allow = c 504:* rwm\n", 1).starts_with("remove the line"));
}

#[test]
fn a_file_that_is_written_anew_is_told() {
    let file = "/var/lib/waydroid/lxc/waydroid/config_nodes";
    let lint = lint_on(Kind::Lxc, file, &format!("{RULES}{GPU}{UVM}"), Controller::V2, vec![]);
    assert_eq!(found(&lint), [("generated-file", Warning, 0)]);
    assert_eq!(found(&lint_on(Kind::Lxc, file, "lxc.uts.name = x", Controller::V2, vec![])), []);
}

#[test]
fn foreign_numbers_that_the_config_wants_are_no_finding() {
    let wanted = "lxc.cgroup2.devices.allow = c 234:* rwm\nlxc.mount.entry = /dev/mei0 dev/mei0 none bind,create=file";
    assert_eq!(with(Kind::Lxc, wanted), []);
}

#[test]
fn the_verdict_counts_and_names() {
    let lint = lint_on(Kind::Lxc, "c", "lxc.cgroup2.devices.allow = a\n", Controller::Assumed, vec![]);
    assert_eq!(lint.findings.verdict, "c: 1 warning (wide-grant)");
    assert_eq!(lint.assumed.len(), 1);
    let lint = lint_on(Kind::Lxc, "c", "lxc.uts.name = x\n", Controller::V2, vec![]);
    assert_eq!(lint.findings.verdict, "c: no line concerns a GPU");
    let lint = lint_on(Kind::Lxc, "c", &format!("{RULES}{GPU}{UVM}"), Controller::V2, vec![]);
    assert_eq!(lint.findings.verdict, "c: nothing is wrong with the GPU lines");
    assert!(lint.configs[0].lines.iter().all(|line| line.in_force));
}

/// Found by fuzzing: a mount's source stood in what it brings, its target in what is wrong with it.
#[test]
fn what_a_config_holds_does_not_act_on_a_terminal() {
    for line in [
        "lxc.mount.entry: /dev/nvid\u{1b}[2J dev/nvidia0 none bind",
        "lxc.mount.entry: /dev/nvidia-uvm \u{1b} none bind",
    ] {
        for (_, kind) in Kind::WORDS {
            let said = lint_on(kind, "c", &format!("{GPU}{line}\n"), Controller::V2, vec![]).to_string();
            assert!(!said.contains('\u{1b}'), "{said:?}");
        }
    }
}
