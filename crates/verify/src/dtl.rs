//! DTLs: the txgs that leaves say they lack. What a leaf lacks is no damage of it; anything else is.
//!
//! The one idea: the leaves are told before the walk, which then finds of itself that pieces are wrong which
//! no DTL excuses. FORMAT: section 9.5.

use format::config::PoolConfig;
use format::dtl::Dtl;
use format::space_map::{Action, Geometry, SpaceMapPhys};
use vdev::Tree;

use crate::mos::Mos;
use crate::object::{Result, Unread};
use crate::report::FindingKind;
use crate::spacemaps::each_run;
use crate::walk::Walk;

/// Ranges of txgs that are believed.
const RANGES_MAX: usize = 1 << 16;

/// Tells the leaves of `tree` what they lack.
pub(crate) fn load(walk: &mut Walk<'_>, mos: &Mos, config: &PoolConfig, tree: &Tree) {
    for leaf in config.vdev_tree.leaves() {
        let Some(object) = leaf.dtl.filter(|object| *object != 0) else { continue };
        let place = tree.leaf_by_guid(leaf.guid).map(|place| &tree.leaves()[place]);
        let name = place.map_or(leaf.guid.to_string(), |leaf| leaf.name());
        let mut tell = |what: String| {
            walk.findings.add(FindingKind::SpaceMap, || format!("DTL of {name}: {what}"));
        };
        match read(&mut walk.blocks, mos, object) {
            Ok((txgs, said)) => {
                let due = txgs.count();
                if u64::try_from(said) != Ok(due) {
                    tell(format!("its header says {said} txgs, there are {due}"));
                }
                if let Some(leaf) = place {
                    leaf.lacks.load(txgs);
                }
            }
            Err(why) => tell(why.to_string()),
        }
    }
}

/// The txgs of a DTL, and how many its header says they are.
fn read(blocks: &mut crate::block::Blocks<'_>, mos: &Mos, object: u64) -> Result<(Dtl, i64)> {
    let dnode = mos.expect(blocks, object)?;
    let (phys, _) = SpaceMapPhys::parse(dnode.bonus())?;
    let mut txgs = Dtl::default();
    let mut more = false;
    each_run(blocks, &dnode, &phys, Geometry::DTL, |run| {
        let end = run.offset.saturating_add(run.size);
        more |= txgs.ranges().len() >= RANGES_MAX;
        match run.action {
            _ if more => {}
            Action::Alloc => txgs.add(run.offset, end),
            Action::Free => txgs.remove(run.offset, end),
        }
    })?;
    if more {
        Err(Unread(format!("more than {RANGES_MAX} ranges")))
    } else {
        Ok((txgs, phys.alloc.get()))
    }
}
