// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook probe`: the ladder of checks, on the host or from inside a running container.

use gpuhook_core::config::VerifyConfig;
use gpuhook_core::doctor::{self, Look};
use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::plan::Plan;
use gpuhook_core::report::{Rung, RungName};
use gpuhook_core::request::{DeviceSelection, Request};
use gpuhook_linux::target::Target;
use gpuhook_linux::verify::{self, Findings};
use gpuhook_linux::{groups, libraries};

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
            let found = look(verify::ladder(&plan, &target, None, policies));
            Ok(with_versions(found, &target, version(&plan)))
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
    let request = running.request(options, &setting.config)?;
    let facts = flow::facts(setting, &running.target)?;
    match plan(setting, &facts, &request)? {
        Err(answer) => Ok(answer),
        Ok(plan) => {
            let (cgroup, _) = flow::cgroup(&facts, running.hint())?;
            let found = look(verify::ladder(&plan, &running.target, cgroup.as_ref(), &setting.config.verify));
            let found = with_groups(found, setting, running, &facts);
            Ok(with_versions(found, &running.target, version(&plan)))
        }
    }
}

fn look(Findings { rungs, cuinit }: Findings) -> Look {
    Look { rungs, cuinit }
}

/// The version of the module whose numbers the plan has.
fn version(plan: &Plan) -> Option<&str> {
    plan.driver().strip_prefix("driver ")
}

/// L4, which a hook has no time for: the libraries' file names against the module's version.
fn with_versions(mut look: Look, target: &Target, module: Option<&str>) -> Look {
    let versions = target.root_directory().map(|root| libraries::versions(&root)).unwrap_or_default();
    look.rungs.extend(doctor::library_rung(&versions, module));
    look.rungs.sort_by_key(|rung| rung.rung);
    look
}

/// L1 once more for nodes that the container's program may not open: whether their group is another one inside.
fn with_groups(mut look: Look, setting: &Setting, running: &Running, facts: &ContainerFacts) -> Look {
    let refused = look.rungs.iter().filter(|rung| rung.errno.as_deref() == Some("EACCES"));
    let refused: Vec<String> = refused.map(|rung| rung.subject.clone()).collect();
    for path in refused {
        let Some(found) = groups::other_group(&setting.host, &running.target, &facts.gid_map, &path) else { continue };
        let fresh = doctor::group_rung(&path, found.gid, found.inside.as_deref(), &found.outside);
        if let Some(rung) = look.rungs.iter_mut().find(|rung| rung.rung == RungName::L1 && rung.subject == path) {
            *rung = fresh;
        }
    }
    look
}

/// The plan whose ladder is climbed; without one, the answer is that L0 fails.
fn plan(setting: &Setting, container: &ContainerFacts, request: &Request) -> Result<Result<Plan, Look>, Failure> {
    let host = setting.facts(request)?;
    Ok(Plan::make(&host, container, request).map_err(|error| {
        let rung = Rung::failed(RungName::L0, host.driver_name(), Failure::problem(error).to_string());
        Look { rungs: vec![rung], cuinit: None }
    }))
}
