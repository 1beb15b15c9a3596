// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a container's config, line by line, with every byte kept: what is not changed is written back as it was
//! read, whatever it is.

pub use self::grammar::Statement;
pub use self::kind::{Kind, KindError, Reason};

pub(crate) mod grammar;
mod kind;
mod proxmox_keys;

/// A file as its lines. Printing what was parsed gives the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    lines: Vec<Line>,
}

/// One line, with its end where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    bytes: Vec<u8>,
}

impl Document {
    /// The lines of `bytes`; only a line feed ends one.
    pub fn parse(bytes: &[u8]) -> Self {
        Self { lines: bytes.split_inclusive(|byte| *byte == b'\n').map(|line| Line { bytes: line.to_vec() }).collect() }
    }

    /// The lines, in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| &line.bytes).copied().collect()
    }

    /// Whether a byte of it shows that it is no text.
    pub fn is_binary(&self) -> bool {
        self.lines.iter().any(|line| line.bytes.contains(&0))
    }

    /// What a line that is added must end with, to look like the others.
    pub fn line_end(&self) -> &'static str {
        let count = |end: &[u8]| self.lines.iter().filter(|line| line.bytes.ends_with(end)).count();
        if count(b"\r\n") * 2 > count(b"\n") { "\r\n" } else { "\n" }
    }

    /// What each line says under `kind`'s grammar, with its number (from 1) and the section that it stands in: none for
    /// the container's own lines.
    pub fn statements(&self, kind: Kind) -> Vec<Placed> {
        let mut section = None;
        let mut placed = Vec::with_capacity(self.lines.len());
        for (index, line) in self.lines.iter().enumerate() {
            let text = line.text();
            let statement = Statement::read(kind, &text);
            if let Statement::Section(name) = &statement {
                section = Some(name.clone());
            }
            placed.push(Placed { line: index + 1, section: section.clone(), text, statement });
        }
        placed
    }
}

impl Line {
    /// A line of one's own.
    pub(crate) fn new(text: &str, end: &str) -> Self {
        Self { bytes: [text.as_bytes(), end.as_bytes()].concat() }
    }

    /// Its bytes, with the end.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its text without the end; bytes that are no UTF-8 are shown as such.
    pub fn text(&self) -> String {
        let bytes = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Whether it ends with a line feed, which only the last line of a file can lack.
    pub fn is_ended(&self) -> bool {
        self.bytes.ends_with(b"\n")
    }
}

/// A line and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The line, from 1.
    pub line: usize,
    /// Proxmox: the snapshot, or `pve:pending`.
    pub section: Option<String>,
    /// The text without its end.
    pub text: String,
    /// What it says.
    pub statement: Statement,
}

#[cfg(test)]
mod tests;
