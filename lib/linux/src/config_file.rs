// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container's config on disk, changed so that a crash at any point leaves the old or the new file whole: lock, temporary
//! file in the same directory, rename.
//!
//! `/etc/pve` is pmxcfs, which takes no chown, no chmod but 0640, no links and no extended attributes; it renames over an
//! existing file of the same directory, which is how Proxmox writes (PVE::Tools, `file_set_contents`).

use std::error::Error;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::files::{self, FileError};

/// Where Proxmox's cluster file system is.
const CLUSTER: &str = "/etc/pve";

/// Where Proxmox locks its containers' configs (PVE::LXC::Config, `config_file_lock`).
const CLUSTER_LOCKS: &str = "/run/lock/lxc";

/// A config that nobody else changes meanwhile.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    is_cluster: bool,
    _lock: File,
}

impl ConfigFile {
    /// Locks the config at `path`, whatever links lead there. Proxmox's own lock where it is Proxmox's file; else its
    /// directory is locked, which keeps a second gpuhook away.
    ///
    /// # Errors
    /// There is no such file, or somebody else is changing it.
    pub fn lock(path: &str) -> Result<Self, ConfigFileError> {
        let failed = |source| ConfigFileError::Open { path: path.to_owned(), source };
        let path = fs::canonicalize(path).map_err(failed)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let is_cluster = path.starts_with(CLUSTER);
        let (lock, named) = match (is_cluster, path.file_stem()) {
            (true, Some(id)) => {
                let named = Path::new(CLUSTER_LOCKS).join(format!("pve-config-{}.lock", id.display()));
                fs::create_dir_all(CLUSTER_LOCKS).map_err(failed)?;
                (OpenOptions::new().create(true).append(true).open(&named).map_err(failed)?, named)
            }
            _ => (File::open(directory).map_err(failed)?, directory.to_owned()),
        };
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, is_cluster, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(ConfigFileError::Busy { path: shown(&path), lock: shown(&named) }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// What it holds now.
    ///
    /// # Errors
    /// As [`files::container_config`].
    pub fn read(&self) -> Result<Vec<u8>, FileError> {
        files::container_config(&shown(&self.path))
    }

    /// What [`ConfigFile::back_up`] kept; nothing where there is no backup.
    ///
    /// # Errors
    /// As [`files::container_config`].
    pub fn backup(&self) -> Result<Option<Vec<u8>>, FileError> {
        let path = self.backup_path();
        if path.exists() { files::container_config(&shown(&path)).map(Some) } else { Ok(None) }
    }

    /// Where the backup is.
    pub fn backup_path(&self) -> PathBuf {
        self.beside("gpuhook-backup")
    }

    /// Keeps `bytes` beside the config.
    ///
    /// # Errors
    /// [`ConfigFileError::Write`]; whatever was there is still there.
    pub fn back_up(&self, bytes: &[u8]) -> Result<(), ConfigFileError> {
        self.write(&self.backup_path(), bytes)
    }

    /// Makes `bytes` the config.
    ///
    /// # Errors
    /// [`ConfigFileError::Write`]; the config is as it was.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), ConfigFileError> {
        self.write(&self.path, bytes)
    }

    /// Forgets the backup.
    ///
    /// # Errors
    /// [`ConfigFileError::Write`].
    pub fn remove_backup(&self) -> Result<(), ConfigFileError> {
        let path = self.backup_path();
        fs::remove_file(&path).map_err(|source| self.failed(&path, source))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), ConfigFileError> {
        let temporary = self.beside("gpuhook-tmp");
        // One that a killed run left: the lock says that nobody is writing it.
        match fs::remove_file(&temporary) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(self.failed(path, source)),
            _ => {}
        }
        let written = self.fill(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
        if let Err(source) = written {
            fs::remove_file(&temporary).ok();
            return Err(self.failed(path, source));
        }
        if !self.is_cluster
            && let Some(directory) = path.parent()
        {
            // The rename is done; a file system that cannot sync a directory does not undo it.
            File::open(directory).and_then(|directory| directory.sync_all()).ok();
        }
        Ok(())
    }

    fn fill(&self, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
        let mode = if self.is_cluster { 0o640 } else { 0o600 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
        file.write_all(bytes)?;
        if self.is_cluster {
            // pmxcfs keeps its own journal.
            file.sync_all().ok();
            return Ok(());
        }
        let old = fs::metadata(&self.path)?;
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.sync_all()
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".");
        name.push(end);
        PathBuf::from(name)
    }

    fn failed(&self, path: &Path, source: io::Error) -> ConfigFileError {
        ConfigFileError::Write { path: shown(path), is_cluster: self.is_cluster, source }
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Why a config is not changed.
#[derive(Debug)]
pub enum ConfigFileError {
    /// It cannot be found, or its lock cannot be had.
    Open {
        /// The config.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Somebody else is changing it.
    Busy {
        /// The config.
        path: String,
        /// What they have locked.
        lock: String,
    },
    /// It cannot be written.
    Write {
        /// The config or its backup.
        path: String,
        /// It lies in Proxmox's cluster file system.
        is_cluster: bool,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for ConfigFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, .. } => write!(f, "open {path}"),
            Self::Busy { path, lock } => {
                write!(f, "change {path}: another program is changing it and has {lock} locked; hint: try again")
            }
            Self::Write { path, is_cluster: true, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "write {path}; hint: without quorum the cluster file system takes no change: pvecm status")
            }
            Self::Write { path, .. } => write!(f, "write {path}"),
        }
    }
}

impl Error for ConfigFileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Open { source, .. } | Self::Write { source, .. } => Some(source),
            Self::Busy { .. } => None,
        }
    }
}
