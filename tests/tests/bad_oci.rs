// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container's state and spec that cannot be used: error, exit code 1, nothing changed. The hook is the real one, and
//! a real container runs beside it whose pid a wrong state may name.

use std::fs;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::footprint::Witness;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::{Runc, RunningRunc};
use serde_json::json;

const STAGES: [&str; 2] = ["prestart", "createRuntime"];

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 2)
}

/// A bundle that asks for a GPU, and belongs to no container.
fn asking_bundle(bed: &Bed) -> String {
    let bundle = bed.dir("asking.bundle");
    fs::create_dir_all(bundle.join("rootfs/dev")).expect("rootfs");
    let spec = json!({ "process": { "env": ["NVIDIA_VISIBLE_DEVICES=0"] }, "root": { "path": "rootfs" } });
    fs::write(bundle.join("config.json"), spec.to_string()).expect("config.json");
    bundle.to_string_lossy().into_owned()
}

fn state(pid: u32, bundle: &str) -> Vec<u8> {
    json!({ "ociVersion": "1.0.2", "id": "c9", "status": "creating", "pid": pid, "bundle": bundle }).to_string().into()
}

/// Both stages refuse this state with a sentence that has `word`; the running container stays as it is.
fn is_refused(bed: &Bed, running: &RunningRunc, state: &[u8], word: &str) {
    let host = host(bed);
    let witness = Witness::of(bed, running.init_pid());
    let before = witness.footprint(bed);
    assert!(!before.programs.is_empty(), "the container has a device filter that could be changed");
    for stage in STAGES {
        let sentence = refusal(&program::fed(host.gpuhook(&["oci", stage]), state), 1);
        assert!(sentence.contains(word), "{stage}: {word:?} is not in {sentence}");
    }
    assert_eq!(witness.footprint(bed), before);
    assert!(!fs::exists("/run/gpuhook").expect("look at /run"), "not even a folder is left");
}

#[test]
fn a_state_that_cannot_be_read_is_refused_and_nothing_is_changed() {
    let Some(bed) = Bed::pure("bad-state") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let bundle = asking_bundle(&bed);
    let good = String::from_utf8(state(running.init_pid(), &bundle)).expect("JSON");
    let padded = |bytes: usize| format!("{good}{}", " ".repeat(bytes - good.len()));
    for (text, word) in [
        (String::new(), "empty"),
        (" \n".to_owned(), "empty"),
        ("hello".to_owned(), "not the JSON"),
        (good[..good.len() - 1].to_owned(), "not the JSON"),
        (format!("[{good}]"), "not the JSON"),
        (json!({ "id": "c9", "bundle": bundle, "status": "stopped" }).to_string(), "names no process"),
        (json!({ "id": "c9", "bundle": bundle, "pid": 0 }).to_string(), "names no process"),
        (json!({ "id": "c9", "bundle": bundle, "pid": 1 << 23 }).to_string(), "no process can have the pid"),
        (json!({ "id": "../c9", "bundle": bundle, "pid": running.init_pid() }).to_string(), "the id"),
        (json!({ "id": "c9", "bundle": "relative", "pid": running.init_pid() }).to_string(), "absolute"),
        (json!({ "id": "\u{1b}[2J\n", "bundle": bundle, "pid": 1 }).to_string(), "the id"),
        (padded((1 << 20) + 1), "larger than 1048576"),
    ] {
        is_refused(&bed, &running, text.as_bytes(), word);
    }
}

#[test]
fn a_state_of_just_under_1_mib_is_read() {
    let Some(bed) = Bed::pure("long-state") else { return };
    let host = host(&bed);
    let bundle = bed.dir("silent.bundle");
    fs::write(bundle.join("config.json"), "{}").expect("config.json");
    let mut state = state(std::process::id(), &bundle.to_string_lossy());
    state.resize(1 << 20, b' ');
    let output = program::fed(host.gpuhook(&["oci", "createRuntime"]), &state);
    assert!(output.status.success(), "nothing was asked for: {}", program::both(&output));
}

#[test]
fn a_dead_pid_is_refused() {
    let Some(bed) = Bed::pure("dead-pid") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let mut short = program::command("true", &[]).spawn().expect("true");
    short.wait().expect("wait");
    is_refused(&bed, &running, &state(short.id(), &asking_bundle(&bed)), "does not exist or has ended");
}

#[test]
fn a_pid_that_an_unreaped_process_still_holds_is_refused() {
    let Some(bed) = Bed::pure("zombie-pid") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let zombie = program::command("true", &[]).spawn().expect("true");
    let pid = rustix::process::Pid::from_child(&zombie);
    let ended = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), ended).expect("it ends");
    is_refused(&bed, &running, &state(zombie.id(), &asking_bundle(&bed)), "does not exist or has ended");
    drop(zombie);
}

#[test]
fn a_recycled_pid_of_a_process_of_the_host_is_refused() {
    let Some(bed) = Bed::pure("host-pid") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let mut beside = program::command("sleep", &["2147483647"]).spawn().expect("sleep");
    is_refused(&bed, &running, &state(beside.id(), &asking_bundle(&bed)), "not a container's process");
    beside.kill().expect("kill");
    beside.wait().expect("wait");
}

#[test]
fn a_recycled_pid_of_another_container_is_refused() {
    let Some(bed) = Bed::pure("other-pid") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let bundle = asking_bundle(&bed);
    is_refused(&bed, &running, &state(running.init_pid(), &bundle), &format!("{bundle}/rootfs"));
    // A path that the other container does have is not its root either.
    let spec = json!({ "process": { "env": ["NVIDIA_VISIBLE_DEVICES=0"] }, "root": { "path": "/etc" } });
    fs::write(format!("{bundle}/config.json"), spec.to_string()).expect("config.json");
    is_refused(&bed, &running, &state(running.init_pid(), &bundle), "/etc is not mounted");
}

#[test]
fn a_spec_that_cannot_be_used_is_refused_and_nothing_is_changed() {
    let Some(bed) = Bed::pure("bad-spec") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    let bundle = asking_bundle(&bed);
    let state = state(running.init_pid(), &bundle);
    let file = format!("{bundle}/config.json");
    let good = fs::read_to_string(&file).expect("config.json");
    let refused = |text: &str, word: &str| {
        fs::write(&file, text).expect("config.json");
        is_refused(&bed, &running, &state, word);
    };
    refused("", "empty");
    refused("{", "not the JSON");
    refused(&format!("{good}{}", " ".repeat(16 << 20)), "larger than 16777216 bytes");
    refused(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES"]},"root":{"path":"rootfs"}}"#, "NAME=VALUE");
    refused(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0","=x"]},"root":{"path":"rootfs"}}"#, "NAME=VALUE");
    refused(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}}"#, "root.path");
    refused(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0\u001b[2J\ngpuhook: fine"]},"root":{"path":"rootfs"}}"#, "");
    refused(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=7"]},"root":{"path":"rootfs"}}"#, "index 7");
    fs::remove_file(&file).expect("config.json");
    is_refused(&bed, &running, &state, "config.json");
}
