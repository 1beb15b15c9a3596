// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bundle's `config.json` with our devices in it. Only the lists that change are taken apart; all else stays as the
//! bytes that it was, whatever fields, numbers and order it has.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::object::Object;
use super::spec::null_is_default;
use super::{OciError, Spec, parse, void};
use crate::device::{Access, DeviceId, DeviceRule};
use crate::plan::PlannedDevice;

/// What a spec gets. Whatever an earlier edit put there goes first; the default puts nothing in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecEdit<'a> {
    nodes: &'a [PlannedDevice],
    rules: &'a [DeviceRule],
    /// None, or one at each of [`STAGES`]: rules without the hook that names them could not be told from foreign ones.
    hooks: Vec<NewHook>,
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
    env: Vec<String>,
    /// After so many seconds the runtime kills it.
    pub timeout: u64,
}

impl NewHook {
    /// The hook `PATH oci STAGE ARGUMENTS`.
    pub fn new(stage: &'static str, path: &str, arguments: &[String], timeout: u64) -> Self {
        let args = ["gpuhook", "oci", stage].map(str::to_owned).into_iter().chain(arguments.iter().cloned()).collect();
        // Without a word on the environment runc hands its own on, and an empty list is left out when podman or docker
        // write the spec anew (`omitempty`).
        let env = vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()];
        Self { stage, path: path.to_owned(), args, env, timeout }
    }

    /// The same, keeping what the container asked with and which rules it got.
    fn keeping(&self, asked: &str, rules: &[DeviceRule]) -> Self {
        let mut hook = self.clone();
        if hook.stage == START {
            hook.env.extend([void::kept(asked), format!("{GIVEN}={}", numbers_text(rules))]);
        }
        hook
    }
}

/// The variable of our hook that says which rules of a spec are ours, so that a later edit can renew them:
/// `195:255 195:0 509:0`. No image can bring a hook along, as it can an annotation.
const GIVEN: &str = "GPUHOOK_RULES";

/// The rules that a hook with the environment `env` names.
pub(super) fn given(env: &[String]) -> Option<Vec<DeviceId>> {
    let text = env.iter().find_map(|entry| entry.strip_prefix(GIVEN)?.strip_prefix('='))?;
    let number = |word: &str| {
        let (major, minor) = word.split_once(':')?;
        Some(DeviceId::new(major.parse().ok()?, minor.parse().ok()?))
    };
    Some(text.split(' ').filter_map(number).collect())
}

/// The stage of the hook that looks at a start.
const START: &str = "createRuntime";

/// The stages at which hooks of ours are registered.
const STAGES: [&str; 2] = [START, "poststop"];

/// What marks the hook that an edit registers, apart from one that a person wrote down.
pub const VERIFY: &str = "--verify";

impl<'a> SpecEdit<'a> {
    /// The hooks alone: what `program` is called with at the start and at the end, and after how many seconds the
    /// runtime kills it.
    pub fn hooks(program: &str, calls: [(Vec<String>, u64); 2]) -> Self {
        let hook = |(stage, (words, limit)): (_, (Vec<String>, u64))| NewHook::new(stage, program, &words, limit);
        Self { hooks: STAGES.into_iter().zip(calls).map(hook).collect(), ..Self::default() }
    }

    /// The same, with `rules` for the device filter and `nodes` that the runtime is to make: none where the container has
    /// a user namespace, since a runtime would bind the host's nodes then, whatever their numbers are.
    pub fn giving(self, nodes: &'a [PlannedDevice], rules: &'a [DeviceRule]) -> Self {
        Self { nodes, rules, ..self }
    }

    /// The spec in `bytes` with this in it. The same edit of the result changes nothing.
    ///
    /// # Errors
    /// As [`Spec::parse`], or where a list that changes is none.
    pub fn apply(&self, bytes: &[u8]) -> Result<Vec<u8>, OciError> {
        let mut spec: Object = parse(WHAT, bytes, Spec::LIMIT)?;
        let earlier = registered(&spec)?;
        let ours = earlier.as_ref().and_then(|hook| given(&hook.env)).unwrap_or_default();
        let kept = earlier.as_ref().and_then(|hook| void::asked(&hook.env));
        let asked = void::tell_others(&mut spec, self.gives(), kept)?;
        spec.update("hooks", |hooks| {
            STAGES.iter().try_for_each(|stage| {
                let ours = self.hooks.iter().filter(|hook| hook.stage == *stage);
                let new: Vec<NewHook> = ours
                    .map(|hook| if self.gives() { hook.keeping(&asked, self.rules) } else { hook.clone() })
                    .collect();
                hooks.renew(stage, &new, |hook: &HookWords| is_edit(stage, &hook.args))
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

    /// Whether the spec gets devices, and not only a hook.
    fn gives(&self) -> bool {
        !self.rules.is_empty()
    }
}

/// `resources`, the new limits of a running container (`LinuxResources`), with the rules that an edit put into `spec`, the
/// spec of its bundle. Nothing where they may stay as they are: no rules come with them, or none are ours.
///
/// podman 5 sends the rules of a spec of its own with every update, and crun builds its filter anew from them.
///
/// # Errors
/// One of the two is not JSON, or has no object or list where it must.
pub fn keep_rules(spec: &[u8], resources: &[u8]) -> Result<Option<Vec<u8>>, OciError> {
    let spec: Object<'_> = parse(WHAT, spec, Spec::LIMIT)?;
    let ours = registered(&spec)?.and_then(|hook| given(&hook.env)).unwrap_or_default();
    if ours.is_empty() {
        return Ok(None);
    }
    let mut resources: Object<'_> = parse("the resources", resources, Spec::LIMIT)?;
    let brought = resources.get::<Option<Vec<IgnoredAny>>>("devices")?.flatten().unwrap_or_default();
    if brought.is_empty() {
        return Ok(None);
    }
    let access = Access::READ | Access::WRITE;
    let rules: Vec<NewRule> = ours.iter().map(|id| NewRule::of(&DeviceRule { id: *id, access })).collect();
    resources.renew("devices", &rules, |rule: &Rule| rule.exact().is_some_and(|id| ours.contains(&id)))?;
    resources.to_bytes().map(Some)
}

/// How messages call the file.
const WHAT: &str = "config.json";

/// The hook that an earlier edit registered.
fn registered(spec: &Object<'_>) -> Result<Option<HookWords>, OciError> {
    Ok(spec.object("hooks")?.find(START, |hook: &HookWords| is_edit(START, &hook.args)))
}

fn numbers_text(rules: &[DeviceRule]) -> String {
    rules.iter().map(|rule| rule.id.to_string()).collect::<Vec<_>>().join(" ")
}

/// A hook as it is found; whatever it is that a hook should not be is not ours.
#[derive(Default, Deserialize)]
#[serde(default)]
struct HookWords {
    #[serde(deserialize_with = "null_is_default")]
    args: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    env: Vec<String>,
}

/// Whether an edit put a hook with the words `args` into the list of `stage`.
pub(super) fn is_edit(stage: &str, args: &[String]) -> bool {
    let begins = args.iter().map(String::as_str).take(3).eq(["gpuhook", "oci", stage]);
    begins && args.iter().any(|word| word == VERIFY)
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Rule {
    allow: bool,
    #[serde(rename = "type")]
    kind: String,
    major: Option<i64>,
    minor: Option<i64>,
    access: String,
}

impl Rule {
    /// The one device that it opens as we would.
    fn exact(&self) -> Option<DeviceId> {
        let like_ours = self.allow && self.kind == "c" && self.access == "rw";
        let number = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        like_ours.then(|| Some(DeviceId::new(number(self.major)?, number(self.minor)?))).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ContainerPath;

    fn device(path: &str, id: DeviceId) -> PlannedDevice {
        let path = ContainerPath::new(path).expect("a plain path");
        PlannedDevice { path, id, dynamic: None, access: Access::READ | Access::WRITE, mode: 0o666, uid: 0, gid: 44 }
    }

    fn edited(text: &str, major: u32) -> String {
        let nodes =
            [device("/dev/nvidiactl", DeviceId::new(195, 255)), device("/dev/nvidia-uvm", DeviceId::new(major, 0))];
        let rules = nodes.each_ref().map(|node| DeviceRule { id: node.id, access: node.access });
        let calls = [60, 10].map(|limit| (vec![VERIFY.to_owned()], limit));
        let edit = SpecEdit::hooks("/usr/bin/gpuhook", calls).giving(&nodes, &rules);
        let bytes = edit.apply(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn taken_out(text: &str) -> String {
        let bytes = SpecEdit::default().apply(text.as_bytes()).expect("a spec");
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn everything_but_the_lists_that_change_stays_byte_for_byte() {
        let text = r#"{"ociVersion":"1.0.2","x":[1.50,1e3,-0,18446744073709551616,"\u00e9\/"],"process":{"env":[ "A=\u0031" ]},
            "linux":{"z":{"deep":[[{}]]},"resources":{"memory":{"limit":9223372036854771712},
            "devices":[{"allow":false,"access":"rwm"}]},"a":null},"hooks":{"prestart":[{"path":"/x","args":null}]},"last":{}}"#;
        let new = edited(text, 509);
        for kept in [
            r#""x":[1.50,1e3,-0,18446744073709551616,"\u00e9\/"]"#,
            r#""process":{"env":["A=\u0031","NVIDIA_VISIBLE_DEVICES=void"]}"#,
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
        let hook = hook.replace("/bin\"]", "/bin\",\"GPUHOOK_ASKED=\",\"GPUHOOK_RULES=195:255 509:0\"]");
        assert!(new.contains(&hook), "{new}");
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
    fn other_injectors_are_told_to_stay_away_and_what_was_asked_is_not_forgotten() {
        for (env, shown) in [
            (r#"["A=1","NVIDIA_VISIBLE_DEVICES=0"]"#, r#"["A=1","NVIDIA_VISIBLE_DEVICES=void"]"#),
            (
                r#"["NVIDIA_VISIBLE_DEVICES=1","NVIDIA_VISIBLE_DEVICES=0","B="]"#,
                r#"["NVIDIA_VISIBLE_DEVICES=1","NVIDIA_VISIBLE_DEVICES=void","B="]"#,
            ),
            // Asked for by a mount, say.
            (r#"["A=1"]"#, r#"["A=1","NVIDIA_VISIBLE_DEVICES=void"]"#),
        ] {
            let text = format!(r#"{{"process":{{"env":{env}}}}}"#);
            let once = edited(&text, 509);
            assert!(once.contains(shown), "{once}");
            let read = |text: &str| Spec::parse(text.as_bytes()).expect("a spec").env;
            assert_eq!(read(&once), read(&text), "a later reader sees the wish");
            assert_eq!(edited(&once, 509), once);
            assert!(taken_out(&once).contains(env), "{}", taken_out(&once));
            let changed = once.replace("DEVICES=void", "DEVICES=7");
            assert!(read(&changed).contains(&("NVIDIA_VISIBLE_DEVICES".to_owned(), "7".to_owned())));
            assert!(taken_out(&edited(&changed, 509)).contains("DEVICES=7"), "a wish that was changed since");
        }
        let smuggled = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=void","GPUHOOK_ASKED=all"]},"annotations":{"GPUHOOK_ASKED":"all"}}"#;
        let env = Spec::parse(smuggled.as_bytes()).expect("a spec").env;
        assert_eq!(env[0].1, "void", "an operator's void, whatever the image says");
        let somebody_elses = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}}"#;
        assert_eq!(taken_out(somebody_elses), somebody_elses, "where we give nothing, nobody else is told to");
    }

    #[test]
    fn an_update_that_brings_rules_gets_ours_as_well() {
        let spec = edited("{}", 509);
        // What podman has made of the bundle when it calls the runtime.
        let spec = spec.replace(r#""resources":{"devices":["#, r#""resources":{"devices":[],"x":["#);
        assert!(spec.contains(r#""devices":[],"x":[{"#), "{spec}");
        let kept = |resources: &str| {
            let bytes = keep_rules(spec.as_bytes(), resources.as_bytes()).expect("resources");
            bytes.map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
        };
        let ours = r#"{"allow":true,"type":"c","major":195,"minor":255,"access":"rw"},{"allow":true,"type":"c","major":509,"minor":0,"access":"rw"}"#;
        let sent = r#"{"devices":[{"allow":false,"access":"rwm"}],"memory":{"limit":1e9}}"#;
        let expected = format!(r#"{{"devices":[{{"allow":false,"access":"rwm"}},{ours}],"memory":{{"limit":1e9}}}}"#);
        assert_eq!(kept(sent).as_ref(), Some(&expected));
        assert_eq!(kept(&expected).as_ref(), Some(&expected), "each once");
        for quiet in [r#"{"memory":{"limit":1}}"#, r#"{"devices":[]}"#, r#"{"devices":null}"#, "{}"] {
            assert_eq!(kept(quiet), None, "{quiet}");
        }
        let smuggled = r#"{"annotations":{"GPUHOOK_RULES":"8:0"},"process":{"env":["GPUHOOK_RULES=8:0"]},"linux":{"resources":{"devices":[{"allow":true,"major":-1},{}]}}}"#;
        for without in ["{}", smuggled, &taken_out(&spec)] {
            assert_eq!(keep_rules(without.as_bytes(), sent.as_bytes()).expect("resources"), None, "{without}");
        }
        for odd in ["", "[]", "{", r#"{"devices":7}"#] {
            assert!(keep_rules(spec.as_bytes(), odd.as_bytes()).is_err(), "{odd}");
        }
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for text in [
            r#"{"linux":[]}"#,
            r#"{"linux":{"devices":{}}}"#,
            r#"{"linux":{"resources":{"devices":"all"}}}"#,
            r#"{"hooks":{"poststop":7}}"#,
            "[]",
            "{",
            "",
        ] {
            assert!(SpecEdit::default().apply(text.as_bytes()).is_err(), "{text}");
        }
    }
}
