//! From a block pointer to verified bytes (INV-2).
//!
//! Every copy is tried in turn, and the vdev layer tries every combination of parity within a
//! copy; bytes leave this module only after their checksum matched (or the pointer says that there
//! is none). Gang blocks are gathered from their members; embedded pointers are their own data.

use codec::checksum::{self, Salt};
use codec::embedded::{self, Place};
use format::gang::{GANG_DEPTH_MAX, GANG_SIZE, GangHeader};
use format::scan::Bookmark;
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType, SECTOR};
use rt::buf::{BufPool, Shelf};
use rt::mem::Account;
use rt::sync::{Arc, RwLock};
use vdev::{Present, ReadReport, Tree};

use crate::cache::{Block, Bytes, Cache, POOLED_LEAST};
use crate::error::{Result, StoreError};
use crate::gate::{self, Gate, Waits};
use crate::overwritten::Overwritten;
use crate::streams::Streams;
use crate::trouble::{Trouble, Troubles};

#[cfg(test)]
mod tests;

/// The pool's own object set.
const MOS: u64 = 0;
const BAD_HEADER: &str = "a gang header that does not describe its block";

/// The reading side of a pool: everything that is not allowed to write uses only this.
pub struct Store {
    present: Arc<Present>,
    cache: Arc<Cache>,
    buffers: Arc<BufPool>,
    salt: Arc<RwLock<Salt>>,
    streams: Arc<Streams>,
    /// Where reads wait that the sync cannot do without, and whose; `None`: they fail.
    gate: Option<(Arc<Gate>, Waits)>,
    /// Who hears of blocks that are not as they should be.
    troubles: Arc<Troubles>,
    overwritten: Arc<Overwritten>,
    /// The object set whose blocks are read through this view of the store, if it is of one.
    objset: Option<u64>,
}

/// For whom a block is read: an object, and which block of its level it is. The level is in the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The object; 0 is the meta dnode.
    pub object: u64,
    /// Number of the block.
    pub block: u64,
}

impl At {
    /// The block that an object set's own pointer leads to.
    pub const ROOT: At = At { object: 0, block: 0 };
}

impl Store {
    /// A store over a tree whose cache holds at most `cache_bytes_max`, and its streams what `streams` allows.
    pub fn new(
        present: Arc<Present>,
        buffers: Arc<BufPool>,
        cache_bytes_max: usize,
        streams: Arc<Streams>,
    ) -> Store {
        let cache = Cache::of(streams.account(), cache_bytes_max);
        let salt = Arc::new(RwLock::new([0; 32]));
        let overwritten = Arc::new(Overwritten::new(streams.account()));
        let (gate, troubles, objset) = Default::default();
        Store { present, cache, buffers, salt, streams, gate, troubles, overwritten, objset }
    }

    /// The same store, for those who cannot do without what they read: when devices fail, they wait.
    pub fn waiting_at(&self, gate: Arc<Gate>) -> Store {
        Store { gate: Some((gate, Waits::All)), ..self.view() }
    }

    /// The same store, in which the sync waits when devices fail, and nobody else does ([`Gate::syncing`]).
    pub fn waiting_in_sync_at(&self, gate: Arc<Gate>) -> Store {
        Store { gate: Some((gate, Waits::Sync)), ..self.view() }
    }

    /// The same store, for those who read the object set of data set `objset` (0: the MOS): what is wrong with
    /// its blocks is told.
    pub fn of_objset(&self, objset: u64) -> Store {
        Store { objset: Some(objset), ..self.view() }
    }

    fn view(&self) -> Store {
        let Store { present, cache, buffers, salt, streams, gate, troubles, overwritten, objset } =
            self;
        Store {
            present: present.clone(),
            cache: cache.clone(),
            buffers: buffers.clone(),
            salt: salt.clone(),
            streams: streams.clone(),
            gate: gate.clone(),
            troubles: troubles.clone(),
            overwritten: overwritten.clone(),
            objset: *objset,
        }
    }

    /// Who hears of blocks that are not as they should be.
    pub fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// Blocks of the MOS that a sync writes over.
    pub(crate) fn overwritten(&self) -> &Overwritten {
        &self.overwritten
    }

    /// May the block be written over while it is read here?
    pub(crate) fn may_be_overwritten(&self, bp: &BlkPtr) -> bool {
        self.objset == Some(MOS) && self.overwritten.may_have(bp)
    }

    /// Tells of what went wrong with a block, if it is known whose it is.
    pub(crate) fn tell(&self, bp: &BlkPtr, at: Option<At>, trouble: Trouble) {
        if let (Some(objset), Some(At { object, block })) = (self.objset, at)
            && trouble != Trouble::default()
        {
            let root = bp.kind() == ObjectType::OBJSET;
            let level = if root { -1 } else { i64::from(bp.level()) };
            self.troubles.tell(Bookmark { objset, object, level, block }, trouble);
        }
    }

    /// The pool's salt for skein and edonr, once the MOS is open.
    pub fn set_salt(&self, salt: Salt) {
        *self.salt.write() = salt;
    }

    /// The pool's salt.
    pub fn salt(&self) -> Salt {
        *self.salt.read()
    }

    /// Where the tree is found that is read from.
    pub fn present(&self) -> &Arc<Present> {
        &self.present
    }

    /// The vdevs as they are now: to be asked for anew for each I/O, and kept with what it says of leaves.
    pub fn tree(&self) -> Arc<Tree> {
        self.present.get()
    }

    /// Is the pool on disks, where I/Os are best few and large?
    pub fn is_on_disks(&self) -> bool {
        self.tree().is_queued()
    }

    /// Those who read on and on.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// The account of the memory of all that is read and written here (INV-5).
    pub fn account(&self) -> &Account {
        self.streams.account()
    }

    /// Recycled buffers for records.
    pub fn buffers(&self) -> &BufPool {
        &self.buffers
    }

    /// Keeps the bytes of a block that was just written.
    pub fn keep(&self, bp: &BlkPtr, block: Block) {
        self.cache.put(bp, block);
    }

    /// The block, if it is in the cache.
    pub fn kept(&self, bp: &BlkPtr) -> Option<Block> {
        self.cache.get(bp)
    }

    /// The block, if it is in the cache and can be on `shelf`, from where others can send it.
    pub fn shelve(&self, bp: &BlkPtr, shelf: &Arc<Shelf>) -> Option<Block> {
        self.cache.shelve(bp, shelf)
    }

    /// Is the block in the cache?
    pub fn is_kept(&self, bp: &BlkPtr) -> bool {
        self.kept(bp).is_some()
    }

    /// Is the block in the cache, or was this asked lately? A block that is wanted again is worth keeping.
    pub fn is_wanted_again(&self, bp: &BlkPtr) -> bool {
        self.cache.is_wanted_again(bp)
    }

    /// Forgets the bytes of a block that was written over, or freed.
    pub(crate) fn forget(&self, bp: &BlkPtr) {
        self.cache.forget(bp);
    }

    /// Deflated size of a block: what the DSL counts, in bytes.
    pub fn dsize(&self, bp: &BlkPtr) -> u64 {
        bp.dvas().map(|dva| self.deflate(dva.vdev, dva.asize)).sum()
    }

    /// What a block of `psize` bytes takes on a top-level vdev, in bytes.
    pub fn asize(&self, top: u32, psize: u64) -> u64 {
        let tree = self.tree();
        let layout = tree.top(top).ok().and_then(|t| t.layout.as_ref());
        layout.map_or(psize, |l| l.asize(psize))
    }

    /// What the DSL counts for an allocation of `asize` bytes on a top-level vdev.
    pub fn deflate(&self, top: u32, asize: u64) -> u64 {
        let tree = self.tree();
        let layout = tree.top(top).ok().and_then(|t| t.layout.as_ref());
        layout.map_or(asize, |l| l.deflate(asize))
    }

    /// What the DSL counts for one copy of a block of `psize` bytes, at most, wherever it goes.
    pub fn dsize_max(&self, psize: u64) -> u64 {
        let tree = self.tree();
        let layouts = tree.tops().iter().filter_map(|top| top.layout.as_ref());
        layouts.map(|l| l.deflate(l.asize(psize))).max().unwrap_or(psize)
    }

    /// The block, verified and decompressed, from the cache or the disks.
    pub fn read(&self, bp: &BlkPtr) -> Result<Block> {
        self.read_any(bp, None)
    }

    /// As [`Store::read`], for an object.
    pub fn read_for(&self, at: At, bp: &BlkPtr) -> Result<Block> {
        self.read_any(bp, Some(at))
    }

    fn read_any(&self, bp: &BlkPtr, at: Option<At>) -> Result<Block> {
        if let Some(block) = self.cache.get(bp) {
            return Ok(block);
        }
        check_sizes(bp)?;
        let length = bp.lsize() as usize;
        let bytes = if length < POOLED_LEAST {
            let mut bytes = vec![0; length];
            self.read_readable(bp, at, &mut bytes)?;
            Bytes::Own(bytes)
        } else {
            let mut bytes = self.buffers.get(length);
            self.read_readable(bp, at, &mut bytes)?;
            Bytes::Pooled(bytes)
        };
        if !bp.is_little_endian() {
            let reason = "a block of the other byte order";
            return Err(StoreError::BadPointer { bp: Box::new(*bp), reason });
        }
        let block = Arc::new(bytes);
        self.cache.put(bp, block.clone());
        Ok(block)
    }

    /// The block, verified and decompressed, with what in it is encrypted as it lies on disk. Bypasses the
    /// cache.
    pub fn read_undeciphered(&self, bp: &BlkPtr) -> Result<Block> {
        check_sizes(bp)?;
        let mut bytes = vec![0; bp.lsize() as usize];
        self.read_plainly(bp, None, &mut bytes)?;
        Ok(Arc::new(bytes.into()))
    }

    /// Reads a block into `out`, which must be as long as its logical size. Bypasses the cache.
    pub fn read_into(&self, bp: &BlkPtr, out: &mut [u8]) -> Result<()> {
        self.read_readable(bp, None, out)
    }

    /// As [`Store::read_into`], for an object.
    pub fn read_into_for(&self, at: At, bp: &BlkPtr, out: &mut [u8]) -> Result<()> {
        self.read_readable(bp, Some(at), out)
    }

    pub(crate) fn read_readable(&self, bp: &BlkPtr, at: Option<At>, out: &mut [u8]) -> Result<()> {
        if bp.is_crypt() && bp.level() == 0 && bp.kind().is_encrypted() && !bp.is_hole() {
            return Err(StoreError::Encrypted { bp: Box::new(*bp) });
        }
        let overwritten =
            (self.objset == Some(MOS)).then(|| self.overwritten.reading(bp)).flatten();
        if let Some(before) = overwritten.as_ref().and_then(|kept| kept.get(bp))
            && before.len() == out.len()
        {
            out.copy_from_slice(before);
            return Ok(());
        }
        self.read_plainly(bp, at, out)
    }

    fn read_plainly(&self, bp: &BlkPtr, at: Option<At>, out: &mut [u8]) -> Result<()> {
        check_sizes(bp)?;
        let bad = |reason| StoreError::BadPointer { bp: Box::new(*bp), reason };
        if out.len() as u64 != bp.lsize() {
            return Err(bad("its logical size is not the expected one"));
        }
        if bp.is_hole() {
            out.fill(0);
            return Ok(());
        }
        let compress = bp.compress().ok_or_else(|| bad("unknown compression"))?;
        if bp.is_embedded() {
            if bp.embedded_kind() != 0 {
                return Err(bad("an embedded pointer that is not data"));
            }
            let (payload, len) = bp.embedded_payload();
            return decompress(compress, &payload[..len], out).map_err(|_| bad("bad compression"));
        }
        if compress == Compress::Off {
            return self.read_stored(bp, at, out);
        }
        let mut physical = self.buffers.get(bp.psize() as usize);
        self.read_stored(bp, at, &mut physical)?;
        decompress(compress, &physical, out).map_err(|_| bad("its compressed data is damaged"))
    }

    /// Reads the stored bytes of a block, verified, as long as its physical size.
    pub fn read_physical(&self, bp: &BlkPtr, out: &mut [u8]) -> Result<()> {
        self.read_stored(bp, None, out)
    }

    fn read_stored(&self, bp: &BlkPtr, at: Option<At>, out: &mut [u8]) -> Result<()> {
        let mut trouble = Trouble::default();
        let read = self.insist(|| self.read_copies(bp, out, &mut trouble));
        trouble.lost = matches!(read, Err(StoreError::Unreadable { .. }));
        self.tell(bp, at, trouble);
        read
    }

    /// Does what reads, until the devices give it, for those who wait for them.
    fn insist<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        match &self.gate {
            Some((gate, waits)) => gate.insist_if(*waits, read),
            None => read(),
        }
    }

    fn read_copies(&self, bp: &BlkPtr, out: &mut [u8], trouble: &mut Trouble) -> Result<()> {
        let bad = |reason| StoreError::BadPointer { bp: Box::new(*bp), reason };
        let kind = bp.checksum().ok_or_else(|| bad("unknown checksum"))?;
        if out.len() as u64 != bp.psize() {
            return Err(bad("its physical size is not the expected one"));
        }
        let birth = bp.physical_birth();
        let salt = self.salt();
        let words = bp.checksum_words();
        let big = !bp.is_little_endian();
        // Of an encrypted pointer the last two words are the MAC.
        let crypt = bp.is_crypt() && bp.kind() != ObjectType::OBJSET;
        let mut check = |bytes: &[u8]| match kind {
            Checksum::Off | Checksum::Noparity => true,
            _ => match checksum::compute(kind, bytes, big, &salt) {
                Ok(seen) if crypt => before_mac(kind, seen) == words[..2],
                Ok(seen) => seen == words,
                Err(_) => false,
            },
        };
        let mut reason = String::from("it has no copy");
        let mut by_device = false;
        let mut gathered = false;
        for dva in bp.dvas() {
            // All of them lead to the same members, each of which has copies of its own.
            if dva.gang && gathered {
                continue;
            }
            let result = if dva.gang {
                gathered = true;
                self.read_gang(bp, out, 0, trouble).and_then(|()| {
                    let good = check(out);
                    good.then_some(()).ok_or_else(|| StoreError::Unreadable {
                        bp: Box::new(*bp),
                        reason: "checksum mismatch of the gathered gang".into(),
                        by_device: false,
                    })
                })
            } else if matches!(kind, Checksum::Off | Checksum::Noparity) {
                let read = self.tree().read_unverified(dva.vdev, dva.offset, birth, out);
                read.map(|_| ()).map_err(StoreError::from)
            } else {
                let tree = self.tree();
                let read = tree.read(dva.vdev, dva.offset, birth, out, &mut check);
                read.map(|report| note(trouble, &tree, report)).map_err(StoreError::from)
            };
            match result {
                Ok(()) => return Ok(()),
                Err(StoreError::Unreadable { reason: r, by_device: of_it, .. }) => {
                    reason = r;
                    by_device |= of_it;
                }
                Err(e) => {
                    by_device |= gate::may_pass(&e);
                    reason = e.to_string();
                }
            }
            // This copy is lost, even if the next one is good.
            if trouble.counted.is_empty() {
                trouble.counted.push(NOWHERE);
            }
        }
        Err(StoreError::Unreadable { bp: Box::new(*bp), reason, by_device })
    }

    /// All allocations that a block has, as they are to be freed: of a gang the headers and the
    /// members, however deep. (The size in a gang's own DVA is the sum of them, not a piece of
    /// the vdev.)
    pub fn allocations(&self, bp: &BlkPtr) -> Result<Vec<Dva>> {
        let mut out = Vec::new();
        self.add_allocations(bp, &mut out, 0, &mut Err)?;
        Ok(out)
    }

    /// The same of a block that goes whatever is left of it: what is below a lost header is given up. Is that so of
    /// some of it?
    pub(crate) fn known_allocations(&self, bp: &BlkPtr) -> Result<(Vec<Dva>, bool)> {
        let (mut out, mut given_up) = (Vec::new(), false);
        self.add_allocations(bp, &mut out, 0, &mut |error| {
            given_up = true;
            // What devices may still give is not lost.
            if gate::may_pass(&error) { Err(error) } else { Ok(()) }
        })?;
        Ok((out, given_up))
    }

    fn add_allocations(
        &self,
        bp: &BlkPtr,
        out: &mut Vec<Dva>,
        depth: usize,
        unread: &mut dyn FnMut(StoreError) -> Result<()>,
    ) -> Result<()> {
        if !bp.is_gang() {
            out.extend(bp.dvas());
            return Ok(());
        }
        for dva in bp.dvas() {
            let asize = self.asize(dva.vdev, GANG_SIZE as u64);
            out.push(Dva { asize, gang: false, ..dva });
        }
        let members = match self.members(bp, bp.psize(), depth) {
            Ok(members) => members,
            Err(error) => return unread(error),
        };
        let mut members = members.into_iter();
        members.try_for_each(|(_, member)| self.add_allocations(&member, out, depth + 1, unread))
    }

    /// The members of a gang of `psize` bytes, by the first copy of its header that is good: each DVA
    /// leads to one.
    pub(crate) fn members(
        &self,
        bp: &BlkPtr,
        psize: u64,
        depth: usize,
    ) -> Result<Vec<(u64, BlkPtr)>> {
        self.insist(|| self.members_noted(bp, psize, depth, &mut Trouble::default()))
    }

    fn members_noted(
        &self,
        bp: &BlkPtr,
        psize: u64,
        depth: usize,
        trouble: &mut Trouble,
    ) -> Result<Vec<(u64, BlkPtr)>> {
        let mut why = StoreError::BadPointer { bp: Box::new(*bp), reason: "it has no copy" };
        for dva in bp.dvas() {
            match self.gang_members(bp, dva, psize, depth, trouble) {
                Ok(members) => return Ok(members),
                // What may be there later is worth waiting for, whatever the others are like.
                Err(e) if !gate::may_pass(&why) => why = e,
                Err(_) => {}
            }
            if trouble.counted.is_empty() {
                trouble.counted.push(NOWHERE);
            }
        }
        Err(why)
    }

    /// Gathers a gang, one member after another. Whichever copy of its header is good, all is below it: who tried each
    /// would read what is `n` levels down 3^n times.
    fn read_gang(
        &self,
        bp: &BlkPtr,
        out: &mut [u8],
        depth: usize,
        trouble: &mut Trouble,
    ) -> Result<()> {
        let bad = || StoreError::BadPointer { bp: Box::new(*bp), reason: BAD_HEADER };
        for (offset, member) in &self.members_noted(bp, out.len() as u64, depth, trouble)? {
            let part = offset_part(out, *offset, member.psize()).ok_or_else(bad)?;
            if member.is_gang() {
                self.read_gang(member, part, depth + 1, trouble)?;
            } else {
                self.read_copies(member, part, trouble)?;
            }
        }
        Ok(())
    }

    /// The members of the gang header at `dva`, each with its offset in the block of `psize` bytes.
    fn gang_members(
        &self,
        bp: &BlkPtr,
        dva: Dva,
        psize: u64,
        depth: usize,
        trouble: &mut Trouble,
    ) -> Result<Vec<(u64, BlkPtr)>> {
        let bad = |reason| StoreError::BadPointer { bp: Box::new(*bp), reason };
        if depth >= GANG_DEPTH_MAX {
            return Err(bad("gang headers nested too deep"));
        }
        let first = bp.dva(0);
        let (vdev, offset, txg) = (first.vdev, first.offset, bp.physical_birth());
        let place = Place::GangHeader { vdev, offset, txg };
        let mut header = [0; GANG_SIZE];
        let tree = self.tree();
        let report = tree.read(dva.vdev, dva.offset, txg, &mut header, &mut |bytes| {
            embedded::check(place, bytes).is_ok()
        })?;
        note(trouble, &tree, report);
        GangHeader::parse(&header).and_then(|h| h.members(psize)).map_err(|_| bad(BAD_HEADER))
    }
}

/// Stands for a fault that is at no one piece: a copy none of whose pieces can be believed.
const NOWHERE: (u64, u64) = (0, u64::MAX);

/// Adds the faults of a read that has found its bytes.
pub(crate) fn note(trouble: &mut Trouble, tree: &Tree, report: ReadReport) {
    let place = |fault: &vdev::Fault| (tree.leaves()[fault.leaf].guid(), fault.offset);
    trouble.counted.extend(report.faults.iter().map(place));
}

fn offset_part(out: &mut [u8], offset: u64, len: u64) -> Option<&mut [u8]> {
    out.get_mut(offset as usize..)?.get_mut(..len as usize)
}

/// The two words of an encrypted block's checksum that stand before its MAC.
pub(crate) fn before_mac(kind: Checksum, words: [u64; 4]) -> [u64; 2] {
    match kind {
        Checksum::Fletcher4 => [words[0] ^ words[2], words[1] ^ words[3]],
        _ => [words[0], words[1]],
    }
}

pub(crate) fn check_sizes(bp: &BlkPtr) -> Result<()> {
    let bad = |reason| StoreError::BadPointer { bp: Box::new(*bp), reason };
    if bp.lsize() > format::BLOCK_SIZE_MAX {
        return Err(bad("larger than any block can be"));
    }
    if !bp.is_embedded() && bp.psize() > bp.lsize().max(SECTOR) {
        return Err(bad("physically larger than logically"));
    }
    Ok(())
}

pub(crate) fn decompress(
    compress: Compress,
    from: &[u8],
    to: &mut [u8],
) -> std::result::Result<(), ()> {
    if matches!(compress, Compress::Off | Compress::Empty) {
        let part = from.len().min(to.len());
        to[..part].copy_from_slice(&from[..part]);
        to[part..].fill(0);
        return Ok(());
    }
    codec::compress::decompress(compress, from, to).map_err(|_| ())
}
