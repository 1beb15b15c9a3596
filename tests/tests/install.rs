// SPDX-License-Identifier: MIT OR Apache-2.0
//! `make install` places everything that a package puts on a host, `make uninstall` takes it away again, and the binary
//! needs nothing of the host's C library.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gpuhook_tests::program::{both, command, gpuhook, output, stdout};

const INSTALLED: &[&str] = &[
    "etc/gpuhook/config.toml",
    "usr/bin/gpuhook",
    "usr/bin/gpuhook-runtime",
    "usr/lib/systemd/system/gpuhook-nodes.service",
    "usr/share/doc/gpuhook/LICENSE-APACHE",
    "usr/share/doc/gpuhook/LICENSE-MIT",
    "usr/share/doc/gpuhook/README.md",
    "usr/share/doc/gpuhook/SECURITY.md",
    "usr/share/doc/gpuhook/compatibility.md",
    "usr/share/doc/gpuhook/design-notes.md",
    "usr/share/doc/gpuhook/findings.md",
    "usr/share/doc/gpuhook/flow.md",
    "usr/share/doc/gpuhook/kernel-features.md",
    "usr/share/doc/gpuhook/requests.md",
    "usr/share/gpuhook/hooks.d/gpuhook.json",
    "usr/share/gpuhook/lxc.conf",
    "usr/share/man/man8/gpuhook.8",
];

#[test]
fn install_places_everything_and_uninstall_leaves_only_the_administrators_file() {
    let destination = tempfile::tempdir().expect("a folder");
    let root = destination.path();
    make("install", root, &[]);
    let wanted: BTreeSet<PathBuf> = INSTALLED.iter().map(PathBuf::from).collect();
    assert_eq!(files(root), wanted);
    let binary = root.join("usr/bin/gpuhook");
    assert_eq!(mode(&binary), 0o755);
    assert_eq!(fs::read(&binary).expect("installed"), fs::read(gpuhook()).expect("built"));
    for file in INSTALLED.iter().filter(|file| !file.starts_with("usr/bin/")) {
        assert_eq!(mode(&root.join(file)), 0o644, "{file}");
    }
    assert_eq!(fs::read_link(root.join("usr/bin/gpuhook-runtime")).ok(), Some(PathBuf::from("gpuhook")));
    let version = stdout(command(&binary, &["--version"]));
    assert_eq!(version, format!("gpuhook {}\n", env!("CARGO_PKG_VERSION")));

    make("uninstall", root, &[]);
    assert_eq!(files(root), BTreeSet::from([PathBuf::from("etc/gpuhook/config.toml")]));
    assert!(!root.join("usr/share/gpuhook").exists() && !root.join("usr/share/doc/gpuhook").exists());
}

#[test]
fn the_include_file_names_the_installed_binary_and_sets_no_hook_version() {
    for (prefix, binary) in [("/usr", "/usr/bin/gpuhook"), ("/opt/gpuhook", "/opt/gpuhook/bin/gpuhook")] {
        let destination = tempfile::tempdir().expect("a folder");
        make("install", destination.path(), &[&format!("prefix={prefix}")]);
        let path = destination.path().join(&prefix[1..]).join("share/gpuhook/lxc.conf");
        let text = fs::read_to_string(path).expect("the include file");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let stages = ["pre-start", "start-host", "post-stop"];
        assert_eq!(lines, stages.map(|stage| format!("lxc.hook.{stage} = {binary} lxc")));
        assert!(text.contains(&format!("lxc.include = {prefix}/share/gpuhook/lxc.conf")), "{text}");
        assert!(!text.contains('@'), "a place that was not filled in:\n{text}");
    }
}

/// podman's oci-hooks(5), schema 1.0.0.
#[test]
fn the_hook_of_podman_names_the_installed_binary_and_a_stage_that_comes_before_the_container() {
    let destination = tempfile::tempdir().expect("a folder");
    make("install", destination.path(), &["prefix=/opt/gpuhook"]);
    let path = destination.path().join("opt/gpuhook/share/gpuhook/hooks.d/gpuhook.json");
    let hook: serde_json::Value = serde_json::from_slice(&fs::read(path).expect("the hook")).expect("JSON");
    assert_eq!((&hook["version"], &hook["stages"]), (&"1.0.0".into(), &serde_json::json!(["precreate"])));
    assert_eq!(hook["hook"]["path"], "/opt/gpuhook/bin/gpuhook");
    assert_eq!(hook["hook"]["args"], serde_json::json!(["gpuhook", "oci", "precreate"]));
    assert!(hook["hook"]["env"].as_array().is_some_and(|env| !env.is_empty()), "{hook}");
    assert_eq!(hook["when"], serde_json::json!({ "always": true }));
}

#[test]
fn install_keeps_the_administrators_file() {
    let destination = tempfile::tempdir().expect("a folder");
    let config = destination.path().join("srv/etc/gpuhook/config.toml");
    fs::create_dir_all(config.parent().expect("its folder")).expect("its folder");
    fs::write(&config, "load-modules = false\n").expect("his file");
    make("install", destination.path(), &["sysconfdir=/srv/etc"]);
    assert_eq!(fs::read_to_string(&config).expect("his file"), "load-modules = false\n");
    assert!(!destination.path().join("etc").exists());
}

#[test]
fn the_man_page_has_every_command_and_option_of_the_help() {
    let destination = tempfile::tempdir().expect("a folder");
    make("install", destination.path(), &[]);
    let page = fs::read_to_string(destination.path().join("usr/share/man/man8/gpuhook.8")).expect("the man page");
    let plain = page.replace("\\-", "-");
    for line in stdout(command(gpuhook(), &["--help"])).lines() {
        assert!(plain.lines().any(|of_page| of_page == line), "{line:?} is not in the man page:\n{page}");
    }
}

#[test]
fn installing_what_was_not_built_says_how_to_build_it() {
    let destination = tempfile::tempdir().expect("a folder");
    let mut make = command("make", &["-C", workspace(), "install", "prefix=/usr", "BINARY=/nonexistent/gpuhook"]);
    make.arg(format!("DESTDIR={}", destination.path().display()));
    let output = output(make);
    assert!(!output.status.success());
    assert!(both(&output).contains("/nonexistent/gpuhook is not there; hint: make build"), "{}", both(&output));
    assert_eq!(files(destination.path()), BTreeSet::new());
}

/// It runs as root before any file of a container is trusted: no loader and no library of any kind has a say in it.
#[test]
fn the_host_binary_is_static() {
    const PT_DYNAMIC: u64 = 2;
    const PT_INTERP: u64 = 3;
    const DT_NEEDED: u64 = 1;
    let elf = fs::read(gpuhook()).expect("the binary");
    let number =
        |at: usize, size: usize| elf[at..at + size].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    let place = |at: usize| usize::try_from(number(at, 8)).expect("an offset");
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01", "64 bit, little-endian");
    let (table, size, count) = (place(32), number(54, 2), number(56, 2));
    assert!(count > 0, "no program headers");
    for index in 0..count {
        let at = table + usize::try_from(index * size).expect("an offset");
        assert_ne!(number(at, 4), PT_INTERP, "it asks for a loader");
        if number(at, 4) == PT_DYNAMIC {
            let (offset, length) = (place(at + 8), place(at + 32));
            let needed = (offset..offset + length).step_by(16).filter(|entry| number(*entry, 8) == DT_NEEDED).count();
            assert_eq!(needed, 0, "it needs a shared library");
        }
    }
}

fn make(target: &str, root: &Path, words: &[&str]) {
    let mut make = command("make", &["-C", workspace(), target, "prefix=/usr"]);
    make.env_remove("MAKEFLAGS");
    make.arg(format!("DESTDIR={}", root.display())).arg(format!("BINARY={}", gpuhook().display())).args(words);
    stdout(make);
}

fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root).expect("a folder") {
        let path = entry.expect("its entry").path();
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|below| path.join(below))),
            false => _ = found.insert(path),
        }
    }
    found.into_iter().map(|path| path.strip_prefix(root).expect("below it").to_owned()).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o7777
}

fn workspace() -> &'static str {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::to_str).expect("the workspace's root")
}
