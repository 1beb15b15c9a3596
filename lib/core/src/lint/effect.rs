// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one line does today, in one sentence.

use super::Host;
use crate::device_lines::{DeviceLine, DeviceLines, Grant, Meaning, Node, Rule, RuleLine, is_legacy_hook};

/// Whether the line takes effect, and what it does; nothing where it does not concern a GPU.
pub(super) fn effect(lines: &DeviceLines, line: &DeviceLine, host: Host<'_>) -> Option<(bool, String)> {
    let says = says(lines, line, host)?;
    if let Some(section) = &line.section {
        return Some((false, format!("not in force: it belongs to [{section}]")));
    }
    if let Some(by) = line.cleared_by {
        return Some((false, format!("not in force: line {by} clears it")));
    }
    Some(match &line.meaning {
        Meaning::Dropped(why) | Meaning::Refused(why) => (false, (*why).to_owned()),
        Meaning::Rule(rule) if rule.v1 != host.controller.is_v1() => {
            let (key, version) = if rule.v1 { ("v1", "cgroup2") } else { ("cgroup2", "cgroup v1") };
            (false, format!("no effect: a {key} key on a host where {version} filters devices"))
        }
        Meaning::Rule(_) if lines.is_unfiltered() => (false, format!("no effect: {UNFILTERED}; under one it {says}")),
        _ => (true, says),
    })
}

/// Why rules do nothing in an unprivileged container.
pub(super) const UNFILTERED: &str = "an unprivileged container of this kind has no device filter";

fn says(lines: &DeviceLines, line: &DeviceLine, host: Host<'_>) -> Option<String> {
    let majors = host.facts.majors.as_ref();
    let verb = |deny: bool| if deny { "takes away" } else { "opens" };
    match &line.meaning {
        Meaning::Rule(RuleLine { rule: Err(why), .. }) => Some(format!("no rule that LXC can read: {why}")),
        Meaning::Rule(RuleLine { deny, rule: Ok(rule), .. }) => match rule {
            _ if rule.is_wide() && !deny => Some("opens every device of the host".to_owned()),
            Rule::Path(path) => {
                Node::of(path).map(|_| format!("{} {path} under the number it has at each start", verb(*deny)))
            }
            rule => {
                let major = rule.character_major()?;
                granted(&Grant::of(major, majors), major.0).map(|what| format!("{} {what}", verb(*deny)))
            }
        },
        Meaning::Mount(entry) if entry.is_gpu() => {
            Some(format!("brings {} in as /{}", entry.source, entry.target.trim_start_matches('/')))
        }
        Meaning::Entry(path) if path.starts_with("/dev/dri/") || Node::of(path).is_some() => {
            Some(format!("Proxmox brings {path} in and opens the number it has at each start"))
        }
        Meaning::AbsentInclude(_, missing) => Some(format!("includes {missing}, which is not there")),
        Meaning::Hook(..) | Meaning::Include(_) if line.is_registration() => {
            Some("calls gpuhook, which opens the numbers of today".to_owned())
        }
        Meaning::Hook(stage, command) if is_legacy_hook(command) => Some(format!("runs an older injector at {stage}")),
        Meaning::Hook(stage, command) if super::hooks::changes_nodes(command) => {
            Some(format!("changes GPU nodes at {stage}"))
        }
        Meaning::Variable(name, value) if name.starts_with("NVIDIA_") => Some(format!("asks for {name}={value}")),
        Meaning::Options => Some("the second half of the line before: nobody reads it".to_owned()),
        Meaning::Dropped(_) | Meaning::Refused(_) => {
            let about = line.meant_major().is_some_and(|major| granted(&Grant::of(major, majors), major.0).is_some());
            let gpu = line.text.contains("nvidia") || line.text.contains("/dev/dri") || line.text.contains("kfd");
            (about || gpu || line.text.contains("gpuhook")).then(String::new)
        }
        _ => None,
    }
    .filter(|_| lines.kind == crate::config_text::Kind::Proxmox || !matches!(&line.meaning, Meaning::Entry(_)))
}

/// What a rule for a major opens; nothing where it never had to do with a GPU.
pub(super) fn granted(grant: &Grant<'_>, major: u32) -> Option<String> {
    Some(match grant {
        Grant::Nvidia(names) if names.is_empty() => format!("NVIDIA's GPUs ({major})"),
        Grant::Nvidia(names) => format!("{} ({major})", names.join(", ")),
        Grant::Kfd => format!("AMD's kfd ({major})"),
        Grant::Foreign(names) => format!("{} ({major} today), which is no GPU driver", names.join(", ")),
        Grant::Nobody => format!("nothing: no driver has {major} today"),
        Grant::Minor(path) => format!("nothing: {major} is the minor of {path}, and no driver's major"),
        Grant::Dri => "direct rendering devices (226 is fixed)".to_owned(),
        Grant::Unknown => format!("whatever driver has {major} today"),
        Grant::Fixed => return None,
    })
}
