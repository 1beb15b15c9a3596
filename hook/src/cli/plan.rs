// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook plan`: what would be done for a container; changes nothing.

use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::plan::Plan;
use gpuhook_core::request::Request;
use gpuhook_linux::files;

use crate::args::{Options, Verb, wrong_for};
use crate::cli::inject::{container_id, lxc_container};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::{self, json};
use crate::print;
use crate::setting::Setting;

/// Prints the plan.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let mut spec = None;
    let (request, container) = match (&options.lxc, &options.bundle) {
        (Some(name), None) => of_lxc(&setting, options, name)?,
        (None, Some(bundle)) => {
            let spec = &*spec.insert(files::spec(bundle).map_err(Failure::could_not_look)?);
            let request = Request::from_spec(&options.arguments(), spec, &setting.config)?;
            let (uid_map, gid_map) = (spec.uid_map.clone(), spec.gid_map.clone());
            (request, ContainerFacts { uid_map, gid_map, ..ContainerFacts::default() })
        }
        (None, None) if options.devices.is_some() => {
            (Request::from_arguments(&options.arguments()).map_err(Failure::usage)?, ContainerFacts::default())
        }
        _ => return Err(wrong_for(Verb::Plan, "say which: --lxc NAME, --bundle DIR or --devices LIST")),
    };
    let plan = Plan::make(&setting.facts(&request)?, &container, &request)?;
    let plan = match spec.as_ref().and_then(|spec| Some((spec.nvidia_injector()?, spec.nvidia_devices()))) {
        Some((injector, paths)) if !plan.is_empty() => plan.verify_only(injector, &paths),
        _ => plan,
    };
    let text = if options.json { String::from_utf8_lossy(&json(&plan)?).into_owned() } else { plan.to_string() };
    print(&text).map(|()| Exit::Fine)
}

/// From the config, and from the running container where it runs.
fn of_lxc(setting: &Setting, options: &Options, name: &str) -> Result<(Request, ContainerFacts), Failure> {
    let lxc = lxc_container(&container_id(name)?);
    let config = files::lxc_config(&lxc.config_path()).map_err(Failure::could_not_look)?;
    let request = Request::from_lxc(&options.arguments(), &config, options.opt_in, &setting.config)?;
    let running = lxc.init_pid().ok().flatten();
    let container = match running.map(gpuhook_linux::target::Target::open) {
        Some(Ok(target)) => flow::facts(setting, &target)?,
        _ => {
            let (uid_map, gid_map) = config.idmap()?;
            ContainerFacts { uid_map, gid_map, ..ContainerFacts::default() }
        }
    };
    Ok((request, container))
}
