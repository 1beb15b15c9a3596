// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an LXC container asks for.

use super::{Arguments, DeviceSelection, Origin, Request, RequestError};
use crate::lxc_config::LxcConfig;

impl Request {
    /// What a hook's arguments, else the `lxc.environment` lines of the container's config, ask for: both are the
    /// operator's. Last come the lines that may be an image's ([`LxcConfig::image_environment`]), and they widen no
    /// rights. Without a word on devices a hook asks for all GPUs, since somebody wrote it into this container's config;
    /// with `opt_in`, the mark of a hook that is installed for every container, it asks for nothing.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn from_lxc(arguments: &Arguments<'_>, config: &LxcConfig, opt_in: bool) -> Result<Self, RequestError> {
        let operator = Arguments::of(config.environment());
        let image = Arguments::of(config.image_environment());
        let mut request = Self::merge(arguments, operator, image)?;
        if !opt_in && arguments.devices.or(operator.devices).or(image.devices).is_none() {
            request.devices = DeviceSelection::All;
            request.origin = Origin::Operator;
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lxc_config::Source;
    use crate::request::DeviceName;
    use DeviceSelection::{All, List, Nothing};

    fn request(text: &str, devices: Option<&str>, opt_in: bool) -> Request {
        let config = LxcConfig::read("config", &mut |_| Ok::<_, std::fmt::Error>(Source::File(text.into())));
        let arguments = Arguments { devices, ..Arguments::default() };
        Request::from_lxc(&arguments, &config.expect(text), opt_in).expect(text)
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
}
