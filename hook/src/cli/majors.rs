// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook majors`: every character major by name, or those of GPU drivers.

use std::collections::BTreeMap;

use gpuhook_core::facts::majors::is_gpu_driver;
use gpuhook_linux::gather::{self, Wanted};

use crate::args::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::print;
use crate::setting::Setting;

/// Prints them.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    let setting = Setting::new(options)?;
    let host = gather::host(&setting.driver, Wanted::default()).map_err(Failure::could_not_look)?;
    let Some(majors) = host.majors else {
        return Err(Failure::could_not_look(format!("{} cannot be read", setting.driver.path_of("proc/devices"))));
    };
    let wanted: BTreeMap<_, _> =
        majors.by_name.iter().filter(|(name, _)| !options.gpu || is_gpu_driver(name)).collect();
    if options.json {
        return print(&String::from_utf8_lossy(&json(&wanted)?)).map(|()| Exit::Fine);
    }
    let mut lines: Vec<(u32, String)> = wanted
        .iter()
        .flat_map(|(name, majors)| majors.iter().map(move |major| (major.0, format!("{:>4} {name}\n", major.0))))
        .collect();
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    let warnings: String = host.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    print(&format!("{text}{warnings}")).map(|()| Exit::Fine)
}
