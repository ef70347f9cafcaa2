use super::*;
use crate::sim::SimDisk;
use rt::Rng;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A disk of 2 TB, sparse in memory, on a clock of its own.
fn disk(parameters: Parameters) -> (Spinning<SimDisk>, VirtualClock) {
    let clock = VirtualClock::new();
    // The image is a window of the disk: only offsets matter to the model.
    let device = SimDisk::new(parameters.capacity);
    (Spinning::on_clock(device, parameters, clock.clone()), clock)
}

fn plain() -> Parameters {
    Parameters { write_cache: 0, read_ahead: 0, ..Parameters::disk_2tb_7200() }
}

fn seconds(clock: &VirtualClock, body: impl FnOnce()) -> f64 {
    let before = clock.now();
    body();
    (clock.now() - before).as_secs_f64()
}

#[test]
fn random_reads_are_what_the_data_sheet_says() {
    let (disk, clock) = disk(plain());
    let mut rng = Rng::new(1);
    let mut buf = [0; 4096];
    let took = seconds(&clock, || {
        for _ in 0..1_000 {
            disk.read_at(rng.below(disk.size() - 4096), &mut buf).expect("reads");
        }
    });
    // An average seek of 8.5 ms and half a turn of 8.3 ms: 12.7 ms, 79 a second.
    assert!((12.0..13.5).contains(&took), "{took} ms each");
    assert!(disk.busy().as_secs_f64() / took > 0.9);
}

#[test]
fn nearby_is_faster_than_far() {
    let mut buf = [0; 4096];
    let mut mean = |span: u64| {
        let (disk, clock) = disk(plain());
        let mut rng = Rng::new(2);
        seconds(&clock, || {
            for _ in 0..500 {
                disk.read_at(rng.below(span), &mut buf).expect("reads");
            }
        }) * 2.0
    };
    let spans: Vec<f64> = [MIB * 100, MIB * 200_000, MIB * 1_900_000].map(&mut mean).into();
    assert!(spans[0] * 1.3 < spans[1] && spans[1] * 1.3 < spans[2], "{spans:?} ms");
    assert!(spans[0] > 4.1, "half a turn is never saved: {} ms", spans[0]);
}

#[test]
fn streams_run_at_the_rate_of_their_zone() {
    let (disk, clock) = disk(Parameters::disk_2tb_7200());
    let mut buf = vec![0; MIB as usize];
    for (start, low, high) in [(0, 150.0, 161.0), (1_999_000_000_000, 73.0, 76.0)] {
        let took = seconds(&clock, || {
            for n in 0..200 {
                disk.read_at(start + n * MIB, &mut buf).expect("reads");
            }
        });
        let rate = 200.0 * MIB as f64 / took / 1e6;
        assert!((low..high).contains(&rate), "{rate} MB/s at {start}");
    }
}

/// Without reading ahead each command of a stream comes a little too late and waits for a turn.
#[test]
fn a_gap_costs_a_turn_unless_the_disk_reads_ahead() {
    let mut buf = vec![0; 128 << 10];
    let mut stream = |parameters| {
        let (disk, clock) = disk(parameters);
        seconds(&clock, || {
            for n in 0..100 {
                disk.read_at(n * 128 * KIB, &mut buf).expect("reads");
                clock.pass(Duration::from_micros(50));
            }
        })
    };
    let (without, with) = (stream(plain()), stream(Parameters::disk_2tb_7200()));
    assert!(without > 0.8 && with < 0.12, "{without} s against {with} s");
}

#[test]
fn one_large_write_beats_many_small() {
    let mut rng = Rng::new(3);
    let places: Vec<u64> = (0..64).map(|_| rng.below(1_900_000) * MIB).collect();
    let took = |pieces: u64| {
        let (disk, clock) = disk(plain());
        let bytes = vec![0; (MIB / pieces) as usize];
        seconds(&clock, || {
            for place in &places {
                for n in 0..pieces {
                    disk.write_at(place + n * MIB / pieces, &bytes).expect("writes");
                }
            }
        })
    };
    let (large, small) = (took(1), took(16));
    assert!(small > large * 3.0, "{small} s against {large} s");
}

#[test]
fn the_write_cache_sorts_and_a_flush_pays() {
    let mut rng = Rng::new(4);
    let places: Vec<u64> = (0..512).map(|_| rng.below(400_000) * 4096).collect();
    let run = |parameters| {
        let (disk, clock) = disk(parameters);
        let writes = seconds(&clock, || {
            places.iter().for_each(|&at| disk.write_at(at, &[0; 4096]).expect("writes"));
        });
        let flush = seconds(&clock, || disk.flush().expect("flushes"));
        let again = seconds(&clock, || disk.flush().expect("flushes"));
        (writes, flush, again)
    };
    let (writes, flush, again) = run(Parameters::disk_2tb_7200());
    let (plain_writes, plain_flush, _) = run(plain());
    assert!(writes < 0.1, "{writes} s into the cache");
    assert!(plain_writes > 2.0 && plain_flush < 0.001, "{plain_writes} s to the platter");
    assert!(flush > 0.3 && writes + flush < plain_writes, "sorted: {flush} s");
    assert!(again < 0.001, "nothing is left");
}

#[test]
fn an_idle_disk_empties_its_cache_and_a_full_one_makes_wait() {
    let (disk, clock) = disk(Parameters::disk_2tb_7200());
    disk.write_at(0, &vec![0; 8 << 20]).expect("writes");
    clock.pass(Duration::from_secs(2));
    assert!(seconds(&clock, || disk.flush().expect("flushes")) < 0.001);
    let bytes = vec![0; MIB as usize];
    let took = seconds(&clock, || {
        for n in 0..320 {
            disk.write_at(n * MIB, &bytes).expect("writes");
        }
    });
    // 288 MiB do not fit: they go at the speed of the platter.
    assert!((1.6..2.4).contains(&took), "{took} s");
}

#[test]
fn disks_work_side_by_side_when_submitted_together() {
    let clock = VirtualClock::new();
    let disks: Vec<_> = (0..10)
        .map(|_| {
            let parameters = plain();
            let device = SimDisk::new(parameters.capacity);
            Spinning::on_clock(device, parameters, clock.clone())
        })
        .collect();
    let bytes = vec![0; MIB as usize];
    let write = || disks.iter().for_each(|d| d.write_at(9_000 * MIB, &bytes).expect("writes"));
    let one_after_the_other = seconds(&clock, write);
    let together = seconds(&clock, || clock.together(write));
    assert!(together * 5.0 < one_after_the_other, "{together} s, {one_after_the_other} s");
}

#[test]
fn in_real_time_it_really_takes_as_long() {
    let parameters = plain().spread_over(MIB);
    let disk = Spinning::real(SimDisk::new(MIB), parameters);
    let start = time::now();
    for offset in [900 * KIB, 0, 900 * KIB] {
        disk.write_at(offset, &[1; 4096]).expect("writes");
    }
    disk.flush().expect("flushes");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(40), "three seeks over most of the stroke: {took:?}");
    let mut buf = [0; 1];
    disk.read_at(0, &mut buf).expect("reads");
    assert_eq!(buf, [1]);
}

/// Commands that wait at the disk, and small gaps between them, cost no turn: it reads on.
#[test]
fn a_stream_of_queued_commands_misses_nothing() {
    let (disk, clock) = disk(Parameters::disk_2tb_7200());
    let mut buf = vec![0; MIB as usize];
    for (gap, low) in [(0, 150.0), (64 * KIB, 140.0)] {
        let took = seconds(&clock, || {
            clock.together(|| {
                for n in 0..100 {
                    disk.read_at(n * (MIB + gap), &mut buf).expect("reads");
                }
            });
        });
        let rate = 100.0 * MIB as f64 / took / 1e6;
        assert!((low..161.0).contains(&rate), "{rate} MB/s with gaps of {gap}");
    }
}
