// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configs as people write them, and as nobody should.

use super::*;

/// A source of a few files and directories; anything else is `fmt::Error`.
fn source(files: Vec<(String, Source)>) -> impl FnMut(&str) -> Result<Source, fmt::Error> {
    move |path| files.iter().find(|(known, _)| known == path).map(|(_, found)| found.clone()).ok_or(fmt::Error)
}

fn file(path: &str, text: impl AsRef<[u8]>) -> (String, Source) {
    (path.to_owned(), Source::File(text.as_ref().to_vec()))
}

fn config(text: impl AsRef<[u8]>) -> LxcConfig {
    LxcConfig::read("config", &mut source(vec![file("config", text)])).expect("a config that LXC takes")
}

fn failure(files: Vec<(String, Source)>) -> String {
    LxcConfig::read("config", &mut source(files)).expect_err("not a config").to_string()
}

#[test]
fn lines_are_read_as_lxc_reads_them() {
    let config = config(
        "# comment\n\tlxc.uts.name=c1\nlxc.net.0.type   =   veth \t\n\nfoo = bar\nlxc.init.cmd = \"/sbin/init x=y\"\n\
         lxc.a = 'x\nlxc.b = '\nlxc.c = ''\nlxc.d = x # y\n [section]\nlxc.e = last",
    );
    let lines: Vec<_> = config.entries.iter().map(|e| (e.place.line, e.key.as_str(), e.value.as_str())).collect();
    assert_eq!(
        lines,
        [
            (2, "lxc.uts.name", "c1"),
            (3, "lxc.net.0.type", "veth"),
            (6, "lxc.init.cmd", "/sbin/init x=y"),
            (7, "lxc.a", "'x"),
            (8, "lxc.b", "'"),
            (9, "lxc.c", ""),
            (10, "lxc.d", "x # y"),
            (12, "lxc.e", "last"),
        ]
    );
}

#[test]
fn an_empty_value_clears_what_stood_before() {
    let config = config(
        "lxc.hook.pre-start = a\nlxc.hook.start-host = b\nlxc.hook.pre-start =\nlxc.hook.pre-start = c\n\
         lxc.cgroup2.devices.allow = c 1:3 rwm\nlxc.cgroup.dir.container = lxc/1\nlxc.cgroup.devices.deny = a\n\
         lxc.cgroup =\nlxc.environment = A=1\nlxc.environment.runtime = B=2\nlxc.environment =\n",
    );
    assert_eq!(config.hooks("pre-start"), ["c"]);
    assert_eq!(config.hooks("start-host"), ["b"]);
    assert_eq!(config.values("lxc.cgroup2.devices.allow"), ["c 1:3 rwm"]);
    assert_eq!(config.values("lxc.cgroup.devices.deny"), Vec::<&str>::new());
    assert_eq!(config.cgroup_dir_container(), Some("lxc/1"));
    assert_eq!((config.environment(), config.image_environment()), (vec![], vec![("B", "2")]));

    let config = self::config("lxc.hook.mount = a\nlxc.hook.start-host = b\nlxc.hook =\nlxc.hook.mount = c");
    assert_eq!((config.hooks("mount"), config.hooks("start-host")), (vec!["c"], vec![]));
}

#[test]
fn the_environment_keeps_its_order_and_skips_names_without_a_value() {
    let config = config(
        "lxc.environment = NVIDIA_VISIBLE_DEVICES=0\nlxc.environment.hooks = C=\nlxc.environment = HOME\n\
         lxc.environment = NVIDIA_VISIBLE_DEVICES=a=b\nlxc.environment.other = D=1\n",
    );
    let expected = [("NVIDIA_VISIBLE_DEVICES", "0"), ("C", ""), ("NVIDIA_VISIBLE_DEVICES", "a=b")];
    assert_eq!(config.environment(), expected);
}

#[test]
fn includes_are_read_where_they_stand() {
    let directory = ["b.conf", "a.conf", ".conf", "README", "x.conf.bak"].map(str::to_owned).to_vec();
    let files = vec![
        file("config", "lxc.x = 1\nlxc.include = /common\nlxc.include =\nlxc.include = \"/d\"\nlxc.x = 5"),
        file("/common", "lxc.x = 2\n"),
        ("/d".to_owned(), Source::Directory(directory)),
        file("/d/b.conf", "lxc.x = 4\nlxc.include = /common"),
        file("/d/a.conf", "lxc.x = 3"),
    ];
    let config = LxcConfig::read("config", &mut source(files)).expect("all files are there");
    assert_eq!(config.values("lxc.x"), ["1", "2", "3", "4", "2", "5"]);
    let places: Vec<_> =
        config.entries.iter().filter(|e| e.key == "lxc.x").map(|entry| entry.place.to_string()).collect();
    assert_eq!(places, ["config:1", "/common:1", "/d/a.conf:1", "/d/b.conf:1", "/common:1", "config:5"]);
}

#[test]
fn includes_without_an_end_and_missing_files_are_refused_by_name() {
    let include = |path: &str| format!("\nlxc.include = {path}");
    assert_eq!(
        failure(vec![file("config", include("a")), file("a", include("config"))]),
        "read config, which a:2 includes: it is being read already, so it includes itself"
    );
    let deep = (0..20).map(|n| file(&format!("f{n}"), include(&format!("f{}", n + 1))));
    assert_eq!(
        failure(deep.chain([file("config", include("f0"))]).collect()),
        "read f15, which f14:2 includes: files include each other more than 16 deep"
    );
    let wide = (0..6).map(|n| file(&format!("f{n}"), include(&format!("f{}", n + 1)).repeat(8)));
    let wide = wide.chain([file("config", include("f0")), file("f6", "")]);
    assert!(failure(wide.collect()).ends_with("the config consists of more than 1024 files"));

    let error = LxcConfig::read("config", &mut source(vec![file("config", include("/gone\x1b[2J"))]));
    let error = error.expect_err("the file is not there");
    assert_eq!(error.to_string(), "read /gone\\u{1b}[2J, which config:2 includes");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(failure(vec![]), "read config");
}

#[test]
fn a_line_on_which_lxc_does_not_start_is_named() {
    assert_eq!(
        failure(vec![file("config", "lxc.uts.name = c\nlxc.hook.start-host: gpuhook\x1b lxc\n")]),
        "read config:2: \"lxc.hook.start-host: gpuhook\\u{1b} lxc\" is not KEY = VALUE; LXC does not start on it"
    );
}

#[test]
fn id_maps_and_ids_are_read_or_refused() {
    let config = self::config(
        "lxc.idmap = u 0 1 2\nlxc.idmap =\nlxc.idmap = u 0 100000 65536\nlxc.idmap = g  0 200000\t1000\n\
         lxc.idmap = g 1000 44 1\nlxc.init.uid = 5\nlxc.init.gid = 6\nlxc.init.gid =\n",
    );
    let users = IdMap(vec![(0, 100_000, 65_536)]);
    let groups = IdMap(vec![(0, 200_000, 1000), (1000, 44, 1)]);
    assert_eq!(config.idmap(), Ok((users, groups)));
    assert_eq!((config.init_uid(), config.init_gid()), (Ok(5), Ok(0)));

    for value in ["u 0 100000", "b 0 100000 65536", "u 0 -1 5", "u a b c", "u 0 100000 65536 1", "u 0 4294967296 1"] {
        let error = self::config(format!("\nlxc.idmap = {value}")).idmap().expect_err(value).to_string();
        assert_eq!(error, format!("read config:2: lxc.idmap is \"{value}\", not u|g FIRST-INSIDE FIRST-OUTSIDE COUNT"));
    }
    for value in ["root", "010", "0x10", "+5", "-1", "4294967296"] {
        let error = self::config(format!("lxc.init.uid = {value}")).init_uid().map_err(|error| error.to_string());
        assert_eq!(error, Err(format!("read config:1: lxc.init.uid is \"{value}\", not a decimal number")));
    }
    assert_eq!(LxcConfig::default().idmap(), Ok((IdMap::default(), IdMap::default())));
}

#[test]
fn single_values_are_the_last_that_was_set() {
    let config = config(
        "lxc.cgroup.dir = lxc\nlxc.cgroup.dir.container = lxc/129\nlxc.cgroup.dir.container.inner = ns\n\
         lxc.rootfs.path = dir:/a\nlxc.rootfs.path = dir:/b\n",
    );
    assert_eq!(config.cgroup_dir(), Some("lxc"));
    assert_eq!(config.cgroup_dir_container(), Some("lxc/129"));
    assert_eq!(config.cgroup_dir_container_inner(), Some("ns"));
    assert_eq!(config.rootfs_path(), Some("dir:/b"));
    assert_eq!(config.value("lxc.rootfs"), None);
}

#[test]
fn registration_is_told_per_stage() {
    let config = config(
        "lxc.hook.pre-start = /usr/bin/gpuhook lxc\nlxc.hook.start-host = /usr/share/other\n\
         lxc.hook.post-stop = gpuhook lxc\nlxc.hook.post-stop =\n",
    );
    let stages = ["pre-start", "start-host", "post-stop", "mount"].map(|stage| config.registered(stage));
    assert_eq!(stages, [true, false, false, false]);
}

#[test]
fn a_proxmox_config_is_read_up_to_its_first_section() {
    let text = "#about gpu\narch: amd64\nunprivileged: 1\nlxc.include: /hook.conf\n\
                lxc.environment: NVIDIA_VISIBLE_DEVICES=all\nlxc.idmap = u 0 100000 65536\n\
                lxc.cgroup2.devices.allow : c 1:1 rwm\n236:* rwm\nlxc.cgroup2.devices.allow: c 195:* rwm\n\n\
                [before]\nlxc.environment: NVIDIA_VISIBLE_DEVICES=void\n";
    let files = vec![file("129.conf", text), file("/hook.conf", "lxc.hook.start-host = gpuhook lxc\n")];
    let config = LxcConfig::read_proxmox("129.conf", &mut source(files)).expect("a Proxmox config");
    assert_eq!(config.value("unprivileged"), Some("1"));
    assert_eq!(config.environment(), [("NVIDIA_VISIBLE_DEVICES", "all")]);
    assert_eq!(config.values("lxc.idmap"), ["u 0 100000 65536"]);
    assert_eq!(config.values("lxc.cgroup2.devices.allow"), ["c 195:* rwm"]);
    assert!(config.registered("start-host"));
}

#[test]
fn bytes_that_are_no_text_do_not_stop_the_reading() {
    let config = config(b"# caf\xe9\nlxc.environment = A=\xff\nlxc.uts.name = c1 \r\n\r\n=\nlxc. = 1\n".as_slice());
    assert_eq!(config.environment(), [("A", "\u{fffd}")]);
    assert_eq!(config.value("lxc.uts.name"), Some("c1"));
    let config = self::config("lxc.environment = A=1\0 2\nlxc.environment = A=3\n");
    assert_eq!(config.environment(), [("A", "1")]);
    let long = "y".repeat(1 << 20);
    let config = self::config(format!("lxc.environment = A={long}\nlxc.hook.mount = '{long}"));
    assert_eq!(config.environment(), [("A", long.as_str())]);
    assert!(!config.registered("mount"));
}

#[test]
fn lxcs_own_hook_for_nvidia_is_known_by_its_line() {
    for (text, is_there) in [
        ("lxc.hook.mount = /usr/share/lxc/hooks/nvidia\n", true),
        ("lxc.hook.mount = /usr/share/lxc/hooks/other\n", false),
        ("lxc.hook.mount = /usr/share/lxc/hooks/nvidia\nlxc.hook.mount =\n", false),
        ("lxc.hook.start-host = /usr/bin/gpuhook lxc\n", false),
    ] {
        assert_eq!(config(text).has_legacy_hook(), is_there, "{text}");
    }
}
