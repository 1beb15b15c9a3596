// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that a person types.

/// A CDI file.
pub(crate) mod cdi;
/// Reads and rewrites containers' configs.
pub(crate) mod config;
/// Why CUDA fails, and the fix.
pub(crate) mod doctor;
/// Repairs a running container.
pub(crate) mod inject;
/// The live numbers.
pub(crate) mod majors;
/// The host's own nodes.
pub(crate) mod nodes;
/// What would be done.
pub(crate) mod plan;
/// The ladder of checks.
pub(crate) mod probe;
/// What the doctor reads, for a bug report.
pub(crate) mod report;
