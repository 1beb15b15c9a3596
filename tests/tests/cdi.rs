// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook cdi generate`: files that every CDI engine takes and that hold no number. The rules are those of the CDI
//! specification (SPEC.md, schema/defs.json of tags.cncf.io/container-device-interface), written down here again.

use std::fs;

use gpuhook_core::facts::cdi::CdiFile;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::Runc;
use serde_json::{Map, Value, json};

fn generate(host: &Host, words: &[&str]) -> Value {
    let text = program::stdout(host.gpuhook(&[&["cdi", "generate"], words].concat()));
    let spec = serde_json::from_str(&text).expect("JSON");
    assert_schema(&spec);
    spec
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("an object: {value}"))
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}"))
}

/// An object with these members at most, and with these at least.
fn assert_members(value: &Value, may: &[&str], must: &[&str]) {
    let keys: Vec<&str> = object(value).keys().map(String::as_str).collect();
    assert!(keys.iter().all(|key| may.contains(key)), "{value}");
    assert!(must.iter().all(|key| keys.contains(key)), "{value}");
}

/// The public schema, as far as our files go.
fn assert_schema(spec: &Value) {
    let top = ["cdiVersion", "kind", "annotations", "devices", "containerEdits"];
    assert_members(spec, &top, &["cdiVersion", "kind", "devices"]);
    let (vendor, class) = spec["kind"].as_str().and_then(|kind| kind.split_once('/')).expect("vendor/class");
    assert!([vendor, class].iter().all(|name| name.starts_with(|first: char| first.is_ascii_alphabetic())));
    let devices = list(&spec["devices"]);
    let mut names = Vec::new();
    for device in devices {
        assert_members(device, &["name", "annotations", "containerEdits"], &["name", "containerEdits"]);
        assert_edits(&device["containerEdits"]);
        let name = device["name"].as_str().expect("a name");
        let inner = |one: char| one.is_ascii_alphanumeric() || "_-.:".contains(one);
        assert!(name.chars().all(inner) && !name.starts_with(['_', '-', '.', ':']), "{name}");
        assert!(!object(&device["containerEdits"]).is_empty(), "{name} does nothing");
        names.push(name);
    }
    assert_edits(spec.get("containerEdits").unwrap_or(&json!({})));
    assert!(!names.is_empty());
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name stands there twice");
    // pkg/cdi/version.go: a name that begins with a digit needs 0.5.0, and nothing here needs more.
    let needs =
        if names.iter().any(|name| name.starts_with(|first: char| first.is_ascii_digit())) { "0.5.0" } else { "0.3.0" };
    assert_eq!(spec["cdiVersion"], needs);
}

fn assert_edits(edits: &Value) {
    assert_members(edits, &["env", "deviceNodes", "hooks", "mounts"], &[]);
    for variable in list(edits.get("env").unwrap_or(&json!([]))) {
        assert!(variable.as_str().is_some_and(|pair| pair.contains('=')), "{variable}");
    }
    for node in list(edits.get("deviceNodes").unwrap_or(&json!([]))) {
        assert_members(node, &["path", "hostPath", "permissions"], &["path"]);
        assert!(node["path"].as_str().is_some_and(|path| path.starts_with("/dev/")), "{node}");
        assert_eq!(node["permissions"], "rw", "no mknod: {node}");
    }
    for hook in list(edits.get("hooks").unwrap_or(&json!([]))) {
        assert_members(hook, &["hookName", "path", "args", "env", "timeout"], &["hookName", "path"]);
        assert!(["createRuntime", "poststop"].contains(&hook["hookName"].as_str().expect("a stage")), "{hook}");
        assert!(hook["path"].as_str().is_some_and(|path| path.starts_with('/')), "{hook}");
        assert!(hook["timeout"].as_u64().is_some_and(|seconds| seconds > 0), "{hook}");
    }
}

fn nodes(edits: &Value) -> Vec<&str> {
    let nodes = edits.get("deviceNodes").and_then(Value::as_array).into_iter().flatten();
    nodes.map(|node| node["path"].as_str().expect("a path")).collect()
}

fn device<'a>(spec: &'a Value, name: &str) -> &'a Value {
    let found = list(&spec["devices"]).iter().find(|device| device["name"] == name);
    &found.unwrap_or_else(|| panic!("{name} is not in {spec:#}"))["containerEdits"]
}

fn mig(host: &Host, gpu: u32, path: &str, minor: u32) {
    host.overwrite(
        &format!("proc/driver/nvidia/capabilities/gpu{gpu}/mig/{path}/access"),
        &format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"),
    );
}

#[test]
fn every_gpu_has_its_index_and_its_uuid_and_no_number() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    let spec = generate(&host, &[]);
    assert_eq!(spec["kind"], "gpuhook.dev/gpu");
    assert_eq!(nodes(&spec["containerEdits"]), ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]);
    assert_eq!(spec["containerEdits"]["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    // Minors run against bus order on this host.
    assert_eq!(nodes(device(&spec, "0")), ["/dev/nvidia1"]);
    assert_eq!(nodes(device(&spec, &host.uuid_of_minor(1))), ["/dev/nvidia1"]);
    assert_eq!(nodes(device(&spec, "1")), ["/dev/nvidia0"]);
    assert_eq!(nodes(device(&spec, "all")), ["/dev/nvidia0", "/dev/nvidia1"]);
    let file = CdiFile::parse("x.json", &spec.to_string());
    assert!(file.nodes.len() >= 6 && file.nodes.iter().all(|node| node.major.is_none()), "{file:?}");
    host.renumber(Majors::OLD);
    assert_eq!(generate(&host, &[]), spec, "other numbers are the same file");
}

#[test]
fn mig_devices_have_both_their_capabilities_and_their_gpu_is_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    for (path, minor) in [("gi1", 300), ("gi1/ci0", 301), ("gi2", 309), ("gi2/ci0", 310)] {
        mig(&host, 1, path, minor);
    }
    let spec = generate(&host, &[]);
    let caps = |minors: [u32; 2]| minors.map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor}"));
    for (name, minors) in [("0:0", [300, 301]), ("0:1", [309, 310])] {
        let [whole, part] = caps(minors);
        assert_eq!(nodes(device(&spec, name)), ["/dev/nvidia1", &whole, &part], "{name}");
    }
    let names: Vec<_> = list(&spec["devices"]).iter().map(|device| device["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["0:0", "0:1", "1", &host.uuid_of_minor(0), "all"]);
    assert_eq!(nodes(device(&spec, "all")).len(), 6);
}

#[test]
fn another_kind_is_written_only_when_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 1);
    assert_eq!(generate(&host, &["--kind", "nvidia.com/gpu"])["kind"], "nvidia.com/gpu");
    for kind in ["gpu", "nvidia.com/", "/gpu", "nvidia.com/g pu", "1x/gpu", "a/b/c", "a/b."] {
        let said = refusal(&program::output(host.gpuhook(&["cdi", "generate", "--kind", kind])), 1);
        assert!(said.contains("is not like gpuhook.dev/gpu"), "{kind}: {said}");
    }
    host.overwrite("proc/devices", "Character devices:\n  1 mem\n");
    refusal(&program::output(host.gpuhook(&["cdi", "generate"])), 1);
    refusal(&program::output(host.gpuhook(&["cdi", "frobnicate"])), 2);
}

#[test]
fn the_file_is_replaced_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().join("host"), Majors::NEW, 1);
    let file = dir.path().join("run/cdi/gpuhook.json");
    let path = file.to_str().expect("UTF-8");
    for _ in 0..2 {
        assert_eq!(program::stdout(host.gpuhook(&["cdi", "generate", "--output", path])), "");
    }
    let written: Value = serde_json::from_slice(&fs::read(&file).expect("the file")).expect("JSON");
    assert_eq!(written, generate(&host, &[]));
    assert_eq!(fs::read_dir(file.parent().expect("a folder")).expect("a folder").count(), 1);
}

/// What an engine does with the edits of `names`: nodes by the host's numbers, hooks, variables.
fn apply(runc: &mut Runc, spec: &Value, names: &[&str], number: impl Fn(&str) -> (u32, u32)) {
    let all = names.iter().map(|name| device(spec, name)).chain([&spec["containerEdits"]]);
    for edits in all.collect::<Vec<_>>() {
        for path in nodes(edits) {
            let (major, minor) = number(path);
            runc.spec()["linux"]["devices"].as_array_mut().expect("devices").push(
                json!({ "path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0 }),
            );
            runc.allow(major, Some(minor));
        }
        for hook in list(&edits["hooks"]) {
            let mut words = vec![hook["path"].as_str().expect("a path").to_owned()];
            words.extend(list(&hook["args"]).iter().skip(1).map(|word| word.as_str().expect("a word").to_owned()));
            runc.hook(hook["hookName"].as_str().expect("a stage"), &words);
        }
        for pair in list(edits.get("env").unwrap_or(&json!([]))) {
            runc.env(pair.as_str().expect("a variable"));
        }
    }
}

#[test]
fn a_container_with_a_device_of_the_file_is_verified_and_stale_host_nodes_refuse_it() {
    let Some(bed) = Bed::pure("cdi") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let spec = generate(&host, &[]);
    let start = |majors: Majors| {
        let mut runc = Runc::new(&bed, &format!("c{}", majors.uvm));
        injected::prepare(runc.rootfs(), majors);
        runc.spec()["linux"]["devices"] = json!([]);
        // As many images say it; the file has no nvidia-modeset.
        runc.env("NVIDIA_DRIVER_CAPABILITIES=all");
        apply(&mut runc, &spec, &["0", &host.uuid_of_minor(0)], |path| match path {
            "/dev/nvidia-uvm" => (majors.uvm, 0),
            "/dev/nvidia-uvm-tools" => (majors.uvm, 1),
            "/dev/nvidiactl" => (195, 255),
            _ => (195, path[11..].parse().expect("a minor")),
        });
        let running = runc.try_start();
        running.map(|running| injected::assert_reached(&running, "/dev/nvidia-uvm"))
    };
    start(Majors::NEW).unwrap_or_else(|story| panic!("{story}"));
    let story = start(Majors::OLD).expect_err("the host's nodes are stale");
    assert!(story.contains("c 504:0") && story.contains("509:0"), "{story}");
}

#[test]
fn the_static_file_knows_no_host_and_its_hook_brings_everything_in() {
    let Some(bed) = Bed::pure("cdi-static") else { return };
    let mut host = Host::new(bed.dir("host"), Majors::NEW, 2);
    host.overwrite("proc/devices", "no driver yet");
    let spec = generate(&host, &["--static"]);
    assert_eq!(CdiFile::parse("x.json", &spec.to_string()).nodes, []);
    for majors in [Majors::OLD, Majors::NEXT] {
        host.renumber(majors);
        let mut runc = Runc::new(&bed, &format!("c{}", majors.uvm));
        injected::prepare(runc.rootfs(), majors);
        apply(&mut runc, &spec, &["all"], |path| panic!("{path} is in a static file"));
        let running = runc.start();
        for path in ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm"] {
            injected::assert_reached(&running, path);
        }
    }
}
