// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nvidia-smi -L` -> which MIG device has which UUID. The driver makes these from numbers of its own, and no file of the
//! kernel has them.

use super::decimal;

/// The UUID of one MIG device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigUuid {
    /// `MIG-<uuid>`, in lower case behind `MIG-`.
    pub uuid: String,
    /// The UUID of its GPU, as the driver's `information` file has it: `GPU-` and lower case.
    pub gpu: String,
    /// Its position among its GPU's MIG devices, counted from 0.
    pub position: u32,
}

impl MigUuid {
    /// Every MIG device of a listing. Lines that are something else are passed over:
    ///
    /// ```text
    /// GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
    ///   MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
    /// ```
    pub fn parse_listing(text: &str) -> Vec<Self> {
        let mut found = Vec::new();
        let mut gpu = None;
        for line in text.lines() {
            let Some((before, uuid)) = line.rsplit_once("(UUID: ") else { continue };
            let Some(uuid) = uuid.trim_end().strip_suffix(')') else { continue };
            if line.starts_with("GPU ") {
                gpu = uuid.strip_prefix("GPU-").map(|digits| format!("GPU-{}", digits.to_ascii_lowercase()));
                continue;
            }
            let device = before.trim_start().strip_prefix("MIG ").and_then(|rest| rest.rsplit_once("Device "));
            let position = device.and_then(|(_, at)| decimal(at.trim().strip_suffix(':')?, u32::MAX));
            if let (Some(gpu), Some(position), Some(digits)) = (&gpu, position, uuid.strip_prefix("MIG-")) {
                let uuid = format!("MIG-{}", digits.to_ascii_lowercase());
                found.push(Self { uuid, gpu: gpu.clone(), position });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_says_where_each_mig_device_is() {
        let listing = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)\n\
            \x20 MIG 3g.20gb     Device  0: (UUID: MIG-C6D4F1EF-42e4-5de3-91c7-45d71c87eb3f)\n\
            \x20 MIG 1c.3g.20gb  Device 10: (UUID: MIG-0c757cd7-e942-5726-a0b8-0e8fb7067135)\n\
            GPU 1: NVIDIA (odd) Device 7: (UUID: GPU-AAAA0000-0000-0000-0000-000000000001)\n\
            \x20 MIG 1g.10gb+me Device  0: (UUID: MIG-88844b5f-3eb7-52d3-b1ed-2c28e28b0f66)\n";
        let found = MigUuid::parse_listing(listing);
        let found: Vec<_> = found.iter().map(|mig| (&mig.uuid[..9], &mig.gpu[..8], mig.position)).collect();
        assert_eq!(found, [("MIG-c6d4f", "GPU-5d5b", 0), ("MIG-0c757", "GPU-5d5b", 10), ("MIG-88844", "GPU-aaaa", 0)]);
    }

    #[test]
    fn what_is_no_listing_says_nothing() {
        for text in [
            "",
            "No devices found.\n",
            "  MIG 1g.5gb Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n",
            "GPU 0: A100 (UUID: GPU-5d5b)\n  MIG 1g.5gb Device -1: (UUID: MIG-c6d4)\n  MIG 1g.5gb Device 0: (UUID: MIG-c6d4\n",
            "GPU 0: A100 (UUID: none)\n  MIG 1g.5gb Device 0: (UUID: MIG-c6d4)\n",
        ] {
            assert_eq!(MigUuid::parse_listing(text), [], "{text}");
        }
    }
}
