// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the process tells whoever started it: the one place where outcomes become numbers.

use std::process::ExitCode;

/// The outcomes of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Nothing is wrong.
    Fine,
    /// A problem was found, or the hook refuses the start.
    Problem,
    /// The command line is wrong.
    Usage,
    /// Could not look: permission, no such container.
    CouldNotLook,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Problem => 1,
            Exit::Usage => 2,
            Exit::CouldNotLook => 3,
        })
    }
}
