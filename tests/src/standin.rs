// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C test doubles of `tests/standin`, built by `cc` into the build folder. Test processes that run at the same time
//! may all build them: each builds under a name of its own and renames, so none ever sees a half-written file.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::program;

const LIBCUDA: &str = include_str!("../standin/libcuda.c");
const CONFESSOR: &str = include_str!("../standin/confessor.c");
const CUDA_CHECK: &str = include_str!("../standin/cuda-check.c");
const NODE_CHECK: &str = include_str!("../standin/node-check.c");
const DENY_SYSCALL: &str = include_str!("../standin/deny-syscall.c");
const HOSTILE: &str = include_str!("../standin/hostile.c");
const OPEN_LOOP: &str = include_str!("../standin/open-loop.c");

/// The stand-in `libcuda.so.1` for beds without a driver: ENXIO counts as reached.
pub fn libcuda() -> PathBuf {
    let flags = ["-shared", "-fPIC", "-pthread", "-DSTANDIN_ENXIO_IS_REACHED", "-Wl,-soname,libcuda.so.1"];
    build("libcuda.so.1", LIBCUDA, &flags)
}

/// The stand-in `libcuda.so.1` for beds with a stand-in driver: only an open that succeeds counts.
pub fn libcuda_strict() -> PathBuf {
    build("libcuda-strict.so.1", LIBCUDA, &["-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1"])
}

/// The `libcuda.so.1` that tells what the process that loaded it can do.
pub fn confessor() -> PathBuf {
    build("libcuda-confessor.so.1", CONFESSOR, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"])
}

/// The dynamic program that loads `libcuda.so.1` and prints what cuInit returned.
pub fn cuda_check() -> PathBuf {
    build("cuda-check", CUDA_CHECK, &[])
}

/// The static program that says of device nodes what they are and whether they open.
pub fn node_check() -> PathBuf {
    build("node-check", NODE_CHECK, &["-static"])
}

/// The static program that runs a command on a kernel without a system call.
pub fn deny_syscall() -> PathBuf {
    build("deny-syscall", DENY_SYSCALL, &["-static"])
}

/// The `libcuda.so.1` that attacks whoever loads it.
pub fn hostile() -> PathBuf {
    build("libcuda-hostile.so.1", HOSTILE, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"])
}

/// The static init that opens one device node without a pause and counts the refusals.
pub fn open_loop() -> PathBuf {
    build("open-loop", OPEN_LOOP, &["-static"])
}

fn build(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (source, flags).hash(&mut hasher);
    let dir = program::build_dir().join("standin").join(format!("{:016x}", hasher.finish()));
    let built = dir.join(name);
    if !built.exists() {
        std::fs::create_dir_all(&dir).expect("folder for the stand-ins");
        compile(&built, source, flags);
    }
    built
}

fn compile(built: &Path, source: &str, flags: &[&str]) {
    let own = built.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    let own_source = own.with_added_extension("c");
    std::fs::write(&own_source, source).expect("copy of the source");
    let mut cc = program::command("cc", &["-O1", "-Wall", "-Wextra", "-Werror"]);
    cc.args(flags).arg("-o").arg(&own).arg(&own_source);
    program::stdout(cc);
    std::fs::rename(&own, built).expect("rename of the stand-in");
    std::fs::remove_file(&own_source).expect("removal of the copy");
}
