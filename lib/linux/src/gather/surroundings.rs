// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what only a diagnosis asks of a host, below a `Root`: modules, firmware, the kernel log, CDI files, nodes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};

use gpuhook_core::facts::HostFacts;
use gpuhook_core::facts::cdi::CdiFile;
use gpuhook_core::facts::char_links::CharLink;
use gpuhook_core::facts::kernel_log::KernelLog;
use gpuhook_core::facts::modules;
use gpuhook_core::facts::oci_hook::OciHook;
use gpuhook_core::facts::surroundings::{Dev, Surroundings};
use gpuhook_core::facts::udev::NodeRule;

use super::{GatherError, Warnings};
use crate::root::Root;
use crate::sys::{mount, open};

/// Where engines look for CDI files (CDI SPEC); `/var/run` is a link to `/run` on every systemd host.
const CDI_DIRECTORIES: [&str; 3] = ["etc/cdi", "run/cdi", "var/run/cdi"];

/// Where udev looks for rules (udev(7)).
pub(super) const UDEV_DIRECTORIES: [&str; 4] =
    ["etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"];

/// Where podman and CRI-O look for hooks (oci-hooks(5)).
pub(super) const HOOK_DIRECTORIES: [&str; 3] =
    ["usr/share/containers/oci/hooks.d", "etc/containers/oci/hooks.d", "run/containers/oci/hooks.d"];

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
        udev: udev(root, &mut warnings)?,
        oci_hooks: oci_hooks(root, &mut warnings)?,
        runc: installed(root, "runc"),
        nvidia_ctk: installed(root, "nvidia-ctk"),
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
    Ok(Dev { nodes, absent: Vec::new(), whole, links: links(root, warnings)? })
}

/// The links by number, if there are any: a `/dev` without has no udev.
fn links(root: &Root, warnings: &mut Warnings) -> Result<Option<Vec<CharLink>>, GatherError> {
    let Some((directory, entries)) = warnings.keep(root.list("dev/char"))?.flatten() else { return Ok(None) };
    let link = |name: &str| CharLink::of(name, &mount::link_target(&directory, name).ok()?);
    let links: Vec<CharLink> = entries.iter().filter_map(|entry| link(&entry.name)).collect();
    Ok(Some(links).filter(|links| !links.is_empty()))
}

/// Whether a program is there; of another machine it is known where somebody has looked into `/usr/bin`.
fn installed(root: &Root, program: &str) -> Option<bool> {
    let looked = root.is_live() || root.directory("usr/bin").ok().flatten().is_some();
    let mut paths = ["usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin"].into_iter();
    looked.then(|| paths.any(|directory| open::file_below(root, &format!("{directory}/{program}")).is_ok()))
}

/// The files in a directory that end in this, each with its path and text.
fn files(
    root: &Root,
    directory: &str,
    end: &str,
    warnings: &mut Warnings,
) -> Result<Vec<(String, String)>, GatherError> {
    let Some((below, entries)) = warnings.keep(root.list(directory))?.flatten() else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.name.ends_with(end)) {
        files.extend(warnings.text(&below, &entry.name)?.map(|text| (format!("/{directory}/{}", entry.name), text)));
    }
    Ok(files)
}

fn udev(root: &Root, warnings: &mut Warnings) -> Result<Vec<NodeRule>, GatherError> {
    let mut rules: Vec<NodeRule> = Vec::new();
    for directory in UDEV_DIRECTORIES {
        for (path, text) in files(root, directory, ".rules", warnings)? {
            // /lib is /usr/lib on merged hosts.
            let seen = path
                .strip_prefix("/lib/")
                .is_some_and(|below| rules.iter().any(|rule| rule.path == format!("/usr/lib/{below}")));
            if !seen {
                rules.extend(NodeRule::parse(&path, &text));
            }
        }
    }
    Ok(rules)
}

fn oci_hooks(root: &Root, warnings: &mut Warnings) -> Result<Vec<OciHook>, GatherError> {
    let mut hooks = Vec::new();
    for directory in HOOK_DIRECTORIES {
        let files = files(root, directory, ".json", warnings)?;
        hooks.extend(files.iter().filter_map(|(path, text)| OciHook::parse(path, text)));
    }
    Ok(hooks)
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
