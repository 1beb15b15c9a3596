// SPDX-License-Identifier: MIT OR Apache-2.0
//! A unified diff (as diff -u and patch(1) have it) of a change that is known line by line.

/// How many unchanged lines surround a change.
const CONTEXT: usize = 3;

/// What becomes of a line, with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Kept(Vec<u8>),
    Removed(Vec<u8>),
    Added(Vec<u8>),
}

impl Change {
    /// The line in the new file.
    pub(super) fn after(&self) -> Option<&[u8]> {
        match self {
            Self::Kept(bytes) | Self::Added(bytes) => Some(bytes),
            Self::Removed(_) => None,
        }
    }

    /// The same with this end in the new file, or without one.
    pub(super) fn with_end(self, end: Option<&str>) -> Vec<Self> {
        let text = |bytes: &[u8]| bytes.strip_suffix(b"\r\n").or(bytes.strip_suffix(b"\n")).unwrap_or(bytes).to_vec();
        let ended = |bytes: &[u8]| [&text(bytes), end.unwrap_or_default().as_bytes()].concat();
        match self {
            Self::Kept(bytes) => vec![Self::Added(ended(&bytes)), Self::Removed(bytes)],
            Self::Added(bytes) => vec![Self::Added(ended(&bytes))],
            Self::Removed(bytes) => vec![Self::Removed(bytes)],
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

/// The diff of `file`; empty where nothing changes.
pub(super) fn unified(changes: &[Change], file: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let (mut old, mut new) = (0, 0);
    let mut index = 0;
    while index < changes.len() {
        let Some(first) = changes[index..].iter().position(|change| !change.is_kept()).map(|first| index + first)
        else {
            break;
        };
        let start = first.saturating_sub(CONTEXT).max(index);
        let mut end = first + 1;
        // Changes whose surroundings touch share a hunk.
        while let Some(next) = changes[end..].iter().position(|change| !change.is_kept()) {
            if next > 2 * CONTEXT {
                break;
            }
            end += next + 1;
        }
        let end = (end + CONTEXT).min(changes.len());
        let passed = start - index;
        (old, new) = (old + passed, new + passed);
        let hunk = &changes[start..end];
        let in_old = hunk.iter().filter(|change| !matches!(change, Change::Added(_))).count();
        let in_new = hunk.iter().filter(|change| change.after().is_some()).count();
        if text.is_empty() {
            text.extend(format!("--- {file}\n+++ {file}\n").into_bytes());
        }
        text.extend(format!("@@ -{} +{} @@\n", range(old, in_old), range(new, in_new)).into_bytes());
        write_hunk(hunk, &mut text);
        (old, new) = (old + in_old, new + in_new);
        index = end;
    }
    text
}

/// Removed lines come before those that take their place.
fn write_hunk(hunk: &[Change], text: &mut Vec<u8>) {
    let mut index = 0;
    while index < hunk.len() {
        let changed = hunk[index..].iter().take_while(|change| !change.is_kept()).count();
        let block = &hunk[index..index + changed];
        for change in block {
            if let Change::Removed(bytes) = change {
                write_line(b'-', bytes, text);
            }
        }
        for change in block {
            if let Change::Added(bytes) = change {
                write_line(b'+', bytes, text);
            }
        }
        if let Some(Change::Kept(bytes)) = hunk.get(index + changed) {
            write_line(b' ', bytes, text);
        }
        index += changed + 1;
    }
}

fn write_line(mark: u8, bytes: &[u8], text: &mut Vec<u8>) {
    text.push(mark);
    text.extend_from_slice(bytes);
    if !bytes.ends_with(b"\n") {
        text.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

/// `first,count`, with the line before where there are none.
fn range(passed: usize, count: usize) -> String {
    match count {
        0 => format!("{passed},0"),
        1 => format!("{}", passed + 1),
        count => format!("{},{count}", passed + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Change {
        Change::Kept(text.as_bytes().to_vec())
    }

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        let mut changes: Vec<Change> = (1..=5).map(|n| kept(&format!("{n}\n"))).collect();
        changes.push(Change::Removed(b"old\n".to_vec()));
        changes.extend((6..=20).map(|n| kept(&format!("{n}\n"))));
        changes.push(Change::Added(b"new".to_vec()));
        changes.push(Change::Removed(b"last".to_vec()));
        let diff = String::from_utf8(unified(&changes, "f")).expect("text");
        assert_eq!(
            diff,
            "--- f\n+++ f\n@@ -3,7 +3,6 @@\n 3\n 4\n 5\n-old\n 6\n 7\n 8\n@@ -19,4 +18,4 @@\n 18\n 19\n 20\n-last\n\
             \\ No newline at end of file\n+new\n\\ No newline at end of file\n"
        );
        assert!(unified(&changes[..4], "f").is_empty());
    }

    #[test]
    fn a_file_that_becomes_empty_or_was_empty_has_a_hunk() {
        let removed = unified(&[Change::Removed(b"a\n".to_vec())], "f");
        assert_eq!(String::from_utf8_lossy(&removed), "--- f\n+++ f\n@@ -1 +0,0 @@\n-a\n");
        let added = unified(&[Change::Added(b"a\n".to_vec())], "f");
        assert_eq!(String::from_utf8_lossy(&added), "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n");
    }
}
