// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doctor on what people posted: each row lays the files of one folder of `fixtures/cases` out below a host's root,
//! adds what the poster only described, and states the one cause. No row may have another error-level finding, but for
//! further lines of the same config.
//!
//! Not in the table, since nothing of them is a fact that a doctor could read: 060, 066, 068, 076, 082, 084, 085, 087, 095,
//! 141, 142, 145, 148, 149, 152, 157, 186, 188 (an error text, a unit, a udev rule or a log line of another program); 011
//! (parser vectors, see `facts.rs`); 079 (libraries copied into a rootfs, see `doctor.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuhook_core::findings::FindingId;
use gpuhook_tests::program;
use serde_json::Value;
use tempfile::TempDir;

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
const CONFIG: (&str, &str) = ("pve.conf", "etc/pve/lxc/100.conf");
const FAILS_999: (&str, &str) = ("probe.json", r#"{"rungs":[],"cuinit":999}"#);

const ROWS: &[Row] = &[
    // Configs, judged with the host's facts; `config lint` has the whole of them.
    Row {
        case: "021",
        lay: &[DEVICES, CONFIG],
        expect: Note("foreign-grant", "lxc.cgroup2.devices.allow: c 509:* rwm"),
        says: &["mei"],
        why: "unprivileged on Proxmox: no filter is enforced, so nothing is broken, as the case itself reports",
        ..PLAIN
    },
    Row {
        case: "026",
        lay: &[LISTED, CONFIG],
        add: &[("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n506 nvidia-uvm\n\nBlock devices:\n")],
        expect: Cause("inactive-rule", "lxc.cgroup.devices.allow: c 195:* rwm"),
        says: &["missing-rule", "506"],
        ..PLAIN
    },
    Row {
        case: "028",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 510:* rwm"),
        says: &["nvidia-uvm has 509"],
        ..PLAIN
    },
    Row {
        case: "046",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("missing-rule", "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file"),
        says: &["509:0"],
        ..PLAIN
    },
    Row {
        case: "046",
        lay: &[CONFIG],
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L2","subject":"devices on /lxc/1","ok":false,
                "explain":"refuses c 509:0 rw"},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"EPERM"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("missing-rule", "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file"),
        says: &["cuInit returns 999", "filter-denies"],
        why: "the refusal is what the missing rule does",
    },
    Row {
        case: "046",
        lay: &[CONFIG],
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L2","subject":"/lxc/1","ok":true,
                "explain":"no device filter applies: every device is allowed"},
                {"rung":"L3","subject":"/dev/nvidia-uvm","ok":true}],"cuinit":0}"#,
            ),
        ],
        expect: Note("filter-absent", "/lxc/1"),
        says: &["CUDA initialises"],
        why: "rules are missing and nobody enforces them: not broken, and worth a word",
    },
    Row {
        case: "118",
        lay: &[("pve_before.conf", "etc/pve/lxc/100.conf")],
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n\nBlock devices:\n  8 sd\n",
            ),
            ("lib/modules/7.0.2-6-pve/modules.dep", "updates/dkms/nvidia.ko:\n"),
        ],
        expect: Cause("module-absent", "nvidia-uvm"),
        ..PLAIN
    },
    Row {
        case: "166",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note("stale-rule", "lxc.cgroup2.devices.allow: c 234:* rwm"),
        why: "kfd is not on this host, so the config asks for nothing that the rule should open",
        ..PLAIN
    },
    Row {
        case: "167",
        lay: &[CONFIG],
        add: &[("proc/devices", "Character devices:\n226 drm\n235 kfd\n\nBlock devices:\n  8 sd\n")],
        expect: Cause("mount-option", "lxc.mount.entry: /dev/kfd dev/kfd none bind,optional,create=dir"),
        why: "an AMD host: that it has no NVIDIA driver is no error beside this one",
        ..PLAIN
    },
    // Numbers.
    Row { case: "001", lay: &[DEVICES, ("params_excerpt.txt", "proc/driver/nvidia/params")], ..PLAIN },
    Row { case: "003", lay: &[DEVICES, LISTED], ..PLAIN },
    Row {
        case: "004",
        lay: &[DEVICES],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        says: &["cuInit 999"],
        ..PLAIN
    },
    Row { case: "005", lay: &[DEVICES], ..PLAIN },
    Row {
        case: "006",
        lay: &[("proc_devices_head50", "proc/devices")],
        expect: Note("incomplete-listing", "/proc/devices"),
        says: &["incomplete", "not known"],
        ..PLAIN
    },
    Row {
        case: "007",
        lay: &[DEVICES],
        expect: Cause("no-gpu", "nvidia"),
        says: &["kfd"],
        why: "an AMD machine is in order, but the question is why CUDA fails, and there is no NVIDIA driver",
        ..PLAIN
    },
    Row {
        case: "009",
        lay: &[DEVICES, INSIDE],
        why: "the guest's own numbers: within the guest all is right",
        ..PLAIN
    },
    Row {
        case: "010",
        lay: &[DEVICES],
        expect: Cause("ambiguous-major", "/proc/devices"),
        says: &["195", "509"],
        ..PLAIN
    },
    Row {
        case: "010",
        lay: &[("proc_devices_b", "proc/devices")],
        expect: Cause("ambiguous-major", "/proc/devices"),
        ..PLAIN
    },
    Row { case: "012", lay: &[DEVICES, ("gpus", "proc/driver/nvidia/gpus")], ..PLAIN },
    Row {
        case: "012",
        lay: &[DEVICES, ("gpus", "proc/driver/nvidia/gpus")],
        add: &[(
            "dev.list",
            "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\ncrw-rw-rw- 1 root root 195, 255 /dev/nvidiactl\n",
        )],
        expect: Cause("minor-mismatch", "/dev/nvidia3"),
        says: &["/dev/nvidia0", "Device Minor 3"],
        why: "a node made by counting from 0, as the case's text warns of",
    },
    Row { case: "013", lay: &[("gpus", "proc/driver/nvidia/gpus")], ..PLAIN },
    Row { case: "015", lay: &[("version_open_580", "proc/driver/nvidia/version")], ..PLAIN },
    Row {
        case: "015",
        lay: &[("version_open_aarch64_temp", "proc/driver/nvidia/version")],
        why: "TempVersion is no version, so nothing can mismatch",
        ..PLAIN
    },
    Row {
        case: "016",
        lay: &[("proc_devices_535", "proc/devices")],
        expect: Note("incomplete-listing", "/proc/devices"),
        why: "the excerpt shows one name; either name of the frontend is understood, and of the rest nothing is known",
        ..PLAIN
    },
    Row {
        case: "016",
        lay: &[("proc_devices_550", "proc/devices")],
        expect: Note("incomplete-listing", "/proc/devices"),
        ..PLAIN
    },
    Row { case: "019", lay: &[DEVICES], ..PLAIN },
    // Nodes and modules.
    Row {
        case: "061",
        add: &[("proc/modules", "nvidia 14381056 0 - Live 0x0000000000000000 (O)\n")],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        why: "lsmod.txt says nvidia present, nvidia_uvm absent: written as /proc/modules",
        ..PLAIN
    },
    Row { case: "063", lay: &[LISTED], ..PLAIN },
    Row {
        case: "063",
        lay: &[LISTED],
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n234 nvidia-uvm\n\nBlock devices:\n"),
            (
                "etc/cdi/nvidia.yaml",
                "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n",
            ),
        ],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm"),
        says: &["before that node existed"],
        why: "the spec that the poster describes: without the node that exists now",
    },
    Row {
        case: "065",
        lay: &[LISTED],
        why: "without /proc/devices a number of a node proves nothing, though the case proposes stale-node",
        ..PLAIN
    },
    Row {
        case: "065",
        lay: &[LISTED],
        add: &[UVM_509],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["239", "509"],
        ..PLAIN
    },
    Row {
        case: "067",
        lay: &[DEVICES],
        add: &[("dev.list", "crw-rw-rw- 1 root root 509, 0 /dev/nvidia-uvm\n")],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["nvidia-nvswitch", "508"],
        why: "stat.txt has the major in hexadecimal, 1fd",
    },
    Row {
        case: "067",
        lay: &[DEVICES],
        add: &[
            ("dev.list", "crw-rw-rw- 1 root root 509, 0 /dev/nvidia-uvm\n"),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENODEV"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        why: "strace.txt as the probe would say it",
        ..PLAIN
    },
    Row {
        case: "069",
        lay: &[LISTED],
        expect: Cause("not-a-device", "/dev/dri/renderD128"),
        says: &["create=file"],
        ..PLAIN
    },
    Row {
        case: "070",
        add: &[
            (
                "dev.list",
                "crw-rw-rw- 1 root root 195, 1 /dev/nvidia1\ncrw-rw-rw- 1 root root 195, 2 /dev/nvidia2\n\
                 crw-rw-rw- 1 root root 195, 255 /dev/nvidiactl\n",
            ),
            ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t GTX\nDevice Minor: \t 0\n"),
        ],
        expect: Cause("minor-mismatch", "/dev/nvidia0"),
        says: &["/dev/nvidia1", "/dev/nvidia2"],
        why: "ls_names.txt has names without numbers; the GPU's minor 0 is stated in the thread",
        ..PLAIN
    },
    Row {
        case: "071",
        add: &[
            UVM_509,
            ("dev.list", "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\ncrw-rw-rw- 1 root root 235, 0 /dev/nvidia-uvm\n"),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["235"],
        why: "nodes.txt as ls would show it, on a host of another number",
        ..PLAIN
    },
    Row {
        case: "072",
        lay: &[("ls_dev_broken.txt", "dev.list")],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["never worked"],
        ..PLAIN
    },
    Row { case: "072", lay: &[("ls_dev_fixed.txt", "dev.list")], ..PLAIN },
    Row {
        case: "074",
        lay: &[DEVICES, LISTED],
        expect: Cause("missing-node", "/dev/nvidiactl"),
        says: &["195:255"],
        ..PLAIN
    },
    Row { case: "075", lay: &[("dmesg.txt", "dmesg.txt")], ..PLAIN },
    Row {
        case: "077",
        lay: &[LISTED],
        expect: Cause("wrong-mode", "/dev/nvidia0"),
        says: &["decimal 666", "438"],
        ..PLAIN
    },
    Row {
        case: "078",
        lay: &[INSIDE],
        expect: Cause("not-a-device", "/dev/nvidia-uvm"),
        says: &["create=file"],
        why: "what the container sees, read as a host of its own",
        ..PLAIN
    },
    // MIG and IMEX.
    Row { case: "080", lay: &[LISTED, ("capabilities", "proc/driver/nvidia/capabilities")], ..PLAIN },
    Row { case: "081", lay: &[LISTED], ..PLAIN },
    Row { case: "090", lay: &[INSIDE], ..PLAIN },
    Row { case: "091", lay: &[DEVICES], why: "no IMEX name is no fault", ..PLAIN },
    // Codes.
    Row {
        case: "100",
        lay: &[DEVICES, ("cdi.yaml", "etc/cdi/nvidia.yaml")],
        add: &[FAILS_999],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm"),
        says: &["510", "509", "/etc/cdi/nvidia.yaml:5"],
        ..PLAIN
    },
    Row { case: "101", add: &[FAILS_999], expect: Cause("unexplained", "cuInit"), says: &["999"], ..PLAIN },
    Row {
        case: "101",
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L2","subject":"f on /c","ok":true},
                {"rung":"L3","subject":"/dev/nvidia-uvm","ok":true}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("unexplained", "cuInit"),
        says: &["are fine", "how the engine injects"],
        why: "node, number and filter are right: then the doctor says so and names no cause",
        ..PLAIN
    },
    Row {
        case: "102",
        add: &[FAILS_999],
        expect: Cause("unexplained", "cuInit"),
        why: "nothing but the code is posted; that it is the filter is the maintainer's guess",
        ..PLAIN
    },
    Row {
        case: "103",
        add: &[(
            "probe.json",
            r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"EPERM"}],"cuinit":30}"#,
        )],
        expect: Cause("filter-denies", "/dev/nvidia-uvm"),
        says: &["EPERM", "cuInit returns 30"],
        why: "strace.txt as the probe would say it",
        ..PLAIN
    },
    Row {
        case: "104",
        lay: &[("proc_driver_nvidia_version", "proc/driver/nvidia/version")],
        add: &[("probe.json", r#"{"rungs":[],"cuinit":3}"#)],
        expect: Cause("hmm", "nvidia-uvm"),
        says: &["uvm_disable_hmm"],
        ..PLAIN
    },
    Row {
        case: "104",
        lay: &[("proc_driver_nvidia_version", "proc/driver/nvidia/version")],
        add: &[
            ("probe.json", r#"{"rungs":[],"cuinit":3}"#),
            ("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n"),
        ],
        expect: Cause("unexplained", "cuInit"),
        says: &["not HMM"],
        why: "with HMM off already it is something else",
    },
    Row {
        case: "107",
        lay: &[("dmesg.txt", "dmesg.txt")],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["535.171.04", "535.161.07"],
        ..PLAIN
    },
    Row {
        case: "107",
        lay: &[("dmesg_old_style.txt", "dmesg.txt")],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["440.82", "390.48"],
        ..PLAIN
    },
    Row {
        case: "107",
        lay: &[("dmesg.txt", "dmesg.txt")],
        add: &[(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.171.04  Tue Mar 19\n",
        )],
        why: "the module was reloaded since: the message is of yesterday",
        ..PLAIN
    },
    Row {
        case: "114",
        add: &[(
            "probe.json",
            r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EACCES"}],"cuinit":100}"#,
        )],
        expect: Cause("wrong-mode", "/dev/nvidia0"),
        says: &["EACCES"],
        why: "only the symptom is posted; the errno is the case's inference",
        ..PLAIN
    },
    Row { case: "115", add: &[FAILS_999], expect: Cause("unexplained", "cuInit"), ..PLAIN },
    Row {
        case: "118",
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n\nBlock devices:\n  8 sd\n",
            ),
            (
                "lib/modules/7.0.2-6-pve/modules.dep",
                "updates/dkms/nvidia.ko:\nupdates/dkms/nvidia-modeset.ko: updates/dkms/nvidia.ko\n",
            ),
            FAILS_999,
        ],
        expect: Cause("module-absent", "nvidia-uvm"),
        says: &["7.0.2-6-pve", "without unified memory"],
        why: "the host as the runbook describes it",
        ..PLAIN
    },
    // Filters.
    Row {
        case: "140",
        add: &[(
            "probe.json",
            r#"{"rungs":[{"rung":"L2","subject":"devices.list on /docker/x","ok":false,"explain":"refuses c 195:0 rw; hint: gpuhook inject repairs it"},
            {"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EPERM"}],"cuinit":100}"#,
        )],
        expect: Cause("filter-denies", "/dev/nvidia0"),
        says: &["devices.list on /docker/x", "c 195:0 rw"],
        why: "devices.list.after has only `c 195:* m`: the probe as it would judge that list",
        ..PLAIN
    },
    Row {
        case: "143",
        add: &[UVM_509, ("run/systemd/container", "lxc\n")],
        expect: Note("nested", "host"),
        says: &["no-cgroups = true"],
        why: "being a container is no fault by itself, so it is no error",
        ..PLAIN
    },
    Row { case: "155", lay: &[DEVICES, INSIDE], ..PLAIN },
    // AMD.
    Row {
        case: "161",
        lay: &[INSIDE],
        add: &[(
            "probe.json",
            r#"{"rungs":[{"rung":"L3","subject":"/dev/kfd","ok":false,"errno":"EINVAL"}],"cuinit":null}"#,
        )],
        expect: Cause("driver-refuses", "/dev/kfd"),
        says: &["EINVAL", "driver itself"],
        ..PLAIN
    },
    Row { case: "163", lay: &[LISTED], expect: Cause("wrong-mode", "/dev/kfd"), says: &["0600"], ..PLAIN },
    Row {
        case: "164",
        lay: &[LISTED, ("dmesg.txt", "dmesg.txt")],
        expect: Cause("driver-refuses", "/dev/kfd"),
        says: &["PITCAIRN"],
        ..PLAIN
    },
    // Permissions.
    Row { case: "183", lay: &[("ls_dev_host.txt", "dev.list")], ..PLAIN },
    Row { case: "187", lay: &[INSIDE], why: "a capability's node is 0400 by design", ..PLAIN },
    // Described, and posted by nobody in this collection.
    Row {
        add: &[
            UVM_509,
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
            ),
            ("lib/firmware/nvidia/565.57.01/gsp_ga10x.bin", ""),
            ("dmesg.txt", "NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x62:0x40:2500)\n"),
        ],
        expect: Cause("gsp-firmware", "/lib/firmware/nvidia/570.86.15"),
        says: &["gpu-fault"],
        why: "that no GPU starts is what the absent firmware does",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
            ),
            ("lib/firmware/nvidia/570.86.15/gsp_ga10x.bin", ""),
        ],
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("dmesg.txt", "[9.1] NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.\n")],
        expect: Cause("gpu-fault", "nvidia"),
        says: &["fallen off the bus"],
        ..PLAIN
    },
    Row { add: &[UVM_509, ("dmesg.txt", "[9.1] NVRM: Xid (PCI:0000:07:00): 31, pid=7, MMU Fault\n")], ..PLAIN },
    Row {
        add: &[
            UVM_509,
            ("dmesg.txt", "[9.1] NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.\n"),
            ("probe.json", r#"{"rungs":[],"cuinit":0}"#),
        ],
        expect: Note("gpu-fault", "nvidia"),
        says: &["CUDA initialises"],
        why: "a card that was reset since: CUDA works, and the line is of before",
        ..PLAIN
    },
    Row {
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n234 nvidia-nvswitch\n509 nvidia-uvm\n\nBlock devices:\n"),
            FAILS_999,
        ],
        expect: Cause("unexplained", "cuInit"),
        why: "the mere name nvidia-nvswitch says nothing of a fabric",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- path: /dev/nvidia-uvm\n  major: 510\n"),
            ("probe.json", r#"{"rungs":[],"cuinit":802}"#),
        ],
        expect: Cause("fabric-manager", "nvidia-fabricmanager"),
        says: &["stale-cdi"],
        why: "802 has one cause; the stale file is worth a warning",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("run/cdi/nvidia.yaml", "not: a spec\n")],
        expect: Note("cdi-unresolvable", "/run/cdi/nvidia.yaml"),
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun\n"),
            (
                "etc/cdi/nvidia.yaml",
                "kind: nvidia.com/gpu\nmounts:\n- containerPath: /a\n  hostPath: /usr/lib/libEGL_nvidia.so.535.171.07\n",
            ),
        ],
        expect: Cause("stale-cdi", "/usr/lib/libEGL_nvidia.so.535.171.07"),
        says: &["535.183.01"],
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: \t 0\nGPU Excluded:\t Yes\n"),
        ],
        expect: Cause("no-gpu", "nvidia"),
        says: &["excluded"],
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L2","subject":"p on /system.slice","ok":false,
                "explain":"refuses c 509:0 rw; hint: it is outside the container: change it where it was set"},
                {"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"EPERM"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("ancestor-denies", "p on /system.slice"),
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EIO"}],"cuinit":101}"#,
            ),
        ],
        expect: Cause("gpu-fault", "/dev/nvidia0"),
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L5","subject":"cuInit","ok":null,"explain":"the container has no usable libcuda.so.1"}],"cuinit":null}"#,
            ),
        ],
        expect: Cause("no-libcuda", "libcuda.so.1"),
        ..PLAIN
    },
];

#[test]
fn every_case_has_its_one_cause() {
    let mut wrong = Vec::new();
    for row in ROWS {
        if let Err(story) = judge(row) {
            wrong.push(format!("{} ({:?}; {}): {story}", row.case, row.expect, row.why));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), ROWS.len(), wrong.join("\n\n"));
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
    let at = |path: &str| host.path().join(path).display().to_string();
    for (arguments, code) in [
        (vec!["--host-root".to_owned(), at("empty")], 3),
        (vec!["--host-root".to_owned(), at("nowhere")], 3),
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
    for (option, file) in [("--probe", "probe.json"), ("--container-config", "etc/pve/lxc/100.conf")] {
        if host.join(file).exists() {
            command.arg(option).arg(host.join(file));
        }
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
    for secret in ["1b2c3d4e", "BC:24:11", "10.11.12.13", "secret of another"] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
    assert_eq!(text.matches("GPU-00000000-0000-4000-8000-000000000001").count(), 2, "{text}");
    assert_eq!(text.matches("192.0.2.1").count(), 2, "{text}");
    assert!(text.contains("509 nvidia-uvm") && text.contains("c 509:* rwm"), "{text}");
}

/// Every word that the doctor can say is explained.
#[test]
fn every_finding_of_nodes_container_and_driver_is_documented() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings.md");
    let text = fs::read_to_string(&docs).expect("docs/findings.md");
    let explained: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### ")).flat_map(|words| words.split(", ")).collect();
    for id in FindingId::ALL.iter().filter(|id| **id >= FindingId::MissingNode) {
        assert!(explained.contains(&id.word()), "{id}");
    }
}
