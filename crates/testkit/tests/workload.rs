//! The model against a file system that people trust: the host's.

use testkit::model::Tree;
use testkit::workload::{Op, Workload, acceptance, random};
use testkit::{Compare, assert_same, host, temp_dir};

fn has(model: &Tree, path: &[u8], xattr: &[u8]) -> bool {
    model.get(path).is_some_and(|node| node.xattrs.contains_key(xattr))
}

fn both(load: &Workload) {
    let dir = temp_dir();
    let root = rustix::process::geteuid().is_root();
    let mut model = Tree::new();
    for op in &load.ops {
        let open_to_us = match op.clone() {
            Op::Create { path, mode } if !root => Op::Create { path, mode: mode | 0o600 },
            op => op,
        };
        let op = &open_to_us;
        match op {
            // who is not root would lock itself out
            Op::SetOwner { .. } | Op::SetMode { .. } if !root => continue,
            // ext4 takes a few KiB of attributes a file at most
            Op::SetXattr { value, .. } if value.len() > 300 => continue,
            Op::RemoveXattr { path, name } if !has(&model, path, name) => continue,
            _ => {}
        }
        model.apply(op).unwrap_or_else(|e| panic!("{op}: {e:?}"));
        host::apply(dir.path(), op).unwrap_or_else(|e| panic!("{op}: {e}"));
    }
    let expected = model.entries();
    let mut found = host::list(dir.path());
    found[0].mode = 0o755; // of the temporary directory
    let compare = Compare { owner: root, ..Compare::COPY };
    assert_same(&expected, &found, compare);
    testkit::compare::assert_sparse(&expected, &found, 4096, 1);
}

#[test]
fn the_model_is_right_on_random_work() {
    for seed in 0..10 {
        both(&random(seed, 400, 4));
    }
}

#[test]
fn the_model_is_right_on_the_acceptance_workload() {
    both(&acceptance(1));
}
