// SPDX-License-Identifier: MIT OR Apache-2.0
//! The v1 devices controller: lines in `devices.allow`, read back from `devices.list`.

use gpuhook_core::cgroup_v1::DeviceList;
use gpuhook_core::device::DeviceRule;

use super::{Change, FilterError};
use crate::cgroup::{CgroupPath, Level};
use crate::sys::{self, SysResult};

/// A cgroup can allow only what its parent allows, so the top comes first.
pub(super) fn allow(path: &CgroupPath, rules: &[DeviceRule], journal: &mut Vec<Change>) -> Result<(), FilterError> {
    for level in path.own.iter().rev() {
        let before = list(level)?;
        let missing = before.missing(rules);
        for rule in &missing {
            sys::cgroup::write(level, "devices.allow", &rule.to_string())
                .map_err(|source| FilterError::List { cgroup: level.name.clone(), source })?;
            journal.push(Change::Listed { level: level.clone(), added: before.added_by(*rule) });
        }
        if missing.is_empty() {
            continue;
        }
        if let Some(rule) = list(level)?.missing(&missing).first() {
            return Err(FilterError::NotListed { cgroup: level.name.clone(), rule: *rule });
        }
    }
    Ok(())
}

pub(super) fn deny(level: &Level, rule: DeviceRule) -> SysResult<()> {
    sys::cgroup::write(level, "devices.deny", &rule.to_string())
}

pub(super) fn list(level: &Level) -> Result<DeviceList, FilterError> {
    let text = sys::cgroup::read(level, "devices.list")
        .map_err(|source| FilterError::List { cgroup: level.name.clone(), source })?;
    DeviceList::parse(&text).map_err(|source| FilterError::OddList { cgroup: level.name.clone(), source })
}
