// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doctor on what people posted: each row lays the files of one folder of `fixtures/cases` out below a host's root,
//! adds what the poster only described, and states the one cause. No row may have another error-level finding, but for
//! further lines of the same config.
//!
//! Not in the table, since nothing of them is a fact of a host that a doctor could read: 068 (the state directory of another
//! manager), 087 (a listing of procfs, see `plans.rs`), 145, 149, 152, 186 and 188 (the error text of another program,
//! whose cause is in that program); 011, 098 and 099 (vectors for parsers, see `facts.rs` and the unit tests of
//! `gpuhook_core::device_lines`). Of group 7 what concerns CDI files and hook files is here: 123, 125, 126.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuhook_core::findings::FindingId;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::program;
use serde_json::Value;
use tempfile::TempDir;

#[path = "doctor_cases/configs.rs"]
mod configs;
#[path = "doctor_cases/kinds.rs"]
mod kinds;
#[path = "doctor_cases/posted.rs"]
mod posted;

/// What must come out.
#[derive(Clone, Copy, Debug)]
enum Expect {
    /// One cause: id and subject.
    Cause(&'static str, &'static str),
    /// No cause, and this finding below an error.
    Note(&'static str, &'static str),
    /// No cause.
    Fine,
}
use Expect::{Cause, Fine, Note};

/// One folder and how it is read.
struct Row {
    case: &'static str,
    /// Posted file -> place below the host's root. `probe.json` and `etc/pve/lxc/100.conf` are arguments, not facts.
    lay: &'static [(&'static str, &'static str)],
    /// What the poster described: place -> text.
    add: &'static [(&'static str, &'static str)],
    expect: Expect,
    /// Words that the verdict or the finding must have.
    says: &'static [&'static str],
    /// Why, where the case's own proposal is not followed or had to be completed.
    why: &'static str,
}

const PLAIN: Row = Row { case: "", lay: &[], add: &[], expect: Fine, says: &[], why: "" };
const DEVICES: (&str, &str) = ("proc_devices", "proc/devices");
const LISTED: (&str, &str) = ("ls_dev.txt", "dev.list");
const INSIDE: (&str, &str) = ("ls_dev_container.txt", "dev.list");
const UVM_509: (&str, &str) =
    ("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n");
const CONFIG: (&str, &str) = ("pve.conf", PVE);
const FAILS_999: (&str, &str) = ("probe.json", r#"{"rungs":[],"cuinit":999}"#);

const AMD: (&str, &str) =
    ("proc/devices", "Character devices:\n226 drm\n234 kfd\n261 accel\n\nBlock devices:\n  8 sd\n");
const V1_DEVICES: &str = "30 23 0:26 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";
/// Where a config lies that is Proxmox's by its path, LXC's by its content, Incus's by `--kind`.
const PVE: &str = "etc/pve/lxc/100.conf";
const LXC: &str = "container.conf";
const RAW: &str = "raw.conf";

fn rows() -> impl Iterator<Item = &'static Row> {
    [configs::ROWS, posted::ROWS, kinds::ROWS].into_iter().flatten()
}

#[test]
fn every_case_has_its_one_cause() {
    let mut wrong = Vec::new();
    for row in rows() {
        if let Err(story) = judge(row) {
            wrong.push(format!("{} ({:?}; {}): {story}", row.case, row.expect, row.why));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows().count(), wrong.join("\n\n"));
}

/// The story of the design: after the reboot 504 and 507 are nobody's, and nvidia-uvm has 509.
#[test]
fn the_rules_of_before_the_kernel_upgrade_are_named_with_what_is_right_today() {
    let host = tempfile::tempdir().expect("a folder");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hosts/upgraded"), host.path());
    let bind = |node: &str| format!("lxc.mount.entry: /dev/{node} dev/{node} none bind,optional,create=file\n");
    let rules: String = [195, 504, 507].map(|major| format!("lxc.cgroup2.devices.allow: c {major}:* rwm\n")).concat();
    let binds = ["nvidia0", "nvidiactl", "nvidia-uvm"].map(bind).concat();
    write(&host.path().join("etc/pve/lxc/100.conf"), &format!("arch: amd64\nunprivileged: 0\n{rules}{binds}"));
    let answer: Value = serde_json::from_slice(&doctor(host.path()).stdout).expect("an answer");
    let first = &answer["findings"][0];
    assert_eq!((&first["id"], &first["severity"]), (&"stale-rule".into(), &"error".into()), "{answer:#}");
    assert_eq!((&first["subject"], &first["line"]), (&"lxc.cgroup2.devices.allow: c 504:* rwm".into(), &4.into()));
    let verdict = answer["verdict"].as_str().expect("a verdict");
    assert!(verdict.contains("100.conf:4") && verdict.contains("509"), "{verdict}");
    assert!(first["fix"].as_str().is_some_and(|fix| fix.starts_with("gpuhook config migrate")), "{first}");
}

#[test]
fn what_cannot_be_read_is_said_in_one_sentence() {
    let host = tempfile::tempdir().expect("a folder");
    write(&host.path().join("empty/x"), "");
    write(&host.path().join("garbage.conf"), "\0\u{1b}[2J\u{fffd}");
    write(&host.path().join("proc/devices"), "195 nvidia\n");
    write(&host.path().join("none.json"), "{}");
    write(&host.path().join("list.json"), "[]");
    write(&host.path().join("odd/proc/devices/x"), "");
    let at = |path: &str| host.path().join(path).display().to_string();
    for (arguments, code) in [
        (vec!["--host-root".to_owned(), at("empty")], 3),
        (vec!["--host-root".to_owned(), at("nowhere")], 3),
        (vec!["--host-root".to_owned(), at("odd")], 3),
        (vec!["--host-root".to_owned(), at(""), "--probe".to_owned(), at("none.json")], 3),
        (vec!["--host-root".to_owned(), at(""), "--probe".to_owned(), at("list.json")], 3),
        (vec!["--host-root".to_owned(), at(""), "--probe".to_owned(), at("garbage.conf")], 3),
        (vec!["--host-root".to_owned(), at(""), "--container-config".to_owned(), at("garbage.conf")], 3),
        (vec!["--host-root".to_owned(), at(""), "--container-config".to_owned(), at("nowhere")], 3),
        (vec!["--lxc".to_owned(), "no-such-container".to_owned()], 3),
        (vec!["--lxc".to_owned(), "../etc".to_owned()], 2),
        (vec!["--pid".to_owned(), "4194304".to_owned()], 3),
        (vec!["--lxc".to_owned(), "a".to_owned(), "--pid".to_owned(), "1".to_owned()], 2),
    ] {
        let mut doctor = program::command(program::gpuhook(), &["doctor"]);
        doctor.args(&arguments);
        let output = program::output(doctor);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", program::both(&output));
        assert!(said.starts_with("gpuhook: ") && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}

/// No colour and no control character reaches a pipe, whatever a file holds.
#[test]
fn text_for_a_pipe_is_plain() {
    let host = tempfile::tempdir().expect("a folder");
    write(&host.path().join("proc/devices"), "Character devices:\n195 nvidia\n509 nvidia-uvm\n\nBlock devices:\n");
    write(&host.path().join("dmesg.txt"), "NVRM: Xid (PCI:0000:07:00): 79, \u{1b}[31mred\u{7}\n");
    write(&host.path().join("etc/cdi/\u{1b}[2J.yaml"), "kind: nvidia.com/gpu\n- path: /dev/nvidia-uvm\n  major: 1\n");
    let mut doctor = program::command(program::gpuhook(), &["doctor", "--host-root"]);
    doctor.arg(host.path());
    let output = program::output(doctor);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("gpu-fault") && text.contains("stale-cdi") && text.contains("ruled out:"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("  ok   L0 driver")), "{text}");
    assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
    assert_eq!(output.status.code(), Some(1));
}

fn judge(row: &Row) -> Result<(), String> {
    let host = tempfile::tempdir().expect("a folder");
    for (file, place) in row.lay {
        copy(&folder(row.case).join(file), &host.path().join(place));
    }
    for (place, text) in row.add {
        write(&host.path().join(place), text);
    }
    let output = doctor(host.path());
    let said = program::both(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {said}"))?;
    let findings = answer["findings"].as_array().expect("findings");
    let errors: Vec<&Value> = findings.iter().filter(|finding| finding["severity"] == "error").collect();
    let is = |finding: &Value, id: &str, subject: &str| finding["id"] == id && finding["subject"] == subject;
    let right = match (row.expect, errors.as_slice()) {
        // Further lines of the same config may be as wrong.
        (Cause(id, subject), [first, rest @ ..]) => {
            is(first, id, subject) && rest.iter().all(|other| other["id"] == id && other["line"].is_u64())
        }
        (Cause(..), []) => false,
        (Note(id, subject), []) => findings.iter().any(|finding| is(finding, id, subject)),
        (Fine, []) => findings.iter().all(|finding| finding["severity"] == "info"),
        _ => false,
    };
    let code = if matches!(row.expect, Cause(..)) { 1 } else { 0 };
    let missing = row.says.iter().find(|words| !said.contains(*words));
    // What helps against a line of a config may be to change it by hand.
    let mut own = errors.iter().filter(|finding| finding["line"].is_null());
    let fixes = own.all(|finding| finding["fix"].as_str().is_some_and(|fix| !fix.is_empty()));
    let again = reported(&host);
    if gist(&again) != gist(&answer) {
        return Err(format!("the report of it gives another diagnosis\n{again:#}\n{answer:#}"));
    }
    match right && fixes && missing.is_none() && output.status.code() == Some(code) {
        true => Ok(()),
        false => Err(format!("exit {:?}, missing {missing:?}\n{said}", output.status.code())),
    }
}

fn doctor(host: &Path) -> Output {
    program::output(on(host, &["doctor", "--json"]))
}

/// gpuhook with the host's root, and with the arguments that lie in it.
fn on(host: &Path, words: &[&str]) -> Command {
    let mut command = program::command(program::gpuhook(), words);
    command.arg("--host-root").arg(host);
    let config = "--container-config";
    for (option, file) in [("--probe", "probe.json"), (config, PVE), (config, LXC), (config, RAW)] {
        if host.join(file).exists() {
            command.arg(option).arg(host.join(file));
        }
    }
    if host.join(RAW).exists() {
        command.args(["--kind", "raw"]);
    }
    command
}

/// What the doctor says of the unpacked report.
fn reported(host: &TempDir) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let tar = folder.path().join("report.tar");
    let out = tar.display().to_string();
    program::stdout(on(host.path(), &["report", "--output", &out]));
    let mut unpack = program::command("tar", &["-xf"]);
    unpack.arg(&tar).arg("-C").arg(folder.path());
    program::stdout(unpack);
    let output = doctor(folder.path());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", program::both(&output)))
}

/// What of a diagnosis does not depend on where the files lie.
fn gist(answer: &Value) -> Vec<[&Value; 4]> {
    let findings = answer["findings"].as_array().expect("findings");
    findings.iter().map(|finding| ["id", "severity", "subject", "line"].map(|field| &finding[field])).collect()
}

fn folder(case: &str) -> PathBuf {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cases");
    let found = fs::read_dir(&cases)
        .expect("cases")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{case}-"))));
    found.unwrap_or_else(|| panic!("no folder {case}-* in {}", cases.display()))
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folder");
    fs::write(path, text).expect("file");
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).expect("folder").flatten() {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    let text = fs::read(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("folder");
    fs::write(to, text).expect("file");
}

/// A report names no card, no machine and no address, and the same stays the same.
#[test]
fn a_report_is_fit_for_the_public() {
    let host = tempfile::tempdir().expect("a folder");
    let uuid = "GPU-1b2c3d4e-1111-2222-3333-444455556666";
    write(&host.path().join("proc/devices"), "Character devices:\n195 nvidia\n509 nvidia-uvm\n\nBlock devices:\n");
    write(
        &host.path().join("proc/driver/nvidia/gpus/0000:07:00.0/information"),
        &format!("GPU UUID: \t {uuid}\nDevice Minor: \t 0\n"),
    );
    write(&host.path().join("etc/cdi/nvidia.yaml"), &format!("kind: nvidia.com/gpu\n- name: {uuid}\n"));
    write(&host.path().join("dmesg.txt"), "NVRM: on 10.11.12.13\nsecret of another program\n");
    let config = "hostname: ct\nnet0: name=eth0,hwaddr=BC:24:11:00:00:02,ip=10.11.12.13/24\nlxc.cgroup2.devices.allow: c 509:* rwm\n";
    write(&host.path().join("etc/pve/lxc/100.conf"), config);
    let tar = host.path().join("report.tar");
    let out = tar.display().to_string();
    let said = program::stdout(on(host.path(), &["report", "--output", &out]));
    assert!(said.contains("look through it before you publish it"), "{said}");
    let text = program::stdout({
        let mut list = program::command("tar", &["-xOf"]);
        list.arg(&tar);
        list
    });
    for secret in ["1b2c3d4e", "BC:24:11", "10.11.12.13", "secret of another", "hostname: ct"] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
    assert_eq!(text.matches("GPU-00000000-0000-4000-8000-000000000001").count(), 2, "{text}");
    assert_eq!(text.matches("192.0.2.1").count(), 2, "{text}");
    assert!(text.contains("509 nvidia-uvm") && text.contains("c 509:* rwm"), "{text}");
}

/// `pve` is the usual name of a Proxmox host, and a directory that tells Proxmox's grammar: the one goes, the other stays.
#[test]
fn a_report_of_a_host_called_pve_gives_the_same_diagnosis() {
    let Some(_bed) = Bed::pure("uts") else { return };
    let host = tempfile::tempdir().expect("a folder");
    write(&host.path().join(UVM_509.0), UVM_509.1);
    write(
        &host.path().join("dmesg.txt"),
        "Jan 09 07:12:01 pve kernel: NVRM: Xid (PCI:0000:07:00): 31, pid=7, MMU Fault\n",
    );
    write(
        &host.path().join(PVE),
        "# 10.0.0.1 is the gateway\nhostname: private-name\nlxc.cgroup2.devices.allow : c 509:* rwm\n",
    );
    let unpacked = tempfile::tempdir().expect("a folder");
    let tar = unpacked.path().join("report.tar").display().to_string();
    let report = on(host.path(), &["report", "--output", &tar]);
    let mut named = program::command("unshare", &["--uts", "sh", "-c"]);
    named.arg("echo pve >/proc/sys/kernel/hostname && exec \"$@\"").arg("sh");
    named.arg(report.get_program()).args(report.get_args());
    program::stdout(named);
    let mut unpack = program::command("tar", &["-xf", &tar, "-C"]);
    unpack.arg(unpacked.path());
    program::stdout(unpack);
    let answer = |root: &Path| -> Value { serde_json::from_slice(&doctor(root).stdout).expect("an answer") };
    let (before, after) = (answer(host.path()), answer(unpacked.path()));
    assert_eq!(gist(&after), gist(&before));
    assert!(before["findings"].to_string().contains("ignored-line"), "Proxmox's grammar: {before:#}");
    let text = |name: &str| fs::read_to_string(unpacked.path().join(name)).expect(name);
    assert_eq!(text("dmesg.txt"), "Jan 09 07:12:01 host kernel: NVRM: Xid (PCI:0000:07:00): 31, pid=7, MMU Fault\n");
    assert_eq!(text(PVE), "#\nhostname: private\nlxc.cgroup2.devices.allow : c 509:* rwm\n");
}

/// Links in a folder say what links in a listing say.
#[test]
fn links_by_number_are_read_from_a_folder_too() {
    let host = tempfile::tempdir().expect("a folder");
    write(&host.path().join(UVM_509.0), UVM_509.1);
    fs::create_dir_all(host.path().join("dev/char")).expect("folder");
    for (name, target) in [("1:5", "../zero"), ("195:255", "../nvidiactl"), ("504:0", "../nvidia-uvm")] {
        std::os::unix::fs::symlink(target, host.path().join("dev/char").join(name)).expect("a link");
    }
    let answer: Value = serde_json::from_slice(&doctor(host.path()).stdout).expect("an answer");
    let links = answer["findings"].as_array().expect("findings").iter().filter(|found| found["id"] == "dev-char");
    let subjects: Vec<&Value> = links.map(|found| &found["subject"]).collect();
    // The nodes themselves are absent, which is told of them.
    assert_eq!(subjects, ["/dev/char/504:0"], "{answer:#}");
    assert_eq!(gist(&reported(&host)), gist(&answer));
}

/// Every word that the doctor and the lint can say is explained.
#[test]
fn every_finding_is_documented() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings.md");
    let text = fs::read_to_string(&docs).expect("docs/findings.md");
    let explained: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### ")).flat_map(|words| words.split(", ")).collect();
    for id in FindingId::ALL {
        assert!(explained.contains(&id.word()), "{id}");
    }
}
