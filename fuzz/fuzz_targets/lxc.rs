// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as an LXC config that includes itself some times, and as the administrator's own file.
#![no_main]

use gpuhook_core::config::Config;
use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::lxc_config::{LxcConfig, Source};
use gpuhook_core::plan::Plan;
use gpuhook_core::request::{Arguments, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut files = 0;
    let mut source = |_: &str| {
        files += 1;
        if files > 8 { Err(()) } else { Ok(Source::File(bytes.to_vec())) }
    };
    if let Ok(config) = LxcConfig::read("/c", &mut source) {
        let _ = (config.init_uid(), config.init_gid(), config.registered("start-host"), config.cgroup_dir_container());
        let (uid_map, gid_map) = config.idmap().unwrap_or_default();
        if let Ok(request) = Request::from_lxc(&Arguments::default(), &config, false, &Config::default()) {
            let container = ContainerFacts { uid_map, gid_map, ..ContainerFacts::default() };
            let _ = Plan::make(&gpuhook_fuzz::host(), &container, &request);
        }
    }
    let _ = Config::parse(&gpuhook_fuzz::text(bytes));
});
