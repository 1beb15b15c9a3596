// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a hook.

use super::judge::Judge;
use crate::config_text::Kind;
use crate::device_lines::{DeviceLine, Meaning, is_legacy_hook};
use crate::findings::{FindingId, Severity};

/// The stages that run on the host, with its `/dev` (lxc.container.conf(5)).
const ON_HOST: [&str; 4] = ["pre-start", "start-host", "stop", "post-stop"];

/// Whether a command changes owner or mode of a GPU's nodes.
pub(super) fn changes_nodes(command: &str) -> bool {
    let changes = ["chown", "chmod", "chgrp", "setfacl"].iter().any(|program| command.contains(program));
    changes && ["/dev/nvidia", "/dev/dri", "/dev/kfd"].iter().any(|path| command.contains(path))
}

impl<'a> Judge<'a> {
    pub(super) fn hook(&mut self, line: &'a DeviceLine, stage: &str, command: &str) {
        if changes_nodes(command) && ON_HOST.contains(&stage) {
            let explain = "it changes the host's own nodes, for the host and every other container; NVIDIA's are open to \
                           all (0666) unless a driver option says otherwise";
            let fix = "remove it; gpuhook gives each container nodes of its own, with the owner that it needs";
            self.add(FindingId::HostChown, Severity::Warning, line, explain, Some(fix));
        }
        if !is_legacy_hook(command) {
            return;
        }
        let mut explain = "LXC's hook for NVIDIA needs an unprivileged container and libnvidia-container, makes no \
                           missing node and opens no device filter"
            .to_owned();
        let capable = self
            .lines
            .in_force()
            .any(|line| matches!(&line.meaning, Meaning::Variable(name, _) if name == "NVIDIA_DRIVER_CAPABILITIES"));
        if !capable {
            explain.push_str("; without NVIDIA_DRIVER_CAPABILITIES it brings `utility` only: nvidia-smi, and no CUDA");
        }
        // Nothing says so in a piece of a config, or where the includes are not known.
        let privileged = self.lines.is_whole()
            && self.filtered
            && !self.lines.in_force().any(|line| matches!(line.meaning, Meaning::IdMap(_)))
            && !self.lines.has_unread_includes();
        explain.push_str(match privileged {
            true => "; this container is privileged, so the hook fails and the container does not start",
            false => "; in a privileged container it fails, and the container does not start",
        });
        let severity = if privileged { Severity::Error } else { Severity::Warning };
        let fix = match self.lines.kind {
            Kind::Proxmox => "lxc.include: /usr/share/gpuhook/lxc.conf in its place",
            Kind::Lxc | Kind::Raw => "lxc.include = /usr/share/gpuhook/lxc.conf in its place",
        };
        self.add(FindingId::LegacyHook, severity, line, explain, Some(fix));
    }

    /// Two injectors for one container.
    pub(super) fn injectors(&mut self) {
        let legacy = self.lines.in_force().find(|line| match &line.meaning {
            Meaning::Hook(_, command) => is_legacy_hook(command),
            _ => false,
        });
        if let Some(line) = legacy.filter(|_| self.lines.is_registered()) {
            let explain = "gpuhook is registered too, and both bring the same nodes in";
            self.add(
                FindingId::DuplicateInjection,
                Severity::Warning,
                line,
                explain,
                Some("keep gpuhook, remove this line"),
            );
        }
    }
}
