// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verbs in their order, once: gather, plan, apply, verify, report. Every hook and `inject` call it.

use gpuhook_core::cgroup_top::{CgroupHint, container_top};
use gpuhook_core::config::{Policy, VerifyConfig};
use gpuhook_core::container_id::ContainerId;
use gpuhook_core::facts::{CgroupLocation, ContainerFacts};
use gpuhook_core::plan::Plan;
use gpuhook_core::report::{Outcome, Report, Rung, RungName};
use gpuhook_core::request::Request;
use gpuhook_linux::apply::Mounting;
use gpuhook_linux::cgroup::CgroupPath;
use gpuhook_linux::filter::{self, Applied, Pins};
use gpuhook_linux::journal::{self, Priority};
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::target::Target;
use gpuhook_linux::{failpoint, gather, rootless, verify};

use crate::failure::Failure;
use crate::setting::Setting;

/// One container and who manages it.
pub(crate) struct Container<'a> {
    /// The manager: `lxc`, `oci`, or `pid` where nobody says.
    pub(crate) engine: &'static str,
    pub(crate) id: &'a ContainerId,
    pub(crate) target: &'a Target,
    pub(crate) hint: CgroupHint<'a>,
}

/// How much of a plan is still to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// Nodes and rules.
    All,
    /// The rules are in the container's spec.
    Nodes,
    /// The nodes too.
    Nothing,
}

/// What an injection leaves to do for others.
pub(crate) struct Done {
    pub(crate) report: Report,
    /// Where the container's device filter is, and up to where it is the container's own.
    pub(crate) location: CgroupLocation,
    pub(crate) top: String,
    /// Whether the filter was changed, so that its owner does not know the rules.
    pub(crate) filter_changed: bool,
}

/// Brings what `request` asks for into a container, or leaves it as it was.
///
/// # Errors
/// Whatever refuses the start, after everything has been undone; it is in the journal already.
pub(crate) fn inject(setting: &Setting, container: &Container<'_>, request: &Request) -> Result<Done, Failure> {
    complete(setting, container, request, Remaining::All)
}

/// Brings in what remains, and verifies all.
///
/// # Errors
/// As for [`inject`].
pub(crate) fn complete(
    setting: &Setting,
    container: &Container<'_>,
    request: &Request,
    remaining: Remaining,
) -> Result<Done, Failure> {
    let mut state = RunState::lock(container.engine, container.id)?;
    match steps(setting, container, request, remaining, &mut state) {
        Ok(done) => {
            tell(&done.report, container);
            Ok(done)
        }
        Err(failure) => {
            journal::send(Priority::Error, container.engine, container.id, &format!("start refused: {failure}"));
            Err(failure)
        }
    }
}

/// Another injector of NVIDIA devices.
pub(crate) struct Other<'a> {
    /// Its program, or the first node that it brings in.
    pub(crate) name: &'a str,
    /// The nodes that it brings in, where the spec says which.
    pub(crate) paths: &'a [&'a str],
    /// Whether they have to be there by now.
    pub(crate) is_done: bool,
}

/// Looks at what `other` brought in and keeps what was seen. It changes nothing and refuses nothing: the start is the
/// other's business. Whether CUDA starts is not asked, since the driver's libraries may come in later.
pub(crate) fn look(setting: &Setting, container: &Container<'_>, request: &Request, other: &Other<'_>) {
    let Container { engine, id, target, hint } = container;
    let report = || -> Result<Report, Failure> {
        let mut state = RunState::lock(engine, id)?;
        let facts = facts(setting, target)?;
        let plan = Plan::make(&setting.facts(request)?, &facts, request)?.verify_only(other.name, other.paths);
        let policies = VerifyConfig { l5: Policy::Off, ..setting.config.verify.clone() };
        let (cgroup, _) = cgroup(&facts, *hint)?;
        let rungs = match other.is_done {
            true => verify::ladder(&plan, target, cgroup.as_ref(), &policies).rungs,
            false => vec![Rung::skipped(RungName::L1, other.name, "it injects after gpuhook looked")],
        };
        let outcome = if rungs.iter().any(Rung::is_failure) { Outcome::Partial } else { Outcome::Full };
        let (container, owner) = (id.to_string(), Some(format!("{}: gpuhook changed nothing", other.name)));
        let report = Report { engine, container, outcome, plan: Some(plan), applied: Vec::new(), rungs, owner };
        state.save(&json(&report)?)?;
        Ok(report)
    };
    match report() {
        Ok(report) => tell(&report, container),
        Err(failure) => {
            let sentence = format!("duplicate-injection: {} injects already; {failure}", other.name);
            journal::send(Priority::Warning, engine, id, &sentence);
        }
    }
}

/// Says why a container that asked gets nothing.
pub(crate) fn tell_left_out(engine: &str, id: &ContainerId, request: &Request) {
    for sentence in &request.left_out {
        journal::send(Priority::Warning, engine, id, sentence);
    }
}

fn steps(
    setting: &Setting,
    container: &Container<'_>,
    request: &Request,
    remaining: Remaining,
    state: &mut RunState,
) -> Result<Done, Failure> {
    let Container { engine, id, target, hint } = container;
    // The wait for another run may have been long.
    target.check_alive()?;
    let host = setting.facts(request)?;
    let facts = facts(setting, target)?;
    let plan = Plan::make(&host, &facts, request)?;
    let (cgroup, top) = cgroup(&facts, *hint)?;
    // Neither waits for the other.
    let mounting = match remaining {
        Remaining::Nothing => Mounting::none(),
        Remaining::All | Remaining::Nodes => Mounting::start(&plan, target)?,
    };
    failpoint::reach("flow.filter")?;
    let pins = Pins::of_container(engine, id);
    let applied = match &cgroup {
        Some(path) if remaining == Remaining::All => {
            let options = filter::Options { pins: pins.as_ref(), ..filter::Options::default() };
            match filter::allow(path, &plan.filter().rules, options) {
                // A rootless manager: nobody filters its containers' devices but an operator above it, and L3 tells.
                Err(error) if error.is_unprivileged() && rootless::user().is_some() => Applied::default(),
                applied => applied?,
            }
        }
        _ => Applied::default(),
    };
    let kept = mounting.done().map_err(Failure::from).and_then(|mounts| {
        let rungs = checks(setting, &plan, target, cgroup.as_ref())?;
        let steps = mounts.steps().iter().cloned().chain(applied.steps()).collect();
        let outcome = if rungs.iter().any(Rung::is_failure) { Outcome::Partial } else { Outcome::Full };
        let (container, plan) = (id.to_string(), Some(plan));
        let report = Report { engine, container, outcome, plan, applied: steps, rungs, owner: None };
        state.save(&json(&report)?)?;
        failpoint::reach("flow.keep")?;
        mounts.keep()?;
        Ok(report)
    });
    match kept {
        Ok(report) => {
            // A v1 list is the kernel's own and has no owner who would rebuild it.
            let filter_changed = !applied.is_unchanged() && matches!(facts.cgroup, CgroupLocation::V2 { .. });
            Ok(Done { report, location: facts.cgroup, top, filter_changed })
        }
        // The mounts are undone by now.
        Err(failure) => {
            state.discard();
            match applied.undo() {
                Ok(()) => Err(failure),
                Err(undo) => Err(Failure::problem(format!("{failure}; {}", Failure::problem(undo)))),
            }
        }
    }
}

/// Climbs the ladder.
///
/// # Errors
/// A check that the administrator enforces failed, or the container died: then no check says anything.
fn checks(setting: &Setting, plan: &Plan, target: &Target, cgroup: Option<&CgroupPath>) -> Result<Vec<Rung>, Failure> {
    let rungs = verify::ladder_of_samples(plan, target, cgroup, &setting.config.verify).rungs;
    target.check_alive()?;
    match refusing(setting, &rungs) {
        Some(rung) => {
            let why = rung.explain.as_deref().unwrap_or("check failed");
            Err(Failure::problem(format!("{}: {why}", rung.subject)))
        }
        None => Ok(rungs),
    }
}

/// What a decision needs to know of a container.
pub(crate) fn facts(setting: &Setting, target: &Target) -> Result<ContainerFacts, Failure> {
    let process = target.process_directory()?;
    Ok(gather::container(&setting.host, &process)?)
}

/// The container's cgroups; none where the host has no device filter at all.
pub(crate) fn cgroup(facts: &ContainerFacts, hint: CgroupHint<'_>) -> Result<(Option<CgroupPath>, String), Failure> {
    match &facts.cgroup {
        CgroupLocation::Unknown => Ok((None, String::new())),
        location @ (CgroupLocation::V2 { path, .. } | CgroupLocation::V1 { path, .. }) => {
            let top = container_top(path, hint);
            Ok((Some(CgroupPath::open(location, &top)?), top))
        }
    }
}

/// The first check whose failure refuses the start.
fn refusing<'a>(setting: &Setting, rungs: &'a [Rung]) -> Option<&'a Rung> {
    let enforced = |rung: &&Rung| verify::policy(&setting.config.verify, rung.rung) == Policy::Enforce;
    rungs.iter().filter(|rung| rung.is_failure()).find(enforced)
}

/// The report as it is kept and printed.
pub(crate) fn json(report: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    Ok(text)
}

/// Failed checks that go to the journal one by one: a driver can have 2048 IMEX channels, and each line costs time.
const TOLD_MAX: usize = 16;

fn tell(report: &Report, container: &Container<'_>) {
    let failures = report.rungs.iter().filter(|rung| rung.is_failure());
    for rung in failures.clone().take(TOLD_MAX) {
        journal::send(Priority::Warning, container.engine, container.id, &rung.to_string());
    }
    if let Some(more) = failures.count().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        let sentence = format!("{more} more checks failed; the report in /run/gpuhook has them all");
        journal::send(Priority::Warning, container.engine, container.id, &sentence);
    }
    let left_out = report.plan.iter().flat_map(|plan| plan.left_out().iter().chain(plan.warnings()));
    for sentence in left_out {
        journal::send(Priority::Warning, container.engine, container.id, sentence);
    }
    let nodes = report.plan.iter().filter(|plan| !plan.mounts().is_empty()).map(|plan| plan.devices().len());
    for count in nodes {
        journal::send(Priority::Info, container.engine, container.id, &format!("{count} GPU devices opened"));
    }
}
