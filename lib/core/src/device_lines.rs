// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each line of a container's config means for devices: the reading that `lint` explains and `migrate` acts on.

use std::collections::BTreeMap;

pub use self::mount::MountEntry;
pub use self::node::Node;
pub use self::number::{Grant, misc_name};
pub use self::rule::{Rule, RuleError};
use crate::config_text::{Document, Kind, Statement};
use crate::device::Major;
use crate::lxc_config::command::runs_gpuhook;
use crate::lxc_config::{LxcConfig, clears};

mod mount;
mod node;
mod number;
mod rule;
mod whole;

/// The include that registers gpuhook ends with this, whatever prefix it was installed under.
const REGISTRATION: &str = "/gpuhook/lxc.conf";

/// A config's lines with those of the files that it includes, in the order in which LXC takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLines {
    /// Whose config it is.
    pub kind: Kind,
    /// The file's own name, as it was given.
    pub file: String,
    /// Every line of the file, and every setting of the included files.
    pub lines: Vec<DeviceLine>,
    summary: Summary,
}

/// What is asked of the whole config for each of its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    unfiltered: bool,
    registered: bool,
    nvidia: bool,
    kfd: bool,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLine {
    /// The file that it stands in.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// Proxmox: the snapshot that it belongs to, or `pve:pending`; it is not in force then.
    pub section: Option<String>,
    /// The later line that clears it.
    pub cleared_by: Option<usize>,
    /// What it says.
    pub meaning: Meaning,
}

/// What a line says about devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing.
    Other,
    /// A device rule.
    Rule(RuleLine),
    /// A mount.
    Mount(MountEntry),
    /// Proxmox's `dev[n]`: the device's path.
    Entry(String),
    /// A hook: its stage and its command.
    Hook(String, String),
    /// A variable that the operator gives to the container: its name and its value.
    Variable(String, String),
    /// An included file.
    Include(String),
    /// An included file, and what is not there: the file itself, or one that it includes.
    AbsentInclude(String, String),
    /// The options of the mount entry on the line before, which somebody's editor has wrapped.
    Options,
    /// Proxmox's `lock:`.
    Lock(String),
    /// Half an id map: `u 0 100000 65536`.
    IdMap(String),
    /// The manager drops it, and why.
    Dropped(&'static str),
    /// The manager does not start on it, and why.
    Refused(&'static str),
}

/// A device rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// Written for cgroup v1; else for cgroup2.
    pub v1: bool,
    /// It takes away instead of giving.
    pub deny: bool,
    /// As it is written.
    pub value: String,
    /// The rule, or why LXC cannot read it.
    pub rule: Result<Rule, RuleError>,
}

impl DeviceLines {
    /// Reads `document`, the config `file`; `includes` are the files that its `lxc.include` lines name, as far as they
    /// are known, or the file that is missing for it.
    pub fn read(
        file: &str,
        kind: Kind,
        document: &Document,
        includes: &BTreeMap<String, Result<LxcConfig, String>>,
    ) -> Self {
        let mut reader = Reader::default();
        let mut mount_before = false;
        for placed in document.statements(kind) {
            let wrapped = mount_before && mount::is_options(&placed.text);
            mount_before = matches!(&placed.statement, Statement::Setting { key, .. } if key == "lxc.mount.entry");
            let (key, meaning) = match placed.statement {
                Statement::Dropped(_) if wrapped => (String::new(), Meaning::Options),
                Statement::Dropped(why) => (String::new(), Meaning::Dropped(why)),
                Statement::Refused(why) => (String::new(), Meaning::Refused(why)),
                Statement::Setting { key, value } => {
                    if value.is_empty() && placed.section.is_none() {
                        reader.clear(placed.line, |_, earlier| clears(&key, earlier));
                    }
                    let meaning = meaning(kind, &key, &value);
                    (if value.is_empty() { String::new() } else { key }, meaning)
                }
                Statement::Blank | Statement::Comment | Statement::Section(_) => (String::new(), Meaning::Other),
            };
            let included = match &meaning {
                Meaning::Include(path) if placed.section.is_none() => includes.get(path),
                _ => None,
            };
            let meaning = match (included, meaning) {
                (Some(Err(missing)), Meaning::Include(path)) => Meaning::AbsentInclude(path, missing.clone()),
                (_, meaning) => meaning,
            };
            let line = DeviceLine {
                file: file.to_owned(),
                line: placed.line,
                text: placed.text,
                section: placed.section,
                cleared_by: None,
                meaning,
            };
            reader.push(key, line, placed.line);
            for entry in included.into_iter().flatten().flat_map(|config| &config.entries) {
                if entry.value.is_empty() {
                    reader.clear(placed.line, |_, earlier| clears(&entry.key, earlier));
                    continue;
                }
                let line = DeviceLine {
                    file: entry.place.file.clone(),
                    line: entry.place.line,
                    text: format!("{} = {}", entry.key, entry.value),
                    section: None,
                    cleared_by: None,
                    meaning: meaning_of_lxc(&entry.key, &entry.value),
                };
                reader.push(entry.key.clone(), line, placed.line);
            }
        }
        let mut read = Self { kind, file: file.to_owned(), lines: reader.lines, summary: Summary::default() };
        let summary = Summary {
            unfiltered: read.has_no_filter(),
            registered: read.in_force().any(DeviceLine::is_registration),
            nvidia: read.in_force().any(DeviceLine::is_nvidia),
            kfd: read.nodes().iter().any(|(node, _)| !node.is_nvidia()),
        };
        read.summary = summary;
        read
    }

    /// The files that `document` includes.
    pub fn includes(kind: Kind, document: &Document) -> Vec<String> {
        let lines = Self::read("", kind, document, &BTreeMap::new());
        let paths = lines.in_force().filter_map(|line| match &line.meaning {
            Meaning::Include(path) => Some(path.clone()),
            _ => None,
        });
        paths.collect()
    }

    /// The lines that count: in no section, and not cleared later.
    pub fn in_force(&self) -> impl Iterator<Item = &DeviceLine> {
        self.lines.iter().filter(|line| line.is_in_force())
    }

    /// Whether nothing filters its devices. Proxmox enforces no filter in an unprivileged container
    /// (lxc-pve, config/userns.conf.d/01-pve.conf: `lxc.cgroup2.devices.allow = a`). LXC makes one as soon as there is a
    /// rule, also for an idmapped container (seen with LXC 5.0.2), unless a user other than root starts it; the config
    /// that it includes for idmapped containers has none, and nor has a config without includes and rules.
    pub fn is_unfiltered(&self) -> bool {
        self.summary.unfiltered
    }

    /// Whether the config already calls gpuhook.
    pub fn is_registered(&self) -> bool {
        self.summary.registered
    }

    /// Whether something in force, a dynamic number apart, speaks of NVIDIA's devices.
    pub fn is_nvidia(&self) -> bool {
        self.summary.nvidia
    }

    /// Whether it brings AMD's compute device in.
    pub fn is_kfd(&self) -> bool {
        self.summary.kfd
    }

    fn has_no_filter(&self) -> bool {
        let unprivileged = |line: &DeviceLine| {
            let value = line.text.strip_prefix("unprivileged:").map(str::trim);
            value.is_some_and(|value| ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str()))
        };
        let idmap = |line: &DeviceLine| matches!(line.meaning, Meaning::IdMap(_));
        // `devices.deny = a` alone leaves LXC without a rule to make a program of.
        let rule = |line: &DeviceLine| match line.meaning {
            Meaning::Rule(RuleLine { v1, deny, .. }) => v1 || !deny,
            _ => false,
        };
        match self.kind {
            Kind::Proxmox => self.in_force().any(unprivileged),
            Kind::Lxc if self.file.contains("/.local/share/lxc/") => true,
            Kind::Lxc | Kind::Raw => {
                let whole = self.is_whole() && !self.has_unread_includes();
                (whole || self.in_force().any(idmap)) && !self.in_force().any(rule)
            }
        }
    }

    /// The GPU drivers' nodes that lines in force bring in, each with its line.
    pub fn nodes(&self) -> Vec<(Node, &DeviceLine)> {
        let nodes = self.in_force().filter_map(|line| {
            let node = match &line.meaning {
                Meaning::Mount(entry) => entry.node(),
                Meaning::Entry(path) => Node::of(path),
                _ => None,
            };
            node.map(|node| (node, line))
        });
        nodes.collect()
    }
}

impl DeviceLine {
    /// Whether it counts.
    pub fn is_in_force(&self) -> bool {
        self.section.is_none() && self.cleared_by.is_none()
    }

    /// Whether it makes LXC call gpuhook.
    pub fn is_registration(&self) -> bool {
        match &self.meaning {
            Meaning::Hook(_, command) => runs_gpuhook(command),
            Meaning::Include(path) | Meaning::AbsentInclude(path, _) => path.ends_with(REGISTRATION),
            _ => false,
        }
    }

    /// Whether it speaks of NVIDIA's devices, a dynamic number apart.
    fn is_nvidia(&self) -> bool {
        let nvidia = |path: &str| Node::of(path).is_some_and(|node| node.is_nvidia());
        match &self.meaning {
            Meaning::Rule(RuleLine { rule: Ok(Rule::Path(path)), .. }) => nvidia(path) || self.is_said_to_be_nvidia(),
            Meaning::Rule(_) | Meaning::Dropped(_) | Meaning::Refused(_) => {
                self.meant_major() == Some(number::NVIDIA_MAJOR) || self.is_said_to_be_nvidia()
            }
            Meaning::Mount(entry) => entry.node().is_some_and(|node| node.is_nvidia()),
            Meaning::Entry(path) => nvidia(path),
            Meaning::Hook(_, command) => is_legacy_hook(command) || runs_gpuhook(command),
            Meaning::Variable(name, _) => name.starts_with("NVIDIA_"),
            Meaning::Include(_) | Meaning::AbsentInclude(..) => self.is_registration(),
            Meaning::Other | Meaning::Options | Meaning::Lock(_) | Meaning::IdMap(_) => false,
        }
    }

    /// Whether the words behind the rule say that it was meant for NVIDIA.
    pub fn is_said_to_be_nvidia(&self) -> bool {
        self.comment_names("nvidia") || self.comment_names("uvm")
    }

    /// The character major that it names or was meant to name.
    pub fn meant_major(&self) -> Option<Major> {
        match &self.meaning {
            Meaning::Rule(RuleLine { rule: Ok(rule), .. }) => rule.character_major(),
            Meaning::Rule(_) | Meaning::Dropped(_) | Meaning::Refused(_) => rule::meant_major(&self.text),
            _ => None,
        }
    }

    /// Whether the words behind the rule hold `name`.
    pub fn comment_names(&self, name: &str) -> bool {
        rule::comment(&self.text).to_ascii_lowercase().contains(name)
    }
}

/// Whether a hook's command is one of the two that brought NVIDIA's devices in before: LXC's own
/// (`/usr/share/lxc/hooks/nvidia`), or NVIDIA's prestart hook.
pub(crate) fn is_legacy_hook(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    program.ends_with("/hooks/nvidia") || command.contains("nvidia-container-")
}

#[derive(Default)]
struct Reader {
    lines: Vec<DeviceLine>,
    /// The settings in force so far, which a later line can clear: the line's index and its key.
    live: Vec<(usize, String)>,
}

impl Reader {
    /// Adds a line with the key that it sets, none where it sets nothing; the line `by` of the file holds or includes it.
    fn push(&mut self, key: String, line: DeviceLine, by: usize) {
        // `devices.deny = a` forgets every rule before it (src/lxc/cgroups/cgroup2_devices.c, `bpf_list_add_device`).
        if let Meaning::Rule(RuleLine { v1, deny: true, rule: Ok(Rule::All), .. }) = line.meaning
            && line.section.is_none()
        {
            self.clear(by, |line, _| matches!(line.meaning, Meaning::Rule(RuleLine { v1: of_v1, .. }) if of_v1 == v1));
        }
        if !key.is_empty() && line.section.is_none() {
            self.live.push((self.lines.len(), key));
        }
        self.lines.push(line);
    }

    fn clear(&mut self, by: usize, is_cleared: impl Fn(&DeviceLine, &str) -> bool) {
        let lines = &mut self.lines;
        self.live.retain(|(index, key)| {
            let cleared = is_cleared(&lines[*index], key);
            if cleared {
                lines[*index].cleared_by = Some(by);
            }
            !cleared
        });
    }
}

fn meaning(kind: Kind, key: &str, value: &str) -> Meaning {
    if kind != Kind::Proxmox || key.starts_with("lxc.") {
        return meaning_of_lxc(key, value);
    }
    let number = key.strip_prefix("dev").unwrap_or_default();
    match key {
        "lock" => Meaning::Lock(value.to_owned()),
        _ if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            let path = value.split(',').find_map(|part| {
                part.strip_prefix("path=").or_else(|| Some(part).filter(|part| part.starts_with('/')))
            });
            path.map_or(Meaning::Other, |path| Meaning::Entry(path.to_owned()))
        }
        _ => Meaning::Other,
    }
}

fn meaning_of_lxc(key: &str, value: &str) -> Meaning {
    // An empty value clears; it says nothing itself.
    if value.is_empty() {
        return Meaning::Other;
    }
    let rule = |v1, deny| Meaning::Rule(RuleLine { v1, deny, value: value.to_owned(), rule: Rule::parse(value) });
    match key {
        "lxc.cgroup2.devices.allow" => rule(false, false),
        "lxc.cgroup2.devices.deny" => rule(false, true),
        "lxc.cgroup.devices.allow" => rule(true, false),
        "lxc.cgroup.devices.deny" => rule(true, true),
        "lxc.mount.entry" => Meaning::Mount(MountEntry::parse(value)),
        "lxc.include" => Meaning::Include(value.to_owned()),
        "lxc.idmap" => Meaning::IdMap(value.to_owned()),
        "lxc.environment" | "lxc.environment.hooks" => match value.split_once('=') {
            Some((name, value)) => Meaning::Variable(name.to_owned(), value.to_owned()),
            None => Meaning::Other,
        },
        _ => match key.strip_prefix("lxc.hook.") {
            Some(stage) if stage != "version" => Meaning::Hook(stage.to_owned(), value.to_owned()),
            _ => Meaning::Other,
        },
    }
}
