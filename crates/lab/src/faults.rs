//! `thumper lab faults`: kinds of damage, what of it is detected, healed and lost, and what a disk's own checksum sees.

use crate::{experiment, sluggish};

/// Ways in which a disk hurts what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A bit of what is stored has turned.
    BitRot,
    /// A write is acknowledged and never lands.
    PhantomWrite,
    /// A read gives what is stored elsewhere.
    MisdirectedRead,
    /// A write lands elsewhere: what should be there is old, what was there is gone.
    MisdirectedWrite,
    /// A bit turns on its way between memory and disk.
    DamageInTransfer,
    /// Another program writes over it.
    AccidentalOverwrite,
    /// A sector cannot be read any more.
    LatentError,
    /// Of a write only the first sectors land.
    TornWrite,
    /// The disk is gone for a while, and misses what is written.
    Vanished,
    /// It takes five times as long as its siblings, and makes no mistakes.
    Slow,
}

impl Fault {
    /// All of them, in the order of the table.
    pub const ALL: [Fault; 10] = [
        Fault::BitRot,
        Fault::PhantomWrite,
        Fault::MisdirectedRead,
        Fault::MisdirectedWrite,
        Fault::DamageInTransfer,
        Fault::AccidentalOverwrite,
        Fault::LatentError,
        Fault::TornWrite,
        Fault::Vanished,
        Fault::Slow,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::BitRot => "bit rot",
            Fault::PhantomWrite => "phantom write",
            Fault::MisdirectedRead => "misdirected read",
            Fault::MisdirectedWrite => "misdirected write",
            Fault::DamageInTransfer => "damage in transfer",
            Fault::AccidentalOverwrite => "accidental overwrite",
            Fault::LatentError => "latent sector error",
            Fault::TornWrite => "torn write",
            Fault::Vanished => "vanished disk",
            Fault::Slow => "slow disk",
        }
    }
}

/// How the disks are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One disk.
    Single,
    /// A mirror of two.
    Mirror,
    /// A raidz of this parity, on three disks more.
    Raidz(u8),
}

impl Layout {
    /// All of them, in the order of the table.
    pub const ALL: [Layout; 5] =
        [Layout::Single, Layout::Mirror, Layout::Raidz(1), Layout::Raidz(2), Layout::Raidz(3)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Single => "single",
            Layout::Mirror => "mirror",
            Layout::Raidz(1) => "raidz1",
            Layout::Raidz(2) => "raidz2",
            Layout::Raidz(_) => "raidz3",
        }
    }
}

/// What came of experiments with one fault on one layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// The layout.
    pub layout: Layout,
    /// How often it was put in, and hurt what somebody may want.
    pub injected: u64,
    /// It was noticed; of a slow disk: it was named, and no other.
    pub detected: u64,
    /// Every byte was right, and afterwards all copies and columns were; nobody waits for a slow disk to read what
    /// others have.
    pub healed: u64,
    /// Something could not be read, and was named.
    pub lost: u64,
    /// Wrong bytes were given to a reader.
    pub wrong: u64,
    /// A checksum that the disk keeps beside each sector, or the disk itself, noticed it.
    pub control: u64,
}

impl Row {
    /// Is it as it is to be: all noticed, nothing made up, and all healed where redundancy allows?
    #[must_use]
    pub fn is_good(&self) -> bool {
        let all = self.layout == Layout::Single || self.healed == self.injected;
        self.wrong == 0
            && self.detected == self.injected
            && self.healed + self.lost == self.injected
            && all
    }
}

/// How often a seed is tried.
const ATTEMPTS: u64 = 6;

/// Does the experiments of all seeds with a disk that hurts what it holds, and adds them to the row. An error comes with
/// its seed.
fn damage(fault: Fault, layout: Layout, seeds: u64, row: &mut Row) -> Result<(), (u64, String)> {
    for number in 0..seeds {
        // One that hurts nothing shows nothing.
        for attempt in 0..ATTEMPTS {
            let seed = number | attempt << 32;
            if experiment::run(fault, layout, seed, row).map_err(|why| (number, why))? {
                break;
            }
        }
    }
    Ok(())
}

/// Does all experiments for seeds `0..seeds`; `tell` hears of each row.
///
/// # Errors
/// What kept an experiment from being done.
pub fn run(seeds: u64, tell: &mut dyn FnMut(&Row)) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for fault in Fault::ALL {
        for layout in Layout::ALL {
            // Without another disk nothing can be gone.
            if (fault, layout) == (Fault::Vanished, Layout::Single) {
                continue;
            }
            let mut row = Row {
                fault,
                layout,
                injected: 0,
                detected: 0,
                healed: 0,
                lost: 0,
                wrong: 0,
                control: 0,
            };
            let done = match fault {
                Fault::Slow => sluggish::run_all(layout, seeds, &mut row),
                _ => damage(fault, layout, seeds, &mut row),
            };
            done.map_err(|(seed, why)| {
                format!("{} on {}, seed {seed}: {why}", fault.name(), layout.name())
            })?;
            tell(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}
