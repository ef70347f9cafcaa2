//! What a data set has no more of what its previous snapshot has.
//!
//! The one idea: both trees are gone down side by side, and where both have the same pointer all
//! below it is the same. So the cost is that of what changed, and the deadlists, which claim to be
//! this very difference, are not asked.

use crate::judge::read_objset;
use crate::object::{Result, Unread};
use crate::report::FindingKind;
use crate::walk::{Charge, Walk, named};
use format::dnode::DNODE_SLOT;
use format::sa::SaHeader;
use format::{BlkPtr, DnodePhys, ObjectType};

/// Where the txg of its creation stands behind the header of a file's attributes.
const GEN_AT: usize = 16;

/// Whose a block is, as the sorter of deadlists keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The previous snapshot has it.
    Old = 0,
    /// The data set has it, and it is old enough to be the snapshot's.
    New = 1,
    /// The deadlist has it.
    Dead = 2,
}

/// Births that matter, and what is summed up for each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gone {
    /// All that is gone.
    pub all: Charge,
    /// Of that, what was born in the previous snapshot itself.
    pub own: Charge,
    /// Of that, what was born since the origin of the directory.
    pub since_origin: Charge,
}

/// One comparison.
pub(crate) struct Diff<'w, 'a> {
    pub walk: &'w mut Walk<'a>,
    /// Number of the data set.
    pub dataset: u32,
    /// What was born until then may be shared.
    pub shared_until: u64,
    /// What was born until then is older than the previous snapshot's own.
    pub own_since: u64,
    /// What was born until then is the origin's.
    pub origin_until: u64,
    pub gone: Gone,
    /// Do holes say when they came?
    pub hole_births: bool,
    /// Blocks that may still be looked at: hostile trees could have more than there are.
    pub left: u64,
}

/// A pointer on one side.
#[derive(Clone, Copy)]
struct At<'d> {
    bp: &'d BlkPtr,
    level: u8,
    /// Is it below the object of dnodes?
    meta: bool,
    /// Is it of one object on both sides, whose holes say when they came?
    kept: bool,
}

impl Diff<'_, '_> {
    /// Compares two object sets by their roots.
    pub(crate) fn roots(&mut self, old: &BlkPtr, new: &BlkPtr) -> Result<()> {
        if self.same(old, new) {
            return Ok(());
        }
        let mut sides = [None, None];
        for ((bp, side), place) in [(old, Side::Old), (new, Side::New)].into_iter().zip(&mut sides)
        {
            if !bp.is_hole() {
                self.note(bp, side)?;
                *place = Some(read_objset(&mut self.walk.blocks, bp)?);
            }
        }
        let [old, new] = &sides;
        let meta = |objset: &Option<format::ObjsetPhys>| objset.as_ref().map(|o| o.meta.clone());
        self.objects(meta(old).as_ref(), meta(new).as_ref(), true)?;
        for index in 0..3 {
            let get = |objset: &'_ Option<format::ObjsetPhys>| {
                objset.as_ref().and_then(|o| o.accounting.get(index).cloned().flatten())
            };
            self.objects(get(old).as_ref(), get(new).as_ref(), false)?;
        }
        Ok(())
    }

    /// Compares two versions of an object.
    fn objects(
        &mut self,
        old: Option<&DnodePhys>,
        new: Option<&DnodePhys>,
        meta: bool,
    ) -> Result<()> {
        let top =
            |dnode: Option<&DnodePhys>| dnode.map_or(0, |d| d.core().levels.saturating_sub(1));
        let pointers = |dnode: Option<&DnodePhys>| -> Vec<BlkPtr> {
            dnode.map_or_else(Vec::new, |dnode| dnode.blkptrs().to_vec())
        };
        let (mut olds, mut news) = ((top(old), pointers(old)), (top(new), pointers(new)));
        let made = |dnode: Option<&DnodePhys>| dnode.and_then(made_in);
        let kept = self.hole_births && made(old).is_some() && made(old) == made(new);
        // The higher tree's first block stands above all that the lower one has.
        while olds.0 != news.0 && !olds.1.is_empty() && !news.1.is_empty() {
            let (side, (level, list)) =
                if olds.0 > news.0 { (Side::Old, &mut olds) } else { (Side::New, &mut news) };
            for bp in list.iter().skip(1) {
                self.one(At { bp, level: *level, meta, kept }, side)?;
            }
            let first = list.first().copied().unwrap_or(BlkPtr::ZERO);
            *list = if first.is_hole() {
                // What is below a hole came with it.
                let hole = BlkPtr::hole(first.lsize(), first.kind(), *level - 1, first.birth());
                vec![if first.birth() == 0 { BlkPtr::ZERO } else { hole }; 3]
            } else {
                self.note(&first, side)?;
                self.children(&first)?
            };
            *level -= 1;
        }
        self.lists((olds.0, &olds.1), (news.0, &news.1), (meta, kept))?;
        let spill = |dnode: Option<&DnodePhys>| {
            dnode.and_then(|dnode| dnode.spill().copied()).unwrap_or(BlkPtr::ZERO)
        };
        let (old, new) = (spill(old), spill(new));
        let at = |bp| At { bp, level: 0, meta: false, kept: false };
        self.pair(at(&old), at(&new))
    }

    fn lists(
        &mut self,
        (old_level, olds): (u8, &[BlkPtr]),
        (new_level, news): (u8, &[BlkPtr]),
        (meta, kept): (bool, bool),
    ) -> Result<()> {
        for index in 0..olds.len().max(news.len()) {
            let old = olds.get(index).unwrap_or(&BlkPtr::ZERO);
            let new = news.get(index).unwrap_or(&BlkPtr::ZERO);
            let old = At { bp: old, level: old_level, meta, kept };
            self.pair(old, At { bp: new, level: new_level, meta, kept })?;
        }
        Ok(())
    }

    fn pair(&mut self, old: At<'_>, new: At<'_>) -> Result<()> {
        if self.same(old.bp, new.bp) {
            return Ok(());
        }
        let both = !old.bp.is_hole() && !new.bp.is_hole();
        let freed = !old.bp.is_hole() && new.bp.is_hole();
        if freed && new.kept && old.level == new.level && new.bp.birth() <= self.shared_until {
            let (names, birth) = (&self.walk.names, new.bp.birth());
            let kind = if birth == 0 { FindingKind::HoleBirth } else { FindingKind::Pointer };
            self.walk.findings.add(kind, || {
                let name = named(names, self.dataset);
                format!(
                    "{name}: a hole born in txg {birth} where its previous snapshot has a block of \
                     {} level {}",
                    old.bp.kind().name(),
                    old.level
                )
            });
        }
        if !both || old.level != new.level {
            self.one(old, Side::Old)?;
            return self.one(new, Side::New);
        }
        self.note(old.bp, Side::Old)?;
        self.note(new.bp, Side::New)?;
        if old.level > 0 {
            let (olds, news) = (self.children(old.bp)?, self.children(new.bp)?);
            let level = old.level - 1;
            return self.lists((level, &olds), (level, &news), (old.meta, old.kept));
        }
        if !old.meta {
            return Ok(());
        }
        let (olds, news) = (self.dnodes(old.bp)?, self.dnodes(new.bp)?);
        let (mut olds, mut news) = (olds.into_iter().peekable(), news.into_iter().peekable());
        loop {
            let slot =
                |next: Option<&(usize, DnodePhys)>| next.map_or(usize::MAX, |(slot, _)| *slot);
            let at = slot(olds.peek()).min(slot(news.peek()));
            if at == usize::MAX {
                return Ok(());
            }
            let old = olds.next_if(|(slot, _)| *slot == at).map(|(_, dnode)| dnode);
            let new = news.next_if(|(slot, _)| *slot == at).map(|(_, dnode)| dnode);
            self.objects(old.as_ref(), new.as_ref(), false)?;
        }
    }

    /// A tree that only one side has.
    fn one(&mut self, at: At<'_>, side: Side) -> Result<()> {
        if at.bp.is_hole() {
            return Ok(());
        }
        self.note(at.bp, side)?;
        if at.level > 0 {
            for bp in &self.children(at.bp)? {
                self.one(At { bp, level: at.level - 1, ..at }, side)?;
            }
        } else if at.meta {
            for (_, dnode) in self.dnodes(at.bp)? {
                match side {
                    Side::Old => self.objects(Some(&dnode), None, false)?,
                    _ => self.objects(None, Some(&dnode), false)?,
                }
            }
        }
        Ok(())
    }

    fn children(&mut self, bp: &BlkPtr) -> Result<Vec<BlkPtr>> {
        if bp.is_embedded() || !bp.is_little_endian() {
            return Err(Unread("an indirect block that cannot be one".into()));
        }
        let bytes = self.walk.blocks.read(bp)?;
        Ok(BlkPtr::all_in(&bytes).to_vec())
    }

    fn dnodes(&mut self, bp: &BlkPtr) -> Result<Vec<(usize, DnodePhys)>> {
        let bytes = self.walk.blocks.read(bp)?;
        let mut out = Vec::new();
        let mut slot = 0;
        while slot < bytes.len() / DNODE_SLOT {
            let found = DnodePhys::parse(bytes.get(slot * DNODE_SLOT..).unwrap_or_default());
            let at = slot;
            slot += 1;
            if let Ok(Some(dnode)) = found {
                slot += dnode.slots() - 1;
                out.push((at, dnode));
            }
        }
        Ok(out)
    }

    /// Do two pointers lead to the very same?
    fn same(&mut self, old: &BlkPtr, new: &BlkPtr) -> bool {
        if old.is_hole() && new.is_hole() {
            return true;
        }
        if old.is_embedded() || new.is_embedded() {
            return old == new;
        }
        let same = old.same_block(new);
        // The walk has looked at the block by one of the two only.
        if same && old != new {
            self.walk.lost_blocks += u64::from(self.walk.blocks.read(new).is_err());
            let names = &self.walk.names;
            self.walk.findings.add(FindingKind::Pointer, || {
                let (name, birth) = (named(names, self.dataset), new.birth());
                format!(
                    "{name}: its pointer to {} level {}, born in txg {birth}, is not the one that \
                     its previous snapshot has",
                    new.kind().name(),
                    new.level()
                )
            });
        }
        same
    }

    /// Counts a block, and keeps it for the comparison with the deadlist.
    fn note(&mut self, bp: &BlkPtr, side: Side) -> Result<()> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| Unread("it shares more blocks than its previous snapshot has".into()))?;
        let birth = bp.birth();
        if side == Side::New && birth > self.shared_until {
            return Ok(());
        }
        let charge = self.walk.charge_of(bp);
        let gone = &mut self.gone;
        let count = |sum: &mut Charge| match side {
            Side::Old => sum.add(charge),
            _ => sum.remove(charge),
        };
        count(&mut gone.all);
        if birth > self.own_since {
            count(&mut gone.own);
        }
        if birth > self.origin_until {
            count(&mut gone.since_origin);
        }
        self.walk.note_dead(self.dataset, bp, side);
        Ok(())
    }
}

/// When a file was made: another one may have got its number. Of other objects that is not known.
fn made_in(dnode: &DnodePhys) -> Option<u64> {
    if dnode.bonus_kind() != ObjectType::SA {
        return None;
    }
    let bonus = dnode.bonus();
    let head = SaHeader::parse(bonus).ok()?.size;
    bonus.get(head + GEN_AT..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}
