//! What was destroyed and still takes space: worked off a portion per txg.
//!
//! A destroyed snapshot leaves lists of blocks (`free_bpobj`), a destroyed head its tree
//! (`bptree_obj`); both wait under the directory `$FREE`, so a destroy costs the same however much
//! it frees. What another writer has left over from its last txg (`sync_bplist`) goes first.
//! FORMAT: sections 9.1, 9.2.

use dmu::{Bpobj, Object, Space};
use format::BlkPtr;
use format::ObjectType;
use format::bptree::{BPTREE_BLOCK, BptreeEntry, BptreePhys};
use format::dsl_dir::{FREE_DIR_NAME, Used};
use format::features::Feature;
use rt::sync::Arc;
use zerocopy::IntoBytes;

use crate::dsl::account::{Delta, charge};
use crate::dsl::{lookup, tree};
use crate::error::{PoolError, Result};
use crate::ledger::Ledger;
use crate::mos::{Mos, key};

/// Blocks that one txg frees, about: what a sync takes longer by stays well below what writing costs.
pub(crate) const BLOCKS_PER_TXG: u64 = 50_000;

/// In place of the txg of a tree that is gone, behind one that is not (as in OpenZFS, which passes over it, too): nothing is
/// younger.
const GONE: u64 = u64::MAX;

/// How the freeing stands after a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing is left.
    Done,
    /// The next txg goes on.
    More,
    /// What is left are trees that cannot be read: their space stays taken until somebody repairs them.
    Stalled,
}

fn damaged(detail: impl std::fmt::Display) -> PoolError {
    PoolError::Damaged { what: "list of destroyed trees", detail: detail.to_string() }
}

/// The list of what destroyed snapshots have left.
pub(crate) fn list(mos: &Mos) -> Result<Bpobj> {
    Ok(Bpobj::open(&mos.objset, mos.expect(key::FREE_BPOBJ)?)?)
}

/// The trees that destroyed data sets have left, if there are any.
pub(crate) fn trees(mos: &Mos) -> Result<Option<(Arc<Object>, BptreePhys)>> {
    let Some(number) = mos.find(key::BPTREE)? else { return Ok(None) };
    let object = mos.objset.object(number)?;
    let phys = *BptreePhys::parse(&object.bonus()?).map_err(damaged)?;
    Ok(Some((object, phys)))
}

/// One of them.
pub(crate) fn entry(trees: &Object, index: u64) -> Result<BptreeEntry> {
    let mut bytes = [0; size_of::<BptreeEntry>()];
    trees.read(BptreeEntry::offset(index), &mut bytes)?;
    Ok(*BptreeEntry::parse(&bytes).map_err(damaged)?)
}

/// The blocks that the last txg of another writer has left to the next.
fn deferred(mos: &Mos) -> Result<Bpobj> {
    Ok(Bpobj::open(&mos.objset, mos.expect(key::SYNC_BPLIST)?)?)
}

/// Is there anything to free?
pub(crate) fn is_pending(mos: &Mos) -> Result<bool> {
    let lists = !deferred(mos)?.phys()?.is_empty() || !list(mos)?.phys()?.is_empty();
    Ok(lists || mos.find(key::BPTREE)?.is_some())
}

fn count(phys: &mut BptreePhys, change: fn(u64, u64) -> Option<u64>, space: Space) -> Result<()> {
    for (sum, by) in [
        (&mut phys.bytes, space.used),
        (&mut phys.compressed_bytes, space.compressed),
        (&mut phys.uncompressed_bytes, space.uncompressed),
    ] {
        let sums = || damaged("its sums are not those of its trees");
        sum.set(change(sum.get(), by).ok_or_else(sums)?);
    }
    Ok(())
}

impl Ledger<'_> {
    /// Charges `$FREE` with what was destroyed (`sign` 1) or has become free (-1).
    pub(crate) fn charge_free(&self, space: Space, sign: i64) -> Result<()> {
        let mos = self.making.mos;
        let root = mos.dir(lookup::root_dir(mos)?)?;
        let children = mos.zap(root.child_dir_zap_object.get())?;
        let dir = children.get_u64(FREE_DIR_NAME.as_bytes())?;
        let dir = dir.ok_or_else(|| damaged("the root has no child $FREE"))?;
        let gone = Delta::between(space, Space::default());
        let delta = Delta {
            used: sign * gone.used,
            compressed: sign * gone.compressed,
            uncompressed: sign * gone.uncompressed,
        };
        charge(mos, self.making.tx, dir, Used::Head, delta)
    }

    /// Leaves the blocks of the object set at `root` that are younger than `min_txg` to be freed.
    /// `space` is what they take.
    pub(crate) fn leave_tree(&self, root: BlkPtr, min_txg: u64, space: Space) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        let (object, mut phys) = match trees(mos)? {
            Some(found) => found,
            None => {
                let (kind, phys) = (ObjectType::UINT64_METADATA, BptreePhys::default());
                let object =
                    mos.objset.allocate(tx, kind, BPTREE_BLOCK, kind, phys.as_bytes(), 1)?;
                mos.set(tx, key::BPTREE, object.number())?;
                self.making.features.add(tx, Feature::AsyncDestroy, 1)?;
                (object, phys)
            }
        };
        let entry = BptreeEntry { bp: root, birth_txg: min_txg.into(), resume: Default::default() };
        object.write(tx, BptreeEntry::offset(phys.end.get()), entry.as_bytes())?;
        phys.end += 1;
        count(&mut phys, u64::checked_add, space)?;
        object.set_bonus(tx, phys.as_bytes(), None)?;
        self.charge_free(space, 1)
    }

    /// Frees the next portion of what was destroyed, about `max` blocks.
    ///
    /// Trees wait only where the feature async_destroy is enabled: elsewhere OpenZFS would not look
    /// for them, so they are freed in the txg that left them.
    pub(crate) fn free_portion(&self, max: u64) -> Result<Progress> {
        let may_wait = self.making.features.is_enabled(Feature::AsyncDestroy)?;
        let left = self.free_lists(max)?;
        if left == 0 && may_wait {
            return Ok(Progress::More);
        }
        match self.free_trees(if may_wait { left } else { u64::MAX }, max)? {
            Progress::Done if left == 0 => Ok(Progress::More),
            progress => Ok(progress),
        }
    }

    /// Frees up to `max` blocks of lists; how many it might still free, 0 if something is left.
    fn free_lists(&self, max: u64) -> Result<u64> {
        let (objset, tx) = (&self.making.mos.objset, self.making.tx);
        let of = |bp: &BlkPtr| Space::of(bp, self.store.dsize(bp));
        let late = deferred(self.making.mos)?;
        if !late.phys()?.is_empty() {
            for bp in late.take(objset, tx, max, &of)? {
                self.allocator.free(self.store, &bp)?;
            }
            return Ok(0);
        }
        let list = list(self.making.mos)?;
        if list.phys()?.is_empty() {
            return Ok(max);
        }
        let blocks = list.take(objset, tx, max, &of)?;
        let mut space = Space::default();
        blocks.iter().for_each(|bp| space += of(bp));
        self.free_all(&blocks, space)?;
        let rest = max.saturating_sub(blocks.len() as u64);
        Ok(if list.phys()?.is_empty() { rest } else { 0 })
    }

    /// Frees up to `left` blocks of trees, `chunk` of them at a time. One that cannot be read is left as it is, and those
    /// behind it go on.
    fn free_trees(&self, mut left: u64, chunk: u64) -> Result<Progress> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        let mut index = 0;
        while left > 0 {
            let Some((object, mut phys)) = trees(mos)? else { return Ok(Progress::Done) };
            if phys.pending() == 0 {
                mos.directory()?.remove(tx, key::BPTREE)?;
                mos.objset.free(tx, object.number())?;
                self.making.features.add(tx, Feature::AsyncDestroy, -1)?;
                return Ok(Progress::Done);
            }
            index = index.max(phys.begin.get());
            if index >= phys.end.get() {
                return Ok(Progress::Stalled);
            }
            let is_first = index == phys.begin.get();
            let mut entry = entry(&object, index)?;
            if entry.birth_txg.get() == GONE {
                if is_first {
                    phys.begin += 1;
                    object.set_bonus(tx, phys.as_bytes(), None)?;
                }
                index += 1;
                continue;
            }
            let resume = entry.resumes_at();
            let (root, since) = (&entry.bp, entry.birth_txg.get());
            let part = tree::portion(self.store, root, since, resume.as_ref(), left.min(chunk));
            // One that comes to nothing takes nothing from the others, or they would not come to their end.
            let least = usize::from(part.failed.is_none());
            left = left.saturating_sub(part.blocks.len().max(least) as u64);
            self.free_all(&part.blocks, part.space)?;
            count(&mut phys, u64::checked_sub, part.space)?;
            let at = BptreeEntry::offset(index);
            match part.resume {
                Some(place) => {
                    entry.resume = place;
                    object.write(tx, at, entry.as_bytes())?;
                }
                // Its root cannot be read: it is begun again, or gone on with where it was.
                None if part.failed.is_some() => {}
                None if is_first => phys.begin += 1,
                None => {
                    entry.birth_txg.set(GONE);
                    object.write(tx, at, entry.as_bytes())?;
                }
            }
            object.set_bonus(tx, phys.as_bytes(), None)?;
            index += u64::from(part.failed.is_some() || part.resume.is_none());
        }
        Ok(Progress::More)
    }

    fn free_all(&self, blocks: &[BlkPtr], space: Space) -> Result<()> {
        for bp in blocks {
            self.allocator.free(self.store, bp)?;
        }
        self.charge_free(space, -1)
    }
}
