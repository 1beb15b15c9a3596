// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook config`: containers' configs, explained line by line (`lint`) or freed of numbers (`migrate`).

use std::collections::BTreeMap;
use std::io;

use gpuhook_core::config_text::{Document, Kind, Reason};
use gpuhook_core::device_lines::DeviceLines;
use gpuhook_core::lint::{Controller, Host, Lint};
use gpuhook_core::lxc_config::{LxcConfig, LxcConfigError};
use gpuhook_linux::files::{self, FileError};
use gpuhook_linux::gather::{self, Wanted};

use crate::args::{Options, Verb, wrong_for};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::print;
use crate::setting::Setting;

mod migrate;

/// Does what the first word says.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let wrong = |sentence: &str| Err(wrong_for(Verb::Config, sentence));
    let changes = options.write || options.undo || options.remove_foreign || options.dev_entries || options.pre_start;
    match options.words.split_first() {
        Some((word, _)) if word == "lint" && changes => wrong("lint changes nothing; migrate takes these options"),
        Some((word, files)) if word == "lint" => match (files, options.all) {
            ([], false) => wrong("say which config: FILE... or --all"),
            ([_, ..], true) => wrong("--all finds the configs itself: name no FILE"),
            _ => lint(options, files),
        },
        Some((word, files)) if word == "migrate" => match files {
            _ if options.all || options.json => wrong("migrate takes neither --all nor --json: name each FILE"),
            [] => wrong("say which config: FILE..."),
            files => migrate::run(options, files),
        },
        Some((word, _)) => wrong(&format!("{word:?} is neither lint nor migrate")),
        None => wrong("say lint or migrate"),
    }
}

fn lint(options: &Options, files: &[String]) -> Result<Exit, Failure> {
    let kind = kind(options)?;
    let setting = Setting::new(options)?;
    let wanted = Wanted { nodes: true, ..Wanted::default() };
    let facts = gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?;
    let host = Host {
        facts: &facts,
        controller: Controller::of_mountinfo(&gather::mountinfo(&setting.driver)),
        nodes_are_whole: setting.driver.is_live(),
    };
    let found = match options.all {
        true => files::container_configs(options.host_root.as_deref().unwrap_or_default())
            .map_err(Failure::could_not_look)?,
        false => files.to_vec(),
    };
    let (mut configs, mut failure) = (Vec::new(), None);
    for file in &found {
        match read(file, kind, setting.driver.is_live()) {
            Ok((lines, reason)) => configs.push((lines, reason)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // What could be read is told, and then what could not.
    if configs.is_empty()
        && let Some(failure) = failure
    {
        return Err(failure);
    }
    let lint = Lint::of(&configs, host);
    let text = match options.json {
        true => String::from_utf8_lossy(&json(&lint)?).into_owned(),
        false => lint.to_string(),
    };
    print(&text)?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(if lint.findings.has_problem() { Exit::Problem } else { Exit::Fine }),
    }
}

/// What `--kind` says.
pub(crate) fn kind(options: &Options) -> Result<Option<Kind>, Failure> {
    match options.kind.as_deref() {
        None => Ok(None),
        Some(word) => Kind::from_word(word)
            .map(Some)
            .ok_or_else(|| wrong_for(Verb::Config, format!("--kind {word:?} is none of lxc, pve and raw"))),
    }
}

/// A config as its lines, and why it is taken for its kind.
pub(crate) fn read(file: &str, told: Option<Kind>, is_this_host: bool) -> Result<(DeviceLines, Reason), Failure> {
    let document = Document::parse(&files::container_config(file).map_err(Failure::could_not_look)?);
    let (kind, reason) = kind_of(file, &document, told)?;
    Ok((lines(file, kind, &document, is_this_host)?, reason))
}

/// A config's lines; with its includes where they are this host's.
fn lines(file: &str, kind: Kind, document: &Document, is_this_host: bool) -> Result<DeviceLines, Failure> {
    let includes = if is_this_host { includes(kind, document)? } else { BTreeMap::new() };
    Ok(DeviceLines::read(file, kind, document, &includes))
}

fn kind_of(file: &str, document: &Document, told: Option<Kind>) -> Result<(Kind, Reason), Failure> {
    let kind = Kind::of(file, document, told);
    kind.map_err(|error| Failure::could_not_look(format!("read {}: {error}", file.escape_debug())))
}

fn includes(kind: Kind, document: &Document) -> Result<BTreeMap<String, Result<LxcConfig, String>>, Failure> {
    let mut known = BTreeMap::new();
    for path in DeviceLines::includes(kind, document) {
        let config = match files::lxc_config(&path) {
            Ok(config) => Ok(config),
            Err(FileError::Lxc(LxcConfigError::Read { source, path, .. }))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Err(path)
            }
            Err(error) => return Err(Failure::could_not_look(error)),
        };
        known.insert(path, config);
    }
    Ok(known)
}
