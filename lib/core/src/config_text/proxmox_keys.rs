// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which raw `lxc.*` keys Proxmox takes over into LXC's config (pve-container 6, PVE::LXC::Config).

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Accepted,
    /// Proxmox makes the line itself from other keys.
    Generated,
    Unknown,
}

/// Keys that are accepted as they are; sorted.
const KEYS: &[&str] = &[
    "lxc.apparmor.allow_incomplete",
    "lxc.apparmor.allow_nesting",
    "lxc.apparmor.profile",
    "lxc.apparmor.raw",
    "lxc.arch",
    "lxc.autodev",
    "lxc.cap.drop",
    "lxc.cap.keep",
    "lxc.console.logfile",
    "lxc.console.path",
    "lxc.devtty.dir",
    "lxc.environment",
    "lxc.environment.hooks",
    "lxc.environment.runtime",
    "lxc.group",
    "lxc.hook.autodev",
    "lxc.hook.clone",
    "lxc.hook.destroy",
    "lxc.hook.mount",
    "lxc.hook.post-stop",
    "lxc.hook.pre-mount",
    "lxc.hook.pre-start",
    "lxc.hook.start",
    "lxc.hook.stop",
    "lxc.hook.version",
    "lxc.idmap",
    "lxc.include",
    "lxc.init.cmd",
    "lxc.init.cwd",
    "lxc.kmsg",
    "lxc.log.file",
    "lxc.log.level",
    "lxc.mount.auto",
    "lxc.mount.entry",
    "lxc.mount.fstab",
    "lxc.pty.max",
    "lxc.rootfs.mount",
    "lxc.seccomp.notify.cookie",
    "lxc.seccomp.notify.proxy",
    "lxc.seccomp.profile",
    "lxc.selinux.context",
    "lxc.signal.halt",
    "lxc.signal.reboot",
    "lxc.signal.stop",
    "lxc.start.auto",
    "lxc.start.delay",
    "lxc.start.order",
    "lxc.sysctl.fs.mqueue",
    "lxc.sysctl.kernel.msgmax",
    "lxc.sysctl.kernel.msgmnb",
    "lxc.sysctl.kernel.msgmni",
    "lxc.sysctl.kernel.sem",
    "lxc.sysctl.kernel.shm_rmid_forced",
    "lxc.sysctl.kernel.shmall",
    "lxc.sysctl.kernel.shmmax",
    "lxc.sysctl.kernel.shmmni",
    "lxc.tty.max",
    "lxc.uts.name",
];

/// Families of which every key is accepted.
const FAMILIES: [&str; 4] = ["lxc.cgroup.", "lxc.cgroup2.", "lxc.net.", "lxc.prlimit."];

pub(super) fn validity(key: &str) -> Validity {
    // Proxmox's own keys are checked by Proxmox, which says so.
    if !key.starts_with("lxc.") || KEYS.binary_search(&key).is_ok() || FAMILIES.iter().any(|f| key.starts_with(f)) {
        return Validity::Accepted;
    }
    match key {
        "lxc.rootfs.path" | "lxc.rootfs.options" => Validity::Generated,
        _ => Validity::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hook_of_start_host_is_not_among_the_keys() {
        assert!(KEYS.is_sorted());
        for (key, expected) in [
            ("lxc.hook.pre-start", Validity::Accepted),
            ("lxc.hook.start-host", Validity::Unknown),
            ("lxc.include", Validity::Accepted),
            ("lxc.cgroup2.devices.allow", Validity::Accepted),
            ("lxc.cgroup.devices.allow", Validity::Accepted),
            ("lxc.monitor.unshare", Validity::Unknown),
            ("lxc.rootfs.path", Validity::Generated),
            ("lxc.aa_profile", Validity::Unknown),
            ("memory", Validity::Accepted),
        ] {
            assert_eq!(validity(key), expected, "{key}");
        }
    }
}
