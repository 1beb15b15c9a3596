// SPDX-License-Identifier: MIT OR Apache-2.0
//! Children that outlive this process. A hook's manager waits until every holder of the hook's output is gone, so such
//! a child holds nothing of it (LXC blocks the start for the child's lifetime otherwise).

use crate::failpoint;
use crate::sys::{Errno, SysError, SysResult, pipe, process};

/// Runs `body` in a child of its own session that holds no descriptor of ours: it must open what it needs itself.
///
/// # Errors
/// No process could be made, or it did not come as far as `body`: then nobody will do what it was to do.
pub fn spawn(body: impl FnOnce()) -> SysResult<()> {
    failpoint::reach("detached.fork")?;
    let (heard, say) = pipe::pipe()?;
    let mut say = Some(say);
    process::fork(|| {
        let detached = match say.take() {
            Some(say) => process::detach(say),
            None => Err(SysError::new("fork", "", Errno::BADF)),
        };
        let ready = detached.and_then(|say| failpoint::reach("detached.child").map(|()| say));
        match ready.and_then(|say| pipe::write(say, READY)) {
            Ok(()) => {
                body();
                0
            }
            Err(_) => 1,
        }
    })?;
    drop(say);
    match pipe::read(heard, &mut [0])? {
        0 => Err(SysError::new("fork", "a child that stays behind", Errno::CHILD)),
        _ => Ok(()),
    }
}

/// What the child says once it holds nothing of ours.
const READY: &[u8] = b"y";

/// The process that started this one: for a hook, its manager.
pub fn parent() -> u32 {
    std::os::unix::process::parent_id()
}
