// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text that came from a container or a file, made safe to print.

use std::fmt;

/// How many characters of a foreign text are shown.
const SHOWN: usize = 80;

/// A foreign text in double quotes: control characters, line ends, invisible and direction-changing characters are
/// escaped, so that it can neither move a terminal's cursor nor forge a line of a log, and its end is cut off where it
/// is long.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?}... ({} bytes)", &self.0[..end], self.0.len()),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// `text` without line ends and control characters: an error's text may hold what a container wrote.
pub fn one_line(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    };
    text.chars().map(shown).collect()
}

/// `text` as one word of a shell: as it is where nothing in it means anything there, else in single quotes.
pub fn shell_word(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=+@%,".contains(letter);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", one_line(text).replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        for (text, word) in [
            ("/etc/pve/lxc/129.conf", "/etc/pve/lxc/129.conf"),
            ("my file", "'my file'"),
            ("it's", "'it'\\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn foreign_text_cannot_act_on_a_terminal_or_a_log() {
        for (text, shown) in [
            ("all", r#""all""#),
            ("a\x1b[2Jb", r#""a\u{1b}[2Jb""#),
            ("a\nok", r#""a\nok""#),
            ("a\0b", r#""a\0b""#),
            ("say \"x\"", r#""say \"x\"""#),
            ("a\u{202e}b\u{9b}c", r#""a\u{202e}b\u{9b}c""#),
        ] {
            assert_eq!(Quoted(text).to_string(), shown);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let shown = Quoted(&"é".repeat(1 << 20)).to_string();
        assert_eq!(shown, format!("\"{}\"... (2097152 bytes)", "é".repeat(SHOWN)));
    }
}
