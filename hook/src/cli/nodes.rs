// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook nodes`: loads the driver's modules, and makes or repairs the host's nodes by the live numbers.

use gpuhook_core::facts::{HostFacts, majors};
use gpuhook_core::host_nodes;
use gpuhook_core::plan::missing_modules;
use gpuhook_core::request::{DeviceSelection, Request};
use gpuhook_linux::gather::{self, Wanted};
use gpuhook_linux::modules;
use gpuhook_linux::nodes::{Dev, State};
use serde::Serialize;

use crate::args::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::print;
use crate::setting::Setting;

/// What `--json` prints.
#[derive(Serialize)]
struct Answer {
    nodes: Vec<Node>,
    removed_links: Vec<String>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Node {
    path: String,
    number: String,
    /// What was found.
    found: String,
    /// Whether it is as it should be now.
    right: bool,
}

/// Looks, repairs, and looks again: what was reported as done counts only where it is seen.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let mut problems = Vec::new();
    if !options.check && options.host_root.is_none() && setting.config.load_modules {
        problems.extend(load(&setting)?);
    }
    let host = facts(&setting)?;
    if host.majors.as_ref().is_none_or(|majors| majors.only(majors::NVIDIA_UVM).is_err()) {
        problems.push("nvidia-uvm is not loaded, so its nodes are not made; hint: gpuhook doctor says why".to_owned());
    }
    let wanted = host_nodes::expected(&host)?;
    // Another machine's numbers have no business in this one's /dev.
    let below = options.host_root.as_ref().map(|root| format!("{root}/dev"));
    let dev = Dev::open(options.dev.as_deref().or(below.as_deref())).map_err(Failure::could_not_look)?;
    let mut nodes = Vec::with_capacity(wanted.len());
    for node in &wanted {
        let found = dev.state(node)?;
        if !options.check {
            dev.repair(node)?;
        }
        nodes.push(Node {
            path: node.path.to_string(),
            number: node.id.to_string(),
            found: found.to_string(),
            right: dev.state(node)? == State::Right,
        });
    }
    let removed_links = if options.check { Vec::new() } else { dev.remove_stale_links(&wanted)? };
    let answer = Answer { nodes, removed_links, problems };
    let fine = answer.problems.is_empty() && answer.nodes.iter().all(|node| node.right);
    let text = match options.json {
        true => String::from_utf8_lossy(&json(&answer)?).into_owned(),
        false => answer.to_string(),
    };
    print(&text).map(|()| if fine { Exit::Fine } else { Exit::Problem })
}

fn facts(setting: &Setting) -> Result<HostFacts, Failure> {
    let wanted = Wanted { capabilities: true, instances: true, ..Wanted::default() };
    gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)
}

/// modprobe's word counts for nothing here: what is in `/proc/devices` afterwards does.
fn load(setting: &Setting) -> Result<Vec<String>, Failure> {
    let request = Request { devices: DeviceSelection::ControlOnly, ..Request::default() };
    let majors = facts(setting)?.majors.unwrap_or_default();
    Ok(modules::load(&missing_modules(&majors, &request)))
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Node { path, number, found, right } in &self.nodes {
            let now = match (found == "right", right) {
                (true, _) => "right".to_owned(),
                (false, true) => format!("{found}: repaired"),
                (false, false) => found.clone(),
            };
            writeln!(f, "{path:<44} c {number:<9} {now}")?;
        }
        for link in &self.removed_links {
            writeln!(f, "/dev/char/{link}: a link of an earlier boot, removed")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        Ok(())
    }
}
