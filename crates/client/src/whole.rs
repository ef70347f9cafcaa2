//! All of a small file, as it came with the answer to its opening.
//!
//! Place: beside `file`, whose reads are answered from here while that can be told to be right.
//! The one idea: the server counts each change before it makes it, in memory that is seen here. So as long as the count is what
//! it was before the bytes were read, they are what the server would answer now; and then it need not be asked.

use std::time::Duration;

use rt::sync::{Arc, Mutex};
use rt::time::{Instant, now};
use rustix::io::{Errno, pread};
use wire::{Mark, WHOLE_BELOW};

use crate::lanes::Client;

/// For how long they are used. What goes unseen is what no server counts: that one has died and another one changes the file,
/// or that its file system is rolled back. Who is further away than this asks for what he wants to read.
const SOON: Duration = Duration::from_millis(100);

/// So many files have their bytes here at most.
const MOST: usize = 64;

/// The mark of a file that came, and how many bytes it has.
pub(crate) type Came = (Mark, usize);

/// Memory for the bytes of small files.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<Spare>);

#[derive(Default)]
struct Spare {
    made: usize,
    free: Vec<Box<[u8]>>,
}

/// Room for one of them, until this is dropped.
pub(crate) struct Room {
    client: Arc<Client>,
    bytes: Box<[u8]>,
}

impl Room {
    /// Room for what a server sends who tells what becomes of it, if it can be had.
    pub(crate) fn of(client: &Arc<Client>) -> Option<Room> {
        client.shelf(None)?;
        let mut spare = client.rooms.0.lock();
        let bytes = match spare.free.pop() {
            None if spare.made == MOST => return None,
            None => {
                spare.made += 1;
                vec![0; WHOLE_BELOW].into()
            }
            Some(bytes) => bytes,
        };
        Some(Room { client: client.clone(), bytes })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.client.rooms.0.lock().free.push(std::mem::take(&mut self.bytes));
    }
}

/// All bytes of a file.
pub(crate) struct Whole {
    room: Room,
    length: usize,
    mark: Mark,
    /// The session in which they came.
    epoch: u64,
    since: Instant,
}

impl Whole {
    /// The first so many bytes of a room, which came in a session with this mark.
    pub(crate) fn of(room: Room, (mark, length): Came, epoch: u64) -> Whole {
        Whole { room, length, mark, epoch, since: now() }
    }

    /// Its bytes from `offset` on, as many as there are; `None`: the server is to be asked.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        if !self.is_right() {
            return None;
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.length);
        let count = out.len().min(self.length - from);
        out[..count].copy_from_slice(&self.room.bytes[from..from + count]);
        Some(count)
    }

    /// Does this reach the end?
    pub(crate) fn ends_by(&self, end: u64) -> bool {
        end >= self.length as u64
    }

    fn is_right(&self) -> bool {
        if self.since.elapsed() >= SOON {
            return false;
        }
        let Some(shelf) = self.room.client.shelf(Some(self.epoch)) else { return false };
        let mut count = [0; 4];
        let got = loop {
            match pread(&shelf, &mut count, self.mark.place) {
                Err(Errno::INTR) => {}
                got => break got,
            }
        };
        got == Ok(count.len()) && u32::from_le_bytes(count) == self.mark.count
    }
}
