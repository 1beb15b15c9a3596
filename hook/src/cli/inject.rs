// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook inject`: brings GPUs into a running container, without a restart.

use gpuhook_core::cgroup_top::CgroupHint;
use gpuhook_core::config::Config;
use gpuhook_core::container_id::ContainerId;
use gpuhook_core::lxc_config::LxcConfig;
use gpuhook_core::request::{DeviceSelection, Request};
use gpuhook_linux::files;
use gpuhook_linux::lxc::LxcContainer;
use gpuhook_linux::target::Target;

use crate::args::{Options, Verb, wrong_for};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::{self, Container, json};
use crate::setting::Setting;
use crate::{handback, lxc, print};

/// A running container, as a person names it.
pub(crate) struct Running {
    pub(crate) engine: &'static str,
    pub(crate) id: ContainerId,
    pub(crate) target: Target,
    pub(crate) lxc: Option<(LxcContainer, LxcConfig)>,
}

impl Running {
    /// The container of `--lxc NAME` or `--pid PID`.
    pub(crate) fn find(options: &Options, verb: Verb) -> Result<Self, Failure> {
        match (&options.lxc, options.pid) {
            (Some(name), None) => {
                let id = container_id(name)?;
                let lxc = lxc_container(&id);
                let pid = lxc.init_pid().map_err(Failure::could_not_look)?;
                let is_there = || files::exists(&lxc.config_path());
                if pid.is_none() && !is_there().map_err(Failure::could_not_look)? {
                    return Err(Failure::could_not_look(format!("there is no LXC container {id}; hint: lxc-ls -f")));
                }
                let Some(pid) = pid else {
                    let sentence = format!("LXC container {id} does not run; hint: lxc-start -n {id}, or lxc-ls -f");
                    return Err(Failure::could_not_look(sentence));
                };
                let config = files::lxc_config(&lxc.config_path()).unwrap_or_default();
                let target = Target::open(pid).map_err(Failure::could_not_look)?;
                Ok(Self { engine: lxc::ENGINE, id, target, lxc: Some((lxc, config)) })
            }
            (None, Some(pid)) => {
                let target = Target::open(pid).map_err(Failure::could_not_look)?;
                Ok(Self { engine: "pid", id: container_id(&pid.to_string())?, target, lxc: None })
            }
            _ => Err(wrong_for(verb, "say which container: --lxc NAME or --pid PID")),
        }
    }

    /// What its manager says of its cgroup.
    pub(crate) fn hint(&self) -> CgroupHint<'_> {
        match &self.lxc {
            Some((_, config)) => CgroupHint::Lxc { dir_container: config.cgroup_dir_container() },
            None => CgroupHint::None,
        }
    }

    /// What the arguments ask for, else the container's config, else all GPUs: a person who types this wants one.
    pub(crate) fn request(&self, options: &Options, config: &Config) -> Result<Request, Failure> {
        let request = match &self.lxc {
            Some((_, lxc)) => Request::from_lxc(&options.arguments(), lxc, false, config)?,
            None => Request::from_arguments(&options.arguments()).map_err(Failure::usage)?,
        };
        let silent = options.devices.is_none() && self.lxc.is_none();
        Ok(if silent { Request { devices: DeviceSelection::All, ..request } } else { request })
    }
}

/// Injects, and gives the rules to LXC's monitor where it is LXC's container.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let running = Running::find(options, Verb::Inject)?;
    let request = running.request(options, &setting.config)?;
    if request.is_nothing() {
        return print("nothing to do: no GPU was asked for\n").map(|()| Exit::Fine);
    }
    let container =
        Container { engine: running.engine, id: &running.id, target: &running.target, hint: running.hint() };
    let mut done = flow::inject(&setting, &container, &request)?;
    match &running.lxc {
        _ if !done.filter_changed => {}
        Some((lxc, _)) => handback::to_lxc(lxc, &mut done),
        None => handback::to_systemd(&running.id, &mut done),
    }
    let text = match options.json {
        true => String::from_utf8_lossy(&json(&done.report)?).into_owned(),
        false => done.report.to_string(),
    };
    let failed = done.report.rungs.iter().any(gpuhook_core::report::Rung::is_failure);
    print(&text).map(|()| if failed { Exit::Problem } else { Exit::Fine })
}

/// A name that a person typed.
pub(crate) fn container_id(name: &str) -> Result<ContainerId, Failure> {
    ContainerId::new(name)
        .ok_or_else(|| Failure::usage(format!("container name {name:?} is not made of {}", ContainerId::ALLOWED)))
}

/// The container of that name, wherever its monitor listens.
pub(crate) fn lxc_container(id: &ContainerId) -> LxcContainer {
    LxcContainer::new(id, None)
}
