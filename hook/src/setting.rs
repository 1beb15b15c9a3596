// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command works with: the host to ask, the administrator's file, what the arguments ask for.

use gpuhook_core::config::Config;
use gpuhook_core::facts::{ContainerFacts, HostFacts};
use gpuhook_core::plan::{Plan, missing_modules};
use gpuhook_core::request::{Arguments, Request};
use gpuhook_linux::gather::{self, Wanted};
use gpuhook_linux::root::Root;
use gpuhook_linux::{files, modules};

use crate::args::Options;
use crate::failure::Failure;

/// Opened once, at the start of a command.
pub(crate) struct Setting {
    /// Where the driver's facts come from.
    pub(crate) driver: Root,
    /// This host, whose kernel runs the containers.
    pub(crate) host: Root,
    /// The administrator's file.
    pub(crate) config: Config,
}

impl Setting {
    pub(crate) fn new(options: &Options) -> Result<Self, Failure> {
        let driver = match &options.host_root {
            Some(directory) => Root::open(directory).map_err(Failure::could_not_look)?,
            None => Root::host().map_err(Failure::could_not_look)?,
        };
        let host = Root::host().map_err(Failure::could_not_look)?;
        Ok(Self { driver, host, config: files::config(options.config.as_deref())? })
    }

    /// What the driver says now, as far as `request` needs it.
    pub(crate) fn facts(&self, request: &Request) -> Result<HostFacts, Failure> {
        let wanted = Wanted {
            capabilities: request.mig_config || request.mig_monitor || request.management,
            instances: request.needs_mig_devices(),
            mig_uuids: request.names_mig_uuids(),
            nodes: request.nvswitch || request.management,
        };
        gather::host(&self.driver, wanted).map_err(Failure::could_not_look)
    }

    /// The plan for a container that is still to be made, after the modules that it needs were loaded.
    ///
    /// # Errors
    /// There can be none: what the host lacks, and what modprobe said.
    pub(crate) fn plan(&self, container: &ContainerFacts, request: &Request) -> Result<Plan, Failure> {
        let mut host = self.facts(request)?;
        let missing = host.majors.as_ref().map(|majors| missing_modules(majors, request)).unwrap_or_default();
        let mut said = Vec::new();
        if !missing.is_empty() && self.config.load_modules && self.driver.is_live() {
            said = modules::load(&missing);
            host = self.facts(request)?;
        }
        match Plan::make(&host, container, request) {
            Ok(plan) => Ok(plan),
            Err(error) if said.is_empty() => Err(error.into()),
            Err(error) => Err(Failure::problem(format!("{}; {}", Failure::problem(error), said.join("; ")))),
        }
    }
}

impl Options {
    /// What a hook that this call registers has to be told again.
    pub(crate) fn repeated(&self) -> Vec<String> {
        let options = [
            ("--host-root", &self.host_root),
            ("--config", &self.config),
            ("--devices", &self.devices),
            ("--capabilities", &self.capabilities),
            ("--mig-config", &self.mig_config),
            ("--mig-monitor", &self.mig_monitor),
            ("--imex-channels", &self.imex_channels),
        ];
        options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value.clone()?])).flatten().collect()
    }

    /// The request as the arguments say it.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        Arguments {
            devices: self.devices.as_deref(),
            capabilities: self.capabilities.as_deref(),
            mig_config: self.mig_config.as_deref(),
            mig_monitor: self.mig_monitor.as_deref(),
            imex_channels: self.imex_channels.as_deref(),
            nvswitch: self.nvswitch.then_some("enabled"),
        }
    }
}
