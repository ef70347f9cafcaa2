//! A pool whose disks are gone: it can be forgotten, if that is meant.

use testkit::{fresh_images, temp_dir};
use verbs::layout::{Class, Group, GroupKind, Layout};
use verbs::state::StateFile;
use verbs::{Engine, Local, pools};

/// A pool on two disks, of which as many are lost: what is left of the disks stays as it is.
fn lost(disks: &[usize]) {
    let images = fresh_images(2, 64 << 20);
    let dir = temp_dir();
    let mut engine = Local::new(StateFile::new(dir.path().join("pools")));
    let group = |disk| Group { kind: GroupKind::Single, class: Class::Normal, devices: vec![disk] };
    let groups = images.disks().into_iter().map(group).collect();
    let layout = Layout { groups, ..Layout::default() };
    let create = pools::Create { name: "tank".to_owned(), layout, ..Default::default() };
    engine.pool_create(&create).expect("a pool");
    disks.iter().for_each(|disk| images.remove(*disk));
    let left =
        || -> Vec<_> { images.disks().iter().map(|disk| std::fs::read(disk).ok()).collect() };
    let before = left();
    let mut export = |force| {
        let names = vec!["tank".to_owned()];
        let request = pools::Export { names, force, ..Default::default() };
        let errors = engine.pool_export(&request).expect("a report");
        errors.into_iter().map(|error| error.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(export(false).len(), 1);
    assert_eq!(export(true), [""; 0]);
    let unknown = "cannot open 'tank': no such pool";
    assert_eq!(export(true), [unknown]);
    assert!(left() == before, "{disks:?}: something was written");
}

#[test]
fn a_lost_pool_can_be_forgotten_by_force() {
    lost(&[0, 1]);
    lost(&[0]);
    lost(&[1]);
}
