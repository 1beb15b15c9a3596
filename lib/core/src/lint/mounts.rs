// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a line that brings a GPU's node in.

use super::judge::Judge;
use crate::device_lines::{DeviceLine, Meaning, MountEntry, Node};
use crate::facts::NodeKind;
use crate::findings::{FindingId, Severity};

/// Words that mount(8) or LXC takes; those with `=` are checked apart.
const OPTIONS: &[&str] = &[
    "async",
    "atime",
    "bind",
    "defaults",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "mand",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "nofail",
    "nomand",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "optional",
    "private",
    "rbind",
    "relatime",
    "relative",
    "remount",
    "ro",
    "rprivate",
    "rshared",
    "rslave",
    "runbindable",
    "rw",
    "shared",
    "slave",
    "strictatime",
    "suid",
    "sync",
    "unbindable",
];

impl<'a> Judge<'a> {
    pub(super) fn mount(&mut self, line: &'a DeviceLine, entry: &'a MountEntry) {
        self.source(line, entry);
        self.target(line, entry);
        self.options(line, entry);
    }

    fn source(&mut self, line: &'a DeviceLine, entry: &MountEntry) {
        let Some(node) = Node::of(&entry.source).filter(|_| entry.source.starts_with('/')) else {
            if !entry.source.starts_with('/') {
                let result =
                    if entry.has("optional") { "the node is not there" } else { "the container does not start" };
                let explain = format!("the source {} is no absolute path of the host: {result}", entry.source);
                self.add(FindingId::MountSource, Severity::Error, line, explain, Some("begin it with /dev/"));
            }
            return;
        };
        let known = self.host.facts.nodes.iter().find(|known| known.path == node.path);
        let within = format!("{}/", node.path);
        let is_directory = self.host.facts.nodes.iter().any(|known| known.path.starts_with(&within));
        let problem = match known.map(|known| known.kind) {
            Some(NodeKind::NotADevice) if node.minor.is_some() => format!("{} is no device on this host", node.path),
            None if self.host.nodes_are_whole && !is_directory => format!("{} is not there on this host", node.path),
            _ => return,
        };
        let (severity, consequence) = match entry.has("optional") {
            true => (Severity::Warning, "LXC leaves an empty regular file in its place"),
            false => (Severity::Error, "the container does not start"),
        };
        let explain = format!("{problem}: {consequence}");
        self.add(
            FindingId::MountSource,
            severity,
            line,
            explain,
            Some("gpuhook makes the nodes it needs at every start"),
        );
    }

    fn target(&mut self, line: &'a DeviceLine, entry: &MountEntry) {
        let target = entry.target.trim_start_matches('/');
        let wanted = match Node::of(&entry.source) {
            Some(node) => node.path,
            // The name of a DRI node may change, its directory may not.
            None if entry.source.starts_with("/dev/dri") && !target.starts_with("dev/dri") => entry.source.clone(),
            None => match Node::of(target) {
                Some(_) => format!("/{target}"),
                None if entry.target.starts_with('/') => format!("/{target}"),
                None => return,
            },
        };
        let right = wanted.trim_start_matches('/');
        if target.is_empty() {
            let explain = "the mount entry has no target, so the container does not start";
            self.add(
                FindingId::MountTarget,
                Severity::Error,
                line,
                explain,
                Some(&format!("write {right} as its target")),
            );
        } else if target.trim_end_matches('/') != right {
            let explain = format!("/{target} is not where programs look; they open {wanted}");
            self.add(
                FindingId::MountTarget,
                Severity::Warning,
                line,
                explain,
                Some(&format!("write {right} as its target")),
            );
        } else if entry.target.starts_with('/') {
            let explain = "LXC takes an absolute target for a path of the host and passes over one that is not below \
                           the container's root";
            self.add(
                FindingId::MountTarget,
                Severity::Warning,
                line,
                explain,
                Some(&format!("write {right}, without the slash")),
            );
        }
    }

    fn options(&mut self, line: &'a DeviceLine, entry: &MountEntry) {
        if entry.options.is_empty() {
            let explain = "the options are missing, so LXC cannot mount it and the container does not start; the rest of \
                           the line may stand on the next one";
            let fix = "write none bind,optional,create=file behind the target, all on one line";
            self.add(FindingId::MountOption, Severity::Error, line, explain, Some(fix));
            return;
        }
        let mut wrong: Vec<(Severity, String, Option<&str>)> = Vec::new();
        if !entry.has("bind") && !entry.has("rbind") {
            let explain = "without bind it is no mount of a node, and the container does not start".to_owned();
            wrong.push((Severity::Error, explain, Some("write bind,optional,create=file")));
        }
        let directory = match Node::of(&entry.source).or_else(|| Node::of(&entry.target)) {
            Some(node) => Some(node.minor.is_none()),
            None => match entry.source.trim_end_matches('/') {
                "/dev/dri" => Some(true),
                source => source.starts_with("/dev/dri/").then_some(false),
            },
        };
        let result = if entry.has("optional") { "the node is not there" } else { "the container does not start" };
        match directory {
            Some(false) if entry.has("create=dir") => {
                let explain = format!("create=dir makes a directory, on which no node can be mounted: {result}");
                wrong.push((Severity::Error, explain, Some("write create=file")));
            }
            Some(true) if entry.has("create=file") => {
                let explain = format!("create=file makes a file, on which no directory can be mounted: {result}");
                wrong.push((Severity::Error, explain, Some("write create=dir")));
            }
            _ if !entry.options.contains("create=") => {
                let explain = format!("the container's /dev is empty at first, and nothing makes the target: {result}");
                let create = if directory == Some(true) { "add create=dir" } else { "add create=file" };
                wrong.push((Severity::Warning, explain, Some(create)));
            }
            _ => {}
        }
        for option in entry.options.split(',') {
            match option.split_once('=') {
                Some(("uid" | "gid" | "mode", _)) => {
                    let explain = format!("{option} does nothing on a bind mount: the node keeps its owner and mode");
                    wrong.push((Severity::Warning, explain, Some("remove it")));
                }
                Some(("create", "dir" | "file") | ("idmap", _)) => {}
                _ if OPTIONS.binary_search(&option).is_ok() => {}
                _ => {
                    let explain = format!("neither mount nor LXC knows the option {option:?}");
                    wrong.push((Severity::Warning, explain, Some("remove it")));
                }
            }
        }
        let number = |field: &String| field.bytes().all(|byte| byte.is_ascii_digit());
        if entry.rest.len() > 2 || !entry.rest.iter().all(number) {
            let rest = entry.rest.join(" ");
            let explain = format!("nobody reads {rest:?} behind the options; two numbers may stand there");
            wrong.push((Severity::Warning, explain, Some("remove it, or write 0 0")));
        }
        for (severity, explain, fix) in wrong {
            self.add(FindingId::MountOption, severity, line, explain, fix);
        }
    }

    /// A `dev[n]` of Proxmox.
    pub(super) fn entry(&mut self, line: &'a DeviceLine, path: &str) {
        let Some(node) = Node::of(path) else { return };
        if node.minor.is_none() {
            let explain =
                format!("{path} is a directory, and Proxmox passes single nodes only: the container does not start");
            self.add(FindingId::MountSource, Severity::Error, line, explain, Some("name the nodes in it one by one"));
        }
        let twin = self.lines.in_force().find(|other| match &other.meaning {
            Meaning::Mount(entry) => entry.node().is_some_and(|other| other.path == node.path),
            _ => false,
        });
        if let Some(twin) = twin {
            let explain = format!(
                "line {} mounts the same node: Proxmox's autodev hook fails on it, and the container does not start",
                twin.line
            );
            self.add(FindingId::DuplicateInjection, Severity::Error, line, explain, Some("keep one of the two lines"));
        }
        self.group(line, &node.path);
    }

    /// AMD's compute device belongs to the group of the render nodes, which has another number in each container.
    fn group(&mut self, line: &'a DeviceLine, path: &str) {
        let gid = |line: &DeviceLine| {
            line.text.split(',').find_map(|part| part.trim().strip_prefix("gid=").map(str::to_owned))
        };
        let render = self.lines.in_force().find_map(|other| match &other.meaning {
            Meaning::Entry(path) if path.starts_with("/dev/dri/renderD") => gid(other),
            _ => None,
        });
        let (Some(own), Some(render)) = (gid(line), render.filter(|_| path == "/dev/kfd")) else { return };
        if own != render {
            let explain = format!(
                "inside, /dev/kfd gets the group {own} and the render nodes the group {render}: ROCm opens both as a member of \
                 `render`, so a program that is not root gets EACCES from one of them"
            );
            let fix = format!("gid={render}, if that is the container's render group (getent group render, inside)");
            self.add(FindingId::GroupMismatch, Severity::Warning, line, explain, Some(&fix));
        }
    }
}
