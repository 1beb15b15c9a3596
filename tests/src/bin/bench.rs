// SPDX-License-Identifier: MIT OR Apache-2.0
//! What gpuhook costs, beside `/bin/true` in the same place: each line's candidates are run in turn, so that a busy
//! moment meets all of them. Medians, with the quarter below and above.
//!
//! ```text
//! bench [RUNS]        200 where nothing is said; a tenth of that for whole container starts
//! ```
//!
//! The programs are those beside this one, so build it with `--release` (`make bench`). cuInit is not in here (l5 = off),
//! and no driver: the opens of L3 end at its absence.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpuhook_core::device::{Access, DeviceId, DeviceRule};
use gpuhook_core::facts::CgroupLocation;
use gpuhook_linux::cgroup::CgroupPath;
use gpuhook_linux::filter::{self, Method, Options, Pins};
use gpuhook_tests::arena::{Arena, attach};
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::lxc::{Lxc, Registration};
use gpuhook_tests::program;
use gpuhook_tests::runc::Runc;

#[path = "bench/spec.rs"]
mod spec;

fn main() {
    let runs: usize = std::env::args().nth(1).map_or(200, |text| text.parse().expect("bench [RUNS]"));
    let Some(bed) = Bed::pure("bench") else { return };
    println!("medians of {runs} runs each, in turn; l5 = off");
    hooks(&bed, runs);
    starts(&bed, (runs / 10).max(5));
    opens(&bed);
    spec::measure(&bed, runs);
}

/// One line of the table: what was measured, in the order of the candidates.
fn compare(title: &str, runs: usize, candidates: &mut [(&str, &mut dyn FnMut() -> Duration)]) {
    let mut times = vec![Vec::with_capacity(runs); candidates.len()];
    for _ in 0..runs {
        for (candidate, times) in candidates.iter_mut().zip(&mut times) {
            times.push(candidate.1());
        }
    }
    println!("\n{title}");
    let mut base = None;
    for ((name, _), mut times) in candidates.iter().zip(times) {
        times.sort();
        let at = |part: usize| times[(times.len() - 1) * part / 4].as_secs_f64() * 1e3;
        let (low, median, high) = (at(1), at(2), at(3));
        let first: f64 = *base.get_or_insert(median);
        println!(
            "  {name:<34} {median:8.3} ms  ({low:.3} to {high:.3})  {:+8.3} ms  x {:.2}",
            median - first,
            median / first
        );
    }
}

/// From spawn to exit.
fn spawned(mut command: Command) -> Duration {
    let began = Instant::now();
    let status = command.status().expect("spawn");
    let took = began.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}

fn hooks(bed: &Bed, runs: usize) {
    let rootfs = bed.dir("bundle").join("rootfs");
    fs::create_dir_all(rootfs.join("dev")).expect("root filesystem");
    let quiet = "load-modules = false\n[verify]\nl3 = \"warn\"\nl5 = \"off\"\n";
    let (one, eight) = (Host::new(bed.dir("one"), Majors::NEW, 1), Host::new(bed.dir("eight"), Majors::NEW, 8));
    let many = Host::new(bed.dir("many"), Majors::NEW, 64);
    [&one, &eight, &many].into_iter().for_each(|host| host.configure(quiet));
    let channels = (0..2048).map(|channel: u32| channel.to_string()).collect::<Vec<_>>().join(",");
    let container = bed.dir("lxc").join("container.conf");
    fs::write(&container, "lxc.uts.name = bench\n").expect("config");

    let mut opted_out = || {
        let mut words = one.gpuhook(&["lxc", "--opt-in"]);
        words.args(["bench", "lxc", "pre-start"]).env_clear().env("LXC_CONFIG_FILE", &container);
        spawned(words)
    };
    let hook = |host: &Host, more: &[&str]| {
        let arena = Arena::new(bed, &rootfs);
        let mut words = host.gpuhook(&[&["oci", "createRuntime"], more].concat());
        words.env_clear().stdin(File::open(arena.state()).expect("state"));
        spawned(words)
    };
    // Alone first: what getrusage(2) says is the largest of all children so far.
    for _ in 0..3 {
        opted_out();
        hook(&eight, &["--devices", "all", "--mig-config", "all", "--mig-monitor", "all"]);
        hook(&one, &["--devices", "all", "--imex-channels", &channels]);
    }
    println!("\npeak memory of all of these: at most {} KiB (budget 8192)", peak_of_children());

    compare(
        "the hook, from spawn to exit (budgets: opted out + 0.3 ms, 8 GPUs + 1.5 ms and 3 ms in all)",
        runs,
        &mut [
            ("/bin/true", &mut || spawned(program::command("/bin/true", &[]))),
            ("opted out", &mut opted_out),
            ("1 GPU", &mut || hook(&one, &["--devices", "all"])),
            ("8 GPUs", &mut || hook(&eight, &["--devices", "all"])),
            ("8 GPUs, MIG config and monitor", &mut || {
                hook(&eight, &["--devices", "all", "--mig-config", "all", "--mig-monitor", "all"])
            }),
            // As many nodes as 8 GPUs and 56 capabilities of MIG, and every one a mount of its own.
            ("64 GPUs", &mut || hook(&many, &["--devices", "all"])),
            ("1 GPU, 2048 IMEX channels", &mut || hook(&one, &["--devices", "all", "--imex-channels", &channels])),
        ],
    );
}

fn peak_of_children() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage to `usage`, which outlives the call.
    #[expect(unsafe_code, reason = "rustix has no getrusage")]
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "getrusage");
    // SAFETY: all zeros is a value, and the kernel's is another.
    #[expect(unsafe_code, reason = "rustix has no getrusage")]
    let usage = unsafe { usage.assume_init() };
    usage.ru_maxrss
}

/// Whole lives of containers whose init ends at once.
fn starts(bed: &Bed, runs: usize) {
    let host = Host::new(bed.dir("start-host"), Majors::NEW, 8);
    host.configure("load-modules = false\n[verify]\nl3 = \"warn\"\nl5 = \"off\"\n");
    let bundles = ["bare", "true", "gpuhook"].map(|name| {
        let mut runc = Runc::new(bed, name);
        match name {
            "true" => runc.hook("createRuntime", &["/bin/true".to_owned()]).hook("poststop", &["/bin/true".to_owned()]),
            "gpuhook" => runc
                .hook("createRuntime", &host.oci_hook("createRuntime", &["--devices", "all"]))
                .hook("poststop", &host.oci_hook("poststop", &[])),
            _ => &mut runc,
        };
        fs::write(runc.bundle().join("config.json"), runc.spec().to_string()).expect("config.json");
        (runc.id().to_owned(), runc.bundle())
    });
    let root = bed.dir("runc");
    let runc = |at: usize| {
        let (id, bundle) = &bundles[at];
        let tool = |words: &[&str]| {
            let mut tool = program::command("runc", &["--root"]);
            tool.arg(&root).args(words).stdout(Stdio::null()).stderr(Stdio::null());
            tool
        };
        let mut create = tool(&["create", "--bundle"]);
        create.arg(bundle).arg(id);
        let created = spawned(create);
        created + spawned(tool(&["delete", "--force", id]))
    };
    compare(
        "runc create and delete, 8 GPUs",
        runs,
        &mut [("bare", &mut || runc(0)), ("/bin/true as hooks", &mut || runc(1)), ("gpuhook", &mut || runc(2))],
    );

    let configs = ["bare", "true", "gpuhook"].map(|name| {
        let mut lxc = Lxc::privileged(bed, &format!("l-{name}"));
        lxc.line("lxc.init.cmd = /bin/true");
        match name {
            "true" => lxc
                .line("lxc.hook.pre-start = /bin/true")
                .line("lxc.hook.start-host = /bin/true")
                .line("lxc.hook.post-stop = /bin/true"),
            "gpuhook" => lxc.register(Registration::Include, &host.lxc_hook("--devices all")),
            _ => &mut lxc,
        };
        lxc.write_config();
        lxc
    });
    let start = |at: usize| {
        let mut start = configs[at].tool("lxc-start");
        start.arg("-F").stdout(Stdio::null()).stderr(Stdio::null());
        spawned(start)
    };
    compare(
        "lxc-start until its init has ended, 8 GPUs",
        runs,
        &mut [("bare", &mut || start(0)), ("/bin/true as hooks", &mut || start(1)), ("gpuhook", &mut || start(2))],
    );
    bed.wait_for(&program::gpuhook());
}

/// open(2) and close(2) of /dev/null in a cgroup below another, each with a program of its manager.
fn opens(bed: &Bed) {
    const OPENS: u32 = 20_000;
    let upper = bed.cgroup2().join(format!("{}-o", bed.name()));
    let lower = upper.join("inner");
    fs::create_dir_all(&lower).expect("cgroups");
    attach(&upper);
    attach(&lower);
    rustix::mount::mount("none", "/sys/fs/bpf", "bpf", rustix::mount::MountFlags::empty(), None).expect("bpffs");
    fs::write(lower.join("cgroup.procs"), "0").expect("cgroup");
    let name = |path: &Path| format!("/{}", path.strip_prefix(bed.cgroup2()).expect("below").display());
    let location = |path: &Path| CgroupLocation::V2 { mount: bed.cgroup2().display().to_string(), path: name(path) };
    let rule = DeviceRule { id: DeviceId::new(509, 0), access: Access::READ | Access::WRITE };
    let pins = Pins::new(Path::new("/sys/fs/bpf"), "bench");
    let wrap = |path: &Path| {
        let own = CgroupPath::open(&location(path), &name(path)).expect("cgroup");
        filter::allow(&own, &[rule], Options { method: Method::Wrap, pins: Some(&pins) }).expect("wrap");
    };
    let measure = || {
        let mut times: Vec<f64> = (0..15)
            .map(|_| {
                let began = Instant::now();
                for _ in 0..OPENS {
                    drop(File::open("/dev/null").expect("allowed"));
                }
                began.elapsed().as_secs_f64() * 1e9 / f64::from(OPENS)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[7]
    };
    println!("\nopen and close of a device node under two managers' programs");
    let bare = measure();
    wrap(&upper);
    let one = measure();
    wrap(&lower);
    let two = measure();
    for (wraps, time) in [(0, bare), (1, one), (2, two)] {
        println!("  {wraps} wraps {time:8.0} ns  {:+6.0} ns  x {:.3}", time - bare, time / bare);
    }
    fs::write(bed.cgroup2().join("cgroup.procs"), "0").expect("out of the cgroup");
    fs::remove_dir(&lower).and_then(|()| fs::remove_dir(&upper)).expect("empty cgroups");
    pins.release().expect("pins");
}
