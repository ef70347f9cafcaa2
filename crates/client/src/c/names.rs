//! Files by their paths, and directories, for C.

#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{c_char, c_int, c_void};

use rt::sync::Mutex;
use wire::Subject;

use super::*;

/// Attributes of a file; of a symbolic link with `follow` not 0 those of what it leads to.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string; there is room at `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_stat_path(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    follow: c_int,
    stat: *mut thumper_stat,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let (client, who, path) =
            unsafe { (given(client, "the client")?, subject(who)?, text(path, "the path")?) };
        let found = client.0.stat(&who, path, follow != 0)?;
        // SAFETY: the caller's promise.
        unsafe { put(stat, stat_of(&found)) };
        Ok(())
    })
}

/// Opens a directory. Null: it failed, with minus a number of errno(3) in `error`.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string, `error` null or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_opendir(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    error: *mut c_int,
) -> *mut thumper_dir {
    let mut out = std::ptr::null_mut();
    let status = done(|| {
        // SAFETY: the caller's promise.
        let (client, who, path) =
            unsafe { (given(client, "the client")?, subject(who)?, text(path, "the path")?) };
        let (entries, next) = client.0.list(&who, path, 0)?;
        let state = Mutex::new(Listing { entries: entries.into_iter(), next });
        let dir = thumper_dir { client: client.0.clone(), who, path: path.to_vec(), state };
        out = Box::into_raw(Box::new(dir));
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { put(error, status) };
    out
}

/// The next entry: its name, with a NUL, and its attributes. 1, or 0 at the end. ERANGE if the name is longer than there is
/// room for: then the entry is still the next.
///
/// # Safety
/// `dir` is open; there is room for `size` bytes at `name`, and null or room at `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_readdir(
    dir: *const thumper_dir,
    name: *mut c_char,
    size: usize,
    stat: *mut thumper_stat,
) -> c_int {
    let status = guarded(|| {
        // SAFETY: the caller's promise.
        let dir = unsafe { given(dir, "the directory") }?;
        let mut state = dir.state.lock();
        while state.entries.as_slice().is_empty() {
            let Some(from) = state.next else { return Ok(0) };
            let (entries, next) = dir.client.list(&dir.who, &dir.path, from)?;
            *state = Listing { entries: entries.into_iter(), next };
        }
        let Some(entry) = state.entries.as_slice().first() else { return Ok(0) };
        let name_and_nul = [&entry.name[..], &[0]].concat();
        // SAFETY: the caller's promise.
        unsafe {
            hand_over(&name_and_nul, name.cast(), size.max(1))?;
            put(stat, stat_of(&entry.stat));
        }
        state.entries.next();
        Ok(1)
    });
    status as c_int
}

/// Lets go of a directory.
///
/// # Safety
/// `dir` is null, or came from `thumper_opendir` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_closedir(dir: *mut thumper_dir) {
    if !dir.is_null() {
        // SAFETY: it was boxed by `thumper_opendir`, and nobody else uses it.
        let dir = unsafe { Box::from_raw(dir) };
        guarded(|| {
            drop(dir);
            Ok(0)
        });
    }
}

/// Makes a directory; with `parents` not 0 those on the way too, and one that is there is fine.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_mkdir(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    mode: u32,
    parents: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, |c, who, path| c.mkdir(who, path, mode, parents != 0)) }
}

/// Removes a file or symbolic link.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_unlink(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, Client::unlink) }
}

/// Removes an empty directory.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_rmdir(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, Client::rmdir) }
}

/// Renames; what is there is replaced.
///
/// # Safety
/// `client` is one, `who` null or a subject, the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_rename(
    client: *const thumper_client,
    who: *const thumper_subject,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(client, who, from, |c, who, from| c.rename(who, from, text(to, "the new path")?))
    }
}

/// Sets the size of a file.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_truncate(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    size: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, |c, who, path| c.truncate(who, path, size)) }
}

/// Sets permissions.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_chmod(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    mode: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, |c, who, path| c.chmod(who, path, mode)) }
}

/// Sets the time of the last change of the contents, in seconds and nanoseconds.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_set_mtime(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    seconds: i64,
    nanos: u32,
) -> c_int {
    let time = Some((seconds, nanos));
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, |c, who, path| c.set_times(who, path, None, time)) }
}

/// The value of an extended attribute, by its full name: its length; with `size` 0 nothing is copied. ERANGE if
/// it is longer than `size`.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` and `name` are strings; there is room for `size` bytes at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_getxattr(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (client, who) = (given(client, "the client")?, subject(who)?);
            let found = client.0.xattr(&who, text(path, "the path")?, text(name, "the name")?)?;
            hand_over(&found, value, size)
        }
    })
}

/// Sets an extended attribute; with a null `value` it is removed.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` and `name` are strings; there are `size` bytes at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_setxattr(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    let set = |c: &Client, who: &Subject, path: &[u8]| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "the name") }?;
        let value = match value.is_null() {
            true => None,
            // SAFETY: there are `size` bytes, by the caller's promise.
            false => Some(unsafe { bytes(value, size) }?),
        };
        c.set_xattr(who, path, name, value)
    };
    // SAFETY: the caller's promise.
    unsafe { on_path(client, who, path, set) }
}

/// Names of the extended attributes, each with its NUL: bytes of all of them; with `size` 0 nothing is copied. ERANGE
/// if they are more than `size`.
///
/// # Safety
/// `client` is one, `who` null or a subject, `path` a string; there is room for `size` bytes at `names`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_listxattr(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    names: *mut c_char,
    size: usize,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (client, who) = (given(client, "the client")?, subject(who)?);
            let mut all = Vec::new();
            for name in client.0.xattrs(&who, text(path, "the path")?)? {
                all.extend_from_slice(&name);
                all.push(0);
            }
            hand_over(&all, names.cast(), size)
        }
    })
}

/// Space of the file system that a path is in.
///
/// # Safety
/// `client` is one, `path` a string; there is room at `space`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thumper_space_of(
    client: *const thumper_client,
    path: *const c_char,
    space: *mut thumper_space,
) -> c_int {
    let ask = |c: &Client, _: &Subject, path: &[u8]| {
        let wire::Space { total, free, used, quota } = c.space(path)?;
        // SAFETY: the caller's promise.
        unsafe { put(space, thumper_space { total, free, used, quota }) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on_path(client, std::ptr::null(), path, ask) }
}

/// Calls with a client, a subject and a path.
///
/// # Safety
/// They are what they should be.
unsafe fn on_path(
    client: *const thumper_client,
    who: *const thumper_subject,
    path: *const c_char,
    call: impl FnOnce(&Client, &Subject, &[u8]) -> Result<()>,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let (client, who, path) =
            unsafe { (given(client, "the client")?, subject(who)?, text(path, "the path")?) };
        call(&client.0, &who, path)
    })
}
