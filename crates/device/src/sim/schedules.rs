//! Devices under the seeded scheduler: one seed, one history of decisions and device writes.

use super::*;
use crate::WriteDevice;
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
