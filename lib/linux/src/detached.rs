// SPDX-License-Identifier: MIT OR Apache-2.0
//! Children that outlive this process. A hook's manager waits until every holder of the hook's output is gone, so such
//! a child holds nothing of it (LXC blocks the start for the child's lifetime otherwise).

use std::os::fd::OwnedFd;

use crate::failpoint;
use crate::sys::{Errno, SysError, SysResult, pipe, process};

/// Runs `body` in a child of its own session that holds no descriptor of ours: it must open what it needs itself.
///
/// # Errors
/// No process could be made, or it did not come as far as `body`: then nobody will do what it was to do.
pub fn spawn(body: impl FnOnce()) -> SysResult<()> {
    stay_behind(|ready| {
        ready.say()?;
        body();
        Ok(())
    })
}

/// The same for work that may not miss a moment, see [`process::be_prompt`], with a guardian: a second process, which runs `bereaved` where the one of `work` ends, killed or not, before
/// it has called what it was given. From then on nothing guards it. Only who kills both leaves nobody.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_guarded(work: impl FnOnce(Settled), bereaved: impl FnOnce()) -> SysResult<()> {
    stay_behind(|ready| {
        let (heard, settled) = pipe::pipe()?;
        let mut given = Some((ready, Settled(Word(settled))));
        process::fork(|| {
            let Some((ready, settled)) = given.take() else { return 1 };
            failpoint::reach("detached.worker").ok();
            // Before the manager goes on: on a busy machine the moment could pass before this process runs again.
            if let Err(error) = process::be_prompt(true) {
                log::debug!("work with usual priority: {error}");
            }
            if ready.say().is_err() {
                return 1;
            }
            work(settled);
            0
        })?;
        drop(given);
        // A bereaved guardian has a moment to catch.
        process::be_prompt(true).ok();
        if pipe::read(heard, &mut [0])? == 0 {
            failpoint::disarm();
            bereaved();
        }
        Ok(())
    })
}

/// What the process of [`spawn_guarded`] says when it needs its guardian no more.
#[derive(Debug)]
#[must_use = "dropping it calls the guardian"]
pub struct Settled(Word);

impl Settled {
    /// Lets the guardian go. Where that has ended already, nothing happens.
    pub fn say(self) {
        if let Err(error) = self.0.say() {
            log::debug!("no guardian: {error}");
        }
    }
}

fn stay_behind(body: impl FnOnce(Word) -> SysResult<()>) -> SysResult<()> {
    failpoint::reach("detached.fork")?;
    let (heard, say) = pipe::pipe()?;
    let mut say = Some(say);
    process::fork(|| {
        let detached = match say.take() {
            Some(say) => process::detach(say),
            None => Err(SysError::new("fork", "", Errno::BADF)),
        };
        let ready = detached.and_then(|say| failpoint::reach("detached.child").map(|()| Word(say)));
        u8::from(ready.and_then(body).is_err())
    })?;
    drop(say);
    match pipe::read(heard, &mut [0])? {
        0 => Err(SysError::new("fork", "a child that stays behind", Errno::CHILD)),
        _ => Ok(()),
    }
}

/// The one byte that a child writes for whoever waits for it; its end without a word says the opposite.
#[derive(Debug)]
struct Word(OwnedFd);

impl Word {
    fn say(self) -> SysResult<()> {
        pipe::write(self.0, b"y")
    }
}

/// The process that started this one: for a hook, its manager.
pub fn parent() -> u32 {
    std::os::unix::process::parent_id()
}
