// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose config a file is, which decides by what grammar it is read.

use std::error::Error;
use std::fmt;

use super::Document;
use super::grammar::{Statement, proxmox_line, proxmox_section};

/// A kind of config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// LXC's own, `/var/lib/lxc/NAME/config`.
    Lxc,
    /// Proxmox's, `/etc/pve/lxc/ID.conf`.
    Proxmox,
    /// The text of `raw.lxc` in Incus and LXD: LXC's grammar, added to the config that they generate.
    Raw,
}

/// What told the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A person.
    Told,
    /// Where the file lies.
    Path,
    /// What stands in it.
    Content,
}

impl Kind {
    /// The word for `--kind`, and the other way round.
    pub const WORDS: [(&'static str, Self); 3] = [("lxc", Self::Lxc), ("pve", Self::Proxmox), ("raw", Self::Raw)];

    /// The kind that a person names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    }

    /// The kind of the config `document` at `path`, and what told it.
    ///
    /// # Errors
    /// It is binary, or no line of it is a config's.
    pub fn of(path: &str, document: &Document, told: Option<Self>) -> Result<(Self, Reason), KindError> {
        if document.is_binary() {
            return Err(KindError::Binary);
        }
        if let Some(kind) = told {
            return Ok((kind, Reason::Told));
        }
        if is_proxmox_path(path) {
            return Ok((Self::Proxmox, Reason::Path));
        }
        if let Some(kind) = by_content(document) {
            return Ok((kind, Reason::Content));
        }
        let says_nothing =
            |text: &str| matches!(Statement::read(Self::Lxc, text), Statement::Blank | Statement::Comment);
        let empty = document.lines().iter().all(|line| says_nothing(&line.text()));
        if empty { Ok((Self::Lxc, Reason::Content)) } else { Err(KindError::NoConfig) }
    }
}

/// Whether it is the file of a container in Proxmox's cluster file system, or a copy of that tree: `/etc/pve/lxc`,
/// `/etc/pve/local/lxc` and `/etc/pve/nodes/NODE/lxc` name the same files.
fn is_proxmox_path(path: &str) -> bool {
    let below = match path.strip_prefix("etc/pve/") {
        Some(below) => below,
        None => match path.split_once("/etc/pve/") {
            Some((_, below)) => below,
            None => return false,
        },
    };
    let Some((directory, name)) = below.rsplit_once('/') else { return false };
    let id = name.strip_suffix(".conf").unwrap_or_default();
    directory.rsplit('/').next() == Some("lxc") && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Proxmox's keys and its colon against LXC's equals sign. A Proxmox file may hold raw lines with `=`, so one key of
/// Proxmox's own decides; a single colon among many equals signs is a slip in an LXC config.
fn by_content(document: &Document) -> Option<Kind> {
    let (mut own, mut colons, mut equals) = (0_usize, 0_usize, 0_usize);
    for line in document.lines() {
        let text = line.text();
        match proxmox_line(&text) {
            Some((key, _)) if !key.starts_with("lxc.") => own += usize::from(is_own_key(key)),
            Some((key, _)) if text[key.len()..].starts_with(':') => colons += 1,
            Some(_) => equals += 1,
            None if proxmox_section(&text).is_some() => own += 1,
            None => equals += usize::from(text.trim_start().starts_with("lxc.")),
        }
    }
    match (own, colons, equals) {
        (0, 0, 0) => None,
        (own, _, _) if own > 0 => Some(Kind::Proxmox),
        (_, colons, equals) if colons > equals => Some(Kind::Proxmox),
        _ => Some(Kind::Lxc),
    }
}

/// Whether Proxmox has a key of this name for containers (pct.conf(5)).
fn is_own_key(key: &str) -> bool {
    const KEYS: &[&str] = &[
        "arch",
        "cmode",
        "console",
        "cores",
        "cpulimit",
        "cpuunits",
        "debug",
        "description",
        "dev",
        "entrypoint",
        "env",
        "features",
        "hookscript",
        "hostname",
        "lock",
        "memory",
        "mp",
        "nameserver",
        "net",
        "onboot",
        "ostype",
        "parent",
        "protection",
        "rootfs",
        "searchdomain",
        "snaptime",
        "startup",
        "swap",
        "tags",
        "template",
        "timezone",
        "tty",
        "unprivileged",
        "unused",
    ];
    KEYS.binary_search(&key.trim_end_matches(|c: char| c.is_ascii_digit())).is_ok()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lxc => "LXC config",
            Self::Proxmox => "Proxmox config",
            Self::Raw => "raw.lxc text",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Told => "by --kind",
            Self::Path => "by its path",
            Self::Content => "by its content; --kind says otherwise",
        })
    }
}

/// Why a file is no config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindError {
    /// A byte of it is no text.
    Binary,
    /// No line reads as a config's.
    NoConfig,
}

impl fmt::Display for KindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "it is binary, and no container's config",
            Self::NoConfig => {
                "no line of it is a container config's; hint: --kind lxc|pve|raw if it is one all the same"
            }
        })
    }
}

impl Error for KindError {}
