use super::*;
use crate::sync::atomic::AtomicU64;
use crate::time;
use std::panic::catch_unwind;
use std::time::Duration;

#[test]
fn each_job_once_in_every_size() {
    for count in [0, 1, 2, 3, 8] {
        let workers = Workers::new(count);
        assert_eq!(workers.count(), count.max(1));
        for jobs in [0, 1, 2, 7, 1000] {
            let calls: Vec<AtomicU64> = (0..jobs).map(|_| AtomicU64::new(0)).collect();
            workers.run(jobs, |worker, job| {
                assert!(worker < workers.count());
                calls[job].fetch_add(1, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn borrowed_results_are_there_after_the_run() {
    let workers = Workers::new(4);
    for round in 0..500u64 {
        let slots: Vec<Mutex<u64>> = (0..16).map(|_| Mutex::new(0)).collect();
        workers.run(16, |_, job| *slots[job].lock() = round + job as u64);
        let sum: u64 = slots.into_iter().map(Mutex::into_inner).sum();
        assert_eq!(sum, 16 * round + 120);
    }
}

#[test]
fn tallies_by_worker_need_no_contention() {
    let workers = Workers::new(3);
    let tallies: Vec<Mutex<u64>> = (0..3).map(|_| Mutex::new(0)).collect();
    workers.run(300, |worker, job| {
        // Uncontended by the promise that no two threads share an index.
        *tallies[worker].try_lock().expect("only this thread has this index") += job as u64;
    });
    let sum: u64 = tallies.into_iter().map(Mutex::into_inner).sum();
    assert_eq!(sum, 299 * 150);
}

#[test]
fn others_do_take_part() {
    let workers = Workers::new(2);
    let seen = [AtomicU64::new(0), AtomicU64::new(0)];
    // Two jobs that wait for each other can only end if two threads run them.
    let met = AtomicU64::new(0);
    workers.run(2, |worker, _| {
        seen[worker].fetch_add(1, Ordering::Relaxed);
        met.fetch_add(1, Ordering::SeqCst);
        while met.load(Ordering::SeqCst) < 2 {
            time::sleep(Duration::from_micros(50));
        }
    });
    assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let workers = Workers::new(3);
    for jobs in [1, 2, 100] {
        let called = AtomicU64::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            workers.run(jobs, |_, job| {
                called.fetch_add(1, Ordering::Relaxed);
                assert!(job != jobs / 2, "job {job} is broken");
            });
        }));
        let payload = outcome.expect_err("the panic came through");
        let text = payload.downcast_ref::<String>().expect("a formatted message");
        assert_eq!(*text, format!("job {} is broken", jobs / 2));
        assert!(called.load(Ordering::Relaxed) > jobs as u64 / 2);
        workers.run(10, |_, _| ());
    }
}

#[test]
fn runs_nest_and_run_side_by_side() {
    let workers = Arc::new(Workers::new(3));
    let total = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (workers, total) = (workers.clone(), total.clone());
            thread::spawn(format!("caller {n}"), move || {
                for _ in 0..50 {
                    workers.run(5, |_, _| {
                        workers.run(5, |_, _| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(thread::JoinHandle::join);
    assert_eq!(total.load(Ordering::Relaxed), 4 * 50 * 25);
}

/// Not a measurement, a fence: a run must not cost what starting a thread costs.
#[test]
fn a_run_is_cheap() {
    let workers = Workers::new(2);
    let start = time::now();
    for _ in 0..2_000 {
        workers.run(2, |_, _| ());
    }
    let each = start.elapsed() / 2_000;
    println!("a run of two empty jobs takes {each:?}");
    assert!(each < Duration::from_millis(1), "{each:?}");
}
