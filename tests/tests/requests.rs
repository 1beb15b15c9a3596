// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of containers, said in real runc and LXC containers and judged from inside: MIG devices, mounts, annotations,
//! what an image needs, and what it may not ask for.

use std::fs;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, Registration};
use gpuhook_tests::program;
use gpuhook_tests::runc::{Runc, RunningRunc};
use serde_json::{Value, json};

const NVSWITCH: u32 = 240;

/// Two GPUs; the first in bus order has minor 1 and two MIG devices, one with minors above 255. One NVSwitch.
fn host(bed: &Bed) -> Host {
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    for (instance, minor) in [("gi1", 147), ("gi1/ci0", 148), ("gi14", 264), ("gi14/ci0", 265)] {
        host.overwrite(
            &format!("proc/driver/nvidia/capabilities/gpu1/mig/{instance}/access"),
            &format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"),
        );
    }
    let line = format!("Character devices:\n{NVSWITCH} nvidia-nvswitch\n");
    host.overwrite("proc/devices", &host.devices().replace("Character devices:\n", &line));
    host.overwrite("dev.list", &format!("crw-rw-rw- 1 root root {NVSWITCH}, 0 Dec  9 08:01 /dev/nvidia-nvswitch0\n"));
    configure(&host, "");
    host
}

/// What `nvidia-smi -L` says of that host.
const LISTING: &str = "GPU 0: Stand-in GPU (not a GPU) (UUID: GPU-00000000-0000-4000-8000-000000000001)
  MIG 1g.10gb     Device  0: (UUID: MIG-c3a95e17-6d08-5b4f-a1e2-30f7d6c5b894)
  MIG 1g.10gb     Device  1: (UUID: MIG-5f0c1a9e-33d2-5b7a-9c6e-0d4f8e2b7a15)
GPU 1: Stand-in GPU (not a GPU) (UUID: GPU-00000000-0000-4000-8000-000000000000)
";

/// The bed's configuration with more keys.
fn configure(host: &Host, keys: &str) {
    host.configure(&format!("load-modules = false\n{keys}\n[verify]\nl3 = \"warn\"\nl5 = \"enforce\"\n"));
}

/// A bundle whose process has these variables, and gpuhook without a word of its own.
fn runc<'bed>(bed: &'bed Bed, host: &Host, variables: &[&str]) -> Runc<'bed> {
    let mut runc = Runc::new(bed, "c1");
    for variable in variables {
        runc.env(variable);
    }
    runc.hook("createRuntime", &host.oci_hook("createRuntime", &[]));
    runc
}

fn report(runc: &Runc<'_>) -> Value {
    let path = format!("/run/gpuhook/oci/{}/report.json", runc.id());
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("a report")
}

/// Asserts that the container has the node and may open it.
fn assert_given(running: &RunningRunc<'_>, path: &str, number: (u32, u32)) {
    let said = running.nodes(&[path]);
    let node = said.node(path).unwrap_or_else(|| panic!("no {path}\n{}", running.story()));
    assert_eq!((node.kind.as_str(), node.number), ("char", number), "{path}");
    assert_ne!(node.open, "EPERM", "{path}");
}

/// Asserts that the container has no such node, and may not open one that it makes itself.
fn assert_kept_out(running: &RunningRunc<'_>, path: &str, number: (u32, u32)) {
    assert_eq!(running.nodes(&[path]).node(path), None, "{path}\n{}", running.story());
    assert_eq!(running.open_own(number), "EPERM", "{path}");
}

#[test]
fn a_mig_device_is_its_gpu_and_its_two_capabilities_and_no_other() {
    let words = [
        "0:1",
        "MIG-GPU-00000000-0000-4000-8000-000000000001/14/0",
        "MIG-5f0c1a9e-33d2-5b7a-9c6e-0d4f8e2b7a15",
        "nvidia.com/gpu=0:1",
    ];
    for (at, word) in words.iter().enumerate() {
        let Some(bed) = Bed::pure(&format!("requests-mig-{at}")) else { return };
        let host = host(&bed);
        host.overwrite("nvidia-smi-L.txt", LISTING);
        let caps = host.majors().caps;
        let runc = runc(&bed, &host, &[&format!("NVIDIA_VISIBLE_DEVICES={word}")]);
        let running = runc.start();
        assert_given(&running, "/dev/nvidia1", (195, 1));
        for minor in [264, 265] {
            let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
            assert_given(&running, &path, (caps, minor));
            let mode = running.nodes(&[&path]).node(&path).map(|node| node.mode);
            assert_eq!(mode, Some(0o444), "{word}: the driver's own mode");
        }
        assert_kept_out(&running, "/dev/nvidia0", (195, 0));
        for minor in [1, 2, 147, 148] {
            assert_kept_out(&running, &format!("/dev/nvidia-caps/nvidia-cap{minor}"), (caps, minor));
        }
    }
}

#[test]
fn a_mig_device_that_nvidia_smi_does_not_list_refuses_the_start() {
    let Some(bed) = Bed::pure("requests-mig-uuid") else { return };
    let host = host(&bed);
    let runc = runc(&bed, &host, &["NVIDIA_VISIBLE_DEVICES=MIG-5f0c1a9e-33d2-5b7a-9c6e-0d4f8e2b7a16"]);
    for (listing, said) in [
        (LISTING, "this host has MIG-c3a95e17-6d08-5b4f-a1e2-30f7d6c5b894, MIG-5f0c1a9e-33d2-5b7a-9c6e-0d4f8e2b7a15;"),
        ("No devices were found\n", "hint: nvidia-smi -L lists them"),
    ] {
        host.overwrite("nvidia-smi-L.txt", listing);
        let story = runc.try_start().map(drop).expect_err("nobody knows this device");
        assert!(story.contains(said), "{story}");
    }
    assert_eq!(bed.kept(), [""; 0]);
}

/// Variable, its word in `unprivileged-may-ask`, the node and its number.
fn rights(majors: Majors) -> [(&'static str, &'static str, &'static str, (u32, u32)); 4] {
    [
        ("NVIDIA_MIG_CONFIG_DEVICES=all", "mig-config", "/dev/nvidia-caps/nvidia-cap1", (majors.caps, 1)),
        ("NVIDIA_MIG_MONITOR_DEVICES=all", "mig-monitor", "/dev/nvidia-caps/nvidia-cap2", (majors.caps, 2)),
        ("NVIDIA_IMEX_CHANNELS=0", "imex-channels", "/dev/nvidia-caps-imex-channels/channel0", (majors.imex, 0)),
        ("NVIDIA_NVSWITCH=enabled", "nvswitch", "/dev/nvidia-nvswitch0", (NVSWITCH, 0)),
    ]
}

const ALL_WORDS: [&str; 5] = [
    "NVIDIA_VISIBLE_DEVICES=1",
    "NVIDIA_MIG_CONFIG_DEVICES=all",
    "NVIDIA_MIG_MONITOR_DEVICES=all",
    "NVIDIA_IMEX_CHANNELS=0",
    "NVIDIA_NVSWITCH=enabled",
];

#[test]
fn an_unprivileged_container_gets_none_of_the_rights_that_its_variables_ask_for() {
    let Some(bed) = Bed::pure("requests-rights-none") else { return };
    let host = host(&bed);
    let runc = runc(&bed, &host, &ALL_WORDS);
    let running = runc.start();
    assert_given(&running, "/dev/nvidia0", (195, 0));
    for (variable, _, path, number) in rights(host.majors()) {
        assert_kept_out(&running, path, number);
        let left_out = report(&runc)["plan"]["left_out"].to_string();
        assert!(left_out.contains(variable.split_once('=').expect("a pair").0), "{left_out}");
    }
}

#[test]
fn the_operators_yes_gives_each_right_and_no_other() {
    for (_, word, path, number) in rights(Majors::NEW) {
        let Some(bed) = Bed::pure(&format!("requests-yes-{word}")) else { return };
        let host = host(&bed);
        configure(&host, &format!("unprivileged-may-ask = [\"{word}\"]"));
        let runc = runc(&bed, &host, &ALL_WORDS);
        let running = runc.start();
        assert_given(&running, path, number);
        for (_, other, path, number) in rights(host.majors()).into_iter().filter(|(_, other, ..)| *other != word) {
            assert_kept_out(&running, path, number);
            assert!(report(&runc)["plan"]["left_out"].to_string().contains("unprivileged-may-ask"), "{other}");
        }
    }
}

#[test]
fn a_privileged_container_gets_what_it_asks_for() {
    let Some(bed) = Bed::pure("requests-privileged") else { return };
    let host = host(&bed);
    configure(&host, "accept-env-when-unprivileged = false");
    let mut runc = runc(&bed, &host, &ALL_WORDS);
    for set in ["bounding", "permitted", "effective"] {
        runc.spec()["process"]["capabilities"][set].as_array_mut().expect("a list").push(json!("CAP_SYS_ADMIN"));
    }
    let running = runc.start();
    for (_, _, path, number) in rights(host.majors()) {
        assert_given(&running, path, number);
    }
}

#[test]
fn an_unprivileged_container_gets_no_gpu_where_its_variables_are_not_accepted() {
    for (at, variable) in
        ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0", "CUDA_VERSION=10.2.89"].iter().enumerate()
    {
        let Some(bed) = Bed::pure(&format!("requests-strict-{at}")) else { return };
        let host = host(&bed);
        configure(&host, "accept-env-when-unprivileged = false");
        let mut runc = Runc::new(&bed, "c1");
        injected::prepare(runc.rootfs(), host.majors());
        runc.env(variable).hook("createRuntime", &host.oci_hook("createRuntime", &[]));
        injected::assert_nothing(&runc.start(), host.majors());
        assert_eq!(bed.kept(), [""; 0]);
    }
}

#[test]
fn the_edit_of_a_spec_gives_an_image_no_more_than_the_hook_does() {
    let Some(bed) = Bed::pure("requests-precreate") else { return };
    let host = host(&bed);
    let env = [&["NVIDIA_VISIBLE_DEVICES=1"], &ALL_WORDS[1..]].concat();
    let spec = json!({ "ociVersion": "1.0.2", "process": { "env": env }, "root": { "path": "rootfs" }, "linux": {} });
    let edited = || {
        let output = program::fed(host.gpuhook(&["oci", "precreate"]), spec.to_string().as_bytes());
        assert!(output.status.success(), "{}", program::both(&output));
        serde_json::from_slice::<Value>(&output.stdout).expect("a spec")
    };
    let devices = |spec: &Value| -> Vec<String> {
        let all = spec["linux"]["devices"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|device| device["path"].as_str().map(str::to_owned)).collect()
    };
    let usual = devices(&edited());
    assert!(usual.contains(&"/dev/nvidia0".to_owned()), "{usual:?}");
    for (_, _, path, _) in rights(host.majors()) {
        assert!(!usual.contains(&path.to_owned()), "{path}: {usual:?}");
    }
    configure(&host, "unprivileged-may-ask = [\"mig-config\"]");
    assert!(devices(&edited()).contains(&"/dev/nvidia-caps/nvidia-cap1".to_owned()));
    configure(&host, "accept-env-when-unprivileged = false");
    assert_eq!(edited(), spec, "nothing is asked for, so nothing is changed");
}

#[test]
fn a_container_that_asks_for_nothing_starts_whatever_the_administrators_file_says() {
    let Some(bed) = Bed::pure("requests-broken-config") else { return };
    let host = host(&bed);
    host.configure("no = \"such key\"");
    let mut runc = runc(&bed, &host, &["UNRELATED=1"]);
    let running = runc.start();
    assert_eq!(running.nodes(&["/dev/nvidiactl"]).node("/dev/nvidiactl"), None);
    drop(running);
    let story = runc.env("NVIDIA_VISIBLE_DEVICES=all").try_start().expect_err("it asks");
    assert!(story.contains("config.toml"), "{story}");
}

#[test]
fn mounts_of_dev_null_choose_devices_and_channels() {
    let Some(bed) = Bed::pure("requests-mounts") else { return };
    let host = host(&bed);
    configure(&host, "accept-env-when-unprivileged = false");
    let mut runc = runc(&bed, &host, &["NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices"]);
    for name in ["1", "imex/0"] {
        let destination = format!("/var/run/nvidia-container-devices/{name}");
        let mount = json!({ "source": "/dev/null", "destination": destination, "type": "bind", "options": ["bind"] });
        runc.spec()["mounts"].as_array_mut().expect("a list").push(mount);
    }
    let running = runc.start();
    assert_given(&running, "/dev/nvidia0", (195, 0));
    assert_given(&running, "/dev/nvidia-caps-imex-channels/channel0", (host.majors().imex, 0));
    assert_kept_out(&running, "/dev/nvidia1", (195, 1));
}

#[test]
fn an_annotation_of_cdi_chooses_devices() {
    let Some(bed) = Bed::pure("requests-annotation") else { return };
    let host = host(&bed);
    let mut runc = runc(&bed, &host, &["NVIDIA_VISIBLE_DEVICES=0"]);
    runc.spec()["annotations"] = json!({ "cdi.k8s.io/gpu": "vendor.com/net=eth0,gpuhook.dev/gpu=1" });
    let running = runc.start();
    assert_given(&running, "/dev/nvidia0", (195, 0));
    assert_kept_out(&running, "/dev/nvidia1", (195, 1));
}

#[test]
fn a_legacy_image_gets_all_gpus_without_a_word() {
    let Some(bed) = Bed::pure("requests-legacy") else { return };
    let host = host(&bed);
    let runc = runc(&bed, &host, &["CUDA_VERSION=10.2.89"]);
    let running = runc.start();
    for (path, number) in [("/dev/nvidia0", (195, 0)), ("/dev/nvidia1", (195, 1)), ("/dev/nvidia-modeset", (195, 254))]
    {
        assert_given(&running, path, number);
    }
    assert_kept_out(&running, "/dev/nvidia-caps/nvidia-cap1", (host.majors().caps, 1));
}

#[test]
fn a_driver_that_is_too_old_for_the_image_refuses_the_start() {
    let Some(bed) = Bed::pure("requests-require") else { return };
    let host = host(&bed);
    let needs = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=99.0 brand=tesla,driver>=1,driver<2"];
    let mut runc = runc(&bed, &host, &needs);
    let story = runc.try_start().expect_err("no driver has this CUDA");
    assert!(story.contains("NVIDIA_REQUIRE_CUDA") && story.contains("590.48.01"), "{story}");
    assert_eq!(bed.kept(), [""; 0]);
    assert_given(&runc.env("NVIDIA_DISABLE_REQUIRE=1").start(), "/dev/nvidia1", (195, 1));
}

#[test]
fn what_cannot_be_told_without_nvml_starts_with_a_warning() {
    let Some(bed) = Bed::pure("requests-undecided") else { return };
    let host = host(&bed);
    let runc = runc(&bed, &host, &["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=brand=tesla"]);
    let running = runc.start();
    assert_given(&running, "/dev/nvidia1", (195, 1));
    assert!(report(&runc)["plan"]["warnings"].to_string().contains("brand=tesla"), "{}", report(&runc));
}

/// What CDI leaves in a spec: nodes and rules, here with a number that was right before the upgrade.
#[test]
fn what_another_injector_brings_is_looked_at_and_left_alone() {
    let Some(bed) = Bed::pure("requests-duplicate") else { return };
    let host = host(&bed);
    let mut runc = runc(&bed, &host, &["NVIDIA_VISIBLE_DEVICES=all"]);
    let stale = Majors::OLD.uvm;
    runc.spec()["linux"]["devices"] = json!([
        { "path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1 },
        { "path": "/dev/nvidia-uvm", "type": "c", "major": stale, "minor": 0 },
    ]);
    runc.allow(195, Some(1)).allow(stale, Some(0));
    let running = runc.start();
    assert_given(&running, "/dev/nvidia1", (195, 1));
    assert_given(&running, "/dev/nvidia-uvm", (stale, 0));
    assert_kept_out(&running, "/dev/nvidia0", (195, 0));
    assert_kept_out(&running, "/dev/nvidiactl", (195, 255));

    let report = report(&runc);
    assert!(report["plan"]["warnings"].to_string().contains("duplicate-injection: /dev/nvidia1"), "{report}");
    assert_eq!(
        (&report["outcome"], &report["applied"], &report["plan"]["mounts"]),
        (&json!("partial"), &json!([]), &json!([]))
    );
    let rungs = report["rungs"].as_array().expect("rungs");
    let l1 =
        |path: &str| rungs.iter().find(|rung| rung["rung"] == "L1" && rung["subject"] == path).map(|rung| &rung["ok"]);
    assert_eq!(
        (l1("/dev/nvidia1"), l1("/dev/nvidia-uvm"), l1("/dev/nvidia0")),
        (Some(&json!(true)), Some(&json!(false)), None)
    );
}

#[test]
fn nvidias_own_hook_injects_alone() {
    let Some(bed) = Bed::pure("requests-nvidia-hook") else { return };
    let host = host(&bed);
    let mut runc = runc(&bed, &host, &["NVIDIA_VISIBLE_DEVICES=all"]);
    let hook = bed.dir("nvidia").join("nvidia-container-runtime-hook");
    fs::copy("/bin/true", &hook).expect("a program of that name");
    let hook = hook.display().to_string();
    runc.hook("prestart", &[hook.clone(), "prestart".to_owned()]);
    let running = runc.start();
    assert_kept_out(&running, "/dev/nvidia0", (195, 0));
    let report = report(&runc);
    assert!(report["plan"]["warnings"].to_string().contains(&hook), "{report}");
    let absent = report["rungs"].as_array().expect("rungs").iter().filter(|rung| rung["ok"] == false).count();
    assert!(absent > 0, "the hook has run and brought nothing: {report}");
}

#[test]
fn the_same_words_work_in_lxc() {
    for (at, (line, arguments)) in [
        ("lxc.environment = NVIDIA_VISIBLE_DEVICES=0:1", ""),
        ("lxc.environment = NVIDIA_VISIBLE_DEVICES=none", "--devices nvidia.com/gpu=0:1 --nvswitch"),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(bed) = Bed::pure(&format!("requests-lxc-{at}")) else { return };
        let host = host(&bed);
        let mut lxc = Lxc::privileged(&bed, "c1");
        lxc.line(line).line("lxc.environment = NVIDIA_IMEX_CHANNELS=2");
        lxc.register(Registration::Include, &host.lxc_hook(arguments));
        let running = lxc.start();
        bed.wait_for(&program::gpuhook());
        let nvswitch = "/dev/nvidia-nvswitch0";
        let cap = "/dev/nvidia-caps/nvidia-cap265";
        let channel = "/dev/nvidia-caps-imex-channels/channel2";
        let said = running.nodes(&["/dev/nvidia1", cap, channel, nvswitch, "/dev/nvidia0"]);
        for (path, number) in
            [("/dev/nvidia1", (195, 1)), (cap, (host.majors().caps, 265)), (channel, (host.majors().imex, 2))]
        {
            assert_eq!(said.node(path).map(|node| node.number), Some(number), "{path}\n{}", running.story());
            assert_ne!(said.open(path), "EPERM", "{path}");
        }
        assert_eq!(said.node(nvswitch).is_some(), arguments.contains("nvswitch"), "{line}");
        assert_eq!(said.node("/dev/nvidia0"), None);
        assert_eq!(running.open_own((host.majors().caps, 147)), "EPERM");
    }
}
