// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration files of the host, read whole and within bounds: the administrator's file, LXC configs, OCI bundles.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use gpuhook_core::config::{Config, ConfigError};
use gpuhook_core::lxc_config::{LxcConfig, LxcConfigError, Source};
use gpuhook_core::oci::{OciError, Spec};

/// Longest configuration file, in bytes.
const LIMIT: usize = 1 << 20;

/// Where the administrator's file is when nobody says otherwise.
pub const CONFIG: &str = "/etc/gpuhook/config.toml";

/// Why a file cannot be used.
#[derive(Debug)]
pub enum FileError {
    /// It cannot be read.
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is a directory, a FIFO or a device.
    NotAFile {
        /// What was to be read.
        path: String,
    },
    /// It is larger than anything that makes sense.
    TooLarge {
        /// The file.
        path: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The administrator's file says something that it cannot say.
    Config {
        /// The file.
        path: String,
        /// What.
        source: ConfigError,
    },
    /// An LXC config that LXC would not read either.
    Lxc(LxcConfigError<io::Error>),
    /// A spec that no runtime would take.
    Spec {
        /// The file.
        path: String,
        /// Why.
        source: OciError,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "read {path}; hint: run it as root")
            }
            Self::Read { path, .. } => write!(f, "read {path}"),
            Self::Write { path, .. } => write!(f, "write {path}"),
            Self::NotAFile { path } => write!(f, "read {path}: it is not a regular file"),
            Self::TooLarge { path, limit } => write!(f, "{path} is larger than {limit} bytes"),
            Self::Config { path, .. } => write!(f, "read {path}"),
            Self::Lxc(_) => f.write_str("read the container's LXC config"),
            Self::Spec { path, .. } => write!(f, "read {path}"),
        }
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::NotAFile { .. } | Self::TooLarge { .. } => None,
            Self::Config { source, .. } => Some(source),
            Self::Lxc(source) => Some(source),
            Self::Spec { source, .. } => Some(source),
        }
    }
}

/// The administrator's file. Only the default one may be absent, and then every default applies.
///
/// # Errors
/// [`FileError::Config`] names the line.
pub fn config(path: Option<&str>) -> Result<Config, FileError> {
    let named = path.unwrap_or(CONFIG);
    match read(named, LIMIT) {
        Err(FileError::Read { source, .. }) if path.is_none() && source.kind() == io::ErrorKind::NotFound => {
            Ok(Config::default())
        }
        Err(error) => Err(error),
        Ok(bytes) => Config::parse(&String::from_utf8_lossy(&bytes))
            .map_err(|source| FileError::Config { path: named.to_owned(), source }),
    }
}

/// An LXC container's config with everything that it includes.
///
/// # Errors
/// [`FileError::Lxc`]: a file is missing, or includes go round in a circle.
pub fn lxc_config(path: &str) -> Result<LxcConfig, FileError> {
    LxcConfig::read(path, &mut |path| lxc_source(path)).map_err(FileError::Lxc)
}

/// The bytes of a container's config.
///
/// # Errors
/// It is no regular file, cannot be read, or is larger than any config.
pub fn container_config(path: &str) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    // A FIFO would keep us waiting for its writer.
    match std::fs::metadata(path).map_err(failed)?.is_file() {
        true => read(path, LIMIT),
        false => Err(FileError::NotAFile { path: path.to_owned() }),
    }
}

/// The container configs of the host below `root` (empty for this host): Proxmox's, else LXC's, and those of users, as far
/// as their homes may be entered.
///
/// # Errors
/// [`FileError::Read`]: the directory of Proxmox's or LXC's containers may not be read.
pub fn container_configs(root: &str) -> Result<Vec<String>, FileError> {
    let mut found = below(&format!("{root}/etc/pve/lxc"), ".conf")?;
    if found.is_empty() && !Path::new(&format!("{root}/etc/pve")).is_dir() {
        let global = read(&format!("{root}/etc/lxc/lxc.conf"), LIMIT).unwrap_or_default();
        let global = String::from_utf8_lossy(&global).into_owned();
        let lxcpath = global.lines().find_map(|line| line.trim().strip_prefix("lxc.lxcpath")?.trim().strip_prefix('='));
        found.extend(below(&format!("{root}{}", lxcpath.map_or("/var/lib/lxc", str::trim)), "/config")?);
    }
    let homes = below(&format!("{root}/home"), "").unwrap_or_default();
    for home in homes.into_iter().chain([format!("{root}/root")]) {
        found.extend(below(&format!("{home}/.local/share/lxc"), "/config").unwrap_or_default());
    }
    Ok(found)
}

/// The entries of `directory`, sorted: with a leading dot or slash in `end`, those whose path with it is a file.
fn below(directory: &str, end: &str) -> Result<Vec<String>, FileError> {
    let entries = match std::fs::read_dir(directory) {
        Err(source) if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(source) => return Err(FileError::Read { path: directory.to_owned(), source }),
        Ok(entries) => entries,
    };
    let mut paths: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| format!("{directory}/{name}"))
        .filter_map(|path| match end.strip_prefix('/') {
            Some(file) => Some(format!("{path}/{file}")).filter(|path| Path::new(path).is_file()),
            None => Some(path).filter(|path| path.ends_with(end)),
        })
        .collect();
    paths.sort();
    Ok(paths)
}

fn lxc_source(path: &str) -> io::Result<Source> {
    // LXC passes over a directory that is not there, if the slash shows that it is one (seen with LXC 5.0.2): the
    // configs that LXC ships include such.
    if path.ends_with('/') && !Path::new(path).exists() {
        return Ok(Source::Directory(Vec::new()));
    }
    if Path::new(path).is_dir() {
        let names = std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        return Ok(Source::Directory(names.into_iter().filter_map(|name| name.into_string().ok()).collect()));
    }
    match read(path, LIMIT) {
        Ok(bytes) => Ok(Source::File(bytes)),
        // LXC 5.0.2 starts on this too, and Debian's userns.conf includes such a directory that no package makes.
        Err(FileError::Read { source, .. }) if path.ends_with('/') && source.kind() == io::ErrorKind::NotFound => {
            Ok(Source::Directory(Vec::new()))
        }
        Err(FileError::Read { source, .. }) => Err(source),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// The spec of the bundle in the directory `bundle`.
///
/// # Errors
/// [`FileError`]: `config.json` is missing, too large, or not a spec.
pub fn spec(bundle: &str) -> Result<Spec, FileError> {
    let path = format!("{bundle}/config.json");
    let bytes = spec_bytes(&path)?;
    Spec::parse(&bytes).map_err(|source| FileError::Spec { path, source })
}

/// The bytes of the spec `path`.
///
/// # Errors
/// [`FileError`]: it is missing or too large.
pub fn spec_bytes(path: &str) -> Result<Vec<u8>, FileError> {
    read(path, Spec::LIMIT)
}

/// The text of the file `path`; bytes that are not UTF-8 become replacement characters.
///
/// # Errors
/// [`FileError`]: it cannot be read, or is too large.
pub fn text(path: &str) -> Result<String, FileError> {
    read(path, LIMIT).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether something stands at `path`.
///
/// # Errors
/// [`FileError::Read`]: a directory on the way may not be entered.
pub fn exists(path: &str) -> Result<bool, FileError> {
    Path::new(path).try_exists().map_err(|source| FileError::Read { path: path.to_owned(), source })
}

/// Makes the file `path`, readable by its owner alone, with `bytes` in it.
///
/// # Errors
/// [`FileError::Write`], also where anything stands there: a link of somebody else in a shared directory, say.
pub fn write_new(path: &str, bytes: &[u8]) -> Result<(), FileError> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(|source| FileError::Write { path: path.to_owned(), source })
}

/// Makes `bytes` the file `path`, readable by all, and its directory where there is none; whoever reads it meanwhile finds the old or the new one whole.
///
/// # Errors
/// [`FileError::Write`]; the file is as it was.
pub fn replace(path: &str, bytes: &[u8]) -> Result<(), FileError> {
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = format!("{path}.gpuhook-{}", std::process::id());
    let directory = Path::new(path).parent().map_or(Ok(()), std::fs::create_dir_all);
    let file =
        directory.and_then(|()| std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&fresh));
    let written = file.and_then(|mut file| file.write_all(bytes)).and_then(|()| std::fs::rename(&fresh, path));
    written.map_err(|source| {
        std::fs::remove_file(&fresh).ok();
        FileError::Write { path: path.to_owned(), source }
    })
}

/// Everything that comes on standard input, or an error beyond `limit` bytes.
pub fn standard_input(limit: usize) -> Result<Vec<u8>, FileError> {
    bounded(io::stdin().lock(), "standard input", limit)
}

fn read(path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
    let file = File::open(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    bounded(file, path, limit)
}

fn bounded(source: impl Read, path: &str, limit: usize) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    source
        .take(one_more)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    match bytes.len() > limit {
        true => Err(FileError::TooLarge { path: path.to_owned(), limit }),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_that_a_config_includes_is_empty_and_a_missing_file_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("config");
        let read = |include: &str| {
            std::fs::write(&config, format!("lxc.include = {}/{include}\n", dir.path().display())).expect("a config");
            lxc_config(&config.display().to_string())
        };
        assert!(read("userns.conf.d/").is_ok());
        for file in ["userns.conf.d", "userns.conf"] {
            assert!(matches!(read(file), Err(FileError::Lxc(_))), "{file}");
        }
    }
}
