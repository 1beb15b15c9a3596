// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hooks that podman and CRI-O run for every container: NVIDIA's and gpuhook's, one beside the other, and files of a
//! schema that engines no longer take.

use super::Case;
use crate::findings::{Finding, FindingId, Severity};

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let hooks = &case.surroundings.oci_hooks;
    let ours = hooks.iter().find(|hook| hook.is_gpuhook());
    let finding = |id, severity, path: &str, explain: String| Finding::new(id, severity, path, explain).at(path, 0);
    let mut findings = Vec::new();
    for hook in hooks.iter().filter(|hook| hook.is_nvidia()) {
        let fix = format!("rm {}", hook.path);
        findings.push(match ours {
            Some(ours) => {
                let explain = format!("{} and {} both bring GPUs into every container that asks", hook.path, ours.path);
                finding(FindingId::DuplicateInjection, Severity::Warning, &hook.path, explain).fix(fix)
            }
            None if hook.is_old => {
                let explain = "a hook file without a version, which podman 4 and CRI-O 1.20 and newer refuse: no container \
                               starts, or none gets its GPU";
                finding(FindingId::LegacyHook, Severity::Warning, &hook.path, explain.to_owned()).fix(fix)
            }
            None => {
                let explain = "NVIDIA's own hook brings GPUs in behind the runtime's back, which systemd then does not know";
                finding(FindingId::LegacyHook, Severity::Info, &hook.path, explain.to_owned())
            }
        });
    }
    findings
}
