//! Bytes on pages that another process may send as they are.
//!
//! Place: beside the pool. What is hot is copied here once, and is from then on sent without a copy: the other process has
//! the file, which it can only read, and is told where in it the bytes are.
//!
//! The one idea: pages that were handed to a socket may be on their way long after, so a page of the shelf is never written
//! over. What leaves a place takes its pages along, and what comes there next gets new ones; who still holds the old pages
//! sees what was there.
//!
//! In front of the places the file has a page of counts: who keeps bytes of something sees there whether they have changed
//! since ([`Mark`]), without asking anybody.
//!
//! It uses `unsafe` for two mappings of the file: of all of it, through which the bytes are read here, and of the counts.
#![allow(unsafe_code)]

use crate::mem::Reclaim;
use crate::sync::{Arc, Mutex};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
    ftruncate, memfd_create, open,
};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fmt;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};

/// Bytes of the file that are one place's: a huge page, and none of them belongs to two. The system may put pages together
/// (anybody who maps the file can ask for it), and of a huge page that goes in part it fills that part with zeros, whoever
/// holds it. One that goes as a whole stays as it was for who does.
const SLOT: usize = 2 << 20;

/// The first place; before it are the counts.
const FIRST: usize = 1;

/// How many places there are.
const SLOTS: usize = 4096;

/// Where they end.
const END: usize = FIRST + SLOTS;

/// Bytes of the file. There are pages only where something is.
const ALL: usize = END * SLOT;

/// Bytes of a page, with which huge ones have no more than [`SLOT`].
const PAGE: usize = 4096;

/// How many counts there are, a page full. What has the same one changes together, as far as anybody can see.
const COUNTS: usize = PAGE / size_of::<u32>();

/// A count as it was at some moment. As long as it is the same, nothing has changed since of what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where in the shelf's file the count is: four bytes, the lowest first.
    pub place: u64,
    /// What it was.
    pub count: u32,
}

/// Places for bytes, in a file that has no name.
#[derive(Debug)]
pub struct Shelf {
    file: File,
    /// The same file, opened anew, for who may only read.
    reader: OwnedFd,
    /// Where all of the file is mapped.
    memory: NonNull<u8>,
    /// Where the counts are mapped.
    counts: NonNull<AtomicU32>,
    free: Mutex<Free>,
}

/// The places where nothing is: those that were given back, and those from `fresh` on.
#[derive(Debug)]
struct Free {
    back: Vec<usize>,
    fresh: usize,
}

// SAFETY: the mappings are there until this is dropped, wherever that is; one is only read, the other one is of atomics.
unsafe impl Send for Shelf {}
// SAFETY: of a shared Shelf nothing but the list of places changes, which has a lock, and counts, which are atomics.
unsafe impl Sync for Shelf {}

impl Shelf {
    /// Bytes that a place takes at most.
    pub const BYTES_MAX: usize = 1 << 20;

    /// An empty one. Nobody can make its file shorter.
    ///
    /// # Errors
    /// The system has no such files, or no more of them, or pages of another size.
    pub fn new() -> Result<Arc<Shelf>> {
        if rustix::param::page_size() != PAGE {
            return Err(Error::new(ErrorKind::Unsupported, "pages have not 4096 bytes"));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("thumper-shelf", flags)?);
        ftruncate(&file, ALL as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Whoever has it to read cannot open it to write.
        fchmod(&file, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reader = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let memory = map(&file, ALL, ProtFlags::READ)?.cast();
        let counts = map(&file, PAGE, ProtFlags::READ | ProtFlags::WRITE)?.cast();
        let free = Mutex::new(Free { back: Vec::new(), fresh: FIRST });
        Ok(Arc::new(Shelf { file, reader, memory, counts, free }))
    }

    /// The count of the changes of what has this number, which others may have as well.
    fn count(&self, of: u64) -> (usize, &AtomicU32) {
        // Neighbours have different ones.
        let at = (of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % COUNTS;
        // SAFETY: the page is mapped until this is dropped, has so many of them, and all that touch them here do so like this.
        (at, unsafe { self.counts.add(at).as_ref() })
    }

    /// The count as it is now.
    pub fn mark(&self, of: u64) -> Mark {
        let (at, count) = self.count(of);
        Mark {
            place: (at * size_of::<u32>()) as u64,
            count: u32::from_le(count.load(Ordering::Acquire)),
        }
    }

    /// Counts a change that is about to be made.
    pub fn note_change(&self, of: u64) {
        self.count(of).1.fetch_add(1, Ordering::AcqRel);
    }

    /// The file, for who may read what is here, all of it.
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// A copy of `bytes` on pages of its own. `None`: there is no place or no memory, or they are too many, or none.
    pub fn put(self: &Arc<Self>, bytes: &[u8]) -> Option<Shelved> {
        if bytes.is_empty() || bytes.len() > Shelf::BYTES_MAX {
            return None;
        }
        let slot = self.take()?;
        // From here on it is emptied and given back, however this ends.
        let shelved = Shelved { shelf: self.clone(), slot, length: bytes.len() };
        // Not through a mapping: the pages need not be filled with zeros first, nor be got one by one.
        self.file.write_all_at(bytes, shelved.place()).ok().map(|()| shelved)
    }

    /// A place where nothing is.
    fn take(&self) -> Option<usize> {
        let mut free = self.free.lock();
        if let Some(slot) = free.back.pop() {
            return Some(slot);
        }
        let slot = free.fresh;
        (slot < END).then(|| {
            free.fresh += 1;
            slot
        })
    }

    /// Takes the pages from a place and gives it back. A place that keeps its pages is lost, on purpose: they would be
    /// written over.
    fn empty(&self, slot: usize) {
        if self.punch(slot, 1).is_ok() {
            self.free.lock().back.push(slot);
        }
    }

    /// Takes the pages from so many places.
    fn punch(&self, slot: usize, count: usize) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (at, length) = ((slot * SLOT) as u64, (count * SLOT) as u64);
        retry_on_intr(|| fallocate(&self.file, flags, at, length))
    }
}

impl Reclaim for Shelf {
    /// What is here is its holders'.
    fn reclaim(&self, _: u64) {}

    /// Who maps the file and looks where nothing is gets pages for it: those are in no account, and would stay when he has
    /// gone.
    fn rest(&self) {
        let free = self.free.lock();
        let back = free.back.iter().map(|slot| (*slot, 1));
        for (slot, count) in back.chain([(free.fresh, END - free.fresh)]) {
            // Nobody has anything there: it is no harm if they stay until the next time.
            let _ = self.punch(slot, count);
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        // SAFETY: they were mapped with these lengths, and nothing points there any more: what is on the shelf keeps it.
        unsafe {
            let _ = munmap(self.memory.as_ptr().cast(), ALL);
            let _ = munmap(self.counts.as_ptr().cast(), PAGE);
        }
    }
}

/// Maps the beginning of the file.
fn map(file: &File, length: usize, access: ProtFlags) -> Result<NonNull<c_void>> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the system chooses a place where nothing is.
    let memory = unsafe { mmap(null_mut(), length, access, flags, file, 0) }?;
    NonNull::new(memory).ok_or_else(|| Error::other("mapped at 0"))
}

/// Bytes on a shelf. Their place is free again when they are dropped.
pub struct Shelved {
    shelf: Arc<Shelf>,
    slot: usize,
    length: usize,
}

impl Shelved {
    /// Where they begin in the shelf's file.
    pub fn place(&self) -> u64 {
        (self.slot * SLOT) as u64
    }

    /// Are they on this shelf?
    pub fn is_on(&self, shelf: &Shelf) -> bool {
        std::ptr::eq(&*self.shelf, shelf)
    }
}

impl Deref for Shelved {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot lies in the mapping, and is no shorter than this. It is this one's alone: `put` has written it
        // before anybody could see it, and nothing is written or punched there until this is dropped. Others have a file
        // that they can only read; who may open it anew to write is the owner or root, and may write to this process's
        // memory as well. The pages are there, since the file cannot become shorter.
        unsafe {
            let start = self.shelf.memory.add(self.slot * SLOT);
            std::slice::from_raw_parts(start.as_ptr(), self.length)
        }
    }
}

impl Drop for Shelved {
    fn drop(&mut self) {
        self.shelf.empty(self.slot);
    }
}

impl fmt::Debug for Shelved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shelved({} bytes at {})", self.length, self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use rustix::io::{pread, pwrite, read};
    use rustix::pipe::{SpliceFlags, pipe, splice};

    const LENGTH: usize = 64 << 10;

    fn through_reader(shelf: &Shelf, place: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0xee; length];
        assert_eq!(pread(shelf.reader(), &mut out, place).unwrap(), length);
        out
    }

    fn blocks(shelf: &Shelf) -> i64 {
        fstat(shelf.reader()).unwrap().st_blocks
    }

    #[test]
    fn what_is_put_is_read_here_and_by_the_reader() {
        let (shelf, other) = (Shelf::new().unwrap(), Shelf::new().unwrap());
        let lengths = [1, 4096, LENGTH + 7, Shelf::BYTES_MAX];
        let bytes = |n: usize| (0..lengths[n]).map(move |i| (i * 7 + n) as u8).collect::<Vec<_>>();
        let put: Vec<Shelved> = (0..4).map(|n| shelf.put(&bytes(n)).unwrap()).collect();
        for (n, shelved) in put.iter().enumerate() {
            assert!(shelved[..] == bytes(n));
            assert!(through_reader(&shelf, shelved.place(), lengths[n]) == bytes(n));
            assert!(shelved.is_on(&shelf) && !shelved.is_on(&other));
            assert_eq!(
                format!("{shelved:?}"),
                format!("Shelved({} bytes at {})", lengths[n], (FIRST + n) * SLOT)
            );
        }
        // They keep the shelf.
        drop(shelf);
        assert!(put[2][..] == bytes(2));
    }

    #[test]
    fn who_has_a_mark_sees_a_change_and_who_rests_takes_none_back() {
        let shelf = Shelf::new().unwrap();
        let seen = |mark: Mark| {
            let mut count = [0; 4];
            assert_eq!(pread(shelf.reader(), &mut count, mark.place).unwrap(), 4);
            u32::from_le_bytes(count)
        };
        let (one, other) = (shelf.mark(7), shelf.mark(8));
        assert!(one.place != other.place && one.place < PAGE as u64 && one.place % 4 == 0);
        assert_eq!((seen(one), seen(other)), (one.count, other.count));
        shelf.note_change(7);
        assert_eq!((seen(one), seen(other)), (one.count + 1, other.count));
        shelf.rest();
        assert_eq!(
            (seen(one), shelf.mark(7)),
            (one.count + 1, Mark { count: one.count + 1, ..one })
        );
        let (_, count) = shelf.count(7);
        count.store(u32::MAX, Ordering::Relaxed);
        shelf.note_change(7);
        assert_eq!(seen(one), 0, "it begins anew");
        let last = (0..100_000).map(|of| shelf.mark(of).place).max();
        assert_eq!(last, Some(PAGE as u64 - 4));
        // What is put lies behind them.
        assert!(shelf.put(&[1]).unwrap().place() >= PAGE as u64);
    }

    #[test]
    fn too_many_bytes_or_none_take_no_place() {
        let shelf = Shelf::new().unwrap();
        assert!(shelf.put(&[]).is_none() && shelf.put(&vec![1; Shelf::BYTES_MAX + 1]).is_none());
        assert_eq!(shelf.put(&[1]).unwrap().place(), (FIRST * SLOT) as u64);
    }

    #[test]
    fn what_is_on_its_way_stays_as_it_was() {
        let shelf = Shelf::new().unwrap();
        let old = shelf.put(&[1; LENGTH]).unwrap();
        let place = old.place();
        let (out, into) = pipe().unwrap();
        // The pages, not a copy of them.
        let mut at = place;
        let sent = splice(shelf.reader(), Some(&mut at), &into, None, LENGTH, SpliceFlags::empty());
        let sent = sent.unwrap();
        assert!(sent >= 4096, "{sent}");
        drop(old);
        let new = shelf.put(&[2; LENGTH]).unwrap();
        assert_eq!(new.place(), place);
        let mut seen = vec![0; sent];
        let mut done = 0;
        while done < sent {
            done += read(&out, &mut seen[done..]).unwrap();
        }
        assert!(seen.iter().all(|byte| *byte == 1), "what was sent has changed to {}", seen[0]);
        assert!(new.iter().all(|byte| *byte == 2));
        assert!(through_reader(&shelf, place, LENGTH) == [2; LENGTH]);
    }

    #[test]
    fn what_leaves_gives_its_pages_back() {
        let shelf = Shelf::new().unwrap();
        let stays = shelf.put(&[1; LENGTH]).unwrap();
        let before = blocks(&shelf);
        let goes = shelf.put(&[2; LENGTH + 1]).unwrap();
        assert!(blocks(&shelf) >= before + (LENGTH / 512) as i64);
        let place = goes.place();
        drop(goes);
        assert!(through_reader(&shelf, place, LENGTH + 1) == [0; LENGTH + 1]);
        assert_eq!(blocks(&shelf), before);
        assert!(stays.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn the_reader_can_only_read() {
        let shelf = Shelf::new().unwrap();
        let shelved = shelf.put(&[1; 4096]).unwrap();
        assert!(pwrite(shelf.reader(), &[2], 0).is_err());
        assert!(fallocate(shelf.reader(), FallocateFlags::empty(), 0, 4096).is_err());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(fallocate(shelf.reader(), punch, 0, 4096).is_err());
        assert!(ftruncate(shelf.reader(), 0).is_err() && ftruncate(&shelf.file, 0).is_err());
        let map = |access| {
            // SAFETY: the system chooses a place where nothing is.
            unsafe { mmap(null_mut(), 4096, access, MapFlags::SHARED, shelf.reader(), 0) }
        };
        assert!(map(ProtFlags::READ | ProtFlags::WRITE).is_err());
        let read_only = map(ProtFlags::READ).unwrap();
        // SAFETY: it was mapped just now, with this length, and nobody has looked there.
        unsafe { munmap(read_only, 4096) }.unwrap();
        assert_eq!(fstat(shelf.reader()).unwrap().st_mode & 0o777, 0o400);
        assert!(shelved.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn places_run_out_and_come_back() {
        let shelf = Shelf::new().unwrap();
        let number = |n: usize| (n as u32).to_le_bytes();
        let mut all: Vec<_> = (0..SLOTS).map(|n| shelf.put(&number(n)).unwrap()).collect();
        assert!(shelf.put(&[1]).is_none());
        assert!(all.iter().enumerate().all(|(n, shelved)| shelved[..] == number(n)));
        let gone: Vec<u64> = all.drain(7..9).map(|shelved| shelved.place()).collect();
        let mut again = [shelf.put(&[1; 9]).unwrap(), shelf.put(&[2; 9]).unwrap()];
        assert!(shelf.put(&[1]).is_none());
        again.sort_by_key(Shelved::place);
        assert_eq!(gone, again.each_ref().map(Shelved::place));
        assert!(all.iter().all(|shelved| !gone.contains(&shelved.place())));
        drop((all, again));
        assert_eq!((blocks(&shelf), shelf.free.lock().back.len()), (0, SLOTS));
    }

    #[test]
    fn a_place_that_cannot_be_emptied_is_used_no_more() {
        let mut shelf = Shelf::new().unwrap();
        let reader = File::from(shelf.reader.try_clone().unwrap());
        // The system refuses whatever changes that.
        let file = std::mem::replace(&mut Arc::get_mut(&mut shelf).unwrap().file, reader);
        assert!(shelf.put(&[1; LENGTH]).is_none());
        assert!(shelf.free.lock().back.is_empty());
        Arc::get_mut(&mut shelf).unwrap().file = file;
        assert_eq!(shelf.put(&[2; LENGTH]).unwrap().place(), ((FIRST + 1) * SLOT) as u64);
    }

    /// Who maps what nobody has put there gets pages for it, which nobody would ever take back.
    #[test]
    fn pages_of_who_only_looked_go() {
        let shelf = Shelf::new().unwrap();
        let stays = shelf.put(&[1; LENGTH + 1]).unwrap();
        let gone = (shelf.put(&[2; LENGTH]).unwrap(), shelf.put(&[3; LENGTH]).unwrap());
        let (before, length) = (blocks(&shelf) - (2 * LENGTH / 512) as i64, 4 * SLOT);
        drop(gone);
        // SAFETY: the system chooses a place where nothing is.
        let map = unsafe {
            let at = ((FIRST + 1) * SLOT) as u64;
            mmap(null_mut(), length, ProtFlags::READ, MapFlags::SHARED, shelf.reader(), at)
        };
        let map = map.unwrap();
        for at in (0..length).step_by(PAGE) {
            // SAFETY: it was mapped just now, with this length, and is only looked at.
            unsafe { map.cast::<u8>().add(at).read_volatile() };
        }
        assert_eq!(blocks(&shelf), before + (length / 512) as i64);
        shelf.rest();
        assert_eq!(blocks(&shelf), before);
        // SAFETY: nobody looks there any more.
        unsafe { munmap(map, length) }.unwrap();
        assert!(stays.iter().all(|byte| *byte == 1));
        assert!(shelf.put(&[4; LENGTH]).unwrap().iter().all(|byte| *byte == 4));
    }
}
