// SPDX-License-Identifier: MIT OR Apache-2.0
//! Odd facts, words that mean nothing here, wrong calls: what is refused, with which sentence, and what is not.

use std::fs;
use std::process::Output;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::lxc::{Lxc, Registration};
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::Runc;

/// A host with two GPUs in a folder that goes with the first value.
fn host() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::new(dir.path().to_owned(), Majors::NEW, 2);
    (dir, host)
}

fn run(host: &Host, words: &[&str]) -> Output {
    program::output(host.gpuhook(words))
}

/// Another text of `/proc/devices`: each line that ends in `name` becomes `line`; none where that is empty.
fn replaced(host: &Host, name: &str, line: &str) -> String {
    let text = host.devices();
    let lines = text.lines().map(|old| if old.ends_with(&format!(" {name}")) { line } else { old });
    lines.filter(|new| !line.is_empty() || !new.is_empty()).map(|line| format!("{line}\n")).collect()
}

const ODD: [&str; 4] = ["300 acme frobnicator", "\u{1b}[2J garbage", "99999999999 overflow", "301"];

/// A host whose listing has odd lines between those that are needed, and breaks off in the one after them.
fn with_odd_lines(host: &Host) {
    let odd: String = ODD.iter().map(|line| format!("{line}\n")).collect();
    let text = host.devices().replacen("  1 mem\n", &format!("{odd}  1 mem\n"), 1);
    let (characters, _) = text.split_once("\nBlock devices:").expect("a block section");
    host.overwrite("proc/devices", &format!("{characters}510 nvme-gen"));
}

fn assert_warned(report: &str) {
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).expect("the kept report")).expect("JSON");
    let warnings = report["plan"]["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), ODD.len() + 1, "one for each odd line: {warnings:?}");
    for part in ["300 acme frobnicator", "garbage", "99999999999 overflow", "\"301\"", "510 nvme-gen"] {
        let shows = |warning: &serde_json::Value| warning.as_str().is_some_and(|text| text.contains(part));
        assert!(warnings.iter().any(shows), "{part:?} is not in {warnings:?}");
    }
    assert!(!warnings.iter().any(|warning| warning.to_string().contains('\u{1b}')));
}

#[test]
fn odd_lines_in_proc_devices_are_warnings_in_the_report_and_an_lxc_container_starts() {
    let Some(bed) = Bed::pure("odd-lxc") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    with_odd_lines(&host);
    let mut lxc = Lxc::privileged(&bed, "c1");
    injected::prepare(lxc.rootfs(), host.majors());
    for pair in injected::ENVIRONMENT {
        lxc.line(&format!("lxc.environment = {pair}"));
    }
    lxc.register(Registration::Include, &host.lxc_hook(""));
    let running = lxc.start();
    injected::assert_exact(&running, host.majors());
    assert_warned(&format!("/run/gpuhook/lxc/{}/report.json", lxc.name()));
}

#[test]
fn odd_lines_in_proc_devices_are_warnings_in_the_report_and_a_runc_container_starts() {
    let Some(bed) = Bed::pure("odd-runc") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    with_odd_lines(&host);
    let mut runc = Runc::new(&bed, "c1");
    injected::prepare(runc.rootfs(), host.majors());
    runc.env(injected::ENVIRONMENT[0]);
    runc.hook("createRuntime", &host.oci_hook("createRuntime", &injected::ARGUMENTS));
    let running = runc.start();
    injected::assert_exact(&running, host.majors());
    assert_warned(&format!("/run/gpuhook/oci/{}/report.json", runc.id()));
}

#[test]
fn an_odd_line_that_holds_a_needed_name_is_named_in_the_refusal() {
    let (_dir, host) = host();
    for line in ["509 acme nvidia-uvm", "509  nvidia-uvm", "nvidia-uvm", "70000 nvidia-uvm", "509 nvidia-uvm \u{1b}[2J"]
    {
        host.overwrite("proc/devices", &replaced(&host, "nvidia-uvm", line));
        let sentence = refusal(&run(&host, &["plan", "--devices", "all"]), 1);
        let shown = format!("{line:?}");
        assert!(sentence.contains("nvidia-uvm") && sentence.contains(&shown), "{shown} is not in {sentence}");
        // Who does not need that name is not stopped by it.
        program::stdout(host.gpuhook(&["plan", "--devices", "all", "--capabilities", "utility"]));
    }
}

#[test]
fn a_listing_that_breaks_off_in_a_needed_name_is_refused_with_that_line() {
    let (_dir, host) = host();
    for (kept, last) in [("nvidia-uvm", "509 nvidia-u"), ("nvidia-uvm", "509 nvidia-uvm")] {
        let text = host.devices();
        let (before, _) = text.split_once(&format!("509 {kept}")).expect("its line");
        host.overwrite("proc/devices", &format!("{before}{last}"));
        let sentence = refusal(&run(&host, &["plan", "--devices", "0"]), 1);
        assert!(sentence.contains(&format!("{last:?}")), "{sentence}");
    }
    host.overwrite("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n");
    let sentence = refusal(&run(&host, &["plan", "--devices", "0"]), 1);
    assert!(sentence.contains("incomplete") && sentence.contains("nvidia-uvm"), "{sentence}");
}

#[test]
fn a_refusal_for_an_odd_line_reaches_the_person_through_runc_and_nothing_is_left() {
    let Some(bed) = Bed::pure("odd-refused") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    host.overwrite("proc/devices", &replaced(&host, "nvidia-uvm", "509 acme nvidia-uvm"));
    let mut runc = Runc::new(&bed, "c1");
    runc.env("NVIDIA_VISIBLE_DEVICES=0").hook("createRuntime", &host.oci_hook("createRuntime", &[]));
    let story = runc.try_start().expect_err("the start is refused");
    assert!(story.contains("509 acme nvidia-uvm"), "{story}");
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn a_driver_that_is_not_loaded_is_named_with_what_loads_it() {
    let (_dir, host) = host();
    let without: Vec<_> = host.devices().lines().filter(|line| !line.contains("nvidia")).map(str::to_owned).collect();
    host.overwrite("proc/devices", &(without.join("\n") + "\n"));
    let sentence = refusal(&run(&host, &["plan", "--devices", "all"]), 1);
    assert!(sentence.contains("nvidia is not in /proc/devices") && sentence.contains("modprobe nvidia"), "{sentence}");
    for (name, cure) in [("nvidia-uvm", "modprobe nvidia-uvm"), ("nvidia-caps", "modprobe nvidia")] {
        host.overwrite("proc/devices", &replaced(&host, name, ""));
        let sentence = refusal(&run(&host, &["plan", "--devices", "all", "--mig-config", "all"]), 1);
        assert!(sentence.contains(&format!("{name} is not in")) && sentence.contains(cure), "{sentence}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    let (_dir, host) = host();
    for asked in ["2", "0,7", "GPU-00000000-0000-4000-8000-00000000dead", "0000:99:00.0"] {
        let sentence = refusal(&run(&host, &["plan", "--devices", asked]), 1);
        assert!(sentence.contains(asked.split(',').next_back().expect("a word")), "{sentence}");
        for known in [host.uuid_of_minor(0), host.uuid_of_minor(1), "0000:07:00.0".to_owned()] {
            assert!(sentence.to_lowercase().contains(&known.to_lowercase()), "{asked}: no {known} in {sentence}");
        }
    }
}

#[test]
fn a_hook_call_with_a_wrong_stage_is_wrong_usage_and_says_what_is_right() {
    let (_dir, host) = host();
    for (words, parts) in [
        (&["oci"][..], &["no stage", "gpuhook oci --help"][..]),
        (&["oci", "frobnicate"], &["unknown stage \"frobnicate\"", "gpuhook oci --help"]),
        (&["oci", "poststart"], &["createRuntime"]),
        (&["oci", "createRuntime", "poststop"], &["poststop"]),
        (&["oci", "\u{1b}[2J\n"], &["unknown stage"]),
        (&["lxc"], &["which container"]),
        (&["lxc", "c1", "lxc"], &["which container"]),
        (&["lxc", "c1", "lxc", "frobnicate"], &["unknown stage \"frobnicate\""]),
        (&["lxc", "c1", "lxc", "mount"], &["mount", "pre-start, start-host and post-stop"]),
        (&["lxc", "c1", "net", "up"], &["section \"net\""]),
        (&["lxc", "../etc", "lxc", "pre-start"], &["../etc"]),
        (&["lxc", "c1", "lxc", "start-host"], &["LXC_PID"]),
    ] {
        let command = [&[program::gpuhook().to_string_lossy().into_owned()], &host_first(&host, words)[..]].concat();
        let words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
        let mut call = program::command(&command[0], &words);
        call.env_clear();
        let sentence = refusal(&program::output(call), 2);
        for part in parts {
            assert!(sentence.contains(part), "{words:?}: {part:?} is not in {sentence}");
        }
    }
}

/// The global options before the command: nothing that comes after LXC's words is an option.
fn host_first(host: &Host, words: &[&str]) -> Vec<String> {
    let options = ["--host-root".to_owned(), host.root().display().to_string(), "--config".to_owned()];
    let options = options.into_iter().chain([host.config().display().to_string()]);
    options.chain(words.iter().map(|word| (*word).to_owned())).collect()
}

#[test]
fn whatever_a_bundle_or_a_request_holds_the_error_is_one_plain_line() {
    let (dir, host) = host();
    let bundle = dir.path().to_string_lossy().into_owned();
    let config = |env: &str| {
        let env = serde_json::json!({ "process": { "env": [env] }, "root": { "path": "rootfs" } });
        fs::write(dir.path().join("config.json"), env.to_string()).expect("config.json");
    };
    for evil in ["\u{1b}]0;owned\u{7}", "\ngpuhook: all is well", "\r\n\u{9b}2J", "\u{0}", "\u{85}\u{2028}x"] {
        for variable in ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"] {
            config(&format!("{variable}=0{evil}"));
            if variable == "NVIDIA_VISIBLE_DEVICES" {
                refusal(&run(&host, &["plan", "--bundle", &bundle]), if evil == "\0" { 3 } else { 1 });
            }
        }
        config(evil);
        refusal(&run(&host, &["plan", "--bundle", &bundle]), 3);
        if evil != "\0" {
            refusal(&run(&host, &["plan", "--devices", evil]), 2);
            refusal(&run(&host, &["inject", "--lxc", evil]), 2);
            refusal(&run(&host, &["plan", "--bundle", &format!("{bundle}{evil}")]), 3);
        }
    }
}
