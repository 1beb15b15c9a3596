// SPDX-License-Identifier: MIT OR Apache-2.0
//! The durable way into an OCI container: its devices are written into the spec before there is a container, so that
//! the runtime and systemd own the rules. `gpuhook oci precreate` and `gpuhook runtime` share it.

use gpuhook_core::config::Config;
use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::oci::{Spec, SpecEdit, VERIFY};
use gpuhook_core::request::Request;
use gpuhook_linux::nodes::Dev;
use gpuhook_linux::{files, rootless, systemd};

use crate::args::Options;
use crate::environment;
use crate::failure::Failure;
use crate::setting::Setting;

/// What a runtime gives our hooks beyond the time that the administrator gives the probe, in seconds.
const GRACE: u64 = 30;

/// `gpuhook oci precreate`: the spec on standard input; the spec for the runtime.
///
/// # Errors
/// Whatever refuses the container.
pub(crate) fn precreate(options: &Options) -> Result<Vec<u8>, Failure> {
    let bytes = files::standard_input(Spec::LIMIT)?;
    Ok(edited(options, &bytes)?.unwrap_or(bytes))
}

/// The spec in `bytes` with what its container asks for; nothing where it can stay as it is.
///
/// # Errors
/// Whatever refuses the container.
pub(crate) fn edited(options: &Options, bytes: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let spec = Spec::parse(bytes)?;
    // A container that asks for no GPU is the usual one. It neither waits for the administrator's file nor suffers from
    // its mistakes.
    let request = |file: &Config| Request::from_spec(&options.arguments(), &spec, file);
    let asked = match request(&Config::default()).is_ok_and(|request| request.is_nothing()) {
        true => None,
        false => {
            let setting = Setting::new(options)?;
            Some((request(&setting.config)?, setting)).filter(|(request, _)| !request.is_nothing())
        }
    };
    let Some((request, setting)) = asked else {
        // A bundle that asked once, and does no more.
        return spec.is_edited().then(|| Ok(SpecEdit::default().apply(bytes)?)).transpose();
    };
    if spec.nvidia_injector().is_some() {
        return said_at_start(options, &spec, bytes);
    }
    let container =
        ContainerFacts { uid_map: spec.uid_map.clone(), gid_map: spec.gid_map.clone(), ..ContainerFacts::default() };
    let plan = setting.plan(&container, &request)?;
    if systemd::is_running() && rootless::user().is_none() {
        // runc 1.1.3 to 1.1.6 hand systemd only the rules whose link exists (runc issue 3708). Where none can be made,
        // the hook at the start tells systemd the names.
        if let Err(error) = Dev::open(None).and_then(|dev| dev.link_live(plan.devices())) {
            log::debug!("{}", Failure::problem(error));
        }
    }
    let verify = [vec![VERIFY.to_owned()], options.repeated()].concat();
    let nodes = if nodes_are_ours(&spec) { &[] } else { plan.devices() };
    let edit = hooks(verify, vec![VERIFY.to_owned()], time_limit(&setting))?.giving(nodes, &plan.filter().rules);
    Ok(Some(edit.apply(bytes)?))
}

/// Whether our hook makes the nodes at the start: a runtime would bind the host's, under whatever number they have.
pub(crate) fn nodes_are_ours(spec: &Spec) -> bool {
    spec.has_user_namespace() || rootless::user().is_some()
}

/// Somebody else injects into this container: the hook at the start says so, under the container's name.
fn said_at_start(options: &Options, spec: &Spec, bytes: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    if spec.has_own_hook() {
        return Ok(None);
    }
    Ok(Some(hooks(options.repeated(), Vec::new(), GRACE)?.apply(bytes)?))
}

/// After how many seconds a runtime may kill a hook that verifies.
pub(crate) fn time_limit(setting: &Setting) -> u64 {
    setting.config.verify.time_limit.as_secs() + GRACE
}

/// Where this program is, for a hook of it.
pub(crate) fn program() -> Result<String, Failure> {
    let path = environment::program().and_then(|path| path.into_os_string().into_string().ok());
    path.ok_or_else(|| Failure::problem("the path of this program is not known"))
}

/// Our hooks, called with the words `at_start` and `at_end`.
fn hooks<'a>(at_start: Vec<String>, at_end: Vec<String>, time_limit: u64) -> Result<SpecEdit<'a>, Failure> {
    Ok(SpecEdit::hooks(&program()?, [(at_start, time_limit), (at_end, GRACE)]))
}
