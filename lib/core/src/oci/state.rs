// SPDX-License-Identifier: MIT OR Apache-2.0
//! The container's state, as a runtime writes it on a hook's stdin.

use serde::Deserialize;

use super::{OciError, parse};
use crate::container_id::ContainerId;

/// One container at one moment of its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its name, unique on this host and engine.
    pub id: ContainerId,
    /// Its first process as the host sees it; `None` before and after its life.
    pub pid: Option<u32>,
    /// The directory of `config.json`, an absolute path of the host.
    pub bundle: String,
    /// `creating`, `created`, `running` or `stopped`; runc says `creating` in prestart where crun says `created`.
    pub status: String,
    /// The container's root as a path of the host: only crun says it.
    pub root: Option<String>,
}

#[derive(Deserialize)]
struct RawState {
    #[serde(default)]
    id: String,
    #[serde(default)]
    pid: Option<i64>,
    #[serde(default)]
    bundle: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    root: Option<String>,
}

impl State {
    /// A state has at most so many bytes. Annotations are its only part without a bound.
    pub const LIMIT: usize = 1 << 20;

    /// The state in `bytes`.
    ///
    /// # Errors
    ///
    /// Where it is empty, too long, not JSON, without a usable id, with a bundle that is not absolute, or with a pid
    /// above the kernel's largest (`PID_MAX_LIMIT`, 2^22). A pid that is absent, 0 or negative is no error here: see
    /// [`State::live_pid`].
    pub fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        const PID_MAX_LIMIT: u32 = 1 << 22;
        let raw: RawState = parse("state", bytes, Self::LIMIT)?;
        let id = ContainerId::new(&raw.id).ok_or(OciError::BadId(raw.id))?;
        if !raw.bundle.starts_with('/') || raw.bundle.contains('\0') {
            return Err(OciError::RelativeBundle(raw.bundle));
        }
        let pid = match raw.pid {
            Some(pid) if pid > 0 => match u32::try_from(pid) {
                Ok(pid) if pid <= PID_MAX_LIMIT => Some(pid),
                _ => return Err(OciError::BadPid(pid)),
            },
            _ => None,
        };
        Ok(Self { id, pid, bundle: raw.bundle, status: raw.status, root: raw.root.filter(|root| !root.is_empty()) })
    }

    /// The pid, for the stages in which the container's process exists: prestart and createRuntime. Whether it still
    /// lives, only the kernel can tell.
    ///
    /// # Errors
    ///
    /// Where the state names no process.
    pub fn live_pid(&self) -> Result<u32, OciError> {
        self.pid.ok_or_else(|| OciError::NoPid(self.status.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        State::parse(bytes).map(|state| format!("{state:?}")).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_state_of_runc_and_one_of_crun_are_read() {
        let runc = br#"{"ociVersion":"1.0.2-dev","id":"c1","status":"creating","pid":4242,"bundle":"/run/b/c1",
            "annotations":{"a":"b"}}"#;
        let state = State::parse(runc).expect("runc's state");
        assert_eq!((state.id.as_str(), state.live_pid().ok()), ("c1", Some(4242)));
        assert_eq!((state.bundle.as_str(), state.status.as_str(), state.root), ("/run/b/c1", "creating", None));

        let crun = br#"{"ociVersion":"1.0","id":"a.b_c","pid":7,"root":"/var/lib/x/merged","bundle":"/b",
            "status":"created","new-key":[{}]}"#;
        assert_eq!(State::parse(crun).expect("crun's state").root.as_deref(), Some("/var/lib/x/merged"));
    }

    #[test]
    fn a_state_without_a_process_is_refused_only_where_one_is_needed() {
        for pid in ["", r#""pid":0,"#, r#""pid":-1,"#, r#""pid":null,"#] {
            let text = format!(r#"{{{pid}"id":"c1","bundle":"/b","status":"stopped"}}"#);
            let state = State::parse(text.as_bytes()).expect("poststop needs no pid");
            assert_eq!(state.pid, None, "{pid}");
            assert_eq!(
                state.live_pid().map_err(|error| error.to_string()),
                Err("read state: it names no process (status \"stopped\"); register the hook for prestart or \
                     createRuntime, where the container's process exists"
                    .to_owned())
            );
        }
    }

    #[test]
    fn a_bad_state_is_refused_with_its_reason() {
        let long = vec![b' '; State::LIMIT + 1];
        let deep = [b"{\"id\":".as_slice(), &b"[".repeat(100_000)].concat();
        let json = "read state: it is not the JSON that the OCI specification defines";
        for (bytes, expected) in [
            (b"".as_slice(), "read state: it is empty"),
            (b" \n\t", "read state: it is empty"),
            (&long, "read state: 1048577 bytes, more than 1048576"),
            (b"hello", json),
            (b"\xff\xfe", json),
            (b"[]", json),
            (b"null", json),
            (&deep, json),
            (br#"{"id":"c1","bundle":"/b"} x"#, json),
            (br#"{"id":"c1","bundle":"/b","pid":"7"}"#, json),
            (br#"{"id":"c1","bundle":"/b","pid":4194305}"#, "read state: no process can have the pid 4194305"),
            (br#"{"id":"c1"}"#, r#"read state: the bundle "" is not an absolute path"#),
            (br#"{"id":"c1","bundle":"b\u001b[2J"}"#, r#"read state: the bundle "b\u{1b}[2J" is not an absolute path"#),
        ] {
            assert_eq!(message(bytes), expected, "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)]));
        }
    }

    #[test]
    fn an_id_that_could_leave_its_directory_is_refused() {
        for id in ["", ".", "..", "a/b", "../../etc", "a\\u0000b", "a\\u001b"] {
            let text = format!(r#"{{"id":"{id}","bundle":"/b","pid":7}}"#);
            let shown = message(text.as_bytes());
            assert!(shown.starts_with("read state: the id \"") && shown.is_ascii(), "{shown}");
            assert!(!shown.contains(['\0', '\x1b']), "{shown:?}");
        }
    }
}
