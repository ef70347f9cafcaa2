//! Destroying a data set without snapshots: its blocks die, its objects go.
//!
//! FORMAT: section 8.5. The blocks are walked and freed within the txg.

use dmu::{Objset, Tx};
use format::dsl_dir::Used;
use format::features::Feature;
use format::{BlkPtr, DnodePhys};

use crate::dsl::account::{Delta, charge};
use crate::error::Result;
use crate::features::Features;
use crate::mos::{Mos, key};

/// Calls `each` for every block of an object set that is younger than `min_txg`: the object set
/// itself, its dnodes, and all their blocks.
pub fn blocks(objset: &Objset, min_txg: u64, each: &mut dyn FnMut(&BlkPtr)) -> Result<()> {
    let phys = objset.phys();
    let mut visit = |dnode: &DnodePhys| -> Result<()> {
        for bp in dnode.blkptrs().iter().chain(dnode.spill()) {
            below(objset, bp, min_txg, each)?;
        }
        Ok(())
    };
    let mut next = 1;
    while let Some((number, dnode)) = objset.next_object(next)? {
        visit(&dnode)?;
        next = number + dnode.slots() as u64;
    }
    for dnode in phys.accounting.iter().flatten() {
        visit(dnode)?;
    }
    visit(&phys.meta)?;
    let root = objset.root();
    if root.birth() > min_txg && !root.is_hole() {
        each(&root);
    }
    Ok(())
}

fn below(objset: &Objset, bp: &BlkPtr, min_txg: u64, each: &mut dyn FnMut(&BlkPtr)) -> Result<()> {
    if bp.is_hole() || bp.birth() <= min_txg {
        return Ok(());
    }
    if bp.level() > 0 {
        let block = objset.store().read(bp)?;
        for child in block.chunks_exact(128) {
            let child = <BlkPtr as zerocopy::FromBytes>::read_from_bytes(child);
            if let Ok(child) = child {
                // Levels must fall, so that a damaged tree ends.
                if child.is_hole() || child.level() < bp.level() {
                    below(objset, &child, min_txg, each)?;
                }
            }
        }
    }
    each(bp);
    Ok(())
}

/// Takes data set `object` with its directory `dir_object` out of the MOS. Its blocks have been
/// freed; what its directory was charged with goes.
pub fn remove(
    mos: &Mos,
    features: &Features,
    tx: &Tx<'_>,
    dir_object: u64,
    name: &str,
) -> Result<()> {
    let dir = mos.dir(dir_object)?;
    let object = dir.head_dataset_object.get();
    let ds = mos.dataset(object)?;
    // What is left of the charges (reservations of the head's own) goes with the directory.
    for part in Used::ALL {
        let bytes = mos.dir(dir_object)?.used(part);
        if bytes != 0 {
            let delta = Delta { used: -(bytes as i64), compressed: 0, uncompressed: 0 };
            charge(mos, tx, dir_object, part, delta)?;
        }
    }
    let left = mos.dir(dir_object)?;
    let delta = Delta {
        used: 0,
        compressed: -(left.compressed_bytes.get() as i64),
        uncompressed: -(left.uncompressed_bytes.get() as i64),
    };
    charge(mos, tx, dir_object, Used::Head, delta)?;
    if left.reserved_bytes.get() > 0 {
        // The parent holds what was reserved beyond use.
        let parent = left.parent_object.get();
        let reserved = left.reserved_bytes.get() as i64;
        let delta = Delta { used: -reserved, ..Delta::default() };
        charge(mos, tx, parent, Used::ChildReserved, delta)?;
    }
    // The origin forgets its clone.
    let origin = ds.prev_snap_object.get();
    if origin != 0 {
        let mut snap = mos.dataset(origin)?;
        snap.num_children -= 1;
        mos.set_dataset(tx, origin, &snap)?;
        if snap.next_clones_object.get() != 0 {
            mos.zap(snap.next_clones_object.get())?.remove_int(tx, object)?;
        }
        let origin_dir = mos.dir(snap.dir_object.get())?;
        if origin_dir.clones_object.get() != 0 {
            mos.zap(origin_dir.clones_object.get())?.remove_int(tx, object)?;
        }
    }
    // Features of the data set.
    for number in [object, dir_object] {
        if mos.objset.object(number)?.header()?.kind() == format::ObjectType::ZAP_METADATA {
            for entry in mos.zap(number)?.entries()? {
                if let Some(feature) = Feature::from_guid(&entry.name)
                    && feature.info().is_per_data_set()
                {
                    features.add(tx, feature, -1)?;
                }
            }
            features.add(tx, Feature::ExtensibleDataset, -1)?;
        }
    }
    // The (empty) deadlist gives back its references to the shared empty bpobj.
    let deadlist = mos.zap(ds.deadlist_object.get())?;
    let empty = mos.find(key::EMPTY_BPOBJ)?;
    for entry in deadlist.entries()? {
        match entry.value.as_u64() {
            Some(number) if Some(number) == empty => {
                features.add(tx, Feature::EmptyBpobj, -1)?;
                if features.count(Feature::EmptyBpobj)? == Some(0) {
                    mos.directory()?.remove(tx, key::EMPTY_BPOBJ)?;
                    mos.objset.free(tx, number)?;
                }
            }
            Some(number) => mos.objset.free(tx, number)?,
            None => {}
        }
    }
    for number in [
        ds.deadlist_object.get(),
        ds.snapnames_zap_object.get(),
        ds.props_object.get(),
        ds.userrefs_object.get(),
        object,
        dir.props_zap_object.get(),
        dir.child_dir_zap_object.get(),
        dir.clones_object.get(),
        dir.deleg_zap_object.get(),
        dir_object,
    ] {
        if number != 0 {
            mos.objset.free(tx, number)?;
        }
    }
    let parent = mos.dir(dir.parent_object.get())?;
    let leaf = name.rsplit('/').next().unwrap_or(name);
    mos.zap(parent.child_dir_zap_object.get())?.remove(tx, leaf.as_bytes())?;
    Ok(())
}
