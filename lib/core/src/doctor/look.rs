// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ladder of one side says: nodes, filter, opens, library. The errno of an open tells causes apart that look the
//! same from CUDA: ENOENT, EPERM, EACCES, ENXIO and ENODEV, EIO, and what only a driver answers.

use super::log::{LIBRARY, RELOAD, host_libraries, install};
use super::{Case, Look, Patient, rank};
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;
use crate::report::{Rung, RungName};

/// Whose ladder it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Container,
}

pub(super) fn findings(look: &Look, side: Side, case: &Case<'_>) -> Vec<Finding> {
    let reader = Reader { look, side, case };
    let mut findings = reader.filters();
    let mut paths: Vec<&str> =
        reader.failed(RungName::L1).chain(reader.failed(RungName::L3)).map(|rung| &*rung.subject).collect();
    paths.sort_by_key(|path| (host_nodes::rank(path), *path));
    paths.dedup();
    findings.extend(paths.into_iter().filter_map(|path| reader.node(path)));
    findings.extend(reader.failed(RungName::L4).map(|rung| {
        let explain = rung.explain.clone().unwrap_or_default();
        let fix = match (side, host_libraries(case)) {
            (Side::Host, _) | (_, Some(false)) => RELOAD.to_owned(),
            (Side::Container, _) => install(case.version().unwrap_or("of the host's module")),
        };
        Finding::new(FindingId::LibraryMismatch, Severity::Error, &rung.subject, explain).fix(fix)
    }));
    findings.extend(reader.library());
    rank::one_error_each(findings)
}

/// Rules in the config, and nothing that enforces them.
pub(super) fn filter_absent(patient: &Patient) -> Option<Finding> {
    let look = patient.look.as_ref().filter(|_| patient.has_rules)?;
    let rung =
        look.rungs.iter().find(|rung| rung.rung == RungName::L2 && rung.explain.as_deref() == Some(Rung::NO_FILTER))?;
    let explain = "the config has device rules, but no device filter is attached to the container: the rules change nothing, \
                   and the container may open every device that it can reach";
    let fix = "an unprivileged manager, or a kernel without cgroup device programs, enforces none: see the log of the \
               container's start (lxc-start -l DEBUG -o FILE)";
    Some(Finding::new(FindingId::FilterAbsent, Severity::Warning, &rung.subject, explain).fix(fix))
}

struct Reader<'a> {
    look: &'a Look,
    side: Side,
    case: &'a Case<'a>,
}

impl<'a> Reader<'a> {
    fn failed(&self, name: RungName) -> impl Iterator<Item = &'a Rung> {
        self.look.rungs.iter().filter(move |rung| rung.rung == name && rung.is_failure())
    }

    fn of(&self, name: RungName, path: &str) -> Option<&'a Rung> {
        self.look.rungs.iter().find(|rung| rung.rung == name && rung.subject == path)
    }

    fn repair(&self) -> String {
        match self.side {
            Side::Host => self.case.nodes_command(),
            Side::Container => self.case.commands.inject(),
        }
    }

    /// The paths that a filter refuses.
    fn refused(&self) -> Vec<&'a str> {
        let refused = self.failed(RungName::L3).filter(|rung| rung.errno.as_deref() == Some("EPERM"));
        let mut paths: Vec<&str> = refused.map(|rung| rung.subject.as_str()).collect();
        paths.sort_by_key(|path| (host_nodes::rank(path), *path));
        paths
    }

    fn filters(&self) -> Vec<Finding> {
        let refused = self.refused();
        let (above, own): (Vec<&Rung>, Vec<&Rung>) = self
            .failed(RungName::L2)
            .partition(|rung| rung.explain.as_deref().is_some_and(|explain| explain.contains(Rung::OUTSIDE)));
        let mut findings = Vec::new();
        if !own.is_empty() || (above.is_empty() && !refused.is_empty()) {
            let evidence = match own.first() {
                Some(rung) => format!("{} {}", rung.subject, without_hint(rung)),
                None => "no program was seen that refuses, so it is hidden from here, or a security module refuses"
                    .to_owned(),
            };
            let subject =
                refused.first().copied().or(own.first().map(|rung| rung.subject.as_str())).unwrap_or("filter");
            let opens = match refused.as_slice() {
                [] => String::new(),
                paths => format!("opening {} gives EPERM: ", paths.join(", ")),
            };
            let explain = format!(
                "{opens}the device filter of the container's own cgroup has no rule for the live number ({evidence})"
            );
            let matters = refused.is_empty() || refused.iter().any(|path| host_nodes::is_essential(path));
            let severity = if matters { Severity::Error } else { Severity::Warning };
            findings.push(Finding::new(FindingId::FilterDenies, severity, subject, explain).fix(self.repair()));
        }
        for rung in above {
            let severity = if findings.iter().any(rank::is_error) { Severity::Warning } else { Severity::Error };
            let explain = format!(
                "{} {}: every filter on the way to the root must allow a device, and this one is above the container, a policy \
                 that gpuhook names and does not touch",
                rung.subject,
                without_hint(rung)
            );
            let fix = "allow these numbers where that filter was set (DeviceAllow= of the slice or service, the outer \
                       container's config)";
            findings.push(Finding::new(FindingId::AncestorDenies, severity, &rung.subject, explain).fix(fix));
        }
        findings
    }

    fn node(&self, path: &str) -> Option<Finding> {
        let severity = if host_nodes::is_essential(path) { Severity::Error } else { Severity::Warning };
        let level1 = self.of(RungName::L1, path).filter(|rung| rung.is_failure());
        let said = level1.and_then(|rung| rung.explain.as_deref()).unwrap_or_default();
        let errno = self.of(RungName::L3, path).filter(|rung| rung.is_failure()).and_then(|rung| rung.errno.as_deref());
        let live = self.of(RungName::L1, path).is_some_and(|rung| rung.ok == Some(true));
        let finding = |id, explain: String| Some(Finding::new(id, severity, path, explain).fix(self.repair()));
        if said.contains(Rung::ABSENT) || (level1.is_none() && errno == Some("ENOENT")) {
            return finding(
                FindingId::MissingNode,
                format!("there is no {path}: nothing brought it in, or something covers it"),
            );
        }
        if said.contains(Rung::OTHER_GROUP) {
            let explain = format!("opening {path} gives EACCES: {}", without_hint(level1?));
            let fix = "give the node the container's own id of that group: gid= of Proxmox's devN entry or of the gpu device, or \
                       a node of mode 0666";
            return finding(FindingId::GroupMismatch, explain).map(|finding| finding.fix(fix));
        }
        if said.contains(Rung::NOT_A_DEVICE) || matches!(errno, Some("EISDIR" | "ENOTDIR" | "ELOOP")) {
            let explain = format!(
                "{path} is no device: its source did not exist when the container started, and create=file left an empty file"
            );
            return finding(FindingId::NotADevice, explain);
        }
        if level1.is_some() {
            return finding(FindingId::StaleNode, format!("{path}: {}", without_hint(level1?)));
        }
        match errno? {
            "EPERM" => None,
            "EACCES" => finding(
                FindingId::WrongMode,
                format!("opening {path} gives EACCES: its owner and mode, or a directory above it, forbid the container's user"),
            )
            .map(|finding| match self.side {
                Side::Host => finding,
                Side::Container => finding.fix("compare `ls -ln` of the node inside with the ids of the program; for devN of \
                                                Proxmox and gpu devices of LXD set gid= or mode=0666"),
            }),
            "ENXIO" | "ENODEV" if !live => {
                let errno = errno.unwrap_or_default();
                finding(FindingId::StaleNode, format!("opening {path} gives {errno}: its number is not of its driver today"))
            }
            // The number is live, and the driver has no device behind it yet or any more.
            "ENXIO" => {
                let explain = format!("opening {path} gives ENXIO, although its number is its driver's: the module may be unloading");
                finding(FindingId::DriverRefuses, explain)
                    .map(|finding| Finding { severity: Severity::Warning, ..finding.fix("dmesg | grep -i nvidia") })
            }
            "ENODEV" | "EIO" => {
                let explain = format!("opening {path} gives {}: the GPU itself does not answer", errno.unwrap_or_default());
                let help = "dmesg | grep -e NVRM -e Xid; nvidia-smi --gpu-reset   # else reboot";
                finding(FindingId::GpuFault, explain).map(|finding| finding.fix(help))
            }
            errno => {
                let explain = format!(
                    "opening {path} gives {errno}, which neither filter nor node gives but the driver itself: its version, \
                     the kernel's or the GPU's support are at fault, and passing it through is not"
                );
                let help = "dmesg says why; a driver that matches kernel and GPU";
                finding(FindingId::DriverRefuses, explain).map(|finding| finding.fix(help))
            }
        }
    }

    /// What rung L5 says beside a code.
    fn library(&self) -> Option<Finding> {
        let rung = self.look.rungs.iter().find(|rung| rung.rung == RungName::L5)?;
        let said = rung.explain.as_deref().unwrap_or_default();
        if said.contains(Rung::NO_LIBRARY) || said.contains(Rung::NO_LOADER) {
            // A host may do without: its containers bring their own.
            let severity = if self.side == Side::Host { Severity::Info } else { Severity::Error };
            let version = self.case.version().unwrap_or("the host's version");
            let fix = format!(
                "install the driver's libraries of {version} in the container (libcuda1, or the .run installer with --no-kernel-modules)"
            );
            return Some(Finding::new(FindingId::NoLibcuda, severity, LIBRARY, said).fix(fix));
        }
        // Killed, garbled, out of time: there is no code to explain.
        (rung.is_failure() && self.look.cuinit.is_none())
            .then(|| Finding::new(FindingId::Unexplained, Severity::Error, "cuInit", said))
    }
}

/// L4: the versions of the libcuda files against the module's; nothing where one of the two is not known.
pub fn library_rung(versions: &[String], module: Option<&str>) -> Option<Rung> {
    let (first, module) = (versions.first()?, module?);
    Some(match versions.iter().any(|version| version == module) {
        true => Rung::passed(RungName::L4, LIBRARY),
        false => Rung::failed(
            RungName::L4,
            LIBRARY,
            format!(
                "driver libraries of version {first}, kernel module of version {module}: CUDA needs the same on both sides"
            ),
        ),
    })
}

/// L1 of a node that its group alone keeps a program from: the group's number and its names inside and outside.
pub fn group_rung(path: &str, gid: u32, inside: Option<&str>, outside: &str) -> Rung {
    let inside = inside.unwrap_or("nobody's");
    let group = Rung::OTHER_GROUP;
    Rung::failed(RungName::L1, path, format!("its group {gid}, {outside} on the host, {group}: {inside}"))
}

/// A rung's sentence without what it advises.
fn without_hint(rung: &Rung) -> &str {
    let said = rung.explain.as_deref().unwrap_or("refuses");
    said.split_once("; hint:").map_or(said, |(said, _)| said)
}
