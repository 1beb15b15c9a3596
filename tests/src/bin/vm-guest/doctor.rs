// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook doctor on a machine whose driver really is unloaded, renumbered or answers EIO: the verdict, the printed fix run
//! by a shell, and the verdict after it.

use gpuhook_tests::host::Majors;
use gpuhook_tests::inside::Container;
use gpuhook_tests::program;
use serde_json::Value;

use crate::driver::{self, Driver};
use crate::kept;
use crate::lxc::{INCLUDE, Lxc};
use crate::story;

/// What doctor says of the container `name`, or of the host.
fn diagnosis(name: Option<&str>) -> Value {
    let container: Vec<&str> = name.map(|name| vec!["--lxc", name]).unwrap_or_default();
    let output = program::output(program::command("gpuhook", &[&["doctor", "--json"], &container[..]].concat()));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", program::both(&output)))
}

fn errors(diagnosis: &Value) -> Vec<&Value> {
    let findings = diagnosis["findings"].as_array().expect("findings");
    findings.iter().filter(|finding| finding["severity"] == "error").collect()
}

/// Asserts that the first error is `id` about `subject`, and returns the command that cures it.
fn assert_cause(diagnosis: &Value, id: &str, subject: &str) -> String {
    let errors = errors(diagnosis);
    let Some(cause) = errors.first() else { panic!("no cause\n{diagnosis:#}") };
    assert_eq!(cause["id"], id, "{diagnosis:#}");
    assert!(cause["subject"].as_str().is_some_and(|text| text.contains(subject)), "{subject}\n{diagnosis:#}");
    cause["fix"].as_str().unwrap_or_default().to_owned()
}

fn assert_fine(name: &str) {
    let diagnosis = diagnosis(Some(name));
    assert!(errors(&diagnosis).is_empty() && diagnosis["cuinit"] == 0, "{diagnosis:#}");
}

pub(crate) fn doctor_names_the_rule_of_the_old_kernel_and_its_fix_cures_the_running_container() {
    story::host(Majors::NEW).load().make_host_nodes();
    let lxc = story::container_129("129");
    let running = lxc.start();
    assert_eq!(running.cuda().cuinit(), 999);
    let found = diagnosis(Some("129"));
    let fix = assert_cause(&found, "stale-rule", "c 504:*");
    assert_eq!(found["cuinit"], 999, "{found:#}");
    // Some of what it prints mends the config for the next start; what the running container needs is among it.
    println!("{}", program::both(&program::output(program::command("sh", &["-c", &fix]))));
    kept::wait_for_gpuhook();
    assert_eq!(running.cuda().cuinit(), 0, "{fix}\n{found:#}");
    assert_fine("129");
}

pub(crate) fn doctor_names_a_dead_gpu() {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let mut lxc = Lxc::privileged("c1");
    lxc.ask(Majors::NEW, INCLUDE);
    let _running = lxc.start();
    kept::wait_for_gpuhook();
    driver::kill_gpu(1);
    let found = diagnosis(Some("c1"));
    driver::kill_gpu(-1);
    assert_cause(&found, "gpu-fault", "/dev/nvidia1");
    assert!(found.to_string().contains("EIO"), "{found:#}");
    assert_fine("c1");
}

pub(crate) fn doctor_names_an_unloaded_module_and_its_fix_loads_it() {
    Driver::with(Majors::NEW).load_only(&["nvidia"]).make_host_nodes();
    let fix = assert_cause(&diagnosis(None), "module-not-loaded", "nvidia-uvm");
    println!("{}", program::both(&program::output(program::command("sh", &["-c", &fix]))));
    let after = diagnosis(None);
    assert!(!after.to_string().contains("module-not-loaded"), "{fix}\n{after:#}");
    let devices = std::fs::read_to_string("/proc/devices").expect("/proc/devices");
    assert!(devices.contains(&format!("{} nvidia-uvm", Majors::NEW.uvm)), "{fix}\n{devices}");
}
