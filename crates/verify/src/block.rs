//! From a block pointer to its bytes, looking at every copy and every column.
//!
//! The judge's own reader. The one idea: *auditing* a block visits all of its copies on all leaves
//! and notes what each did; *reading* one stops at the first good copy. Both hand out bytes only
//! if the pointer's checksum holds. Encrypted blocks are checked as they are stored: of their
//! checksum only two words are one, the others are a MAC (FORMAT: section 14).

use crate::report::Progress;
use codec::checksum::{self, Salt};
use codec::embedded::{self, Place};
use format::gang::{GANG_DEPTH_MAX, GANG_SIZE, GangHeader};
use format::indirect::MappingEntry;
use format::{BLOCK_SIZE_MAX, BlkPtr, Checksum, Compress, Dva, ObjectType, SECTOR};
use rt::sync::Arc;
use rt::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;
use vdev::{Fault, FaultKind, ReadScratch, Tree};

/// How often whoever waits for the judgement is asked whether he still does, at least.
const PULSE: Duration = Duration::from_millis(200);
/// Bytes of blocks that are kept for readers of metadata.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// Bytes of lists that are read, however small the pool.
const LISTS_MIN: u64 = 16 << 20;

/// Space that a block occupies: top-level vdev, offset, bytes.
pub(crate) type Segment = (u32, u64, u64);

/// What an audit of one block found.
#[derive(Default)]
pub(crate) struct Audit {
    /// All space of the block, gang headers and members included.
    pub segments: Vec<Segment>,
    /// Pieces that were wrong or unreadable, by leaf.
    pub faults: Vec<Fault>,
    /// Pieces whose leaf is missing.
    pub missing: usize,
    /// Copies of which the bytes cannot be found, though another copy may be good.
    pub bad_copies: usize,
    /// Top-level vdevs with a lost copy.
    pub lost_on: Vec<u32>,
    /// What is wrong with the pointer itself.
    pub oddities: Vec<String>,
}

impl Audit {
    fn clear(&mut self) {
        self.segments.clear();
        self.faults.clear();
        self.missing = 0;
        self.bad_copies = 0;
        self.lost_on.clear();
        self.oddities.clear();
    }

    /// Is there something wrong with the block, apart from missing leaves?
    pub(crate) fn is_damaged(&self) -> bool {
        !self.faults.is_empty() || self.bad_copies > 0
    }
}

/// Whoever waits for the judgement.
struct Waiting<'a> {
    /// Tells him how far it is; `false`: he has gone.
    tell: &'a mut dyn FnMut(Progress) -> bool,
    /// When he was told last.
    told: Instant,
}

/// Reads blocks.
pub(crate) struct Blocks<'a> {
    waiting: Option<Waiting<'a>>,
    /// Nobody waits any more: nothing more is read.
    is_over: bool,
    /// How far the judgement is.
    pub progress: Progress,
    tree: &'a Tree,
    salt: Salt,
    pub(crate) scratch: ReadScratch,
    /// Where the space of removed vdevs is now.
    pub(crate) mappings: BTreeMap<u32, Vec<MappingEntry>>,
    cache: BTreeMap<[u64; 6], Arc<Vec<u8>>>,
    cached: usize,
    /// Buffers for copies after the first good one, and for stored bytes.
    spare: Vec<Vec<u8>>,
    /// Bytes of lists of blocks and of space maps that may still be read.
    lists: u64,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Blocks<'a> {
        Blocks {
            waiting: None,
            is_over: false,
            progress: Progress::default(),
            tree,
            salt: [0; 32],
            scratch: ReadScratch::default(),
            mappings: BTreeMap::new(),
            cache: BTreeMap::new(),
            cached: 0,
            spare: Vec::new(),
            lists: LISTS_MIN,
        }
    }

    /// The same, for whoever is told by `tell`, and waits until that gives false.
    pub(crate) fn waited_for(
        tree: &'a Tree,
        tell: &'a mut dyn FnMut(Progress) -> bool,
    ) -> Blocks<'a> {
        let waiting = Some(Waiting { tell, told: rt::time::now() });
        Blocks { waiting, ..Blocks::new(tree) }
    }

    /// Has whoever waited for the judgement gone?
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Tells him how far it is.
    pub(crate) fn tell(&mut self) {
        if let Some(waiting) = self.waiting.as_mut().filter(|_| !self.is_over) {
            self.is_over = !(waiting.tell)(self.progress);
            waiting.told = rt::time::now();
        }
    }

    /// Before anything is read or done that may take long: is it still wanted?
    pub(crate) fn pulse(&mut self) -> Result<(), String> {
        let is_due = |waiting: &Waiting<'_>| waiting.told.elapsed() >= PULSE;
        if self.waiting.as_ref().is_some_and(is_due) {
            self.tell();
        }
        if self.is_over { Err("nobody waits for the judgement any more".into()) } else { Ok(()) }
    }

    /// The walk has seen so many bytes that a list can have: twice that may be read. Each list is read
    /// once, but hostile ones may be listed often.
    pub(crate) fn let_lists_have(&mut self, bytes: u64) {
        self.lists = self.lists.saturating_add(bytes.saturating_mul(2));
    }

    /// Before a part of a list is read.
    pub(crate) fn list_part(&mut self, bytes: u64) -> Result<(), String> {
        let left = self.lists.checked_sub(bytes);
        self.lists =
            left.ok_or("its entries and those of other lists are more than the MOS has")?;
        Ok(())
    }

    pub(crate) fn tree(&self) -> &'a Tree {
        self.tree
    }

    /// Sets the pool's salt of keyed checksums.
    pub(crate) fn set_salt(&mut self, salt: Salt) {
        self.salt = salt;
    }

    /// Sets where the space of a removed vdev is now; entries in order of their offsets.
    pub(crate) fn set_mapping(&mut self, top: u32, entries: Vec<MappingEntry>) {
        self.mappings.insert(top, entries);
    }

    /// Were vdevs removed?
    pub(crate) fn has_mappings(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// Bytes that the space accounting of data sets counts for a block.
    pub(crate) fn dsize(&self, bp: &BlkPtr) -> u64 {
        let deflate = |dva: Dva| {
            let top = self.tree.top(dva.vdev).ok();
            match top.and_then(|top| top.layout.as_ref()) {
                Some(layout) => layout.deflate(dva.asize),
                None => dva.asize,
            }
        };
        bp.dvas().map(deflate).fold(0, u64::saturating_add)
    }

    /// The logical bytes of a block of metadata, from its first good copy.
    pub(crate) fn read(&mut self, bp: &BlkPtr) -> Result<Arc<Vec<u8>>, String> {
        self.pulse()?;
        let words = bp.words();
        // With the checksum: another pointer to the place must not get what this one found good.
        let key = [words[0], words[1], words[6], words[10], words[12], words[13]];
        let cacheable = bp.has_space();
        if let Some(block) = self.cache.get(&key).filter(|_| cacheable) {
            return Ok(block.clone());
        }
        let mut bytes = Vec::new();
        self.bytes_of(bp, &mut bytes, None)?;
        let block = Arc::new(bytes);
        if cacheable {
            if self.cached + block.len() > CACHE_BYTES_MAX {
                self.cache.clear();
                self.cached = 0;
            }
            self.cached += block.len();
            self.cache.insert(key, block.clone());
        }
        Ok(block)
    }

    /// Audits a block. Its logical bytes are then in `out`, stored ones if it is encrypted.
    ///
    /// # Errors
    /// Why the block is lost.
    pub(crate) fn audit(
        &mut self,
        bp: &BlkPtr,
        out: &mut Vec<u8>,
        audit: &mut Audit,
    ) -> Result<(), String> {
        audit.clear();
        self.pulse()?;
        self.bytes_of(bp, out, Some(audit))
    }

    fn bytes_of(
        &mut self,
        bp: &BlkPtr,
        out: &mut Vec<u8>,
        mut audit: Option<&mut Audit>,
    ) -> Result<(), String> {
        let lsize = bp.lsize();
        if lsize > BLOCK_SIZE_MAX {
            return Err(format!("its logical size is {lsize} bytes"));
        }
        out.clear();
        if bp.is_hole() {
            out.resize(lsize as usize, 0);
            return Ok(());
        }
        let compress = bp.compress().ok_or_else(|| format!("compression {}", bp.compress_id()))?;
        if bp.is_embedded() {
            if bp.embedded_kind() != 0 {
                return Err(format!("embedded data of kind {}", bp.embedded_kind()));
            }
            let (payload, len) = bp.embedded_payload();
            out.resize(lsize as usize, 0);
            return decompress(compress, payload.get(..len).unwrap_or_default(), out);
        }
        let psize = bp.psize();
        if psize > lsize.max(SECTOR) {
            if let Some(audit) = audit.as_deref_mut() {
                self.claim_unread(bp, audit);
            }
            return Err(format!("its physical size, {psize} bytes, is above the logical"));
        }
        let sealed = bp.is_crypt() && bp.level() == 0 && bp.kind().is_encrypted();
        // Blocks of dnodes are stored plain but for the bonuses.
        let as_stored = compress == Compress::Off || (sealed && bp.kind() != ObjectType::DNODE);
        if as_stored {
            out.resize(psize as usize, 0);
            return self.stored(bp, out, audit);
        }
        let mut stored = self.spare.pop().unwrap_or_default();
        stored.clear();
        stored.resize(psize as usize, 0);
        let mut result = self.stored(bp, &mut stored, audit);
        if result.is_ok() {
            out.resize(lsize as usize, 0);
            result = decompress(compress, &stored, out);
        }
        self.spare.push(stored);
        result
    }

    /// Notes the space of a block that is too odd to be read.
    fn claim_unread(&self, bp: &BlkPtr, audit: &mut Audit) {
        audit.segments.extend(bp.dvas().map(|dva| (dva.vdev, dva.offset, dva.asize)));
    }

    /// The stored bytes of a block; with an audit, from a look at all copies.
    fn stored(
        &mut self,
        bp: &BlkPtr,
        out: &mut [u8],
        audit: Option<&mut Audit>,
    ) -> Result<(), String> {
        let kind = bp.checksum().ok_or_else(|| format!("checksum {}", bp.checksum_id()))?;
        let (salt, words, big) = (self.salt, bp.checksum_words(), !bp.is_little_endian());
        let crypt = bp.is_crypt() && bp.kind() != ObjectType::OBJSET;
        let mut check = |bytes: &[u8]| match kind {
            Checksum::Off | Checksum::Noparity => true,
            _ => match checksum::compute(kind, bytes, big, &salt) {
                Ok(seen) if crypt => before_mac(kind, seen) == [words[0], words[1]],
                Ok(seen) => seen == words,
                Err(_) => false,
            },
        };
        self.copies(bp, out, audit, 0, &mut check)
    }

    /// Goes through the copies of a block: all of them with an audit, else up to the first good.
    fn copies(
        &mut self,
        bp: &BlkPtr,
        out: &mut [u8],
        mut audit: Option<&mut Audit>,
        depth: usize,
        check: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        if bp.is_gang() {
            self.gang(bp, out, audit, depth)?;
            return check(out).then_some(()).ok_or_else(|| "checksum mismatch of a gang".into());
        }
        let mut good = false;
        let mut why = String::from("it has no copy");
        let mut other = self.spare.pop().unwrap_or_default();
        for dva in bp.dvas() {
            let to = if good {
                other.clear();
                other.resize(out.len(), 0);
                &mut other[..]
            } else {
                &mut *out
            };
            let has_checksum = !matches!(bp.checksum(), Some(Checksum::Off | Checksum::Noparity));
            let at = (dva, bp.physical_birth(), has_checksum);
            let result = self.copy(at, to, audit.as_deref_mut(), check);
            match result {
                Ok(()) => good = true,
                Err(reason) => {
                    why = reason;
                    if let Some(audit) = audit.as_deref_mut() {
                        audit.bad_copies += 1;
                        audit.lost_on.push(dva.vdev);
                    }
                }
            }
            if good && audit.is_none() {
                break;
            }
        }
        self.spare.push(other);
        if good { Ok(()) } else { Err(why) }
    }

    /// One copy of a block that is not a gang.
    fn copy(
        &mut self,
        (dva, birth, has_checksum): (Dva, u64, bool),
        out: &mut [u8],
        audit: Option<&mut Audit>,
        check: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        if self.mappings.contains_key(&dva.vdev) {
            return self.moved(dva, birth, out, audit, check);
        }
        let Some(audit) = audit else {
            let read =
                self.tree.read_with(dva.vdev, dva.offset, birth, out, &mut self.scratch, check);
            return read.map(|_| ()).map_err(|e| e.to_string());
        };
        audit.segments.push((dva.vdev, dva.offset, dva.asize));
        let layout = self.tree.top(dva.vdev).ok().and_then(|top| top.layout);
        if let Some(due) = layout.map(|layout| layout.asize(out.len() as u64))
            && due != dva.asize
        {
            audit.oddities.push(format!(
                "vdev {} offset {:#x}: allocated size {:#x} of {} bytes, expected {due:#x}",
                dva.vdev,
                dva.offset,
                dva.asize,
                out.len()
            ));
        }
        let (tree, scratch) = (self.tree, &mut self.scratch);
        let found = match has_checksum {
            true => tree.examine(dva.vdev, dva.offset, birth, out, scratch, check),
            // Nothing tells which of two copies is right: leaves are believed that must have it, as readers do.
            false => tree.examine_unverified(dva.vdev, (dva.offset, birth), out, scratch),
        };
        let found = found.map_err(|e| e.to_string())?;
        audit.missing += found.missing;
        audit.faults.extend(found.faults);
        found.lost.map_or(Ok(()), |e| Err(e.to_string()))
    }

    /// A gang: the members that its header names, one after another. The copies of the header are
    /// the same, so the members are looked at once.
    fn gang(
        &mut self,
        bp: &BlkPtr,
        out: &mut [u8],
        mut audit: Option<&mut Audit>,
        depth: usize,
    ) -> Result<(), String> {
        if depth >= GANG_DEPTH_MAX {
            return Err("gang headers nested too deep".into());
        }
        let mut header = Err("a gang without a header".to_string());
        for dva in bp.dvas() {
            let found = self.gang_header(bp, dva, audit.as_deref_mut());
            if let (Err(_), Some(audit)) = (&found, audit.as_deref_mut()) {
                audit.bad_copies += 1;
                audit.lost_on.push(dva.vdev);
            }
            if header.is_err() {
                header = found;
            }
            if header.is_ok() && audit.is_none() {
                break;
            }
        }
        let members = header?.members(out.len() as u64).map_err(|e| e.to_string())?;
        let mut result = Ok(());
        for (offset, member) in members {
            let range = offset as usize..offset.saturating_add(member.psize()) as usize;
            let part = out.get_mut(range).ok_or("a gang that is larger than its block")?;
            let read = if member.is_gang() {
                self.copies(&member, part, audit.as_deref_mut(), depth + 1, &mut |_| true)
            } else {
                self.stored(&member, part, audit.as_deref_mut())
            };
            result = result.and(read);
        }
        result
    }

    fn gang_header(
        &mut self,
        bp: &BlkPtr,
        dva: Dva,
        audit: Option<&mut Audit>,
    ) -> Result<GangHeader, String> {
        let first = bp.dva(0);
        let (vdev, offset, txg) = (first.vdev, first.offset, bp.physical_birth());
        let place = Place::GangHeader { vdev, offset, txg };
        let asize = match self.tree.top(dva.vdev).ok().and_then(|top| top.layout) {
            Some(layout) => layout.asize(GANG_SIZE as u64),
            None => GANG_SIZE as u64,
        };
        let mut header = [0; GANG_SIZE];
        let at = Dva { asize, gang: false, ..dva };
        let check = &mut |bytes: &[u8]| embedded::check(place, bytes).is_ok();
        self.copy((at, txg, true), &mut header, audit, check)
            .map_err(|why| format!("gang header: {why}"))?;
        GangHeader::parse(&header).map_err(|e| e.to_string())
    }

    /// The space of a block without looking at its bytes; of a gang, its headers are read.
    pub(crate) fn segments(&mut self, bp: &BlkPtr, audit: &mut Audit) -> Result<(), String> {
        audit.clear();
        self.add_segments(bp, audit, 0)
    }

    fn add_segments(&mut self, bp: &BlkPtr, audit: &mut Audit, depth: usize) -> Result<(), String> {
        if bp.is_gang() {
            if depth >= GANG_DEPTH_MAX {
                return Err("gang headers nested too deep".into());
            }
            let mut header = Err("a gang without a header".to_string());
            for dva in bp.dvas() {
                let found = self.gang_header(bp, dva, Some(audit));
                header = header.or(found);
            }
            for (_, member) in header?.members(bp.psize()).map_err(|e| e.to_string())? {
                self.add_segments(&member, audit, depth + 1)?;
            }
            return Ok(());
        }
        for dva in bp.dvas() {
            if self.mappings.contains_key(&dva.vdev) {
                self.moved_segments(dva, audit)?;
            } else {
                audit.segments.push((dva.vdev, dva.offset, dva.asize));
            }
        }
        Ok(())
    }

    /// Bytes at a place of a vdev, with or without a checksum that they must have.
    pub(crate) fn bare(
        &mut self,
        top: u32,
        offset: u64,
        out: &mut [u8],
        checksum: Option<(Checksum, [u64; 4])>,
    ) -> Result<(), String> {
        let salt = self.salt;
        let mut check = |bytes: &[u8]| match checksum {
            None => true,
            Some((kind, words)) => {
                checksum::compute(kind, bytes, false, &salt).is_ok_and(|seen| seen == words)
            }
        };
        let dva = Dva { vdev: top, offset, asize: out.len() as u64, gang: false };
        self.copy((dva, 0, checksum.is_some()), out, None, &mut check)
    }

    /// The checksum of bytes, of a kind that needs no more than them and the salt.
    pub(crate) fn sum(&self, kind: Checksum, bytes: &[u8]) -> Option<[u64; 4]> {
        checksum::compute(kind, bytes, false, &self.salt).ok()
    }

    /// Reads an intent log block as far as it is one: `None` if it is not (yet) written.
    pub(crate) fn log_block(&mut self, bp: &BlkPtr) -> Option<Vec<u8>> {
        let place = match bp.checksum() {
            Some(Checksum::Zilog2) => Place::Zilog2 { pointer: bp.checksum_words() },
            Some(Checksum::Zilog) => Place::Zilog { pointer: bp.checksum_words() },
            _ => return None,
        };
        if bp.psize() > BLOCK_SIZE_MAX {
            return None;
        }
        let mut bytes = vec![0; bp.psize() as usize];
        let crypt = bp.is_crypt();
        let mut check = |bytes: &[u8]| match embedded::check(place, bytes) {
            Ok(_) => true,
            Err(embedded::EmbeddedError::Mismatch { expected, computed }) if crypt => {
                // The other words are the MAC.
                before_mac(Checksum::Fletcher4, computed) == [expected[0], expected[1]]
                    || computed[..2] == expected[..2]
            }
            Err(_) => false,
        };
        let dva = bp.dva(0);
        self.copy((dva, bp.physical_birth(), true), &mut bytes, None, &mut check).ok()?;
        Some(bytes)
    }
}

/// The two words of an encrypted block's checksum that stand before its MAC.
fn before_mac(kind: Checksum, words: [u64; 4]) -> [u64; 2] {
    match kind {
        Checksum::Fletcher4 => [words[0] ^ words[2], words[1] ^ words[3]],
        _ => [words[0], words[1]],
    }
}

pub(crate) fn decompress(compress: Compress, from: &[u8], to: &mut [u8]) -> Result<(), String> {
    if matches!(compress, Compress::Off | Compress::Empty) {
        let part = from.len().min(to.len());
        to[..part].copy_from_slice(&from[..part]);
        to[part..].fill(0);
        return Ok(());
    }
    codec::compress::decompress(compress, from, to)
        .map_err(|e| format!("its compressed data is damaged: {e}"))
}

/// How often a leaf failed to give a piece rightly: (unreadable, wrong).
pub(crate) fn count(faults: &[Fault], mut add: impl FnMut(usize, u64, u64)) {
    for fault in faults {
        match fault.kind {
            FaultKind::Read(_) => add(fault.leaf, 1, 0),
            FaultKind::Checksum => add(fault.leaf, 0, 1),
        }
    }
}
