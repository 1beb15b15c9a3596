// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one cause among many findings. A failure below explains the failures above it: without its module a node cannot be
//! right, with a stale rule the filter must refuse. What is explained so becomes a warning.

use super::{Case, Look, Patient};
use crate::cuda;
use crate::facts::majors;
use crate::facts::surroundings::Presence;
use crate::findings::{Finding, FindingId, Findings, Severity};
use crate::host_nodes;
use crate::report::{Rung, RungName};

/// Where a finding comes from; an earlier one explains a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A code of cuInit that has one cause.
    Code,
    /// Modules, numbers, GPUs, firmware, the kernel log.
    Driver,
    /// The host's nodes.
    Nodes,
    /// Opens on the host.
    Host,
    /// The container's config.
    Config,
    /// CDI files, and other injectors.
    Cdi,
    /// Opens in the container.
    Container,
}

pub(super) fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

/// Several nodes with one fault have one cause: the first stays an error.
pub(super) fn one_error_each(mut findings: Vec<Finding>) -> Vec<Finding> {
    let mut seen = Vec::new();
    for finding in findings.iter_mut().filter(|finding| is_error(finding)) {
        match seen.contains(&finding.id) {
            true => finding.severity = Severity::Warning,
            false => seen.push(finding.id),
        }
    }
    findings
}

/// The findings with the cause as the only error, the gravest first.
pub(super) fn rank(case: &Case<'_>, mut found: Vec<(Source, Finding)>) -> Vec<Finding> {
    let is_answer = |source: Source, finding: &Finding| {
        source == Source::Config && finding.severity == Severity::Warning && says_nothing_comes_in(case, finding.id)
    };
    for (_, finding) in found.iter_mut().filter(|(source, finding)| is_answer(*source, finding)) {
        finding.severity = Severity::Error;
    }
    // A machine of AMD's has no driver of NVIDIA's; what is wrong with its own is the answer.
    let of_kfd = |finding: &Finding| is_error(finding) && finding.subject == "/dev/kfd";
    if found.iter().any(|(_, finding)| of_kfd(finding)) && is_amd(case) {
        for (_, finding) in found.iter_mut().filter(|(_, finding)| finding.id == FindingId::NoGpu) {
            finding.severity = Severity::Warning;
        }
    }
    // Of two that say the same, the one that can be the cause is kept.
    let is_cause = |source, finding: &Finding| is_error(finding) && can_be_cause(case, source, finding);
    found.sort_by_key(|(source, finding)| (!is_cause(*source, finding), *source, stage(*source, finding.id)));
    let mut seen: Vec<(FindingId, String)> = Vec::new();
    found.retain(|(_, finding)| {
        let key = (finding.id, finding.subject.clone());
        // Lines of a config are told apart by their place.
        let new = finding.line.is_some() || !seen.contains(&key);
        seen.push(key);
        new
    });
    let cause = found.first().filter(|(source, finding)| is_cause(*source, finding));
    let cause = cause.map(|(source, finding)| (*source, finding.id));
    let mut taken = false;
    for (source, finding) in found.iter_mut().filter(|(_, finding)| is_error(finding)) {
        if *source == Source::Config
            && let Some(fix) = finding.fix.as_mut().filter(|_| case.commands.container.is_some())
        {
            *fix = format!("{}   # now, without a restart; for the next start: {fix}", case.commands.inject());
        }
        // Several lines of one config can be wrong in one way, and each has to be changed.
        let stays = cause == Some((*source, finding.id))
            && can_be_cause(case, *source, finding)
            && (!taken || *source == Source::Config);
        taken |= stays;
        if !stays {
            finding.severity = Severity::Warning;
        }
    }
    Findings::new("", found.into_iter().map(|(_, finding)| finding).collect()).findings
}

/// What comes first is the cause of what comes later: a line on which the container does not start, then a node that is
/// not there or not the driver's, then what may be opened.
fn stage(source: Source, id: FindingId) -> u8 {
    use FindingId::{
        DuplicateInjection, LegacyHook, MalformedRule, MissingMount, MissingNode, MountOption, MountSource,
        MountTarget, NotADevice, StaleNode,
    };
    match (source, id) {
        (Source::Config, MalformedRule | DuplicateInjection | LegacyHook) => 0,
        (Source::Config, MountSource | MountTarget | MountOption | MissingMount) => 1,
        (Source::Container, MissingNode | NotADevice | StaleNode) => 1,
        (Source::Config | Source::Container, _) => 2,
        _ => 0,
    }
}

/// Whether the warning of a lint is the answer to the question why CUDA fails: nothing that is in force brings a GPU in.
fn says_nothing_comes_in(case: &Case<'_>, id: FindingId) -> bool {
    let is_so = case.patient.as_ref().is_some_and(|patient| patient.brings_nothing);
    // What the outer container gives, no config of the inner host can say.
    is_so && matches!(id, FindingId::MissingMount | FindingId::InactiveRule) && case.surroundings.nested.is_none()
}

/// Whether this finding can be why CUDA fails in what was looked at.
fn can_be_cause(case: &Case<'_>, source: Source, finding: &Finding) -> bool {
    if case.cuinit() == Some(cuda::SUCCESS) {
        return false;
    }
    let is_lxc = case.patient.as_ref().is_some_and(|patient| patient.is_lxc);
    let Some(look) = case.patient.as_ref().and_then(|patient| patient.look.as_ref()).filter(|look| looked(&look.rungs))
    else {
        return !(source == Source::Cdi && is_lxc);
    };
    let failed = |name| look.rungs.iter().any(|rung| rung.rung == name && rung.is_failure());
    let gave = |errno: &str| look.rungs.iter().any(|rung| rung.errno.as_deref() == Some(errno));
    let node_is_wrong = failed(RungName::L1) || unreached(&look.rungs);
    let filter_refuses = failed(RungName::L2) || gave("EPERM");
    match (source, finding.id) {
        // The container's own nodes were looked at: the host's matter only where those are wrong too.
        (Source::Nodes | Source::Host, FindingId::WrongMode) => gave("EACCES"),
        (Source::Nodes | Source::Host, _) => node_is_wrong,
        (Source::Cdi, _) => {
            !is_lxc && look.rungs.iter().any(|rung| rung.is_failure() && rung.subject == finding.subject)
        }
        // LXC has passed over the rule.
        (Source::Config, FindingId::MalformedRule) => filter_refuses,
        // It did start.
        (Source::Config, _) if stage(source, finding.id) == 0 => false,
        (Source::Config, _) if stage(source, finding.id) == 1 => node_is_wrong,
        (Source::Config, id) if id == FindingId::IgnoredLine || says_nothing_comes_in(case, id) => {
            node_is_wrong || filter_refuses
        }
        (Source::Config, id) if is_of_rules(id) => filter_refuses,
        _ => true,
    }
}

fn is_amd(case: &Case<'_>) -> bool {
    case.host.majors.as_ref().is_some_and(|majors| majors.only(majors::KFD).is_ok() && majors.primary().is_err())
}

fn looked(rungs: &[Rung]) -> bool {
    rungs.iter().any(|rung| matches!(rung.rung, RungName::L1 | RungName::L3) && rung.ok.is_some())
}

/// Whether an open failed for another reason than filter and mode: the node is wrong.
fn unreached(rungs: &[Rung]) -> bool {
    rungs.iter().any(|rung| matches!(rung.errno.as_deref(), Some("ENOENT" | "ENXIO" | "ENODEV" | "EISDIR")))
}

fn is_of_rules(id: FindingId) -> bool {
    use FindingId::{ForeignGrant, InactiveRule, MissingRule, StaleRule, UnprivilegedNoop, WideGrant};
    matches!(id, StaleRule | ForeignGrant | MissingRule | WideGrant | InactiveRule | UnprivilegedNoop)
}

/// The answer in one sentence.
pub(super) fn verdict(case: &Case<'_>, findings: &[Finding]) -> String {
    let place = case.place();
    if let Some(cause) = findings.iter().find(|finding| is_error(finding)) {
        let fails = match case.cuinit() {
            Some(code) => format!("cuInit returns {code} {place}"),
            None => format!("CUDA cannot work {place}"),
        };
        let line = match (&cause.file, cause.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            _ => String::new(),
        };
        return format!("{fails}: {}: {line}{}", cause.id, cause.explain);
    }
    if case.cuinit() == Some(cuda::SUCCESS) {
        return format!("CUDA initialises {place}: cuInit returned 0");
    }
    if let Some(unsure) = findings.iter().find(|finding| finding.id == FindingId::IncompleteListing) {
        return format!("not known: {}", unsure.explain);
    }
    let mut warnings: Vec<&str> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Warning) {
        if !warnings.contains(&finding.id.word()) {
            warnings.push(finding.id.word());
        }
    }
    let found = match warnings.as_slice() {
        [] => format!("nothing wrong was found {place}"),
        words => format!("nothing that stops CUDA was found {place}, but see the warnings ({})", words.join(", ")),
    };
    if let Some(Patient { asks_for_nothing: true, look: None, .. }) = &case.patient {
        return format!(
            "{found}, and no line of its config brings a GPU in: lxc.include of /usr/share/gpuhook/lxc.conf gives it all GPUs"
        );
    }
    match case.host.majors {
        Some(_) => format!("{found}; cuInit was not called"),
        None => format!("{found}; /proc/devices was not there to read, so most is not known"),
    }
}

/// What it is not, each with its evidence.
pub(super) fn ruled_out(case: &Case<'_>, findings: &[Finding]) -> Vec<String> {
    let found = |id| findings.iter().any(|finding| finding.id == id && finding.severity != Severity::Info);
    let mut out = Vec::new();
    if let Some(major) = case.host.majors.as_ref().and_then(|majors| majors.only(majors::NVIDIA_UVM).ok()) {
        out.push(format!("not a missing module: nvidia-uvm is loaded and has {major}"));
    }
    let expected = host_nodes::expected(case.host).unwrap_or_default();
    let right =
        expected.iter().filter(|device| matches!(case.surroundings.dev.at(device.path.as_str()), Presence::There(_)));
    let right = right.count();
    let node_faults = [FindingId::StaleNode, FindingId::MissingNode, FindingId::NotADevice, FindingId::MinorMismatch];
    if right > 0 && !node_faults.into_iter().any(found) {
        out.push(format!(
            "not the host's nodes: {right} of {} were looked at and have the live numbers",
            expected.len()
        ));
    }
    if let Some(look) = case.patient.as_ref().and_then(|patient| patient.look.as_ref()) {
        let passed = |name| look.rungs.iter().filter(|rung| rung.rung == name && rung.ok == Some(true)).count();
        let failed = |name| look.rungs.iter().any(|rung| rung.rung == name && rung.is_failure());
        if passed(RungName::L1) > 0 && !failed(RungName::L1) {
            out.push(format!("not the container's nodes: all {} have the live numbers", passed(RungName::L1)));
        }
        if passed(RungName::L2) > 0 && !failed(RungName::L2) {
            out.push("not the device filter: no program that applies refuses".to_owned());
        }
    }
    if case.on_host.as_ref().and_then(|look| look.cuinit) == Some(cuda::SUCCESS) && case.patient.is_some() {
        out.push("not the host: cuInit returns 0 on it".to_owned());
    }
    match (case.surroundings.hmm_disabled, case.cuinit()) {
        (Some(true), _) => out.push("not HMM: uvm_disable_hmm is Y".to_owned()),
        (_, Some(code)) if code != 3 => out.push("not HMM: cuInit does not return 3".to_owned()),
        _ => {}
    }
    let same = |look: &Look| look.rungs.iter().any(|rung| rung.rung == RungName::L4 && rung.ok == Some(true));
    if let (Some(version), true) = (case.version(), case.look().is_some_and(same)) {
        out.push(format!("not a library mismatch: both sides are {version}"));
    }
    if let Some(log) = &case.surroundings.log
        && log.xids.is_empty()
        && log.init_failures.is_empty()
    {
        out.push("not a dead GPU: the kernel log has no Xid and no RmInitAdapter".to_owned());
    }
    match case.cuinit() {
        Some(code) if ![0, 802].contains(&code) => out.push("not the fabric: cuInit does not return 802".to_owned()),
        _ => {}
    }
    out
}
