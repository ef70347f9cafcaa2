//! Space that no data set refers to and that is not free either: blocks on their way out, the
//! intent logs, and what a checkpoint holds.
//!
//! FORMAT: sections 9.1, 9.2, 12, 13.4. Lists of block pointers (bpobjs) may hold others; how many
//! are followed is bounded, and each is followed once.

use crate::block::Audit;
use crate::mos::Mos;
use crate::object::{self, Result, Unread};
use crate::report::FindingKind;
use crate::space::repeats;
use crate::spacemaps::each_run;
use crate::walk::{MOS, Scope, Walk, named};
use format::bpobj::{self, BpobjForm, BpobjPhys};
use format::bptree::{BptreeEntry, BptreePhys};
use format::config::PoolConfig;
use format::mos_directory as key;
use format::space_map::{Geometry, SpaceMapPhys};
use format::zil::{LogBlock, Record, RecordKind, ZilFlags, ZilHeader};
use format::{BlkPtr, DnodePhys, ObjectType, ObjsetPhys};
use std::collections::{BTreeMap, BTreeSet};

/// Object that stands for "pending frees" among owners of space: it cannot exist.
pub(crate) const PENDING: u64 = (1 << 40) - 1;
/// Object that stands for intent logs.
pub(crate) const LOG: u64 = (1 << 40) - 2;
/// Blocks of one intent log that are followed.
const LOG_BLOCKS_MAX: u64 = 1 << 22;
/// Entries of one bpobj that are read at once.
const ENTRIES_AT_ONCE: u64 = 1024;
/// Bpobjs within one that are believed.
const LISTS_MAX: usize = 1 << 19;
/// Blocks of one sublist of a livelist; OpenZFS begins a new one at 500,000 entries.
const LIVE_MAX: usize = 1 << 19;
/// Runs of a checkpoint's space map that are believed.
const RUNS_MAX: usize = 1 << 19;
/// Pending trees that are believed.
const TREES_MAX: u64 = 1 << 20;

/// Sums of a bpobj: bytes, compressed, uncompressed.
pub(crate) type Sums = [u64; 3];

/// Claims the space of all that is pending in the MOS. Gives the space of what is being freed by
/// and by, which has an account of its own.
pub(crate) fn claim(walk: &mut Walk<'_>, mos: &Mos, config: &PoolConfig) -> Option<u64> {
    let mut freeing = Some(0u64);
    for (key, name) in [
        (key::SYNC_BPLIST, "sync_bplist"),
        (key::FREE_BPOBJ, "free_bpobj"),
        (key::OBSOLETE_BPOBJ, "com.delphix:obsolete_bpobj"),
    ] {
        let Some(object) = mos.find(key) else { continue };
        // Obsolete blocks were on removed vdevs: they take no space of their own.
        let claims = (key != key::OBSOLETE_BPOBJ).then_some(name);
        match list(walk, mos, object, claims) {
            Ok(bytes) if key == key::FREE_BPOBJ => {
                freeing = freeing.map(|sum| sum.wrapping_add(bytes));
            }
            Ok(_) => {}
            Err(why) => {
                freeing = None;
                unread(walk, || format!("{name}: {why}"));
            }
        }
    }
    if let Some(object) = mos.find(key::BPTREE) {
        match trees(walk, mos, object) {
            Ok(bytes) => freeing = freeing.map(|sum| sum.wrapping_add(bytes)),
            Err(why) => {
                freeing = None;
                unread(walk, || format!("bptree_obj: {why}"));
            }
        }
    }
    if let Some(object) = mos.find(key::DELETED_CLONES) {
        match deleted_clones(walk, mos, object) {
            Ok(0) => {}
            // What of them is in the account, only their own sums tell.
            Ok(_) => freeing = None,
            Err(why) => {
                freeing = None;
                unread(walk, || format!("com.delphix:deleted_clones: {why}"));
            }
        }
    }
    if mos.words(key::CHECKPOINT).is_some() {
        checkpoint(walk, mos, config);
    }
    freeing
}

fn unread(walk: &mut Walk<'_>, text: impl FnOnce() -> String) {
    walk.incomplete = true;
    walk.findings.add(FindingKind::Structure, text);
}

/// Calls `each` with all entries of a bpobj and those below it; gives the sums of the header. Every
/// header is held against its own entries and the headers of those right below it.
pub(crate) fn each_entry(
    walk: &mut Walk<'_>,
    mos: &Mos,
    object: u64,
    kind: FindingKind,
    what: &dyn Fn() -> String,
    mut each: impl FnMut(&mut Walk<'_>, &BlkPtr),
) -> Result<Sums> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![object];
    let mut sums = None;
    while let Some(object) = todo.pop() {
        if !seen.insert(object) {
            return Err(Unread(format!("bpobj {object} is listed twice")));
        }
        if seen.len() + todo.len() > LISTS_MAX {
            return Err(Unread(format!("more than {LISTS_MAX} bpobjs in one")));
        }
        let dnode = mos.expect(&mut walk.blocks, object)?;
        let (phys, form) = header(&dnode)?;
        let said = sums_of(&phys);
        sums.get_or_insert(said);
        let count = phys.num_blkptrs.get();
        covered(&dnode, count, 128)?;
        let mut counted: Sums = [0; 3];
        let mut at = 0;
        while at < count {
            if walk.given_up {
                return Ok(said);
            }
            let part = (count - at).min(ENTRIES_AT_ONCE);
            walk.blocks.list_part(part * 128)?;
            let offset = bpobj::entry_offset(at);
            drop(object::solid(&mut walk.blocks, &dnode, offset / u64::from(dnode.block_size()))?);
            let bytes = object::range(&mut walk.blocks, &dnode, offset, part as usize * 128)?;
            for bp in bpobj::entries(&bytes, part)? {
                add(walk, &mut counted, bp);
                each(walk, bp);
            }
            at += part;
        }
        let count = phys.num_subobjs.get();
        if count > 0 {
            let dnode = mos.expect(&mut walk.blocks, phys.subobjs_object.get())?;
            covered(&dnode, count, 8)?;
            if count > LISTS_MAX as u64 {
                return Err(Unread(format!("{count} bpobjs in a bpobj")));
            }
            walk.blocks.list_part(count * 8)?;
            let bytes = object::range(&mut walk.blocks, &dnode, 0, count as usize * 8)?;
            for sub in bpobj::subobjs(&bytes, count)? {
                let (phys, _) = header(&mos.expect(&mut walk.blocks, sub.get())?)?;
                for (sum, part) in counted.iter_mut().zip(sums_of(&phys)) {
                    *sum = sum.wrapping_add(part);
                }
                todo.push(sub.get());
            }
        }
        // The oldest form has but one sum.
        let kept = if form == BpobjForm::Counted { 1 } else { 3 };
        (0..3).skip(kept).for_each(|index| counted[index] = said[index]);
        compare(walk, kind, || format!("{}, bpobj {object}", what()), said, counted);
    }
    Ok(sums.unwrap_or_default())
}

/// The header of a bpobj.
fn header(dnode: &DnodePhys) -> Result<(BpobjPhys, BpobjForm)> {
    if dnode.kind() != ObjectType::BPOBJ {
        return Err(Unread(format!("{} in the place of a bpobj", dnode.kind().name())));
    }
    Ok(BpobjPhys::parse(dnode.bonus())?)
}

fn sums_of(phys: &BpobjPhys) -> Sums {
    [phys.bytes.get(), phys.compressed_bytes.get(), phys.uncompressed_bytes.get()]
}

/// Are so many entries within the blocks of an object?
fn covered(dnode: &DnodePhys, count: u64, size: u64) -> Result<()> {
    let blocks = dnode.max_block().saturating_add(1);
    if count.saturating_mul(size) > blocks.saturating_mul(dnode.block_size().into()) {
        return Err(Unread(format!("{count} entries, beyond the last block")));
    }
    Ok(())
}

/// Claims the blocks of a bpobj, and checks its sums. Gives the space of its blocks.
fn list(walk: &mut Walk<'_>, mos: &Mos, object: u64, claims: Option<&str>) -> Result<u64> {
    let mut counted: Sums = [0; 3];
    let what = || claims.unwrap_or("obsolete blocks").to_owned();
    each_entry(walk, mos, object, FindingKind::Account, &what, |walk, bp| {
        add(walk, &mut counted, bp);
        if claims.is_some() {
            claim_pointer(walk, MOS, PENDING, bp);
        }
    })?;
    Ok(counted[0])
}

/// Adds a pointer to sums.
pub(crate) fn add(walk: &Walk<'_>, sums: &mut Sums, bp: &BlkPtr) {
    let parts = [walk.blocks.dsize(bp), bp.compressed_size(), bp.uncompressed_size()];
    for (sum, part) in sums.iter_mut().zip(parts) {
        *sum = sum.wrapping_add(part);
    }
}

/// Reports sums that are not what was counted.
pub(crate) fn compare(
    walk: &mut Walk<'_>,
    kind: FindingKind,
    what: impl FnOnce() -> String,
    said: Sums,
    counted: Sums,
) {
    if said != counted {
        walk.findings.add(kind, || {
            format!(
                "{}: says {said:?} bytes (used, compressed, whole), counted {counted:?}",
                what()
            )
        });
    }
}

/// Claims the space of a block without looking at it.
fn claim_pointer(walk: &mut Walk<'_>, dataset: u32, object: u64, bp: &BlkPtr) {
    if !bp.has_space() {
        return;
    }
    let mut audit = Audit::default();
    if let Err(why) = walk.blocks.segments(bp, &mut audit) {
        unread(walk, || format!("a block to be freed: {why}"));
    }
    let scope = Scope::whole(dataset);
    walk.claim(scope, object, repeats(bp), &audit.segments);
}

/// Walks the trees of destroyed data sets. Gives the space that the list says they have left.
fn trees(walk: &mut Walk<'_>, mos: &Mos, object: u64) -> Result<u64> {
    let dnode = mos.expect(&mut walk.blocks, object)?;
    let phys = *BptreePhys::parse(dnode.bonus())?;
    if phys.pending() > TREES_MAX {
        return Err(Unread(format!("{} trees to be freed", phys.pending())));
    }
    for index in phys.begin.get()..phys.begin.get() + phys.pending() {
        let size = size_of::<BptreeEntry>();
        let bytes = object::range(&mut walk.blocks, &dnode, BptreeEntry::offset(index), size)?;
        let entry = *BptreeEntry::parse(&bytes)?;
        // What lies before the place where freeing goes on is free already, or another's.
        let resume = &entry.resume;
        let begun = [resume.objset.get(), resume.object.get(), resume.blkid.get()] != [0; 3]
            || resume.level.get() != 0;
        let min_txg = entry.birth_txg.get();
        let scope = Scope { min_txg, snap_txg: min_txg, dying: begun, ..Scope::whole(MOS) };
        walk.objset(scope, &entry.bp);
    }
    Ok(phys.bytes.get())
}

/// Claims the blocks of clones that are being deleted: those that their livelists have left.
/// Gives how many blocks that are.
fn deleted_clones(walk: &mut Walk<'_>, mos: &Mos, object: u64) -> Result<u64> {
    let mut left = 0;
    let mut lists = Vec::new();
    let zap = mos.expect(&mut walk.blocks, object)?;
    object::zap_each(&mut walk.blocks, &zap, |entry| lists.extend(entry.value.as_u64()))?;
    for livelist in lists {
        let mut sublists = Vec::new();
        let zap = mos.expect(&mut walk.blocks, livelist)?;
        object::zap_each(&mut walk.blocks, &zap, |entry| sublists.extend(entry.value.as_u64()))?;
        for sublist in sublists {
            // Within a sublist every free has its allocation; their number is bounded by format.
            let mut live: BTreeMap<[u64; 3], (i64, BlkPtr)> = BTreeMap::new();
            let mut over = false;
            let what = || format!("livelist {livelist}");
            each_entry(walk, mos, sublist, FindingKind::Account, &what, |_, bp| {
                let words = bp.words();
                let key = [words[0], words[1], bp.birth()];
                let count = if bpobj::entry_is_freed(bp) { -1 } else { 1 };
                if live.len() >= LIVE_MAX && !live.contains_key(&key) {
                    over = true;
                    return;
                }
                live.entry(key).or_insert((0, *bp)).0 += count;
            })?;
            if over {
                return Err(Unread(format!("more than {LIVE_MAX} blocks in one sublist")));
            }
            for (count, bp) in live.into_values() {
                if count > 0 {
                    left += 1;
                    claim_pointer(walk, MOS, PENDING, &bp);
                }
            }
        }
    }
    Ok(left)
}

/// Claims what only the checkpoint holds: frees that were put off.
fn checkpoint(walk: &mut Walk<'_>, mos: &Mos, config: &PoolConfig) {
    // That is the judge's lack, and none of the pool.
    let told = "the pool has a checkpoint: blocks that only it holds are counted, not examined";
    walk.findings.notes.push(told.into());
    for (id, child) in (0u32..).zip(&config.vdev_tree.children) {
        let (Some(zap), Some(top)) = (child.zap_top, &child.top) else { continue };
        let mut runs = Vec::new();
        let mut more = false;
        let result = mos.expect(&mut walk.blocks, zap).and_then(|zap| {
            let key = key::TOP_CHECKPOINT_MAP;
            let map = object::zap_get(&mut walk.blocks, &zap, key)?.and_then(|v| v.as_u64());
            let Some(map) = map else { return Ok(()) };
            let dnode = mos.expect(&mut walk.blocks, map)?;
            let (phys, _) = SpaceMapPhys::parse(dnode.bonus())?;
            let geometry = Geometry::metaslab(0, top.asize, top.ashift.min(20) as u32);
            each_run(&mut walk.blocks, &dnode, &phys, geometry, |run| {
                more |= runs.len() >= RUNS_MAX;
                runs.extend((!more).then_some(run));
            })?;
            if more { Err(Unread(format!("more than {RUNS_MAX} runs"))) } else { Ok(()) }
        });
        let scope = Scope::whole(MOS);
        for run in runs {
            walk.claim(scope, PENDING, false, &[(id, run.offset, run.size)]);
        }
        if let Err(why) = result {
            unread(walk, || format!("checkpoint of vdev {id}: {why}"));
        }
    }
}

/// Claims the blocks of a data set's intent log that are in the space maps already: those born
/// until the last txg, and all that were claimed.
pub(crate) fn intent_log(walk: &mut Walk<'_>, dataset: u32, objset: &ObjsetPhys, txg: u64) {
    let header = ZilHeader::parse(&objset.zil_header);
    let claim_txg = header.claim_txg.get();
    let limited = claim_txg != 0 && header.flags.get() & ZilFlags::CLAIM_RECORD_SEQ_VALID != 0;
    let last_record = if limited { header.claim_record_seq.get() } else { u64::MAX };
    let mut bp = header.log;
    let (mut count, mut last) = (0, (0, 0));
    'log: while bp.has_space() {
        let sequence = bp.checksum_words()[3];
        let claimed = claim_txg != 0 && sequence <= header.claim_block_seq.get();
        if !claimed && (claim_txg != 0 || bp.birth() > txg) {
            break;
        }
        claim_pointer(walk, dataset, LOG, &bp);
        (last.0, count) = (sequence, count + 1);
        if count > LOG_BLOCKS_MAX {
            let name = named(&walk.names, dataset).to_owned();
            unread(walk, || format!("{name}: an intent log without an end"));
            break;
        }
        // The last block is allocated in advance: one that is no log block ends the log.
        let Some(bytes) = walk.blocks.log_block(&bp) else { break };
        let Ok(log) = LogBlock::parse(&bytes) else { break };
        let next = log.chain.next;
        for record in log.records().map_while(std::result::Result::ok) {
            if record.seq > last_record {
                // A block goes on after what was claimed of it where the data of a record never got to the disk.
                break 'log;
            }
            last.1 = record.seq;
            if claim_txg == 0 || record.kind != RecordKind::Write {
                continue;
            }
            if let Ok(Record::Write(write)) = record.decode()
                && write.data.is_none()
                && write.pointer.birth() >= claim_txg
            {
                claim_pointer(walk, dataset, LOG, &write.pointer);
            }
        }
        if next.has_space() && next.checksum_words()[3] != sequence.wrapping_add(1) {
            break;
        }
        bp = next;
    }
    if limited && last != (header.claim_block_seq.get(), last_record) {
        let name = named(&walk.names, dataset).to_owned();
        walk.findings.add(FindingKind::Structure, || {
            format!("{name}: its intent log ends before what was claimed of it")
        });
    }
}
