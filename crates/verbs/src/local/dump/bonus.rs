//! Bonuses: the structure that a dnode carries beside its blocks, by its type.

use format::bpobj::{BpobjForm, BpobjPhys};
use format::deadlist::DeadlistPhys;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DslDirFlags, DslDirPhys, Used};
use format::history::HistoryHeader;
use format::ids::Swap;
use format::space_map::SpaceMapPhys;
use format::{Checksum, Compress, DnodePhys, ObjectType};

use super::dataset::Dataset;
use super::sa::Attributes;
use super::{Dumper, Readable, Told};
use crate::dump::{Fact, Value};

impl Dumper<'_, '_> {
    /// Tells the bonus of a dnode.
    pub(super) fn bonus(
        &mut self,
        dataset: &Dataset,
        sa: &mut Attributes,
        dnode: &DnodePhys,
    ) -> Told {
        let kind = dnode.bonus_kind();
        if kind == ObjectType::SA || kind == ObjectType::ZNODE {
            return self.attributes(dataset, sa, dnode);
        }
        match structure(dnode) {
            Ok(Some(fact)) => self.out.tell(fact),
            Ok(None) => {
                let words = dnode.bonus().chunks_exact(8).filter_map(|b| b.first_chunk());
                let words = (0u64..).zip(words.map(|word| u64::from_le_bytes(*word)));
                for (index, word) in words.filter(|(_, word)| *word != 0) {
                    let fact = Fact::new("word").number("index", index).hex("value", word);
                    self.out.tell(fact)?;
                }
                Ok(())
            }
            Err(why) => self.out.wrong("bonus", why),
        }
    }
}

/// The structure in a bonus; `None` if it is empty, or an array of words.
fn structure(dnode: &DnodePhys) -> Readable<Option<Fact>> {
    let bonus = dnode.bonus();
    if bonus.is_empty() {
        return Ok(None);
    }
    Ok(Some(match dnode.bonus_kind() {
        ObjectType::DSL_DIR => dir(DslDirPhys::parse(bonus)?),
        ObjectType::DSL_DATASET => data_set(DslDatasetPhys::parse(bonus)?),
        ObjectType::BPOBJ_HDR => bpobj(bonus)?,
        ObjectType::DEADLIST_HDR => {
            let list = DeadlistPhys::parse(bonus)?;
            Fact::new("bonus")
                .number("dl_used", list.used_bytes.get())
                .number("dl_comp", list.compressed_bytes.get())
                .number("dl_uncomp", list.uncompressed_bytes.get())
        }
        ObjectType::SPACE_MAP_HEADER => {
            let (map, _) = SpaceMapPhys::parse(bonus)?;
            Fact::new("bonus")
                .hex("smp_length", map.length.get())
                .hex("smp_alloc", map.alloc.get().cast_unsigned())
        }
        ObjectType::SPA_HISTORY_OFFSETS => history(&HistoryHeader::parse(bonus)?),
        ObjectType::PACKED_NVLIST_SIZE | ObjectType::FUID_SIZE => {
            let size = bonus.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
            Fact::new("bonus").number("size", size)
        }
        kind if kind.swap() == Swap::U64 => return Ok(None),
        _ => {
            let bytes = Value::Bytes(bonus.to_vec());
            let used = bonus.iter().any(|byte| *byte != 0);
            return Ok(used.then(|| Fact::new("bonus").with("bytes", bytes)));
        }
    }))
}

fn dir(dir: &DslDirPhys) -> Fact {
    let mut fact = Fact::new("bonus")
        .time("creation_time", dir.creation_time_secs.get())
        .number("head_dataset_obj", dir.head_dataset_object.get())
        .number("parent_dir_obj", dir.parent_object.get())
        .number("origin_obj", dir.origin_object.get())
        .number("child_dir_zapobj", dir.child_dir_zap_object.get())
        .number("used_bytes", dir.used_bytes.get())
        .number("compressed_bytes", dir.compressed_bytes.get())
        .number("uncompressed_bytes", dir.uncompressed_bytes.get())
        .number("quota", dir.quota_bytes.get())
        .number("reserved", dir.reserved_bytes.get())
        .number("props_zapobj", dir.props_zap_object.get())
        .number("deleg_zapobj", dir.deleg_zap_object.get())
        .hex("flags", dir.flags.get());
    if dir.flags.get() & DslDirFlags::USED_BREAKDOWN != 0 {
        for part in Used::ALL {
            let name = match part {
                Used::Head => "used_breakdown[HEAD]",
                Used::Snap => "used_breakdown[SNAP]",
                Used::Child => "used_breakdown[CHILD]",
                Used::ChildReserved => "used_breakdown[CHILD_RSRV]",
                Used::RefReserved => "used_breakdown[REFRSRV]",
            };
            fact = fact.number(name, dir.used(part));
        }
    }
    fact.number("clones", dir.clones_object.get())
}

fn data_set(set: &DslDatasetPhys) -> Fact {
    Fact::new("bonus")
        .number("dir_obj", set.dir_object.get())
        .number("prev_snap_obj", set.prev_snap_object.get())
        .number("prev_snap_txg", set.prev_snap_txg.get())
        .number("next_snap_obj", set.next_snap_object.get())
        .number("snapnames_zapobj", set.snapnames_zap_object.get())
        .number("num_children", set.num_children.get())
        .number("userrefs_obj", set.userrefs_object.get())
        .time("creation_time", set.creation_time_secs.get())
        .number("creation_txg", set.creation_txg.get())
        .number("deadlist_obj", set.deadlist_object.get())
        .number("used_bytes", set.referenced_bytes.get())
        .number("compressed_bytes", set.compressed_bytes.get())
        .number("uncompressed_bytes", set.uncompressed_bytes.get())
        .number("unique", set.unique_bytes.get())
        .number("fsid_guid", set.fsid_guid.get())
        .number("guid", set.guid.get())
        .hex("flags", set.flags.get())
        .number("next_clones_obj", set.next_clones_object.get())
        .number("props_obj", set.props_object.get())
        .pointer("bp", &set.bp)
}

fn bpobj(bonus: &[u8]) -> Readable<Fact> {
    let (list, form) = BpobjPhys::parse(bonus)?;
    let mut fact = Fact::new("bonus")
        .number("num_blkptrs", list.num_blkptrs.get())
        .number("bytes", list.bytes.get());
    if form >= BpobjForm::Sized {
        fact = fact
            .number("comp", list.compressed_bytes.get())
            .number("uncomp", list.uncompressed_bytes.get());
    }
    if form >= BpobjForm::Nested {
        fact = fact
            .number("subobjs", list.subobjs_object.get())
            .number("num_subobjs", list.num_subobjs.get());
    }
    if form >= BpobjForm::Livelist {
        fact = fact.number("num_freed", list.num_freed.get());
    }
    Ok(fact)
}

fn history(header: &HistoryHeader) -> Fact {
    Fact::new("bonus")
        .number("pool_create_len", header.creation_len.get())
        .number("phys_max_off", header.size_max.get())
        .number("bof", header.begin.get())
        .number("eof", header.end.get())
        .number("records_lost", header.records_lost.get())
}

/// The name of a checksum in a dnode.
pub(super) fn checksum_name(id: u8) -> String {
    match Checksum::from_id(id) {
        Some(Checksum::Inherit) => "inherit".into(),
        Some(known) => format!("{known:?}").to_lowercase(),
        None => format!("checksum-{id}"),
    }
}

/// The name of a compression in a dnode.
pub(super) fn compress_name(id: u8) -> String {
    match Compress::from_id(id) {
        Some(Compress::Gzip(level)) => format!("gzip-{level}"),
        Some(known) => format!("{known:?}").to_lowercase(),
        None => format!("compress-{id}"),
    }
}
