// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hook costs in system calls, which no busy machine changes: upper limits near what it needs today. A time is
//! measured by `make bench`; this says at once, and on any machine, where a change made the hook do more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;

use gpuhook_tests::arena::Arena;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::program;

/// Calls by name.
type Counts = BTreeMap<String, u64>;

/// The calls of `command` and of every process that it starts.
fn counted(bed: &Bed, command: &Command) -> Counts {
    let table = bed.dir("strace").join("table");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-c", "-U", "name,calls", "-o"]).arg(&table).arg(command.get_program());
    strace.args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        strace.env(name, value.expect("a value"));
    }
    strace.stdin(File::open(bed.dir("bundle").join("state.json")).expect("state"));
    let output = program::output(strace);
    assert!(output.status.success(), "{command:?}: {}", program::both(&output));
    let text = fs::read_to_string(table).expect("table");
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, calls) = (words.next()?, words.next()?.parse().ok()?);
        // A debug build of Rust's library asks of every descriptor that it closes whether it is open.
        (!["total", "fcntl"].contains(&name)).then(|| (name.to_owned(), calls))
    });
    rows.collect()
}

fn total(counts: &Counts) -> u64 {
    counts.values().sum()
}

/// A bed with a bundle in it.
fn bed(name: &str) -> Option<Bed> {
    let bed = Bed::pure(name)?;
    fs::create_dir_all(bed.dir("bundle").join("rootfs/dev")).expect("root filesystem");
    fs::write(bed.dir("bundle").join("state.json"), "").expect("state");
    Some(bed)
}

fn host(bed: &Bed, gpus: u32) -> Host {
    let host = Host::new(bed.dir(&format!("host-{gpus}")), Majors::NEW, gpus);
    host.configure("load-modules = false\n[verify]\nl3 = \"warn\"\nl5 = \"off\"\n");
    host
}

/// `createRuntime` for a fresh container: `title` says what it brings in.
fn injected(bed: &Bed, title: &str, host: &Host, words: &[&str]) -> Counts {
    let arena = Arena::new(bed, &bed.dir("bundle").join("rootfs"));
    let counts = counted(bed, &host.gpuhook(&[&["oci", "createRuntime"], words].concat()));
    println!("COUNT {title}: {} system calls", total(&counts));
    drop(arena);
    counts
}

#[test]
fn a_container_that_asks_for_no_gpu_costs_next_to_nothing() {
    let Some(bed) = bed("calls-opt-out") else { return };
    let host = host(&bed, 1);
    let container = bed.dir("lxc").join("container.conf");
    fs::write(&container, "lxc.uts.name = none\n").expect("config");
    let mut hook = host.gpuhook(&["lxc", "--opt-in"]);
    hook.args(["none", "lxc", "pre-start"]).env("LXC_CONFIG_FILE", &container);
    let counts = counted(&bed, &hook);
    println!("COUNT no GPU asked for: {} system calls", total(&counts));
    assert!(total(&counts) <= 45, "{counts:?}");
    for call in ["fork", "clone", "clone3", "vfork", "socket", "bpf"] {
        assert_eq!(counts.get(call), None, "{counts:?}");
    }
}

#[test]
fn calls_grow_with_nodes_and_not_beyond_them() {
    let Some(bed) = bed("calls-nodes") else { return };
    let gpus = |count: u32, title: &str| total(&injected(&bed, title, &host(&bed, count), &["--devices", "all"]));
    let (one, eight, many) = (gpus(1, "1 GPU"), gpus(8, "8 GPUs"), gpus(64, "64 GPUs"));
    assert!(one <= 370, "1 GPU: {one}");
    assert!(eight <= one + 7 * 24, "8 GPUs: {eight} after {one} for 1");
    assert!(many <= eight + 56 * 22, "64 GPUs: {many} after {eight} for 8");
}

#[test]
fn an_imex_channel_costs_its_node_and_nothing_else() {
    let Some(bed) = bed("calls-imex") else { return };
    let host = host(&bed, 1);
    let channels = |count: u32| {
        let list: Vec<String> = (0..count).map(|channel| channel.to_string()).collect();
        let title = format!("1 GPU and {count} IMEX channels");
        injected(&bed, &title, &host, &["--devices", "all", "--imex-channels", &list.join(",")])
    };
    let (few, all) = (channels(8), channels(2048));
    assert_eq!(all["mknodat"] - few["mknodat"], 2040, "{all:?}");
    // What is not a node: memory for the longer plan, and the longer report.
    assert!(total(&all) <= total(&few) + 2040 + 40, "{few:?}\n{all:?}");
}
