// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `doctor` and `config lint` say: findings with stable ids, and the verdict that sums them up. `docs/findings.md`
//! explains each id.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::quoted::one_line;

/// Declares the ids with their words, once.
macro_rules! finding_ids {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// What was found, as a stable word: scripts compare it, so a word is never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingId {
            $($(#[doc = $doc])* $name,)*
        }

        impl FindingId {
            /// Every id, in the order of `docs/findings.md`.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word that people and scripts see.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

finding_ids! {
    /// A rule for a GPU driver's dynamic number that nobody has today.
    StaleRule = "stale-rule",
    /// A rule whose number belongs to a driver that is no GPU driver today.
    ForeignGrant = "foreign-grant",
    /// A device that the config brings in, or that CUDA needs beside it, which no rule allows.
    MissingRule = "missing-rule",
    /// A rule that opens every device.
    WideGrant = "wide-grant",
    /// A line on which the manager refuses to start the container.
    MalformedRule = "malformed-rule",
    /// A line that the manager drops, at once or when it next writes the file.
    IgnoredLine = "ignored-line",
    /// A well-formed rule without effect where it stands.
    InactiveRule = "inactive-rule",
    /// A rule in an unprivileged container whose manager enforces no device filter.
    UnprivilegedNoop = "unprivileged-noop",
    /// Rules without any line that brings the node in.
    MissingMount = "missing-mount",
    /// A mount whose source is absent or no device.
    MountSource = "mount-source",
    /// A mount whose target is not where the driver's libraries look.
    MountTarget = "mount-target",
    /// A mount option that the mount refuses or ignores.
    MountOption = "mount-option",
    /// A hook that changes owner or mode of the host's nodes.
    HostChown = "host-chown",
    /// An older hook that brings NVIDIA's devices in.
    LegacyHook = "legacy-hook",
    /// Two injectors for one container.
    DuplicateInjection = "duplicate-injection",
    /// A file that its generator overwrites.
    GeneratedFile = "generated-file",

    /// A node that is absent.
    MissingNode = "missing-node",
    /// A node whose number is no longer its driver's.
    StaleNode = "stale-node",
    /// A regular file or a directory in the place of a node.
    NotADevice = "not-a-device",
    /// A node whose owner or mode forbids to open it.
    WrongMode = "wrong-mode",
    /// A node's group that is another group inside the container.
    GroupMismatch = "group-mismatch",
    /// Links in `/dev/char` that are absent or of an earlier boot.
    DevChar = "dev-char",
    /// A udev rule that makes nodes by a name or number that the driver does not have.
    UdevRule = "udev-rule",
    /// GPU nodes whose minors are not the driver's.
    MinorMismatch = "minor-mismatch",
    /// A driver module that is installed and not loaded.
    ModuleNotLoaded = "module-not-loaded",
    /// A driver module that does not exist on this host.
    ModuleAbsent = "module-absent",
    /// No GPU, or no driver.
    NoGpu = "no-gpu",
    /// Two drivers' names that share one major have different ones.
    AmbiguousMajor = "ambiguous-major",
    /// A listing of `/proc/devices` that breaks off before the names that matter.
    IncompleteListing = "incomplete-listing",
    /// A CDI file whose numbers or files are not the host's.
    StaleCdi = "stale-cdi",
    /// A CDI device for which there is no readable spec.
    CdiUnresolvable = "cdi-unresolvable",

    /// The container's own device filter refuses.
    FilterDenies = "filter-denies",
    /// The device filter of a cgroup above the container refuses.
    AncestorDenies = "ancestor-denies",
    /// Rules exist and nothing enforces them.
    FilterAbsent = "filter-absent",
    /// The container's library and the host's module are of different versions.
    LibraryMismatch = "library-mismatch",
    /// The container has no libcuda.
    NoLibcuda = "no-libcuda",
    /// Unified memory fails on host and in container alike.
    Hmm = "hmm",
    /// The fabric manager is not ready.
    FabricManager = "fabric-manager",
    /// The firmware files of this driver version are absent.
    GspFirmware = "gsp-firmware",
    /// The GPU itself has failed.
    GpuFault = "gpu-fault",
    /// The GPU's compute mode keeps others out.
    ComputeMode = "compute-mode",
    /// The host is itself a container.
    Nested = "nested",
    /// The open reached the driver, and the driver refused it.
    DriverRefuses = "driver-refuses",
    /// cuInit reports that a system call was refused.
    RefusedCall = "refused-call",
    /// cuInit reports that the system does not support CUDA.
    NotSupported = "not-supported",
    /// The container loads the compatibility libcuda on a GPU that it does not support.
    CudaCompat = "cuda-compat",
    /// CUDA fails, and nothing that was looked at says why.
    Unexplained = "unexplained",
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Serialize for FindingId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// How much a finding matters; the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A cause: the container does not start, or CUDA does not.
    Error,
    /// A consequence, a risk, or something that only looks as if it worked.
    Warning,
    /// Good to know.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub id: FindingId,
    /// How much it matters.
    pub severity: Severity,
    /// The file that it stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of that file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The config line's text, the node's path or the program's name.
    pub subject: String,
    /// What it means on this host today, in one or two sentences.
    pub explain: String,
    /// What helps; a command where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// A finding about `subject`, which stands in no file and has no cure yet.
    pub fn new(id: FindingId, severity: Severity, subject: impl Into<String>, explain: impl Into<String>) -> Self {
        Self { id, severity, file: None, line: None, subject: subject.into(), explain: explain.into(), fix: None }
    }

    /// The same at a line of a file; line 0 means the file as a whole.
    #[must_use]
    pub fn at(self, file: impl Into<String>, line: usize) -> Self {
        Self { file: Some(file.into()), line: Some(line).filter(|line| *line > 0), ..self }
    }

    /// The same with what helps.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

impl fmt::Display for Finding {
    /// Two to four lines for a terminal, each indented under the first:
    ///
    /// ```text
    /// error  stale-rule  129.conf:14
    ///     lxc.cgroup2.devices.allow: c 504:* rwm
    ///     nobody has 504 today; nvidia-uvm has 509
    ///     fix: gpuhook config migrate --write 129.conf
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = one_line(&self.subject);
        write!(f, "{}  {}", self.severity, self.id)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "  {}:{line}\n    {subject}", one_line(file))?,
            (Some(file), None) => write!(f, "  {}\n    {subject}", one_line(file))?,
            (None, _) => write!(f, "  {subject}")?,
        }
        write!(f, "\n    {}", one_line(&self.explain))?;
        match &self.fix {
            Some(fix) => write!(f, "\n    fix: {}", one_line(fix)),
            None => Ok(()),
        }
    }
}

/// Everything that was found, the gravest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// The answer in one sentence.
    pub verdict: String,
    /// What it rests on.
    pub findings: Vec<Finding>,
}

impl Findings {
    /// Sorts the findings: by severity, then by place, id and subject.
    pub fn new(verdict: impl Into<String>, mut findings: Vec<Finding>) -> Self {
        findings.sort_by(|a, b| Self::key(a).cmp(&Self::key(b)));
        Self { verdict: verdict.into(), findings }
    }

    /// Whether anything is wrong enough for exit code 1.
    pub fn has_problem(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity < Severity::Info)
    }

    fn key(finding: &Finding) -> impl Ord + '_ {
        (finding.severity, &finding.file, finding.line, finding.id, &finding.subject, &finding.explain)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict)?;
        for finding in &self.findings {
            writeln!(f, "\n{finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(line: usize) -> Finding {
        Finding::new(FindingId::StaleRule, Severity::Error, "c 504:* rwm\x1b[2J", "nobody has 504 today")
            .at("129.conf", line)
    }

    #[test]
    fn every_id_has_a_word_of_its_own_in_kebab_case() {
        let mut words: Vec<&str> = FindingId::ALL.iter().map(|id| id.word()).collect();
        assert!(words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!((words.len(), count), (47, 47));
    }

    #[test]
    fn the_gravest_comes_first_and_then_the_file_is_followed() {
        let wide = Finding::new(FindingId::WideGrant, Severity::Warning, "a", "all devices").at("129.conf", 1);
        let note = Finding::new(FindingId::Nested, Severity::Info, "host", "is a container");
        let findings = Findings::new("v", vec![note, wide, stale(14), stale(2)]).findings;
        let order: Vec<_> = findings.iter().map(|finding| (finding.id, finding.line)).collect();
        let stale = FindingId::StaleRule;
        assert_eq!(
            order,
            [(stale, Some(2)), (stale, Some(14)), (FindingId::WideGrant, Some(1)), (FindingId::Nested, None)]
        );
    }

    #[test]
    fn json_and_terminal_say_the_same() {
        let findings = Findings::new("1 line is stale", vec![stale(14).fix("gpuhook config migrate 129.conf")]);
        let json = serde_json::to_string(&findings).expect("plain data");
        assert_eq!(
            json,
            "{\"verdict\":\"1 line is stale\",\"findings\":[{\"id\":\"stale-rule\",\"severity\":\"error\",\
             \"file\":\"129.conf\",\"line\":14,\"subject\":\"c 504:* rwm\\u001b[2J\",\"explain\":\"nobody has 504 \
             today\",\"fix\":\"gpuhook config migrate 129.conf\"}]}"
        );
        assert_eq!(
            findings.to_string(),
            "1 line is stale\n\nerror  stale-rule  129.conf:14\n    c 504:* rwm\\u{1b}[2J\n    nobody has 504 today\n    \
             fix: gpuhook config migrate 129.conf\n"
        );
        assert!(findings.has_problem());
        assert!(!Findings::new("fine", vec![]).has_problem());
    }
}
