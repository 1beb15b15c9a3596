// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/etc/group` (group(5)) -> names of group ids.

use super::decimal;
use crate::quoted::one_line;

/// The name of group `gid` in `text`; the first where several have it, as getgrgid(3) finds it.
pub fn name_of(text: &str, gid: u32) -> Option<String> {
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (decimal(id, u32::MAX)? == gid && !name.is_empty()).then_some(name)
    })?;
    Some(one_line(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_number() {
        let text = "root:x:0:\nvideo:x:44:a,b\n+::\nrender:x:104:\nssl-cert:x:104:\nodd\n:x:7:\n";
        for (gid, name) in [(0, Some("root")), (44, Some("video")), (104, Some("render")), (7, None), (992, None)] {
            assert_eq!(name_of(text, gid).as_deref(), name, "{gid}");
        }
    }
}
