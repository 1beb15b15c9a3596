// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as the driver's files, listings of `/dev`, id maps, and what a diagnosis reads beside them.
#![no_main]

use gpuhook_core::facts::cdi::CdiFile;
use gpuhook_core::facts::kernel_log::KernelLog;
use gpuhook_core::facts::modules;
use gpuhook_core::facts::surroundings::Dev;
use gpuhook_core::facts::{Capability, Driver, Gpu, HostNode, IdMap, Params, PciAddress};
use gpuhook_core::redact::Redactor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = gpuhook_fuzz::text(bytes);
    let _ = Driver::parse(&text);
    let _ = Params::parse(&text);
    let _ = Capability::parse("mig/config", &text);
    if let Some(address) = PciAddress::parse(text.lines().next().unwrap_or_default()) {
        assert_eq!(PciAddress::parse(&address.to_string()), Some(address), "it is read as it is written");
        let _ = Gpu::parse(address, &text);
    }
    let _ = Gpu::parse(PciAddress::parse("0000:07:00.0").expect("an address"), &text);
    let _ = HostNode::parse_listing(&text);
    let _ = HostNode::parse_whole_listing(&text);
    if let Ok(map) = IdMap::parse(&text) {
        let _ = (map.to_host(0), map.to_host(u32::MAX));
    }
    let _ = (modules::loaded(&text), modules::has_uvm(&text), KernelLog::parse(&text));
    let _ = (CdiFile::parse("/etc/cdi/nvidia.yaml", &text), CdiFile::parse("/run/cdi/nvidia.json", &text));
    let dev = Dev::parse_listing(&text);
    let _ = (dev.at("/dev/nvidia0"), dev.listing(["/dev/nvidia0"]));
    let _ = Redactor::new(&["host"], [&*text]).text(&text);
});
