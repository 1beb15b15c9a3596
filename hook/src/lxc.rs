// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook lxc`: which stage LXC calls, and what is done at each.

use std::time::Duration;

use gpuhook_core::cgroup_top::CgroupHint;
use gpuhook_core::config::Config;
use gpuhook_core::container_id::ContainerId;
use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::lxc_config::LxcConfig;
use gpuhook_core::request::Request;
use gpuhook_linux::detached::{self, Settled};
use gpuhook_linux::exec_watch::Held;
use gpuhook_linux::files;
use gpuhook_linux::filter::Pins;
use gpuhook_linux::journal::{self, Priority};
use gpuhook_linux::lxc::LxcContainer;
use gpuhook_linux::run_state::RunState;
use gpuhook_linux::target::{Target, User};

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

/// A container that asks for something.
struct Asked {
    setting: Setting,
    config: LxcConfig,
    request: Request,
}

impl Asked {
    /// The container's config and what it asks for; `None` where that is nothing. Such a container neither waits for the
    /// administrator's file nor suffers from its mistakes.
    fn of(options: &Options, call: &Call) -> Result<Option<Self>, Failure> {
        let config = match &call.config_path {
            Some(path) => files::lxc_config(path)?,
            None => LxcConfig::default(),
        };
        let request = |file: &Config| Request::from_lxc(&options.arguments(), &config, options.opt_in, file);
        if request(&Config::default()).is_ok_and(|request| request.is_nothing()) {
            return Ok(None);
        }
        let setting = Setting::new(options)?;
        let request = request(&setting.config)?;
        if request.is_nothing() {
            flow::tell_left_out(ENGINE, &call.name, &request);
            return Ok(None);
        }
        Ok(Some(Self { setting, config, request }))
    }
}

/// Refuses early and clearly what start-host could not do, and loads what is missing.
fn pre_start(options: &Options, call: &Call) -> Result<(), Failure> {
    let Some(asked) = Asked::of(options, call)? else { return Ok(()) };
    if asked.config.has_legacy_hook() {
        // It opens no device filter, so without gpuhook the container would have nodes that it cannot open.
        let sentence = "duplicate-injection: LXC's hook for NVIDIA brings the same nodes in; hint: remove its line";
        journal::send(Priority::Warning, ENGINE, &call.name, sentence);
    }
    // An earlier life of the container that nobody saw end: without post-stop, or killed there.
    release_pins(call)?;
    let (uid_map, gid_map) = asked.config.idmap()?;
    asked.setting.plan(&ContainerFacts { uid_map, gid_map, ..ContainerFacts::default() }, &asked.request)?;
    if asked.config.registered("start-host") {
        return Ok(());
    }
    // Nobody will call us again before init runs, so a child stays behind that holds init at its exec.
    let monitor = detached::parent();
    let tell = |failure: Failure| journal::send(Priority::Error, ENGINE, &call.name, &failure.to_string());
    detached::spawn_guarded(
        |settled| {
            if let Err(failure) = inject_at_init(options, call, monitor, settled) {
                tell(failure);
            }
        },
        || {
            let ended = Held::at_init(monitor, START_LIMIT).and_then(Held::kill);
            tell(Failure::problem(
                "the process that was to give the container its GPU was killed: the start is refused",
            ));
            if let Err(error) = ended {
                tell(error.into());
            }
        },
    )?;
    Ok(())
}

/// The container stands complete and its init has not run.
fn start_host(options: &Options, call: &Call) -> Result<(), Failure> {
    let Some(asked) = Asked::of(options, call)? else { return Ok(()) };
    let Some(pid) = call.pid else {
        return Err(wrong_for(Verb::Lxc, "start-host without LXC_PID"));
    };
    let done = inject(&asked, call, pid)?;
    hand_back_later(call, done)
}

/// In the child of pre-start: the same as start-host, at init's first instruction.
fn inject_at_init(options: &Options, call: &Call, monitor: u32, settled: Settled) -> Result<(), Failure> {
    let held = match Held::at_init(monitor, START_LIMIT) {
        Ok(held) => held,
        Err(error) => {
            settled.say();
            return Err(error.into());
        }
    };
    let Some(asked) = Asked::of(options, call)? else {
        settled.say();
        return Ok(());
    };
    match inject(&asked, call, held.pid()) {
        Ok(mut done) => {
            drop(held);
            settled.say();
            hand_back(call, &mut done);
        }
        Err(failure) => {
            // LXC can no longer be told to refuse the start, so init ends before its first instruction.
            held.kill()?;
            settled.say();
            return Err(failure);
        }
    }
    // Nobody will call us when the container has stopped.
    if !asked.config.registered("post-stop") {
        RunState::lock(ENGINE, &call.name)?.remove();
    }
    Ok(())
}

fn inject(Asked { setting, config, request }: &Asked, call: &Call, pid: u32) -> Result<Done, Failure> {
    let user = User { uid: config.init_uid()?, gid: config.init_gid()?, groups: Vec::new() };
    let target = Target::open(pid)?.with_user(user);
    let hint = CgroupHint::Lxc { dir_container: config.cgroup_dir_container() };
    flow::inject(setting, &Container { engine: ENGINE, id: &call.name, target: &target, hint }, request)
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
