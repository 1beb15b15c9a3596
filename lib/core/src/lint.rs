// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each GPU line of a container's config does on this host today, and what is wrong with it. `docs/findings.md`
//! explains the ids.

use std::fmt;

use serde::Serialize;

use crate::config_text::{Kind, Reason};
use crate::device_lines::{DeviceLine, DeviceLines};
use crate::facts::HostFacts;
use crate::findings::{Finding, FindingId, Findings, Severity};
use crate::quoted::{one_line, shell_word};

use self::effect::effect;
use self::judge::Judge;

mod effect;
mod generated;
mod hooks;
mod judge;
mod mounts;
mod rules;

pub use self::generated::generator;

/// The host that the configs are judged against.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// What its driver says.
    pub facts: &'a HostFacts,
    /// Which cgroup version filters devices.
    pub controller: Controller,
    /// Whether `facts.nodes` is all of the host's `/dev`, so that a node that is not in it is absent.
    pub nodes_are_whole: bool,
}

/// Which cgroup version filters devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// The v1 devices controller; LXC then passes over `lxc.cgroup2.devices` lines.
    V1,
    /// Device programs of cgroup2; LXC then passes over `lxc.cgroup.devices` lines.
    V2,
    /// Not known, and cgroup2 assumed.
    Assumed,
}

impl Controller {
    /// From the text of `/proc/self/mountinfo`: wherever the v1 devices controller is mounted, it filters.
    pub fn of_mountinfo(text: &str) -> Self {
        let mut found = Self::Assumed;
        for line in text.lines() {
            let Some((_, end)) = line.split_once(" - ") else { continue };
            let words: Vec<&str> = end.split(' ').collect();
            match words[..] {
                ["cgroup", _, options] if options.split(',').any(|word| word == "devices") => return Self::V1,
                ["cgroup2", ..] => found = Self::V2,
                _ => {}
            }
        }
        found
    }

    fn is_v1(self) -> bool {
        self == Self::V1
    }
}

/// What was read, line by line, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// The verdict and the findings.
    #[serde(flatten)]
    pub findings: Findings,
    /// What was not known and was assumed, as sentences.
    pub assumed: Vec<String>,
    /// The configs.
    pub configs: Vec<LintedConfig>,
}

/// One config's GPU lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintedConfig {
    /// The file.
    pub file: String,
    /// Whose config it is.
    pub kind: String,
    /// What told the kind.
    pub kind_by: String,
    /// Its lines that concern a GPU, and those of the files that it includes.
    pub lines: Vec<LintedLine>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintedLine {
    /// The file that it stands in.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// Whether it takes effect when the container starts.
    pub in_force: bool,
    /// What it does on this host today.
    pub effect: String,
}

impl Lint {
    /// Judges configs, each with what told its kind, against `host`.
    pub fn of(configs: &[(DeviceLines, Reason)], host: Host<'_>) -> Self {
        let mut findings = Vec::new();
        let mut read = Vec::new();
        for (lines, reason) in configs {
            findings.extend(Judge::new(lines, *reason, host).findings());
            let told = |line: &DeviceLine| {
                effect(lines, line, host).map(|(in_force, effect)| LintedLine {
                    file: line.file.clone(),
                    line: line.line,
                    text: line.text.trim_end().to_owned(),
                    in_force,
                    effect,
                })
            };
            let told: Vec<LintedLine> = lines.lines.iter().filter_map(told).collect();
            if let Some(generator) = generator(lines).filter(|_| !told.is_empty()) {
                let explain = format!("it is written by {generator}; what is changed here by hand is lost");
                let finding = Finding::new(FindingId::GeneratedFile, Severity::Warning, &lines.file, explain);
                findings.push(finding.at(&lines.file, 0).fix("change what the file is made from"));
            }
            read.push(LintedConfig {
                file: lines.file.clone(),
                kind: lines.kind.to_string(),
                kind_by: reason.to_string(),
                lines: told,
            });
        }
        let mut assumed = Vec::new();
        if host.controller == Controller::Assumed {
            assumed.push("nothing says which cgroup version this host has; cgroup2 is assumed".to_owned());
        }
        match &host.facts.majors {
            None => assumed.push("/proc/devices is not known, so no number can be judged".to_owned()),
            Some(majors) if !majors.complete => {
                assumed.push("the listing of /proc/devices has no block section and may be cut off".to_owned());
            }
            Some(_) => {}
        }
        Self { findings: Findings::new(verdict(&findings, &read), findings), assumed, configs: read }
    }
}

fn verdict(findings: &[Finding], configs: &[LintedConfig]) -> String {
    let place = match configs {
        [] => return "there is no container's config".to_owned(),
        [config] => one_line(&config.file),
        configs => format!("{} configs", configs.len()),
    };
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let counts: Vec<String> = [(errors, "error"), (warnings, "warning")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| plural(count, word))
        .collect();
    if counts.is_empty() {
        return match configs.iter().all(|config| config.lines.is_empty()) {
            true => format!("{place}: no line concerns a GPU"),
            false => format!("{place}: nothing is wrong with the GPU lines"),
        };
    }
    let mut grave: Vec<(Severity, FindingId)> = findings.iter().map(|finding| (finding.severity, finding.id)).collect();
    grave.sort_unstable();
    let mut ids: Vec<&str> = Vec::new();
    for (_, id) in grave.into_iter().filter(|(severity, _)| *severity < Severity::Info) {
        if !ids.contains(&id.word()) {
            ids.push(id.word());
        }
    }
    format!("{place}: {} ({})", counts.join(" and "), ids.join(", "))
}

impl fmt::Display for Lint {
    /// Each config's GPU lines with what they do, the findings below them, the verdict last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for config in &self.configs {
            writeln!(f, "{}: {} ({})", one_line(&config.file), config.kind, config.kind_by)?;
            for line in &config.lines {
                let place = match line.file == config.file {
                    true => format!("{:>4}", line.line),
                    false => format!("{}:{}", one_line(&line.file), line.line),
                };
                writeln!(f, "{place}  {}\n      {}", one_line(&line.text), one_line(&line.effect))?;
            }
        }
        for finding in &self.findings.findings {
            writeln!(f, "\n{finding}")?;
        }
        for sentence in &self.assumed {
            writeln!(f, "\nassumed: {}", one_line(sentence))?;
        }
        writeln!(f, "\n{}", self.findings.verdict)
    }
}

/// What a person types to have the lines taken out, also those whose number has gone to another driver.
fn migrate(lines: &DeviceLines, reason: Reason, foreign: bool) -> String {
    if let Some(generator) = generator(lines) {
        return format!("change what the file is made from: it is written by {generator}");
    }
    let told = Kind::WORDS.iter().find(|(_, kind)| *kind == lines.kind && reason == Reason::Told);
    let kind = told.map(|(word, _)| format!(" --kind {word}")).unwrap_or_default();
    let foreign = if foreign { " --remove-foreign" } else { "" };
    format!(
        "gpuhook config migrate --write{foreign}{kind} {}   # without --write it shows the change",
        shell_word(&lines.file)
    )
}

#[cfg(test)]
mod tests;
