// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migrating any bytes: a second time changes nothing.
#![no_main]

use std::collections::BTreeMap;

use gpuhook_core::config_text::{Document, Kind};
use gpuhook_core::device_lines::DeviceLines;
use gpuhook_core::migrate::{MigrateOptions, Migration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let facts = gpuhook_fuzz::host();
    let options = MigrateOptions { include: "/usr/share/gpuhook/lxc.conf", ..MigrateOptions::default() };
    for (_, kind) in Kind::WORDS {
        let migrate = |bytes: &[u8]| {
            let document = Document::parse(bytes);
            let lines = DeviceLines::read("config", kind, &document, &BTreeMap::new());
            Migration::of(&lines, &document, &facts, options).bytes()
        };
        let once = migrate(bytes);
        assert_eq!(migrate(&once), once);
    }
});
