//! Block pointers on a short line, as zdb prints the blocks of an object.

use std::fmt;

use super::Shown;
use crate::BlkPtr;

/// A block pointer as one of many: places, sizes, fill, births and checksum; no names.
pub fn compact(bp: &BlkPtr) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        let (lsize, psize, birth) = (bp.lsize(), bp.psize(), bp.birth());
        if bp.is_embedded() {
            let kind = bp.embedded_kind();
            return write!(f, "EMBEDDED et={kind} {lsize:x}L/{psize:x}P B={birth}");
        }
        if bp.is_hole() {
            return write!(f, "{lsize:x}L B={birth}");
        }
        for dva in bp.dvas() {
            write!(f, "{}:{:x}:{:x} ", dva.vdev, dva.offset, dva.asize)?;
        }
        let (fill, physical) = (bp.fill(), bp.physical_birth());
        write!(f, "{lsize:x}L/{psize:x}P F={fill} B={birth}/{physical}")?;
        let [a, b, c, d] = bp.checksum_words();
        write!(f, " cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")
    })
}
