// SPDX-License-Identifier: MIT OR Apache-2.0
//! `make demo`. With an NVIDIA driver: what gpuhook says of this machine. Without: the story that gpuhook ends, played with
//! real LXC containers and real device filters, and with stand-ins for the driver's text files and for libcuda.
//!
//! Exit status 0 only where everything went as told.

use std::path::Path;
use std::process::ExitCode;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, Registration, RunningLxc};
use gpuhook_tests::program;
use gpuhook_tests::rootfs::make_node;

fn main() -> ExitCode {
    let played = if Path::new("/proc/driver/nvidia/version").exists() { this_machine() } else { story() };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("\nNOT AS TOLD: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn this_machine() -> Result<(), String> {
    println!("This machine has an NVIDIA driver. What gpuhook says of it; nothing is changed.");
    for arguments in [&["majors"][..], &["plan", "--devices", "all"], &["probe", "--host"]] {
        println!("\n$ gpuhook {}", arguments.join(" "));
        let output = program::output(program::command(program::gpuhook(), arguments));
        print!("{}", program::both(&output));
        if !output.status.success() {
            return Err(format!("gpuhook {} ended with {}", arguments.join(" "), output.status));
        }
    }
    Ok(())
}

fn story() -> Result<(), String> {
    program::gpuhook();
    println!(
        "This machine has no NVIDIA driver, so two things here are STAND-INS: the driver (text files that say what"
    );
    println!(
        "/proc/devices would say; no device is behind the numbers) and libcuda.so.1 (a test double that opens the nodes"
    );
    println!(
        "as the real one does, and takes \"no such device\" for success, since the device filter let it come that far)."
    );
    println!("Real are the kernel, its device filter, LXC, and gpuhook. No line below is a CUDA result.");
    let bed = Bed::pure("demo").ok_or("the demo cannot run here")?;
    let mut host = Host::new(bed.dir("host"), Majors::OLD, 2);
    let mut container = container_129(&bed);

    title(1, "A container whose config holds device numbers, on the kernel for which they were written");
    say_host(&host);
    say_config(&container, "the device lines of");
    renumber_nodes(&container, Majors::OLD);
    play(&container, 0)?;

    title(2, "The host gets another kernel. Nobody touches the container");
    host.renumber(Majors::NEW);
    renumber_nodes(&container, Majors::NEW);
    say_host(&host);
    play(&container, 999)?;
    println!(
        "\nThe nodes are there and have the right numbers, and those with 195 open, so nvidia-smi sees every GPU."
    );
    println!(
        "CUDA needs nvidia-uvm, whose new number 509 no rule allows. What the rules do allow is another driver's."
    );

    title(3, "The same container with gpuhook: one line more, with no number in it");
    container.register(Registration::Include, &host.lxc_hook(""));
    container.write_config();
    say_config(&container, "the device lines and the new line (installed, it is /usr/share/gpuhook/lxc.conf) of");
    let before = checksum(&container);
    println!("\nsha256 of the config: {before}");
    play(&container, 0)?;

    title(4, "The numbers change again");
    host.renumber(Majors::NEXT);
    renumber_nodes(&container, Majors::NEXT);
    say_host(&host);
    play(&container, 0)?;
    let after = checksum(&container);
    println!("\nsha256 of the config: {after}");
    if before != after {
        return Err("the config was changed".to_owned());
    }
    println!(
        "\nThe story went as told: 0, then 999, with gpuhook 0, and 0 again; the config did not change by a byte."
    );
    Ok(())
}

/// Container 129 of the story: the nodes are bound in, and their numbers of yesterday are allowed.
fn container_129(bed: &Bed) -> Lxc<'_> {
    let mut lxc = Lxc::privileged(bed, "129");
    lxc.allow("c 195:* rwm").allow("c 504:* rwm").allow("c 507:* rwm");
    for (path, number) in nodes(Majors::OLD) {
        lxc.bind_node(path, number);
    }
    lxc.write_config();
    lxc
}

fn nodes(majors: Majors) -> [(&'static str, (u32, u32)); 5] {
    [
        ("/dev/nvidiactl", (195, 255)),
        ("/dev/nvidia0", (195, 0)),
        ("/dev/nvidia1", (195, 1)),
        ("/dev/nvidia-uvm", (majors.uvm, 0)),
        ("/dev/nvidia-uvm-tools", (majors.uvm, 1)),
    ]
}

/// What udev or nvidia-modprobe does after a reboot: the host's nodes get the numbers of the new kernel.
fn renumber_nodes(lxc: &Lxc<'_>, majors: Majors) {
    for (path, number) in nodes(majors) {
        make_node(&lxc.bound_node(path), number);
    }
}

fn title(step: u32, text: &str) {
    println!("\n=== {step}. {text}");
}

fn say_host(host: &Host) {
    println!("\nhost (stand-in)$ grep -E 'nvidia|^50[47]' /proc/devices");
    let telling = |line: &&str| line.contains("nvidia") || line.starts_with("504") || line.starts_with("507");
    for line in host.devices().lines().take_while(|line| !line.is_empty()).filter(telling) {
        println!("{line}");
    }
}

fn say_config(lxc: &Lxc<'_>, what: &str) {
    println!("\n{what} the container's config:");
    let config = std::fs::read_to_string(lxc.config()).unwrap_or_default();
    let number = ["c 195:", "c 504:", "c 507:"];
    let telling = |line: &&str| {
        (line.starts_with("lxc.cgroup2") && number.iter().any(|rule| line.contains(rule)))
            || line.starts_with("lxc.include")
    };
    for line in config.lines().filter(telling) {
        println!("    {line}");
    }
}

/// Starts the container, shows what it sees, and holds cuInit against `told`.
fn play(lxc: &Lxc<'_>, told: i32) -> Result<(), String> {
    let container = lxc.try_start()?;
    println!("\ncontainer$ ls -l /dev/nvidia*");
    print!("{}", shell(&container, "ls -l /dev/nvidiactl /dev/nvidia[0-9]* /dev/nvidia-uvm*"));
    println!("\ncontainer$ open each of them (ENXIO: allowed, but no driver is behind it here; EPERM: refused)");
    print!("{}", container.nodes(&nodes(Majors::NEW).map(|(path, _)| path)).0);
    println!("\ncontainer$ cuda-check (stand-in)");
    let said = container.cuda();
    print!("{}", said.0);
    match said.cuinit() {
        code if code == told => Ok(()),
        code => Err(format!("cuInit returned {code} instead of {told}\n{}", container.story())),
    }
}

fn shell(container: &RunningLxc<'_>, line: &str) -> String {
    container.run(&["/bin/sh", "-c", line]).0
}

fn checksum(lxc: &Lxc<'_>) -> String {
    let mut sum = program::command("sha256sum", &[]);
    sum.arg(lxc.config());
    program::stdout(sum).split(' ').next().unwrap_or_default().to_owned()
}
