// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure on its way to the person: the error with its causes, and the exit code that goes with it.

use std::error::Error;
use std::fmt;

use gpuhook_core::chain::Chain;

use crate::exit::Exit;

/// Why a command ends without having done its job.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    error: Box<dyn Error>,
}

impl Failure {
    /// A problem was found, or a start is refused.
    pub(crate) fn problem(error: impl Into<Box<dyn Error>>) -> Self {
        Self { exit: Exit::Problem, error: error.into() }
    }

    /// The command line is wrong.
    pub(crate) fn usage(error: impl Into<Box<dyn Error>>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    /// Could not look.
    pub(crate) fn could_not_look(error: impl Into<Box<dyn Error>>) -> Self {
        Self { exit: Exit::CouldNotLook, error: error.into() }
    }
}

impl fmt::Display for Failure {
    /// The error and its causes, each once, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Chain(&*self.error).fmt(f)
    }
}

/// Whatever goes wrong while a start is prepared refuses it.
impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::problem(error)
    }
}
