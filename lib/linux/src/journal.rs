// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line into the system's journal, where an administrator looks first. A hook has no terminal.

use std::os::unix::net::UnixDatagram;

use gpuhook_core::container_id::ContainerId;

/// The journal's socket (systemd.journal-fields(7), "Native Journal Protocol").
const SOCKET: &str = "/run/systemd/journal/socket";

/// How grave a line is; the values are syslog's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A start was refused, or the container lost its GPU.
    Error = 3,
    /// A check says that something is wrong.
    Warning = 4,
    /// What was done.
    Info = 6,
}

/// Sends `line` about `container`; without a journal nothing happens. Line ends in `line` would forge fields, so they
/// become blanks.
pub fn send(priority: Priority, engine: &str, container: &ContainerId, line: &str) {
    let line = line.replace('\n', " ");
    let entry = format!(
        "MESSAGE={line}\nPRIORITY={}\nSYSLOG_IDENTIFIER=gpuhook\nGPUHOOK_ENGINE={engine}\nGPUHOOK_CONTAINER={container}\n",
        priority as u8,
    );
    if let Err(error) = UnixDatagram::unbound().and_then(|socket| socket.send_to(entry.as_bytes(), SOCKET)) {
        log::debug!("journal: {error}");
    }
}
