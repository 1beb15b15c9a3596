// SPDX-License-Identifier: MIT OR Apache-2.0
//! The value of a device rule under LXC's strict grammar (src/lxc/cgroups/cgfsng.c, `device_cgroup_rule_parse`), and what
//! a refused one was meant for.

use std::error::Error;
use std::fmt;

use crate::device::{Access, DeviceId, Major, Minor};

/// Which devices a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `a` alone: every device.
    All,
    /// `c 195:* rwm`.
    Numbers {
        /// A block device's rule; else a character device's.
        block: bool,
        /// `None` is `*`.
        major: Option<Major>,
        /// `None` is `*`.
        minor: Option<Minor>,
        /// What it allows.
        access: Access,
    },
    /// `/dev/nvidia0 rw`: LXC looks the number up at every start (since 4.0.0).
    Path(String),
}

/// Why LXC cannot read a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleError {
    reason: &'static str,
    is_fatal: bool,
}

impl RuleError {
    /// Whether the container does not start, on cgroup2 too. Any other rule that LXC cannot read is passed over there since
    /// LXC 4.0.7 (seen with 5.0.2).
    pub fn is_fatal(self) -> bool {
        self.is_fatal
    }
}

impl From<&'static str> for RuleError {
    fn from(reason: &'static str) -> Self {
        Self { reason, is_fatal: false }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl Error for RuleError {}

impl Rule {
    /// The rule that `value` is to LXC, or why LXC cannot read it.
    ///
    /// # Errors
    /// The sentence that says what is wrong.
    pub fn parse(value: &str) -> Result<Self, RuleError> {
        if value == "a" {
            return Ok(Self::All);
        }
        if let Some(path) = value.strip_prefix('/') {
            let (path, access) = path.split_once(' ').ok_or("a path needs one blank and r, w or m after it")?;
            read_access(access)?;
            return Ok(Self::Path(format!("/{path}")));
        }
        let block = match value.as_bytes().first() {
            Some(b'c') => false,
            Some(b'b') => true,
            Some(b'a') => {
                let reason = "`a` stands alone in LXC: with numbers after it the kernel refuses LXC's program";
                return Err(RuleError { reason, is_fatal: true });
            }
            _ => return Err("a rule begins with a, b or c".into()),
        };
        let rest = value[1..].strip_prefix([' ', '\t']).ok_or("one blank must follow the type")?;
        let (major, rest) = number(rest).ok_or("a major number or `*` must follow the type and one blank")?;
        let rest = rest.strip_prefix(':').ok_or("`:` and a minor number or `*` must follow the major")?;
        let (minor, rest) = number(rest).ok_or("a minor number or `*` must follow the colon")?;
        let rest = rest.strip_prefix([' ', '\t']).ok_or("one blank and r, w or m must follow the numbers")?;
        let access = read_access(rest)?;
        Ok(Self::Numbers { block, major: major.map(Major), minor: minor.map(Minor), access })
    }

    /// Whether it lets `id` be opened for reading and writing; of a path, only where it is `path`.
    pub fn allows(&self, id: DeviceId, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Numbers { block, major, minor, access } => {
                !block
                    && major.is_none_or(|major| major == id.major)
                    && minor.is_none_or(|minor| minor == id.minor)
                    && access.contains(Access::READ | Access::WRITE)
            }
            Self::Path(of) => of == path,
        }
    }

    /// Whether it opens every device of a type; LXC's own `c *:* m` opens none.
    pub fn is_wide(&self) -> bool {
        match self {
            Self::All => true,
            Self::Numbers { major: None, access, .. } => access.intersects(Access::READ | Access::WRITE),
            Self::Numbers { .. } | Self::Path(_) => false,
        }
    }

    /// The major of a character device that it names.
    pub fn character_major(&self) -> Option<Major> {
        match self {
            Self::Numbers { block: false, major, .. } => *major,
            _ => None,
        }
    }
}

/// Up to three of r, w and m; LXC reads no more, so that `rwm # x` passes and `rw # x` does not.
fn read_access(text: &str) -> Result<Access, &'static str> {
    let mut access = Access::empty();
    for letter in text.bytes().take(3) {
        access |= match letter {
            b'r' => Access::READ,
            b'w' => Access::WRITE,
            b'm' => Access::MKNOD,
            _ => return Err("only r, w and m may stand in the first three places of the access"),
        };
    }
    Ok(access)
}

/// `*` or digits, and what follows.
fn number(text: &str) -> Option<(Option<u32>, &str)> {
    if let Some(rest) = text.strip_prefix('*') {
        return Some((None, rest));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok())?;
    Some((Some(number), &text[end..]))
}

/// What somebody wrote behind a rule: `# nvidia-uvm`.
pub(super) fn comment(value: &str) -> &str {
    value.split_once('#').map_or("", |(_, comment)| comment.trim())
}

/// The major that a line was meant for which is no rule, `236:* rwm` or `c  195:* rwm`: its first number before a colon,
/// where access letters follow. Without a colon a number after `c ` counts: `c 195 rwm`.
pub(super) fn meant_major(text: &str) -> Option<Major> {
    let text = text.split('#').next().unwrap_or_default();
    let (_, value) = text.rsplit_once("devices.allow").unwrap_or(("", text));
    let value = value.trim_start_matches([' ', '\t', ':', '=']);
    let words: Vec<&str> = value.split_whitespace().collect();
    let (numbers, access) = match words[..] {
        ["c" | "char", numbers] => (numbers, "r"),
        ["c" | "char", numbers, access] | [numbers, access] => (numbers, access),
        _ => return None,
    };
    if access.is_empty() || access.bytes().any(|letter| !b"rwm".contains(&letter)) {
        return None;
    }
    let major = numbers.split(':').next()?;
    let plain = (1..=4).contains(&major.len()) && major.bytes().all(|byte| byte.is_ascii_digit());
    if plain { major.parse().ok().map(Major) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lxc_reads_a_rule_or_passes_it_over() {
        for (value, good) in [
            ("c 195:* rwm", true),
            ("c 195:* rwm   # nvidia", true),
            ("c 195:255 rw", true),
            ("c 195:255 rwmx", true),
            ("c 195:0 ", true),
            ("c\t195:* r", true),
            ("b 7:* rwm", true),
            ("c *:* m", true),
            ("a", true),
            ("/dev/nvidia0 rw", true),
            ("/dev/nvidia0", false),
            ("/dev/nvidia0 x", false),
            ("a *:* rwm", false),
            ("a ", false),
            ("c", false),
            ("c ", false),
            ("", false),
            ("c 195:* rw # comment", false),
            ("c  195:* rwm", false),
            ("c 195:*  rwm", false),
            ("c 195 rwm", false),
            ("c 195:*", false),
            ("char 195:* rwm", false),
            ("c :* rwm", false),
            ("195:* rwm", false),
            ("c 99999999999:* rwm", false),
            ("c -1:* rwm", false),
            ("é 1:1 r", false),
        ] {
            assert_eq!(Rule::parse(value).is_ok(), good, "{value:?}: {:?}", Rule::parse(value));
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let id = DeviceId::new(509, 0);
        for (value, allows, wide) in [
            ("a", true, true),
            ("c *:* rwm", true, true),
            ("c *:* m", false, false),
            ("b *:* rwm", false, true),
            ("c 509:* rwm", true, false),
            ("c 509:0 rw", true, false),
            ("c 509:1 rw", false, false),
            ("c 509:0 r", false, false),
            ("c 504:* rwm", false, false),
            ("/dev/nvidia-uvm rw", true, false),
            ("/dev/nvidia0 rw", false, false),
        ] {
            let rule = Rule::parse(value).expect(value);
            assert_eq!((rule.allows(id, "/dev/nvidia-uvm"), rule.is_wide()), (allows, wide), "{value}");
        }
    }

    #[test]
    fn what_a_broken_rule_was_meant_for_is_read_from_its_number() {
        for (text, major) in [
            ("236:* rwm", Some(236)),
            ("lxc.cgroup2.devices.allow : c 509:* rwm", Some(509)),
            ("c  195:* rwm", Some(195)),
            ("c 195 rwm", Some(195)),
            ("char 195:* rwm", Some(195)),
            ("c 195:* rw # comment", Some(195)),
            ("lxc.cgroup2.devices.allow: c 195:* rwm", Some(195)),
            ("c ", None),
            ("bind,optional,create=file", None),
            ("net0: name=eth0", None),
            ("a *:* rwm", None),
            ("12345:* r", None),
        ] {
            assert_eq!(meant_major(text), major.map(Major), "{text:?}");
        }
    }
}
