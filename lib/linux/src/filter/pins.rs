// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names in a bpffs that keep the program arrays of wraps alive after this process. Each belongs to one container and
//! goes with it.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gpuhook_core::container_id::ContainerId;

use super::FilterError;
use crate::failpoint;
use crate::sys::{self, Errno, SysError};

/// Where one container's program arrays are pinned.
#[derive(Clone, Debug)]
pub struct Pins {
    directory: PathBuf,
    container: String,
}

impl Pins {
    /// Pins in `directory`, which has to be on a bpffs, under names that begin with `container`.
    pub fn new(directory: &Path, container: &str) -> Self {
        // A bpffs takes no dot in a name (kernel/bpf/inode.c, bpf_lookup), and two containers must not share a name.
        let container = container.replace('%', "%25").replace('.', "%2e").replace('/', "%2f");
        Self { directory: directory.to_owned(), container }
    }

    /// The pins of container `id` of `engine`, where this system keeps its bpffs; `None` where it mounted none.
    pub fn of_container(engine: &str, id: &ContainerId) -> Option<Self> {
        let base = Path::new("/sys/fs/bpf");
        let is_bpffs = sys::mount::open_directory("/sys/fs/bpf").and_then(sys::mount::is_bpffs).unwrap_or(false);
        is_bpffs.then(|| Self::new(base, &format!("gpuhook_{engine}_{id}")))
    }

    /// Removes all pins of this container: for when its cgroup is gone. Removing them earlier refuses it every device
    /// whose program is wrapped.
    ///
    /// # Errors
    /// The first pin that could not be removed.
    pub fn release(&self) -> Result<(), FilterError> {
        let prefix = format!("{}-", self.container);
        let Ok(entries) = self.directory.read_dir() else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            if number.is_some_and(|rest| rest.parse::<u32>().is_ok()) {
                failpoint::reach("wrap.unpin").map_err(|source| FilterError::Unpin { source })?;
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Pins `array` under a name that no other one has: `<container>-<number>`.
    pub(super) fn keep(&self, array: &OwnedFd) -> Result<PathBuf, SysError> {
        for number in 0_u32.. {
            let path = self.directory.join(format!("{}-{number}", self.container));
            let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { break };
            match sys::bpf::pin(array, &name) {
                Ok(()) => return Ok(path),
                Err(error) if error.errno() == Errno::EXIST => {}
                Err(error) => return Err(error),
            }
        }
        Err(SysError::new("BPF_OBJ_PIN", format!("{:?}", self.directory), Errno::INVAL))
    }
}

/// Removes one pin, or finds it gone.
pub(super) fn remove(path: &Path) -> Result<(), FilterError> {
    match sys::cgroup::unlink(path) {
        Err(source) if source.errno() != Errno::NOENT => Err(FilterError::Unpin { source }),
        _ => Ok(()),
    }
}
