// SPDX-License-Identifier: MIT OR Apache-2.0
//! bpf(2), for programs of type `BPF_PROG_TYPE_CGROUP_DEVICE` and the one-slot program array that wraps them.
//! Source: include/uapi/linux/bpf.h, `union bpf_attr`; kernel/bpf/syscall.c.

use std::ffi::CStr;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::{Errno, SysError, SysResult};

bitflags::bitflags! {
    /// How a program is attached to a cgroup.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttachFlags: u32 {
        /// A program of a cgroup below takes this one's place.
        const ALLOW_OVERRIDE = 1;
        /// All programs of this cgroup and its ancestors run, and all have to allow.
        const ALLOW_MULTI = 2;
        /// Take the place of the program that is given beside it, which has to be attached. Linux 5.6.
        const REPLACE = 4;
        const _ = !0;
    }
}

/// The programs of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The flags with which they are attached; a further attach has to match them.
    pub flags: AttachFlags,
    /// Their ids, in the order in which they run.
    pub ids: Vec<u32>,
}

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgInfo {
    /// Its id.
    pub id: u32,
    /// The name that its loader gave it, at most 15 letters.
    pub name: String,
    /// A hash of its instructions as they were loaded, without map descriptors.
    pub tag: [u8; 8],
    /// Its instructions after verification, eight bytes each; `None` where the kernel hides them (blinded constants,
    /// or a reader without the capability).
    pub insns: Option<Vec<[u8; 8]>>,
    /// The maps it uses.
    pub map_ids: Vec<u32>,
}

/// Which programs a query lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Those attached to this very cgroup.
    Own,
    /// Those that run for a process in this cgroup: its own and its ancestors'. Their flags are not told.
    Effective,
}

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const OBJ_PIN: u32 = 6;
const PROG_ATTACH: u32 = 8;
const PROG_DETACH: u32 = 9;
const PROG_GET_FD_BY_ID: u32 = 13;
const MAP_GET_FD_BY_ID: u32 = 14;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const PROG_QUERY: u32 = 16;

const CGROUP_DEVICE_PROG: u32 = 15;
/// `BPF_CGROUP_DEVICE`, a type of attachment.
pub const CGROUP_DEVICE_ATTACH: u32 = 6;
const PROG_ARRAY: u32 = 3;
const QUERY_EFFECTIVE: u32 = 1;

/// Each command's part of `union bpf_attr`, filled up with zeros to one size: kernels 6.17 to 7.1 write `revision` of a
/// query at offset 56 whatever size was passed (fixed by commit 21c4b99b27f3).
const ATTR_SIZE: usize = 128;

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    rest: [u64; 7],
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
    pad: u32,
    rest: [u64; 10],
}

#[repr(C)]
struct MapElem {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
    rest: [u64; 12],
}

#[repr(C)]
struct Pin {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
    rest: [u64; 14],
}

#[repr(C)]
struct Attach {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
    relative_fd: u32,
    rest: [u64; 13],
}

#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    rest: [u64; 15],
}

#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
    rest: [u64; 14],
}

#[repr(C)]
struct QueryAttr {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
    rest: [u64; 8],
}

/// `struct bpf_prog_info`, up to what is read here; the kernel fills no more than is asked for.
#[repr(C)]
#[derive(Default)]
struct RawProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
}

const _: () = {
    assert!(size_of::<ProgLoad>() == ATTR_SIZE);
    assert!(offset_of!(ProgLoad, license) == 16 && offset_of!(ProgLoad, log_buf) == 32);
    assert!(offset_of!(ProgLoad, prog_name) == 48 && offset_of!(ProgLoad, expected_attach_type) == 68);
    assert!(size_of::<MapCreate>() == ATTR_SIZE);
    assert!(offset_of!(MapCreate, map_name) == 28);
    assert!(size_of::<MapElem>() == ATTR_SIZE);
    assert!(offset_of!(MapElem, key) == 8 && offset_of!(MapElem, flags) == 24);
    assert!(size_of::<Pin>() == ATTR_SIZE);
    assert!(offset_of!(Pin, bpf_fd) == 8);
    assert!(size_of::<Attach>() == ATTR_SIZE);
    assert!(offset_of!(Attach, replace_bpf_fd) == 16);
    assert!(size_of::<ById>() == ATTR_SIZE);
    assert!(size_of::<GetInfo>() == ATTR_SIZE);
    assert!(offset_of!(GetInfo, info) == 8);
    assert!(size_of::<QueryAttr>() == ATTR_SIZE);
    assert!(offset_of!(QueryAttr, prog_ids) == 16 && offset_of!(QueryAttr, prog_cnt) == 24);
    assert!(offset_of!(QueryAttr, revision) == 56);
    assert!(size_of::<RawProgInfo>() == 80);
    assert!(offset_of!(RawProgInfo, xlated_prog_insns) == 32 && offset_of!(RawProgInfo, map_ids) == 56);
};

/// The loaded program. `expected_attach_type` is 0 or [`CGROUP_DEVICE_ATTACH`]: the kernel takes both, but since 6.17
/// one program array holds programs of one of them only.
///
/// # Errors
/// What the kernel answered, with the end of the verifier's log. EINVAL also for a helper that this kernel lacks.
pub fn prog_load(name: &CStr, insns: &[[u8; 8]], expected_attach_type: u32) -> SysResult<OwnedFd> {
    const LICENSE: &CStr = c"Dual MIT/GPL";
    // The verifier answers EAGAIN to a pending signal; runc and libbpf retry as well.
    const TRIES: u32 = 30;
    let mut attr = ProgLoad {
        prog_type: CGROUP_DEVICE_PROG,
        insn_cnt: length(insns.len()),
        insns: address(insns.as_ptr()),
        license: address(LICENSE.as_ptr()),
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: object_name(name),
        prog_ifindex: 0,
        expected_attach_type,
        rest: [0; 7],
    };
    let args = || format!("{name:?}, {} insns", insns.len());
    let mut tries = 0;
    let errno = loop {
        tries += 1;
        // SAFETY: `attr` is the PROG_LOAD layout; `insns`, `LICENSE` outlive the call and their lengths are true.
        match unsafe { bpf(PROG_LOAD, &mut attr) } {
            Ok(fd) => return Ok(owned(fd)),
            Err(Errno::AGAIN) if tries < TRIES => {}
            Err(errno) => break errno,
        }
    };
    // A log costs time and can itself fail the load (ENOSPC), so only the second try asks for one.
    let mut log = vec![0_u8; 1 << 16];
    attr.log_level = 1;
    attr.log_size = length(log.len());
    attr.log_buf = address(log.as_mut_ptr());
    // SAFETY: as above, and `log` is `log_size` writable bytes that outlive the call.
    match unsafe { bpf(PROG_LOAD, &mut attr) } {
        Ok(fd) => Ok(owned(fd)),
        Err(_) => {
            let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
            let tail: Vec<_> = text.lines().rev().filter(|line| !line.starts_with("processed ")).take(2).collect();
            let tail = tail.into_iter().rev().collect::<Vec<_>>().join("; ");
            let args = if tail.is_empty() { args() } else { format!("{}, verifier: {tail}", args()) };
            Err(SysError::new("BPF_PROG_LOAD", args, errno))
        }
    }
}

/// A program array with one empty slot.
///
/// # Errors
/// EPERM without the capability.
pub fn prog_array(name: &CStr) -> SysResult<OwnedFd> {
    let mut attr = MapCreate {
        map_type: PROG_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
        map_flags: 0,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: object_name(name),
        pad: 0,
        rest: [0; 10],
    };
    // SAFETY: `attr` is the MAP_CREATE layout and holds no address.
    let fd = unsafe { bpf(MAP_CREATE, &mut attr) };
    fd.map(owned).map_err(|errno| SysError::new("BPF_MAP_CREATE", format!("{name:?}"), errno))
}

/// Puts `prog` into slot 0 of a program array.
///
/// # Errors
/// EINVAL where the program is not of the kind that the array's other users are.
pub fn set_slot(map: impl AsFd, prog: impl AsFd) -> SysResult<()> {
    let (key, value) = (0_u32, raw(&prog));
    let mut attr = map_elem(&map, &raw const key, address(&raw const value));
    // SAFETY: `attr` is the layout of MAP_UPDATE_ELEM; key and value are the four bytes of a program array and live on.
    let done = unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) };
    done.map(drop).map_err(|errno| SysError::new("BPF_MAP_UPDATE_ELEM", fds(&map, Some(&prog)), errno))
}

/// The id of the program in slot 0 of a program array; `None` where it is empty.
///
/// # Errors
/// EINVAL or EPERM for a map of another kind.
pub fn get_slot(map: impl AsFd) -> SysResult<Option<u32>> {
    let (key, mut id) = (0_u32, 0_u32);
    let mut attr = map_elem(&map, &raw const key, address(&raw mut id));
    // SAFETY: `attr` is the layout of MAP_LOOKUP_ELEM; the kernel writes the array's value size, four bytes, into `id`.
    match unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) } {
        Ok(_) => Ok(Some(id)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(SysError::new("BPF_MAP_LOOKUP_ELEM", fds(&map, None::<&OwnedFd>), errno)),
    }
}

fn map_elem(map: &impl AsFd, key: *const u32, value: u64) -> MapElem {
    MapElem { map_fd: raw(map), pad: 0, key: address(key), value, flags: 0, rest: [0; 12] }
}

/// Gives a map or program a name in a bpffs, which keeps it until the name is unlinked.
///
/// # Errors
/// EPERM where `path` is not on a bpffs, EEXIST where it is taken.
pub fn pin(object: impl AsFd, path: &CStr) -> SysResult<()> {
    let mut attr = Pin { pathname: address(path.as_ptr()), bpf_fd: raw(&object), file_flags: 0, rest: [0; 14] };
    // SAFETY: `attr` is the OBJ_PIN layout; `path` ends with a zero byte and outlives the call.
    let done = unsafe { bpf(OBJ_PIN, &mut attr) };
    done.map(drop).map_err(|errno| SysError::new("BPF_OBJ_PIN", format!("{path:?}"), errno))
}

/// Attaches `prog` to a cgroup as its device filter, in the place of `replaced` where that is given and
/// [`AttachFlags::REPLACE`] set.
///
/// # Errors
/// EPERM where the flags differ from those of the programs that are there, or an ancestor's forbid it; ENOENT where
/// `replaced` is not attached; E2BIG beyond 64 programs.
pub fn attach(cgroup: impl AsFd, prog: impl AsFd, flags: AttachFlags, replaced: Option<&OwnedFd>) -> SysResult<()> {
    let mut attr = Attach {
        target_fd: raw(&cgroup),
        attach_bpf_fd: raw(&prog),
        attach_type: CGROUP_DEVICE_ATTACH,
        attach_flags: flags.bits(),
        replace_bpf_fd: replaced.map_or(0, |fd| raw(&fd)),
        relative_fd: 0,
        rest: [0; 13],
    };
    // SAFETY: `attr` is the PROG_ATTACH layout and holds no address.
    let done = unsafe { bpf(PROG_ATTACH, &mut attr) };
    done.map(drop).map_err(|errno| SysError::new("BPF_PROG_ATTACH", fds(&cgroup, Some(&prog)), errno))
}

/// Detaches `prog` from a cgroup.
///
/// # Errors
/// ENOENT where it is not attached.
pub fn detach(cgroup: impl AsFd, prog: impl AsFd) -> SysResult<()> {
    let mut attr = Attach {
        target_fd: raw(&cgroup),
        attach_bpf_fd: raw(&prog),
        attach_type: CGROUP_DEVICE_ATTACH,
        attach_flags: 0,
        replace_bpf_fd: 0,
        relative_fd: 0,
        rest: [0; 13],
    };
    // SAFETY: `attr` is the PROG_DETACH layout and holds no address.
    let done = unsafe { bpf(PROG_DETACH, &mut attr) };
    done.map(drop).map_err(|errno| SysError::new("BPF_PROG_DETACH", fds(&cgroup, Some(&prog)), errno))
}

/// The device programs of a cgroup.
///
/// # Errors
/// EPERM without the capability, ENOENT for a cgroup that is gone.
pub fn query(cgroup: impl AsFd, which: Query) -> SysResult<Attached> {
    match query_at_most(&cgroup, which, 64) {
        // 64 programs for each cgroup on a path, and paths are short.
        Err(error) if error.errno() == Errno::NOSPC => query_at_most(&cgroup, which, 4096),
        attached => attached,
    }
}

fn query_at_most(cgroup: impl AsFd, which: Query, programs: usize) -> SysResult<Attached> {
    let mut ids = vec![0_u32; programs];
    let mut attr = QueryAttr {
        target_fd: raw(&cgroup),
        attach_type: CGROUP_DEVICE_ATTACH,
        query_flags: if which == Query::Effective { QUERY_EFFECTIVE } else { 0 },
        attach_flags: 0,
        prog_ids: address(ids.as_mut_ptr()),
        prog_cnt: length(ids.len()),
        pad: 0,
        prog_attach_flags: 0,
        link_ids: 0,
        link_attach_flags: 0,
        revision: 0,
        rest: [0; 8],
    };
    // SAFETY: `attr` is the PROG_QUERY layout at full size, and `ids` is `prog_cnt` writable elements that live on.
    let done = unsafe { bpf(PROG_QUERY, &mut attr) };
    done.map_err(|errno| SysError::new("BPF_PROG_QUERY", fds(&cgroup, None::<&OwnedFd>), errno))?;
    ids.truncate(usize::try_from(attr.prog_cnt).unwrap_or(usize::MAX));
    Ok(Attached { flags: AttachFlags::from_bits_retain(attr.attach_flags), ids })
}

/// The loaded program with this id.
///
/// # Errors
/// ENOENT where it is gone, EPERM without `CAP_SYS_ADMIN`.
pub fn prog_by_id(id: u32) -> SysResult<OwnedFd> {
    by_id(PROG_GET_FD_BY_ID, "BPF_PROG_GET_FD_BY_ID", id)
}

/// The map with this id.
///
/// # Errors
/// ENOENT where it is gone, EPERM without `CAP_SYS_ADMIN`.
pub fn map_by_id(id: u32) -> SysResult<OwnedFd> {
    by_id(MAP_GET_FD_BY_ID, "BPF_MAP_GET_FD_BY_ID", id)
}

fn by_id(command: u32, call: &'static str, id: u32) -> SysResult<OwnedFd> {
    let mut attr = ById { id, next_id: 0, rest: [0; 15] };
    // SAFETY: `attr` is the layout of both commands and holds no address.
    unsafe { bpf(command, &mut attr) }.map(owned).map_err(|errno| SysError::new(call, id.to_string(), errno))
}

/// What the kernel tells of a program.
///
/// # Errors
/// Only for a descriptor that is no program.
pub fn prog_info(prog: impl AsFd) -> SysResult<ProgInfo> {
    let mut sizes = RawProgInfo::default();
    get_info(&prog, &mut sizes)?;
    let mut insns = vec![[0_u8; 8]; usize::try_from(sizes.xlated_prog_len).unwrap_or(0) / 8];
    let mut map_ids = vec![0_u32; usize::try_from(sizes.nr_map_ids).unwrap_or(0)];
    let mut info = RawProgInfo {
        xlated_prog_len: length(insns.len() * 8),
        xlated_prog_insns: if insns.is_empty() { 0 } else { address(insns.as_mut_ptr()) },
        nr_map_ids: length(map_ids.len()),
        map_ids: if map_ids.is_empty() { 0 } else { address(map_ids.as_mut_ptr()) },
        ..RawProgInfo::default()
    };
    get_info(&prog, &mut info)?;
    let name = info.name.split(|byte| *byte == 0).next().unwrap_or_default();
    // A hidden dump has its length but a null address (kernel/bpf/syscall.c, bpf_prog_get_info_by_fd).
    let shown = info.xlated_prog_insns != 0 && !insns.is_empty();
    Ok(ProgInfo {
        id: info.id,
        name: String::from_utf8_lossy(name).into_owned(),
        tag: info.tag,
        insns: shown.then_some(insns),
        map_ids,
    })
}

fn get_info(prog: &impl AsFd, info: &mut RawProgInfo) -> SysResult<()> {
    let info_len = length(size_of::<RawProgInfo>());
    let mut attr = GetInfo { bpf_fd: raw(prog), info_len, info: address(std::ptr::from_mut(info)), rest: [0; 14] };
    // SAFETY: `attr` is the layout of OBJ_GET_INFO_BY_FD; the kernel writes at most `info_len` bytes into `info`, and
    // into the buffers named there at most the lengths given there; the callers keep these buffers.
    let done = unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr) };
    done.map(drop).map_err(|errno| SysError::new("BPF_OBJ_GET_INFO_BY_FD", fds(prog, None::<&OwnedFd>), errno))
}

/// bpf(2) with the attribute `T`.
///
/// # Safety
/// `T` is the layout that `command` reads, zeros where it holds nothing, and each address in it fits the command.
unsafe fn bpf<T>(command: u32, attr: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: `attr` points to `size_of::<T>()` bytes that the kernel may read and write; the rest is the caller's word.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if answer < 0 { Err(SysError::last("bpf", "").errno()) } else { Ok(answer) }
}

fn owned(fd: libc::c_long) -> OwnedFd {
    let fd = i32::try_from(fd).unwrap_or(-1);
    // SAFETY: the kernel has just made this descriptor for us (close-on-exec, as all of bpf's), and no one else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn raw(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().cast_unsigned()
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn length(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn object_name(name: &CStr) -> [u8; 16] {
    let mut field = [0; 16];
    // The last byte stays zero.
    for (to, from) in field[..15].iter_mut().zip(name.to_bytes()) {
        *to = *from;
    }
    field
}

fn fds(first: &impl AsFd, second: Option<&impl AsFd>) -> String {
    match second {
        Some(second) => format!("[{}], [{}]", raw(first), raw(second)),
        None => format!("[{}]", raw(first)),
    }
}
