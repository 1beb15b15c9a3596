// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at one container again, from its own side: the nodes, the filter, an open of each node, cuInit. It repairs
//! nothing.

use std::os::fd::{AsFd, BorrowedFd};

use gpuhook_core::bpf::Verdict;
use gpuhook_core::chain::Chain;
use gpuhook_core::config::{Policy, VerifyConfig};
use gpuhook_core::cuda;
use gpuhook_core::device::ContainerPath;
use gpuhook_core::plan::{Plan, PlannedDevice};
use gpuhook_core::report::{Rung, RungName};

use crate::cgroup::CgroupPath;
use crate::filter;
use crate::probe::{self, CuInit, Opened};
use crate::rootless;
use crate::sys::{Errno, error};
use crate::target::Target;

/// What the ladder says of one container.
#[derive(Debug, Default)]
pub struct Findings {
    /// Every check, from the lowest rung up.
    pub rungs: Vec<Rung>,
    /// What cuInit returned, where it answered.
    pub cuinit: Option<i32>,
}

/// Climbs the ladder for what `plan` brings into `target`, as far as `policies` wants to look. Every node is looked at.
pub fn ladder(plan: &Plan, target: &Target, cgroup: Option<&CgroupPath>, policies: &VerifyConfig) -> Findings {
    climb(plan, plan.devices().iter().map(|device| (device, 0)).collect(), target, cgroup, policies)
}

/// The same right after the injection. Of a directory that was made and mounted as one, two nodes stand for all: a driver
/// has 2048 IMEX channels. L2 judges the rule of every one.
pub fn ladder_of_samples(
    plan: &Plan,
    target: &Target,
    cgroup: Option<&CgroupPath>,
    policies: &VerifyConfig,
) -> Findings {
    climb(plan, plan.samples(), target, cgroup, policies)
}

fn climb(
    plan: &Plan,
    nodes: Vec<(&PlannedDevice, usize)>,
    target: &Target,
    cgroup: Option<&CgroupPath>,
    policies: &VerifyConfig,
) -> Findings {
    // A rootless manager may not move our child into the container's cgroup, where nobody filters its devices anyway.
    let leaf = cgroup.filter(|_| rootless::user().is_none()).map(|path| path.leaf().as_fd());
    // There is a plan, so every name that it needs has a number.
    let mut rungs = vec![Rung::passed(RungName::L0, plan.driver())];
    if policies.l1 != Policy::Off || policies.l3 != Policy::Off {
        let paths: Vec<ContainerPath> = nodes.iter().map(|(device, _)| device.path.clone()).collect();
        let opened = probe::open_nodes(target, leaf, &paths).map_err(|error| Chain(&error).to_string());
        let nodes = nodes.iter().enumerate();
        if policies.l1 != Policy::Off {
            let place = Place::of(target);
            rungs.extend(
                nodes.clone().map(|(at, (device, more))| standing_for(node(device, &opened, at, place), *more)),
            );
        }
        if policies.l3 != Policy::Off {
            rungs.extend(nodes.map(|(at, (device, more))| standing_for(open(device, &opened, at), *more)));
        }
    }
    if policies.l2 != Policy::Off {
        rungs.extend(cgroup.map_or_else(Vec::new, |path| filters(plan, path)));
    }
    let mut cuinit = None;
    if policies.l5 != Policy::Off && plan.needs_cuda() {
        let (rung, code) = cuda_rung(target, leaf, policies);
        rungs.push(rung);
        cuinit = code;
    }
    rungs.sort_by_key(|rung| rung.rung);
    Findings { rungs, cuinit }
}

/// What the administrator wants done where `rung` fails.
pub fn policy(policies: &VerifyConfig, rung: RungName) -> Policy {
    match rung {
        RungName::L1 => policies.l1,
        RungName::L2 => policies.l2,
        RungName::L3 => policies.l3,
        RungName::L5 => policies.l5,
        RungName::L0 | RungName::L4 => Policy::Warn,
    }
}

/// Says of a check that went well for how many other nodes it counts.
fn standing_for(rung: Rung, more: usize) -> Rung {
    match (rung.ok, more) {
        (Some(true), 1..) => {
            Rung { explain: Some(format!("stands for {more} more of its directory, which is one mount")), ..rung }
        }
        _ => rung,
    }
}

/// Where a ladder stands: what helps differs.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    repair: &'static str,
}

impl Place {
    fn of(target: &Target) -> Self {
        match target.is_host() {
            true => Self { name: "on the host", repair: "gpuhook nodes makes the host's nodes" },
            false => Self { name: "in the container", repair: "gpuhook inject brings it in" },
        }
    }
}

/// L1: the node is there, a character device, of the live number.
fn node(device: &PlannedDevice, opened: &Result<Vec<Opened>, String>, at: usize, place: Place) -> Rung {
    let subject = device.path.as_str();
    let Place { name, repair } = place;
    match opened.as_ref().map(|all| all.get(at)) {
        Err(why) => Rung::skipped(RungName::L1, subject, why.clone()),
        Ok(None) => Rung::skipped(RungName::L1, subject, "the child that looked said nothing of it"),
        Ok(Some(Opened { device: Some(found), .. })) if *found == device.id => Rung::passed(RungName::L1, subject),
        Ok(Some(Opened { device: Some(found), .. })) => Rung::failed(
            RungName::L1,
            subject,
            format!("the node {name} is c {found}, but the driver has {} now; hint: {repair}", device.id),
        ),
        Ok(Some(found)) if found.result == Err(Errno::NOENT) => {
            Rung::failed(RungName::L1, subject, format!("{} {name}; hint: {repair}", Rung::ABSENT))
        }
        Ok(Some(_)) => {
            let explain = format!("what stands {name} is {}; hint: remove it", Rung::NOT_A_DEVICE);
            Rung::failed(RungName::L1, subject, explain)
        }
    }
}

/// L2: each program on the way to the root allows every rule.
fn filters(plan: &Plan, path: &CgroupPath) -> Vec<Rung> {
    let judgements = match filter::judge(path, &plan.filter().rules) {
        Ok(judgements) => judgements,
        Err(error) => return vec![Rung::skipped(RungName::L2, path.leaf().name.as_str(), Chain(&error).to_string())],
    };
    if judgements.is_empty() {
        let rung = Rung::passed(RungName::L2, path.leaf().name.as_str());
        return vec![Rung { explain: Some(Rung::NO_FILTER.to_owned()), ..rung }];
    }
    judgements
        .iter()
        .map(|judgement| {
            let subject = format!("{} on {}", program_name(&judgement.program), judgement.cgroup);
            match judgement.worst() {
                Verdict::Allow => Rung::passed(RungName::L2, subject),
                Verdict::Unknown => Rung::skipped(RungName::L2, subject, "the program cannot be read; L3 decides"),
                Verdict::Deny => {
                    let rules: Vec<String> = judgement.refused().map(|rule| rule.to_string()).collect();
                    let help = if judgement.own {
                        "gpuhook inject repairs it".to_owned()
                    } else {
                        format!("{}: change it where it was set", Rung::OUTSIDE)
                    };
                    Rung::failed(RungName::L2, subject, format!("refuses {}; hint: {help}", rules.join(", ")))
                }
            }
        })
        .collect()
}

fn program_name(name: &str) -> &str {
    if name.is_empty() { "a device program without a name" } else { name }
}

/// L3: the container's own process can open it.
fn open(device: &PlannedDevice, opened: &Result<Vec<Opened>, String>, at: usize) -> Rung {
    let subject = device.path.as_str();
    match opened.as_ref().map(|all| all.get(at)) {
        Err(why) => Rung::skipped(RungName::L3, subject, why.clone()),
        Ok(None) => Rung::skipped(RungName::L3, subject, "the child in the container said nothing of it"),
        Ok(Some(found)) => match found.result {
            Ok(()) => Rung::passed(RungName::L3, subject),
            Err(errno) => {
                let name = error::name(errno);
                let explain = cuda::explain_open(name.unwrap_or("an error"), subject);
                Rung::failed(RungName::L3, subject, explain).with_errno(name)
            }
        },
    }
}

/// L5: the container's own libcuda, in the probe.
fn cuda_rung(target: &Target, leaf: Option<BorrowedFd<'_>>, policies: &VerifyConfig) -> (Rung, Option<i32>) {
    let subject = "cuInit";
    let answer = match probe::cuinit(target, leaf, policies.time_limit) {
        Ok(answer) => answer,
        Err(error) => return (Rung::skipped(RungName::L5, subject, Chain(&error).to_string()), None),
    };
    let explain = answer.to_string();
    match answer {
        CuInit::Answered { code: cuda::SUCCESS, count_code: cuda::SUCCESS, .. } => {
            (Rung { explain: Some(explain), ..Rung::passed(RungName::L5, subject) }, Some(cuda::SUCCESS))
        }
        CuInit::Answered { code, .. } => (Rung::failed(RungName::L5, subject, explain), Some(code)),
        // A container without a CUDA that could be asked is not broken: it may want nvidia-smi alone.
        CuInit::NoLoader | CuInit::NoLibrary => (Rung::skipped(RungName::L5, subject, explain), None),
        _ => (Rung::failed(RungName::L5, subject, explain), None),
    }
}
