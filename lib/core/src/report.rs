// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was done and found, rung by rung: the value that `--json` prints and `/run/gpuhook` keeps.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The ladder of checks; failures below explain failures above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RungName {
    /// Names and majors in `/proc/devices`, driver version.
    L0,
    /// Each node in the container: exists, character device, live number, mode.
    L1,
    /// The device filter: do the programs that apply allow us.
    L2,
    /// `open()` of each node from inside the container's namespaces and cgroup.
    L3,
    /// The container's library against the kernel module.
    L4,
    /// `cuInit(0)` and `cuDeviceGetCount` in the probe.
    L5,
}

/// The answer of one check about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// Which check.
    pub rung: RungName,
    /// The node's path, the module's name, the cgroup or the library that was looked at.
    pub subject: String,
    /// `None`: not looked at, and `explain` says why.
    pub ok: Option<bool>,
    /// The errno's name, `EPERM`, where a system call answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<Cow<'static, str>>,
    /// One sentence that tells an administrator what this means and what helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
}

/// One run for one container: what was planned, done and found. Kept as JSON until the container has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The manager: `lxc` or `oci`.
    pub engine: &'static str,
    /// The container's name or id.
    pub container: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What was planned; `None` where no plan could be made.
    pub plan: Option<Plan>,
    /// What was changed, in order, as sentences.
    pub applied: Vec<String>,
    /// What was found afterwards.
    pub rungs: Vec<Rung>,
    /// Who owns the rules of the device filter afterwards, and what that costs; `None` where nothing was changed, or
    /// nobody knows yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Everything that was asked for is there, and every check that was made says so.
    Full,
    /// It was done, and a check says that something is wrong.
    Partial,
}

impl Rung {
    /// How L1 explains a node that is absent; the doctor knows it by these words.
    pub const ABSENT: &str = "no such node";
    /// How L1 explains a file or directory in a node's place, likewise.
    pub const NOT_A_DEVICE: &str = "no character device";
    /// How L1 explains a node whose group is another one inside, likewise.
    pub const OTHER_GROUP: &str = "is another group in the container";
    /// How L2 explains that a program applies which is not the container's own, likewise.
    pub const OUTSIDE: &str = "it is outside the container";
    /// How L2 explains that nothing filters, likewise.
    pub const NO_FILTER: &str = "no device filter applies: every device is allowed";
    /// How L5 explains that there is no libcuda, likewise.
    pub const NO_LIBRARY: &str = "no usable libcuda.so.1";
    /// How L5 explains that no libcuda could run, likewise.
    pub const NO_LOADER: &str = "no glibc loader";

    /// The check `rung` of `subject` went well.
    pub fn passed(rung: RungName, subject: impl Into<String>) -> Self {
        Self { rung, subject: subject.into(), ok: Some(true), errno: None, explain: None }
    }

    /// The check `rung` of `subject` failed; `explain` says what that means and what helps.
    pub fn failed(rung: RungName, subject: impl Into<String>, explain: impl Into<String>) -> Self {
        Self { rung, subject: subject.into(), ok: Some(false), errno: None, explain: Some(explain.into()) }
    }

    /// Nobody looked, and `why` says why.
    pub fn skipped(rung: RungName, subject: impl Into<String>, why: impl Into<String>) -> Self {
        Self { rung, subject: subject.into(), ok: None, errno: None, explain: Some(why.into()) }
    }

    /// The same with the errno that a system call gave.
    #[must_use]
    pub fn with_errno(self, errno: Option<&'static str>) -> Self {
        Self { errno: errno.map(Cow::Borrowed), ..self }
    }

    /// Whether it says that something is wrong.
    pub fn is_failure(&self) -> bool {
        self.ok == Some(false)
    }
}

impl fmt::Display for Rung {
    /// One line: `L3 failed  /dev/nvidia-uvm  EPERM  the device filter refuses ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.ok {
            Some(true) => "ok",
            Some(false) => "failed",
            None => "-",
        };
        write!(f, "{:?}  {mark:<6}  {}", self.rung, self.subject)?;
        if let Some(errno) = &self.errno {
            write!(f, "  {errno}")?;
        }
        match &self.explain {
            Some(explain) => write!(f, "  {explain}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Full => "everything that was asked for is there",
            Outcome::Partial => "done, but a check failed",
        };
        writeln!(f, "{} {}: {outcome}", self.engine, self.container)?;
        for step in &self.applied {
            writeln!(f, "done   {step}")?;
        }
        for rung in &self.rungs {
            writeln!(f, "{rung}")?;
        }
        match &self.owner {
            Some(owner) => writeln!(f, "{owner}"),
            None => Ok(()),
        }
    }
}
