// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cuInit's code means beside everything else: some codes have one cause, the others (3, 100, 999) only where nothing
//! below explains them.

use super::log::{LIBRARY, RELOAD, host_libraries, install};
use super::{Case, Look, rank};
use crate::cuda;
use crate::facts::majors;
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;
use crate::report::RungName;

const HMM_FIX: &str = "echo 'options nvidia_uvm uvm_disable_hmm=1' > /etc/modprobe.d/nvidia-uvm-hmm.conf && \
                       rmmod nvidia_uvm && modprobe nvidia_uvm   # rmmod needs every CUDA program ended; else reboot";

/// Findings from the code alone, in the light of what was found already.
pub(super) fn findings(case: &Case<'_>, found: &[Finding]) -> Option<Finding> {
    let code = case.cuinit().filter(|code| *code != cuda::SUCCESS)?;
    let explained = found.iter().any(rank::is_error);
    let text = cuda::explain(code);
    let finding = |id, subject: &str, fix: &str| {
        Some(Finding::new(id, Severity::Error, subject, format!("cuInit returned {text}")).fix(fix))
    };
    match code {
        46 => finding(FindingId::ComputeMode, "cuInit", "nvidia-smi -c DEFAULT"),
        101 if !explained => {
            finding(FindingId::GpuFault, majors::NVIDIA, "nvidia-smi --gpu-reset   # else reboot, or exclude that GPU")
        }
        304 => {
            finding(FindingId::RefusedCall, "cuInit", "run the container once without its seccomp and AppArmor profile")
        }
        801 => finding(
            FindingId::NotSupported,
            "cuInit",
            "another runtime: a sandbox such as gVisor needs its own GPU support",
        ),
        802 => finding(FindingId::FabricManager, "nvidia-fabricmanager", "systemctl enable --now nvidia-fabricmanager"),
        803 if !explained => mismatch(case, &text),
        804 => finding(
            FindingId::CudaCompat,
            LIBRARY,
            "apt-get purge 'cuda-compat-*'   # in the container; or take it out of LD_LIBRARY_PATH",
        ),
        34 => finding(FindingId::NoLibcuda, LIBRARY, "take the directory `stubs` out of LD_LIBRARY_PATH"),
        _ if explained => None,
        3 => hmm(case).or_else(|| unexplained(case, &text)),
        100 => finding(
            FindingId::NoGpu,
            "cuInit",
            "look at CUDA_VISIBLE_DEVICES in the container, at nvidia-smi -L, and at MIG (an instance must be given)",
        ),
        30 | 999 => case.look().and_then(unanswered).or_else(|| unexplained(case, &text)),
        _ => unexplained(case, &text),
    }
}

/// Both sides fail the same way, and nothing says that HMM is off.
fn hmm(case: &Case<'_>) -> Option<Finding> {
    let host = case.on_host.as_ref().and_then(|look| look.cuinit);
    if case.surroundings.hmm_disabled == Some(true) || host == Some(cuda::SUCCESS) {
        return None;
    }
    let who = match (&case.patient, host) {
        (Some(patient), Some(3)) => format!("on the host as well: {} is innocent", patient.name),
        (Some(_), _) => {
            "here; where it returns 3 on the host too (gpuhook doctor), the container is innocent".to_owned()
        }
        (None, _) => "on the host itself: no container is at fault".to_owned(),
    };
    let parameter = match case.surroundings.hmm_disabled {
        Some(_) => "uvm_disable_hmm is N",
        None => "uvm_disable_hmm is not known",
    };
    let explain = format!(
        "cuInit returned 3 (CUDA_ERROR_NOT_INITIALIZED) {who}. Nodes and filter are fine and {parameter}: heterogeneous memory \
         management (HMM) of nvidia-uvm fails on this kernel"
    );
    Some(Finding::new(FindingId::Hmm, Severity::Error, majors::NVIDIA_UVM, explain).fix(HMM_FIX))
}

fn mismatch(case: &Case<'_>, text: &str) -> Option<Finding> {
    let module = case.version().unwrap_or("of the host");
    let explain = format!("cuInit returned {text}; the kernel module is {module}");
    let on_host = case.on_host.as_ref().and_then(|look| look.cuinit);
    let fix = match &case.patient {
        Some(_) if host_libraries(case) != Some(false) && on_host != Some(803) => install(module),
        _ => RELOAD.to_owned(),
    };
    Some(Finding::new(FindingId::LibraryMismatch, Severity::Error, LIBRARY, explain).fix(fix))
}

/// A number that is live and behind which no driver answers, on a node that CUDA needs.
fn unanswered(look: &Look) -> Option<Finding> {
    let rung = look.rungs.iter().find(|rung| {
        let live = look
            .rungs
            .iter()
            .any(|other| other.subject == rung.subject && other.rung == RungName::L1 && other.ok == Some(true));
        rung.errno.as_deref() == Some("ENXIO") && live && host_nodes::is_essential(&rung.subject)
    })?;
    let explain = format!(
        "opening {} gives ENXIO, although its number is its driver's in /proc/devices: the module is being unloaded or loaded, \
         or failed half-way",
        rung.subject
    );
    let fix = "dmesg | grep -e NVRM -e nvidia   # then rmmod and modprobe the module, or reboot";
    Some(Finding::new(FindingId::DriverRefuses, Severity::Error, &rung.subject, explain).fix(fix))
}

/// Honest: what was looked at is fine, or nobody could look.
fn unexplained(case: &Case<'_>, text: &str) -> Option<Finding> {
    let looked = case.look().is_some_and(|look| look.rungs.iter().any(|rung| rung.ok.is_some()));
    let evidence = match looked {
        true => {
            "nodes, numbers and filter were looked at and are fine: suspect how the engine injects (its mode, a second \
                 injector, a library of another version), and the kernel log"
        }
        false => {
            "nodes, numbers and filter were not looked at, so the cause is open: missing, stale or refused \
                  /dev/nvidia-uvm is the likeliest"
        }
    };
    let explain = format!("cuInit returned {text}. {evidence}");
    let fix = match &case.commands.container {
        Some(container) => format!("{} probe {container}", case.commands.gpuhook),
        None => format!("{} doctor --lxc NAME (or --pid PID) while the container runs", case.commands.gpuhook),
    };
    Some(Finding::new(FindingId::Unexplained, Severity::Error, "cuInit", explain).fix(fix))
}
