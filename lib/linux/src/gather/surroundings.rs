// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what only a diagnosis asks of a host, below a `Root`: modules, firmware, the kernel log, CDI files, nodes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};

use gpuhook_core::facts::HostFacts;
use gpuhook_core::facts::cdi::CdiFile;
use gpuhook_core::facts::kernel_log::KernelLog;
use gpuhook_core::facts::modules;
use gpuhook_core::facts::surroundings::{Dev, Surroundings};

use super::{GatherError, Warnings};
use crate::root::Root;
use crate::sys::open;

/// Where engines look for CDI files (CDI SPEC); `/var/run` is a link to `/run` on every systemd host.
const CDI_DIRECTORIES: [&str; 3] = ["etc/cdi", "run/cdi", "var/run/cdi"];

/// modules.dep of a distribution's kernel is about 2 MiB; in bytes.
pub(super) const MODULES_DEP_MAX: u64 = 32 << 20;

/// The kernel's ring buffer is seldom larger than 1 MiB, a posted log hardly more; in bytes.
const LOG_MAX: u64 = 16 << 20;

/// What surrounds the driver of which `host` are the facts; sentences on what could not be read are added to those of
/// `host`.
///
/// # Errors
/// The kernel lacks what a safe lookup needs, so nothing can be read.
pub fn surroundings(root: &Root, host: &mut HostFacts) -> Result<Surroundings, GatherError> {
    let mut warnings = Warnings(std::mem::take(&mut host.warnings));
    let kernel = kernel(root, &mut warnings)?;
    let version = host.driver.as_ref().and_then(|driver| driver.version.as_deref());
    let uvm_file = match &kernel {
        Some(release) => {
            let path = format!("lib/modules/{release}/modules.dep");
            let text = warnings.keep(root.text_at_most(&path, MODULES_DEP_MAX))?.flatten();
            text.map(|text| modules::has_uvm(&text))
        }
        None => None,
    };
    let hmm = warnings.text(root, "sys/module/nvidia_uvm/parameters/uvm_disable_hmm")?;
    let surroundings = Surroundings {
        modules: warnings.text(root, "proc/modules")?.map(|text| modules::loaded(&text)),
        uvm_file,
        kernel,
        hmm_disabled: hmm.map(|text| matches!(text.trim(), "Y" | "1")),
        log: log_text(root, &mut warnings)?.map(|text| KernelLog::parse(&text)),
        firmware: firmware(root, &mut warnings, version)?,
        lists_gpus: warnings.keep(root.directory("proc/driver/nvidia/gpus"))?.flatten().is_some(),
        cdi: cdi(root, &mut warnings)?,
        dev: dev(root, &mut warnings)?,
        nested: nested(root),
    };
    host.warnings = warnings.0;
    Ok(surroundings)
}

/// The running kernel's release; of another machine also the only one that has modules there.
fn kernel(root: &Root, warnings: &mut Warnings) -> Result<Option<String>, GatherError> {
    if let Some(release) = warnings.text(root, "proc/sys/kernel/osrelease")? {
        let release = release.trim();
        return Ok((!release.contains('/')).then(|| release.to_owned()));
    }
    let Some((_, entries)) = warnings.keep(root.list("lib/modules"))?.flatten() else { return Ok(None) };
    Ok(match entries.as_slice() {
        [only] => Some(only.name.clone()),
        _ => None,
    })
}

/// The kernel log, where it may be read (kernel.dmesg_restrict).
pub(super) fn log_text(root: &Root, warnings: &mut Warnings) -> Result<Option<String>, GatherError> {
    match root.is_live() {
        true => Ok(kernel_messages(root)),
        false => Ok(warnings.keep(root.text_at_most("dmesg.txt", LOG_MAX))?.flatten()),
    }
}

/// `/dev/kmsg`: one record per read, `priority,sequence,time,flags;text` (Documentation/ABI/testing/dev-kmsg), opened so
/// that its end is an error and not a wait.
fn kernel_messages(root: &Root) -> Option<String> {
    let mut file = File::from(open::file_below(root, "dev/kmsg").ok()?);
    let mut record = vec![0; 8192];
    let mut text = String::new();
    while u64::try_from(text.len()).is_ok_and(|length| length < LOG_MAX) {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let line = String::from_utf8_lossy(&record[..length]);
                text.push_str(line.split_once(';').map_or(&*line, |(_, message)| message));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // EPIPE: records were overwritten meanwhile, and the next read continues behind them.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
    }
    Some(text)
}

/// Whether there is GSP firmware of the driver's version, so far as a directory of NVIDIA firmware was seen at all.
fn firmware(
    root: &Root,
    warnings: &mut Warnings,
    version: Option<&str>,
) -> Result<Option<BTreeSet<String>>, GatherError> {
    let mut found: Option<BTreeSet<String>> = None;
    for directory in ["lib/firmware/nvidia", "usr/lib/firmware/nvidia", "lib/firmware/updates/nvidia"] {
        let Some((nvidia, entries)) = warnings.keep(root.list(directory))?.flatten() else { continue };
        let versions = found.get_or_insert_default();
        for entry in entries.iter().filter(|entry| Some(&*entry.name) == version) {
            let Some((_, files)) = warnings.keep(nvidia.list(&entry.name))?.flatten() else { continue };
            if files.iter().any(|file| file.name.starts_with("gsp")) {
                versions.insert(entry.name.clone());
            }
        }
    }
    Ok(found)
}

fn cdi(root: &Root, warnings: &mut Warnings) -> Result<Vec<CdiFile>, GatherError> {
    let mut files: Vec<CdiFile> = Vec::new();
    for directory in CDI_DIRECTORIES {
        let Some((cdi, entries)) = warnings.keep(root.list(directory))?.flatten() else { continue };
        for entry in entries {
            let is_spec = [".yaml", ".yml", ".json"].iter().any(|end| entry.name.ends_with(end));
            // The same directory under its other name.
            let seen = |file: &CdiFile| file.path == format!("/run/cdi/{}", entry.name);
            if !is_spec || (directory == "var/run/cdi" && files.iter().any(seen)) {
                continue;
            }
            if let Some(text) = warnings.text(&cdi, &entry.name)? {
                files.push(CdiFile::parse(&format!("/{directory}/{}", entry.name), &text));
            }
        }
    }
    Ok(files)
}

fn dev(root: &Root, warnings: &mut Warnings) -> Result<Dev, GatherError> {
    if !root.is_live()
        && let Some(text) = warnings.text(root, "dev.list")?
    {
        return Ok(Dev::parse_listing(&text));
    }
    let mut nodes = warnings.nodes(root)?;
    if let Some((dri, entries)) = warnings.keep(root.list("dev/dri"))?.flatten() {
        let names = entries.iter().map(|entry| entry.name.as_str());
        let names = names.filter(|name| name.starts_with("card") || name.starts_with("renderD"));
        nodes.extend(names.filter_map(|name| super::node(&dri, name, format!("/dev/dri/{name}"))));
    }
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    let whole = warnings.keep(root.directory("dev"))?.flatten().is_some();
    Ok(Dev { nodes, absent: Vec::new(), whole })
}

/// What says that the host is itself a container (systemd's container interface; the marks of docker and podman).
fn nested(root: &Root) -> Option<String> {
    let text = |path: &str| root.text(path).ok().flatten();
    if let Some(manager) = text("run/systemd/container") {
        return Some(format!("/run/systemd/container says {:?}", manager.trim()));
    }
    let environment = text("proc/1/environ").unwrap_or_default();
    if let Some(manager) = environment.split('\0').find_map(|pair| pair.strip_prefix("container=")) {
        return Some(format!("its init has container={manager:?}"));
    }
    let mark = [".dockerenv", "run/.containerenv"].into_iter().find(|mark| text(mark).is_some());
    mark.map(|mark| format!("there is a /{mark}"))
}
