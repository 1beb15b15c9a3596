// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook runtime`: an OCI runtime in front of the real one (opencontainers/runtime-spec, runtime.md). Where a container
//! is to be made, its spec is edited first; then this process becomes runc or crun, whatever the command is.

use std::convert::Infallible;

use gpuhook_core::oci::RuntimeCall;
use gpuhook_core::quoted::one_line;
use gpuhook_linux::config_file::ConfigFile;
use gpuhook_linux::{files, oci_runtime};

use crate::args::Options;
use crate::failure::Failure;
use crate::spec;

/// Edits, and becomes the runtime.
///
/// # Errors
/// Whatever refuses the container; it is in the runtime's log already, where the engine looks.
pub(crate) fn run(options: &Options) -> Result<Infallible, Failure> {
    let words: Vec<String> = options.passed.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let call = RuntimeCall::parse(&words);
    become_runtime(options, &call).inspect_err(|failure| {
        if let Some(log) = &call.log {
            oci_runtime::log(log, &call.log_line(&one_line(&format!("gpuhook: {failure}"))));
        }
    })
}

fn become_runtime(options: &Options, call: &RuntimeCall) -> Result<Infallible, Failure> {
    let config = files::config(options.config.as_deref())?;
    let runtime = oci_runtime::find(&config.runtime)?;
    if let Some(path) = &call.spec
        // Where there is no spec, the runtime says it in its own words.
        && files::exists(path)?
        && let Some(bytes) = spec::edited(options, &files::spec_bytes(path)?)?
    {
        ConfigFile::lock(path)?.replace(&bytes)?;
    }
    Ok(oci_runtime::execute(&runtime, &options.passed)?)
}
