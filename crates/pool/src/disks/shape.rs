//! Trees of vdevs before and after: a leaf beside another, a leaf taken out.
//!
//! Place: the arithmetic of [`super`], on configs alone, with nothing of devices in it.
//! The one idea: only the vdev right above a leaf changes. A leaf gets company by a new vdev in its place that has
//! both as children; a vdev with one child left gives its place to it. A top-level vdev keeps its number, its metaslabs
//! and its ZAP, whoever has its place; one that a leaf inherits also keeps its guid, so that labels which were not
//! rewritten do not look like those of another vdev.

use std::collections::BTreeSet;

use format::config::{TopConfig, VdevConfig, VdevKind};

/// Children from the root down to the vdev of this guid.
fn path_to(vdev: &VdevConfig, guid: u64) -> Option<Vec<usize>> {
    if vdev.guid == guid && vdev.kind != VdevKind::Hole {
        return Some(Vec::new());
    }
    vdev.children.iter().enumerate().find_map(|(place, child)| {
        let mut path = path_to(child, guid)?;
        path.insert(0, place);
        Some(path)
    })
}

fn at<'a>(root: &'a VdevConfig, path: &[usize]) -> &'a VdevConfig {
    path.iter().fold(root, |vdev, place| &vdev.children[*place])
}

fn at_mut<'a>(root: &'a mut VdevConfig, path: &[usize]) -> &'a mut VdevConfig {
    path.iter().fold(root, |vdev, place| &mut vdev.children[*place])
}

/// The vdev above that of this guid; `None`: there is no such vdev, or it is the root.
pub(super) fn parent_of(root: &VdevConfig, guid: u64) -> Option<&VdevConfig> {
    let path = path_to(root, guid)?;
    Some(at(root, &path[..path.len().checked_sub(1)?]))
}

/// Puts `new` beside the leaf `old`, below a vdev of `kind`: the one above it if it is of that kind, else a new one of
/// this guid in the leaf's place. (A spare that stands in for a spare comes beside both.) False if there is no such leaf.
pub(super) fn put_beside(
    root: &mut VdevConfig,
    old: u64,
    mut new: VdevConfig,
    kind: VdevKind,
    guid: u64,
) -> bool {
    let Some(path) = path_to(root, old) else { return false };
    let Some((place, above)) = path.split_last() else { return false };
    let parent = at_mut(root, above);
    new.create_txg = parent.children[*place].create_txg;
    if parent.kind == kind {
        new.id = Some(parent.children.len() as u64);
        parent.children.push(new);
        return true;
    }
    let old = &mut parent.children[*place];
    let mut joint = VdevConfig::new(kind, old.id, guid);
    joint.create_txg = old.create_txg;
    joint.top = old.top.take();
    joint.zap_top = old.zap_top.take();
    old.id = Some(0);
    new.id = Some(1);
    joint.children = vec![old.clone(), new];
    *old = joint;
    true
}

/// Takes a leaf out. A vdev that has one child left gives its place to it. Whether the leaf was there.
pub(super) fn take_out(root: &mut VdevConfig, leaf: u64) -> Option<VdevConfig> {
    let path = path_to(root, leaf)?;
    let (place, above) = path.split_last()?;
    let parent = at_mut(root, above);
    let gone = parent.children.remove(*place);
    for (child, id) in parent.children.iter_mut().zip(0..) {
        child.id = Some(id);
    }
    if parent.children.len() == 1 && !above.is_empty() {
        let mut heir = parent.children.remove(0);
        heir.id = parent.id;
        if let Some(top) = parent.top.take() {
            heir.top = Some(top);
            heir.zap_top = parent.zap_top.take();
            if heir.kind.is_leaf() {
                heir.orig_guid = heir.guid;
            }
            heir.guid = parent.guid;
        }
        *parent = heir;
    }
    Some(gone)
}

/// Puts a top-level vdev where a hole is, or behind the others. The number that it will have there: [`next_id`].
pub(super) fn put_top(root: &mut VdevConfig, top: VdevConfig) {
    match root.children.iter_mut().find(|vdev| vdev.kind == VdevKind::Hole) {
        Some(hole) => *hole = top,
        None => root.children.push(top),
    }
}

/// The number of the next top-level vdev.
pub(super) fn next_id(root: &VdevConfig) -> u64 {
    let hole = root.children.iter().position(|vdev| vdev.kind == VdevKind::Hole);
    hole.unwrap_or(root.children.len()) as u64
}

/// Takes the top-level vdev of this number out: a hole keeps its place, so that the others keep theirs.
pub(super) fn take_top(root: &mut VdevConfig, top: usize) -> Option<VdevConfig> {
    let vdev = root.children.get_mut(top)?;
    let mut hole = VdevConfig::new(VdevKind::Hole, vdev.id, 0);
    hole.whole_disk = Some(false);
    (hole.top, hole.is_hole) = (Some(TopConfig::default()), true);
    Some(std::mem::replace(vdev, hole))
}

/// Numbers of the holes.
pub(super) fn holes(root: &VdevConfig) -> Vec<u64> {
    let holes = root.children.iter().filter(|vdev| vdev.kind == VdevKind::Hole);
    holes.filter_map(|hole| hole.id).collect()
}

/// The spare that keeps the place of the leaf for good when that is detached from `parent`.
pub(super) fn spare_for(parent: &VdevConfig, leaf: u64) -> Option<u64> {
    let first = parent.children.first().is_some_and(|first| first.guid == leaf);
    let heir =
        parent.children.last().filter(|last| last.is_spare && parent.kind == VdevKind::Spare);
    heir.filter(|_| first).map(|heir| heir.guid)
}

/// A spare that stands in for this leaf is to go once the leaf has all it needs.
pub(super) fn unspare(root: &mut VdevConfig, leaf: u64) {
    let spared = parent_of(root, leaf).is_some_and(|parent| spare_for(parent, leaf).is_some());
    if let Some(leaf) = root.find_mut(leaf) {
        leaf.unspare = spared;
    }
}

/// Leaves that have done their part, in groups that go together, when those that are `whole` have all they need: what
/// was replaced, with the spare that stood in for it; a spare whose disk is back for good (`unspare`); of several spares
/// for one disk all but the last.
pub(super) fn done_with(root: &VdevConfig, whole: &dyn Fn(u64) -> bool) -> Vec<Vec<u64>> {
    let guids = |vdev: &VdevConfig| vdev.leaves().map(|leaf| leaf.guid).collect::<Vec<_>>();
    let is_whole = |vdev: &VdevConfig| vdev.kind.is_leaf() && whole(vdev.guid);
    let mut groups = Vec::new();
    for vdev in root.walk() {
        let [first, .., last] = &vdev.children[..] else { continue };
        let group: Vec<u64> = match vdev.kind {
            VdevKind::Replacing if is_whole(last) => {
                let others = &vdev.children[..vdev.children.len() - 1];
                let mut group: Vec<u64> = others.iter().flat_map(guids).collect();
                let above =
                    parent_of(root, vdev.guid).filter(|above| above.kind == VdevKind::Spare);
                let above = above.filter(|above| above.children[0].guid == vdev.guid);
                group.extend(above.iter().flat_map(|above| &above.children[1..]).flat_map(guids));
                group
            }
            VdevKind::Spare if first.unspare && is_whole(first) => {
                vdev.children[1..].iter().flat_map(guids).collect()
            }
            VdevKind::Spare if vdev.children.len() > 2 && last.is_spare && is_whole(last) => {
                let between = &vdev.children[1..vdev.children.len() - 1];
                between.iter().filter(|vdev| vdev.is_spare).flat_map(guids).collect()
            }
            _ => continue,
        };
        groups.push(group);
    }
    groups
}

/// The leaves, by guid, in whose place others are put for good.
pub(crate) fn replaced(root: &VdevConfig) -> BTreeSet<u64> {
    let replacing = root.walk().filter(|vdev| vdev.kind == VdevKind::Replacing);
    let before_last = |vdev: &VdevConfig| vdev.children.split_last().map(|(_, olds)| olds.to_vec());
    let olds = replacing.filter_map(before_last).flatten();
    olds.flat_map(|old| old.leaves().map(|leaf| leaf.guid).collect::<Vec<_>>()).collect()
}

/// Allocatable bytes that a leaf in the place of `leaf` must have at least.
pub(super) fn least_asize(root: &VdevConfig, leaf: u64) -> u64 {
    let Some(path) = path_to(root, leaf) else { return u64::MAX };
    let Some(top) = path.first().map(|top| &root.children[*top]) else { return u64::MAX };
    let Some(config) = top.top else { return u64::MAX };
    let whole = config.asize & !((1 << config.metaslab_shift.min(63)) - 1);
    match top.kind {
        VdevKind::Raidz => whole.div_ceil(top.children.len().max(1) as u64),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(id: u64, guid: u64) -> VdevConfig {
        VdevConfig { create_txg: 4, ..VdevConfig::new(VdevKind::File, id, guid) }
    }

    fn root(top: VdevConfig) -> VdevConfig {
        let top_config = TopConfig { asize: 1000, ashift: 9, ..TopConfig::default() };
        let top = VdevConfig { top: Some(top_config), zap_top: Some(77), ..top };
        VdevConfig { children: vec![top], ..VdevConfig::new(VdevKind::Root, 0, 100) }
    }

    fn mirror() -> VdevConfig {
        let mut mirror = VdevConfig::new(VdevKind::Mirror, 0, 50);
        mirror.children = vec![leaf(0, 1), leaf(1, 2)];
        root(mirror)
    }

    fn told(vdev: &VdevConfig) -> String {
        let kind = String::from_utf8_lossy(vdev.kind.name()).into_owned();
        let id = vdev.id.unwrap();
        match vdev.children.is_empty() {
            true => format!("{id}:{}", vdev.guid),
            false => {
                let children: Vec<_> = vdev.children.iter().map(told).collect();
                format!("{id}:{kind}{}({})", vdev.guid, children.join(" "))
            }
        }
    }

    #[test]
    fn a_leaf_gets_company_and_loses_it() {
        let before = mirror();
        let mut tree = before.clone();
        assert!(put_beside(&mut tree, 1, leaf(9, 3), VdevKind::Mirror, 60));
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:1 1:2 2:3))");
        assert!(put_beside(&mut tree, 2, leaf(9, 4), VdevKind::Replacing, 61));
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:1 1:replacing61(0:2 1:4) 2:3))");
        // Once more replaced: it has three children then, as the kernel makes it.
        assert!(put_beside(&mut tree, 2, leaf(9, 5), VdevKind::Replacing, 62));
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:1 1:replacing61(0:2 1:4 2:5) 2:3))");
        assert_eq!(take_out(&mut tree, 2).unwrap().guid, 2);
        assert_eq!(take_out(&mut tree, 4).unwrap().guid, 4);
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:1 1:5 2:3))");
        take_out(&mut tree, 5).unwrap();
        take_out(&mut tree, 3).unwrap();
        // The last one has the place of the mirror, with its guid; it remembers its own.
        assert_eq!(told(&tree), "0:root100(0:50)");
        let last = &tree.children[0];
        assert_eq!((last.orig_guid, last.zap_top, last.top), (1, Some(77), before.children[0].top));
        assert!(take_out(&mut tree, 9).is_none());
    }

    #[test]
    fn spares_go_when_their_disk_is_replaced_or_back() {
        let mut tree = mirror();
        let mut spare = leaf(9, 3);
        spare.is_spare = true;
        assert!(put_beside(&mut tree, 1, spare.clone(), VdevKind::Spare, 60));
        let done =
            |tree: &VdevConfig, whole: &[u64]| done_with(tree, &|guid| whole.contains(&guid));
        assert_eq!(done(&tree, &[1, 2, 3]), Vec::<Vec<u64>>::new(), "somebody wanted it there");
        let mut replaced = tree.clone();
        assert!(put_beside(&mut replaced, 1, leaf(9, 4), VdevKind::Replacing, 61));
        assert_eq!(
            told(&replaced),
            "0:root100(0:mirror50(0:spare60(0:replacing61(0:1 1:4) 1:3) 1:2))"
        );
        assert!(done(&replaced, &[1, 2, 3]).is_empty());
        assert_eq!(done(&replaced, &[4]), [[1, 3]]);
        take_out(&mut replaced, 1).unwrap();
        take_out(&mut replaced, 3).unwrap();
        assert_eq!(told(&replaced), "0:root100(0:mirror50(0:4 1:2))");
        let parent = parent_of(&tree, 1).unwrap();
        assert_eq!((spare_for(parent, 1), spare_for(parent, 3)), (Some(3), None));
        unspare(&mut tree, 1);
        assert!(done(&tree, &[3]).is_empty());
        assert_eq!(done(&tree, &[1]), [[3]]);
        // A spare for the spare.
        spare.guid = 5;
        assert!(put_beside(&mut tree, 3, spare, VdevKind::Spare, 62));
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:spare60(0:1 1:3 2:5) 1:2))");
        assert_eq!(done(&tree, &[5]), [[3]]);
        assert_eq!(done(&tree, &[1, 5]), [[3, 5]]);
    }

    #[test]
    fn a_top_level_vdev_that_goes_leaves_a_hole_for_the_next() {
        let mut tree = mirror();
        for guid in [3, 4] {
            let id = next_id(&tree);
            put_top(&mut tree, leaf(id, guid));
        }
        assert_eq!(take_top(&mut tree, 1).unwrap().guid, 3);
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:1 1:2) 1:0 2:4)");
        assert_eq!((holes(&tree), next_id(&tree)), (vec![1], 1));
        put_top(&mut tree, leaf(1, 5));
        assert_eq!(told(&tree), "0:root100(0:mirror50(0:1 1:2) 1:5 2:4)");
        assert_eq!((holes(&tree), next_id(&tree)), (vec![], 3));
        assert!(take_top(&mut tree, 9).is_none());
    }

    #[test]
    fn a_single_disk_becomes_a_mirror() {
        let mut tree = root(leaf(0, 1));
        assert!(put_beside(&mut tree, 1, leaf(9, 2), VdevKind::Mirror, 60));
        assert_eq!(told(&tree), "0:root100(0:mirror60(0:1 1:2))");
        let top = &tree.children[0];
        assert!(top.top.is_some() && top.zap_top == Some(77) && top.create_txg == 4);
        assert!(top.children.iter().all(|leaf| leaf.top.is_none() && leaf.zap_top.is_none()));
        assert_eq!(top.children[1].create_txg, 4);
        assert!(!put_beside(&mut tree, 9, leaf(0, 3), VdevKind::Mirror, 61));
    }
}
