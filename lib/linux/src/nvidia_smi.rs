// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's `nvidia-smi`, asked for the one thing that no file of the kernel says: which MIG device has which UUID.

use std::path::Path;
use std::time::Duration;

use crate::command;

/// Where the driver's packages put it: Debian and most others, NVIDIA's installer, WSL, NixOS, images for Kubernetes nodes.
const DIRECTORIES: [&str; 5] =
    ["/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/run/current-system/sw/bin", "/usr/local/nvidia/bin"];

/// Without the persistence daemon it initialises every GPU first, a second or two each.
const LIMIT: Duration = Duration::from_secs(30);

/// What `nvidia-smi -L` prints.
///
/// # Errors
/// A sentence: there is none, it failed, or had not ended after 30 s.
pub fn list() -> Result<String, String> {
    let mut places = DIRECTORIES.iter().map(|directory| format!("{directory}/nvidia-smi"));
    let Some(program) = places.find(|path| Path::new(path).exists()) else {
        return Err(format!("there is no nvidia-smi in {}", DIRECTORIES.join(", ")));
    };
    let output = command::run(&program, &["-L"], LIMIT).map_err(|error| format!("{program}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        // It explains itself on standard output.
        false => Err(format!("{program} -L: {} {} ({})", said(&output.stdout), said(&output.stderr), output.status)),
    }
}
