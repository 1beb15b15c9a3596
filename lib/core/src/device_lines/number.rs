// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a major is today, as far as it matters to a rule that was written once.

use crate::device::{Major, Minor};
use crate::facts::Majors;
use crate::facts::majors::{KFD, is_gpu_driver};

/// `NV_MAJOR_DEVICE_NUMBER` (kernel-open/common/inc/nv-chardev-numbers.h).
pub(super) const NVIDIA_MAJOR: Major = Major(195);

/// What a rule for one major opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant<'a> {
    /// Devices of NVIDIA's drivers of these names.
    Nvidia(Vec<&'a str>),
    /// AMD's compute device.
    Kfd,
    /// Devices of other drivers, under a number that the kernel gives out anew.
    Foreign(Vec<&'a str>),
    /// Nothing: no driver has the number, which the kernel gives out anew.
    Nobody,
    /// Nothing: it is the minor of this node, and no major.
    Minor(&'static str),
    /// The direct rendering devices, whose major is fixed.
    Dri,
    /// A number that never was a GPU driver's.
    Fixed,
    /// There is no `/proc/devices` to ask.
    Unknown,
}

impl<'a> Grant<'a> {
    /// What a rule for `major` opens on the host of `majors`.
    pub fn of(major: Major, majors: Option<&'a Majors>) -> Self {
        let names = majors.map(|majors| majors.names_of(major)).unwrap_or_default();
        let nvidia: Vec<&str> = names.iter().copied().filter(|name| is_gpu_driver(name) && *name != KFD).collect();
        if major == NVIDIA_MAJOR || !nvidia.is_empty() {
            return Self::Nvidia(nvidia);
        }
        if names.contains(&KFD) {
            return Self::Kfd;
        }
        match major.0 {
            226 => Self::Dri,
            0 => Self::Minor("/dev/nvidia0"),
            255 if names.is_empty() => Self::Minor("/dev/nvidiactl"),
            _ if !is_dynamic(major) => Self::Fixed,
            _ if majors.is_none() => Self::Unknown,
            _ if names.is_empty() => Self::Nobody,
            _ => Self::Foreign(names),
        }
    }
}

/// The device of a fixed minor of the major 10, as people mean it in rules (include/linux/miscdevice.h).
pub fn misc_name(minor: Minor) -> Option<&'static str> {
    const NAMES: [(u32, &str); 9] = [
        (144, "nvram"),
        (200, "tun"),
        (223, "uinput"),
        (229, "fuse"),
        (232, "kvm"),
        (236, "device-mapper"),
        (237, "loop-control"),
        (238, "vhost-net"),
        (241, "vhost-vsock"),
    ];
    NAMES.iter().find(|(known, _)| *known == minor.0).map(|(_, name)| *name)
}

/// Whether the kernel gives the major to whoever asks for any (fs/char_dev.c, `find_dynamic_major`).
fn is_dynamic(major: Major) -> bool {
    matches!(major.0, 234..=254 | 384..=511)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_judged_by_todays_owner() {
        let text =
            "Character devices:\n195 nvidia\n195 nvidiactl\n226 drm\n234 kfd\n238 rtc\n509 mei\n511 nvidia-uvm\n";
        let majors = Majors::parse(text);
        for (major, grant) in [
            (195, Grant::Nvidia(vec!["nvidia", "nvidiactl"])),
            (511, Grant::Nvidia(vec!["nvidia-uvm"])),
            (234, Grant::Kfd),
            (509, Grant::Foreign(vec!["mei"])),
            (238, Grant::Foreign(vec!["rtc"])),
            (504, Grant::Nobody),
            (254, Grant::Nobody),
            (255, Grant::Minor("/dev/nvidiactl")),
            (0, Grant::Minor("/dev/nvidia0")),
            (226, Grant::Dri),
            (116, Grant::Fixed),
            (189, Grant::Fixed),
            (383, Grant::Fixed),
            (512, Grant::Fixed),
        ] {
            assert_eq!(Grant::of(Major(major), Some(&majors)), grant, "{major}");
        }
        assert_eq!(Grant::of(Major(509), None), Grant::Unknown);
        assert_eq!(Grant::of(Major(195), None), Grant::Nvidia(vec![]));
    }
}
