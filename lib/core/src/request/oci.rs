// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the container of an OCI spec asks for.

use super::source::{Place, Sources};
use super::{Arguments, DeviceSelection, Request, RequestError, select};
use crate::config::Config;
use crate::oci::Spec;

/// What annotations of CDI begin with (container-device-interface, pkg/cdi/annotations.go).
const ANNOTATION: &str = "cdi.k8s.io/";

/// Where mounts name devices (NVIDIA's toolkit, internal/config/image, `DeviceListAsVolumeMountsRoot`).
const MOUNTS: &str = "/var/run/nvidia-container-devices/";

impl Request {
    /// What a hook's arguments and the spec ask for: annotations `cdi.k8s.io/*` win over mounts of `/dev/null` below
    /// `/var/run/nvidia-container-devices`, and these over `process.env`. An engine merges the image's variables and
    /// annotations with the operator's before it writes the spec, so all of them count as the image's; no image makes
    /// such a mount. Without a word on devices nothing is asked, except by an image from before `NVIDIA_REQUIRE_CUDA`.
    /// What asks for nothing under the default config asks for nothing under every other.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn from_spec(arguments: &Arguments<'_>, spec: &Spec, config: &Config) -> Result<Self, RequestError> {
        let annotations = annotated(spec);
        let (devices, channels) = if config.accept_mounts { mounted(spec) } else { Default::default() };
        let mut sources = Sources::new(arguments, config.rights_of_image(spec.is_privileged()));
        sources.add(Place::Annotation, Arguments { devices: annotations.as_deref(), ..Arguments::default() });
        let mounts =
            Arguments { devices: devices.as_deref(), imex_channels: channels.as_deref(), ..Arguments::default() };
        sources.add(Place::Mount, mounts);
        sources.add_variables(Place::ImageVariable, spec.variables().collect());
        sources.request(DeviceSelection::Nothing)
    }
}

/// The devices of ours in CDI's annotations, as a list; other vendors' are the engine's business.
fn annotated(spec: &Spec) -> Option<String> {
    let values = spec.annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)).map(|(_, value)| value);
    let names = values.flat_map(|value| select::words(value)).filter(|word| select::is_cdi_name(word));
    list(names.map(str::to_owned))
}

/// The devices and the IMEX channels that mounts name, each as a list.
fn mounted(spec: &Spec) -> (Option<String>, Option<String>) {
    let named = spec.mounts.iter().filter(|mount| mount.source == "/dev/null").filter_map(|mount| {
        let name = mount.destination.strip_prefix(MOUNTS)?.trim_matches('/');
        (!name.is_empty()).then_some(name)
    });
    let (channels, devices): (Vec<&str>, Vec<&str>) = named.partition(|name| name.starts_with("imex/"));
    let device = |name: &str| match name.strip_prefix("cdi/").and_then(|name| name.rsplit_once('/')) {
        Some((kind, name)) => format!("{kind}={name}"),
        None => name.to_owned(),
    };
    let channels = channels.iter().filter_map(|name| name.strip_prefix("imex/")).map(str::to_owned);
    (list(devices.into_iter().map(device)), list(channels))
}

fn list(words: impl Iterator<Item = String>) -> Option<String> {
    Some(words.collect::<Vec<_>>().join(",")).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{DeviceName, DriverCapabilities, Origin};
    use DeviceSelection::{All, ControlOnly, List, Nothing};

    const SYS_ADMIN: &str = r#","capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_ADMIN"]}"#;

    /// `env`, what else is in `process`, what else is in the spec.
    fn parse(env: &[&str], process: &str, rest: &str) -> Spec {
        let env = serde_json::to_string(env).expect("strings");
        let text = format!(r#"{{"process":{{"env":{env}{process}}}{rest}}}"#);
        Spec::parse(text.as_bytes()).expect(&text)
    }

    fn config(text: &str) -> Config {
        Config::parse(text).expect(text)
    }

    fn request(spec: &Spec) -> Request {
        Request::from_spec(&Arguments::default(), spec, &Config::default()).expect("words")
    }

    fn index(index: u32) -> DeviceName {
        DeviceName::Index(index)
    }

    fn mounts(destinations: &[&str]) -> String {
        let mounts: Vec<String> = destinations
            .iter()
            .map(|destination| format!(r#"{{"source":"/dev/null","destination":"{destination}"}}"#))
            .collect();
        format!(r#","mounts":[{{"destination":"/proc","type":"proc"}},{}]"#, mounts.join(","))
    }

    #[test]
    fn a_spec_asks_with_its_variables_and_gets_no_rights_by_them() {
        let env = ["NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0"];
        let request = request(&parse(&env, "", ""));
        assert_eq!((request.devices, request.origin), (All, Origin::Image));
        assert_eq!((request.imex_channels, request.left_out.len()), (vec![], 1));
    }

    #[test]
    fn a_spec_without_a_word_asks_for_nothing() {
        for env in [&[][..], &["PATH=/bin"], &["NVIDIA_VISIBLE_DEVICES="], &["NVIDIA_VISIBLE_DEVICES=void"]] {
            assert!(request(&parse(env, "", "")).is_nothing(), "{env:?}");
        }
    }

    /// Variable, word of the config, whether the request has it.
    type Right = (&'static str, &'static str, fn(&Request) -> bool);

    /// The four rights of an image, one by one.
    const RIGHTS: [Right; 4] = [
        ("NVIDIA_MIG_CONFIG_DEVICES=all", "mig-config", |request| request.mig_config),
        ("NVIDIA_MIG_MONITOR_DEVICES=all", "mig-monitor", |request| request.mig_monitor),
        ("NVIDIA_IMEX_CHANNELS=3", "imex-channels", |request| request.imex_channels == [3]),
        ("NVIDIA_NVSWITCH=enabled", "nvswitch", |request| request.nvswitch),
    ];

    #[test]
    fn an_unprivileged_container_gets_each_right_by_the_operators_yes_alone() {
        for (variable, word, has) in RIGHTS {
            let env = ["NVIDIA_VISIBLE_DEVICES=0", variable];
            let yes = config(&format!("unprivileged-may-ask = [\"{word}\"]"));
            let others: Vec<&str> = RIGHTS.iter().map(|(_, other, _)| *other).filter(|other| *other != word).collect();
            let no = config(&format!("unprivileged-may-ask = {others:?}"));
            let ask =
                |spec: &Spec, config: &Config| Request::from_spec(&Arguments::default(), spec, config).expect(variable);
            let plain = parse(&env, "", "");
            for config in [&Config::default(), &no] {
                let request = ask(&plain, config);
                assert!(!has(&request), "{variable}");
                let [left_out] = &request.left_out[..] else { panic!("{:?}", request.left_out) };
                assert!(left_out.contains(variable.split_once('=').expect("a pair").0), "{left_out}");
                assert_eq!(request.devices, List(vec![index(0)]), "the rest is given");
            }
            for (spec, config) in [(&plain, &yes), (&parse(&env, SYS_ADMIN, ""), &Config::default())] {
                let request = ask(spec, config);
                assert!(has(&request) && request.left_out.is_empty(), "{variable} {request:?}");
            }
            // CAP_SYS_ADMIN of a user namespace of its own is no right on the host.
            let map = r#","linux":{"uidMappings":[{"containerID":0,"hostID":100000,"size":65536}]}"#;
            assert!(!has(&ask(&parse(&env, SYS_ADMIN, map), &Config::default())), "{variable}");
            // Not even where the capability is inheritable, but not bounding.
            let inheritable = SYS_ADMIN.replace("bounding", "inheritable");
            assert!(!has(&ask(&parse(&env, &inheritable, ""), &Config::default())), "{variable}");
        }
    }

    #[test]
    fn an_unprivileged_container_chooses_no_gpu_where_the_operator_does_not_accept_it() {
        let strict = config("accept-env-when-unprivileged = false");
        let annotation = r#","annotations":{"cdi.k8s.io/x":"nvidia.com/gpu=all"}"#;
        for (env, rest) in [
            (&["NVIDIA_VISIBLE_DEVICES=all"][..], ""),
            (&["NVIDIA_VISIBLE_DEVICES=0"], ""),
            (&["CUDA_VERSION=11.0.3"], ""),
            (&[], annotation),
        ] {
            let of =
                |spec: &Spec, config: &Config| Request::from_spec(&Arguments::default(), spec, config).expect("words");
            let plain = parse(env, "", rest);
            assert!(of(&plain, &strict).is_nothing(), "{env:?}");
            assert!(of(&plain, &strict).left_out[0].contains("accept-env-when-unprivileged"), "{env:?}");
            assert!(!of(&plain, &Config::default()).is_nothing(), "{env:?}");
            assert!(!of(&parse(env, SYS_ADMIN, rest), &strict).is_nothing(), "{env:?}");
            let arguments = Arguments { devices: Some("1"), ..Arguments::default() };
            let request = Request::from_spec(&arguments, &plain, &strict).expect("words");
            assert_eq!((request.devices, request.left_out), (List(vec![index(1)]), vec![]), "{env:?}");
        }
        let silent =
            Request::from_spec(&Arguments::default(), &parse(&["NVIDIA_VISIBLE_DEVICES=void"], "", ""), &strict);
        assert!(silent.expect("void").is_nothing());
    }

    #[test]
    fn mounts_of_dev_null_choose_devices_and_win_over_variables() {
        let env = ["NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices", "NVIDIA_IMEX_CHANNELS=9"];
        let root = "/var/run/nvidia-container-devices";
        for (names, devices, channels) in [
            (&["all"][..], All, vec![]),
            (&["0", "2/"], List(vec![index(0), index(2)]), vec![]),
            (&["GPU-5c1f"], List(vec![DeviceName::Uuid("GPU-5c1f".into())]), vec![]),
            (&["cdi/nvidia.com/gpu/1", "imex/3", "imex/0"], List(vec![index(1)]), vec![0, 3]),
            (&["cdi/runtime.nvidia.com/gpu/all"], All, vec![]),
        ] {
            let all: Vec<String> = names.iter().map(|name| format!("{root}/{name}")).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let spec = parse(&env, "", &mounts(&all));
            let strict = config("accept-env-when-unprivileged = false");
            let request = Request::from_spec(&Arguments::default(), &spec, &strict).expect("mounts");
            assert_eq!((request.devices, request.origin), (devices, Origin::Operator), "{names:?}");
            assert_eq!(request.imex_channels, channels, "{names:?}");
        }
        let spec = parse(&["NVIDIA_VISIBLE_DEVICES=1"], "", &mounts(&[&format!("{root}/0")]));
        assert_eq!(request(&spec).devices, List(vec![index(0)]));
        let refused = Request::from_spec(&Arguments::default(), &spec, &config("accept-mounts = false"));
        assert_eq!(refused.expect("the variable").devices, List(vec![index(1)]));
    }

    #[test]
    fn other_mounts_choose_nothing() {
        for (source, destination) in [
            ("/dev/zero", "/var/run/nvidia-container-devices/all"),
            ("/dev/null", "/var/run/nvidia-container-devices"),
            ("/dev/null", "/var/run/nvidia-container-devices/"),
            ("/dev/null", "/var/run/nvidia-container-devicesall"),
            ("/dev/null", "/run/all"),
        ] {
            let rest = format!(r#","mounts":[{{"source":"{source}","destination":"{destination}"}}]"#);
            assert!(request(&parse(&[], "", &rest)).is_nothing(), "{source} {destination}");
        }
    }

    #[test]
    fn annotations_of_cdi_choose_devices_of_ours_and_leave_the_others_to_the_engine() {
        let env = ["NVIDIA_VISIBLE_DEVICES=all"];
        for (value, devices) in [
            ("nvidia.com/gpu=0,nvidia.com/gpu=0:1", Some(2)),
            ("gpuhook.dev/gpu=0", Some(1)),
            ("vendor.com/net=eth0, nvidia.com/gpu=1", Some(1)),
            ("vendor.com/net=eth0", None),
            ("", None),
        ] {
            let spec = parse(
                &env,
                "",
                &format!(r#","annotations":{{"cdi.k8s.io/a_b":"{value}","other":"nvidia.com/gpu=5"}}"#),
            );
            match (request(&spec).devices, devices) {
                (List(names), Some(count)) => assert_eq!(names.len(), count, "{value}"),
                (devices, None) => assert_eq!(devices, All, "{value}"),
                (devices, _) => panic!("{value}: {devices:?}"),
            }
        }
    }

    #[test]
    fn management_is_a_right_and_without_it_means_all_gpus() {
        let spec = parse(&["NVIDIA_VISIBLE_DEVICES=management.nvidia.com/gpu=all"], "", "");
        let plain = request(&spec);
        assert_eq!((plain.devices, plain.management, plain.left_out.len()), (All, false, 1));
        let some = config(r#"unprivileged-may-ask = ["mig-config", "mig-monitor"]"#);
        let all = config(r#"unprivileged-may-ask = ["mig-config", "mig-monitor", "nvswitch"]"#);
        for (config, management) in [(some, false), (all, true)] {
            let request = Request::from_spec(&Arguments::default(), &spec, &config).expect("words");
            assert_eq!(request.management, management);
        }
        let arguments = Arguments { devices: Some("management.nvidia.com/gpu=all"), ..Arguments::default() };
        assert!(Request::from_arguments(&arguments).expect("words").management);
        let channel = request(&parse(&["NVIDIA_VISIBLE_DEVICES=nvidia.com/imex-channel=3"], "", ""));
        assert_eq!((channel.devices, channel.imex_channels.len(), channel.left_out.len()), (ControlOnly, 0, 1));
    }

    #[test]
    fn a_legacy_image_asks_for_all_of_everything_without_a_word() {
        let legacy = request(&parse(&["CUDA_VERSION=10.2.89"], "", ""));
        assert_eq!((legacy.devices, legacy.capabilities), (All, DriverCapabilities::all()));
        assert_eq!(legacy.requirements[0].text, "cuda>=10.2");
        let said = request(&parse(&["CUDA_VERSION=10.2.89", "NVIDIA_VISIBLE_DEVICES=0"], "", ""));
        assert_eq!((said.devices, said.capabilities), (List(vec![index(0)]), DriverCapabilities::all()));
        let compute = parse(&["CUDA_VERSION=10.2", "NVIDIA_DRIVER_CAPABILITIES=compute"], "", "");
        assert_eq!(request(&compute).capabilities, DriverCapabilities::COMPUTE);
        for env in [
            &["CUDA_VERSION=10.2.89", "NVIDIA_VISIBLE_DEVICES="][..],
            &["CUDA_VERSION=10.2.89", "NVIDIA_VISIBLE_DEVICES=void"],
            &["CUDA_VERSION=12.4.1", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"],
        ] {
            assert_eq!(request(&parse(env, "", "")).devices, Nothing, "{env:?}");
        }
    }

    #[test]
    fn requirements_are_read_where_something_is_asked_for() {
        let bad = ["NVIDIA_REQUIRE_CUDA=nonsense", "NVIDIA_VISIBLE_DEVICES=all"];
        let spec = parse(&bad, "", "");
        let error = Request::from_spec(&Arguments::default(), &spec, &Config::default()).expect_err("nonsense");
        assert!(error.to_string().contains("NVIDIA_DISABLE_REQUIRE"), "{error}");
        assert!(request(&parse(&bad[..1], "", "")).is_nothing());
        let disabled = [&bad[..], &["NVIDIA_DISABLE_REQUIRE=1"]].concat();
        assert_eq!(request(&parse(&disabled, "", "")).requirements, []);
    }

    #[test]
    fn what_the_toolkit_has_and_gpuhook_has_not_is_said() {
        let env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_GDS=enabled", "NVIDIA_MOFED=disabled"];
        assert_eq!(request(&parse(&env, "", "")).left_out, ["NVIDIA_GDS: gpuhook brings in none of its devices"]);
    }
}
