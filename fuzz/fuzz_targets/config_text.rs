// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing any bytes as a container's config: nothing panics, printing gives the bytes back, every line is judged.
#![no_main]

use std::collections::BTreeMap;

use gpuhook_core::config_text::{Document, Kind, Reason};
use gpuhook_core::device_lines::DeviceLines;
use gpuhook_core::lint::{Controller, Host, Lint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let document = Document::parse(bytes);
    assert_eq!(document.bytes(), bytes);
    let facts = gpuhook_fuzz::host();
    for (_, kind) in Kind::WORDS {
        assert_eq!(document.statements(kind).len(), document.lines().len());
        let lines = DeviceLines::read("config", kind, &document, &BTreeMap::new());
        let host = Host { facts: &facts, controller: Controller::V2, nodes_are_whole: false };
        let said = Lint::of(&[(lines, Reason::Told)], host).to_string();
        assert!(!said.contains('\u{1b}'), "what a config holds must not act on a terminal");
    }
});
