// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as the words that ask for devices, one kind a line: what they get is below `/dev`, and each of it has a rule.
#![no_main]

use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::plan::Plan;
use gpuhook_core::request::{Arguments, Offer, Origin, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = gpuhook_fuzz::text(bytes);
    let mut lines = text.lines();
    let arguments = Arguments {
        devices: lines.next(),
        capabilities: lines.next(),
        mig_config: lines.next(),
        mig_monitor: lines.next(),
        imex_channels: lines.next(),
        nvswitch: lines.next(),
    };
    let needs = [("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_REQUIRE_CUDA", &*text), ("CUDA_VERSION", &*text)];
    if let Ok(request) = Request::from_variables(needs, Origin::Image) {
        let _ = request.requirements.iter().map(|needs| needs.judge(&Offer::default())).max();
    }
    let Ok(request) = Request::from_arguments(&arguments) else { return };
    let Ok(plan) = Plan::make(&gpuhook_fuzz::host(), &ContainerFacts::default(), &request) else { return };
    assert_eq!(plan.devices().len(), plan.filter().rules.len());
    for device in plan.devices() {
        assert!(device.path.as_str().starts_with("/dev/"), "{}", device.path);
    }
    let stood_for: usize = plan.samples().iter().map(|(_, more)| more + 1).sum();
    assert_eq!(stood_for, plan.devices().len());
    let _ = plan.to_string();
});
