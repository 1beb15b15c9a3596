// SPDX-License-Identifier: MIT OR Apache-2.0
//! What should be done, as values: this crate decides and cannot act.
//!
//! ```text
//! text of the host -> facts::*   -> Facts   \
//! argv, env, spec  -> request::* -> Request  >-- Plan::make -> Plan (text, JSON)
//! config.toml      -> config     -> Config  /                   |
//!                                                     (gpuhook-linux applies and verifies it)
//!                                                               |
//!                                                             Report
//! ```
#![forbid(unsafe_code)]

/// Device filters as values: eBPF instructions, built and evaluated.
pub mod bpf;
/// A CDI file without numbers.
pub mod cdi;
/// The container's top cgroup.
pub mod cgroup_top;
/// The lists of the v1 devices controller.
pub mod cgroup_v1;
/// An error with its causes.
pub mod chain;
/// The administrator's file.
pub mod config;
/// The text of a container's config, with every byte kept.
pub mod config_text;
/// A container's name, safe as a file name.
pub mod container_id;
/// What CUDA's codes and a node's errno mean.
pub mod cuda;
/// Device numbers, access bits and paths: the words everyone shares.
pub mod device;
/// What each line of a container's config means for devices.
pub mod device_lines;
/// Why CUDA fails: one cause, and the fix.
pub mod doctor;
/// One snapshot of what the host and one container say, data only.
pub mod facts;
/// What doctor and lint say.
pub mod findings;
#[cfg(test)]
mod generated;
/// The nodes that a host should have.
pub mod host_nodes;
/// What each GPU line of a config does today.
pub mod lint;
/// An LXC container's config with its includes.
pub mod lxc_config;
/// Configs without numbers.
pub mod migrate;
/// The state and the spec that an OCI runtime hands to a hook.
pub mod oci;
/// The exact steps for one container.
pub mod plan;
/// Text from a container, made safe to print.
pub mod quoted;
/// Text for a public bug report.
pub mod redact;
/// What was done and found, rung by rung.
pub mod report;
/// What one container asks for, whoever asked.
pub mod request;
/// A tar archive as bytes.
pub mod tar;
