// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must hold of every migration, also of configs that nobody would write.

use std::collections::BTreeMap;

use super::*;
use crate::device::Minor;
use crate::facts::{Gpu, Majors, PciAddress};
use crate::generated::Bytes;

const INCLUDE: &str = "/usr/share/gpuhook/lxc.conf";

fn options() -> MigrateOptions<'static> {
    MigrateOptions { include: INCLUDE, ..MigrateOptions::default() }
}

/// 509 is uvm, 237 caps, 234 mei; 504 is nobody's. `gpus` are UUID and minor in bus order.
fn host(gpus: &[(&str, u32)]) -> HostFacts {
    let text = "Character devices:\n195 nvidia\n195 nvidiactl\n226 drm\n234 mei\n237 nvidia-caps\n509 nvidia-uvm\n\n\
                Block devices:\n";
    let gpu = |(index, (uuid, minor)): (usize, &(&str, u32))| Gpu {
        address: PciAddress { domain: 0, bus: u8::try_from(index + 1).unwrap_or_default(), device: 0, function: 0 },
        minor: Minor(*minor),
        uuid: Some((*uuid).to_owned()).filter(|uuid| !uuid.is_empty()),
        model: None,
        excluded: false,
    };
    HostFacts {
        majors: Some(Majors::parse(text)),
        gpus: gpus.iter().enumerate().map(gpu).collect(),
        ..HostFacts::default()
    }
}

fn migrated(kind: Kind, bytes: &[u8], host: &HostFacts, options: MigrateOptions<'_>) -> (Vec<u8>, Vec<String>) {
    let document = Document::parse(bytes);
    let lines = DeviceLines::read("c", kind, &document, &BTreeMap::new());
    let migration = Migration::of(&lines, &document, host, options);
    let unchanged = migration.is_unchanged();
    assert_eq!(unchanged, migration.diff("c").is_empty());
    assert_eq!(unchanged, migration.bytes() == bytes);
    assert_eq!(patched(bytes, &migration.diff("c")), migration.bytes());
    (migration.bytes(), migration.notes.iter().map(Note::to_string).collect())
}

/// What patch(1) makes of `old`: each hunk must find its lines where it says.
fn patched(old: &[u8], diff: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
    let mut patch: Vec<&[u8]> = diff.split_inclusive(|byte| *byte == b'\n').skip(2).collect();
    patch.push(b"@@ -0,0 +0,0 @@\n");
    let (mut new, mut at): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    for (index, line) in patch.iter().enumerate() {
        let unended = patch.get(index + 1).is_some_and(|next| next.starts_with(b"\\ No newline"));
        let text = if unended { line[1..].strip_suffix(b"\n").unwrap_or(&line[1..]) } else { &line[1..] };
        match line[0] {
            b'@' => {
                let header = String::from_utf8_lossy(line).into_owned();
                let first = header.split([' ', ',']).nth(1).and_then(|word| word.strip_prefix('-')?.parse().ok());
                let start: usize = first.unwrap_or_default();
                let none = header.contains(",0 +");
                let start = if index + 1 == patch.len() { lines.len() } else { start - usize::from(!none) };
                new.extend(lines[at..start].iter().map(|line| line.to_vec()));
                at = start;
            }
            b' ' | b'-' => {
                assert_eq!(lines[at], text);
                at += 1;
                new.extend((line[0] == b' ').then(|| text.to_vec()));
            }
            b'+' => new.push(text.to_vec()),
            _ => {}
        }
    }
    new.concat()
}

fn text(kind: Kind, text: &str, host: &HostFacts) -> String {
    String::from_utf8(migrated(kind, text.as_bytes(), host, options()).0).expect("text")
}

const KINDS: [Kind; 3] = [Kind::Lxc, Kind::Proxmox, Kind::Raw];

#[test]
fn a_second_migration_changes_nothing() {
    let host = host(&[("GPU-a", 1), ("GPU-b", 0)]);
    for seed in 0..1000 {
        let bytes = Bytes::new(seed).config();
        for kind in KINDS {
            for options in [options(), MigrateOptions { remove_foreign: true, dev_entries: true, ..options() }] {
                let (once, _) = migrated(kind, &bytes, &host, options);
                let (twice, _) = migrated(kind, &once, &host, options);
                let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(shown(&twice), shown(&once), "seed {seed}, {kind}, from\n{}", shown(&bytes));
            }
        }
    }
}

#[test]
fn lines_that_are_not_about_nvidia_stay_in_order_to_the_byte() {
    let host = host(&[("GPU-a", 1), ("GPU-b", 0)]);
    let about = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        ["nvidia", "NVIDIA", "gpuhook", "195", "504", "509", "236", "bind,"].iter().any(|word| text.contains(word))
    };
    for seed in 0..1000 {
        let bytes = Bytes::new(seed).config();
        for kind in KINDS {
            let (new, _) = migrated(kind, &bytes, &host, options());
            let others = |bytes: &[u8]| -> Vec<Vec<u8>> {
                let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !about(line) && !line.is_empty());
                lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect()
            };
            let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(others(&new), others(&bytes), "seed {seed}, {kind}, from\n{}", shown(&bytes));
            let ended = |bytes: &[u8]| bytes.is_empty() || bytes.ends_with(b"\n");
            assert!(new.is_empty() || bytes.is_empty() || ended(&new) == ended(&bytes), "seed {seed}, {kind}");
        }
    }
}

#[test]
fn a_proxmox_file_that_was_sorted_anew_stays_as_it_is() {
    let host = host(&[("GPU-a", 0)]);
    let before = "hostname: a\n# BEGIN gpu\nlxc.cgroup2.devices.allow = c 504:* rwm\n\
                  lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,create=file\n# END gpu\narch: amd64\n";
    let once = text(Kind::Proxmox, before, &host);
    assert_eq!(once, "hostname: a\n# BEGIN gpu\n# END gpu\narch: amd64\nlxc.include: /usr/share/gpuhook/lxc.conf\n");
    let sorted = "#BEGIN gpu\n#END gpu\narch: amd64\nhostname: a\nlxc.include: /usr/share/gpuhook/lxc.conf\n";
    assert_eq!(text(Kind::Proxmox, sorted, &host), sorted);
    assert!(
        same_apart_from_gpus(
            Kind::Proxmox,
            &Document::parse(b"arch: amd64\nhostname: a\n# x\nlxc.include: /usr/share/gpuhook/lxc.conf\n"),
            &Document::parse(b"# x\nhostname: a\nlxc.cgroup2.devices.allow = c 504:* rwm\narch: amd64\n"),
        )
        .is_ok()
    );
    let more = Document::parse(b"# x\nhostname: a\narch: amd64\nmemory: 5\n");
    let backup = Document::parse(b"# x\nhostname: a\narch: amd64\n");
    assert_eq!(same_apart_from_gpus(Kind::Proxmox, &more, &backup), Err("\"memory: 5\"".to_owned()));
}

#[test]
fn the_selection_of_the_old_lines_is_kept() {
    let mount = |minor: u32| format!("lxc.mount.entry = /dev/nvidia{minor} dev/nvidia{minor} none bind,create=file\n");
    // The second in bus order has minor 0: an index would name another GPU than the node did.
    let two = host(&[("GPU-a", 1), ("GPU-b", 0)]);
    let variable = |config: &str, host: &HostFacts| {
        let text = text(Kind::Lxc, config, host);
        assert!(text.ends_with("lxc.include = /usr/share/gpuhook/lxc.conf\n"), "{text}");
        let found = text.lines().find_map(|line| line.strip_prefix("lxc.environment = NVIDIA_VISIBLE_DEVICES="));
        found.map(str::to_owned)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(variable(&mount(1), &two), some("GPU-a"));
    assert_eq!(variable(&mount(0), &two), some("GPU-b"));
    assert_eq!(variable(&format!("{}{}", mount(0), mount(1)), &two), None, "all GPUs need no word");
    assert_eq!(variable(&mount(0), &host(&[("", 0), ("", 1)])), some("0000:01:00.0"));
    assert_eq!(variable(&mount(0), &host(&[("GPU-a", 0)])), None);
    assert_eq!(variable(&mount(2), &host(&[])), some("2"), "nothing better is known");
    assert_eq!(variable(&format!("{}{}", mount(0), mount(7)), &two), some("GPU-b"));
    assert_eq!(variable(&mount(7), &two), some("none"), "it never had one of today's GPUs");
    assert_eq!(variable("lxc.cgroup2.devices.allow = c 195:1 rw\n", &two), some("GPU-a"));
    assert_eq!(variable("lxc.cgroup2.devices.allow = c 195:* rw\n", &two), None);
    assert_eq!(variable("lxc.cgroup2.devices.allow = /dev/nvidia1 rw\n", &two), some("GPU-a"));
    let said = format!("lxc.environment = NVIDIA_VISIBLE_DEVICES=0\n{}", mount(1));
    assert_eq!(variable(&said, &two), some("0"), "what somebody said stays said");
}

#[test]
fn a_proxmox_entry_counts_for_the_selection_and_goes_only_when_told() {
    let two = host(&[("GPU-a", 1), ("GPU-b", 0)]);
    let config = "dev0: /dev/nvidia1\ndev1: path=/dev/nvidia-uvm,gid=44\ndev2: /dev/kfd\nlxc.cgroup2.devices.allow: c \
                  504:* rwm\n";
    let (left, notes) = migrated(Kind::Proxmox, config.as_bytes(), &two, options());
    let added = "lxc.environment: NVIDIA_VISIBLE_DEVICES=GPU-a\nlxc.include: /usr/share/gpuhook/lxc.conf\n";
    let left = String::from_utf8(left).expect("text");
    // What 504 was is not said, and kfd is brought in by Proxmox itself.
    assert!(left.starts_with("dev0: /dev/nvidia1\ndev1: path=/dev/nvidia-uvm,gid=44\ndev2: /dev/kfd\n"), "{left}");
    assert_eq!(notes.iter().filter(|note| note.contains("--dev-entries")).count(), 2, "{notes:?}");
    let told = MigrateOptions { dev_entries: true, ..options() };
    let (taken, _) = migrated(Kind::Proxmox, config.as_bytes(), &two, told);
    let taken = String::from_utf8(taken).expect("text");
    assert!(taken.starts_with("dev2: /dev/kfd\n") && taken.ends_with(added), "{taken}");
}

#[test]
fn another_drivers_number_is_told_of_and_left_unless_it_is_to_go() {
    let host = host(&[("GPU-a", 0)]);
    let config = "lxc.cgroup2.devices.allow = c 195:* rwm\nlxc.cgroup2.devices.allow = c 234:* rwm\n";
    let (left, notes) = migrated(Kind::Lxc, config.as_bytes(), &host, options());
    assert!(String::from_utf8_lossy(&left).contains("c 234:* rwm"));
    assert!(notes.iter().any(|note| note.starts_with("line 2: 234 is mei today")), "{notes:?}");
    let told = MigrateOptions { remove_foreign: true, ..options() };
    let (taken, _) = migrated(Kind::Lxc, config.as_bytes(), &host, told);
    assert_eq!(String::from_utf8_lossy(&taken), "lxc.include = /usr/share/gpuhook/lxc.conf\n");
    // A node of that driver says that it is wanted.
    let wanted = format!("{config}lxc.mount.entry = /dev/mei0 dev/mei0 none bind,create=file\n");
    let (kept, notes) = migrated(Kind::Lxc, wanted.as_bytes(), &host, told);
    assert!(String::from_utf8_lossy(&kept).contains("c 234:* rwm") && notes.is_empty(), "{notes:?}");
    // Nothing of NVIDIA, nothing to do.
    let alone = "lxc.cgroup2.devices.allow = c 234:* rwm\nlxc.cgroup2.devices.allow = c 504:* rwm\n";
    assert_eq!(migrated(Kind::Lxc, alone.as_bytes(), &host, told), (alone.as_bytes().to_vec(), vec![]));
}

#[test]
fn what_is_no_rule_goes_when_it_was_meant_for_nvidia() {
    let host = host(&[("GPU-a", 0)]);
    let config = "236:* rwm\nlxc.cgroup2.devices.allow : c 509:* rwm\nlxc.cgroup2.devices.allow: c  195:* rwm\n\
                  lxc.cgroup2.devices.allow: c 255:* rwm\nlxc.cgroup2.devices.allow: c 188:* rwm\nhello\n";
    assert_eq!(
        text(Kind::Proxmox, config, &host),
        "lxc.cgroup2.devices.allow: c 188:* rwm\nhello\nlxc.include: /usr/share/gpuhook/lxc.conf\n"
    );
}

#[test]
fn what_first_shows_nvidia_decides_for_all_lines_at_once() {
    let host = host(&[("GPU-a", 0)]);
    let include = "lxc.include = /usr/share/gpuhook/lxc.conf\n";
    // 509 is uvm today, and with it 504 was meant for NVIDIA.
    let config = "lxc.cgroup2.devices.allow = c 504:* rwm\nlxc.cgroup2.devices.allow = c 509:* rwm\n";
    assert_eq!(text(Kind::Lxc, config, &host), include);
    // A rule without effect goes, and brings no GPU in.
    let cleared = "lxc.cgroup2.devices.allow = c 195:* rwm\nlxc.cgroup2.devices.allow =\n";
    assert_eq!(text(Kind::Lxc, cleared, &host), "lxc.cgroup2.devices.allow =\n");
}

#[test]
fn line_ends_and_a_missing_last_one_are_kept() {
    let host = host(&[("GPU-a", 0)]);
    assert_eq!(
        text(Kind::Lxc, "lxc.a = b\r\nlxc.cgroup2.devices.allow = c 195:* rwm\r\nlxc.c = d", &host),
        "lxc.a = b\r\nlxc.c = d\r\nlxc.include = /usr/share/gpuhook/lxc.conf"
    );
    assert_eq!(
        text(Kind::Proxmox, "lxc.cgroup2.devices.allow: c 195:* rwm\n\n[snap]\narch: a", &host),
        "lxc.include: /usr/share/gpuhook/lxc.conf\n\n[snap]\narch: a"
    );
}

#[test]
fn raw_text_keeps_the_indentation_of_its_yaml() {
    let host = host(&[("GPU-a", 0)]);
    let yaml = "raw.lxc: |\n    lxc.cgroup2.devices.allow = c 195:* rwm\n    lxc.cap.drop = mknod\n";
    let expected = "raw.lxc: |\n    lxc.cap.drop = mknod\n    lxc.include = /usr/share/gpuhook/lxc.conf\n";
    assert_eq!(text(Kind::Raw, yaml, &host), expected);
    assert_eq!(text(Kind::Raw, expected, &host), expected);
}

#[test]
fn what_stands_elsewhere_is_told_of() {
    let host = host(&[("GPU-a", 0)]);
    let pending = "lxc.cgroup2.devices.allow: c 195:* rwm\n[pve:pending]\nlxc.cgroup2.devices.allow: c 504:* rwm\n";
    let (_, notes) = migrated(Kind::Proxmox, pending.as_bytes(), &host, options());
    assert!(
        notes.iter().any(|note| note.starts_with("line 3: [pve:pending]") && note.contains("next start")),
        "{notes:?}"
    );
}

#[test]
fn what_gpuhook_does_not_bring_in_is_left() {
    let mut host = host(&[("GPU-a", 0)]);
    let entry = |path: &str| format!("lxc.mount.entry = /dev/{path} dev/{path} none bind,create=dir\n");
    let config = [
        "lxc.cgroup2.devices.allow = c 195:* rwm\n".to_owned(),
        entry("nvidia-caps"),
        entry("nvidia-caps-imex-channels"),
        entry("nvidia-nvswitch0"),
        entry("nvidia-caps-imex-channels/channel3"),
        entry("nvidia-modeset"),
        "lxc.mount.entry = /dev/nvidia0 srv/guest/dev/nvidia0 none bind,create=file\n".to_owned(),
    ]
    .concat();
    let added = "lxc.environment = NVIDIA_DRIVER_CAPABILITIES=compute,utility,display\n\
                 lxc.environment = NVIDIA_IMEX_CHANNELS=3\nlxc.include = /usr/share/gpuhook/lxc.conf\n";
    let guest = "lxc.mount.entry = /dev/nvidia0 srv/guest/dev/nvidia0 none bind,create=file\n";
    let left = [entry("nvidia-caps-imex-channels"), entry("nvidia-nvswitch0"), guest.to_owned(), added.to_owned()];
    assert_eq!(text(Kind::Lxc, &config, &host), left.concat());
    // Instances of MIG are not brought in, so the capabilities stay where they are in use.
    host.capabilities.push(crate::facts::Capability { name: "gpu0/mig/gi1".to_owned(), minor: Minor(12), mode: 292 });
    assert_eq!(text(Kind::Lxc, &config, &host), [entry("nvidia-caps"), left.concat()].concat());
}
