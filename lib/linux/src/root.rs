// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory that stands for a host (or for `/proc/PID`): everything is read below it and nothing outside of it,
//! whatever links it holds.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::open::{self, Entry};
use crate::sys::{Errno, SysError, SysResult, mount};

/// A directory below which files are read. It offers no write.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: String,
    live: bool,
}

impl Root {
    /// The most that is read of one file, in bytes, where nothing else is said.
    pub const FILE_MAX: u64 = 1 << 20;

    /// The folder `path` as a host: another machine's report, or a fixture.
    ///
    /// # Errors
    /// It is no directory, or may not be entered.
    pub fn open(path: &str) -> Result<Self, RootError> {
        let directory = open::directory(path).map_err(|source| RootError::failed(path.to_owned(), source))?;
        Ok(Self { directory, path: path.trim_end_matches('/').to_owned(), live: false })
    }

    /// The machine itself, as this process's mount namespace shows it now: open it before any namespace is joined.
    ///
    /// # Errors
    /// `/proc` is not procfs, so that anybody could have written what is read there.
    pub fn host() -> Result<Self, RootError> {
        let root = Self { live: true, ..Self::open("/")? };
        let proc = open::directory_below(&root, "proc").map_err(|source| root.failed("proc", source))?;
        match open::is_procfs(proc).map_err(|source| root.failed("proc", source))? {
            true => Ok(root),
            false => Err(RootError::NotProcfs { path: root.path_of("proc") }),
        }
    }

    /// The open `directory`, called `path` in messages: `/proc/PID` of a process that is held by other means.
    pub fn from_fd(directory: OwnedFd, path: &str) -> Self {
        Self { directory, path: path.trim_end_matches('/').to_owned(), live: false }
    }

    /// Whether this is the machine itself, so that its devices can be opened.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// What messages call `path` below this root.
    pub fn path_of(&self, path: &str) -> String {
        format!("{}/{path}", self.path)
    }

    /// The directory `path` as a root of its own; `None` where there is nothing.
    ///
    /// # Errors
    /// It is there and cannot be opened as a directory.
    pub fn directory(&self, path: &str) -> Result<Option<Self>, RootError> {
        let directory = present(open::directory_below(self, path)).map_err(|source| self.failed(path, source))?;
        Ok(directory.map(|directory| Self { directory, path: self.path_of(path), live: self.live }))
    }

    /// The names in the directory `path`, sorted, with the directory to read them from; `None` where there is nothing.
    ///
    /// # Errors
    /// It is there and cannot be read as a directory.
    pub fn list(&self, path: &str) -> Result<Option<(Self, Vec<Entry>)>, RootError> {
        let Some(directory) = self.directory(path)? else { return Ok(None) };
        let entries = open::entries(&directory).map_err(|source| self.failed(path, source))?;
        Ok(Some((directory, entries)))
    }

    /// The text of the regular file `path`, of at most [`Root::FILE_MAX`] bytes; `None` where there is nothing. Bytes
    /// that are not UTF-8 become replacement characters.
    ///
    /// # Errors
    /// It is there and cannot be read, is no regular file, or is larger.
    pub fn text(&self, path: &str) -> Result<Option<String>, RootError> {
        self.text_at_most(path, Self::FILE_MAX)
    }

    /// As [`Root::text`], of at most `limit` bytes.
    ///
    /// # Errors
    /// As for [`Root::text`].
    pub fn text_at_most(&self, path: &str, limit: u64) -> Result<Option<String>, RootError> {
        let file = present(open::file_below(self, path)).map_err(|source| self.failed(path, source))?;
        let Some(file) = file else { return Ok(None) };
        if !mount::status(&file).map_err(|source| self.failed(path, source))?.is_file {
            return Err(RootError::NotAFile { path: self.path_of(path) });
        }
        // procfs says 0 bytes of every file, so the size is known at the end only.
        let mut bytes = Vec::with_capacity(4096);
        File::from(file)
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(path, SysError::of_io("read", "[file]", &error)))?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
            return Err(RootError::TooLarge { path: self.path_of(path), limit });
        }
        let text = String::from_utf8(bytes);
        Ok(Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())))
    }

    fn failed(&self, path: &str, source: SysError) -> RootError {
        RootError::failed(self.path_of(path), source)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// `None` where the path leads to nothing.
fn present(opened: SysResult<OwnedFd>) -> SysResult<Option<OwnedFd>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why something below a root could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootError {
    /// A system call failed.
    Failed {
        /// What was read.
        path: String,
        /// The call.
        source: SysError,
    },
    /// The kernel cannot look below a directory safely.
    Unsupported {
        /// What was to be read.
        path: String,
        /// The call.
        source: SysError,
    },
    /// Not a regular file: it is not read, since a FIFO or device could make us wait or act.
    NotAFile {
        /// What was to be read.
        path: String,
    },
    /// More than the kernel or the driver ever prints there.
    TooLarge {
        /// What was read.
        path: String,
        /// In bytes.
        limit: u64,
    },
    /// The host's `/proc` is something else.
    NotProcfs {
        /// What should be procfs.
        path: String,
    },
}

impl RootError {
    /// Whether this process, or the machine, has no descriptor or memory left.
    pub fn is_lack(&self) -> bool {
        match self {
            Self::Failed { source, .. } => matches!(source.errno(), Errno::MFILE | Errno::NFILE | Errno::NOMEM),
            _ => false,
        }
    }

    fn failed(path: String, source: SysError) -> Self {
        if source.errno() == Errno::NOSYS {
            return Self::Unsupported { path, source };
        }
        Self::Failed { path, source }
    }
}

impl fmt::Display for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { path, .. } => write!(f, "cannot read {path}"),
            Self::Unsupported { path, .. } => {
                write!(f, "cannot read {path}; hint: openat2 needs Linux 5.6 or newer and must not be filtered away")
            }
            Self::NotAFile { path } => write!(f, "cannot read {path}: not a regular file"),
            Self::TooLarge { path, limit } => write!(f, "cannot read {path}: larger than {limit} bytes"),
            Self::NotProcfs { path } => write!(f, "{path} is not procfs; hint: mount -t proc proc {path}"),
        }
    }
}

impl Error for RootError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed { source, .. } | Self::Unsupported { source, .. } => Some(source),
            Self::NotAFile { .. } | Self::TooLarge { .. } | Self::NotProcfs { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_openat2_is_named_as_the_cause() {
        let call = |errno| SysError::new("openat2", "[root], \"proc/devices\"", errno);
        let error = RootError::failed("/proc/devices".to_owned(), call(Errno::NOSYS));
        assert!(matches!(error, RootError::Unsupported { .. }));
        assert!(error.to_string().contains("hint: openat2 needs Linux 5.6"), "{error}");
        assert!(error.source().is_some_and(|source| source.to_string().contains("ENOSYS")));
        assert!(matches!(RootError::failed(String::new(), call(Errno::ACCESS)), RootError::Failed { .. }));
    }
}
