// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook report`: what the doctor reads, in one archive for a bug report, without what names a machine or a card.

use gpuhook_core::redact::Redactor;
use gpuhook_core::tar;
use gpuhook_linux::files;
use gpuhook_linux::gather::{self, Wanted};

use crate::args::Options;
use crate::cli::doctor::{self, Evidence, HOST_PROBE};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::print;
use crate::setting::Setting;

/// Where the archive goes when nobody says.
const OUTPUT: &str = "gpuhook-report.tar";

/// The texts whose words are names of drivers and modules.
const WORDS: [&str; 3] = ["proc/devices", "proc/modules", "proc/filesystems"];

/// Collects, replaces, writes.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let wanted = Wanted { capabilities: true, instances: true, ..Wanted::default() };
    let mut host = gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?;
    let surroundings = gather::surroundings(&setting.driver, &mut host).map_err(Failure::could_not_look)?;
    let mut texts = gather::raw(&setting.driver, &host, &surroundings).map_err(Failure::could_not_look)?;
    let Evidence { inside, on_host, config } = doctor::evidence(&setting, options)?;
    for (name, look) in [("probe.json", inside), (HOST_PROBE, on_host)] {
        if let Some(look) = look {
            texts.push((name.to_owned(), String::from_utf8_lossy(&json(&look)?).into_owned()));
        }
    }
    let name = setting.host.text("proc/sys/kernel/hostname").ok().flatten().unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default();
    let config = match config {
        Some(path) => Some((config_name(options, &path), files::text(&path).map_err(Failure::could_not_look)?)),
        None => None,
    };
    // Words with a meaning: names of drivers and modules, and the paths that the doctor looks for.
    let fixed = texts.iter().filter(|(path, _)| WORDS.contains(&path.as_str())).map(|(_, text)| text.as_str());
    let paths = texts.iter().map(|(path, _)| path.as_str()).chain(config.iter().map(|(path, _)| path.as_str()));
    let mut redactor = Redactor::new(&[name.trim(), short], fixed.chain(paths));
    let mut texts: Vec<(String, Vec<u8>)> =
        texts.iter().map(|(path, text)| (redactor.text(path), redactor.text(text).into_bytes())).collect();
    texts.extend(config.map(|(path, text)| (path, redactor.config(&text).into_bytes())));
    let archive = tar::archive(&texts);
    let output = options.output.as_deref().unwrap_or(OUTPUT);
    files::write_new(output, &archive).map_err(Failure::could_not_look)?;
    let said = format!(
        "{output}: what gpuhook doctor reads, with UUIDs, serial numbers, the host's name and addresses replaced; look \
         through it before you publish it (tar -xOf {output})\n"
    );
    print(&said).map(|()| Exit::Fine)
}

/// Proxmox's grammar is told by its place; `raw.conf` wants `--kind raw` again.
fn config_name(options: &Options, path: &str) -> String {
    let name = match options.kind.as_deref() {
        Some("raw") => "raw.conf",
        Some("pve") => "etc/pve/lxc/100.conf",
        None if path.contains("/pve/") => "etc/pve/lxc/100.conf",
        _ => "container.conf",
    };
    name.to_owned()
}
