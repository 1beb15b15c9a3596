// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be seen inside a container that made the usual request ([`injected`]), with a driver behind the numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::inside::{Container, Inside};
use gpuhook_tests::rootfs::Rootfs;
use gpuhook_tests::standin;

use crate::driver;

/// A root filesystem whose stand-in libcuda counts an open only where it succeeds.
pub(crate) fn rootfs(dir: &str) -> Rootfs {
    let dir = Path::new("/srv").join(dir);
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("removal of an old root filesystem");
    }
    let rootfs = Rootfs::new(dir);
    let library = find(rootfs.dir(), "libcuda.so.1").expect("the stand-in libcuda");
    fs::copy(standin::libcuda_strict(), library).expect("the strict stand-in");
    rootfs
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).ok()?.flatten();
    entries.find_map(|entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true => find(&entry.path(), name),
        false => (entry.file_name() == name).then(|| entry.path()),
    })
}

/// Init saw exactly what was asked for, all of it opened, and the filter let nothing else through.
pub(crate) fn assert_exact(container: &dyn Container, majors: Majors) {
    assert_nodes(container, majors);
    for (path, (major, minor)) in injected::not_asked(majors) {
        let by_hand = container.report().open(&format!("/hand/{major}.{minor}"));
        assert_eq!(by_hand, "EPERM", "{path} was not asked for\n{}\n{}", container.report().0, container.story());
    }
}

/// The same without the filter, for containers whose manager attaches none.
pub(crate) fn assert_nodes(container: &dyn Container, majors: Majors) {
    injected::assert_nodes(container, majors);
    assert_opens(container.report(), majors, container);
}

/// All of it opens now, CUDA's stand-in initialises, and the filter still lets nothing else through.
pub(crate) fn assert_still_exact(container: &dyn Container, majors: Majors) {
    let said = assert_still_open(container, majors);
    for (path, _) in injected::not_asked(majors) {
        let own = own(path);
        let refused = said.mknod_refused(&own).unwrap_or_else(|| said.open(&own));
        assert_eq!(refused, "EPERM", "{path} was not asked for\n{}\n{}", said.0, container.story());
    }
}

/// All of it opens now, and the driver itself counts the opens: one of each node by node-check, and another one by
/// cuInit of the three that it needs.
pub(crate) fn assert_still_open(container: &dyn Container, majors: Majors) -> Inside {
    // One command, since each costs seconds in a slow machine.
    let mut script = "cuda-check; node-check".to_owned();
    injected::asked(majors).iter().for_each(|(path, _)| script += &format!(" {path}"));
    for (path, (major, minor)) in injected::not_asked(majors) {
        script += &format!("; node-check --mknod {major}:{minor} {}", own(path));
    }
    driver::forget_opens();
    let said = container.run(&["/bin/sh", "-c", &format!("export PATH=/bin; {script}")]);
    assert_opens(&said, majors, container);
    assert_eq!((said.cuinit(), said.devices()), (0, 1), "{}\n{}", said.0, container.story());
    let counted = |name: &str, minor: u32, count: u32| ((name.to_owned(), minor), count);
    let asked = BTreeMap::from([
        counted("nvidiactl", 255, 2),
        counted("nvidia", 1, 2),
        counted("nvidia-uvm", 0, 2),
        counted("nvidia-uvm", 1, 1),
        counted("nvidia-caps", 1, 1),
        counted("nvidia-caps-imex-channels", 0, 1),
    ]);
    let mut opens = driver::opens();
    // Where there is no filter, the hand-made nodes open as well.
    opens.retain(|node, _| asked.contains_key(node));
    assert_eq!(opens, asked, "{}", container.story());
    said
}

/// Where the container makes a node of its own with the number of that one.
fn own(path: &str) -> String {
    format!("/dev/own{}", path.replace('/', "-"))
}

fn assert_opens(said: &Inside, majors: Majors, container: &dyn Container) {
    for (path, _) in injected::asked(majors) {
        assert_eq!(said.open(path), "OK", "{path}\n{}\n{}", said.0, container.story());
    }
}
