// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/proc/devices` -> character majors by name (fs/char_dev.c, `chrdev_show`: `"%3d %s\n"`).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use super::{MAJOR_MAX, decimal};
use crate::device::{DeviceId, Major};

/// The GPUs' name since 545.23.06 (kernel-open/nvidia/nv.c, `nv_register_chrdev`).
pub const NVIDIA: &str = "nvidia";
/// The control device's name since 545.23.06; it shares the GPUs' major.
pub const NVIDIACTL: &str = "nvidiactl";
/// The display part's name; it shares the GPUs' major.
pub const NVIDIA_MODESET: &str = "nvidia-modeset";
/// The one name of GPUs, control and display part before 545.23.06.
pub const NVIDIA_FRONTEND: &str = "nvidia-frontend";
/// Unified memory: minor 0, and 1 for the tools. CUDA does not start without it.
pub const NVIDIA_UVM: &str = "nvidia-uvm";
/// Capability devices of MIG and the fabric.
pub const NVIDIA_CAPS: &str = "nvidia-caps";
/// IMEX channels, since 550.40.53.
pub const NVIDIA_CAPS_IMEX_CHANNELS: &str = "nvidia-caps-imex-channels";
/// NVSwitch.
pub const NVIDIA_NVSWITCH: &str = "nvidia-nvswitch";
/// NVLink.
pub const NVIDIA_NVLINK: &str = "nvidia-nvlink";
/// AMD's compute device.
pub const KFD: &str = "kfd";

/// The names that share the fixed major of the GPUs.
const PRIMARY: [&str; 4] = [NVIDIA, NVIDIACTL, NVIDIA_MODESET, NVIDIA_FRONTEND];

/// The character section of `/proc/devices`: a multimap, since one driver can hold several majors
/// (`infiniband_verbs`) and several names one major (195 is `nvidia`, `nvidia-modeset` and `nvidiactl`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Majors {
    /// Every name with its majors.
    pub by_name: BTreeMap<String, BTreeSet<Major>>,
    /// Lines that could not be read, as they stand.
    pub odd_lines: Vec<String>,
    /// Whether the block section was seen, so that the character section is known to be whole.
    pub complete: bool,
}

impl Majors {
    /// The character majors in `text`, and every line of that section that does not read as `MAJOR NAME`. Lines before
    /// any header count as character lines, as people paste them.
    pub fn parse(text: &str) -> Self {
        let mut majors = Self::default();
        let mut character = true;
        for whole in text.split_inclusive('\n') {
            let line = whole.trim_end_matches(['\n', '\r']);
            match line {
                "" => {}
                "Character devices:" => character = true,
                "Block devices:" => {
                    character = false;
                    majors.complete = true;
                }
                _ if !character => {}
                // The kernel ends every line; what has no end may lack half of its name.
                _ => match entry(line).filter(|_| whole.ends_with('\n')) {
                    Some((major, name)) => {
                        majors.by_name.entry(name.to_owned()).or_default().insert(major);
                    }
                    None => majors.odd_lines.push(line.to_owned()),
                },
            }
        }
        majors
    }

    /// The one major of the driver that registered exactly `name`.
    ///
    /// # Errors
    /// The name is missing, has several majors, or stands on a line that could not be read. Odd lines that do not
    /// hold the name are no error.
    pub fn only(&self, name: &'static str) -> Result<Major, MajorError> {
        self.shared(name, &[name])
    }

    /// The major of GPUs, control and display device: the one major of all the names that share it, which differ
    /// between drivers before and after 545.23.06.
    ///
    /// # Errors
    /// As for [`Majors::only`]; also where those names have different majors, which no driver of NVIDIA does.
    pub fn primary(&self) -> Result<Major, MajorError> {
        self.shared(NVIDIA, &PRIMARY)
    }

    /// Who owns `major` now, sorted; empty where nobody does.
    pub fn names_of(&self, major: Major) -> Vec<&str> {
        self.by_name.iter().filter(|(_, majors)| majors.contains(&major)).map(|(name, _)| name.as_str()).collect()
    }

    /// The path that the driver's node of number `id` has today; nothing where the number is not of a GPU driver.
    /// Which minor is what: kernel-open/nvidia/nv.c, nvidia-uvm/uvm.c, nvidia/linux_nvswitch.c.
    pub fn node_of(&self, id: DeviceId) -> Option<String> {
        let minor = id.minor;
        self.names_of(id.major).into_iter().find_map(|name| match (name, minor.0) {
            (NVIDIA | NVIDIACTL | NVIDIA_FRONTEND, 255) => Some("/dev/nvidiactl".to_owned()),
            (NVIDIA_MODESET | NVIDIA_FRONTEND, 254) => Some("/dev/nvidia-modeset".to_owned()),
            (NVIDIA | NVIDIA_FRONTEND, 0..248) => Some(format!("/dev/nvidia{minor}")),
            (NVIDIA_UVM, 0) => Some("/dev/nvidia-uvm".to_owned()),
            (NVIDIA_UVM, 1) => Some("/dev/nvidia-uvm-tools".to_owned()),
            (NVIDIA_CAPS, _) => Some(format!("/dev/nvidia-caps/nvidia-cap{minor}")),
            (NVIDIA_CAPS_IMEX_CHANNELS, _) => Some(format!("/dev/nvidia-caps-imex-channels/channel{minor}")),
            (NVIDIA_NVSWITCH, 255) => Some("/dev/nvidia-nvswitchctl".to_owned()),
            (NVIDIA_NVSWITCH, _) => Some(format!("/dev/nvidia-nvswitch{minor}")),
            (NVIDIA_NVLINK, 0) => Some("/dev/nvidia-nvlink".to_owned()),
            (KFD, 0) => Some("/dev/kfd".to_owned()),
            _ => None,
        })
    }

    fn shared(&self, name: &'static str, names: &[&str]) -> Result<Major, MajorError> {
        let on_line = |line: &&String| line.split_whitespace().any(|word| names.contains(&word));
        if let Some(line) = self.odd_lines.iter().find(on_line) {
            return Err(MajorError::OnOddLine { name, line: line.clone() });
        }
        let owned: BTreeSet<(Major, &str)> = self
            .by_name
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .flat_map(|(name, majors)| majors.iter().map(move |major| (*major, name.as_str())))
            .collect();
        let Some((first, _)) = owned.first() else {
            return Err(self.missing(name));
        };
        if owned.iter().any(|(major, _)| major != first) {
            let found = owned.iter().map(|(major, name)| (*major, (*name).to_owned())).collect();
            return Err(MajorError::Ambiguous { name, found });
        }
        Ok(*first)
    }

    fn missing(&self, name: &'static str) -> MajorError {
        // A listing that breaks off inside of this very name.
        let cut = self.odd_lines.last().filter(|line| {
            let beginning = line.split_whitespace().nth(1);
            !self.complete && beginning.is_some_and(|beginning| name.starts_with(beginning))
        });
        match cut {
            Some(line) => MajorError::OnOddLine { name, line: line.clone() },
            None => MajorError::Missing { name, complete: self.complete },
        }
    }
}

/// Whether a driver of this name drives GPUs.
pub fn is_gpu_driver(name: &str) -> bool {
    name == NVIDIACTL || name == NVIDIA || name == KFD || name.starts_with("nvidia-")
}

/// `MAJOR NAME` with exactly one blank, as the kernel prints it. Anything looser would let a driver that registers
/// `" nvidia-uvm"` pass for another.
fn entry(line: &str) -> Option<(Major, &str)> {
    let (major, name) = line.trim_start_matches(' ').split_once(' ')?;
    let major = decimal(major, MAJOR_MAX).filter(|major| *major > 0)?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then_some((Major(major), name))
}

/// Why a name has no major that gpuhook may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MajorError {
    /// No driver of this name is registered.
    Missing {
        /// The name that was needed.
        name: &'static str,
        /// Whether the listing is whole; else the name may have been cut off.
        complete: bool,
    },
    /// More than one major has this name, or one that shares its major.
    Ambiguous {
        /// The name that was needed.
        name: &'static str,
        /// Every major with its name.
        found: Vec<(Major, String)>,
    },
    /// The name stands on a line that could not be read.
    OnOddLine {
        /// The name that was needed.
        name: &'static str,
        /// The line.
        line: String,
    },
}

impl fmt::Display for MajorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name, complete: true } => {
                write!(f, "{name} is not in /proc/devices: its module is not loaded; hint: {}", loading(name))
            }
            Self::Missing { name, complete: false } => {
                write!(f, "listing of /proc/devices is incomplete (no block section) and does not show {name}")
            }
            Self::Ambiguous { name, found } => {
                write!(f, "major of {name} is ambiguous in /proc/devices (")?;
                for (position, (major, name)) in found.iter().enumerate() {
                    let comma = if position == 0 { "" } else { ", " };
                    write!(f, "{comma}{name}={major}")?;
                }
                f.write_str(")")
            }
            Self::OnOddLine { name, line } => write!(f, "cannot read {name} from the line {line:?} of /proc/devices"),
        }
    }
}

impl Error for MajorError {}

/// What loads the module that registers `name`.
fn loading(name: &str) -> &'static str {
    match name {
        NVIDIA_UVM => "modprobe nvidia-uvm (or nvidia-modprobe -u -c 0)",
        NVIDIA_MODESET => "modprobe nvidia-modeset",
        NVIDIA_CAPS_IMEX_CHANNELS => "needs driver 550.40.53 or newer with NVreg_ImexChannelCount above 0",
        KFD => "modprobe amdgpu",
        _ => "modprobe nvidia",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_entry_or_odd_and_never_stops_the_rest() {
        for (line, entry) in [
            ("509 nvidia-uvm", Some((509, "nvidia-uvm"))),
            ("  1 mem", Some((1, "mem"))),
            ("  4 /dev/vc/0", Some((4, "/dev/vc/0"))),
            ("4095 far", Some((4095, "far"))),
            ("4096 too-far", None),
            ("99999999999 overflow", None),
            ("0 nothing", None),
            ("-1 minus", None),
            ("+5 plus", None),
            ("509 foo bar", None),
            ("509  nvidia-uvm", None),
            ("509 nvidia-uvm ", None),
            ("509\tnvidia-uvm", None),
            ("509 caf\u{e9}", None),
            ("509 ", None),
            ("509", None),
            ("nvidia-uvm", None),
            ("root@pve:~# cat /proc/devices", None),
        ] {
            let majors = Majors::parse(&format!("Character devices:\n{line}\n195 nvidia\n\nBlock devices:\n  8 sd\n"));
            assert_eq!(majors.only(NVIDIA), Ok(Major(195)), "{line:?}");
            assert!(majors.complete);
            match entry {
                Some((major, name)) => {
                    assert!(majors.by_name[name].contains(&Major(major)), "{line:?}");
                    assert!(majors.odd_lines.is_empty(), "{line:?}");
                }
                None => assert_eq!(majors.odd_lines, [line]),
            }
        }
    }

    #[test]
    fn an_odd_line_is_an_error_only_for_the_name_on_it() {
        let majors = Majors::parse("195 nvidia\n508 foo bar\n509 acme nvidia-uvm\n\nBlock devices:\n");
        assert_eq!(majors.primary(), Ok(Major(195)));
        let refusal = majors.only(NVIDIA_UVM).unwrap_err();
        assert_eq!(refusal, MajorError::OnOddLine { name: NVIDIA_UVM, line: "509 acme nvidia-uvm".to_owned() });
        assert!(refusal.to_string().contains("509 acme nvidia-uvm"));
    }

    #[test]
    fn a_truncated_last_line_is_odd_and_counts_for_the_names_it_may_begin() {
        let majors = Majors::parse("195 nvidia\n237 nvidia-ca");
        assert_eq!(majors.odd_lines, ["237 nvidia-ca"]);
        assert_eq!(majors.primary(), Ok(Major(195)));
        for name in [NVIDIA_CAPS, NVIDIA_CAPS_IMEX_CHANNELS] {
            assert_eq!(majors.only(name), Err(MajorError::OnOddLine { name, line: "237 nvidia-ca".to_owned() }));
        }
        assert_eq!(majors.only(NVIDIA_UVM), Err(MajorError::Missing { name: NVIDIA_UVM, complete: false }));
        // Whole by its looks, but the kernel would have ended the line.
        assert!(matches!(Majors::parse("509 nvidia-uvm").only(NVIDIA_UVM), Err(MajorError::OnOddLine { .. })));
    }

    #[test]
    fn two_majors_of_one_name_are_kept_and_refused() {
        let majors = Majors::parse("231 infiniband_verbs\n507 infiniband_verbs\n");
        assert_eq!(majors.by_name["infiniband_verbs"].len(), 2);
        let refusal = majors.only("infiniband_verbs").unwrap_err().to_string();
        assert!(refusal.contains("infiniband_verbs=231, infiniband_verbs=507"), "{refusal}");
    }

    #[test]
    fn a_missing_module_is_named_with_its_cure() {
        let majors = Majors::parse("195 nvidia\n\nBlock devices:\n");
        let refusal = majors.only(NVIDIA_UVM).unwrap_err().to_string();
        assert!(refusal.contains("nvidia-uvm is not in /proc/devices") && refusal.contains("modprobe nvidia-uvm"));
        assert!(Majors::parse("195 nvidia\n").only(NVIDIA_UVM).unwrap_err().to_string().contains("incomplete"));
    }

    #[test]
    fn text_pasted_from_windows_reads_the_same() {
        assert_eq!(Majors::parse("Character devices:\r\n509 nvidia-uvm\r\n").only(NVIDIA_UVM), Ok(Major(509)));
    }
}
