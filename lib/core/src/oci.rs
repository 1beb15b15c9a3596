// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an OCI runtime hands to a hook: the container's state on stdin, and the spec in the bundle's `config.json`
//! (opencontainers/runtime-spec, runtime.md and config.md). Only what gpuhook needs is read, everything else is passed
//! over, whatever it is.

use std::fmt;

use serde::de::Error as _;

use crate::container_id::ContainerId;
use crate::quoted::Quoted;

pub use self::edit::{NewHook, SpecEdit, VERIFY, keep_rules};
pub use self::runtime_call::RuntimeCall;
pub use self::spec::{Hook, Mount, Namespace, Root, Spec, User};
pub use self::state::State;

mod edit;
mod object;
mod runtime_call;
mod spec;
mod state;
mod void;

/// A state or spec that cannot be used.
#[derive(Debug)]
pub enum OciError {
    /// No bytes, or blanks only. Holds what was read: `state` or `config.json`.
    Empty(&'static str),
    /// More bytes than a state or spec can have.
    TooLong {
        /// `state` or `config.json`.
        what: &'static str,
        /// How many were given.
        bytes: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// Not JSON, or a field of another type than the specification says.
    NotJson {
        /// `state` or `config.json`.
        what: &'static str,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The container's id is absent or could not be a directory's name.
    BadId(String),
    /// The bundle is not an absolute path.
    RelativeBundle(String),
    /// A pid that no process can have.
    BadPid(i64),
    /// No process yet, or no longer. Holds the container's status.
    NoPid(String),
    /// An entry of `process.env` that is not `NAME=VALUE`.
    BadVariable(String),
}

impl fmt::Display for OciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(what) => write!(f, "read {what}: it is empty"),
            Self::TooLong { what, bytes, limit } => write!(f, "read {what}: {bytes} bytes, more than {limit}"),
            Self::NotJson { what, .. } => {
                write!(f, "read {what}: it is not the JSON that the OCI specification defines")
            }
            Self::BadId(id) => {
                write!(f, "read state: the id {} is not {}", Quoted(id), ContainerId::ALLOWED)
            }
            Self::RelativeBundle(bundle) => {
                write!(f, "read state: the bundle {} is not an absolute path", Quoted(bundle))
            }
            Self::BadPid(pid) => write!(f, "read state: no process can have the pid {pid}"),
            Self::NoPid(status) => {
                let status = Quoted(status);
                write!(f, "read state: it names no process (status {status}); register the hook for prestart or ")?;
                f.write_str("createRuntime, where the container's process exists")
            }
            Self::BadVariable(entry) => {
                write!(f, "read config.json: process.env has {}, which is not NAME=VALUE", Quoted(entry))
            }
        }
    }
}

impl std::error::Error for OciError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotJson { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The JSON value in `bytes`, which hold at most `limit`.
fn parse<'a, T: serde::Deserialize<'a>>(what: &'static str, bytes: &'a [u8], limit: usize) -> Result<T, OciError> {
    if bytes.len() > limit {
        return Err(OciError::TooLong { what, bytes: bytes.len(), limit });
    }
    match bytes.trim_ascii_start().first() {
        None => Err(OciError::Empty(what)),
        Some(b'{') => serde_json::from_slice(bytes).map_err(|source| OciError::NotJson { what, source }),
        // serde would take an array's elements for the fields in their order.
        Some(_) => Err(OciError::NotJson { what, source: serde_json::Error::custom("it does not begin with {") }),
    }
}
