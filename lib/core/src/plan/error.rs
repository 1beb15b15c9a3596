// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why no plan can be made: what the host lacks, what it has instead, and what helps.

use std::error::Error;
use std::fmt;

use crate::facts::majors::MajorError;
use crate::quoted::Quoted;

/// Why no plan can be made. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// `/proc/devices` was not there to read.
    MajorsUnknown,
    /// A driver that the request needs has no usable number.
    Major(MajorError),
    /// The driver is loaded and lists no GPU.
    NoGpu,
    /// No GPU answers to this name.
    UnknownGpu {
        /// The word, as asked.
        asked: String,
        /// What there is.
        exist: Vec<String>,
    },
    /// The beginning of a UUID fits several GPUs.
    AmbiguousGpu {
        /// The word, as asked.
        asked: String,
        /// The GPUs that it fits.
        matches: Vec<String>,
    },
    /// No MIG device is known by this UUID.
    NoMigUuid {
        /// The UUID, as asked.
        asked: String,
        /// The UUIDs that are known.
        exist: Vec<String>,
        /// Why none could be.
        problem: Option<String>,
    },
    /// The GPU has no such MIG device.
    NoMigDevice {
        /// The name, as asked.
        asked: String,
        /// The GPU, by its index.
        gpu: usize,
        /// What there is on it.
        exist: Vec<String>,
    },
    /// The image needs another driver or GPU.
    Unmet {
        /// The variable that says so.
        name: String,
        /// What it says.
        text: String,
        /// What the host has.
        has: String,
    },
    /// The driver has no such capability file.
    NoCapability(&'static str),
    /// The channel is beyond those that the driver registered.
    NoImexChannel {
        /// The channel, as asked.
        channel: u32,
        /// How many the driver has.
        count: u32,
    },
}

impl From<MajorError> for PlanError {
    fn from(error: MajorError) -> Self {
        Self::Major(error)
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MajorsUnknown => {
                f.write_str("the host's /proc/devices cannot be read; hint: mount -t proc proc /proc")
            }
            Self::Major(_) => f.write_str("find the driver's device numbers"),
            Self::NoGpu => f.write_str(
                "the NVIDIA driver is loaded and lists no GPU; hint: dmesg | grep -e NVRM -e Xid, and lspci -d 10de:",
            ),
            Self::UnknownGpu { asked, exist } => write!(
                f,
                "no GPU {asked} on this host; it has {}; hint: nvidia-smi -L lists them with their UUIDs",
                list(exist)
            ),
            Self::AmbiguousGpu { asked, matches } => {
                write!(f, "{asked} is the beginning of more than one UUID: {}; hint: write more of it", list(matches))
            }
            Self::NoMigUuid { asked, problem: Some(problem), .. } => write!(
                f,
                "MIG device {}: only nvidia-smi tells which one has this UUID, the kernel does not: {problem}; hint: write \
                 it as GPU:POSITION (0:1) or as MIG-GPU-<uuid>/<gi>/<ci>, which need no nvidia-smi",
                Quoted(asked)
            ),
            Self::NoMigUuid { asked, exist, .. } => write!(
                f,
                "no MIG device has the UUID {} now; this host has {}; hint: nvidia-smi -L lists them, and a device that is \
                 made anew can get another",
                Quoted(asked),
                list(exist)
            ),
            Self::NoMigDevice { asked, gpu, exist } => write!(
                f,
                "no MIG device {asked}; GPU {gpu} has {}; hint: nvidia-smi mig -lci lists the instances",
                list(exist)
            ),
            Self::Unmet { name, text, has } => write!(
                f,
                "the image needs {name}={}, and this host has {has}; hint: a newer driver or an older image, or \
                 NVIDIA_DISABLE_REQUIRE=1 to try it",
                Quoted(text)
            ),
            Self::NoCapability(name) => write!(
                f,
                "the driver has no /proc/driver/nvidia/capabilities/{name}; \
                 hint: only GPUs with MIG have it, nvidia-smi -q shows whether this one has"
            ),
            Self::NoImexChannel { channel, count } => write!(
                f,
                "no IMEX channel {channel}: the driver registered {count}, numbered from 0; \
                 hint: the count is the nvidia module's parameter NVreg_ImexChannelCount"
            ),
        }
    }
}

fn list(items: &[String]) -> String {
    match items {
        [] => "none".to_owned(),
        items => items.join(", "),
    }
}

impl Error for PlanError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Major(source) => Some(source),
            _ => None,
        }
    }
}
