//! Looking at devices: golden pools are found and told as they are, and what is in use is not
//! taken for a new pool.

use std::path::PathBuf;

use testkit::{fresh_images, golden, golden_copy, truth};
use verbs::find::{describe, look};
use verbs::inuse::{Ours, check, check_devices, usage};
use verbs::layout::{Class, Group, GroupKind, Layout};
use verbs::pools::{Condition, FoundPool, InUse, PoolUse, State as Health, Vdev};
use verbs::state::{Known, State};

fn found(dir: PathBuf, hostid: u64) -> Vec<FoundPool> {
    let places = [dir];
    look(&places).pools.iter().map(|pool| describe(pool, &places, hostid)).collect()
}

fn only(mut pools: Vec<FoundPool>) -> FoundPool {
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

fn leaves(vdev: &Vdev) -> Vec<&Vdev> {
    if vdev.children.is_empty() {
        return vec![vdev];
    }
    vdev.children.iter().flat_map(leaves).collect()
}

#[test]
fn golden_pools_are_found() {
    for (name, count, state, condition) in [
        ("single", 1, Health::Online, Condition::Fine),
        ("mir", 3, Health::Online, Condition::Fine),
        ("rz1", 5, Health::Online, Condition::Fine),
        ("rz2", 11, Health::Online, Condition::Fine),
        ("hurt", 8, Health::Degraded, Condition::MissingReplaceable),
    ] {
        let pool = only(found(golden(name), 1));
        let truth = truth(name);
        assert_eq!(pool.name, truth.pool());
        assert_eq!(Some(pool.guid.to_string().as_str()), truth.zpool_get("guid").map(|v| v.0));
        assert_eq!((leaves(&pool.tree).len(), pool.tree.state), (count, state), "{name}");
        assert_eq!((pool.condition, pool.foreign), (condition, None), "{name}");
    }
}

#[test]
fn beyond_redundancy_there_is_no_hope() {
    let images = golden_copy("rz2");
    (0..3).for_each(|disk| images.remove(disk));
    let pool = only(found(images.path().into(), 1));
    assert_eq!((pool.tree.state, pool.condition), (Health::Unavail, Condition::Missing));
    assert!(pool.hopeless);
    assert!(found(images.path().join("nowhere"), 1).is_empty());
}

fn layout(devices: &[PathBuf]) -> Layout {
    let group = |device: &PathBuf| Group {
        kind: GroupKind::Single,
        class: Class::Normal,
        devices: vec![device.clone()],
    };
    Layout { groups: devices.iter().map(group).collect(), ..Layout::default() }
}

#[test]
fn what_is_in_use_is_not_taken() {
    let images = golden_copy("rz2");
    let guid = truth("rz2").zpool_get("guid").and_then(|v| v.0.parse().ok()).expect("a guid");
    let mine = State {
        hostid: None,
        pools: vec![Known {
            name: "rz2".into(),
            guid,
            readonly: false,
            altroot: None,
            closed: None,
            paths: images.disks(),
        }],
    };
    let with = |state, has| Ours { state, has: Box::new(move |_, _| has) };
    let [nobodys, ours, left] = [(State::default(), true), (mine.clone(), true), (mine, false)]
        .map(|(state, has)| with(state, has));
    let disk = images.disk(0);
    let used = |ours: &Ours<'_>, path: &PathBuf| usage(path, ours).expect("it can be read");
    let pool = |state| Some(InUse::Pool { pool: "rz2".into(), state });
    assert_eq!(used(&nobodys, &disk), pool(PoolUse::Exported));
    assert_eq!(used(&ours, &disk), pool(PoolUse::Active));
    assert_eq!(used(&left, &disk), None);
    // The spare's label does not say whose it is.
    let spare = images.disk(11);
    assert_eq!(used(&nobodys, &spare), None);
    assert_eq!(used(&ours, &spare), Some(InUse::Spare { pool: "rz2".into() }));
    // Nor does it matter by which path it is named.
    let link = images.path().join("by-id");
    std::os::unix::fs::symlink(&spare, &link).expect("a link");
    assert_eq!(used(&ours, &link), Some(InUse::Spare { pool: "rz2".into() }));
    let say = |force, ours: &Ours<'_>, path: &PathBuf| {
        check("pond", &layout(std::slice::from_ref(path)), force, ours)
            .map_err(|error| error.to_string())
    };
    let shown = disk.display();
    assert_eq!(
        say(false, &nobodys, &disk).unwrap_err(),
        format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n\
             {shown} is part of exported pool 'rz2'"
        )
    );
    assert_eq!(say(true, &nobodys, &disk), Ok(()));
    assert_eq!(
        say(true, &ours, &disk).unwrap_err(),
        format!(
            "invalid vdev specification\nthe following errors must be manually repaired:\n\
             {shown} is part of active pool 'rz2'"
        )
    );
    let reserved = format!("{} is reserved as a hot spare for pool rz2", spare.display());
    assert!(say(true, &ours, &spare).unwrap_err().ends_with(&reserved));
}

#[test]
fn other_file_systems_are_kept_unless_forced() {
    let images = fresh_images(1, 128 << 20);
    let disk = images.disk(0);
    let nobodys = Ours { state: State::default(), has: Box::new(|_, _| true) };
    assert_eq!(usage(&disk, &nobodys).expect("it can be read"), None);
    let file = std::fs::OpenOptions::new().write(true).open(&disk).expect("it opens");
    std::os::unix::fs::FileExt::write_all_at(&file, b"XFSB", 0).expect("it is written");
    let say = |force| check("tank", &layout(std::slice::from_ref(&disk)), force, &nobodys);
    let message = say(false).unwrap_err().to_string();
    assert!(message.contains("contains a filesystem of type 'xfs'"), "{message}");
    assert_eq!(say(true), Ok(()));
}

#[test]
fn devices_that_cannot_be_a_pool_are_refused() {
    let images = fresh_images(2, 128 << 20);
    let small = fresh_images(1, (64 << 20) - 1);
    let (a, b) = (images.disk(0), images.disk(1));
    let known = Known {
        name: "tank".into(),
        guid: 1,
        readonly: false,
        altroot: None,
        closed: None,
        paths: Vec::new(),
    };
    let taken = State { hostid: None, pools: vec![known] };
    let link = images.path().join("link");
    std::os::unix::fs::symlink(&a, &link).expect("a link");
    for (devices, state, text) in [
        (vec![a.clone(), b.clone()], &State::default(), ""),
        (vec![a.clone()], &taken, "cannot create 'tank': pool already exists"),
        (
            vec![a.clone(), b, link],
            &State::default(),
            "cannot create 'tank': one or more vdevs refer to the same device, or one of\n\
             the devices is part of an active md or lvm device",
        ),
        (
            vec![a, small.disk(0)],
            &State::default(),
            "cannot create 'tank': one or more devices is less than the minimum size (64M)",
        ),
    ] {
        let checked = check_devices("tank", &layout(&devices), state);
        assert_eq!(checked.map_err(|e| e.to_string()).err().unwrap_or_default(), text);
    }
}
