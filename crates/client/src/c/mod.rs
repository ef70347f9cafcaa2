//! The same calls for C.
//!
//! The one idea: each function checks what it was given, calls its Rust twin behind a wall that no panic passes, and
//! turns what comes back into 0 or more, or minus a number of errno(3); the words stay with the thread
//! (`thumper_message`). The header `include/thumper.h` is made from these files, and a test holds it to that.

#![expect(unsafe_code, reason = "pointers that C gives")]
#![allow(non_camel_case_types, reason = "names as C has them")]

mod files;
mod names;

pub use files::*;
pub use names::*;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rt::sync::{Arc, Mutex};
use wire::{Entry, Open, Subject};

use crate::error::code;
use crate::{Client, Error, File, Lease, Options, Result};

/// The version of these functions: of a library with another first number a program must not be used.
pub const THUMPER_ABI: u32 = 1;

/// Open for reading.
pub const THUMPER_READ: u32 = 1;
/// Open for writing.
pub const THUMPER_WRITE: u32 = 2;
/// Made if it is not there.
pub const THUMPER_CREATE: u32 = 4;
/// With [`THUMPER_CREATE`]: an error if it is there.
pub const THUMPER_NEW: u32 = 8;
/// Emptied.
pub const THUMPER_TRUNCATE: u32 = 16;
/// With [`THUMPER_CREATE`]: directories on the way are made, too.
pub const THUMPER_PARENTS: u32 = 32;
/// With [`THUMPER_WRITE`]: the file's digests are made meanwhile, and kept with it as XRootD keeps them.
pub const THUMPER_DIGESTS: u32 = 64;
/// With [`THUMPER_WRITE`]: -EIO if some of it may be lost with a server that died, and it is not emptied.
pub const THUMPER_UNBROKEN: u32 = 128;
/// With [`THUMPER_READ`] alone: a file that is small is read as it is opened, for who reads it at once.
pub const THUMPER_SOON: u32 = 256;

/// A client of one tree. Threads may share it.
pub struct thumper_client(Arc<Client>);

/// An open file. Threads may share it.
pub struct thumper_file(File);

/// Bytes of a file where the server has them.
pub struct thumper_lease(Lease);

/// An open directory. Threads may share it.
pub struct thumper_dir {
    client: Arc<Client>,
    who: Subject,
    path: Vec<u8>,
    state: Mutex<Listing>,
}

struct Listing {
    entries: std::vec::IntoIter<Entry>,
    next: Option<u64>,
}

/// For whom something is done.
#[repr(C)]
pub struct thumper_subject {
    /// His number; 0 may do everything.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// His other groups, `group_count` of them; may be null if there are none.
    pub groups: *const u32,
    /// How many other groups.
    pub group_count: usize,
}

/// A piece of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct thumper_piece {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct thumper_stat {
    /// A number for the file system.
    pub device: u64,
    /// Number of the object.
    pub object: u64,
    /// With the number it names one file for ever.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has.
    pub links: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space on disk in bytes.
    pub allocated: u64,
    /// Last access: seconds.
    pub atime: i64,
    /// Last change of the contents: seconds.
    pub mtime: i64,
    /// Last change: seconds.
    pub ctime: i64,
    /// Nanoseconds of these.
    pub atime_nanos: u32,
    /// Nanoseconds.
    pub mtime_nanos: u32,
    /// Nanoseconds.
    pub ctime_nanos: u32,
}

/// Space of a file system, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct thumper_space {
    /// All that there is for it.
    pub total: u64,
    /// What it could still write.
    pub free: u64,
    /// What it uses.
    pub used: u64,
    /// Its quota; 0: none.
    pub quota: u64,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn remember(text: &str) {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    // Not where the thread is at its end, and what it remembered is gone.
    let _ = MESSAGE.try_with(|message| message.replace(CString::new(text).unwrap_or_default()));
}

/// Runs `body`; what it fails with, or panics with, becomes minus a number and words.
fn guarded(body: impl FnOnce() -> Result<i64>) -> i64 {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error,
        Err(_) => {
            Error::new(code::EIO, "a mistake in the client library, which has gone no further")
        }
    };
    remember(&error.text);
    -i64::from(error.errno.max(1))
}

fn done(body: impl FnOnce() -> Result<()>) -> c_int {
    guarded(|| body().map(|()| 0)) as c_int
}

fn missing<T>(what: &str) -> Result<T> {
    Err(Error::new(code::EINVAL, format!("{what} is a null pointer")))
}

/// What a pointer of the caller's points to.
///
/// # Safety
/// It is null, or points to a `T` that lives and is not changed until the call ends.
unsafe fn given<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.map_or_else(|| missing(what), Ok)
}

/// The bytes of a C string.
///
/// # Safety
/// It is null, or a string with its NUL that lives and is not changed until the call ends.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return missing(what);
    }
    // SAFETY: it is a string, by the caller's promise.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Room of the caller's, for so many bytes.
///
/// # Safety
/// There is room for `size` bytes at `pointer`, which nobody else uses until the call ends.
unsafe fn room<'a>(pointer: *mut c_void, size: usize) -> Result<&'a mut [u8]> {
    if size == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() || size > isize::MAX as usize {
        return missing("the buffer");
    }
    // SAFETY: there is room for `size` bytes that is ours for the call, by the caller's promise. Memory that came from
    // outside holds some bytes or other, whether C has written them or not.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), size) })
}

/// Bytes of the caller's.
///
/// # Safety
/// There are `size` bytes at `pointer`, which live and are not changed until the call ends.
unsafe fn bytes<'a>(pointer: *const c_void, size: usize) -> Result<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || size > isize::MAX as usize {
        return missing("the buffer");
    }
    // SAFETY: there are `size` bytes, by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), size) })
}

/// How a file is opened, by its flags.
fn how(flags: u32) -> Open {
    let has = |flag| flags & flag != 0;
    Open {
        read: has(THUMPER_READ),
        write: has(THUMPER_WRITE),
        create: has(THUMPER_CREATE),
        new: has(THUMPER_NEW),
        truncate: has(THUMPER_TRUNCATE),
        parents: has(THUMPER_PARENTS),
        digests: has(THUMPER_DIGESTS),
        unbroken: has(THUMPER_UNBROKEN),
        was_unbroken: false,
        kept_since_ms: 0,
        soon: has(THUMPER_SOON),
    }
}

/// Who is meant; nobody given means root.
///
/// # Safety
/// It is null, or points to a subject whose groups are as many as it says.
unsafe fn subject(pointer: *const thumper_subject) -> Result<Subject> {
    // SAFETY: the caller's promise.
    let Some(subject) = (unsafe { pointer.as_ref() }) else { return Ok(Subject::ROOT) };
    let groups = match (subject.groups.is_null(), subject.group_count) {
        (_, 0) => Vec::new(),
        (false, count) if count <= 65536 => {
            // SAFETY: there are `count` of them, by the caller's promise.
            unsafe { std::slice::from_raw_parts(subject.groups, count) }.to_vec()
        }
        _ => return Err(Error::new(code::EINVAL, "the subject has no such groups")),
    };
    Ok(Subject { uid: subject.uid, gid: subject.gid, groups })
}

fn stat_of(stat: &wire::Stat) -> thumper_stat {
    thumper_stat {
        device: stat.device,
        object: stat.object,
        generation: stat.generation,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        links: stat.links,
        size: stat.size,
        allocated: stat.allocated,
        atime: stat.atime.0,
        mtime: stat.mtime.0,
        ctime: stat.ctime.0,
        atime_nanos: stat.atime.1,
        mtime_nanos: stat.mtime.1,
        ctime_nanos: stat.ctime.1,
    }
}

/// Writes a result where the caller wants it; null: nowhere.
///
/// # Safety
/// `to` is null, or has room for a `T` that nobody else uses.
unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: there is room, by the caller's promise.
        unsafe { to.write(value) };
    }
}

/// Copies `bytes` to the caller's room of `size` bytes; how many there are. With `size` 0 nothing is copied.
///
/// # Safety
/// As [`room`].
unsafe fn hand_over(bytes: &[u8], to: *mut c_void, size: usize) -> Result<i64> {
    if size > 0 {
        // SAFETY: the caller's promise.
        let to = unsafe { room(to, size) }?;
        let Some(to) = to.get_mut(..bytes.len()) else {
            return Err(Error::new(code::ERANGE, "the buffer is too small"));
        };
        to.copy_from_slice(bytes);
    }
    Ok(bytes.len() as i64)
}
