// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tests/gpu/check.sh`, which a person with a GPU runs, does its work here with stand-ins, and says what fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::{program, standin};

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/check.sh")
}

/// The script on a host whose driver is a folder of text files.
fn check(host: &Host, libcuda: &Path) -> (Option<i32>, String) {
    let mut check = Command::new(script());
    check.arg(program::gpuhook()).env("HOST_ROOT", host.root()).env("LIBCUDA", libcuda).env("DEVICES", "0");
    let output = program::output(check);
    (output.status.code(), program::both(&output))
}

fn line<'a>(said: &'a str, check: &str) -> &'a str {
    let found = said.lines().find(|line| line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(check)));
    found.unwrap_or_else(|| panic!("nothing on {check}:\n{said}"))
}

#[test]
fn with_a_driver_every_check_is_made_in_real_containers_and_passes() {
    let Some(bed) = Bed::pure("gpu-check") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let (code, said) = check(&host, &standin::libcuda());
    for name in ["driver", "majors", "plan", "runc without gpuhook", "runc: ", "LXC", "nothing left behind"] {
        assert!(line(&said, name).starts_with("PASS "), "{name}:\n{said}");
    }
    assert!(line(&said, "nodes").starts_with("SKIP "), "{said}");
    assert!(said.contains("nothing here is a CUDA result"), "{said}");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn a_libcuda_that_does_not_start_fails_in_both_containers() {
    let Some(bed) = Bed::pure("gpu-check-999") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    // No device is behind the numbers, and this stand-in takes nothing less for success.
    let (code, said) = check(&host, &standin::libcuda_strict());
    assert!(line(&said, "runc without gpuhook").starts_with("PASS "), "{said}");
    for name in ["runc: ", "LXC"] {
        let line = line(&said, name);
        assert!(line.starts_with("FAIL ") && line.contains("cuInit returned"), "{said}");
    }
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "nothing left behind").starts_with("PASS "), "{said}");
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn without_a_driver_it_says_so_and_fails() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        println!("SKIP this host has a driver");
        return;
    }
    let mut check = Command::new(script());
    let output = program::output({
        check.arg(program::gpuhook());
        check
    });
    let said = program::both(&output);
    assert!(line(&said, "driver").starts_with("FAIL "), "{said}");
    assert!(line(&said, "majors, plan").starts_with("SKIP "), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn shellcheck_finds_nothing_in_it() {
    if !program::installed("shellcheck") {
        assert!(std::env::var_os("GPUHOOK_MUST_WORK").is_none_or(|word| word != "1"), "no shellcheck");
        println!("SKIP shellcheck is not installed");
        return;
    }
    program::stdout(program::command("shellcheck", &[&script().display().to_string()]));
}
