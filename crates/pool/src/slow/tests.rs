use super::*;
use device::meter::TIMES;
use rt::Rng;

/// Disks with so many siblings, which get I/Os that take so long, in microseconds.
struct Bench {
    watch: Watch,
    meters: Vec<Meters>,
    rng: Rng,
    groups: u64,
    /// One that lacks a part of the pool.
    lacks: Option<usize>,
}

impl Bench {
    fn new(disks: usize) -> Bench {
        let meters = vec![Meters::default(); disks];
        Bench { watch: Watch::default(), meters, rng: Rng::new(7), groups: 1, lacks: None }
    }

    /// One look's worth of I/Os: `count` of about `micros` each.
    fn work(&mut self, what: What, count: impl Fn(usize) -> u64, micros: impl Fn(usize) -> u64) {
        self.work_of(what, false, count, micros);
    }

    /// As [`Bench::work`]; a scan asks it, or somebody else.
    fn work_of(
        &mut self,
        what: What,
        scan: bool,
        count: impl Fn(usize) -> u64,
        micros: impl Fn(usize) -> u64,
    ) {
        for (disk, meters) in self.meters.iter_mut().enumerate() {
            for _ in 0..count(disk) {
                // Between half of it and twice of it, and now and then ten times.
                let spread = 500 + self.rng.below(1000);
                let late = if self.rng.chance(1, 50) { 10 } else { 1 };
                let ns = micros(disk) * spread * late;
                let times = match what {
                    What::Reads => &mut meters.disk_reads,
                    What::Writes => &mut meters.disk_writes,
                    What::Flushes => &mut meters.disk_flushes,
                };
                let step = (ns.max(1).ilog2() as usize).min(TIMES - 1);
                times[step] += 1;
                match what {
                    What::Reads => meters.scan_reads[step] += u64::from(scan),
                    What::Writes => meters.scan_writes[step] += u64::from(scan),
                    What::Flushes => {}
                }
            }
        }
    }

    fn look(&mut self) -> Vec<News> {
        let sample = |(disk, meters): (usize, &Meters)| Sample {
            guid: disk as u64,
            name: format!("d{disk}"),
            group: disk as u64 % self.groups,
            disk: true,
            lacks: self.lacks == Some(disk),
            meters: meters.clone(),
        };
        self.watch.look(self.meters.iter().enumerate().map(sample).collect())
    }

    fn slow(&self) -> Vec<u64> {
        self.watch.slow().iter().map(|slow| slow.guid).collect()
    }
}

/// After how many looks it is named.
fn looks_until_named(what: What, micros: impl Fn(usize) -> u64) -> Option<u32> {
    let mut bench = Bench::new(10);
    (1..=60).find(|_| {
        bench.work(what, |_| 60, &micros);
        let news = bench.look();
        assert!(news.iter().all(|news| matches!(news, News::Slow(slow) if slow.guid == 3)));
        !news.is_empty()
    })
}

/// One of ten takes five times as long: it is named within a minute, whatever it is slow at.
#[test]
fn one_of_ten_is_named() {
    for what in What::ALL {
        for usual in [300, 1_000, 1_500, 2_000, 9_000, 15_000] {
            let looks = looks_until_named(what, |disk| usual * if disk == 3 { 5 } else { 1 });
            let looks = looks.unwrap_or_else(|| panic!("{what:?} of {usual} us"));
            assert!(LOOK * (looks + 1) < Duration::from_secs(60), "{what:?} {usual}: {looks}");
        }
    }
}

#[test]
fn what_is_no_trouble_is_not_named() {
    // Twice as long, or five times of nearly nothing.
    assert_eq!(looks_until_named(What::Reads, |disk| if disk == 3 { 9_000 } else { 5_000 }), None);
    assert_eq!(looks_until_named(What::Reads, |disk| if disk == 3 { 50 } else { 10 }), None);
    // All are as slow.
    assert_eq!(looks_until_named(What::Writes, |_| 90_000), None);
}

/// A disk that hangs now and then, and one that serves less from its own cache than its siblings.
#[test]
fn neither_mean_nor_median_decides_alone() {
    let mut bench = Bench::new(10);
    for look in 0..40 {
        bench.work(What::Reads, |_| 60, |_| 8_000);
        bench.work(What::Reads, |disk| u64::from(disk == 3), |_| 4_000_000);
        assert!(bench.look().is_empty(), "look {look}");
    }
    let mut bench = Bench::new(10);
    for look in 0..40 {
        bench.work(What::Reads, |disk| if disk == 3 { 33 } else { 27 }, |_| 12_000);
        bench.work(What::Reads, |disk| if disk == 3 { 27 } else { 33 }, |_| 100);
        assert!(bench.look().is_empty(), "look {look}");
    }
}

#[test]
fn without_evidence_nothing_is_said() {
    let slow = |disk: usize| if disk == 3 { 100_000 } else { 8_000 };
    // Too few I/Os; nobody who had as much to do; one sibling only.
    let mut bench = Bench::new(10);
    let mut alone = Bench::new(10);
    let mut pair = Bench::new(2);
    for _ in 0..40 {
        bench.work(What::Reads, |_| 3, slow);
        alone.work(What::Reads, |disk| if disk == 3 { 100 } else { 1 }, slow);
        pair.work(What::Reads, |_| 100, |disk| if disk == 1 { 100_000 } else { 8_000 });
        assert!(bench.look().is_empty() && alone.look().is_empty() && pair.look().is_empty());
    }
    // Siblings are those of its own group.
    let mut groups = Bench::new(10);
    groups.groups = 2;
    for _ in 0..40 {
        groups.work(What::Reads, |_| 100, |disk| if disk % 2 == 1 { 100_000 } else { 8_000 });
        assert!(groups.look().is_empty());
    }
}

/// A few I/Os that took very long say as much as many.
#[test]
fn a_disk_that_hardly_answers_is_named() {
    let mut bench = Bench::new(10);
    for _ in 0..10 {
        bench.work(What::Reads, |_| 4, |disk| if disk == 3 { 2_000_000 } else { 8_000 });
        drop(bench.look());
    }
    assert_eq!(bench.slow(), [3]);
}

#[test]
fn who_keeps_up_again_is_no_longer_slow() {
    let mut bench = Bench::new(10);
    for _ in 0..8 {
        bench.work(What::Reads, |_| 60, |disk| if disk == 3 { 50_000 } else { 8_000 });
        drop(bench.look());
    }
    assert_eq!(bench.slow(), [3]);
    let said = bench.watch.slow().remove(0);
    assert!(said.time > 3 * said.siblings && said.count >= COUNT_MIN, "{said:?}");
    // Nothing to do says nothing.
    for _ in 0..10 {
        assert!(bench.look().is_empty());
    }
    assert_eq!(bench.slow(), [3]);
    let mut news = Vec::new();
    for _ in 0..8 {
        bench.work(What::Reads, |_| 60, |_| 8_000);
        news.extend(bench.look());
    }
    assert!(matches!(&news[..], [News::Recovered(slow)] if slow.guid == 3), "{news:?}");
    assert_eq!(bench.slow(), [0; 0]);
}

/// A disk that is filled gets large writes, and others small ones; so does one that is mended.
#[test]
fn who_is_given_what_others_have_is_not_named() {
    let micros = |disk| if disk == 3 { 9_000 } else { 1_000 };
    let (mut filled, mut mended) = (Bench::new(10), Bench::new(10));
    filled.lacks = Some(3);
    for look in 0..20 {
        filled.work(What::Writes, |_| 60, micros);
        filled.work_of(What::Writes, true, |disk| if disk == 3 { 100 } else { 0 }, micros);
        mended.work(What::Writes, |_| 60, |_| 1_000);
        mended.work_of(What::Writes, true, |disk| if disk == 3 { 100 } else { 0 }, micros);
        assert!(filled.look().is_empty() && mended.look().is_empty(), "look {look}");
    }
    // Once it has everything it is judged by what it does from then on.
    filled.lacks = None;
    for look in 0..20 {
        filled.work(What::Writes, |_| 60, |_| 1_000);
        assert!(filled.look().is_empty(), "look {look}");
    }
    (0..10).for_each(|_| {
        filled.work(What::Writes, |_| 60, micros);
        drop(filled.look());
    });
    assert_eq!(filled.slow(), [3]);
    // What was said of one that has to be filled stands.
    filled.lacks = Some(3);
    (0..10).for_each(|_| {
        filled.work(What::Writes, |_| 60, |_| 1_000);
        assert!(filled.look().is_empty());
    });
    assert_eq!(filled.slow(), [3]);
}

/// A scan reads large pieces, of a mirror from one disk: they are compared with those that others read for it.
#[test]
fn what_a_scan_reads_is_compared_with_what_scans_read() {
    let mut source = Bench::new(10);
    for look in 0..20 {
        source.work(What::Reads, |_| 60, |_| 1_000);
        source.work_of(What::Reads, true, |disk| if disk == 3 { 100 } else { 0 }, |_| 9_000);
        assert!(source.look().is_empty(), "look {look}");
    }
    let mut scrubbed = Bench::new(10);
    for _ in 0..20 {
        scrubbed.work(What::Reads, |_| 60, |_| 1_000);
        scrubbed.work_of(What::Reads, true, |_| 60, |disk| if disk == 3 { 50_000 } else { 9_000 });
        drop(scrubbed.look());
    }
    assert_eq!(scrubbed.slow(), [3]);
    // Of a disk that was slow for a scan it is seen without one, too, that it keeps up again.
    let mut news = Vec::new();
    for _ in 0..10 {
        scrubbed.work(What::Reads, |_| 60, |_| 1_000);
        news.extend(scrubbed.look());
    }
    assert!(matches!(&news[..], [News::Recovered(slow)] if slow.guid == 3), "{news:?}");
}
