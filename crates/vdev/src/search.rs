//! Roots that no uberblock leads to any more, found among the blocks.
//!
//! Place: for the rescue door, where the rings are gone and the configs of labels are left.
//! The one idea: each txg writes the object set of the MOS anew, and it gives itself away. It begins with the head of a
//! dnode of dnodes; where sectors are small it is compressed with LZ4, and begins with its length, after which the same
//! head comes as literals. Whoever looks at all sectors finds these, and the pointers in them carry checksums: what is no root, or of another
//! time, leads nowhere. Where a block lies tells its address, its newest pointer its txg, and its own bytes the
//! checksum that its pointer must have had.

use std::collections::BTreeMap;

use codec::checksum::fletcher::fletcher4;
use codec::compress::decompress;
use device::Device;
use format::blkptr::{BlkProps, DVAS, Dva};
use format::ids::{Checksum, Compress, ObjectType};
use format::label::{DATA_AT, TAIL_SIZE};
use format::objset::{OBJSET_SIZE, ObjsetPhys, ObjsetType};
use format::{BlkPtr, Uberblock};
use rt::Workers;
use rt::sync::Mutex;

use crate::read::ReadScratch;
use crate::sizes::Layout;
use crate::tree::{Top, Tree};

/// Roots that are remembered: so many txgs, the newest.
const ROOTS_MAX: usize = 1024;
/// Bytes of a disk that are read at once; where that fails, what is read at once then.
const CHUNK: (usize, usize) = (4 << 20, 64 << 10);
/// Bytes that all disks are searched for, before anybody hears how far it is.
const STRETCH: u64 = 64 << 20;
/// Blocks that are put together from parity, at most: bytes that only look like a root may be anywhere.
const REBUILT_MAX: usize = 1 << 12;
/// Bytes in front of what LZ4 made: its length.
const LZ4_HEAD: usize = 4;

/// A root, by its txg and checksum, and where its copies lie.
type Roots = BTreeMap<(u64, [u64; 4]), (BlkProps, u64, Vec<Dva>)>;

/// A search under way.
struct Search<'a> {
    tree: &'a Tree,
    roots: Mutex<Roots>,
    rebuilt: Mutex<usize>,
}

impl Tree {
    /// Looks at every sector of every disk for the roots of txgs, newest first. They are uberblocks as they may have
    /// been, without a time and without a sum of guids (both 0), and have still to be tried.
    ///
    /// `progress` hears how many bytes of each disk of how many were read.
    pub fn search_roots(&self, progress: &mut dyn FnMut(u64, u64)) -> Vec<Uberblock> {
        let mut places = Vec::new();
        for top in self.tops() {
            let slots = top.slots().iter().enumerate();
            places.extend(slots.flat_map(|(disk, slot)| slot.iter().map(move |l| (top, disk, *l))));
        }
        let size = |leaf: usize| self.leaves()[leaf].device().map_or(0, |device| end_of(&**device));
        let search = Search { tree: self, roots: Mutex::default(), rebuilt: Mutex::default() };
        let workers = Workers::per_core();
        let end = places.iter().map(|(.., leaf)| size(*leaf)).max().unwrap_or(0);
        let mut at = 0;
        while at < end {
            let to = end.min(at + STRETCH);
            workers.run(places.len(), |_, job| {
                let (top, disk, leaf) = places[job];
                search.leaf(top, (disk, leaf), (at, to.min(size(leaf))));
            });
            progress(to, end);
            at = to;
        }
        let roots = search.roots.into_inner().into_iter().rev();
        let uberblock = |((txg, checksum), (props, fill, dvas)): ((u64, [u64; 4]), (_, u64, _))| {
            let dvas: Vec<Dva> = dvas;
            Uberblock::new(txg, 0, 0, BlkPtr::new(props, &dvas, txg, fill, checksum))
        };
        roots.map(uberblock).collect()
    }
}

/// Where the allocatable space of a device ends at most, from its beginning.
fn end_of(device: &dyn Device) -> u64 {
    device.size().saturating_sub(DATA_AT + TAIL_SIZE)
}

impl Search<'_> {
    /// Looks through a stretch of one leaf.
    fn leaf(&self, top: &Top, (disk, leaf): (usize, usize), (mut at, end): (u64, u64)) {
        let Some(layout) = top.layout else { return };
        let Some(device) = self.tree.leaves()[leaf].device() else { return };
        let sector = 1 << layout.ashift();
        let mut chunk = vec![0; CHUNK.0];
        let mut scratch = ReadScratch::default();
        while at < end {
            let bytes = &mut chunk[..CHUNK.0.min((end - at) as usize)];
            let len = bytes.len() as u64;
            if device.read_at(DATA_AT + at, bytes).is_err() {
                for (part, from) in bytes.chunks_mut(CHUNK.1).zip((at..).step_by(CHUNK.1)) {
                    if device.read_at(DATA_AT + from, part).is_err() {
                        part.fill(0);
                    }
                }
            }
            for (bytes, offset) in bytes.chunks_exact(sector).zip((at..).step_by(sector)) {
                let Some(stored) = looks_like(bytes, sector) else { continue };
                for start in starts(layout, disk, offset, stored.1) {
                    self.examine(top, layout, start, stored, &mut scratch);
                }
            }
            at += len;
        }
    }

    /// Is there a root at this offset of the vdev? Then it is noted.
    fn examine(
        &self,
        top: &Top,
        layout: Layout,
        offset: u64,
        (compress, psize): (Compress, usize),
        scratch: &mut ReadScratch,
    ) {
        if offset + layout.asize(psize as u64) > top.asize() {
            return;
        }
        let mut stored = vec![0; psize];
        let mut found =
            self.straight(top, layout, offset, &mut stored).then(|| parsed(compress, &stored));
        if found.is_none() {
            let mut rebuilt = self.rebuilt.lock();
            if *rebuilt >= REBUILT_MAX {
                return;
            }
            *rebuilt += 1;
            drop(rebuilt);
            let mut report = Default::default();
            let mut check = |bytes: &[u8]| parsed(compress, bytes).is_some();
            let read = self.tree.find(
                top.id(),
                (offset, 0),
                &mut stored,
                scratch,
                &mut check,
                &mut report,
            );
            found = read.is_ok().then(|| parsed(compress, &stored));
        }
        let Some(Some(objset)) = found else { return };
        let txg = objset.meta.blkptrs().iter().map(BlkPtr::birth).max().unwrap_or(0);
        if txg == 0 {
            return;
        }
        let props = BlkProps {
            lsize: OBJSET_SIZE as u64,
            psize: psize as u64,
            compress,
            checksum: Checksum::Fletcher4,
            kind: ObjectType::OBJSET,
            level: 0,
        };
        let asize = layout.asize(psize as u64);
        let dva = Dva { vdev: top.id(), offset, asize, gang: false };
        let mut roots = self.roots.lock();
        let key = (txg, fletcher4(&stored));
        let (.., copies) = roots.entry(key).or_insert_with(|| (props, objset.fill(), Vec::new()));
        note(copies, dva, (layout.parity() as u64) << layout.ashift());
        if roots.len() > ROOTS_MAX {
            roots.pop_first();
        }
    }

    /// Reads a block as it lies there, without help of parity. False: not all of it can be read.
    fn straight(&self, top: &Top, layout: Layout, offset: u64, stored: &mut [u8]) -> bool {
        let piece = |disk: usize, at: u64, bytes: &mut [u8]| {
            let slot = top.slots().get(disk).map(Vec::as_slice).unwrap_or_default();
            let devices = slot.iter().filter_map(|leaf| self.tree.leaves()[*leaf].device());
            devices.into_iter().any(|device| device.read_at(DATA_AT + at, bytes).is_ok())
        };
        match layout {
            Layout::Plain { .. } => piece(0, offset, stored),
            Layout::Raidz(geometry) => {
                let columns = geometry.columns(offset, stored.len() as u64);
                (0..columns.data_count()).all(|index| {
                    let column = columns.data_column(index);
                    let range = columns.data_range(index);
                    stored
                        .get_mut(range)
                        .is_some_and(|bytes| piece(column.disk, column.offset, bytes))
                })
            }
        }
    }
}

/// Notes another copy. Parity of a single column is that column once more: of addresses that lie so close together the
/// last one is the block's.
fn note(copies: &mut Vec<Dva>, new: Dva, close: u64) {
    let near = |old: &&mut Dva| old.vdev == new.vdev && old.offset.abs_diff(new.offset) <= close;
    match copies.iter_mut().find(near) {
        Some(old) => old.offset = old.offset.max(new.offset),
        None => copies.push(new),
    }
    copies.truncate(DVAS);
}

/// How, and in how many bytes, what begins in this sector is stored, if it may be the object set of a MOS.
fn looks_like(first: &[u8], sector: usize) -> Option<(Compress, usize)> {
    if is_head(first) {
        return Some((Compress::Off, OBJSET_SIZE));
    }
    let len = u32::from_be_bytes(*first.first_chunk::<LZ4_HEAD>()?) as usize;
    let stored = (LZ4_HEAD + len).next_multiple_of(sector);
    if stored >= OBJSET_SIZE {
        return None;
    }
    // A token; if there are many literals, more of their number; then they come.
    let token = *first.get(LZ4_HEAD)?;
    let more = match token >> 4 {
        0..3 => return None,
        15 => first.get(LZ4_HEAD + 1..)?.iter().position(|more| *more != u8::MAX)? + 1,
        _ => 0,
    };
    is_head(first.get(LZ4_HEAD + 1 + more..)?).then_some((Compress::Lz4, stored))
}

/// May this be the head of a dnode of dnodes: its type, its indirect blocks, its levels?
fn is_head(bytes: &[u8]) -> bool {
    let Some([kind, indirect_shift, levels]) = bytes.first_chunk() else { return false };
    *kind == ObjectType::DNODE.0 && (9..=20).contains(indirect_shift) && (1..=8).contains(levels)
}

/// Offsets of the vdev where a block may begin whose first data sector is this one.
fn starts(layout: Layout, disk: usize, offset: u64, psize: usize) -> Vec<u64> {
    match layout {
        Layout::Plain { .. } => vec![offset],
        Layout::Raidz(geometry) => {
            let row = (offset >> geometry.ashift()) * geometry.disks() as u64 + disk as u64;
            let begin = |back: u64| Some(row.checked_sub(back)? << geometry.ashift());
            let is_it = |start: &u64| {
                let first = geometry.columns(*start, psize as u64).data_column(0);
                (first.disk, first.offset) == (disk, offset)
            };
            (0..=geometry.parity() as u64).filter_map(begin).filter(is_it).collect()
        }
    }
}

/// The object set of a MOS in these stored bytes.
fn parsed(compress: Compress, stored: &[u8]) -> Option<ObjsetPhys> {
    let mut bytes = vec![0; OBJSET_SIZE];
    decompress(compress, stored, &mut bytes).ok()?;
    let objset = ObjsetPhys::parse(&bytes).ok()?;
    (objset.kind == ObjsetType::Meta).then_some(objset)
}
