// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/proc/driver/nvidia/{version,params}` -> the loaded driver and its parameters.

use super::{Driver, Malformed, Params, decimal, fields};

impl Driver {
    /// Flavour and version from the `NVRM version` line. The open flavour writes its architecture before the number,
    /// the proprietary one a date behind it, and a build from Tegra's tree has no number at all.
    ///
    /// # Errors
    /// No line speaks of a kernel module.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let found = text.lines().find_map(|line| line.split_once("Kernel Module"));
        let (before, after) = found.ok_or(Malformed::absent("an `NVRM version` line"))?;
        let version = after.split_whitespace().find(|word| is_version(word)).map(str::to_owned);
        Ok(Self { version, open: before.trim_end().ends_with("Open") })
    }
}

/// Two or three numbers with dots between.
pub(super) fn is_version(word: &str) -> bool {
    let numbers = word.split('.').count();
    (2..=3).contains(&numbers)
        && word.split('.').all(|number| !number.is_empty() && decimal(number, u32::MAX).is_some())
}

impl Params {
    /// The parameters that gpuhook needs, all printed in decimal; others are passed over.
    ///
    /// # Errors
    /// One of them has no number that it could have.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut params = Self::default();
        for (key, value, line) in fields(text) {
            let (field, max, expected) = match key {
                "DeviceFileMode" => (&mut params.device_file_mode, 0o777, "decimal permission bits"),
                "DeviceFileUID" => (&mut params.device_file_uid, u32::MAX, "a user id"),
                "DeviceFileGID" => (&mut params.device_file_gid, u32::MAX, "a group id"),
                "ImexChannelCount" => (&mut params.imex_channel_count, super::MINOR_MAX + 1, "a number of channels"),
                _ => continue,
            };
            *field = Some(decimal(value, max).ok_or_else(|| Malformed::line(expected, line))?);
        }
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_flavour_are_read_from_either_order_of_words() {
        for (text, version, open) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\n", Some("580.95.05"), false),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48  Release Build\n", Some("590.48"), true),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  TempVersion  Release Build\n", None, true),
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  1.2.3.4 1..2 .5\nGCC version: 12.2.0\n", None, false),
        ] {
            let driver = Driver::parse(text).unwrap();
            assert_eq!((driver.version.as_deref(), driver.open), (version, open), "{text}");
        }
        for text in ["", "GCC version: 12.2.0\n"] {
            assert!(Driver::parse(text).is_err());
        }
    }

    #[test]
    fn parameters_are_decimal() {
        let params = Params::parse("ModifyDeviceFiles: 1\nDeviceFileMode: 438\nDeviceFileGID: 44\nRmMsg: \"a: 1\"\n");
        let expected = Params { device_file_mode: Some(0o666), device_file_gid: Some(44), ..Params::default() };
        assert_eq!(params, Ok(expected));
        for odd in ["DeviceFileMode: 0666x", "DeviceFileMode: 666", "DeviceFileUID: -1", "ImexChannelCount:"] {
            let refusal = Params::parse(odd).unwrap_err().to_string();
            assert!(refusal.contains(odd), "{refusal}");
        }
    }
}
