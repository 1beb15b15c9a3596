// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where wishes come from, which place wins, and what each may ask for.
//!
//! The first place that says a key wins, key by key: a hook's arguments, the operator's variables, annotations, mounts,
//! the image's variables. A place that may not ask for a key is passed over, and the request says so.

use super::require::ImageNeeds;
use super::select::{self, Said, words};
use super::{DeviceSelection, DriverCapabilities, Origin, Request, RequestError};
use crate::config::{Config, Rights};
use crate::quoted::Quoted;

/// One value per key, each `None` where nobody said it. As arguments of a hook or command they are the operator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// `--devices LIST`, in place of `NVIDIA_VISIBLE_DEVICES`.
    pub devices: Option<&'a str>,
    /// `--capabilities LIST`, in place of `NVIDIA_DRIVER_CAPABILITIES`.
    pub capabilities: Option<&'a str>,
    /// `--mig-config LIST`, in place of `NVIDIA_MIG_CONFIG_DEVICES`; `all` for the option without a value.
    pub mig_config: Option<&'a str>,
    /// `--mig-monitor LIST`, in place of `NVIDIA_MIG_MONITOR_DEVICES`; `all` for the option without a value.
    pub mig_monitor: Option<&'a str>,
    /// `--imex-channels LIST`, in place of `NVIDIA_IMEX_CHANNELS`.
    pub imex_channels: Option<&'a str>,
    /// `enabled` for `--nvswitch`, in place of `NVIDIA_NVSWITCH`.
    pub nvswitch: Option<&'a str>,
}

/// One key: its names, and who may say it.
struct Key {
    option: &'static str,
    variable: &'static str,
    right: Rights,
    /// How a config grants it to images, for messages.
    grant: &'static str,
}

const MAY_ASK: &str = "unprivileged-may-ask in config.toml";
const DEVICES: Key = Key {
    option: "--devices",
    variable: "NVIDIA_VISIBLE_DEVICES",
    right: Rights::DEVICES,
    grant: "accept-env-when-unprivileged in config.toml",
};
const CAPABILITIES: Key =
    Key { option: "--capabilities", variable: "NVIDIA_DRIVER_CAPABILITIES", right: Rights::empty(), grant: "" };
const MIG_CONFIG: Key =
    Key { option: "--mig-config", variable: "NVIDIA_MIG_CONFIG_DEVICES", right: Rights::MIG_CONFIG, grant: MAY_ASK };
const MIG_MONITOR: Key =
    Key { option: "--mig-monitor", variable: "NVIDIA_MIG_MONITOR_DEVICES", right: Rights::MIG_MONITOR, grant: MAY_ASK };
const IMEX_CHANNELS: Key =
    Key { option: "--imex-channels", variable: "NVIDIA_IMEX_CHANNELS", right: Rights::IMEX_CHANNELS, grant: MAY_ASK };
const NVSWITCH: Key =
    Key { option: "--nvswitch", variable: "NVIDIA_NVSWITCH", right: Rights::NVSWITCH, grant: MAY_ASK };

/// What NVIDIA's toolkit brings in besides, for the variable's value `enabled`.
const NOT_OURS: [&str; 3] = ["NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY"];

impl<'a> Arguments<'a> {
    /// The values that the variables give to the same keys; the last of a name counts.
    pub(super) fn of(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut said = Self::default();
        for (name, value) in variables {
            let key = match name {
                _ if name == DEVICES.variable => &mut said.devices,
                _ if name == CAPABILITIES.variable => &mut said.capabilities,
                _ if name == MIG_CONFIG.variable => &mut said.mig_config,
                _ if name == MIG_MONITOR.variable => &mut said.mig_monitor,
                _ if name == IMEX_CHANNELS.variable => &mut said.imex_channels,
                _ if name == NVSWITCH.variable => &mut said.nvswitch,
                _ => continue,
            };
            *key = Some(value);
        }
        said
    }
}

/// Who says something, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Argument,
    OperatorVariable,
    Annotation,
    Mount,
    ImageVariable,
}

impl Place {
    fn origin(self) -> Origin {
        match self {
            Self::Argument | Self::OperatorVariable | Self::Mount => Origin::Operator,
            Self::Annotation | Self::ImageVariable => Origin::Image,
        }
    }

    fn name(self, key: &Key) -> &'static str {
        match self {
            Self::Argument => key.option,
            Self::OperatorVariable | Self::ImageVariable => key.variable,
            Self::Annotation => "annotation cdi.k8s.io",
            Self::Mount => "mounts below /var/run/nvidia-container-devices",
        }
    }
}

/// Everything that may speak for one container.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    said: Vec<(Place, Arguments<'a>)>,
    image: Rights,
    variables: Vec<(&'a str, &'a str)>,
    left_out: Vec<String>,
}

impl<'a> Sources<'a> {
    /// The operator's arguments; `image` is what the image's words may ask for.
    pub(super) fn new(arguments: &Arguments<'a>, image: Rights) -> Self {
        Self { said: vec![(Place::Argument, *arguments)], image, variables: Vec::new(), left_out: Vec::new() }
    }

    /// A place that wins over those that are added later.
    pub(super) fn add(&mut self, place: Place, words: Arguments<'a>) {
        self.said.push((place, words));
    }

    /// Variables, as [`Sources::add`]; they also say what the image needs.
    pub(super) fn add_variables(&mut self, place: Place, variables: Vec<(&'a str, &'a str)>) {
        self.add(place, Arguments::of(variables.iter().copied()));
        // The first place wins, the last variable counts.
        self.variables.splice(0..0, variables);
    }

    fn first(&mut self, key: &Key, value: impl Fn(&Arguments<'a>) -> Option<&'a str>) -> Option<(Place, Said<'a>)> {
        for (place, words_of_place) in &self.said {
            let Some(value) = value(words_of_place) else { continue };
            let name = place.name(key);
            if place.origin() == Origin::Operator || self.image.contains(key.right) {
                return Some((*place, (name, value)));
            }
            if words(value).next().is_some() {
                let Key { option, grant, .. } = key;
                self.left_out.push(format!("{name}={} {} {option} or {grant}", Quoted(value), LEFT_OUT));
            }
        }
        None
    }

    /// What all of it asks for. `silence` is what is meant where nobody says a word on devices.
    ///
    /// # Errors
    /// A word that has no meaning. Wishes that are left out are not read.
    pub(super) fn request(mut self, silence: DeviceSelection) -> Result<Request, RequestError> {
        let needs = ImageNeeds::of(self.variables.iter().copied());
        let devices = self.first(&DEVICES, |words| words.devices);
        let is_legacy = needs.is_legacy();
        let is_unsaid = self.said.iter().all(|(_, words)| words.devices.is_none());
        let is_understood = is_legacy && is_unsaid && silence == DeviceSelection::Nothing;
        let capabilities = self.first(&CAPABILITIES, |words| words.capabilities).map(|(_, said)| said);
        let (mut chosen, origin) = match devices {
            Some((place, said)) => (select::devices(said)?, place.origin()),
            None if is_understood && self.image.contains(Rights::DEVICES) => {
                (DeviceSelection::All.into(), Origin::Image)
            }
            None if silence == DeviceSelection::Nothing => (silence.into(), Origin::Image),
            None => (silence.into(), Origin::Operator),
        };
        if is_understood && chosen.selection == DeviceSelection::Nothing {
            self.left_out.push(format!("CUDA_VERSION, which asks for all GPUs, {LEFT_OUT} {}", DEVICES.grant));
        }
        self.limit(&mut chosen, origin);
        let mut right =
            |key: &Key, value: fn(&Arguments<'a>) -> Option<&'a str>| self.first(key, value).map(|(_, said)| said);
        let mig_config = right(&MIG_CONFIG, |words| words.mig_config);
        let mig_monitor = right(&MIG_MONITOR, |words| words.mig_monitor);
        let channels = right(&IMEX_CHANNELS, |words| words.imex_channels);
        let nvswitch = right(&NVSWITCH, |words| words.nvswitch);
        for (name, value) in &self.variables {
            if NOT_OURS.contains(name) && *value == "enabled" {
                self.left_out.push(format!("{name}: gpuhook brings in none of its devices"));
            }
        }
        if let Some(said) = channels {
            chosen.channels.extend(select::channels(said, &mut self.left_out)?);
        }
        let is_nothing = chosen.selection == DeviceSelection::Nothing;
        Ok(Request {
            devices: chosen.selection,
            capabilities: match capabilities {
                Some(said) => select::capabilities(said)?,
                None if is_legacy => DriverCapabilities::all(),
                None => DriverCapabilities::default(),
            },
            mig_config: mig_config.map_or(Ok(false), select::asks_for_mig)?,
            mig_monitor: mig_monitor.map_or(Ok(false), select::asks_for_mig)?,
            imex_channels: chosen.channels.into_iter().collect(),
            nvswitch: nvswitch.is_some_and(|(_, value)| value == "enabled"),
            management: chosen.management,
            requirements: if is_nothing { Vec::new() } else { needs.requirements()? },
            origin,
            left_out: self.left_out,
        })
    }

    /// Takes away what an image may not ask for by the names of CDI devices.
    fn limit(&mut self, chosen: &mut select::Devices, origin: Origin) {
        const MANAGEMENT: Rights = Rights::MIG_CONFIG.union(Rights::MIG_MONITOR).union(Rights::NVSWITCH);
        let may = |rights| origin == Origin::Operator || self.image.contains(rights);
        if chosen.management && !may(MANAGEMENT) {
            chosen.management = false;
            let what = "management.nvidia.com/gpu, which asks for all rights over MIG and NVSwitch,";
            self.left_out.push(format!("{what} {LEFT_OUT} {MAY_ASK}"));
        }
        if !chosen.channels.is_empty() && !may(Rights::IMEX_CHANNELS) {
            chosen.channels.clear();
            self.left_out.push(format!("imex-channel {LEFT_OUT} {} or {MAY_ASK}", IMEX_CHANNELS.option));
        }
    }
}

const LEFT_OUT: &str = "may come from the image and is left out; what grants it:";

impl Request {
    /// What arguments and variables ask for together: an argument wins over the variable of the same key. An image's
    /// variables choose GPUs and nothing more.
    ///
    /// # Errors
    ///
    /// A word that has no meaning; the message names its key and what is allowed. Wishes that are left out are not
    /// read.
    pub fn new<'a>(
        arguments: &Arguments<'a>,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
        origin: Origin,
    ) -> Result<Self, RequestError> {
        let mut sources = Sources::new(arguments, Config::default().rights_of_image(false));
        let place = match origin {
            Origin::Operator => Place::OperatorVariable,
            Origin::Image => Place::ImageVariable,
        };
        sources.add_variables(place, variables.into_iter().collect());
        sources.request(DeviceSelection::Nothing)
    }

    /// What variables alone ask for.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn from_variables<'a>(
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
        origin: Origin,
    ) -> Result<Self, RequestError> {
        Self::new(&Arguments::default(), variables, origin)
    }

    /// What the operator's arguments alone ask for.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn from_arguments(arguments: &Arguments<'_>) -> Result<Self, RequestError> {
        Self::new(arguments, [], Origin::Operator)
    }
}
