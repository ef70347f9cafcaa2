//! A disk of terabytes in little memory, and what it was asked for.
//!
//! The one idea: files of one repeated word have parity of one repeated word, so a sector is eight bytes.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};

use device::queue::{Batch, Class, LeafQueue, Options, ReadQueue, WriteQueue};
use device::{Device, Result, WriteDevice};
use rt::buf::BufPool;
use rt::sync::atomic::AtomicU64;
use rt::sync::{Arc, Mutex};

const SECTOR: usize = 4096;
const WORD: usize = 8;

enum Sector {
    Word([u8; WORD]),
    Bytes(Box<[u8]>),
}

struct Sparse {
    name: String,
    size: u64,
    sectors: Mutex<HashMap<u64, Sector>>,
}

impl Sparse {
    /// Calls with each sector's number, the place in it and that in the buffer.
    fn pieces(offset: u64, size: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < size {
            let at = offset + done as u64;
            let within = (at % SECTOR as u64) as usize;
            let part = (SECTOR - within).min(size - done);
            each(at / SECTOR as u64, within, done..done + part);
            done += part;
        }
    }
}

impl Device for Sparse {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        SECTOR as u32
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let sectors = self.sectors.lock();
        Sparse::pieces(offset, buf.len(), |number, within, range| {
            let to = &mut buf[range];
            match sectors.get(&number) {
                None => to.fill(0),
                Some(Sector::Bytes(bytes)) => to.copy_from_slice(&bytes[within..][..to.len()]),
                Some(Sector::Word(word)) => {
                    let bytes = word.iter().cycle().skip(within % WORD);
                    match to.as_chunks_mut::<WORD>() {
                        (words, []) if within % WORD == 0 => words.fill(*word),
                        _ => to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte),
                    }
                }
            }
        });
        Ok(())
    }
}

impl WriteDevice for Sparse {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut sectors = self.sectors.lock();
        Sparse::pieces(offset, bytes.len(), |number, within, range| {
            let from = &bytes[range];
            if let ([first, rest @ ..], []) = from.as_chunks::<WORD>()
                && from.len() == SECTOR
                && rest.iter().all(|word| word == first)
            {
                sectors.insert(number, Sector::Word(*first));
                return;
            }
            let mut whole = match sectors.remove(&number) {
                None => vec![0; SECTOR].into(),
                Some(Sector::Bytes(bytes)) => bytes,
                Some(Sector::Word(word)) => word.repeat(SECTOR / WORD).into_boxed_slice(),
            };
            whole[within..][..from.len()].copy_from_slice(from);
            sectors.insert(number, Sector::Bytes(whole));
        });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// What was asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write,
    Flush,
}

/// One thing that a disk was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) disk: usize,
    pub(crate) what: What,
    /// By a scan, for what it examines or fills.
    pub(crate) scan: bool,
    /// Asked for at once with what is before it, and waited for together.
    pub(crate) along: bool,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The list of all disks, in the order in which they were asked.
pub(crate) type Trace = Arc<Mutex<Vec<Io>>>;

/// A disk behind a queue, as servers have theirs.
pub(crate) struct Witness {
    queue: LeafQueue<Sparse>,
    disk: usize,
    trace: Trace,
}

impl Witness {
    pub(crate) fn new(disk: usize, size: u64, trace: &Trace) -> Arc<Witness> {
        let sparse = Sparse { name: format!("disk{disk}"), size, sectors: Mutex::default() };
        let queue = LeafQueue::new(sparse, Options::threads(1), BufPool::new(8 << 20));
        Arc::new(Witness { queue, disk, trace: trace.clone() })
    }

    fn note(&self, what: What, (class, along): (Class, bool), (offset, bytes): (u64, usize)) {
        let (disk, scan, bytes) = (self.disk, class == Class::Scan, bytes as u64);
        self.trace.lock().push(Io { disk, what, scan, along, offset, bytes });
    }
}

fn total(bufs: &[IoSlice<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

impl Device for Witness {
    fn name(&self) -> &str {
        self.queue.name()
    }

    fn size(&self) -> u64 {
        self.queue.size()
    }

    fn sector_size(&self) -> u32 {
        self.queue.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note(What::Read, (Class::SyncRead, false), (offset, buf.len()));
        self.queue.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.note(What::Read, (Class::SyncRead, false), (offset, bytes));
        self.queue.read_vectored_at(offset, bufs)
    }

    fn read_queue(&self) -> Option<&dyn ReadQueue> {
        Some(self)
    }
}

impl WriteDevice for Witness {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_for(Class::SyncWrite, offset, &[IoSlice::new(bytes)])
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.write_for(Class::SyncWrite, offset, bufs)
    }

    fn write_for(&self, class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.note(What::Write, (class, false), (offset, total(bufs)));
        self.queue.write_for(class, offset, bufs)
    }

    fn flush(&self) -> Result<()> {
        self.note(What::Flush, (Class::SyncWrite, false), (0, 0));
        WriteDevice::flush(&self.queue)
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        Some(self)
    }
}

impl ReadQueue for Witness {
    fn start_reads(&self, batch: &Batch, class: Class, reads: &[(u64, usize)]) -> Vec<usize> {
        let before = !batch.is_empty();
        for (number, read) in reads.iter().enumerate() {
            self.note(What::Read, (class, before || number > 0), *read);
        }
        ReadQueue::start_reads(&self.queue, batch, class, reads)
    }
}

impl WriteQueue for Witness {
    fn start_write(&self, batch: &Batch, class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> usize {
        self.note(What::Write, (class, !batch.is_empty()), (offset, total(bufs)));
        WriteQueue::start_write(&self.queue, batch, class, offset, bufs)
    }

    fn start_flush(&self, batch: &Batch, failures: &Arc<AtomicU64>) -> usize {
        self.note(What::Flush, (Class::SyncWrite, !batch.is_empty()), (0, 0));
        WriteQueue::start_flush(&self.queue, batch, failures)
    }
}
