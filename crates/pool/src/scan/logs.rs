//! Intent logs that are claimed and not replayed: they may be all there is of what somebody was told is stable.
//!
//! Place: before the blocks of a head; snapshots have no logs, whatever their headers say. The one idea: a log has no
//! place in the order of a scan, so how far that has come in it is in memory alone, and whoever goes on with the scan
//! from disk begins the log anew. FORMAT: section 12.4.

use format::BlkPtr;
use format::dsl_dataset::DslDatasetPhys;
use format::scan::Bookmark;

use super::position::Position;
use super::slice::Gathering;
use super::walk::{Flow, Visitor};
use crate::intent::{self, Link};
use crate::mos::Mos;

/// Level of what belongs to a log, in bookmarks.
const LOG_LEVEL: i64 = -2;

/// Gathers what the log of the data set at hand leads to, if it was not done before.
pub(super) fn gather(
    mos: &Mos,
    position: &mut Position,
    (object, phys): (u64, &DslDatasetPhys),
    gathering: &mut Gathering<'_>,
) -> Flow {
    if !position.is_before_all() || phys.bp.is_hole() {
        return Flow::Go;
    }
    // Whether the root can be read is told when it is visited.
    let read = || intent::header_at(gathering.store, &phys.bp, object).ok();
    let header = gathering.hold.during(read).flatten();
    // One that is not claimed is empty, or ours, and then txgs have what is in it before a scan can end.
    let header = header.filter(|header| header.claim_txg.get() != 0 && !header.log.is_hole());
    let Some(header) = header else { return Flow::Go };
    let (min_txg, max_txg) = (position.min_txg, position.max_txg);
    let (mut links, mut flow) = (0, Flow::Go);
    let followed = intent::claimed(mos, &header, |link| {
        links += 1;
        if links <= position.logged {
            return Ok(true);
        }
        position.logged = links;
        let (bp, file, block): (&BlkPtr, u64, u64) = match link {
            Link::Block(bp, _) => (bp, 0, bp.checksum_words()[3]),
            // Whose they are cannot be read.
            Link::Data(bp, _) if bp.is_crypt() => (bp, 0, 0),
            Link::Data(bp, (file, offset)) => (bp, file, offset / bp.lsize()),
        };
        if bp.birth() > min_txg && bp.physical_birth() <= max_txg {
            let at = Bookmark { objset: object, object: file, level: LOG_LEVEL, block };
            gathering.visit(at, bp);
        }
        flow = if gathering.is_enough() { Flow::Stop } else { Flow::Go };
        Ok(flow == Flow::Go)
    });
    if followed.is_err() {
        // It may go on there, or not.
        let at = Bookmark { objset: object, object: 0, level: LOG_LEVEL, block: 0 };
        gathering.out.lost.push(at);
    }
    flow
}
