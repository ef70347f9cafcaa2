//! One object: its dnode, and as far as it is asked for its bonus, contents and blocks.

use format::dnode::{DNODE_SLOT, DNODES_PER_BLOCK, DnodeFlags};
use format::{DnodePhys, ObjectType};

use super::dataset::Dataset;
use super::sa::Attributes;
use super::{Dumper, Told, tree};
use crate::dump::{Fact, Value};

/// From which detail on something is told.
const CONTENTS: u8 = 4;
const BLOCKS: u8 = 5;

impl Dumper<'_, '_> {
    /// Tells an object. `named`: it was asked for by its number.
    pub(super) fn object(
        &mut self,
        dataset: &Dataset,
        sa: &mut Attributes,
        number: u64,
        dnode: &DnodePhys,
        detail: u8,
        named: bool,
    ) -> Told {
        self.out.object = Some(number);
        let told = self.object_numbered(dataset, sa, number, dnode, detail, named);
        self.out.object = None;
        told
    }

    fn object_numbered(
        &mut self,
        dataset: &Dataset,
        sa: &mut Attributes,
        number: u64,
        dnode: &DnodePhys,
        detail: u8,
        named: bool,
    ) -> Told {
        self.header(number, dnode)?;
        if detail < CONTENTS {
            return Ok(());
        }
        // What is encrypted is told as far as it is in the clear: dnodes and blocks.
        if dataset.sealed && dnode.bonus_kind().is_encrypted() {
            self.out.tell(Fact::new("encrypted").word("what", "bonus"))?;
        } else {
            self.bonus(dataset, sa, dnode)?;
        }
        if named && !dataset.is_mos && !dataset.sealed {
            self.path(dataset, sa, number)?;
        }
        if dataset.sealed && dnode.kind().is_encrypted() && number != 0 {
            self.out.tell(Fact::new("encrypted").word("what", "contents"))?;
        } else {
            self.contents(dataset, number, dnode, named)?;
        }
        if detail >= BLOCKS { self.blocks(dnode) } else { Ok(()) }
    }

    fn header(&mut self, number: u64, dnode: &DnodePhys) -> Told {
        let core = dnode.core();
        let all = [
            (DnodeFlags::USED_BYTES, "USED_BYTES"),
            (DnodeFlags::USERUSED_ACCOUNTED, "USERUSED_ACCOUNTED"),
            (DnodeFlags::USEROBJUSED_ACCOUNTED, "USEROBJUSED_ACCOUNTED"),
            (DnodeFlags::SPILL, "SPILL_BLKPTR"),
        ];
        let flags = all.iter().filter(|(bit, _)| core.flags & bit != 0).map(|(_, name)| *name);
        let blocks = dnode.max_block().saturating_add(1);
        let block_size = u64::from(dnode.block_size());
        let fill = dnode.blkptrs().iter().map(|bp| bp.fill()).fold(0, u64::saturating_add);
        let fact = Fact::new("dnode")
            .number("levels", core.levels)
            .number("indirect_block", 1u64 << core.indirect_shift)
            .number("data_block", block_size)
            .number("dsize", dnode.used_bytes())
            .number("dnsize", (dnode.slots() * DNODE_SLOT) as u64)
            .number("lsize", blocks.saturating_mul(block_size))
            .number("fill", fill)
            .number("per_block", if number == 0 { DNODES_PER_BLOCK } else { 1 })
            .number("type_id", dnode.kind().0)
            .word("type", type_name(dnode.kind()))
            .word("checksum", super::bonus::checksum_name(core.checksum))
            .word("compress", super::bonus::compress_name(core.compress))
            .number("bonus_len", dnode.bonus().len() as u64)
            .word("bonus_type", type_name(dnode.bonus_kind()))
            .with("flags", Value::Words(flags.collect()))
            .number("maxblkid", dnode.max_block());
        self.out.tell(fact)
    }

    /// The tree of blocks, the spill block, and which parts of the object are not holes.
    fn blocks(&mut self, dnode: &DnodePhys) -> Told {
        let size = u64::from(dnode.block_size());
        let levels = u64::from(dnode.core().levels);
        let plain = dnode.kind() != ObjectType::DNODE;
        let mut segment: Option<(u64, u64)> = None;
        let mut segments = Vec::new();
        self.walk(dnode, &mut |dumper, place| {
            let first = place.block.saturating_mul(tree::span(dnode, place.level));
            let offset = first.saturating_mul(size);
            if place.bp.birth() != 0 || place.bp.is_embedded() {
                let fact = Fact::new("block")
                    .hex("offset", offset)
                    .number("level", place.level)
                    .number("levels", levels)
                    .number("block", place.block);
                dumper.out.tell(fact.pointer("bp", place.bp))?;
            }
            if plain && place.level == 0 && !place.bp.is_hole() {
                match &mut segment {
                    Some((_, end)) if *end == offset => *end = offset.saturating_add(size),
                    open => {
                        let new = Some((offset, offset.saturating_add(size)));
                        segments.extend(std::mem::replace(open, new));
                    }
                }
                // What is collected is bounded: a file of many holes is told in parts.
                if segments.len() >= 1 << 16 {
                    dumper.segments(&mut segments)?;
                }
            }
            Ok(true)
        })?;
        segments.extend(segment);
        self.segments(&mut segments)?;
        match dnode.spill() {
            Some(bp) => self.out.tell(Fact::new("spill").pointer("bp", bp)),
            None => Ok(()),
        }
    }

    fn segments(&mut self, segments: &mut Vec<(u64, u64)>) -> Told {
        for (start, end) in segments.drain(..) {
            self.out.tell(Fact::new("segment").hex("start", start).hex("end", end))?;
        }
        Ok(())
    }
}

/// The name of a type, with its number if that has none.
pub(super) fn type_name(kind: ObjectType) -> String {
    use format::ids::Swap;
    const NEW_STYLE: u8 = 0x80;
    if kind.0 & NEW_STYLE == 0 {
        return match kind.name() {
            "unknown" => format!("type {}", kind.0),
            name => name.into(),
        };
    }
    match kind.swap() {
        Swap::U8 => "uint8",
        Swap::U16 => "uint16",
        Swap::U32 => "uint32",
        Swap::U64 => "uint64",
        Swap::Zap => "zap",
        Swap::Dnode => "dnode",
        Swap::Objset => "objset",
        Swap::Znode => "znode",
        Swap::OldAcl => "oldacl",
        Swap::Acl => "acl",
    }
    .into()
}
