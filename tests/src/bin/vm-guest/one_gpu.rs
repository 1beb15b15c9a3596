// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be seen in a container that asks for GPU 0 by its environment alone, as an image would: the GPU with all that
//! CUDA needs, no right beyond, whoever runs the container.

use std::path::Path;
use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::inside::Inside;
use gpuhook_tests::program;
use gpuhook_tests::rootfs::Rootfs;

use crate::{driver, kept, lxc, seen};

/// What the container asks with.
pub(crate) const VARIABLE: &str = injected::ENVIRONMENT[0];

/// A root whose init needs no reader of its report.
pub(crate) fn rootfs(dir: &str) -> Rootfs {
    let rootfs = seen::rootfs(dir);
    rootfs.write("/sbin/init", "#!/bin/busybox sh\nexec /bin/busybox sleep 2147483647\n");
    rootfs
}

/// `rootfs` as the image `name` of podman or docker.
pub(crate) fn import(engine: &str, rootfs: &Rootfs, name: &str) {
    // An image holds no FIFO.
    let script = format!("tar -C {} --exclude ./report -c . | {engine} import - {name}", rootfs.dir().display());
    program::stdout(program::command("sh", &["-c", &script]));
}

/// All of it opens, CUDA's stand-in initialises, the driver counts the opens, and every other number is refused.
/// `exec` runs in the container what is added to it.
pub(crate) fn assert_exact(mut exec: Command, majors: Majors) {
    let is_asked = |path: &str| !path.contains("caps");
    let own = |path: &str| format!("/dev/own{}", path.replace('/', "-"));
    let mut script = "export PATH=/bin; cuda-check; node-check".to_owned();
    injected::asked(majors).iter().for_each(|(path, _)| script += &format!(" {path}"));
    let others: Vec<_> = injected::asked(majors)
        .into_iter()
        .filter(|(path, _)| !is_asked(path))
        .chain(injected::not_asked(majors))
        .collect();
    for (path, (major, minor)) in &others {
        script += &format!("; node-check --mknod {major}:{minor} {}", own(path));
    }
    driver::forget_opens();
    exec.args(["/bin/sh", "-c", &script]);
    let said = Inside(program::both(&program::output(exec)));
    let story = || format!("{}\n{}", said.0, lxc::journal());
    assert!(said.0.contains("cuInit="), "{}", story());
    for (path, _) in injected::asked(majors) {
        let expected = if is_asked(path) { "OK" } else { "ENOENT" };
        assert_eq!(said.open(path), expected, "{path}\n{}", story());
    }
    for (path, _) in &others {
        let own = own(path);
        let refused = said.mknod_refused(&own).unwrap_or_else(|| said.open(&own));
        assert_eq!(refused, "EPERM", "{path} was not asked for\n{}", story());
    }
    assert_eq!((said.cuinit(), said.devices()), (0, 1), "{}", story());
    let opens = driver::opens();
    for node in [("nvidiactl", 255), ("nvidia", 1), ("nvidia-uvm", 0)] {
        assert!(opens.get(&(node.0.to_owned(), node.1)).is_some_and(|count| *count >= 2), "{opens:?}\n{}", story());
    }
}

/// gpuhook has ended and keeps nothing.
pub(crate) fn assert_nothing_kept() {
    kept::wait_for_gpuhook();
    assert!(!Path::new("/run/gpuhook/oci").exists(), "something is kept below /run/gpuhook/oci");
}
