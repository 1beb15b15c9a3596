// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook runtime` in front of the real runc, and in front of a program that says what it was given.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::program::{self, refusal};
use gpuhook_tests::runc::Runc;
use serde_json::{Value, json};

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 2)
}

/// A bundle that asks for GPU 0 under gpuhook's runtime.
fn asking<'bed>(bed: &'bed Bed, host: &Host) -> Runc<'bed> {
    let mut runc = Runc::new(bed, "c1");
    injected::prepare(runc.rootfs(), host.majors());
    runc.env(injected::ENVIRONMENT[0]).through(host.runtime());
    runc
}

/// GPU 0 of the made-up host with all that CUDA needs, and nothing else.
fn assert_one_gpu(container: &dyn Container, majors: Majors) {
    for (path, number) in injected::asked(majors) {
        let is_asked = !path.contains("caps");
        let found = container.report().node(path).map(|node| node.number);
        assert_eq!(found, is_asked.then_some(number), "{path}\n{}", container.story());
        assert_eq!(container.open_own(number) == "EPERM", !is_asked, "{path}");
    }
    for (path, number) in injected::not_asked(majors) {
        assert_eq!(container.report().node(path), None, "{path}");
        assert_eq!(container.open_own(number), "EPERM", "{path}");
    }
    assert_eq!(container.cuda().cuinit(), 0);
}

fn config(runc: &Runc) -> PathBuf {
    runc.bundle().join("config.json")
}

#[test]
fn a_container_gets_its_devices_and_lives_its_life() {
    let Some(bed) = Bed::pure("runtime") else { return };
    let host = host(&bed);
    let runc = asking(&bed, &host);
    let running = runc.start();
    assert_one_gpu(&running, host.majors());
    let state: Value = serde_json::from_str(&program::stdout(runc.tool(&["state", runc.id()]))).expect("a state");
    assert_eq!((&state["status"], &state["id"]), (&json!("running"), &json!(runc.id())));
    assert_eq!(running.exec(&["/bin/sh", "-c", "exit 7"]).status.code(), Some(7), "exec's exit code is the command's");
    let said = running.exec(&["/bin/sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"]);
    assert_eq!(program::both(&said), "void\n", "for other injectors");
    program::stdout(runc.tool(&["kill", runc.id(), "KILL"]));
    drop(running);
    assert!(!program::output(runc.tool(&["state", runc.id()])).status.success(), "deleted");
    bed.wait_for(&program::gpuhook());
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn create_and_start_apart_and_run_in_the_foreground_do_as_runc_does() {
    let Some(bed) = Bed::pure("runtime-life") else { return };
    let host = host(&bed);
    let mut runc = asking(&bed, &host);
    runc.spec()["process"]["args"] = json!(["/bin/sh", "-c", "[ -c /dev/nvidia-uvm ] && exit 7"]);
    runc.write();
    let run = |command: &str| {
        let mut run = runc.tool(&[command, "--bundle"]);
        run.arg(runc.bundle()).arg(runc.id()).stdout(Stdio::null()).stderr(Stdio::null());
        run.status().expect("a runtime").code()
    };
    assert_eq!(run("run"), Some(7), "run's exit code is init's");
    assert_eq!(run("create"), Some(0));
    let state: Value = serde_json::from_str(&program::stdout(runc.tool(&["state", runc.id()]))).expect("a state");
    assert_eq!(state["status"], "created");
    program::stdout(runc.tool(&["start", runc.id()]));
    program::stdout(runc.tool(&["delete", "--force", runc.id()]));
}

#[test]
fn the_same_bundle_is_renewed_when_the_numbers_change() {
    let Some(bed) = Bed::pure("runtime-renew") else { return };
    let mut host = host(&bed);
    let runc = asking(&bed, &host);
    runc.write();
    fs::set_permissions(config(&runc), PermissionsExt::from_mode(0o640)).expect("mode");
    // What a wrapper leaves that is killed before its rename.
    fs::write(runc.bundle().join("config.json.gpuhook-tmp"), "{").expect("half a file");
    for majors in [Majors::NEW, Majors::NEXT, Majors::OLD] {
        host.renumber(majors);
        injected::prepare(runc.rootfs(), majors);
        assert_one_gpu(&runc.try_run().unwrap_or_else(|story| panic!("{story}")), majors);
    }
    assert_eq!(fs::metadata(config(&runc)).expect("config.json").mode() & 0o7777, 0o640);
    let names: Vec<_> =
        fs::read_dir(runc.bundle()).expect("the bundle").flatten().map(|entry| entry.file_name()).collect();
    assert!(names.iter().all(|name| ["config.json", "rootfs"].contains(&name.to_str().expect("UTF-8"))), "{names:?}");
}

#[test]
fn a_bundle_that_asks_for_nothing_is_not_written() {
    let Some(bed) = Bed::pure("runtime-nothing") else { return };
    let host = host(&bed);
    host.overwrite("proc/devices", "no driver");
    let mut runc = Runc::new(&bed, "c1");
    injected::prepare(runc.rootfs(), host.majors());
    runc.through(host.runtime()).write();
    let before = fs::metadata(config(&runc)).expect("config.json");
    injected::assert_nothing(&runc.try_run().unwrap_or_else(|story| panic!("{story}")), host.majors());
    let after = fs::metadata(config(&runc)).expect("config.json");
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

#[test]
fn what_is_no_start_is_runcs_word_for_word() {
    let Some(bed) = Bed::pure("runtime-words") else { return };
    let host = host(&bed);
    let [mut plain, mut wrapped] = ["a", "b"].map(|name| Runc::new(&bed, name));
    let found = ["/usr/bin/runc", "/usr/sbin/runc"].into_iter().find(|path| Path::new(path).exists()).expect("runc");
    plain.through(vec![found.to_owned()]);
    wrapped.through(host.runtime());
    let missing = bed.dir("empty").to_string_lossy().into_owned();
    for words in [
        &["--version"][..],
        &["features"],
        &["list"],
        &["state", "none"],
        &["no-such-command"],
        &["--no-such-option"],
        &["kill", "none", "KILL"],
        &["create"],
        &["create", "--bundle", &missing, "none"],
        &["run", "--bundle", "/no/such/bundle", "none"],
        &["exec", "none", "create"],
    ] {
        let [real, ours] = [&plain, &wrapped].map(|runc| program::output(runc.tool(words)));
        assert_eq!(ours.status.code(), real.status.code(), "{words:?}");
        let untimed = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            text.lines()
                .map(|line| line.split_once(" level=").map_or(line, |(_, rest)| rest).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(untimed(&ours.stdout), untimed(&real.stdout), "{words:?}");
        assert_eq!(untimed(&ours.stderr), untimed(&real.stderr), "{words:?}");
    }
}

/// A program in the place of runc that says what it got.
fn recorder(bed: &Bed, host: &Host) -> PathBuf {
    let path = bed.dir("bin").join("recorder");
    let script = "#!/bin/sh\nprintf '<%s>' \"$0\" \"$@\"; echo\npwd\necho \"GREETING=$GREETING\"\n\
                  ls /proc/self/fd | tr '\\n' ' '\nexit 42\n";
    fs::write(&path, script).expect("a program");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("mode");
    host.configure(&format!("runtime = {:?}\n", path.display().to_string()));
    path
}

/// Passes descriptor 77 on, and blocks SIGUSR1.
#[expect(unsafe_code, reason = "only between fork and exec can that be done, and rustix has neither")]
fn with_inheritance(command: &mut Command) {
    let inherit = || {
        // SAFETY: all zeros is a set of signals, the empty one.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes to `set`, which outlives the call.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR1) };
        // SAFETY: reads `set`, which outlives the call.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        // SAFETY: 77 is nobody's: the child has its standard three.
        unsafe { libc::dup2(0, 77) };
        Ok(())
    };
    // SAFETY: it makes system calls on its own stack alone.
    unsafe { command.pre_exec(inherit) };
}

#[test]
fn arguments_environment_descriptors_and_exit_code_are_as_without_it() {
    let Some(bed) = Bed::pure("runtime-exec") else { return };
    let host = host(&bed);
    let program = recorder(&bed, &host);
    let wrapper = host.runtime();
    let said = |first: &Path, words: &[String]| {
        let mut command = Command::new(first);
        command.args(words).args(["--root", "/r", "exec", "--tty", "", "a b"]).arg(OsStr::from_bytes(b"b\xffd"));
        command.env("GREETING", "hello").current_dir("/usr").stdin(Stdio::null());
        with_inheritance(&mut command);
        let output = command.output().expect("a program");
        assert_eq!(output.status.code(), Some(42), "{}", program::both(&output));
        output.stdout
    };
    let ours = said(Path::new(&wrapper[0]), &wrapper[1..]);
    let real = said(&program, &[]);
    assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&real));
    let text = String::from_utf8_lossy(&real).into_owned();
    assert!(text.contains("<a b>") && text.contains("GREETING=hello\n") && text.contains("\n/usr\n"), "{text}");
    assert!(text.contains(" 77 "), "{text}");
}

#[test]
fn an_update_that_brings_rules_keeps_the_gpu() {
    let Some(bed) = Bed::pure("runtime-update") else { return };
    let host = host(&bed);
    let runc = asking(&bed, &host);
    let running = runc.start();
    // runc's own state, and what a runtime would read that builds its filter from an update.
    let program = bed.dir("bin").join("reader");
    let real = ["/usr/bin/runc", "/usr/sbin/runc"].into_iter().find(|path| Path::new(path).exists()).expect("runc");
    let script = format!(
        "#!/bin/sh\nfor word; do case $word in state) exec {real} \"$@\";; -) exec cat;; /*.json) exec cat \"$word\";; esac; done\n"
    );
    fs::write(&program, script).expect("a program");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("mode");
    host.configure(&format!("runtime = {:?}\n", program.display().to_string()));
    let sent = json!({ "memory": { "limit": 1 }, "devices": [{ "allow": false, "access": "rwm" }] });
    let file = bed.dir("limits").join("resources.json");
    let read = |words: &[&str], id: &str, sent: &Value| -> Value {
        fs::write(&file, sent.to_string()).expect("limits");
        let mut update = runc.tool(&["update"]);
        update.args(words).arg(id);
        let output = program::fed(update, sent.to_string().as_bytes());
        assert!(output.status.success(), "{}", program::both(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", program::both(&output)))
    };
    let opens = |read: &Value, (major, minor): (u32, u32)| {
        let rule = json!({ "allow": true, "type": "c", "major": major, "minor": minor, "access": "rw" });
        read["devices"].as_array().is_some_and(|rules| rules.contains(&rule))
    };
    for words in [&["--resources", "-"][..], &["--resources", file.to_str().expect("UTF-8")]] {
        let kept = read(words, runc.id(), &sent);
        assert_eq!((&kept["memory"], &kept["devices"][0]), (&sent["memory"], &sent["devices"][0]), "{words:?}");
        for (path, number) in injected::asked(host.majors()) {
            assert_eq!(opens(&kept, number), !path.contains("caps"), "{path}: {kept}");
        }
        for unchanged in [json!({ "memory": { "limit": 1 } }), json!({ "devices": [] })] {
            assert_eq!(read(words, runc.id(), &unchanged), unchanged, "{words:?}");
        }
        assert_eq!(read(words, "another", &sent), sent, "no container of that name");
    }
    drop(running);
}

#[test]
fn signals_are_blocked_and_ignored_as_without_it() {
    let Some(bed) = Bed::pure("runtime-signals") else { return };
    let host = host(&bed);
    let grep = ["/usr/bin/grep", "/bin/grep"].into_iter().find(|path| Path::new(path).exists()).expect("grep");
    host.configure(&format!("runtime = {grep:?}\n"));
    let wrapper = host.runtime();
    let said = |first: &str, words: &[String]| {
        let mut command = Command::new(first);
        command.args(words).args(["-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]);
        with_inheritance(&mut command);
        program::stdout(command)
    };
    let real = said(grep, &[]);
    assert_eq!(said(&wrapper[0], &wrapper[1..]), real);
    assert!(real.contains("SigBlk:\t0000000000000200\n"), "{real}");
}

#[test]
fn under_its_second_name_it_is_the_runtime() {
    let Some(bed) = Bed::pure("runtime-name") else { return };
    let link = bed.dir("bin").join("gpuhook-runtime");
    symlink(program::gpuhook(), &link).expect("a link");
    let said = program::stdout(program::command(&link, &["--version"]));
    assert!(said.starts_with("runc version"), "{said}");
}

#[test]
fn a_refused_container_is_explained_in_the_log_and_its_bundle_stays() {
    let Some(bed) = Bed::pure("runtime-refused") else { return };
    let host = host(&bed);
    let mut runc = asking(&bed, &host);
    runc.spec()["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=7"]);
    runc.write();
    let before = fs::read(config(&runc)).expect("config.json");
    for (format, begin) in
        [("json", "{\"level\":\"error\",\"msg\":\"gpuhook: "), ("text", "level=error msg=\"gpuhook: ")]
    {
        let log = bed.dir("logs").join(format);
        let mut create = runc.tool(&["--log-format", format, "--log"]);
        create.arg(&log).args(["create", "--bundle"]).arg(runc.bundle()).arg(runc.id());
        let sentence = refusal(&program::output(create), 1);
        assert!(sentence.contains("no GPU"), "{sentence}");
        let logged = fs::read_to_string(&log).expect("the log");
        assert!(logged.starts_with(begin) && logged.ends_with('\n') && logged.contains("no GPU"), "{logged}");
    }
    assert_eq!(fs::read(config(&runc)).expect("config.json"), before);
}

#[test]
fn a_spec_that_cannot_be_read_leaves_the_bundle_as_it_was() {
    let Some(bed) = Bed::pure("runtime-odd") else { return };
    let host = host(&bed);
    let runc = asking(&bed, &host);
    let asks = r#""process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}"#;
    for text in
        ["", "{", "[]", &format!(r#"{{{asks},"linux":[]}}"#), &format!(r#"{{{asks},"hooks":{{"poststop":1}}}}"#)]
    {
        fs::write(config(&runc), text).expect("config.json");
        let mut create = runc.tool(&["create", "--bundle"]);
        create.arg(runc.bundle()).arg(runc.id());
        refusal(&program::output(create), 1);
        assert_eq!(fs::read_to_string(config(&runc)).expect("config.json"), *text);
        assert_eq!(fs::read_dir(runc.bundle()).expect("the bundle").count(), 2, "a file was left");
    }
}

#[test]
fn a_runtime_that_others_could_change_is_not_executed() {
    let Some(bed) = Bed::pure("runtime-trust") else { return };
    let host = host(&bed);
    let program = recorder(&bed, &host);
    let refused = || {
        let wrapper = host.runtime();
        let mut command = program::command(&wrapper[0], &[]);
        command.args(&wrapper[1..]).arg("--version");
        refusal(&program::output(command), 1)
    };
    fs::set_permissions(&program, PermissionsExt::from_mode(0o775)).expect("mode");
    assert!(refused().contains("not root's alone to change"));
    fs::set_permissions(&program, PermissionsExt::from_mode(0o644)).expect("mode");
    assert!(refused().contains("no program"));
    for (named, why) in [
        ("runc", "no absolute path"),
        ("/no/such/runc", "look at the runtime"),
        (&program::gpuhook().display().to_string(), "gpuhook itself"),
    ] {
        host.configure(&format!("runtime = {named:?}\n"));
        let said = refused();
        assert!(said.contains(why), "{named}: {said}");
    }
}
