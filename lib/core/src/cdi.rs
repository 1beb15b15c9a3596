// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CDI file (tags.cncf.io/container-device-interface, SPEC.md) without device numbers: an engine that finds none in
//! the file takes them from the host's node when a container starts (pkg/cdi, `fillMissingInfo`), and one that finds some
//! believes them, however old the file is.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::facts::{ContainerFacts, HostFacts};
use crate::oci::NewHook;
use crate::plan::{Plan, PlanError, PlannedDevice};
use crate::quoted::Quoted;
use crate::request::{DeviceName, DeviceSelection, Request, VOID};

/// The kind where nobody asks for another: NVIDIA's own toolkit writes `nvidia.com/gpu`.
pub const KIND: &str = "gpuhook.dev/gpu";

/// What the containers of a host's file do with its GPUs, in the words of `NVIDIA_DRIVER_CAPABILITIES`: the default.
pub const CAPABILITIES: &str = "compute,utility";

/// A CDI file. Equal inputs give equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CdiSpec {
    cdi_version: &'static str,
    kind: String,
    devices: Vec<Device>,
    container_edits: Edits,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<Hook>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    hook_name: &'static str,
    #[serde(flatten)]
    entry: NewHook,
}

impl Hook {
    fn of(entry: NewHook) -> Self {
        Self { hook_name: entry.stage, entry }
    }
}

/// Why there is no CDI file.
#[derive(Debug)]
pub enum CdiError {
    /// Not `vendor/class` in CDI's letters.
    Kind(String),
    /// No plan for a device.
    Plan(PlanError),
}

impl fmt::Display for CdiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "the kind {} is not like {KIND}", Quoted(kind)),
            Self::Plan(_) => f.write_str("describe this host's GPUs"),
        }
    }
}

impl std::error::Error for CdiError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kind(_) => None,
            Self::Plan(source) => Some(source),
        }
    }
}

impl CdiSpec {
    /// This host's GPUs by index and UUID, MIG devices by `GPU:MIG`, and `all`. `hook` makes the hook of a stage for the
    /// devices of that name, empty where they do not matter.
    ///
    /// A GPU with MIG devices is no device of its own: CUDA does not run on it as a whole.
    ///
    /// # Errors
    /// [`CdiError`]: the kind is none, or the host has no GPU that a plan can be made for.
    pub fn of_host(
        kind: &str,
        host: &HostFacts,
        hook: impl Fn(&'static str, &str) -> NewHook,
    ) -> Result<Self, CdiError> {
        let request = |devices| Request { devices, ..Request::default() };
        let nodes = |devices| -> Result<Vec<PlannedDevice>, CdiError> {
            let plan = Plan::make(host, &ContainerFacts::default(), &request(devices)).map_err(CdiError::Plan)?;
            Ok(plan.devices().to_vec())
        };
        let shared: Vec<String> = paths(&nodes(DeviceSelection::ControlOnly)?);
        let own = |devices| -> Result<Vec<String>, CdiError> {
            Ok(paths(&nodes(devices)?).into_iter().filter(|path| !shared.contains(path)).collect())
        };
        let mut devices = Vec::new();
        let mut add = |name: String, nodes: &[String]| {
            let edits =
                Edits { device_nodes: described(nodes), hooks: vec![Hook::of(hook(START, &name))], ..Edits::default() };
            devices.push(Device { name, container_edits: edits });
        };
        let mut all = own(DeviceSelection::All)?;
        for (index, gpu) in (0_u32..).zip(host.gpus.iter().filter(|gpu| !gpu.excluded)) {
            let of_gpu = own(DeviceSelection::List(vec![DeviceName::Index(index)]))?;
            let instances = host.mig_devices(gpu.minor);
            for (at, instance) in instances.iter().enumerate() {
                let access =
                    instance.access.map(|capability| format!("/dev/nvidia-caps/nvidia-cap{}", capability.minor));
                all.extend(access.iter().filter(|path| !all.contains(path)).cloned().collect::<Vec<_>>());
                add(format!("{index}:{at}"), &[of_gpu.clone(), access.to_vec()].concat());
            }
            if instances.is_empty() {
                add(index.to_string(), &of_gpu);
                gpu.uuid.iter().for_each(|uuid| add(uuid.clone(), &of_gpu));
            }
        }
        add("all".to_owned(), &all);
        let shared = Edits {
            // For other injectors: there is nothing left to do.
            env: vec![format!("{}={}", VOID.0, VOID.1)],
            device_nodes: described(&shared),
            hooks: vec![Hook::of(hook(END, ""))],
        };
        Self::new(kind, devices, shared)
    }

    /// One device, `all`, and nothing of any host: a hook brings in what there is when a container starts.
    ///
    /// # Errors
    /// [`CdiError::Kind`].
    pub fn fixed(kind: &str, hook: impl Fn(&'static str, &str) -> NewHook) -> Result<Self, CdiError> {
        let hooks = |stage, name| Edits { hooks: vec![Hook::of(hook(stage, name))], ..Edits::default() };
        let all = Device { name: "all".to_owned(), container_edits: hooks(START, "all") };
        Self::new(kind, vec![all], hooks(END, ""))
    }

    fn new(kind: &str, devices: Vec<Device>, container_edits: Edits) -> Result<Self, CdiError> {
        if !is_kind(kind) {
            return Err(CdiError::Kind(kind.to_owned()));
        }
        let cdi_version = lowest_version(kind, &devices);
        Ok(Self { cdi_version, kind: kind.to_owned(), devices, container_edits })
    }
}

/// When a device's hook runs, and when the one that tidies up.
const START: &str = "createRuntime";
const END: &str = "poststop";

/// The lowest version of CDI that has what is used here (pkg/cdi/version.go): engines refuse files of a later one.
fn lowest_version(kind: &str, devices: &[Device]) -> &'static str {
    let class_has_dot = kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
    let begins_with_digit = |device: &Device| device.name.starts_with(|first: char| first.is_ascii_digit());
    match () {
        () if class_has_dot => "0.6.0",
        () if devices.iter().any(begins_with_digit) => "0.5.0",
        () => "0.3.0",
    }
}

fn paths(devices: &[PlannedDevice]) -> Vec<String> {
    devices.iter().map(|device| device.path.to_string()).collect()
}

fn described(paths: &[String]) -> Vec<Value> {
    paths.iter().map(|path| json!({ "path": path, "permissions": "rw" })).collect()
}

/// `vendor/class` (pkg/parser): letters, digits, `_`, `-`, `.`, beginning with a letter and ending with none of the three.
fn is_kind(kind: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.ends_with(|last: char| last.is_ascii_alphanumeric())
            && name.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | '.'))
    };
    kind.split_once('/').is_some_and(|(vendor, class)| is_name(vendor) && is_name(class))
}
