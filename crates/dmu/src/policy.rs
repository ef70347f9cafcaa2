//! How a block is checked, compressed and copied: from the properties of its data set.
//!
//! FORMAT: sections 3.1, 3.2, 3.4. Metadata is always lz4 (lzjb where lz4 is not enabled) with
//! a strong checksum and one more copy, whatever the properties say.

use codec::compress::ZstdLevel;
use format::{Checksum, Compress, DnodePhys, ObjectType};

/// What `redundant_metadata` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedundantMetadata {
    /// One more copy of all metadata.
    #[default]
    All,
    /// One more copy of what would cost many records.
    Most,
    /// One more copy of what would cost the file system.
    Some,
    /// No more copies.
    None,
}

/// Properties of a data set that its blocks obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Checksum of data; `On` is fletcher4.
    pub checksum: Checksum,
    /// Compression of data; `On` is lz4 (or lzjb).
    pub compress: Compress,
    /// Level of zstd.
    pub zstd_level: ZstdLevel,
    /// Copies of data.
    pub copies: u8,
    /// Copies of metadata.
    pub redundant_metadata: RedundantMetadata,
    /// The MOS: three copies of everything.
    pub meta: bool,
    /// Feature lz4_compress is active.
    pub lz4: bool,
    /// Feature embedded_data is enabled.
    pub embed: bool,
    /// Feature hole_birth is active.
    pub hole_birth: bool,
}

/// What one block gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPolicy {
    /// A checksum that can be computed.
    pub checksum: Checksum,
    /// A compression that can be done.
    pub compress: Compress,
    /// Level of zstd.
    pub zstd_level: ZstdLevel,
    /// Number of DVAs.
    pub copies: u8,
    /// May the data go into the pointer?
    pub embed: bool,
}

impl Policy {
    /// The policy of the MOS, or of a data set with default properties.
    pub fn new(meta: bool) -> Policy {
        Policy {
            checksum: Checksum::Fletcher4,
            compress: Compress::Off,
            zstd_level: ZstdLevel::default(),
            copies: 1,
            redundant_metadata: RedundantMetadata::All,
            meta,
            lz4: true,
            embed: true,
            hole_birth: true,
        }
    }

    fn on(&self) -> Compress {
        if self.lz4 { Compress::Lz4 } else { Compress::Lzjb }
    }

    /// The policy of a block of `kind` on `level`; `dnode` may override (0: it does not).
    pub fn block(
        &self,
        kind: ObjectType,
        level: u8,
        spill: bool,
        dnode: &DnodePhys,
    ) -> BlockPolicy {
        let core = dnode.core();
        let checksum = match Checksum::from_id(core.checksum).unwrap_or(Checksum::Inherit) {
            Checksum::Inherit => self.checksum,
            own => own,
        };
        let checksum = if checksum == Checksum::On { Checksum::Fletcher4 } else { checksum };
        let compress = match Compress::from_id(core.compress).unwrap_or(Compress::Inherit) {
            Compress::Inherit => self.compress,
            own => own,
        };
        let compress = if compress == Compress::On { self.on() } else { compress };
        let metadata = level > 0 || spill || kind.is_metadata();
        // Only level 0 of the type can be embedded; dnodes and object sets never are.
        let embed =
            self.embed && level == 0 && kind != ObjectType::DNODE && kind != ObjectType::OBJSET;
        if !metadata {
            let copies = self.copies.clamp(1, 3);
            return BlockPolicy { checksum, compress, zstd_level: self.zstd_level, copies, embed };
        }
        let checksum = if self.meta || !checksum.is_metadata_strong() {
            Checksum::Fletcher4
        } else {
            checksum
        };
        let more = match self.redundant_metadata {
            RedundantMetadata::All => 1,
            RedundantMetadata::Most => u8::from(level >= 2 || spill || kind.is_metadata()),
            RedundantMetadata::Some => {
                let plain = matches!(
                    kind,
                    ObjectType::DNODE | ObjectType::DIRECTORY_CONTENTS | ObjectType::SA
                );
                u8::from(kind.is_metadata() && !plain)
            }
            RedundantMetadata::None => 0,
        };
        let copies = if self.meta { 3 } else { (self.copies + more).clamp(1, 3) };
        let off = Compress::from_id(core.compress) == Some(Compress::Off) && self.meta;
        let compress = if off { Compress::Off } else { self.on() };
        BlockPolicy { checksum, compress, zstd_level: ZstdLevel::default(), copies, embed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_strong_compressed_and_copied_once_more() {
        let mut policy = Policy::new(false);
        policy.checksum = Checksum::Off;
        policy.copies = 2;
        let file = DnodePhys::new(ObjectType::PLAIN_FILE_CONTENTS, 512, ObjectType::SA, 168, 1);
        let data = policy.block(file.kind(), 0, false, &file);
        assert_eq!((data.checksum, data.compress, data.copies), (Checksum::Off, Compress::Off, 2));
        let indirect = policy.block(file.kind(), 1, false, &file);
        assert_eq!(indirect.checksum, Checksum::Fletcher4);
        assert_eq!((indirect.compress, indirect.copies, indirect.embed), (Compress::Lz4, 3, false));
        let mos = Policy::new(true).block(ObjectType::DSL_PROPS, 0, false, &file);
        assert_eq!((mos.copies, mos.embed), (3, true));
    }
}
