// SPDX-License-Identifier: MIT OR Apache-2.0
//! CDI files against the host: numbers that were frozen at an earlier boot, libraries of an earlier driver, nodes that did
//! not exist when the file was written.

use super::Case;
use crate::device::Major;
use crate::device_lines::Node;
use crate::facts::cdi::{CdiFile, CdiNode};
use crate::facts::majors::{self, NVIDIA};
use crate::facts::surroundings::Presence;
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;
use crate::quoted::shell_word;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = &case.surroundings.cdi;
    for (at, file) in files.iter().enumerate() {
        if file.kind.is_none() {
            let explain =
                "this file is no CDI spec that can be read: an engine ignores it, or refuses every CDI device";
            let finding = Finding::new(FindingId::CdiUnresolvable, Severity::Warning, &file.path, explain);
            findings.push(finding.at(&file.path, 0).fix(regenerate(case, file)));
        }
        let before = findings.len();
        findings.extend(file.nodes.iter().filter_map(|node| frozen(case, file, node)));
        findings.extend(other_driver(case, file));
        findings.extend(file.nodes.iter().filter_map(|node| absent(case, file, &node.path, node.line)));
        let kind = file.kind.as_deref().unwrap_or_default();
        if kind.starts_with("nvidia.com/") && findings.len() == before {
            findings.extend(lacks_uvm(case, file));
        }
        // One file, one cause.
        findings[before..].iter_mut().skip(1).for_each(|finding| finding.severity = Severity::Warning);
        // A directory that is read later wins (CDI SPEC, "CDI spec directories").
        let overrides = |later: &&CdiFile| later.kind.as_deref() == Some(kind) && directory(later) != directory(file);
        if let Some(later) = files[at + 1..].iter().find(overrides) {
            for finding in &mut findings[before..] {
                finding.severity = Severity::Warning;
                finding.explain.push_str(&format!("; {} says what {kind} is, and is read after it", later.path));
            }
        }
    }
    findings
}

/// `/var/run` is `/run`.
fn directory(file: &CdiFile) -> &str {
    let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
    directory.strip_prefix("/var").unwrap_or(directory)
}

fn frozen(case: &Case<'_>, file: &CdiFile, node: &CdiNode) -> Option<Finding> {
    let CdiNode { path, major, minor, line } = node;
    let majors = case.host.majors.as_ref()?;
    let driver = host_nodes::driver_of(path)?;
    let live = match driver {
        NVIDIA => majors.primary(),
        name => majors.only(name),
    };
    let (live, major) = (live.ok()?, (*major)?);
    let right = Node::of(path).and_then(|node| node.minor);
    let explain = if major != live.0 {
        let owner = match majors.names_of(Major(major)).as_slice() {
            [] => format!("nobody has {major}"),
            names => format!("{major} belongs to {}", names.join(", ")),
        };
        format!("gives {path} the major {major}, but {driver} has {live} today and {owner}")
    } else {
        let right = right.filter(|right| right.0 != minor.unwrap_or(0))?;
        format!("gives {path} the number {major}:{}, but it is {live}:{right}", minor.unwrap_or(0))
    };
    let explain = format!("{} {explain}: containers get a dead node and cuInit 999", file.path);
    Some(stale(case, file, path, *line, explain))
}

/// The libraries' file names end in a driver version.
fn other_driver(case: &Case<'_>, file: &CdiFile) -> Option<Finding> {
    let version = case.version()?;
    let (path, line, other) = file.files.iter().find_map(|mounted| {
        let (_, other) = mounted.path.rsplit_once(".so.")?;
        let is_drivers =
            other.matches('.').count() >= 1 && other.split('.').all(|number| number.parse::<u32>().is_ok());
        let is_nvidia = mounted.path.contains("nvidia") || mounted.path.contains("libcuda");
        (is_drivers && is_nvidia && other != version && other.len() > 4).then_some((&mounted.path, mounted.line, other))
    })?;
    let explain = format!(
        "{} mounts {path} of driver {other}, but {version} is loaded: the file is gone, or CUDA fails with 803",
        file.path
    );
    Some(stale(case, file, path, line, explain))
}

fn absent(case: &Case<'_>, file: &CdiFile, path: &str, line: usize) -> Option<Finding> {
    if case.surroundings.dev.at(path) != Presence::Absent {
        return None;
    }
    // A node that its driver would have is a matter of the nodes, not of this file.
    let expected = host_nodes::expected(case.host).unwrap_or_default();
    let is_expected = expected.iter().any(|device| device.path.as_str() == path);
    let is_known = host_nodes::driver_of(path).is_some() || path.starts_with("/dev/dri/");
    (is_known && !is_expected).then(|| {
        stale(
            case,
            file,
            path,
            line,
            format!("{} names {path}, which this host does not have: the engine refuses to start", file.path),
        )
    })
}

fn lacks_uvm(case: &Case<'_>, file: &CdiFile) -> Option<Finding> {
    let names = |path: &str| file.nodes.iter().any(|node| node.path == path);
    let live = case.host.majors.as_ref()?.only(majors::NVIDIA_UVM).is_ok();
    (live && names("/dev/nvidiactl") && !names("/dev/nvidia-uvm")).then(|| {
        let explain = format!(
            "{} has no /dev/nvidia-uvm: it was generated before that node existed, and containers get cuInit 999",
            file.path
        );
        stale(case, file, "/dev/nvidia-uvm", 0, explain)
    })
}

fn stale(case: &Case<'_>, file: &CdiFile, subject: &str, line: usize, explain: String) -> Finding {
    let finding = Finding::new(FindingId::StaleCdi, Severity::Error, subject, explain);
    finding.at(&file.path, line).fix(regenerate(case, file))
}

/// NVIDIA's generator writes what it wrote before, libraries included; without it gpuhook's own does.
fn regenerate(case: &Case<'_>, file: &CdiFile) -> String {
    let path = shell_word(&file.path);
    let format = if file.path.ends_with(".json") { " --format=json" } else { "" };
    match case.surroundings.nvidia_ctk {
        Some(false) => {
            // Containers ask for the file's own kind.
            let kind = file.kind.as_ref().map(|kind| format!(" --kind {}", shell_word(kind))).unwrap_or_default();
            format!("{} cdi generate{kind} --output {path}", case.commands.gpuhook)
        }
        _ => format!("nvidia-ctk cdi generate{format} --output={path}"),
    }
}
