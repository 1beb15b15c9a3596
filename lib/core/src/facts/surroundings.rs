// SPDX-License-Identifier: MIT OR Apache-2.0
//! What only a diagnosis asks of a host, beyond `HostFacts`: what could be loaded, what the kernel
//! said, what stands in `/dev`, which CDI files there are. Data only.

use std::collections::BTreeSet;

use super::cdi::CdiFile;
use super::char_links::CharLink;
use super::kernel_log::KernelLog;
use super::oci_hook::OciHook;
use super::udev::NodeRule;
use super::{HostNode, NodeKind};

/// What surrounds the driver. `None` and empty mean "not known".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The names in `/proc/modules`.
    pub modules: Option<BTreeSet<String>>,
    /// The release of the running kernel, `6.14.11-1-pve`.
    pub kernel: Option<String>,
    /// Whether this kernel has a file of the unified memory module.
    pub uvm_file: Option<bool>,
    /// `uvm_disable_hmm` of the loaded module: whether HMM is off.
    pub hmm_disabled: Option<bool>,
    /// What the GPU drivers said in the kernel log.
    pub log: Option<KernelLog>,
    /// The driver versions for which there are GSP firmware files.
    pub firmware: Option<BTreeSet<String>>,
    /// Whether the driver has a list of its GPUs, so that an empty one means that there are none.
    pub lists_gpus: bool,
    /// The CDI files, in the order in which engines read them.
    pub cdi: Vec<CdiFile>,
    /// The GPU nodes.
    pub dev: Dev,
    /// Why this host is itself a container: the words that say so.
    pub nested: Option<String>,
    /// The udev rules that make NVIDIA's nodes by hand.
    pub udev: Vec<NodeRule>,
    /// The hooks that podman and CRI-O run.
    pub oci_hooks: Vec<OciHook>,
    /// Whether runc is installed, which looks at the links in `/dev/char`.
    pub runc: Option<bool>,
    /// Whether NVIDIA's generator of CDI files is installed.
    pub nvidia_ctk: Option<bool>,
}

/// The GPU nodes in `/dev`, and how much is known of those that are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dev {
    /// The nodes, sorted by path.
    pub nodes: Vec<HostNode>,
    /// Paths of which it is said that they are not there.
    pub absent: Vec<String>,
    /// Whether every node is among `nodes`.
    pub whole: bool,
    /// The links in `/dev/char`, sorted; `None` where nobody looked.
    pub links: Option<Vec<CharLink>>,
}

/// What is known of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence<'a> {
    /// It is there.
    There(&'a HostNode),
    /// It is not there.
    Absent,
    /// Nobody looked.
    Unknown,
}

impl Dev {
    /// The nodes of a listing that people posted: it proves the absence only of what `ls` itself, or whoever posted it,
    /// says is absent (`ls: cannot access '/dev/nvidiactl': No such file or directory`).
    pub fn parse_listing(text: &str) -> Self {
        let says_absent = |line: &&str| line.to_ascii_lowercase().contains("no such file or directory");
        let absent = text.lines().filter(says_absent).filter_map(|line| {
            let start = line.find("/dev/")?;
            let path = line[start..].split(|letter: char| letter.is_whitespace() || "':,`\"\u{2019}".contains(letter));
            path.into_iter().next().map(str::to_owned)
        });
        let links = Some(CharLink::parse_listing(text)).filter(|links| !links.is_empty());
        Self { nodes: HostNode::parse_whole_listing(text), absent: absent.collect(), whole: false, links }
    }

    /// The nodes as a listing that [`Dev::parse_listing`] reads back; of `expected` paths it says which are absent.
    pub fn listing<'a>(&self, expected: impl IntoIterator<Item = &'a str>) -> String {
        let mut text = String::new();
        for HostNode { path, kind, mode, uid, gid } in &self.nodes {
            let id = |id: &Option<u32>| id.map_or("unknown".to_owned(), |id| id.to_string());
            let (letter, number) = match kind {
                NodeKind::Character(number) => ('c', format!("{}, {}", number.major, number.minor)),
                NodeKind::NotADevice => ('-', "0".to_owned()),
            };
            let mode = letters(*mode);
            text.push_str(&format!("{letter}{mode} 1 {} {} {number} {path}\n", id(uid), id(gid)));
        }
        // `/dev/zero` is on every machine with links, and says that they were looked at.
        for CharLink { id, target } in
            self.links.iter().flatten().filter(|link| {
                HostNode::is_gpu_name(link.target.trim_start_matches("/dev/")) || link.target == "/dev/zero"
            })
        {
            let target = target.replacen("/dev/", "../", 1);
            text.push_str(&format!("lrwxrwxrwx 1 0 0 {} /dev/char/{id} -> {target}\n", target.len()));
        }
        for path in expected.into_iter().filter(|path| self.at(path) == Presence::Absent) {
            text.push_str(&format!("ls: cannot access '{path}': No such file or directory\n"));
        }
        text
    }

    /// What is known of `path`.
    pub fn at(&self, path: &str) -> Presence<'_> {
        match self.nodes.iter().find(|node| node.path == path) {
            Some(node) => Presence::There(node),
            None if self.whole || self.absent.iter().any(|absent| absent == path) => Presence::Absent,
            None => Presence::Unknown,
        }
    }
}

/// `rw-rw-rw-` for 0666, as `ls` writes it.
fn letters(mode: u32) -> String {
    let mut text = String::with_capacity(9);
    for (position, letter) in "rwxrwxrwx".chars().enumerate() {
        let is_set = mode & (0o400 >> position) != 0;
        let special = position % 3 == 2 && mode & [0o4000, 0o2000, 0o1000][position / 3] != 0;
        text.push(match (special, is_set, position) {
            (false, true, _) => letter,
            (false, false, _) => '-',
            (true, true, 8) => 't',
            (true, false, 8) => 'T',
            (true, true, _) => 's',
            (true, false, _) => 'S',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_proves_the_absence_of_what_it_names_as_absent_and_of_nothing_else() {
        let dev = Dev::parse_listing(
            "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\n\
             ls: cannot access '/dev/nvidiactl': No such file or directory\n\
             /dev/nvidia-uvm: No such file or directory\n",
        );
        assert!(matches!(dev.at("/dev/nvidia0"), Presence::There(_)));
        assert_eq!(dev.at("/dev/nvidiactl"), Presence::Absent);
        assert_eq!(dev.at("/dev/nvidia-uvm"), Presence::Absent);
        assert_eq!(dev.at("/dev/nvidia-uvm-tools"), Presence::Unknown);
        let again = Dev::parse_listing(&dev.listing(["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]));
        assert_eq!(again, dev);
        let odd = "c-w--wx-wT 1 0 44 195, 0 /dev/nvidia0\n-rwsr-Sr-t 1 0 unknown 0 /dev/nvidia1\n";
        assert_eq!(Dev::parse_listing(odd).listing([]), odd);
        assert_eq!(Dev { whole: true, ..dev }.at("/dev/nvidia-uvm-tools"), Presence::Absent);
    }
}
