//! The walk of a scan through one object set, from a bookmark on.
//!
//! The one idea: blocks come in one order, that of OpenZFS: the meta dnode's, each block of dnodes followed by the
//! blocks of its objects; so a bookmark, the next block of the lowest level, tells all that was done. What was born
//! before the range is left out with all below it. Of disks, blocks that lead to others are read together with those of
//! their kind that come next ([`Ahead`]).

use format::dnode::{DNODE_BLOCK, DNODE_SLOT, DNODES_PER_BLOCK};
use format::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use format::scan::Bookmark;
use format::{BlkPtr, DnodePhys, ObjectType, ObjsetPhys};
use store::{Hold, Store};
use zerocopy::FromBytes;

use crate::dsl::tree::OBJECTS_END;

/// Number of an object's spill block in bookmarks.
pub(crate) const SPILL: u64 = u64::MAX;

/// Shall the walk go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Go,
    /// Before the next block of the lowest level.
    Stop,
}

/// Who hears of the blocks.
pub(crate) trait Visitor {
    /// A block in the range, after what is below it.
    fn visit(&mut self, at: Bookmark, bp: &BlkPtr);

    /// A block is looked at, in the range or not. `false`: there cannot be so many.
    fn pass(&mut self, bp: &BlkPtr) -> bool;

    /// A block that leads to others could not be read: they are passed over.
    fn unread(&mut self, at: Bookmark);

    /// Is it enough? Asked before each block of the lowest level.
    fn is_enough(&mut self) -> bool;
}

/// Bytes of blocks that lead to others and are read at once, at most; the cache must hold them until their turn comes.
const AHEAD_BYTES: u64 = 4 << 20;

/// Blocks that lead to others, in the order in which the walk comes to them. None of files, which have no heads.
#[derive(Default)]
struct Ahead {
    blocks: Vec<BlkPtr>,
    /// Those before this one were read, or it was tried.
    read: usize,
}

/// A walk through one object set.
pub(crate) struct Walk<'a> {
    pub(crate) store: &'a Store,
    /// Nothing is read once it is broken: what pointers lead to may be another block.
    pub(crate) hold: &'a Hold,
    pub(crate) objset: u64,
    /// Blocks born in (min, max] are visited.
    pub(crate) range: (u64, u64),
    /// What is before it is done; `None`: nothing.
    pub(crate) from: Option<Bookmark>,
    pub(crate) visitor: &'a mut dyn Visitor,
    /// Where it stopped.
    pub(crate) stopped: Option<Bookmark>,
}

/// An object while its blocks are walked.
#[derive(Clone, Copy)]
struct Object<'d> {
    /// 0 of the meta dnode alone: what a block of dnodes has in that place is no object.
    number: u64,
    dnode: &'d DnodePhys,
}

impl Object<'_> {
    /// Level of the blocks that the dnode itself points to.
    fn top_level(self) -> u8 {
        self.dnode.core().levels.saturating_sub(1)
    }

    /// Is there something below its blocks of this level?
    fn leads_on(self, level: u8) -> bool {
        level > 0 || self.number == 0
    }

    /// Number of the first block below a block of it, or of the first object in one of dnodes. `None`: no block has such
    /// a number.
    fn first_below(self, level: u8, number: u64) -> Option<u64> {
        match level {
            0 => number.checked_mul(DNODES_PER_BLOCK).filter(|first| *first < OBJECTS_END),
            _ => number.checked_mul(1 << self.dnode.pointers_shift()),
        }
    }
}

/// The objects in a block of dnodes whose first slot has this number. What cannot be a dnode leads nowhere, nor does
/// one in the place of object 0: it would be walked as if it were the meta dnode, and lead to itself.
fn objects_in(first: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, DnodePhys)> {
    let objects = dnodes_in(bytes).map(move |(slot, dnode)| (first.saturating_add(slot), dnode));
    objects.filter(|(number, _)| *number != 0)
}

/// The dnodes in a block of them, each with its slot.
fn dnodes_in(bytes: &[u8]) -> impl Iterator<Item = (u64, DnodePhys)> {
    let mut slot = 0;
    std::iter::from_fn(move || {
        loop {
            let at = slot;
            let rest = bytes.get(at * DNODE_SLOT..).filter(|rest| !rest.is_empty())?;
            let dnode = DnodePhys::parse(rest).ok().flatten();
            slot += dnode.as_ref().map_or(1, DnodePhys::slots);
            if let Some(dnode) = dnode {
                return Some((at as u64, dnode));
            }
        }
    })
}

impl Walk<'_> {
    /// Walks it all, or until it is enough.
    pub(crate) fn run(&mut self, root: &BlkPtr) -> Flow {
        if root.is_hole() || root.birth() <= self.range.0 {
            return Flow::Go;
        }
        let at = Bookmark { objset: self.objset, object: 0, level: -1, block: 0 };
        let parsed = self.bytes_of(root).and_then(|bytes| ObjsetPhys::parse(&bytes).ok());
        if parsed.is_none() {
            if self.hold.is_broken() {
                return Flow::Stop;
            }
            self.visitor.unread(at);
        }
        if let Some(phys) = parsed {
            let numbers = [PROJECTUSED_OBJECT, GROUPUSED_OBJECT, USERUSED_OBJECT];
            let meta = Object { number: 0, dnode: &phys.meta };
            if self.object(meta, &mut Ahead::default()) == Flow::Stop {
                return Flow::Stop;
            }
            for (number, dnode) in numbers.into_iter().zip(phys.accounting.iter().rev()) {
                let Some(dnode) = dnode else { continue };
                if self.object(Object { number, dnode }, &mut Ahead::default()) == Flow::Stop {
                    return Flow::Stop;
                }
            }
        }
        self.tell(at, root);
        Flow::Go
    }

    /// Walks an object, whose blocks are among those `ahead`.
    fn object(&mut self, object: Object<'_>, ahead: &mut Ahead) -> Flow {
        let level = object.top_level();
        for (index, bp) in (0..).zip(object.dnode.blkptrs()) {
            if self.block(object, bp, (level, index), ahead) == Flow::Stop {
                return Flow::Stop;
            }
        }
        match object.dnode.spill() {
            Some(spill) => self.block(object, spill, (0, SPILL), ahead),
            None => Flow::Go,
        }
    }

    /// Is there something of it, or below it, that was not walked yet?
    fn is_wanted(&self, object: Object<'_>, bp: &BlkPtr, (level, number): (u8, u64)) -> bool {
        bp.has_space() && bp.birth() > self.range.0 && !self.is_done(object, level, number)
    }

    fn block(
        &mut self,
        object: Object<'_>,
        bp: &BlkPtr,
        (level, number): (u8, u64),
        ahead: &mut Ahead,
    ) -> Flow {
        if !self.is_wanted(object, bp, (level, number)) {
            return Flow::Go;
        }
        let at = Bookmark {
            objset: self.objset,
            object: object.number,
            level: level.into(),
            block: number,
        };
        if !self.visitor.pass(bp) {
            self.visitor.unread(at);
            return Flow::Go;
        }
        // Who stops within the accounts, which have no place in the order, would begin the object set anew.
        let resumable = level == 0 && object.number < PROJECTUSED_OBJECT;
        if resumable && self.visitor.is_enough() {
            self.stopped = Some(at);
            return Flow::Stop;
        }
        let flow = if bp.level() != level || !object.leads_on(level) {
            Flow::Go
        } else if let Some(first) = object.first_below(level, number)
            && let Some(bytes) = self.bytes_with(bp, ahead)
        {
            if level > 0 {
                self.pointers(object, &bytes, (level - 1, first))
            } else {
                self.dnodes(object, &bytes, first)
            }
        } else if self.hold.is_broken() {
            Flow::Stop
        } else {
            self.visitor.unread(at);
            Flow::Go
        };
        if flow == Flow::Go {
            self.tell(at, bp);
        }
        flow
    }

    /// The blocks that a block of pointers leads to, whose level is this one, from this number on.
    fn pointers(&mut self, object: Object<'_>, bytes: &[u8], (level, first): (u8, u64)) -> Flow {
        let children = || {
            // What is more than there can be has the numbers of others.
            let each = (0..1 << object.dnode.pointers_shift()).zip(bytes.as_chunks::<128>().0);
            each.filter_map(|(index, child)| {
                Some((first.saturating_add(index), BlkPtr::read_from_bytes(child).ok()?))
            })
        };
        let mut ahead = Ahead::default();
        if self.store.is_on_disks() && object.leads_on(level) {
            let wanted = children().filter(|(at, bp)| self.is_wanted(object, bp, (level, *at)));
            ahead.blocks = wanted.map(|(_, bp)| bp).collect();
        }
        for (number, child) in children() {
            if self.block(object, &child, (level, number), &mut ahead) == Flow::Stop {
                return Flow::Stop;
            }
        }
        Flow::Go
    }

    /// The objects in a block of dnodes, whose first one has this number.
    fn dnodes(&mut self, object: Object<'_>, bytes: &[u8], first: u64) -> Flow {
        if object.dnode.kind() != ObjectType::DNODE || bytes.len() > DNODE_BLOCK {
            return Flow::Go;
        }
        let each = || objects_in(first, bytes);
        let mut ahead = Ahead::default();
        if self.store.is_on_disks() {
            for (number, dnode) in each() {
                let object = Object { number, dnode: &dnode };
                let level = object.top_level();
                let tops = (0..).zip(dnode.blkptrs()).filter(|_| object.leads_on(level));
                let wanted = tops.filter(|(at, bp)| self.is_wanted(object, bp, (level, *at)));
                ahead.blocks.extend(wanted.map(|(_, bp)| *bp));
            }
        }
        for (number, dnode) in each() {
            if self.object(Object { number, dnode: &dnode }, &mut ahead) == Flow::Stop {
                return Flow::Stop;
            }
        }
        Flow::Go
    }

    /// Is the block before the bookmark, with all below it?
    fn is_done(&self, object: Object<'_>, level: u8, number: u64) -> bool {
        let Some(from) = self.from else { return false };
        if from.level != 0 {
            return false;
        }
        let shift = u32::from(level) * object.dnode.pointers_shift();
        // The first block of the lowest level behind it.
        let wide = number.checked_add(1).map(|next| u128::from(next) << shift.min(64));
        if object.number == 0 {
            let Some(next) = wide else { return false };
            return match from.object {
                0 => next <= u128::from(from.block),
                inside => next * u128::from(DNODES_PER_BLOCK) <= u128::from(inside),
            };
        }
        // Within a block of dnodes that is not done: all blocks of objects before the bookmark's are.
        if from.object == 0 {
            return false;
        }
        object.number < from.object
            || object.number == from.object
                && wide.is_some_and(|next| next <= u128::from(from.block))
    }

    fn tell(&mut self, at: Bookmark, bp: &BlkPtr) {
        if bp.physical_birth() <= self.range.1 {
            self.visitor.visit(at, bp);
        }
    }

    /// As [`Walk::bytes_of`]; what comes next of those ahead is read with it.
    fn bytes_with(&self, bp: &BlkPtr, ahead: &mut Ahead) -> Option<store::Block> {
        let rest = &ahead.blocks[ahead.read..];
        let place = rest.iter().position(|other| other == bp);
        if let Some(rest) = place.map(|place| &rest[place..]).filter(|_| !self.store.is_kept(bp)) {
            let mut bytes = 0;
            let fits = |bp: &&BlkPtr| {
                bytes += bp.lsize();
                bytes <= AHEAD_BYTES
            };
            let together = rest.iter().take_while(fits).count().max(1);
            let missing = |bp: &&BlkPtr| !bp.is_crypt() && !self.store.is_kept(bp);
            let wanted = rest[..together].iter().filter(missing).map(|bp| (0, *bp)).collect();
            let left = rest.len() - together;
            ahead.read = ahead.blocks.len() - left;
            let mut flight = self.store.plan(0, wanted);
            // Without memory for them they are read one by one.
            if let Some(memory) = self.store.streams().room(flight.bytes()) {
                self.hold.during(|| {
                    self.store.start(&mut flight, true, Some(memory));
                    self.store.land_in_cache(flight);
                });
            }
        }
        self.bytes_of(bp)
    }

    /// What is in a block that leads to others; nothing if it is lost, or of the other byte order: whoever examines
    /// it tells. Nor if the hold is broken.
    fn bytes_of(&self, bp: &BlkPtr) -> Option<store::Block> {
        if !bp.is_little_endian() {
            return None;
        }
        // Blocks of dnodes count as encrypted, though pointers in them are not.
        let read = || match bp.is_crypt() {
            true => self.store.read_undeciphered(bp),
            false => self.store.read(bp),
        };
        self.hold.during(read)?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Visitor for Nobody {
        fn visit(&mut self, _at: Bookmark, _bp: &BlkPtr) {}
        fn pass(&mut self, _bp: &BlkPtr) -> bool {
            true
        }
        fn unread(&mut self, _at: Bookmark) {}
        fn is_enough(&mut self) -> bool {
            false
        }
    }

    /// A store without a device.
    fn store() -> Store {
        let tree = vdev::Tree::open(
            &format::config::VdevConfig::new(format::config::VdevKind::Root, None, 1),
            Default::default(),
        );
        let account = rt::Account::new(1 << 20, 0);
        let streams = store::Streams::new(&account, 0);
        let buffers = rt::sync::Arc::new(rt::buf::BufPool::new(0));
        Store::new(vdev::Present::new(rt::sync::Arc::new(tree.unwrap())), buffers, 0, streams)
    }

    #[test]
    fn nothing_is_read_or_told_once_the_hold_is_broken() {
        #[derive(Default)]
        struct Told(usize);
        impl Visitor for Told {
            fn visit(&mut self, _at: Bookmark, _bp: &BlkPtr) {
                self.0 += 1;
            }
            fn pass(&mut self, _bp: &BlkPtr) -> bool {
                true
            }
            fn unread(&mut self, _at: Bookmark) {
                self.0 += 1;
            }
            fn is_enough(&mut self) -> bool {
                false
            }
        }
        let props = format::blkptr::BlkProps {
            lsize: 4096,
            psize: 4096,
            compress: format::Compress::Off,
            checksum: format::Checksum::Fletcher4,
            kind: ObjectType::OBJSET,
            level: 0,
        };
        let dva = format::Dva { vdev: 0, offset: 0, asize: 4096, gang: false };
        let root = BlkPtr::new(props, &[dva], 5, 1, [1; 4]);
        let (store, hold, mut told) = (store(), Hold::default(), Told::default());
        let mut run = |hold: &Hold| {
            let (range, visitor) = ((0, 9), &mut told);
            let mut walk =
                Walk { store: &store, hold, objset: 5, range, from: None, visitor, stopped: None };
            let flow = walk.run(&root);
            (flow, std::mem::take(&mut told.0))
        };
        assert_eq!(run(&hold), (Flow::Go, 2));
        hold.break_it();
        assert_eq!(run(&hold), (Flow::Stop, 0));
    }

    #[test]
    fn what_is_before_a_bookmark_is_done() {
        let (store, hold, mut nobody) = (store(), Hold::default(), Nobody);
        // Indirect blocks of 128 KiB: 1,024 pointers.
        let dnode = DnodePhys::new(ObjectType::DNODE, 16 << 10, ObjectType::NONE, 0, 1);
        let shift = dnode.pointers_shift();
        let mut is_done = |from: (u64, u64), object: u64, level: u8, number: u64| {
            let (from_object, block) = from;
            let from = Bookmark { objset: 5, object: from_object, level: 0, block };
            let walk = Walk {
                store: &store,
                hold: &hold,
                objset: 5,
                range: (0, 9),
                from: Some(from),
                visitor: &mut nobody,
                stopped: None,
            };
            walk.is_done(Object { number: object, dnode: &dnode }, level, number)
        };
        // At a block of dnodes.
        assert!(is_done((0, 3), 0, 0, 2) && !is_done((0, 3), 0, 0, 3));
        assert!(!is_done((0, 3), 0, 1, 0) && is_done((0, 1 << shift), 0, 1, 0));
        // Within an object.
        assert!(is_done((70, 5), 0, 0, 1) && !is_done((70, 5), 0, 0, 2));
        assert!(is_done((70, 5), 69, 3, 0) && !is_done((70, 5), 71, 0, 0));
        assert!(is_done((70, 5), 70, 0, 4) && !is_done((70, 5), 70, 0, 5));
        assert!(!is_done((70, 5), 70, 1, 0) && is_done((70, 2 << shift), 70, 1, 1));
        // The spill block comes last.
        assert!(!is_done((70, 5), 70, 0, SPILL) && is_done((70, SPILL), 70, 2, 0));
        assert!(!is_done((70, SPILL), 70, 0, SPILL));
    }
}
