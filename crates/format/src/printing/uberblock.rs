//! Uberblocks as `zdb -u` prints them.

use std::fmt;

use super::{Shown, blkptr, utc};
use crate::Uberblock;
use crate::uberblock::MMP_MAGIC;

/// An uberblock, a field a line with a tab before it; `with_root` as `zdb -uuuu` adds the pointer
/// to the MOS.
pub fn uberblock(ub: &Uberblock, with_root: bool) -> impl fmt::Display {
    Shown(move |f: &mut fmt::Formatter<'_>| {
        let time = ub.timestamp.get();
        writeln!(f, "\tmagic = {:016x}", ub.magic.get())?;
        writeln!(f, "\tversion = {}", ub.version.get())?;
        writeln!(f, "\ttxg = {}", ub.txg.get())?;
        writeln!(f, "\tguid_sum = {}", ub.guid_sum.get())?;
        writeln!(f, "\ttimestamp = {time} UTC = {}", utc(time))?;
        writeln!(f, "\tmmp_magic = {:016x}", ub.mmp_magic.get())?;
        if ub.mmp_magic.get() == MMP_MAGIC {
            writeln!(f, "\tmmp_delay = {}", ub.mmp_delay.get())?;
            if let Some(seq) = ub.mmp_seq() {
                writeln!(f, "\tmmp_seq = {seq}")?;
            }
            if let Some(intervals) = ub.mmp_fail_intervals() {
                writeln!(f, "\tmmp_fail = {intervals}")?;
            }
            if let Some(interval_ms) = ub.mmp_interval_ms() {
                writeln!(f, "\tmmp_write = {interval_ms}")?;
            }
            writeln!(f, "\tmmp_valid = {:x}", ub.mmp_config.get() & 0xff)?;
        }
        if with_root {
            writeln!(f, "\trootbp = {}", blkptr(&ub.root))?;
        }
        writeln!(f, "\tcheckpoint_txg = {}", ub.checkpoint_txg.get())
    })
}
