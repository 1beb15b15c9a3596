// SPDX-License-Identifier: MIT OR Apache-2.0
//! CDI files against the host: numbers that were frozen at an earlier boot, libraries of an earlier driver, nodes that did
//! not exist when the file was written.

use super::Case;
use crate::facts::cdi::CdiFile;
use crate::facts::majors::{self, NVIDIA};
use crate::facts::surroundings::Presence;
use crate::findings::{Finding, FindingId, Severity};
use crate::host_nodes;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &case.surroundings.cdi {
        let Some(kind) = &file.kind else {
            let explain =
                "this file is no CDI spec that can be read: an engine ignores it, or refuses every CDI device";
            let finding = Finding::new(FindingId::CdiUnresolvable, Severity::Warning, &file.path, explain);
            findings.push(finding.at(&file.path, 0).fix(regenerate(file)));
            continue;
        };
        let before = findings.len();
        findings.extend(file.nodes.iter().filter_map(|node| frozen(case, file, node.major, &node.path, node.line)));
        findings.extend(other_driver(case, file));
        findings.extend(file.nodes.iter().filter_map(|node| absent(case, file, &node.path, node.line)));
        if kind.starts_with("nvidia.com/") && findings.len() == before {
            findings.extend(lacks_uvm(case, file));
        }
        // One file, one cause.
        findings[before..].iter_mut().skip(1).for_each(|finding| finding.severity = Severity::Warning);
    }
    findings
}

fn frozen(case: &Case<'_>, file: &CdiFile, major: Option<u32>, path: &str, line: usize) -> Option<Finding> {
    let majors = case.host.majors.as_ref()?;
    let driver = host_nodes::driver_of(path)?;
    let live = match driver {
        NVIDIA => majors.primary(),
        name => majors.only(name),
    };
    let live = live.ok()?;
    let major = major.filter(|major| *major != live.0)?;
    let owner = match majors.names_of(crate::device::Major(major)).as_slice() {
        [] => format!("nobody has {major}"),
        names => format!("{major} belongs to {}", names.join(", ")),
    };
    Some(stale(
        file,
        path,
        line,
        format!(
            "{} gives {path} the major {major}, but {driver} has {live} today and {owner}: containers get a dead node and cuInit 999",
            file.path
        ),
    ))
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
    Some(stale(file, path, line, explain))
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
        stale(file, "/dev/nvidia-uvm", 0, explain)
    })
}

fn stale(file: &CdiFile, subject: &str, line: usize, explain: String) -> Finding {
    Finding::new(FindingId::StaleCdi, Severity::Error, subject, explain).at(&file.path, line).fix(regenerate(file))
}

fn regenerate(file: &CdiFile) -> String {
    format!("nvidia-ctk cdi generate --output={}", file.path)
}
