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
//! Different on purpose: a word that nobody knows is an error here also where the toolkit would pass it on.

use std::collections::BTreeSet;

use super::{DeviceName, DeviceSelection, DriverCapabilities, MigName, RequestError};
use crate::facts::PciAddress;

/// The longest value of a variable that a program can be started with, in bytes (`MAX_ARG_STRLEN`,
/// include/uapi/linux/binfmts.h, with pages of 4 KiB).
pub(super) const VALUE_MAX: usize = 128 << 10;

/// The words of `NVIDIA_DRIVER_CAPABILITIES`.
pub(super) const CAPABILITY_WORDS: [(&str, DriverCapabilities); 8] = [
    ("all", DriverCapabilities::all()),
    ("compute", DriverCapabilities::COMPUTE),
    ("compat32", DriverCapabilities::COMPAT32),
    ("graphics", DriverCapabilities::GRAPHICS),
    ("utility", DriverCapabilities::UTILITY),
    ("video", DriverCapabilities::VIDEO),
    ("display", DriverCapabilities::DISPLAY),
    ("ngx", DriverCapabilities::NGX),
];

/// A value with the name of the variable or option that holds it, for messages.
pub(super) type Said<'a> = (&'static str, &'a str);

/// What a list of devices names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) selection: DeviceSelection,
    /// IMEX channels, which CDI and mounts name among the devices.
    pub(super) channels: BTreeSet<u32>,
    /// `management.nvidia.com/gpu=all`.
    pub(super) management: bool,
}

impl From<DeviceSelection> for Devices {
    fn from(selection: DeviceSelection) -> Self {
        Self { selection, channels: BTreeSet::new(), management: false }
    }
}

/// One word of a list of devices.
enum Word {
    All,
    Management,
    Channel(u32),
    Name(DeviceName),
}

pub(super) fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn list<'a>((name, value): Said<'a>) -> Result<impl Iterator<Item = &'a str>, RequestError> {
    if value.len() > VALUE_MAX {
        return Err(RequestError::TooLong { name: name.to_owned(), bytes: value.len() });
    }
    Ok(words(value))
}

/// The devices of a list.
pub(super) fn devices(said: Said<'_>) -> Result<Devices, RequestError> {
    let all: Vec<&str> = list(said)?.collect();
    // These win over the rest of the list, whatever that says.
    for (word, selection) in
        [("void", DeviceSelection::Nothing), ("none", DeviceSelection::ControlOnly), ("all", DeviceSelection::All)]
    {
        if all.contains(&word) {
            return Ok(selection.into());
        }
    }
    let mut chosen = Devices::from(DeviceSelection::Nothing);
    let mut names = Vec::new();
    let mut seen = BTreeSet::new();
    for text in all {
        let unknown = || RequestError::UnknownDevice { name: said.0.to_owned(), word: text.to_owned() };
        match word(text).ok_or_else(unknown)? {
            Word::All => chosen.selection = DeviceSelection::All,
            Word::Management => {
                chosen.selection = DeviceSelection::All;
                chosen.management = true;
            }
            Word::Channel(channel) => {
                chosen.channels.insert(channel);
            }
            Word::Name(name) if seen.insert(name.clone()) => names.push(name),
            Word::Name(_) => {}
        }
    }
    if chosen.selection == DeviceSelection::Nothing {
        chosen.selection = match names.is_empty() {
            true if chosen.channels.is_empty() => DeviceSelection::Nothing,
            true => DeviceSelection::ControlOnly,
            false => DeviceSelection::List(names),
        };
    }
    Ok(chosen)
}

/// Whether the text names something that NVIDIA or we give to CDI, so that it is a wish for us.
pub(super) fn is_cdi_name(text: &str) -> bool {
    kind_and_name(text).is_some()
}

/// `VENDOR/CLASS=NAME`, of the kinds that mean a device of ours.
fn kind_and_name(text: &str) -> Option<(Kind, &str)> {
    let (kind, name) = text.split_once('=')?;
    let kind = match kind {
        "nvidia.com/gpu" | "runtime.nvidia.com/gpu" | "gpuhook.dev/gpu" => Kind::Gpu,
        "management.nvidia.com/gpu" => Kind::Management,
        "nvidia.com/imex-channel" | "runtime.nvidia.com/imex-channel" | "gpuhook.dev/imex-channel" => Kind::Channel,
        _ => return None,
    };
    Some((kind, name))
}

enum Kind {
    Gpu,
    Management,
    Channel,
}

fn word(text: &str) -> Option<Word> {
    let Some((kind, name)) = kind_and_name(text) else { return device_name(text).map(Word::Name) };
    match (kind, name) {
        (Kind::Gpu, "all") => Some(Word::All),
        // The names that nvidia-ctk gives: `0` and `0:1`, or `gpu0` and `mig0:1`, or UUIDs.
        (Kind::Gpu, _) => {
            let plain = ["gpu", "mig"].into_iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
            device_name(plain).map(Word::Name)
        }
        (Kind::Management, "all") => Some(Word::Management),
        (Kind::Management, _) => None,
        (Kind::Channel, _) => decimal(name.strip_prefix("channel").unwrap_or(name)).map(Word::Channel),
    }
}

/// The driver capabilities of a list.
pub(super) fn capabilities(said: Said<'_>) -> Result<DriverCapabilities, RequestError> {
    let mut selected = DriverCapabilities::empty();
    for word in list(said)? {
        let (_, bits) = CAPABILITY_WORDS
            .iter()
            .find(|(known, _)| *known == word)
            .ok_or_else(|| RequestError::UnknownCapability { name: said.0.to_owned(), word: word.to_owned() })?;
        selected |= *bits;
    }
    Ok(if selected.is_empty() { DriverCapabilities::default() } else { selected })
}

/// Whether a list of GPUs is there at all: the capability to configure or monitor MIG is one device for all GPUs.
pub(super) fn asks_for_mig(said: Said<'_>) -> Result<bool, RequestError> {
    Ok(!matches!(devices(said)?.selection, DeviceSelection::Nothing | DeviceSelection::ControlOnly))
}

/// Channel numbers, sorted. `all` is ignored and said so: the toolkit ignores it as well, and a domain's channels are
/// handed out one by one.
pub(super) fn channels(said: Said<'_>, left_out: &mut Vec<String>) -> Result<Vec<u32>, RequestError> {
    let mut channels = BTreeSet::new();
    for word in list(said)? {
        match word {
            "all" => left_out.push(format!("{}: \"all\" is ignored; name the channels by number", said.0)),
            "void" | "none" => {}
            _ => {
                let channel = decimal(word)
                    .ok_or_else(|| RequestError::BadChannel { name: said.0.to_owned(), word: word.to_owned() })?;
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
    if word.starts_with("GPU-") && !word.contains(':') {
        return uuid(word).map(DeviceName::Uuid);
    }
    mig_name(word).map(DeviceName::Mig).or_else(|| PciAddress::parse(word).map(DeviceName::Bus))
}

/// `GPU-` and the beginning of a UUID, in lower case as the driver prints it.
fn uuid(word: &str) -> Option<String> {
    let digits = word.strip_prefix("GPU-")?;
    let is_good = digits.starts_with(|c: char| c.is_ascii_hexdigit())
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_good.then(|| format!("GPU-{}", digits.to_ascii_lowercase()))
}

/// `MIG-GPU-<uuid>/<gi>/<ci>`, `MIG-<uuid>`, `<gpu>:<position>` with an index or a UUID.
fn mig_name(word: &str) -> Option<MigName> {
    if let Some(rest) = word.strip_prefix("MIG-") {
        let parts: Vec<&str> = rest.split('/').collect();
        return match (uuid(parts[0]), &parts[1..]) {
            (Some(gpu), [gpu_instance, compute_instance]) => Some(MigName::Instances {
                gpu,
                gpu_instance: decimal(gpu_instance)?,
                compute_instance: decimal(compute_instance)?,
            }),
            (None, []) => uuid(&format!("GPU-{rest}")).map(|_| MigName::Uuid(word.to_owned())),
            _ => None,
        };
    }
    let (gpu, position) = word.split_once(':')?;
    let position = decimal(position)?;
    let gpu = decimal(gpu).map(DeviceName::Index).or_else(|| uuid(gpu).map(DeviceName::Uuid))?;
    Some(MigName::Position { gpu: Box::new(gpu), position })
}

/// Digits only: `str::parse` would take a sign.
fn decimal(word: &str) -> Option<u32> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
