//! DSL structures, lists of blocks, space maps, DTLs and mappings that OpenZFS wrote, against
//! what zdb prints of them. `data/extract.py` says where the bytes come from.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::collections::BTreeSet;

use format::bpobj::{self, BpobjForm, BpobjPhys};
use format::deadlist::{self, DeadlistPhys};
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DslDirPhys, Used};
use format::dtl::Dtl;
use format::indirect::{self, BirthsPhys, MappingPhys};
use format::space_map::{Action, Encoder, Geometry, Item, Run, SpaceMapPhys};
use format::{BlkPtr, bookmark::Bookmark, features::Feature, space_map};
use proptest::prelude::*;
use serde_json::Value;
use zerocopy::{FromBytes, IntoBytes};

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The rows of one kind; the bonus of each as its whole bytes.
fn rows(kind: &str) -> Vec<(Value, Vec<u8>)> {
    let text = include_str!("data/dsl.jsonl");
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let some: Vec<_> = all
        .filter(|row| row["kind"] == kind)
        .map(|row| {
            let mut bonus = row.get("bonus").map(hex).unwrap_or_default();
            bonus.resize(row["size"].as_u64().unwrap_or(0) as usize, 0);
            (row, bonus)
        })
        .collect();
    assert!(!some.is_empty(), "no rows of {kind}");
    some
}

/// Compares what zdb says of a row with what we read, for every field of the list.
fn check(row: &Value, fields: &[(&str, u64)]) {
    let said = row["zdb"].as_object().unwrap();
    let (pool, object) = (&row["pool"], &row["object"]);
    for (name, found) in fields {
        assert_eq!(said[*name].as_u64(), Some(*found), "{pool} object {object}: {name}");
    }
    let compared: BTreeSet<&str> = fields.iter().map(|f| f.0).collect();
    let all: BTreeSet<&str> = said.keys().map(String::as_str).collect();
    let left: Vec<_> = all.difference(&compared).filter(|n| **n != "bp").collect();
    assert!(left.len() < all.len(), "{pool} object {object}: nothing compared");
    // Entries of the data set's own ZAP come after the fields.
    assert!(left.iter().all(|n| n.contains('.') || row["kind"] != "dir"), "not compared: {left:?}");
}

#[test]
fn directories_say_what_zdb_says() {
    for (row, bonus) in rows("dir") {
        let dir = DslDirPhys::parse(&bonus).unwrap();
        assert_eq!(dir.as_bytes(), bonus);
        assert_eq!(dir.used_sum(), Some(dir.used_bytes.get()));
        check(
            &row,
            &[
                ("creation_time", dir.creation_time_secs.get()),
                ("head_dataset_obj", dir.head_dataset_object.get()),
                ("parent_dir_obj", dir.parent_object.get()),
                ("origin_obj", dir.origin_object.get()),
                ("child_dir_zapobj", dir.child_dir_zap_object.get()),
                ("used_bytes", dir.used_bytes.get()),
                ("compressed_bytes", dir.compressed_bytes.get()),
                ("uncompressed_bytes", dir.uncompressed_bytes.get()),
                ("quota", dir.quota_bytes.get()),
                ("reserved", dir.reserved_bytes.get()),
                ("props_zapobj", dir.props_zap_object.get()),
                ("deleg_zapobj", dir.deleg_zap_object.get()),
                ("flags", dir.flags.get()),
                ("used_breakdown[HEAD]", dir.used(Used::Head)),
                ("used_breakdown[SNAP]", dir.used(Used::Snap)),
                ("used_breakdown[CHILD]", dir.used(Used::Child)),
                ("used_breakdown[CHILD_RSRV]", dir.used(Used::ChildReserved)),
                ("used_breakdown[REFRSRV]", dir.used(Used::RefReserved)),
                ("clones", dir.clones_object.get()),
            ],
        );
    }
}

#[test]
fn data_sets_say_what_zdb_says() {
    for (row, bonus) in rows("dataset") {
        let ds = DslDatasetPhys::parse(&bonus).unwrap();
        assert_eq!(ds.as_bytes(), bonus);
        check(
            &row,
            &[
                ("dir_obj", ds.dir_object.get()),
                ("prev_snap_obj", ds.prev_snap_object.get()),
                ("prev_snap_txg", ds.prev_snap_txg.get()),
                ("next_snap_obj", ds.next_snap_object.get()),
                ("snapnames_zapobj", ds.snapnames_zap_object.get()),
                ("num_children", ds.num_children.get()),
                ("userrefs_obj", ds.userrefs_object.get()),
                ("creation_time", ds.creation_time_secs.get()),
                ("creation_txg", ds.creation_txg.get()),
                ("deadlist_obj", ds.deadlist_object.get()),
                ("used_bytes", ds.referenced_bytes.get()),
                ("compressed_bytes", ds.compressed_bytes.get()),
                ("uncompressed_bytes", ds.uncompressed_bytes.get()),
                ("unique", ds.unique_bytes.get()),
                ("fsid_guid", ds.fsid_guid.get()),
                ("guid", ds.guid.get()),
                ("flags", ds.flags.get()),
                ("next_clones_obj", ds.next_clones_object.get()),
                ("props_obj", ds.props_object.get()),
            ],
        );
        assert_eq!(ds.is_snapshot(), ds.snapnames_zap_object.get() == 0);
        let bp = row["zdb"]["bp"].as_str().unwrap();
        assert_eq!(ds.bp.is_hole(), bp.starts_with("HOLE"));
        if !ds.bp.is_hole() {
            let dva = ds.bp.dva(0);
            let first = format!("DVA[0]=<{}:{:x}:{:x}>", dva.vdev, dva.offset, dva.asize);
            assert!(bp.starts_with(&first), "{bp}");
        }
    }
}

#[test]
fn deadlists_have_keys_and_sums() {
    let mut with_space = 0;
    for (row, bonus) in rows("deadlist") {
        let header = DeadlistPhys::parse(&bonus).unwrap();
        assert_eq!(header.as_bytes(), bonus);
        let zap = row["zap"].as_object().unwrap();
        for name in zap.keys() {
            let key = deadlist::parse_key_name(name.as_bytes()).unwrap();
            assert_eq!(&deadlist::key_name(key), name);
        }
        with_space += u32::from(header.used_bytes.get() > 0);
        assert!(header.used_bytes.get() == 0 || !zap.is_empty());
    }
    assert!(with_space > 1);
}

#[test]
fn bpobjs_say_what_zdb_says_and_entries_are_as_we_write_them() {
    let mut forms = BTreeSet::new();
    let mut seen = 0;
    for (row, bonus) in rows("bpobj") {
        let (header, form) = BpobjPhys::parse(&bonus).unwrap();
        assert_eq!(header.bonus(form), bonus);
        forms.insert(form);
        let mut fields = vec![
            ("num_blkptrs", header.num_blkptrs.get()),
            ("bytes", header.bytes.get()),
            ("comp", header.compressed_bytes.get()),
            ("uncomp", header.uncompressed_bytes.get()),
        ];
        if form >= BpobjForm::Nested {
            fields.push(("subobjs", header.subobjs_object.get()));
            fields.push(("num_subobjs", header.num_subobjs.get()));
        }
        if form >= BpobjForm::Livelist {
            fields.push(("num_freed", header.num_freed.get()));
        }
        check(&row, &fields);
        if let Some(data) = row.get("data") {
            let count = header.num_blkptrs.get().min(3);
            let mut data = hex(data);
            data.resize(count as usize * 128, 0);
            for entry in bpobj::entries(&data, count).unwrap() {
                assert!(entry.birth() > 0 && !entry.is_hole());
                // An entry is its own encoding: whatever is not stored is already gone.
                assert_eq!(bpobj::encode_entry(entry, bpobj::entry_is_freed(entry)), *entry);
                seen += 1;
            }
        }
    }
    assert!(forms.contains(&BpobjForm::Nested) && forms.contains(&BpobjForm::Livelist));
    assert!(seen > 10);
}

/// What zdb calls a map without vdev ids.
const NO_VDEV: u64 = 1 << 24;

#[test]
fn space_maps_decode_to_what_zdb_prints_and_encode_to_the_same_bytes() {
    let (mut maps, mut logs) = (0, 0);
    for (row, bonus) in rows("space_map") {
        let (header, has_histogram) = SpaceMapPhys::parse(&bonus).unwrap();
        assert_eq!(header.bonus(has_histogram), bonus);
        assert!(header.object.get() == 0 || row["object"] == header.object.get());
        let data = hex(&row["data"]);
        assert_eq!(data.len() as u64, header.length.get());
        let Some(entries) = row["entries"].as_array() else { continue };
        let is_log = entries.iter().any(|e| e[4] == 2 && e[3] != NO_VDEV);
        let start = row["start"].as_u64().unwrap();
        let geometry = if is_log {
            Geometry::LOG
        } else {
            let shift = row["ashift"].as_u64().unwrap() as u32;
            // Obsolete maps count bytes; no other map here has units smaller than a sector.
            let bytes = entries.iter().any(|e| e[1].as_u64().unwrap() % 512 != 0);
            Geometry { start, size: 1 << 40, shift: if bytes { 0 } else { shift } }
        };
        let geometry = [geometry, Geometry { shift: 0, ..geometry }]
            .into_iter()
            .find(|g| decoded(&data, *g).first().map(|r| r.offset) == entries[0][1].as_u64())
            .unwrap();
        let runs = decoded(&data, geometry);
        let said: Vec<Run> = entries
            .iter()
            .map(|e| Run {
                action: if e[0] == "A" { Action::Alloc } else { Action::Free },
                vdev: (e[4] == 2).then(|| e[3].as_u64().unwrap() as u32),
                offset: e[1].as_u64().unwrap(),
                size: e[2].as_u64().unwrap() - e[1].as_u64().unwrap(),
            })
            .collect();
        assert_eq!(runs, said, "{} {}", row["pool"], row["object"]);
        let net = runs.iter().map(|r| match r.action {
            Action::Alloc => r.size as i64,
            Action::Free => -(r.size as i64),
        });
        assert_eq!(net.sum::<i64>(), header.alloc.get());
        assert_eq!(encoded(&data, geometry), data);
        maps += 1;
        logs += u32::from(is_log);
    }
    assert!(maps > 5 && logs > 1);
}

fn decoded(data: &[u8], geometry: Geometry) -> Vec<Run> {
    let items = space_map::items(data, geometry).map(Result::unwrap);
    items.filter_map(|i| if let Item::Run(run) = i { Some(run) } else { None }).collect()
}

/// The same batches, written by our encoder.
fn encoded(data: &[u8], geometry: Geometry) -> Vec<u8> {
    let encoder = Encoder { geometry, block_size: 128 << 10, two_words: true };
    let (mut out, mut batch) = (Vec::new(), None);
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut vdev = None;
    let items = space_map::items(data, geometry).map(|i| Some(i.unwrap()));
    for item in items.chain([None]) {
        match item {
            Some(Item::Run(run)) => {
                runs.push((run.offset, run.size));
                vdev = run.vdev;
            }
            next => {
                if let Some((action, pass, txg)) = batch.take() {
                    let (at, runs) = (out.len() as u64, runs.drain(..));
                    encoder.batch(&mut out, at, (txg, pass), action, vdev, runs).unwrap();
                }
                if let Some(Item::Debug { action, pass, txg }) = next {
                    batch = Some((action, pass, txg));
                }
            }
        }
    }
    out
}

#[test]
fn debug_words_are_what_zdb_prints() {
    for (row, _) in rows("space_map") {
        let Some(debugs) = row["debugs"].as_array() else { continue };
        let data = hex(&row["data"]);
        let items = space_map::items(&data, Geometry { start: 0, size: u64::MAX, shift: 0 });
        let found: Vec<_> = items
            .filter_map(|item| match item.unwrap() {
                Item::Debug { action, pass, txg } => Some((action == Action::Alloc, txg, pass)),
                _ => None,
            })
            .collect();
        let said: Vec<_> = debugs
            .iter()
            .map(|d| (d[0] == "A", d[1].as_u64().unwrap(), d[2].as_u64().unwrap() as u16))
            .collect();
        assert_eq!(found, said);
    }
}

#[test]
fn dtls_are_the_ranges_that_zdb_prints() {
    let mut filled = 0;
    for (row, _) in rows("space_map") {
        let Some(said) = row["dtl"].as_array() else { continue };
        let mut dtl = Dtl::default();
        let data = hex(&row["data"]);
        dtl.apply(&data).unwrap();
        let said: Vec<_> =
            said.iter().map(|r| (r[0].as_u64().unwrap(), r[1].as_u64().unwrap())).collect();
        assert_eq!(dtl.ranges(), said);
        if let Some(Ok(Item::Debug { pass, txg, .. })) =
            space_map::items(&data, Geometry::DTL).next()
        {
            assert_eq!(dtl.encode(txg, pass, true).unwrap(), data);
            filled += 1;
        }
    }
    assert!(filled > 2);
}

#[test]
fn bookmarks_have_three_or_twelve_words() {
    let mut sizes = BTreeSet::new();
    for (row, _) in rows("bookmarks") {
        for words in row["zap"].as_object().unwrap().values() {
            let words: Vec<u64> =
                words.as_array().unwrap().iter().map(|w| w.as_u64().unwrap()).collect();
            let bookmark = Bookmark::from_words(&words).unwrap();
            assert_eq!(bookmark.to_words(), words);
            assert!(bookmark.creation_time_secs >= 1_714_521_600);
            assert!((4..200).contains(&bookmark.creation_txg));
            sizes.insert(words.len());
        }
    }
    assert!(sizes.contains(&12), "{sizes:?}");
}

#[test]
fn a_mapping_leads_every_byte_of_the_removed_vdev_to_its_new_place() {
    for (row, bonus) in rows("mapping") {
        let header = MappingPhys::parse(&bonus).unwrap();
        let data = hex(&row["data"]);
        let count = header.num_entries.get().min(40);
        let entries = indirect::mapping_entries(&data, count).unwrap();
        let sum: u64 = entries.iter().map(|e| e.dst().asize).sum();
        assert_eq!(sum, header.bytes_mapped.get());
        let last = entries.last().unwrap();
        assert_eq!(last.offset() + last.dst().asize, header.max_offset.get());
        for entry in entries {
            let dst = entry.dst();
            let pieces = indirect::pieces(entries, entry.offset(), dst.asize).unwrap();
            assert_eq!(pieces.len(), 1);
            assert_eq!((pieces[0].vdev, pieces[0].offset), (dst.vdev, dst.offset));
            let again = indirect::MappingEntry::new(entry.offset(), dst);
            assert_eq!(again.as_bytes()[8..], entry.as_bytes()[8..]);
        }
    }
    for (row, bonus) in rows("births") {
        let header = BirthsPhys::read_from_prefix(&bonus).unwrap().0;
        let data = hex(&row["data"]);
        let entries = indirect::birth_entries(&data, header.count.get()).unwrap();
        let txg = indirect::birth_of(entries, 0).unwrap();
        assert!((4..200).contains(&txg));
    }
}

#[test]
fn the_table_of_features_is_that_of_openzfs() {
    let (row, _) = &rows("features")[0];
    let descriptions = row["descriptions"].as_object().unwrap();
    let place = row["where"].as_object().unwrap();
    assert_eq!(descriptions.len(), Feature::ALL.len());
    for feature in Feature::ALL {
        let info = feature.info();
        assert_eq!(descriptions[info.guid], info.description, "{}", info.guid);
        let wanted = if info.is_read_only_compatible() { "write" } else { "read" };
        assert_eq!(place[info.guid], wanted, "{}", info.guid);
    }
}

#[test]
fn a_block_pointer_in_a_data_set_is_at_its_offset() {
    // The object set of a data set that was written to has six levels of meta dnode or one.
    let written = rows("dataset").into_iter().filter_map(|(_, bonus)| {
        let ds = DslDatasetPhys::parse(&bonus).unwrap();
        (!ds.bp.is_hole()).then_some(ds.bp)
    });
    let bps: Vec<BlkPtr> = written.collect();
    assert!(bps.len() > 4);
    for bp in bps {
        assert_eq!(bp.kind(), format::ObjectType::OBJSET);
        assert!(bp.lsize() >= 1024 && bp.birth() >= 4 && bp.fill() > 0);
    }
}

proptest! {
    /// Real bytes, cut and overwritten here and there, go through every parser.
    #[test]
    fn damaged_bytes_are_read_or_refused(
        row in any::<prop::sample::Index>(),
        writes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in 0usize..400,
        count: u64,
    ) {
        thread_local! {
            static BYTES: Vec<Vec<u8>> = ["dir", "dataset", "deadlist", "bpobj", "space_map", "mapping"]
                .iter()
                .flat_map(|kind| rows(kind))
                .flat_map(|(row, bonus)| [Some(bonus), row.get("data").map(hex)])
                .flatten()
                .collect();
        }
        let mut bytes = BYTES.with(|all| row.get(all).clone());
        for (at, byte) in writes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes.truncate(cut);
        let len = bytes.len();
        if let Ok(dir) = DslDirPhys::parse(&bytes) {
            dir.used_sum();
        }
        prop_assert_eq!(DslDatasetPhys::parse(&bytes).is_ok(), len >= 320);
        prop_assert_eq!(DeadlistPhys::parse(&bytes).is_ok(), len >= 320);
        prop_assert_eq!(BpobjPhys::parse(&bytes).is_ok(), [16, 32, 48, 56].contains(&len));
        prop_assert!(bpobj::entries(&bytes, count).is_err() || count <= 3);
        let _ = SpaceMapPhys::parse(&bytes);
        prop_assert!(space_map::items(&bytes, Geometry::LOG).count() <= len / 8 + 1);
        let mut dtl = Dtl::default();
        let _ = dtl.apply(&bytes);
        prop_assert!(dtl.ranges().len() <= len / 8);
        if let Ok(entries) = indirect::mapping_entries(&bytes, len as u64 / 24) {
            let pieces = indirect::pieces(entries, count, count >> 3);
            prop_assert!(pieces.is_err() || pieces.unwrap().len() <= entries.len());
        }
    }
}
