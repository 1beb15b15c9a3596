// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which driver a path in `/dev` belongs to, by its name.

use crate::device::Minor;
use crate::facts::majors;

/// A GPU driver's node, or a directory of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// With its leading slash, `/dev/nvidia0`.
    pub path: String,
    /// The name in `/proc/devices` under which its number is found.
    pub driver: &'static str,
    /// Its minor; `None` for a directory.
    pub minor: Option<Minor>,
}

impl Node {
    /// The node that `path` names, with or without its leading slash; nothing where it is no GPU driver's. DRI nodes are
    /// not meant: their major is fixed, and other drivers than GPUs' have them too.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.trim_start_matches('/');
        let name = path.strip_prefix("dev/")?.trim_end_matches('/');
        let number = |prefix: &str| name.strip_prefix(prefix).filter(|n| !n.is_empty())?.parse().ok().map(Minor);
        let (driver, minor) = match name {
            "nvidiactl" => (majors::NVIDIA, Some(Minor(255))),
            "nvidia-modeset" => (majors::NVIDIA, Some(Minor(254))),
            "nvidia-uvm" => (majors::NVIDIA_UVM, Some(Minor(0))),
            "nvidia-uvm-tools" => (majors::NVIDIA_UVM, Some(Minor(1))),
            "nvidia-caps" => (majors::NVIDIA_CAPS, None),
            "nvidia-caps-imex-channels" => (majors::NVIDIA_CAPS_IMEX_CHANNELS, None),
            "nvidia-nvswitchctl" => (majors::NVIDIA_NVSWITCH, Some(Minor(255))),
            "nvidia-nvlink" => (majors::NVIDIA_NVLINK, Some(Minor(0))),
            "kfd" => (majors::KFD, Some(Minor(0))),
            _ if number("nvidia-caps/nvidia-cap").is_some() => (majors::NVIDIA_CAPS, number("nvidia-caps/nvidia-cap")),
            _ if number("nvidia-caps-imex-channels/channel").is_some() => {
                (majors::NVIDIA_CAPS_IMEX_CHANNELS, number("nvidia-caps-imex-channels/channel"))
            }
            _ if number("nvidia-nvswitch").is_some() => (majors::NVIDIA_NVSWITCH, number("nvidia-nvswitch")),
            _ => (majors::NVIDIA, Some(number("nvidia")?)),
        };
        Some(Self { path: format!("/dev/{name}"), driver, minor })
    }

    /// Whether it is a GPU's own node, `/dev/nvidia0`.
    pub fn gpu(&self) -> Option<Minor> {
        self.minor.filter(|minor| self.driver == majors::NVIDIA && minor.0 < 254)
    }

    /// Whether its driver is NVIDIA's.
    pub fn is_nvidia(&self) -> bool {
        self.driver != majors::KFD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_driver_and_minor() {
        for (path, expected) in [
            ("/dev/nvidia0", Some(("nvidia", Some(0)))),
            ("dev/nvidia12", Some(("nvidia", Some(12)))),
            ("dev/nvidiactl", Some(("nvidia", Some(255)))),
            ("/dev/nvidia-uvm-tools", Some(("nvidia-uvm", Some(1)))),
            ("/dev/nvidia-caps/", Some(("nvidia-caps", None))),
            ("/dev/nvidia-caps/nvidia-cap2", Some(("nvidia-caps", Some(2)))),
            ("/dev/nvidia-caps-imex-channels/channel3", Some(("nvidia-caps-imex-channels", Some(3)))),
            ("/dev/nvidia-nvswitch0", Some(("nvidia-nvswitch", Some(0)))),
            ("/dev/kfd", Some(("kfd", Some(0)))),
            ("/dev/dri/renderD128", None),
            ("/opt/nvidia-libs", None),
            ("/dev/nvidia", None),
            ("/dev/nvidia-foo", None),
            ("/dev/nvidia-1", None),
            ("/usr/bin/nvidia-smi", None),
        ] {
            let node = Node::of(path).map(|node| (node.driver, node.minor.map(|minor| minor.0)));
            assert_eq!(node, expected, "{path}");
        }
    }
}
