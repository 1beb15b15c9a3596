// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver version -> which CUDA it supports; model -> compute capability. NVIDIA's toolkit asks NVML for both. These
//! tables hold what never changes for a driver or a model once it is out, and say nothing of what they do not know.

use super::{Driver, Gpu, decimal};

/// A version of numbers with dots between. `12` and `12.0` are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// The version in `text`; nothing where it is not numbers with dots between.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |word: &str| if word.is_empty() { None } else { decimal(word, u32::MAX) };
        text.split('.').map(number).collect::<Option<Vec<u32>>>().map(Self::of)
    }

    fn of(mut numbers: Vec<u32>) -> Self {
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Self(numbers)
    }
}

/// What is known of a version: it is at least `least` and at most `most`, where these are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionRange {
    /// The lowest that it can be.
    pub least: Option<Version>,
    /// The highest that it can be.
    pub most: Option<Version>,
}

impl VersionRange {
    /// Exactly this version.
    pub fn exactly(version: Version) -> Self {
        Self { least: Some(version.clone()), most: Some(version) }
    }
}

/// Driver branch -> CUDA version, as `nvidia-smi` of that branch prints it. Branches between two lines are between
/// their versions: R430 printed 10.1 and 10.2.
const CUDA_OF_BRANCH: [(u32, [u32; 2]); 25] = [
    (410, [10, 0]),
    (418, [10, 1]),
    (440, [10, 2]),
    (450, [11, 0]),
    (455, [11, 1]),
    (460, [11, 2]),
    (465, [11, 3]),
    (470, [11, 4]),
    (495, [11, 5]),
    (510, [11, 6]),
    (515, [11, 7]),
    (520, [11, 8]),
    (525, [12, 0]),
    (530, [12, 1]),
    (535, [12, 2]),
    (545, [12, 3]),
    (550, [12, 4]),
    (555, [12, 5]),
    (560, [12, 6]),
    (565, [12, 7]),
    (570, [12, 8]),
    (575, [12, 9]),
    (580, [13, 0]),
    (590, [13, 1]),
    (595, [13, 2]),
];

/// Chip's name in a data centre GPU's model -> compute capability (developer.nvidia.com/cuda-gpus). Names of other
/// products were used for more than one architecture.
const CAPABILITY_OF_CHIP: [(&[&str], [u32; 2]); 10] = [
    (&["P100"], [6, 0]),
    (&["P4", "P40"], [6, 1]),
    (&["V100", "V100S"], [7, 0]),
    (&["T4"], [7, 5]),
    (&["A30", "A100", "A800"], [8, 0]),
    (&["A2", "A10", "A10G", "A16", "A40"], [8, 6]),
    (&["L2", "L4", "L20", "L40", "L40S"], [8, 9]),
    (&["H20", "H100", "H200", "H800", "GH200"], [9, 0]),
    (&["B200", "GB200"], [10, 0]),
    (&["B300", "GB300"], [10, 3]),
];

impl Driver {
    /// The CUDA versions that this driver may support: one where its branch is known, a range where it is between two
    /// known ones, and at least the newest known where it is newer.
    pub fn cuda(&self) -> VersionRange {
        let version = self.version.as_deref().unwrap_or_default();
        let Some(branch) = version.split('.').next().and_then(|branch| decimal(branch, u32::MAX)) else {
            return VersionRange::default();
        };
        let cuda = |(_, cuda): &(u32, [u32; 2])| Version::of(cuda.to_vec());
        VersionRange {
            least: CUDA_OF_BRANCH.iter().rfind(|(known, _)| *known <= branch).map(cuda),
            most: CUDA_OF_BRANCH.iter().find(|(known, _)| *known >= branch).map(cuda),
        }
    }
}

impl Gpu {
    /// The compute capability, `8.0`; nothing where the model's name does not decide it.
    pub fn compute_capability(&self) -> Option<Version> {
        let words = || self.model.as_deref().unwrap_or_default().split(|c: char| !c.is_ascii_alphanumeric());
        // Workstation and consumer cards reuse the words of data centre GPUs.
        let is_other = words().any(|word| matches!(word, "GeForce" | "Quadro" | "RTX" | "TITAN"));
        let (_, capability) =
            CAPABILITY_OF_CHIP.iter().find(|(names, _)| !is_other && words().any(|word| names.contains(&word)))?;
        Some(Version::of(capability.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Minor;
    use crate::facts::PciAddress;

    fn version(text: &str) -> Option<Version> {
        (!text.is_empty()).then(|| Version::parse(text).expect(text))
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        let order = ["0", "9.9", "10", "12.3", "12.4", "12.4.1", "12.10", "470.256.02", "471"];
        for pair in order.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        for (left, right) in [("12", "12.0"), ("12.0.0", "12"), ("0", "0.0"), ("450.080", "450.80")] {
            assert_eq!(version(left), version(right), "{left} {right}");
        }
        for odd in ["", ".", "12.", ".4", "12..4", "12.x", "-1", "+1", " 12", "99999999999"] {
            assert_eq!(Version::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_driver_supports_the_cuda_of_its_branch_and_what_is_not_known_stays_open() {
        for (driver, least, most) in [
            ("535.129.03", "12.2", "12.2"),
            ("470.256.02", "11.4", "11.4"),
            ("580.65.06", "13.0", "13.0"),
            ("590.48.01", "13.1", "13.1"),
            ("430.26", "10.1", "10.2"),
            ("610.43.03", "13.2", ""),
            ("390.157", "", "10.0"),
        ] {
            let range = Driver { version: Some(driver.to_owned()), open: false }.cuda();
            assert_eq!((range.least, range.most), (version(least), version(most)), "{driver}");
        }
        assert_eq!(Driver { version: None, open: true }.cuda(), VersionRange::default());
    }

    #[test]
    fn a_model_decides_the_architecture_only_where_its_name_stands_for_one() {
        for (model, capability) in [
            ("NVIDIA A100 80GB PCIe", "8.0"),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
            ("Tesla V100-SXM2-16GB", "7.0"),
            ("Tesla T4", "7.5"),
            ("NVIDIA L40S", "8.9"),
            ("NVIDIA H100 80GB HBM3", "9.0"),
            ("NVIDIA GH200 480GB", "9.0"),
            ("NVIDIA B200", "10.0"),
            ("NVIDIA GeForce RTX 3090", ""),
            ("NVIDIA RTX A2 Laptop", ""),
            ("NVIDIA T400", ""),
            ("NVIDIA A1000", ""),
            ("", ""),
        ] {
            let address = PciAddress { domain: 0, bus: 1, device: 0, function: 0 };
            let gpu = Gpu { address, minor: Minor(0), uuid: None, model: Some(model.to_owned()), excluded: false };
            assert_eq!(gpu.compute_capability(), version(capability), "{model}");
        }
    }
}
