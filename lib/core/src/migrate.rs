// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container's config freed of NVIDIA's device numbers, and nothing else changed: lines are known by what they say,
//! never by where they stand or by a remark beside them.

use std::fmt;

use crate::config_text::{Document, Kind, Line, Statement};
use crate::device_lines::{DeviceLine, DeviceLines, Meaning};
use crate::facts::HostFacts;
use crate::quoted::Quoted;

use self::fate::{Fate, Judge};
use self::selection::Selection;

mod diff;
mod fate;
mod selection;

/// How a config is migrated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigrateOptions<'a> {
    /// Takes out rules, too, whose number is another driver's today.
    pub remove_foreign: bool,
    /// Takes out Proxmox's `dev[n]` entries of NVIDIA's nodes.
    pub dev_entries: bool,
    /// Registers gpuhook by its hook line alone, without an include: the program's path.
    pub pre_start: Option<&'a str>,
    /// The include that registers gpuhook otherwise.
    pub include: &'a str,
}

/// What becomes of one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    old: Vec<Line>,
    /// For each line of `old`, whether it stays.
    stays: Vec<bool>,
    /// The lines that come behind the first `at` of `old`.
    added: Vec<String>,
    at: usize,
    line_end: &'static str,
    /// What a person should know: what was left, and what means more or less than it did.
    pub notes: Vec<Note>,
}

/// A remark, on one line where it is about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line of the old file, from 1.
    pub line: Option<usize>,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl Migration {
    /// What becomes of `document`, which was read as `lines`, on a host that says `facts`.
    pub fn of(lines: &DeviceLines, document: &Document, facts: &HostFacts, options: MigrateOptions<'_>) -> Self {
        let judge = Judge::new(lines, facts, options);
        let mut migration = Self {
            old: document.lines().to_vec(),
            stays: vec![true; document.lines().len()],
            added: Vec::new(),
            at: end_of_own_lines(lines, document),
            line_end: document.line_end(),
            notes: Vec::new(),
        };
        let mut removed: Vec<&DeviceLine> = Vec::new();
        let own = |line: &&DeviceLine| line.file == lines.file && line.section.is_none();
        for line in lines.lines.iter().filter(own) {
            let wrapped =
                line.meaning == Meaning::Options && removed.last().is_some_and(|last| last.line + 1 == line.line);
            let fate = if wrapped { Fate::Remove(None) } else { judge.fate(line) };
            let (remove, note) = match fate {
                Fate::Keep => (false, None),
                Fate::Report(note) => (false, Some(note)),
                Fate::Remove(note) => (true, note),
            };
            if remove {
                removed.push(line);
                if let Some(stays) = migration.stays.get_mut(line.line - 1) {
                    *stays = false;
                }
            }
            migration.notes.extend(note.map(|text| Note { line: Some(line.line), text }));
        }
        // What had no effect is no reason to give the container a GPU.
        if removed.iter().any(|line| line.is_in_force()) && !lines.is_registered() {
            let selection = Selection::of(lines, &removed, facts);
            migration.register(lines.kind, &selection, options);
            migration.indent(lines.kind, &removed);
        }
        migration.notes.extend(judge.included());
        migration.notes.extend(judge.elsewhere(removed.is_empty(), &registration(lines.kind, options)));
        migration
    }

    fn register(&mut self, kind: Kind, selection: &Selection, options: MigrateOptions<'_>) {
        let variables = selection.variables.iter();
        self.added = variables.map(|pair| setting(kind, "lxc.environment", pair)).collect();
        self.added.push(registration(kind, options));
        self.notes.extend(selection.notes.iter().map(|text| Note { line: None, text: text.clone() }));
    }

    /// Raw text stands indented in the YAML that Incus and LXD show.
    fn indent(&mut self, kind: Kind, removed: &[&DeviceLine]) {
        let Some(first) = removed.first().filter(|_| kind == Kind::Raw) else { return };
        let blanks = &first.text[..first.text.len() - first.text.trim_start_matches(' ').len()];
        self.added.iter_mut().for_each(|line| line.insert_str(0, blanks));
    }

    /// Whether the config stays as it is.
    pub fn is_unchanged(&self) -> bool {
        self.added.is_empty() && self.stays.iter().all(|stays| *stays)
    }

    /// The new config.
    pub fn bytes(&self) -> Vec<u8> {
        let changes = self.changes();
        changes.iter().filter_map(|change| change.after()).flatten().copied().collect()
    }

    /// The change as a unified diff of `file`; empty where there is none.
    pub fn diff(&self, file: &str) -> Vec<u8> {
        diff::unified(&self.changes(), file)
    }

    fn changes(&self) -> Vec<diff::Change> {
        use diff::Change;
        let mut changes = Vec::with_capacity(self.old.len() + self.added.len());
        let added = || self.added.iter().map(|text| Change::Added(Line::new(text, self.line_end).bytes().to_vec()));
        for (index, line) in self.old.iter().enumerate() {
            if index == self.at {
                changes.extend(added());
            }
            let bytes = line.bytes().to_vec();
            changes.push(if self.stays[index] { Change::Kept(bytes) } else { Change::Removed(bytes) });
        }
        if self.at >= self.old.len() {
            changes.extend(added());
        }
        // The file's last line ends as the last line did before, and no other line stays without an end.
        let ended = self.old.last().is_none_or(Line::is_ended);
        let last = changes.iter().rposition(|change| change.after().is_some());
        let mut ends = Vec::with_capacity(changes.len());
        for (index, change) in changes.into_iter().enumerate() {
            let must_end = Some(index) != last || ended;
            match change.after().is_some_and(|bytes| bytes.ends_with(b"\n") != must_end) {
                true => ends.extend(change.with_end(must_end.then_some(self.line_end))),
                false => ends.push(change),
            }
        }
        ends
    }
}

/// The line that makes LXC call gpuhook.
fn registration(kind: Kind, options: MigrateOptions<'_>) -> String {
    match options.pre_start {
        Some(program) => setting(kind, "lxc.hook.pre-start", &format!("{program} lxc")),
        None => setting(kind, "lxc.include", options.include),
    }
}

/// A line in the spelling that the kind's own programs use.
fn setting(kind: Kind, key: &str, value: &str) -> String {
    match kind {
        Kind::Proxmox => format!("{key}: {value}"),
        Kind::Lxc | Kind::Raw => format!("{key} = {value}"),
    }
}

/// Behind how many lines the container's own settings end: before a first section, and before the blank lines there.
fn end_of_own_lines(lines: &DeviceLines, document: &Document) -> usize {
    let placed = document.statements(lines.kind);
    let own = placed.iter().take_while(|placed| placed.section.is_none());
    own.filter(|placed| placed.statement != Statement::Blank).last().map_or(0, |placed| placed.line)
}

/// Whether a change to `FILE` since its migration concerned GPU lines only, so that the backup can take its place; what
/// Proxmox does when it writes a file anew (other order, other spelling) does not count.
///
/// # Errors
/// A line that only one of the two has.
pub fn same_apart_from_gpus(kind: Kind, now: &Document, backup: &Document) -> Result<(), String> {
    let (now, backup) = (other_lines(kind, now), other_lines(kind, backup));
    let lost =
        now.iter().find(|line| !backup.contains(line)).or_else(|| backup.iter().find(|line| !now.contains(line)));
    match lost {
        Some((_, line)) => Err(Quoted(line).to_string()),
        None => Ok(()),
    }
}

fn other_lines(kind: Kind, document: &Document) -> Vec<(String, String)> {
    let lines = DeviceLines::read("", kind, document, &std::collections::BTreeMap::new());
    let placed = document.statements(kind);
    let mut others = Vec::new();
    for (line, placed) in lines.lines.iter().zip(placed) {
        let section = placed.section.unwrap_or_default();
        let own = section.is_empty();
        match placed.statement {
            Statement::Blank | Statement::Dropped(_) => {}
            _ if own && fate::is_gpu_line(line) => {}
            Statement::Setting { key, value } => others.push((section, format!("{key}: {value}"))),
            _ => others.push((section, line.text.trim_end().to_owned())),
        }
    }
    others.sort();
    others
}

#[cfg(test)]
mod tests;
