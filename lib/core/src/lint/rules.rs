// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a device rule that is in force.

use super::effect::granted;
use super::judge::Judge;
use crate::config_text::Kind;
use crate::device::Major;
use crate::device_lines::{DeviceLine, Grant, Meaning, Rule, RuleLine};
use crate::findings::{FindingId, Severity};

impl<'a> Judge<'a> {
    pub(super) fn rule(&mut self, line: &'a DeviceLine, rule: &'a RuleLine) {
        if rule.v1 != self.host.controller.is_v1() {
            self.wrong_version(line, rule);
            return;
        }
        match &rule.rule {
            Err(why) => {
                let explain = format!("LXC does not start the container on this rule: {why}");
                self.add(FindingId::MalformedRule, Severity::Error, line, explain, Some(&super::migrate(self.lines)));
            }
            Ok(_) if rule.deny => {}
            Ok(known) if known.is_wide() => {
                let explain = "it opens every device of the host to the container: its disks, its memory, other GPUs";
                let fix = "remove it, and allow what the container needs; gpuhook allows the GPUs";
                self.add(FindingId::WideGrant, Severity::Warning, line, explain, Some(fix));
                self.unfiltered(line);
            }
            Ok(Rule::Path(_)) => {}
            Ok(known) => {
                if let Some(major) = known.character_major() {
                    self.number(line, major);
                }
            }
        }
    }

    fn number(&mut self, line: &'a DeviceLine, major: Major) {
        let grant = self.grant(major);
        let severity = if self.filtered { self.severity_of_cause(major) } else { Severity::Warning };
        let tools = match line.comment_names("uvm-tools") {
            true => "; nvidia-uvm-tools has no number of its own, it is minor 1 of nvidia-uvm",
            false => "",
        };
        let (today, fix) = (self.today(), self.cure());
        match &grant {
            Grant::Nobody => {
                let minor = if major.0 == 254 { "; 254 is the minor of /dev/nvidia-modeset, too" } else { "" };
                let explain = format!("no driver has {major} today, so the rule opens nothing{today}{tools}{minor}");
                self.add(FindingId::StaleRule, severity, line, explain, Some(&fix));
            }
            Grant::Minor(path) if self.lines.is_nvidia() => {
                let explain = format!("{major} is the minor of {path} and no driver's major{today}");
                self.add(FindingId::StaleRule, severity, line, explain, Some(&fix));
            }
            Grant::Foreign(names) if !self.is_wanted(names) => {
                let owner = names.join(", ");
                let opens = if self.filtered { "the rule opens" } else { "under a filter the rule would open" };
                let explain = format!(
                    "{major} is {owner} today: {opens} that driver's devices to the container, and nothing of a \
                     GPU{today}{tools}"
                );
                let fix = match self.lines.is_nvidia() {
                    true => format!("{fix}; with --remove-foreign it takes this line out too"),
                    false => fix,
                };
                self.add(FindingId::ForeignGrant, severity, line, explain, Some(&fix));
            }
            _ => {}
        }
        if !matches!(grant, Grant::Fixed | Grant::Dri) {
            self.unfiltered(line);
        }
    }

    /// Whether the config brings in a node of that driver, `/dev/mei0` of `mei`, so that the rule is meant as it stands.
    fn is_wanted(&self, owners: &[&str]) -> bool {
        self.lines.in_force().any(|line| {
            let Meaning::Mount(entry) = &line.meaning else { return false };
            let name = entry.source.rsplit('/').next().unwrap_or_default();
            entry.source.starts_with("/dev/") && owners.iter().any(|owner| name.starts_with(owner))
        })
    }

    fn cure(&self) -> String {
        match (self.lines.is_kfd() && !self.lines.is_nvidia(), self.lines.kind) {
            (true, Kind::Proxmox) => {
                "dev0: /dev/kfd instead of rule and mount: Proxmox reads its number at every start".to_owned()
            }
            (true, _) => "lxc.cgroup2.devices.allow = /dev/kfd rw: LXC reads its number at every start".to_owned(),
            (false, _) => super::migrate(self.lines),
        }
    }

    fn wrong_version(&mut self, line: &'a DeviceLine, rule: &RuleLine) {
        let major = line.meant_major();
        let what = major.and_then(|major| granted(&self.grant(major), major.0));
        // The templates write each rule twice.
        if what.is_none() && (self.has_twin(rule) || line.file != self.lines.file) {
            return;
        }
        let would = what.map(|what| format!("; it would open {what}")).unwrap_or_default();
        let explain = match rule.v1 {
            true => format!("LXC passes over lxc.cgroup.devices lines where cgroup2 filters devices{would}"),
            false => format!("LXC passes over lxc.cgroup2.devices lines where cgroup v1 filters devices{would}"),
        };
        // A pair of lines, one for each version, is meant that way.
        let severity = match major {
            _ if self.has_twin(rule) => Severity::Info,
            Some(major) => self.severity_of_cause(major),
            None => Severity::Warning,
        };
        let gpu = major.is_some_and(|major| !matches!(self.grant(major), Grant::Fixed | Grant::Dri | Grant::Kfd));
        let fix = match gpu {
            true => super::migrate(self.lines),
            false if rule.v1 => "write lxc.cgroup2.devices instead of lxc.cgroup.devices".to_owned(),
            false => "write lxc.cgroup.devices instead of lxc.cgroup2.devices".to_owned(),
        };
        self.add(FindingId::InactiveRule, severity, line, explain, Some(&fix));
    }

    /// Whether the same rule stands there for the other version too.
    fn has_twin(&self, rule: &RuleLine) -> bool {
        self.rules.contains(&(!rule.v1, rule.deny, rule.value.as_str()))
    }
}
