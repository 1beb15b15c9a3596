// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a file in `hooks.d` (oci-hooks(5)) -> which program runs, and by which of the two schemas.

use serde_json::Value;

use crate::quoted::one_line;

/// One file that makes podman or CRI-O run a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciHook {
    /// The file.
    pub path: String,
    /// The program, or its name as the first argument says it.
    pub program: String,
    /// The schema of 0.1.0, without a version, which newer engines refuse.
    pub is_old: bool,
}

impl OciHook {
    /// What the file `path` says; nothing where it names no program.
    pub fn parse(path: &str, text: &str) -> Option<Self> {
        let file: Value = serde_json::from_str(text).ok()?;
        let hook = file.get("hook")?;
        let is_old = hook.is_string();
        let program = hook.as_str().or_else(|| hook.get("path")?.as_str())?;
        Some(Self { path: one_line(path), program: one_line(program), is_old })
    }

    /// Whether it is NVIDIA's injector.
    pub fn is_nvidia(&self) -> bool {
        let name = self.program.rsplit('/').next().unwrap_or_default();
        name.starts_with("nvidia-container-")
    }

    /// Whether it is gpuhook.
    pub fn is_gpuhook(&self) -> bool {
        self.program.rsplit('/').next() == Some("gpuhook")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_schemas_name_their_program() {
        for (text, program, old) in [
            (
                r#"{"version":"1.0.0","hook":{"path":"/usr/bin/nvidia-container-runtime-hook","args":["x"]}}"#,
                "nvidia",
                false,
            ),
            (
                r#"{"hook":"/usr/bin/nvidia-container-toolkit","arguments":["prestart"],"stage":["prestart"]}"#,
                "nvidia",
                true,
            ),
            (r#"{"version":"1.0.0","hook":{"path":"/usr/bin/gpuhook"}}"#, "gpuhook", false),
        ] {
            let hook = OciHook::parse("x.json", text).expect(text);
            assert_eq!(
                (hook.is_nvidia(), hook.is_gpuhook(), hook.is_old),
                (program == "nvidia", program == "gpuhook", old)
            );
        }
        for text in ["", "{}", "[]", r#"{"hook":{}}"#, r#"{"hook":7}"#] {
            assert_eq!(OciHook::parse("x", text), None, "{text}");
        }
    }
}
