// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the device filter back to the manager that will rebuild it later, so that the manager's own program carries
//! the rules: LXC's monitor, or systemd for the scopes of OCI runtimes.

use gpuhook_core::container_id::ContainerId;
use gpuhook_core::plan::Plan;
use gpuhook_linux::cgroup::CgroupPath;
use gpuhook_linux::filter;
use gpuhook_linux::filter::handback::{self, HandbackError, Owner};
use gpuhook_linux::journal::{self, Priority};
use gpuhook_linux::lxc::LxcContainer;
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::systemd;

use crate::failure::Failure;
use crate::flow::{Done, json};

/// How long LXC may take to call the container running, in seconds.
const RUNNING_LIMIT: u32 = 60;

/// To LXC's monitor, once the container runs; or says in journal and report what it costs that it could not.
pub(crate) fn to_lxc(container: &LxcContainer, done: &mut Done) {
    if let Err(error) = CgroupPath::leave(&done.location) {
        journal::send(Priority::Warning, done.report.engine, container.name(), &Failure::problem(error).to_string());
    }
    let running = container.wait_running(RUNNING_LIMIT).and_then(|()| container.check_version());
    under_lock(container.name(), done, |done| {
        match running.map_err(Failure::from).and_then(|()| lxc(container, done)) {
            Ok(()) => (Priority::Info, "LXC's monitor owns the device rules".to_owned()),
            Err(failure) => (
                Priority::Warning,
                format!(
                    "the device rules stay with gpuhook, so the next live update (lxc-cgroup, device hot-plug) takes the \
                     GPU away until `gpuhook inject --lxc {}`: {failure}",
                    container.name()
                ),
            ),
        }
    });
}

/// To systemd, where a unit's filter had to be changed.
pub(crate) fn to_systemd(id: &ContainerId, done: &mut Done) {
    if !systemd::is_running() {
        return;
    }
    under_lock(id, done, |done| match unit_properties(done) {
        Ok(units) if units.is_empty() => (Priority::Info, "no unit of systemd had to be changed".to_owned()),
        Ok(units) => (Priority::Info, format!("systemd owns the device rules of {}", units.join(", "))),
        Err(failure) => (
            Priority::Warning,
            format!(
                "the device rules stay with gpuhook, so the next `systemctl daemon-reload` takes the GPU away until \
                 `gpuhook inject --pid PID`: {failure}"
            ),
        ),
    });
}

/// Hands back and completes the report, unless the container has stopped and its report is gone.
///
/// Under the container's lock: another run would take the bridge for one that was left, and remove it.
fn under_lock(id: &ContainerId, done: &mut Done, hand_back: impl FnOnce(&Done) -> (Priority, String)) {
    let engine = done.report.engine;
    let mut state = match RunState::lock(engine, id) {
        Ok(state) if !state.is_kept() => return,
        Ok(state) => state,
        Err(error) => return journal::send(Priority::Warning, engine, id, &Failure::problem(error).to_string()),
    };
    let (priority, line) = hand_back(done);
    journal::send(priority, engine, id, &line);
    done.report.owner = Some(line);
    if let Err(failure) = json(&done.report).and_then(|report| Ok(state.save(&report)?)) {
        journal::send(Priority::Warning, engine, id, &failure.to_string());
    }
}

fn lxc(container: &LxcContainer, done: &Done) -> Result<(), Failure> {
    let (path, plan) = filter_of(done)?;
    let bridge = match handback::begin(&path, &plan.filter().rules, Owner::Any) {
        Ok(bridge) => bridge,
        // A filter that its owner has replaced already.
        Err(HandbackError::Nothing) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match plan.filter().rules.iter().try_for_each(|rule| container.allow(*rule)) {
        Ok(()) => bridge.finish().map_err(|(_standing, error)| error.into()),
        Err(error) => {
            bridge.undo()?;
            Err(error.into())
        }
    }
}

/// The units that took the rules over.
fn unit_properties(done: &Done) -> Result<Vec<String>, Failure> {
    let (path, plan) = filter_of(done)?;
    let bridge = match handback::begin(&path, &plan.filter().rules, Owner::Systemd) {
        Ok(bridge) => Some(bridge),
        Err(HandbackError::Nothing) => None,
        Err(error) => return Err(error.into()),
    };
    let cgroups = match &bridge {
        Some(bridge) => bridge.cgroups().map(str::to_owned).collect(),
        // systemd was faster: a change of the unit meanwhile (set-property, runc update) made it build a program that
        // does not know the rules, behind ours.
        None => refusing(&path, plan)?,
    };
    let units: Vec<String> = cgroups.iter().filter_map(|cgroup| systemd::unit(cgroup)).map(str::to_owned).collect();
    match (units.iter().try_for_each(|unit| systemd::allow_devices(unit, &plan.device_allow())), bridge) {
        (Ok(()), Some(bridge)) => bridge.finish().map_err(|(_standing, error)| error)?,
        (Ok(()), None) => {}
        (Err(error), Some(bridge)) => {
            bridge.undo()?;
            return Err(error.into());
        }
        (Err(error), None) => return Err(error.into()),
    }
    Ok(units)
}

/// The container's own cgroups on which a program of systemd refuses a rule.
fn refusing(path: &CgroupPath, plan: &Plan) -> Result<Vec<String>, Failure> {
    let judgements = filter::judge(path, &plan.filter().rules)?;
    let refuses = |judgement: &&filter::Judgement| {
        judgement.own && judgement.program == systemd::DEVICE_PROGRAM && judgement.refused().next().is_some()
    };
    Ok(judgements.iter().filter(refuses).map(|judgement| judgement.cgroup.clone()).collect())
}

fn filter_of(done: &Done) -> Result<(CgroupPath, &Plan), Failure> {
    let plan = done.report.plan.as_ref().ok_or_else(|| Failure::problem("no plan was made"))?;
    Ok((CgroupPath::open(&done.location, &done.top)?, plan))
}
