// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capability files of single GPUs -> their MIG devices.

use super::{Capability, HostFacts, decimal};
use crate::device::Minor;

/// One MIG device: a compute instance in a GPU instance. A process needs the capabilities of both (NVIDIA's MIG user
/// guide, "Device Nodes and Capabilities").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigDevice<'a> {
    /// The GPU instance's id on its GPU.
    pub gpu_instance: u32,
    /// The compute instance's id in its GPU instance.
    pub compute_instance: u32,
    /// The capabilities of the GPU instance and of the compute instance.
    pub access: [&'a Capability; 2],
}

impl HostFacts {
    /// The MIG devices of the GPU with that minor, in the order in which NVML counts them: by GPU instance, then by
    /// compute instance. The directory `gpuN` is named by the minor (libnvidia-container, src/nvc_info.c).
    pub fn mig_devices(&self, gpu: Minor) -> Vec<MigDevice<'_>> {
        let top = format!("gpu{gpu}/mig/gi");
        let of_gpu = || self.capabilities.iter().filter_map(|found| Some((found.name.strip_prefix(&top)?, found)));
        let mut devices: Vec<MigDevice<'_>> = of_gpu()
            .filter_map(|(name, of_compute)| {
                let (outer, inner) = name.split_once("/ci")?;
                let of_whole = of_gpu().find(|(name, _)| *name == outer).map(|(_, capability)| capability)?;
                let (gpu_instance, compute_instance) = (decimal(outer, u32::MAX)?, decimal(inner, u32::MAX)?);
                Some(MigDevice { gpu_instance, compute_instance, access: [of_whole, of_compute] })
            })
            .collect();
        devices.sort_by_key(|device| (device.gpu_instance, device.compute_instance));
        devices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_devices_are_counted_by_their_numbers_and_not_by_their_names() {
        let names = [
            ("gpu0/mig/gi10", 93),
            ("gpu0/mig/gi10/ci0", 94),
            ("gpu0/mig/gi3", 30),
            ("gpu0/mig/gi3/ci0", 31),
            ("gpu0/mig/gi3/ci1", 32),
            ("gpu0/mig/gi4/ci0", 40),
            ("gpu1/mig/gi1", 147),
            ("gpu1/mig/gi1/ci0", 148),
            ("gpu10/mig/gi1", 1000),
            ("gpu10/mig/gi1/ci0", 1001),
            ("mig/config", 1),
        ];
        let capabilities = names
            .map(|(name, minor)| Capability { name: name.to_owned(), minor: Minor(minor), mode: 0o444 })
            .into_iter()
            .collect();
        let host = HostFacts { capabilities, ..HostFacts::default() };
        let of = |gpu| -> Vec<_> {
            let devices = host.mig_devices(Minor(gpu));
            let minors = |device: &MigDevice<'_>| device.access.map(|capability| capability.minor.0);
            devices.iter().map(|device| (device.gpu_instance, device.compute_instance, minors(device))).collect()
        };
        // gi4 has no capability of its own, so no process can use its compute instance.
        assert_eq!(of(0), [(3, 0, [30, 31]), (3, 1, [30, 32]), (10, 0, [93, 94])]);
        assert_eq!(of(1), [(1, 0, [147, 148])]);
        assert_eq!(of(10), [(1, 0, [1000, 1001])]);
        assert_eq!(of(2), []);
    }
}
