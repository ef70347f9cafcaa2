//! What is in the blocks of an object, by its type: ZAPs, lists, arrays, histories.

use format::bpobj::{self, BpobjForm, BpobjPhys};
use format::bptree::{BptreeEntry, BptreePhys};
use format::deadlist::{DeadlistPhys, parse_key_name};
use format::dirent::{Dirent, FileType};
use format::history::{HistoryHeader, parse_record};
use format::mos_directory as key;
use format::sa::AttrDef;
use format::space_map::{Geometry, SpaceMapPhys};
use format::zap::{Entry, Value as ZapValue};
use format::{DnodePhys, ObjectType};
use verify::Unread;

use super::dataset::Dataset;
use super::{Dumper, Readable, Told, packed_list};
use crate::dump::{Fact, Value};

/// Entries of a list of pointers that are read at once.
const AT_ONCE: u64 = 1024;
/// Largest record of a history, in bytes.
const RECORD_MAX: u64 = 1 << 20;

impl Dumper<'_, '_> {
    /// Tells the contents of an object. `named`: it was asked for by its number.
    pub(super) fn contents(
        &mut self,
        dataset: &Dataset,
        number: u64,
        dnode: &DnodePhys,
        named: bool,
    ) -> Told {
        let kind = dnode.kind();
        if kind.is_zap() {
            return self.zap(dnode);
        }
        match kind {
            ObjectType::PACKED_NVLIST | ObjectType::FUID => {
                match packed_list(&mut self.look, dnode) {
                    Ok(list) => self.out.tell(Fact::new("list").with("list", Value::List(list))),
                    Err(why) => self.out.wrong("list", why),
                }
            }
            ObjectType::SPACE_MAP if dataset.is_mos && named => self.space_map(number, dnode),
            ObjectType::BPOBJ if dataset.is_mos => self.pointers_of(number, dnode),
            ObjectType::SPA_HISTORY if dataset.is_mos => self.history_of(dnode),
            _ if dataset.is_mos && self.find(key::BPTREE) == Some(number) => {
                match self.trees(dnode) {
                    Ok(told) => told,
                    Err(why) => self.out.wrong("trees to be freed", why),
                }
            }
            ObjectType::OBJECT_ARRAY
            | ObjectType::BPOBJ_SUBOBJ
            | ObjectType::UINT64_OTHER
            | ObjectType::UINT64_METADATA => self.array(dnode),
            _ => Ok(()),
        }
    }

    /// A ZAP: its form, and every entry.
    fn zap(&mut self, dnode: &DnodePhys) -> Told {
        match self.zap_form(dnode) {
            Ok(Some(fact)) => self.out.tell(fact)?,
            Ok(None) => return Ok(()),
            Err(why) => return self.out.wrong("ZAP", why),
        }
        let kind = dnode.kind();
        let Dumper { look, out, .. } = self;
        let mut told = Ok(());
        let listed = look.zap(dnode, |entry| {
            told = match entry {
                Ok(entry) => out.tell(entry_fact(kind, &entry)),
                Err(why) => out.wrong("ZAP", why),
            };
            told.is_ok()
        });
        told?;
        listed.or_else(|why| self.out.wrong("ZAP", why))
    }

    fn zap_form(&mut self, dnode: &DnodePhys) -> Readable<Option<Fact>> {
        use format::zap::{FatHeader, Kind, Micro, kind};
        if dnode.max_block() == 0 && self.look.pointer(dnode, 0)?.is_hole() {
            return Ok(None);
        }
        let block = self.look.block(dnode, 0)?;
        let fact = Fact::new("zap").number("bytes", block.len() as u64);
        Ok(Some(match kind(&block)? {
            Kind::Micro => {
                let micro = Micro::new(&block)?;
                fact.word("form", "micro")
                    .number("entries", micro.used().count() as u64)
                    .hex("salt", micro.head.salt.get())
                    .number("normflags", micro.head.normflags.get())
            }
            Kind::Fat => {
                let head = FatHeader::parse(&block)?;
                fact.word("form", "fat")
                    .number("entries", head.entry_count.get())
                    .number("leaf_blocks", head.leaf_count.get())
                    .number("total_blocks", head.free_block.get())
                    .number("zt_blk", head.table_block.get())
                    .number("zt_numblks", head.table_blocks.get())
                    .number("zt_shift", head.table_shift.get())
                    .number("zt_nextblk", head.table_next.get())
                    .number("zt_blks_copied", head.table_copied.get())
                    .hex("salt", head.salt.get())
                    .number("normflags", head.normflags.get())
                    .number("flags", head.flags.get())
            }
        }))
    }

    /// Words, those that are not 0, with their places.
    fn array(&mut self, dnode: &DnodePhys) -> Told {
        let per_block = u64::from(dnode.block_size()) / 8;
        self.walk(dnode, &mut |dumper, place| {
            if place.level > 0 || place.bp.is_hole() {
                return Ok(true);
            }
            match dumper.look.read(place.bp) {
                Ok(bytes) => {
                    let first = place.block.saturating_mul(per_block);
                    let words = bytes.chunks_exact(8).filter_map(|b| b.first_chunk());
                    let words = words.map(|word| u64::from_le_bytes(*word));
                    for (index, word) in (first..).zip(words).filter(|(_, word)| *word != 0) {
                        let fact = Fact::new("word").number("index", index).hex("value", word);
                        dumper.out.tell(fact)?;
                    }
                }
                Err(why) => dumper.out.wrong(format!("block {}", place.block), why)?,
            }
            Ok(true)
        })
    }

    /// A space map that was asked for by its number.
    fn space_map(&mut self, number: u64, dnode: &DnodePhys) -> Told {
        let (phys, has_histogram) = match SpaceMapPhys::parse(dnode.bonus()) {
            Ok(parsed) => parsed,
            Err(why) => return self.out.wrong("space map", why),
        };
        let unknown = Geometry { start: 0, size: u64::MAX, shift: 0 };
        let geometry = self.geometry(number);
        if geometry.is_none() {
            self.out.wrong("space map", "no vdev has it: offsets and sizes are in units")?;
        }
        let geometry = geometry.unwrap_or(unknown);
        self.space_map_header(number, &phys, has_histogram, geometry.shift)?;
        self.space_map_entries(number, dnode, &phys, geometry)
    }

    /// The entries of a list of block pointers, and which lists are below it.
    pub(super) fn pointers_of(&mut self, number: u64, dnode: &DnodePhys) -> Told {
        match self.try_pointers(number, dnode) {
            Ok(told) => told,
            Err(why) => self.out.wrong(format!("bpobj {number}"), why),
        }
    }

    fn try_pointers(&mut self, number: u64, dnode: &DnodePhys) -> Readable<Told> {
        let (phys, _) = BpobjPhys::parse(dnode.bonus())?;
        let count = phys.num_blkptrs.get();
        covered(dnode, count, 128)?;
        let mut at = 0;
        while at < count {
            let part = (count - at).min(AT_ONCE);
            let offset = bpobj::entry_offset(at);
            if self.look.pointer(dnode, offset / u64::from(dnode.block_size()))?.is_hole() {
                return Err(Unread(format!("a hole at byte {offset}")));
            }
            let bytes = self.look.range(dnode, offset, part as usize * 128)?;
            for (index, bp) in (at..).zip(bpobj::entries(&bytes, part)?) {
                let mut fact = Fact::new("list-entry").number("index", index);
                fact.object = Some(number);
                if bpobj::entry_is_freed(bp) {
                    fact = fact.word("mark", "freed");
                }
                if self.out.tell(fact.pointer("bp", bp)).is_err() {
                    return Ok(Err(super::Gone));
                }
            }
            at += part;
        }
        let below = phys.num_subobjs.get();
        if below == 0 {
            return Ok(Ok(()));
        }
        let list = self.look.expect(&self.mos, phys.subobjs_object.get())?;
        covered(&list, below, 8)?;
        for at in (0..below).step_by(AT_ONCE as usize) {
            let part = (below - at).min(AT_ONCE);
            let bytes = self.look.range(&list, at * 8, part as usize * 8)?;
            for (index, object) in (at..).zip(bpobj::subobjs(&bytes, part)?) {
                let mut fact = Fact::new("sublist").number("index", index);
                fact.object = Some(number);
                if self.out.tell(fact.number("bpobj", object.get())).is_err() {
                    return Ok(Err(super::Gone));
                }
            }
        }
        Ok(Ok(()))
    }

    /// A deadlist or livelist, sublist by sublist with their entries.
    pub(super) fn deadlist(&mut self, name: &'static str, object: u64) -> Told {
        let dnode = match self.look.expect(&self.mos, object) {
            Ok(dnode) => dnode,
            Err(why) => return self.out.wrong(name, why),
        };
        if dnode.bonus_kind() == ObjectType::BPOBJ_HDR {
            // Before version 26 a deadlist was one list.
            return self.pointers_of(object, &dnode);
        }
        let mut keys = Vec::new();
        let listed = self.look.zap(&dnode, |entry| {
            let entry = entry.ok();
            keys.extend(entry.and_then(|entry| {
                Some((parse_key_name(&entry.name).ok()?, entry.value.as_u64()?))
            }));
            keys.len() < 1 << 20
        });
        if let Err(why) = listed {
            self.out.wrong(name, why)?;
        }
        keys.sort_unstable();
        let fact = Fact::new("deadlist").word("list", name);
        let mut fact = fact.number("sublists", keys.len() as u64);
        if let Ok(phys) = DeadlistPhys::parse(dnode.bonus()) {
            fact = fact
                .number("used", phys.used_bytes.get())
                .number("comp", phys.compressed_bytes.get())
                .number("uncomp", phys.uncompressed_bytes.get());
        }
        fact.object = Some(object);
        self.out.tell(fact)?;
        for (key, list) in keys {
            match self.look.expect(&self.mos, list) {
                Ok(dnode) => {
                    let mut fact = Fact::new("deadlist-key").number("mintxg", key);
                    fact = fact.number("bpobj", list);
                    if let Ok((phys, form)) = BpobjPhys::parse(dnode.bonus()) {
                        fact = fact.number("num_blkptrs", phys.num_blkptrs.get());
                        if form >= BpobjForm::Livelist {
                            fact = fact.number("num_freed", phys.num_freed.get());
                        }
                        fact = fact.number("bytes", phys.bytes.get());
                    }
                    fact.object = Some(object);
                    self.out.tell(fact)?;
                    self.pointers_of(list, &dnode)?;
                }
                Err(why) => self.out.wrong(format!("{name} {object}: txg {key}"), why)?,
            }
        }
        Ok(())
    }

    /// Trees that are to be freed.
    fn trees(&mut self, dnode: &DnodePhys) -> Readable<Told> {
        let phys = *BptreePhys::parse(dnode.bonus())?;
        covered(dnode, phys.end.get(), size_of::<BptreeEntry>() as u64)?;
        for index in phys.begin.get()..phys.end.get() {
            let size = size_of::<BptreeEntry>();
            let bytes = self.look.range(dnode, BptreeEntry::offset(index), size)?;
            let entry = BptreeEntry::parse(&bytes)?;
            let fact = Fact::new("tree")
                .number("index", index)
                .number("birth_txg", entry.birth_txg.get())
                .pointer("bp", &entry.bp);
            if self.out.tell(fact).is_err() {
                return Ok(Err(super::Gone));
            }
        }
        Ok(Ok(()))
    }

    /// The pool's history.
    pub(super) fn history(&mut self, object: u64) -> Told {
        self.out.object = Some(object);
        let told = match self.look.expect(&self.mos, object) {
            Ok(dnode) => self.history_of(&dnode),
            Err(why) => self.out.wrong("history", why),
        };
        self.out.object = None;
        told
    }

    fn history_of(&mut self, dnode: &DnodePhys) -> Told {
        match self.records(dnode) {
            Ok(told) => told,
            Err(why) => self.out.wrong("history", why),
        }
    }

    fn records(&mut self, dnode: &DnodePhys) -> Readable<Told> {
        let header = HistoryHeader::parse(dnode.bonus())?;
        for range in header.ranges() {
            let mut at = range.start;
            while at < range.end {
                let length = self.logical(dnode, &header, at, 8)?;
                let length = length.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                let size = length.saturating_add(8);
                if length == 0 || size > RECORD_MAX || size > range.end - at {
                    return Err(Unread(format!("a record of {length} bytes at {at}")));
                }
                let bytes = self.logical(dnode, &header, at, size)?;
                let told = match parse_record(&bytes) {
                    Ok(Some((list, _))) => {
                        let fact = Fact::new("record").hex("at", at);
                        self.out.tell(fact.with("record", Value::List(list)))
                    }
                    Ok(None) => Ok(()),
                    Err(why) => self.out.wrong(format!("history record at {at}"), why),
                };
                if told.is_err() {
                    return Ok(told);
                }
                at += size;
            }
        }
        Ok(Ok(()))
    }

    /// Bytes of the history by their logical offset.
    fn logical(
        &mut self,
        dnode: &DnodePhys,
        header: &HistoryHeader,
        at: u64,
        len: u64,
    ) -> Readable<Vec<u8>> {
        let mut bytes = Vec::new();
        for (offset, len) in header.pieces(at, len) {
            if len > 0 {
                bytes.extend(self.look.range(dnode, offset, len as usize)?);
            }
        }
        Ok(bytes)
    }
}

/// Are so many entries within the blocks of an object?
pub(super) fn covered(dnode: &DnodePhys, count: u64, size: u64) -> Readable<()> {
    let blocks = dnode.max_block().saturating_add(1);
    if count.saturating_mul(size) > blocks.saturating_mul(dnode.block_size().into()) {
        return Err(Unread(format!("{count} entries, beyond the last block")));
    }
    Ok(())
}

/// An entry of a ZAP, read as the type of its object means it.
fn entry_fact(kind: ObjectType, entry: &Entry) -> Fact {
    let fact = Fact::new("entry");
    let number = entry.value.as_u64();
    let fact = match kind {
        ObjectType::DDT_ZAP => fact.with("name", Value::Numbers(entry.words())),
        _ => fact.text("name", entry.name.clone()),
    };
    match (kind, number) {
        (ObjectType::DIRECTORY_CONTENTS, Some(value)) => {
            let entry = Dirent::decode(value);
            fact.number("object", entry.object).word("type", file_type(entry.kind))
        }
        (ObjectType::SA_ATTR_REGISTRATION, Some(value)) => match AttrDef::decode(value) {
            Ok(def) => fact
                .hex("value", value)
                .number("length", def.length)
                .number("swap", def.swap as u64)
                .number("number", def.number),
            Err(_) => fact.hex("value", value),
        },
        _ => fact.with("value", entry_value(&entry.value)),
    }
}

/// The value of an entry.
pub(super) fn entry_value(value: &ZapValue) -> Value {
    if let Some(number) = value.as_u64() {
        return Value::Number(number);
    }
    match value.as_bytes() {
        // Text ends with its only NUL.
        Some([text @ .., 0]) if !text.iter().any(u8::is_ascii_control) => {
            Value::Text(text.to_vec())
        }
        Some(bytes) => Value::Bytes(bytes.to_vec()),
        None => Value::Numbers(value.ints()),
    }
}

/// The type of a file, in zdb's words.
fn file_type(kind: Option<FileType>) -> &'static str {
    match kind {
        Some(FileType::Fifo) => "FIFO",
        Some(FileType::Char) => "Character Device",
        Some(FileType::Directory) => "Directory",
        Some(FileType::Block) => "Block Device",
        Some(FileType::File) => "Regular File",
        Some(FileType::Link) => "Symbolic Link",
        Some(FileType::Socket) => "Socket",
        None => "not specified",
    }
}
