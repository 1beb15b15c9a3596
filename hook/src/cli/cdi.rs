// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook cdi generate`: a CDI file that holds no number.

use gpuhook_core::cdi::{self, CdiSpec};
use gpuhook_core::oci::{NewHook, VERIFY};
use gpuhook_linux::files;
use gpuhook_linux::gather::{self, Wanted};

use crate::args::{Options, Verb, wrong_for};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::flow::json;
use crate::print;
use crate::setting::Setting;
use crate::spec::{self, program};

/// Prints it, or puts it where engines look.
pub(crate) fn run(options: &Options) -> Result<Exit, Failure> {
    match options.words.first().map(String::as_str) {
        Some("generate") => {}
        _ => return Err(wrong_for(Verb::Cdi, "say what: generate")),
    }
    let setting = Setting::new(options)?;
    let kind = options.kind.as_deref().unwrap_or(cdi::KIND);
    let program = program()?;
    let limit = spec::time_limit(&setting);
    let hook = |stage, devices: &str| {
        let mut words = Vec::new();
        if !options.fixed {
            words.push(VERIFY.to_owned());
        }
        if !devices.is_empty() {
            words.extend(["--devices", devices].map(str::to_owned));
        }
        if !options.fixed && !devices.is_empty() {
            // The nodes are those of the file, whatever the container's variables say.
            words.extend(["--capabilities", cdi::CAPABILITIES].map(str::to_owned));
        }
        words.extend(options.repeated());
        NewHook::new(stage, &program, &words, limit)
    };
    let file = match options.fixed {
        true => CdiSpec::fixed(kind, hook),
        false => {
            let wanted = Wanted { instances: true, ..Wanted::default() };
            CdiSpec::of_host(kind, &gather::host(&setting.driver, wanted).map_err(Failure::could_not_look)?, hook)
        }
    };
    let text = json(&file?)?;
    match &options.output {
        Some(path) => files::replace(path, &text)?,
        None => print(&String::from_utf8_lossy(&text))?,
    }
    Ok(Exit::Fine)
}
