// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wishes that have no meaning.

use std::fmt;

use super::select::{CAPABILITY_WORDS, VALUE_MAX};
use crate::quoted::Quoted;

/// A wish that has no meaning. `name` is the variable or option that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A word that names no device.
    UnknownDevice {
        /// Variable or option.
        name: String,
        /// The word.
        word: String,
    },
    /// A word that is no driver capability.
    UnknownCapability {
        /// Variable or option.
        name: String,
        /// The word.
        word: String,
    },
    /// A word that is no channel number.
    BadChannel {
        /// Variable or option.
        name: String,
        /// The word.
        word: String,
    },
    /// A constraint of `NVIDIA_REQUIRE_*` that says nothing.
    BadConstraint {
        /// Variable.
        name: String,
        /// The constraint.
        word: String,
    },
    /// A value that no program could be started with.
    TooLong {
        /// Variable or option.
        name: String,
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
                 (GPU-5c1f), a bus id (0000:07:00.0), a MIG device (0:1, GPU-5c1f:1, MIG-GPU-5c1f/1/0), a CDI name of \
                 these (nvidia.com/gpu=0)",
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
            Self::BadConstraint { name, word } => write!(
                f,
                "read {name}: {} is no constraint as in cuda>=12.4; hint: NVIDIA_DISABLE_REQUIRE=1 passes over them",
                Quoted(word)
            ),
            Self::TooLong { name, bytes } => {
                write!(f, "read {name}: {bytes} bytes are too long; at most {VALUE_MAX} are allowed")
            }
        }
    }
}

impl std::error::Error for RequestError {}
