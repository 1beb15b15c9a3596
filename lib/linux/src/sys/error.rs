// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failed system call: its name, its arguments as we passed them, and the errno.

use std::fmt;

pub use rustix::io::Errno;

/// What a wrapper in `sys` returns.
pub type SysResult<T> = Result<T, SysError>;

/// A failed system call. Prints as `openat2([7], "dev/nvidia0"): ENOENT (No such file or directory)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysError {
    call: &'static str,
    args: String,
    errno: Errno,
}

impl SysError {
    /// The call `call(args)` that failed with `errno`.
    pub fn new(call: &'static str, args: impl Into<String>, errno: Errno) -> Self {
        Self { call, args: args.into(), errno }
    }

    /// The call `call(args)` that failed with what the C library left in `errno`.
    pub fn last(call: &'static str, args: impl Into<String>) -> Self {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::new(call, args, Errno::from_raw_os_error(code))
    }

    /// The call `call(args)` that failed with `error` in a wrapper of the standard library.
    pub fn of_io(call: &'static str, args: impl Into<String>, error: &std::io::Error) -> Self {
        Self::new(call, args, Errno::from_raw_os_error(error.raw_os_error().unwrap_or(0)))
    }

    /// Why it failed.
    pub fn errno(&self) -> Errno {
        self.errno
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}): {}", self.call, self.args, describe(self.errno))?;
        // An older setns takes no pidfd, and says so with EINVAL.
        let is_lacking = self.errno == Errno::NOSYS || (self.call, self.errno) == ("setns", Errno::INVAL);
        match minimum_kernel(self.call).filter(|_| is_lacking) {
            Some(version) => write!(f, "; hint: Linux {version} is needed, and no seccomp filter that takes it away"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SysError {}

/// The first version with the system call, for those that a kernel may lack (docs/kernel-features.md). openat2 is asked
/// first of all, and has a sentence of its own (`RootError::Unsupported`).
fn minimum_kernel(call: &str) -> Option<&'static str> {
    const VERSIONS: &[(&str, &str)] = &[
        ("close_range", "5.9"),
        ("fsconfig", "5.2"),
        ("fsmount", "5.2"),
        ("fsopen", "5.2"),
        ("mount_setattr", "5.12"),
        ("move_mount", "5.2"),
        ("open_tree", "5.2"),
        ("pidfd_open", "5.3"),
        ("pidfd_send_signal", "5.1"),
        ("setns", "5.8"),
    ];
    VERSIONS.iter().find(|(known, _)| *known == call).map(|(_, version)| *version)
}

/// `EPERM (Operation not permitted)`.
pub fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    match name(errno) {
        Some(name) => format!("{name} ({text})"),
        None => text,
    }
}

/// The errno's name, for those that a device or mount call can give.
pub fn name(errno: Errno) -> Option<&'static str> {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::SRCH, "ESRCH"),
        (Errno::INTR, "EINTR"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::FAULT, "EFAULT"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NFILE, "ENFILE"),
        (Errno::MFILE, "EMFILE"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::ROFS, "EROFS"),
        (Errno::PIPE, "EPIPE"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::LOOP, "ELOOP"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::NOEXEC, "ENOEXEC"),
        (Errno::TOOBIG, "E2BIG"),
    ];
    NAMES.iter().find(|(known, _)| *known == errno).map(|(_, name)| *name)
}
