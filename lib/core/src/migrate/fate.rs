// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a line goes, stays, or stays and is told of.

use std::collections::BTreeSet;

use super::{MigrateOptions, Note};
use crate::device::Major;
use crate::device_lines::{DeviceLine, DeviceLines, Grant, Meaning, MountEntry, Node, Rule, RuleLine, is_legacy_hook};
use crate::facts::HostFacts;
use crate::facts::majors::{NVIDIA_CAPS, NVIDIA_CAPS_IMEX_CHANNELS, NVIDIA_NVLINK, NVIDIA_NVSWITCH};

/// What becomes of a line, and what a person should know about it.
pub(super) enum Fate {
    Keep,
    Report(String),
    Remove(Option<String>),
}

pub(super) struct Judge<'a> {
    lines: &'a DeviceLines,
    facts: &'a HostFacts,
    options: MigrateOptions<'a>,
    /// The config is about NVIDIA's devices: by its words, or by a number that is theirs today. A migration takes the
    /// number away, and the registration that it leaves says the same.
    nvidia: bool,
    /// A rule opens today's kfd.
    kfd: bool,
    /// The names below `/dev` of what else the config brings in.
    others: BTreeSet<&'a str>,
    /// The GPU drivers' nodes that it brings in.
    nodes: Vec<Node>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(lines: &'a DeviceLines, facts: &'a HostFacts, options: MigrateOptions<'a>) -> Self {
        let majors = facts.majors.as_ref();
        let mut meant = lines.in_force().filter_map(DeviceLine::meant_major);
        let kfd = meant.any(|major| Grant::of(major, majors) == Grant::Kfd);
        let nvidia = lines.concerns_nvidia(majors);
        let others = lines.in_force().filter_map(|line| match &line.meaning {
            Meaning::Mount(entry) if entry.node().is_none() => entry.source.strip_prefix("/dev/")?.rsplit('/').next(),
            _ => None,
        });
        let others = others.collect();
        let mut nodes: Vec<Node> = lines.nodes().into_iter().map(|(node, _)| node).collect();
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        nodes.dedup();
        Self { lines, facts, options, nvidia, kfd, others, nodes }
    }

    pub(super) fn fate(&self, line: &DeviceLine) -> Fate {
        match &line.meaning {
            Meaning::Rule(RuleLine { deny: true, .. }) => Fate::Keep,
            Meaning::Rule(RuleLine { rule: Ok(Rule::Path(path)), .. }) => match Node::of(path) {
                Some(node) if self.is_provided(&node) => Fate::Remove(None),
                _ => Fate::Keep,
            },
            Meaning::Rule(RuleLine { rule: Ok(rule), .. }) if rule.is_wide() => {
                Fate::Report("it opens every device of the host, and is left; gpuhook needs it for nothing".to_owned())
            }
            Meaning::Rule(_) | Meaning::Dropped(_) | Meaning::Refused(_) => match line.meant_major() {
                Some(major) => self.number(line, major),
                None => Fate::Keep,
            },
            Meaning::Mount(entry) => self.mount(entry),
            Meaning::Entry(path) => match Node::of(path) {
                Some(node) if self.is_provided(&node) && self.options.dev_entries => Fate::Remove(None),
                Some(node) if self.is_provided(&node) => Fate::Report(
                    "Proxmox's own entry is left: it holds no number, but the container does not start when the node is \
                     absent; --dev-entries takes it out"
                        .to_owned(),
                ),
                _ => Fate::Keep,
            },
            Meaning::Hook(_, command) if is_legacy_hook(command) => {
                Fate::Report("it is another injector of NVIDIA's devices, and is left; one of the two is enough".to_owned())
            }
            _ => Fate::Keep,
        }
    }

    fn number(&self, line: &DeviceLine, major: Major) -> Fate {
        let nvidia = self.nvidia;
        let said = line.is_said_to_be_nvidia();
        let foreign = |owner: String| match self.is_wanted(&owner) {
            true => Fate::Keep,
            _ if said => Fate::Remove(Some(format!(
                "removed: {major} is {owner} today, and the line itself says that it was meant for NVIDIA"
            ))),
            _ if nvidia && self.options.remove_foreign => {
                Fate::Remove(Some(format!("removed: {major} is {owner} today")))
            }
            _ if nvidia => Fate::Report(format!(
                "{major} is {owner} today, which the container may be meant to have, so the line is left; \
                 --remove-foreign takes it out"
            )),
            _ => Fate::Keep,
        };
        match Grant::of(major, self.facts.majors.as_ref()) {
            Grant::Nvidia(names) if self.is_kept_driver(&names) => Fate::Report(format!(
                "the line opens {} for nodes that are left, so it is left too; its number changes with kernel and driver",
                names.join(", ")
            )),
            Grant::Nvidia(_) => Fate::Remove(None),
            Grant::Kfd if self.lines.is_kfd() => Fate::Keep,
            Grant::Kfd => foreign("AMD's kfd".to_owned()),
            Grant::Foreign(names) => foreign(names.join(", ")),
            Grant::Nobody if self.is_meant_for_kfd(line) && !said => Fate::Report(format!(
                "no driver has {major} today; it was written for AMD's kfd, as it seems, and is left"
            )),
            Grant::Nobody | Grant::Minor(_) if nvidia => Fate::Remove(None),
            Grant::Nobody | Grant::Minor(_) | Grant::Dri | Grant::Fixed | Grant::Unknown => Fate::Keep,
        }
    }

    /// Whether an ownerless number may have been kfd's: nothing else opens kfd, and the config brings it in.
    fn is_meant_for_kfd(&self, line: &DeviceLine) -> bool {
        line.comment_names("kfd") || self.lines.is_kfd() && !self.kfd
    }

    /// Whether the config brings in a node of one of these drivers, `/dev/mei0` of `mei`.
    fn is_wanted(&self, owners: &str) -> bool {
        owners.split(", ").any(|owner| self.others.iter().any(|name| name.starts_with(owner)))
    }

    fn mount(&self, entry: &MountEntry) -> Fate {
        let Some(node) = entry.node().filter(Node::is_nvidia) else { return Fate::Keep };
        if Node::of(&entry.target).is_none() {
            return Fate::Report(format!(
                "it brings {} in at another place than programs look, and is left",
                node.path
            ));
        }
        match self.is_provided(&node) {
            true => Fate::Remove(None),
            false => Fate::Report(match node.driver {
                NVIDIA_CAPS => format!(
                    "{} is left: this host has MIG instances, whose capabilities gpuhook brings in one by one, for instances \
                     that NVIDIA_VISIBLE_DEVICES names (MIG-UUID)",
                    node.path
                ),
                _ => format!("gpuhook does not bring {} in, so the line is left", node.path),
            }),
        }
    }

    /// Whether gpuhook can take a node over: not those of NVSwitch and NVLink, not all IMEX channels at once, and no MIG
    /// capabilities where there are MIG instances.
    fn is_provided(&self, node: &Node) -> bool {
        match node.driver {
            NVIDIA_NVSWITCH | NVIDIA_NVLINK => false,
            NVIDIA_CAPS_IMEX_CHANNELS => node.minor.is_some(),
            NVIDIA_CAPS => !self.has_instances(),
            _ => node.is_nvidia(),
        }
    }

    fn has_instances(&self) -> bool {
        self.facts.capabilities.iter().any(|capability| capability.name.contains("/mig/gi"))
    }

    /// Whether the number is of a driver whose nodes the config brings in and keeps.
    fn is_kept_driver(&self, names: &[&str]) -> bool {
        let kept = |node: &Node| names.contains(&node.driver) && !self.is_provided(node);
        self.nodes.iter().any(kept)
    }

    /// What stands in files that it includes, which are not touched.
    pub(super) fn included(&self) -> Option<Note> {
        let own = &self.lines.file;
        let gpu = |line: &&DeviceLine| line.file != *own && matches!(self.fate(line), Fate::Remove(_));
        let line = self.lines.in_force().find(gpu)?;
        let text = format!(
            "{}:{}, which it includes, has lines of the same kind; they are left, for whoever else includes them",
            line.file, line.line
        );
        Some(Note { line: None, text })
    }

    /// What stands in snapshots, which are not touched.
    pub(super) fn elsewhere(&self, unchanged: bool, registration: &str) -> Vec<Note> {
        let mut sections: Vec<(&str, usize)> = Vec::new();
        for line in &self.lines.lines {
            if let Some(section) = &line.section
                && is_gpu_line(line)
                && sections.last().is_none_or(|(last, _)| last != section)
            {
                sections.push((section, line.line));
            }
        }
        let alone = unchanged && !self.lines.is_nvidia();
        sections
            .into_iter()
            .map(|(section, line)| {
                let text = match alone {
                    _ if section == "pve:pending" => {
                        "[pve:pending] holds GPU lines, which Proxmox applies at the next start, and which are left".to_owned()
                    }
                    true => format!(
                        "GPU lines stand only below [{section}], where they are not in force, and are left; to give the \
                         container all GPUs put `{registration}` before the first [section]"
                    ),
                    false => format!("[{section}] holds GPU lines of its own, which are left; rolling back brings them back"),
                };
                Note { line: Some(line), text }
            })
            .collect()
    }
}

/// Whether a line is one that a migration may take out or add.
pub(super) fn is_gpu_line(line: &DeviceLine) -> bool {
    match &line.meaning {
        Meaning::Rule(RuleLine { rule: Ok(Rule::Path(path)), .. }) => Node::of(path).is_some(),
        Meaning::Rule(_) => line.meant_major().is_some_and(|major| Grant::of(major, None) != Grant::Fixed),
        Meaning::Mount(entry) => entry.node().is_some_and(|node| node.is_nvidia()),
        Meaning::Entry(path) => Node::of(path).is_some(),
        Meaning::Variable(name, _) => name.starts_with("NVIDIA_"),
        Meaning::Options => true,
        _ => line.is_registration(),
    }
}
