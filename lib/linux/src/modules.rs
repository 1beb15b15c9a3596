// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the driver's modules on the host, before a container needs their numbers.

use std::time::Duration;

use crate::command;

/// The driver's first module brings the GPUs up, which takes seconds for each.
const LIMIT: Duration = Duration::from_secs(120);

/// What `modprobe` said of each module; empty where all are loaded now.
///
/// modprobe and not nvidia-modprobe: it knows the distribution's aliases (`nvidia-current-uvm`), and gpuhook needs the
/// module alone, since it makes its own nodes.
pub fn load(modules: &[&str]) -> Vec<String> {
    modules.iter().filter_map(|module| load_one(module).err().map(|why| format!("modprobe {module}: {why}"))).collect()
}

fn load_one(module: &str) -> Result<(), String> {
    let program = ["/sbin/modprobe", "/usr/sbin/modprobe"].into_iter().find(|path| std::path::Path::new(path).exists());
    let program = program.ok_or("no modprobe on this host; hint: install the package kmod")?;
    let output = command::run(program, &[module], LIMIT).map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
