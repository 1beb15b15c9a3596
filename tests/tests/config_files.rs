// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers' configs on disk: what is found, refused, written and undone, also when gpuhook is killed meanwhile, and
//! what a migrated container then is.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuhook_tests::bed::Bed;
use gpuhook_tests::golden::fixtures;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, install};
use gpuhook_tests::program::{self, both, command, gpuhook, output, refusal};

const OLD: &str = "lxc.uts.name = a\nlxc.cgroup2.devices.allow = c 195:* rwm\nlxc.cgroup2.devices.allow = c 504:* rwm\n\
                   lxc.mount.entry = /dev/nvidia1 dev/nvidia1 none bind,optional,create=file\n";

const NEW: &str = "lxc.uts.name = a\nlxc.environment = NVIDIA_VISIBLE_DEVICES=GPU-60e3fb91-8c4d-4a27-bd05-2a918ef74c3d\n\
                   lxc.include = /usr/share/gpuhook/lxc.conf\n";

const OLD_PVE: &str =
    "arch: amd64\nlxc.cgroup2.devices.allow: c 195:* rwm\n\n[snap]\nlxc.cgroup2.devices.allow: c 195:* rwm\n";

const NEW_PVE: &str =
    "arch: amd64\nlxc.include: /usr/share/gpuhook/lxc.conf\n\n[snap]\nlxc.cgroup2.devices.allow: c 195:* rwm\n";

/// `gpuhook config WORDS`, on the fixture host.
fn config(words: &[&str]) -> Command {
    let mut program = command(gpuhook(), &["config"]);
    program.args(words).arg("--host-root").arg(fixtures().join("hosts/upgraded"));
    program.arg("--config").arg(fixtures().join("../../install/config.toml"));
    program
}

fn run(words: &[&str]) -> Output {
    output(config(words))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

/// A folder with the config `name` in it.
fn folder(name: &str, config: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(&path, config).expect("config");
    (dir, path)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn what_is_no_config_is_refused_in_one_sentence_and_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    fs::write(path("prose"), "Dear reader,\nthis is no config.\n").expect("prose");
    fs::write(path("binary"), b"\x7fELF\0lxc.uts.name = a\n").expect("binary");
    File::create(path("huge")).and_then(|file| file.set_len(100 << 20)).expect("100 MiB");
    symlink(path("loop"), path("loop")).expect("a link to itself");
    fs::create_dir(path("directory")).expect("a directory");
    assert!(command("mkfifo", &[shown(&path("fifo"))]).status().expect("mkfifo").success());
    for (name, sentence) in [
        ("prose", "no line of it is a container config's"),
        ("binary", "it is binary"),
        ("huge", "is larger than 1048576 bytes"),
        ("loop", "Too many levels of symbolic links"),
        ("directory", "it is not a regular file"),
        ("fifo", "it is not a regular file"),
        ("absent", "No such file"),
    ] {
        for words in [&["lint"][..], &["lint", "--json"], &["migrate"], &["migrate", "--write"]] {
            let before = fs::metadata(path(name)).map(|metadata| (metadata.len(), metadata.mtime_nsec())).ok();
            let said = refusal(&run(&[words, &[shown(&path(name))]].concat()), 3);
            assert!(said.contains(sentence), "{name} {words:?}: {said}");
            let after = fs::metadata(path(name)).map(|metadata| (metadata.len(), metadata.mtime_nsec())).ok();
            assert_eq!(after, before, "{name} {words:?}");
        }
    }
    assert_eq!(
        names(dir.path()),
        ["binary", "directory", "fifo", "huge", "loop", "prose"],
        "nothing is left beside them"
    );
}

#[test]
fn an_include_without_an_end_is_refused_and_an_absent_one_is_a_finding() {
    let (dir, path) = folder("config", "");
    let include = |file: &Path| format!("lxc.uts.name = a\nlxc.include = {}\n", file.display());
    fs::write(&path, include(&dir.path().join("a.conf"))).expect("config");
    fs::write(dir.path().join("a.conf"), include(&path)).expect("include");
    // Includes are this host's, so they are followed only on this host.
    let here = |words: &[&str]| output(command(gpuhook(), &[&["config"], words, &[shown(&path)]].concat()));
    for words in [&["lint"][..], &["migrate", "--write"]] {
        assert!(refusal(&here(words), 3).contains("so it includes itself"));
    }
    fs::remove_file(dir.path().join("a.conf")).expect("it was there");
    let lint = here(&["lint"]);
    assert_eq!(lint.status.code(), Some(1));
    assert!(both(&lint).contains("malformed-rule"), "{}", both(&lint));
    // LXC does not miss a directory; its own userns.conf includes one that Debian does not ship.
    fs::write(dir.path().join("a.conf"), "lxc.include = /absent/conf.d/\nlxc.cgroup2.devices.allow = a\n")
        .expect("include");
    let lint = here(&["lint"]);
    assert!(both(&lint).contains(&format!("{}:2", dir.path().join("a.conf").display())), "{}", both(&lint));
}

#[test]
fn wrong_words_are_refused() {
    for (words, sentence) in [
        (&[][..], "say lint or migrate"),
        (&["frob"], "\"frob\" is neither lint nor migrate"),
        (&["lint"], "say which config"),
        (&["lint", "--all", "x"], "name no FILE"),
        (&["lint", "--write", "x"], "lint changes nothing"),
        (&["lint", "--kind", "yaml", "x"], "is none of lxc, pve and raw"),
        (&["migrate"], "say which config"),
        (&["migrate", "--json", "x"], "neither --all nor --json"),
        (&["migrate", "--undo", "--write", "x"], "--undo takes no other option"),
    ] {
        let said = refusal(&run(words), 2);
        assert!(said.contains(sentence), "{words:?}: {said}");
    }
}

#[test]
fn the_path_tells_a_proxmox_file_and_the_rest_is_told_when_one_file_cannot_be_read() {
    let (_dir, path) = folder("etc/pve/nodes/px/lxc/129.conf", "lxc.cgroup2.devices.allow = c 504:* rwm\n");
    let lint = run(&["lint", shown(&path), "/absent"]);
    assert_eq!(lint.status.code(), Some(3));
    let said = both(&lint);
    assert!(said.contains("Proxmox config (by its path)") && said.contains("stale-rule"), "{said}");
    assert!(said.contains("gpuhook: read /absent: No such file"), "{said}");
}

#[test]
fn all_finds_the_configs_of_a_host() {
    let host = tempfile::tempdir().expect("a folder");
    let lint = |host: &Path| {
        let lint = output(command(gpuhook(), &["config", "lint", "--all", "--json", "--host-root", shown(host)]));
        let answer: serde_json::Value =
            serde_json::from_slice(&lint.stdout).unwrap_or_else(|_| panic!("{}", both(&lint)));
        let configs = answer["configs"].as_array().expect("configs").iter();
        let file = |config: &serde_json::Value| config["file"].as_str().expect("a file").to_owned();
        configs.map(|config| file(config)[shown(host).len()..].to_owned()).collect::<Vec<_>>()
    };
    let write = |path: &str, text: &str| {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("file");
    };
    assert_eq!(lint(host.path()), [""; 0]);
    write("etc/lxc/lxc.conf", "lxc.lxcpath = /srv/lxc\n");
    write("srv/lxc/a/config", OLD);
    write("srv/lxc/b/rootfs", "");
    write("home/u/.local/share/lxc/c/config", OLD);
    assert_eq!(lint(host.path()), ["/srv/lxc/a/config", "/home/u/.local/share/lxc/c/config"]);
    write("etc/pve/lxc/129.conf", OLD_PVE);
    write("etc/pve/lxc/130.conf.tmp.7", OLD_PVE);
    // LXC's configs are Proxmox's output there.
    assert_eq!(lint(host.path()), ["/etc/pve/lxc/129.conf", "/home/u/.local/share/lxc/c/config"]);
}

#[test]
fn a_migration_is_written_kept_and_undone() {
    let (dir, path) = folder("config", OLD);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).expect("mode");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&path, Some(1234), Some(4321)).expect("owner");
    }
    let owner = |path: &Path| {
        let metadata = fs::metadata(path).expect("metadata");
        (metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
    };
    let before = owner(&path);
    let shows = run(&["migrate", shown(&path)]);
    assert_eq!((text(&path), names(dir.path())), (OLD.to_owned(), vec!["config".to_owned()]), "a diff changes nothing");
    let link = dir.path().join("link");
    symlink(&path, &link).expect("a link");
    let writes = run(&["migrate", "--write", shown(&link)]);
    assert!(writes.status.success(), "{}", both(&writes));
    assert_eq!(text(&path), NEW);
    assert_eq!(owner(&path), before);
    assert!(
        fs::symlink_metadata(&link).expect("link").is_symlink(),
        "the file behind the link is changed, not the link"
    );
    let kept = dir.path().join("config.gpuhook-backup");
    assert_eq!((text(&kept), owner(&kept)), (OLD.to_owned(), before));
    let hunks = |output: &Output| {
        let text = String::from_utf8(output.stdout.clone()).expect("text");
        let from = text.find("@@").unwrap_or_else(|| panic!("no diff: {text}"));
        text[from..].to_owned()
    };
    assert_eq!(hunks(&writes), hunks(&shows));

    let again = run(&["migrate", "--write", shown(&path)]);
    assert!(again.status.success() && again.stdout.is_empty(), "{}", both(&again));
    assert_eq!((text(&path), text(&kept)), (NEW.to_owned(), OLD.to_owned()));

    fs::write(&path, format!("{NEW}lxc.net.0.type = empty\n")).expect("an edit");
    let said = refusal(&run(&["migrate", "--undo", shown(&path)]), 1);
    assert!(said.contains("was changed since its migration (\"lxc.net.0.type: empty\")"), "{said}");
    fs::write(&path, NEW).expect("the edit taken back");
    let undo = run(&["migrate", "--undo", shown(&path)]);
    assert!(undo.status.success(), "{}", both(&undo));
    assert_eq!((text(&path), owner(&path)), (OLD.to_owned(), before));
    assert_eq!(names(dir.path()), ["config", "link"]);
    assert!(refusal(&run(&["migrate", "--undo", shown(&path)]), 3).contains("nothing can be undone"));
}

#[test]
fn a_config_that_somebody_works_on_or_writes_anew_is_left_alone() {
    let (dir, path) = folder("config", OLD);
    let lock = File::open(dir.path()).expect("the folder");
    lock.lock().expect("a lock");
    let said = refusal(&run(&["migrate", "--write", shown(&path)]), 3);
    assert!(said.contains("another program is changing it"), "{said}");
    drop(lock);
    assert_eq!(text(&path), OLD);

    let (dir, path) = folder("etc/pve/lxc/129.conf", &format!("lock: backup\n{OLD_PVE}"));
    let said = refusal(&run(&["migrate", "--write", shown(&path)]), 3);
    assert!(said.contains("`lock: backup`"), "{said}");
    assert!(!text(&path).contains("lxc.include"));
    assert_eq!(names(&dir.path().join("etc/pve/lxc")), ["129.conf"]);

    let (_dir, path) = folder("waydroid/config_nodes", OLD);
    let said = refusal(&run(&["migrate", "--write", shown(&path)]), 1);
    assert!(said.contains("is written by waydroid"), "{said}");
    assert_eq!(text(&path), OLD);
}

/// Whether strace is there; `SKIP` printed where it is not.
fn traced() -> bool {
    let there = program::installed("strace");
    assert!(there || std::env::var_os("GPUHOOK_MUST_WORK").is_none_or(|word| word != "1"), "must work, but no strace");
    if !there {
        println!("SKIP no strace");
    }
    there
}

/// `gpuhook config migrate --write FILE` under strace with these arguments; what it traced goes to the file `trace`.
fn under_strace(arguments: &[&str], trace: &Path, path: &Path) -> Output {
    let plain = config(&["migrate", "--write", shown(path)]);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", shown(trace)]).args(arguments).arg(plain.get_program()).args(plain.get_args());
    output(traced)
}

/// The calls that can change a file or what it is called; each is a place to die at.
const CHANGES: &str =
    "openat,write,rename,renameat,renameat2,unlink,unlinkat,fchmod,fchown,fsync,ftruncate,flock,close";

#[test]
fn a_kill_at_any_point_leaves_the_old_or_the_new_file_whole() {
    if !traced() {
        return;
    }
    let (dir, path) = folder("config", OLD);
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let (mut olds, mut news) = (0, 0);
    for step in 1.. {
        fs::write(&path, OLD).expect("config");
        let kill = format!("inject={CHANGES}:signal=KILL:when={step}");
        let killed = under_strace(&["-e", &format!("trace={CHANGES}"), "-e", &kill], trace.path(), &path);
        let now = text(&path);
        match now.as_str() {
            OLD => olds += 1,
            NEW => news += 1,
            other => panic!("killed at step {step}: {other:?}"),
        }
        if killed.status.success() {
            assert_eq!(now, NEW);
            break;
        }
        // Whatever it left does not keep the next run from its work, and the backup is the old file.
        let next = run(&["migrate", "--write", shown(&path)]);
        assert!(next.status.success(), "after a kill at step {step}: {}", both(&next));
        assert_eq!((text(&path), text(&dir.path().join("config.gpuhook-backup"))), (NEW.to_owned(), OLD.to_owned()));
        assert_eq!(names(dir.path()), ["config", "config.gpuhook-backup"], "after a kill at step {step}");
        assert!(step < 1000, "it never ends");
    }
    assert!(olds > 10 && news > 1, "{olds} old and {news} new files: the kills missed the writing");
}

/// A folder like pmxcfs at /etc/pve, in the bed's own mount namespace.
fn cluster(_bed: &Bed) -> PathBuf {
    for words in [&["mount", "-t", "tmpfs", "none", "/etc"][..], &["mkdir", "-p", "/etc/pve/nodes/px/lxc"]] {
        let done = output(command(words[0], &words[1..]));
        assert!(done.status.success(), "{words:?}: {}", both(&done));
    }
    symlink("nodes/px", "/etc/pve/local").expect("link");
    let path = PathBuf::from("/etc/pve/nodes/px/lxc/129.conf");
    fs::write(&path, OLD_PVE).expect("config");
    path
}

#[test]
fn on_the_cluster_file_system_only_calls_that_it_takes_are_made() {
    let Some(bed) = Bed::pure("pmxcfs") else { return };
    if !traced() {
        return;
    }
    let path = cluster(&bed);
    let alias = Path::new("/etc/pve/local/lxc/129.conf");
    let trace = bed.dir("trace").join("calls");
    // What pmxcfs refuses is refused here.
    let refused = "chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,link,linkat,symlink,symlinkat,mknod,mknodat,\
                   setxattr,fsetxattr,lsetxattr,fallocate,renameat2,utimensat";
    let inject = format!("inject={refused}:error=EPERM");
    let writes = under_strace(&["-e", &inject], &trace, alias);
    assert!(writes.status.success(), "{}", both(&writes));
    assert_eq!(text(&path), NEW_PVE);
    let calls = text(&trace);
    for call in refused.split(',') {
        assert!(!calls.contains(&format!(" {call}(")), "{call} was called:\n{calls}");
    }
    assert!(calls.contains("/run/lock/lxc/pve-config-129.lock"), "Proxmox's own lock");
    let renames: Vec<&str> = calls.lines().filter(|line| line.contains("rename")).collect();
    assert!(renames.iter().all(|line| line.matches("/etc/pve/nodes/px/lxc/129.conf").count() == 2), "{renames:?}");
    assert_eq!(renames.len(), 2, "the backup, and the config: {renames:?}");
    let undo = run(&["migrate", "--undo", shown(alias)]);
    assert!(undo.status.success(), "{}", both(&undo));
    assert_eq!(
        (text(&path), names(path.parent().expect("a folder"))),
        (OLD_PVE.to_owned(), vec!["129.conf".to_owned()])
    );
}

#[test]
fn without_quorum_nothing_changes_and_the_cause_is_named() {
    let Some(bed) = Bed::pure("quorum") else { return };
    if !traced() {
        return;
    }
    let path = cluster(&bed);
    let trace = bed.dir("trace").join("calls");
    // pmxcfs refuses the write itself, or what comes before and after it, as the quorum goes.
    for call in ["write", "rename,renameat"] {
        let inject = format!("inject={call}:error=EACCES:when=1");
        let path_only = shown(&path);
        let refused =
            under_strace(&["-e", &inject, "-P", path_only, "-P", &format!("{path_only}.gpuhook-tmp")], &trace, &path);
        let said = both(&refused);
        assert_eq!(refused.status.code(), Some(3), "{call}: {said}");
        assert!(
            said.contains("without quorum the cluster file system takes no change: pvecm status"),
            "{call}: {said}"
        );
        assert_eq!(text(&path), OLD_PVE, "{call}");
        assert_eq!(names(path.parent().expect("a folder")), ["129.conf"], "{call}");
    }
    let lock = File::options().create(true).append(true).open("/run/lock/lxc/pve-config-129.lock").expect("the lock");
    lock.lock().expect("a lock");
    let said = refusal(&run(&["migrate", "--write", shown(&path)]), 3);
    assert!(said.contains("pve-config-129.lock locked"), "{said}");
}

/// The story: rules of 504 on a host where nvidia-uvm has 509. cuInit fails in the old container; in the migrated one it
/// works, after the next renumbering too.
#[test]
fn a_migrated_container_works_where_the_old_one_failed() {
    let Some(bed) = Bed::pure("migrated") else { return };
    let mut host = Host::new(bed.dir("host"), Majors::NEW, 2);
    // The include that registers gpuhook stands beside the program, as it is installed.
    let installed = install(&bed.dir("prefix"), &host.lxc_hook(""));

    let mut lxc = Lxc::privileged(&bed, "c1");
    lxc.allow("c 195:* rwm").allow("c 504:* rwm");
    for (path, number) in [
        ("/dev/nvidia1", (195, 1)),
        ("/dev/nvidiactl", (195, 255)),
        ("/dev/nvidia-uvm", (509, 0)),
        ("/dev/nvidia-uvm-tools", (509, 1)),
    ] {
        lxc.bind_node(path, number);
    }
    lxc.rootfs().first("node-check /dev/nvidia1 /dev/nvidia0 /dev/nvidia-uvm\ncuda-check\n");
    let old = lxc.start();
    assert_eq!(old.report().cuinit(), 999, "{}", old.story());
    assert_eq!(old.report().open("/dev/nvidia-uvm"), "EPERM", "{}", old.story());
    drop(old);

    let words = |words: &[&str]| {
        let mut program = command(&installed, &["config"]);
        program.args(words).arg(lxc.config()).arg("--host-root").arg(host.root());
        output(program)
    };
    let lint = words(&["lint"]);
    assert_eq!(lint.status.code(), Some(1), "{}", both(&lint));
    // On this host 504 has gone to another driver.
    assert!(both(&lint).contains("error  foreign-grant"), "{}", both(&lint));
    assert!(both(&lint).contains("warning  missing-rule"), "{}", both(&lint));
    let writes = words(&["migrate", "--write", "--remove-foreign"]);
    assert!(writes.status.success(), "{}", both(&writes));
    let lint = words(&["lint"]);
    assert_eq!(lint.status.code(), Some(0), "{}", both(&lint));

    lxc.read_config();
    for majors in [Majors::NEW, Majors { uvm: 505, ..Majors::NEW }] {
        host.renumber(majors);
        let new = lxc.start();
        assert_eq!(new.report().cuinit(), 0, "{majors:?}\n{}", new.story());
        assert_eq!(new.report().devices(), 1, "only the GPU that it had");
        assert!(new.report().node("/dev/nvidia1").is_some() && new.report().node("/dev/nvidia0").is_none());
        bed.wait_for(&installed);
        bed.wait_for(&gpuhook());
        drop(new);
    }
}
