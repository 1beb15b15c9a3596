// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command works with: the host to ask, the administrator's file, what the arguments ask for.

use gpuhook_core::config::Config;
use gpuhook_core::facts::HostFacts;
use gpuhook_core::request::{Arguments, Request};
use gpuhook_linux::files;
use gpuhook_linux::gather::{self, Wanted};
use gpuhook_linux::root::Root;

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
        let wanted = Wanted { capabilities: request.mig_config || request.mig_monitor, ..Wanted::default() };
        gather::host(&self.driver, wanted).map_err(Failure::could_not_look)
    }
}

impl Options {
    /// The request as the arguments say it.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        Arguments {
            devices: self.devices.as_deref(),
            capabilities: self.capabilities.as_deref(),
            mig_config: self.mig_config.as_deref(),
            mig_monitor: self.mig_monitor.as_deref(),
            imex_channels: self.imex_channels.as_deref(),
        }
    }
}
