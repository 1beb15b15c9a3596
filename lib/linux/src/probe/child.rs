// SPDX-License-Identifier: MIT OR Apache-2.0
//! One forked child and what it tells: data, which may come from the container and is only collected, and at most a few
//! reports of our own code about the child itself.

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use gpuhook_core::chain::Chain;

use super::ProbeError;
use crate::sys::ns::{self, Namespaces};
use crate::sys::{SysResult, confine, mount, pipe, process};
use crate::target::Target;

/// How long a child that should end may take.
const GRACE: Duration = Duration::from_secs(2);

/// How long a child's words may wait: the pipe holds thousands.
const A_WHILE: Duration = Duration::from_secs(1);

/// What a child writes to.
pub(super) struct Outlets {
    /// Data: answers of the container.
    pub(super) data: OwnedFd,
    /// [`Report`]s.
    pub(super) reports: OwnedFd,
}

/// What our own code says of the child. The first one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It could not come as far as it should: why.
    Failed(String),
    /// There is no loader for the program.
    NoLoader,
    /// The program exited with this code.
    Exited(i32),
    /// The program was killed by this signal.
    Killed(i32),
}

/// When to stop listening.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// This long after the start.
    Total(Duration),
    /// This long after the last word, to a second: nobody needs what is said before the end.
    Silence(Duration),
}

/// Why listening ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The child ended, and whatever it started.
    Ended,
    /// The limit passed.
    TimedOut,
    /// It wrote more than allowed.
    TooMuch,
}

/// All that a child said; the child has ended.
pub(super) struct Said {
    pub(super) data: Vec<u8>,
    pub(super) report: Option<Report>,
    pub(super) end: End,
}

/// Runs `body` in a child in the cgroup `leaf`, listens until the child ends, `limit` passes or the data exceed `max` bytes, and returns when
/// the child has ended. When nobody listens any more the data outlet loses its reader: that tells the child to end.
///
/// # Errors
/// [`ProbeError::Undying`] where it cannot be ended.
pub(super) fn run(
    leaf: Option<BorrowedFd<'_>>,
    limit: Limit,
    max: usize,
    body: impl FnOnce(&Outlets) -> Result<(), Box<dyn Error>>,
) -> Result<Said, ProbeError> {
    let (data, data_outlet) = pipe::pipe()?;
    let (reports, report_outlet) = pipe::pipe()?;
    let outlets = Outlets { data: data_outlet, reports: report_outlet };
    let mut inlets = Some((data, reports));
    let child = process::fork_into(leaf, |is_there| {
        // The child's copies; the parent's are untouched.
        drop(inlets.take());
        let joined = match leaf {
            // While we are still on the host: whoever joined the cgroup namespace may not look above the container.
            Some(leaf) if !is_there => confine::join_cgroup(leaf),
            _ => Ok(()),
        };
        match joined.map_err(Into::into).and_then(|()| body(&outlets)) {
            Ok(()) => 0,
            Err(error) => {
                report(&outlets.reports, &Report::Failed(Chain(&*error).to_string()));
                1
            }
        }
    })?;
    drop(outlets);
    let Some((data, reports)) = inlets else { return Err(ProbeError::Lost) };
    let said = listen(&data, &reports, limit, max);
    drop(data);
    let _outcome = child.end(GRACE).map_err(ProbeError::Undying)?;
    Ok(said?)
}

fn listen(data: &OwnedFd, reports: &OwnedFd, limit: Limit, max: usize) -> SysResult<Said> {
    let (Limit::Total(span) | Limit::Silence(span)) = limit;
    let mut deadline = Instant::now().checked_add(span);
    let (mut said, mut told) = (Vec::new(), Vec::new());
    let mut open = true;
    let end = loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let [reported, spoke] = match (open, limit) {
            (true, Limit::Total(_)) => pipe::wait_any([reports.as_fd(), data.as_fd()], left)?,
            // Not to be woken for every word.
            (true, Limit::Silence(_)) => {
                let [ended] = pipe::wait_any([reports.as_fd()], left.map(|left| left.min(A_WHILE)))?;
                let [spoke] = pipe::wait_any([data.as_fd()], Some(Duration::ZERO))?;
                [ended, spoke]
            }
            (false, _) => [pipe::wait_any([reports.as_fd()], left)? == [true], false],
        };
        if spoke {
            open = collect(data, &mut said)?;
            if said.len() > max {
                break End::TooMuch;
            }
            if let Limit::Silence(span) = limit {
                deadline = Instant::now().checked_add(span);
            }
        } else if reported && !collect(reports, &mut told)? {
            break End::Ended;
        }
        // Also where it speaks: who never falls silent has no more time than others.
        if left == Some(Duration::ZERO) {
            break End::TimedOut;
        }
    };
    Ok(Said { data: said, report: told.first_chunk().and_then(Report::parse), end })
}

/// Adds what is there to `bytes`; false at the end.
fn collect(fd: &OwnedFd, bytes: &mut Vec<u8>) -> SysResult<bool> {
    let mut buffer = [0; 4096];
    let count = pipe::read(fd, &mut buffer)?;
    bytes.extend_from_slice(&buffer[..count]);
    Ok(count > 0)
}

/// Tells the parent. It may have stopped listening, and then nobody needs to know.
pub(super) fn report(outlet: impl AsFd, report: &Report) {
    let _ = pipe::write(outlet, &report.to_bytes());
}

impl Report {
    const SIZE: usize = 512;

    fn to_bytes(&self) -> [u8; Self::SIZE] {
        let (tag, value, text) = match self {
            Self::Failed(text) => (b'F', 0, text.as_str()),
            Self::NoLoader => (b'L', 0, ""),
            Self::Exited(code) => (b'E', *code, ""),
            Self::Killed(signal) => (b'K', *signal, ""),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[0] = tag;
        bytes[1..5].copy_from_slice(&value.to_le_bytes());
        for (place, byte) in bytes[5..].iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        bytes
    }

    fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let value = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        match bytes[0] {
            b'F' => {
                let text = bytes[5..].split(|byte| *byte == 0).next().unwrap_or_default();
                Some(Self::Failed(String::from_utf8_lossy(text).into_owned()))
            }
            b'L' => Some(Self::NoLoader),
            b'E' => Some(Self::Exited(value)),
            b'K' => Some(Self::Killed(value)),
            _ => None,
        }
    }
}

/// For a forked child: goes into `namespaces` of the container, and below its root.
pub(super) fn enter(target: &Target, namespaces: Namespaces) -> Result<(), Box<dyn Error>> {
    // As long as /proc is the host's.
    process::leave_apparmor_profile();
    let root = target.enter(namespaces)?;
    ns::change_root(root)?;
    confine::new_session()?;
    Ok(())
}

/// The root directory of a child after [`enter`].
pub(super) fn root() -> SysResult<OwnedFd> {
    mount::open_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_keep_their_meaning_on_the_way() {
        let long = "x".repeat(2000);
        for sent in [Report::Failed("join".to_owned()), Report::NoLoader, Report::Exited(127), Report::Killed(6)] {
            assert_eq!(Report::parse(&sent.to_bytes()), Some(sent));
        }
        let Some(Report::Failed(text)) = Report::parse(&Report::Failed(long).to_bytes()) else { panic!() };
        assert_eq!(text.len(), Report::SIZE - 5);
        assert_eq!(Report::parse(&[0; Report::SIZE]), None);
    }
}
