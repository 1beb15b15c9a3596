// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of udev rules (udev(7)) -> the lines that make NVIDIA's nodes by hand: by a name that `/proc/devices` is searched
//! for, or by a number.

use super::{MAJOR_MAX, decimal};
use crate::quoted::one_line;

/// One line that makes nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRule {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The nodes that it makes under fixed majors.
    pub fixed: Vec<(String, u32)>,
    /// It takes the number from the line of `nvidia-frontend`.
    pub greps_frontend: bool,
}

impl NodeRule {
    /// The lines of `text`, the file `path`, that make NVIDIA's nodes.
    pub fn parse(path: &str, text: &str) -> Vec<Self> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'));
        let rules = lines.filter_map(|(index, line)| {
            let fixed = fixed(line);
            let greps_frontend = line.contains("mknod") && line.contains("nvidia-frontend");
            (greps_frontend || !fixed.is_empty()).then(|| Self {
                path: one_line(path),
                line: index + 1,
                text: one_line(line.trim()),
                fixed,
                greps_frontend,
            })
        });
        rules.collect()
    }
}

/// `mknod [-m MODE] /dev/nvidia-uvm c 239 0`, each of them.
fn fixed(line: &str) -> Vec<(String, u32)> {
    let words: Vec<&str> = line
        .split(|letter: char| letter.is_whitespace() || "\"';&|`(){}".contains(letter))
        .filter(|word| !word.is_empty())
        .collect();
    let made = words.windows(3).filter_map(|three| match *three {
        [node, "c", major] if node.starts_with("/dev/nvidia") => Some((node.to_owned(), decimal(major, MAJOR_MAX)?)),
        _ => None,
    });
    if words.iter().any(|word| word.ends_with("mknod")) { made.collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_make_nodes_by_hand_are_told() {
        let text = "# mknod /dev/nvidia-uvm c 1 0\n\
                    KERNEL==\"nvidia\", RUN+=\"/bin/bash -c '/usr/bin/mknod -Z -m 666 /dev/nvidiactl c $(grep nvidia-frontend /proc/devices | cut -d \\  -f 1) 255'\"\n\
                    KERNEL==\"nvidia_uvm\", RUN+=\"/bin/sh -c 'mknod -m 666 /dev/nvidia-uvm c 239 0; mknod -m 666 /dev/nvidia-uvm-tools c 239 1'\"\n\
                    KERNEL==\"nvidia_uvm\", RUN+=\"/usr/bin/nvidia-modprobe -c0 -u\"\n";
        let found: Vec<(usize, bool, usize)> = NodeRule::parse("/etc/udev/rules.d/x.rules", text)
            .iter()
            .map(|rule| (rule.line, rule.greps_frontend, rule.fixed.len()))
            .collect();
        assert_eq!(found, [(2, true, 0), (3, false, 2)]);
        assert_eq!(fixed("mknod /dev/nvidia-uvm c $major 0"), []);
    }
}
