//! Two trays that both sides see: a small message is laid there while the other side looks for it. And two bays for bulk
//! bytes that are too many for that, and too few to be lent.
//!
//! The one idea: each tray has a word that says whether its owner looks. Only then is anything laid there, and whoever stops
//! looking finds out in the same step whether something was. So nobody sleeps beside a message, and what is laid down while
//! nobody looks goes through the socket, as all that is larger does. It saves the system's part of a message: two calls and
//! two copies, which is as long as a small request takes. Behind its word each owner says on which core it looks.
//!
//! What lies in a bay is for the message that says so, however that comes. Since a connection carries one request at a time, who
//! may speak has the other side's bay.
//!
//! What is in there may change at any time, since the other side may do what it likes: a message is copied out first, and
//! that copy is read as what comes from a socket is. What is laid down and not taken can be taken back, by who has seen that
//! the other is gone: then it was never heard.
//!
//! It uses `unsafe` for memory that another process has, too.
#![allow(unsafe_code)]

// Those of the machine, not of `rt`: the other process knows no others.
use core::sync::atomic::{AtomicU32, Ordering};
use std::cell::Cell;
use std::io::{Error, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::PIPE_LEAST;
use crate::inbox::{BYTES, Inbox};

/// Bytes that go from one processor to another together.
const LINE: usize = 64;
/// Bytes from a tray's word to its place: what two processors write lies in lines of its own, which come in pairs.
const PLACE: usize = 2 * LINE;
/// Bytes in front of a tray's message, with its word and its place.
const WORD: usize = 2 * PLACE;
/// Bytes of a tray.
const TRAY: usize = WORD + BYTES;
/// Bytes that both trays take in memory, whole pages.
pub const TRAYS_BYTES: usize = (2 * TRAY).next_multiple_of(4096);
/// Bytes of a bay.
const BAY: usize = PIPE_LEAST;
/// Bytes that both bays take in memory, once they are used.
pub const BAYS_BYTES: usize = 2 * BAY;
/// Bytes of all.
const ALL: usize = TRAYS_BYTES + BAYS_BYTES;

/// The owner of the tray does not look.
const AWAY: u32 = 0;
/// It looks, and nothing is there.
const LOOKS: u32 = 1;
/// So many, and the length of what is there.
const THERE: u32 = 2;

/// Where the other side looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// On our core.
    Beside,
    /// On this one.
    On(usize),
    /// Nowhere yet.
    Nowhere,
}

/// Both trays, as one side has them.
#[derive(Debug)]
pub struct Trays {
    memory: NonNull<u8>,
    /// Which is our own, the first or the second.
    ours: usize,
    /// Which is the other side's.
    theirs: usize,
    /// Bytes that were laid there last, unless it was warmed since.
    laid: Cell<usize>,
}

// SAFETY: the memory is there until this is dropped, wherever that is. What two threads do to it at once is what two
// processes may do: words are atomic, and bytes are copied by address.
unsafe impl Send for Trays {}

impl Trays {
    /// New ones, and the file by which the other side gets at them. Nobody can make it shorter.
    ///
    /// # Errors
    /// There are no more files or no memory to be had.
    pub fn new() -> Result<(Trays, OwnedFd)> {
        let file = memfd_create("thumper", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, ALL as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Trays::map(&file, 0, 1)?, file))
    }

    /// Those of the other side.
    ///
    /// # Errors
    /// The file is something else, or there is no memory to be had.
    pub fn of(file: impl AsFd) -> Result<Trays> {
        let is_ours = fstat(&file)?.st_size == ALL as i64
            && fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        match is_ours {
            true => Trays::map(&file, 1, 0),
            false => Err(Error::other("not the memory of two trays")),
        }
    }

    fn map(file: impl AsFd, ours: usize, theirs: usize) -> Result<Trays> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses a place where nothing is.
        let memory = unsafe { mmap(std::ptr::null_mut(), ALL, access, MapFlags::SHARED, file, 0) }?;
        let memory = NonNull::new(memory.cast()).ok_or_else(|| Error::other("mapped at 0"))?;
        Ok(Trays { memory, ours, theirs, laid: Cell::new(0) })
    }

    /// From now on a message may be laid here, until [`Trays::leave`]. One that is there stays.
    pub fn look(&self) {
        let word = self.word(self.ours);
        if word.load(Ordering::Relaxed) == AWAY {
            let _ = word.compare_exchange(AWAY, LOOKS, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Takes what has been laid here, if anything has; how many bytes, 0 if it is no message.
    pub fn take(&self, inbox: &mut Inbox) -> Option<usize> {
        let word = self.word(self.ours);
        let seen = word.load(Ordering::Acquire);
        let length = seen.checked_sub(THERE)? as usize;
        let Some(room) = inbox.room().get_mut(..length) else { return Some(0) };
        let from = self.bytes(self.ours);
        // SAFETY: the room is as long as the message, and no longer than BYTES, which is how many bytes lie behind the
        // word. The other side may change them meanwhile; every value is a valid byte.
        unsafe { std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), length) };
        // It may have been taken back.
        word.compare_exchange(seen, AWAY, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        inbox.came(length);
        Some(length)
    }

    /// Looks no longer; what has come until then is taken.
    pub fn leave(&self, inbox: &mut Inbox) -> Option<usize> {
        let word = self.word(self.ours);
        match word.compare_exchange(LOOKS, AWAY, Ordering::AcqRel, Ordering::Relaxed) {
            Err(seen) if seen != AWAY => self.take(inbox),
            _ => None,
        }
    }

    /// Lays pieces of a message, one behind the other, on the other side's tray; false if it does not look, or there is no
    /// room.
    #[must_use]
    pub fn put(&self, pieces: &[&[u8]]) -> bool {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let word = self.word(self.theirs);
        if length > BYTES || word.load(Ordering::Acquire) != LOOKS {
            return false;
        }
        // SAFETY: they fit behind the word. The other side reads them only after the word says that they are there, and
        // any value that it may see before is valid.
        unsafe { copy(pieces, self.bytes(self.theirs)) };
        self.laid.set(length);
        let there = THERE + length as u32;
        word.compare_exchange(LOOKS, there, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Has the other side's tray come back to our core's caches, once it has taken what was laid there last: the next message
    /// is about as long. To be asked for while there is nothing else to do: else who lays that down waits for each line, half
    /// a microsecond for 4 KiB.
    pub fn warm(&self) {
        if self.laid.get() == 0 || self.word(self.theirs).load(Ordering::Acquire) >= THERE {
            return;
        }
        for at in (0..self.laid.take()).step_by(LINE) {
            // SAFETY: no more bytes were laid there than lie behind the word. No message is there, and any value is valid.
            unsafe { self.bytes(self.theirs).add(at).write_volatile(0) };
        }
    }

    /// Takes back what was laid down; false if the other side has taken it, or nothing was.
    #[must_use]
    pub fn take_back(&self) -> bool {
        let word = self.word(self.theirs);
        let seen = word.load(Ordering::Acquire);
        seen >= THERE
            && word.compare_exchange(seen, AWAY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts pieces of bulk bytes, one behind the other, into the other side's bay, where they stay until it says something.
    /// False: they do not fit.
    #[must_use]
    pub fn fill(&self, pieces: &[&[u8]]) -> bool {
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() > BAY {
            return false;
        }
        // SAFETY: they fit into the bay. The other side reads them only after it is told of them, and any value that it may
        // see before is valid.
        unsafe { copy(pieces, self.bay(self.theirs)) };
        true
    }

    /// Copies bytes out of our bay, from `at` on.
    ///
    /// # Errors
    /// There are no so many.
    pub fn empty(&self, at: usize, out: &mut [u8]) -> Result<()> {
        if at.checked_add(out.len()).is_none_or(|end| end > BAY) {
            return Err(Error::other("more bytes than a bay has"));
        }
        // SAFETY: the range lies in the bay. The other side may change the bytes meanwhile; every value is a valid byte.
        unsafe {
            std::ptr::copy_nonoverlapping(self.bay(self.ours).add(at), out.as_mut_ptr(), out.len());
        }
        Ok(())
    }

    /// Says on which core we look, before others run there; where does the other side, as far as is known?
    #[must_use]
    pub fn meet(&self) -> Other {
        // One more, since none is 0.
        let ours = rt::thread::core() as u32 + 1;
        let place = self.place(self.ours);
        // The other side reads it each time, and mostly it is as it was.
        if place.load(Ordering::Relaxed) != ours {
            place.store(ours, Ordering::Relaxed);
        }
        match self.place(self.theirs).load(Ordering::Relaxed) {
            0 => Other::Nowhere,
            theirs if theirs == ours => Other::Beside,
            theirs => Other::On(theirs as usize - 1),
        }
    }

    /// Where the owner of a tray looked: the core and one more.
    fn place(&self, tray: usize) -> &AtomicU32 {
        // SAFETY: as its word, behind it, in front of the message.
        unsafe { self.memory.add(tray * TRAY + PLACE).cast::<AtomicU32>().as_ref() }
    }

    fn word(&self, tray: usize) -> &AtomicU32 {
        // SAFETY: a tray begins in the memory, at a multiple of four, and all that touch its first word do so like this.
        unsafe { self.memory.add(tray * TRAY).cast::<AtomicU32>().as_ref() }
    }

    fn bytes(&self, tray: usize) -> *mut u8 {
        // SAFETY: a tray has BYTES behind these.
        unsafe { self.memory.add(tray * TRAY + WORD) }.as_ptr()
    }

    fn bay(&self, number: usize) -> *mut u8 {
        // SAFETY: there are two, behind the trays.
        unsafe { self.memory.add(TRAYS_BYTES + number * BAY) }.as_ptr()
    }
}

/// Copies pieces to one place, one behind the other.
///
/// # Safety
/// There is room for all of them, outside of what Rust knows of.
unsafe fn copy(pieces: &[&[u8]], mut to: *mut u8) {
    for piece in pieces {
        // SAFETY: as the caller says.
        unsafe {
            std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
            to = to.add(piece.len());
        }
    }
}

impl Drop for Trays {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing points there any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), ALL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Trays, Trays) {
        let (server, file) = Trays::new().unwrap();
        (server, Trays::of(&file).unwrap())
    }

    fn taken(inbox: &mut Inbox) -> Vec<u8> {
        let mut out = vec![0; inbox.length()];
        inbox.take(&mut std::io::empty(), &mut out).unwrap();
        out
    }

    #[test]
    fn what_is_laid_down_while_somebody_looks_is_found_and_nothing_else() {
        let (server, client) = both();
        let mut inbox = Inbox::default();
        for (one, other) in [(&client, &server), (&server, &client)] {
            assert!(!one.put(&[b"a"]), "nobody looks");
            other.look();
            assert_eq!(other.take(&mut inbox), None);
            assert!(!one.put(&[&[1; BYTES], b"a"]), "there is no room");
            assert!(one.put(&[b"ab", b"", b"c"]));
            assert!(!one.put(&[b"d"]), "one is there");
            assert_eq!((other.take(&mut inbox), other.take(&mut inbox)), (Some(3), None));
            assert_eq!(taken(&mut inbox), b"abc");
            assert!(!one.put(&[b"d"]), "it was taken");
            other.look();
            assert_eq!(other.leave(&mut inbox), None);
            assert!(!one.put(&[b"e"]));
            other.look();
            assert!(one.put(&[&[7; BYTES]]));
            assert_eq!(other.leave(&mut inbox), Some(BYTES));
            assert!(taken(&mut inbox) == [7; BYTES]);
        }
    }

    #[test]
    fn what_was_not_taken_is_not_warmed_away() {
        let (server, client) = both();
        let mut inbox = Inbox::default();
        for length in [1, 64, BYTES] {
            server.look();
            assert!(client.put(&[&vec![7; length]]));
            client.warm();
            assert_eq!(server.take(&mut inbox), Some(length));
            assert!(taken(&mut inbox) == vec![7; length]);
            client.warm();
            assert_eq!((client.laid.get(), server.take(&mut inbox)), (0, None));
        }
    }

    #[test]
    fn one_side_knows_where_the_other_looked() {
        let (server, client) = both();
        assert_eq!(client.meet(), Other::Nowhere);
        // This thread may be moved in between, but not each time.
        let meet = || server.meet() == Other::Beside && client.meet() == Other::Beside;
        assert!((0..1000).any(|_| meet()));
        // Whatever the other side says.
        client.place(client.theirs).store(u32::MAX, Ordering::Relaxed);
        assert_eq!(client.meet(), Other::On(u32::MAX as usize - 1));
    }

    #[test]
    fn what_was_not_taken_can_be_taken_back() {
        let (server, client) = both();
        let mut inbox = Inbox::default();
        server.look();
        assert!(!client.take_back());
        assert!(client.put(&[b"a"]) && client.take_back() && !client.take_back());
        assert_eq!((server.take(&mut inbox), server.leave(&mut inbox)), (None, None));
        server.look();
        assert!(client.put(&[b"b"]));
        assert_eq!(server.take(&mut inbox), Some(1));
        assert!(!client.take_back());
    }

    #[test]
    fn any_word_is_a_message_or_an_end() {
        let (server, client) = both();
        let mut inbox = Inbox::default();
        for word in [BYTES as u32 + THERE + 1, u32::MAX] {
            client.word(client.theirs).store(word, Ordering::Relaxed);
            assert_eq!(server.take(&mut inbox), Some(0));
            assert_eq!(server.leave(&mut inbox), Some(0));
        }
        // More than there is room for behind what has come another way.
        let (server, client) = both();
        server.look();
        assert!(client.put(&[&[1; BYTES]]));
        inbox.came(1);
        assert_eq!(server.take(&mut inbox), Some(0));
    }

    #[test]
    fn bays_and_trays_are_apart() {
        let (server, client) = both();
        let (asked, answered) = (vec![1; BAY], vec![2; BAY]);
        assert!(client.fill(&[&asked[..9], b"", &asked[9..]]) && server.fill(&[&answered]));
        client.look();
        server.look();
        assert!(client.put(&[&[3; BYTES]]) && server.put(&[&[4; BYTES]]));
        let mut out = vec![0; BAY];
        server.empty(0, &mut out).unwrap();
        assert!(out == asked);
        client.empty(9, &mut out[9..]).unwrap();
        assert!(out[..9] == asked[..9] && out[9..] == answered[9..]);
        let mut inbox = Inbox::default();
        assert_eq!(client.take(&mut inbox), Some(BYTES));
        assert!(taken(&mut inbox) == [4; BYTES]);
    }

    #[test]
    fn a_bay_ends() {
        let (server, client) = both();
        assert!(!client.fill(&[&[1; BAY], b"a"]) && client.fill(&[]));
        for (at, length) in [(0, BAY + 1), (BAY, 1), (usize::MAX, 1), (1, BAY)] {
            assert!(server.empty(at, &mut vec![0; length]).is_err(), "{length} at {at}");
        }
        assert!(server.empty(BAY, &mut []).is_ok());
    }

    #[test]
    fn the_memory_stays_as_large_as_it_is() {
        let (_server, file) = Trays::new().unwrap();
        assert!(ftruncate(&file, 0).is_err());
        let other = memfd_create("thumper", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&other, ALL as u64).unwrap();
        assert!(Trays::of(&other).is_err(), "it could be made shorter under our hands");
    }

    #[test]
    fn two_sides_at_once_lose_nothing_and_get_nothing_twice() {
        const TIMES: u32 = 20_000;
        let (server, client) = both();
        let sender = rt::thread::spawn("sender", move || {
            let (mut laid, mut back) = (0, 0);
            for number in 0..TIMES {
                // As over a socket: what is not looked for is sent another way, here not at all.
                if client.put(&[&number.to_le_bytes()]) {
                    laid += 1;
                    back += u32::from(number % 7 == 0 && client.take_back());
                    while client.word(client.theirs).load(Ordering::Relaxed) >= THERE {
                        rt::sync::hint::spin_loop();
                    }
                }
            }
            client.look();
            laid - back
        });
        let (mut inbox, mut last, mut count) = (Inbox::default(), None, 0);
        let is_over = || server.word(server.theirs).load(Ordering::Acquire) == LOOKS;
        loop {
            let over = is_over();
            server.look();
            let found = (0..20).find_map(|_| server.take(&mut inbox));
            if found.or_else(|| server.leave(&mut inbox)).is_some() {
                let number = u32::from_le_bytes(taken(&mut inbox).try_into().unwrap());
                assert!(last < Some(number));
                (last, count) = (Some(number), count + 1);
            }
            if over {
                break;
            }
        }
        assert_eq!(count, sender.join());
    }
}
