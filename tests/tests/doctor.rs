// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doctor on running containers: something is broken, the doctor names it, the command that it prints is run by a
//! shell, and the doctor finds nothing more. The numbers are a made-up host's, the container and its filter are real.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Output;
use std::time::{Duration, Instant};

use gpuhook_core::bpf::Insn;
use gpuhook_linux::sys::bpf::{self, AttachFlags};
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, install};
use gpuhook_tests::program;
use gpuhook_tests::rootfs::make_node;
use gpuhook_tests::runc::Runc;
use serde_json::Value;

const NODES: [&str; 4] = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

fn number(path: &str, majors: Majors) -> (u32, u32) {
    match path {
        "/dev/nvidiactl" => (195, 255),
        "/dev/nvidia0" => (195, 0),
        "/dev/nvidia-uvm" => (majors.uvm, 0),
        "/dev/nvidia-uvm-tools" => (majors.uvm, 1),
        other => panic!("no number for {other}"),
    }
}

/// A made-up host, and the option that names the container on it.
struct Bedside<'a> {
    host: &'a Host,
    container: [String; 2],
}

impl<'a> Bedside<'a> {
    fn new(host: &'a Host, option: &str, container: impl ToString) -> Self {
        Self { host, container: [option.to_owned(), container.to_string()] }
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut doctor = program::command(program::gpuhook(), &["doctor"]);
        doctor.args(&self.container).args(arguments);
        doctor.arg("--host-root").arg(self.host.root()).arg("--config").arg(self.host.config());
        program::output(doctor)
    }

    fn diagnosis(&self) -> Value {
        let output = self.output(&["--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", program::both(&output)))
    }

    /// The one cause, with the evidence in `says`.
    fn assert_cause(&self, id: &str, subject: &str, says: &[&str]) -> Value {
        let diagnosis = self.diagnosis();
        let errors = errors(&diagnosis);
        let [cause] = errors[..] else { panic!("one error, not\n{diagnosis:#}") };
        assert_eq!((&cause["id"], &cause["subject"]), (&id.into(), &subject.into()), "{diagnosis:#}");
        let text = diagnosis.to_string();
        says.iter().for_each(|words| assert!(text.contains(words), "{words}\n{diagnosis:#}"));
        assert_eq!(self.output(&[]).status.code(), Some(1));
        cause.clone()
    }

    /// The printed command, run by a shell that finds this build's gpuhook first.
    fn cure(&self, cause: &Value) {
        let fix = cause["fix"].as_str().expect("a fix");
        let mut shell = program::command("sh", &["-c", fix]);
        let path = std::env::var("PATH").expect("PATH");
        shell.env("PATH", format!("{}:{path}", program::build_dir().display()));
        // inject itself reports that nothing opens on the made-up host, so only what is found afterwards counts.
        let said = program::output(shell);
        println!("{fix}\n{}", program::both(&said));
    }

    fn assert_fine(&self) {
        let diagnosis = self.diagnosis();
        assert_eq!(errors(&diagnosis), [] as [&Value; 0], "{diagnosis:#}");
        assert_eq!((&diagnosis["cuinit"], self.output(&[]).status.code()), (&0.into(), Some(0)), "{diagnosis:#}");
        assert!(diagnosis["verdict"].as_str().is_some_and(|verdict| verdict.starts_with("CUDA initialises")));
    }
}

fn errors(diagnosis: &Value) -> Vec<&Value> {
    let findings = diagnosis["findings"].as_array().expect("findings");
    findings.iter().filter(|finding| finding["severity"] == "error").collect()
}

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 1)
}

/// A strict container with the host's nodes bound in, as people write it, and rules for 195 and `uvm`.
fn by_hand<'bed>(bed: &'bed Bed, uvm: u32) -> Lxc<'bed> {
    let mut lxc = Lxc::privileged(bed, "c1");
    for path in NODES {
        lxc.bind_node(path, number(path, Majors::NEW));
    }
    lxc.allow("c 195:* rwm").allow(&format!("c {uvm}:* rwm"));
    lxc
}

#[test]
fn a_container_in_order_is_fine() {
    let Some(bed) = Bed::pure("fine") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.assert_fine();
    let ruled_out = bedside.diagnosis()["ruled_out"].to_string();
    assert!(
        ruled_out.contains("not the container's nodes") && ruled_out.contains("not the device filter"),
        "{ruled_out}"
    );
}

/// A person at a terminal hears what takes long, and sees colours; a pipe gets neither.
#[test]
fn a_terminal_shows_progress_while_cuinit_runs() {
    let Some(bed) = Bed::pure("terminal") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let _running = lxc.start();
    let command = format!(
        "{} doctor --lxc {} --host-root {} --config {}",
        program::gpuhook().display(),
        lxc.name(),
        host.root().display(),
        host.config().display()
    );
    let terminal = program::stdout(program::command("script", &["-qec", &command, "/dev/null"]));
    assert!(terminal.starts_with("asking the container's CUDA"), "{terminal}");
    assert!(terminal.contains("\u{1b}[32m"), "{terminal}");
    let piped = program::both(&Bedside::new(&host, "--lxc", lxc.name()).output(&[]));
    assert!(!piped.contains("asking") && !piped.contains('\u{1b}'), "{piped}");
}

/// Without cuInit the whole of it takes no time that a person notices.
#[test]
fn a_host_with_eight_gpus_and_one_container_is_judged_within_a_second() {
    let Some(bed) = Bed::pure("fast") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 8);
    host.configure("load-modules = false\n\n[verify]\nl5 = \"off\"\n");
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    let start = Instant::now();
    let diagnosis = bedside.diagnosis();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(diagnosis["findings"][0]["id"], "missing-node", "seven GPUs were not bound: {diagnosis:#}");
}

/// The story: everything looks right from inside, and the rules are those of before the kernel upgrade.
#[test]
fn rules_of_before_a_kernel_upgrade_are_the_cause_and_inject_cures_without_a_restart() {
    let Some(bed) = Bed::pure("stale") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::OLD.uvm);
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    let diagnosis = bedside.diagnosis();
    let [cause, ..] = errors(&diagnosis)[..] else { panic!("a cause\n{diagnosis:#}") };
    // 504 is hidraw on the made-up host, as it was on somebody's.
    assert!(
        cause["subject"].as_str().is_some_and(|line| line.contains("c 504:*") || line.contains("/dev/nvidia-uvm")),
        "{diagnosis:#}"
    );
    assert_eq!(diagnosis["cuinit"], 999);
    let text = diagnosis.to_string();
    for words in ["filter-denies", "EPERM", "c 509:0", "hidraw"] {
        assert!(text.contains(words), "{words}\n{diagnosis:#}");
    }
    bedside.cure(cause);
    bedside.assert_fine();
}

#[test]
fn a_node_that_was_removed_comes_back() {
    let Some(bed) = Bed::pure("removed") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let running = lxc.start();
    let gone = running.run(&["busybox", "umount", "/dev/nvidia-uvm"]);
    let removed = running.run(&["busybox", "rm", "/dev/nvidia-uvm"]);
    assert_eq!(running.nodes(&["/dev/nvidia-uvm"]).node("/dev/nvidia-uvm"), None, "{}{}", gone.0, removed.0);
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.cure(&bedside.assert_cause("missing-node", "/dev/nvidia-uvm", &["999"]));
    bedside.assert_fine();
}

#[test]
fn a_node_of_an_earlier_boot_is_covered_by_the_live_one() {
    let Some(bed) = Bed::pure("old-node") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    for path in NODES {
        let majors = if path == "/dev/nvidia-uvm" { Majors::OLD } else { Majors::NEW };
        lxc.bind_node(path, number(path, majors));
    }
    lxc.allow("c 195:* rwm").allow("c 504:* rwm").allow("c 509:* rwm");
    // The stand-in counts ENXIO as reached; the real library returns this.
    lxc.rootfs().write("/etc/standin-cuda", "999");
    let running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    let cause = bedside.assert_cause("stale-node", "/dev/nvidia-uvm", &["c 504:0", "509:0"]);
    fs::remove_file(lxc.rootfs().path("/etc/standin-cuda")).expect("removal");
    bedside.cure(&cause);
    bedside.assert_fine();
    let node = running.nodes(&["/dev/nvidia-uvm"]).node("/dev/nvidia-uvm").expect("a node");
    assert_eq!(node.number, (509, 0));
}

#[test]
fn an_empty_file_in_a_nodes_place_is_covered_by_the_node() {
    let Some(bed) = Bed::pure("file") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let running = lxc.start();
    running.run(&["busybox", "umount", "/dev/nvidia-uvm"]);
    running.run(&["busybox", "rm", "/dev/nvidia-uvm"]);
    running.run(&["busybox", "touch", "/dev/nvidia-uvm"]);
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.cure(&bedside.assert_cause("not-a-device", "/dev/nvidia-uvm", &["create=file"]));
    bedside.assert_fine();
}

#[test]
fn a_mode_that_forbids_is_told_from_a_filter_that_refuses() {
    let Some(bed) = Bed::pure("mode") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let running = lxc.start();
    let ctl = lxc.bound_node("/dev/nvidiactl");
    fs::set_permissions(&ctl, fs::Permissions::from_mode(0o1232)).expect("mode");
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.assert_cause("wrong-mode", "/dev/nvidiactl", &["EACCES", "cuInit returns 100"]);
    fs::set_permissions(&ctl, fs::Permissions::from_mode(0o666)).expect("mode");
    bedside.assert_fine();
    drop(running);
}

/// The host's own nodes are bound in, as they are on a real host; the repair there is seen inside at once.
#[test]
fn a_mode_of_the_hosts_node_is_the_cause_and_is_repaired_on_the_host() {
    let Some(bed) = Bed::pure("host-mode") else { return };
    let host = host(&bed);
    let dev = host.root().join("dev");
    fs::create_dir_all(&dev).expect("folder");
    let mut lxc = Lxc::privileged(&bed, "c1");
    lxc.allow("c 195:* rwm").allow("c 509:* rwm");
    for path in NODES {
        let node = dev.join(path.trim_start_matches("/dev/"));
        make_node(&node, number(path, Majors::NEW));
        lxc.line(&format!("lxc.mount.entry = {} {} none bind,create=file", node.display(), &path[1..]));
    }
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    fs::set_permissions(dev.join("nvidiactl"), fs::Permissions::from_mode(0o600)).expect("mode");
    chown(dev.join("nvidiactl"), Some(7), None).expect("owner");
    let cause = bedside.assert_cause("wrong-mode", "/dev/nvidiactl", &["0600", "EACCES", "cuInit returns 100"]);
    bedside.cure(&cause);
    bedside.assert_fine();
}

/// A node of a group that is another one inside: by its number the container's program should be let in.
#[test]
fn a_group_that_is_another_one_inside_is_told_from_a_mode() {
    let Some(bed) = Bed::pure("group") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    lxc.rootfs().write("/etc/group", "root:x:0:\nssl-cert:x:4242:\nrender:x:4243:\n");
    let _running = lxc.start();
    let ctl = lxc.bound_node("/dev/nvidiactl");
    chown(&ctl, Some(7), Some(4242)).expect("owner");
    fs::set_permissions(&ctl, fs::Permissions::from_mode(0o660)).expect("mode");
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.assert_cause("group-mismatch", "/dev/nvidiactl", &["4242", "ssl-cert", "cuInit returns 100"]);
    // The group of the program itself: then the mode alone is wrong.
    chown(&ctl, Some(7), Some(0)).expect("owner");
    fs::set_permissions(&ctl, fs::Permissions::from_mode(0o600)).expect("mode");
    bedside.assert_cause("wrong-mode", "/dev/nvidiactl", &["EACCES"]);
    fs::set_permissions(&ctl, fs::Permissions::from_mode(0o666)).expect("mode");
    bedside.assert_fine();
}

/// The command that is printed for a stopped container makes its next start work.
#[test]
fn a_stopped_containers_config_is_cured_by_the_printed_migration() {
    let Some(bed) = Bed::pure("stopped-cure") else { return };
    let host = host(&bed);
    let installed = install(&bed.dir("prefix"), &host.lxc_hook(""));
    let mut lxc = by_hand(&bed, 499);
    lxc.write_config();
    let config = lxc.config().display().to_string();
    let bedside = Bedside::new(&host, "--container-config", &config);
    let rule = "lxc.cgroup2.devices.allow = c 499:* rwm";
    let cause = bedside.assert_cause("stale-rule", rule, &["nvidia-uvm has 509", "missing-rule"]);
    let fix = cause["fix"].as_str().expect("a fix");
    let mut shell = program::command("sh", &["-c", fix]);
    let path = std::env::var("PATH").expect("PATH");
    shell.env("PATH", format!("{}:{path}", bed.dir("prefix").join("bin").display()));
    println!("{}", program::stdout(shell));
    assert_eq!(errors(&bedside.diagnosis()), [] as [&Value; 0]);
    lxc.read_config();
    let _running = lxc.start();
    bed.wait_for(&installed);
    bed.wait_for(&program::gpuhook());
    Bedside::new(&host, "--lxc", lxc.name()).assert_fine();
}

/// runc writes no rule for a node that was only mounted.
#[test]
fn a_filter_that_refuses_is_opened_by_the_printed_command() {
    let Some(bed) = Bed::pure("refuses") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    for path in NODES {
        runc.bind_node(path, number(path, Majors::NEW));
    }
    let running = runc.start();
    let bedside = Bedside::new(&host, "--pid", running.init_pid());
    bedside.cure(&bedside.assert_cause("filter-denies", "/dev/nvidia0", &["EPERM", "c 509:0 rw"]));
    bedside.assert_fine();
}

/// A program above the container refuses what the container's own allows.
#[test]
fn a_filter_above_the_container_is_named_and_left_alone() {
    let Some(bed) = Bed::pure("above") else { return };
    let host = host(&bed);
    let mut lxc = by_hand(&bed, Majors::NEW.uvm);
    lxc.inner_cgroup();
    let _running = lxc.start();
    let above = bed.cgroup2().join(format!("{}.lxc", bed.name()));
    let cgroup = File::open(&above).expect("the cgroup above");
    // `major == 509 ? 0 : 1`
    let program = [
        Insn::new(0x61, 4, 1, 4, 0),
        Insn::new(0xb7, 0, 0, 0, 1),
        Insn::new(0x55, 4, 0, 1, 509),
        Insn::new(0xb7, 0, 0, 0, 0),
        Insn::new(0x95, 0, 0, 0, 0),
    ];
    let program = bpf::prog_load(c"outer_policy", &program.map(|insn| insn.to_bytes()), 0).expect("a program");
    bpf::attach(&cgroup, &program, AttachFlags::ALLOW_MULTI, None).expect("attached");
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    let subject = format!("outer_policy on /{}.lxc", bed.name());
    bedside.assert_cause("ancestor-denies", &subject, &["c 509:0 rw", "cuInit returns 999"]);
    bpf::detach(&cgroup, &program).expect("detached");
    bedside.assert_fine();
}

#[test]
fn rules_without_a_filter_are_told_and_are_no_cause() {
    let Some(bed) = Bed::pure("unenforced") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::OLD.uvm);
    let running = lxc.start();
    let line = fs::read_to_string(format!("/proc/{}/cgroup", running.init_pid())).expect("cgroup");
    let line = line.lines().find_map(|line| line.strip_prefix("0::/")).expect("a cgroup2 path").to_owned();
    let leaf = File::open(bed.cgroup2().join(&line)).expect("leaf");
    for id in bpf::query(&leaf, bpf::Query::Own).expect("programs").ids {
        bpf::detach(&leaf, bpf::prog_by_id(id).expect("a program")).expect("detached");
    }
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.assert_fine();
    let diagnosis = bedside.diagnosis();
    let findings = diagnosis["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|finding| finding["id"] == "filter-absent"), "{diagnosis:#}");
}

#[test]
fn a_library_of_another_driver_is_named_with_both_versions() {
    let Some(bed) = Bed::pure("library") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    lxc.rootfs().write("/etc/standin-cuda", "803");
    lxc.rootfs().write("/usr/lib/libcuda.so.580.95.05", "");
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    bedside.assert_cause("library-mismatch", "libcuda.so.1", &["580.95.05", "590.48.01", "cuInit returns 803"]);
    fs::remove_file(lxc.rootfs().path("/etc/standin-cuda")).expect("removal");
    fs::rename(lxc.rootfs().path("/usr/lib/libcuda.so.580.95.05"), lxc.rootfs().path("/usr/lib/libcuda.so.590.48.01"))
        .expect("the right version");
    bedside.assert_fine();
}

/// Every code that has one cause, with nodes and filter in order.
#[test]
fn codes_of_cuinit_are_told_apart() {
    let Some(bed) = Bed::pure("codes") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    for (code, id, subject) in [
        ("3", "hmm", "nvidia-uvm"),
        ("46", "compute-mode", "cuInit"),
        ("100", "no-gpu", "cuInit"),
        ("101", "gpu-fault", "nvidia"),
        ("304", "refused-call", "cuInit"),
        ("801", "not-supported", "cuInit"),
        ("802", "fabric-manager", "nvidia-fabricmanager"),
        ("804", "cuda-compat", "libcuda.so.1"),
        // Nothing is behind the live numbers here, which is what a driver that failed half-way looks like.
        ("999", "driver-refuses", "/dev/nvidiactl"),
    ] {
        lxc.rootfs().write("/etc/standin-cuda", code);
        bedside.assert_cause(id, subject, &[&format!("cuInit returns {code}")]);
    }
    host.overwrite("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n");
    lxc.rootfs().write("/etc/standin-cuda", "3");
    bedside.assert_cause("unexplained", "cuInit", &["not HMM"]);
}

#[test]
fn an_unloaded_module_is_the_cause_in_the_container_too() {
    let Some(bed) = Bed::pure("module") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::NEW.uvm);
    let _running = lxc.start();
    let devices = host.devices();
    let without: String = devices.split_inclusive('\n').filter(|line| !line.contains("nvidia-uvm")).collect();
    host.overwrite("proc/devices", &without);
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    let diagnosis = bedside.diagnosis();
    let errors = errors(&diagnosis);
    assert_eq!(errors.len(), 1, "{diagnosis:#}");
    assert_eq!((&errors[0]["id"], &errors[0]["subject"]), (&"module-not-loaded".into(), &"nvidia-uvm".into()));
    host.overwrite("proc/devices", &devices);
    bedside.assert_fine();
}

/// What a bug report holds of a running container leads to the same diagnosis on another machine.
#[test]
fn a_report_of_a_running_container_gives_the_same_diagnosis() {
    let Some(bed) = Bed::pure("report") else { return };
    let host = host(&bed);
    let mut lxc = by_hand(&bed, 499);
    lxc.line("lxc.environment = API_KEY=secret");
    lxc.rootfs().write("/usr/lib/libcuda.so.590.48.01", "");
    let _running = lxc.start();
    let bedside = Bedside::new(&host, "--lxc", lxc.name());
    let before = bedside.diagnosis();
    let (unpacked, tar) = (bed.dir("unpacked"), bed.dir("tar").join("report.tar"));
    let mut report = program::command(program::gpuhook(), &["report", "--lxc", lxc.name(), "--output"]);
    report.arg(&tar).arg("--host-root").arg(host.root()).arg("--config").arg(host.config());
    program::stdout(report);
    let mut unpack = program::command("tar", &["-xf"]);
    unpack.arg(&tar).arg("-C").arg(&unpacked);
    program::stdout(unpack);
    let config = fs::read_to_string(unpacked.join("container.conf")).expect("its config");
    assert!(config.contains("API_KEY=private") && !config.contains("secret"), "{config}");
    let mut doctor = program::command(program::gpuhook(), &["doctor", "--json", "--host-root"]);
    doctor.arg(&unpacked).arg("--probe").arg(unpacked.join("probe.json"));
    doctor.arg("--container-config").arg(unpacked.join("container.conf"));
    let after: Value = serde_json::from_slice(&program::output(doctor).stdout).expect("an answer");
    let gist = |diagnosis: &Value| {
        let findings = diagnosis["findings"].as_array().expect("findings");
        let gist = |finding: &Value| ["id", "severity", "subject", "line"].map(|field| finding[field].clone());
        findings.iter().map(gist).collect::<Vec<_>>()
    };
    assert_eq!(gist(&after), gist(&before), "{after:#}\n{before:#}");
    assert_eq!(errors(&after)[0]["id"], "stale-rule");
    assert!(after["ruled_out"].to_string().contains("both sides are 590.48.01"), "{after:#}");
}

/// The config alone is judged while the container does not run.
#[test]
fn a_container_that_does_not_run_is_judged_by_its_config() {
    let Some(bed) = Bed::pure("stopped") else { return };
    let host = host(&bed);
    let lxc = by_hand(&bed, Majors::OLD.uvm);
    lxc.write_config();
    let config = lxc.config().display().to_string();
    let bedside = Bedside::new(&host, "--container-config", &config);
    let diagnosis = bedside.diagnosis();
    let errors = errors(&diagnosis);
    assert!(!errors.is_empty() && errors.iter().all(|error| error["file"] == config.as_str()), "{diagnosis:#}");
    assert!(diagnosis["verdict"].as_str().is_some_and(|verdict| verdict.contains("509")), "{diagnosis:#}");
}

/// `probe --json` of a container is all that the doctor needs of it.
#[test]
fn an_earlier_probe_gives_the_same_verdict() {
    let Some(bed) = Bed::pure("earlier") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    for path in NODES {
        runc.bind_node(path, number(path, Majors::NEW));
    }
    let running = runc.start();
    let pid = running.init_pid().to_string();
    let mut probe = program::command(program::gpuhook(), &["probe", "--json", "--pid", &pid, "--host-root"]);
    probe.arg(host.root()).arg("--config").arg(host.config());
    let file = bed.dir("probe").join("probe.json");
    fs::write(&file, program::output(probe).stdout).expect("file");
    let bedside = Bedside::new(&host, "--probe", file.display());
    bedside.assert_cause("filter-denies", "/dev/nvidia0", &["EPERM", "c 509:0 rw"]);
}
