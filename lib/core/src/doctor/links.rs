// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links in `/dev/char` against the live numbers. Nothing fails for want of a link at first: a container of runc under
//! systemd loses its GPU at the next `systemctl daemon-reload`.

use super::Case;
use crate::facts::NodeKind;
use crate::facts::char_links::CharLink;
use crate::facts::surroundings::Presence;
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;
use crate::plan::PlannedDevice;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some(links) = &case.surroundings.dev.links else { return Vec::new() };
    let expected = host_nodes::expected(case.host).unwrap_or_default();
    // A node that is not there or is stale is told of itself, and made with its link.
    let right = |device: &&PlannedDevice| match case.surroundings.dev.at(device.path.as_str()) {
        Presence::There(node) => node.kind == NodeKind::Character(device.id),
        Presence::Absent => false,
        Presence::Unknown => true,
    };
    let is_link =
        |device: &PlannedDevice| links.iter().any(|link| link.id == device.id && link.target == device.path.as_str());
    let missing = expected.iter().filter(right).filter(|device| !is_link(device));
    let missing: Vec<String> = missing.map(|device| format!("/dev/char/{}", device.id)).collect();
    let stale = links.iter().filter(|link| is_stale(link, &expected)).map(|link| format!("/dev/char/{}", link.id));
    let stale: Vec<String> = stale.collect();
    let mut findings = Vec::new();
    let mut add = |paths: &[String], what: &str| {
        if let Some(first) = paths.first() {
            let explain = format!(
                "{} {what}: runc 1.1.3 to 1.1.6 gives systemd only the devices that have a link, so a container under its \
                 systemd driver loses the GPU at the next systemctl daemon-reload",
                list(paths)
            );
            findings.push(Finding::new(FindingId::DevChar, severity(case), first, explain).fix(case.nodes_command()));
        }
    };
    add(&missing, "is not there, or leads elsewhere");
    add(&stale, "is a link of an earlier boot");
    findings
}

/// Whether it leads to a node that has another number today.
fn is_stale(link: &CharLink, expected: &[PlannedDevice]) -> bool {
    expected.iter().any(|device| device.path.as_str() == link.target && device.id != link.id)
}

/// LXC does not look at the links.
fn severity(case: &Case<'_>) -> Severity {
    let is_lxc = case.patient.as_ref().is_some_and(|patient| patient.is_lxc);
    match case.surroundings.runc {
        Some(false) => Severity::Info,
        _ if is_lxc => Severity::Info,
        _ => Severity::Warning,
    }
}

fn list(paths: &[String]) -> String {
    const SHOWN: usize = 4;
    match paths.get(SHOWN..) {
        Some(more @ [_, ..]) => format!("{} and {} more", paths[..SHOWN].join(", "), more.len()),
        _ => paths.join(", "),
    }
}
