// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one program of gpuhook that runs inside the container: loads the container's libcuda, calls `cuInit(0)`, and
//! says what came of it in records on descriptor 3. It has no power of its own (whoever started it took that away) and
//! trusts nothing, since libcuda is whatever the image holds. No standard library and no symbol version: it must start
//! under every glibc.
#![no_std]
#![no_main]

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::mem::transmute;

#[path = "../src/record.rs"]
mod record;

use record::{Record, Stage};

/// Where the records go: the only descriptor that arrives open.
const PIPE: c_int = 3;

const O_RDWR: c_int = 2;
const RTLD_NOW: c_int = 2;
const PR_SET_DUMPABLE: c_int = 4;

#[link(name = "c")]
unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn dup2(old: c_int, new: c_int) -> c_int;
    fn pipe(ends: *mut c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
    fn _exit(code: c_int) -> !;
}

#[link(name = "dl")]
unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `CUresult f(unsigned)` and `CUresult f(int *)`, the two shapes that are called.
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Query = unsafe extern "C" fn(*mut c_int) -> c_int;

/// The entry point. The kernel enters with no return address on the stack, so a compiled function cannot stand here:
/// it would leave the stack misaligned for libcuda.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn _start() -> ! {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("xor ebp, ebp", "and rsp, -16", "call {run}", "ud2", run = sym run);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x29, #0", "mov x30, #0", "bl {run}", "brk #1", run = sym run);
}

extern "C" fn run() -> ! {
    // A crash of libcuda must not feed a core dump handler of the host: a pipe in core_pattern ignores RLIMIT_CORE.
    // SAFETY: changes one flag of this process.
    unsafe { prctl(PR_SET_DUMPABLE, 0 as c_long, 0 as c_long, 0 as c_long, 0 as c_long) };
    take_standard_streams();
    let last = ask();
    say(&last);
    // Not exit(): that would run the destructors of libcuda.
    // SAFETY: ends the process.
    unsafe { _exit(0) }
}

/// Puts something harmless on 0, 1 and 2, which arrive closed: else libcuda's next open would get them, and what it
/// prints would go into a device node. `/dev/null`, or where the container has none, a pipe's end that takes no writes.
fn take_standard_streams() {
    // SAFETY: the path is a C string.
    let mut null = unsafe { open(c"/dev/null".as_ptr(), O_RDWR) };
    if null < 0 {
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for two descriptors.
        if unsafe { pipe(ends.as_mut_ptr()) } == 0 {
            // SAFETY: the write end is ours and nobody uses it: reads give end of file.
            unsafe { close(ends[1]) };
            null = ends[0];
        }
    }
    if null < 0 {
        // SAFETY: ends the process: without streams nothing of the container may run.
        unsafe { _exit(1) }
    }
    for stream in 0..3 {
        // SAFETY: `null` is open, and 0 to 2 hold nothing that is used. The same number twice changes nothing.
        unsafe { dup2(null, stream) };
    }
    if null > PIPE {
        // SAFETY: it is ours, and its copies stay.
        unsafe { close(null) };
    }
}

fn ask() -> Record {
    say(&Record::new(Stage::Started));
    // SAFETY: runs the constructors of whatever the container calls libcuda: the purpose of this process.
    let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW) };
    if library.is_null() {
        return Record::new(Stage::NoLibrary);
    }
    let [init, count, version] =
        [c"cuInit", c"cuDeviceGetCount", c"cuDriverGetVersion"].map(|name| symbol(library, name));
    if init.is_null() || count.is_null() || version.is_null() {
        return Record::new(Stage::NoLibrary);
    }
    // SAFETY: cuda.h declares it so: CUresult cuInit(unsigned int).
    let init: Init = unsafe { transmute::<*mut c_void, Init>(init) };
    // SAFETY: cuda.h declares it so: CUresult cuDeviceGetCount(int *).
    let count: Query = unsafe { transmute::<*mut c_void, Query>(count) };
    // SAFETY: cuda.h declares it so: CUresult cuDriverGetVersion(int *).
    let version: Query = unsafe { transmute::<*mut c_void, Query>(version) };

    let mut record = Record::new(Stage::Loaded);
    say(&record);
    // SAFETY: 0 is the only flag value that CUDA defines.
    record.cuinit = unsafe { init(0) };
    record.stage = Stage::Initialised;
    say(&record);
    // SAFETY: the pointer is to an int of this frame.
    unsafe { version(&mut record.driver_version) };
    if record.cuinit == 0 {
        // SAFETY: the pointer is to an int of this frame.
        record.count_code = unsafe { count(&mut record.devices) };
    }
    record.stage = Stage::Done;
    record
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: `library` came from dlopen and `name` is a C string.
    unsafe { dlsym(library, name.as_ptr()) }
}

fn say(record: &Record) {
    let bytes = record.to_bytes();
    // A pipe takes 32 bytes whole or not at all, and there is nobody to tell of a failure.
    // SAFETY: `bytes` holds as many bytes as its length says.
    unsafe { write(PIPE, bytes.as_ptr().cast(), bytes.len()) };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: ends the process.
    unsafe { _exit(1) }
}
