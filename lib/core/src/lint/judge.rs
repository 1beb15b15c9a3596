// SPDX-License-Identifier: MIT OR Apache-2.0
//! One config under judgement: what its lines allow, what its devices need, and which finding each line gets.

use std::collections::BTreeSet;

use super::Host;
use super::effect::UNFILTERED;
use crate::config_text::{Kind, Reason};
use crate::device::{DeviceId, Major, Minor};
use crate::device_lines::{DeviceLine, DeviceLines, Grant, Meaning, Node, Rule, RuleLine};
use crate::facts::majors::{KFD, NVIDIA, NVIDIA_CAPS, NVIDIA_UVM};
use crate::findings::{Finding, FindingId, Severity};

pub(super) struct Judge<'a> {
    pub(super) lines: &'a DeviceLines,
    /// What told the config's kind.
    pub(super) reason: Reason,
    pub(super) host: Host<'a>,
    pub(super) found: Vec<Finding>,
    /// The container's device filter is enforced.
    pub(super) filtered: bool,
    /// The rules in force: whether for v1, whether to deny, and the value.
    pub(super) rules: BTreeSet<(bool, bool, &'a str)>,
    /// What no rule allows.
    pub(super) missing: Vec<Missing<'a>>,
}

/// A device that the config brings in, or that CUDA needs beside it, and no rule allows.
pub(super) struct Missing<'a> {
    node: Node,
    major: Major,
    line: &'a DeviceLine,
    /// It is there because CUDA needs it, and not on this line.
    beside: bool,
}

/// Findings that say why a device is not allowed.
fn is_cause(id: FindingId) -> bool {
    use FindingId::{ForeignGrant, IgnoredLine, InactiveRule, MalformedRule, StaleRule};
    matches!(id, StaleRule | ForeignGrant | InactiveRule | IgnoredLine | MalformedRule)
}

impl Missing<'_> {
    /// Whether nothing works without it.
    fn is_essential(&self) -> bool {
        matches!(self.node.driver, NVIDIA | NVIDIA_UVM | KFD) && self.node.minor != Some(Minor(254))
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(lines: &'a DeviceLines, reason: Reason, host: Host<'a>) -> Self {
        let rules = lines.in_force().filter_map(|line| match &line.meaning {
            Meaning::Rule(RuleLine { v1, deny, value, .. }) => Some((*v1, *deny, value.as_str())),
            _ => None,
        });
        let rules = rules.collect();
        let filtered = !lines.is_unfiltered();
        let mut judge = Self { lines, reason, host, found: Vec::new(), filtered, rules, missing: Vec::new() };
        judge.missing = judge.unallowed();
        judge
    }

    pub(super) fn findings(mut self) -> Vec<Finding> {
        for line in &self.lines.lines {
            self.line(line);
        }
        self.id_maps();
        self.missing_rules();
        self.missing_mounts();
        self.injectors();
        self.found
    }

    fn line(&mut self, line: &'a DeviceLine) {
        if !line.is_in_force() {
            self.not_in_force(line);
            return;
        }
        match &line.meaning {
            Meaning::Rule(rule) => self.rule(line, rule),
            Meaning::Mount(entry) if entry.is_gpu() => self.mount(line, entry),
            Meaning::Entry(path) => self.entry(line, path),
            Meaning::Hook(stage, command) => self.hook(line, stage, command),
            Meaning::Dropped(why) => self.dropped(line, why),
            Meaning::Refused(why) => {
                let explain = format!("{why}, so the container does not start");
                self.add(FindingId::MalformedRule, Severity::Error, line, explain, Some("correct or remove the line"));
            }
            Meaning::AbsentInclude(_, missing) => {
                let explain = format!("there is no {missing} to include, so the container does not start");
                let fix = match line.is_registration() {
                    true => "install gpuhook on this host, too",
                    false => "correct or remove the line",
                };
                self.add(FindingId::MalformedRule, Severity::Error, line, explain, Some(fix));
            }
            Meaning::Options => {
                let explain = "this is the second half of the mount entry on the line before; nobody reads it here";
                self.add(FindingId::IgnoredLine, Severity::Warning, line, explain, Some("put both on one line"));
            }
            _ => {}
        }
    }

    fn not_in_force(&mut self, line: &'a DeviceLine) {
        if !self.is_about_gpu(line) {
            return;
        }
        let (severity, explain, fix) = match (&line.section, line.cleared_by) {
            (Some(section), _) if section == "pve:pending" => {
                (Severity::Info, "Proxmox applies pending lines at the next start".to_owned(), None)
            }
            (Some(section), _) if self.lines.is_nvidia() || self.lines.is_kfd() => (
                Severity::Info,
                format!("it belongs to the snapshot {section} and is not in force; rolling back brings it back"),
                None,
            ),
            (Some(section), _) => (
                Severity::Warning,
                format!(
                    "it stands below [{section}], so it belongs to that snapshot and is not in force; the container's \
                     own lines end before the first [section]"
                ),
                Some(
                    "lxc.include: /usr/share/gpuhook/lxc.conf before the first [section] gives the container all GPUs",
                ),
            ),
            (None, by) => {
                let by = by.unwrap_or_default();
                let explain = format!(
                    "line {by} forgets what stands before it: it is an empty value or `devices.deny = a`, or includes one"
                );
                (line.meant_major().map_or(Severity::Warning, |major| self.severity_of_cause(major)), explain, None)
            }
        };
        self.add(FindingId::InactiveRule, severity, line, explain, fix);
    }

    /// A rule or a mount of a GPU.
    fn is_about_gpu(&self, line: &DeviceLine) -> bool {
        match &line.meaning {
            Meaning::Rule(RuleLine { rule: Ok(Rule::Path(path)), .. }) => Node::of(path).is_some(),
            Meaning::Rule(_) => {
                line.meant_major().is_some_and(|major| !matches!(self.grant(major), Grant::Fixed | Grant::Dri))
            }
            Meaning::Mount(entry) => entry.node().is_some(),
            Meaning::Entry(path) => Node::of(path).is_some(),
            _ => false,
        }
    }

    fn dropped(&mut self, line: &'a DeviceLine, why: &str) {
        // To LXC any line that is not its own is a remark.
        let meant = line.meant_major();
        if self.lines.kind != Kind::Proxmox && meant.is_none() {
            return;
        }
        let would = meant.and_then(|major| super::effect::granted(&self.grant(major), major.0));
        let would = would.map(|what| format!("; it would open {what}")).unwrap_or_default();
        let severity = meant.map_or(Severity::Warning, |major| self.severity_of_cause(major));
        let fix = match line.text.starts_with("lxc.hook.start-host") {
            true => "lxc.include: /usr/share/gpuhook/lxc.conf brings all stages of gpuhook, also on Proxmox".to_owned(),
            false if would.is_empty() => "correct or remove the line".to_owned(),
            false => meant.map_or_else(String::new, |major| self.migrate(major, line)),
        };
        self.add(FindingId::IgnoredLine, severity, line, format!("{why}{would}"), Some(&fix));
    }

    /// What no rule in force allows although the config brings it in, or CUDA needs it beside what it brings in.
    fn unallowed(&self) -> Vec<Missing<'a>> {
        let Some(majors) = &self.host.facts.majors else { return Vec::new() };
        if !self.filtered || self.lines.is_registered() {
            return Vec::new();
        }
        let nodes = self.lines.nodes();
        let mut needed: Vec<(Node, &DeviceLine, bool)> = nodes
            .iter()
            .filter(|(_, line)| !matches!(line.meaning, Meaning::Entry(_)))
            .map(|(node, line)| (node.clone(), *line, false))
            .collect();
        let has_uvm = nodes.iter().any(|(node, _)| node.driver == NVIDIA_UVM && node.minor == Some(Minor(0)));
        if let Some((_, gpu)) = nodes.iter().find(|(node, _)| node.gpu().is_some())
            && !has_uvm
        {
            needed.extend(Node::of("/dev/nvidia-uvm").map(|uvm| (uvm, *gpu, true)));
        }
        let mut missing: Vec<Missing<'a>> = Vec::new();
        for (node, line, beside) in needed {
            let major = if node.driver == NVIDIA { majors.primary() } else { majors.only(node.driver) };
            let Ok(major) = major else { continue };
            let known = missing.iter().any(|known| known.node.driver == node.driver);
            if !known && !self.is_allowed(&node, major) {
                missing.push(Missing { node, major, line, beside });
            }
        }
        missing
    }

    fn is_allowed(&self, node: &Node, major: Major) -> bool {
        self.effective_rules().any(|rule| match node.minor {
            Some(minor) => rule.allows(DeviceId { major, minor }, &node.path),
            None => rule == &Rule::All || rule.is_wide() || rule.character_major() == Some(major),
        })
    }

    /// The rules that LXC takes over on this host.
    pub(super) fn effective_rules(&self) -> impl Iterator<Item = &'a Rule> {
        let v1 = self.host.controller.is_v1();
        self.lines.in_force().filter_map(move |line| match &line.meaning {
            Meaning::Rule(RuleLine { v1: is_v1, deny: false, rule: Ok(rule), .. }) if *is_v1 == v1 => Some(rule),
            _ => None,
        })
    }

    pub(super) fn grant(&self, major: Major) -> Grant<'a> {
        Grant::of(major, self.host.facts.majors.as_ref())
    }

    /// How much it matters that a line for `major` does nothing: it is the cause where a device that it opens, or was
    /// written for, is not allowed.
    pub(super) fn severity_of_cause(&self, major: Major) -> Severity {
        let dynamic = |missing: &&Missing<'_>| missing.node.driver != NVIDIA;
        let is_cause = match self.grant(major) {
            Grant::Nobody | Grant::Foreign(_) | Grant::Kfd | Grant::Minor(_) => {
                self.missing.iter().filter(dynamic).any(Missing::is_essential)
            }
            Grant::Nvidia(_) => self.missing.iter().any(|missing| missing.major == major && missing.is_essential()),
            Grant::Dri | Grant::Fixed | Grant::Unknown => false,
        };
        if is_cause { Severity::Error } else { Severity::Warning }
    }

    fn missing_rules(&mut self) {
        for missing in std::mem::take(&mut self.missing) {
            let Missing { node, major, line, beside } = &missing;
            // The line that was written for it is the cause, and this its consequence.
            let explained =
                self.found.iter().any(|finding| finding.severity == Severity::Error && is_cause(finding.id));
            let severity = if missing.is_essential() && !explained { Severity::Error } else { Severity::Warning };
            let number = match node.minor {
                Some(minor) => format!("{major}:{minor}"),
                None => format!("{major}:*"),
            };
            let consequence = match node.driver {
                NVIDIA_UVM => ", so cuInit gives 999 while nvidia-smi works",
                NVIDIA_CAPS => ", which matters only for MIG",
                _ => "",
            };
            let why = match beside {
                true => " and no line brings it in, but CUDA needs it beside this GPU: cuInit gives 999 while nvidia-smi works"
                    .to_owned(),
                false => format!(", and this line brings it in: opening it gives EPERM{consequence}"),
            };
            let explain = format!("no rule in force allows {} ({number}, {}){why}", node.path, node.driver);
            let fix = match node.is_nvidia() {
                true => super::migrate(self.lines, self.reason, false),
                false => self.kfd_cure(),
            };
            self.add(FindingId::MissingRule, severity, line, explain, Some(&fix));
        }
    }

    /// Rules that open a driver's devices, of which no line brings one in.
    fn missing_mounts(&mut self) {
        let nodes = self.lines.nodes();
        let other_injector = self.lines.in_force().any(|line| match &line.meaning {
            Meaning::Hook(_, command) => crate::device_lines::is_legacy_hook(command),
            Meaning::Mount(entry) => entry.target.trim_matches('/') == "dev",
            _ => false,
        });
        if self.lines.is_registered() || other_injector {
            return;
        }
        let rule_for = |driver: &str| {
            self.lines.in_force().find(|line| match (&line.meaning, line.meant_major()) {
                (Meaning::Rule(RuleLine { deny: false, rule: Ok(_), .. }), Some(major)) => match self.grant(major) {
                    Grant::Nvidia(names) => major.0 == 195 && driver == NVIDIA || names.contains(&driver),
                    _ => false,
                },
                _ => false,
            })
        };
        let fix = super::migrate(self.lines, self.reason, false);
        let has = |path: &str| nodes.iter().any(|(node, _)| node.path == path);
        let gpu = nodes.iter().find(|(node, _)| node.gpu().is_some()).map(|(_, line)| *line);
        let unallowed = self.found.iter().any(|finding| finding.id == FindingId::MissingRule);
        if let Some(line) = rule_for(NVIDIA).filter(|_| !nodes.iter().any(|(node, _)| node.is_nvidia())) {
            let unless = match self.lines.kind {
                Kind::Raw => "a gpu device of the instance brings them in",
                Kind::Proxmox | Kind::Lxc => "somebody has made the nodes in its root file system",
            };
            let explain = format!(
                "rules open NVIDIA's devices and no line brings a node in; the container sees no GPU unless {unless}"
            );
            self.add(FindingId::MissingMount, Severity::Warning, line, explain, Some(&fix));
        } else if let Some(gpu) = gpu.filter(|_| !has("/dev/nvidia-uvm"))
            && let Some(line) = rule_for(NVIDIA_UVM).or(Some(gpu).filter(|_| !unallowed))
        {
            let explain = "a GPU's node is brought in and /dev/nvidia-uvm is not, without which cuInit gives 999 while \
                           nvidia-smi works";
            self.add(FindingId::MissingMount, Severity::Error, line, explain, Some(&fix));
        }
        if let Some(gpu) = gpu.filter(|_| !has("/dev/nvidiactl") && self.lines.kind != Kind::Raw) {
            let explain = "a GPU's node is brought in and no line brings /dev/nvidiactl in, which every program of NVIDIA opens \
                           first; unless somebody has made it in the container, nothing works";
            self.add(FindingId::MissingMount, Severity::Warning, gpu, explain, Some(&fix));
        }
    }

    /// Maps of user or of group ids alone: LXC replaces both by what the config says.
    fn id_maps(&mut self) {
        let maps: Vec<(&DeviceLine, &str)> = self
            .lines
            .in_force()
            .filter_map(|line| match &line.meaning {
                Meaning::IdMap(value) => Some((line, value.as_str())),
                _ => None,
            })
            .collect();
        let maps_ids = |kind: char| maps.iter().any(|(_, value)| value.starts_with(kind));
        let absent = match (maps_ids('u'), maps_ids('g')) {
            (false, true) => ('u', "user"),
            (true, false) => ('g', "group"),
            _ => return,
        };
        let Some((line, _)) = maps.first() else { return };
        let explain = format!(
            "these lines take the place of the default id map, and none of them maps {} ids, so the container does not start",
            absent.1
        );
        let sign = if self.lines.kind == Kind::Proxmox { ":" } else { " =" };
        let fix = format!("lxc.idmap{sign} {} 0 100000 65536   # with the range of /etc/sub{}id", absent.0, absent.0);
        self.add(FindingId::MalformedRule, Severity::Error, line, explain, Some(&fix));
    }

    pub(super) fn add(
        &mut self,
        id: FindingId,
        severity: Severity,
        line: &DeviceLine,
        explain: impl Into<String>,
        fix: Option<&str>,
    ) {
        let finding = Finding::new(id, severity, line.text.trim(), explain).at(&line.file, line.line);
        self.found.push(match fix {
            Some(fix) => finding.fix(fix),
            None => finding,
        });
    }

    /// What the drivers' dynamic numbers are today: `nvidia-uvm has 509 and nvidia-caps 237 today`.
    pub(super) fn today(&self) -> String {
        let kfd = self.lines.is_kfd() && !self.lines.is_nvidia();
        let names: &[&str] = if kfd { &[KFD] } else { &[NVIDIA_UVM, NVIDIA_CAPS] };
        let Some(majors) = &self.host.facts.majors else { return String::new() };
        let numbers: Vec<String> = names
            .iter()
            .filter_map(|name| {
                let major = majors.by_name.get(*name)?.first()?;
                Some(format!("{name} has {major}"))
            })
            .collect();
        if numbers.is_empty() { String::new() } else { format!("; today {}", numbers.join(" and ")) }
    }

    pub(super) fn unfiltered(&mut self, line: &DeviceLine) {
        if !self.filtered {
            let explain = format!("{UNFILTERED}: the rule neither opens nor closes anything");
            self.add(FindingId::UnprivilegedNoop, Severity::Info, line, explain, None);
        }
    }
}
