// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests that need a kernel and a container manager are made of. A test reads:
//!
//! ```text
//! Bed             a private mount namespace: its own cgroup2 (or hybrid) tree, its own /run
//!   Host          a made-up host for --host-root: /proc/devices and /proc/driver/nvidia with chosen numbers
//!   Rootfs        a root filesystem with busybox, a C library, the stand-in libcuda and the checkers
//!   Lxc, Runc     a container made of these; starts, runs commands inside, is killed when dropped
//!     Inside      what a checker said inside the container
//!     injected    the request that most tests make, and what must then be seen inside
//!     Witness     keeps a container's mount namespace, to see what is left of an injection after its death
//! ```
//!
//! Everything here panics where a test should fail: it is test code, and a panic shows the test's name and line.

pub mod arena;
pub mod bed;
pub mod failpoints;
pub mod footprint;
pub mod golden;
pub mod host;
pub mod injected;
pub mod inside;
pub mod lxc;
pub mod program;
pub mod repeat;
pub mod rootfs;
pub mod runc;
pub mod standin;
