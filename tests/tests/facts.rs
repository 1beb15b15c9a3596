// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts: posted texts of real machines give the answers that we argue for, and reading below a root is safe.
//!
//! Each folder of `fixtures/cases` is what one person posted; the comment above its test says where the right answer
//! is not obvious.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuhook_core::device::{DeviceId, Major, Minor};
use gpuhook_core::facts::majors::{
    KFD, NVIDIA, NVIDIA_CAPS, NVIDIA_CAPS_IMEX_CHANNELS, NVIDIA_NVLINK, NVIDIA_NVSWITCH, NVIDIA_UVM,
};
use gpuhook_core::facts::{CgroupLocation, HostFacts, HostNode, IdMap, MajorError, Majors, NodeKind};
use gpuhook_linux::gather::{self, GatherError, Wanted};
use gpuhook_linux::root::{Root, RootError};
use tempfile::TempDir;

const EVERYTHING: Wanted = Wanted { capabilities: true, instances: true, mig_uuids: true, nodes: true };

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn posted(file: &str) -> String {
    let path = fixtures().join("cases").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn majors(file: &str) -> Majors {
    Majors::parse(&posted(file))
}

/// A folder with these files, as somebody could post it.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn root(folder: &Path) -> Root {
    Root::open(folder.to_str().unwrap()).unwrap()
}

fn facts_of(folder: &TempDir) -> HostFacts {
    gather::host(&root(folder.path()), EVERYTHING).unwrap()
}

fn fixture_host(name: &str, wanted: Wanted) -> HostFacts {
    let facts = gather::host(&root(&fixtures().join("hosts").join(name)), wanted).unwrap();
    assert_eq!(facts.warnings, [""; 0]);
    facts
}

fn missing(name: &'static str) -> Result<Major, MajorError> {
    Err(MajorError::Missing { name, complete: true })
}

#[test]
fn case_001_every_major_of_a_double_name_is_kept() {
    let case = "001-proc-535-frontend-full-dup-infiniband";
    let folder = folder(&[
        ("proc/devices", &posted(&format!("{case}/proc_devices"))),
        ("proc/driver/nvidia/params", &posted(&format!("{case}/params_excerpt.txt"))),
    ]);
    let facts = facts_of(&folder);
    assert_eq!(facts.params.device_file_mode, Some(0o666));
    let majors = facts.majors.unwrap();
    assert_eq!(majors.primary(), Ok(Major(195)));
    for (name, major) in [(NVIDIA_CAPS, 236), (NVIDIA_NVSWITCH, 234), (NVIDIA_NVLINK, 235), (NVIDIA_UVM, 510)] {
        assert_eq!(majors.only(name), Ok(Major(major)));
    }
    assert!(majors.by_name["infiniband_verbs"].iter().eq(&[Major(231), Major(507)]));
    for (major, owner) in [(511, "hidraw"), (508, "mei"), (509, "ipmidev"), (504, "")] {
        assert_eq!(majors.names_of(Major(major)).concat(), owner);
    }
    assert!(majors.complete && majors.odd_lines.is_empty());
    assert!(!majors.by_name.contains_key("sd"), "a block device is no character device");
}

#[test]
fn case_003_three_names_share_195() {
    let majors = majors("003-proc-580-nvidia-modeset-nvidiactl/proc_devices");
    assert_eq!(majors.primary(), Ok(Major(195)));
    for (name, major) in [(NVIDIA_UVM, 511), (NVIDIA_CAPS, 236), (NVIDIA_NVSWITCH, 234), (NVIDIA_NVLINK, 235)] {
        assert_eq!(majors.only(name), Ok(Major(major)));
    }
    assert_eq!(majors.names_of(Major(195)), ["nvidia", "nvidia-modeset", "nvidiactl"]);
    assert_eq!(majors.names_of(Major(509)), ["mei"]);
    // Every node of the listing has the number that its driver has now.
    let nodes = HostNode::parse_listing(&posted("003-proc-580-nvidia-modeset-nvidiactl/ls_dev.txt"));
    assert_eq!(nodes.len(), 7);
    for node in nodes {
        let NodeKind::Character(id) = node.kind else { panic!("{node:?}") };
        assert_eq!(majors.node_of(id), Some(node.path));
    }
}

#[test]
fn case_004_imex_is_not_taken_for_caps_and_uvm_is_missing() {
    let majors = majors("004-proc-imex-listed-uvm-absent/proc_devices");
    assert_eq!(majors.only(NVIDIA_CAPS_IMEX_CHANNELS), Ok(Major(234)));
    assert_eq!(majors.only(NVIDIA_NVSWITCH), Ok(Major(509)));
    assert_eq!(majors.only(NVIDIA_CAPS), missing(NVIDIA_CAPS));
    assert_eq!(majors.only(NVIDIA_UVM), missing(NVIDIA_UVM));
    assert!(majors.only(NVIDIA_UVM).unwrap_err().to_string().contains("nvidia-modprobe -u -c 0"));
}

#[test]
fn case_005_caps_and_imex_are_never_confused() {
    let majors = majors("005-proc-595-imex-on-plain-L4/proc_devices");
    for (name, major) in [
        (NVIDIA_CAPS, 235),
        (NVIDIA_CAPS_IMEX_CHANNELS, 236),
        (NVIDIA_UVM, 510),
        (NVIDIA_NVSWITCH, 511),
        (NVIDIA_NVLINK, 234),
        ("accel", 261),
    ] {
        assert_eq!(majors.only(name), Ok(Major(major)));
    }
}

#[test]
fn case_006_a_listing_that_may_be_cut_says_so_instead_of_missing() {
    let majors = majors("006-proc-desktop-no-uvm-no-caps/proc_devices_head50");
    assert_eq!(majors.primary(), Ok(Major(195)));
    assert_eq!(majors.names_of(Major(236)), ["media"]);
    assert!(majors.odd_lines.is_empty());
    let refusal = majors.only(NVIDIA_UVM).unwrap_err();
    assert_eq!(refusal, MajorError::Missing { name: NVIDIA_UVM, complete: false });
    assert!(refusal.to_string().contains("incomplete"), "{refusal}");
}

#[test]
fn case_007_an_amd_machine_has_kfd_where_others_have_uvm() {
    let majors = majors("007-proc-amd-kfd-234-accel-261/proc_devices");
    assert_eq!(majors.only(KFD), Ok(Major(234)));
    assert_eq!(majors.only("drm"), Ok(Major(226)));
    assert_eq!(majors.only("accel"), Ok(Major(261)));
    assert_eq!(majors.primary(), missing(NVIDIA));
    assert_eq!(majors.names_of(Major(254)), ["gpiochip"], "the block device of that number is mdp");
    assert_eq!(majors.node_of(DeviceId::new(234, 0)).as_deref(), Some("/dev/kfd"));
}

// That a virtual machine's numbers are not the host's is for whoever chooses the root to read below.
#[test]
fn case_009_a_guest_has_numbers_of_its_own() {
    let case = "009-proc-kata-guest-uvm-243";
    let folder = folder(&[
        ("proc/devices", &posted(&format!("{case}/proc_devices"))),
        ("dev.list", &posted(&format!("{case}/ls_dev_container.txt"))),
    ]);
    let facts = facts_of(&folder);
    let majors = facts.majors.unwrap();
    assert_eq!((majors.primary(), majors.only(NVIDIA_UVM)), (Ok(Major(195)), Ok(Major(243))));
    let paths: Vec<_> = facts.nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(paths, ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]);
    assert_eq!(facts.nodes[1].kind, NodeKind::Character(DeviceId::new(243, 1)));
}

// The proposal to use 195 where /dev/nvidia0 agrees is not followed: nodes are never a source of truth, and no driver
// registers two majors here, so such a list is not the kernel's own.
#[test]
fn case_010_two_majors_for_the_gpus_are_refused_with_both() {
    for (file, second) in [("proc_devices", 509), ("proc_devices_b", 196)] {
        let majors = majors(&format!("010-proc-both-names-different-majors/{file}"));
        let refusal = majors.primary().unwrap_err();
        assert!(matches!(refusal, MajorError::Ambiguous { .. }), "{refusal:?}");
        let both = format!("nvidia=195, nvidia-frontend={second}");
        assert!(refusal.to_string().contains(&both), "{refusal}");
    }
    assert_eq!(majors("010-proc-both-names-different-majors/proc_devices").only(NVIDIA_UVM), Ok(Major(511)));
    let block = majors("010-proc-both-names-different-majors/proc_devices_block_only");
    assert!(block.by_name.is_empty() && block.complete);
    assert_eq!(block.primary(), missing(NVIDIA));
}

#[test]
fn case_011_edge_lines_parse_and_near_misses_do_not_match() {
    for (file, primary, odd) in [
        ("v1", None, ""),
        ("v2", None, "Not a valid line:"),
        ("v3", Some(195), ""),
        ("v4", Some(195), ""),
        ("v5", Some(195), ""),
        ("v6", Some(195), ""),
        ("v7", Some(195), "Not a valid line:"),
        ("v8", None, ""),
    ] {
        let majors = majors(&format!("011-proc-parser-edge-lines/{file}"));
        assert_eq!(majors.primary().ok(), primary.map(Major), "{file}");
        assert_eq!(majors.odd_lines.concat(), odd, "{file}");
    }
    assert_eq!(majors("011-proc-parser-edge-lines/v5").only(NVIDIA_CAPS), Ok(Major(235)));
    // The kernel prints one character section; a second one that disagrees must not decide, whichever is right.
    let second = majors("011-proc-parser-edge-lines/v9_second_section");
    assert!(matches!(second.primary(), Err(MajorError::Ambiguous { .. })));
    assert_eq!(second.only(NVIDIA_UVM), Ok(Major(510)));
}

#[test]
fn case_012_the_only_gpu_can_have_minor_3() {
    let case = "012-proc-a10g-single-visible-minor3";
    let folder = folder(&[
        ("proc/devices", &posted(&format!("{case}/proc_devices"))),
        ("proc/driver/nvidia/gpus/0000:00:1e.0/information", &posted(&format!("{case}/gpus/0000:00:1e.0/information"))),
    ]);
    let facts = facts_of(&folder);
    let [gpu] = facts.gpus.as_slice() else { panic!("{:?}", facts.gpus) };
    assert_eq!(gpu.minor, Minor(3));
    assert_eq!(gpu.address.to_string(), "0000:00:1e.0");
    assert_eq!(gpu.uuid.as_deref(), Some("GPU-00000000-1111-2222-3333-444444444444"));
    assert_eq!(gpu.model.as_deref(), Some("NVIDIA A10G"));
    assert!(!gpu.excluded);
    let majors = facts.majors.unwrap();
    assert_eq!((majors.only(NVIDIA_CAPS), majors.only(NVIDIA_UVM)), (Ok(Major(506)), Ok(Major(234))));
    assert_eq!(majors.node_of(DeviceId::new(195, 3)).as_deref(), Some("/dev/nvidia3"));
}

#[test]
fn case_013_fields_of_an_older_driver_are_understood() {
    let case = "013-proc-info-old-blacklisted-field/gpus/0000:02:00.0";
    let folder = folder(&[
        ("proc/driver/nvidia/gpus/0000:02:00.0/information", &posted(&format!("{case}/information"))),
        ("proc/driver/nvidia/gpus/0000:02:00.0/registry", &posted(&format!("{case}/registry"))),
    ]);
    let facts = facts_of(&folder);
    assert_eq!(facts.warnings, [""; 0]);
    let [gpu] = facts.gpus.as_slice() else { panic!("{:?}", facts.gpus) };
    assert_eq!((gpu.minor, gpu.excluded), (Minor(1), false));
    assert!(facts.majors.is_none(), "what is absent is not known");
}

#[test]
fn case_014_minors_do_not_follow_the_bus() {
    let text = posted("014-proc-8gpu-minor-not-bus-order/grep_device_minor.txt");
    let folder = folder(&[]);
    for line in text.lines() {
        let (directory, field) = line.trim_start_matches('/').split_once("/information:").unwrap();
        let directory = folder.path().join(directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("information"), field).unwrap();
    }
    let facts = facts_of(&folder);
    let minors: Vec<u32> = facts.gpus.iter().map(|gpu| gpu.minor.0).collect();
    assert_eq!(minors, [2, 3, 0, 1, 6, 7, 4, 5]);
    assert_eq!(facts.gpus[0].address.to_string(), "0000:07:00.0");
}

#[test]
fn case_015_version_and_flavour_are_told_from_every_text() {
    for (file, version, open) in [
        ("version_proprietary_580", Some("580.95.05"), false),
        ("version_open_580", Some("580.95.05"), true),
        ("version_open_555", Some("555.58.02"), true),
        ("version_open_545", Some("545.23.06"), true),
        ("version_proprietary_550", Some("550.127.05"), false),
        ("version_open_aarch64_temp", None, true),
    ] {
        let text = posted(&format!("015-proc-version-texts/{file}"));
        let driver = facts_of(&folder(&[("proc/driver/nvidia/version", &text)])).driver.unwrap();
        assert_eq!((driver.version.as_deref(), driver.open), (version, open), "{file}");
    }
}

// The udev rule of this case is for doctor.
#[test]
fn case_016_the_gpus_major_is_found_under_either_name() {
    for file in ["proc_devices_535", "proc_devices_550"] {
        let majors = majors(&format!("016-proc-frontend-renamed-breaks-scripts/{file}"));
        assert_eq!(majors.primary(), Ok(Major(195)), "{file}");
        assert_eq!(majors.node_of(DeviceId::new(195, 255)).as_deref(), Some("/dev/nvidiactl"), "{file}");
    }
}

#[test]
fn case_019_numbers_are_named_without_sysfs() {
    let majors = majors("019-proc-spaces-506/proc_devices");
    for (major, minor, path) in [
        (195, 0, "/dev/nvidia0"),
        (195, 254, "/dev/nvidia-modeset"),
        (195, 255, "/dev/nvidiactl"),
        (506, 0, "/dev/nvidia-uvm"),
        (506, 1, "/dev/nvidia-uvm-tools"),
        (236, 439, "/dev/nvidia-caps/nvidia-cap439"),
    ] {
        assert_eq!(majors.node_of(DeviceId::new(major, minor)).as_deref(), Some(path));
    }
    for (major, minor) in [(195, 250), (506, 2), (509, 0), (1, 3)] {
        assert_eq!(majors.node_of(DeviceId::new(major, minor)), None);
    }
}

#[test]
fn the_fixture_host_says_what_it_has_after_its_upgrade() {
    let facts = fixture_host("upgraded", EVERYTHING);
    let majors = facts.majors.as_ref().unwrap();
    assert_eq!(majors.primary(), Ok(Major(195)));
    for (name, major) in [(NVIDIA_UVM, 509), (NVIDIA_CAPS, 237), (NVIDIA_CAPS_IMEX_CHANNELS, 238)] {
        assert_eq!(majors.only(name), Ok(Major(major)));
    }
    let driver = facts.driver.as_ref().unwrap();
    assert_eq!((driver.version.as_deref(), driver.open), (Some("590.48.01"), true));
    assert_eq!((facts.params.device_file_mode, facts.params.imex_channel_count), (Some(0o666), Some(2048)));
    let minors: Vec<u32> = facts.gpus.iter().map(|gpu| gpu.minor.0).collect();
    assert_eq!(minors, [2, 3, 0, 1, 6, 7, 4, 5]);
    assert!(facts.gpus.iter().all(|gpu| gpu.uuid.as_ref().is_some_and(|uuid| uuid.len() == 40)));
    let capabilities: Vec<(&str, u32, u32)> =
        facts.capabilities.iter().map(|found| (found.name.as_str(), found.minor.0, found.mode)).collect();
    assert_eq!(
        capabilities,
        [
            ("fabric-imex-mgmt", 4323, 0o400),
            ("gpu0/mig/gi1", 12, 0o444),
            ("gpu0/mig/gi1/ci0", 13, 0o444),
            ("mig/config", 1, 0o400),
            ("mig/monitor", 2, 0o444),
        ]
    );
    assert_eq!(facts.nodes, [], "no word on /dev");
    let few = fixture_host("upgraded", Wanted { capabilities: true, ..Wanted::default() }).capabilities;
    assert!(few.iter().map(|found| found.name.as_str()).eq(["fabric-imex-mgmt", "mig/config", "mig/monitor"]));
}

#[test]
fn the_fixture_host_had_other_numbers_before_its_upgrade() {
    let facts = fixture_host("before-upgrade", Wanted::default());
    let majors = facts.majors.unwrap();
    assert_eq!(majors.primary(), Ok(Major(195)));
    assert_eq!((majors.only(NVIDIA_UVM), majors.only(NVIDIA_CAPS)), (Ok(Major(504)), Ok(Major(507))));
    assert_eq!(majors.only(NVIDIA_CAPS_IMEX_CHANNELS), missing(NVIDIA_CAPS_IMEX_CHANNELS));
    assert_eq!(facts.gpus, fixture_host("upgraded", Wanted::default()).gpus, "the GPUs are the same ones");
    assert_eq!(facts.capabilities, [], "not asked for");
}

#[test]
fn nothing_below_an_empty_root_is_not_known_and_no_warning() {
    let mut facts = facts_of(&folder(&[]));
    assert_eq!(facts.mig_uuids.problem.take().as_deref(), Some("there is no nvidia-smi-L.txt"));
    assert_eq!(facts, HostFacts::default());
}

#[test]
fn what_cannot_be_understood_is_a_warning_with_file_and_line() {
    for (path, text, words) in [
        ("proc/devices", "195 nvidia\n508 foo bar\n", "\"508 foo bar\""),
        ("proc/devices", "195 nvidia\n509 nvidia-u", "\"509 nvidia-u\""),
        ("proc/devices", "195 nvidia\n\u{0}\u{1}\n", "\"\\0\\u{1}\""),
        ("proc/driver/nvidia/version", "garbage\n", "NVRM version"),
        ("proc/driver/nvidia/params", "DeviceFileMode: rw\n", "DeviceFileMode: rw"),
        ("proc/driver/nvidia/gpus/0000:07:00.0/information", "Device Minor: two\n", "Device Minor: two"),
        ("proc/driver/nvidia/gpus/seven/information", "Device Minor: 2\n", "seven"),
        ("proc/driver/nvidia/capabilities/mig/config", "DeviceFileMinor: -1\n", "DeviceFileMinor: -1"),
    ] {
        let folder = folder(&[(path, text), ("proc/driver/nvidia/gpus/0000:0b:00.0/information", "Device Minor: 3\n")]);
        let facts = facts_of(&folder);
        let [warning] = facts.warnings.as_slice() else { panic!("{path}: {:?}", facts.warnings) };
        let file = path.trim_end_matches("/information");
        assert!(warning.contains(file) && warning.contains(words), "{path}: {warning}");
        assert_eq!(facts.gpus.len(), 1, "{path}: the rest is still read");
    }
}

#[test]
fn files_that_are_none_are_not_waited_for_and_not_swallowed() {
    let big = "x".repeat(usize::try_from(Root::FILE_MAX).unwrap() + 1);
    let folder = folder(&[("proc/driver/nvidia/params", &big), ("proc/driver/nvidia/version/x", "")]);
    let fifo = folder.path().join("proc/devices");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let facts = facts_of(&folder);
    let [devices, version, params] = facts.warnings.as_slice() else { panic!("{:?}", facts.warnings) };
    assert!(devices.contains("proc/devices: not a regular file"), "{devices}");
    assert!(version.contains("version: not a regular file"), "{version}");
    assert!(params.contains("params: larger than 1048576 bytes"), "{params}");
    assert_eq!(facts.majors, None);
    fs::write(folder.path().join("proc/driver/nvidia/params"), &big[1..]).unwrap();
    assert_eq!(facts_of(&folder).warnings.len(), 2, "exactly the limit is read");
}

#[test]
fn links_never_lead_out_of_the_root() {
    let secret = folder(&[("devices", "509 nvidia-uvm\n")]);
    let outside = secret.path().join("devices");
    for link in [outside.clone(), PathBuf::from("../../../../../../..").join(outside.strip_prefix("/").unwrap())] {
        let folder = folder(&[("proc/version", "")]);
        symlink(&link, folder.path().join("proc/devices")).unwrap();
        assert_eq!(facts_of(&folder).majors, None, "{}", link.display());
    }
    // An absolute link is taken below the root.
    let folder = folder(&[("elsewhere", "509 nvidia-uvm\n"), ("proc/version", "")]);
    symlink("/elsewhere", folder.path().join("proc/devices")).unwrap();
    assert_eq!(facts_of(&folder).majors.unwrap().only(NVIDIA_UVM), Ok(Major(509)));
}

#[test]
fn nodes_are_read_from_dev_and_many_channels_are_not() {
    let folder = folder(&[
        ("dev/nvidia-uvm", "left by a failed bind mount"),
        ("dev/nvidia-caps/nvidia-cap1", ""),
        ("dev/nvidia-caps-imex-channels/channel0", ""),
        ("dev/null", ""),
    ]);
    if !needed(mknod(&folder.path().join("dev/nvidia0"), "195", "0"), "CAP_MKNOD") {
        return;
    }
    let nodes = || facts_of(&folder).nodes.into_iter().map(|node| (node.path, node.kind)).collect::<Vec<_>>();
    let expected = [
        ("/dev/nvidia-caps-imex-channels/channel0", NodeKind::NotADevice),
        ("/dev/nvidia-caps/nvidia-cap1", NodeKind::NotADevice),
        ("/dev/nvidia-uvm", NodeKind::NotADevice),
        ("/dev/nvidia0", NodeKind::Character(DeviceId::new(195, 0))),
    ]
    .map(|(path, kind)| (path.to_owned(), kind));
    assert_eq!(nodes(), expected);
    for channel in 1..2048 {
        let path = format!("dev/nvidia-caps-imex-channels/channel{channel}");
        fs::write(folder.path().join(path), "").unwrap();
    }
    assert_eq!(nodes(), expected[1..]);
}

fn mknod(path: &Path, major: &str, minor: &str) -> bool {
    Command::new("mknod").arg(path).args(["c", major, minor]).status().is_ok_and(|status| status.success())
}

/// Whether the machine has what a test needs; where everything must work, it must.
fn needed(there: bool, what: &str) -> bool {
    if !there {
        assert!(std::env::var_os("GPUHOOK_MUST_WORK").is_none_or(|value| value != "1"), "this machine lacks {what}");
        println!("SKIP this machine lacks {what}");
    }
    there
}

#[test]
fn this_machine_is_read_from_its_own_procfs() {
    let host = Root::host().unwrap();
    assert!(host.is_live());
    let majors = gather::host(&host, Wanted::default()).unwrap().majors.unwrap();
    assert_eq!(majors.only("mem"), Ok(Major(1)));
    assert!(majors.complete && majors.odd_lines.is_empty());
}

#[test]
fn a_process_is_found_in_the_cgroup_that_filters_it() {
    let host = Root::host().unwrap();
    let pid = std::process::id();
    let process = host.directory(&format!("proc/{pid}")).unwrap().unwrap();
    let facts = gather::container(&host, &process).unwrap();
    assert_eq!(facts.uid_map, IdMap::parse(&fs::read_to_string("/proc/self/uid_map").unwrap()).unwrap());
    let directory = match &facts.cgroup {
        CgroupLocation::V1 { mount, path } => {
            let devices = format!("{mount}{path}/devices.list");
            assert!(Path::new(&devices).exists(), "{devices}");
            format!("{mount}{path}")
        }
        CgroupLocation::V2 { mount, path } => format!("{mount}{path}"),
        CgroupLocation::Unknown => panic!("no cgroup is mounted here"),
    };
    let members = fs::read_to_string(format!("{directory}/cgroup.procs")).unwrap();
    assert!(members.lines().any(|line| line == pid.to_string()), "{directory}");
}

#[test]
fn a_process_that_is_gone_gives_no_facts() {
    let host = Root::host().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let process = host.directory(&format!("proc/{}", child.id())).unwrap().unwrap();
    let before = gather::container(&host, &process);
    child.kill().unwrap();
    child.wait().unwrap();
    before.unwrap();
    let refusal = gather::container(&host, &process).unwrap_err();
    assert!(matches!(refusal, GatherError::Absent { .. } | GatherError::Unreadable { .. }), "{refusal:?}");
}

#[test]
fn an_id_map_that_cannot_be_understood_is_an_error_and_no_guess() {
    let folder = folder(&[
        ("proc/self/mountinfo", ""),
        ("process/cgroup", "0::/\n"),
        ("process/uid_map", "0 100000 65536\n"),
        ("process/gid_map", "0 100000\n"),
    ]);
    let host = root(folder.path());
    let process = host.directory("process").unwrap().unwrap();
    let refusal = gather::container(&host, &process).unwrap_err();
    assert!(refusal.to_string().contains("gid_map"), "{refusal}");
    fs::write(folder.path().join("process/gid_map"), "0 100000 65536\n").unwrap();
    let facts = gather::container(&host, &process).unwrap();
    assert_eq!((facts.gid_map.to_host(44), facts.cgroup), (Some(100_044), CgroupLocation::Unknown));
}

/// What `script` says in a private mount namespace, with this test program as `$0`; nothing where that is not allowed.
fn in_private_mounts(script: &str) -> Option<String> {
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script])
        .arg(std::env::current_exe().unwrap())
        .env("GPUHOOK_TEST_INSIDE", "1")
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let allowed = !text.contains("unshare failed");
    assert!(!allowed || output.status.success(), "{text}");
    needed(allowed, "a private mount namespace").then_some(text)
}

#[test]
fn cgroup2_mounted_over_everything_is_what_counts() {
    let script = "mount -t cgroup2 none /sys/fs/cgroup; cat /proc/self/mountinfo";
    let Some(mountinfo) = in_private_mounts(script) else { return };
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
    let expected = CgroupLocation::V2 { mount: "/sys/fs/cgroup".to_owned(), path };
    assert_eq!(CgroupLocation::parse(&cgroup, &mountinfo), expected);
}

#[test]
fn a_proc_that_is_not_procfs_is_refused() {
    if std::env::var_os("GPUHOOK_TEST_INSIDE").is_some() {
        let refusal = Root::host().unwrap_err();
        assert_eq!(refusal, RootError::NotProcfs { path: "/proc".to_owned() });
        return;
    }
    let script = "mount -t tmpfs none /proc; \"$0\" --exact a_proc_that_is_not_procfs_is_refused";
    let Some(text) = in_private_mounts(script) else { return };
    assert!(text.contains("1 passed"), "{text}");
}
