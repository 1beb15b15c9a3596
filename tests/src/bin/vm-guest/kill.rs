// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many at once, and hooks that die half-way: nothing may stay behind.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gpuhook_tests::host::Majors;
use gpuhook_tests::inside::Container;
use gpuhook_tests::program;

use crate::driver::Driver;
use crate::kept::{self, Kept};
use crate::lxc::{INCLUDE, Lxc};
use crate::seen;

const MAJORS: Majors = Majors::NEW;

pub(crate) fn fifty_containers_at_once_get_their_devices_and_leave_nothing() {
    Driver::with(MAJORS).load();
    let before = Kept::now();
    let mut first = Lxc::privileged("many");
    first.ask(MAJORS, INCLUDE).write_config();
    let names: Vec<String> = (1..=50).map(|number| format!("many{number}")).collect();
    let config = fs::read_to_string(first.config()).expect("config");
    for name in &names {
        let dir = Path::new("/var/lib/lxc").join(name);
        fs::create_dir_all(&dir).expect("folder of the container");
        fs::write(dir.join("config"), config.replace("= many\n", &format!("= {name}\n"))).expect("config");
    }
    // All share one root, whose init would wait for a reader of its report: this one needs none.
    first.rootfs().write("/sbin/init", "#!/bin/busybox sh\nexec busybox sleep 2147483647\n");
    let starts: Vec<_> = names.iter().map(|name| program::command("lxc-start", &["-n", name]).spawn()).collect();
    let started =
        starts.into_iter().map(|child| child.and_then(|mut child| child.wait()).is_ok_and(|end| end.success()));
    let refused = started.filter(|started| !started).count();
    kept::wait_for_gpuhook();
    let check = |name| program::command("lxc-attach", &["-n", name, "--", "/bin/cuda-check"]);
    let checks = names.iter().map(|name| (name, program::both(&program::output(check(name)))));
    let wrong: Vec<_> = checks.filter(|(_, said)| said.trim() != "cuInit=0 devices=1").collect();
    for name in &names {
        program::output(program::command("lxc-stop", &["-k", "-n", name]));
    }
    for name in &names {
        program::output(program::command("lxc-wait", &["-n", name, "-s", "STOPPED", "-t", "60"]));
        let _removed = fs::remove_dir_all(Path::new("/var/lib/lxc").join(name));
    }
    kept::wait_for_gpuhook();
    assert!(refused == 0 && wrong.is_empty(), "{refused} refused; {wrong:?}\n{}", crate::lxc::journal());
    before.assert_nothing_new();
}

/// How often a hook is killed: `gpuhook.kills=` on the kernel's command line.
pub(crate) fn kills() -> u32 {
    let line = fs::read_to_string("/proc/cmdline").expect("the kernel's command line");
    let number = line.split_whitespace().find_map(|word| word.strip_prefix("gpuhook.kills="));
    number.and_then(|number| number.parse().ok()).unwrap_or(20)
}

/// gpuhook as a hook; from stage `STAGE` on, so many microseconds later, its processes that `/run/kill-which` names are
/// killed, also those that it left in the background. The killer leaves the monitor's cgroup, which LXC could not remove
/// with it inside.
const KILLER: &str = "#!/bin/sh
if [ \"$3\" = STAGE ]; then
	sh -c 'echo $$ >/sys/fs/cgroup/cgroup.procs; busybox usleep \"$(cat /run/kill-after)\"; pkill -9 -x $(cat /run/kill-which) gpuhook
		touch /run/killed' </dev/null >/dev/null 2>&1 &
fi
exec /usr/bin/gpuhook lxc \"$@\"
";

/// Kills those of gpuhook's processes that `which` names (options of pkill, in turns) at points spread over the time that a
/// whole start takes, and looks at what each leaves.
fn killed(stage: &str, stages: &[&str], which: &[&str]) {
    let window = how_long_a_start_takes();
    fs::write("/usr/local/bin/killed-hook", KILLER.replace("STAGE", stage)).expect("the killer");
    program::stdout(program::command("chmod", &["755", "/usr/local/bin/killed-hook"]));
    let before = Kept::now();
    let mut lxc = Lxc::privileged("c1");
    let lines: Vec<_> = stages.iter().map(|stage| format!("lxc.hook.{stage} = /usr/local/bin/killed-hook")).collect();
    lxc.ask(MAJORS, &lines.join("\n")).write_config();
    lxc.rootfs().write("/sbin/init", "#!/bin/busybox sh\nexec busybox sleep 2147483647\n");
    let (mut ran, mut refused) = (0, 0);
    let kills = kills();
    for step in 0..kills {
        // Spread, and off the beat of whatever the hook does at equal distances.
        let after = window * step / kills + Duration::from_micros(u64::from(step * 7919 % 1000));
        fs::write("/run/kill-after", after.as_micros().to_string()).expect("moment of the kill");
        let which = which[step as usize % which.len()];
        fs::write("/run/kill-which", which).expect("whom to kill");
        let _none_before_the_first = fs::remove_file("/run/killed");
        let start = program::output(lxc.tool("lxc-start"));
        let settled = settle(&lxc);
        let said =
            || format!("killed ({which}) after {after:?}: {settled}\n{}\n{}", program::both(&start), lxc.story());
        match settled {
            "RUNNING" => {
                let mut attach = lxc.tool("lxc-attach");
                attach.args(["--", "/bin/cuda-check"]);
                let cuda = program::both(&program::output(attach));
                assert_eq!(cuda.trim(), "cuInit=0 devices=1", "it runs, so it has its GPU; {}", said());
                ran += 1;
            }
            "STOPPED" => refused += 1,
            _ => panic!("neither running nor stopped; {}", said()),
        }
        let mut stop = lxc.tool("lxc-stop");
        stop.arg("-k");
        program::output(stop);
        let mut wait = lxc.tool("lxc-wait");
        wait.args(["-s", "STOPPED", "-t", "30"]);
        program::stdout(wait);
        kept::wait_for_gpuhook();
        before.assert_nothing_new();
    }
    println!(
        "COUNT gpuhook killed {kills} times from {stage} on: {ran} starts with GPU, {refused} refused, nothing left"
    );
    assert!(refused > 0, "the first kills come before the hook has done anything");
}

/// What becomes of a container whose start has returned: running for good, or not.
fn settle(lxc: &Lxc) -> &'static str {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut info = lxc.tool("lxc-info");
        info.arg("-sH");
        let state = program::both(&program::output(info));
        let gpuhook_done = Path::new("/run/killed").exists() && kept::processes("gpuhook").is_empty();
        match state.trim() {
            "RUNNING" if gpuhook_done => return "RUNNING",
            "STOPPED" if gpuhook_done => return "STOPPED",
            "FROZEN" if Instant::now() > deadline => return "FROZEN",
            _ if Instant::now() > deadline => return "UNSETTLED",
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

pub(crate) fn a_hook_killed_at_start_host_leaves_nothing() {
    killed("start-host", &["pre-start", "start-host", "post-stop"], &["-e"]);
}

pub(crate) fn a_hook_killed_with_pre_start_alone_leaves_nothing() {
    // Not all at once: one injects and one refuses where the first is killed. post-stop as well, since only that removes
    // the report of a start that was killed while it handed back.
    killed("pre-start", &["pre-start", "post-stop"], &["--oldest", "--newest"]);
}

/// With all that gpuhook does after it.
fn how_long_a_start_takes() -> Duration {
    Driver::with(MAJORS).load();
    let mut lxc = Lxc::privileged("c1");
    lxc.ask(MAJORS, INCLUDE);
    let start = Instant::now();
    let running = lxc.start();
    kept::wait_for_gpuhook();
    let took = start.elapsed();
    seen::assert_exact(&running, MAJORS);
    assert_eq!(running.report().cuinit(), 0);
    drop(running);
    kept::wait_for_gpuhook();
    took
}
