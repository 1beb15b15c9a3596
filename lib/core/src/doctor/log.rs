// SPDX-License-Identifier: MIT OR Apache-2.0
//! Xid, failed initialisations, firmware and version mismatches: what the kernel log says of the driver, and whether it
//! still holds.

use super::Case;
use crate::facts::kernel_log::{KernelLog, Mismatch};
use crate::facts::majors;
use crate::findings::{Finding, FindingId, Severity};
use crate::report::RungName;

/// What a mismatch is about: any of the driver's libraries.
pub(super) const LIBRARY: &str = "libcuda.so.1";

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = firmware(case).into_iter().collect();
    let Some(log) = &case.surroundings.log else { return findings };
    findings.extend(fault(log));
    findings
        .extend(log.mismatch.as_ref().filter(|mismatch| holds(case, mismatch)).map(|found| mismatched(case, found)));
    if let Some(line) = log.refusals.iter().find(|line| line.contains("kfd")) {
        let explain = format!("AMD's driver does not drive this GPU for computing: {line}");
        let finding = Finding::new(FindingId::DriverRefuses, Severity::Error, "/dev/kfd", explain);
        findings.push(finding.fix("a kernel or ROCm version that supports this GPU: passing it through cannot help"));
    }
    findings
}

fn firmware(case: &Case<'_>) -> Option<Finding> {
    let said = case.surroundings.log.as_ref().and_then(|log| log.firmware_failures.last());
    let version = case.version();
    let absent = match (&case.surroundings.firmware, version) {
        (Some(versions), Some(version)) => !versions.contains(version),
        _ => false,
    };
    // The proprietary flavour runs older GPUs without it.
    let needed = case.host.driver.as_ref().is_some_and(|driver| driver.open);
    let severity = match (said, absent) {
        (None, true) if needed => Severity::Error,
        (None, true) => Severity::Info,
        (Some(_), _) => Severity::Error,
        (None, false) => return None,
    };
    let version = version.unwrap_or("of the loaded version");
    let explain = match said {
        Some(line) => format!("the GPU's firmware could not be loaded: {line}"),
        None => format!(
            "there is no /lib/firmware/nvidia/{version}/gsp*.bin, and the open kernel modules cannot start a GPU without it"
        ),
    };
    let fix = format!(
        "install the firmware package of driver {version} (nvidia-kernel-common, firmware-nvidia-gsp), then reload the driver"
    );
    Some(Finding::new(FindingId::GspFirmware, severity, format!("/lib/firmware/nvidia/{version}"), explain).fix(fix))
}

fn fault(log: &KernelLog) -> Option<Finding> {
    let fatal = log.xids.iter().rev().find(|xid| xid.is_fatal()).map(|xid| &xid.line);
    if let Some(line) = log.init_failures.last().or(fatal) {
        let explain = format!("the kernel log says that a GPU failed: {line}");
        let finding = Finding::new(FindingId::GpuFault, Severity::Error, majors::NVIDIA, explain);
        return Some(finding.fix(
            "nvidia-smi --gpu-reset   # else reboot; a GPU that fails again needs its seat, power and cooling looked at",
        ));
    }
    let last = log.xids.last()?;
    let explain = format!("the kernel log has an Xid that a program's own fault can cause: {}", last.line);
    Some(Finding::new(FindingId::GpuFault, Severity::Info, majors::NVIDIA, explain))
}

/// Whether the message is of the module that is loaded now, and not from before a reload.
pub(super) fn holds(case: &Case<'_>, mismatch: &Mismatch) -> bool {
    case.version().is_none_or(|version| version == mismatch.module)
}

fn mismatched(case: &Case<'_>, Mismatch { client, module }: &Mismatch) -> Finding {
    let explain = format!(
        "a program with driver libraries of version {client} met the kernel module of version {module}: both must be the \
         same (803, or \"Driver/library version mismatch\")"
    );
    let fix = match host_libraries(case) {
        Some(true) => install(module),
        Some(false) => RELOAD.to_owned(),
        None => format!(
            "if the host's own libraries are {client}: reload the driver or reboot the host; if only the container's are: \
             install {module} in the container"
        ),
    };
    Finding::new(FindingId::LibraryMismatch, Severity::Error, LIBRARY, explain).fix(fix)
}

/// Whether the host's own libraries are the module's; `None` where nobody looked.
pub(super) fn host_libraries(case: &Case<'_>) -> Option<bool> {
    let look = case.on_host.as_ref()?;
    look.rungs.iter().find(|rung| rung.rung == RungName::L4)?.ok
}

/// What helps where the host's libraries are newer than its module.
pub(super) const RELOAD: &str = "reboot the host   # or end every program on the GPUs, rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia";

/// What helps where the container's libraries are not the module's.
pub(super) fn install(module: &str) -> String {
    format!("install the driver's libraries of version {module} in the container")
}
