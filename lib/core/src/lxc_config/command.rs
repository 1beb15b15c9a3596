// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which program a hook's line runs. LXC hands the line to a shell as `exec LINE` (src/lxc/utils.c, `run_script_argv`).

/// Whether the shell would run `gpuhook lxc`, under whatever directory: `gpuhook` as the first word after `exec`, `env`
/// and assignments, `lxc` as its first argument after the global options.
pub(crate) fn runs_gpuhook(line: &str) -> bool {
    let words = shell_words(line);
    let mut words = words
        .iter()
        .map(String::as_str)
        .skip_while(|word| matches!(*word, "exec" | "env" | "/usr/bin/env") || is_assignment(word));
    if words.next().and_then(|program| program.rsplit('/').next()) != Some("gpuhook") {
        return false;
    }
    while let Some(word) = words.next() {
        match word {
            "--config" | "--host-root" => {
                words.next();
            }
            _ if word.starts_with('-') => {}
            _ => return word == "lxc",
        }
    }
    false
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// The words of the first command of a line, with the shell's three kinds of quotes taken away. Nothing is expanded: a
/// word with `$` stays as it stands.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' => words.extend(word.take()),
            '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
            '#' if word.is_none() => break,
            '\\' => word.get_or_insert_default().extend(characters.next()),
            '\'' => word.get_or_insert_default().extend(characters.by_ref().take_while(|quoted| *quoted != '\'')),
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(quoted) = characters.next() {
                    match quoted {
                        '"' => break,
                        '\\' => word.extend(characters.next()),
                        _ => word.push(quoted),
                    }
                }
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_runs_gpuhook_lxc_is_recognised() {
        for (line, runs) in [
            ("gpuhook lxc", true),
            ("/usr/bin/gpuhook lxc --devices 0,1", true),
            ("exec /usr/bin/gpuhook lxc", true),
            ("/usr/bin/env GPUHOOK_LOG=debug gpuhook lxc", true),
            ("GPUHOOK_LOG=debug /usr/sbin/gpuhook\tlxc", true),
            ("'/opt/my tools/gpuhook' \"lxc\"", true),
            ("/opt/my\\ tools/gpuhook lxc >/dev/null", true),
            ("gpuhook -v --config /etc/lxc lxc", true),
            ("gpuhook --host-root=/x lxc", true),
            ("gpuhook", false),
            ("gpuhook --config lxc", false),
            ("gpuhook probe --lxc c1", false),
            ("gpuhook oci prestart lxc", false),
            ("gpuhook; lxc", false),
            ("gpuhook | lxc", false),
            ("gpuhook # lxc", false),
            ("echo gpuhook lxc", false),
            ("/usr/bin/gpuhook2 lxc", false),
            ("/gpuhook/nvidia lxc", false),
            ("\"gpuhook lxc\"", false),
            ("# gpuhook lxc", false),
            ("'gpuhook", false),
            ("\\", false),
            ("", false),
        ] {
            assert_eq!(runs_gpuhook(line), runs, "{line:?}");
        }
    }
}
