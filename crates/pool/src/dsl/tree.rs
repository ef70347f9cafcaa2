//! The blocks of an object set that are younger than a txg, in portions.
//!
//! The walk goes from the leaves up: a block comes after all below it, so a tree of which a part
//! is freed can still be walked. It stops at data blocks only, and goes on there (the bookmarks
//! mean what OpenZFS means by them; FORMAT: section 9.2).

use dmu::Space;
use format::bptree::BlockPlace;
use format::dnode::{DNODE_SLOT, DNODES_PER_BLOCK};
use format::{BlkPtr, DnodePhys, ObjsetPhys};
use rt::sync::Arc;
use store::{Hold, Store};
use zerocopy::FromBytes;

use crate::error::PoolError;

/// The object set that destroyed trees are said to be in.
const DESTROYED: u64 = u64::MAX;
/// Block number that stands for the spill block.
const SPILL: u64 = u64::MAX;
/// No object has this number, or a higher one but for those of accounts: names of files have no more bits for it.
pub(crate) const OBJECTS_END: u64 = 1 << 48;
/// Numbers of the objects of accounts, in the order of the walk.
const ACCOUNTS: [(u64, usize); 3] = [
    (format::objset::PROJECTUSED_OBJECT, 2),
    (format::objset::GROUPUSED_OBJECT, 1),
    (format::objset::USERUSED_OBJECT, 0),
];

/// What one portion of a walk has found.
#[derive(Default)]
pub(crate) struct Portion {
    /// Blocks, those below before those above.
    pub(crate) blocks: Vec<BlkPtr>,
    /// Their space.
    pub(crate) space: Space,
    /// Where the walk goes on; `None`: it has come to its end.
    pub(crate) resume: Option<BlockPlace>,
    /// What could not be read; the walk stopped before it.
    pub(crate) failed: Option<PoolError>,
}

/// Order of the walk: object, block, and last the block of dnodes that the object is in.
type Position = (u64, u64, bool);

fn position(place: &BlockPlace) -> Position {
    match (place.object.get(), place.blkid.get()) {
        (0, block) => (last_in(block), u64::MAX, true),
        (object, block) => (object, block, false),
    }
}

/// The last object in a block of dnodes.
fn last_in(block: u64) -> u64 {
    block.saturating_mul(DNODES_PER_BLOCK).saturating_add(DNODES_PER_BLOCK - 1)
}

/// Walks the object set at `root`: the next blocks born after `min_txg`, about `max` of them.
pub(crate) fn portion(
    store: &Arc<Store>,
    root: &BlkPtr,
    min_txg: u64,
    resume: Option<&BlockPlace>,
    max: u64,
) -> Portion {
    walk(store, (root, min_txg), resume, max, None)
}

/// The same of all that can be read: what cannot is passed over, with all below it. What it has found counts only if
/// the hold is not broken then.
pub(crate) fn readable(
    (store, hold): (&Arc<Store>, &Hold),
    root: &BlkPtr,
    min_txg: u64,
    resume: Option<&BlockPlace>,
    max: u64,
) -> Portion {
    walk(store, (root, min_txg), resume, max, Some(hold))
}

fn walk(
    store: &Arc<Store>,
    (root, min_txg): (&BlkPtr, u64),
    resume: Option<&BlockPlace>,
    max: u64,
    readable: Option<&Hold>,
) -> Portion {
    // Where it began it goes on, if it comes to nothing.
    let out = Portion { resume: resume.copied(), ..Portion::default() };
    let resume = resume.map(position);
    let mut walk = Walk { store, min_txg, resume, left: max, readable, out };
    match walk.objset(root) {
        Ok(()) => walk.out.resume = None,
        Err(Stop::Full) => {}
        Err(Stop::Failed(e)) => walk.out.failed = Some(e),
    }
    walk.out
}

/// Why a walk ends before its end.
enum Stop {
    Full,
    Failed(PoolError),
}

type Walked = Result<(), Stop>;

impl From<PoolError> for Stop {
    fn from(e: PoolError) -> Self {
        Stop::Failed(e)
    }
}

struct Walk<'a> {
    store: &'a Arc<Store>,
    min_txg: u64,
    /// Everything before it was handed out.
    resume: Option<Position>,
    left: u64,
    /// It goes on behind what cannot be read, and reads under this.
    readable: Option<&'a Hold>,
    out: Portion,
}

impl Walk<'_> {
    fn is_young(&self, bp: &BlkPtr) -> bool {
        !bp.is_hole() && bp.birth() > self.min_txg
    }

    /// Was all up to (and with) `last` handed out before?
    fn is_done(&self, last: Position) -> bool {
        self.resume.is_some_and(|resume| last < resume)
    }

    fn take(&mut self, bp: &BlkPtr) {
        self.out.blocks.push(*bp);
        self.out.space += Space::of(bp, self.store.dsize(bp));
    }

    /// Marks where the walk is, which is where it goes on if it stops here.
    fn at(&mut self, object: u64, block: u64) -> Walked {
        let mut place = BlockPlace::default();
        place.objset.set(DESTROYED);
        place.object.set(object);
        place.blkid.set(block);
        self.out.resume = Some(place);
        self.left = self.left.checked_sub(1).ok_or(Stop::Full)?;
        Ok(())
    }

    fn objset(&mut self, root: &BlkPtr) -> Walked {
        if !self.is_young(root) {
            return Ok(());
        }
        let read = self.under_hold(|| self.store.read(root))?.map_err(PoolError::from);
        let parse = |bytes: store::Block| ObjsetPhys::parse(&bytes).map_err(|e| damaged(0, e));
        if let Some(phys) = self.or_over(read.and_then(parse))? {
            self.dnode(0, &phys.meta)?;
            for (number, index) in ACCOUNTS {
                if let Some(dnode) = &phys.accounting[index] {
                    self.dnode(number, dnode)?;
                }
            }
        }
        self.take(root);
        Ok(())
    }

    /// Reads under the hold, if there is to be one; if that is broken, it is over.
    fn under_hold<T>(&self, read: impl FnOnce() -> T) -> Result<T, Stop> {
        match self.readable {
            Some(hold) => hold.during(read).ok_or(Stop::Full),
            None => Ok(read()),
        }
    }

    /// What was read, or nothing if it is to be passed over.
    fn or_over<T>(&self, read: crate::error::Result<T>) -> Result<Option<T>, Stop> {
        match read {
            Err(_) if self.readable.is_some() => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    fn dnode(&mut self, object: u64, dnode: &DnodePhys) -> Walked {
        let top = dnode.core().levels.saturating_sub(1);
        for (block, bp) in dnode.blkptrs().iter().enumerate() {
            self.block(object, dnode, top, block as u64, bp)?;
        }
        match dnode.spill() {
            Some(spill) => self.leaf(object, SPILL, spill),
            None => Ok(()),
        }
    }

    /// A block of `level` with all below it.
    fn block(
        &mut self,
        object: u64,
        dnode: &DnodePhys,
        level: u8,
        block: u64,
        bp: &BlkPtr,
    ) -> Walked {
        if !self.is_young(bp) {
            return Ok(());
        }
        if bp.level() != level {
            let what = format!("a block of level {} in {level}", bp.level());
            return self.or_over(Err(damaged(object, what))).map(|_: Option<()>| ());
        }
        let shift = dnode.pointers_shift() * u32::from(level);
        let end = block.saturating_add(1).checked_shl(shift).unwrap_or(u64::MAX).saturating_sub(1);
        let last = if object == 0 { (last_in(end), u64::MAX, true) } else { (object, end, false) };
        if self.is_done(last) {
            return Ok(());
        }
        if level == 0 {
            if object == 0 {
                self.dnodes(block, bp)?;
            }
            return self.leaf(object, block, bp);
        }
        let Some(next) = block.checked_mul(1 << dnode.pointers_shift()) else {
            return self.beyond(object, block);
        };
        let first = block.checked_shl(shift).unwrap_or(u64::MAX);
        let children = self.read(object, first, bp)?;
        let children = children.iter().flat_map(|bytes| bytes.as_chunks::<128>().0);
        // What is more than there can be has the numbers of others.
        for (index, child) in (0..1 << dnode.pointers_shift()).zip(children) {
            if let Ok(child) = BlkPtr::read_from_bytes(child) {
                self.block(object, dnode, level - 1, next.saturating_add(index), &child)?;
            }
        }
        self.take(bp);
        Ok(())
    }

    /// Refuses a block of a number that none can have: it could not be told from others.
    fn beyond(&mut self, object: u64, block: u64) -> Walked {
        let what = format!("block {block} is beyond all that there can be");
        self.or_over(Err(damaged(object, what))).map(|_: Option<()>| ())
    }

    /// The objects in a block of dnodes.
    fn dnodes(&mut self, block: u64, bp: &BlkPtr) -> Walked {
        let first = block.checked_mul(DNODES_PER_BLOCK).filter(|first| *first < OBJECTS_END);
        let Some(first) = first else { return self.beyond(0, block) };
        let Some(bytes) = self.read(0, block, bp)? else { return Ok(()) };
        let mut slot = 0;
        while slot < DNODES_PER_BLOCK {
            let at = slot as usize * DNODE_SLOT;
            let object = first + slot;
            let dnode = DnodePhys::parse(bytes.get(at..).unwrap_or_default());
            slot += match self.or_over(dnode.map_err(|e| damaged(object, e)))?.flatten() {
                Some(dnode) => {
                    if object > 0 && !self.is_done((object, u64::MAX, false)) {
                        self.dnode(object, &dnode)?;
                    }
                    dnode.slots() as u64
                }
                None => 1,
            };
        }
        Ok(())
    }

    fn leaf(&mut self, object: u64, block: u64, bp: &BlkPtr) -> Walked {
        let here =
            if object == 0 { (last_in(block), u64::MAX, true) } else { (object, block, false) };
        if !self.is_young(bp) || self.is_done(here) {
            return Ok(());
        }
        self.at(object, block)?;
        self.take(bp);
        Ok(())
    }

    /// Reads a block of pointers or dnodes; if that fails, the walk can go on at a data block. `None`: it is to be
    /// passed over.
    fn read(&mut self, object: u64, first: u64, bp: &BlkPtr) -> Result<Option<store::Block>, Stop> {
        // Of encrypted dnodes only what is in their bonus cannot be read.
        let block = self.under_hold(|| match bp.is_crypt() && bp.level() == 0 {
            true => self.store.read_undeciphered(bp),
            false => self.store.read(bp),
        })?;
        if block.is_err() && self.readable.is_none() {
            self.left = self.left.max(1);
            // Of blocks of dnodes those objects come first that are in them.
            let (object, first) = match object {
                0 => (first.saturating_mul(DNODES_PER_BLOCK).max(1), 0),
                _ => (object, first),
            };
            // What is before the place where it began is free already.
            if !self.is_done((object, first, false)) {
                self.at(object, first)?;
            }
        }
        self.or_over(block.map_err(PoolError::from))
    }
}

fn damaged(object: u64, detail: impl std::fmt::Display) -> PoolError {
    PoolError::Damaged { what: "destroyed data set", detail: format!("object {object}: {detail}") }
}
