// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the device filter back to the manager that will rebuild it later, so that the manager's own program carries
//! the rules: LXC's monitor, or systemd for the scopes of OCI runtimes.

use gpuhook_core::container_id::ContainerId;
use gpuhook_core::facts::CgroupLocation;
use gpuhook_core::plan::Plan;
use gpuhook_linux::cgroup::CgroupPath;
use gpuhook_linux::filter::handback::{self, HandbackError, Owner};
use gpuhook_linux::journal::{self, Priority};
use gpuhook_linux::lxc::LxcContainer;
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::systemd::{self, SystemdError};

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

/// Whether a unit of a running systemd is on the way to the container: else there is nobody to hand anything to.
pub(crate) fn concerns_systemd(done: &Done) -> bool {
    match &done.location {
        CgroupLocation::V2 { path, .. } => {
            path.split('/').any(|name| systemd::unit(name).is_some()) && systemd::is_running()
        }
        CgroupLocation::V1 { .. } | CgroupLocation::Unknown => false,
    }
}

/// To systemd, where it restricts the devices of the container's unit.
pub(crate) fn to_systemd(id: &ContainerId, done: &mut Done) {
    under_lock(id, done, |done| match unit_properties(done) {
        Ok(units) if units.is_empty() => (Priority::Info, "systemd restricts no device of this container".to_owned()),
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

/// To systemd, where the container's spec had the rules: whatever of them its runtime did not tell systemd, by name.
/// runc 1.1.3 to 1.1.6 leave out a number whose link in `/dev/char` is absent (runc issue 3708), and systemd then takes
/// it away at its next rebuild.
pub(crate) fn names_to_systemd(id: &ContainerId, done: &mut Done) {
    under_lock(id, done, |done| match missing_names(done) {
        Ok(0) => (Priority::Info, "the runtime owns the device rules".to_owned()),
        Ok(count) => (Priority::Info, format!("the runtime owns the device rules; systemd was told {count} more")),
        Err(failure) => (
            Priority::Warning,
            format!(
                "systemd does not know all device rules, so `systemctl daemon-reload` may take the GPU away: {failure}"
            ),
        ),
    });
}

/// How many entries were missing.
fn missing_names(done: &Done) -> Result<usize, Failure> {
    let (path, plan) = filter_of(done)?;
    let mut told = 0;
    for unit in path.own.iter().filter_map(|level| systemd::unit(&level.name)) {
        let known = systemd::allowed_devices(unit)?;
        let missing = plan.device_allow_beyond(&known);
        // Nothing known: systemd does not restrict this unit (crun hands it a program of its own), and would begin to.
        if !known.is_empty() && !missing.is_empty() {
            systemd::allow_devices(unit, &missing)?;
            told += missing.len();
        }
    }
    Ok(told)
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
        // Its program is not there now (runc replaces it by its own), or was rebuilt behind ours (set-property was
        // faster). Its next one follows the unit's properties in any case.
        Err(HandbackError::Nothing) => None,
        Err(error) => return Err(error.into()),
    };
    match (give_to_units(&path, plan), bridge) {
        (Ok(units), Some(bridge)) => {
            bridge.finish().map_err(|(_standing, error)| error)?;
            Ok(units)
        }
        (Ok(units), None) => Ok(units),
        (Err(error), Some(bridge)) => {
            bridge.undo()?;
            Err(error.into())
        }
        (Err(error), None) => Err(error.into()),
    }
}

/// Adds the rules to those of the container's units whose devices systemd restricts: its `DeviceAllow=` would begin to
/// restrict another one.
fn give_to_units(path: &CgroupPath, plan: &Plan) -> Result<Vec<String>, SystemdError> {
    let mut units = Vec::new();
    for unit in path.own.iter().filter_map(|level| systemd::unit(&level.name)) {
        if systemd::restricts_devices(unit)? {
            systemd::allow_devices(unit, &plan.device_allow())?;
            units.push(unit.to_owned());
        }
    }
    Ok(units)
}

fn filter_of(done: &Done) -> Result<(CgroupPath, &Plan), Failure> {
    let plan = done.report.plan.as_ref().ok_or_else(|| Failure::problem("no plan was made"))?;
    Ok((CgroupPath::open(&done.location, &done.top)?, plan))
}
