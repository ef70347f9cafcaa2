//! What the allocator gives, keeps back and takes again.

use std::time::Duration;

use rt::sync::Condvar;

use super::*;

fn allocator(tops: u32) -> Allocator {
    let space = |top| TopSpace {
        top,
        ashift: 12,
        ms_shift: 24,
        ms_count: 3,
        allocated: vec![],
        usable: true,
        is_log: false,
    };
    Allocator::new((0..tops).map(space).collect(), 2)
}

fn plain(_: u32, psize: u64) -> u64 {
    psize.next_multiple_of(4096)
}

#[test]
fn consecutive_blocks_lie_next_to_each_other() {
    let a = allocator(1);
    let first = a.allocate(0, 0, 131_072, &[], &plain).unwrap();
    let second = a.allocate(0, 0, 512, &[], &plain).unwrap();
    assert_eq!(second.offset, first.offset + first.asize);
    assert_eq!(second.asize, 4096);
    a.settle_all();
    assert_eq!(a.allocated(), 135_168);
}

/// A pool whose files come and go stays in the metaslabs that it has, and does not wander over all of its disks.
#[test]
fn what_was_emptied_is_used_before_what_nobody_has_touched() {
    let space = |top| TopSpace {
        top,
        ashift: 12,
        ms_shift: 24,
        ms_count: 64,
        allocated: vec![],
        usable: true,
        is_log: false,
    };
    let a = Allocator::new(vec![space(0)], 2);
    let mut touched = std::collections::BTreeSet::new();
    for _ in 0..100 {
        // One and a half of a metaslab come, and go again.
        let dvas: Vec<Dva> =
            (0..24).map(|_| a.allocate(0, 0, 1 << 20, &[], &plain).unwrap()).collect();
        a.settle_all();
        touched.extend(dvas.iter().map(|dva| dva.offset >> 24));
        dvas.iter().for_each(|dva| a.free_dva(*dva).unwrap());
        a.txg_done();
    }
    assert!(touched.len() <= 8, "{touched:?}");
}

#[test]
fn what_is_freed_is_held_until_space_gets_scarce() {
    let a = allocator(1);
    let hold = a.hold();
    let mut freed: Vec<Dva> = Vec::new();
    while !hold.is_broken() {
        let dva = a.allocate(0, 0, 1 << 20, &[], &plain).unwrap();
        assert!(freed.iter().all(|old| old.offset != dva.offset), "handed out while held");
        a.settle_all();
        a.free_dva(dva).unwrap();
        freed.push(dva);
        a.txg_done();
    }
    assert!(freed.len() > 10, "broken after {} MiB of 48", freed.len());
    assert_eq!(hold.during(|| ()), None);
    let held = a.hold();
    assert_eq!(held.during(|| 1), Some(1));
}

#[test]
fn copies_go_to_different_vdevs_and_else_to_different_metaslabs() {
    let a = allocator(2);
    let mut dvas = vec![];
    for copy in 0..3 {
        dvas.push(a.allocate(0, copy, 4096, &dvas, &plain).unwrap());
    }
    assert_ne!(dvas[0].vdev, dvas[1].vdev);
    let same = dvas[..2].iter().find(|d| d.vdev == dvas[2].vdev).unwrap();
    assert_ne!(same.offset >> 24, dvas[2].offset >> 24);
}

/// However many leases are used up: while there is room, copies never share a vdev.
#[test]
fn copies_stay_on_different_vdevs_as_leases_move_on() {
    let a = allocator(2);
    for block in 0..900 {
        let psize = if block % 3 == 0 { 131_072 } else { 4096 };
        let first = a.allocate(0, 0, psize, &[], &plain).unwrap();
        if block % 2 == 0 {
            let second = a.allocate(0, 1, psize, &[first], &plain).unwrap();
            assert_ne!(first.vdev, second.vdev, "block {block}");
        }
    }
}

#[test]
fn every_byte_can_be_allocated_once_and_then_no_space_is_said() {
    let a = allocator(1);
    let mut seen = RangeSet::new();
    let mut count = 0;
    loop {
        match a.allocate(count % 2, 0, 131_072, &[], &plain) {
            Ok(dva) => assert!(seen.add(dva.offset, dva.asize)),
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("{e}"),
        }
        count += 1;
    }
    assert_eq!(seen.total(), 3 << 24);
}

#[test]
fn a_block_is_freed_once() {
    let a = allocator(1);
    let dva = a.allocate(0, 0, 4096, &[], &plain).unwrap();
    a.settle_all();
    a.free_dva(dva).unwrap();
    assert!(matches!(a.free_dva(dva), Err(StoreError::Map { .. })));
}

/// Space maps whose disks answer when they are told to.
#[derive(Default)]
struct Slow {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    asked: Vec<(u32, u64)>,
    /// So many of those who asked have their answer.
    answered: usize,
    /// Nobody told them to: who should have waits for the map himself.
    gave_up: bool,
}

impl Slow {
    fn wait_until(&self, done: impl Fn(&Waiting) -> bool) -> bool {
        let mut state = self.state.lock();
        let start = rt::time::now();
        while !done(&state) && start.elapsed() < Duration::from_secs(2) {
            state = self.changed.wait_timeout(state, Duration::from_millis(100)).0;
        }
        done(&state)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let out = change(&mut self.state.lock());
        self.changed.notify_all();
        out
    }
}

impl SpaceMaps for Slow {
    /// Who asks first learns of one block.
    fn load(&self, top: u32, index: u64, into: &mut Metaslab) -> Result<()> {
        let before = self.change(|state| {
            state.asked.push((top, index));
            state.asked.len() - 1
        });
        if !self.wait_until(|state| state.answered > before) {
            self.change(|state| state.gave_up = true);
        }
        if before == 0 {
            into.load_alloc(into.start, 4096).unwrap();
        }
        Ok(())
    }
}

fn with_slow_maps() -> (Arc<Allocator>, Arc<Slow>) {
    let (allocator, slow) = (Arc::new(allocator(1)), Arc::new(Slow::default()));
    allocator.set_space_maps(slow.clone());
    (allocator, slow)
}

const FIRST: Dva = Dva { vdev: 0, offset: 0, asize: 4096, gang: false };

#[test]
fn only_who_needs_a_map_waits_for_it() {
    let (allocator, slow) = with_slow_maps();
    let worker = {
        let allocator = allocator.clone();
        rt::thread::spawn("worker", move || allocator.allocate(0, 0, 4096, &[], &plain).unwrap())
    };
    let log = {
        let allocator = allocator.clone();
        rt::thread::spawn("log", move || allocator.log_take(4096, &plain).unwrap())
    };
    assert!(slow.wait_until(|state| !state.asked.is_empty()));
    // What status, list and iostat ask, and who ends a txg.
    assert_eq!((allocator.allocated(), allocator.allocated_by_top()), (0, vec![(0, 0)]));
    assert_eq!(
        (allocator.size(), allocator.memory_bytes(), allocator.is_dirty()),
        (3 << 24, 0, false)
    );
    assert_eq!((allocator.resting(), allocator.leased()), (vec![(0, 0)], vec![]));
    let _hold = allocator.hold();
    allocator.txg_done();
    allocator.settle_all();
    assert!(!slow.change(|state| std::mem::replace(&mut state.answered, 2) > 0 || state.gave_up));
    let dvas = [worker.join(), log.join()];
    assert!(dvas[0].offset != dvas[1].offset && dvas.iter().all(|dva| dva.offset != 0), "{dvas:?}");
    // Both may have begun in the same one; each was loaded once.
    let asked = slow.change(|state| state.asked.clone());
    assert!(allocator.is_allocated(FIRST).unwrap() && asked == [(0, 0)], "{asked:?}");
}

/// A map that is read while its vdev goes, and another comes that has its number, is not that one's: neither
/// before that one's is asked for, nor while it is read.
#[test]
fn the_map_of_a_vdev_that_has_gone_is_nobody_s() {
    for asked_for in [false, true] {
        let (allocator, slow) = with_slow_maps();
        let reader = || {
            let allocator = allocator.clone();
            rt::thread::spawn("reader", move || allocator.is_allocated(FIRST).unwrap())
        };
        let of_old = reader();
        assert!(slow.wait_until(|state| state.asked.len() == 1));
        let space = allocator.books.lock().tops[0].space.clone();
        allocator.set_tops(vec![]);
        allocator.set_tops(vec![space]);
        let of_new = asked_for.then(reader);
        if asked_for {
            assert!(slow.wait_until(|state| state.asked.len() == 2));
            slow.change(|state| state.answered = 1);
            // Time for the old one's to be taken, which it is not.
            rt::time::sleep(Duration::from_millis(20));
            assert_eq!(allocator.memory_bytes(), 0);
        }
        slow.change(|state| state.answered = 2);
        let allocated = [Some(of_old), of_new].map(|reader| reader.is_some_and(|r| r.join()));
        assert_eq!(allocated, [false; 2], "it is allocated there");
        assert!(!slow.change(|state| state.gave_up));
    }
}
