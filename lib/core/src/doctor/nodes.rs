// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's nodes against the driver's numbers and parameters. A node that was not looked at proves nothing.

use super::{Case, rank};
use crate::device::DeviceId;
use crate::facts::majors::{MajorError, Majors, NVIDIA};
use crate::facts::surroundings::Presence;
use crate::facts::{HostNode, NodeKind};
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;

/// What a decimal 666 is as permission bits: `c-w--wx-wT`.
const DECIMAL_666: u32 = 0o1232;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let dev = &case.surroundings.dev;
    let mut nodes: Vec<&HostNode> = dev.nodes.iter().collect();
    nodes.sort_by_key(|node| (host_nodes::rank(&node.path), node.path.clone()));
    for node in nodes {
        let found = match node.kind {
            NodeKind::NotADevice => Some(not_a_device(case, node)),
            NodeKind::Character(id) => stale(case, node, id).or_else(|| mode(case, node)),
        };
        findings.extend(found);
    }
    findings.extend(minors(case));
    for device in host_nodes::expected(case.host).unwrap_or_default() {
        let path = device.path.as_str();
        let said = findings.iter().any(|finding| finding.subject == path);
        if dev.at(path) == Presence::Absent && !said {
            findings.push(missing(case, path, device.id));
        }
    }
    rank::one_error_each(findings)
}

fn severity(path: &str) -> Severity {
    match host_nodes::is_essential(path) || host_nodes::driver_of(path).is_none() {
        true => Severity::Error,
        false => Severity::Warning,
    }
}

fn not_a_device(case: &Case<'_>, node: &HostNode) -> Finding {
    let explain = format!(
        "a file or directory stands at {} where a character device should be: it was made while the node did not exist, \
         by a bind with create=file, a touch or a copy, and now hides it",
        node.path
    );
    let (fix, severity) = match node.path.as_str() {
        // Only display uses it; `optional,create=file` leaves it behind on every host without display.
        "/dev/nvidia-modeset" => ("nothing: CUDA does not use it".to_owned(), Severity::Info),
        path if host_nodes::driver_of(path).is_some() => {
            (format!("rm {path} && {}", case.nodes_command()), severity(path))
        }
        path => (format!("rm {path} && udevadm trigger"), severity(path)),
    };
    Finding::new(FindingId::NotADevice, severity, &node.path, explain).fix(fix)
}

fn stale(case: &Case<'_>, node: &HostNode, id: DeviceId) -> Option<Finding> {
    let driver = host_nodes::driver_of(&node.path)?;
    if id.major.0 == 0 {
        let explain = format!("{} is c {id}: no driver has major 0, so this node never worked", node.path);
        return Some(stale_finding(case, node, explain));
    }
    let majors = case.host.majors.as_ref()?;
    let live = match driver {
        NVIDIA => majors.primary(),
        name => majors.only(name),
    };
    let today = match live {
        Ok(live) if live == id.major => return None,
        Ok(live) => format!("{driver} has {live} today"),
        Err(MajorError::Missing { complete: true, .. }) => {
            format!("{driver} has no number today: its module is not loaded")
        }
        Err(_) => return None,
    };
    let owner = owner(majors, id);
    Some(stale_finding(case, node, format!("{} is c {id}, but {today}; {owner}", node.path)))
}

fn owner(majors: &Majors, id: DeviceId) -> String {
    match majors.names_of(id.major).as_slice() {
        [] => format!("nobody has {} (open gives ENXIO)", id.major),
        names => format!("{} belongs to {} now (open reaches the wrong driver)", id.major, names.join(", ")),
    }
}

fn stale_finding(case: &Case<'_>, node: &HostNode, explain: String) -> Finding {
    Finding::new(FindingId::StaleNode, severity(&node.path), &node.path, explain).fix(case.nodes_command())
}

fn mode(case: &Case<'_>, node: &HostNode) -> Option<Finding> {
    let path = node.path.as_str();
    let driver = host_nodes::driver_of(path)?;
    // Capabilities have modes of their own: a 0400 node is right.
    if path.starts_with("/dev/nvidia-caps") {
        return None;
    }
    let mode = node.mode;
    let wrong = |explain: String, severity: Severity| Finding::new(FindingId::WrongMode, severity, path, explain);
    if mode == DECIMAL_666 {
        let explain = format!(
            "{path} has mode 01232 (c-w--wx-wT), which is a decimal 666: NVreg_DeviceFileMode=666 was meant to be 0666 \
             (decimal 438), and whoever is not root gets EACCES"
        );
        // Where the driver itself says so, what makes nodes by its parameters would make it so again.
        let fix = match case.host.params.device_file_mode {
            Some(mode) if mode != 666 => case.nodes_command(),
            _ => "chmod 0666 /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-modeset   # for good: NVreg_DeviceFileMode=0666 in \
                  /etc/modprobe.d"
                .to_owned(),
        };
        return Some(wrong(explain, severity(path)).fix(fix));
    }
    if mode & 0o600 != 0o600 || mode & 0o060 != 0o060 {
        let explain = format!("{path} has mode {mode:04o}: only its owner may use it, everybody else gets EACCES");
        let fix = match driver {
            crate::facts::majors::KFD => {
                "chgrp render /dev/kfd && chmod 0660 /dev/kfd   # for good: a udev rule KERNEL==\"kfd\", GROUP=\"render\", \
                 MODE=\"0660\"; and the container's process in that group"
                    .to_owned()
            }
            _ => case.nodes_command(),
        };
        return Some(wrong(explain, severity(path)).fix(fix));
    }
    if mode & 0o006 != 0o006 {
        let explain = format!("{path} has mode {mode:04o}: whoever is not in its group gets EACCES");
        return Some(wrong(explain, Severity::Info));
    }
    None
}

/// Nodes for minors that no GPU has, beside a GPU whose node is not there.
fn minors(case: &Case<'_>) -> Option<Finding> {
    let dev = &case.surroundings.dev;
    let gpus = &case.host.gpus;
    let number = |path: &str| path.strip_prefix("/dev/nvidia")?.parse::<u32>().ok();
    let strangers: Vec<&str> = dev
        .nodes
        .iter()
        .map(|node| node.path.as_str())
        .filter(|path| number(path).is_some_and(|minor| !gpus.iter().any(|gpu| gpu.minor.0 == minor)))
        .collect();
    let there = |minor| matches!(dev.at(&format!("/dev/nvidia{minor}")), Presence::There(_));
    let lonely = gpus.iter().find(|gpu| !gpu.excluded && !there(gpu.minor))?;
    if strangers.is_empty() {
        return None;
    }
    let path = format!("/dev/nvidia{}", lonely.minor);
    let explain = format!(
        "the GPU at {} has Device Minor {}, but {path} is not there, and no GPU has the minor of {}: the nodes were \
         numbered by something else than the driver (a udev rule that counts display cards, say)",
        lonely.address,
        lonely.minor,
        strangers.join(", ")
    );
    Some(Finding::new(FindingId::MinorMismatch, Severity::Error, path, explain).fix(case.nodes_command()))
}

fn missing(case: &Case<'_>, path: &str, id: DeviceId) -> Finding {
    let explain = format!(
        "{path} (c {id}) is not there, although its driver is loaded: nothing has made it since the module was loaded \
         (nvidia-modprobe can report success without making it)"
    );
    Finding::new(FindingId::MissingNode, severity(path), path, explain).fix(case.nodes_command())
}
