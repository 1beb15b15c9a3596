// SPDX-License-Identifier: MIT OR Apache-2.0
//! udev rules that make NVIDIA's nodes by hand, by a name or a number that the driver no longer has.

use super::Case;
use crate::facts::majors::{self, NVIDIA};
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some(majors) = &case.host.majors else { return Vec::new() };
    let mut findings = Vec::new();
    for rule in &case.surroundings.udev {
        let frontend = majors.by_name.contains_key(majors::NVIDIA_FRONTEND);
        let explain = match rule.fixed.iter().find_map(|(node, major)| moved(case, node, *major)) {
            _ if rule.greps_frontend && !frontend && majors.primary().is_ok() => {
                "this rule looks for nvidia-frontend in /proc/devices, which the driver has called nvidia and nvidiactl since \
                 545: it makes no node"
                    .to_owned()
            }
            Some(moved) => moved,
            None => continue,
        };
        let fix = format!(
            "remove the line; {} makes the nodes now, gpuhook-nodes.service at every boot",
            case.nodes_command()
        );
        let finding = Finding::new(FindingId::UdevRule, Severity::Warning, &rule.text, explain);
        findings.push(finding.at(&rule.path, rule.line).fix(fix));
    }
    findings
}

/// The sentence on a fixed number that is not the driver's today.
fn moved(case: &Case<'_>, node: &str, major: u32) -> Option<String> {
    let majors = case.host.majors.as_ref()?;
    let driver = host_nodes::driver_of(node)?;
    let live = if driver == NVIDIA { majors.primary() } else { majors.only(driver) }.ok()?;
    (live.0 != major).then(|| {
        format!("this rule makes {node} with the number {major}, but {driver} has {live} today: the node is dead")
    })
}
