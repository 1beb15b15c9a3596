// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `devices.list` of the v1 devices controller -> what it allows, and the lines that add and remove the rest
//! (security/device_cgroup.c).

use std::fmt;

use crate::device::{Access, DeviceId, DeviceRule, Major, Minor};

/// What one cgroup allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceList {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// `a` or `c`; block devices are left out.
    all: bool,
    major: Option<Major>,
    minor: Option<Minor>,
    access: Access,
}

/// A line of `devices.list` that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddLine(pub String);

impl fmt::Display for OddLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no line of devices.list", self.0)
    }
}

impl std::error::Error for OddLine {}

impl DeviceList {
    /// The list whose text this is. `a *:* rwm` stands for a cgroup that allows by default; what such a one denies is
    /// not in the text.
    ///
    /// # Errors
    /// The first line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, OddLine> {
        let mut entries = Vec::new();
        for line in text.lines() {
            entries.extend(parse_line(line).ok_or_else(|| OddLine(line.to_owned()))?);
        }
        Ok(Self { entries })
    }

    /// Whether the device may be opened in every way that the rule names. The kernel asks for one entry that covers a
    /// whole attempt, so `r` and `w` apart do not allow `rw`.
    pub fn allows(&self, rule: DeviceRule) -> bool {
        self.entries.iter().any(|entry| entry.covers(rule.id) && entry.access.contains(rule.access))
    }

    /// The rules that it does not allow: each is a line for `devices.allow` as it prints.
    pub fn missing(&self, rules: &[DeviceRule]) -> Vec<DeviceRule> {
        rules.iter().copied().filter(|rule| !self.allows(*rule)).collect()
    }

    /// What `devices.deny` has to take back after `rule` was added to this list: all that its own entry of this very
    /// device did not have.
    pub fn added_by(&self, rule: DeviceRule) -> DeviceRule {
        let had = self.entries.iter().filter(|entry| entry.is_exactly(rule.id)).map(|entry| entry.access);
        DeviceRule { access: rule.access.difference(had.fold(Access::empty(), Access::union)), ..rule }
    }
}

impl Entry {
    fn covers(&self, id: DeviceId) -> bool {
        self.all || (self.major.is_none_or(|major| major == id.major) && self.minor.is_none_or(|it| it == id.minor))
    }

    fn is_exactly(&self, id: DeviceId) -> bool {
        !self.all && self.major == Some(id.major) && self.minor == Some(id.minor)
    }
}

/// `Some(None)` for a block device.
fn parse_line(line: &str) -> Option<Option<Entry>> {
    let mut words = line.split(' ');
    let (kind, numbers, letters) = (words.next()?, words.next()?, words.next()?);
    let (major, minor) = numbers.split_once(':')?;
    let (major, minor) = (number(major)?.map(Major), number(minor)?.map(Minor));
    let mut access = Access::empty();
    for letter in letters.chars() {
        access |= match letter {
            'r' => Access::READ,
            'w' => Access::WRITE,
            'm' => Access::MKNOD,
            _ => return None,
        };
    }
    match (kind, words.next()) {
        ("a" | "c", None) => Some(Some(Entry { all: kind == "a", major, minor, access })),
        ("b", None) => Some(None),
        _ => None,
    }
}

/// `Some(None)` for `*`.
fn number(text: &str) -> Option<Option<u32>> {
    if text == "*" { Some(None) } else { text.parse().ok().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Access = Access::READ.union(Access::WRITE);

    fn rule(major: u32, minor: u32, access: Access) -> DeviceRule {
        DeviceRule { id: DeviceId::new(major, minor), access }
    }

    #[test]
    fn one_entry_has_to_cover_the_whole_rule() {
        for (text, allowed) in [
            ("a *:* rwm\n", true),
            ("c *:* m\nb *:* m\nc 195:* rw\n", true),
            ("c 195:0 rwm\n", true),
            ("c *:0 rw\n", true),
            ("c 195:0 r\n", false),
            ("c 195:0 r\nc 195:* w\n", false),
            ("c 195:1 rw\n", false),
            ("b 195:0 rw\n", false),
            ("", false),
        ] {
            assert_eq!(DeviceList::parse(text).unwrap().allows(rule(195, 0, RW)), allowed, "{text:?}");
        }
    }

    #[test]
    fn the_missing_rules_are_the_lines_to_write() {
        let list = DeviceList::parse("c 195:* rw\n").unwrap();
        let missing = list.missing(&[rule(195, 0, RW), rule(509, 0, RW)]);
        assert_eq!(missing.iter().map(ToString::to_string).collect::<Vec<_>>(), ["c 509:0 rw"]);
    }

    #[test]
    fn taking_a_rule_back_leaves_what_was_there_before() {
        let list = DeviceList::parse("c 509:0 r\nc 195:* r\n").unwrap();
        assert_eq!(list.added_by(rule(509, 0, RW)).to_string(), "c 509:0 w");
        assert_eq!(list.added_by(rule(195, 0, RW)).to_string(), "c 195:0 rw");
    }

    #[test]
    fn an_odd_line_is_an_error_that_shows_it() {
        for line in ["c 195 rw", "c 195:0 rwx", "x 1:1 r", "c 195:0 rw extra", "c -1:0 r"] {
            assert_eq!(DeviceList::parse(&format!("a *:* rwm\n{line}\n")), Err(OddLine(line.to_owned())));
        }
    }
}
