//! Clients and open files, for C.

#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::*;

/// The version that this library has: it must be `THUMPER_ABI`.
#[unsafe(no_mangle)]
pub extern "C" fn thumper_abi() -> u32 {
    THUMPER_ABI
}

/// Why the last call of this thread failed, in words; valid until its next call.
#[unsafe(no_mangle)]
pub extern "C" fn thumper_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// Connects to the server at `socket` for `tree` (`POOL[/FS]`), with at most `lanes`
/// connections (0: 16); a call waits `patience_ms` for a server that has gone. Null: it failed, with minus a
/// number of errno(3) in `error`.
///
/// # Safety
/// The strings are strings; `error` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_connect(
    socket: *const c_char,
    tree: *const c_char,
    lanes: u32,
    patience_ms: u32,
    error: *mut c_int,
) -> *mut thumper_client {
    let mut out = std::ptr::null_mut();
    let status = done(|| {
        // SAFETY: the caller's promise.
        let (socket, tree) = unsafe { (text(socket, "the socket")?, text(tree, "the tree")?) };
        let tree = String::from_utf8_lossy(tree).into_owned();
        let mut options = Options::new(OsStr::from_bytes(socket), tree);
        if lanes > 0 {
            options.lanes_max = lanes as usize;
        }
        options.patience = Duration::from_millis(patience_ms.into());
        out = Box::into_raw(Box::new(thumper_client(Client::connect(options)?)));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { put(error, status) };
    out
}

/// Ends a client. Files of it that are open stay so.
///
/// # Safety
/// `client` is null, or came from `thumper_connect` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_disconnect(client: *mut thumper_client) {
    if !client.is_null() {
        // SAFETY: it was boxed by `thumper_connect`, and nobody else uses it.
        let client = unsafe { Box::from_raw(client) };
        guarded(|| {
            drop(client);
            Ok(0)
        });
    }
}

/// Opens a file. Null: it failed, with minus a number of errno(3) in `error`.
///
/// # Safety
/// `client` is one, `who` is null or a subject, `path` a string, `error` null or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_open(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    flags: u32,
    mode: u32,
    error: *mut c_int,
) -> *mut thumper_file {
    let mut out = std::ptr::null_mut();
    let status = done(|| {
        // SAFETY: the caller's promise.
        let (client, who, path) =
            unsafe { (given(client, "the client")?, subject(who)?, text(path, "the path")?) };
        let file = client.0.open(&who, path, how(flags), mode)?;
        out = Box::into_raw(Box::new(thumper_file(file)));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { put(error, status) };
    out
}

/// Lets go of a file; with `stable` not 0 what was written is on stable storage then. It is gone in any case.
///
/// # Safety
/// `file` is null, or came from `thumper_open` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_close(file: *mut thumper_file, stable: c_int) -> c_int {
    if file.is_null() {
        return 0;
    }
    // SAFETY: it was boxed by `thumper_open`, and nobody else uses it.
    let file = unsafe { Box::from_raw(file) };
    done(|| file.0.close(stable != 0))
}

/// Puts a file as a whole: makes it, or empties what is there, and writes `size` bytes; with `stable` not 0 it is on
/// stable storage then. Of the flags, `THUMPER_NEW`, `THUMPER_PARENTS` and `THUMPER_DIGESTS` count.
///
/// # Safety
/// `client` is one, `who` is null or a subject, `path` a string; there are `size` bytes at `buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_put(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    flags: u32,
    mode: u32,
    buf: *const c_void,
    size: usize,
    stable: c_int,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let (client, who, path, bytes) = unsafe {
            (
                given(client, "the client")?,
                subject(who)?,
                text(path, "the path")?,
                bytes(buf, size)?,
            )
        };
        client.0.put(&who, path, how(flags), mode, bytes, stable != 0)
    })
}

/// Reads the beginning of a file, at most `size` bytes; how many there were. Its attributes, which say how large it is,
/// go to `stat`, if that is not null.
///
/// # Safety
/// `client` is one, `who` is null or a subject, `path` a string; there is room for `size` bytes at `buf`, which nobody
/// else uses; `stat` is null or has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_get(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    buf: *mut c_void,
    size: usize,
    stat: *mut thumper_stat,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (client, who, path, buf) = unsafe {
            (given(client, "the client")?, subject(who)?, text(path, "the path")?, room(buf, size)?)
        };
        let (count, found) = client.0.get(&who, path, buf)?;
        // SAFETY: the caller's promise.
        unsafe { put(stat, stat_of(&found)) };
        Ok(count as i64)
    })
}

/// Reads `size` bytes from `offset` on; how many there were: fewer only at the end of the file.
///
/// # Safety
/// `file` is open; there is room for `size` bytes at `buf`, which nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_read(
    file: *const thumper_file,
    buf: *mut c_void,
    size: usize,
    offset: u64,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (file, buf) = unsafe { (given(file, "the file")?, room(buf, size)?) };
        Ok(file.0.read(offset, buf)? as i64)
    })
}

/// The `size` bytes from `offset` on where the server has them, for who sends them on from there: at most `*count` pieces,
/// each with its offset in the file `*fd` and its length; `*count` says how many there are. They stay as they are until the
/// lease ends, and `*fd` is open as long. Null: they are not to be had so now, and are to be read.
///
/// # Safety
/// `file` is one; at `pieces` there is room for `*count` of them; `count` and `fd` are numbers. Nobody else uses these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_lend(
    file: *const thumper_file,
    offset: u64,
    size: usize,
    pieces: *mut thumper_piece,
    count: *mut usize,
    fd: *mut c_int,
) -> *mut thumper_lease {
    let mut out = std::ptr::null_mut();
    done(|| {
        // SAFETY: the caller's promise.
        let (file, room) = unsafe { (given(file, "the file")?, *given(count, "the count")?) };
        if pieces.is_null() || fd.is_null() {
            return missing("the room for pieces");
        }
        let lent = file.0.lend(offset, size, room)?;
        let Some(lease) = lent.filter(|lease| lease.places().len() <= room) else { return Ok(()) };
        for (at, (offset, length)) in lease.places().iter().enumerate() {
            let piece = thumper_piece { offset: *offset, length: *length };
            // SAFETY: there is room for as many, by the caller's promise.
            unsafe { pieces.add(at).write(piece) };
        }
        // SAFETY: the caller's promise.
        unsafe {
            put(count, lease.places().len());
            put(fd, lease.as_fd().as_raw_fd());
        }
        out = Box::into_raw(Box::new(thumper_lease(lease)));
        Ok(())
    });
    out
}

/// Ends a lease.
///
/// # Safety
/// `lease` is null, or came from `thumper_lend` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_lease_end(lease: *mut thumper_lease) {
    if !lease.is_null() {
        // SAFETY: it was boxed by `thumper_lend`, and nobody else uses it.
        let lease = unsafe { Box::from_raw(lease) };
        guarded(|| {
            drop(lease.0);
            Ok(0)
        });
    }
}

/// Reads `count` pieces, all of each, one behind the other into `buf`; how many bytes. ESPIPE where one reaches
/// beyond the end.
///
/// # Safety
/// `file` is open; there are `count` pieces, and room for the bytes of all of them at `buf`, which nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_read_pieces(
    file: *const thumper_file,
    pieces: *const thumper_piece,
    count: usize,
    buf: *mut c_void,
) -> i64 {
    guarded(|| {
        if count == 0 {
            return Ok(0);
        }
        if pieces.is_null() || count > 1 << 20 {
            return missing("the list of pieces");
        }
        // SAFETY: there are `count` of them, by the caller's promise.
        let pieces = unsafe { std::slice::from_raw_parts(pieces, count) };
        let pieces: Vec<_> = pieces.iter().map(|piece| (piece.offset, piece.length)).collect();
        let size = pieces.iter().map(|(_, length)| *length as usize).sum();
        // SAFETY: the caller's promise.
        let (file, buf) = unsafe { (given(file, "the file")?, room(buf, size)?) };
        file.0.read_all(&pieces, buf)?;
        Ok(size as i64)
    })
}

/// Has all of `size` bytes written by `write`; `size`.
///
/// # Safety
/// `file` is open; there are `size` bytes at `buf`.
unsafe fn written(
    file: *const thumper_file,
    buf: *const c_void,
    size: usize,
    write: impl FnOnce(&File, &[u8]) -> Result<()>,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (file, bytes) = unsafe { (given(file, "the file")?, bytes(buf, size)?) };
        write(&file.0, bytes)?;
        Ok(size as i64)
    })
}

/// Writes all of `size` bytes at `offset`; `size`.
///
/// # Safety
/// `file` is open; there are `size` bytes at `buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_write(
    file: *const thumper_file,
    buf: *const c_void,
    size: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { written(file, buf, size, |file, bytes| file.write(offset, bytes)) }
}

/// Writes all of `size` bytes at `offset`, and puts all that was written on stable storage; `size`.
///
/// # Safety
/// `file` is open; there are `size` bytes at `buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_write_stable(
    file: *const thumper_file,
    buf: *const c_void,
    size: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { written(file, buf, size, |file, bytes| file.write_stable(offset, bytes)) }
}

/// Begins to write all of `size` bytes at `offset`, and with `stable` not 0 to put all that was written on stable storage, if
/// few ask the server for anything: 1 if it did, 0 if not. They are copied. Whatever is asked of the file next has it ended
/// before; if that fails so does everything from then on, `thumper_close`, too.
///
/// # Safety
/// `file` is open; there are `size` bytes at `buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_begin(
    file: *const thumper_file,
    buf: *const c_void,
    size: usize,
    offset: u64,
    stable: c_int,
) -> c_int {
    let mut has_begun = false;
    let failed = done(|| {
        // SAFETY: the caller's promise.
        let (file, bytes) = unsafe { (given(file, "the file")?, bytes(buf, size)?) };
        has_begun = file.0.begin(offset, bytes, stable != 0)?;
        Ok(())
    });
    if failed == 0 { has_begun.into() } else { failed }
}

/// Waits for what was begun by `thumper_begin`, if anything was.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_settle(file: *const thumper_file) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { given(file, "the file") }?.0.settle())
}

/// Writes the last `size` bytes, at `offset`, and lets go of a file; with `stable` not 0 all that was written is on
/// stable storage then. It is gone in any case.
///
/// # Safety
/// `file` came from `thumper_open` and is not used any more; there are `size` bytes at `buf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_finish(
    file: *mut thumper_file,
    buf: *const c_void,
    size: usize,
    offset: u64,
    stable: c_int,
) -> c_int {
    if file.is_null() {
        return done(|| missing("the file"));
    }
    // SAFETY: it was boxed by `thumper_open`, and nobody else uses it.
    let file = unsafe { Box::from_raw(file) };
    done(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes(buf, size)? };
        file.0.finish(offset, bytes, stable != 0)
    })
}

/// Puts what was written on stable storage.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_sync(file: *const thumper_file) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { given(file, "the file") }?.0.sync())
}

/// Sets the size of an open file.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_truncate_open(file: *const thumper_file, size: u64) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { given(file, "the file") }?.0.truncate(size))
}

/// Attributes of an open file as they were when it was opened; the server is not asked.
///
/// # Safety
/// `file` is open; there is room at `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_opened(
    file: *const thumper_file,
    stat: *mut thumper_stat,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { given(file, "the file")? };
        // SAFETY: the caller's promise.
        unsafe { put(stat, stat_of(file.0.opened())) };
        Ok(())
    })
}

/// Attributes of an open file.
///
/// # Safety
/// `file` is open; there is room at `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_stat_open(
    file: *const thumper_file,
    stat: *mut thumper_stat,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let found = unsafe { given(file, "the file") }?.0.stat()?;
        // SAFETY: the caller's promise.
        unsafe { put(stat, stat_of(&found)) };
        Ok(())
    })
}
