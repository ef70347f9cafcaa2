//! A disk that lies once, and that keeps a checksum of its own beside each sector.
//!
//! The one idea: the checksum is what a disk can know: it is made of the bytes that the disk writes, where it writes
//! them, and checked where it reads. So it is told apart what a disk notices by itself, and what it cannot.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use device::sim::{Fault as SimFault, FaultId, Kind, On, SimDisk};
use device::{Device, Result, WriteDevice};
use format::label::DATA_AT;
use rt::random::Rng;
use rt::sync::{Arc, Mutex};
use rustix::io::Errno;

use crate::faults::Fault;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 4096;
/// Bytes of the labels at the end of a disk.
const LABELS_END: u64 = 512 << 10;

/// A simulated disk with its own checksums.
pub(crate) struct Drive {
    disk: SimDisk,
    state: Mutex<State>,
}

struct State {
    /// What is kept beside each sector that was written.
    seals: BTreeMap<u64, u64>,
    armed: Option<Armed>,
    /// A sector that cannot be read until it is written.
    latent: Option<(u64, FaultId)>,
    struck: bool,
    noticed: bool,
    rng: Rng,
}

/// A lie that is to come.
struct Armed {
    fault: Fault,
    /// Of reads, else of writes.
    reads: bool,
    /// So many go well before.
    skip: u64,
}

fn seal(sector: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    sector.hash(&mut hasher);
    hasher.finish()
}

impl Drive {
    pub(crate) fn new(disk: SimDisk, seed: u64) -> Arc<Drive> {
        let (seals, armed, latent) = Default::default();
        let state =
            State { seals, armed, latent, struck: false, noticed: false, rng: Rng::new(seed) };
        Arc::new(Drive { disk, state: Mutex::new(state) })
    }

    /// Where blocks are.
    fn data(&self) -> Range<u64> {
        DATA_AT..self.disk.size() - LABELS_END
    }

    /// One of the next reads or writes of blocks goes wrong.
    pub(crate) fn arm(&self, fault: Fault, reads: bool, skip: u64) {
        self.state.lock().armed = Some(Armed { fault, reads, skip });
    }

    /// None does any more; did one?
    pub(crate) fn disarm(&self) -> bool {
        let mut state = self.state.lock();
        state.armed = None;
        std::mem::take(&mut state.struck)
    }

    /// Has the disk noticed something since this was asked last: by its checksums, or because it could not read?
    pub(crate) fn take_noticed(&self) -> bool {
        std::mem::take(&mut self.state.lock().noticed)
    }

    /// What it has noticed is of no interest.
    pub(crate) fn forget_noticed(&self) {
        self.state.lock().noticed = false;
    }

    /// The disk is gone, or is there again.
    pub(crate) fn vanish(&self, gone: bool) {
        if gone {
            self.disk.inject(SimFault::vanish());
        } else {
            self.disk.heal();
        }
    }

    /// Does something to a sector in which something is stored; tells how to undo it.
    pub(crate) fn hurt(&self, fault: Fault) -> Option<(u64, Vec<u8>)> {
        let mut state = self.state.lock();
        let data = self.data();
        let stored: Vec<u64> =
            state.seals.range(data.start / SECTOR..data.end / SECTOR).map(|(at, _)| *at).collect();
        let sector = *stored.get(state.rng.index(stored.len().max(1)))?;
        let at = sector * SECTOR;
        let mut before = vec![0; SECTOR as usize];
        self.disk.read_at(at, &mut before).ok()?;
        match fault {
            Fault::BitRot => {
                let seed = state.rng.next_u64();
                self.disk.rot(at..at + SECTOR, 1, seed);
            }
            Fault::LatentError => {
                let error = SimFault::new(Kind::Error(Errno::IO), On::Reads);
                state.latent = Some((sector, self.disk.inject(error.within(at..at + SECTOR))));
            }
            _ => {
                // Somebody else writes to the disk, which does as it is told.
                let mut other = vec![0; SECTOR as usize];
                state.rng.fill(&mut other);
                self.disk.overwrite(at, &other);
                state.seals.insert(sector, seal(&other));
            }
        }
        Some((at, before))
    }

    /// As if it had never been.
    pub(crate) fn undo(&self, (at, before): (u64, Vec<u8>)) {
        let mut state = self.state.lock();
        if let Some((_, id)) = state.latent.take() {
            self.disk.lift(id);
        }
        self.disk.overwrite(at, &before);
        state.seals.insert(at / SECTOR, seal(&before));
    }

    /// Is this operation the one that goes wrong? Small ones are left out: they have nothing to tear, and little to hurt.
    fn strikes(&self, state: &mut State, reads: bool, at: u64, size: usize) -> Option<Fault> {
        let data = self.data();
        let armed = state.armed.as_mut().filter(|armed| armed.reads == reads)?;
        let torn = armed.fault == Fault::TornWrite;
        if at < data.start || at + size as u64 > data.end || torn && size as u64 <= SECTOR {
            return None;
        }
        if armed.skip > 0 {
            armed.skip -= 1;
            return None;
        }
        let fault = armed.fault;
        state.armed = None;
        state.struck = true;
        Some(fault)
    }

    /// Another place of the same size, where it may be taken for the right one.
    fn elsewhere(&self, state: &mut State, at: u64, size: usize) -> u64 {
        let data = self.data();
        let sectors = state.seals.range(data.start / SECTOR..data.end / SECTOR);
        let stored: Vec<u64> = sectors.map(|(sector, _)| sector * SECTOR).collect();
        for _ in 0..64 {
            let to = stored[state.rng.index(stored.len())];
            if to.abs_diff(at) >= size as u64 && to + size as u64 <= data.end {
                return to;
            }
        }
        data.start
    }

    fn keep(&self, state: &mut State, at: u64, bytes: &[u8]) -> Result<()> {
        self.disk.write_at(at, bytes)?;
        for (index, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            let number = at / SECTOR + index as u64;
            if let Some((_, id)) = state.latent.take_if(|(latent, _)| *latent == number) {
                // The disk takes another sector for it.
                self.disk.lift(id);
            }
            state.seals.insert(number, seal(sector));
        }
        Ok(())
    }
}

impl Device for Drive {
    fn name(&self) -> &str {
        self.disk.name()
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector_size(&self) -> u32 {
        self.disk.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut state = self.state.lock();
        let fault = self.strikes(&mut state, true, offset, buf.len());
        let from = match fault {
            Some(Fault::MisdirectedRead) => self.elsewhere(&mut state, offset, buf.len()),
            _ => offset,
        };
        if let Err(error) = self.disk.read_at(from, buf) {
            state.noticed = true;
            return Err(error);
        }
        if from != offset {
            // Another copy of the same is no damage.
            let mut right = vec![0; buf.len()];
            self.disk.read_at(offset, &mut right)?;
            state.struck = right != buf;
        }
        // It reads whole sectors, whatever is asked of it.
        let (start, end) = (from / SECTOR, (from + buf.len() as u64).div_ceil(SECTOR));
        let mut whole = vec![0; ((end - start) * SECTOR) as usize];
        self.disk.read_at(start * SECTOR, &mut whole)?;
        for (number, sector) in (start..end).zip(whole.chunks(SECTOR as usize)) {
            let kept = state.seals.get(&number).copied();
            state.noticed |= kept.is_some_and(|kept| kept != seal(sector));
        }
        if fault == Some(Fault::DamageInTransfer) {
            let at = state.rng.index(buf.len());
            buf[at] ^= 0x10;
        }
        Ok(())
    }
}

impl WriteDevice for Drive {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut bytes = bytes.to_vec();
        let done = match self.strikes(state, false, offset, bytes.len()) {
            Some(Fault::PhantomWrite) => Ok(()),
            Some(Fault::MisdirectedWrite) => {
                let to = self.elsewhere(state, offset, bytes.len());
                self.keep(state, to, &bytes)
            }
            Some(Fault::DamageInTransfer) => {
                let at = state.rng.index(bytes.len());
                bytes[at] ^= 0x10;
                self.keep(state, offset, &bytes)
            }
            Some(Fault::TornWrite) => {
                let sectors = bytes.len() as u64 / SECTOR;
                let landed = state.rng.below(sectors.max(1)) * SECTOR;
                self.keep(state, offset, &bytes[..landed as usize])
            }
            _ => self.keep(state, offset, &bytes),
        };
        state.noticed |= done.is_err();
        done
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[std::io::IoSlice<'_>]) -> Result<()> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_at(offset, &bytes)
    }

    fn flush(&self) -> Result<()> {
        let flushed = self.disk.flush();
        self.state.lock().noticed |= flushed.is_err();
        flushed
    }
}
