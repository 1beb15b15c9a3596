// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes that nobody in this collection posted, and those that somebody did in other words, other numbers, another order,
//! and several at once: the kind is what must be known, not the case.

use super::Expect::{Cause, Note};
use super::{AMD, FAILS_999, LXC, PLAIN, PVE, Row, UVM_509, V1_DEVICES};

const NODES: &str = "\
crw-rw-rw- 1 root root 195, 0 /dev/nvidia0
crw-rw-rw- 1 root root 195, 255 /dev/nvidiactl
crw-rw-rw- 1 root root 509, 0 /dev/nvidia-uvm
crw-rw-rw- 1 root root 509, 1 /dev/nvidia-uvm-tools
";
const GPU_0: (&str, &str) = ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: \t 0\n");

pub(super) const ROWS: &[Row] = &[
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
    Row {
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia-frontend\n235 nvidia-uvm\n\nBlock devices:\n  8 sd\n"),
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 243:0 rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 243:0 rwm"),
        says: &["nvidia-uvm has 235"],
        why: "the era of 243, with an exact minor, on a host of the era of 235",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\r\nlxc.cgroup2.devices.allow: c 487:* rwm\r\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\r\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\r\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file",
            ),
        ],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 487:* rwm"),
        says: &["nvidia-uvm has 509"],
        why: "a file of another system: CR before each line feed, none at the end",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                LXC,
                "lxc.cgroup2.devices.allow\t=\tc 195:* rwm  \nlxc.cgroup2.devices.allow\t=\tc 504:* rwm\t\nlxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry = /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry = /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow\t=\tc 504:* rwm"),
        says: &["nvidia-uvm has 509"],
        why: "tabs around the sign in an LXC config, blanks behind the rule",
        ..PLAIN
    },
    Row {
        add: &[
            (
                "proc/devices",
                "Character devices:\n195 nvidia\n504 hidraw\n507 bsg\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
            ),
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 504:* rwm\nlxc.cgroup2.devices.allow: c 507:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("foreign-grant", "lxc.cgroup2.devices.allow: c 504:* rwm"),
        says: &["504 is hidraw today", "c 507:* rwm"],
        why: "both numbers of before have found other owners",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: /dev/nvidia0 rw\nlxc.cgroup2.devices.allow: /dev/nvidiactl rw\nlxc.cgroup2.devices.allow: /dev/nvidia-uvm rw\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        why: "a path instead of a number: LXC looks it up at each start",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 509:* r\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("missing-rule", "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file"),
        says: &["509:0"],
        why: "the rule is there and may not write",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 504:* rwm\nlxc.cgroup2.devices.allow: c  509:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("malformed-rule", "lxc.cgroup2.devices.allow: c  509:* rwm"),
        says: &["LXC starts without it", "missing-rule"],
        why: "two blanks: the one rule that is right is passed over, and another is stale besides",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow : c 509:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("ignored-line", "lxc.cgroup2.devices.allow : c 509:* rwm"),
        says: &["drops", "missing-rule"],
        why: "a blank before the colon loses the one rule that is right",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "arch: amd64\nrootfs: a:1\n\n[before]\narch: amd64\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,create=file\n",
            ),
        ],
        expect: Cause("inactive-rule", "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,create=file"),
        says: &["[before]", "first [section]"],
        why: "mounts alone below a snapshot",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, (PVE, "unprivileged: 1\ndev0: /dev/nvidia0\ndev1: /dev/nvidiactl\n")],
        expect: Cause("missing-mount", "dev0: /dev/nvidia0"),
        says: &["/dev/nvidia-uvm is not"],
        why: "an unprivileged container by dev entries, of which one was forgotten",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "unprivileged: 1\ndev0: /dev/nvidia0\ndev1: path=/dev/nvidiactl,gid=44\ndev2: /dev/nvidia-uvm,mode=0666\n",
            ),
        ],
        why: "the same, whole",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 504:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L2","subject":"gpuhook_dev on /lxc/1","ok":true},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":true}],"cuinit":0}"#,
            ),
        ],
        expect: Note("stale-rule", "lxc.cgroup2.devices.allow: c 504:* rwm"),
        says: &["CUDA initialises"],
        why: "the rule is stale and the program was replaced by inject: no cause where cuInit gives 0",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 504:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L2","subject":"gpuhook_dev on /lxc/1","ok":true},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":true}],"cuinit":803}"#,
            ),
        ],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["stale-rule"],
        why: "the rules are stale, but opened by hand, and CUDA fails for another reason",
        ..PLAIN
    },
    Row {
        add: &[("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n  8 sd\n")],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        says: &["whether it was built at all is not known"],
        why: "nothing says whether there is a module file",
        ..PLAIN
    },
    Row {
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n  8 sd\n"),
            ("proc/sys/kernel/osrelease", "6.14.11-1-pve\n"),
            ("lib/modules/6.14.11-1-pve/modules.dep", "kernel/drivers/net/dummy.ko:\n"),
            ("lib/modules/6.8.12-1-pve/modules.dep", "updates/dkms/nvidia-uvm.ko:\n"),
        ],
        expect: Cause("module-absent", "nvidia-uvm"),
        says: &["6.14.11-1-pve"],
        why: "the module file of the kernel before is there, and none for this one",
        ..PLAIN
    },
    Row {
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n  8 sd\n"),
            (
                "lib/modules/6.1.0-28-amd64/modules.dep",
                "kernel/drivers/char/drm/nvidia_uvm.ko.xz: kernel/nvidia.ko.xz\n",
            ),
        ],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        says: &["is not loaded"],
        why: "a compressed module file counts, under the kernel tree too",
        ..PLAIN
    },
    Row {
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n  8 sd\n"),
            ("dev.list", "crw-rw-rw- 1 root root 504, 0 /dev/nvidia-uvm\n"),
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 504:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("module-not-loaded", "nvidia-uvm"),
        says: &["stale-node", "stale-rule"],
        why: "unloaded, with old nodes and old rules: the module comes first",
        ..PLAIN
    },
    Row {
        add: &[
            ("proc/devices", "Character devices:\n1 mem\n226 drm\n\nBlock devices:\n  8 sd\n"),
            ("dmesg.txt", "[    9.1] NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"),
        ],
        expect: Cause("no-gpu", "nvidia"),
        says: &["requires use of the NVIDIA open kernel modules"],
        why: "no driver, and the log says why",
        ..PLAIN
    },
    Row {
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia\n509 nvidia-uvm\n510 aux\n\nBlock devices:\n  8 sd\n"),
            ("dev.list", "crw-rw-rw-+ 1 root video 510,   0 2026-01-09 07:12 /dev/nvidia-uvm\n"),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["510 belongs to aux", "nvidia-uvm has 509"],
        why: "a date, a context mark and a group in the listing",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("dev.list", "drwxr-xr-x 2 root root 40 Jan 9 07:12 /dev/nvidiactl\n")],
        expect: Cause("not-a-device", "/dev/nvidiactl"),
        why: "a directory in the place of a node, as docker makes of an absent bind source",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("dev.list", "---------- 1 root root 0 Jan 9 07:12 /dev/nvidia-uvm-tools\n")],
        expect: Note("not-a-device", "/dev/nvidia-uvm-tools"),
        why: "the tools' node is no cause",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "dev.list",
                "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\ncrw------- 1 root root 195, 255 /dev/nvidiactl\n",
            ),
        ],
        expect: Cause("wrong-mode", "/dev/nvidiactl"),
        says: &["0600"],
        why: "one node for root alone",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("dev.list", "c-w--wx-wT 1 root root 195, 0 /dev/nvidia0\n"),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true},{"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EACCES"}],"cuinit":100}"#,
            ),
        ],
        expect: Cause("wrong-mode", "/dev/nvidia0"),
        says: &["decimal 666", "chmod 0666"],
        why: "the host's decimal mode is why the container gets EACCES from its bind",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":false,"explain":"its group 104, render on the host, is another group in the container: ssl-cert"},{"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EACCES"}],"cuinit":100}"#,
            ),
        ],
        expect: Cause("group-mismatch", "/dev/nvidia0"),
        says: &["104", "ssl-cert"],
        why: "the same refusal, and the group is another one inside",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("proc/driver/nvidia/gpus/0000:c8:00.0/information", "Device Minor: \t 4\n"),
            ("dev.list", "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\n"),
        ],
        expect: Cause("minor-mismatch", "/dev/nvidia4"),
        says: &["/dev/nvidia0"],
        why: "one GPU of eight is left to this machine, and a script counted from 0",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("dev.list", "crw-rw-rw- 1 root root 239, 0 /dev/nvidia-uvm\n"),
            (
                "usr/lib/udev/rules.d/60-nvidia.rules",
                "KERNEL==\"nvidia_uvm\", RUN+=\"/usr/bin/bash -c '/usr/bin/mknod -Z -m 666 /dev/nvidia-uvm c 239 0'\"\n",
            ),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["udev-rule", "239"],
        why: "a udev rule with a number in it, and what it made",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true},{"rung":"L2","subject":"f on /c","ok":true},{"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EIO"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("gpu-fault", "/dev/nvidia0"),
        says: &["EIO", "does not answer"],
        why: "a dead GPU and no word in the log",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true},{"rung":"L1","subject":"/dev/nvidia1","ok":true},{"rung":"L3","subject":"/dev/nvidia0","ok":true},{"rung":"L3","subject":"/dev/nvidia1","ok":false,"errno":"ENODEV"}],"cuinit":101}"#,
            ),
        ],
        expect: Cause("gpu-fault", "/dev/nvidia1"),
        says: &["ENODEV"],
        why: "the second of two GPUs is gone, its number is live",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia1","ok":true},{"rung":"L3","subject":"/dev/nvidia1","ok":false,"errno":"EIO"}],"cuinit":0}"#,
            ),
        ],
        expect: Note("gpu-fault", "/dev/nvidia1"),
        says: &["CUDA initialises"],
        why: "the same, and CUDA works with the first",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENXIO"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("driver-refuses", "/dev/nvidia-uvm"),
        says: &["ENXIO", "/proc/devices"],
        why: "a live number without a driver behind it, and CUDA fails",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENXIO"}],"cuinit":0}"#,
            ),
        ],
        expect: Note("driver-refuses", "/dev/nvidia-uvm"),
        says: &["CUDA initialises"],
        why: "as in a bed without a driver",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENXIO"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["ENXIO"],
        why: "ENXIO of a node that nobody compared",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"EPERM"},{"rung":"L3","subject":"/dev/nvidiactl","ok":false,"errno":"EPERM"},{"rung":"L3","subject":"/dev/nvidia0","ok":false,"errno":"EPERM"}],"cuinit":100}"#,
            ),
        ],
        expect: Cause("filter-denies", "/dev/nvidia0"),
        says: &["/dev/nvidiactl", "/dev/nvidia-uvm"],
        why: "every node refused: one finding that names them",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L2","subject":"lxc on /lxc/1","ok":false,"explain":"refuses c 509:0 rw; hint: gpuhook inject repairs it"},{"rung":"L2","subject":"p on /user.slice","ok":false,"explain":"refuses c 509:0 rw; hint: it is outside the container: change it where it was set"},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"EPERM"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("filter-denies", "/dev/nvidia-uvm"),
        says: &["ancestor-denies"],
        why: "two refuse: the own one is repaired first",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":false,"explain":"no such node in the container"},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENOENT"},{"rung":"L2","subject":"f on /c","ok":false,"explain":"refuses c 509:1 rw"},{"rung":"L3","subject":"/dev/nvidia-uvm-tools","ok":false,"errno":"EPERM"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("missing-node", "/dev/nvidia-uvm"),
        says: &["filter-denies"],
        why: "one node is absent and another refused: the absent one comes first in CUDA too",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "dmesg.txt",
                "Jan 09 07:12:01 pve kernel: NVRM: API mismatch: the client 'nvidia-smi' (pid 4711)\nJan 09 07:12:01 pve kernel: NVRM: has the version 570.124.06, but this kernel module has\nJan 09 07:12:01 pve kernel: NVRM: the version 570.86.15.  Please make sure that this\n",
            ),
        ],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["570.124.06", "570.86.15"],
        why: "one line of journalctl, today's spelling",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "dmesg.txt",
                "2026-01-09T07:12:01,123456+00:00 NVRM: API mismatch: the client has the version 550.54.14, but\n2026-01-09T07:12:01,123456+00:00 NVRM: this kernel module has the version 535.183.01.  Please\n",
            ),
        ],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["550.54.14"],
        why: "a time stamp of ISO 8601 and two numbers of three parts",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "dmesg.txt",
                "[ 9.1] NVRM: Xid (0000:03:00): 48, An uncorrectable double bit error (DBE) has been detected\n[ 9.2] NVRM: Xid (0000:03:00): 45, Ch 00000010\n",
            ),
        ],
        expect: Cause("gpu-fault", "nvidia"),
        says: &["Xid (0000:03:00): 48"],
        why: "an Xid in the old spelling, with a fault of a program after it",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("dmesg.txt", "[ 9.1] NVRM: GPU 0000:07:00.0: GPU has fallen off the bus.\n")],
        expect: Cause("gpu-fault", "nvidia"),
        says: &["fallen off the bus"],
        why: "no Xid, but the driver says it in words",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "dmesg.txt",
                "[ 9.1] nvidia 0000:01:00.0: Direct firmware load for nvidia/535.161.08/gsp_tu10x.bin failed with error -2\n[ 9.2] NVRM: RmFetchGspRmImages: No firmware image found\n",
            ),
        ],
        expect: Cause("gsp-firmware", "/lib/firmware/nvidia/of the loaded version"),
        says: &["gsp_tu10x.bin"],
        why: "the log alone says that firmware is missing",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n"),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":true}],"cuinit":3}"#,
            ),
        ],
        expect: Cause("hmm", "nvidia-uvm"),
        says: &["uvm_disable_hmm is N", "options nvidia_uvm uvm_disable_hmm=1"],
        why: "the parameter is known",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"EPERM"}],"cuinit":3}"#,
            ),
        ],
        expect: Cause("filter-denies", "/dev/nvidia-uvm"),
        why: "3 with a refused node is the node's fault",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("probe.json", r#"{"rungs":[],"cuinit":46}"#)],
        expect: Cause("compute-mode", "cuInit"),
        says: &["nvidia-smi -c DEFAULT"],
        why: "46",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("probe.json", r#"{"rungs":[],"cuinit":304}"#)],
        expect: Cause("refused-call", "cuInit"),
        says: &["seccomp"],
        why: "304",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("probe.json", r#"{"rungs":[],"cuinit":801}"#)],
        expect: Cause("not-supported", "cuInit"),
        says: &["gVisor"],
        why: "801",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("probe.json", r#"{"rungs":[],"cuinit":804}"#)],
        expect: Cause("cuda-compat", "libcuda.so.1"),
        says: &["cuda-compat"],
        why: "804",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, ("probe.json", r#"{"rungs":[],"cuinit":34}"#)],
        expect: Cause("no-libcuda", "libcuda.so.1"),
        says: &["stubs"],
        why: "34, the toolkit's stub",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true},{"rung":"L3","subject":"/dev/nvidia0","ok":true}],"cuinit":100}"#,
            ),
        ],
        expect: Cause("no-gpu", "cuInit"),
        says: &["CUDA_VISIBLE_DEVICES"],
        why: "100 with everything in order",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "etc/cdi/nvidia.yaml",
                "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndeviceNodes:\n- path: /dev/nvidia-uvm\n  major: 504\n",
            ),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":false,"explain":"the node in the container is c 504:0, but the driver has 509:0 now"},{"rung":"L3","subject":"/dev/nvidia-uvm","ok":false,"errno":"ENXIO"}],"cuinit":999}"#,
            ),
        ],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm"),
        says: &["stale-node", "/etc/cdi/nvidia.yaml:4"],
        why: "a container whose stale node came from a CDI file",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndeviceNodes:\n- path: /dev/nvidia-uvm\n  major: 504\n"),
            ("run/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndeviceNodes:\n- path: /dev/nvidia-uvm\n  major: 509\n"),
        ],
        expect: Note("stale-cdi", "/dev/nvidia-uvm"),
        says: &["/run/cdi/nvidia.yaml says what nvidia.com/gpu is"],
        why: "a stale file that a fresh one overrides",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "var/run/cdi/n.json",
                r#"{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia-uvm","major":236}]}}"#,
            ),
        ],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm"),
        says: &["--format=json --output=/var/run/cdi/n.json"],
        why: "in JSON, in the third directory",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "etc/cdi/nvidia.yaml",
                "kind: nvidia.com/gpu\ndeviceNodes:\n- path: /dev/nvidia-uvm-tools\n  major: 509\n  minor: 0\n",
            ),
        ],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm-tools"),
        says: &["509:0", "509:1"],
        why: "the major is right and the minor is not",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, (".dockerenv", "")],
        expect: Note("nested", "host"),
        says: &["docker"],
        why: "a container by docker's mark",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("run/systemd/container", "lxc\n"),
            ("dev.list", "crw-rw-rw- 1 root root 504, 0 /dev/nvidia-uvm\n"),
        ],
        expect: Cause("stale-node", "/dev/nvidia-uvm"),
        says: &["nested"],
        why: "in a container the nodes are set outside, and may be stale all the same",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            GPU_0,
            ("dev.list", NODES),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia0","ok":true},{"rung":"L3","subject":"/dev/nvidia0","ok":true}],"cuinit":0}"#,
            ),
        ],
        why: "all is right",
        ..PLAIN
    },
    Row {
        add: &[AMD, ("dev.list", "crw------- 1 root root 234, 0 /dev/kfd\n")],
        expect: Cause("wrong-mode", "/dev/kfd"),
        says: &["render"],
        why: "AMD: a node for root alone, on a machine that lists its numbers",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("proc/self/mountinfo", V1_DEVICES),
            (
                PVE,
                "lxc.cgroup.devices.allow: c 195:* rwm\nlxc.cgroup.devices.allow: c 243:* rwm\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\nlxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file\nlxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n",
            ),
        ],
        expect: Cause("stale-rule", "lxc.cgroup.devices.allow: c 243:* rwm"),
        says: &["nvidia-uvm has 509"],
        why: "the same on cgroup v1, where that key is the right one",
        ..PLAIN
    },
    Row {
        add: &[UVM_509, FAILS_999],
        expect: Cause("unexplained", "cuInit"),
        says: &["not looked at"],
        why: "a code and nothing else",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("host-probe.json", r#"{"rungs":[{"rung":"L5","subject":"cuInit","ok":true}],"cuinit":0}"#),
            ("probe.json", r#"{"rungs":[],"cuinit":3}"#),
        ],
        expect: Cause("unexplained", "cuInit"),
        says: &["not the host: cuInit returns 0 on it"],
        why: "3 in the container and 0 on the host, as a report has it: not HMM",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("host-probe.json", r#"{"rungs":[],"cuinit":3}"#),
            ("probe.json", r#"{"rungs":[],"cuinit":3}"#),
        ],
        expect: Cause("hmm", "nvidia-uvm"),
        says: &["on the host as well", "is innocent"],
        why: "3 on both sides",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            (
                "host-probe.json",
                r#"{"rungs":[{"rung":"L4","subject":"libcuda.so.1","ok":false,
                "explain":"driver libraries of version 590.48.01, kernel module of version 580.95.05: CUDA needs the same on both sides"}],
                "cuinit":803}"#,
            ),
        ],
        expect: Cause("library-mismatch", "libcuda.so.1"),
        says: &["590.48.01", "580.95.05", "reboot the host"],
        why: "the host was upgraded and not rebooted: the side to change is the module",
        ..PLAIN
    },
    Row {
        add: &[
            UVM_509,
            ("usr/bin/nvidia-smi", ""),
            ("dev.list", "/dev/char/1:5 -> ../zero\n"),
            ("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndeviceNodes:\n- path: /dev/nvidia-uvm\n  major: 504\n"),
        ],
        expect: Cause("stale-cdi", "/dev/nvidia-uvm"),
        says: &["gpuhook cdi generate --kind nvidia.com/gpu --output /etc/cdi/nvidia.yaml", "dev-char"],
        why: "neither runc nor nvidia-ctk is installed: links are no matter, and gpuhook writes the file itself",
        ..PLAIN
    },
];
