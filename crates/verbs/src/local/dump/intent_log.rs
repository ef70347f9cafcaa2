//! Intent logs: the header in the object set, and the chain of blocks with its records.

use std::collections::BTreeSet;

use format::ObjsetPhys;
use format::zil::{LogBlock, RawRecord, Record, RecordKind, ZilHeader};

use super::{Dumper, Told};
use crate::dump::Fact;

/// Blocks of one log that are followed.
const BLOCKS_MAX: usize = 1 << 20;

impl Dumper<'_, '_> {
    /// Tells a log: its header, and with `records` the blocks that are there and what they say.
    pub(super) fn intent_log(&mut self, objset: &ObjsetPhys, sealed: bool, records: bool) -> Told {
        let header = ZilHeader::parse(&objset.zil_header);
        if header == ZilHeader::default() {
            return Ok(());
        }
        let fact = Fact::new("intent-log")
            .number("claim_txg", header.claim_txg.get())
            .number("claim_blk_seq", header.claim_block_seq.get())
            .number("claim_lr_seq", header.claim_record_seq.get())
            .number("replay_seq", header.replay_seq.get())
            .hex("flags", header.flags.get());
        self.out.tell(fact.pointer("log", &header.log))?;
        if !records {
            return Ok(());
        }
        let mut at = header.log;
        let mut seen = BTreeSet::new();
        while !at.is_hole() {
            let dva = at.dva(0);
            if seen.len() >= BLOCKS_MAX || !seen.insert((dva.vdev, dva.offset)) {
                return self.out.wrong("intent log", "its blocks have no end");
            }
            let [.., sequence] = at.checksum_words();
            let fact = Fact::new("log-block").number("seq", sequence).pointer("bp", &at);
            // The chain ends where the next block was never written.
            let Some(bytes) = self.look.log_block(&at) else {
                return self.out.tell(fact.word("state", "not written: the end of the log"));
            };
            self.out.tell(fact.word("state", "written"))?;
            let block = match LogBlock::parse(&bytes) {
                Ok(block) => block,
                Err(why) => return self.out.wrong("intent log", why),
            };
            for record in block.records() {
                match record {
                    Ok(record) => self.record(&record, sealed)?,
                    Err(why) => self.out.wrong("intent log", why)?,
                }
            }
            at = block.chain.next;
        }
        Ok(())
    }

    fn record(&mut self, raw: &RawRecord<'_>, sealed: bool) -> Told {
        let fact = Fact::new("log-record")
            .word("record", kind(raw.kind))
            .number("len", raw.bytes.len() as u64)
            .number("txg", raw.txg)
            .number("seq", raw.seq);
        if sealed {
            return self.out.tell(fact.word("body", "encrypted"));
        }
        let fact = match raw.decode() {
            Err(why) => return self.out.wrong(format!("log record {}", raw.seq), why),
            Ok(Record::Create(create)) => fact
                .number("directory", create.directory)
                .number("object", create.object)
                .word("mode", format!("{:o}", create.mode))
                .number("uid", create.uid)
                .number("gid", create.gid)
                .number("gen", create.generation)
                .text("name", create.name)
                .text("target", create.target.unwrap_or_default()),
            Ok(Record::Remove { directory, name }) => {
                fact.number("directory", directory).text("name", name)
            }
            Ok(Record::Link { directory, object, name }) => {
                fact.number("directory", directory).number("object", object).text("name", name)
            }
            Ok(Record::Rename { from, to, name, new_name }) => fact
                .number("from", from)
                .number("to", to)
                .text("name", name)
                .text("new_name", new_name),
            Ok(Record::Write(write)) => {
                let fact = fact
                    .number("object", write.object)
                    .hex("offset", write.offset)
                    .hex("length", write.length);
                match write.data {
                    Some(data) => fact.number("data_bytes", data.len() as u64),
                    None => fact.pointer("bp", &write.pointer),
                }
            }
            Ok(Record::Truncate { object, offset, length }) => {
                fact.number("object", object).hex("offset", offset).hex("length", length)
            }
            Ok(Record::Setattr(set)) => fact
                .number("object", set.object)
                .hex("mask", set.mask)
                .word("mode", format!("{:o}", set.mode))
                .number("uid", set.uid)
                .number("gid", set.gid)
                .number("size", set.size),
            Ok(Record::Acl { object, acl }) => {
                fact.number("object", object).number("entries", acl.entries)
            }
            Ok(Record::Other(bytes)) => fact.number("bytes", bytes.len() as u64),
        };
        self.out.tell(fact)
    }
}

/// The name of a record's kind, as zdb has it.
fn kind(kind: RecordKind) -> String {
    let name = match kind {
        RecordKind::Create => "CREATE",
        RecordKind::Mkdir => "MKDIR",
        RecordKind::MkXattr => "MKXATTR",
        RecordKind::Symlink => "SYMLINK",
        RecordKind::Remove => "REMOVE",
        RecordKind::Rmdir => "RMDIR",
        RecordKind::Link => "LINK",
        RecordKind::Rename => "RENAME",
        RecordKind::Write => "WRITE",
        RecordKind::Truncate => "TRUNCATE",
        RecordKind::Setattr => "SETATTR",
        RecordKind::AclV0 => "ACL_V0",
        RecordKind::Acl => "ACL_ACL",
        RecordKind::CreateAcl => "CREATE_ACL",
        RecordKind::CreateAttr => "CREATE_ATTR",
        RecordKind::CreateAclAttr => "CREATE_ACL_ATTR",
        RecordKind::MkdirAcl => "MKDIR_ACL",
        RecordKind::MkdirAttr => "MKDIR_ATTR",
        RecordKind::MkdirAclAttr => "MKDIR_ACL_ATTR",
        RecordKind::Write2 => "WRITE2",
        RecordKind::Other(id) => return format!("{id}"),
    };
    format!("TX_{name}")
}
