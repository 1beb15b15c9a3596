// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook nodes` makes and repairs real device nodes, in a folder that stands for `/dev`, by a made-up host's numbers.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::program;
use gpuhook_tests::rootfs::make_node;

/// Every node of a host with two GPUs: number and mode.
const ALL: [(&str, (u32, u32), u32); 8] = [
    ("nvidiactl", (195, 255), 0o660),
    ("nvidia0", (195, 0), 0o660),
    ("nvidia1", (195, 1), 0o660),
    ("nvidia-uvm", (509, 0), 0o660),
    ("nvidia-uvm-tools", (509, 1), 0o660),
    ("nvidia-modeset", (195, 254), 0o660),
    ("nvidia-caps/nvidia-cap1", (237, 1), 0o400),
    ("nvidia-caps/nvidia-cap2", (237, 2), 0o444),
];

/// The host, and the folder that stands for its `/dev`.
struct Room {
    host: Host,
    dev: PathBuf,
    _bed: Bed,
}

impl Room {
    fn new(name: &str) -> Option<Self> {
        let bed = Bed::pure(name)?;
        let host = Host::new(bed.dir("host"), Majors::NEW, 2);
        // 432 is 0660: what the parameters say, and not the default.
        let params = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n";
        host.overwrite("proc/driver/nvidia/params", params);
        Some(Self { dev: bed.dir("dev"), host, _bed: bed })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut nodes = program::command(program::gpuhook(), &["nodes"]);
        nodes.args(arguments).arg("--dev").arg(&self.dev).arg("--host-root").arg(self.host.root());
        program::output(nodes)
    }

    fn fine(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", program::both(&output));
        program::both(&output)
    }

    fn problem(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", program::both(&output));
        program::both(&output)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dev.join(name)
    }

    fn assert_whole(&self) {
        for (name, (major, minor), mode) in ALL {
            let found = fs::symlink_metadata(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found.file_type().is_char_device(), "{name}");
            let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
            let group = if name.starts_with("nvidia-caps") { 0 } else { 44 };
            assert_eq!((number, found.mode() & 0o7777), ((major, minor), mode), "{name}");
            assert_eq!((found.uid(), found.gid()), (0, group), "{name}");
            let link = fs::read_link(self.path(&format!("char/{major}:{minor}"))).expect("a link");
            assert_eq!(link, Path::new("..").join(name));
        }
    }

    /// Everything in the folder, with what a change would change.
    fn snapshot(&self) -> Vec<(PathBuf, u64, u32, i64, i64)> {
        fn walk(dir: &Path, found: &mut Vec<(PathBuf, u64, u32, i64, i64)>) {
            for entry in fs::read_dir(dir).expect("folder").flatten() {
                let is = fs::symlink_metadata(entry.path()).expect("entry");
                found.push((entry.path(), is.ino(), is.mode(), is.ctime(), is.ctime_nsec()));
                if is.is_dir() {
                    walk(&entry.path(), found);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.dev, &mut found);
        found.sort();
        found
    }
}

#[test]
fn nodes_and_links_are_made_by_the_live_numbers_and_a_second_run_changes_nothing() {
    let Some(room) = Room::new("make") else { return };
    assert!(room.problem(&["--check"]).contains("missing"));
    assert_eq!(room.snapshot(), [], "--check only looks");
    room.fine(&[]);
    room.assert_whole();
    let before = room.snapshot();
    room.fine(&[]);
    room.fine(&["--check"]);
    assert_eq!(room.snapshot(), before);
}

#[test]
fn nodes_of_an_earlier_boot_are_replaced_and_their_links_removed() {
    let Some(mut room) = Room::new("old") else { return };
    room.host.renumber(Majors::OLD);
    room.fine(&[]);
    room.host.renumber(Majors::NEW);
    symlink("../null", room.path("char/1:3")).expect("a link of somebody else");
    let said = room.problem(&["--check"]);
    assert!(said.contains("stale: it is c 504:0"), "{said}");
    let said = room.fine(&[]);
    assert!(said.contains("repaired") && said.contains("/dev/char/504:0"), "{said}");
    room.assert_whole();
    let links: Vec<String> = fs::read_dir(room.path("char"))
        .expect("links")
        .flatten()
        .map(|link| link.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!links.iter().any(|link| link.starts_with("504:") || link.starts_with("507:")), "{links:?}");
    assert!(links.contains(&"1:3".to_owned()), "a link of somebody else stays");
}

#[test]
fn modes_owners_links_and_left_over_files_are_repaired() {
    let Some(room) = Room::new("repair") else { return };
    room.fine(&[]);
    fs::set_permissions(room.path("nvidia0"), fs::Permissions::from_mode(0o1232)).expect("mode");
    std::os::unix::fs::chown(room.path("nvidia1"), Some(1000), Some(1000)).expect("owner");
    fs::remove_file(room.path("char/195:255")).expect("removal");
    fs::remove_file(room.path("nvidia-uvm")).expect("removal");
    fs::write(room.path("nvidia-uvm"), "").expect("what create=file leaves");
    fs::set_permissions(room.path("nvidia-uvm"), fs::Permissions::from_mode(0o000)).expect("mode");
    // Left by a run that was killed between its two calls.
    make_node(&room.path("nvidia-uvm.gpuhook"), (1, 3));
    let said = room.problem(&["--check"]);
    for words in ["mode 1232", "without its link", "create=file"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    room.fine(&[]);
    room.assert_whole();
    assert!(!room.path("nvidia-uvm.gpuhook").exists());
}

/// What somebody put there with a purpose is named, and is theirs to remove.
#[test]
fn a_file_with_content_a_directory_and_a_link_are_reported_and_left() {
    let Some(room) = Room::new("occupied") else { return };
    fs::write(room.path("nvidia0"), "mine").expect("file");
    fs::create_dir(room.path("nvidia1")).expect("folder");
    symlink("/etc/passwd", room.path("nvidia-uvm")).expect("link");
    fs::write(room.path("nvidia-uvm-tools"), "").expect("an empty file of another mode");
    let said = room.problem(&[]);
    for (node, words) in [
        ("nvidia0 ", "a regular file"),
        ("nvidia1 ", "a directory"),
        ("nvidia-uvm ", "a symbolic link"),
        ("nvidia-uvm-tools ", "a regular file"),
    ] {
        let line = said.lines().find(|line| line.contains(node)).unwrap_or_else(|| panic!("{node}: {said}"));
        assert!(line.contains(words) && line.contains("hint:"), "{line}");
    }
    assert_eq!(fs::read_to_string(room.path("nvidia0")).expect("file"), "mine");
    assert!(room.path("nvidia1").is_dir() && room.path("nvidia-uvm").is_symlink());
    assert!(fs::symlink_metadata(room.path("nvidiactl")).expect("the others are made").file_type().is_char_device());
}

#[test]
fn a_module_that_is_not_loaded_is_a_problem_and_the_rest_is_made() {
    let Some(room) = Room::new("no-uvm") else { return };
    let without: String =
        room.host.devices().split_inclusive('\n').filter(|line| !line.contains("nvidia-uvm")).collect();
    room.host.overwrite("proc/devices", &without);
    let said = room.problem(&[]);
    assert!(said.contains("problem: nvidia-uvm is not loaded"), "{said}");
    assert!(room.path("nvidia0").exists() && !room.path("nvidia-uvm").exists());
}

#[test]
fn json_says_what_was_found_and_what_is() {
    let Some(room) = Room::new("json") else { return };
    let output = room.run(&["--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an answer");
    let nodes = answer["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), ALL.len());
    assert!(nodes.iter().all(|node| node["found"] == "missing" && node["right"] == true), "{answer:#}");
}

/// The unit runs this before anything that starts containers.
#[test]
fn the_boot_unit_is_ordered_before_every_manager() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install/systemd/gpuhook-nodes.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    let before: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("Before=")).flat_map(str::split_whitespace).collect();
    for manager in
        ["pve-guests.service", "lxc.service", "docker.service", "podman-restart.service", "containerd.service"]
    {
        assert!(before.contains(&manager), "{manager}");
    }
    if program::installed("systemd-analyze") {
        let folder = tempfile::tempdir().expect("a folder");
        let installed = folder.path().join("gpuhook-nodes.service");
        fs::write(&installed, text.replace("@BINDIR@/gpuhook", "/bin/true")).expect("unit");
        let mut verify = program::command("systemd-analyze", &["verify", "--man=no"]);
        verify.arg(&installed);
        let said = program::both(&program::output(verify));
        assert!(!said.contains("gpuhook-nodes.service"), "{said}");
    }
}
