//! Lies of labels, config, space maps and history.

use crate::Lie;
use crate::forge::{Forge, Os};
use format::config::PoolConfig;
use format::space_map::{self, Geometry, Item};
use verify::FindingKind::{
    Account, Feature, Label, Leaked, Pointer, ReachableButFree, SpaceMap, Structure,
};

/// The space map of the first metaslab that is in use.
fn first_map(forge: &Forge) -> u64 {
    let array = config(forge).vdev_tree.children[0].top.unwrap().metaslab_array;
    let block = forge.block(Os::Mos, array, 0, 0);
    let words = block.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let used = |object: &u64| *object != 0 && forge.word(Os::Mos, *object, 2) != 0;
    words.into_iter().find(used).unwrap()
}

/// The runs of a space map: offset and end in bytes.
fn runs(forge: &Forge, map: u64, geometry: Geometry) -> Vec<(u64, u64)> {
    let len = forge.word(Os::Mos, map, 1) as usize;
    let bytes = if len == 0 { Vec::new() } else { forge.block(Os::Mos, map, 0, 0) };
    let items = space_map::items(&bytes[..len], geometry).map(Result::unwrap);
    let run = |item| if let Item::Run(run) = item { Some(run) } else { None };
    items.filter_map(run).map(|run| (run.offset, run.offset + run.size)).collect()
}

/// Changes the length of an entry of a space map by a sector, and the sum of all entries with it.
/// No other entry has to do with that sector.
fn stretch(forge: &mut Forge, longer: bool) {
    let map = first_map(forge);
    let top = config(forge).vdev_tree.children[0].top.unwrap();
    let (sector, slab) = (1u64 << top.ashift, 1u64 << top.metaslab_shift);
    let mut all = runs(forge, map, Geometry::metaslab(0, slab, top.ashift as u32));
    for (_, log) in forge.zap(Os::Mos, forge.find("com.delphix:log_spacemap_zap")) {
        all.extend(runs(forge, log.as_u64().unwrap(), Geometry::LOG));
    }
    let len = forge.word(Os::Mos, map, 1) as usize;
    forge.add(Os::Mos, map, 2, if longer { sector as i64 } else { -(sector as i64) });
    forge.edit(Os::Mos, map, (0, 0), |bytes| {
        let word = |at: &usize| u64::from_le_bytes(*bytes[*at..].first_chunk().unwrap());
        let lonely = |at: &usize| {
            let word = word(at);
            let (size, offset) = (((word & 0x7fff) + 1) * sector, (word >> 16) * sector);
            let end = offset + size;
            let place = if longer { end } else { end - sector };
            let touched = all.iter().filter(|(from, to)| (*from..*to).contains(&place)).count();
            word >> 63 == 0
                && word >> 15 & 1 == 0
                && size > sector
                && touched == usize::from(!longer)
        };
        let at = (0..len).step_by(8).find(lonely).unwrap();
        let new = word(&at).wrapping_add_signed(if longer { 1 } else { -1 });
        bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
    });
}

fn config(forge: &Forge) -> PoolConfig {
    let object = forge.find("config");
    let bytes = forge.block(Os::Mos, object, 0, 0);
    let list = format::NvList::parse(&bytes[..forge.word(Os::Mos, object, 0) as usize]).unwrap();
    PoolConfig::from_nvlist(&list).unwrap()
}

pub(crate) fn edit_config(forge: &mut Forge, change: impl FnOnce(&mut PoolConfig)) {
    let mut new = config(forge);
    change(&mut new);
    let bytes = new.to_nvlist().to_xdr().unwrap();
    let object = forge.find("config");
    assert_eq!(bytes.len() as u64, forge.word(Os::Mos, object, 0));
    forge.edit(Os::Mos, object, (0, 0), |block| block[..bytes.len()].copy_from_slice(&bytes));
}

pub(crate) const LIES: &[Lie] = &[
    Lie {
        golden: "mir",
        what: "how much of a metaslab is allocated",
        kind: SpaceMap,
        text: "its map says",
        tell: |f| {
            let map = first_map(f);
            f.add(Os::Mos, map, 2, 4096);
        },
    },
    Lie {
        golden: "mir",
        what: "space that is allocated to nothing",
        kind: Leaked,
        text: "0x1000 bytes are allocated to nothing",
        tell: |f| stretch(f, true),
    },
    Lie {
        golden: "mir",
        what: "space that is in use and not allocated",
        kind: ReachableButFree,
        text: "are free in the space map",
        tell: |f| stretch(f, false),
    },
    Lie {
        golden: "mir",
        what: "how the free space of a metaslab is cut",
        kind: SpaceMap,
        text: "its histogram has",
        tell: |f| {
            let map = first_map(f);
            f.add(Os::Mos, map, 8 + 18, 3);
        },
    },
    Lie {
        golden: "rz1",
        what: "a metaslab that seems to be full",
        kind: SpaceMap,
        text: "its histogram has 0 to 0",
        tell: |f| {
            let map = first_map(f);
            (8..40).for_each(|word| f.set_if(Os::Mos, map, word, 0));
        },
    },
    Lie {
        golden: "mir",
        what: "which object a space map is",
        kind: SpaceMap,
        text: "its map is object",
        tell: |f| {
            let map = first_map(f);
            f.add(Os::Mos, map, 0, 1);
        },
    },
    Lie {
        golden: "mir",
        what: "in which logs a metaslab's changes are",
        kind: SpaceMap,
        text: "no such log",
        tell: |f| {
            let zap = config(f).vdev_tree.children[0].zap_top.unwrap();
            let key = b"com.delphix:ms_unflushed_phys_txgs";
            let array = f.zap_value(Os::Mos, zap, key).unwrap().as_u64().unwrap();
            f.edit(Os::Mos, array, (0, 0), |bytes| {
                let at = bytes.iter().position(|byte| *byte != 0).unwrap() & !7;
                bytes[at..at + 8].copy_from_slice(&7u64.to_le_bytes());
            });
        },
    },
    Lie {
        golden: "mir",
        what: "the sum of the guids",
        kind: Account,
        text: "add up to",
        tell: |f| {
            f.uberblock.guid_sum += 1;
            f.write_uberblock();
        },
    },
    Lie {
        golden: "wide",
        what: "the number of a vdev",
        kind: Label,
        text: "config: vdev 1: its number is",
        tell: |f| edit_config(f, |config| config.vdev_tree.children[1].id = Some(5)),
    },
    Lie {
        golden: "mir",
        what: "a config that was written after the uberblock",
        kind: Label,
        text: "config: written in txg",
        tell: |f| edit_config(f, |config| config.txg += 1000),
    },
    Lie {
        golden: "mir",
        what: "the ZAP of a vdev",
        kind: Label,
        text: "vdev_zap_map",
        tell: |f| {
            let map = f.find("com.delphix:vdev_zap_map");
            let (name, value) = f.zap(Os::Mos, map).remove(0);
            let value = value.as_u64().unwrap() + 7;
            f.set_zap(Os::Mos, map, std::str::from_utf8(&name).unwrap(), value);
        },
    },
    Lie {
        golden: "mir",
        what: "one label of four has another host",
        kind: Label,
        text: "label 2: it differs",
        tell: |f| f.edit_label(1, &[2], |config| config.hostname = Some(b"elsewhere".to_vec())),
    },
    Lie {
        golden: "rz1",
        what: "the labels of a disk are of a pool with another name",
        kind: Label,
        text: "of pool other",
        tell: |f| f.edit_label(2, &[0, 1, 2, 3], |config| config.name = b"other".to_vec()),
    },
    Lie {
        golden: "rz1",
        what: "the labels of a disk are of a txg that is still to come",
        kind: Label,
        text: "after the uberblock's",
        tell: |f| f.edit_label(0, &[0, 1, 2, 3], |config| config.txg += 1000),
    },
    Lie {
        golden: "rz1",
        what: "the labels of a disk have another parity",
        kind: Label,
        text: "its vdevs are not those of the config",
        tell: |f| {
            f.edit_label(1, &[0, 1, 2, 3], |config| config.vdev_tree.nparity = Some(2));
        },
    },
    Lie {
        golden: "rz1",
        what: "the labels of a disk lack a feature",
        kind: Label,
        text: "features",
        tell: |f| {
            f.edit_label(3, &[0, 1, 2, 3], |config| {
                config.features_for_read.as_mut().unwrap().truncate(1);
            });
        },
    },
    Lie {
        golden: "mir",
        what: "where the history ends",
        kind: Structure,
        text: "history",
        tell: |f| {
            let history = f.find("history");
            f.add(Os::Mos, history, 3, -3);
        },
    },
    Lie {
        golden: "mir",
        what: "how long a record of the history is",
        kind: Structure,
        text: "history",
        tell: |f| {
            let history = f.find("history");
            f.edit(Os::Mos, history, (0, 0), |bytes| bytes[2] ^= 0x40);
        },
    },
    Lie {
        golden: "mir",
        what: "that there are logs of space maps",
        kind: Feature,
        text: "log_spacemap",
        tell: |f| {
            let list = f.find("features_for_write");
            f.set_zap(Os::Mos, list, "com.delphix:log_spacemap", 2);
        },
    },
    Lie {
        golden: "mir",
        what: "that something is being destroyed",
        kind: Feature,
        text: "async_destroy",
        tell: |f| {
            let list = f.find("features_for_write");
            f.set_zap(Os::Mos, list, "com.delphix:async_destroy", 1);
        },
    },
    Lie {
        golden: "mir",
        what: "a root that is younger than its uberblock",
        kind: Pointer,
        text: "MOS: its root is born in txg",
        tell: |f| {
            let mut words = f.uberblock.root.words();
            words[10] = f.uberblock.txg.get() + 3;
            f.set_root(Os::Mos, format::BlkPtr::from_words(words));
        },
    },
];
