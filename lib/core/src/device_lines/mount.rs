// SPDX-License-Identifier: MIT OR Apache-2.0
//! The value of `lxc.mount.entry`: the fields of fstab(5), cut at blanks as getmntent(3) cuts them.

use super::node::Node;

/// A mount entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountEntry {
    /// What is mounted.
    pub source: String,
    /// Where, relative to the container's root.
    pub target: String,
    /// The options, as written; empty where the field is missing.
    pub options: String,
    /// What stands after the options: two numbers that nobody reads, or a slip.
    pub rest: Vec<String>,
}

impl MountEntry {
    /// The entry in `value`.
    pub fn parse(value: &str) -> Self {
        let mut fields = value.split_ascii_whitespace().map(|field| field.replace("\\040", " "));
        let mut next = || fields.next().unwrap_or_default();
        let (source, target, _type, options) = (next(), next(), next(), next());
        Self { source, target, options, rest: fields.collect() }
    }

    /// The GPU driver's node that it brings in: by the target, which the driver's libraries look for, or else by the
    /// source.
    pub fn node(&self) -> Option<Node> {
        Node::of(&self.target).or_else(|| Node::of(&self.source))
    }

    /// Whether it brings in something of a GPU: a driver's node, or a DRI node.
    pub fn is_gpu(&self) -> bool {
        let dri = |path: &str| path.trim_start_matches('/').starts_with("dev/dri");
        self.node().is_some() || dri(&self.source) || dri(&self.target)
    }

    /// Whether it has this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|known| known == option)
    }
}

/// Whether a line that is no setting looks like the second half of a mount entry: its options.
pub(super) fn is_options(text: &str) -> bool {
    let mut fields = text.split_whitespace();
    let options = fields.next().unwrap_or_default();
    let known = |word: &str| matches!(word, "bind" | "rbind" | "optional" | "create=file" | "create=dir" | "ro" | "rw");
    options.split(',').all(known) && fields.all(|field| field.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_cut_at_blanks() {
        let entry = MountEntry::parse("/dev/nvidia-uvm \t dev/nvidia-uvm none bind,optional,create=file 0 0");
        assert_eq!(entry.target, "dev/nvidia-uvm");
        assert!(entry.has("optional") && !entry.has("create=dir"));
        assert_eq!(entry.rest, ["0", "0"]);
        assert_eq!(entry.node().map(|node| node.path), Some("/dev/nvidia-uvm".to_owned()));
        assert_eq!(MountEntry::parse("/a\\040b x").source, "/a b");
        assert!(MountEntry::parse("/dev/dri/by-path/x dev/dri/renderD128 none bind").is_gpu());
        assert!(!MountEntry::parse("/usr/bin/nvidia-smi usr/bin/nvidia-smi none bind").is_gpu());
        assert_eq!(MountEntry::parse("").options, "");
    }

    #[test]
    fn a_wrapped_lines_second_half_is_recognised() {
        for (text, is) in
            [("bind,optional,create=file", true), ("bind,create=file 0 0", true), ("", false), ("x", false)]
        {
            assert_eq!(is_options(text), is, "{text:?}");
        }
    }
}
