// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook oci STAGE`: an OCI runtime's hook (runtime-spec config.md, "POSIX-platform Hooks"). The state comes on
//! standard input, the request from the bundle's `config.json`. `precreate` is podman's, and gets the spec itself.

use gpuhook_core::cgroup_top::CgroupHint;
use gpuhook_core::config::Config;
use gpuhook_core::oci::{Hook, State};
use gpuhook_core::request::Request;
use gpuhook_linux::filter::Pins;
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::target::{Target, User};
use gpuhook_linux::{detached, files, rootless, systemd};

use crate::args::{Options, Verb, wrong_for};
use crate::failure::Failure;
use crate::flow::{self, Container, Other, Remaining};
use crate::setting::Setting;
use crate::{handback, print_bytes, spec};

/// The manager's name in run state and journal.
const ENGINE: &str = "oci";

/// Runs one stage.
///
/// # Errors
/// Whatever refuses the container's start.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match options.words.first().map(String::as_str) {
        Some("precreate") => print_bytes(&spec::precreate(options)?),
        Some(stage @ ("prestart" | "createRuntime")) => inject(options, stage),
        Some("poststop") => post_stop(),
        Some("createContainer" | "startContainer" | "poststart") => Err(wrong_for(
            Verb::Oci,
            "this stage is no place for gpuhook; register it as precreate, or as createRuntime (or prestart) and poststop",
        )),
        Some(stage) => Err(wrong_for(Verb::Oci, format!("unknown stage {stage:?}"))),
        None => Err(wrong_for(Verb::Oci, "no stage was given")),
    }
}

fn state() -> Result<State, Failure> {
    Ok(State::parse(&files::standard_input(State::LIMIT)?)?)
}

fn inject(options: &Options, stage: &str) -> Result<(), Failure> {
    let state = state()?;
    let pid = state.live_pid()?;
    let spec = files::spec(&state.bundle)?;
    // A container that asks for no GPU is the usual one. It neither waits for the administrator's file nor suffers from
    // its mistakes.
    let request = |file: &Config| Request::from_spec(&options.arguments(), &spec, file);
    if request(&Config::default()).is_ok_and(|request| request.is_nothing()) {
        return Ok(());
    }
    let setting = Setting::new(options)?;
    let request = request(&setting.config)?;
    if request.is_nothing() {
        flow::tell_left_out(ENGINE, &state.id, &request);
        return Ok(());
    }
    let rootfs = spec.rootfs(&state.bundle).ok_or_else(|| Failure::problem("config.json has no root.path"))?;
    let user = User { uid: spec.user.uid, gid: spec.user.gid, groups: spec.user.additional_gids.clone() };
    let target = Target::open(pid)?.with_rootfs(rootfs).with_user(user);
    let hint = CgroupHint::Oci { cgroups_path: spec.cgroups_path.as_deref() };
    let container = Container { engine: ENGINE, id: &state.id, target: &target, hint };
    let remaining = match options.verify {
        false => Remaining::All,
        true if spec::nodes_are_ours(&spec) => Remaining::Nodes,
        true => Remaining::Nothing,
    };
    if remaining == Remaining::All
        && let Some(other) = spec.nvidia_injector()
    {
        // Two injectors on one container undo each other's filters, so the one that the spec names does it alone. A hook
        // has done it by now only where its stage comes before ours.
        let paths = spec.nvidia_devices();
        let has_run = |hook: &Hook| hook.path == other && hook.stage == "prestart";
        let is_done = !paths.is_empty() || stage == "createRuntime" && spec.hooks.iter().any(has_run);
        flow::look(&setting, &container, &request, &Other { name: other, paths: &paths, is_done });
        return Ok(());
    }
    let mut done = flow::complete(&setting, &container, &request, remaining)?;
    // systemd answers in tens of milliseconds, which the start need not wait for.
    if done.filter_changed && handback::concerns_systemd(&done) {
        detached::spawn(|| handback::to_systemd(&state.id, &mut done))?;
    } else if remaining != Remaining::All && systemd::is_running() && rootless::user().is_none() {
        detached::spawn(|| handback::names_to_systemd(&state.id, &mut done))?;
    }
    Ok(())
}

/// Nothing of ours outlives the container.
fn post_stop() -> Result<(), Failure> {
    let state = state()?;
    RunState::lock(ENGINE, &state.id)?.remove();
    if let Some(pins) = Pins::of_container(ENGINE, &state.id) {
        pins.release()?;
    }
    Ok(())
}
