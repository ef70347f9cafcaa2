//! Devices under the seeded scheduler: one seed, one history of decisions and device writes.

use super::*;
use crate::WriteDevice;
use crate::queue::{Batch, Class, LeafQueue, Options};
use rt::sim::{Trace, run};
use rt::sync::{Arc, Mutex};
use std::collections::BTreeSet;
use std::time::Duration;

/// Three threads that write to two disks with a lock between them, one disk slow, and the log.
fn workload(seed: u64) -> (Trace, u64, Vec<(usize, u64)>) {
    let result = Arc::new(Mutex::new((0, Vec::new())));
    let seen = result.clone();
    let trace = run(seed, move || {
        let set = SimSet::new(2, 1 << 20);
        set.record();
        set.disk(1).inject(Fault::new(Kind::Slow(Duration::from_millis(8)), On::All));
        let next = Arc::new(Mutex::new(0u64));
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let (set, next) = (set.clone(), next.clone());
                rt::thread::spawn(format!("writer {n}"), move || {
                    for _ in 0..4 {
                        let at = {
                            let mut next = next.lock();
                            *next += 512;
                            *next
                        };
                        let disk = set.disk(rt::Rng::new(at).index(2));
                        disk.write_at(at, &[n; 512]).expect("writes");
                        if at % 2048 == 0 {
                            disk.flush().expect("flushes");
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(rt::thread::JoinHandle::join);
        let log = set.log();
        let writes = log.events().iter().filter_map(|event| match event {
            Event::Write { disk, offset, .. } => Some((*disk, *offset)),
            _ => None,
        });
        *seen.lock() = (set.trace(), writes.collect());
    });
    let (disks, writes) = std::mem::take(&mut *result.lock());
    (trace, disks, writes)
}

#[test]
fn one_seed_gives_one_trace_and_others_differ() {
    let mut traces = BTreeSet::new();
    let mut orders = BTreeSet::new();
    for seed in 0..30 {
        let once = workload(seed);
        assert_eq!(once, workload(seed), "seed {seed} gives the same history twice");
        assert_eq!(once.2.len(), 12);
        traces.insert((once.0.hash, once.1));
        orders.insert(once.2);
    }
    assert_eq!(traces.len(), 30, "every seed has a history of its own");
    assert!(orders.len() > 15, "the disks see the writes in many orders: {}", orders.len());
}

/// Queues with threads, one disk that hangs for a while: whatever the schedule, everybody gets an
/// answer, buffers come back, and what was answered is true. The deadlines are of virtual time.
#[test]
fn a_hung_disk_whatever_the_schedule() {
    rt::sim::check(0..200, || {
        let set = SimSet::new(2, 1 << 20);
        let pool = rt::BufPool::new(1 << 20);
        let queues = [0, 1].map(|n| LeafQueue::new(set.disk(n), Options::threads(2), pool.clone()));
        let fault = set.disk(0).inject(Fault::new(Kind::Hang, On::Writes).times(1));
        let batch = Batch::new();
        for (place, at) in [(0, 0), (0, 512), (1, 0), (1, 512)] {
            queues[place].write(&batch, Class::SyncWrite, at, vec![Arc::new([7u8; 512])]);
        }
        let outcomes = batch.wait();
        // A thread of its own may be slow enough for its I/O to be late; only the lie is forbidden.
        for (outcome, (disk, at)) in outcomes.iter().zip([(0, 0), (0, 512), (1, 0), (1, 512)]) {
            let mut bytes = [0; 512];
            set.disk(disk).image().read(at, &mut bytes);
            assert!(outcome.result.is_err() || bytes == [7; 512]);
        }
        let lost = queues[0].state().given_up;
        assert!(lost >= 1, "one of them hangs");
        set.disk(0).lift(fault);
        while queues.iter().any(|q| q.state().active + q.state().waiting > 0) {
            rt::time::sleep(Duration::from_millis(1));
        }
        assert_eq!(queues[0].state().lost, 0);
        // Any I/O may be late again; one is not, some time.
        while queues[0].write_at(0, &[9; 512]).is_err() {
            rt::time::sleep(Duration::from_millis(1));
        }
        drop(queues);
    });
}

/// The check above must fail for what is not drawn from the seed: here, an address.
#[test]
fn what_does_not_come_from_the_seed_is_found() {
    let leaky = |kept: &mut Vec<Box<u64>>| {
        kept.push(Box::new(0));
        let address = std::ptr::from_ref(&**kept.last().expect("just pushed")) as u64;
        run(1, move || {
            let disk = SimDisk::new(1 << 20);
            disk.write_at(0, &address.to_le_bytes()).expect("writes");
            disk.flush().expect("flushes");
        })
    };
    let mut kept = Vec::new();
    assert_ne!(leaky(&mut kept), leaky(&mut kept));
}
