//! A remembered pool that cannot be opened for lack of devices: what is left of it, and what is missing.
//!
//! The one idea: a label of any of its devices tells the tree. Where none is left, what is remembered is where the devices
//! were.

use std::path::PathBuf;

use format::config::{VdevConfig, VdevKind};
use pool::props::{PoolKey, PoolProp, Source, Value};

use super::located::{Located, locate};
use super::{Here, lifecycle, status};
use crate::health::{self, Facts, Known};
use crate::pools::{PoolReport, State};
use crate::{Error, Why, find, host};

/// Tells of the pool of this name, as far as that goes; `error`, with which it did not open, if it lacks no device or was not
/// remembered.
pub(super) fn report(here: &Here, name: &str, error: Error) -> Result<PoolReport, Error> {
    let state = here.state.load()?;
    let Some(known) = state.pool(name).filter(|_| error.why() == Some(&Why::Unavailable)) else {
        return Err(error);
    };
    let located = locate(here, name, &[]).ok();
    let (tree, condition, version) = match located.as_ref().map(Located::found) {
        Some(found) => {
            let host_id = host::hostid(&here.state)?.into();
            let told = find::describe(found, &[], host_id);
            (told.tree, told.condition, found.config.version)
        }
        None => {
            let mut absent = |leaf: &VdevConfig| Known {
                absent: Some(status::absent(leaf, None)),
                ..Known::default()
            };
            let tree = health::tree(&gone(&known.paths), false, &mut absent);
            let condition = health::condition(&tree, Facts::default());
            (tree, condition, format::SPA_VERSION)
        }
    };
    if tree.state != State::Unavail {
        return Err(error);
    }
    let altroot = known.altroot.clone().map(|root| (Value::Text(root), Source::Local));
    let facts = [
        (PoolProp::Health, Some((Value::text(tree.state.name()), Source::None))),
        (PoolProp::Guid, Some((Value::Number(known.guid), Source::None))),
        (PoolProp::Altroot, altroot),
    ];
    let properties = facts.into_iter();
    Ok(PoolReport {
        name: name.into(),
        guid: known.guid,
        txg: 0,
        version,
        condition,
        readonly: None,
        tree,
        spares: Vec::new(),
        cache: Vec::new(),
        scan: None,
        removal: None,
        checkpoint: None,
        error_count: None,
        damaged: Vec::new(),
        opened: std::time::Duration::ZERO,
        open_for: std::time::Duration::ZERO,
        properties: properties
            .filter_map(|(prop, fact)| fact.map(|(v, from)| (PoolKey::Native(prop), v, from)))
            .collect(),
    })
}

/// Devices of which no label is left, by their places alone.
fn gone(paths: &[PathBuf]) -> VdevConfig {
    let leaf = |path: &PathBuf| {
        let is_disk = path.starts_with("/dev");
        let kind = if is_disk { VdevKind::Disk } else { VdevKind::File };
        let mut leaf = VdevConfig::new(kind, None, 0);
        leaf.path = Some(lifecycle::leaf_path(path));
        leaf
    };
    let mut root = VdevConfig::new(VdevKind::Root, None, 0);
    root.children = paths.iter().map(leaf).collect();
    root
}
