// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of the VM bed. They run inside the virtual machine that `tests/vm/run` boots, as root of a whole Debian
//! which they may change as they like: real systemd, real AppArmor, real managers, and a stand-in driver whose modules
//! can be taken out and put in again with other numbers.
//!
//! ```text
//! vm-guest --boot        the tests that the kernel's command line names, `gpuhook.tests=WORD,WORD`: those whose names
//!                        hold a word, or all; reboots once on the way, then switches the machine off
//! vm-guest --one NAME    one test in this process
//! vm-guest --list        the names
//! vm-guest --build       on the host: builds the stand-ins beside this program
//! ```
//!
//! Each test is one function in a process of its own with a time limit. One line each: `PASS name seconds`, `FAIL name`
//! and what it said, `SKIP name reason` where the suite's own programs lack what is tested; at the end `N passed, N failed`.

mod boot;
mod bundle_hooks;
mod containerd;
mod docker;
mod doctor;
mod driver;
mod kept;
mod kill;
mod lxc;
mod lxc_tests;
mod managed;
mod oci;
mod oci_tests;
mod one_gpu;
mod podman;
mod precreate;
mod seen;
mod story;
mod suite;

use std::process::ExitCode;

use gpuhook_tests::standin;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--build"] => {
            for built in [standin::libcuda(), standin::libcuda_strict(), standin::cuda_check(), standin::node_check()] {
                assert!(built.exists(), "{}", built.display());
            }
            ExitCode::SUCCESS
        }
        ["--list"] => {
            suite::ALL.iter().for_each(|test| println!("{}", test.name));
            ExitCode::SUCCESS
        }
        ["--one", name] => suite::one(name),
        ["--boot"] => suite::all(&selection()),
        _ => {
            println!("one of --boot, --one NAME, --list, --build");
            ExitCode::FAILURE
        }
    }
}

/// The words of `gpuhook.tests=` on the kernel's command line.
fn selection() -> Vec<String> {
    let line = std::fs::read_to_string("/proc/cmdline").expect("the kernel's command line");
    let words = line.split_whitespace().find_map(|word| word.strip_prefix("gpuhook.tests=")).unwrap_or_default();
    words.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
