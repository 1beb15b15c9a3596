// SPDX-License-Identifier: MIT OR Apache-2.0
//! cuInit in the guest. The guest runs libcuda of the container, so it is taken for an attacker's program: what it could
//! use is taken away before it starts, what it says is parsed as hostile, and nothing of it outlives the check.
//!
//! ```text
//! hook                    listens to two pipes: records of the guest, reports of the processes between
//!  └ forked child         leaf cgroup, namespaces, root, read-only mounts, ids, no capability but one
//!     └ forked child      is in the container's pid namespace; makes one below it; now without any capability
//!        └ its init       waits for the guest's end, or for the hook's word; its own end kills all below
//!           └ guest       exec of the sealed image: one descriptor, empty environment
//! ```
//!
//! The pid namespace of its own is what makes the end certain: no process leaves it, and the kernel ends the last of
//! them before the init's parent hears of the init's end. `/proc` of the container shows the guest all the same.

use std::error::Error;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use gpuhook_core::chain::Chain;
use gpuhook_core::cuda;
use gpuhook_core::report::Rung;
use gpuhook_probe::{IMAGE, MAX_OUTPUT, Record, Stage};

use super::ProbeError;
use super::child::{self, End, Limit, Outlets, Report, Said};
use crate::sys::memfd::{self, SealedImage};
use crate::sys::ns::{self, Namespaces};
use crate::sys::{Errno, confine, pipe, process};
use crate::target::Target;

/// The kernel's signal for spent processor time (RLIMIT_CPU), on every architecture that the guest has.
const SIGXCPU: i32 = 24;

/// What came of cuInit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuInit {
    /// It returned.
    Answered {
        /// What `cuInit(0)` returned; [`gpuhook_core::cuda::explain`] has words for it.
        code: i32,
        /// What `cuDeviceGetCount` returned; 0 where cuInit failed, since it was not asked then.
        count_code: i32,
        /// The number of GPUs; 0 where it is not known.
        devices: i32,
        /// `cuDriverGetVersion`, 13000 for CUDA 13.0; 0 where it is not known.
        driver_version: i32,
    },
    /// The container has no loader for glibc programs (musl, or no C library): it cannot have a libcuda that works.
    NoLoader,
    /// The loader finds no `libcuda.so.1`, or one that is not CUDA's.
    NoLibrary,
    /// libcuda was killed by a signal.
    Crashed {
        /// The signal's number: 11 is SIGSEGV, 6 is SIGABRT.
        signal: i32,
        /// Where it stood; `None` before its first word.
        stage: Option<Stage>,
    },
    /// libcuda ended the process by itself.
    Quit {
        /// The exit code.
        code: i32,
        /// Where it stood.
        stage: Stage,
    },
    /// It did not return within the limit.
    TimedOut {
        /// Where it stood; `None` before its first word.
        stage: Option<Stage>,
    },
    /// Bytes came that the guest does not write: libcuda interferes.
    Garbled,
}

impl fmt::Display for CuInit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Answered { code: cuda::SUCCESS, count_code: cuda::SUCCESS, devices, .. } => {
                write!(f, "cuInit returned 0 and sees {devices} GPUs")
            }
            Self::Answered { code: cuda::SUCCESS, count_code, .. } => {
                write!(f, "cuInit returned 0, but cuDeviceGetCount returned {}", cuda::explain(count_code))
            }
            Self::Answered { code, .. } => write!(f, "cuInit returned {}", cuda::explain(code)),
            Self::NoLoader => write!(
                f,
                "the container has {} (musl, or no C library), and NVIDIA's libraries need it: CUDA cannot work there",
                Rung::NO_LOADER
            ),
            Self::NoLibrary => write!(
                f,
                "the container has {} (hint: install or mount the driver's libraries, and run ldconfig in the container)",
                Rung::NO_LIBRARY
            ),
            Self::Crashed { signal, stage } => {
                write!(f, "libcuda was killed by signal {signal} {}", place(stage))
            }
            Self::Quit { code, stage } => {
                write!(f, "libcuda ended its process with code {code} {}", place(Some(stage)))
            }
            Self::TimedOut { stage } => {
                write!(f, "no answer within the time limit {} (hint: see the host's kernel log)", place(stage))
            }
            Self::Garbled => f.write_str("libcuda interfered with the check: its answer is not to be trusted"),
        }
    }
}

fn place(stage: Option<Stage>) -> &'static str {
    match stage {
        None => "before the check began",
        Some(Stage::Started | Stage::NoLibrary) => "while it was being loaded",
        Some(Stage::Loaded) => "in cuInit",
        Some(Stage::Initialised | Stage::Done) => "in cuDeviceGetCount",
    }
}

/// Calls cuInit of the container's libcuda: in a process that is in every namespace of the container and in its cgroup
/// `leaf`, with its ids, without any capability, with nothing writable but device nodes, for at most `limit`. `leaf` is
/// the directory of that cgroup, in the hierarchy that filters devices; without it the device filter is not asked.
/// Every process that was started for it has ended when this returns.
///
/// # Errors
/// [`ProbeError`] where the check could not be made; whatever the container's libcuda does is a [`CuInit`].
///
/// # Minimum kernel
/// 5.12 (mount_setattr): on an older one no check is made rather than an unconfined one.
pub fn cuinit(target: &Target, leaf: Option<BorrowedFd<'_>>, limit: Duration) -> Result<CuInit, ProbeError> {
    let image = SealedImage::new("gpuhook-probe", IMAGE)?;
    let said = child::run(leaf, Limit::Total(limit), MAX_OUTPUT, |outlets| {
        child::enter(target, Namespaces::all())?;
        confine::read_only_mounts()?;
        // A little more than the limit: with one thread, the limit is what ends it.
        confine::limit_resources(limit.as_secs().saturating_add(2))?;
        let user = target.user();
        confine::become_powerless(user.uid, user.gid, &user.groups)?;
        relay(outlets, || {
            confine::unshare_pids()?;
            confine::drop_kept()?;
            relay(outlets, || be_init(outlets, &image))
        })
    })?;
    judge(&said)
}

/// Runs `body` in a child and waits for its end. It fails only where there is no child: the child reports for itself.
fn relay(outlets: &Outlets, body: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let child = process::fork(|| match confine::die_with_parent().map_err(Into::into).and_then(|()| body()) {
        Ok(()) => 0,
        Err(error) => {
            child::report(&outlets.reports, &Report::Failed(Chain(&*error).to_string()));
            1
        }
    })?;
    child.wait()?.map(drop).map_err(|signal| format!("a process of the check was killed by signal {signal}").into())
}

/// The init of the guest's pid namespace: starts the guest, and waits until it ends or nobody reads its records.
fn be_init(outlets: &Outlets, image: &SealedImage) -> Result<(), Box<dyn Error>> {
    let guest = process::fork(|| become_guest(outlets, image))?;
    let pidfd = ns::pidfd_open(guest.pid())?;
    let ended = loop {
        match pipe::wait_any([pidfd.as_fd(), outlets.data.as_fd()], None)? {
            [true, _] => break true,
            [false, true] => break false,
            [false, false] => {}
        }
    };
    if ended {
        let report = match guest.wait()? {
            Ok(code) => Report::Exited(code),
            Err(signal) => Report::Killed(signal),
        };
        child::report(&outlets.reports, &report);
    }
    Ok(())
}

/// Becomes the guest. Returns only where that fails.
fn become_guest(outlets: &Outlets, image: &SealedImage) -> u8 {
    let ready =
        confine::reset_signals().and_then(|()| confine::keep_descriptors(&outlets.data, (image, &outlets.reports)));
    match ready {
        Ok((image, reports)) => {
            let error = memfd::execute(&image, c"gpuhook-probe");
            let report = match error.errno() {
                Errno::NOENT | Errno::NOTDIR | Errno::NOEXEC | Errno::LIBBAD => Report::NoLoader,
                _ => Report::Failed(error.to_string()),
            };
            child::report(reports, &report);
        }
        Err(error) => child::report(&outlets.reports, &Report::Failed(error.to_string())),
    }
    1
}

fn judge(said: &Said) -> Result<CuInit, ProbeError> {
    if let Some(Report::Failed(text)) = &said.report {
        return Err(ProbeError::Entering(text.clone()));
    }
    let last = match Record::last(&said.data) {
        Ok(last) if said.end != End::TooMuch => last,
        _ => return Ok(CuInit::Garbled),
    };
    let stage = last.map(|record| record.stage);
    match (last, &said.report, said.end) {
        (Some(Record { stage: Stage::Done, cuinit, count_code, devices, driver_version }), ..) => {
            Ok(CuInit::Answered { code: cuinit, count_code, devices, driver_version })
        }
        (Some(Record { stage: Stage::NoLibrary, .. }), ..) => Ok(CuInit::NoLibrary),
        // Processor time ends by a signal of its own, and many threads reach that limit first.
        (_, _, End::TimedOut) | (_, Some(Report::Killed(SIGXCPU)), _) => Ok(CuInit::TimedOut { stage }),
        (_, Some(Report::Killed(signal)), _) => Ok(CuInit::Crashed { signal: *signal, stage }),
        (Some(Record { stage, .. }), Some(Report::Exited(code)), _) => Ok(CuInit::Quit { code: *code, stage }),
        // A loader that cannot load the guest says so by its exit code, before the guest's first word.
        (None, Some(Report::NoLoader | Report::Exited(_)), _) => Ok(CuInit::NoLoader),
        _ => Err(ProbeError::Lost),
    }
}
