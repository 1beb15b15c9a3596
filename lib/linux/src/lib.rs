// SPDX-License-Identifier: MIT OR Apache-2.0
//! What asks and changes the host: gathers facts, applies plans, verifies from the container's side.
//!
//! The only unsafe code is in `sys`; no other module names `libc` or `rustix`.

/// Does what a plan says.
pub mod apply;
/// A container's cgroup as directory descriptors.
pub mod cgroup;
/// Programs of the host, run for a bounded time.
mod command;
/// A container's config, changed in one step.
pub mod config_file;
/// Children that outlive this process.
pub mod detached;
/// Holds an LXC container's init at its exec.
pub mod exec_watch;
/// Points at which a test build can fail or die.
pub mod failpoint;
/// Configuration files of the host.
pub mod files;
/// Opens devices in a container's filter.
pub mod filter;
/// Reads what the host and a container say.
pub mod gather;
/// A node's group, outside and inside of a container.
pub mod groups;
/// One line into the system's journal.
pub mod journal;
/// The driver version of a container's libraries.
pub mod libraries;
/// LXC's own commands, for a running container.
pub mod lxc;
/// Loads the driver's modules.
pub mod modules;
/// The host's own nodes.
pub mod nodes;
/// Which MIG device has which UUID.
pub mod nvidia_smi;
/// The OCI runtime behind the wrapper.
pub mod oci_runtime;
/// The opens and the cuInit from inside a container.
pub mod probe;
/// A directory below which files are read.
pub mod root;
/// Whether a rootless manager called.
pub mod rootless;
/// The last report of a container, and the lock for it.
pub mod run_state;
/// System calls: one wrapper per call, no policy.
pub mod sys;
/// The running systemd and its units.
pub mod systemd;
/// One container, held by descriptors.
pub mod target;
/// Looks at a container again, from its own side.
pub mod verify;
