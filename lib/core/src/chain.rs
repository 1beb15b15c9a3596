// SPDX-License-Identifier: MIT OR Apache-2.0
//! An error with its causes, on one line.

use std::error::Error;
use std::fmt;

/// Prints the error and then each cause once: `inject: mount /dev/nvidia0: move_mount(...): EACCES`.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

/// Where an error's words end and its advice begins.
const HINT: &str = "; hint: ";

impl fmt::Display for Chain<'_> {
    /// What went wrong first, then what helps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hints = String::new();
        let mut next = Some(self.0);
        let mut separator = "";
        while let Some(error) = next {
            let text = error.to_string();
            let (words, hint) = text.split_once(HINT).map_or((&*text, None), |(words, hint)| (words, Some(hint)));
            write!(f, "{separator}{words}")?;
            hints.extend(hint.map(|hint| format!("{HINT}{hint}")));
            (separator, next) = (": ", error.source());
        }
        f.write_str(&hints)
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

    #[test]
    fn what_helps_stands_behind_every_cause() {
        #[derive(Debug)]
        struct Outer(Inner);
        #[derive(Debug)]
        struct Inner;
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("read /x; hint: run it as root")
            }
        }
        impl fmt::Display for Inner {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("permission denied; hint: ls -l")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        impl Error for Inner {}
        assert_eq!(Chain(&Outer(Inner)).to_string(), "read /x: permission denied; hint: run it as root; hint: ls -l");
    }
}
