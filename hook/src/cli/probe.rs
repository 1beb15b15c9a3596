// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook probe`: the ladder of checks, on the host or from inside a running container.

use gpuhook_core::config::VerifyConfig;
use gpuhook_core::doctor::Look;
use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::plan::Plan;
use gpuhook_core::report::{Rung, RungName};
use gpuhook_core::request::{DeviceSelection, Request};
use gpuhook_linux::target::Target;
use gpuhook_linux::verify::{self, Findings};

use crate::args::{Options, Verb};
use crate::cli::inject::Running;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::{self, json};
use crate::print;
use crate::setting::Setting;

/// Climbs and prints.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let answer = match options.host {
        true => on_host(&setting, options, &setting.config.verify)?,
        false => in_container(&setting, options, &Running::find(options, Verb::Probe)?)?,
    };
    let failed = answer.rungs.iter().any(Rung::is_failure);
    let text = match options.json {
        true => String::from_utf8_lossy(&json(&answer)?).into_owned(),
        false => answer.rungs.iter().map(|rung| format!("{rung}\n")).collect(),
    };
    print(&text).map(|()| if failed { Exit::Problem } else { Exit::Fine })
}

/// What the ladder says on the host, as far as `policies` wants to look.
pub(crate) fn on_host(setting: &Setting, options: &Options, policies: &VerifyConfig) -> Result<Look, Failure> {
    let request = Request::from_arguments(&options.arguments()).map_err(Failure::usage)?;
    let silent = options.devices.is_none();
    let request = if silent { Request { devices: DeviceSelection::All, ..request } } else { request };
    match plan(setting, &ContainerFacts::default(), &request)? {
        Err(answer) => Ok(answer),
        Ok(plan) if setting.driver.is_live() => {
            let target = Target::host().map_err(Failure::could_not_look)?;
            Ok(look(verify::ladder(&plan, &target, None, policies)))
        }
        Ok(plan) => {
            let why = format!("not looked at: the facts are those below {}", setting.driver.path_of(""));
            let above = [RungName::L1, RungName::L2, RungName::L3, RungName::L5];
            let mut rungs = vec![Rung::passed(RungName::L0, plan.driver())];
            rungs.extend(above.map(|rung| Rung::skipped(rung, "this host", why.clone())));
            Ok(Look { rungs, cuinit: None })
        }
    }
}

/// What the ladder says from inside a container.
pub(crate) fn in_container(setting: &Setting, options: &Options, running: &Running) -> Result<Look, Failure> {
    let request = running.request(options)?;
    let facts = flow::facts(setting, &running.target)?;
    match plan(setting, &facts, &request)? {
        Err(answer) => Ok(answer),
        Ok(plan) => {
            let (cgroup, _) = flow::cgroup(&facts, running.hint())?;
            Ok(look(verify::ladder(&plan, &running.target, cgroup.as_ref(), &setting.config.verify)))
        }
    }
}

fn look(Findings { rungs, cuinit }: Findings) -> Look {
    Look { rungs, cuinit }
}

/// The plan whose ladder is climbed; without one, the answer is that L0 fails.
fn plan(setting: &Setting, container: &ContainerFacts, request: &Request) -> Result<Result<Plan, Look>, Failure> {
    let host = setting.facts(request)?;
    Ok(Plan::make(&host, container, request).map_err(|error| {
        let rung = Rung::failed(RungName::L0, host.driver_name(), Failure::problem(error).to_string());
        Look { rungs: vec![rung], cuinit: None }
    }))
}
