// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook lxc`: which stage LXC calls, and what is done at each.

use std::time::Duration;

use gpuhook_core::cgroup_top::CgroupHint;
use gpuhook_core::container_id::ContainerId;
use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::lxc_config::LxcConfig;
use gpuhook_core::plan::{Plan, missing_modules};
use gpuhook_core::request::Request;
use gpuhook_linux::exec_watch::Held;
use gpuhook_linux::filter::Pins;
use gpuhook_linux::journal::{self, Priority};
use gpuhook_linux::lxc::LxcContainer;
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::target::{Target, User};
use gpuhook_linux::{detached, files, modules};

use crate::args::{Options, Verb, wrong_for};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::flow::{self, Container, Done};
use crate::handback;
use crate::setting::Setting;

/// The manager's name in run state and journal.
pub(crate) const ENGINE: &str = "lxc";

/// How long the monitor may take from pre-start to the container's exec of init: it may wait for storage.
const START_LIMIT: Duration = Duration::from_secs(600);

/// One call of the hook, as LXC makes it in either hook version.
struct Call {
    name: ContainerId,
    stage: String,
    config_path: Option<String>,
    pid: Option<u32>,
}

impl Call {
    /// Version 1 says everything in the environment; version 0 appends `NAME lxc STAGE` to the arguments.
    fn new(options: &Options, environment: &Environment) -> Result<Self, Failure> {
        let word = |at: usize| options.words.get(at).cloned();
        let version_1 = environment.get("LXC_HOOK_VERSION") == Some("1");
        let of_environment = |name: &str| environment.get(name).map(str::to_owned);
        let (name, section, stage) = match version_1 && options.words.is_empty() {
            true => (of_environment("LXC_NAME"), of_environment("LXC_HOOK_SECTION"), of_environment("LXC_HOOK_TYPE")),
            false => (word(0), word(1), word(2)),
        };
        let (Some(name), Some(section), Some(stage)) = (name, section, stage) else {
            return Err(wrong_for(
                Verb::Lxc,
                "LXC did not say which container and stage; this command is for lxc.hook.* lines",
            ));
        };
        if section != "lxc" {
            return Err(wrong_for(Verb::Lxc, format!("hook of section {section:?}; gpuhook belongs to section lxc")));
        }
        let Some(name) = ContainerId::new(&name) else {
            return Err(wrong_for(
                Verb::Lxc,
                format!("container name {name:?} is not made of {}", ContainerId::ALLOWED),
            ));
        };
        let pid = environment.get("LXC_PID").and_then(|pid| pid.parse().ok());
        Ok(Self { name, stage, config_path: of_environment("LXC_CONFIG_FILE"), pid })
    }
}

/// Runs one stage.
///
/// # Errors
/// Whatever refuses the container's start.
pub(crate) fn run(options: &Options, environment: &Environment) -> Result<(), Failure> {
    let call = Call::new(options, environment)?;
    match call.stage.as_str() {
        "pre-start" => pre_start(options, &call),
        "start-host" => start_host(options, &call),
        "post-stop" => post_stop(&call),
        // Nothing of ours is left to do when a container stops, is copied or destroyed.
        "stop" | "clone" | "destroy" => Ok(()),
        "pre-mount" | "mount" | "autodev" | "start" => Err(wrong_for(
            Verb::Lxc,
            format!(
                "stage {} comes before the device filter exists; register pre-start, start-host and post-stop \
                 (lxc.include = /usr/share/gpuhook/lxc.conf)",
                call.stage
            ),
        )),
        stage => Err(wrong_for(Verb::Lxc, format!("unknown stage {stage:?}"))),
    }
}

/// The container's config and what it asks for.
fn request(options: &Options, call: &Call) -> Result<(LxcConfig, Request), Failure> {
    let config = match &call.config_path {
        Some(path) => files::lxc_config(path)?,
        None => LxcConfig::default(),
    };
    let request = Request::from_lxc(&options.arguments(), &config, options.opt_in)?;
    Ok((config, request))
}

/// Refuses early and clearly what start-host could not do, and loads what is missing.
fn pre_start(options: &Options, call: &Call) -> Result<(), Failure> {
    let (config, request) = request(options, call)?;
    if request.is_nothing() {
        return Ok(());
    }
    // An earlier life of the container that nobody saw end: without post-stop, or killed there.
    release_pins(call)?;
    let setting = Setting::new(options)?;
    check(&setting, &config, &request)?;
    if config.registered("start-host") {
        return Ok(());
    }
    // Nobody will call us again before init runs, so a child stays behind that holds init at its exec.
    let monitor = detached::parent();
    detached::spawn(|| {
        if let Err(failure) = inject_at_init(options, call, monitor) {
            journal::send(Priority::Error, ENGINE, &call.name, &failure.to_string());
        }
    })?;
    Ok(())
}

/// A plan can be made, after the modules that it needs were loaded.
fn check(setting: &Setting, config: &LxcConfig, request: &Request) -> Result<(), Failure> {
    let mut host = setting.facts(request)?;
    let missing = host.majors.as_ref().map(|majors| missing_modules(majors, request)).unwrap_or_default();
    let mut said = Vec::new();
    if !missing.is_empty() && setting.config.load_modules && setting.driver.is_live() {
        said = modules::load(&missing);
        host = setting.facts(request)?;
    }
    let (uid_map, gid_map) = config.idmap()?;
    let container = ContainerFacts { uid_map, gid_map, ..ContainerFacts::default() };
    match Plan::make(&host, &container, request) {
        Ok(_) => Ok(()),
        Err(error) if said.is_empty() => Err(error.into()),
        Err(error) => Err(Failure::problem(format!("{}; {}", Failure::problem(error), said.join("; ")))),
    }
}

/// The container stands complete and its init has not run.
fn start_host(options: &Options, call: &Call) -> Result<(), Failure> {
    let (config, request) = request(options, call)?;
    if request.is_nothing() {
        return Ok(());
    }
    let Some(pid) = call.pid else {
        return Err(wrong_for(Verb::Lxc, "start-host without LXC_PID"));
    };
    let done = inject(options, call, &config, &request, pid)?;
    hand_back_later(call, done)
}

/// In the child of pre-start: the same as start-host, at init's first instruction.
fn inject_at_init(options: &Options, call: &Call, monitor: u32) -> Result<(), Failure> {
    let held = Held::at_init(monitor, START_LIMIT)?;
    let (config, request) = request(options, call)?;
    match inject(options, call, &config, &request, held.pid()) {
        Ok(mut done) => {
            drop(held);
            hand_back(call, &mut done);
            Ok(())
        }
        Err(failure) => {
            // LXC can no longer be told to refuse the start, so init ends before its first instruction.
            held.kill()?;
            Err(failure)
        }
    }
}

fn inject(options: &Options, call: &Call, config: &LxcConfig, request: &Request, pid: u32) -> Result<Done, Failure> {
    let user = User { uid: config.init_uid()?, gid: config.init_gid()?, groups: Vec::new() };
    let target = Target::open(pid)?.with_user(user);
    let hint = CgroupHint::Lxc { dir_container: config.cgroup_dir_container() };
    flow::inject(&Setting::new(options)?, &Container { engine: ENGINE, id: &call.name, target: &target, hint }, request)
}

/// LXC's monitor answers only after its hooks have returned, so a child waits for that.
fn hand_back_later(call: &Call, mut done: Done) -> Result<(), Failure> {
    if done.filter_changed {
        detached::spawn(|| hand_back(call, &mut done))?;
    }
    Ok(())
}

fn hand_back(call: &Call, done: &mut Done) {
    if done.filter_changed {
        let container = LxcContainer::new(&call.name, call.config_path.as_deref());
        handback::to_lxc(&container, done);
    }
}

/// Nothing of ours outlives the container.
fn post_stop(call: &Call) -> Result<(), Failure> {
    RunState::lock(ENGINE, &call.name)?.remove();
    release_pins(call)
}

/// For when no container of this name runs: one that does would be refused every device whose program is wrapped.
fn release_pins(call: &Call) -> Result<(), Failure> {
    if let Some(pins) = Pins::of_container(ENGINE, &call.name) {
        pins.release()?;
    }
    Ok(())
}
