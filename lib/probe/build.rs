// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles `guest/main.rs` into the image that the library carries: a dynamic program that needs `libc.so.6` and
//! `libdl.so.2` by name and no version of any symbol, so that every container's own loader since glibc 2.17 takes it.
//! That is why it links against stubs made here and not against this machine's C library.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest calls, with the library each is linked to. The stubs only have to have the names.
const STUBS: [(&str, &str, &[&str]); 2] = [
    (
        "c",
        "libc.so.6",
        &["open", "close", "dup2", "pipe", "prctl", "write", "_exit", "memcpy", "memset", "memmove", "memcmp"],
    ),
    ("dl", "libdl.so.2", &["dlopen", "dlsym"]),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=guest");
    println!("cargo::rerun-if-changed=src/record.rs");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let interpreter = interpreter(&env::var("CARGO_CFG_TARGET_ARCH")?)?;
    let cc = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    for (name, soname, symbols) in STUBS {
        stub(&cc, &out, name, soname, symbols)?;
    }
    guest(&cc, &out, interpreter)
}

/// The dynamic loader's path, which the architecture's ELF ABI fixes.
fn interpreter(arch: &str) -> Result<&'static str, String> {
    match arch {
        "x86_64" => Ok("/lib64/ld-linux-x86-64.so.2"),
        "aarch64" => Ok("/lib/ld-linux-aarch64.so.1"),
        _ => Err(format!("gpuhook-probe knows no loader path and no entry code for {arch}: x86_64 and aarch64 only")),
    }
}

fn stub(cc: &str, out: &Path, name: &str, soname: &str, symbols: &[&str]) -> Result<(), Box<dyn Error>> {
    let source = out.join(format!("{name}.c"));
    fs::write(&source, symbols.iter().map(|symbol| format!("void {symbol}(void) {{}}\n")).collect::<String>())?;
    run(Command::new(cc)
        .args(["-shared", "-nostdlib", "-fPIC", "-fno-builtin", "-w"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .arg(out.join(format!("lib{name}.so")))
        .arg(source))
}

fn guest(cc: &str, out: &Path, interpreter: &str) -> Result<(), Box<dyn Error>> {
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc
        .args(["--edition=2024", "--crate-type=bin", "--crate-name=gpuhook_probe_guest", "guest/main.rs"])
        .args(["--target", &env::var("TARGET")?])
        .args(["-D", "warnings", "-D", "unsafe_op_in_unsafe_fn", "-D", "missing_docs"])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "debuginfo=0", "-C", "strip=symbols"])
        .args(["-C", "target-feature=-crt-static", "-C", "relocation-model=pie", "-C", "force-unwind-tables=no"])
        .args(["-C", "codegen-units=1", "-C", &format!("linker={cc}")])
        .arg("-L")
        .arg(out)
        .arg("-o")
        .arg(out.join("guest"));
    let link = [
        "-nostartfiles",
        "-Wl,--no-as-needed",
        "-Wl,--build-id=none",
        "-Wl,--gc-sections",
        "-Wl,-z,now",
        "-Wl,-z,noexecstack",
        &format!("-Wl,--dynamic-linker={interpreter}"),
    ]
    .map(|argument| format!("link-arg={argument}"));
    run(rustc.args(link.iter().flat_map(|argument| ["-C", argument])))
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}").into()),
        Err(error) => Err(format!("start {command:?}: {error}").into()),
    }
}
