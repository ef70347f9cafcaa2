//! The forest while its disks live: they are scrubbed, go offline and come back, are replaced, have spares stand in for
//! them, and lie.
//!
//! The one idea: nothing of that is seen in the forest. In the middle of it our own judge excuses only what a DTL tells;
//! once all is given that was lacking, as many disks may be lost as ever, first those that others were given from.
//!
//! Seen red: a resilver that leaves out a block in five, one that does not wait for who came back in its middle, a scrub
//! that mends nothing, a new disk that lacks only the last twenty txgs, and a spare that lacks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;

use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, assert_verified, engine, judges};
use device::WriteFile;
use format::config::{VdevConfig, VdevKind};
use format::label::DATA_AT;
use format::scan::ScanFunction;
use pool::{Additions, NewLeaf, Pool};
use pool::{ScanAnswer, ScanStep, Trouble};
use rt::sync::Arc;
use testkit::random::Rng;
use testkit::{Images, rounds};
use verify::FindingKind;

const POOL: &str = engine::POOL;
/// What stands behind the allocatable space of a leaf, in bytes.
const END: u64 = 512 << 10;

/// The work that must come: asked for, and what comes of it.
const KINDS: [&str; 14] = [
    "scrub",
    "scrub to its end",
    "pause",
    "resilver to its end",
    "offline",
    "online",
    "replace",
    "of a disk that is away",
    "spare in",
    "spare sent back",
    "spare back by itself",
    "spare for good",
    "noise",
    "mended",
];

/// A leaf of the pool, as the work is drawn by.
struct Place {
    guid: u64,
    /// The number of its image.
    disk: usize,
    /// Does it stand alone in its slot of the vdev?
    alone: bool,
    config: VdevConfig,
}

/// The disks of a pool, and what was done with them.
struct Bay<'a> {
    images: &'a Images,
    shape: &'a Shape,
    rng: Rng,
    /// Where noise is that no scrub has passed yet.
    noisy: Option<usize>,
    /// The scrub under way began when no disk lied: what it mends, a resilver has left out.
    mends_nothing: bool,
    /// Disks that were given something since the last judgement.
    given: BTreeSet<usize>,
    done: BTreeMap<&'static str, u64>,
    /// All of it in order: what disks are asked for depends on times, so a seed does not repeat it to the letter.
    told: Vec<&'static str>,
    seed: u64,
}

impl Drop for Bay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (shape, told) = (self.shape.name, self.told.join(", "));
            drop(writeln!(std::io::stderr(), "{shape}, seed {}: {told}", self.seed));
        }
    }
}

fn disk_of(path: Option<&[u8]>) -> usize {
    let name = String::from_utf8_lossy(path.unwrap()).into_owned();
    name.rsplit_once("/d").unwrap().1.parse().unwrap()
}

/// The places of the only top-level vdev, the leaves in each of them, and whether those have all that they must.
fn slots(pool: &Pool) -> Vec<Vec<(u64, usize, bool)>> {
    let (tree, config) = (pool.store().tree(), pool.config());
    let of = |leaf: &VdevConfig| {
        let known = &tree.leaves()[tree.leaf_by_guid(leaf.guid).unwrap()];
        let whole = known.state.is_online() && known.lacks.is_empty() && !known.is_filling();
        (leaf.guid, disk_of(leaf.path.as_deref()), whole)
    };
    let top = &config.vdev_tree.children[0];
    top.children.iter().map(|place| place.leaves().map(of).collect()).collect()
}

impl Bay<'_> {
    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
        self.told.push(what);
    }

    /// One of the leaves that do not lie and that are `wanted`.
    fn any(&mut self, pool: &Pool, wanted: impl Fn(&VdevConfig) -> bool) -> Option<Place> {
        let config = pool.config();
        let leaves = config.vdev_tree.leaves().filter(|leaf| wanted(leaf));
        let of = |leaf: &VdevConfig| Place {
            guid: leaf.guid,
            disk: disk_of(leaf.path.as_deref()),
            alone: slots(pool).iter().any(|slot| slot.len() == 1 && slot[0].0 == leaf.guid),
            config: leaf.clone(),
        };
        let mut places: Vec<Place> =
            leaves.map(of).filter(|place| Some(place.disk) != self.noisy).collect();
        let index = self.rng.index(places.len().max(1));
        (index < places.len()).then(|| places.swap_remove(index))
    }

    /// Can all be read without this leaf, even if only what lacks nothing is asked?
    fn can_spare(&self, pool: &Pool, leaf: Option<u64>) -> bool {
        let counts = |(guid, disk, whole): &(u64, usize, bool)| {
            *whole && Some(*guid) != leaf && Some(*disk) != self.noisy
        };
        let without = slots(pool).iter().filter(|slot| !slot.iter().any(counts)).count();
        without <= self.shape.spare_copies
    }

    /// An empty disk that is nobody's.
    fn new_disk(&mut self, pool: &Pool) -> (usize, NewLeaf) {
        let (config, spares) = (pool.config(), pool.spares().unwrap());
        let known = config.vdev_tree.leaves().chain(&spares);
        let used: BTreeSet<usize> = known.map(|leaf| disk_of(leaf.path.as_deref())).collect();
        let disk = (0..).find(|disk| !used.contains(disk)).unwrap();
        let path = self.images.disk(disk);
        File::create(&path).unwrap().set_len(self.shape.disk_bytes).unwrap();
        let device = Arc::new(WriteFile::open(&path).unwrap());
        let path = path.as_os_str().as_encoded_bytes().to_vec();
        (disk, NewLeaf { path, is_disk: false, device })
    }

    /// What the engine made of something that it must do if `must`.
    fn took<T>(&mut self, result: pool::Result<T>, must: bool, what: &'static str) -> Option<T> {
        match result {
            Ok(value) => {
                self.did(what);
                Some(value)
            }
            Err(e) => {
                assert!(e.is_refusal() && !must, "{what}: {e}");
                self.did("refused");
                None
            }
        }
    }

    fn resilver(&self, pool: &Pool) {
        if pool.needs_resilver() {
            let answer = pool.scan_start(ScanFunction::Resilver).unwrap();
            assert!(matches!(answer, ScanAnswer::Done | ScanAnswer::Resilvering), "{answer:?}");
        }
    }

    /// Some work on the disks, or none; if `calm`, none but what makes them whole, and scrubs.
    fn step(&mut self, pool: &Arc<Pool>, calm: bool) {
        let calm = calm || self.noisy.is_some() && !self.rng.one_in(4);
        match self.rng.below(if calm { 17 } else { 24 }) {
            0..8 => {
                let larger = if calm { 5 } else { self.rng.below(5) };
                self.slice(pool, (256 << 10) << larger);
            }
            8..10 => self.begin(pool),
            10 => pool.scan_save().unwrap(),
            11 => self.pause(pool),
            12..14 => self.noise(pool),
            14..17 => self.online(pool),
            17..19 => self.offline(pool),
            19 => self.replace(pool),
            20..22 => self.spare_in(pool),
            _ => self.spare_back(pool),
        }
    }

    fn begin(&mut self, pool: &Pool) {
        if pool.needs_resilver() {
            self.resilver(pool);
        } else if pool.scan_start(ScanFunction::Scrub).unwrap() == ScanAnswer::Done {
            self.mends_nothing = self.noisy.is_none();
            self.did("scrub");
        }
    }

    fn pause(&mut self, pool: &Pool) {
        if pool.scan_pause().unwrap() == ScanAnswer::Done {
            self.did("pause");
        }
    }

    fn slice(&mut self, pool: &Pool, bytes: u64) {
        let spares = |pool: &Pool| pool.config().vdev_tree.leaves().filter(|l| l.is_spare).count();
        let before = spares(pool);
        match pool.scan_step_within(bytes).unwrap() {
            ScanStep::Later => {
                pool.sync().unwrap();
            }
            ScanStep::Done => self.ended(pool),
            ScanStep::Idle | ScanStep::More => {}
        }
        if spares(pool) < before {
            self.did("spare back by itself");
        }
    }

    fn ended(&mut self, pool: &Pool) {
        let status = pool.scan_status().unwrap().unwrap();
        assert_eq!(status.scan.errors, 0, "{status:?}");
        // A spare that lied has stood back.
        let is_there = |disk: &usize| slots(pool).iter().flatten().any(|leaf| leaf.1 == *disk);
        self.noisy = self.noisy.filter(is_there);
        if status.is_resilver() {
            self.did("resilver to its end");
            return self.resilver(pool);
        }
        self.did("scrub to its end");
        assert!(!self.mends_nothing || status.scan.processed == 0, "{status:?}");
        // Readers and resilvers may have come before it.
        if self.noisy.take().is_some() && status.scan.processed > 0 {
            self.did("mended");
        }
    }

    fn offline(&mut self, pool: &Pool) {
        let in_use = |leaf: &VdevConfig| !leaf.is_spare && !leaf.offline && !leaf.faulted;
        let Some(place) = self.any(pool, in_use) else { return };
        let may = self.can_spare(pool, Some(place.guid));
        // Of noise the engine does not know.
        if may || self.noisy.is_none() {
            self.took(pool.offline(place.guid, false, false), may, "offline");
        }
    }

    fn online(&mut self, pool: &Pool) {
        let Some(place) = self.any(pool, |leaf| leaf.offline) else { return };
        self.took(pool.online(place.guid, None), true, "online");
        self.given.insert(place.disk);
        self.resilver(pool);
    }

    fn replace(&mut self, pool: &Pool) {
        // One that is away is seldom met by chance.
        let away = match self.rng.one_in(2) {
            true => self.any(pool, |leaf| leaf.offline && !leaf.is_spare),
            false => None,
        };
        let Some(place) = away.or_else(|| self.any(pool, |leaf| !leaf.is_spare)) else { return };
        let (disk, new) = self.new_disk(pool);
        let what = if place.config.offline { "of a disk that is away" } else { "replace" };
        if self.took(pool.attach(place.guid, new, true), place.alone, what).is_some() {
            self.given.insert(disk);
            self.resilver(pool);
        }
    }

    fn spare_in(&mut self, pool: &Pool) {
        let config = pool.config();
        let is_waiting = |spare: &VdevConfig| config.vdev_tree.find(spare.guid).is_none();
        let Some(spare) = pool.spares().unwrap().into_iter().find(is_waiting) else { return };
        let Some(place) = self.any(pool, |leaf| !leaf.is_spare) else { return };
        let disk = disk_of(spare.path.as_deref());
        let device = Arc::new(WriteFile::open(self.images.disk(disk)).unwrap());
        let trouble = match self.noisy {
            None => *self.rng.pick(&[Trouble::Unnoted, Trouble::Degraded, Trouble::Faulted]),
            Some(_) => Trouble::Unnoted,
        };
        let engaged = pool.engage(place.guid, spare.guid, device, trouble);
        if self.took(engaged, place.alone, "spare in").is_some() {
            self.given.insert(disk);
            self.resilver(pool);
        }
    }

    /// A spare is sent away, or its disk is whole again, or goes for good.
    fn spare_back(&mut self, pool: &Pool) {
        let Some(spare) = self.any(pool, |leaf| leaf.is_spare) else { return };
        let config = pool.config();
        let mut above = config.vdev_tree.walk().filter(|vdev| vdev.kind == VdevKind::Spare);
        let above = above.find(|vdev| vdev.children.iter().any(|leaf| leaf.guid == spare.guid));
        let Some(old) = above.map(|vdev| &vdev.children[0]).filter(|old| old.kind.is_leaf()) else {
            return;
        };
        let lies = self.noisy == Some(disk_of(old.path.as_deref()));
        let way = self.rng.below(3);
        let may = |goes: u64| self.can_spare(pool, Some(goes));
        match way {
            _ if old.offline => {}
            0 if may(spare.guid) => {
                self.took(pool.detach(spare.guid), true, "spare sent back");
            }
            1 if !lies && may(old.guid) => {
                self.took(pool.detach(old.guid), true, "spare for good");
                let spares = vec![self.new_disk(pool).1];
                pool.add(Additions { spares, ..Additions::default() }).unwrap();
            }
            2 => {
                match old.faulted || old.degraded {
                    true => pool.use_again(Some(old.guid)).unwrap(),
                    false => pool.is_back(old.guid).unwrap(),
                }
                self.given.insert(disk_of(old.path.as_deref()));
                if pool.config().vdev_tree.find(spare.guid).is_none() {
                    self.did("spare back by itself");
                }
                self.resilver(pool);
            }
            _ => {}
        }
    }

    /// Noise on a disk wherever something is, as long as nothing else is wanting.
    fn noise(&mut self, pool: &Pool) {
        let is_whole = slots(pool).iter().flatten().all(|(_, _, whole)| *whole);
        if self.noisy.is_some() || !is_whole {
            return;
        }
        let Some(place) = self.any(pool, |_| true) else { return };
        // One under way may have passed what is hurt now.
        let _was_scrubbing = pool.scan_stop().unwrap();
        pool.sync().unwrap();
        garble(&self.images.disk(place.disk), &mut self.rng);
        self.noisy = Some(place.disk);
        self.given.insert(place.disk);
        self.did("noise");
        self.begin(pool);
    }

    /// All that is wanting is given.
    fn settle(&mut self, pool: &Pool) {
        while self.any(pool, |leaf| leaf.offline).is_some() {
            self.online(pool);
        }
        let away = pool.config().vdev_tree;
        let away = away.leaves().filter(|leaf| leaf.faulted || leaf.degraded);
        self.given.extend(away.map(|leaf| disk_of(leaf.path.as_deref())));
        pool.use_again(None).unwrap();
        for turn in 0.. {
            assert!(turn < 8, "it does not come to its end: {:?}", pool.scan_status());
            self.resilver(pool);
            if self.noisy.is_some() && !pool.is_scanning() {
                self.begin(pool);
            }
            if !pool.is_scanning() {
                break;
            }
            assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
            self.ended(pool);
        }
        pool.finish_replacements().unwrap();
        let slots = slots(pool);
        assert!(slots.iter().flatten().all(|(_, _, whole)| *whole), "{slots:?}");
        assert_eq!(slots.len(), self.shape.disks);
        let replaced = |vdev: &VdevConfig| vdev.kind == VdevKind::Replacing;
        assert!(!pool.config().vdev_tree.walk().any(replaced), "{slots:?}");
    }

    /// As many disks as may be lost, first those that were given nothing; and one of two that are in one place.
    fn choose_hidden(&mut self, pool: &Pool) -> Vec<usize> {
        let slots = slots(pool);
        let disks = |slot: &[(u64, usize, bool)]| slot.iter().map(|leaf| leaf.1).collect();
        let mut slots: Vec<Vec<usize>> = slots.iter().map(|slot| disks(slot)).collect();
        for place in (1..slots.len()).rev() {
            slots.swap(place, self.rng.index(place + 1));
        }
        let given = |slot: &&Vec<usize>| slot.iter().any(|disk| self.given.contains(disk));
        let (last, first): (Vec<_>, Vec<_>) = slots.iter().partition(given);
        let mut hidden = Vec::new();
        for (place, slot) in first.into_iter().chain(last).enumerate() {
            match place < self.shape.spare_copies {
                true => hidden.extend(slot),
                false if slot.len() > 1 => hidden.push(slot[self.rng.index(slot.len())]),
                false => {}
            }
        }
        hidden
    }
}

/// Noise on an image wherever something is, but not on its labels.
fn garble(path: &Path, rng: &mut Rng) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let end = file.metadata().unwrap().len() - END;
    let mut piece = vec![0; 64 << 10];
    for at in (DATA_AT..end).step_by(piece.len()) {
        file.read_exact_at(&mut piece, at).unwrap();
        if piece.iter().any(|byte| *byte != 0) {
            rng.fill(&mut piece);
            file.write_all_at(&piece, at).unwrap();
        }
    }
}

/// In the middle of it: nothing is lost, and no disk is wrong but the noisy one, where no DTL tells.
fn assert_sound(images: &Images, noisy: Option<usize>) {
    let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
    let found = scan.choose(POOL).unwrap();
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| true).unwrap();
    let other = report.findings.iter().any(|finding| finding.kind != FindingKind::Label);
    let noisy = noisy.map(|disk| format!("d{disk:02}"));
    let wrong = report.devices.iter().any(|device| {
        let lies = noisy.as_ref().is_some_and(|name| device.device.ends_with(name));
        !lies && device.read_errors + device.bad_blocks > 0
    });
    assert!(report.blocks > 0 && report.lost_blocks == 0 && !other && !wrong, "{report:#?}");
}

/// The forest is there without these disks, of which nothing is written.
fn assert_there_without(images: &Images, hidden: &[usize], forest: &Forest) {
    let rest = images.without(hidden);
    let pool = engine::open_to_look(rest.path(), POOL);
    forest.check(&pool);
    pool.close().unwrap();
}

fn lives(shape: &Shape, seed: u64, steps: u64, phases: u64) {
    let (images, mut session) = Session::create(shape, 16 << 10);
    let mut forest = Forest::plant(session.pool(), seed);
    let mut bay = Bay {
        images: &images,
        shape,
        rng: Rng::of(seed, 1717),
        noisy: None,
        mends_nothing: false,
        given: BTreeSet::new(),
        done: BTreeMap::new(),
        told: Vec::new(),
        seed,
    };
    let (_, spare) = bay.new_disk(session.pool());
    session.pool().add(Additions { spares: vec![spare], ..Additions::default() }).unwrap();
    let reopen = |session: &mut Session, forest: &mut Forest, between: &mut dyn FnMut(&Forest)| {
        forest.let_go();
        session.close().unwrap();
        between(forest);
        *session = Session::open(images.path(), POOL, POOL).unwrap();
    };
    for phase in 0..phases {
        let each = steps / phases;
        // What has not come by then comes in the last phase, however long that is.
        for step in 0.. {
            let missing = KINDS.iter().filter(|kind| !bay.done.contains_key(*kind));
            let missing: Vec<_> = missing.filter(|_| phase + 1 == phases).collect();
            if step >= each && missing.is_empty() {
                break;
            }
            assert!(step < 20 * each, "{missing:?} did not come: {:?}", bay.done);
            forest.step(session.pool());
            bay.step(session.pool(), step / 30 % 2 == 1);
            if step == each / 2 || bay.rng.one_in(200) {
                let noisy = bay.noisy;
                reopen(&mut session, &mut forest, &mut |_| assert_sound(&images, noisy));
                forest.check(session.pool());
            }
        }
        bay.settle(session.pool());
        forest.check(session.pool());
        let hidden = bay.choose_hidden(session.pool());
        reopen(&mut session, &mut forest, &mut |forest| {
            judges::judge_without(&images, POOL, &hidden);
            assert_verified(images.path(), POOL);
            assert_there_without(&images, &hidden, forest);
        });
        bay.given.clear();
    }
}

#[test]
fn a_forest_while_its_disks_live() {
    const SMALL: Shape = Shape { name: "raidz2 of 6", disks: 6, tops: 1, ..SHAPES[5] };
    let shapes = [&SHAPES[2], &SMALL, &SHAPES[1], &SHAPES[4]];
    for seed in 1..=rounds(1, 20) {
        lives(shapes[(seed % 4) as usize], seed, rounds(400, 2_000), rounds(2, 6));
    }
}
