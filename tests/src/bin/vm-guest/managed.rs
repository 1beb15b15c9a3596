// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container of a manager with a command line of its own: podman, docker, containerd.

use std::fs::{self, File};
use std::process::Command;

use gpuhook_tests::inside::{Container, Inside};
use gpuhook_tests::program;
use gpuhook_tests::rootfs::Rootfs;

use crate::lxc;

/// Where the output of a manager's start goes.
const SAID: &str = "/run/manager.said";

/// How a manager is told to run a command in the container, and to remove it: the words before a command's own.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) exec: &'static [&'static str],
    pub(crate) remove: &'static [&'static [&'static str]],
}

/// A container that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Managed {
    manager: &'static Manager,
    pub(crate) rootfs: Rootfs,
    report: Inside,
}

impl Managed {
    /// Starts it by `run` and waits for init's report.
    pub(crate) fn start(manager: &'static Manager, rootfs: Rootfs, mut run: Command) -> Self {
        let said = File::create(SAID).expect("file for the manager's output");
        run.stdout(said.try_clone().expect("dup")).stderr(said);
        let mut managed = Self { manager, rootfs, report: Inside(String::new()) };
        managed.report = managed.reported_by(run);
        managed
    }

    /// Restarts it by `restart` and waits for the new init's report.
    pub(crate) fn restart(&mut self, restart: Command) {
        self.report = self.reported_by(restart);
    }

    fn reported_by(&self, mut command: Command) -> Inside {
        let said = || format!("{}\n{}", fs::read_to_string(SAID).unwrap_or_default(), lxc::journal());
        let listener = self.rootfs.listen();
        let mut starter = command.spawn().expect("the manager");
        let report = listener.report(&mut starter);
        let report = report.unwrap_or_else(|| panic!("the container did not start:\n{}", said()));
        assert!(starter.wait().expect("wait for the manager").success(), "{}", said());
        report
    }
}

impl Container for Managed {
    fn report(&self) -> &Inside {
        &self.report
    }

    fn run(&self, args: &[&str]) -> Inside {
        Inside(program::both(&program::output(program::command(
            self.manager.exec[0],
            &[&self.manager.exec[1..], args].concat(),
        ))))
    }

    fn story(&self) -> String {
        lxc::journal()
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        for words in self.manager.remove {
            let _gone_already = program::command(words[0], &words[1..]).output();
        }
    }
}
