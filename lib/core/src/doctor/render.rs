// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text for a terminal: a ladder per side with a mark per rung, then the verdict, the findings, and what it is not.

use std::fmt::{self, Write};

use serde::Serialize;

use super::{Case, Diagnosis};
use crate::device::Major;
use crate::facts::majors::{self, Majors};
use crate::facts::surroundings::Presence;
use crate::facts::{HostNode, NodeKind};
use crate::findings::Severity;
use crate::host_nodes;
use crate::quoted::one_line;
use crate::report::{Rung, RungName};

/// The checks of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ladder {
    /// Whose: `host`, or the container's name.
    pub side: String,
    /// Every check.
    pub rungs: Vec<Rung>,
}

/// How marks and severities look: escape sequences for good, bad and unknown, and the one that ends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Palette {
    good: &'static str,
    bad: &'static str,
    unknown: &'static str,
    end: &'static str,
}

/// No colour.
pub(super) const PLAIN: Palette = Palette { good: "", bad: "", unknown: "", end: "" };
/// Green, red and dim, as terminals have them (ECMA-48 SGR).
const COLOURED: Palette = Palette { good: "\x1b[32m", bad: "\x1b[31m", unknown: "\x1b[2m", end: "\x1b[0m" };

impl Diagnosis {
    /// The text with colours.
    pub fn coloured(&self) -> String {
        struct Coloured<'a>(&'a Diagnosis);
        impl fmt::Display for Coloured<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                diagnosis(self.0, f, COLOURED)
            }
        }
        Coloured(self).to_string()
    }
}

pub(super) fn ladders(case: &Case<'_>) -> Vec<Ladder> {
    let mut rungs = drivers(case);
    rungs.extend(nodes(case));
    match &case.on_host {
        Some(look) => rungs.extend(look.rungs.iter().filter(|rung| rung.rung >= RungName::L3).cloned()),
        None => rungs.extend([(RungName::L3, "open"), (RungName::L5, "cuInit")].map(|(name, subject)| {
            Rung::skipped(name, subject, "not looked at: these are another machine's files, or nobody asked")
        })),
    }
    let mut ladders = vec![Ladder { side: "host".to_owned(), rungs }];
    if let Some(patient) = &case.patient {
        let rungs = match &patient.look {
            Some(look) => look.rungs.iter().filter(|rung| rung.rung > RungName::L0).cloned().collect(),
            None => vec![Rung::skipped(RungName::L1, "container", "not looked at: it does not run")],
        };
        ladders.push(Ladder { side: patient.name.clone(), rungs });
    }
    ladders
}

fn drivers(case: &Case<'_>) -> Vec<Rung> {
    let version = case.version().map_or("driver of unknown version".to_owned(), |version| format!("driver {version}"));
    let Some(majors) = &case.host.majors else {
        return vec![Rung::skipped(RungName::L0, version, "/proc/devices was not there to read")];
    };
    let number = |name: &'static str| match name {
        majors::NVIDIA => majors.primary(),
        name => majors.only(name),
    };
    let rung = |name: &'static str, needed: bool| match (number(name), needed) {
        (Ok(Major(major)), _) => Some(Rung::passed(RungName::L0, format!("{name} {major}"))),
        (Err(_), false) => None,
        (Err(majors::MajorError::Missing { complete: false, .. }), true) => {
            Some(Rung::skipped(RungName::L0, name, "the listing is incomplete"))
        }
        (Err(error), true) => Some(Rung::failed(RungName::L0, name, error.to_string())),
    };
    let kfd_alone = majors.only(majors::KFD).is_ok() && !has_nvidia(majors);
    let names = [
        (majors::NVIDIA, !kfd_alone),
        (majors::NVIDIA_UVM, has_nvidia(majors)),
        (majors::NVIDIA_CAPS, false),
        (majors::NVIDIA_CAPS_IMEX_CHANNELS, false),
        (majors::KFD, false),
    ];
    let version = Rung::passed(RungName::L0, version);
    let version = case.host.driver.is_some().then_some(version);
    version.into_iter().chain(names.into_iter().filter_map(|(name, needed)| rung(name, needed))).collect()
}

fn has_nvidia(majors: &Majors) -> bool {
    majors.primary().is_ok()
}

fn nodes(case: &Case<'_>) -> Vec<Rung> {
    let expected = host_nodes::expected(case.host).unwrap_or_default();
    let rung = |path: &str, id| match case.surroundings.dev.at(path) {
        Presence::Unknown => Rung::skipped(RungName::L1, path, "not known"),
        Presence::Absent => Rung::failed(RungName::L1, path, "not there"),
        Presence::There(HostNode { kind: NodeKind::NotADevice, .. }) => {
            Rung::failed(RungName::L1, path, Rung::NOT_A_DEVICE)
        }
        Presence::There(HostNode { kind: NodeKind::Character(found), .. }) if *found == id => {
            Rung::passed(RungName::L1, path)
        }
        Presence::There(HostNode { kind: NodeKind::Character(found), .. }) => {
            Rung::failed(RungName::L1, path, format!("is c {found}, the driver has {id} now"))
        }
    };
    expected.iter().map(|device| rung(device.path.as_str(), device.id)).collect()
}

pub(super) fn diagnosis(diagnosis: &Diagnosis, f: &mut fmt::Formatter<'_>, palette: Palette) -> fmt::Result {
    for ladder in &diagnosis.ladders {
        writeln!(f, "{}", one_line(&ladder.side))?;
        let mut names: Vec<RungName> = ladder.rungs.iter().map(|rung| rung.rung).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let rungs: Vec<&Rung> = ladder.rungs.iter().filter(|rung| rung.rung == name).collect();
            f.write_str(&step(name, &rungs, palette))?;
        }
    }
    let colour = if diagnosis.has_cause() { palette.bad } else { palette.good };
    writeln!(f, "\nverdict: {colour}{}{}", one_line(&diagnosis.verdict), palette.end)?;
    for finding in &diagnosis.findings {
        let colour = match finding.severity {
            Severity::Error => palette.bad,
            Severity::Warning => "",
            Severity::Info => palette.unknown,
        };
        let end = if colour.is_empty() { "" } else { palette.end };
        writeln!(f, "\n{colour}{finding}{end}")?;
    }
    if !diagnosis.ruled_out.is_empty() {
        writeln!(f, "\nruled out:")?;
        for sentence in &diagnosis.ruled_out {
            writeln!(f, "  {}", one_line(sentence))?;
        }
    }
    Ok(())
}

/// A host with eight GPUs has twenty nodes: the first of them, and how many follow.
fn list(subjects: &[&str]) -> String {
    const SHOWN: usize = 5;
    match subjects.get(SHOWN..) {
        Some(more @ [_, _, ..]) => format!("{} and {} more", subjects[..SHOWN].join(", "), more.len()),
        _ => subjects.join(", "),
    }
}

/// One rung: what went well in one line, each failure in a line of its own.
fn step(name: RungName, rungs: &[&Rung], palette: Palette) -> String {
    let what = match name {
        RungName::L0 => "driver",
        RungName::L1 => "nodes",
        RungName::L2 => "filter",
        RungName::L3 => "open",
        RungName::L4 => "version",
        RungName::L5 => "cuInit",
    };
    let mut text = String::new();
    let mut line = |mark: &str, colour: &str, said: &str| {
        let end = if colour.is_empty() { "" } else { palette.end };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {colour}{mark:<4}{end} {name:?} {what:<8} {}", one_line(said));
    };
    let passed: Vec<&str> =
        rungs.iter().filter(|rung| rung.ok == Some(true)).map(|rung| rung.subject.as_str()).collect();
    if !passed.is_empty() {
        line("ok", palette.good, &list(&passed));
    }
    for rung in rungs.iter().filter(|rung| rung.is_failure()) {
        let errno = rung.errno.as_deref().map(|errno| format!("{errno} ")).unwrap_or_default();
        line("FAIL", palette.bad, &format!("{}: {errno}{}", rung.subject, rung.explain.as_deref().unwrap_or_default()));
    }
    let skipped: Vec<&&Rung> = rungs.iter().filter(|rung| rung.ok.is_none()).collect();
    if let Some(first) = skipped.first() {
        let subjects: Vec<&str> = skipped.iter().map(|rung| rung.subject.as_str()).collect();
        line("-", palette.unknown, &format!("{}: {}", list(&subjects), first.explain.as_deref().unwrap_or_default()));
    }
    text
}
