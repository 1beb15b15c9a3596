// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the container of an OCI spec asks for.

use super::{Arguments, Origin, Request, RequestError};
use crate::oci::Spec;

impl Request {
    /// What a hook's arguments and the spec's `process.env` ask for. An engine merges the image's variables with the
    /// operator's before it writes the spec, so all of them count as the image's; without a word on devices nothing is
    /// asked.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn from_spec(arguments: &Arguments<'_>, spec: &Spec) -> Result<Self, RequestError> {
        Self::new(arguments, spec.variables(), Origin::Image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::DeviceSelection;

    fn spec(env: &str) -> Spec {
        Spec::parse(format!(r#"{{"process":{{"env":[{env}]}}}}"#).as_bytes()).expect(env)
    }

    #[test]
    fn a_spec_asks_with_its_variables_and_gets_no_rights_by_them() {
        let spec = spec(r#""NVIDIA_VISIBLE_DEVICES=none","NVIDIA_VISIBLE_DEVICES=all","NVIDIA_IMEX_CHANNELS=0""#);
        let request = Request::from_spec(&Arguments::default(), &spec).expect("words");
        assert_eq!((request.devices, request.origin), (DeviceSelection::All, Origin::Image));
        assert_eq!((request.imex_channels, request.left_out.len()), (vec![], 1));
    }

    #[test]
    fn a_spec_without_a_word_asks_for_nothing() {
        for env in ["", r#""PATH=/bin""#, r#""NVIDIA_VISIBLE_DEVICES=""#, r#""NVIDIA_VISIBLE_DEVICES=void""#] {
            assert!(Request::from_spec(&Arguments::default(), &spec(env)).expect(env).is_nothing(), "{env}");
        }
    }
}
