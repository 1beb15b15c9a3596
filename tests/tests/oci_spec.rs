// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook oci precreate`: the devices are in the spec before there is a container, and the runtime makes them.

use std::fs;

use gpuhook_core::device::{Access, ContainerPath, DeviceId};
use gpuhook_core::plan::PlannedDevice;
use gpuhook_linux::nodes::Dev;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::rootfs::make_node;
use gpuhook_tests::runc::Runc;
use serde_json::{Value, json};

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 2)
}

/// Makes the bundle ask, and puts what it asks for into its spec.
fn edit<'runc, 'bed>(runc: &'runc mut Runc<'bed>, host: &Host) -> &'runc mut Runc<'bed> {
    injected::prepare(runc.rootfs(), host.majors());
    runc.edited_by(host.gpuhook(&[&["oci", "precreate"][..], &injected::ARGUMENTS].concat()))
}

fn report(bed: &Bed) -> Value {
    let kept = bed.kept();
    let path = kept.iter().find(|path| path.ends_with("report.json")).unwrap_or_else(|| panic!("{kept:?}"));
    serde_json::from_slice(&fs::read(path).expect("the report")).expect("JSON")
}

/// What the hook had to do is only what `applied` counts, and the nodes and rules were right.
fn assert_verified(bed: &Bed, applied: usize) {
    let report = report(bed);
    assert_eq!(report["applied"].as_array().expect("steps").len(), applied, "{report:#}");
    let rungs = report["rungs"].as_array().expect("rungs");
    for (name, count) in [("L1", 6), ("L2", 1), ("L5", 1)] {
        let of_rung: Vec<_> = rungs.iter().filter(|rung| rung["rung"] == name).collect();
        assert!(of_rung.len() >= count && of_rung.iter().all(|rung| rung["ok"] == json!(true)), "{report:#}");
    }
}

fn gets_exactly_what_it_asked(name: &str, applied: usize, change: impl Fn(&mut Runc)) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    change(&mut runc);
    edit(runc.env(injected::ENVIRONMENT[0]), &host);
    let running = runc.start();
    injected::assert_exact(&running, host.majors());
    injected::assert_still_open(&running, host.majors());
    assert_verified(&bed, applied);
    drop(running);
    bed.wait_for(&program::gpuhook());
    assert_eq!(bed.kept(), [""; 0], "poststop removes what was kept");
}

#[test]
fn the_runtime_makes_everything_and_the_hook_only_looks() {
    gets_exactly_what_it_asked("spec", 0, |_| {});
}

#[test]
fn a_read_only_root_and_a_read_only_dev_are_no_obstacle() {
    let Some(bed) = Bed::pure("spec-ro") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    let dev = &mut runc.read_only().spec()["mounts"][1];
    assert_eq!(dev["destination"], "/dev");
    dev["options"].as_array_mut().expect("options").push(json!("ro"));
    let running = edit(runc.env(injected::ENVIRONMENT[0]), &host).start();
    injected::assert_nodes(&running, host.majors());
    assert_verified(&bed, 0);
    let (major, minor) = injected::not_asked(host.majors())[0].1;
    assert_eq!(running.report().open(&format!("/hand/{major}.{minor}")), "EPERM");
    assert_eq!(running.exec(&["/bin/sh", "-c", "echo >/dev/x"]).status.code(), Some(1), "it is read-only");
}

/// A runtime would bind the host's nodes, and this host has none: the hook brings in six nodes, and no rule.
#[test]
fn with_a_user_namespace_the_rules_are_the_runtimes_and_the_nodes_ours() {
    gets_exactly_what_it_asked("spec-user", 6, |runc| {
        runc.user_namespace();
    });
}

#[test]
fn a_second_precreate_renews_the_numbers_and_an_equal_one_changes_nothing() {
    for idmapped in [false, true] {
        let Some(bed) = Bed::pure("spec-renew") else { return };
        let mut host = host(&bed);
        let mut runc = Runc::new(&bed, "c1");
        if idmapped {
            runc.user_namespace();
        }
        runc.env(injected::ENVIRONMENT[0]);
        let asking = runc.spec().clone();
        let mut fresh = Runc::new(&bed, "fresh");
        for majors in [Majors::OLD, Majors::NEXT, Majors::NEW] {
            host.renumber(majors);
            let once = edit(&mut runc, &host).spec().clone();
            assert_eq!(*edit(&mut runc, &host).spec(), once);
            *fresh.spec() = asking.clone();
            assert_eq!(*edit(&mut fresh, &host).spec(), once, "nothing of the old numbers is left");
        }
        injected::assert_exact(&runc.start(), host.majors());
    }
}

#[test]
fn numbers_that_change_before_the_start_refuse_it() {
    let Some(bed) = Bed::pure("spec-stale") else { return };
    let mut host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    edit(runc.env(injected::ENVIRONMENT[0]), &host);
    host.renumber(Majors::NEXT);
    let story = runc.try_start().expect_err("the nodes are stale");
    assert!(story.contains("/dev/nvidia-uvm") && story.contains("c 509:0") && story.contains("511:0"), "{story}");
    assert_eq!(bed.kept(), [""; 0]);
}

fn precreate(host: &Host, spec: &[u8], more: &[&str]) -> std::process::Output {
    program::fed(host.gpuhook(&[&["oci", "precreate"], more].concat()), spec)
}

fn said(host: &Host, spec: &str) -> Value {
    let output = precreate(host, spec.as_bytes(), &[]);
    assert!(output.status.success(), "{}", program::both(&output));
    serde_json::from_slice(&output.stdout).expect("a spec")
}

#[test]
fn a_spec_that_asks_for_nothing_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    host.overwrite("proc/devices", "no driver here");
    for spec in [
        "{}\n",
        "{ \"process\" : {\"env\":[\"NVIDIA_VISIBLE_DEVICES=void\"]}, \"x\": 1.0e2 }",
        r#"{"linux":{"devices":[{"path":"/dev/nvidia0","type":"c","major":195,"minor":0}]}}"#,
    ] {
        let output = precreate(&host, spec.as_bytes(), &[]);
        assert!(output.status.success(), "{}", program::both(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), spec);
    }
}

#[test]
fn a_spec_that_asks_no_more_loses_what_it_was_given() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let mut spec = said(&host, r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}"#);
    assert!(spec.to_string().contains("/dev/nvidia-uvm"));
    // For other injectors; our next edit knows what it was.
    assert_eq!(spec["process"]["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    assert_eq!(said(&host, &spec.to_string()), spec);
    for env in [json!([]), json!(["NVIDIA_VISIBLE_DEVICES="]), json!(["A=1"]), json!(null)] {
        spec["process"]["env"] = env;
        let clean = said(&host, &spec.to_string());
        assert_eq!((&clean["linux"]["devices"], &clean["linux"]["resources"]["devices"]), (&json!([]), &json!([])));
        assert!(!clean.to_string().contains("gpuhook"), "{clean}");
        assert_eq!(clean["process"]["env"], spec["process"]["env"]);
    }
}

#[test]
fn a_spec_without_linux_or_with_ten_mebibytes_gets_its_devices() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let asks = r#""process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}"#;
    let long = "x".repeat(10 << 20);
    for spec in [format!("{{{asks}}}"), format!(r#"{{"annotations":{{"long":"{long}"}},{asks},"linux":{{}}}}"#)] {
        let new = said(&host, &spec);
        let devices = new["linux"]["devices"].as_array().expect("devices");
        assert_eq!(devices.len(), 5);
        let uvm = json!({ "path": "/dev/nvidia-uvm", "type": "c", "major": 509, "minor": 0, "fileMode": 0o666,
            "uid": 0, "gid": 0 });
        assert!(devices.contains(&uvm), "{devices:?}");
        let rule = json!({ "allow": true, "type": "c", "major": 509, "minor": 0, "access": "rw" });
        assert!(new["linux"]["resources"]["devices"].as_array().expect("rules").contains(&rule));
        let hook = &new["hooks"]["createRuntime"][0];
        assert!(hook["env"].as_array().is_some_and(|env| !env.is_empty()), "the environment is explicit: {hook}");
        assert!(hook["timeout"].as_u64().is_some_and(|seconds| seconds > 30), "more than the probe has: {hook}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_without_a_spec() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let asking = |what: &str| format!(r#"{{"process":{{"env":["NVIDIA_VISIBLE_DEVICES={what}"]}}}}"#);
    let all = asking("all");
    for (spec, part) in [
        ("", "it is empty"),
        ("hello", "not the JSON"),
        ("[]", "not the JSON"),
        (&all[..all.len() - 1], "not the JSON"),
        (&format!(r#"{{"linux":{{"devices":7}},{}"#, &all[1..]), "not the JSON"),
        (&asking("7"), "no GPU"),
    ] {
        let sentence = refusal(&precreate(&host, spec.as_bytes(), &[]), 1);
        assert!(sentence.contains(part), "{spec}: {sentence}");
    }
    let long = vec![b' '; (16 << 20) + 1];
    assert!(refusal(&precreate(&host, &long, &[]), 1).contains("larger than"));
    host.overwrite("proc/devices", "Character devices:\n195 nvidia\n");
    assert!(refusal(&precreate(&host, all.as_bytes(), &[]), 1).contains("nvidia-uvm"));
}

#[test]
fn another_injector_is_left_to_work_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let spec = json!({ "process": { "env": ["NVIDIA_VISIBLE_DEVICES=all"] },
        "hooks": { "prestart": [{ "path": "/usr/bin/nvidia-container-runtime-hook" }] } });
    let once = said(&host, &spec.to_string());
    assert_eq!(once["linux"], Value::Null, "no second injection");
    assert_eq!(once["hooks"]["createRuntime"][0]["args"][2], "createRuntime", "the start says so");
    assert_eq!(said(&host, &once.to_string()), once);
}

#[test]
fn links_are_made_for_live_nodes_alone_and_stale_ones_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = |name: &str, minor: u32| PlannedDevice {
        path: ContainerPath::new(&format!("/dev/{name}")).expect("a plain path"),
        id: DeviceId::new(509, minor),
        dynamic: Some("nvidia-uvm"),
        access: Access::READ | Access::WRITE,
        mode: 0o666,
        uid: 0,
        gid: 0,
    };
    make_node(&dir.path().join("nvidia-uvm"), (509, 0));
    make_node(&dir.path().join("nvidia-uvm-tools"), (504, 1));
    let links = dir.path().join("char");
    fs::create_dir(&links).expect("a folder");
    for (name, target) in [("504:0", "../nvidia-uvm"), ("504:1", "../nvidia-uvm-tools"), ("10:200", "../net/tun")] {
        std::os::unix::fs::symlink(target, links.join(name)).expect("a link");
    }
    let nodes = [node("nvidia-uvm", 0), node("nvidia-uvm-tools", 1), node("nvidia-none", 2)];
    let dev = Dev::open(dir.path().to_str()).expect("a folder");
    dev.link_live(&nodes).expect("links");
    let mut names: Vec<_> =
        fs::read_dir(&links).expect("links").map(|entry| entry.expect("a link").file_name()).collect();
    names.sort();
    assert_eq!(names, ["10:200", "509:0"]);
    assert_eq!(fs::read_link(links.join("509:0")).expect("a link").to_str(), Some("../nvidia-uvm"));
}
