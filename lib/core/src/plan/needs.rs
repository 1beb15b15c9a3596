// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the image needs against what the host has.

use crate::facts::{Gpu, HostFacts, Version, VersionRange};
use crate::quoted::Quoted;
use crate::request::{Judgement, Offer, Requirement};

use super::PlanError;

/// What cannot be decided, as sentences. Requirements hold for each GPU on its own, and without one for the driver alone
/// (libnvidia-container, src/cli/configure.c).
///
/// # Errors
/// The host does not have what the image needs.
pub(super) fn check(host: &HostFacts, gpus: &[&Gpu], needs: &[Requirement]) -> Result<Vec<String>, PlanError> {
    let (Some(driver), false) = (&host.driver, needs.is_empty()) else { return Ok(undecided(needs, host)) };
    let version = driver.version.as_deref().and_then(Version::parse);
    let exactly = |version: Option<Version>| version.map(VersionRange::exactly).unwrap_or_default();
    let offer = Offer { cuda: driver.cuda(), driver: exactly(version), arch: None };
    let of_gpu = |gpu: &&Gpu| Offer { arch: Some(exactly(gpu.compute_capability())), ..offer.clone() };
    let mut offers: Vec<(Option<&Gpu>, Offer)> = gpus.iter().map(|gpu| (Some(*gpu), of_gpu(gpu))).collect();
    if offers.is_empty() {
        offers.push((None, offer));
    }
    let mut open = Vec::new();
    for requirement in needs {
        let judged = offers.iter().map(|(gpu, offer)| (requirement.judge(offer), gpu));
        match judged.min_by_key(|(judgement, _)| *judgement) {
            Some((Judgement::Unmet, gpu)) => {
                let model = gpu.and_then(|gpu| gpu.model.as_deref());
                let has = [Some(host.driver_name()), model.map(str::to_owned)].into_iter().flatten();
                return Err(PlanError::Unmet {
                    name: requirement.name.clone(),
                    text: requirement.text.clone(),
                    has: has.collect::<Vec<_>>().join(" and "),
                });
            }
            Some((Judgement::Undecided, _)) => open.push(requirement.clone()),
            Some((Judgement::Met, _)) | None => {}
        }
    }
    Ok(undecided(&open, host))
}

fn undecided(needs: &[Requirement], host: &HostFacts) -> Vec<String> {
    let sentence = |Requirement { name, text, .. }: &Requirement| {
        format!("whether {} fulfils {name}={} cannot be told without NVML", host.driver_name(), Quoted(text))
    };
    needs.iter().map(sentence).collect()
}
