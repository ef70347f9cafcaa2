//! What a pool is made of, at a glance: the MOS directory, the features, the vdevs.

use std::collections::BTreeMap;

use format::config::{VdevConfig, VdevKind};
use format::features::Feature;
use format::mos_directory as key;
use format::zap::Value as ZapValue;
use pool::devices::LeafState;

use super::contents::entry_value;
use super::{Dumper, Told};
use crate::dump::Fact;

/// Vdevs nested deeper than this are not told: OpenZFS nests four.
const DEPTH_MAX: usize = 16;

/// The ZAPs of features, and whether a reader must know those in it.
const FEATURES: [(&[u8], &str); 2] =
    [(key::FEATURES_FOR_READ, "read"), (key::FEATURES_FOR_WRITE, "write")];

impl Dumper<'_, '_> {
    /// Tells the MOS directory, the features and the tree of vdevs.
    pub(super) fn overview(&mut self) -> Told {
        let entries: Vec<_> = self.directory.clone().into_iter().collect();
        for (name, value) in entries {
            let fact = Fact::new("mos-entry").text("name", name);
            self.out.tell(fact.with("value", entry_value(&value)))?;
        }
        self.features()?;
        let Some(config) = self.config.clone() else { return Ok(()) };
        self.vdev(&config.vdev_tree, 0)
    }

    fn features(&mut self) -> Told {
        let enabled = self.feature_txgs();
        for (name, needed) in FEATURES {
            let Some(object) = self.find(name) else { continue };
            let mut found = Vec::new();
            let listed = self.look.expect(&self.mos, object).and_then(|dnode| {
                self.look.zap(&dnode, |entry| {
                    found.push(entry);
                    found.len() < 4096
                })
            });
            for entry in found {
                match entry {
                    Ok(entry) => {
                        let count = entry.value.as_u64().unwrap_or(0);
                        let short = Feature::from_guid(&entry.name).map(Feature::name);
                        let mut fact = Fact::new("feature")
                            .text("guid", entry.name.clone())
                            .word("name", short.unwrap_or("(not known here)"))
                            .word("needed_to", needed)
                            .word("state", if count > 0 { "active" } else { "enabled" })
                            .number("count", count);
                        if let Some(txg) = enabled.get(&entry.name) {
                            fact = fact.number("enabled_txg", *txg);
                        }
                        self.out.tell(fact)?;
                    }
                    Err(why) => self.out.wrong(String::from_utf8_lossy(name), why)?,
                }
            }
            if let Err(why) = listed {
                self.out.wrong(String::from_utf8_lossy(name), why)?;
            }
        }
        Ok(())
    }

    /// In which txg features were enabled, where that is known.
    fn feature_txgs(&mut self) -> BTreeMap<Vec<u8>, u64> {
        let mut txgs = BTreeMap::new();
        let Some(object) = self.find(key::FEATURE_ENABLED_TXG) else { return txgs };
        // Only an extra: features are told without it.
        drop(self.look.expect(&self.mos, object).and_then(|dnode| {
            self.look.zap(&dnode, |entry| {
                let entry = entry.ok();
                txgs.extend(entry.and_then(|e| Some((e.name, ZapValue::as_u64(&e.value)?))));
                txgs.len() < 4096
            })
        }));
        txgs
    }

    fn vdev(&mut self, vdev: &VdevConfig, depth: usize) -> Told {
        let mut fact = Fact::new("vdev")
            .number("depth", depth as u64)
            .text("type", vdev.kind.name())
            .number("id", vdev.id.unwrap_or(0))
            .number("guid", vdev.guid);
        if let Some(path) = &vdev.path {
            fact = fact.text("path", path.clone());
        }
        if let Some(nparity) = vdev.nparity {
            fact = fact.number("nparity", nparity);
        }
        if let Some(top) = &vdev.top {
            fact = fact
                .number("ashift", top.ashift)
                .number("asize", top.asize)
                .number("metaslab_shift", top.metaslab_shift)
                .number("metaslab_array", top.metaslab_array)
                .number("is_log", u64::from(top.is_log));
        }
        if let Some(indirect) = &vdev.indirect {
            fact = fact.number("indirect_object", indirect.object);
        }
        if let Some(object) = vdev.dtl {
            fact = fact.number("DTL", object);
        }
        let zaps = [("vdev_zap_leaf", vdev.zap_leaf), ("vdev_zap_top", vdev.zap_top)];
        for (name, object) in zaps {
            if let Some(object) = object {
                fact = fact.number(name, object);
            }
        }
        let tree = self.look.tree();
        let leaf = tree.leaf_by_guid(vdev.guid).and_then(|index| tree.leaves().get(index));
        if let Some(leaf) = leaf.filter(|_| vdev.kind.is_leaf()) {
            fact = fact.word("state", state(&leaf.state));
        }
        if vdev.kind == VdevKind::Missing {
            fact = fact.word("state", "missing");
        }
        self.out.tell(fact)?;
        if depth >= DEPTH_MAX {
            return self.out.wrong("vdevs", "nested too deep");
        }
        vdev.children.iter().try_for_each(|child| self.vdev(child, depth + 1))
    }
}

/// Whether a leaf is read from, and if not, why.
fn state(state: &LeafState) -> &'static str {
    match state {
        LeafState::Online => "online",
        LeafState::Missing => "missing",
        LeafState::BadLabel => "bad label",
        LeafState::Retired => "retired",
    }
}
