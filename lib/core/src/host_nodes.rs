// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes that a host should have in its own `/dev`: everything that its driver registered today.

use crate::facts::majors::{self, Majors};
use crate::facts::{ContainerFacts, HostFacts};
use crate::plan::{Plan, PlanError, PlannedDevice};
use crate::request::{DeviceSelection, DriverCapabilities, Origin, Request};

/// The nodes for everything that the driver registered and lists, in a fixed order.
///
/// # Errors
/// There is no NVIDIA driver, or its numbers cannot be told.
pub fn expected(host: &HostFacts) -> Result<Vec<PlannedDevice>, PlanError> {
    let majors = host.majors.as_ref().ok_or(PlanError::MajorsUnknown)?;
    let plan = Plan::make(host, &ContainerFacts::default(), &everything(host, majors))?;
    Ok(plan.devices().to_vec())
}

/// A request for all that this host has, and for nothing that it lacks.
fn everything(host: &HostFacts, majors: &Majors) -> Request {
    let has = |name| majors.by_name.contains_key(name);
    let can = |name| has(majors::NVIDIA_CAPS) && host.capabilities.iter().any(|capability| capability.name == name);
    let mut capabilities = DriverCapabilities::UTILITY;
    capabilities.set(DriverCapabilities::COMPUTE, has(majors::NVIDIA_UVM));
    capabilities.set(DriverCapabilities::DISPLAY, has(majors::NVIDIA_MODESET) || has(majors::NVIDIA_FRONTEND));
    let some = host.gpus.iter().any(|gpu| !gpu.excluded);
    Request {
        devices: if some { DeviceSelection::All } else { DeviceSelection::ControlOnly },
        capabilities,
        mig_config: can("mig/config"),
        mig_monitor: can("mig/monitor"),
        origin: Origin::Operator,
        ..Request::default()
    }
}

/// The name in `/proc/devices` of the driver of the node at `path`; `None` for a path of no GPU driver.
pub fn driver_of(path: &str) -> Option<&'static str> {
    let name = path.strip_prefix("/dev/")?;
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match name {
        "nvidiactl" | "nvidia-modeset" => Some(majors::NVIDIA),
        "nvidia-uvm" | "nvidia-uvm-tools" => Some(majors::NVIDIA_UVM),
        "nvidia-nvlink" => Some(majors::NVIDIA_NVLINK),
        "nvidia-nvswitchctl" => Some(majors::NVIDIA_NVSWITCH),
        "kfd" => Some(majors::KFD),
        _ if numbered("nvidia") => Some(majors::NVIDIA),
        _ if numbered("nvidia-nvswitch") => Some(majors::NVIDIA_NVSWITCH),
        _ if numbered("nvidia-caps/nvidia-cap") => Some(majors::NVIDIA_CAPS),
        _ if numbered("nvidia-caps-imex-channels/channel") => Some(majors::NVIDIA_CAPS_IMEX_CHANNELS),
        _ => None,
    }
}

/// The order in which nodes matter: GPUs, their control node, unified memory, AMD's; then what CUDA can do without.
pub fn rank(path: &str) -> u8 {
    match (is_essential(path), driver_of(path), path) {
        (true, Some(majors::NVIDIA), "/dev/nvidiactl") => 1,
        (true, Some(majors::NVIDIA), _) => 0,
        (true, Some(majors::NVIDIA_UVM), _) => 2,
        (true, ..) => 3,
        // Of another driver: somebody binds it.
        (false, None, _) => 4,
        (false, Some(_), _) => 5,
    }
}

/// Whether CUDA (or ROCm, for `/dev/kfd`) does not start without the node at `path`.
pub fn is_essential(path: &str) -> bool {
    match driver_of(path) {
        Some(majors::NVIDIA) => path != "/dev/nvidia-modeset",
        Some(majors::NVIDIA_UVM) => path == "/dev/nvidia-uvm",
        Some(majors::KFD) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_gpus_or_modules_still_has_its_control_node() {
        let host = HostFacts { majors: Some(Majors::parse("195 nvidia\n\nBlock devices:\n")), ..HostFacts::default() };
        let paths: Vec<String> =
            expected(&host).expect("a driver").iter().map(|device| device.path.as_str().to_owned()).collect();
        assert_eq!(paths, ["/dev/nvidiactl"]);
        assert_eq!(expected(&HostFacts::default()), Err(PlanError::MajorsUnknown));
    }

    #[test]
    fn a_path_belongs_to_one_driver() {
        for (path, driver) in [
            ("/dev/nvidia7", Some("nvidia")),
            ("/dev/nvidia", None),
            ("/dev/nvidia-uvm", Some("nvidia-uvm")),
            ("/dev/nvidia-caps/nvidia-cap21", Some("nvidia-caps")),
            ("/dev/nvidia-caps-imex-channels/channel0", Some("nvidia-caps-imex-channels")),
            ("/dev/nvidia-nvswitch3", Some("nvidia-nvswitch")),
            ("/dev/dri/card0", None),
        ] {
            assert_eq!(driver_of(path), driver, "{path}");
        }
    }
}
