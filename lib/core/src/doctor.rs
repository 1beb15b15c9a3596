// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why CUDA fails: everything that is known of a host and of one container -> one cause, what it rests on, what it is
//! not, and the command that cures it.
//!
//! ```text
//! host facts, surroundings ─> driver, nodes, log, cdi ┐
//! ladder of the host       ─> look, cuda              ├─> findings ─> rank ─> Diagnosis
//! ladder of the container  ─> look, cuda              │
//! lint of its config       ───────────────────────────┘
//! ```
//!
//! Each check alone calls what it finds an error; `rank` keeps the one that explains the others.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::HostFacts;
use crate::facts::surroundings::Surroundings;
use crate::findings::Finding;
use crate::report::Rung;

use self::look::Side;
pub use self::look::{group_rung, library_rung};
use self::rank::Source;
pub use self::render::Ladder;

/// CDI files against the host.
mod cdi;
/// What cuInit's code means beside everything else.
mod cuda;
/// Modules, numbers, GPUs.
mod driver;
/// Hooks of podman and CRI-O, one beside the other.
mod injectors;
/// Links by number in `/dev/char`.
mod links;
/// Xid, firmware and version mismatches.
mod log;
/// What the ladder of one side says.
mod look;
/// The host's nodes against the driver's numbers.
mod nodes;
/// The one cause among many findings.
mod rank;
/// The text for a terminal.
mod render;
/// udev rules that make nodes by hand.
mod udev;

/// Everything that is known.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// What the host says of its driver.
    pub host: &'a HostFacts,
    /// What surrounds the driver.
    pub surroundings: &'a Surroundings,
    /// What opens and cuInit said on the host itself; `None` where nobody looked.
    pub on_host: Option<Look>,
    /// The container, where one was named.
    pub patient: Option<Patient>,
    /// How to write commands that help.
    pub commands: Commands,
}

/// One container, running or written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patient {
    /// What to call it: `LXC container 129`.
    pub name: String,
    /// What the ladder said from inside; `None` where nobody looked.
    pub look: Option<Look>,
    /// What the lint says of its config.
    pub config: Vec<Finding>,
    /// Whether its config has device rules.
    pub has_rules: bool,
    /// Its config was written for a GPU, and no line in force brings one in.
    pub brings_nothing: bool,
    /// No line of its config, in force or not, concerns a GPU.
    pub asks_for_nothing: bool,
    /// LXC or Proxmox runs it, which read no CDI file.
    pub is_lxc: bool,
}

/// What the ladder said on one side: what `gpuhook probe --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Every check.
    #[serde(default)]
    pub rungs: Vec<Rung>,
    /// What cuInit returned, where it answered.
    #[serde(default)]
    pub cuinit: Option<i32>,
}

/// The words of commands that help.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// gpuhook with the global options that were given: `gpuhook --config x`.
    pub gpuhook: String,
    /// The container's option, `--lxc 129`; `None` where none runs.
    pub container: Option<String>,
}

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The answer in one sentence.
    pub verdict: String,
    /// The gravest first: at most one cause is an error, but for several lines of one config.
    pub findings: Vec<Finding>,
    /// What it is not, each with the evidence.
    pub ruled_out: Vec<String>,
    /// The checks, side by side.
    pub ladders: Vec<Ladder>,
    /// What cuInit returned, in the container if there is one.
    pub cuinit: Option<i32>,
}

impl Diagnosis {
    /// What `case` comes to.
    pub fn make(case: &Case<'_>) -> Self {
        let mut found: Vec<(Source, Finding)> = Vec::new();
        let mut add =
            |source, findings: Vec<Finding>| found.extend(findings.into_iter().map(|finding| (source, finding)));
        add(Source::Driver, driver::findings(case));
        add(Source::Driver, log::findings(case));
        add(Source::Nodes, nodes::findings(case));
        add(Source::Nodes, udev::findings(case));
        add(Source::Nodes, links::findings(case));
        add(Source::Cdi, cdi::findings(case));
        add(Source::Cdi, injectors::findings(case));
        if let Some(look) = &case.on_host {
            add(Source::Host, look::findings(look, Side::Host, case));
        }
        if let Some(patient) = &case.patient {
            add(Source::Config, patient.config.clone());
            let looks = patient.look.iter().flat_map(|look| look::findings(look, Side::Container, case));
            add(Source::Container, looks.chain(look::filter_absent(patient)).collect());
        }
        let code = cuda::findings(case, &rank::rank(case, found.clone()));
        found.extend(code.map(|finding| (Source::Code, finding)));
        let findings = rank::rank(case, found);
        Self {
            verdict: rank::verdict(case, &findings),
            ruled_out: rank::ruled_out(case, &findings),
            ladders: render::ladders(case),
            cuinit: case.cuinit(),
            findings,
        }
    }

    /// Whether a cause was found.
    pub fn has_cause(&self) -> bool {
        self.findings.iter().any(rank::is_error)
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        render::diagnosis(self, f, render::PLAIN)
    }
}

impl Case<'_> {
    /// What cuInit returned: in the container if there is one, else on the host.
    fn cuinit(&self) -> Option<i32> {
        match &self.patient {
            Some(patient) => patient.look.as_ref()?.cuinit,
            None => self.on_host.as_ref()?.cuinit,
        }
    }

    /// Where the diagnosis looks: `in LXC container 129`.
    fn place(&self) -> String {
        match &self.patient {
            Some(patient) => format!("in {}", patient.name),
            None => "on this host".to_owned(),
        }
    }

    /// The look at what the diagnosis is about.
    fn look(&self) -> Option<&Look> {
        match &self.patient {
            Some(patient) => patient.look.as_ref(),
            None => self.on_host.as_ref(),
        }
    }

    /// A command for the host, or for the host outside where this one is a container.
    fn for_host(&self, command: &str) -> String {
        match self.surroundings.nested {
            Some(_) => format!("outside, on the host of this container: {command}"),
            None => command.to_owned(),
        }
    }

    /// What makes or repairs the host's nodes.
    fn nodes_command(&self) -> String {
        self.for_host(&format!("{} nodes", self.commands.gpuhook))
    }

    /// The version of the loaded module.
    fn version(&self) -> Option<&str> {
        self.host.driver.as_ref()?.version.as_deref()
    }
}

impl Commands {
    /// What brings the nodes and rules into the container.
    fn inject(&self) -> String {
        let container = self.container.as_deref().unwrap_or("(--lxc NAME | --pid PID)");
        format!("{} inject {container}", self.gpuhook)
    }
}
