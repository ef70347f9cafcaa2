//! Experiments with a disk that takes longer than its siblings.
//!
//! The one idea: here time is real, so disks wait, not the processor, and many experiments go on at once.

use std::time::Duration;

use device::Device;
use device::queue::{LeafQueue, Options};
use device::sim::{Fault, Kind, On, SimDisk, SimSet};
use rt::buf::BufPool;
use rt::random::Rng;
use rt::sync::Arc;
use rt::thread;

use crate::drive::SECTOR;
use crate::experiment::{DISK_BYTES, Done, Files, create, load, read, told, top};
use crate::faults::{Layout, Row};

/// What a disk takes for anything, and what the slow one takes.
const USUAL: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(10);
/// Looks at the disks until the slow one must have been named.
const LOOKS: u64 = 24;
/// Experiments at once.
const AT_ONCE: u64 = 8;

/// What came of one.
struct Outcome {
    named: bool,
    /// Others were asked for all that they have.
    spared: bool,
    lost: u64,
    wrong: u64,
}

/// Does the experiments of all seeds, and adds them to the row. An error comes with its seed.
pub(crate) fn run_all(layout: Layout, seeds: u64, row: &mut Row) -> Result<(), (u64, String)> {
    for first in (0..seeds).step_by(AT_ONCE as usize) {
        let begin = |seed| (seed, thread::spawn("slow disk", move || run(layout, seed)));
        let begun: Vec<_> = (first..seeds.min(first + AT_ONCE)).map(begin).collect();
        for (seed, thread) in begun {
            let outcome = thread.join().map_err(|why| (seed, why))?;
            row.injected += 1;
            row.detected += u64::from(outcome.named);
            row.wrong += outcome.wrong;
            match outcome.lost {
                // Nobody can do without a disk that is alone.
                0 => row.healed += u64::from(outcome.spared || layout == Layout::Single),
                _ => row.lost += 1,
            }
        }
    }
    Ok(())
}

/// Does one. Who is slow is known from others alike: a pool of three single disks, of two mirrors, or of one raidz.
fn run(layout: Layout, seed: u64) -> Done<Outcome> {
    let mut rng = Rng::new(seed);
    let (tops, width) = match layout {
        Layout::Single => (3, 1),
        Layout::Mirror => (2, 2),
        Layout::Raidz(parity) => (1, usize::from(parity) + 3),
    };
    let set = SimSet::with_sectors(tops * width, DISK_BYTES, SECTOR as u32);
    let queue =
        |disk: SimDisk| Arc::new(LeafQueue::new(disk, Options::threads(1), BufPool::new(1 << 20)));
    let queues: Vec<_> = set.disks().into_iter().map(queue).collect();
    let pool = create(queues.chunks(width).map(|disks| top(disks, layout)).collect())?;
    let victim = rng.index(queues.len());
    for (number, disk) in set.disks().iter().enumerate() {
        let time = if number == victim { SLOW } else { USUAL };
        disk.inject(Fault::new(Kind::Slow(time), On::All));
    }

    let mut files = Files::new();
    for look in 0..LOOKS {
        load(&pool, &mut files, &mut rng, look % 2)?;
        pool.look_for_slow();
        if !pool.slow().is_empty() {
            break;
        }
    }
    let slow = pool.slow();
    let before = set.disk(victim).counts().reads;
    let (lost, wrong) = read(&pool, &files)?;
    let outcome = Outcome {
        named: matches!(&slow[..], [one] if one.name == queues[victim].name()),
        spared: set.disk(victim).counts().reads == before,
        lost,
        wrong,
    };
    set.disks().iter().for_each(SimDisk::heal);
    pool.close().map_err(told)?;
    Ok(outcome)
}
