//! The pool's config and its copies in the labels.
//!
//! FORMAT: sections 1.4, 1.6. The config in the MOS is the one that counts. Labels are written in
//! two halves around the uberblock, and only when the config has changed, so that a leaf may have
//! older ones, and, if a write was cut off, in one half ones that are ahead of the uberblock or
//! broken off in their midst. What is beyond that is a contradiction, or damage.

use crate::features;
use crate::mos::Mos;
use crate::report::{DeviceDamage, FindingKind};
use crate::rings::{self, Rings};
use crate::walk::Walk;
use codec::embedded::EmbeddedError;
use format::Uberblock;
use format::config::{Label, PoolConfig, TopConfig, VdevConfig, VdevKind};
use format::label::LABELS;
use format::mos_directory as key;
use std::collections::{BTreeMap, BTreeSet};
use vdev::label::{LabelError, Labels};
use vdev::{LeafState, Top, Tree};

/// Does the config agree with itself, with the uberblock and with the vdevs that are open?
pub(crate) fn check(walk: &mut Walk<'_>, mos: &Mos, config: &PoolConfig, uberblock: &Uberblock) {
    let (sum, said) = (config.vdev_tree.guid_sum(), uberblock.guid_sum.get());
    if sum != said {
        walk.findings.add(FindingKind::Account, || {
            format!("the guids of the config add up to {sum}, the uberblock says {said}")
        });
    }
    let mut odd =
        |text: String| walk.findings.add(FindingKind::Label, || format!("config: {text}"));
    if config.vdev_tree.guid != config.pool_guid {
        odd(format!("pool guid {}, its root is {}", config.pool_guid, config.vdev_tree.guid));
    }
    if config.txg > uberblock.txg.get() {
        odd(format!("written in txg {}, the uberblock is of {}", config.txg, uberblock.txg.get()));
    }
    let tops = walk.blocks.tree().tops();
    for (id, child) in config.vdev_tree.children.iter().enumerate() {
        let open = tops.get(id).map_or(0, |top| top.config.guid);
        if open != child.guid {
            odd(format!("vdev {id}: its guid is {open}, the config's {}", child.guid));
        }
        if child.id != Some(id as u64) {
            odd(format!("vdev {id}: its number is {:?}", child.id));
        }
        let top = child.top.unwrap_or_default();
        let real = !matches!(child.kind, VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect);
        if real && (top.ashift == 0 || top.asize == 0 || top.metaslab_shift == 0) {
            odd(format!("vdev {id}: ashift {}, size {}", top.ashift, top.asize));
        }
    }
    if config.has_per_vdev_zaps {
        let due: BTreeSet<u64> = config
            .vdev_tree
            .walk()
            .flat_map(|vdev| [vdev.zap_leaf, vdev.zap_top])
            .flatten()
            .collect();
        let map = mos.find(key::VDEV_ZAP_MAP).unwrap_or(0);
        match mos.numbers(&mut walk.blocks, map) {
            Ok(map) => {
                let have: BTreeSet<u64> = map.values().copied().collect();
                for object in have.symmetric_difference(&due) {
                    let (here, there) = if due.contains(object) {
                        ("has", "vdev_zap_map does not")
                    } else {
                        ("lacks", "vdev_zap_map has it")
                    };
                    walk.findings.add(FindingKind::Label, || {
                        format!("config: it {here} ZAP {object} of a vdev, {there}")
                    });
                }
            }
            Err(why) => {
                walk.findings.add(FindingKind::Structure, || format!("vdev_zap_map: {why}"));
            }
        }
    }
}

/// A leaf by name and guid, with its good labels.
type LeafLabels = (String, u64, [Option<Box<PoolConfig>>; LABELS]);

/// What the labels of a leaf hold besides damage that is told in any case.
struct Seen {
    /// Which of the devices it is.
    at: usize,
    /// Labels with a checksum of something else: one was being written over another.
    off: Vec<u8>,
    rings: Rings,
    is_log: bool,
}

/// May a write that was cut off have left this leaf's labels so, where the newest uberblock is of
/// txg `newest`? The even ones are written before the uberblock, the odd ones after it: there is
/// always a half that is whole, and as long as the odd ones are written the even ones are of
/// that txg.
fn is_of_a_cut((_, _, good): &LeafLabels, half: u8, newest: u64) -> bool {
    let other = |number: &usize| number % 2 != usize::from(half);
    let mut others = (0..LABELS).filter(other).map(|number| good[number].as_ref());
    others.all(|label| label.is_some_and(|label| half == 0 || label.txg == newest))
}

/// What there is to say of each leaf, and notes on what is no damage. `judged`: the config and the
/// txg that were judged by.
pub(crate) fn leaves(
    walk: &mut Walk<'_>,
    tree: &Tree,
    judged: Option<(&Mos, &PoolConfig, u64)>,
) -> (Vec<DeviceDamage>, Vec<String>) {
    let mut devices = Vec::new();
    let mut all: Vec<LeafLabels> = Vec::new();
    let mut seen: Vec<Seen> = Vec::new();
    for (leaf, (read_errors, bad_blocks)) in tree.leaves().iter().zip(&walk.leaf_errors) {
        let mut damage = DeviceDamage {
            device: leaf.name(),
            guid: leaf.guid(),
            missing: leaf.state != LeafState::Online,
            labels: Vec::new(),
            rings: Vec::new(),
            read_errors: *read_errors,
            bad_blocks: *bad_blocks,
            lacks_txgs: leaf.lacks.txgs().count(),
        };
        if let Some(device) = leaf.device() {
            let labels = Labels::read_configs(&**device);
            let mut good = [const { None }; LABELS];
            let mut off = Vec::new();
            for (number, label) in (0u8..).zip(labels) {
                match label {
                    Ok(Label::Member(config))
                        if config.label.map(|ids| ids.guid) == Some(leaf.guid()) =>
                    {
                        good[usize::from(number)] = Some(config);
                    }
                    Err(LabelError::Checksum(EmbeddedError::Mismatch { .. })) => off.push(number),
                    _ => damage.labels.push(number),
                }
            }
            let top = tree.tops().get(leaf.top as usize);
            let ashift = top.and_then(|top| top.config.top).map_or(0, |top| top.ashift);
            let rings = Rings::read(&**device, ashift, judged.map_or(0, |(_, _, txg)| txg));
            let is_log = top.is_some_and(Top::is_log);
            seen.push(Seen { at: devices.len(), off, rings, is_log });
            all.push((leaf.name(), leaf.guid(), good));
        }
        devices.push(damage);
    }
    // A write that was cut off breaks labels of one half, the same on all leaves.
    let of_half = |half| seen.iter().flat_map(|seen| &seen.off).all(|number| number % 2 == half);
    let half = [0u8, 1].into_iter().find(|half| of_half(*half));
    let newest = seen.iter().map(|seen| seen.rings.newest).max().unwrap_or(0);
    let one_cut = rings::are_of_one_cut(seen.iter().map(|seen| &seen.rings));
    // OpenZFS writes an uberblock to three top-level vdevs, if all labels are to stay.
    let few = tree.tops().iter().filter(|top| top.layout.is_some() && !top.is_log()).count() <= 3;
    let mut notes = Vec::new();
    for (seen, labels) in seen.into_iter().zip(&all) {
        let damage = &mut devices[seen.at];
        let cut = half.is_some_and(|half| is_of_a_cut(labels, half, newest));
        damage.rings.extend(&seen.rings.bad);
        if !one_cut {
            damage.rings.extend(seen.rings.torn.iter().map(|(label, _)| label));
            damage.rings.sort_unstable();
            damage.rings.dedup();
        }
        if !cut || !damage.labels.is_empty() {
            damage.labels.extend(seen.off);
            damage.labels.sort_unstable();
        } else if !seen.off.is_empty() {
            notes.push(format!(
                "device {}: labels {} broken off, as by a write that was cut off; the next change \
                 to the pool writes them anew",
                damage.device,
                rings::list(&seen.off)
            ));
        }
        let expected = judged.is_some() && (seen.rings.has_it() || few && !seen.is_log);
        notes.extend(seen.rings.notes(damage, expected));
    }
    devices.retain(|damage| !damage.is_clean());
    if let Some((mos, config, txg)) = judged {
        let active = active(walk, mos);
        compare(walk, &all, config, &active, txg);
    }
    (devices, notes)
}

/// Features that labels must list.
fn active(walk: &mut Walk<'_>, mos: &Mos) -> BTreeSet<Vec<u8>> {
    let counts = features::counts(&mut walk.blocks, mos).unwrap_or_default();
    let known = format::features::Feature::ALL.iter().map(|feature| feature.info());
    let listed = known.filter(|info| info.is_in_label());
    let active = listed.filter(|info| counts.get(info.guid.as_bytes()).is_some_and(|n| *n > 0));
    active.map(|info| info.guid.as_bytes().to_vec()).collect()
}

/// Holds all good labels against each other and the config.
fn compare(
    walk: &mut Walk<'_>,
    all: &[LeafLabels],
    config: &PoolConfig,
    active: &BTreeSet<Vec<u8>>,
    txg: u64,
) {
    // The newest label of each top-level vdev that is not ahead.
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    for label in all.iter().flat_map(|(_, _, labels)| labels).flatten() {
        if label.txg <= txg {
            let newest = newest.entry(label.vdev_tree.guid).or_default();
            *newest = label.txg.max(*newest);
        }
    }
    for (name, guid, labels) in all {
        let mut odd = |number: usize, text: String| {
            walk.findings.add(FindingKind::Label, || format!("{name} label {number}: {text}"));
        };
        let mine = |vdev: &&VdevConfig| vdev.find(*guid).is_some();
        let top = config.vdev_tree.children.iter().find(mine);
        for (number, label) in labels.iter().enumerate() {
            let Some(label) = label else { continue };
            if label.pool_guid != config.pool_guid {
                odd(number, format!("of pool {}, not {}", label.pool_guid, config.pool_guid));
            }
            if label.txg > txg {
                // A write that was cut off leaves the other half as it was.
                let other = labels.iter().skip((number + 1) % 2).step_by(2).flatten();
                if !other.into_iter().any(|other| other.txg <= txg) {
                    odd(number, format!("of txg {}, after the uberblock's {txg}", label.txg));
                }
                continue;
            }
            let twin = labels.iter().take(number).flatten().find(|other| other.txg == label.txg);
            if let Some(twin) = twin {
                if twin != label {
                    odd(number, "it differs from another label of the same txg".into());
                }
                continue;
            }
            let Some(top) = top.filter(|top| newest.get(&top.guid) == Some(&label.txg)) else {
                continue;
            };
            if label.name != config.name {
                odd(number, format!("of pool {}", String::from_utf8_lossy(&label.name)));
            }
            if label.label.map(|ids| ids.top_guid) != Some(top.guid) {
                odd(number, format!("not of vdev {}", top.guid));
            }
            if let Some(what) = differs(&label.vdev_tree, top) {
                odd(number, format!("its vdevs are not those of the config: {what}"));
            }
            let listed = label.features_for_read.iter().flatten().cloned().collect();
            if *active != listed {
                let text = |list: &BTreeSet<Vec<u8>>| {
                    let names = list.iter().map(|name| String::from_utf8_lossy(name).into_owned());
                    names.collect::<Vec<_>>().join(" ")
                };
                odd(number, format!("features {}, active are {}", text(&listed), text(active)));
            }
        }
    }
}

/// In what the shape of two vdevs differs: what a label must have right for the vdev to be read.
fn differs(label: &VdevConfig, config: &VdevConfig) -> Option<String> {
    let shape = |vdev: &VdevConfig| {
        let top = vdev.top.unwrap_or_default();
        let TopConfig { metaslab_array, metaslab_shift, ashift, asize, is_log, .. } = top;
        let top = (metaslab_array, metaslab_shift, ashift, asize, is_log);
        (vdev.kind.clone(), vdev.id, vdev.guid, vdev.nparity, top, vdev.children.len())
    };
    if shape(label) != shape(config) {
        return Some(format!("vdev {}", config.guid));
    }
    label.children.iter().zip(&config.children).find_map(|(label, config)| differs(label, config))
}
