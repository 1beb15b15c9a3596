// SPDX-License-Identifier: MIT OR Apache-2.0
//! The grammar as tables.

use super::*;
use crate::request::{Arguments, Origin, Request};

fn visible(value: &str) -> Result<DeviceSelection, RequestError> {
    Request::from_variables([("NVIDIA_VISIBLE_DEVICES", value)], Origin::Image).map(|request| request.devices)
}

fn bus(domain: u32, bus: u8, device: u8, function: u8) -> DeviceName {
    DeviceName::Bus(PciAddress { domain, bus, device, function })
}

fn uuid(text: &str) -> DeviceName {
    DeviceName::Uuid(text.to_owned())
}

fn mig(gpu: DeviceName, position: u32) -> DeviceName {
    DeviceName::Mig(MigName::Position { gpu: Box::new(gpu), position })
}

fn instances(gpu: &str, gpu_instance: u32, compute_instance: u32) -> DeviceName {
    DeviceName::Mig(MigName::Instances { gpu: gpu.to_owned(), gpu_instance, compute_instance })
}

fn mig_uuid(text: &str) -> DeviceName {
    DeviceName::Mig(MigName::Uuid(text.to_owned()))
}

#[test]
fn visible_devices_mean_what_they_mean_to_nvidia() {
    use DeviceName::Index;
    use DeviceSelection::{All, ControlOnly, List, Nothing};
    let whole = "GPU-5c1f7d8e-0000-4a4a-8b8b-1234567890ab";
    for (value, meaning) in [
        ("", Nothing),
        (" ", Nothing),
        (",,", Nothing),
        ("void", Nothing),
        ("none", ControlOnly),
        ("all", All),
        (" all\n", All),
        ("0,all", All),
        ("all,none", ControlOnly),
        ("0,none,void,all", Nothing),
        ("0", List(vec![Index(0)])),
        ("2, 0 ,,1,", List(vec![Index(2), Index(0), Index(1)])),
        ("1,0,1", List(vec![Index(1), Index(0)])),
        ("007", List(vec![Index(7)])),
        (whole, List(vec![uuid(whole)])),
        ("GPU-5C1F", List(vec![uuid("GPU-5c1f")])),
        ("GPU-5c1f,GPU-5C1F", List(vec![uuid("GPU-5c1f")])),
        ("07:00.0", List(vec![bus(0, 7, 0, 0)])),
        ("0000:C1:1f.7", List(vec![bus(0, 0xc1, 0x1f, 7)])),
        ("00010000:07:00.0", List(vec![bus(0x1_0000, 7, 0, 0)])),
        ("0:1", List(vec![mig(Index(0), 1)])),
        ("GPU-5C1F:12", List(vec![mig(uuid("GPU-5c1f"), 12)])),
        ("MIG-5c1f7d8e-0000", List(vec![mig_uuid("MIG-5c1f7d8e-0000")])),
        ("MIG-GPU-5C1f/11/0", List(vec![instances("GPU-5c1f", 11, 0)])),
        ("0,GPU-5c,07:00.0,0:1", List(vec![Index(0), uuid("GPU-5c"), bus(0, 7, 0, 0), mig(Index(0), 1)])),
        ("nvidia.com/gpu=0", List(vec![Index(0)])),
        ("runtime.nvidia.com/gpu=all", All),
        ("gpuhook.dev/gpu=GPU-5c1f, nvidia.com/gpu=gpu1", List(vec![uuid("GPU-5c1f"), Index(1)])),
        ("nvidia.com/gpu=0:1,nvidia.com/gpu=mig0:1", List(vec![mig(Index(0), 1)])),
        ("nvidia.com/gpu=MIG-5c1f7d8e", List(vec![mig_uuid("MIG-5c1f7d8e")])),
        ("0,management.nvidia.com/gpu=all", All),
    ] {
        assert_eq!(visible(value), Ok(meaning), "{value:?}");
    }
}

#[test]
fn a_word_that_names_no_device_is_refused_by_name() {
    for word in [
        "ALL",
        "gpu0",
        "-1",
        "+1",
        "4294967296",
        "GPU-",
        "GPU--",
        "GPU-xyz",
        "MIG-",
        "MIG-../x",
        "0:",
        ":0",
        "0:+1",
        "07:20.0",
        "07:00.8",
        "100:00.0",
        "123456789:07:00.0",
        "1:2:3:4.0",
        "07:00.",
        ".",
        ":",
        "MIG-GPU-5c1f",
        "MIG-GPU-5c1f/1",
        "MIG-GPU-5c1f/1/0/0",
        "MIG-GPU-5c1f/a/0",
        "MIG-xyz",
        "GPU-5c1f:x",
        "GPU-5c1f:",
        "nvidia.com/gpu=",
        "nvidia.com/gpu=none",
        "nvidia.com/gpu=gpu",
        "nvidia.com/gpu=x",
        "nvidia.com/net=0",
        "vendor.com/gpu=0",
        "management.nvidia.com/gpu=0",
        "nvidia.com/imex-channel=all",
        "0 1",
        "0\0",
        "\u{1b}[2J",
        "\u{fffd}",
        "../../etc",
    ] {
        let error = visible(&format!("0,{word}")).expect_err(word);
        assert_eq!(
            error,
            RequestError::UnknownDevice { name: "NVIDIA_VISIBLE_DEVICES".to_owned(), word: word.to_owned() }
        );
    }
    assert_eq!(
        visible("0, gpu\u{1b}[2J").map_err(|error| error.to_string()),
        Err("read NVIDIA_VISIBLE_DEVICES: \"gpu\\u{1b}[2J\" names no device; allowed are all, none, void, an index (0), \
             a UUID or its beginning (GPU-5c1f), a bus id (0000:07:00.0), a MIG device (0:1, GPU-5c1f:1, \
             MIG-GPU-5c1f/1/0), a CDI name of these (nvidia.com/gpu=0)"
            .to_owned())
    );
}

#[test]
fn capabilities_default_to_utility_and_compute() {
    use DriverCapabilities as C;
    let default = C::UTILITY | C::COMPUTE;
    for (value, meaning) in [
        (None, default),
        (Some(""), default),
        (Some(" , "), default),
        (Some("all"), C::all()),
        (Some("compute"), C::COMPUTE),
        (Some("video, utility,video"), C::VIDEO | C::UTILITY),
        (Some("compute,all"), C::all()),
        (
            Some("compute,compat32,graphics,utility,video,display,ngx"),
            C::COMPUTE | C::COMPAT32 | C::GRAPHICS | C::UTILITY | C::VIDEO | C::DISPLAY | C::NGX,
        ),
    ] {
        let variable = value.map(|value| ("NVIDIA_DRIVER_CAPABILITIES", value));
        let request = Request::from_variables(variable, Origin::Image).map(|request| request.capabilities);
        assert_eq!(request, Ok(meaning), "{value:?}");
        let arguments = Arguments { capabilities: value, ..Arguments::default() };
        assert_eq!(Request::from_arguments(&arguments).map(|request| request.capabilities), Ok(meaning), "{value:?}");
    }
}

#[test]
fn an_unknown_capability_is_refused_with_the_list_of_words() {
    let arguments = Arguments { capabilities: Some("compute,cuda\x07"), ..Arguments::default() };
    let error = Request::from_arguments(&arguments).expect_err("cuda is no capability");
    assert_eq!(
        error.to_string(),
        "read --capabilities: \"cuda\\u{7}\" is no driver capability; allowed are all, compute, compat32, graphics, \
         utility, video, display, ngx"
    );
}

#[test]
fn the_operator_may_ask_for_mig_and_imex() {
    for (value, asked) in
        [("all", true), ("0", true), ("GPU-5c1f", true), ("", false), ("void", false), ("none", false)]
    {
        let variables = [("NVIDIA_MIG_CONFIG_DEVICES", value), ("NVIDIA_MIG_MONITOR_DEVICES", value)];
        let request = Request::from_variables(variables, Origin::Operator).expect(value);
        assert_eq!((request.mig_config, request.mig_monitor), (asked, asked), "{value:?}");
        assert_eq!(request.left_out, Vec::<String>::new());
    }
    for (value, channels) in
        [("", vec![]), ("0", vec![0]), ("3, 1,3 ,2", vec![1, 2, 3]), ("none", vec![]), ("2047,0", vec![0, 2047])]
    {
        let request = Request::from_variables([("NVIDIA_IMEX_CHANNELS", value)], Origin::Operator).expect(value);
        assert_eq!(request.imex_channels, channels, "{value:?}");
    }
    for word in ["-1", "channel0", "0-3", "4294967296"] {
        let error = Request::from_arguments(&Arguments { imex_channels: Some(word), ..Arguments::default() });
        let expected = RequestError::BadChannel { name: "--imex-channels".to_owned(), word: word.to_owned() };
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn all_imex_channels_are_ignored_as_nvidia_does_and_said_so() {
    let request = Request::from_arguments(&Arguments { imex_channels: Some("all,2,all"), ..Arguments::default() })
        .expect("all is ignored");
    assert_eq!(request.imex_channels, [2]);
    assert_eq!(request.left_out, ["--imex-channels: \"all\" is ignored; name the channels by number"]);
}

#[test]
fn an_image_never_widens_rights() {
    let variables = [
        ("NVIDIA_VISIBLE_DEVICES", "0"),
        ("NVIDIA_MIG_CONFIG_DEVICES", "all"),
        ("NVIDIA_MIG_MONITOR_DEVICES", "not even a word"),
        ("NVIDIA_IMEX_CHANNELS", "0"),
    ];
    let request = Request::from_variables(variables, Origin::Image).expect("what is left out is not read");
    assert_eq!(request.devices, DeviceSelection::List(vec![DeviceName::Index(0)]));
    assert!(!request.mig_config && !request.mig_monitor && request.imex_channels.is_empty());
    assert_eq!(
        request.left_out,
        [
            "NVIDIA_MIG_CONFIG_DEVICES=\"all\" may come from the image and is left out; what grants it: --mig-config or \
             unprivileged-may-ask in config.toml",
            "NVIDIA_MIG_MONITOR_DEVICES=\"not even a word\" may come from the image and is left out; what grants it: \
             --mig-monitor or unprivileged-may-ask in config.toml",
            "NVIDIA_IMEX_CHANNELS=\"0\" may come from the image and is left out; what grants it: --imex-channels or \
             unprivileged-may-ask in config.toml",
        ]
    );
    let granted = Arguments { mig_config: Some("all"), imex_channels: Some("3"), ..Arguments::default() };
    let request = Request::new(&granted, variables, Origin::Image).expect("the operator's yes");
    assert!(request.mig_config && !request.mig_monitor);
    assert_eq!(request.imex_channels, [3]);
    assert_eq!(request.left_out.len(), 1);
}

#[test]
fn arguments_win_over_variables_key_by_key() {
    let variables = [("NVIDIA_VISIBLE_DEVICES", "nonsense"), ("NVIDIA_DRIVER_CAPABILITIES", "video")];
    let arguments = Arguments { devices: Some("1"), ..Arguments::default() };
    let request = Request::new(&arguments, variables, Origin::Operator).expect("the nonsense is not read");
    assert_eq!(request.devices, DeviceSelection::List(vec![DeviceName::Index(1)]));
    assert_eq!(request.capabilities, DriverCapabilities::VIDEO);
    let silent = Arguments { devices: Some(""), ..Arguments::default() };
    assert!(Request::new(&silent, [("NVIDIA_VISIBLE_DEVICES", "all")], Origin::Image).expect("said").is_nothing());
}

#[test]
fn the_last_variable_of_a_name_counts() {
    let variables = [("NVIDIA_VISIBLE_DEVICES", "all"), ("PATH", "/bin"), ("NVIDIA_VISIBLE_DEVICES", "void")];
    assert!(Request::from_variables(variables, Origin::Image).expect("both are words").is_nothing());
}

#[test]
fn without_a_word_nothing_is_asked() {
    let request = Request::from_variables([("CUDA_HOME", "/usr")], Origin::Image).expect("no variable of ours");
    assert!(request.is_nothing());
    assert_eq!(request, Request::default());
    assert!(
        !Request::from_arguments(&Arguments { devices: Some("none"), ..Arguments::default() })
            .expect("none is a word")
            .is_nothing()
    );
}

#[test]
fn a_value_of_a_mebibyte_is_refused_in_one_short_line() {
    for value in ["0,".repeat(1 << 19), "\x1b".repeat(1 << 20)] {
        let error = visible(&value).expect_err("too long");
        assert_eq!(error, RequestError::TooLong { name: "NVIDIA_VISIBLE_DEVICES".to_owned(), bytes: 1 << 20 });
    }
    let error = visible(&"\x1b".repeat(1 << 17)).expect_err("no word");
    assert!(error.to_string().len() < 1000 && !error.to_string().contains('\x1b'));
}
