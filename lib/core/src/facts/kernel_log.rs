// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of the kernel log -> what the GPU drivers said in it: Xid, failed initialisations, firmware, version mismatches
//! (`NVRM:` lines of kernel-open/nvidia, `kfd` lines of drivers/gpu/drm/amd/amdkfd).

use super::decimal;
use crate::quoted::one_line;

/// What the GPU drivers said, in the log's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Every Xid: an error of one GPU, by number.
    pub xids: Vec<Xid>,
    /// Lines with `RmInitAdapter`: the driver could not start a GPU.
    pub init_failures: Vec<String>,
    /// Lines in which GSP firmware could not be loaded.
    pub firmware_failures: Vec<String>,
    /// A client of another version than the module: the last pair.
    pub mismatch: Option<Mismatch>,
    /// Lines in which a driver says that it does not drive a GPU that is there.
    pub refusals: Vec<String>,
    /// Lines on heterogeneous memory management.
    pub hmm: Vec<String>,
}

/// One Xid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Its number.
    pub number: u32,
    /// The whole line.
    pub line: String,
}

/// Two versions that should be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Of the library that called the module.
    pub client: String,
    /// Of the module at that time.
    pub module: String,
}

impl Xid {
    /// Whether this Xid means that the GPU needs a reset or a person: not one that a faulty program causes. NVIDIA's
    /// table "XID Errors": double bit error, page retirement, fallen off the bus, NVLink, contained and uncontained
    /// errors, row remapping, GSP timeouts and errors.
    pub fn is_fatal(&self) -> bool {
        matches!(self.number, 46 | 48 | 61 | 62 | 63 | 64 | 74 | 79 | 92 | 94 | 95 | 109 | 119 | 120 | 140 | 143)
    }
}

impl KernelLog {
    /// What the drivers said in `text`: the output of `dmesg`, or of the journal. Other lines are passed over.
    pub fn parse(text: &str) -> Self {
        let mut log = Self::default();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let whole = || one_line(line.trim());
            if let Some(number) = xid(line) {
                log.xids.push(Xid { number, line: whole() });
            } else if line.contains("RmInitAdapter") || is_gone(line) {
                log.init_failures.push(whole());
            } else if is_firmware_failure(line) {
                log.firmware_failures.push(whole());
            } else if line.contains("NVRM: API mismatch") {
                log.mismatch = mismatch(&lines[at..]).or(log.mismatch);
            } else if is_refusal(line) {
                log.refusals.push(whole());
            } else if line.contains("nvidia-uvm") && line.contains("HMM") {
                log.hmm.push(whole());
            }
        }
        log
    }
}

/// `NVRM: Xid (PCI:0000:07:00): 79, pid=..., GPU has fallen off the bus.`
fn xid(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("NVRM: Xid (")?;
    let (_, rest) = rest.split_once("): ")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    decimal(&rest[..end], u32::MAX).filter(|_| end > 0)
}

/// `NVRM: GPU 0000:07:00.0: GPU has fallen off the bus.`, which the driver says beside an Xid or without one.
fn is_gone(line: &str) -> bool {
    line.contains("NVRM:") && ["fallen off the bus", "fell off the bus"].iter().any(|words| line.contains(words))
}

fn is_firmware_failure(line: &str) -> bool {
    let firmware = (line.contains("nvidia/") && line.contains("gsp")) || line.contains("GSP firmware");
    firmware && ["failed", "Failed", "unable", "Unable", "missing"].iter().any(|word| line.contains(word))
}

fn is_refusal(line: &str) -> bool {
    let nvidia = line.contains("NVRM:")
        && ["requires use of the NVIDIA open kernel modules", "is not supported by", "No NVIDIA GPU found"]
            .iter()
            .any(|words| line.contains(words));
    nvidia || (line.contains("kfd") && line.contains("not supported in kfd"))
}

/// The first two versions in a message that the driver spreads over four lines, or writes into one.
fn mismatch(lines: &[&str]) -> Option<Mismatch> {
    let words = lines.iter().take(4).flat_map(|line| line.split_ascii_whitespace());
    let mut versions =
        words.map(|word| word.trim_end_matches([',', '.'])).filter(|word| super::driver::is_version(word));
    // A time stamp `[12345.678901]` has a bracket and is no version.
    Some(Mismatch { client: versions.next()?.to_owned(), module: versions.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_both_versions_in_every_layout() {
        let lines = "[   52.396206] NVRM: API mismatch: the client has the version 440.82, but\n\
                     \x20              NVRM: this kernel module has the version 390.48.  Please\n";
        let one = "Jan 1 00:00:00 pve kernel: NVRM: API mismatch: the client has version 570.1.2, but NVRM: this kernel \
                   module has the version 565.57.01.  Please\n";
        for (text, client, module) in [(lines, "440.82", "390.48"), (one, "570.1.2", "565.57.01")] {
            let found = KernelLog::parse(text).mismatch;
            assert_eq!(found, Some(Mismatch { client: client.to_owned(), module: module.to_owned() }), "{text}");
        }
        assert_eq!(KernelLog::parse("NVRM: API mismatch: the client has the version 440.82, but\n").mismatch, None);
    }

    #[test]
    fn faults_of_a_gpu_are_told_from_faults_of_a_program() {
        let text = "[1.0] NVRM: Xid (PCI:0000:07:00): 79, pid='<unknown>', GPU has fallen off the bus.\n\
                    [2.0] NVRM: Xid (PCI:0000:0b:00): 31, pid=77, name=python, MMU Fault\n\
                    [3.0] NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x25:0x65:1457)\n\
                    [4.0] nvidia 0000:07:00.0: Direct firmware load for nvidia/570.86.15/gsp_ga10x.bin failed with error -2\n\
                    [5.0] kfd kfd: amdgpu: PITCAIRN  not supported in kfd\n\
                    [6.0] usb 1-1: new device\n";
        let log = KernelLog::parse(text);
        let numbers: Vec<(u32, bool)> = log.xids.iter().map(|xid| (xid.number, xid.is_fatal())).collect();
        assert_eq!(numbers, [(79, true), (31, false)]);
        assert_eq!((log.init_failures.len(), log.firmware_failures.len(), log.refusals.len()), (1, 1, 1));
        assert_eq!(KernelLog::parse("NVRM: Xid (PCI:0000:07:00): , x\n"), KernelLog::default());
    }
}
