// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that a person types: what they print, what they change in a running container, how they end.

use std::process::Output;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::footprint::Witness;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::Lxc;
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::Runc;
use serde_json::{Value, json};

const REQUEST: [&str; 6] = ["--devices", "0", "--mig-config", "all", "--imex-channels", "0"];

/// A host on which every check but the open of a device without driver counts.
fn host(bed: &Bed) -> Host {
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    host.configure("load-modules = false\n[verify]\nl3 = \"off\"\nl5 = \"enforce\"\n");
    host
}

fn run(host: &Host, words: &[&str]) -> Output {
    program::output(host.gpuhook(words))
}

fn asked(host: &Host, words: &[&str]) -> Output {
    run(host, &[words, &REQUEST].concat())
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", program::both(output)))
}

/// What the rung says of each subject.
fn rungs(answer: &Value, rung: &str) -> Vec<(String, Value)> {
    let all = answer["rungs"].as_array().expect("rungs").iter().filter(|found| found["rung"] == rung);
    all.map(|found| (found["subject"].as_str().expect("a subject").to_owned(), found["ok"].clone())).collect()
}

/// Injects into a container that was started without gpuhook, named by `words`: before it the ladder says what is
/// missing, afterwards all is there, and a second time changes nothing.
fn inject_repairs(bed: &Bed, container: &dyn Container, init: u32, words: &[&str], filtered: bool) {
    let host = host(bed);
    let witness = Witness::of(bed, init);
    let probe = || asked(&host, &[&["probe", "--json"], words].concat());
    let before = probe();
    assert_eq!(before.status.code(), Some(1), "{}", program::both(&before));
    let before = parsed(&before);
    let expected: Vec<_> =
        injected::asked(host.majors()).into_iter().map(|(path, _)| (path.to_owned(), json!(false))).collect();
    assert_eq!(rungs(&before, "L1"), expected, "every node is missing");
    assert_eq!(before["cuinit"], 100, "{before:#}");
    if filtered {
        assert!(rungs(&before, "L2").iter().any(|(_, ok)| *ok == json!(false)), "the filter refuses: {before:#}");
    }

    let output = asked(&host, &[&["inject"], words].concat());
    assert!(output.status.success(), "{}", program::both(&output));
    injected::assert_still_open(container, host.majors());
    for (path, number) in injected::not_asked(host.majors()) {
        assert_eq!(container.nodes(&[path]).node(path), None, "{path} was not asked for");
        if filtered {
            assert_eq!(container.open_own(number), "EPERM", "{path} was not asked for");
        }
    }
    let after = probe();
    assert!(after.status.success(), "{}", program::both(&after));
    let after = parsed(&after);
    assert!(rungs(&after, "L1").iter().all(|(_, ok)| *ok == json!(true)), "{after:#}");
    assert_eq!((after["cuinit"].clone(), rungs(&after, "L1").len()), (json!(0), expected.len()));

    let footprint = witness.footprint(bed);
    let output = asked(&host, &[&["inject", "--json"], words].concat());
    assert!(output.status.success(), "{}", program::both(&output));
    assert_eq!(parsed(&output)["applied"], json!([]), "there was nothing left to do");
    assert_eq!(witness.footprint(bed), footprint);
}

#[test]
fn inject_repairs_a_privileged_lxc_container() {
    let Some(bed) = Bed::pure("cli-lxc") else { return };
    let lxc = Lxc::privileged(&bed, "c1");
    let running = lxc.start();
    inject_repairs(&bed, &running, running.init_pid(), &["--lxc", lxc.name()], true);
}

#[test]
fn inject_repairs_an_unprivileged_lxc_container() {
    let Some(bed) = Bed::pure("cli-lxc-user") else { return };
    let lxc = Lxc::unprivileged(&bed, "c1");
    let running = lxc.start();
    inject_repairs(&bed, &running, running.init_pid(), &["--lxc", lxc.name()], false);
}

#[test]
fn inject_repairs_a_container_by_its_pid() {
    let Some(bed) = Bed::pure("cli-runc") else { return };
    let runc = Runc::new(&bed, "c1");
    let running = runc.start();
    inject_repairs(&bed, &running, running.init_pid(), &["--pid", &running.init_pid().to_string()], true);
}

#[test]
fn inject_repairs_a_container_with_a_user_namespace_by_its_pid() {
    let Some(bed) = Bed::pure("cli-runc-user") else { return };
    let mut runc = Runc::new(&bed, "c1");
    runc.user_namespace();
    let running = runc.start();
    inject_repairs(&bed, &running, running.init_pid(), &["--pid", &running.init_pid().to_string()], true);
}

#[test]
fn equal_inputs_give_equal_plans_and_a_plan_changes_nothing() {
    let Some(bed) = Bed::pure("cli-plan") else { return };
    let host = host(&bed);
    let lxc = Lxc::privileged(&bed, "c1");
    let running = lxc.start();
    let mut runc = Runc::new(&bed, "c2");
    runc.env("NVIDIA_VISIBLE_DEVICES=0");
    let bundled = runc.start();
    let bundle = runc.bundle().to_string_lossy().into_owned();
    let witness = Witness::of(&bed, running.init_pid());
    let before = witness.footprint(&bed);
    for words in [&["plan"][..], &["plan", "--lxc", lxc.name()], &["plan", "--bundle", &bundle]] {
        for format in [&[][..], &["--json"]] {
            let print = || program::stdout(host.gpuhook(&[words, format, &REQUEST].concat()));
            let first = print();
            assert_eq!(first, print(), "{words:?}");
            for (path, (major, minor)) in injected::asked(host.majors()) {
                assert!(first.contains(path), "{words:?}: {path} is not in {first}");
                let text = first.contains(&format!("c {major}:{minor} ")) || !format.is_empty();
                assert!(text, "{words:?}: {major}:{minor} is not in {first}");
            }
            if !format.is_empty() {
                let plan: Value = serde_json::from_str(&first).expect("JSON");
                let uvm = json!({ "path": "/dev/nvidia-uvm", "major": 509, "minor": 0, "access": "rw" });
                let devices = plan["devices"].as_array().expect("devices");
                let is_uvm =
                    |device: &&Value| uvm.as_object().expect("keys").iter().all(|(key, is)| device[key] == *is);
                assert_eq!(devices.iter().filter(is_uvm).count(), 1, "{plan:#}");
                assert!(plan["mounts"].is_array() && plan["filter"].is_object(), "{plan:#}");
            }
        }
    }
    assert_eq!(witness.footprint(&bed), before);
    drop(bundled);
}

#[test]
fn majors_prints_every_name_with_its_numbers() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let majors: Value = serde_json::from_str(&program::stdout(host.gpuhook(&["majors", "--json"]))).expect("JSON");
    assert_eq!(majors["nvidia-uvm"], json!([509]));
    assert_eq!((&majors["nvidia"], &majors["mem"]), (&json!([195]), &json!([1])));
    assert!(majors.get("device-mapper").is_none(), "a block driver has no character major");
    let gpu: Value =
        serde_json::from_str(&program::stdout(host.gpuhook(&["majors", "--gpu", "--json"]))).expect("JSON");
    let expected = json!({ "nvidia": [195], "nvidia-caps": [237], "nvidia-caps-imex-channels": [238],
        "nvidia-modeset": [195], "nvidia-uvm": [509], "nvidiactl": [195] });
    assert_eq!(gpu, expected);
    host.overwrite("proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n");
    assert_eq!(program::stdout(host.gpuhook(&["majors", "--gpu", "--json"])), "{}\n", "no GPU is no problem");
}

#[test]
fn a_question_that_cannot_be_answered_ends_with_3_and_a_wrong_one_with_2() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let mut short = program::command("true", &[]).spawn().expect("true");
    short.wait().expect("wait");
    let dead = short.id().to_string();
    for (code, words) in [
        (3, &["probe", "--lxc", "no-such-container"][..]),
        (3, &["inject", "--lxc", "no-such-container"]),
        (3, &["plan", "--lxc", "no-such-container"]),
        (3, &["probe", "--pid", &dead]),
        (3, &["inject", "--pid", &dead]),
        (3, &["plan", "--bundle", "/nonexistent"]),
        (3, &["majors", "--host-root", "/nonexistent"]),
        (2, &["probe"]),
        (2, &["probe", "--pid", "0"]),
        (2, &["probe", "--pid", "1", "--lxc", "c1"]),
        (2, &["inject"]),
        (2, &["inject", "--lxc", "../c1"]),
        (2, &["plan"]),
        (2, &["plan", "--lxc", "c1", "--bundle", "/x"]),
        (2, &["majors", "--frobnicate"]),
        (2, &["frobnicate"]),
        (2, &[]),
        (1, &["plan", "--devices", "7"]),
        (2, &["plan", "--devices", "frobnicate"]),
    ] {
        let mut call = program::command(program::gpuhook(), &[]);
        call.arg("--host-root").arg(host.root()).arg("--config").arg(host.config()).args(words);
        refusal(&program::output(call), code);
    }
    // Its own mount namespace is this process's: no container.
    let mut beside = program::command("sleep", &["2147483647"]).spawn().expect("sleep");
    refusal(&run(&host, &["inject", "--pid", &beside.id().to_string(), "--devices", "0"]), 3);
    beside.kill().expect("kill");
    beside.wait().expect("wait");
    for words in [&["--help"][..], &["--version"], &["probe", "--help"], &["majors"], &["plan", "--devices", "none"]] {
        let output = run(&host, words);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{words:?}: {}", program::both(&output));
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
}
