// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as the state that a runtime hands to a hook, as `config.json` that is read or edited, and as a runtime's
//! command line.
#![no_main]

use gpuhook_core::config::Config;
use gpuhook_core::device::{Access, DeviceId, DeviceRule};
use gpuhook_core::oci::{RuntimeCall, Spec, SpecEdit, State, VERIFY};
use gpuhook_core::plan::Plan;
use gpuhook_core::request::{Arguments, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(state) = State::parse(bytes) {
        assert!(!state.id.as_str().contains('/'), "an id is no path");
        let _ = state.live_pid();
    }
    let rules = [DeviceRule { id: DeviceId::new(509, 0), access: Access::READ | Access::WRITE }];
    let calls = [60, 10].map(|limit| (vec![VERIFY.to_owned()], limit));
    let edit = SpecEdit::hooks("/usr/bin/gpuhook", calls).giving(&[], &rules);
    if let Ok(once) = edit.apply(bytes) {
        let clean = SpecEdit::default().apply(&once).expect("what was written can be read");
        assert_eq!(edit.apply(&once).ok().as_deref(), Some(&*once), "a second edit changes nothing");
        assert_eq!(edit.apply(&clean).ok().map(|twice| twice.len()), Some(once.len()));
    }
    let text = String::from_utf8_lossy(bytes);
    let call = RuntimeCall::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let _ = call.log_line(&text);
    if let Ok(spec) = Spec::parse(bytes) {
        let _ = (spec.rootfs("/bundle"), spec.nvidia_injector());
        if let Ok(request) = Request::from_spec(&Arguments::default(), &spec, &Config::default()) {
            assert!(!request.mig_config && request.imex_channels.is_empty(), "an image gets no such right");
            let _ = Plan::make(&gpuhook_fuzz::host(), &Default::default(), &request);
        }
    }
});
