// SPDX-License-Identifier: MIT OR Apache-2.0
//! podman with gpuhook's `precreate` hook and with gpuhook's runtime, as the README says to set them up in containers.conf.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::inside::Inside;
use gpuhook_tests::program;
use gpuhook_tests::rootfs::Rootfs;

use crate::driver::{self, Driver};
use crate::one_gpu::{self, VARIABLE};
use crate::{kept, lxc};

const CONF: &str = "/etc/containers/containers.conf.d/gpuhook.conf";
const HOOKS: &str = "[engine]\nhooks_dir = [\"/usr/share/gpuhook/hooks.d\"]\n";
const RUNTIME: &str = "[engine.runtimes]\ngpuhook = [\"/usr/bin/gpuhook-runtime\"]\n";
const GPUHOOK_CONF: &str = "/etc/gpuhook/config.toml";
const NAME: &str = "vmt-precreate";
const IMAGE: &str = "localhost/vmt-precreate:1";

/// podman's configuration and a container, both until this is dropped.
struct Podman;

impl Podman {
    fn configured() -> Self {
        Self::configured_with(HOOKS)
    }

    fn configured_with(conf: &str) -> Self {
        fs::create_dir_all("/etc/containers/containers.conf.d").expect("folder of the configuration");
        fs::write(CONF, conf).expect("configuration");
        podman(&["rm", "-f", "-t", "0", NAME]);
        Self
    }

    fn run(runtime: &str, manager: &str, rootfs: &Rootfs) {
        Self::run_with(runtime, manager, rootfs, &[VARIABLE]);
    }

    fn run_with(runtime: &str, manager: &str, rootfs: &Rootfs, variables: &[&str]) {
        let mut run =
            program::command("podman", &["--runtime", runtime, "--cgroup-manager", manager, "run", "--detach"]);
        run.args(["--name", NAME, "--network", "none", "--cap-add", "MKNOD", "--security-opt", "seccomp=unconfined"]);
        for variable in variables {
            run.args(["--env", variable]);
        }
        run.arg("--rootfs").arg(rootfs.dir()).arg("/sbin/init");
        let output = program::output(run);
        assert!(output.status.success(), "{}\n{}", program::both(&output), lxc::journal());
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        podman(&["rm", "-f", "-t", "0", NAME]);
        let _left_for_others = fs::remove_file(CONF);
    }
}

fn podman(args: &[&str]) -> String {
    program::both(&program::output(program::command("podman", args)))
}

fn exec() -> Command {
    program::command("podman", &["exec", NAME])
}

/// What systemd and podman do to a container's unit while it runs. podman 5 hands `crun update` the device rules of the spec
/// that podman keeps, which neither a hook nor a CDI file changes, and crun builds its filter anew from them: with gpuhook's
/// runtime in between ours are among them; without it,
/// `what_podman_update_takes_from_a_hook_inject_gives_back`.
fn change_the_unit(runtime: &str) {
    let scope = podman(&["inspect", "--format", "libpod-{{.Id}}.scope", NAME]);
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    // With the cgroupfs manager there is no unit.
    let set = ["set-property", "--runtime", scope.trim(), "MemoryHigh=1G"];
    let _no_unit = program::output(program::command("systemctl", &set));
    if runtime != "crun" {
        program::stdout(program::command("podman", &["update", "--memory", "1g", NAME]));
    }
}

fn keeps_the_gpu(runtime: &str, manager: &str) {
    keeps_the_gpu_with(Podman::configured(), runtime, manager);
}

fn keeps_the_gpu_with(podman: Podman, runtime: &str, manager: &str) {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let rootfs = one_gpu::rootfs("precreate");
    Podman::run(runtime, manager, &rootfs);
    one_gpu::assert_exact(exec(), Majors::NEW);
    // The hook tells systemd the rest in the background.
    kept::wait_for_gpuhook();
    change_the_unit(runtime);
    one_gpu::assert_exact(exec(), Majors::NEW);
    drop(podman);
    one_gpu::assert_nothing_kept();
}

pub(crate) fn podman_precreate_with_runc_and_systemd_keeps_the_gpu() {
    keeps_the_gpu("runc", "systemd");
}

pub(crate) fn podman_precreate_with_crun_and_systemd_keeps_the_gpu() {
    keeps_the_gpu("crun", "systemd");
}

pub(crate) fn podman_precreate_with_runc_and_cgroupfs_keeps_the_gpu() {
    keeps_the_gpu("runc", "cgroupfs");
}

/// gpuhook's runtime in front of `runtime`, with or without the hook as well.
fn keeps_the_gpu_behind(runtime: &str, conf: &str, manager: &str) {
    let _behind = Configured::with(&format!("runtime = \"/usr/bin/{runtime}\""));
    keeps_the_gpu_with(Podman::configured_with(conf), "gpuhook", manager);
}

pub(crate) fn podman_with_the_runtime_and_crun_keeps_the_gpu_over_an_update() {
    keeps_the_gpu_behind("crun", RUNTIME, "systemd");
    keeps_the_gpu_behind("crun", RUNTIME, "cgroupfs");
}

pub(crate) fn podman_with_the_runtime_and_the_hook_keeps_the_gpu_over_an_update() {
    keeps_the_gpu_behind("crun", &format!("{HOOKS}{RUNTIME}"), "systemd");
}

/// No node of the host, no link in /dev/char: the runtime makes nodes by number, and the hook tells systemd the names.
pub(crate) fn podman_precreate_needs_no_node_of_the_host() {
    Driver::with(Majors::NEW).load();
    let _podman = Podman::configured();
    let rootfs = one_gpu::rootfs("precreate");
    Podman::run("runc", "systemd", &rootfs);
    kept::wait_for_gpuhook();
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    one_gpu::assert_exact(exec(), Majors::NEW);
}

pub(crate) fn podman_precreate_renews_the_numbers_at_a_restart() {
    Driver::with(Majors::OLD).load().make_host_nodes();
    let _podman = Podman::configured();
    let rootfs = one_gpu::rootfs("precreate");
    Podman::run("crun", "systemd", &rootfs);
    one_gpu::assert_exact(exec(), Majors::OLD);
    program::stdout(program::command("podman", &["stop", "-t", "0", NAME]));
    kept::wait_for_gpuhook();
    Driver::with(Majors::NEXT).load().make_host_nodes();
    program::stdout(program::command("podman", &["start", NAME]));
    one_gpu::assert_exact(exec(), Majors::NEXT);
}

/// gpuhook's configuration with more keys, until this is dropped.
struct Configured(String);

impl Configured {
    fn with(keys: &str) -> Self {
        let file = fs::read_to_string(GPUHOOK_CONF).expect("gpuhook's configuration");
        fs::write(GPUHOOK_CONF, format!("{keys}\n{file}")).expect("gpuhook's configuration");
        Self(file)
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        fs::write(GPUHOOK_CONF, &self.0).expect("gpuhook's configuration");
    }
}

/// The channels that were asked for, by their names and the driver's number, and only where the operator said yes.
pub(crate) fn podman_precreate_gives_imex_channels() {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let asking = [VARIABLE, "NVIDIA_IMEX_CHANNELS=0,2047"];
    let channel = |number: u32| format!("/dev/nvidia-caps-imex-channels/channel{number}");
    let opened = |number: u32| {
        let mut check = exec();
        check.args(["/bin/node-check", &channel(number)]);
        Inside(program::both(&program::output(check))).open(&channel(number))
    };
    let rootfs = one_gpu::rootfs("precreate");
    {
        let _podman = Podman::configured();
        Podman::run_with("crun", "systemd", &rootfs, &asking);
        assert_eq!([0, 2047].map(opened), ["ENOENT", "ENOENT"], "the operator has not said yes\n{}", lxc::journal());
    }
    let _yes = Configured::with("unprivileged-may-ask = [\"imex-channels\"]");
    let _podman = Podman::configured();
    Podman::run_with("crun", "systemd", &rootfs, &asking);
    kept::wait_for_gpuhook();
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    assert_eq!([0, 1, 2047].map(opened), ["OK", "ENOENT", "OK"], "{}", lxc::journal());
}

const NVIDIA_SMI: &str = "/usr/local/bin/nvidia-smi";

/// A stand-in for nvidia-smi, which says of MIG devices what the real one would say; their UUIDs by GPU and position.
fn write_nvidia_smi(instances: u32) {
    let mut gpus: Vec<_> = fs::read_dir("/proc/driver/nvidia/gpus").expect("GPUs").flatten().collect();
    gpus.sort_by_key(|gpu| gpu.file_name());
    let mut listing = String::new();
    for (index, gpu) in gpus.iter().enumerate() {
        let information = fs::read_to_string(gpu.path().join("information")).expect("a GPU");
        let uuid = information.lines().find_map(|line| line.strip_prefix("GPU UUID:")).expect("a UUID").trim();
        listing += &format!("GPU {index}: Stand-in GPU (not a GPU) (UUID: {uuid})\n");
        for at in 0..instances {
            listing += &format!("  MIG 1g.10gb     Device  {at}: (UUID: {})\n", mig_uuid(index, at));
        }
    }
    let script = format!("#!/bin/sh\n[ \"$*\" = -L ] || exit 6\ncat <<'END'\n{listing}END\n");
    fs::write(NVIDIA_SMI, script).expect("stand-in for nvidia-smi");
    program::stdout(program::command("chmod", &["755", NVIDIA_SMI]));
}

fn mig_uuid(gpu: usize, at: u32) -> String {
    format!("MIG-00000000-0000-5000-8000-0000000000{gpu}{at}")
}

/// A MIG device is its GPU, and the access to its GPU instance and to its compute instance alone.
pub(crate) fn podman_precreate_gives_one_mig_device() {
    gives_the_first_mig_device_of_gpu_1("1:0");
}

pub(crate) fn podman_precreate_gives_the_mig_device_of_a_uuid() {
    gives_the_first_mig_device_of_gpu_1(&mig_uuid(1, 0));
}

fn gives_the_first_mig_device_of_gpu_1(name: &str) {
    // Minors run against the bus order, and the GPU with minor 0 has the instances.
    Driver { majors: Majors::NEW, gpus: 2, options: "mig=2" }.load().make_host_nodes();
    let _podman = Podman::configured();
    let rootfs = one_gpu::rootfs("precreate");
    write_nvidia_smi(2);
    Podman::run_with("crun", "systemd", &rootfs, &[&format!("NVIDIA_VISIBLE_DEVICES={name}")]);
    fs::remove_file(NVIDIA_SMI).expect("the stand-in");
    let instances = Path::new("/proc/driver/nvidia/capabilities/gpu0/mig");
    let mut gpu_instances: Vec<_> = fs::read_dir(instances).expect("instances").flatten().collect();
    gpu_instances.sort_by_key(|entry| entry.file_name());
    let [first, second] = &gpu_instances[..] else { panic!("two instances, not {gpu_instances:?}") };
    let minors = |instance: &Path| [instance.join("access"), instance.join("ci0/access")].map(|file| minor(&file));
    let node = |minor: &u32| format!("/dev/nvidia-caps/nvidia-cap{minor}");
    let (own, others) = (minors(&first.path()), minors(&second.path()));
    let mut check = exec();
    check.arg("/bin/node-check").args(["/dev/nvidia0", "/dev/nvidia1"]).args(own.iter().chain(&others).map(node));
    let said = Inside(program::both(&program::output(check)));
    for path in own.iter().map(node).chain(["/dev/nvidia0".to_owned()]) {
        assert_eq!(said.open(&path), "OK", "{path}\n{}\n{}", said.0, lxc::journal());
    }
    for path in others.iter().map(node).chain(["/dev/nvidia1".to_owned()]) {
        assert_eq!(said.open(&path), "ENOENT", "{path}\n{}\n{}", said.0, lxc::journal());
    }
}

/// What a file of the driver's capabilities says.
fn minor(file: &Path) -> u32 {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let minor = text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"));
    minor.and_then(|minor| minor.trim().parse().ok()).expect("a minor")
}

pub(crate) fn podman_precreate_rootless() {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let rootfs = one_gpu::rootfs("rootless-precreate");
    let user = 1000;
    rootfs.give_to(user);
    let runtime_dir = ["-d", "-m", "700", "-o", "user", "-g", "user", &format!("/run/user/{user}")];
    program::stdout(program::command("install", &runtime_dir));
    let script = format!(
        "XDG_RUNTIME_DIR=/run/user/{user} podman --cgroup-manager cgroupfs --hooks-dir /usr/share/gpuhook/hooks.d run --rm \
         --cgroups disabled --network none -e {VARIABLE} --security-opt seccomp=unconfined --rootfs {} /bin/cuda-check",
        rootfs.dir().display()
    );
    driver::forget_opens();
    let said = program::both(&program::output(program::command("su", &["user", "-c", &script])));
    assert!(said.contains("cuInit=0 devices=1"), "{said}\n{}", lxc::journal());
    assert!(driver::opens().contains_key(&("nvidia-uvm".to_owned(), 0)));
}

pub(crate) fn podman_play_kube_gets_the_gpu_and_builds_are_left_alone() {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let _podman = Podman::configured();
    let rootfs = one_gpu::rootfs("precreate");
    one_gpu::import("podman", &rootfs, IMAGE);
    let dir = rootfs.dir().parent().expect("a folder").join("precreate-build");
    fs::create_dir_all(&dir).expect("a folder");
    fs::write(dir.join("Containerfile"), format!("FROM {IMAGE}\nRUN /bin/true\nRUN [ ! -e /dev/nvidiactl ]\n"))
        .expect("file");
    for engine in ["podman", "buildah"] {
        let mut build =
            program::command(engine, &["build", "--network", "none", "--security-opt", "seccomp=unconfined"]);
        build.arg(&dir);
        let built = program::output(build);
        assert!(built.status.success(), "{engine}: {}", program::both(&built));
    }
    let working = program::stdout(program::command("buildah", &["from", IMAGE]));
    let look = ["run", "--network", "none", working.trim(), "/bin/sh", "-c", "[ ! -e /dev/nvidiactl ]"];
    let looked = program::output(program::command("buildah", &look));
    program::stdout(program::command("buildah", &["rm", working.trim()]));
    assert!(looked.status.success(), "{}", program::both(&looked));

    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: vmt-pod\nspec:\n  hostNetwork: true\n  containers:\n  - name: c\n    \
         image: {IMAGE}\n    imagePullPolicy: Never\n    command: [\"/sbin/init\"]\n    env:\n    - name: \
         NVIDIA_VISIBLE_DEVICES\n      value: \"0\"\n    securityContext:\n      capabilities:\n        add: [\"MKNOD\"]\n"
    );
    let file = dir.join("pod.yaml");
    fs::write(&file, pod).expect("the pod");
    let file = file.to_string_lossy().into_owned();
    let played = podman(&["play", "kube", &file]);
    let said = podman(&["exec", "vmt-pod-c", "/bin/cuda-check"]);
    podman(&["pod", "rm", "-f", "-t", "0", "vmt-pod"]);
    assert!(said.contains("cuInit=0 devices=1"), "{played}\n{said}\n{}", lxc::journal());
}
