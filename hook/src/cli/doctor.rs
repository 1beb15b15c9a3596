// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook doctor`: why CUDA fails on this host or in one container, and the command that cures it. It changes nothing.

use gpuhook_core::config::{Policy, VerifyConfig};
use gpuhook_core::device_lines::Meaning;
use gpuhook_core::doctor::{Case, Commands, Diagnosis, Look, Patient};
use gpuhook_core::facts::HostFacts;
use gpuhook_core::facts::surroundings::Surroundings;
use gpuhook_core::lint::{Controller, Host, Lint};
use gpuhook_linux::files;
use gpuhook_linux::gather::{self, Wanted};
use gpuhook_linux::lxc::LxcContainer;
use serde_json::Value;

use crate::args::{Options, Verb, wrong_for};
use crate::cli::inject::{Running, container_id, lxc_container};
use crate::cli::{config, probe};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::setting::Setting;
use crate::{answers_a_terminal, print, progress};

/// Looks everywhere, and prints the diagnosis.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let named = [options.lxc.is_some(), options.pid.is_some(), options.container_config.is_some()];
    if named.into_iter().filter(|named| *named).count() > 1 {
        return Err(wrong_for(Verb::Doctor, "say one of --lxc, --pid and --container-config"));
    }
    let setting = Setting::new(options)?;
    let wanted = Wanted { capabilities: true, instances: true, ..Wanted::default() };
    let mut host = gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?;
    let surroundings = gather::surroundings(&setting.driver, &mut host).map_err(Failure::could_not_look)?;
    let patient = patient(&setting, options)?;
    if patient.is_none() && is_blank(&host, &surroundings) {
        let nothing = format!("{} holds nothing of a GPU driver to judge", setting.driver.path_of(""));
        return Err(Failure::could_not_look(host.warnings.first().cloned().unwrap_or(nothing)));
    }
    let on_host = on_host(&setting, options)?;
    let commands = commands(options, patient.as_ref());
    let case = Case { host: &host, surroundings: &surroundings, on_host, patient, commands };
    let diagnosis = Diagnosis::make(&case);
    let text = match (options.json, answers_a_terminal()) {
        (true, _) => String::from_utf8_lossy(&json(&diagnosis)?).into_owned(),
        (false, true) => diagnosis.coloured(),
        (false, false) => diagnosis.to_string(),
    };
    let warnings = host.warnings.iter().map(|warning| format!("could not read: {warning}\n"));
    let text = if options.json { text } else { text + &warnings.collect::<String>() };
    print(&text).map(|()| if diagnosis.has_cause() { Exit::Problem } else { Exit::Fine })
}

/// The container that was named, or whose answer is in `--probe FILE`.
fn patient(setting: &Setting, options: &Options) -> Result<Option<Patient>, Failure> {
    let earlier = options.probe.as_deref().map(earlier_look).transpose()?;
    let mut patient = match (&options.lxc, options.pid, &options.container_config) {
        (Some(name), ..) => of_lxc(setting, options, name, earlier.is_some())?,
        (_, Some(_), _) => running(setting, options, &Running::find(options, Verb::Doctor)?, earlier.is_some())?,
        (_, _, Some(path)) => {
            let file = path.rsplit('/').next().unwrap_or(path);
            let patient = Patient { name: format!("the container of {file}"), is_lxc: true, ..Patient::default() };
            lint(setting, options, path, setting.driver.is_live(), patient)?
        }
        _ if earlier.is_some() => Patient { name: "what the probe looked at".to_owned(), ..Patient::default() },
        _ => return Ok(None),
    };
    patient.look = earlier.or(patient.look);
    Ok(Some(patient))
}

/// A container of LXC, running or not: without its config there is none.
fn of_lxc(setting: &Setting, options: &Options, name: &str, has_look: bool) -> Result<Patient, Failure> {
    let id = container_id(name)?;
    let lxc = lxc_container(&id);
    let config = config_path(&lxc)?;
    let pid = match (lxc.init_pid(), &config) {
        (Ok(pid), _) => pid,
        (Err(_), Some(_)) => None,
        (Err(error), None) => return Err(Failure::could_not_look(error)),
    };
    let mut patient = match (pid, &config) {
        (Some(_), _) => running(setting, options, &Running::find(options, Verb::Doctor)?, has_look)?,
        (None, Some(_)) => Patient::default(),
        (None, None) => {
            return Err(Failure::could_not_look(format!("there is no LXC container {id}; hint: lxc-ls -f")));
        }
    };
    patient.name = format!("LXC container {id}");
    patient.is_lxc = true;
    match config {
        Some(config) => lint(setting, options, &config, true, patient),
        None => Ok(patient),
    }
}

/// The config that a person edits: Proxmox writes LXC's own anew at each start.
fn config_path(lxc: &LxcContainer) -> Result<Option<String>, Failure> {
    for path in [format!("/etc/pve/lxc/{}.conf", lxc.name()), lxc.config_path()] {
        if files::exists(&path).map_err(Failure::could_not_look)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn running(setting: &Setting, options: &Options, running: &Running, has_look: bool) -> Result<Patient, Failure> {
    let look = match has_look {
        true => None,
        false => {
            progress("asking the container's CUDA, which can take half a minute");
            Some(probe::in_container(setting, options, running)?)
        }
    };
    Ok(Patient { name: format!("process {}", running.target.pid()), look, ..Patient::default() })
}

/// What a report has of a diagnosis that no file of the host says.
pub(crate) struct Evidence {
    /// What was seen from inside the container that was named.
    pub(crate) inside: Option<Look>,
    /// What was seen on the host.
    pub(crate) on_host: Option<Look>,
    /// The path of the container's config.
    pub(crate) config: Option<String>,
}

/// Looks as the diagnosis does.
pub(crate) fn evidence(setting: &Setting, options: &Options) -> Result<Evidence, Failure> {
    let config = match (&options.lxc, &options.container_config) {
        (Some(name), _) => config_path(&lxc_container(&container_id(name)?))?,
        (None, path) => path.clone(),
    };
    let inside = patient(setting, options)?.and_then(|patient| patient.look);
    Ok(Evidence { inside, on_host: on_host(setting, options)?, config })
}

/// Where a report has what was seen on the host.
pub(crate) const HOST_PROBE: &str = "host-probe.json";

/// Opens and cuInit on the host itself; of another machine what its report says.
fn on_host(setting: &Setting, options: &Options) -> Result<Option<Look>, Failure> {
    if let Some(root) = &options.host_root {
        let path = format!("{}/{HOST_PROBE}", root.trim_end_matches('/'));
        return match files::exists(&path).map_err(Failure::could_not_look)? {
            true => earlier_look(&path).map(Some),
            false => Ok(None),
        };
    }
    progress("asking the host's CUDA");
    // Its nodes are compared already.
    let policies = VerifyConfig { l1: Policy::Off, ..setting.config.verify.clone() };
    probe::on_host(setting, options, &policies).map(Some)
}

fn earlier_look(path: &str) -> Result<Look, Failure> {
    let text = files::text(path).map_err(Failure::could_not_look)?;
    let refused =
        |why: String| Failure::could_not_look(format!("{path} is not what `gpuhook probe --json` prints: {why}"));
    let look: Value = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    if look.get("rungs").or(look.get("cuinit")).is_none() {
        return Err(refused("it has neither rungs nor cuinit".to_owned()));
    }
    serde_json::from_value(look).map_err(|error| refused(error.to_string()))
}

/// The patient with what the lint says of its config.
fn lint(
    setting: &Setting,
    options: &Options,
    path: &str,
    is_this_host: bool,
    patient: Patient,
) -> Result<Patient, Failure> {
    let wanted = Wanted { nodes: true, ..Wanted::default() };
    let facts = gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?;
    let host = Host {
        facts: &facts,
        controller: Controller::of_mountinfo(&gather::mountinfo(&setting.driver)),
        nodes_are_whole: setting.driver.is_live(),
    };
    let (lines, reason) = config::read(path, config::kind(options)?, is_this_host)?;
    let has_rules = lines.in_force().any(|line| matches!(line.meaning, Meaning::Rule(_)));
    let brings_nothing = lines.brings_nothing(facts.majors.as_ref());
    let lint = Lint::of(&[(lines, reason)], host);
    let asks_for_nothing = lint.configs.iter().all(|config| config.lines.is_empty());
    Ok(Patient { config: lint.findings.findings, has_rules, brings_nothing, asks_for_nothing, ..patient })
}

fn commands(options: &Options, patient: Option<&Patient>) -> Commands {
    let runs = patient.is_some_and(|patient| patient.look.is_some());
    let container = match (&options.lxc, options.pid) {
        (Some(name), _) if runs => Some(format!("--lxc {name}")),
        (_, Some(pid)) if runs => Some(format!("--pid {pid}")),
        _ => None,
    };
    let mut gpuhook = "gpuhook".to_owned();
    // Another machine's files alone: the commands are for that machine.
    let host_root = options.host_root.as_ref().filter(|_| container.is_some());
    for (option, value) in [("--host-root", host_root), ("--config", options.config.as_ref())] {
        if let Some(value) = value {
            gpuhook.push_str(&format!(" {option} {value}"));
        }
    }
    Commands { gpuhook, container }
}

/// Whether nothing at all is known.
fn is_blank(host: &HostFacts, surroundings: &Surroundings) -> bool {
    host.majors.is_none() && host.driver.is_none() && host.gpus.is_empty() && {
        let Surroundings { modules, log, cdi, dev, nested, .. } = surroundings;
        modules.is_none()
            && log.is_none()
            && cdi.is_empty()
            && dev.nodes.is_empty()
            && dev.absent.is_empty()
            && nested.is_none()
    }
}
