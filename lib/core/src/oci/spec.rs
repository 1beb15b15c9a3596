// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a bundle's `config.json` that a GPU injection depends on.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::edit::{given, is_edit};
use super::{OciError, parse, void};
use crate::facts::IdMap;

/// What `config.json` says of one container. Absent parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// `process.env`, in its order, without what an edit of ours put there; of two entries of one name the last counts.
    pub env: Vec<(String, String)>,
    /// `process.user`.
    pub user: User,
    /// `root`.
    pub root: Option<Root>,
    /// `mounts`.
    pub mounts: Vec<Mount>,
    /// `process.capabilities.bounding`.
    pub bounding: Vec<String>,
    /// `linux.cgroupsPath`, `/path` or systemd's `slice:prefix:name`.
    pub cgroups_path: Option<String>,
    /// `linux.uidMappings`.
    pub uid_map: IdMap,
    /// `linux.gidMappings`.
    pub gid_map: IdMap,
    /// `linux.namespaces`.
    pub namespaces: Vec<Namespace>,
    /// `annotations`.
    pub annotations: BTreeMap<String, String>,
    /// The paths of `linux.devices`.
    pub device_paths: Vec<String>,
    /// The hooks that run before the container's program: stage by stage, each in its order.
    pub hooks: Vec<Hook>,
    edited: bool,
}

/// Who the container's program is, in its own user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct User {
    /// `uid`.
    pub uid: u32,
    /// `gid`.
    pub gid: u32,
    /// `additionalGids`.
    #[serde(deserialize_with = "null_is_default")]
    pub additional_gids: Vec<u32>,
}

/// The container's root file system.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Root {
    /// A path of the host; where it is relative, it starts at the bundle.
    pub path: String,
    /// Whether it is mounted read-only.
    #[serde(default)]
    pub readonly: bool,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Where the container sees it.
    pub destination: String,
    /// What is mounted; empty where the spec does not say.
    #[serde(deserialize_with = "null_is_default")]
    pub source: String,
}

/// A namespace that the container is given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    /// `mount`, `user`, `cgroup`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Where an existing one is joined; `None` for a new one.
    #[serde(default)]
    pub path: Option<String>,
}

/// A hook of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `prestart`, `createRuntime` or `createContainer`.
    pub stage: &'static str,
    /// The program.
    pub path: String,
    /// Its arguments, with its name first.
    pub args: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawSpec {
    #[serde(deserialize_with = "null_is_default")]
    process: RawProcess,
    root: Option<Root>,
    #[serde(deserialize_with = "null_is_default")]
    mounts: Vec<Mount>,
    #[serde(deserialize_with = "null_is_default")]
    linux: RawLinux,
    #[serde(deserialize_with = "null_is_default")]
    annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_default")]
    hooks: RawHooks,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawProcess {
    #[serde(deserialize_with = "null_is_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    user: User,
    #[serde(deserialize_with = "null_is_default")]
    capabilities: RawCapabilities,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCapabilities {
    #[serde(deserialize_with = "null_is_default")]
    bounding: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawLinux {
    cgroups_path: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    uid_mappings: Vec<RawMapping>,
    #[serde(deserialize_with = "null_is_default")]
    gid_mappings: Vec<RawMapping>,
    #[serde(deserialize_with = "null_is_default")]
    namespaces: Vec<Namespace>,
    #[serde(deserialize_with = "null_is_default")]
    devices: Vec<RawDevice>,
}

#[derive(Deserialize)]
struct RawMapping {
    #[serde(rename = "containerID")]
    container_id: u32,
    #[serde(rename = "hostID")]
    host_id: u32,
    size: u32,
}

#[derive(Deserialize)]
struct RawDevice {
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawHooks {
    #[serde(deserialize_with = "null_is_default")]
    prestart: Vec<RawHook>,
    #[serde(deserialize_with = "null_is_default")]
    create_runtime: Vec<RawHook>,
    #[serde(deserialize_with = "null_is_default")]
    create_container: Vec<RawHook>,
}

#[derive(Deserialize)]
struct RawHook {
    path: String,
    #[serde(default, deserialize_with = "null_is_default")]
    args: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    env: Vec<String>,
}

/// Go writes an empty list as `null` where a field is not marked `omitempty`.
pub(super) fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Spec {
    /// A spec has at most so many bytes.
    pub const LIMIT: usize = 16 << 20;

    /// The spec in `bytes`.
    ///
    /// # Errors
    ///
    /// Where it is empty, too long, not JSON, or `process.env` holds an entry that is not `NAME=VALUE` or holds a NUL:
    /// runc refuses these as well (libcontainer/env.go).
    pub fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        let raw: RawSpec = parse("config.json", bytes, Self::LIMIT)?;
        let mut env = Vec::with_capacity(raw.process.env.len());
        for entry in raw.process.env {
            match entry.split_once('=') {
                Some((name, value)) if !name.is_empty() && !entry.contains('\0') => {
                    env.push((name.to_owned(), value.to_owned()));
                }
                _ => return Err(OciError::BadVariable(entry)),
            }
        }
        let earlier = raw.hooks.create_runtime.iter().find(|hook| is_edit("createRuntime", &hook.args));
        void::as_asked(&mut env, earlier.and_then(|hook| void::asked(&hook.env)));
        let edited = earlier.is_some_and(|hook| given(&hook.env).is_some());
        let stages = [
            ("prestart", raw.hooks.prestart),
            ("createRuntime", raw.hooks.create_runtime),
            ("createContainer", raw.hooks.create_container),
        ];
        Ok(Self {
            edited,
            env,
            user: raw.process.user,
            root: raw.root,
            mounts: raw.mounts,
            bounding: raw.process.capabilities.bounding,
            cgroups_path: raw.linux.cgroups_path.filter(|path| !path.is_empty()),
            uid_map: id_map(&raw.linux.uid_mappings),
            gid_map: id_map(&raw.linux.gid_mappings),
            namespaces: raw.linux.namespaces,
            annotations: raw.annotations,
            device_paths: raw.linux.devices.into_iter().map(|device| device.path).collect(),
            hooks: stages
                .into_iter()
                .flat_map(|(stage, hooks)| {
                    hooks.into_iter().map(move |hook| Hook { stage, path: hook.path, args: hook.args })
                })
                .collect(),
        })
    }

    /// The variables as pairs, for a request.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether the container was started as a privileged one, in the sense of NVIDIA's toolkit: it may get CAP_SYS_ADMIN
    /// (internal/config/image/privileged.go). In a user namespace of its own that is no right on the host.
    pub fn is_privileged(&self) -> bool {
        let is_mapped = !self.uid_map.0.is_empty() || self.namespaces.iter().any(|namespace| namespace.kind == "user");
        !is_mapped && self.bounding.iter().any(|capability| capability == "CAP_SYS_ADMIN")
    }

    /// The container's root as an absolute path of the host; `None` where the spec has none.
    pub fn rootfs(&self, bundle: &str) -> Option<String> {
        let path = self.root.as_ref().map(|root| root.path.as_str()).filter(|path| !path.is_empty())?;
        Some(if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", bundle.trim_end_matches('/')) })
    }

    /// Whether it has devices that an edit of ours put there.
    pub fn is_edited(&self) -> bool {
        self.edited
    }

    /// Whether the container has a user namespace of its own, so that its runtime makes no nodes: it binds the host's.
    pub fn has_user_namespace(&self) -> bool {
        self.namespaces.iter().any(|namespace| namespace.kind == "user")
    }

    /// Whether a person registered gpuhook as a hook that injects.
    pub fn has_own_hook(&self) -> bool {
        self.hooks.iter().any(|hook| {
            hook.args.iter().map(String::as_str).take(3).eq(["gpuhook", "oci", hook.stage])
                && !hook.args.iter().any(|word| word == super::VERIFY)
        })
    }

    /// What in this spec already brings NVIDIA devices in: the path of a device or of a hook of NVIDIA's toolkit.
    pub fn nvidia_injector(&self) -> Option<&str> {
        const PROGRAMS: [&str; 4] = ["nvidia-container-", "nvidia-cdi-hook", "nvidia-ctk", "oci-nvidia-hook"];
        let device =
            self.device_paths.iter().find(|path| path.starts_with("/dev/nvidia")).filter(|_| !self.is_edited());
        let hook = || {
            self.hooks.iter().map(|hook| &hook.path).find(|path| {
                let name = path.rsplit('/').next().unwrap_or_default();
                PROGRAMS.iter().any(|program| name.starts_with(program))
            })
        };
        device.or_else(hook).map(String::as_str)
    }
}

impl Spec {
    /// The NVIDIA nodes among [`Spec::device_paths`].
    pub fn nvidia_devices(&self) -> Vec<&str> {
        self.device_paths.iter().map(String::as_str).filter(|path| path.starts_with("/dev/nvidia")).collect()
    }
}

fn id_map(mappings: &[RawMapping]) -> IdMap {
    IdMap(mappings.iter().map(|line| (line.container_id, line.host_id, line.size)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = r#"{
      "ociVersion": "1.0.2", "hostname": "x", "mounts": [{"destination": "/proc"}], "future": {"deep": [[1]]},
      "process": {"terminal": false, "user": {"uid": 1000, "gid": 100, "umask": 18, "additionalGids": [44, 992]},
        "args": ["sh"], "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=0", "EMPTY=", "TWO=a=b"], "cwd": "/"},
      "root": {"path": "rootfs", "readonly": true},
      "annotations": {"run.oci.x": "y"},
      "hooks": {"prestart": [{"path": "/usr/bin/gpuhook", "args": ["gpuhook", "oci", "prestart"], "timeout": 10}],
        "createContainer": [{"path": "/bin/true"}], "poststop": [{"path": "/bin/false"}]},
      "linux": {"cgroupsPath": "system.slice:runc:c1", "resources": {"devices": [{"allow": false}]},
        "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 200000, "size": 65536}],
        "namespaces": [{"type": "mount"}, {"type": "user", "path": "/proc/1/ns/user"}],
        "devices": [{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}]}
    }"#;

    #[test]
    fn a_spec_gives_what_an_injection_depends_on() {
        let spec = Spec::parse(SPEC.as_bytes()).expect("a usual spec");
        let pairs = [("PATH", "/bin"), ("NVIDIA_VISIBLE_DEVICES", "0"), ("EMPTY", ""), ("TWO", "a=b")];
        assert_eq!(spec.variables().collect::<Vec<_>>(), pairs);
        assert_eq!(spec.user, User { uid: 1000, gid: 100, additional_gids: vec![44, 992] });
        assert_eq!(spec.root, Some(Root { path: "rootfs".into(), readonly: true }));
        assert_eq!(spec.rootfs("/run/b/"), Some("/run/b/rootfs".into()));
        assert_eq!(spec.cgroups_path.as_deref(), Some("system.slice:runc:c1"));
        assert_eq!(spec.uid_map, IdMap(vec![(0, 100_000, 65_536)]));
        assert_eq!(spec.gid_map, IdMap(vec![(0, 200_000, 65_536)]));
        assert_eq!(spec.namespaces[1], Namespace { kind: "user".into(), path: Some("/proc/1/ns/user".into()) });
        assert_eq!(spec.annotations.get("run.oci.x").map(String::as_str), Some("y"));
        assert_eq!(spec.device_paths, ["/dev/fuse"]);
        assert_eq!(spec.hooks.iter().map(|hook| hook.stage).collect::<Vec<_>>(), ["prestart", "createContainer"]);
        assert_eq!(spec.hooks[0].args, ["gpuhook", "oci", "prestart"]);
        assert_eq!(spec.nvidia_injector(), None);
    }

    #[test]
    fn absent_and_null_parts_are_empty() {
        for text in [
            "{}",
            r#"{"process":null,"root":null,"linux":null,"annotations":null,"hooks":null}"#,
            r#"{"process":{"env":null,"user":null},"hooks":{"prestart":null},
                "linux":{"cgroupsPath":"","uidMappings":null,"gidMappings":null,"namespaces":null,"devices":null}}"#,
        ] {
            assert_eq!(Spec::parse(text.as_bytes()).expect(text), Spec::default(), "{text}");
        }
        assert_eq!(Spec::default().rootfs("/b"), None);
    }

    #[test]
    fn a_second_injector_is_named() {
        for (part, named) in [
            (r#""linux":{"devices":[{"path":"/dev/fuse"},{"path":"/dev/nvidia0"}]}"#, Some("/dev/nvidia0")),
            (
                r#""hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-runtime-hook"}]}"#,
                Some("/usr/bin/nvidia-container-runtime-hook"),
            ),
            (r#""hooks":{"createContainer":[{"path":"/usr/bin/nvidia-cdi-hook"}]}"#, Some("/usr/bin/nvidia-cdi-hook")),
            (r#""hooks":{"createRuntime":[{"path":"/opt/nvidia/x"}]}"#, None),
            (r#""hooks":{"createRuntime":[{"path":"/usr/bin/gpuhook"}]}"#, None),
        ] {
            let text = format!("{{{part}}}");
            assert_eq!(Spec::parse(text.as_bytes()).expect(part).nvidia_injector(), named, "{part}");
        }
    }

    #[test]
    fn a_variable_that_is_not_name_and_value_is_named() {
        for (entry, shown) in [
            ("NVIDIA", r#""NVIDIA""#),
            ("", r#""""#),
            ("=all", r#""=all""#),
            ("A=\\u0000", r#""A=\0""#),
            ("\\u001b[2J", r#""\u{1b}[2J""#),
        ] {
            let text = format!(r#"{{"process":{{"env":["PATH=/bin","{entry}"]}}}}"#);
            let error = Spec::parse(text.as_bytes()).expect_err(entry).to_string();
            assert_eq!(error, format!("read config.json: process.env has {shown}, which is not NAME=VALUE"));
        }
        let long = format!(r#"{{"process":{{"env":["{}"]}}}}"#, "x".repeat(1 << 20));
        assert!(Spec::parse(long.as_bytes()).expect_err("no =").to_string().len() < 300);
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_refused_with_its_reason() {
        let deep = [b"{\"x\":".as_slice(), &b"[".repeat(1_000_000)].concat();
        let long = vec![b' '; Spec::LIMIT + 1];
        let json = "read config.json: it is not the JSON that the OCI specification defines";
        for (bytes, expected) in [
            (b"".as_slice(), "read config.json: it is empty"),
            (&long, "read config.json: 16777217 bytes, more than 16777216"),
            (b"{", json),
            (b"{\"process\":{\"env\":[\"A=\xff\"]}}", json),
            (b"[]", json),
            (&deep, json),
            (br#"{"process":{"env":{"A":"B"}}}"#, json),
            (br#"{"process":{"user":{"uid":-1}}}"#, json),
        ] {
            let error = Spec::parse(bytes).expect_err(expected);
            assert_eq!(error.to_string(), expected);
            assert_eq!(std::error::Error::source(&error).is_some(), expected == json);
        }
    }
}
