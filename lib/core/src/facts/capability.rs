// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a file below `/proc/driver/nvidia/capabilities` -> a capability device (kernel-open/nvidia/nv-caps.c).

use super::{Capability, MINOR_MAX, Malformed, decimal, fields};
use crate::device::Minor;

impl Capability {
    /// The capability whose file below `capabilities/` is `file`: `mig/config`, `gpu0/mig/gi1/access`.
    ///
    /// # Errors
    /// The minor or the mode is absent or no number. Neither is ever computed.
    pub fn parse(file: &str, text: &str) -> Result<Self, Malformed> {
        let mut minor = None;
        let mut mode = None;
        for (key, value, line) in fields(text) {
            let (field, max, expected) = match key {
                "DeviceFileMinor" => (&mut minor, MINOR_MAX, "a device minor"),
                "DeviceFileMode" => (&mut mode, 0o777, "decimal permission bits"),
                _ => continue,
            };
            *field = Some(decimal(value, max).ok_or_else(|| Malformed::line(expected, line))?);
        }
        Ok(Self {
            name: file.strip_suffix("/access").unwrap_or(file).to_owned(),
            minor: Minor(minor.ok_or(Malformed::absent("a `DeviceFileMinor` line"))?),
            mode: mode.ok_or(Malformed::absent("a `DeviceFileMode` line"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minors_and_modes_are_read_in_decimal() {
        let text = "DeviceFileMinor: 439\nDeviceFileMode: 256\nDeviceFileModify: 1\n";
        for (file, name) in [("gpu3/mig/gi3/ci3/access", "gpu3/mig/gi3/ci3"), ("mig/config", "mig/config")] {
            let capability = Capability { name: name.to_owned(), minor: Minor(439), mode: 0o400 };
            assert_eq!(Capability::parse(file, text), Ok(capability));
        }
        for odd in ["", "DeviceFileMinor: 1\n", "DeviceFileMode: 256\n", "DeviceFileMinor: 0x1\nDeviceFileMode: 256\n"]
        {
            assert!(Capability::parse("mig/config", odd).is_err(), "{odd:?}");
        }
    }
}
