//! Volumes: made, given another size, and what is to be reserved for one that may be filled.
//!
//! The one idea: a volume is an object set with two objects, its blocks and its size; all else is as with a file
//! system. What is reserved is what OpenZFS reserves for it: the blocks as the pool's widest RAID-Z would charge
//! them, padding included, and the indirect blocks above them. FORMAT: section 11.9.

use std::collections::BTreeMap;

use dmu::{Objset, Policy, Zap};
use format::ObjectType;
use format::config::{VdevConfig, VdevKind};
use format::master_node::{ZVOL_DATA_OBJECT, ZVOL_PROPS_OBJECT, ZVOL_SIZE};
use format::objset::ObjsetType;
use rt::sync::Arc;

use crate::dsl::create::Making;
use crate::dsl::property::Stored;
use crate::error::{PoolError, Result};
use crate::operations::New;
use crate::pool::Pool;

/// Size of a volume's blocks if none is given, in bytes.
pub const VOLUME_BLOCK: u64 = 8192;
/// The block for which space is deflated, in bytes.
const USUAL_BLOCK: u64 = 128 << 10;
/// Blocks of dnodes and indirect blocks above them that each volume has.
const META_LEVELS: u64 = 7;
/// log2 of the number of pointers in an indirect block, and of its size.
const POINTERS_SHIFT: u32 = 10;
const INDIRECT_SHIFT: u32 = 17;

/// A new volume in memory, to be synced in the txg of `making`.
pub(crate) fn volume(
    making: &Making<'_>,
    policy: Policy,
    size: u64,
    block: u32,
) -> Result<Arc<Objset>> {
    let store = making.mos.objset.store().clone();
    let (tx, none) = (making.tx, ObjectType::NONE);
    let objset = Objset::create(store, ObjsetType::Zvol, policy, None);
    objset.allocate_at(tx, ZVOL_DATA_OBJECT, ObjectType::ZVOL, block, none, &[], 1)?;
    let props =
        objset.allocate_at(tx, ZVOL_PROPS_OBJECT, ObjectType::ZVOL_PROP, 512, none, &[], 1)?;
    Zap::format(props, tx, 0)?.put_u64(tx, ZVOL_SIZE.as_bytes(), size)?;
    Ok(Arc::new(objset))
}

impl Pool {
    /// Makes the volume `name` of `size` bytes in blocks of `block` bytes, with these properties of its own.
    ///
    /// # Errors
    /// A size that is 0 or no multiple of the block's; what [`Pool::create_filesystem`] refuses.
    pub fn create_volume(
        &self,
        name: &str,
        props: BTreeMap<String, Stored>,
        size: u64,
        block: u32,
    ) -> Result<()> {
        if size == 0
            || block < 512
            || !block.is_power_of_two()
            || !size.is_multiple_of(block.into())
        {
            let what = format!("no volume has {size} bytes in blocks of {block}");
            return Err(PoolError::Invalid(what));
        }
        self.create_dataset(name, props, New::Volume { size, block })
    }

    /// The size of blocks that OpenZFS would choose for a volume here, in bytes.
    pub fn volume_block(&self) -> u64 {
        // More than half of what the least allocation takes shall be data.
        let least = |child: &VdevConfig| {
            let sector = 1u64 << child.top.as_ref()?.ashift.min(24);
            Some(match (&child.kind, child.nparity) {
                (VdevKind::Raidz, Some(1)) => 2 * sector,
                (VdevKind::Raidz, _) => 4 * sector,
                _ => sector,
            })
        };
        let config = self.config.lock();
        let least = config.vdev_tree.children.iter().filter_map(least).max().unwrap_or(0);
        let mut block = VOLUME_BLOCK;
        while block * 2 <= least {
            block *= 2;
        }
        block
    }

    /// What OpenZFS reserves for a volume of `size` bytes in blocks of `block` bytes.
    pub fn volume_reservation(&self, size: u64, block: u64) -> u64 {
        let mut blocks = size / block.max(1);
        let data = self.charged_for(blocks, block);
        let mut meta = META_LEVELS;
        while blocks > 1 {
            blocks = blocks.div_ceil(1 << POINTERS_SHIFT);
            meta += blocks;
        }
        // Metadata has two copies.
        data.saturating_add(meta.saturating_mul(2 << INDIRECT_SHIFT))
    }

    /// What so many blocks are charged at most, on whichever top-level vdev they are.
    fn charged_for(&self, blocks: u64, block: u64) -> u64 {
        let config = self.config.lock();
        let mut most = 0;
        for child in &config.vdev_tree.children {
            let (VdevKind::Raidz, Some(top)) = (&child.kind, &child.top) else { continue };
            let (disks, parity) = (child.children.len() as u64, child.nparity.unwrap_or(1));
            if disks <= parity || top.ashift > 24 {
                continue;
            }
            let asize = |size: u64| {
                let sectors = size.div_ceil(1 << top.ashift);
                let all = sectors + parity * sectors.div_ceil(disks - parity);
                all.next_multiple_of(parity + 1) << top.ashift
            };
            let charged = u128::from(blocks) * u128::from(asize(block)) * u128::from(USUAL_BLOCK);
            let charged = charged / u128::from(asize(USUAL_BLOCK));
            most = most.max(u64::try_from(charged).unwrap_or(u64::MAX));
        }
        if most == 0 { blocks.saturating_mul(block) } else { most }
    }
}
