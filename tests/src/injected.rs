// SPDX-License-Identifier: MIT OR Apache-2.0
//! The request that most tests make, and what a container must then see: on a host with two GPUs it asks for the first
//! in bus order (which has minor 1), for the right to configure MIG, and for IMEX channel 0.

use crate::host::Majors;
use crate::inside::{Container, Inside};
use crate::rootfs::Rootfs;

/// The request as environment, in NVIDIA's words.
pub const ENVIRONMENT: [&str; 3] =
    ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0"];

/// The same rights as arguments of a hook.
pub const ARGUMENTS: [&str; 4] = ["--mig-config", "all", "--imex-channels", "0"];

/// A path in `/dev` and its number.
pub type Device = (&'static str, (u32, u32));

/// What was asked for, under the host's numbers.
pub fn asked(majors: Majors) -> [Device; 6] {
    [
        ("/dev/nvidiactl", (195, 255)),
        ("/dev/nvidia1", (195, 1)),
        ("/dev/nvidia-uvm", (majors.uvm, 0)),
        ("/dev/nvidia-uvm-tools", (majors.uvm, 1)),
        ("/dev/nvidia-caps/nvidia-cap1", (majors.caps, 1)),
        ("/dev/nvidia-caps-imex-channels/channel0", (majors.imex, 0)),
    ]
}

/// What the host has besides, and nobody asked for.
pub fn not_asked(majors: Majors) -> [Device; 4] {
    [
        ("/dev/nvidia0", (195, 0)),
        ("/dev/nvidia-modeset", (195, 254)),
        ("/dev/nvidia-caps/nvidia-cap2", (majors.caps, 2)),
        ("/dev/nvidia-caps-imex-channels/channel1", (majors.imex, 1)),
    ]
}

/// Lets init look at all of these as its first act, and puts a hand-made node of each number beside them, so that the
/// filter is seen apart from the nodes.
pub fn prepare(rootfs: &Rootfs, majors: Majors) {
    let mut paths = Vec::new();
    for (path, number) in asked(majors).into_iter().chain(not_asked(majors)) {
        let hand = by_hand(number);
        rootfs.node(&hand, number);
        paths.extend([path.to_owned(), hand]);
    }
    rootfs.first(&format!("node-check {}\ncuda-check\n", paths.join(" ")));
}

/// Asserts that init saw exactly what was asked for, and that the filter let exactly that through.
pub fn assert_exact(container: &dyn Container, majors: Majors) {
    assert_nodes(container, majors);
    let report = container.report();
    for (path, number) in not_asked(majors) {
        assert_eq!(report.open(&by_hand(number)), "EPERM", "{path} was not asked for\n{}", container.story());
        assert_eq!(container.open_own(number), "EPERM", "{path} was not asked for\n{}", container.story());
    }
}

/// Asserts that init saw exactly the nodes that were asked for, whether or not a filter is there.
pub fn assert_nodes(container: &dyn Container, majors: Majors) {
    let report = container.report();
    let story = || format!("{}\n{}", report.0, container.story());
    for (path, number) in asked(majors) {
        let node = report.node(path).unwrap_or_else(|| panic!("no {path}\n{}", story()));
        assert_eq!((node.kind.as_str(), node.number, node.uid), ("char", number, 0), "{path}\n{}", story());
        assert!(reached(report, path), "{path}\n{}", story());
        assert!(reached(report, &by_hand(number)), "hand-made {path}\n{}", story());
    }
    for (path, _) in not_asked(majors) {
        assert_eq!(report.node(path), None, "{path} was not asked for\n{}", story());
    }
    assert_eq!((report.cuinit(), report.devices()), (0, 1), "{}", story());
}

/// Asserts that init saw the node at `path`, and that an open of it came as far as a driver.
pub fn assert_reached(container: &dyn Container, path: &str) {
    let report = container.report();
    assert!(reached(report, path), "{path}\n{}\n{}", report.0, container.story());
}

/// Asserts that all of it still opens, at this moment.
pub fn assert_still_open(container: &dyn Container, majors: Majors) {
    let said = container.nodes(&asked(majors).map(|(path, _)| path));
    for (path, _) in asked(majors) {
        assert!(reached(&said, path), "{path}\n{}\n{}", said.0, container.story());
    }
    assert_eq!(container.cuda().cuinit(), 0);
}

/// Asserts that init saw none of the nodes, and that the filter refused every number.
pub fn assert_nothing(container: &dyn Container, majors: Majors) {
    let report = container.report();
    for (path, number) in asked(majors).into_iter().chain(not_asked(majors)) {
        assert_eq!(report.node(path), None, "{path}");
        assert_eq!(report.open(&by_hand(number)), "EPERM", "hand-made {path}");
        assert_eq!(container.open_own(number), "EPERM", "own {path}");
    }
    assert_eq!(report.cuinit(), 100);
}

/// Whether an open of the node came as far as a driver, had there been one.
fn reached(report: &Inside, path: &str) -> bool {
    !["EPERM", "ENOENT", "EACCES"].contains(&report.open(path).as_str())
}

fn by_hand((major, minor): (u32, u32)) -> String {
    format!("/hand/{major}.{minor}")
}
