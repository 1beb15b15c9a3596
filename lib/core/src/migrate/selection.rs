// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the old lines meant, in NVIDIA's words: which GPUs, and what beside CUDA.

use std::collections::BTreeSet;

use crate::device::Minor;
use crate::device_lines::{DeviceLine, DeviceLines, Meaning, Node, Rule, RuleLine};
use crate::facts::majors::{NVIDIA, NVIDIA_CAPS, NVIDIA_CAPS_IMEX_CHANNELS};
use crate::facts::{Gpu, HostFacts};

/// The variables that say it, and what they do not say.
pub(super) struct Selection {
    /// `NAME=VALUE`.
    pub(super) variables: Vec<String>,
    /// As sentences.
    pub(super) notes: Vec<String>,
}

impl Selection {
    /// What `removed`, and the lines that stay, meant.
    pub(super) fn of(lines: &DeviceLines, removed: &[&DeviceLine], facts: &HostFacts) -> Self {
        let mut selection = Self { variables: Vec::new(), notes: Vec::new() };
        let said = |wanted: &str| {
            lines.in_force().any(|line| matches!(&line.meaning, Meaning::Variable(name, _) if name == wanted))
        };
        if !said("NVIDIA_VISIBLE_DEVICES") {
            let devices = selection.devices(&minors(lines), facts);
            selection.variables.extend(devices.map(|devices| format!("NVIDIA_VISIBLE_DEVICES={devices}")));
        }
        let taken: Vec<Node> = removed.iter().filter_map(|line| node(line)).collect();
        let modeset = taken.iter().any(|node| node.driver == NVIDIA && node.minor == Some(Minor(254)));
        if modeset && !said("NVIDIA_DRIVER_CAPABILITIES") {
            selection.variables.push("NVIDIA_DRIVER_CAPABILITIES=compute,utility,display".to_owned());
        }
        let channels: BTreeSet<u32> = taken
            .iter()
            .filter(|node| node.driver == NVIDIA_CAPS_IMEX_CHANNELS)
            .filter_map(|node| node.minor.map(|minor| minor.0))
            .collect();
        if !channels.is_empty() && !said("NVIDIA_IMEX_CHANNELS") {
            let channels: Vec<String> = channels.iter().map(u32::to_string).collect();
            selection.variables.push(format!("NVIDIA_IMEX_CHANNELS={}", channels.join(",")));
        }
        if taken.iter().any(|node| node.driver == NVIDIA_CAPS) && !said("NVIDIA_MIG_CONFIG_DEVICES") {
            let note = "the right to configure and monitor MIG is not carried over; \
                        lxc.environment NVIDIA_MIG_CONFIG_DEVICES=all and NVIDIA_MIG_MONITOR_DEVICES=all give it";
            selection.notes.push(note.to_owned());
        }
        selection
    }

    /// The value of `NVIDIA_VISIBLE_DEVICES` for GPUs of these minors; nothing where it is all of them.
    fn devices(&mut self, minors: &BTreeSet<Minor>, facts: &HostFacts) -> Option<String> {
        let all = facts.gpus.iter().filter(|gpu| !gpu.excluded).all(|gpu| minors.contains(&gpu.minor));
        if minors.is_empty() || !facts.gpus.is_empty() && all {
            return None;
        }
        if facts.gpus.is_empty() {
            self.notes.push(
                "the driver's list of GPUs is not known, so the numbers of the nodes are taken for indices; check \
                 NVIDIA_VISIBLE_DEVICES"
                    .to_owned(),
            );
            return Some(minors.iter().map(|minor| minor.to_string()).collect::<Vec<_>>().join(","));
        }
        let mut names = Vec::new();
        for minor in minors {
            match facts.gpus.iter().find(|gpu| gpu.minor == *minor) {
                Some(gpu) => names.push(name(gpu)),
                None => self.notes.push(format!("/dev/nvidia{minor} is no GPU of this host today; it is left out")),
            }
        }
        Some(if names.is_empty() { "none".to_owned() } else { names.join(",") })
    }
}

/// A name of the GPU that outlives a reboot, unlike index and minor.
fn name(gpu: &Gpu) -> String {
    gpu.uuid.clone().unwrap_or_else(|| gpu.address.to_string())
}

/// The GPUs whose nodes the lines bring in, else those that exact rules open; none stands for all.
fn minors(lines: &DeviceLines) -> BTreeSet<Minor> {
    let brought: BTreeSet<Minor> = lines.nodes().iter().filter_map(|(node, _)| node.gpu()).collect();
    if !brought.is_empty() {
        return brought;
    }
    let mut opened = BTreeSet::new();
    for line in lines.in_force() {
        match &line.meaning {
            Meaning::Rule(RuleLine { deny: false, rule: Ok(rule @ Rule::Numbers { minor, .. }), .. })
                if rule.character_major().is_some_and(|major| major.0 == 195) =>
            {
                match minor {
                    Some(minor) => opened.extend(Some(*minor).filter(|minor| minor.0 < 254)),
                    None => return BTreeSet::new(),
                }
            }
            Meaning::Rule(RuleLine { deny: false, rule: Ok(Rule::Path(path)), .. }) => {
                opened.extend(Node::of(path).and_then(|node| node.gpu()));
            }
            _ => {}
        }
    }
    opened
}

fn node(line: &DeviceLine) -> Option<Node> {
    match &line.meaning {
        Meaning::Mount(entry) => entry.node(),
        Meaning::Entry(path) => Node::of(path),
        Meaning::Rule(RuleLine { rule: Ok(Rule::Path(path)), .. }) => Node::of(path),
        _ => None,
    }
}
