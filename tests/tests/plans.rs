// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden plans: what `gpuhook plan` prints for the requests below on the hosts of `tests/fixtures/hosts`, as a person
//! sees it (`NAME.txt`) and as a program does (`NAME.json`). A request that has no plan leaves its sentence and exit code
//! in `NAME.txt`.
//!
//! `GPUHOOK_BLESS=1 cargo test -p gpuhook-tests --test plans` writes the files anew; judge the difference before you
//! commit it. The minors of both hosts run against bus order, so an index and a minor are never the same number:
//!
//! ```text
//! index   0   1   2   3   4   5   6   7
//! bus    07  0b  48  4c  88  8b  c8  cb
//! minor   2   3   0   1   6   7   4   5
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use gpuhook_tests::golden::{Golden, fixtures};
use gpuhook_tests::program::{command, gpuhook, output};

/// The host after its kernel upgrade: uvm 509, caps 237, IMEX 238 with 2048 channels.
const NEW: &str = "upgraded";
/// The same host before: uvm 504, caps 507, no IMEX channels.
const OLD: &str = "before-upgrade";

/// Two GPUs cut into MIG devices, minors above 255 among their capabilities, and two NVSwitches (nvswitch 240):
///
/// ```text
/// 0:0  gi 1   ci 0   on the GPU with minor 6      1:0  gi 2  ci 0   on the GPU with minor 0
/// 0:1  gi 11  ci 0                                1:1  gi 3  ci 0
///                                                 1:2  gi 3  ci 1
///                                                 1:3  gi 9  ci 0
/// ```
const MIG: &str = "mig";

/// Name, host, and the words after `gpuhook plan`.
const PLANS: &[(&str, &str, &[&str])] = &[
    ("all", NEW, &["--devices", "all"]),
    ("all-before-upgrade", OLD, &["--devices", "all"]),
    ("one-index", NEW, &["--devices", "3"]),
    ("two-indices", NEW, &["--devices", "5,0"]),
    ("one-uuid", NEW, &["--devices", "GPU-d274ae18-5b60-4f9c-b3d7-18ef62c0954a"]),
    ("bad-word", NEW, &["--devices", "GPU-E81D,gpu0"]),
    ("one-uuid-by-its-beginning", NEW, &["--devices", "GPU-E81D"]),
    ("one-bus-id", NEW, &["--devices", "00000000:8B:00.0"]),
    ("none", NEW, &["--devices", "none"]),
    ("void", NEW, &["--devices", "void"]),
    ("utility-only", NEW, &["--devices", "all", "--capabilities", "utility"]),
    ("mig-config-and-monitor", NEW, &["--devices", "0", "--mig-config", "all", "--mig-monitor", "all"]),
    ("mig-config-and-monitor-before-upgrade", OLD, &["--devices", "0", "--mig-config", "all", "--mig-monitor", "all"]),
    ("imex-channels", NEW, &["--devices", "0", "--imex-channels", "7,0,3"]),
    ("display", NEW, &["--devices", "0", "--capabilities", "compute,utility,display"]),
    ("userns-bundle", NEW, &["--bundle", "tests/fixtures/plans/userns-bundle"]),
    ("bad-index", NEW, &["--devices", "8"]),
    ("bad-uuid", NEW, &["--devices", "GPU-00000000-0000-0000-0000-000000000000"]),
    ("bad-bus-id", NEW, &["--devices", "0000:01:00.0"]),
    ("bad-capability", NEW, &["--devices", "0", "--capabilities", "compute,teleport"]),
    ("bad-imex-channel", NEW, &["--devices", "0", "--imex-channels", "2048"]),
    ("bad-imex-word", NEW, &["--devices", "0", "--imex-channels", "three"]),
    ("imex-before-upgrade", OLD, &["--devices", "0", "--imex-channels", "0"]),
    ("mig-instance", NEW, &["--devices", "0:1"]),
    ("mig-all", MIG, &["--devices", "all"]),
    ("mig-position", MIG, &["--devices", "0:1"]),
    ("mig-position-by-uuid", MIG, &["--devices", "GPU-31f0:2"]),
    ("mig-two-of-one-gpu-instance", MIG, &["--devices", "1:1,nvidia.com/gpu=1:2"]),
    ("mig-instances", MIG, &["--devices", "MIG-GPU-31f0a7d4-7be2-4c19-9d55-e84b06a2c9f3/3/1"]),
    ("mig-parent-alone", MIG, &["--devices", "1"]),
    ("mig-uuid", MIG, &["--devices", "MIG-5F0C1A9E-33d2-5b7a-9c6e-0d4f8e2b7a15"]),
    ("mig-uuid-unknown", MIG, &["--devices", "MIG-5f0c1a9e-33d2-5b7a-9c6e-0d4f8e2b7a16"]),
    ("mig-uuid-without-nvidia-smi", NEW, &["--devices", "MIG-5f0c1a9e-33d2-5b7a-9c6e-0d4f8e2b7a15"]),
    ("mig-no-such-position", MIG, &["--devices", "1:4"]),
    ("mig-no-such-instances", MIG, &["--devices", "MIG-GPU-9b1e/2/0"]),
    ("nvswitch", MIG, &["--devices", "none", "--capabilities", "utility", "--nvswitch"]),
    ("nvswitch-absent", NEW, &["--devices", "0", "--nvswitch"]),
    ("management", MIG, &["--devices", "management.nvidia.com/gpu=all", "--capabilities", "utility"]),
    ("management-without-nvswitch", NEW, &["--devices", "management.nvidia.com/gpu=all"]),
    ("cdi-name", NEW, &["--devices", "nvidia.com/gpu=0"]),
    ("requirement-unmet", NEW, &["--bundle", "tests/fixtures/plans/requirement-unmet-bundle"]),
    ("requirement-undecided", NEW, &["--bundle", "tests/fixtures/plans/requirement-undecided-bundle"]),
    ("injected-by-cdi", NEW, &["--bundle", "tests/fixtures/plans/injected-by-cdi-bundle"]),
    ("no-request", NEW, &[]),
];

#[test]
fn every_plan_is_the_golden_one() {
    let mut golden = Golden::folder("plans");
    for (name, host, words) in PLANS {
        let text = plan(host, words, false);
        if text.status.success() {
            golden.check(&format!("{name}.txt"), &text.stdout);
            golden.check(&format!("{name}.json"), &plan(host, words, true).stdout);
        } else {
            assert!(text.stdout.is_empty(), "{name}: a refusal prints no plan");
            let said = format!("exit {}\n{}", text.status.code().unwrap_or(-1), String::from_utf8_lossy(&text.stderr));
            golden.check(&format!("{name}.txt"), said.as_bytes());
        }
    }
    golden.done();
}

#[test]
fn equal_inputs_give_equal_bytes() {
    for (name, host, words) in PLANS {
        assert_eq!(plan(host, words, true), plan(host, words, true), "{name}");
    }
}

/// What the golden files must say whoever blessed them: read off the fixtures, not off the program.
#[test]
fn golden_plans_name_live_numbers_and_minors_of_the_drivers_files() {
    let has = |name: &str, path: &str, number: &str| {
        let text = golden(&format!("{name}.txt"));
        let found = text.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.get(..4) == Some(&["node", path, "c", number])
        });
        assert!(found, "{name}: no {path} with {number}:\n{text}");
    };
    let minors = |name: &str| -> BTreeSet<String> {
        let gpus = golden(&format!("{name}.txt"));
        gpus.lines()
            .filter_map(|line| line.strip_prefix("allow  c 195:")?.strip_suffix(" rw"))
            .map(str::to_owned)
            .collect()
    };
    let gpus = |minors: &[&str]| minors.iter().chain(&["255"]).map(|minor| (*minor).to_owned()).collect();
    assert_eq!(minors("all"), gpus(&["0", "1", "2", "3", "4", "5", "6", "7"]));
    assert_eq!(minors("one-index"), gpus(&["1"]));
    assert_eq!(minors("two-indices"), gpus(&["2", "7"]));
    assert_eq!(minors("one-uuid"), gpus(&["4"]));
    assert_eq!(minors("one-uuid-by-its-beginning"), gpus(&["6"]));
    assert_eq!(minors("one-bus-id"), gpus(&["7"]));
    assert_eq!(minors("none"), gpus(&[]));
    assert_eq!(minors("void"), BTreeSet::new());
    assert_eq!(minors("display"), gpus(&["2", "254"]));
    for (name, uvm) in [("all", 509), ("all-before-upgrade", 504), ("none", 509)] {
        has(name, "/dev/nvidia-uvm", &format!("{uvm}:0"));
        has(name, "/dev/nvidia-uvm-tools", &format!("{uvm}:1"));
    }
    has("mig-config-and-monitor", "/dev/nvidia-caps/nvidia-cap1", "237:1");
    has("mig-config-and-monitor", "/dev/nvidia-caps/nvidia-cap2", "237:2");
    has("mig-config-and-monitor-before-upgrade", "/dev/nvidia-caps/nvidia-cap1", "507:1");
    for channel in [0, 3, 7] {
        has("imex-channels", &format!("/dev/nvidia-caps-imex-channels/channel{channel}"), &format!("238:{channel}"));
    }
    has("mig-position", "/dev/nvidia6", "195:6");
    has("mig-position", "/dev/nvidia-caps/nvidia-cap912", "237:912");
    has("mig-position", "/dev/nvidia-caps/nvidia-cap913", "237:913");
    for name in ["mig-position-by-uuid", "mig-instances", "mig-two-of-one-gpu-instance", "mig-all"] {
        has(name, "/dev/nvidia0", "195:0");
        has(name, "/dev/nvidia-caps/nvidia-cap30", "237:30");
        has(name, "/dev/nvidia-caps/nvidia-cap32", "237:32");
    }
    let nodes = |name: &str| golden(&format!("{name}.txt")).lines().filter(|line| line.starts_with("node ")).count();
    assert_eq!(nodes("mig-position"), 6, "control, GPU, two of unified memory, two capabilities");
    assert_eq!(nodes("mig-two-of-one-gpu-instance"), 7, "the GPU instance that both share comes once");
    assert_eq!(nodes("mig-all"), 3 + 2 + 11, "every capability of both GPUs");
    assert!(!golden("mig-parent-alone.txt").contains("nvidia-cap"), "a GPU is not its MIG devices");
    has("nvswitch", "/dev/nvidia-nvswitchctl", "240:255");
    has("nvswitch", "/dev/nvidia-nvswitch1", "240:1");
    assert!(!golden("nvswitch.txt").contains("nvswitch2"), "a stale node is no NVSwitch");
    let injected = golden("injected-by-cdi.txt");
    assert!(injected.contains("duplicate-injection") && !injected.contains("mount"), "nothing is done:\n{injected}");
    let mounts = golden("imex-channels.txt").lines().filter(|line| line.contains("(directory)")).count();
    assert_eq!(mounts, 1, "all channels are one mount");
    assert!(!golden("utility-only.txt").contains("uvm"), "no CUDA was asked for");
    let shifted = golden("userns-bundle.json");
    assert!(shifted.contains("\"uid\": 100000") && shifted.contains("\"gid\": 200000"), "{shifted}");
    assert!(!shifted.contains("nvidia-cap1\""), "an image's wish to configure MIG is left out:\n{shifted}");
}

fn plan(host: &str, words: &[&str], json: bool) -> Output {
    let mut program = command(gpuhook(), &["plan", "--host-root"]);
    program.current_dir(workspace());
    program.arg(workspace().join("tests/fixtures/hosts").join(host)).args(words).args(json.then_some("--json"));
    // Another machine's administrator must not change what these tests see.
    program.args(["--config", "install/config.toml"]);
    output(program)
}

fn golden(file: &str) -> String {
    fs::read_to_string(fixtures().join("plans").join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root").to_owned()
}
