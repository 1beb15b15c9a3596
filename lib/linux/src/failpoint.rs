// SPDX-License-Identifier: MIT OR Apache-2.0
//! Points at which a test build (feature `failpoints`) can be killed or made to fail, one at every step that changes
//! something. In every other build `reach` is nothing.
//!
//! The file whose path is in `FAILPOINT_ORDERS` says what happens: `NAME=return(kill)` kills the process that reaches
//! NAME, `NAME=return` makes the step fail; the crate `fail` has the whole grammar, and `;` separates orders. Which point
//! fired is told to the abstract socket `@FAILPOINT_EAR`: other than a file it can be reached from inside a container's
//! mount namespace.

use crate::sys::SysResult;

/// Where it is told which points fired.
#[cfg(feature = "failpoints")]
static EAR: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Reads the orders, with `variable` to look up the environment. Must come before anything forks.
#[cfg(feature = "failpoints")]
pub fn set_up(variable: impl Fn(&str) -> Option<String>) {
    if let Some(ear) = variable("FAILPOINT_EAR") {
        EAR.set(ear).ok();
    }
    let orders = variable("FAILPOINT_ORDERS").and_then(|path| std::fs::read_to_string(path).ok());
    for (name, actions) in orders.iter().flat_map(|text| text.split(';')).filter_map(|order| order.split_once('=')) {
        if let Err(error) = fail::cfg(name, actions) {
            log::error!("failpoint {name}: {error}");
        }
    }
}

/// Lets this process come past every point: a test kills one, and looks at what the others make of it.
#[cfg(feature = "failpoints")]
pub fn disarm() {
    fail::list().into_iter().for_each(|(name, _)| fail::remove(name));
}

/// Fails, or never returns, where `name` was told to.
///
/// # Errors
/// EIO, where a test wants this step to fail.
#[cfg(feature = "failpoints")]
pub fn reach(name: &'static str) -> SysResult<()> {
    use crate::sys::{Errno, SysError, process};
    let Some(word) = fail::eval(name, |word| word.unwrap_or_default()) else { return Ok(()) };
    tell(name);
    if word == "kill" {
        process::kill_self();
    }
    Err(SysError::new("failpoint", name, Errno::IO))
}

/// Does nothing in this build.
///
/// # Errors
/// None.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn reach(_name: &'static str) -> SysResult<()> {
    Ok(())
}

/// Does nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn disarm() {}

#[cfg(feature = "failpoints")]
fn tell(name: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(ear) = EAR.get() else { return };
    let told = SocketAddr::from_abstract_name(ear)
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(name.as_bytes(), &address));
    if let Err(error) = told {
        log::warn!("failpoint {name}: {error}");
    }
}
