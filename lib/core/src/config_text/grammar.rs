// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one line says, to LXC (src/lxc/confile.c, `parse_line`) and to Proxmox (PVE::LXC::Config, `parse_pct_config`).

use super::kind::Kind;
use super::proxmox_keys::{self, Validity};

/// What LXC takes away around keys and values (seen with LXC 5.0.2; src/lxc/parse.c).
pub(crate) const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// What a line says to the program that reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Nothing.
    Blank,
    /// A comment; to Proxmox a part of the container's description.
    Comment,
    /// Proxmox: from here on, a snapshot's lines, or those that are pending.
    Section(String),
    /// A key with its value; empty clears what stood before.
    Setting {
        /// The key.
        key: String,
        /// The value without the blanks and the one pair of quotes around it.
        value: String,
    },
    /// The reader drops the line, and Proxmox loses it when it next writes the file.
    Dropped(&'static str),
    /// The container does not start on the line.
    Refused(&'static str),
}

impl Statement {
    /// What `text`, a line without its end, says to the reader of `kind`.
    pub fn read(kind: Kind, text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Blank;
        }
        match kind {
            Kind::Proxmox => Self::proxmox(text),
            Kind::Lxc | Kind::Raw => Self::lxc(text),
        }
    }

    fn lxc(text: &str) -> Self {
        match lxc_line(text) {
            Ok(Some((key, _))) if key.contains(|c: char| c == ':' || c.is_whitespace()) => {
                Self::Refused("LXC wants `key = value`, with `=` right after the key, and does not start on this line")
            }
            Ok(Some((key, value))) => Self::setting(key, value),
            Ok(None) if text.trim_start().starts_with('#') => Self::Comment,
            Ok(None) => Self::Dropped("LXC passes over every line that does not begin with `lxc.`"),
            Err(NoEqualsSign) => Self::Refused("LXC wants `key = value` and does not start on a key without `=`"),
        }
    }

    fn proxmox(text: &str) -> Self {
        if let Some(name) = proxmox_section(text) {
            return Self::Section(name.to_owned());
        }
        if text.starts_with('#') {
            return Self::Comment;
        }
        match proxmox_line(text) {
            None if text.trim_start().to_ascii_lowercase().starts_with("lxc.") => Self::Dropped(
                "Proxmox reads `key: value` or `key = value`, in small letters and without a blank before the key or \
                 the colon; this line it drops",
            ),
            None => Self::Dropped("Proxmox reads no key in this line and drops it"),
            Some((key, value)) => match proxmox_keys::validity(key) {
                Validity::Accepted => Self::setting(key, value),
                Validity::Generated => Self::Dropped("Proxmox writes this key itself and drops it here"),
                Validity::Unknown => Self::Dropped("Proxmox does not know this key among raw lxc.* lines and drops it"),
            },
        }
    }

    fn setting(key: &str, value: &str) -> Self {
        Self::Setting { key: key.to_owned(), value: plain_value(value).to_owned() }
    }
}

/// A value without the blanks and the one pair of quotes around it.
pub(crate) fn plain_value(value: &str) -> &str {
    without_quotes(value.trim_matches(BLANKS))
}

pub(crate) struct NoEqualsSign;

/// Key and value of a line that LXC reads; nothing of one that it passes over.
pub(crate) fn lxc_line(text: &str) -> Result<Option<(&str, &str)>, NoEqualsSign> {
    let text = text.trim_start_matches([' ', '\t']);
    if !text.starts_with("lxc.") {
        return Ok(None);
    }
    let (key, value) = text.split_once('=').ok_or(NoEqualsSign)?;
    Ok(Some((key.trim_end_matches(BLANKS), value)))
}

/// A key, then `:` at once, or for a raw key also `=` after blanks.
pub(crate) fn proxmox_line(text: &str) -> Option<(&str, &str)> {
    let in_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    let (key, rest) = text.split_at(text.find(|c: char| !in_key(c))?);
    let raw = key.strip_prefix("lxc.").is_some_and(|rest| !rest.is_empty());
    let equals = || if raw { rest.trim_start_matches(char::is_whitespace).strip_prefix('=') } else { None };
    let value = rest.strip_prefix(':').or_else(equals)?;
    let own = || key.starts_with(|c: char| c.is_ascii_lowercase()) && !value.trim().is_empty();
    (raw || own()).then_some((key, value))
}

/// The name of the section that a line begins: a snapshot, or `pve:pending`.
pub(crate) fn proxmox_section(text: &str) -> Option<&str> {
    let name = text.strip_prefix('[')?.trim_end().strip_suffix(']')?;
    let first = |c: char| c.is_ascii_alphabetic();
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let snapshot = name.len() > 1 && name.starts_with(first) && name.chars().all(rest);
    (snapshot || name.eq_ignore_ascii_case("pve:pending")).then_some(name)
}

fn without_quotes(value: &str) -> &str {
    let inner = |quote| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}
