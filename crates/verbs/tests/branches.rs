//! Snapshots of several pools, and of clones of each other: each command does what it says to those it names, and to
//! no others.

use testkit::{Images, fresh_images, temp_dir};
use verbs::branches::{Branch, Fork, Hold, Rollback, Snapshot};
use verbs::datasets::{Create, Destroy};
use verbs::layout::{Class, Group, GroupKind, Layout};
use verbs::state::StateFile;
use verbs::{Engine, Local, pools};

/// An engine with pools on a file each, and file systems and snapshots in them.
struct Stage {
    engine: Local,
    _images: Images,
    _dir: testkit::TempDir,
}

impl Stage {
    fn new(pools: &[&str], made: &[&str]) -> Stage {
        let images = fresh_images(pools.len(), 128 << 20);
        let dir = temp_dir();
        let mut engine = Local::new(StateFile::new(dir.path().join("pools")));
        for (name, disk) in pools.iter().zip(images.disks()) {
            let group =
                Group { kind: GroupKind::Single, class: Class::Normal, devices: vec![disk] };
            let layout = Layout { groups: vec![group], ..Layout::default() };
            let name = (*name).to_owned();
            let request = pools::Create { name, layout, ..Default::default() };
            engine.pool_create(&request).expect("a pool");
        }
        let mut stage = Stage { engine, _images: images, _dir: dir };
        made.iter().for_each(|name| stage.make(name));
        stage
    }

    /// A snapshot, a clone (`clone=snapshot`) or a file system.
    fn make(&mut self, name: &str) {
        let done = match name.split_once('=') {
            Some((name, origin)) => {
                let (name, origin) = (name.to_owned(), origin.to_owned());
                self.branch(Branch::Clone(Fork { name, origin, ..Default::default() }))
            }
            None if name.contains('@') => {
                let names = vec![name.to_owned()];
                self.branch(Branch::Snapshot(Snapshot { names, ..Default::default() }))
            }
            None => {
                let request = Create { name: name.to_owned(), ..Default::default() };
                self.engine.dataset_create(&request).map(drop).map_err(|error| error.to_string())
            }
        };
        assert_eq!(done, Ok(()), "{name}");
    }

    fn branch(&mut self, branch: Branch) -> Result<(), String> {
        self.engine.dataset_branch(&branch).map_err(|error| error.to_string())
    }

    /// The holds that there are, of those that are asked for: snapshots with tags.
    fn held(&mut self, names: &[&str]) -> Vec<String> {
        let report = self.engine.dataset_holds(&of("", names)).expect("a report");
        assert_eq!(report.errors.len(), 0, "{:?}", report.errors);
        report.holds.into_iter().map(|held| format!("{} {}", held.name, held.tag)).collect()
    }
}

fn of(tag: &str, names: &[&str]) -> Hold {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Hold { tag: tag.to_owned(), names, ..Default::default() }
}

const BOTH: [&str; 2] = ["tank/data@d1", "backup/data@d1"];

#[test]
fn holds_are_on_the_snapshots_that_are_named() {
    let made = ["tank/data", "backup/data", "tank/data@d1", "backup/data@d1", "tank/data@d2"];
    let mut stage = Stage::new(&["tank", "backup"], &made);
    assert_eq!(stage.branch(Branch::Hold(of("keep", &BOTH))), Ok(()));
    assert_eq!(stage.held(&BOTH), ["tank/data@d1 keep", "backup/data@d1 keep"]);
    // What is not there in one pool is no matter of the other, which has one of that name.
    let refused = stage.branch(Branch::Hold(of("more", &["backup/data@d2", "tank/data@d2"])));
    let why = "cannot hold snapshot 'backup/data@d2': dataset does not exist";
    assert_eq!(refused, Err(why.to_owned()));
    assert_eq!(stage.held(&["tank/data@d2"]), ["tank/data@d2 more"]);
    assert_eq!(stage.branch(Branch::Release(of("keep", &BOTH))), Ok(()));
    assert_eq!(stage.held(&BOTH), [""; 0]);
}

#[test]
fn what_is_named_twice_is_held_once() {
    let mut stage = Stage::new(&["tank"], &["tank/data", "tank/data@d1"]);
    let twice = ["tank/data@d1", "tank/data@d1"];
    let held = "cannot hold snapshot 'tank/data@d1': tag already exists on this dataset";
    assert_eq!(stage.branch(Branch::Hold(of("keep", &twice))), Err(held.to_owned()));
    assert_eq!(stage.held(&twice[..1]), ["tank/data@d1 keep"]);
    let free = "cannot release hold from snapshot 'tank/data@d1': no such tag on this dataset";
    assert_eq!(stage.branch(Branch::Release(of("keep", &twice))), Err(free.to_owned()));
    assert_eq!(stage.held(&twice[..1]), [""; 0]);
    // Below each other, they are both meant by the first.
    let all = Hold { recursive: true, ..of("keep", &["tank@all", "tank/data@all"]) };
    stage.make("tank@all");
    stage.make("tank/data@all");
    assert_eq!(stage.branch(Branch::Hold(all.clone())), Err(held.replace("@d1", "@all")));
    assert_eq!(stage.held(&["tank@all", "tank/data@all"]).len(), 2);
    assert_eq!(stage.branch(Branch::Release(all)), Err(free.replace("@d1", "@all")));
    assert_eq!(stage.held(&["tank@all", "tank/data@all"]), [""; 0]);
}

#[test]
fn a_clone_with_chosen_snapshots_goes_once() {
    let made = ["tank@mon", "tank@tue", "tank/c=tank@mon", "tank/c@mon", "tank/c@tue"];
    let mut stage = Stage::new(&["tank"], &made);
    let request = Destroy {
        name: "tank@mon,tue".to_owned(),
        recursive: true,
        dependents: true,
        ..Default::default()
    };
    let gone = stage.engine.dataset_destroy(&request).expect("they go");
    assert_eq!(gone.names, ["tank/c@tue", "tank/c@mon", "tank@mon", "tank@tue"]);
    // Nothing is left of them: their names are free.
    stage.make("tank/c");
    made.iter().filter(|name| !name.contains('=')).for_each(|name| stage.make(name));
}

#[test]
fn clones_of_newer_snapshots_go_once() {
    let mut stage = Stage::new(&["tank"], &["tank/f", "tank/f@a", "tank/f@b", "tank/f@c"]);
    // Below a clone of one is a clone of the other.
    stage.make("tank/x=tank/f@b");
    stage.make("tank/x/y=tank/f@c");
    let name = "tank/f@a".to_owned();
    let mut request = Rollback { name, newer: true, ..Default::default() };
    let refused = stage.branch(Branch::Rollback(request.clone())).expect_err("clones");
    assert_eq!(refused.matches("tank/x/y").count(), 1, "{refused}");
    request.clones = true;
    assert_eq!(stage.branch(Branch::Rollback(request)), Ok(()));
    ["tank/f@b", "tank/x", "tank/x/y"].iter().for_each(|name| stage.make(name));
}
