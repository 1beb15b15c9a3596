// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of LXC's and Proxmox's config files -> lines in LXC's order, through the files that they include. The caller
//! opens the files.

use std::fmt;

use super::{Entry, LxcConfig, Place};
use crate::config_text::grammar::{NoEqualsSign, lxc_line, plain_value, proxmox_line, proxmox_section};
use crate::quoted::Quoted;

/// How deep files may include each other. LXC has no bound and runs out of stack.
const DEPTH_MAX: usize = 16;

/// How many files one config may consist of.
const FILES_MAX: usize = 1024;

/// What stands at a path that a config names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file's bytes.
    File(Vec<u8>),
    /// The names of a directory's entries, in any order.
    Directory(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Grammar {
    /// `key = value`, LXC's own.
    Lxc,
    /// `key: value` with raw LXC lines in between, `/etc/pve/lxc/ID.conf`.
    Proxmox,
}

impl LxcConfig {
    /// The config at `path` with all that it includes; `source` gives the bytes or the listing of a path. Blanks around
    /// key and value do not count, lines that begin with `#` or not with `lxc.` say nothing, `lxc.include` of a
    /// directory reads its `*.conf` (LXC in directory order, here sorted, so that equal files give equal answers).
    ///
    /// # Errors
    ///
    /// Where `source` fails, where a line of a key has no `=` (LXC does not start either), where a file includes
    /// itself, and where includes have no end.
    pub fn read<E>(path: &str, source: &mut dyn FnMut(&str) -> Result<Source, E>) -> Result<Self, LxcConfigError<E>> {
        Self::read_as(path, Grammar::Lxc, source)
    }

    /// A Proxmox config (`/etc/pve/lxc/ID.conf`) up to its first section, with the LXC files that it includes. Proxmox
    /// writes its raw `lxc.*` lines into LXC's config at every start, after its own; a line that it would drop, such as
    /// `key : value`, is passed over.
    ///
    /// # Errors
    ///
    /// As [`LxcConfig::read`].
    pub fn read_proxmox<E>(
        path: &str,
        source: &mut dyn FnMut(&str) -> Result<Source, E>,
    ) -> Result<Self, LxcConfigError<E>> {
        Self::read_as(path, Grammar::Proxmox, source)
    }

    fn read_as<E>(
        path: &str,
        grammar: Grammar,
        source: &mut dyn FnMut(&str) -> Result<Source, E>,
    ) -> Result<Self, LxcConfigError<E>> {
        let mut reader = Reader { source, open: Vec::new(), files: 0, entries: Vec::new() };
        reader.path(path, grammar, None)?;
        Ok(Self { entries: reader.entries })
    }
}

struct Reader<'a, E> {
    source: &'a mut dyn FnMut(&str) -> Result<Source, E>,
    /// The files that are being read, outermost first.
    open: Vec<String>,
    files: usize,
    entries: Vec<Entry>,
}

impl<E> Reader<'_, E> {
    fn path(&mut self, path: &str, grammar: Grammar, from: Option<&Place>) -> Result<(), LxcConfigError<E>> {
        let refuse = |reason| Err(LxcConfigError::Include { path: path.to_owned(), from: from.cloned(), reason });
        if self.open.iter().any(|open| open == path) {
            return refuse("it is being read already, so it includes itself");
        }
        if self.open.len() >= DEPTH_MAX {
            return refuse("files include each other more than 16 deep");
        }
        self.files += 1;
        if self.files > FILES_MAX {
            return refuse("the config consists of more than 1024 files");
        }
        let found = (self.source)(path).map_err(|source| LxcConfigError::Read {
            path: path.to_owned(),
            from: from.cloned(),
            source,
        })?;
        self.open.push(path.to_owned());
        match found {
            Source::File(bytes) => self.file(path, &String::from_utf8_lossy(&bytes), grammar)?,
            Source::Directory(mut names) => {
                names.retain(|name| name.len() > ".conf".len() && name.ends_with(".conf"));
                names.sort();
                for name in names {
                    self.path(&format!("{path}/{name}"), grammar, from)?;
                }
            }
        }
        self.open.pop();
        Ok(())
    }

    fn file(&mut self, path: &str, text: &str, grammar: Grammar) -> Result<(), LxcConfigError<E>> {
        // To LXC a file is a C string: what follows a NUL does not exist (seen with LXC 5.0.2).
        let text = text.split('\0').next().unwrap_or_default();
        for (index, text) in text.split('\n').enumerate() {
            let place = Place { file: path.to_owned(), line: index + 1 };
            let pair = match grammar {
                Grammar::Lxc => match lxc_line(text) {
                    Ok(pair) => pair,
                    Err(NoEqualsSign) => return Err(LxcConfigError::Line { place, text: text.to_owned() }),
                },
                Grammar::Proxmox if proxmox_section(text).is_some() => break,
                Grammar::Proxmox => proxmox_line(text),
            };
            let Some((key, value)) = pair else { continue };
            let value = plain_value(value);
            self.entries.push(Entry { place: place.clone(), key: key.to_owned(), value: value.to_owned() });
            if key == "lxc.include" && !value.is_empty() {
                self.path(value, Grammar::Lxc, Some(&place))?;
            }
        }
        Ok(())
    }
}

/// A config that cannot be read. `E` is the error of the caller who opens the files.
#[derive(Debug)]
pub enum LxcConfigError<E> {
    /// A file or directory could not be opened or read.
    Read {
        /// Its path.
        path: String,
        /// The line that includes it.
        from: Option<Place>,
        /// Why.
        source: E,
    },
    /// An include that has no end.
    Include {
        /// Its path.
        path: String,
        /// The line that includes it.
        from: Option<Place>,
        /// Why not.
        reason: &'static str,
    },
    /// A line of a key without `=`.
    Line {
        /// Where it stands.
        place: Place,
        /// The line.
        text: String,
    },
}

impl<E> fmt::Display for LxcConfigError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, from, .. } | Self::Include { path, from, .. } => {
                write!(f, "read {}", path.escape_debug())?;
                if let Some(place) = from {
                    write!(f, ", which {place} includes")?;
                }
                match self {
                    Self::Include { reason, .. } => write!(f, ": {reason}"),
                    _ => Ok(()),
                }
            }
            Self::Line { place, text } => {
                write!(f, "read {place}: {} is not KEY = VALUE; LXC does not start on it", Quoted(text))
            }
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for LxcConfigError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}
