// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: where the built ones are, and running one with its whole output in the panic when it fails.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The folder that Cargo puts this build's programs in.
pub fn build_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("path of the test's own program");
    let dir = exe.parent().expect("a program lies in a folder");
    let dir = if dir.ends_with("deps") { dir.parent().expect("deps lies in a folder") } else { dir };
    dir.to_owned()
}

/// The `gpuhook` of this build.
pub fn gpuhook() -> PathBuf {
    let path = build_dir().join("gpuhook");
    assert!(path.exists(), "{} is not built; `cargo build -p gpuhook` makes it", path.display());
    path
}

/// Whether a program of that name is in `PATH`.
pub fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).exists())
}

/// A command with its arguments.
pub fn command(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command
}

/// What the command printed, whatever its exit status.
pub fn output(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// What a command printed on stdout; panics with everything it said where it fails.
pub fn stdout(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = output(command);
    assert!(output.status.success(), "{shown} failed with {}:\n{}", output.status, both(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// stdout and stderr, for a message.
pub fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a command printed that got `input` on stdin.
pub fn fed(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    // Closed before the wait, or the command would wait for more.
    let written = child.stdin.take().expect("a pipe").write_all(input);
    match written {
        // It may have seen enough before.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{command:?}: {error}"),
        _ => child.wait_with_output().expect("wait for a command"),
    }
}

/// The sentence with which gpuhook ended; panics where it ended otherwise than with `code`, said anything on stdout, or
/// more than one line without control characters on stderr.
pub fn refusal(output: &Output, code: i32) -> String {
    let said = both(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{said}");
    let text = std::str::from_utf8(&output.stderr).expect("UTF-8");
    let sentence = text.strip_prefix("gpuhook: ").and_then(|rest| rest.strip_suffix('\n'));
    let sentence = sentence.unwrap_or_else(|| panic!("no `gpuhook: ...` line: {text:?}"));
    assert!(!sentence.is_empty() && !sentence.contains(char::is_control), "more than one plain line: {text:?}");
    sentence.to_owned()
}
