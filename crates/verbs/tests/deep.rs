//! Trees of very many levels: who walks them needs memory for the way, and no more of the stack than for one level.
//!
//! Seen red: `rm -r`, `get -r` and `put -r` that called themselves for each level, and the whole process ended.

use std::path::PathBuf;

use testkit::{fresh_images, temp_dir};
use verbs::files::{Get, List, Listed, Mkdir, Place, Put, Remove};
use verbs::layout::{Class, Group, GroupKind, Layout};
use verbs::state::StateFile;
use verbs::{Engine, Local, pools};

/// More than the stack of a thread has room for, at half a kilobyte each.
const LEVELS: usize = 6_000;
/// As many as a path of the host has room for.
const HOST_LEVELS: usize = 1_900;

fn place(path: &str) -> Place {
    Place { dataset: "tank".into(), path: path.into() }
}

fn none<T: std::fmt::Display>(errors: Vec<T>) {
    let errors: Vec<_> = errors.iter().take(3).map(ToString::to_string).collect();
    assert_eq!(errors, [""; 0]);
}

#[test]
fn levels_cost_no_stack() {
    let images = fresh_images(1, 256 << 20);
    let dir = temp_dir();
    let mut engine = Local::new(StateFile::new(dir.path().join("pools")));
    let group = Group { kind: GroupKind::Single, class: Class::Normal, devices: images.disks() };
    let layout = Layout { groups: vec![group], ..Layout::default() };
    let create = pools::Create { name: "tank".to_owned(), layout, ..Default::default() };
    engine.pool_create(&create).expect("a pool");

    let deep = "/d".repeat(LEVELS);
    let dirs = Vec::<PathBuf>::new;
    let mkdir = Mkdir { places: vec![place(&deep)], parents: true, mode: None, dirs: dirs() };
    none(engine.mkdir(&mkdir).expect("a tree"));
    let list = List { places: vec![place("/")], recursive: true, ..Default::default() };
    let mut listed = 0;
    let mut count = |told| listed += usize::from(matches!(told, Listed::Directory(_)));
    none(engine.list(&list, &mut count).expect("a list"));
    assert_eq!(listed, LEVELS + 1);

    // The host has no paths as long as that: what is beyond is said once, and hides nothing beside it.
    let to = dir.path().join("got");
    let get = Get {
        places: vec![place("/")],
        to: to.clone(),
        recursive: true,
        salvage: false,
        replay: false,
        dirs: dirs(),
    };
    let (copied, errors) = engine.get(&get).expect("a copy");
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().ends_with("File name too long"), "{}", errors[0]);
    assert!(copied.entries as usize > HOST_LEVELS, "{copied:?}");

    let put = Put {
        from: vec![to],
        to: place("/back"),
        recursive: true,
        dirs: dirs(),
        command: String::new(),
    };
    let (back, errors) = engine.put(&put).expect("a copy");
    none(errors);
    assert_eq!(back.entries, copied.entries);

    let places = vec![place("/d"), place("/back")];
    let remove = Remove { places, recursive: true, force: false, dirs: dirs() };
    none(engine.remove(&remove).expect("nothing left"));
    let mut left = 0;
    none(engine.list(&list, &mut |_| left += 1).expect("a list"));
    assert_eq!(left, 1, "only the root");
}
