//! Block pointers as zdb prints them in full.

use std::fmt;

use super::Shown;
use crate::blkptr::bits;
use crate::ids::Swap;
use crate::{BlkPtr, Checksum, Compress, ObjectType};

/// Type of embedded content that says which blocks a redacted data set lacks.
const EMBEDDED_REDACTED: u8 = 2;

/// A block pointer on one line.
pub fn blkptr(bp: &BlkPtr) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        let (level, kind) = (bp.level(), type_name(bp.kind()));
        let (lsize, psize, birth) = (bp.lsize(), bp.psize(), bp.birth());
        if bp.is_embedded() && bp.embedded_kind() == EMBEDDED_REDACTED {
            return write!(f, "REDACTED [L{level} {kind}] size={lsize:x}L birth={birth}L");
        }
        if bp.is_embedded() {
            let compress = compress_name(bp.compress_id());
            let content = bp.embedded_kind();
            write!(f, "EMBEDDED [L{level} {kind}] et={content} {compress}")?;
            return write!(f, " size={lsize:x}L/{psize:x}P birth={birth}L");
        }
        if bp.is_hole() {
            return write!(f, "HOLE [L{level} {kind}] size={lsize:x}L birth={birth}L");
        }
        let mut copies = 0;
        for dva in bp.dvas() {
            write!(f, "DVA[{copies}]=<{}:{:x}:{:x}> ", dva.vdev, dva.offset, dva.asize)?;
            copies += 1;
        }
        if is_encrypted(bp) {
            // The third DVA and the upper half of the fill are salt and initialization vector.
            let [_, _, _, _, salt, iv, _, _, _, _, _, fill, ..] = bp.words();
            write!(f, "salt={salt:x} iv={iv:x}:{:x} ", bits(fill, 32, 32))?;
        }
        write!(
            f,
            "[L{level} {kind}] {} {} {} {} {} {} {}",
            checksum_name(bp.checksum_id()),
            compress_name(bp.compress_id()),
            crypt_name(bp),
            if bp.is_little_endian() { "LE" } else { "BE" },
            if bp.is_gang() { "gang" } else { "contiguous" },
            if bp.is_dedup() { "dedup" } else { "unique" },
            ["invalid", "single", "double", "triple"].get(copies).unwrap_or(&"invalid"),
        )?;
        let [a, b, c, d] = bp.checksum_words();
        let (physical, fill) = (bp.physical_birth(), bp.fill());
        write!(f, " size={lsize:x}L/{psize:x}P birth={birth}L/{physical}P fill={fill}")?;
        write!(f, " cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")
    })
}

fn is_encrypted(bp: &BlkPtr) -> bool {
    bp.is_crypt() && bp.level() == 0 && bp.kind().is_encrypted()
}

fn crypt_name(bp: &BlkPtr) -> &'static str {
    match bp.is_crypt() {
        false => "unencrypted",
        true if bp.level() > 0 => "indirect-MAC",
        true if bp.kind().is_encrypted() => "encrypted",
        true => "authenticated",
    }
}

fn type_name(kind: ObjectType) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        const NEW_STYLE: u8 = 0x80;
        if kind.0 & NEW_STYLE == 0 {
            return f.write_str(kind.name());
        }
        let class = if kind.is_metadata() { "metadata" } else { "data" };
        let swap = match kind.swap() {
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
        };
        write!(f, "bswap {class} {swap}")
    })
}

fn checksum_name(id: u8) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(match Checksum::from_id(id) {
            Some(Checksum::Inherit) => "inherit",
            Some(Checksum::On) => "on",
            Some(Checksum::Off) => "off",
            Some(Checksum::Label) => "label",
            Some(Checksum::GangHeader) => "gang_header",
            Some(Checksum::Zilog) => "zilog",
            Some(Checksum::Fletcher2) => "fletcher2",
            Some(Checksum::Fletcher4) => "fletcher4",
            Some(Checksum::Sha256) => "sha256",
            Some(Checksum::Zilog2) => "zilog2",
            Some(Checksum::Noparity) => "noparity",
            Some(Checksum::Sha512) => "sha512",
            Some(Checksum::Skein) => "skein",
            Some(Checksum::Edonr) => "edonr",
            None => return write!(f, "checksum-{id}"),
        })
    })
}

fn compress_name(id: u8) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        f.write_str(match Compress::from_id(id) {
            Some(Compress::Inherit) => "inherit",
            Some(Compress::On) => "on",
            Some(Compress::Off) => "uncompressed",
            Some(Compress::Lzjb) => "lzjb",
            Some(Compress::Empty) => "empty",
            Some(Compress::Gzip(level)) => return write!(f, "gzip-{level}"),
            Some(Compress::Zle) => "zle",
            Some(Compress::Lz4) => "lz4",
            Some(Compress::Zstd) => "zstd",
            None => return write!(f, "compress-{id}"),
        })
    })
}
