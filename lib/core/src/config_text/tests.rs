// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts as people and programs write them, and any bytes.

use super::*;
use crate::generated::Bytes;

fn read(kind: Kind, text: &str) -> Statement {
    Statement::read(kind, text)
}

fn setting(key: &str, value: &str) -> Statement {
    Statement::Setting { key: key.to_owned(), value: value.to_owned() }
}

#[test]
fn what_was_parsed_prints_the_same_bytes() {
    for seed in 0..2000 {
        let bytes = Bytes::new(seed).config();
        let document = Document::parse(&bytes);
        assert_eq!(document.bytes(), bytes, "seed {seed}");
        for kind in [Kind::Lxc, Kind::Proxmox, Kind::Raw] {
            assert_eq!(document.statements(kind).len(), document.lines().len(), "seed {seed}");
        }
    }
}

#[test]
fn proxmox_takes_drops_or_describes_a_line() {
    let rule = setting("lxc.cgroup2.devices.allow", "c 195:* rwm");
    for (text, statement) in [
        ("lxc.cgroup2.devices.allow: c 195:* rwm", Some(rule.clone())),
        ("lxc.cgroup2.devices.allow:c 195:* rwm \r", Some(rule.clone())),
        ("lxc.cgroup2.devices.allow = c 195:* rwm", Some(rule.clone())),
        ("lxc.cgroup2.devices.allow=c 195:* rwm", Some(rule)),
        ("lxc.cap.drop:", Some(setting("lxc.cap.drop", ""))),
        ("mp2: /mnt/tank/TV Shows,mp=/mnt/TV Shows", Some(setting("mp2", "/mnt/tank/TV Shows,mp=/mnt/TV Shows"))),
        ("#lxc.cgroup2.devices.allow: c 195:* rwm", Some(Statement::Comment)),
        ("[before-kernel]", Some(Statement::Section("before-kernel".to_owned()))),
        ("[pve:pending] ", Some(Statement::Section("pve:pending".to_owned()))),
        ("  \t\r", Some(Statement::Blank)),
        ("lxc.cgroup2.devices.allow : c 195:* rwm", None),
        ("LXC.cgroup2.devices.allow: c 195:* rwm", None),
        (" lxc.cgroup2.devices.allow: c 195:* rwm", None),
        ("lxc.hook.start-host: /usr/bin/gpuhook lxc", None),
        ("lxc.rootfs.path: /x", None),
        ("236:* rwm", None),
        ("bind,optional,create=file", None),
        ("[x]", None),
        ("[no section", None),
        ("memory:", None),
    ] {
        let read = read(Kind::Proxmox, text);
        match statement {
            Some(statement) => assert_eq!(read, statement, "{text:?}"),
            None => assert!(matches!(read, Statement::Dropped(_)), "{text:?}: {read:?}"),
        }
    }
}

#[test]
fn lxc_takes_passes_over_or_refuses_a_line() {
    assert_eq!(read(Kind::Lxc, "\tlxc.uts.name='c 1'\r"), setting("lxc.uts.name", "c 1"));
    assert_eq!(read(Kind::Raw, "lxc.cap.drop ="), setting("lxc.cap.drop", ""));
    assert_eq!(read(Kind::Lxc, "  # x = y"), Statement::Comment);
    assert!(matches!(read(Kind::Lxc, "[section]"), Statement::Dropped(_)));
    assert!(matches!(read(Kind::Lxc, "236:* rwm"), Statement::Dropped(_)));
    for text in [
        "lxc.cgroup2.devices.allow: c 195:* rwm",
        "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file",
        "lxc.hook.mount",
    ] {
        assert!(matches!(read(Kind::Lxc, text), Statement::Refused(_)), "{text:?}");
    }
}

#[test]
fn the_kind_is_told_by_path_then_by_content() {
    let of = |path: &str, text: &str| Kind::of(path, &Document::parse(text.as_bytes()), None);
    for path in [
        "/etc/pve/lxc/129.conf",
        "/etc/pve/local/lxc/129.conf",
        "/etc/pve/nodes/px1/lxc/129.conf",
        "etc/pve/lxc/1.conf",
        "/backup/etc/pve/nodes/a/lxc/7.conf",
    ] {
        assert_eq!(of(path, "lxc.uts.name = x\n"), Ok((Kind::Proxmox, Reason::Path)), "{path}");
    }
    for path in ["/etc/pve/lxc/x.conf", "/etc/pve/qemu-server/1.conf", "/srv/pve/lxc/1.conf", "config"] {
        assert_eq!(of(path, "lxc.uts.name = x\n"), Ok((Kind::Lxc, Reason::Content)), "{path}");
    }
    let proxmox = Ok((Kind::Proxmox, Reason::Content));
    assert_eq!(of("x", "arch: amd64\nlxc.cap.drop = a\nlxc.cap.keep = b\n"), proxmox);
    assert_eq!(of("x", "lxc.cgroup2.devices.allow: c 1:3 rwm\n"), proxmox);
    let slip = "lxc.uts.name = x\nlxc.include = y\nlxc.cgroup2.devices.allow: c 1:3 rwm\n";
    assert_eq!(of("x", slip), Ok((Kind::Lxc, Reason::Content)));
    assert_eq!(of("x", "# nothing\n\n"), Ok((Kind::Lxc, Reason::Content)));
    assert_eq!(of("x", "hello world\n"), Err(KindError::NoConfig));
    assert_eq!(of("/etc/pve/lxc/1.conf", "arch: amd64\0"), Err(KindError::Binary));
    let told = Kind::of("/etc/pve/lxc/1.conf", &Document::parse(b"lxc.a = b"), Some(Kind::Raw));
    assert_eq!(told, Ok((Kind::Raw, Reason::Told)));
}

#[test]
fn added_lines_end_as_most_lines_do() {
    assert_eq!(Document::parse(b"a\r\nb\r\nc\n").line_end(), "\r\n");
    assert_eq!(Document::parse(b"a\r\nb\nc").line_end(), "\n");
    assert_eq!(Document::parse(b"").line_end(), "\n");
}
