// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an LXC container asks for.

use super::source::{Place, Sources};
use super::{Arguments, DeviceSelection, Request, RequestError};
use crate::config::Config;
use crate::lxc_config::LxcConfig;

impl Request {
    /// What a hook's arguments, else the `lxc.environment` lines of the container's config, ask for: both are the
    /// operator's. Last come the lines that may be an image's ([`LxcConfig::image_environment`]), for which a container of
    /// LXC is never privileged. Without a word on devices a hook asks for all GPUs, since somebody wrote it into this container's config;
    /// with `opt_in`, the mark of a hook that is installed for every container, it asks for nothing.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn from_lxc(
        arguments: &Arguments<'_>,
        lxc: &LxcConfig,
        opt_in: bool,
        config: &Config,
    ) -> Result<Self, RequestError> {
        let mut sources = Sources::new(arguments, config.rights_of_image(false));
        sources.add_variables(Place::OperatorVariable, lxc.environment());
        sources.add_variables(Place::ImageVariable, lxc.image_environment());
        sources.request(if opt_in { DeviceSelection::Nothing } else { DeviceSelection::All })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lxc_config::Source;
    use crate::request::{DeviceName, Origin};
    use DeviceSelection::{All, List, Nothing};

    fn request(text: &str, devices: Option<&str>, opt_in: bool) -> Request {
        under(&Config::default(), text, devices, opt_in)
    }

    fn under(config: &Config, text: &str, devices: Option<&str>, opt_in: bool) -> Request {
        let lxc = LxcConfig::read("config", &mut |_| Ok::<_, std::fmt::Error>(Source::File(text.into())));
        let arguments = Arguments { devices, ..Arguments::default() };
        Request::from_lxc(&arguments, &lxc.expect(text), opt_in, config).expect(text)
    }

    #[test]
    fn the_config_speaks_where_the_arguments_are_silent() {
        let zero = "lxc.environment = NVIDIA_VISIBLE_DEVICES=0";
        for (text, devices, opt_in, meaning) in [
            ("", None, false, All),
            ("", None, true, Nothing),
            (zero, None, false, List(vec![DeviceName::Index(0)])),
            (zero, None, true, List(vec![DeviceName::Index(0)])),
            (zero, Some("1"), true, List(vec![DeviceName::Index(1)])),
            (zero, Some("void"), false, Nothing),
            ("lxc.environment = NVIDIA_VISIBLE_DEVICES=", None, false, Nothing),
            ("lxc.environment = NVIDIA_VISIBLE_DEVICES=void", None, false, Nothing),
            ("lxc.environment = NVIDIA_VISIBLE_DEVICES=0\nlxc.environment =", None, false, All),
            ("lxc.environment = NVIDIA_VISIBLE_DEVICES", None, true, Nothing),
        ] {
            assert_eq!(request(text, devices, opt_in).devices, meaning, "{text:?} {devices:?} {opt_in}");
        }
    }

    #[test]
    fn the_operator_of_an_lxc_container_may_ask_for_mig_and_imex() {
        let text = "lxc.environment = NVIDIA_MIG_CONFIG_DEVICES=all\nlxc.environment = NVIDIA_IMEX_CHANNELS=1,0\n";
        let request = request(text, None, false);
        assert!(request.mig_config && !request.mig_monitor);
        assert_eq!((request.imex_channels, request.left_out), (vec![0, 1], vec![]));
        assert_eq!(request.origin, Origin::Operator);
    }

    #[test]
    fn an_image_on_proxmox_may_choose_devices_but_gets_no_rights() {
        let image = "lxc.environment.runtime = NVIDIA_VISIBLE_DEVICES=all\n\
                     lxc.environment.runtime = NVIDIA_MIG_CONFIG_DEVICES=all\n";
        let request = request(image, None, true);
        assert_eq!((request.devices, request.origin), (All, Origin::Image));
        assert!(!request.mig_config);
        assert_eq!(request.left_out.len(), 1);

        let operator = format!(
            "lxc.environment = NVIDIA_VISIBLE_DEVICES=0\nlxc.environment = NVIDIA_MIG_CONFIG_DEVICES=all\n{image}"
        );
        let request = self::request(&operator, None, true);
        assert_eq!((request.devices, request.origin), (List(vec![DeviceName::Index(0)]), Origin::Operator));
        assert!(request.mig_config && request.left_out.is_empty());
    }

    #[test]
    fn an_image_that_may_not_choose_leaves_the_choice_to_the_hook() {
        let strict = Config { accept_env_when_unprivileged: false, ..Config::default() };
        let image = "lxc.environment.runtime = NVIDIA_VISIBLE_DEVICES=0\n";
        for (opt_in, devices) in [(false, All), (true, Nothing)] {
            let request = under(&strict, image, None, opt_in);
            assert_eq!((request.devices, request.left_out.len()), (devices, 1), "{opt_in}");
        }
        let operator = format!("lxc.environment = NVIDIA_VISIBLE_DEVICES=1\n{image}");
        assert_eq!(under(&strict, &operator, None, true).devices, List(vec![DeviceName::Index(1)]));
        let may = Config::parse("unprivileged-may-ask = [\"imex-channels\"]").expect("a right");
        let channels = format!("{image}lxc.environment.runtime = NVIDIA_IMEX_CHANNELS=3");
        assert_eq!(under(&may, &channels, None, true).imex_channels, [3]);
    }

    #[test]
    fn a_legacy_image_asks_without_a_word_where_the_hook_waits_for_one() {
        let legacy = "lxc.environment.runtime = CUDA_VERSION=10.2.89\n";
        let understood = request(legacy, None, true);
        assert_eq!((understood.devices, understood.origin), (All, Origin::Image));
        let said = format!("{legacy}lxc.environment = NVIDIA_VISIBLE_DEVICES=void");
        assert!(request(&said, None, true).is_nothing());
        // The operator's requirement wins over the image's.
        let requires = "lxc.environment = NVIDIA_REQUIRE_CUDA=cuda>=11\n\
                        lxc.environment.runtime = NVIDIA_REQUIRE_CUDA=cuda>=99";
        assert_eq!(request(requires, None, false).requirements[0].text, "cuda>=11");
    }
}
