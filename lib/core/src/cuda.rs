// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a CUDA code, and the errno of a device node's open, mean and what helps: words for an administrator.

/// `CUDA_SUCCESS`.
pub const SUCCESS: i32 = 0;

/// The codes that `cuInit` and `cuDeviceGetCount` have been seen to return: number, name in cuda.h without its prefix
/// `CUDA_ERROR_`, cause and remedy.
const CODES: &[(i32, &str, &str)] = &[
    (SUCCESS, "SUCCESS", "CUDA initialises"),
    (
        3,
        "NOT_INITIALIZED",
        "the driver did not initialise: where cuInit fails on the host too the container is innocent, and loading \
         nvidia_uvm with uvm_disable_hmm=1 has helped",
    ),
    (
        30,
        "UNKNOWN",
        "the library's old word for 999: /dev/nvidia-uvm is absent, has a number of before a kernel upgrade, or the \
         device filter refuses it",
    ),
    (
        34,
        "STUB_LIBRARY",
        "the container loads the toolkit's stub of libcuda: take its directory `stubs` out of the library path and give \
         it the driver's libcuda.so.1",
    ),
    (
        46,
        "DEVICE_UNAVAILABLE",
        "the GPU is set to exclusive or prohibited compute mode and is taken: see `nvidia-smi -q -d COMPUTE`, and set it \
         with `nvidia-smi -c DEFAULT`",
    ),
    (
        100,
        "NO_DEVICE",
        "no GPU is visible: /dev/nvidiactl or every /dev/nvidia<N> is absent or refused, CUDA_VISIBLE_DEVICES is empty, \
         or MIG is on and no instance was given",
    ),
    (
        101,
        "INVALID_DEVICE",
        "a GPU does not answer: look for Xid and RmInitAdapter in the host's kernel log, and reset or exclude that GPU",
    ),
    (
        304,
        "OPERATING_SYSTEM",
        "a system call was refused: look at seccomp, AppArmor or SELinux, and at the container's limits",
    ),
    (801, "NOT_SUPPORTED", "this system or sandbox (gVisor, say) does not support the call"),
    (
        802,
        "SYSTEM_NOT_READY",
        "the GPUs' fabric is not up: start nvidia-fabricmanager on the host, in exactly the driver's version",
    ),
    (
        803,
        "SYSTEM_DRIVER_MISMATCH",
        "the container's libcuda and the host's kernel module are of different driver versions: install the host's \
         version in the container",
    ),
    (
        804,
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the container loads the cuda-compat libcuda, which only data centre GPUs support: remove cuda-compat or its \
         library path",
    ),
    (
        999,
        "UNKNOWN",
        "/dev/nvidia-uvm is absent, has a number of before a kernel upgrade, or the device filter refuses it",
    ),
];

/// The name of a `CUresult`, `CUDA_ERROR_NO_DEVICE`, where it is one that initialisation returns.
pub fn name(code: i32) -> Option<String> {
    let (_, name, _) = CODES.iter().find(|(known, ..)| *known == code)?;
    Some(if code == SUCCESS { "CUDA_SUCCESS".to_owned() } else { format!("CUDA_ERROR_{name}") })
}

/// `802 (CUDA_ERROR_SYSTEM_NOT_READY): ` with what that means and what helps.
pub fn explain(code: i32) -> String {
    match (name(code), CODES.iter().find(|(known, ..)| *known == code)) {
        (Some(name), Some((.., text))) => format!("{code} ({name}): {text}"),
        _ => format!("{code}: no cause is known, cuda.h has its name (CUresult)"),
    }
}

/// What it means that opening the device node `path` in the container failed with the errno of this name, `EPERM`, and
/// what helps.
pub fn explain_open(errno: &str, path: &str) -> String {
    let text = match errno {
        "ENOENT" => "there is no such node in the container: nothing brought it in, or something covered it afterwards",
        "EPERM" => {
            "the device filter of the container's cgroup, or of one above it, refuses this number: a rule with the \
             live number is missing"
        }
        "EACCES" => {
            "the node's owner and mode, or a directory above it, forbid the container's user: compare them with the \
             container's id map"
        }
        "ENXIO" => {
            "no driver has this number: the node is from before a kernel or driver upgrade, or the driver's module is \
             not loaded"
        }
        "ENODEV" => "the driver knows no device of this minor: the GPU is gone or excluded, or the node is stale",
        "EIO" => "the device itself failed: look for Xid and RmInitAdapter in the host's kernel log",
        "EBUSY" => "the device is taken: another process holds it alone",
        "EISDIR" | "ENOTDIR" | "ELOOP" => {
            "what stands there is no device node: remove it, and start the container again"
        }
        _ => "no cause is known; the host's kernel log may say more",
    };
    format!("open {path}: {errno}: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_name_and_a_sentence() {
        for code in [0, 3, 30, 34, 46, 100, 101, 304, 801, 802, 803, 804, 999] {
            assert_eq!(CODES.iter().filter(|(known, ..)| *known == code).count(), 1, "{code}");
            let text = explain(code);
            assert!(text.starts_with(&format!("{code} (CUDA_")), "{text}");
            assert!(!text.ends_with('.'), "{text}");
        }
        assert_eq!(name(0).as_deref(), Some("CUDA_SUCCESS"));
        assert_eq!(name(803).as_deref(), Some("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
    }

    #[test]
    fn unknown_codes_are_printed_with_their_number() {
        assert_eq!(name(-7), None);
        assert!(explain(-7).starts_with("-7: "));
    }

    #[test]
    fn the_four_errnos_are_told_apart() {
        for (errno, word) in [
            ("ENOENT", "no such node"),
            ("EPERM", "device filter"),
            ("EACCES", "owner and mode"),
            ("ENXIO", "no driver has this number"),
            ("ENODEV", "no device of this minor"),
            ("EIO", "failed"),
            ("EWHAT", "no cause is known"),
        ] {
            let text = explain_open(errno, "/dev/nvidia-uvm");
            assert!(text.starts_with(&format!("open /dev/nvidia-uvm: {errno}: ")), "{text}");
            assert!(text.contains(word), "{text}");
        }
    }
}
