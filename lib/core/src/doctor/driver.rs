// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rung L0: is there a driver, has it numbers, is unified memory loaded, does it list GPUs, and is the host a host.

use super::Case;
use crate::facts::majors::{self, MajorError, Majors};
use crate::findings::{Finding, FindingId, Severity};

const UVM_MODULE: &str = "nvidia_uvm";

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &case.host.majors {
        Some(majors) => match majors.primary() {
            Ok(_) => {
                findings.extend(unified_memory(case, majors));
                findings.extend(no_gpu(case));
                findings.extend(imex(case, majors));
            }
            Err(error) => findings.extend(no_driver(case, majors, &error)),
        },
        // Without numbers the list of modules still tells.
        None => {
            let loaded = |name| case.surroundings.modules.as_ref().is_some_and(|modules| modules.contains(name));
            if loaded("nvidia") && !loaded(UVM_MODULE) {
                findings.push(uvm_not_loaded(case, "/proc/modules"));
            }
            findings.extend(no_gpu(case));
        }
    }
    if let Some(words) = &case.surroundings.nested {
        let explain = format!(
            "this host is itself a container ({words}): its device filter is set outside, modules and nodes too. An inner \
             container engine may not change device rules here, and need not, since the outer filter governs"
        );
        // On a container's own host the inner engine needs this line of NVIDIA's toolkit, and nothing else.
        let fix = "outside: gpuhook in the outer container's config; inside, for NVIDIA's toolkit: no-cgroups = true in \
                   section [nvidia-container-cli] of /etc/nvidia-container-runtime/config.toml";
        findings.push(Finding::new(FindingId::Nested, Severity::Warning, "host", explain).fix(fix));
    }
    findings
}

fn unified_memory(case: &Case<'_>, majors: &Majors) -> Option<Finding> {
    match majors.only(majors::NVIDIA_UVM) {
        Ok(_) => None,
        Err(MajorError::Missing { complete: true, .. }) => Some(uvm_not_loaded(case, "/proc/devices")),
        Err(error @ MajorError::Ambiguous { .. }) => Some(ambiguous(&error)),
        Err(error) => Some(incomplete(majors::NVIDIA_UVM, &error)),
    }
}

fn uvm_not_loaded(case: &Case<'_>, file: &str) -> Finding {
    let kernel = case.surroundings.kernel.as_deref().unwrap_or("the running kernel");
    let absent = format!("nvidia-uvm is not in {file}, so CUDA cannot start (cuInit 999), while nvidia-smi works");
    let subject = majors::NVIDIA_UVM;
    match case.surroundings.uvm_file {
        Some(false) => Finding::new(
            FindingId::ModuleAbsent,
            Severity::Error,
            subject,
            format!(
                "{absent}; no module file nvidia-uvm.ko exists for kernel {kernel}: the driver was built without unified \
                 memory, or for another kernel"
            ),
        )
        .fix(case.for_host(
            "dkms autoinstall && modprobe nvidia-uvm   # or the .run installer again, without --no-unified-memory",
        )),
        known => {
            let file = match known {
                Some(_) => format!("its module file exists for kernel {kernel} and is not loaded"),
                None => "its module is not loaded; whether it was built at all is not known (modinfo nvidia-uvm)".to_owned(),
            };
            Finding::new(FindingId::ModuleNotLoaded, Severity::Error, subject, format!("{absent}; {file}"))
                .fix(case.nodes_command())
        }
    }
}

fn no_driver(case: &Case<'_>, majors: &Majors, error: &MajorError) -> Option<Finding> {
    match error {
        MajorError::Ambiguous { .. } => Some(ambiguous(error)),
        MajorError::Missing { complete: true, .. } => {
            let mut explain = "no NVIDIA driver is loaded: /proc/devices has none of its names".to_owned();
            // A container on an AMD machine may want ROCm alone.
            let is_amd = majors.by_name.contains_key(majors::KFD);
            let severity = if is_amd && case.patient.is_some() { Severity::Warning } else { Severity::Error };
            if is_amd {
                explain.push_str("; this machine has AMD's kfd, which CUDA does not use");
            }
            let refusals = case.surroundings.log.iter().flat_map(|log| &log.refusals);
            refusals.for_each(|line| explain.push_str(&format!("; the kernel log says: {line}")));
            let finding = Finding::new(FindingId::NoGpu, severity, majors::NVIDIA, explain);
            let command = "modprobe nvidia   # where that fails, install the driver for the running kernel";
            Some(finding.fix(case.for_host(command)))
        }
        error => Some(incomplete(majors::NVIDIA, error)),
    }
}

/// The driver is loaded and its list of GPUs is empty.
fn no_gpu(case: &Case<'_>) -> Option<Finding> {
    if !case.surroundings.lists_gpus || case.host.gpus.iter().any(|gpu| !gpu.excluded) {
        return None;
    }
    let excluded = case.host.gpus.len();
    let explain = match excluded {
        0 => "the driver is loaded and lists no GPU in /proc/driver/nvidia/gpus".to_owned(),
        _ => format!("every GPU that the driver lists ({excluded}) is excluded by the administrator"),
    };
    let help = "lspci -d 10de: ; dmesg | grep NVRM   # what the bus has, and why the driver does not take it";
    Some(Finding::new(FindingId::NoGpu, Severity::Error, majors::NVIDIA, explain).fix(help))
}

/// Channels are registered and no node was made: nobody needs them until NCCL does.
fn imex(case: &Case<'_>, majors: &Majors) -> Option<Finding> {
    let registered = majors.by_name.contains_key(majors::NVIDIA_CAPS_IMEX_CHANNELS);
    let channel = "/dev/nvidia-caps-imex-channels/channel0";
    let absent = case.surroundings.dev.at(channel) == crate::facts::surroundings::Presence::Absent;
    if !(registered && absent) {
        return None;
    }
    let explain = "the driver registered IMEX channels and no node was made, which matters to multi-node NVLink only";
    let help = "gpuhook gives a container the channels that it asks for; for host programs: options nvidia \
                NVreg_CreateImexChannel0=1 in /etc/modprobe.d";
    Some(Finding::new(FindingId::MissingNode, Severity::Info, channel, explain).fix(help))
}

fn ambiguous(error: &MajorError) -> Finding {
    let explain = format!("{error}: no driver of NVIDIA registers that, so the listing is not a host's, or is mocked");
    let fix = "look at /proc/devices of the host itself";
    Finding::new(FindingId::AmbiguousMajor, Severity::Error, "/proc/devices", explain).fix(fix)
}

fn incomplete(name: &str, error: &MajorError) -> Finding {
    let explain = format!("{error}: whether {name} is loaded is not known");
    let fix = "look at the whole file: cat /proc/devices";
    Finding::new(FindingId::IncompleteListing, Severity::Warning, "/proc/devices", explain).fix(fix)
}
