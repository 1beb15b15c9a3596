// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image starts under every glibc since 2.17, because it asks for no version of any symbol.

use gpuhook_probe::IMAGE;

const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_GNU_STACK: u64 = 0x6474_e551;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const VERSION_TAGS: [u64; 3] = [0x6fff_fff0, 0x6fff_fffe, 0x6fff_ffff];

/// A little-endian number of `size` bytes at `at`.
fn number(at: usize, size: usize) -> u64 {
    IMAGE[at..at + size].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn place(at: usize) -> usize {
    usize::try_from(number(at, 8)).unwrap()
}

fn text(at: usize) -> &'static str {
    let length = IMAGE[at..].iter().position(|byte| *byte == 0).unwrap();
    std::str::from_utf8(&IMAGE[at..at + length]).unwrap()
}

/// Program headers of `kind`: (flags, offset, size in the file).
fn headers(kind: u64) -> Vec<(u64, usize, usize)> {
    let (table, size) = (place(32), usize::try_from(number(54, 2)).unwrap());
    (0..usize::try_from(number(56, 2)).unwrap())
        .map(|index| table + index * size)
        .filter(|at| number(*at, 4) == kind)
        .map(|at| (number(at + 4, 4), place(at + 8), place(at + 32)))
        .collect()
}

fn dynamic() -> Vec<(u64, u64)> {
    let [(_, offset, size)] = headers(PT_DYNAMIC)[..] else { panic!("one dynamic section") };
    (offset..offset + size).step_by(16).map(|at| (number(at, 8), number(at + 8, 8))).collect()
}

#[test]
fn needs_libc_and_libdl_and_no_symbol_version() {
    assert_eq!(&IMAGE[..6], b"\x7fELF\x02\x01", "64 bit, little-endian");
    let dynamic = dynamic();
    // The string table is in the first segment, which is mapped at its place in the file.
    let strings = usize::try_from(dynamic.iter().find(|(tag, _)| *tag == DT_STRTAB).unwrap().1).unwrap();
    let needed: Vec<_> = dynamic
        .iter()
        .filter(|(tag, _)| *tag == DT_NEEDED)
        .map(|(_, at)| text(strings + usize::try_from(*at).unwrap()))
        .collect();
    assert_eq!(needed, ["libc.so.6", "libdl.so.2"]);
    assert!(!dynamic.iter().any(|(tag, _)| VERSION_TAGS.contains(tag)), "symbol versions: {dynamic:x?}");
}

#[test]
fn asks_for_the_standard_loader() {
    let [(_, offset, _)] = headers(PT_INTERP)[..] else { panic!("one interpreter") };
    let standard = match std::env::consts::ARCH {
        "x86_64" => "/lib64/ld-linux-x86-64.so.2",
        "aarch64" => "/lib/ld-linux-aarch64.so.1",
        other => panic!("{other}"),
    };
    assert_eq!(text(offset), standard);
}

#[test]
fn is_small_and_has_no_executable_stack() {
    assert!(IMAGE.len() <= 16 << 10, "{} bytes", IMAGE.len());
    let [(flags, ..)] = headers(PT_GNU_STACK)[..] else { panic!("one stack header") };
    assert_eq!(flags, 6, "readable and writable");
}
