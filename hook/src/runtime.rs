// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook runtime`: an OCI runtime in front of the real one (opencontainers/runtime-spec, runtime.md). Where a container
//! is to be made, its spec is edited first, and where a running one is to be updated, the new limits keep its rules; then
//! this process becomes runc or crun, whatever the command is.

use std::convert::Infallible;

use gpuhook_core::oci::{RuntimeCall, Spec, keep_rules};
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
    if let (Some(resources), Some(id)) = (&call.resources, &call.id)
        // The same where there is no such container.
        && let Some(bundle) = oci_runtime::bundle(&runtime, &options.passed[..call.global], id)
    {
        update(&format!("{bundle}/config.json"), resources)?;
    }
    Ok(oci_runtime::execute(&runtime, &options.passed)?)
}

/// Lets the limits in the file `resources` keep the rules that the spec at `path` got.
fn update(path: &str, resources: &str) -> Result<(), Failure> {
    let spec = files::spec_bytes(path)?;
    if resources == "-" {
        let bytes = files::standard_input(Spec::LIMIT)?;
        let kept = keep_rules(&spec, &bytes)?;
        return Ok(oci_runtime::give_input(kept.as_deref().unwrap_or(&bytes))?);
    }
    if let Some(bytes) = keep_rules(&spec, &files::spec_bytes(resources)?)? {
        ConfigFile::lock(resources)?.replace(&bytes)?;
    }
    Ok(())
}
