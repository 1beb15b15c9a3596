// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bundle's `config.json` with our devices in it. Only the lists that change are taken apart; all else stays as the
//! bytes that it was, whatever fields, numbers and order it has.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{OciError, Spec, parse};
use crate::device::{DeviceId, DeviceRule};
use crate::plan::PlannedDevice;

/// The annotation that says which rules of a spec are ours, so that a later edit can renew them:
/// `195:255 195:0 509:0`.
pub(super) const RULES: &str = "dev.gpuhook.rules";

/// What a spec gets. Whatever an earlier edit put there goes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecEdit<'a> {
    /// Nodes that the runtime is to make: none where the container has a user namespace, since a runtime would bind
    /// the host's nodes then, whatever their numbers are.
    pub nodes: &'a [PlannedDevice],
    /// Rules for the device filter.
    pub rules: &'a [DeviceRule],
    /// Hooks of ours.
    pub hooks: Vec<NewHook>,
}

/// A hook as it is written into a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewHook {
    /// When it runs.
    #[serde(skip)]
    pub stage: &'static str,
    /// The program, as an absolute path of the host.
    pub path: String,
    /// Its arguments, with its name first.
    pub args: Vec<String>,
    env: [&'static str; 1],
    /// After so many seconds the runtime kills it.
    pub timeout: u64,
}

impl NewHook {
    /// The hook `PATH oci STAGE ARGUMENTS`.
    pub fn new(stage: &'static str, path: &str, arguments: &[String], timeout: u64) -> Self {
        let args = ["gpuhook", "oci", stage].map(str::to_owned).into_iter().chain(arguments.iter().cloned()).collect();
        // Without a word on the environment runc hands its own on, and an empty list is left out when podman or docker
        // write the spec anew (`omitempty`).
        Self { stage, path: path.to_owned(), args, env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], timeout }
    }
}

/// The stages at which hooks of ours are registered.
const STAGES: [&str; 2] = ["createRuntime", "poststop"];

/// What marks the hook that an edit registers, apart from one that a person wrote down.
pub const VERIFY: &str = "--verify";

impl SpecEdit<'_> {
    /// The spec in `bytes` with this in it. The same edit of the result changes nothing.
    ///
    /// # Errors
    /// As [`Spec::parse`], or where a list that changes is none.
    pub fn apply(&self, bytes: &[u8]) -> Result<Vec<u8>, OciError> {
        let mut spec: Object = parse(WHAT, bytes, Spec::LIMIT)?;
        let mut ours = Vec::new();
        spec.update("annotations", |annotations| {
            ours = annotations.get::<String>(RULES)?.map(|text| numbers(&text)).unwrap_or_default();
            match self.rules.is_empty() {
                true => annotations.remove(RULES),
                false => annotations.put(RULES, &numbers_text(self.rules))?,
            }
            Ok(())
        })?;
        spec.update("hooks", |hooks| {
            STAGES.iter().try_for_each(|stage| {
                let new: Vec<&NewHook> = self.hooks.iter().filter(|hook| hook.stage == *stage).collect();
                hooks.renew(stage, &new, |hook: &HookWords| hook.is_edit(stage))
            })
        })?;
        spec.update("linux", |linux| {
            let nodes: Vec<NewNode> = self.nodes.iter().map(NewNode::of).collect();
            linux.renew("devices", &nodes, |node: &Node| {
                node.path.starts_with("/dev/nvidia") && node.id().is_some_and(|id| ours.contains(&id))
            })?;
            linux.update("resources", |resources| {
                let rules: Vec<NewRule> = self.rules.iter().map(NewRule::of).collect();
                resources.renew("devices", &rules, |rule: &Rule| rule.exact().is_some_and(|id| ours.contains(&id)))
            })
        })?;
        spec.to_bytes()
    }
}

/// How messages call the file.
const WHAT: &str = "config.json";

fn not_json(source: serde_json::Error) -> OciError {
    OciError::NotJson { what: WHAT, source }
}

fn numbers(text: &str) -> Vec<DeviceId> {
    let number = |word: &str| {
        let (major, minor) = word.split_once(':')?;
        Some(DeviceId::new(major.parse().ok()?, minor.parse().ok()?))
    };
    text.split(' ').filter_map(number).collect()
}

fn numbers_text(rules: &[DeviceRule]) -> String {
    rules.iter().map(|rule| rule.id.to_string()).collect::<Vec<_>>().join(" ")
}

/// A hook as it is found; whatever it is that a hook should not be is not ours.
#[derive(Default, Deserialize)]
#[serde(default)]
struct HookWords {
    args: Vec<String>,
}

impl HookWords {
    /// Whether an edit put it there.
    fn is_edit(&self, stage: &str) -> bool {
        let begins = self.args.iter().map(String::as_str).take(3).eq(["gpuhook", "oci", stage]);
        begins && self.args.iter().any(|word| word == VERIFY)
    }
}

#[derive(Deserialize)]
struct Node {
    path: String,
    major: Option<u32>,
    minor: Option<u32>,
}

impl Node {
    fn id(&self) -> Option<DeviceId> {
        Some(DeviceId::new(self.major?, self.minor?))
    }
}

#[derive(Deserialize)]
struct Rule {
    allow: bool,
    #[serde(rename = "type")]
    kind: String,
    major: Option<u32>,
    minor: Option<u32>,
    access: String,
}

impl Rule {
    /// The one device that it opens as we would.
    fn exact(&self) -> Option<DeviceId> {
        let like_ours = self.allow && self.kind == "c" && self.access == "rw";
        like_ours.then(|| Some(DeviceId::new(self.major?, self.minor?))).flatten()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewNode<'a> {
    path: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    major: u32,
    minor: u32,
    file_mode: u32,
    uid: u32,
    gid: u32,
}

impl<'a> NewNode<'a> {
    fn of(device: &'a PlannedDevice) -> Self {
        let PlannedDevice { path, id, mode, uid, gid, .. } = device;
        let (major, minor) = (id.major.0, id.minor.0);
        Self { path: path.as_str(), kind: "c", major, minor, file_mode: *mode, uid: *uid, gid: *gid }
    }
}

#[derive(Serialize)]
struct NewRule {
    allow: bool,
    #[serde(rename = "type")]
    kind: &'static str,
    major: u32,
    minor: u32,
    access: String,
}

impl NewRule {
    fn of(rule: &DeviceRule) -> Self {
        let (major, minor) = (rule.id.major.0, rule.id.minor.0);
        Self { allow: true, kind: "c", major, minor, access: rule.access.to_string() }
    }
}

/// A JSON object whose values nobody has looked into: its members in their order.
#[derive(Default)]
struct Object<'a>(Vec<(String, Cow<'a, RawValue>)>);

impl<'a> Object<'a> {
    /// An object, or none where there is `null` or nothing.
    fn of(value: Option<&RawValue>) -> Result<Self, OciError> {
        let Some(value) = value else { return Ok(Self::default()) };
        let text = value.get();
        let object: Option<Object<'_>> = serde_json::from_str(text).map_err(not_json)?;
        let owned = object.unwrap_or_default().0.into_iter();
        Ok(Self(owned.map(|(key, value)| (key, Cow::Owned(value.into_owned()))).collect()))
    }

    fn value(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    fn get<T: for<'b> Deserialize<'b>>(&self, key: &str) -> Result<Option<T>, OciError> {
        self.value(key).map(|value| serde_json::from_str(value.get()).map_err(not_json)).transpose()
    }

    fn put(&mut self, key: &str, value: &impl Serialize) -> Result<(), OciError> {
        let value = Cow::Owned(to_raw_value(value).map_err(not_json)?);
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
        Ok(())
    }

    fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// Changes the object at `key`. Where there was none and nothing was put into it, there still is none.
    fn update(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Object<'_>) -> Result<(), OciError>,
    ) -> Result<(), OciError> {
        let mut object = Object::of(self.value(key))?;
        change(&mut object)?;
        match object.0.is_empty() && self.value(key).is_none() {
            true => Ok(()),
            false => self.put(key, &object),
        }
    }

    /// Takes those that `is_old` knows out of the list at `key`, and puts `new` at its end. An item that is not of
    /// the shape `T` is not ours and stays.
    fn renew<T: for<'b> Deserialize<'b>>(
        &mut self,
        key: &str,
        new: &[impl Serialize],
        is_old: impl Fn(&T) -> bool,
    ) -> Result<(), OciError> {
        let text = self.value(key).map_or("null", RawValue::get).to_owned();
        let items: Option<Vec<&RawValue>> = serde_json::from_str(&text).map_err(not_json)?;
        let old = items.unwrap_or_default();
        let mut items: Vec<Cow<'_, RawValue>> = Vec::with_capacity(old.len() + new.len());
        let stays = |item: &&RawValue| !serde_json::from_str(item.get()).is_ok_and(|item| is_old(&item));
        items.extend(old.iter().copied().filter(stays).map(Cow::Borrowed));
        if items.len() == old.len() && new.is_empty() {
            return Ok(());
        }
        for item in new {
            items.push(Cow::Owned(to_raw_value(item).map_err(not_json)?));
        }
        self.put(key, &items)
    }

    fn to_bytes(&self) -> Result<Vec<u8>, OciError> {
        serde_json::to_vec(self).map_err(not_json)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((key, Cow::Borrowed(value)));
                }
                Ok(Object(members))
            }
        }
        from.deserialize_map(Members)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Access, ContainerPath};

    fn device(path: &str, id: DeviceId) -> PlannedDevice {
        let path = ContainerPath::new(path).expect("a plain path");
        PlannedDevice { path, id, dynamic: None, access: Access::READ | Access::WRITE, mode: 0o666, uid: 0, gid: 44 }
    }

    fn edited(text: &str, major: u32) -> String {
        let nodes =
            [device("/dev/nvidiactl", DeviceId::new(195, 255)), device("/dev/nvidia-uvm", DeviceId::new(major, 0))];
        let rules = nodes.each_ref().map(|node| DeviceRule { id: node.id, access: node.access });
        let hooks = vec![
            NewHook::new("createRuntime", "/usr/bin/gpuhook", &[VERIFY.to_owned()], 60),
            NewHook::new("poststop", "/usr/bin/gpuhook", &[VERIFY.to_owned()], 10),
        ];
        let edit = SpecEdit { nodes: &nodes, rules: &rules, hooks };
        let bytes = edit.apply(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn taken_out(text: &str) -> String {
        let bytes = SpecEdit::default().apply(text.as_bytes()).expect("a spec");
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn everything_but_the_lists_that_change_stays_byte_for_byte() {
        let text = r#"{"ociVersion":"1.0.2","x":[1.50,1e3,-0,18446744073709551616,"\u00e9\/"],"process":{"env":[ "A=1" ]},
            "linux":{"z":{"deep":[[{}]]},"resources":{"memory":{"limit":9223372036854771712},
            "devices":[{"allow":false,"access":"rwm"}]},"a":null},"hooks":{"prestart":[{"path":"/x","args":null}]},"last":{}}"#;
        let new = edited(text, 509);
        for kept in [
            r#""x":[1.50,1e3,-0,18446744073709551616,"\u00e9\/"]"#,
            r#""process":{"env":[ "A=1" ]}"#,
            r#"{"z":{"deep":[[{}]]},"#,
            r#""memory":{"limit":9223372036854771712}"#,
            r#""prestart":[{"path":"/x","args":null}]"#,
            r#""a":null"#,
        ] {
            assert!(new.contains(kept), "{kept} is not in {new}");
        }
        let order = ["ociVersion", "\"x\"", "process", "linux", "resources", "hooks", "last"];
        let places: Vec<_> = order.iter().map(|key| new.find(key)).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{new}");
        let rules = r#"[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":195,"minor":255,"access":"rw"},{"allow":true,"type":"c","major":509,"minor":0,"access":"rw"}]"#;
        assert!(new.contains(rules), "{new}");
        let node = r#"{"path":"/dev/nvidia-uvm","type":"c","major":509,"minor":0,"fileMode":438,"uid":0,"gid":44}"#;
        assert!(new.contains(node), "{new}");
        let hook = r#"{"path":"/usr/bin/gpuhook","args":["gpuhook","oci","createRuntime","--verify"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}"#;
        assert!(new.contains(hook), "{new}");
    }

    #[test]
    fn a_second_edit_changes_nothing_and_new_numbers_take_the_place_of_the_old() {
        for text in [
            "{}",
            r#"{"linux":null,"hooks":null,"annotations":null}"#,
            r#"{"linux":{"devices":null,"resources":{"devices":[{"allow":true,"type":"c","major":10,"minor":200,"access":"rw"}]}}}"#,
        ] {
            let once = edited(text, 509);
            assert_eq!(edited(&once, 509), once);
            let renewed = edited(&once, 504);
            assert!(!renewed.contains("509") && renewed.contains(r#""major":504"#), "{renewed}");
            assert_eq!(renewed, edited(text, 504));
            let clean = taken_out(&renewed);
            assert!(!clean.contains("gpuhook") && !clean.contains("504") && !clean.contains("nvidia"), "{clean}");
        }
    }

    #[test]
    fn what_somebody_else_put_there_is_never_taken_out() {
        let foreign = r#"{"linux":{"devices":[{"path":"/dev/nvidia9","type":"c","major":195,"minor":9},{"path":1}],
            "resources":{"devices":[{"allow":true,"type":"c","major":195,"minor":9,"access":"rw"},
            {"allow":true,"type":"c","major":509,"access":"rw"},{"allow":true,"type":"c","major":509,"minor":0,"access":"rwm"}]}},
            "hooks":{"createRuntime":[{"path":"/usr/bin/gpuhook","args":["gpuhook","oci","createRuntime"]}],"poststop":["odd"]}}"#;
        let clean = taken_out(&edited(foreign, 509));
        for part in [r#""minor":9}"#, r#"{"path":1}"#, r#""major":509,"access":"rw""#, r#""access":"rwm""#, r#""odd""#]
        {
            assert!(clean.contains(part), "{part} is not in {clean}");
        }
        assert!(clean.contains(r#"{"path":"/usr/bin/gpuhook","args":["gpuhook","oci","createRuntime"]}"#), "{clean}");
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for text in [
            r#"{"linux":[]}"#,
            r#"{"linux":{"devices":{}}}"#,
            r#"{"linux":{"resources":{"devices":"all"}}}"#,
            r#"{"hooks":{"poststop":7}}"#,
            r#"{"annotations":{"dev.gpuhook.rules":[]}}"#,
            "[]",
            "{",
            "",
        ] {
            assert!(SpecEdit::default().apply(text.as_bytes()).is_err(), "{text}");
        }
    }
}
