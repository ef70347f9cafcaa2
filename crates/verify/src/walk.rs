//! The walk: every block once, from an object set's root to the last record.
//!
//! The one idea: a data set shares with its previous snapshot exactly what was born until then, so
//! each data set's walk leaves out subtrees born at or before that txg, and all walks together see
//! every block once. Levels only go down, so no pointer can lead in a circle; a pool whose blocks
//! claim more space than its vdevs have is not walked to the end.

use crate::block::{self, Audit, Blocks, Segment};
use crate::diff::Side;
use crate::features::Uses;
use crate::kept::Kept;
use crate::report::{FILES_MAX, FindingKind, Findings};
use crate::sorter::Sorter;
use crate::space::{OWNER_DEDUP, OWNER_DYING, repeats};
use crate::spacemaps;
use crate::subtrees::{Subtrees, Sum};
use crate::zaps;
use format::dnode::{DNODE_BLOCK, DNODE_SLOT, DNODES_PER_BLOCK};
use format::objset::{GROUPUSED_OBJECT, PROJECTUSED_OBJECT, USERUSED_OBJECT};
use format::space_map::SPACE_MAP_SIZE;
use format::{BlkPtr, DnodePhys, ObjectType, ObjsetPhys};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// Number of the MOS in lists of data sets; others start at 1.
pub(crate) const MOS: u32 = 0;
/// Blocks between two reports of progress.
const PROGRESS_EVERY: u64 = 256;
/// How much more deduplicated blocks may claim than others.
const REPEATS_MAX: u64 = 256;
/// Damage of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectDamage {
    /// Logical bytes lost.
    pub lost_bytes: u64,
    /// Blocks lost.
    pub lost_blocks: u64,
    /// Damaged blocks that were recovered.
    pub recovered_blocks: u64,
    /// Not the object itself is lost, but the block of dnodes that begins with it.
    pub dnodes: bool,
}

/// Space that blocks are charged with: deflated, physical, logical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Allocated, without parity.
    pub used: u64,
    /// Compressed.
    pub compressed: u64,
    /// Uncompressed.
    pub uncompressed: u64,
}

impl Charge {
    /// Adds another.
    pub(crate) fn add(&mut self, other: Charge) {
        self.used = self.used.wrapping_add(other.used);
        self.compressed = self.compressed.wrapping_add(other.compressed);
        self.uncompressed = self.uncompressed.wrapping_add(other.uncompressed);
    }

    /// Takes another away.
    pub(crate) fn remove(&mut self, other: Charge) {
        self.used = self.used.wrapping_sub(other.used);
        self.compressed = self.compressed.wrapping_sub(other.compressed);
        self.uncompressed = self.uncompressed.wrapping_sub(other.uncompressed);
    }
}

/// A lost block, for data sets that share it.
#[derive(Clone, Debug)]
pub(crate) struct LostBlock {
    pub dataset: u32,
    pub object: u64,
    pub level: u8,
    pub block: u64,
    pub bp: BlkPtr,
    pub bytes: u64,
}

impl LostBlock {
    /// Is it an object's spill block?
    pub(crate) fn is_spill(&self) -> bool {
        self.block == SPILL
    }
}

/// What is walked, and by which rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Number of the data set.
    pub dataset: u32,
    /// Blocks born until then are another's.
    pub min_txg: u64,
    /// The txg of the previous snapshot: between the two nothing can be born.
    pub snap_txg: u64,
    /// The tree is being freed: what is not there any more is no loss.
    pub dying: bool,
    /// May others have grown from it, and share its blocks?
    pub shared: bool,
    /// What is in its blocks cannot be read.
    pub sealed: bool,
}

impl Scope {
    /// A whole object set that is walked on its own.
    pub(crate) fn whole(dataset: u32) -> Scope {
        let (min_txg, snap_txg) = (0, 0);
        Scope { dataset, min_txg, snap_txg, dying: false, shared: false, sealed: false }
    }
}

/// An object while its blocks are visited.
pub(crate) struct Object<'d> {
    pub number: u64,
    pub dnode: &'d DnodePhys,
    /// Is it the object set's own, which holds the dnodes of all others?
    pub meta: bool,
}

/// The state of all walks.
pub(crate) struct Walk<'a> {
    pub blocks: Blocks<'a>,
    pub findings: Findings,
    /// Names of the data sets, by their numbers.
    pub names: Vec<String>,
    /// Segments that can be reached.
    pub reach: Sorter,
    /// Per leaf: reads that failed, wrong pieces.
    pub leaf_errors: Vec<(u64, u64)>,
    /// What an earlier judgement examined, if the state is kept.
    pub kept: Option<Kept>,
    /// Damage by data set and object.
    pub damage: BTreeMap<(u32, u64), ObjectDamage>,
    pub damage_unlisted: u64,
    pub lost: Vec<LostBlock>,
    pub lost_blocks: u64,
    pub recovered_blocks: u64,
    /// A subtree could not be walked: what is below it seems to be leaked.
    pub incomplete: bool,
    /// Blocks claim more than there is: nothing more is followed.
    pub given_up: bool,
    /// Data sets were left out: nobody knows what is leaked.
    pub left_out: bool,
    /// What was born in the data set that is being walked.
    pub born: Charge,
    /// What it uses that needs a feature.
    pub uses: Uses,
    /// Do holes say when they came?
    pub hole_births: bool,
    /// Space maps of the MOS with a histogram.
    pub histograms: u64,
    /// What is gone, and what the deadlists have.
    pub dead: Sorter,
    /// Sums of subtrees that others may share.
    pub subtrees: Subtrees,
    /// A deadlist could not be read: it cannot be held against what is gone.
    pub dead_incomplete: bool,
    /// Bytes that each top-level vdev has.
    rooms: Vec<u64>,
    /// Bytes that may be claimed before the walk gives up.
    limit: u64,
    claimed: u64,
    /// Bytes that deduplicated blocks claim.
    repeated: u64,
    pub audit: Audit,
    buffers: Vec<Vec<u8>>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(blocks: Blocks<'a>, reach: Sorter, dead: Sorter) -> Walk<'a> {
        let tree = blocks.tree();
        let rooms: Vec<u64> = tree.tops().iter().map(|top| spacemaps::room(tree, top)).collect();
        let capacity = rooms.iter().copied().fold(0, u64::saturating_add);
        Walk {
            findings: Findings::default(),
            names: vec!["MOS".into()],
            reach,
            leaf_errors: vec![(0, 0); tree.leaves().len()],
            kept: None,
            damage: BTreeMap::new(),
            damage_unlisted: 0,
            lost: Vec::new(),
            lost_blocks: 0,
            recovered_blocks: 0,
            incomplete: false,
            given_up: false,
            left_out: false,
            born: Charge::default(),
            uses: Uses::default(),
            hole_births: false,
            histograms: 0,
            dead,
            subtrees: Subtrees::default(),
            dead_incomplete: false,
            rooms,
            limit: capacity.saturating_mul(2),
            claimed: 0,
            repeated: 0,
            audit: Audit::default(),
            buffers: Vec::new(),
            blocks,
        }
    }

    /// Walks an object set. Gives its structure, if that can be read.
    pub(crate) fn objset(&mut self, mut scope: Scope, root: &BlkPtr) -> Option<ObjsetPhys> {
        scope.sealed = root.is_crypt();
        if root.is_hole() || root.birth() <= scope.min_txg {
            return None;
        }
        let mut bytes = self.buffers.pop().unwrap_or_default();
        let whole = root.kind() == ObjectType::OBJSET && root.level() == 0;
        let parsed = if !whole {
            Err("its root is not a pointer to an object set".to_string())
        } else {
            self.charge(root);
            self.look(scope, 0, root, &mut bytes).and_then(|()| {
                if !root.is_little_endian() {
                    return Err("it is of the other byte order".to_string());
                }
                ObjsetPhys::parse(&bytes).map_err(|e| e.to_string())
            })
        };
        self.buffers.push(bytes);
        let objset = match parsed {
            Ok(objset) => objset,
            Err(why) => {
                self.lose(scope, 0, root, (0, 0), 0, &why);
                return None;
            }
        };
        let fill = objset.fill();
        if root.fill() != fill {
            self.findings.add(FindingKind::Account, || {
                format!(
                    "{}: the root's fill is {}, its objects are {fill}",
                    named(&self.names, scope.dataset),
                    root.fill()
                )
            });
        }
        self.object(scope, Object { number: 0, dnode: &objset.meta, meta: true }, root.birth());
        let numbers = [USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT];
        for (dnode, number) in objset.accounting.iter().zip(numbers) {
            if let Some(dnode) = dnode {
                self.object(scope, Object { number, dnode, meta: false }, root.birth());
            }
        }
        Some(objset)
    }

    /// Walks an object.
    fn object(&mut self, scope: Scope, object: Object<'_>, birth: u64) {
        let Object { number, dnode, meta } = object;
        let level = dnode.core().levels.saturating_sub(1);
        let mut sum = Sum::EMPTY;
        for (index, bp) in dnode.blkptrs().iter().enumerate() {
            sum.add(self.visit(scope, &object, bp, (level, index as u64), birth));
        }
        let end = sum.end;
        if let Some(spill) = dnode.spill() {
            sum.add(self.visit(scope, &object, spill, (0, SPILL), birth));
        }
        if scope.dataset == MOS && dnode.bonus_kind() == ObjectType::SPACE_MAP_HEADER {
            self.histograms += u64::from(dnode.core().bonus_len.get() >= SPACE_MAP_SIZE as u16);
        }
        self.uses.large_dnode |= dnode.slots() > 1;
        if scope.dying {
            return;
        }
        if sum.complete {
            self.check_sums(scope, number, dnode, sum.dsize, end);
        }
        let fresh = dnode.blkptrs().iter().any(|bp| !bp.is_hole() && bp.birth() > scope.min_txg);
        if fresh && !meta && !scope.sealed && dnode.kind().is_zap() {
            zaps::check_object(self, scope, number, dnode);
        }
    }

    /// Does a dnode say what its blocks are?
    fn check_sums(&mut self, scope: Scope, number: u64, dnode: &DnodePhys, dsize: u64, end: u64) {
        let mut odd = |what: String| {
            self.findings.add(FindingKind::Account, || {
                format!("{} object {number}: {what}", named(&self.names, scope.dataset))
            });
        };
        let used = dnode.used_bytes();
        if used != dsize {
            odd(format!("uses {used} bytes, its blocks are {dsize}"));
        }
        let max = dnode.max_block();
        if end > max.saturating_add(1) {
            odd(format!("its last block is {max}, but there is block {}", end - 1));
        }
        let core = dnode.core();
        if dnode.levels_for(max) > core.levels {
            odd(format!("its {} levels do not reach its last block, {max}", core.levels));
        }
    }

    /// Visits a block and all below it.
    fn visit(
        &mut self,
        scope: Scope,
        object: &Object<'_>,
        bp: &BlkPtr,
        (level, number): (u8, u64),
        parent_birth: u64,
    ) -> Sum {
        if self.blocks.is_over() || self.given_up {
            return Sum { complete: false, ..Sum::EMPTY };
        }
        let birth = bp.birth();
        if birth > parent_birth {
            self.odd(scope, object, (level, number), || {
                format!("born in txg {birth}, its parent in {parent_birth}")
            });
        }
        if bp.is_hole() {
            return Sum::EMPTY;
        }
        let dsize = self.blocks.dsize(bp);
        let spill = number == SPILL;
        let due = if spill { object.dnode.bonus_kind() } else { object.dnode.kind() };
        if bp.level() != level || bp.kind() != due {
            self.odd(scope, object, (level, number), || {
                format!("{} level {}, expected {}", bp.kind().name(), bp.level(), due.name())
            });
        }
        self.check_size(scope, object, bp, level, number);
        if birth <= scope.min_txg {
            return self.known(object, bp, (level, number));
        }
        if birth <= scope.snap_txg {
            self.odd(scope, object, (level, number), || {
                format!("born in txg {birth}, and the snapshot of {} lacks it", scope.snap_txg)
            });
        }
        self.charge(bp);
        let end = if spill || level > 0 { 0 } else { number.saturating_add(1) };
        let mut sum = Sum { dsize, end, complete: true };
        let mut bytes = self.buffers.pop().unwrap_or_default();
        let contents = level == 0
            && !scope.dying
            && bp.has_space()
            && matches!(due, ObjectType::PLAIN_FILE_CONTENTS | ObjectType::ZVOL);
        let result = if contents {
            self.look_at_contents(scope, object.number, bp, number, &mut bytes)
        } else {
            self.look(scope, object.number, bp, &mut bytes)
        };
        let result = result.and_then(|()| Self::check_shape(object, bp, level));
        if scope.dataset == MOS && level == 0 {
            self.blocks.let_lists_have(bp.lsize());
        }
        match result {
            Err(why) => {
                sum.complete = false;
                let lost = lost_bytes(object.dnode, bp, level, number);
                self.lose(scope, object.number, bp, (level, number), lost, &why);
            }
            Ok(()) if level > 0 => {
                self.indirect(scope, object, bp, &bytes, (level, number), &mut sum);
                if scope.shared {
                    self.subtrees.remember(bp, sum);
                }
            }
            Ok(()) if object.meta => self.dnodes(scope, bp, &bytes, number),
            Ok(()) if bp.fill() != 1 => {
                self.miscount(scope, object.number, (level, number), bp.fill(), 1);
            }
            Ok(()) => {}
        }
        self.buffers.push(bytes);
        sum
    }

    /// Is the block such as a block of this object must be?
    fn check_shape(object: &Object<'_>, bp: &BlkPtr, level: u8) -> Result<(), String> {
        let parsed = level > 0 || object.meta;
        if parsed && bp.is_embedded() {
            return Err("an embedded pointer where none can be".into());
        }
        if parsed && !bp.is_little_endian() {
            return Err("a block of the other byte order".into());
        }
        Ok(())
    }

    /// Is the block as large as all of this object must be?
    fn check_size(
        &mut self,
        scope: Scope,
        object: &Object<'_>,
        bp: &BlkPtr,
        level: u8,
        number: u64,
    ) {
        let due = match level {
            _ if number == SPILL => return,
            0 => u64::from(object.dnode.block_size()),
            _ => 1 << object.dnode.core().indirect_shift,
        };
        if bp.lsize() != due {
            self.odd(scope, object, (level, number), || {
                format!("{} bytes, expected {due}", bp.lsize())
            });
        }
    }

    fn indirect(
        &mut self,
        scope: Scope,
        object: &Object<'_>,
        bp: &BlkPtr,
        bytes: &[u8],
        (level, number): (u8, u64),
        sum: &mut Sum,
    ) {
        let shift = object.dnode.pointers_shift();
        let mut fill = 0u64;
        for (index, child) in BlkPtr::all_in(bytes).iter().enumerate() {
            fill = fill.saturating_add(child.fill());
            let number = number.checked_shl(shift).unwrap_or(0).saturating_add(index as u64);
            sum.add(self.visit(scope, object, child, (level - 1, number), bp.birth()));
        }
        if fill != bp.fill() {
            self.miscount(scope, object.number, (level, number), bp.fill(), fill);
        }
    }

    /// Walks the objects of a block of dnodes.
    fn dnodes(&mut self, scope: Scope, bp: &BlkPtr, bytes: &[u8], number: u64) {
        let first = number.saturating_mul(DNODES_PER_BLOCK);
        let mut fill = 0;
        let mut slot = 0;
        while slot < DNODES_PER_BLOCK.min((bytes.len() / DNODE_SLOT) as u64) {
            let object = first.saturating_add(slot);
            let at = bytes.get(slot as usize * DNODE_SLOT..).unwrap_or_default();
            slot += 1;
            match DnodePhys::parse(at) {
                Ok(None) => {}
                Ok(Some(dnode)) if object == 0 => {
                    // Its number is that of the object that holds all dnodes, which is another.
                    slot += dnode.slots() as u64 - 1;
                    self.incomplete = true;
                    self.findings.add(FindingKind::Structure, || {
                        format!(
                            "{} object 0: {} in the slot that is never used",
                            named(&self.names, scope.dataset),
                            dnode.kind().name()
                        )
                    });
                }
                Ok(Some(dnode)) => {
                    fill += 1;
                    slot += dnode.slots() as u64 - 1;
                    let object = Object { number: object, dnode: &dnode, meta: false };
                    self.object(scope, object, bp.birth());
                }
                Err(error) => {
                    fill += 1;
                    self.incomplete = true;
                    self.findings.add(FindingKind::Structure, || {
                        format!("{} object {object}: {error}", named(&self.names, scope.dataset))
                    });
                    self.damaged(scope, object, |damage| damage.lost_blocks += 1);
                    self.lost_blocks += 1;
                }
            }
        }
        if bytes.len() != DNODE_BLOCK {
            self.findings.add(FindingKind::Structure, || {
                format!(
                    "{}: a block of dnodes of {} bytes",
                    named(&self.names, scope.dataset),
                    bytes.len()
                )
            });
        }
        if fill != bp.fill() {
            self.miscount(scope, 0, (0, number), bp.fill(), fill);
        }
    }

    /// Looks at all copies of a block and notes all that is to be noted.
    pub(crate) fn look(
        &mut self,
        scope: Scope,
        object: u64,
        bp: &BlkPtr,
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        let mut audit = std::mem::take(&mut self.audit);
        let result = self.blocks.audit(bp, bytes, &mut audit);
        self.claim(scope, object, repeats(bp), &audit.segments);
        let leaf_errors = &mut self.leaf_errors;
        block::count(&audit.faults, |leaf, reads, wrong| {
            if let Some(errors) = leaf_errors.get_mut(leaf).filter(|_| !scope.dying) {
                errors.0 += reads;
                errors.1 += wrong;
            }
        });
        for oddity in &audit.oddities {
            self.findings.add(FindingKind::Pointer, || {
                format!("{} object {object}: {oddity}", named(&self.names, scope.dataset))
            });
        }
        if result.is_ok() && !scope.dying && (audit.is_damaged() || audit.missing > 0) {
            self.recovered_blocks += 1;
        }
        if result.is_ok() && audit.is_damaged() {
            self.damaged(scope, object, |damage| damage.recovered_blocks += 1);
        }
        self.audit = audit;
        self.count_block();
        result
    }

    /// One more block is done with.
    pub(crate) fn count_block(&mut self) {
        self.blocks.progress.blocks += 1;
        if self.blocks.progress.blocks.is_multiple_of(PROGRESS_EVERY) {
            self.blocks.tell();
        }
    }

    /// Notes space that can be reached, by a block that [`repeats`] or one that does not.
    pub(crate) fn claim(&mut self, scope: Scope, object: u64, dedup: bool, segments: &[Segment]) {
        let mut owner =
            u64::from(scope.dataset) << 40 & (OWNER_DYING - 1) | object & ((1 << 40) - 1);
        if dedup {
            owner |= OWNER_DEDUP;
        }
        if scope.dying {
            owner |= OWNER_DYING;
        }
        for (top, offset, size) in segments {
            self.reach.push([u64::from(*top), *offset, *size, owner]);
            self.blocks.progress.bytes = self.blocks.progress.bytes.saturating_add(*size);
            let sum = if dedup { &mut self.repeated } else { &mut self.claimed };
            // Of a vdev that is away nobody knows how much it has, and nothing there is followed.
            if self.rooms.get(*top as usize).is_some_and(|room| *room > 0) {
                *sum = sum.saturating_add(*size);
            }
        }
        if self.claimed > self.limit || self.repeated > self.limit.saturating_mul(REPEATS_MAX) {
            self.give_up();
        }
    }

    /// What a block is charged with.
    pub(crate) fn charge_of(&self, bp: &BlkPtr) -> Charge {
        Charge {
            used: self.blocks.dsize(bp),
            compressed: bp.compressed_size(),
            uncompressed: bp.uncompressed_size(),
        }
    }

    fn charge(&mut self, bp: &BlkPtr) {
        let charge = self.charge_of(bp);
        self.born.add(charge);
        self.uses.note(bp);
    }

    /// Keeps a block for the comparison of what is gone with the deadlists.
    pub(crate) fn note_dead(&mut self, dataset: u32, bp: &BlkPtr, side: Side) {
        let (words, birth) = (bp.words(), bp.birth());
        // Of embedded ones a deadlist keeps what they are and when they were born; of others all but
        // fill and checksum.
        let kept = if bp.is_embedded() { &[6][..] } else { &[0, 1, 2, 3, 4, 5, 6, 9] };
        let mut rest = DefaultHasher::new();
        kept.iter().for_each(|word| rest.write_u64(words[*word]));
        let embedded = u64::from(bp.is_embedded()) << 32;
        let dataset = u64::from(dataset) | embedded | u64::from(bp.dva(0).vdev) << 33;
        let record = [dataset, bp.dva(0).offset, rest.finish(), birth << 2 | side as u64];
        self.dead.push(record);
    }

    fn damaged(&mut self, scope: Scope, object: u64, note: impl FnOnce(&mut ObjectDamage)) {
        if scope.dying {
            return;
        }
        let key = (scope.dataset, object);
        if self.damage.len() >= FILES_MAX && !self.damage.contains_key(&key) {
            self.damage_unlisted += 1;
            return;
        }
        note(self.damage.entry(key).or_default());
    }

    /// Notes a block that is lost.
    fn lose(
        &mut self,
        scope: Scope,
        object: u64,
        bp: &BlkPtr,
        (level, number): (u8, u64),
        bytes: u64,
        why: &str,
    ) {
        if scope.dying {
            self.incomplete |= level > 0;
            return;
        }
        self.lost_blocks += 1;
        let dnodes = object == 0;
        self.incomplete |= level > 0 || dnodes;
        let leads_on = scope.dataset != MOS && (level > 0 || dnodes);
        self.kept.iter_mut().filter(|_| leads_on).for_each(Kept::stay);
        if scope.dataset == MOS || dnodes || level > 0 {
            self.findings.add(FindingKind::LostMetadata, || {
                format!(
                    "{} object {object} level {level} block {number}: {why}",
                    named(&self.names, scope.dataset)
                )
            });
        }
        let first =
            if dnodes && level == 0 { number.saturating_mul(DNODES_PER_BLOCK) } else { object };
        self.damaged(scope, first, |damage| {
            damage.lost_blocks += 1;
            damage.lost_bytes = damage.lost_bytes.saturating_add(if dnodes { 0 } else { bytes });
            damage.dnodes |= dnodes;
        });
        if self.lost.len() < FILES_MAX {
            let (dataset, bp) = (scope.dataset, *bp);
            self.lost.push(LostBlock { dataset, object, level, block: number, bp, bytes });
        }
    }

    fn odd(
        &mut self,
        scope: Scope,
        object: &Object<'_>,
        (level, number): (u8, u64),
        what: impl FnOnce() -> String,
    ) {
        self.findings.add(FindingKind::Pointer, || {
            format!(
                "{} object {} level {level} block {number}: {}",
                named(&self.names, scope.dataset),
                object.number,
                what()
            )
        });
    }

    fn miscount(
        &mut self,
        scope: Scope,
        object: u64,
        (level, number): (u8, u64),
        said: u64,
        fill: u64,
    ) {
        self.findings.add(FindingKind::Account, || {
            format!(
                "{} object {object} level {level} block {number}: fill {said}, counted {fill}",
                named(&self.names, scope.dataset)
            )
        });
    }

    fn give_up(&mut self) {
        if !self.given_up {
            let limit = self.limit;
            self.findings.add(FindingKind::Unjudged, || {
                format!(
                    "blocks claim more than {limit} bytes, twice what the pool has, or deduplicated \
                     ones {REPEATS_MAX} times that: walk ended"
                )
            });
        }
        (self.given_up, self.incomplete) = (true, true);
    }
}

/// Name of the data set of this number.
pub(crate) fn named(names: &[String], dataset: u32) -> &str {
    names.get(dataset as usize).map_or("?", String::as_str)
}

/// Number of an object's spill block.
pub(crate) const SPILL: u64 = u64::MAX;

/// Logical bytes that are lost with a block, at most.
fn lost_bytes(dnode: &DnodePhys, bp: &BlkPtr, level: u8, number: u64) -> u64 {
    if number == SPILL || level == 0 {
        return bp.lsize();
    }
    let shift = dnode.pointers_shift() * u32::from(level);
    let blocks = 1u64.checked_shl(shift).unwrap_or(u64::MAX);
    let first = number.saturating_mul(blocks);
    let end = dnode.max_block().saturating_add(1);
    blocks.min(end.saturating_sub(first)).saturating_mul(dnode.block_size().into())
}
