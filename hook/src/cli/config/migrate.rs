// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook config migrate`: the change as a diff on standard output, what a person should know on standard error.

use std::collections::BTreeMap;
use std::path::Path;

use gpuhook_core::config_text::{Document, Kind};
use gpuhook_core::device_lines::{DeviceLines, Meaning};
use gpuhook_core::facts::HostFacts;
use gpuhook_core::lint::generator;
use gpuhook_core::migrate::{MigrateOptions, Migration, same_apart_from_gpus};
use gpuhook_linux::config_file::ConfigFile;
use gpuhook_linux::files;
use gpuhook_linux::gather::{self, Wanted};

use super::{kind, kind_of, lines};
use crate::args::{Options, Verb, wrong_for};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setting::Setting;
use crate::{print_bytes, say};

pub(super) fn run(options: &Options, files: &[String]) -> Result<Exit, Failure> {
    let told = kind(options)?;
    if options.undo {
        if options.write || options.remove_foreign || options.dev_entries || options.pre_start {
            return Err(wrong_for(Verb::Config, "--undo takes no other option than --kind"));
        }
        files.iter().try_for_each(|file| undo(file, told))?;
        return Ok(Exit::Fine);
    }
    let setting = Setting::new(options)?;
    let wanted = Wanted { instances: true, ..Wanted::default() };
    let facts = gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?;
    if facts.majors.is_none() {
        let path = setting.driver.path_of("proc/devices");
        return Err(Failure::could_not_look(format!("{path} cannot be read, and it says whose a number is")));
    }
    let installed = Installed::find();
    for file in files {
        migrate(file, told, &facts, options, &installed, setting.driver.is_live())?;
    }
    Ok(Exit::Fine)
}

fn migrate(
    file: &str,
    told: Option<Kind>,
    facts: &HostFacts,
    options: &Options,
    installed: &Installed,
    is_this_host: bool,
) -> Result<(), Failure> {
    // Locked before it is read, so that what is written was made from what is there.
    let held = match options.write {
        true => Some(ConfigFile::lock(file).map_err(Failure::could_not_look)?),
        false => None,
    };
    let bytes = match &held {
        Some(held) => held.read(),
        None => files::container_config(file),
    };
    let document = Document::parse(&bytes.map_err(Failure::could_not_look)?);
    let (kind, _) = kind_of(file, &document, told)?;
    let lines = lines(file, kind, &document, is_this_host)?;
    if let Some(generator) = generator(&lines) {
        let sentence = format!("{file} is written by {generator}: a change of it would be lost");
        return Err(Failure::problem(sentence));
    }
    if options.write {
        refuse_locked(file, &lines)?;
    }
    let migration = Migration::of(
        &lines,
        &document,
        facts,
        MigrateOptions {
            remove_foreign: options.remove_foreign,
            dev_entries: options.dev_entries,
            pre_start: options.pre_start.then_some(installed.program.as_str()),
            include: &installed.include,
        },
    );
    let include = Path::new(&installed.include);
    if is_this_host && !migration.is_unchanged() && !options.pre_start && !lines.is_registered() && !include.exists() {
        let sentence =
            format!("{} is not there, and LXC does not start without it; hint: make install", include.display());
        if options.write {
            return Err(Failure::problem(format!("{file}: {sentence}")));
        }
        say(&sentence);
    }
    for note in &migration.notes {
        say(&format!("{file}: {note}"));
    }
    if migration.is_unchanged() {
        say(&format!("{file}: nothing to change"));
        return Ok(());
    }
    if let Some(held) = held {
        write(&held, kind, &document, &migration)?;
        say(&format!("{file}: changed; the old file is {}", held.backup_path().display()));
    }
    print_bytes(&migration.diff(file))
}

/// Proxmox's `lock:` says that a backup, a migration or a snapshot is under way.
fn refuse_locked(file: &str, lines: &DeviceLines) -> Result<(), Failure> {
    let locks = lines.in_force().find_map(|line| match &line.meaning {
        Meaning::Lock(reason) => Some(reason.clone()),
        _ => None,
    });
    match locks {
        Some(reason) => Err(Failure::could_not_look(format!(
            "{file} has `lock: {reason}`: Proxmox is working on the container; hint: wait for it, or pct unlock"
        ))),
        None => Ok(()),
    }
}

/// The oldest backup stays as long as the rest of the config is what it was then.
fn write(held: &ConfigFile, kind: Kind, document: &Document, migration: &Migration) -> Result<(), Failure> {
    let kept = held.backup().map_err(Failure::could_not_look)?;
    let is_current = |backup: &Vec<u8>| same_apart_from_gpus(kind, document, &Document::parse(backup)).is_ok();
    if !kept.as_ref().is_some_and(is_current) {
        held.back_up(&document.bytes()).map_err(Failure::could_not_look)?;
    }
    held.replace(&migration.bytes()).map_err(Failure::could_not_look)
}

fn undo(file: &str, told: Option<Kind>) -> Result<(), Failure> {
    let held = ConfigFile::lock(file).map_err(Failure::could_not_look)?;
    let Some(backup) = held.backup().map_err(Failure::could_not_look)? else {
        let sentence = format!("there is no {}, so nothing can be undone", held.backup_path().display());
        return Err(Failure::could_not_look(sentence));
    };
    let document = Document::parse(&held.read().map_err(Failure::could_not_look)?);
    let (kind, _) = kind_of(file, &document, told)?;
    refuse_locked(file, &DeviceLines::read(file, kind, &document, &BTreeMap::new()))?;
    if let Err(line) = same_apart_from_gpus(kind, &document, &Document::parse(&backup)) {
        return Err(Failure::problem(format!(
            "{file} was changed since its migration ({line}), which undoing would lose; hint: compare it with {}",
            held.backup_path().display()
        )));
    }
    held.replace(&backup).map_err(Failure::could_not_look)?;
    held.remove_backup().map_err(Failure::could_not_look)?;
    say(&format!("{file}: as it was before the migration"));
    Ok(())
}

/// Where this gpuhook was installed: `PREFIX/bin/gpuhook` and `PREFIX/share/gpuhook/lxc.conf`.
struct Installed {
    program: String,
    include: String,
}

impl Installed {
    fn find() -> Self {
        let program = crate::environment::program();
        let prefix = program.as_deref().and_then(|program| {
            let bin = program.parent().filter(|directory| directory.ends_with("bin"))?;
            bin.parent()?.to_str()
        });
        let prefix = prefix.unwrap_or("/usr").trim_end_matches('/');
        Self { program: format!("{prefix}/bin/gpuhook"), include: format!("{prefix}/share/gpuhook/lxc.conf") }
    }
}
