//! Which disks and pools are meant, and whose they are.

use std::time::Duration;

use device::{DeviceError, WriteFile};
use format::config::PoolState;
use format::features::Feature;
use pool::devices::scan;
use pool::dsl::lookup;
use pool::props::{PoolKey, PoolProp, Value};
use rt::sync::Mutex;
use testkit::{Images, TempDir, fresh_images, temp_dir};

use super::*;
use crate::layout::{Class, Group, GroupKind, Layout};
use crate::local::Held;
use crate::local::held::tests::becomes;
use crate::pools::Which;
use crate::state::StateFile;
use crate::{Engine, Local, datasets, pools};

/// Another host's number.
const OTHER: u64 = 5;

/// A mirror, and who made it.
struct Site {
    engine: Local,
    images: Images,
    dir: TempDir,
}

fn create(images: &Images, kind: GroupKind) -> pools::Create {
    let group = Group { kind, class: Class::Normal, devices: images.disks() };
    let layout = Layout { groups: vec![group], ..Layout::default() };
    pools::Create { name: "tank".to_owned(), layout, force: true, ..Default::default() }
}

fn engine(dir: &TempDir) -> Local {
    Local::new(StateFile::new(dir.path().join("pools")))
}

impl Site {
    fn new() -> Site {
        let (images, dir) = (fresh_images(2, 64 << 20), temp_dir());
        let mut engine = engine(&dir);
        engine.pool_create(&create(&images, GroupKind::Mirror)).unwrap();
        Site { engine, images, dir }
    }

    fn here(&self) -> Here {
        self.engine.here.clone()
    }

    /// Somebody else, as this host, gives the pool a state.
    fn elsewhere(&self, host_id: u64, state: PoolState) {
        let scan = scan(&[self.images.path().to_owned()]).unwrap();
        let found = &scan.pools[0];
        let tree = found.open_write_tree(&found.root).unwrap();
        let options = OpenOptions { host_id, host_name: "other".into(), ..Default::default() };
        let pool = Pool::open(Devices::Writable(tree), &found.uberblocks, &options).unwrap();
        pool.set_state(state).unwrap();
        pool.close().unwrap();
    }

    fn hostid(&self) -> u64 {
        host::hostid(&self.here().state).unwrap().into()
    }

    fn write(&mut self, name: &str) -> std::result::Result<(), String> {
        let request = datasets::Create { name: name.into(), ..Default::default() };
        self.engine.dataset_create(&request).map(drop).map_err(|e| e.to_string())
    }

    fn import(&self, which: Which) -> pools::Import {
        pools::Import {
            which,
            places: vec![self.images.path().to_owned()],
            new_name: None,
            force: false,
            missing_log: false,
            destroyed: false,
            readonly: false,
            unmounted: true,
            properties: Vec::new(),
            command: String::new(),
        }
    }

    fn imports(&mut self, request: &pools::Import) -> std::result::Result<(), String> {
        self.engine.pool_import(request).map(drop).map_err(|e| e.to_string())
    }

    fn exports(&mut self) -> Vec<String> {
        let request = pools::Export { names: vec!["tank".into()], ..Default::default() };
        let errors = self.engine.pool_export(&request).unwrap();
        errors.into_iter().map(|e| e.to_string()).collect()
    }

    fn remembered(&self) -> Vec<String> {
        self.here().state.load().unwrap().pools.into_iter().map(|known| known.name).collect()
    }
}

fn named() -> Which {
    Which::Name("tank".into())
}

/// Seen red: the pool was gone on with as it was before another command had its way, whose changes were lost.
#[test]
fn what_others_do_between_the_look_and_the_locks_is_kept() {
    let mut site = Site::new();
    let here = site.here();
    let before = locate(&here, "tank", &[]).unwrap();
    let by_place = locate(&here, "tank", &[site.images.path().to_owned()]).unwrap();
    site.write("tank/a").unwrap();
    for located in [before, by_place] {
        let doing = Doing::Open("tank".into());
        let session = open_located(&here, "tank", located, For::Writing, doing.clone()).unwrap();
        assert!(lookup::find(session.pool.mos(), "tank/a").is_ok());
        session.close(doing).unwrap();
    }
    let before = locate(&here, "tank", &[]).unwrap();
    assert_eq!(site.exports(), [""; 0]);
    let doing = Doing::Open("tank".into());
    let gone = open_located(&here, "tank", before, For::Writing, doing).map(drop).unwrap_err();
    assert_eq!(gone.to_string(), "cannot open 'tank': no such pool");
}

/// Seen red: it was written all the same, under the feet of who had it.
#[test]
fn a_remembered_pool_that_is_somebody_elses_is_not_written() {
    let mut site = Site::new();
    let ours = site.hostid();
    let again = "was exported since it was imported here\nuse 'zpool import' to import it again";
    for (host, state, said) in [
        (ours, PoolState::Exported, again),
        (OTHER, PoolState::Exported, again),
        (OTHER, PoolState::Active, "use 'zpool import -f' to import the pool."),
        (OTHER, PoolState::Destroyed, "use 'zpool import -D' to import it again"),
        (ours, PoolState::Destroyed, "was destroyed since it was imported here"),
    ] {
        site.elsewhere(host, state);
        let refused = site.write("tank/a").unwrap_err();
        assert!(refused.contains(said), "{host} {state:?}: {refused}");
        if (host, state) == (OTHER, PoolState::Active) {
            let places = vec![site.images.path().to_owned()];
            let request = datasets::Create { name: "tank/a".into(), places, ..Default::default() };
            let refused = site.engine.dataset_create(&request).map(drop).unwrap_err().to_string();
            assert!(refused.contains(said), "by its place: {refused}");
        }
        let status = pools::Status { names: vec!["tank".into()], ..Default::default() };
        assert!(site.engine.pool_status(&status).unwrap()[0].is_ok(), "{state:?}: it is read");
        let find = pools::Find {
            places: vec![site.images.path().to_owned()],
            destroyed: state == PoolState::Destroyed,
        };
        assert_eq!(site.engine.pool_find(&find).unwrap().len(), 1, "{state:?}");
        let force = host == OTHER && state != PoolState::Exported;
        let request = pools::Import { destroyed: find.destroyed, ..site.import(named()) };
        if force {
            let refused = site.imports(&request).unwrap_err();
            assert!(refused.contains("previously in use from another system"), "{refused}");
            let reader = pools::Import { readonly: true, ..request.clone() };
            let refused = site.imports(&reader).unwrap_err();
            assert!(refused.contains("previously in use from another system"), "{refused}");
        }
        site.imports(&pools::Import { force, ..request }).unwrap();
        assert_eq!(site.engine.pool_find(&find).unwrap().len(), 0, "{state:?}");
        let name = format!("tank/{host}{state:?}");
        site.write(&name).unwrap();
        assert_eq!(site.remembered(), ["tank"]);
    }
}

/// An export that ended between the labels and the list, or that was another's, is done when it is asked for again.
#[test]
fn what_is_exported_already_is_forgotten() {
    for (host, state) in [(1, PoolState::Exported), (OTHER, PoolState::Active)] {
        let mut site = Site::new();
        site.elsewhere(host, state);
        let before = std::fs::read(site.images.disk(0)).unwrap();
        assert_eq!(site.exports(), [""; 0]);
        assert_eq!(site.remembered(), [""; 0]);
        assert!(std::fs::read(site.images.disk(0)).unwrap() == before, "it is not touched");
    }
}

/// Seen red: whoever imported a pool as soon as its disks were free had it in the list, and lost it again.
#[test]
fn what_is_exported_is_forgotten_before_its_disks_are_free() {
    let site = Site::new();
    let (here, disks, mut engine) = (site.here(), site.images.disks(), engine(&site.dir));
    let state = || scan(&disks).unwrap().pools[0].config.state;
    let export = here.state.change(|_| {
        let request = pools::Export { names: vec!["tank".into()], ..Default::default() };
        let export = rt::thread::spawn("export", move || engine.pool_export(&request));
        // It has come as far as the list, which is ours for now.
        assert!(becomes(|| state() == PoolState::Exported));
        rt::time::sleep(Duration::from_millis(100));
        let busy = WriteFile::open(&disks[0]).map(drop).unwrap_err();
        assert!(matches!(busy, DeviceError::Busy { .. }), "{busy}");
        export
    });
    assert!(export.unwrap().join().unwrap().is_empty());
    assert!(WriteFile::open(&disks[0]).is_ok());
}

/// Seen red: it was renamed on disk, or was in the list twice, or not at all.
#[test]
fn a_pool_that_is_imported_is_no_candidate() {
    for held in [None, Some(Arc::new(Held::default()))] {
        let (images, dir) = (fresh_images(2, 64 << 20), temp_dir());
        let here = Here { held, ..engine(&dir).here };
        let mut site = Site { engine: Local { here }, images, dir };
        site.engine.pool_create(&create(&site.images, GroupKind::Mirror)).unwrap();
        let guid = site.here().state.load().unwrap().pools[0].guid;
        let before = site.here().state.load().unwrap();
        // A copy of it elsewhere is the same pool.
        let copy = temp_dir();
        std::fs::copy(site.images.disk(0), copy.path().join("d00")).unwrap();
        for places in [vec![site.images.path().to_owned()], vec![copy.path().to_owned()]] {
            for which in [named(), Which::Guid(guid)] {
                for readonly in [false, true] {
                    let request = pools::Import {
                        places: places.clone(),
                        new_name: Some("pond".into()),
                        readonly,
                        force: true,
                        ..site.import(which.clone())
                    };
                    let refused = site.imports(&request).unwrap_err();
                    assert!(refused.ends_with("': no such pool available"), "{refused}");
                    let request = pools::Import { new_name: None, ..request };
                    let refused = site.imports(&request).unwrap_err();
                    assert!(refused.contains("a pool with that name already exists"), "{refused}");
                }
            }
        }
        assert_eq!(site.here().state.load().unwrap(), before);
        assert_eq!(site.exports(), [""; 0]);
    }
}

/// Seen red: both were told that it is done, and one of the pools was forgotten.
#[test]
fn of_two_that_make_a_pool_of_one_name_one_does() {
    let dir = temp_dir();
    let all = [fresh_images(1, 64 << 20), fresh_images(1, 64 << 20)];
    let refused = Arc::new(Mutex::new(Vec::new()));
    let makers = all.each_ref().map(|images| {
        let (mut engine, request) = (engine(&dir), create(images, GroupKind::Single));
        let refused = refused.clone();
        rt::thread::spawn("maker", move || {
            let made = engine.pool_create(&request);
            refused.lock().extend(made.err().map(|error| error.to_string()));
        })
    });
    makers.into_iter().for_each(|maker| maker.join());
    let refused = refused.lock().clone();
    assert_eq!(refused, ["cannot create 'tank': pool already exists"]);
    assert_eq!(engine(&dir).state().load().unwrap().pools.len(), 1);
}

/// Seen red: a destroyed pool came back without a word, and one that was not destroyed by the word for those that are.
#[test]
fn destroyed_pools_are_imported_by_their_own_word() {
    let mut site = Site::new();
    let guid = site.here().state.load().unwrap().pools[0].guid;
    let missing = |site: &mut Site, destroyed| {
        let request = pools::Import { destroyed, ..site.import(Which::Guid(guid)) };
        let refused = site.imports(&request).unwrap_err();
        assert!(refused.ends_with("no such pool available"), "{refused}");
    };
    assert_eq!(site.exports(), [""; 0]);
    missing(&mut site, true);
    site.elsewhere(site.hostid(), PoolState::Destroyed);
    missing(&mut site, false);
    let request = pools::Import { destroyed: true, ..site.import(Which::Guid(guid)) };
    site.imports(&request).unwrap();
}

/// A pool whose disks lie in directories of their own, exported.
struct Apart {
    site: Site,
    far: Images,
}

impl Apart {
    fn new(kind: GroupKind, class: Class) -> Apart {
        let [images, far] = [fresh_images(1, 64 << 20), fresh_images(1, 64 << 20)];
        let dir = temp_dir();
        let both: Vec<PathBuf> = images.disks().into_iter().chain(far.disks()).collect();
        let groups = match kind {
            GroupKind::Single => both
                .into_iter()
                .zip([Class::Normal, class])
                .map(|(disk, class)| Group { kind, class, devices: vec![disk] })
                .collect(),
            _ => vec![Group { kind, class, devices: both }],
        };
        let layout = Layout { groups, ..Layout::default() };
        let create = pools::Create { name: "tank".to_owned(), layout, ..Default::default() };
        let mut site = Site { engine: engine(&dir), images, dir };
        site.engine.pool_create(&create).unwrap();
        assert_eq!(site.exports(), [""; 0]);
        Apart { site, far }
    }

    fn state(&mut self) -> (pools::State, Vec<pools::State>) {
        let status = pools::Status { names: vec!["tank".into()], ..Default::default() };
        let report = self.site.engine.pool_status(&status).unwrap().remove(0).unwrap();
        let tops = report.tree.children.iter();
        let leaves = tops.flat_map(|top| match top.children.is_empty() {
            true => vec![top.state],
            false => top.children.iter().map(|leaf| leaf.state).collect(),
        });
        (report.tree.state, leaves.collect())
    }
}

/// Seen red: half of a mirror, or its log, was left out, though it lay where the pool says.
#[test]
fn disks_are_found_in_their_places() {
    use pools::State::Online;
    for (kind, class) in [(GroupKind::Mirror, Class::Normal), (GroupKind::Single, Class::Log)] {
        let mut apart = Apart::new(kind, class);
        let find =
            pools::Find { places: vec![apart.site.images.path().to_owned()], ..Default::default() };
        let found = apart.site.engine.pool_find(&find).unwrap();
        assert_eq!(found[0].tree.state, Online, "{kind:?}");
        apart.site.imports(&apart.site.import(named())).unwrap();
        assert_eq!(apart.state(), (Online, vec![Online; 2]), "{kind:?}");
        let known = apart.site.here().state.load().unwrap().pools.remove(0);
        assert_eq!(known.paths.len(), 2, "{kind:?}: {:?}", known.paths);
        apart.site.write("tank/a").unwrap();
    }
}

/// Seen red: a disk that `online` had filled was left out again by the next command.
#[test]
fn a_disk_that_is_made_online_is_remembered() {
    use pools::State::{Degraded, Online};
    let mut apart = Apart::new(GroupKind::Mirror, Class::Normal);
    let (disk, away) = (apart.far.disk(0), apart.far.path().join("away"));
    std::fs::rename(&disk, &away).unwrap();
    apart.site.imports(&apart.site.import(named())).unwrap();
    assert_eq!(apart.state().0, Degraded);
    apart.site.write("tank/a").unwrap();
    std::fs::rename(&away, &disk).unwrap();
    let online = crate::disks::Change {
        name: "tank".into(),
        device: disk.display().to_string(),
        act: crate::disks::Act::Online { expand: false },
        force: false,
        wait: false,
        places: Vec::new(),
        command: String::new(),
    };
    apart.site.engine.pool_disk(&online, &mut |_| true).unwrap();
    assert_eq!(apart.state(), (Online, vec![Online; 2]));
}

impl Apart {
    /// The far disk is written to elsewhere by itself, so many times.
    fn far_elsewhere(&mut self, times: usize) {
        let other = fresh_images(0, 64 << 20);
        let far = std::mem::replace(&mut self.far, other);
        let other = Site { engine: self.site.engine.clone(), images: far, dir: temp_dir() };
        (0..times).for_each(|_| other.elsewhere(OTHER, PoolState::Exported));
        self.far = other.images;
    }

    /// The near disk goes on without the far one, and is let go.
    fn near_goes_on(&mut self) {
        let (disk, away) = (self.far.disk(0), self.far.path().join("away"));
        std::fs::rename(&disk, &away).unwrap();
        self.site.imports(&self.site.import(named())).unwrap();
        ["a", "b"].iter().for_each(|name| self.site.write(&format!("tank/{name}")).unwrap());
        assert_eq!(self.site.exports(), [""; 0]);
        std::fs::rename(&away, &disk).unwrap();
    }
}

/// Seen red: the import went on from the disk that lacked what the other one had.
#[test]
fn a_disk_in_its_place_that_went_further_is_what_counts() {
    use pools::State::Online;
    let mut apart = Apart::new(GroupKind::Mirror, Class::Normal);
    apart.far_elsewhere(4);
    apart.site.imports(&apart.site.import(named())).unwrap();
    assert_eq!(apart.state(), (Online, vec![Online; 2]));
}

/// Seen red: it was remembered, and came back with what was done to it elsewhere.
#[test]
fn a_disk_that_is_detached_while_it_is_away_is_forgotten() {
    let mut site = Site::new();
    let disk = site.images.disk(1);
    std::fs::rename(&disk, site.images.path().join("away")).unwrap();
    let detach = crate::disks::Change {
        name: "tank".into(),
        device: disk.display().to_string(),
        act: crate::disks::Act::Detach,
        force: false,
        wait: false,
        places: Vec::new(),
        command: String::new(),
    };
    site.engine.pool_disk(&detach, &mut |_| true).unwrap();
    let known = site.here().state.load().unwrap().pools.remove(0);
    assert_eq!(known.paths, [site.images.disk(0)]);
    // Its label says that it is part of the pool, which knows better.
    std::fs::rename(site.images.path().join("away"), &disk).unwrap();
    let act = crate::disks::Act::Attach(disk);
    let attach =
        crate::disks::Change { act, device: site.images.disk(0).display().to_string(), ..detach };
    site.engine.pool_disk(&attach, &mut |_| true).unwrap();
    let known = site.here().state.load().unwrap().pools.remove(0);
    assert_eq!(known.paths, site.images.disks());
}

/// A disk that was written to elsewhere would bring its uberblocks with it: nobody takes it unasked.
#[test]
fn a_disk_that_has_gone_another_way_is_left_where_it_is() {
    use pools::State::Degraded;
    let mut apart = Apart::new(GroupKind::Mirror, Class::Normal);
    apart.near_goes_on();
    apart.far_elsewhere(24);
    apart.site.imports(&apart.site.import(named())).unwrap();
    assert_eq!(apart.state().0, Degraded);
    let known = apart.site.here().state.load().unwrap().pools.remove(0);
    assert_eq!(known.paths, apart.site.images.disks());
}

/// Seen red: whichever had more txgs won without a word, and the other's changes were written over.
#[test]
fn disks_that_went_different_ways_are_not_written() {
    for far in [4, 24] {
        let mut apart = Apart::new(GroupKind::Mirror, Class::Normal);
        apart.near_goes_on();
        apart.far_elsewhere(far);
        let both = vec![apart.site.images.path().to_owned(), apart.far.path().to_owned()];
        let request = pools::Import { places: both.clone(), ..apart.site.import(named()) };
        let refused = apart.site.imports(&request).unwrap_err();
        assert!(refused.contains("its disks went different ways"), "{far}: {refused}");
        assert_eq!(apart.site.remembered(), [""; 0]);
        // To be read, or with one of them, it is there.
        let reader = pools::Import { readonly: true, ..request };
        apart.site.imports(&reader).unwrap();
        assert_eq!(apart.site.exports(), [""; 0]);
        std::fs::remove_file(apart.far.disk(0)).unwrap();
        apart.site.imports(&apart.site.import(named())).unwrap();
        apart.site.write("tank/c").unwrap();
    }
}

/// Seen red: a server that began before all disks were there went on from what one of them had had before it was offline.
#[test]
fn what_is_older_than_what_was_closed_is_not_written() {
    use crate::state::Closed;
    let mut site = Site::new();
    let state = site.here().state;
    let guid = state.load().unwrap().pools[0].guid;
    let closed = Closed { txg: 1 << 20, kept_since_ms: 0 };
    state.change(|state| state.note_closed(guid, closed)).unwrap();
    let refused = site.write("tank/a").unwrap_err();
    assert!(refused.contains("currently unavailable"), "{refused}");
    let status = pools::Status { names: vec!["tank".into()], ..Default::default() };
    assert!(site.engine.pool_status(&status).unwrap()[0].is_ok(), "it is read");
    // Who wants what is left says so.
    let request = pools::Export { names: vec!["tank".into()], force: true, ..Default::default() };
    assert!(site.engine.pool_export(&request).unwrap().is_empty());
    site.imports(&site.import(named())).unwrap();
    site.write("tank/a").unwrap();
}

/// Between a look at a device and its lock another command may make a pool of it; `-f` does not help against that.
#[test]
fn what_a_device_holds_is_looked_at_under_its_lock() {
    use crate::local::lifecycle::open_leaf;
    let site = Site::new();
    let (doing, disk) = (Doing::Create("mine".into()), site.images.disk(0));
    let refused = open_leaf(&site.here(), &doing, &disk, true).map(drop).unwrap_err().to_string();
    assert!(refused.contains("is part of active pool 'tank'"), "{refused}");
    let other = Here { state: StateFile::new(temp_dir().path().join("pools")), ..site.here() };
    let refused = open_leaf(&other, &doing, &disk, false).map(drop).unwrap_err().to_string();
    assert!(refused.contains("is part of potentially active pool 'tank'"), "{refused}");
    assert!(open_leaf(&other, &doing, &disk, true).is_ok());
}

/// Seen red: an import remembered the spares of all pools that it saw.
#[test]
fn others_spares_are_not_remembered() {
    let (images, dir) = (fresh_images(4, 64 << 20), temp_dir());
    let disks = images.disks();
    let mut engine = engine(&dir);
    for (name, own) in [("tank", &disks[..2]), ("other", &disks[2..])] {
        let group =
            Group { kind: GroupKind::Single, class: Class::Normal, devices: vec![own[0].clone()] };
        let layout =
            Layout { groups: vec![group], spares: vec![own[1].clone()], ..Layout::default() };
        let create = pools::Create { name: name.into(), layout, ..Default::default() };
        engine.pool_create(&create).unwrap();
    }
    let mut site = Site { engine, images, dir };
    assert_eq!(site.exports(), [""; 0]);
    site.imports(&site.import(named())).unwrap();
    let mut known = site.here().state.load().unwrap().pools;
    known.retain(|known| known.name == "tank");
    assert_eq!(known[0].paths, disks[..2]);
}

/// Seen red: they were taken without a word, and not set.
#[test]
fn properties_of_an_import_are_set() {
    let (images, dir) = (fresh_images(1, 64 << 20), temp_dir());
    let mut engine = engine(&dir);
    let bare = pools::Create { no_features: true, ..create(&images, GroupKind::Single) };
    engine.pool_create(&bare).unwrap();
    let mut site = Site { engine, images, dir };
    assert_eq!(site.exports(), [""; 0]);
    let feature = Feature::ZstdCompress.info().name;
    let properties = vec![
        (PoolKey::Native(PoolProp::Ashift), Value::Number(12)),
        (PoolKey::Feature(feature.into()), Value::Number(1)),
    ];
    site.imports(&pools::Import { properties, ..site.import(named()) }).unwrap();
    let status = pools::Status { names: vec!["tank".into()], ..Default::default() };
    let report = site.engine.pool_status(&status).unwrap().remove(0).unwrap();
    let value = |key| report.property(&key).map(|(value, _)| value.clone());
    assert_eq!(value(PoolKey::Native(PoolProp::Ashift)), Some(Value::Number(12)));
    let enabled = value(PoolKey::Feature(feature.into()));
    assert_eq!(enabled, Some(Value::text("enabled")));
    assert!(site.dir.path().exists());
}
