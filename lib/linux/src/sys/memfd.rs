// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files in memory. A sealed program can be executed where no file of ours exists, and nobody can change it.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use rustix::stdio::dup2_stdin;

use super::{Errno, SysError, SysResult};

/// A sealed program.
#[derive(Debug)]
pub struct SealedImage(OwnedFd);

impl SealedImage {
    /// The program `bytes`. `/proc/PID/exe` shows it as `/memfd:<name>`.
    pub fn new(name: &str, bytes: &[u8]) -> SysResult<Self> {
        let error = |call, errno| SysError::new(call, format!("{name:?}, {} bytes", bytes.len()), errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Without MFD_EXEC the kernel logs a warning, or sysctl vm.memfd_noexec takes the execute bit away; before 6.3
        // the kernel does not know the flag.
        let memfd = match memfd_create(name, flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => memfd_create(name, flags),
            result => result,
        }
        .map_err(|errno| error("memfd_create", errno))?;
        write_all(&memfd, bytes).map_err(|errno| error("write", errno))?;
        fcntl_add_seals(&memfd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
            .map_err(|errno| error("fcntl F_ADD_SEALS", errno))?;
        Ok(Self(memfd))
    }
}

impl AsFd for SealedImage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn write_all(memfd: &OwnedFd, mut rest: &[u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        let count = rustix::io::write(memfd, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Puts `bytes`, to be read from their beginning, in the place of standard input.
pub fn input(name: &str, bytes: &[u8]) -> SysResult<()> {
    let error = |call, errno| SysError::new(call, format!("{name:?}, {} bytes", bytes.len()), errno);
    let memfd = memfd_create(name, MemfdFlags::CLOEXEC).map_err(|errno| error("memfd_create", errno))?;
    write_all(&memfd, bytes).map_err(|errno| error("write", errno))?;
    seek(&memfd, SeekFrom::Start(0)).map_err(|errno| error("lseek", errno))?;
    dup2_stdin(&memfd).map_err(|errno| error("dup2", errno))
}

/// Becomes the program behind `image`, with the argument `name` and an empty environment. Returns only where that
/// failed: `ENOENT` means that its loader is missing here.
pub fn execute(image: impl AsFd, name: &CStr) -> SysError {
    let arguments = [name.as_ptr(), ptr::null()];
    let environment: [*const libc::c_char; 1] = [ptr::null()];
    // SAFETY: the path and `name` are C strings, and both arrays end with a null pointer; all of them outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            image.as_fd().as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    SysError::last("execveat", format!("[image], {name:?}, AT_EMPTY_PATH"))
}
