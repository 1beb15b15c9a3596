// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook oci STAGE`: an OCI runtime's hook (runtime-spec config.md, "POSIX-platform Hooks"). The state comes on
//! standard input, the request from the bundle's `config.json`.

use gpuhook_core::cgroup_top::CgroupHint;
use gpuhook_core::oci::State;
use gpuhook_core::request::Request;
use gpuhook_linux::filter::Pins;
use gpuhook_linux::journal::{self, Priority};
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::target::{Target, User};
use gpuhook_linux::{detached, files};

use crate::args::{Options, Verb, wrong_for};
use crate::failure::Failure;
use crate::flow::{self, Container};
use crate::handback;
use crate::setting::Setting;

/// The manager's name in run state and journal.
const ENGINE: &str = "oci";

/// Runs one stage.
///
/// # Errors
/// Whatever refuses the container's start.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match options.words.first().map(String::as_str) {
        Some("prestart" | "createRuntime") => inject(options),
        Some("poststop") => post_stop(),
        Some("createContainer" | "startContainer" | "poststart") => Err(wrong_for(
            Verb::Oci,
            "this stage is no place for gpuhook; register it as createRuntime (or prestart) and poststop",
        )),
        Some(stage) => Err(wrong_for(Verb::Oci, format!("unknown stage {stage:?}"))),
        None => Err(wrong_for(Verb::Oci, "no stage was given")),
    }
}

fn state() -> Result<State, Failure> {
    Ok(State::parse(&files::standard_input(State::LIMIT)?)?)
}

fn inject(options: &Options) -> Result<(), Failure> {
    let state = state()?;
    let pid = state.live_pid()?;
    let spec = files::spec(&state.bundle)?;
    let request = Request::from_spec(&options.arguments(), &spec)?;
    if request.is_nothing() {
        return Ok(());
    }
    if let Some(other) = spec.nvidia_injector() {
        // Two injectors on one container undo each other's filters, so the one that the spec names does it alone.
        journal::send(Priority::Warning, ENGINE, &state.id, &format!("duplicate-injection: {other} injects already"));
        return Ok(());
    }
    let rootfs = spec.rootfs(&state.bundle).ok_or_else(|| Failure::problem("config.json has no root.path"))?;
    let user = User { uid: spec.user.uid, gid: spec.user.gid, groups: spec.user.additional_gids.clone() };
    let target = Target::open(pid)?.with_rootfs(rootfs).with_user(user);
    let hint = CgroupHint::Oci { cgroups_path: spec.cgroups_path.as_deref() };
    let container = Container { engine: ENGINE, id: &state.id, target: &target, hint };
    let mut done = flow::inject(&Setting::new(options)?, &container, &request)?;
    if done.filter_changed {
        // systemd answers in tens of milliseconds, which the start need not wait for.
        detached::spawn(|| handback::to_systemd(&state.id, &mut done))?;
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
