// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grammar of `NVIDIA_VISIBLE_DEVICES` and its neighbours, with the meanings of NVIDIA's container toolkit
//! (internal/config/image, cmd/nvidia-container-runtime-hook/container_config.go), so that nobody learns a second
//! language.
//!
//! - A list is separated by commas; blanks around a word and empty words are skipped.
//! - In a list of devices `void` wins over `none`, `none` over `all`, and `all` over every single name.
//! - The last of several variables of one name counts, as in runc (libcontainer/env.go) and LXC (`putenv` in order).
//! - Words are case sensitive, except for the hexadecimal digits of a UUID or bus id.
//!
//! Different on purpose: a word that nobody knows is an error here also where the toolkit would pass it on; names of
//! CDI devices are such words. The toolkit's rule that an image with `CUDA_VERSION` alone means "all" is not kept.

use std::collections::BTreeSet;
use std::fmt;

use super::{DeviceName, DeviceSelection, DriverCapabilities, Origin, Request};
use crate::facts::PciAddress;
use crate::quoted::Quoted;

/// The longest value of a variable that a program can be started with, in bytes (`MAX_ARG_STRLEN`,
/// include/uapi/linux/binfmts.h, with pages of 4 KiB).
const VALUE_MAX: usize = 128 << 10;

/// The words of `NVIDIA_DRIVER_CAPABILITIES`.
const CAPABILITY_WORDS: [(&str, DriverCapabilities); 8] = [
    ("all", DriverCapabilities::all()),
    ("compute", DriverCapabilities::COMPUTE),
    ("compat32", DriverCapabilities::COMPAT32),
    ("graphics", DriverCapabilities::GRAPHICS),
    ("utility", DriverCapabilities::UTILITY),
    ("video", DriverCapabilities::VIDEO),
    ("display", DriverCapabilities::DISPLAY),
    ("ngx", DriverCapabilities::NGX),
];

/// The two names of one key.
struct Key {
    option: &'static str,
    variable: &'static str,
}

const DEVICES: Key = Key { option: "--devices", variable: "NVIDIA_VISIBLE_DEVICES" };
const CAPABILITIES: Key = Key { option: "--capabilities", variable: "NVIDIA_DRIVER_CAPABILITIES" };
const MIG_CONFIG: Key = Key { option: "--mig-config", variable: "NVIDIA_MIG_CONFIG_DEVICES" };
const MIG_MONITOR: Key = Key { option: "--mig-monitor", variable: "NVIDIA_MIG_MONITOR_DEVICES" };
const IMEX_CHANNELS: Key = Key { option: "--imex-channels", variable: "NVIDIA_IMEX_CHANNELS" };

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
}

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
                _ => continue,
            };
            *key = Some(value);
        }
        said
    }
}

/// A value with the name of the variable or option that holds it, for messages.
type Said<'a> = (&'static str, &'a str);

fn first<'a>(key: &Key, argument: Option<&'a str>, variable: Option<&'a str>) -> Option<Said<'a>> {
    argument.map(|value| (key.option, value)).or(variable.map(|value| (key.variable, value)))
}

impl Request {
    /// What arguments and variables ask for together: an argument wins over the variable of the same key. From an
    /// image's variables, wishes for MIG configuration, MIG monitoring and IMEX channels are left out and said so.
    ///
    /// # Errors
    ///
    /// A word that has no meaning; the message names its key and what is allowed. Wishes that are left out are not
    /// read.
    pub fn new<'a>(
        arguments: &Arguments<'_>,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
        origin: Origin,
    ) -> Result<Self, RequestError> {
        match origin {
            Origin::Operator => Self::merge(arguments, Arguments::of(variables), Arguments::default()),
            Origin::Image => Self::merge(arguments, Arguments::default(), Arguments::of(variables)),
        }
    }

    /// What is asked for with arguments, else with the operator's variables, else with the image's: key by key.
    pub(super) fn merge(
        arguments: &Arguments<'_>,
        operator: Arguments<'_>,
        image: Arguments<'_>,
    ) -> Result<Self, RequestError> {
        let mut left_out = Vec::new();
        let devices = first(&DEVICES, arguments.devices, operator.devices);
        let origin = if devices.is_some() { Origin::Operator } else { Origin::Image };
        let devices = devices.or(image.devices.map(|value| (DEVICES.variable, value)));
        let capabilities = first(&CAPABILITIES, arguments.capabilities, operator.capabilities)
            .or(image.capabilities.map(|value| (CAPABILITIES.variable, value)));
        let mut right = |key: &Key, argument, operator, image: Option<&str>| {
            let said = first(key, argument, operator);
            if let (None, Some(value)) = (said, image.filter(|value| words(value).next().is_some())) {
                let Key { option, variable } = key;
                let value = Quoted(value);
                left_out.push(format!("{variable}={value} comes from the image and is left out; {option} grants it"));
            }
            said
        };
        let mig_config = right(&MIG_CONFIG, arguments.mig_config, operator.mig_config, image.mig_config);
        let mig_monitor = right(&MIG_MONITOR, arguments.mig_monitor, operator.mig_monitor, image.mig_monitor);
        let channels = right(&IMEX_CHANNELS, arguments.imex_channels, operator.imex_channels, image.imex_channels);
        Ok(Self {
            devices: devices.map_or(Ok(DeviceSelection::Nothing), select_devices)?,
            capabilities: capabilities.map_or(Ok(DriverCapabilities::default()), select_capabilities)?,
            mig_config: mig_config.map_or(Ok(false), asks_for_mig)?,
            mig_monitor: mig_monitor.map_or(Ok(false), asks_for_mig)?,
            imex_channels: channels.map_or(Ok(Vec::new()), |said| select_channels(said, &mut left_out))?,
            origin,
            left_out,
        })
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

fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn list<'a>((name, value): Said<'a>) -> Result<impl Iterator<Item = &'a str>, RequestError> {
    if value.len() > VALUE_MAX {
        return Err(RequestError::TooLong { name, bytes: value.len() });
    }
    Ok(words(value))
}

fn select_devices(said: Said<'_>) -> Result<DeviceSelection, RequestError> {
    let words: Vec<&str> = list(said)?.collect();
    if words.is_empty() || words.contains(&"void") {
        return Ok(DeviceSelection::Nothing);
    }
    if words.contains(&"none") {
        return Ok(DeviceSelection::ControlOnly);
    }
    if words.contains(&"all") {
        return Ok(DeviceSelection::All);
    }
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for word in words {
        let name =
            device_name(word).ok_or_else(|| RequestError::UnknownDevice { name: said.0, word: word.to_owned() })?;
        if seen.insert(name.clone()) {
            names.push(name);
        }
    }
    Ok(DeviceSelection::List(names))
}

fn select_capabilities(said: Said<'_>) -> Result<DriverCapabilities, RequestError> {
    let mut selected = DriverCapabilities::empty();
    for word in list(said)? {
        let (_, bits) = CAPABILITY_WORDS
            .iter()
            .find(|(known, _)| *known == word)
            .ok_or_else(|| RequestError::UnknownCapability { name: said.0, word: word.to_owned() })?;
        selected |= *bits;
    }
    Ok(if selected.is_empty() { DriverCapabilities::default() } else { selected })
}

/// Whether a list of GPUs is there at all: the capability to configure or monitor MIG is one device for all GPUs.
fn asks_for_mig(said: Said<'_>) -> Result<bool, RequestError> {
    Ok(!matches!(select_devices(said)?, DeviceSelection::Nothing | DeviceSelection::ControlOnly))
}

/// Channel numbers, sorted. `all` is ignored and said so: the toolkit ignores it as well, and a domain's channels are
/// handed out one by one.
fn select_channels(said: Said<'_>, left_out: &mut Vec<String>) -> Result<Vec<u32>, RequestError> {
    let mut channels = BTreeSet::new();
    for word in list(said)? {
        match word {
            "all" => left_out.push(format!("{}: \"all\" is ignored; name the channels by number", said.0)),
            "void" | "none" => {}
            _ => {
                let channel =
                    decimal(word).ok_or_else(|| RequestError::BadChannel { name: said.0, word: word.to_owned() })?;
                channels.insert(channel);
            }
        }
    }
    left_out.dedup();
    Ok(channels.into_iter().collect())
}

fn device_name(word: &str) -> Option<DeviceName> {
    if let Some(index) = decimal(word) {
        return Some(DeviceName::Index(index));
    }
    if let Some(digits) = word.strip_prefix("GPU-") {
        let good = digits.starts_with(|c: char| c.is_ascii_hexdigit())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        return good.then(|| DeviceName::Uuid(format!("GPU-{}", digits.to_ascii_lowercase())));
    }
    if is_mig(word) {
        return Some(DeviceName::Mig(word.to_owned()));
    }
    pci_address(word).map(DeviceName::Bus)
}

/// `MIG-<uuid>`, the older `MIG-GPU-<uuid>/<gi>/<ci>`, or `<gpu>:<mig>` by index.
fn is_mig(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'/';
    match word.strip_prefix("MIG-") {
        Some(rest) => !rest.is_empty() && rest.bytes().all(plain),
        None => word.split_once(':').is_some_and(|(gpu, mig)| decimal(gpu).is_some() && decimal(mig).is_some()),
    }
}

/// `[domain:]bus:device.function`; the domain has up to eight digits (NVML's form) and is 0 where it is not written.
fn pci_address(word: &str) -> Option<PciAddress> {
    let hex = |digits: &str, longest| {
        let good = (1..=longest).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if good { u32::from_str_radix(digits, 16).ok() } else { None }
    };
    let (slot, function) = word.split_once('.')?;
    let (bus, device) = slot.rsplit_once(':')?;
    let (domain, bus) = bus.rsplit_once(':').unwrap_or(("0", bus));
    let address = PciAddress {
        domain: hex(domain, 8)?,
        bus: u8::try_from(hex(bus, 2)?).ok()?,
        device: u8::try_from(hex(device, 2)?).ok()?,
        function: u8::try_from(hex(function, 1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// Digits only: `str::parse` would take a sign.
fn decimal(word: &str) -> Option<u32> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

/// A wish that has no meaning. `name` is the variable or option that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A word that names no device.
    UnknownDevice {
        /// Variable or option.
        name: &'static str,
        /// The word.
        word: String,
    },
    /// A word that is no driver capability.
    UnknownCapability {
        /// Variable or option.
        name: &'static str,
        /// The word.
        word: String,
    },
    /// A word that is no channel number.
    BadChannel {
        /// Variable or option.
        name: &'static str,
        /// The word.
        word: String,
    },
    /// A value that no program could be started with.
    TooLong {
        /// Variable or option.
        name: &'static str,
        /// Its length.
        bytes: usize,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownDevice { name, word } => write!(
                f,
                "read {name}: {} names no device; allowed are all, none, void, an index (0), a UUID or its beginning \
                 (GPU-5c1f), a bus id (0000:07:00.0), a MIG instance (MIG-... or 0:1)",
                Quoted(word)
            ),
            Self::UnknownCapability { name, word } => {
                write!(f, "read {name}: {} is no driver capability; allowed are ", Quoted(word))?;
                for (position, (known, _)) in CAPABILITY_WORDS.iter().enumerate() {
                    write!(f, "{}{known}", if position == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::BadChannel { name, word } => {
                write!(f, "read {name}: {} is no IMEX channel; allowed are numbers, as in 0,3", Quoted(word))
            }
            Self::TooLong { name, bytes } => {
                write!(f, "read {name}: {bytes} bytes are too long; at most {VALUE_MAX} are allowed")
            }
        }
    }
}

impl std::error::Error for RequestError {}

#[cfg(test)]
mod tests;
