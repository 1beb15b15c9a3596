// SPDX-License-Identifier: MIT OR Apache-2.0
//! An error with its causes, on one line.

use std::error::Error;
use std::fmt;

/// Prints the error and then each cause once: `inject: mount /dev/nvidia0: move_mount(...): EACCES`.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        match self.0.source() {
            Some(cause) => write!(f, ": {}", Chain(cause)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::majors::MajorError;
    use crate::plan::PlanError;

    #[test]
    fn each_cause_is_printed_once() {
        let error = PlanError::Major(MajorError::Missing { name: "nvidia-uvm", complete: false });
        let text = Chain(&error).to_string();
        assert!(text.starts_with("find the driver's device numbers: "), "{text}");
        assert_eq!(text.matches("nvidia-uvm").count(), 1, "{text}");
    }
}
