// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few variables that mean something to gpuhook, read once. Everything else that a container manager, and through
//! it an image, puts into the environment is never looked at (CVE-2025-23266).

use std::collections::BTreeMap;

/// The variables with their values.
pub(crate) struct Environment(BTreeMap<&'static str, String>);

const NAMES: &[&str] =
    &["GPUHOOK_LOG", "LXC_NAME", "LXC_CONFIG_FILE", "LXC_PID", "LXC_HOOK_VERSION", "LXC_HOOK_TYPE", "LXC_HOOK_SECTION"];

impl Environment {
    /// What this process was given.
    pub(crate) fn read() -> Self {
        Self(NAMES.iter().filter_map(|name| std::env::var(name).ok().map(|value| (*name, value))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// Where this very program lies; nothing where the kernel does not say.
pub(crate) fn program() -> Option<std::path::PathBuf> {
    std::env::current_exe().ok()
}
