//! DTLs: which txgs each leaf lacks, kept in the MOS.
//!
//! The one idea: while a txg is written, every leaf that is away or misses a write notes the txg
//! (`vdev::Lacks`); the passes of the MOS put those notes to disk within that very txg. So an uberblock never
//! tells of blocks without telling which leaves do not have them. FORMAT: section 9.5.

use dmu::{SpaceMap, Tx};
use format::config::PoolConfig;
use format::dtl::Dtl;
use format::features::Feature;
use vdev::Tree;

use crate::error::Result;
use crate::mos::Mos;
use crate::pool::{Pool, Writing};

/// Txgs after the last on disk that a leaf may lack, and some.
pub(crate) const TXGS_AHEAD: u64 = 8;

/// Bytes of all DTLs together that are read: those of thousands of leaves may be one and the same.
const BYTES_ALL: u64 = 64 << 20;

/// Tells the leaves of `tree` what they lack, as of a txg; what lies far ahead of it no leaf has missed. A leaf whose DTL
/// cannot be read is believed nothing; then the answer says of which, and why.
pub(crate) fn load((mos, txg): (&Mos, u64), config: &PoolConfig, tree: &Tree) -> Option<String> {
    let (mut unreadable, end) = (None, txg.saturating_add(TXGS_AHEAD));
    let mut left = BYTES_ALL;
    for leaf in config.vdev_tree.leaves() {
        let Some(object) = leaf.dtl.filter(|object| *object != 0) else { continue };
        let Some(place) = tree.leaf_by_guid(leaf.guid) else { continue };
        let to = &tree.leaves()[place];
        match SpaceMap::open(&mos.objset, object).and_then(|map| map.dtl(&mut left)) {
            Ok(txgs) if !txgs.overlaps(end, u64::MAX) => to.lacks.load(txgs),
            Ok(mut txgs) => {
                txgs.remove(end, u64::MAX);
                // What is there now a resilver is of, also if another process goes on with it.
                to.lacks.set(txgs);
            }
            Err(e) => {
                let mut all = Dtl::default();
                all.add(0, u64::MAX);
                to.lacks.load(all);
                unreadable = Some(format!("what disk {} lacks cannot be read: {e}", to.name()));
            }
        }
    }
    unreadable
}

impl Pool {
    /// Writes the DTLs that have changed.
    pub(crate) fn write_dtls(&self, writing: &Writing, tx: &Tx<'_>, pass: u16) -> Result<Written> {
        let mut written = Written::default();
        for leaf in writing.writer.out().tree().leaves() {
            let Some(txgs) = leaf.lacks.take_changed() else { continue };
            written.any = true;
            let known = self.config.lock().vdev_tree.find(leaf.guid()).and_then(|leaf| leaf.dtl);
            let map = match known.filter(|object| *object != 0) {
                Some(object) => SpaceMap::open(&self.mos.objset, object)?,
                None => {
                    let histogram = self.features.is_enabled(Feature::SpacemapHistogram)?;
                    let map = SpaceMap::create_dtl(&self.mos.objset, tx, histogram)?;
                    self.features.add(tx, Feature::SpacemapHistogram, 1)?;
                    if let Some(leaf) = self.config.lock().vdev_tree.find_mut(leaf.guid()) {
                        leaf.dtl = Some(map.number());
                    }
                    written.is_new = true;
                    map
                }
            };
            let two_words = self.features.is_enabled(Feature::SpacemapV2)?;
            map.set_dtl(tx, pass, two_words, &txgs)?;
        }
        Ok(written)
    }
}

/// What came of writing the DTLs.
#[derive(Default)]
pub(crate) struct Written {
    /// One has changed.
    pub(crate) any: bool,
    /// One is new: the config names it.
    pub(crate) is_new: bool,
}
