// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a device rule that is in force.

use super::effect::granted;
use super::judge::Judge;
use crate::config_text::Kind;
use crate::device::Major;
use crate::device_lines::{DeviceLine, Grant, Meaning, Rule, RuleLine, misc_name};
use crate::findings::{FindingId, Severity};
use crate::quoted::shell_word;

impl<'a> Judge<'a> {
    pub(super) fn rule(&mut self, line: &'a DeviceLine, rule: &'a RuleLine) {
        if rule.v1 != self.host.controller.is_v1() {
            self.wrong_version(line, rule);
            return;
        }
        match &rule.rule {
            Err(why) => {
                let (fatal, consequence) = match (why.is_fatal(), rule.v1) {
                    (true, _) => (true, "the container does not start"),
                    (false, true) => (true, "the kernel refuses it, and the container does not start"),
                    // `bpf_device_cgroup_prepare` returns a positive errno for it, which its caller takes for success.
                    (false, false) => (
                        false,
                        "LXC starts without it from 4.0.7 on, and says so in its log only; older ones do not start",
                    ),
                };
                let explain = format!("LXC cannot read this rule ({why}): {consequence}");
                let severity = match line.meant_major() {
                    Some(major) if !fatal => self.severity_of_cause(major),
                    None if !fatal => Severity::Warning,
                    _ => Severity::Error,
                };
                let fix = match line.meant_major() {
                    Some(major) if self.takes_out(major) => self.migrate(major, line),
                    _ => "write it as LXC reads it, c MAJOR:MINOR rwm, or remove it".to_owned(),
                };
                self.add(FindingId::MalformedRule, severity, line, explain, Some(&fix));
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
        let (today, fix) = (self.today(), self.cure(major, line));
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

    fn cure(&self, major: Major, line: &DeviceLine) -> String {
        match self.lines.is_kfd() && !self.takes_out(major) {
            true => self.kfd_cure(),
            false if self.takes_out(major) => self.migrate(major, line),
            false => "remove the line, unless you know which device it is for".to_owned(),
        }
    }

    /// AMD's compute device without a number.
    pub(super) fn kfd_cure(&self) -> String {
        match self.lines.kind {
            Kind::Proxmox => {
                let taken = |entry: &str| self.lines.lines.iter().any(|line| line.text.starts_with(entry));
                let free = (0..256).map(|number| format!("dev{number}:")).find(|entry| !taken(entry));
                let free = free.as_deref().unwrap_or("devN:");
                format!("{free} /dev/kfd instead of rule and mount: Proxmox reads its number at every start")
            }
            Kind::Lxc | Kind::Raw => {
                "lxc.cgroup2.devices.allow = /dev/kfd rw: LXC reads its number at every start".to_owned()
            }
        }
    }

    /// Whether a migration takes a line of this number out, when it is asked to.
    fn takes_out(&self, major: Major) -> bool {
        let nvidia = self.lines.concerns_nvidia(self.host.facts.majors.as_ref());
        match self.grant(major) {
            Grant::Nvidia(_) => true,
            Grant::Nobody if self.lines.is_kfd() => nvidia && self.effective_rules().any(|rule| self.opens_kfd(rule)),
            Grant::Nobody | Grant::Minor(_) | Grant::Foreign(_) => nvidia,
            Grant::Kfd => nvidia && !self.lines.is_kfd(),
            Grant::Dri | Grant::Fixed | Grant::Unknown => false,
        }
    }

    fn opens_kfd(&self, rule: &Rule) -> bool {
        rule.character_major().is_some_and(|major| self.grant(major) == Grant::Kfd)
    }

    /// The migration that takes `line` out.
    pub(super) fn migrate(&self, major: Major, line: &DeviceLine) -> String {
        if line.file != self.lines.file {
            return format!(
                "remove the line there, or say `gpuhook config migrate --write {}`",
                shell_word(&line.file)
            );
        }
        let foreign = matches!(self.grant(major), Grant::Foreign(_) | Grant::Kfd) && !line.is_said_to_be_nvidia();
        super::migrate(self.lines, self.reason, foreign)
    }

    fn wrong_version(&mut self, line: &'a DeviceLine, rule: &RuleLine) {
        let major = line.meant_major();
        let what = major.and_then(|major| granted(&self.grant(major), major.0));
        // The templates write each rule twice.
        if what.is_none() && (self.has_twin(rule) || line.file != self.lines.file) {
            return;
        }
        let misc = match rule.rule {
            Ok(Rule::Numbers { block: false, major: Some(Major(10)), minor: Some(minor), .. }) => misc_name(minor),
            _ => None,
        };
        let what = what.or_else(|| misc.map(|name| format!("{name}, whose number is fixed")));
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
        let fix = match major {
            Some(major) if self.takes_out(major) => self.migrate(major, line),
            _ if rule.v1 => "write lxc.cgroup2.devices instead of lxc.cgroup.devices".to_owned(),
            _ => "write lxc.cgroup.devices instead of lxc.cgroup2.devices".to_owned(),
        };
        self.add(FindingId::InactiveRule, severity, line, explain, Some(&fix));
    }

    /// Whether the same rule stands there for the other version too.
    fn has_twin(&self, rule: &RuleLine) -> bool {
        self.rules.contains(&(!rule.v1, rule.deny, rule.value.as_str()))
    }
}
