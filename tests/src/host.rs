// SPDX-License-Identifier: MIT OR Apache-2.0
//! A made-up host for `--host-root`: the NVIDIA driver's text files under chosen numbers, and gpuhook's configuration for
//! the bed. The driver is not there: no node of these numbers can be opened.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program;

/// The host's folder, and the numbers that it says now.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    majors: Majors,
    gpus: u32,
}

/// The majors that the kernel gave out at this boot. 195 is the driver's own and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Majors {
    /// `nvidia-uvm`.
    pub uvm: u32,
    /// `nvidia-caps`.
    pub caps: u32,
    /// `nvidia-caps-imex-channels`.
    pub imex: u32,
}

impl Majors {
    /// The story's host before its kernel upgrade.
    pub const OLD: Self = Self { uvm: 504, caps: 507, imex: 508 };
    /// The story's host after its kernel upgrade.
    pub const NEW: Self = Self { uvm: 509, caps: 237, imex: 238 };
    /// The next change.
    pub const NEXT: Self = Self { uvm: 511, caps: 236, imex: 235 };
}

impl Host {
    /// A host with `gpus` GPUs, written below `root`. Minors run against bus order, as on the machine of the story.
    pub fn new(root: PathBuf, majors: Majors, gpus: u32) -> Self {
        let host = Self { root, majors, gpus };
        host.configure("load-modules = false\n\n[verify]\nl3 = \"warn\"\nl5 = \"enforce\"\n");
        host.write("root/proc/driver/nvidia/version", &format!("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build  (standin@not-a-driver)\nGCC version:  gcc version 12.2.0\n"));
        host.write("root/proc/driver/nvidia/params", PARAMS);
        for (name, minor, mode) in [("config", 1, 0o400), ("monitor", 2, 0o444)] {
            host.write(
                &format!("root/proc/driver/nvidia/capabilities/mig/{name}"),
                &format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"),
            );
        }
        for index in 0..gpus {
            host.write(&format!("root/proc/driver/nvidia/gpus/{}/information", bus(index)), &host.information(index));
        }
        host.write(
            "root/proc/modules",
            "nvidia_uvm 1769472 4 - Live 0x0000000000000000 (O)\nnvidia 14381056 70 nvidia_uvm, Live 0x0000000000000000 (O)\n",
        );
        host.write_devices();
        host
    }

    /// What a kernel upgrade or a changed module order does: other numbers, all else as it was.
    pub fn renumber(&mut self, majors: Majors) {
        self.majors = majors;
        self.write_devices();
    }

    /// The numbers that it says now.
    pub fn majors(&self) -> Majors {
        self.majors
    }

    /// The folder for `--host-root`.
    pub fn root(&self) -> PathBuf {
        self.root.join("root")
    }

    /// The file for `--config`: rungs L1, L2 and L5 refuse the start, L3 only reports, since no driver is behind the numbers.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// Puts other text at a path below the host's root.
    pub fn overwrite(&self, path: &str, text: &str) {
        self.write(&format!("root/{path}"), text);
    }

    /// The text of its `/proc/devices`.
    pub fn devices(&self) -> String {
        let Majors { uvm, caps, imex } = self.majors;
        let mut lines = vec![
            (1, "mem"),
            (5, "/dev/tty"),
            (10, "misc"),
            (136, "pts"),
            (195, "nvidia"),
            (195, "nvidia-modeset"),
            (195, "nvidiactl"),
            (226, "drm"),
            (uvm, "nvidia-uvm"),
            (caps, "nvidia-caps"),
            (imex, "nvidia-caps-imex-channels"),
        ];
        // What people's stale numbers belong to now; never the driver's.
        for foreign in [(504, "hidraw"), (507, "bsg")] {
            if ![uvm, caps, imex].contains(&foreign.0) {
                lines.push(foreign);
            }
        }
        lines.sort_by_key(|(major, _)| *major);
        let lines: String = lines.iter().map(|(major, name)| format!("{major:3} {name}\n")).collect();
        format!("Character devices:\n{lines}\nBlock devices:\n  8 sd\n{uvm:3} device-mapper\n")
    }

    /// The hook's command for LXC, with `arguments`.
    pub fn lxc_hook(&self, arguments: &str) -> String {
        let command = self.hook(&[&["lxc"], &arguments.split_whitespace().collect::<Vec<_>>()[..]].concat());
        command.join(" ")
    }

    /// The hook's command for an OCI stage, with `arguments`.
    pub fn oci_hook(&self, stage: &str, arguments: &[&str]) -> Vec<String> {
        self.hook(&[&["oci", stage], arguments].concat())
    }

    /// gpuhook in the place of an OCI runtime.
    pub fn runtime(&self) -> Vec<String> {
        let mut command = self.hook(&[]);
        command.push("runtime".to_owned());
        command
    }

    /// `gpuhook WORDS` on this host.
    pub fn gpuhook(&self, words: &[&str]) -> Command {
        let command = self.hook(words);
        program::command(&command[0], &command[1..].iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn hook(&self, words: &[&str]) -> Vec<String> {
        let mut command = vec![program::gpuhook().display().to_string()];
        command.extend(words.iter().map(|word| (*word).to_owned()));
        for (option, path) in [("--host-root", self.root()), ("--config", self.config())] {
            command.extend([option.to_owned(), path.display().to_string()]);
        }
        command
    }

    /// Puts another text into the file for `--config`.
    pub fn configure(&self, text: &str) {
        self.write("config.toml", text);
    }

    /// The UUID of the GPU with that minor.
    pub fn uuid_of_minor(&self, minor: u32) -> String {
        format!("GPU-00000000-0000-4000-8000-{minor:012}")
    }

    fn information(&self, index: u32) -> String {
        let minor = self.gpus - 1 - index;
        format!(
            "Model: \t\t Stand-in GPU (not a GPU)\nIRQ:   \t\t 180\nGPU UUID: \t {}\nVideo BIOS: \t ??.??.??.??.??\n\
             Bus Type: \t PCIe\nBus Location: \t {}\nDevice Minor: \t {minor}\nGPU Firmware: \t {VERSION}\nGPU Excluded:\t No\n",
            self.uuid_of_minor(minor),
            bus(index)
        )
    }

    fn write_devices(&self) {
        self.write("root/proc/devices", &self.devices());
    }

    fn write(&self, path: &str, text: &str) {
        write(&self.root.join(path), text);
    }
}

const VERSION: &str = "590.48.01";

const PARAMS: &str = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n\
                      ImexChannelCount: 2048\nCreateImexChannel0: 0\n";

fn bus(index: u32) -> String {
    let bus = 7 + 4 * index;
    format!("{:04x}:{:02x}:00.0", bus >> 8, bus & 0xff)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folder of the made-up host");
    fs::write(path, text).expect("file of the made-up host");
}
