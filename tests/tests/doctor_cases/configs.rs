// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configs that people posted, each with the facts of a host.

use super::Expect::{Cause, Note};
use super::{AMD, CONFIG, DEVICES, LISTED, LXC, PLAIN, PVE, RAW, Row, UVM_509, V1_DEVICES};

pub(super) const ROWS: &[Row] = &[
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
    // Each is judged on a host where its author's numbers have moved on, and where one was posted, on that one.
    Row {
        case: "022",
        lay: &[("before_pct_restart.conf", PVE)],
        add: &[UVM_509],
        expect: Note("missing-mount", "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file"),
        says: &["/dev/nvidiactl"],
        why: "the numbers are right, and a node that every program opens is not brought in: it may be in the rootfs",
    },
    Row {
        case: "022",
        lay: &[("after_pct_restart.conf", PVE)],
        add: &[UVM_509],
        expect: Note("missing-mount", "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file"),
        ..PLAIN
    },
    Row {
        case: "024",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note("stale-rule", "lxc.cgroup2.devices.allow: c 235:* rwm   # nvidia-uvm-tools"),
        says: &["has no number of its own"],
        why: "the line that says nvidia-caps opens unified memory by luck, so CUDA works",
    },
    Row {
        case: "024",
        lay: &[CONFIG],
        add: &[(
            "proc/devices",
            "Character devices:\n195 nvidia\n195 nvidiactl\n507 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
        )],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 234:* rwm   # nvidia-uvm"),
        says: &["nvidia-uvm has 507", "missing-rule"],
        ..PLAIN
    },
    Row {
        case: "029",
        lay: &[CONFIG],
        add: &[(
            "proc/devices",
            "Character devices:\n195 nvidia\n235 nvidia-uvm\n239 nvidia-caps\n\nBlock devices:\n  8 sd\n",
        )],
        why: "`=` in a Proxmox file, exact minors, `rw`: all good",
        ..PLAIN
    },
    Row {
        case: "029",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow = c 235:0 rw"),
        says: &["nvidia-uvm has 509"],
        ..PLAIN
    },
    Row {
        case: "030",
        lay: &[("lxc.conf", LXC)],
        add: &[UVM_509],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow = c 507:* rwm"),
        says: &["c 511:* rwm"],
        ..PLAIN
    },
    Row {
        case: "030",
        lay: &[("lxc.conf", LXC)],
        add: &[(
            "proc/devices",
            "Character devices:\n195 nvidia\n237 nvidia-caps\n509 nvidia-uvm\n511 mei\n\nBlock devices:\n  8 sd\n",
        )],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow = c 507:* rwm"),
        says: &["foreign-grant", "511 is mei today"],
        ..PLAIN
    },
    Row {
        case: "031",
        lay: &[("lxc.conf", LXC)],
        add: &[UVM_509],
        expect: Cause("inactive-rule", "lxc.cgroup.devices.allow = c 195:* rwm"),
        says: &["missing-rule", "509:0"],
        ..PLAIN
    },
    Row {
        case: "031",
        lay: &[("lxc.conf", LXC)],
        add: &[
            ("proc/devices", "Character devices:\n195 nvidia-frontend\n250 nvidia-uvm\n\nBlock devices:\n  8 sd\n"),
            ("proc/self/mountinfo", V1_DEVICES),
        ],
        why: "the host that the author had: cgroup v1, and the number of the day",
        ..PLAIN
    },
    Row {
        case: "031",
        lay: &[("lxc.conf", LXC)],
        add: &[UVM_509, ("proc/self/mountinfo", V1_DEVICES)],
        expect: Cause("stale-rule", "lxc.cgroup.devices.allow = c 250:* rwm"),
        ..PLAIN
    },
    Row {
        case: "033",
        lay: &[("raw_lxc.txt", RAW)],
        add: &[UVM_509],
        expect: Note("inactive-rule", "lxc.cgroup.devices.allow = c 195:* rwm"),
        says: &["a gpu device of the instance"],
        why: "raw.lxc is a part of the config: the instance's gpu device may bring nodes and rules",
    },
    Row {
        case: "035",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note("stale-rule", "lxc.cgroup2.devices.allow: c 506:* rwm"),
        ..PLAIN
    },
    Row { case: "039", lay: &[("pve_before.conf", PVE)], add: &[UVM_509], ..PLAIN },
    Row { case: "039", lay: &[("pve_after.conf", PVE)], add: &[UVM_509], ..PLAIN },
    Row { case: "040", lay: &[CONFIG], add: &[UVM_509], ..PLAIN },
    Row {
        case: "040",
        lay: &[("pve_variant_with_gpu_rules.conf", PVE)],
        add: &[UVM_509],
        expect: Cause("missing-mount", "lxc.cgroup2.devices.allow: c 195:* rwm"),
        says: &["unprivileged-noop", "belongs to the snapshot before-kernel"],
        why: "whatever the numbers are: rules bring no node in",
    },
    Row {
        case: "041",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 235:* rwm"),
        says: &["no line brings it in"],
        ..PLAIN
    },
    Row {
        case: "043",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note("wide-grant", "lxc.cgroup2.devices.allow: a"),
        ..PLAIN
    },
    Row {
        case: "044",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("missing-mount", "lxc.cgroup.devices.allow: c 195:* rwm"),
        says: &["inactive-rule"],
        ..PLAIN
    },
    Row {
        case: "048",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note(
            "mount-target",
            "lxc.mount.entry: /dev/dri/renderD128 dev/renderD128 none bind,optional,create=file",
        ),
        says: &["/dev/dri/renderD128"],
        why: "the directory is mounted too, so the stray node does no harm",
    },
    Row {
        case: "049",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("mount-option", "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none"),
        says: &["ignored-line", "missing-rule", "all on one line"],
        why: "the container does not start on it; that its rules are incomplete comes after that",
    },
    Row {
        case: "050",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 505:* rwm"),
        says: &["c 508:* rwm"],
        ..PLAIN
    },
    Row {
        case: "052",
        lay: &[("pve_before.conf", PVE)],
        add: &[UVM_509],
        expect: Note("inactive-rule", "lxc.cgroup.devices.allow: c 10:200 rwm"),
        ..PLAIN
    },
    Row { case: "052", lay: &[("pve_after.conf", PVE)], add: &[UVM_509], ..PLAIN },
    Row {
        case: "054",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note("stale-rule", "lxc.cgroup2.devices.allow: c 234:* rwm"),
        why: "of the copied three, 509 happens to be right here",
        ..PLAIN
    },
    Row {
        case: "054",
        lay: &[CONFIG],
        add: &[(
            "proc/devices",
            "Character devices:\n195 nvidia\n234 kfd\n509 mei\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
        )],
        expect: Cause("foreign-grant", "lxc.cgroup2.devices.allow: c 509:* rwm"),
        says: &["509 is mei today", "nvidia-uvm has 511"],
        ..PLAIN
    },
    Row {
        case: "055",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 507:* rwm"),
        says: &["c 235:* rwm"],
        ..PLAIN
    },
    Row {
        case: "058",
        lay: &[("lxc_stale.conf", LXC)],
        add: &[UVM_509],
        expect: Cause("missing-mount", "lxc.cgroup2.devices.allow = c 195:0 rwm"),
        ..PLAIN
    },
    Row {
        case: "059",
        lay: &[DEVICES, CONFIG],
        says: &["no line of its config brings a GPU in"],
        why: "no GPU was asked for",
        ..PLAIN
    },
    Row {
        case: "059",
        lay: &[DEVICES, ("pve_naive_append.conf", PVE)],
        expect: Cause("inactive-rule", "lxc.cgroup2.devices.allow: c 195:* rwm"),
        says: &["[snap1]", "end before the first [section]"],
        ..PLAIN
    },
    Row {
        case: "088",
        lay: &[CONFIG],
        add: &[(
            "proc/devices",
            "Character devices:\n195 nvidia\n236 nvidia-caps\n509 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
        )],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 234:* rwm"),
        says: &["c 237:* rwm", "nvidia-caps has 236", "no line brings it in"],
        ..PLAIN
    },
    Row {
        case: "118",
        lay: &[("pve_after.conf", PVE)],
        add: &[(
            "proc/devices",
            "Character devices:\n195 nvidia\n195 nvidia-modeset\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
        )],
        why: "after the repair",
        ..PLAIN
    },
    Row {
        case: "143",
        lay: &[CONFIG],
        add: &[UVM_509, ("run/systemd/container", "lxc\n")],
        expect: Note("nested", "host"),
        says: &["no-cgroups = true"],
        why: "the config of the container that the question is asked in: what it lacks is given outside",
    },
    Row {
        case: "147",
        lay: &[],
        add: &[
            UVM_509,
            (
                PVE,
                "lxc.cgroup2.devices.allow: c 195:* rwm\nlxc.cgroup2.devices.allow: c 504:* rwm\n\
                   lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,create=file\n\
                   lxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,create=file\n\
                   lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,create=file\n",
            ),
            (
                "probe.json",
                r#"{"rungs":[{"rung":"L1","subject":"/dev/nvidia-uvm","ok":true},{"rung":"L2","subject":"/lxc/1","ok":true,
                "explain":"no device filter applies: every device is allowed"},
                {"rung":"L3","subject":"/dev/nvidia-uvm","ok":true}],"cuinit":0}"#,
            ),
        ],
        expect: Note("filter-absent", "/lxc/1"),
        says: &["stale-rule", "CUDA initialises"],
        why: "what follows from the posted log lines: LXC could not load its program and runs without",
    },
    Row {
        case: "166",
        lay: &[CONFIG],
        add: &[AMD],
        expect: Note("no-gpu", "nvidia"),
        why: "kfd's number is right; that CUDA has no driver here is no fault of this config",
        ..PLAIN
    },
    Row {
        case: "166",
        lay: &[("pve_bypath.conf", PVE)],
        add: &[("proc/devices", "Character devices:\n226 drm\n511 kfd\n\nBlock devices:\n  8 sd\n")],
        expect: Cause("stale-rule", "lxc.cgroup2.devices.allow: c 234:* rwm"),
        says: &["kfd has 511", "dev0: /dev/kfd"],
        ..PLAIN
    },
    Row {
        case: "167",
        lay: &[CONFIG],
        add: &[AMD],
        expect: Cause("mount-option", "lxc.mount.entry: /dev/kfd dev/kfd none bind,optional,create=dir"),
        says: &["create=file", "stale-rule", "kfd has 234"],
        why: "both are wrong: without its node no rule matters",
    },
    Row {
        case: "169",
        lay: &[("pve_before.conf", PVE)],
        add: &[AMD],
        expect: Note("group-mismatch", "dev5: /dev/kfd,gid=44"),
        says: &["gid=992"],
        why: "root may open it all the same, so it stops nobody for certain",
    },
    Row { case: "169", lay: &[("pve_after.conf", PVE)], add: &[AMD], expect: Note("no-gpu", "nvidia"), ..PLAIN },
    Row {
        case: "170",
        lay: &[("raw_lxc.txt", RAW)],
        add: &[UVM_509],
        expect: Note("inactive-rule", "lxc.cgroup.devices.allow = c 10:237 rwm"),
        says: &["loop-control"],
        why: "no GPU's; on this host the v1 key does nothing",
    },
    Row {
        case: "180",
        lay: &[("pve_broken.conf", PVE)],
        add: &[UVM_509],
        expect: Cause("malformed-rule", "lxc.idmap: g 0 100000 44"),
        says: &["none of them maps user ids", "lxc.idmap: u 0 100000 65536"],
        ..PLAIN
    },
    Row { case: "180", lay: &[("pve_fixed.conf", PVE)], add: &[UVM_509], ..PLAIN },
    Row {
        case: "185",
        lay: &[CONFIG],
        add: &[UVM_509],
        expect: Note("host-chown", "lxc.hook.pre-start: sh -c 'chown :100000 /dev/nvidia*'"),
        says: &["legacy-hook"],
        why: "a piece of a config, by its number of an unprivileged container: the older hook may well work in it",
    },
];
