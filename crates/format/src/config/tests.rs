use proptest::prelude::*;

use super::*;
use crate::nvlist::Value;
use crate::{FormatError, NvList};

macro_rules! golden {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../tests/data/configs/", $name)))),*]
    };
}

/// Configs of labels that the kernel wrote.
const LABELS: &[(&str, &[u8])] = golden!(
    "label_single_d00" "label_mir_d00" "label_rz1_d00" "label_rz2_d00" "label_rz2_d11"
    "label_draid_d00" "label_draid_d03" "label_features_d00" "label_features_d01"
    "label_features_d02" "label_features_d06" "label_resilvering_d01" "label_resilvering_d08" "label_wide_d12"
    "label_wide_d14" "label_gpt_d00" "label_old_d00" "label_nofeat_d00" "label_dirty_d04"
    "label_hole_a" "label_hole_c" "label_hole_i" "label_words_a" "label_deferred_f"
    "label_removing_h"
);
/// Config objects of their pools' MOS.
const MOS: &[(&str, &[u8])] = golden!(
    "mos_single" "mos_mir" "mos_rz1" "mos_rz2" "mos_draid" "mos_features" "mos_resilvering"
    "mos_wide" "mos_dirty" "mos_hole" "mos_deferred" "mos_removing"
);

fn find(all: &[(&str, &'static [u8])], name: &str) -> NvList {
    let (_, bytes) = all.iter().find(|(n, _)| *n == name).unwrap();
    NvList::parse(bytes).unwrap()
}

fn member(name: &str) -> PoolConfig {
    match Label::from_nvlist(&find(LABELS, name)).unwrap() {
        Label::Member(config) => *config,
        Label::Aux(_) => panic!("{name} is of a spare or cache"),
    }
}

fn mos(name: &str) -> PoolConfig {
    PoolConfig::from_nvlist(&find(MOS, name)).unwrap()
}

#[test]
fn kernel_labels_are_written_back_to_the_byte() {
    for (name, bytes) in LABELS {
        let (list, size) = NvList::parse_prefix(bytes).unwrap();
        let label = Label::from_nvlist(&list).unwrap();
        if let Label::Member(config) = &label {
            assert_eq!(config.unknown, [], "{name}");
            assert!(config.vdev_tree.walk().all(|v| v.unknown.is_empty()), "{name}");
        }
        assert_eq!(label.to_nvlist(), list, "{name}");
        assert_eq!(label.to_nvlist().to_xdr().unwrap(), &bytes[..size], "{name}");
    }
}

#[test]
fn kernel_mos_configs_are_written_back_to_the_byte() {
    for (name, bytes) in MOS {
        let (list, size) = NvList::parse_prefix(bytes).unwrap();
        let config = PoolConfig::from_nvlist(&list).unwrap();
        assert_eq!(config.unknown, [], "{name}");
        assert!(config.vdev_tree.walk().all(|v| v.unknown.is_empty()), "{name}");
        assert_eq!(config.to_nvlist(), list, "{name}");
        assert_eq!(config.to_nvlist().to_xdr().unwrap(), &bytes[..size], "{name}");
    }
}

#[test]
fn labels_follow_from_the_mos_config() {
    let mut compared = 0;
    for (name, _) in MOS {
        let config = mos(name);
        let prefix = name.replace("mos_", "label_");
        for (label, _) in LABELS.iter().filter(|(l, _)| l.starts_with(&prefix)) {
            let Label::Member(kernel) = Label::from_nvlist(&find(LABELS, label)).unwrap() else {
                continue;
            };
            if kernel.txg == config.txg {
                let guid = kernel.label.unwrap().guid;
                assert_eq!(config.for_leaf(guid).unwrap(), *kernel, "{label}");
                compared += 1;
            }
        }
        assert_eq!(config.for_leaf(1), None);
    }
    assert!(compared >= 14, "only {compared} labels are of their MOS config's txg");
}

#[test]
fn guid_sums_are_those_of_the_uberblocks() {
    // As `zdb -lu` prints them.
    assert_eq!(mos("mos_mir").vdev_tree.guid_sum(), 4_684_443_817_435_321_564);
    assert_eq!(mos("mos_features").vdev_tree.guid_sum(), 13_993_171_224_284_968_361);
    assert_eq!(mos("mos_draid").vdev_tree.guid_sum(), 7_788_984_169_699_429_829);
    assert_eq!(mos("mos_wide").vdev_tree.guid_sum(), 13_557_918_315_075_022_531);
}

#[test]
fn what_a_raidz_label_says() {
    // Against `zdb -l`.
    let config = member("label_rz2_d00");
    assert_eq!((config.version, config.txg), (5000, 98));
    assert_eq!(config.name, b"rz2");
    assert_eq!(config.state, PoolState::Exported);
    assert_eq!(config.pool_guid, 11_856_710_308_748_406_170);
    assert_eq!(config.hostid, 1_953_002_861);
    assert_eq!(config.hostname.as_deref(), Some(&b"thumper"[..]));
    let ids = config.label.unwrap();
    assert_eq!(ids.top_guid, 11_812_683_318_562_179_974);
    assert_eq!(ids.guid, 6_362_262_154_166_045_941);
    assert_eq!(config.vdev_children, Some(1));
    let tree = &config.vdev_tree;
    assert_eq!((&tree.kind, tree.nparity), (&VdevKind::Raidz, Some(2)));
    let top = tree.top.unwrap();
    assert_eq!((top.metaslab_array, top.metaslab_shift, top.ashift), (79, 26, 12));
    assert_eq!(top.asize, 686_292_992);
    assert_eq!(tree.create_txg, 4);
    assert_eq!(tree.leaves().count(), 11);
    let last = tree.find(15_775_210_268_504_495_110).unwrap();
    assert_eq!((last.path.as_deref(), last.id), (Some(&b"/d/d10"[..]), Some(10)));
    let features = config.features_for_read.unwrap();
    assert_eq!(features, [&b"com.delphix:hole_birth"[..], b"com.delphix:embedded_data"]);
}

#[test]
fn what_the_rarer_labels_say() {
    let spare = Label::from_nvlist(&find(LABELS, "label_rz2_d11")).unwrap();
    assert!(matches!(spare, Label::Aux(AuxLabel { state: PoolState::Spare, .. })));
    let cache = Label::from_nvlist(&find(LABELS, "label_wide_d14")).unwrap();
    assert!(matches!(cache, Label::Aux(AuxLabel { state: PoolState::L2Cache, .. })));

    for (name, is_top) in [("label_wide_d12", false), ("label_dirty_d04", true)] {
        let log = member(name);
        assert!(log.vdev_tree.top.unwrap().is_log);
        assert_eq!(log.label.unwrap().is_log, is_top);
    }
    assert!(member("label_features_d06").label.unwrap().is_spare);
    assert_eq!(member("label_features_d02").label.unwrap().create_txg, Some(0));
    assert_eq!(member("label_old_d00").version, 28);
    assert_eq!(member("label_old_d00").features_for_read, Some(Vec::new()));
    assert_eq!(member("label_nofeat_d00").features_for_read, Some(Vec::new()));
    let disk = member("label_gpt_d00").vdev_tree.children.remove(0);
    assert_eq!((disk.kind, disk.whole_disk), (VdevKind::Disk, Some(true)));

    let draid = mos("mos_draid").vdev_tree.children.remove(0);
    assert_eq!(draid.draid, Some(Draid { data: 3, spares: 1, groups: 7 }));
    let dspare = draid.leaves().find(|v| v.kind == VdevKind::DraidSpare).unwrap();
    assert_eq!(dspare.draid_spare, Some(DraidSpare { top_guid: draid.guid, spare_id: 0 }));

    let features = mos("mos_features").vdev_tree;
    let indirect = Indirect { object: 94, births: Some(96), previous_vdev: None };
    assert_eq!(features.children[1].indirect, Some(indirect));
    let faulted = features.leaves().find(|v| v.faulted).unwrap();
    assert_eq!(faulted.aux_state.as_deref(), Some(&b"external"[..]));
    let resilvering = mos("mos_resilvering").vdev_tree;
    assert_eq!(resilvering.leaves().filter(|v| v.offline).count(), 1);
    assert_eq!(resilvering.leaves().find(|v| v.resilver_txg != 0).unwrap().dtl, Some(92));

    let config = mos("mos_hole");
    assert_eq!(config.holes, [1]);
    let hole = &config.vdev_tree.children[1];
    assert_eq!((&hole.kind, hole.guid, hole.is_hole), (&VdevKind::Hole, 0, true));
    assert_eq!(hole.top, Some(TopConfig::default()));
    assert_eq!(config.vdev_tree.children[0].children[0].expansion_time, 1_714_521_644);
    let config = member("label_words_a");
    assert_eq!(config.comment.as_deref(), Some(&b"hello"[..]));
    assert_eq!(config.compatibility.as_deref(), Some(&b"mine"[..]));
    let deferred = mos("mos_deferred").vdev_tree;
    assert_eq!(deferred.leaves().filter(|v| v.resilver_defer).count(), 1);
    let removing = mos("mos_removing").vdev_tree.children.remove(1);
    assert!(removing.top.unwrap().removing);
    assert_eq!(removing.indirect.unwrap().object, 88);
}

#[test]
fn aux_objects_are_written_back_to_the_byte() {
    let golden: &[(&str, &[u8])] = golden!("aux_rz2_spares" "aux_draid_spares" "aux_wide_l2cache");
    for (name, bytes) in golden {
        let key = if name.ends_with("spares") { "spares" } else { "l2cache" };
        let (list, size) = NvList::parse_prefix(bytes).unwrap();
        let vdevs = aux_from_nvlist(&list, key).unwrap();
        assert_eq!(vdevs.len(), 1, "{name}");
        assert_eq!(vdevs[0].id, None, "{name}");
        assert_eq!(aux_to_nvlist(&vdevs, key).to_xdr().unwrap(), &bytes[..size], "{name}");
    }
}

#[test]
fn unknown_keys_are_kept() {
    let mut list = find(LABELS, "label_mir_d00");
    list.put_u64("org.example:new", 7);
    let Some(Value::List(tree)) = list.get_mut("vdev_tree") else { panic!() };
    tree.put_string("org.example:word", "x");
    let config = PoolConfig::from_nvlist(&list).unwrap();
    assert_eq!(config.unknown.len(), 1);
    assert_eq!(config.vdev_tree.unknown.len(), 1);
    assert_eq!(config.to_nvlist(), list);
}

#[test]
fn what_is_missing_or_of_another_type_is_named() {
    for key in ["version", "name", "state", "txg", "pool_guid", "vdev_tree", "top_guid", "guid"] {
        let mut list = find(LABELS, "label_mir_d00");
        list.remove(key);
        let error = Label::from_nvlist(&list).unwrap_err();
        assert!(error.to_string().contains(&format!("{key} is missing")), "{error}");
        list.put_boolean(key);
        let error = Label::from_nvlist(&list).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    let changed = |name: &str, key: &str, value: u64| {
        let mut list = find(LABELS, name);
        let Some(Value::List(tree)) = list.get_mut("vdev_tree") else { panic!() };
        tree.put_u64(key, value);
        Label::from_nvlist(&list)
    };
    for (key, value) in [("nparity", 0), ("nparity", 4), ("ashift", 8), ("ashift", 64)] {
        let error = changed("label_rz1_d00", key, value).unwrap_err();
        assert!(matches!(error, FormatError::Field { field, .. } if field == key), "{error}");
        assert!(error.to_string().contains(&format!("is {value}, expected ")), "{error}");
    }
    assert!(changed("label_rz1_d00", "metaslab_shift", 64).is_err());
    assert!(changed("label_rz1_d00", "nparity", 3).is_ok());
}

#[test]
fn a_raidz_of_the_oldest_pools_does_not_say_its_parity() {
    let mut list = find(LABELS, "label_rz1_d00");
    let Some(Value::List(tree)) = list.get_mut("vdev_tree") else { panic!() };
    tree.remove("nparity").unwrap();
    let Label::Member(config) = Label::from_nvlist(&list).unwrap() else { panic!() };
    assert_eq!(config.vdev_tree.nparity, Some(1));
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let mut list = find(LABELS, "label_mir_d00");
    list.push(b"state", Value::U64(2));
    let error = Label::from_nvlist(&list).unwrap_err().to_string();
    assert_eq!(error, "pool config: number of a repeated pair is 13, expected none");
}

#[test]
fn a_hole_is_a_vdev_of_zeros() {
    let mut hole = VdevConfig::new(VdevKind::Hole, 1, 0);
    hole.top = Some(TopConfig::default());
    hole.is_hole = true;
    let list = hole.to_nvlist();
    assert_eq!(VdevConfig::from_nvlist(&list).unwrap(), hole);
    assert_eq!(list.u64("is_hole"), Some(1));
}

proptest! {
    #[test]
    fn damaged_configs_never_panic(
        which in 0..LABELS.len() + MOS.len(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (_, golden) = LABELS.iter().chain(MOS).nth(which).unwrap();
        let mut bytes = golden.to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(list) = NvList::parse(&bytes) {
            if let Ok(label) = Label::from_nvlist(&list) {
                prop_assert_eq!(Label::from_nvlist(&label.to_nvlist()).unwrap(), label);
            }
            let _ = PoolConfig::from_nvlist(&list).map(|c| c.vdev_tree.guid_sum());
        }
    }
}
