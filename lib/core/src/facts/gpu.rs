// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/proc/driver/nvidia/gpus/BUS/information` -> a GPU and its PCI address.

use std::fmt;

use super::{Gpu, MINOR_MAX, Malformed, PciAddress, decimal, fields};
use crate::device::Minor;

impl Gpu {
    /// The GPU at `address`, from its `information`. Which fields there are depends on the driver's age; only the
    /// minor is needed.
    ///
    /// # Errors
    /// There is no readable `Device Minor`.
    pub fn parse(address: PciAddress, text: &str) -> Result<Self, Malformed> {
        let mut minor = None;
        let mut gpu = Self { address, minor: Minor(0), uuid: None, model: None, excluded: false };
        for (key, value, line) in fields(text) {
            match key {
                "Device Minor" => {
                    let number = decimal(value, MINOR_MAX).ok_or_else(|| Malformed::line("a device minor", line))?;
                    minor = Some(Minor(number));
                }
                // Before its first use a GPU has question marks here.
                "GPU UUID" => gpu.uuid = Some(value.to_owned()).filter(|uuid| !uuid.is_empty() && !uuid.contains('?')),
                "Model" => gpu.model = Some(value.to_owned()).filter(|model| !model.is_empty()),
                "GPU Excluded" | "GPU Blacklisted" | "Blacklisted" => gpu.excluded = value == "Yes",
                _ => {}
            }
        }
        gpu.minor = minor.ok_or(Malformed::absent("a `Device Minor` line"))?;
        Ok(gpu)
    }
}

impl PciAddress {
    /// The address written `[domain:]bus:device.function` in hexadecimal digits of either case, with as many zeros in
    /// front of the domain as anybody writes; nothing where `text` is not an address.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let (rest, device) = rest.rsplit_once(':')?;
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
        Some(Self {
            domain: hexadecimal(domain, 8, u32::MAX)?,
            bus: u8::try_from(hexadecimal(bus, 2, 0xff)?).ok()?,
            device: u8::try_from(hexadecimal(device, 2, 0x1f)?).ok()?,
            function: u8::try_from(hexadecimal(function, 1, 7)?).ok()?,
        })
    }
}

fn hexadecimal(text: &str, digits: usize, max: u32) -> Option<u32> {
    if text.len() > digits || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok().filter(|number| *number <= max)
}

impl fmt::Display for PciAddress {
    /// As the kernel names PCI devices (drivers/pci/probe.c, `pci_setup_device`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_spelling_and_written_in_one() {
        for (text, written) in [
            ("00000000:07:00.0", Some("0000:07:00.0")),
            ("0000:0B:1f.7", Some("0000:0b:1f.7")),
            ("07:00.0", Some("0000:07:00.0")),
            ("10000:e1:00.0", Some("10000:e1:00.0")),
            ("000000000:07:00.0", None),
            ("0000:07:20.0", None),
            ("0000:07:00.8", None),
            ("0000:007:00.0", None),
            ("0000:+7:00.0", None),
            ("0000:07:00", None),
            ("07:00.", None),
            (":07:00.0", None),
            ("7", None),
            ("", None),
        ] {
            let address = PciAddress::parse(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), written, "{text:?}");
        }
    }

    fn address() -> PciAddress {
        PciAddress { domain: 0, bus: 7, device: 0, function: 0 }
    }

    #[test]
    fn a_gpu_before_its_first_use_has_no_uuid() {
        let text = "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 2\n";
        let gpu = Gpu::parse(address(), text).unwrap();
        assert_eq!((gpu.minor, gpu.uuid, gpu.excluded), (Minor(2), None, false));
    }

    #[test]
    fn an_excluded_gpu_is_known_by_old_and_new_words() {
        for word in ["GPU Excluded:\t Yes", "Blacklisted:\t Yes"] {
            assert!(Gpu::parse(address(), &format!("Device Minor: 0\n{word}\n")).unwrap().excluded, "{word}");
        }
    }

    #[test]
    fn without_a_minor_there_is_no_gpu() {
        assert!(Gpu::parse(address(), "Model: A100\n").unwrap_err().to_string().contains("Device Minor"));
        let refusal = Gpu::parse(address(), "Device Minor: \t N/A\n").unwrap_err().to_string();
        assert!(refusal.contains("N/A"), "{refusal}");
    }
}
