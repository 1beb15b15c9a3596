// SPDX-License-Identifier: MIT OR Apache-2.0
//! The variable by which an edited spec tells every other injector to stay away, and what it said before: NVIDIA's runtime
//! and hook pass over a container whose `NVIDIA_VISIBLE_DEVICES` is `void`, as after their own CDI edits.
//!
//! What it said before is kept in the environment of the hook that an edit registers. An image can set variables and
//! annotations, and no hook: so none can undo the `void` of an operator.

use serde_json::value::{RawValue, to_raw_value};

use super::OciError;
use super::object::Object;
use crate::request::VOID;

/// The variable of the hook: empty where the container had none.
const ASKED: &str = "GPUHOOK_ASKED";

/// `ASKED=asked`, for the hook.
pub(super) fn kept(asked: &str) -> String {
    format!("{ASKED}={asked}")
}

/// What a hook with the environment `env` keeps.
pub(super) fn asked(env: &[String]) -> Option<&str> {
    env.iter().find_map(|entry| entry.strip_prefix(ASKED)?.strip_prefix('='))
}

/// Puts [`VOID`] into the spec of a container that is `given` its devices, and what it said before into one that is not.
/// `kept` is what the hook of an earlier edit keeps; what the next one is to keep is returned.
pub(super) fn tell_others(spec: &mut Object<'_>, given: bool, kept: Option<&str>) -> Result<String, OciError> {
    let mut before = String::new();
    spec.update("process", |process| {
        let mut env = process.get::<Option<Vec<Box<RawValue>>>>("env")?.flatten().unwrap_or_default();
        let at = env.iter().rposition(|entry| said(entry).is_some());
        let says = at.and_then(|at| said(&env[at])).unwrap_or_default();
        before = kept.filter(|_| says == VOID.1).unwrap_or(&says).to_owned();
        let new = if given { VOID.1 } else { &before };
        let entry = || to_raw_value(&format!("{}={new}", VOID.0)).map_err(Object::not_json);
        match (at, new) {
            _ if new == says => return Ok(()),
            (Some(at), "") => drop(env.remove(at)),
            (Some(at), _) => env[at] = entry()?,
            (None, _) => env.push(entry()?),
        }
        process.put("env", &env)
    })?;
    Ok(before)
}

/// What `entry` of the environment says, if it is the variable.
fn said(entry: &RawValue) -> Option<String> {
    let entry: String = serde_json::from_str(entry.get()).ok()?;
    let (name, value) = entry.split_once('=')?;
    (name == VOID.0).then(|| value.to_owned())
}

/// Undoes, for a reader of the variables in `env`, what [`tell_others`] did.
pub(super) fn as_asked(env: &mut Vec<(String, String)>, kept: Option<&str>) {
    let Some(kept) = kept else { return };
    if let Some(at) = env.iter().rposition(|(name, _)| name == VOID.0).filter(|at| env[*at].1 == VOID.1) {
        match kept {
            "" => drop(env.remove(at)),
            _ => kept.clone_into(&mut env[at].1),
        }
    }
}
