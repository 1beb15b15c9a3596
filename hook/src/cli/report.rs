// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook report`: what the doctor reads, in one archive for a bug report, without what names a machine or a card.

use gpuhook_core::redact::Redactor;
use gpuhook_core::tar;
use gpuhook_linux::files;
use gpuhook_linux::gather::{self, Wanted};

use crate::args::Options;
use crate::cli::doctor;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::print;
use crate::setting::Setting;

/// Where the archive goes when nobody says.
const OUTPUT: &str = "gpuhook-report.tar";

/// Collects, replaces, writes.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let wanted = Wanted { capabilities: true, instances: true, ..Wanted::default() };
    let mut host = gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?;
    let surroundings = gather::surroundings(&setting.driver, &mut host).map_err(Failure::could_not_look)?;
    let mut texts = gather::raw(&setting.driver, &host, &surroundings).map_err(Failure::could_not_look)?;
    let (look, config) = doctor::evidence(&setting, options)?;
    if let Some(look) = look {
        texts.push(("probe.json".to_owned(), String::from_utf8_lossy(&json(&look)?).into_owned()));
    }
    if let Some(config) = config {
        texts.push((config_name(&config), files::text(&config).map_err(Failure::could_not_look)?));
    }
    let name = setting.host.text("proc/sys/kernel/hostname").ok().flatten().unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default();
    let mut redactor = Redactor::new(&[name.trim(), short]);
    let texts = texts.into_iter().map(|(path, text)| (redactor.text(&path), redactor.text(&text).into_bytes()));
    let archive = tar::archive(&texts.collect::<Vec<_>>());
    let output = options.output.as_deref().unwrap_or(OUTPUT);
    files::write_new(output, &archive).map_err(Failure::could_not_look)?;
    let said = format!(
        "{output}: what gpuhook doctor reads, with UUIDs, serial numbers, the host's name and addresses replaced; look \
         through it before you publish it (tar -xOf {output})\n"
    );
    print(&said).map(|()| Exit::Fine)
}

/// Proxmox's grammar is told by its place.
fn config_name(path: &str) -> String {
    match path.contains("/pve/") {
        true => "etc/pve/lxc/100.conf".to_owned(),
        false => "container.conf".to_owned(),
    }
}
