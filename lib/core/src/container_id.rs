// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container's name, safe to be the name of a directory.

use std::fmt;

use serde::{Serialize, Serializer};

/// The longest name a directory can have, in bytes (`NAME_MAX`, include/uapi/linux/limits.h).
const NAME_MAX: usize = 255;

/// A container's name as its engine says it. It becomes a directory below `/run/gpuhook`, so it holds only
/// `A-Z a-z 0-9 _ . + : @ -`, is neither `.` nor `..`, and is at most 255 bytes long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId(String);

impl ContainerId {
    /// What a name may hold, for messages.
    pub const ALLOWED: &'static str = "1 to 255 of A-Z a-z 0-9 _ . + : @ -";

    /// The name `text`, or nothing where it could not be a plain directory's name.
    pub fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+:@-".contains(&byte);
        let good = (1..=NAME_MAX).contains(&text.len()) && !matches!(text, "." | "..") && text.bytes().all(plain);
        good.then(|| Self(text.to_owned()))
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ContainerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_is_a_container_id() {
        let longest = "a".repeat(NAME_MAX);
        for good in ["129", "c1", "web_1.prod", "a+b", "user@host:1", "-x", "...", &longest] {
            assert_eq!(ContainerId::new(good).as_ref().map(ContainerId::as_str), Some(good));
        }
        let too_long = "a".repeat(NAME_MAX + 1);
        for bad in ["", ".", "..", "a/b", "../c", "a b", "a\0", "a\x1b", "a\n", "ä", "a\\b", "a~", &too_long] {
            assert_eq!(ContainerId::new(bad), None, "{bad:?}");
        }
    }
}
