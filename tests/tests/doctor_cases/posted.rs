// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts that people posted, or described beside what they posted.

use super::Expect::{Cause, Note};
use super::{AMD, DEVICES, FAILS_999, INSIDE, LISTED, PLAIN, Row, UVM_509, V1_DEVICES};

pub(super) const ROWS: &[Row] = &[
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
    // Facts that the posters only describe, beside what they posted.
    Row {
        case: "014",
        add: &[
            UVM_509,
            ("proc/driver/nvidia/gpus/0000:07:00.0/information", "Device Minor: \t 2\n"),
            ("proc/driver/nvidia/gpus/0000:0b:00.0/information", "Device Minor: \t 3\n"),
            ("proc/driver/nvidia/gpus/0000:48:00.0/information", "Device Minor: \t 0\n"),
            ("proc/driver/nvidia/gpus/0000:4c:00.0/information", "Device Minor: \t 1\n"),
            (
                "dev.list",
                "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\ncrw-rw-rw- 1 root root 195, 1 /dev/nvidia1\n\
                 crw-rw-rw- 1 root root 195, 2 /dev/nvidia2\ncrw-rw-rw- 1 root root 195, 3 /dev/nvidia3\n",
            ),
        ],
        why: "grep_device_minor.txt as the files it was made from: another order than the bus is no fault",
        ..PLAIN
    },
    Row { case: "015", lay: &[("version_open_545", "proc/driver/nvidia/version")], ..PLAIN },
    Row { case: "015", lay: &[("version_open_555", "proc/driver/nvidia/version")], ..PLAIN },
    Row { case: "015", lay: &[("version_proprietary_550", "proc/driver/nvidia/version")], ..PLAIN },
    Row { case: "015", lay: &[("version_proprietary_580", "proc/driver/nvidia/version")], ..PLAIN },
    Row {
        case: "016",
        lay: &[("udev_rule_broken.txt", "etc/udev/rules.d/60-nvidia.rules")],
        add: &[UVM_509],
        expect: Note(
            "udev-rule",
            "mknod -m 666 /dev/nvidiactl c $(grep nvidia-frontend /proc/devices | cut -d \\  -f 1) 255",
        ),
        says: &["since 545"],
        ..PLAIN
    },
    Row {
        case: "016",
        lay: &[("udev_rule_broken.txt", "etc/udev/rules.d/60-nvidia.rules")],
        add: &[
            UVM_509,
            (
                "dev.list",
                "crw-rw-rw- 1 root root 509, 0 /dev/nvidia-uvm\nls: cannot access '/dev/nvidiactl': No such file or directory\n",
            ),
        ],
        expect: Cause("missing-node", "/dev/nvidiactl"),
        says: &["udev-rule"],
        why: "what the rule leads to, as the thread tells it",
    },
    Row {
        case: "016",
        lay: &[("udev_rule_broken.txt", "etc/udev/rules.d/60-nvidia.rules")],
        add: &[("proc/devices", "Character devices:\n195 nvidia-frontend\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n")],
        why: "with an older driver the rule is right",
        ..PLAIN
    },
    Row {
        case: "060",
        lay: &[("cuda_error.txt", "dev.list")],
        add: &[("proc/modules", "nvidia 56750080 2 - Live 0x0000000000000000 (POE)\n")],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        says: &["gpuhook nodes"],
        why: "the maintainer's words: nothing had loaded the module since the reboot",
    },
    Row {
        case: "060",
        lay: &[("cuda_error.txt", "dev.list")],
        add: &[UVM_509],
        expect: Note("missing-node", "/dev/nvidia-uvm-tools"),
        why: "CUDA does without the tools' node, docker's fixed list does not: the one absent node is named",
        ..PLAIN
    },
    Row {
        case: "066",
        add: &[
            UVM_509,
            (
                "dev.list",
                "crw-rw-rw- 1 root root 243, 0 /dev/nvidia-uvm\ncrw-rw-rw- 1 root root 243, 1 /dev/nvidia-uvm-tools\n",
            ),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["243", "509"],
        why: "log.txt has mknod's complaint only: the nodes of before the module was loaded anew",
        ..PLAIN
    },
    Row {
        case: "076",
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n  8 sd\n"),
            (
                "lib/modules/6.8.12-4-pve/modules.dep",
                "updates/dkms/nvidia.ko:\nupdates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\n",
            ),
        ],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        says: &["6.8.12-4-pve and is not loaded"],
        why: "after a boot in which nobody asked for CUDA, as the threads tell it",
        ..PLAIN
    },
    Row {
        case: "079",
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true},{"rung":"L1","subject":"/dev/nvidia-uvm","ok":false,
                "explain":"no such node in the container; hint: gpuhook inject brings it in"},
                {"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENOENT"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("missing-node", "/dev/nvidia-uvm"),
        why: "nodes.txt has no unified memory at all: what a probe says of such a rootfs",
        ..PLAIN
    },
    Row {
        case: "079",
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L4","subject":"libcuda.so.1","ok":false,
                "explain":"driver libraries of version 535.54.03, kernel module of version 590.48.01: CUDA needs the same on both sides"}],
                "cuinit":803}"#,
            ),
        ],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["535.54.03", "590.48.01"],
        why: "the libraries that were copied into the template have aged",
        ..PLAIN
    },
    Row {
        case: "082",
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n237 nvidia-caps\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
            ),
            ("dev.list", "cr--r--r-- 1 root root 237, 440 /dev/nvidia-caps/nvidia-cap440\n"),
        ],
        why: "a minor above 255 is a minor like any other",
        ..PLAIN
    },
    Row {
        case: "082",
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n236 nvidia-caps\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
            ),
            ("dev.list", "cr--r--r-- 1 root root 237, 440 /dev/nvidia-caps/nvidia-cap440\n"),
        ],
        expect: Note("stale-node", "/dev/nvidia-caps/nvidia-cap440"),
        why: "and stale in the same way; CUDA on a whole GPU does without it",
        ..PLAIN
    },
    Row {
        case: "084",
        lay: &[("links.txt", "dev.list")],
        add: &[("proc/devices", "Character devices:\n195 nvidia\n234 nvidia-caps\n\nBlock devices:\n  8 sd\n")],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        why: "234 is the capabilities' here, and nothing shows unified memory: the links are right",
        ..PLAIN
    },
    Row {
        case: "084",
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n234 nvidia-caps\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
            ),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-caps/nvidia-cap111","ok":true},
                {"rung":"L3","subject":"/dev/nvidia-caps/nvidia-cap111","ok":false,"errno":"EACCES"}],"cuinit":100}"#,
            ),
        ],
        expect: Cause("no-gpu", "cuInit"),
        says: &["wrong-mode", "MIG"],
        why: "the user may not open the instance's capability: no device is left, and the warning says which node",
        ..PLAIN
    },
    Row {
        case: "085",
        add: &[UVM_509, ("probe.json", r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true}],"cuinit":0}"#)],
        says: &["CUDA initialises"],
        why: "NVML's refusal on the parent GPU is by design, and CUDA works",
        ..PLAIN
    },
    Row {
        case: "095",
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n234 nvidia-caps-imex-channels\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
            ),
            ("dev.list", "ls: cannot access '/dev/nvidia-caps-imex-channels/channel0': No such file or directory\n"),
        ],
        says: &["NVreg_CreateImexChannel0=1", "gives a container the channels"],
        why: "info: only multi-node NVLink needs a channel",
        ..PLAIN
    },
    Row {
        case: "123",
        lay: &[("oci-hook.json", "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json")],
        add: &[UVM_509],
        says: &["legacy-hook"],
        why: "alone it is in order",
        ..PLAIN
    },
    Row {
        case: "123",
        lay: &[("oci-hook.json", "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json")],
        add: &[
            UVM_509,
            (
                "etc/containers/oci/hooks.d/gpuhook.json",
                r#"{"version":"1.0.0","hook":{"path":"/usr/bin/gpuhook","args":["gpuhook","oci","precreate"]}}"#,
            ),
        ],
        expect: Note("duplicate-injection", "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"),
        says: &["rm /usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"],
        ..PLAIN
    },
    Row { case: "125", lay: &[("cdi_frozen.yaml", "etc/cdi/nvidia.yaml")], add: &[UVM_509], ..PLAIN },
    Row {
        case: "125",
        lay: &[("cdi_frozen.yaml", "etc/cdi/nvidia.yaml")],
        add: &[("proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n")],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm"),
        says: &["509", "511", "/etc/cdi/nvidia.yaml"],
        ..PLAIN
    },
    Row {
        case: "125",
        lay: &[("cdi_dynamic.yaml", "etc/cdi/nvidia.yaml")],
        add: &[("proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n")],
        why: "without a number the engine looks at the host's node",
        ..PLAIN
    },
    Row {
        case: "126",
        lay: &[("cdi_mount.yaml", "etc/cdi/nvidia.yaml")],
        add: &[
            UVM_509,
            ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun\n"),
        ],
        expect: Cause("stale-cdi", "/usr/lib/x86_64-linux-gnu/libEGL_nvidia.so.535.171.07"),
        says: &["535.183.01", "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"],
        ..PLAIN
    },
    Row {
        case: "141",
        lay: &[("dev_char_links.txt", "dev.list")],
        add: &[UVM_509],
        expect: Note("dev-char", "/dev/char/509:0"),
        says: &["daemon-reload", "/dev/char/509:1"],
        why: "nothing fails yet, so it is a warning",
    },
    Row {
        case: "141",
        add: &[
            UVM_509,
            (
                "dev.list",
                "/dev/char/195:255 -> ../nvidiactl\n/dev/char/504:0 -> ../nvidia-uvm\n/dev/char/509:0 -> ../nvidia-uvm\n\
                 /dev/char/509:1 -> ../nvidia-uvm-tools\n",
            ),
        ],
        expect: Note("dev-char", "/dev/char/504:0"),
        says: &["earlier boot"],
        why: "the other half of the notice: a link that a reboot has made stale",
        ..PLAIN
    },
    Row {
        case: "142",
        add: &[UVM_509, ("dev.list", "crw-rw-rw- 1 root root 195, 255 /dev/nvidiactl\n/dev/char/1:5 -> ../zero\n")],
        expect: Note("dev-char", "/dev/char/195:255"),
        says: &["runc 1.1.3 to 1.1.6"],
        why: "DeviceAllow.txt names a link that is not there; versions of programs are said and not asked",
        ..PLAIN
    },
    Row {
        case: "148",
        add: &[UVM_509, ("proc/self/mountinfo", V1_DEVICES), ("run/systemd/container", "lxc\n")],
        expect: Note("nested", "host"),
        says: &["no-cgroups = true"],
        why: "the engine's error text is no fact of the host; where it runs is",
        ..PLAIN
    },
    Row {
        case: "157",
        add: &[
            UVM_509,
            (
                "dev.list",
                "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\ncrw-rw-rw- 1 root root 509, 0 /dev/nvidia-uvm\n\
                 /dev/char/195:0 -> ../nvidia0\n/dev/char/195:255 -> ../nvidiactl\n",
            ),
        ],
        expect: Note("dev-char", "/dev/char/509:0"),
        says: &["gpuhook nodes"],
        why: "what the race leaves: links that were made before unified memory had its node",
        ..PLAIN
    },
    Row {
        case: "160",
        add: &[AMD, ("dev.list", "crw-rw-rw- 1 root render 235, 0 /dev/kfd\n")],
        expect: Cause("stale-node", "/dev/kfd"),
        says: &["kfd has 234"],
        why: "error.txt has ROCm's words only: a node with the number of an earlier boot, as the thread tells it",
        ..PLAIN
    },
];
