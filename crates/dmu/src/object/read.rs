//! Reading an object: the newest version of a block, from memory or by its pointer from disk.
//!
//! The one idea: one look at the state says where a block is; if the state has moved on by the time
//! the disk has answered wrongly, look again.

use format::{BlkPtr, DnodePhys};
use store::{At, Block};

use super::{Changes, Object, Record, Spill};
use crate::bytes::{copy_padded, resized};
use crate::error::Result;
use crate::tree::Root;

/// Bytes that are asked of disks at once.
const TOGETHER_MAX: usize = 16 << 20;

/// Number of the spill block in places.
pub(crate) const SPILL: u64 = u64::MAX;

/// Where the newest version of a block is.
pub(super) enum Source {
    Memory(Record),
    Hole,
    Disk(Box<Root>, u64),
}

/// The newest version of a block.
pub(super) enum Newest {
    Changed(Record),
    OnDisk(Block),
    Hole,
}

impl Newest {
    /// Its bytes; a hole has none.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Newest::Changed(record) => Some(record),
            Newest::OnDisk(block) => Some(block),
            Newest::Hole => None,
        }
    }
}

impl Object {
    /// A block of this object, for whom it is read.
    fn at(&self, block: u64) -> At {
        At { object: self.number, block }
    }

    pub(super) fn source(&self, block: u64) -> Result<(Source, u32)> {
        let (source, size, _) = self.source_of(block, 1)?;
        Ok((source, size))
    }

    /// Where the newest version of a block is, the size that blocks have now, and of how many blocks from it on, at most
    /// `count`, the same source has the newest version. All by one look: what a sync takes out of memory in between would
    /// be neither here nor there.
    fn source_of(&self, block: u64, count: u64) -> Result<(Source, u32, u64)> {
        let state = self.state.lock();
        let head = state.newest.as_ref().ok_or_else(|| self.gone())?;
        let size = head.dnode.block_size();
        let limit = block.saturating_add(count);
        for (newer, changes) in state.changes.iter().rev().enumerate() {
            if let Some(record) = changes.records.get(&block) {
                return Ok((Source::Memory(record.clone()), size, 1));
            }
            if let Some(freed) = changes.freed.end_of(block) {
                // As far as nobody has written since.
                let end = freed.min(limit);
                let since = state.changes.iter().rev().take(newer + 1);
                let written = since.filter_map(|c| c.records.range(block..end).next());
                let end = written.map(|(written, _)| *written).min().unwrap_or(end);
                return Ok((Source::Hole, size, (end - block).max(1)));
            }
        }
        let mut end = limit;
        for changes in &state.changes {
            if let Some((changed, _)) = changes.records.range(block..end).next() {
                end = *changed;
            }
            if let Some(freed) = changes.freed.first_in(block, end) {
                end = freed;
            }
        }
        let source = match &state.synced {
            Some(dnode) => Source::Disk(Box::new(Root::of(self.number, dnode)), state.version),
            None => Source::Hole,
        };
        Ok((source, size, (end - block).max(1)))
    }

    /// Counts the syncs that changed the object.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// The newest version of block `block`, and the size that blocks have now.
    pub(super) fn newest(&self, block: u64) -> Result<(Newest, usize)> {
        loop {
            let (source, size) = self.source(block)?;
            let size = size as usize;
            let (root, version) = match source {
                Source::Memory(record) => return Ok((Newest::Changed(record), size)),
                Source::Hole => return Ok((Newest::Hole, size)),
                Source::Disk(root, version) => (root, version),
            };
            let read = root.pointer(&self.store, 0, block).and_then(|bp| match bp.is_hole() {
                true => Ok(Newest::Hole),
                false => {
                    let read = self.store.read_for(self.at(block), &bp);
                    read.map(Newest::OnDisk).map_err(self.block_error(block))
                }
            });
            match read {
                // The block may have been freed and reused while it was read.
                Err(_) if self.version() != version => {}
                read => return Ok((read?, size)),
            }
        }
    }

    /// The newest version of block `block`, if blocks have `size` bytes and no disk need be asked for those.
    pub(super) fn newest_kept(&self, block: u64, size: u64) -> Result<Option<Newest>> {
        self.newest_found(block, size, |bp| self.store.kept(bp))
    }

    /// The same, where what is on disk is what `find` finds.
    pub(super) fn newest_found(
        &self,
        block: u64,
        size: u64,
        find: impl FnOnce(&BlkPtr) -> Option<Block>,
    ) -> Result<Option<Newest>> {
        let (root, version) = match self.source(block)? {
            (_, now) if u64::from(now) != size => return Ok(None),
            (Source::Memory(record), _) => return Ok(Some(Newest::Changed(record))),
            (Source::Hole, _) => return Ok(Some(Newest::Hole)),
            (Source::Disk(root, version), _) => (root, version),
        };
        let found = root.pointer(&self.store, 0, block).map(|bp| find(&bp));
        match found {
            Err(_) if self.version() != version => Ok(None),
            found => Ok(found?.map(Newest::OnDisk)),
        }
    }

    /// Calls `f` with the newest bytes of block `block`.
    pub fn with_block<R>(&self, block: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (newest, size) = self.newest(block)?;
        Ok(match newest.bytes() {
            Some(bytes) if bytes.len() == size => f(bytes),
            Some(bytes) => f(&resized(bytes, size)),
            None => f(&vec![0; size]),
        })
    }

    /// [`Object::read`] without reading ahead.
    pub(super) fn read_now(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            done += self.read_run(at, &mut buf[done..])?;
        }
        Ok(())
    }

    /// Reads the longest prefix of `buf` that one look at the state serves; returns its length.
    fn read_run(&self, at: u64, buf: &mut [u8]) -> Result<usize> {
        let (first, size) = {
            let size = u64::from(self.block_size()?);
            (at / size, size)
        };
        let inside = (at % size) as usize;
        let most = if self.store.is_on_disks() { TOGETHER_MAX } else { usize::MAX };
        let wanted = (buf.len().min(most) as u64 / size).max(1);
        let (source, size_now, count) = self.source_of(first, wanted)?;
        if u64::from(size_now) != size {
            return Ok(0);
        }
        let size = size as usize;
        let part = buf.len().min(size - inside);
        match source {
            Source::Memory(record) => {
                copy_padded(&record, inside, &mut buf[..part]);
                Ok(part)
            }
            Source::Hole => {
                buf[..part].fill(0);
                Ok(part)
            }
            Source::Disk(root, version) => {
                if inside != 0 || buf.len() < size {
                    self.with_block(first, |bytes| copy_padded(bytes, inside, &mut buf[..part]))?;
                    return Ok(part);
                }
                // Whole records: as many as are on disk side by side.
                let used = count as usize * size;
                match self.read_records(&root, first, count, size, &mut buf[..used]) {
                    Ok(()) => Ok(used),
                    Err(_) if self.version() != version => Ok(0),
                    Err(e) => Err(e),
                }
            }
        }
    }

    /// Are blocks `[first, first + count)` as on disk: has no living txg changed one?
    pub(super) fn is_unchanged(&self, first: u64, count: u64) -> bool {
        let state = self.state.lock();
        let changed = |changes: &Changes| {
            changes.records.range(first..first + count).next().is_some()
                || changes.freed.first_in(first, first + count).is_some()
        };
        state.newest.is_some() && !state.changes.iter().any(changed)
    }

    fn read_records(
        &self,
        root: &Root,
        first: u64,
        count: u64,
        size: usize,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut bps = Vec::with_capacity(count as usize);
        root.pointers(&self.store, first, count, |index, bp| {
            bps.push((index, bp));
            Ok(())
        })?;
        let whole = |(_, bp): &(u64, BlkPtr)| bp.is_hole() || bp.lsize() == size as u64;
        if self.store.is_on_disks() && bps.iter().all(whole) {
            let mut flight = self.store.plan(self.number, bps);
            self.store.start(&mut flight, true, None);
            for (index, out) in buf.chunks_exact_mut(size).enumerate() {
                let landed = self.store.land(&mut flight, index, out);
                landed.map_err(self.block_error(first + index as u64))?;
            }
            return Ok(());
        }
        let mut parts = buf.chunks_exact_mut(size);
        for (block, bp) in &bps {
            let Some(part) = parts.next() else { break };
            let (block, at) = (*block, self.at(*block));
            if bp.is_hole() {
                part.fill(0);
            } else if bp.lsize() == size as u64 {
                self.store.read_into_for(at, bp, part).map_err(self.block_error(block))?;
            } else {
                let bytes = self.store.read_for(at, bp).map_err(self.block_error(block))?;
                copy_padded(&bytes, 0, part);
            }
        }
        Ok(())
    }

    /// The first block at or after `from` that holds data (`data`) or is a hole, up to `limit`.
    pub fn next_block(&self, from: u64, limit: u64, data: bool) -> Result<Option<u64>> {
        let mut at = from;
        while at < limit {
            let (source, _, count) = self.source_of(at, limit - at)?;
            match source {
                Source::Memory(_) if data => return Ok(Some(at)),
                Source::Hole if !data => return Ok(Some(at)),
                Source::Memory(_) | Source::Hole => at += count,
                Source::Disk(root, version) => {
                    match root.next(&self.store, at, at + count, data) {
                        Ok(Some(found)) => return Ok(Some(found)),
                        Ok(None) => at += count,
                        // An indirect block may have been freed and reused while it was read.
                        Err(_) if self.version() != version => {}
                        Err(e) => return Err(e),
                    }
                }
            }
        }
        Ok(None)
    }

    /// The newest header, and the spill block that goes with it. Both by one look: a change moves what is in the one to
    /// the other.
    pub fn header_and_spill(&self) -> Result<(DnodePhys, Option<Block>)> {
        self.with_spill(DnodePhys::clone)
    }

    /// The newest spill block.
    pub fn spill(&self) -> Result<Option<Block>> {
        Ok(self.with_spill(|_| ())?.1)
    }

    fn with_spill<R>(&self, f: impl Fn(&DnodePhys) -> R) -> Result<(R, Option<Block>)> {
        loop {
            let (header, bp, version) = {
                let state = self.state.lock();
                let head = state.newest.as_ref().ok_or_else(|| self.gone())?;
                let header = f(&head.dnode);
                let bp = match &head.spill {
                    Spill::None => None,
                    Spill::New(bytes) => return Ok((header, Some(bytes.clone()))),
                    Spill::OnDisk => state.synced.as_ref().and_then(|d| d.spill().copied()),
                };
                (header, bp, state.version)
            };
            let Some(bp) = bp.filter(|bp| !bp.is_hole()) else { return Ok((header, None)) };
            match self.store.read_for(self.at(SPILL), &bp) {
                Ok(block) => return Ok((header, Some(block))),
                // It may have been freed and reused while it was read.
                Err(_) if self.version() != version => {}
                Err(e) => return Err(self.block_error(SPILL)(e)),
            }
        }
    }
}
