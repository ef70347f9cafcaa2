//! Which leaf is slow, judged by its siblings.
//!
//! The one idea: nobody knows how fast a disk should be, but those beside it have the same to do. A leaf is slow when
//! it takes three times as long as they do, by the mean of its I/Os and by their median, again and again. Both are
//! needed: a single I/O that hangs moves a mean, and a disk whose own cache serves a little less than half of its
//! reads moves a median.
//!
//! A scan's reads are compared with those of scans: they are larger than what clients ask, and of a mirror one disk gets
//! them. What it writes is not compared, nor a leaf that lacks a part of the pool: it is given that, and others are not.
//!
//! It errs on the side of silence: without enough I/Os in the window, without two siblings that had as much to do, or
//! below [`TIME_MIN`], nothing is said, and what was said stands until the leaf was seen to keep up again.

use std::array::from_fn;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use device::meter::{Meters, Times, mean};

use crate::sitting::Sitting;

/// How often the leaves are looked at.
pub const LOOK: Duration = Duration::from_secs(5);
/// Looks between which the I/Os that are compared lie.
const WINDOW: usize = 3;
/// Looks that must agree, one after the other, before a leaf is called slow, or no longer so.
const AGREE: u32 = 3;
/// I/Os of one kind in a window that say something.
const COUNT_MIN: u64 = 32;
/// They may be as few as this if they took [`LONG`] together.
const COUNT_LONG_MIN: u64 = 4;
const LONG: Duration = Duration::from_secs(5);
/// Siblings with as much to do, at least.
const SIBLINGS_MIN: usize = 2;
/// How much longer than its siblings' a leaf's I/Os take, to call it slow.
const FACTOR: u32 = 3;
/// How much longer than those of the slowest of its siblings.
const FACTOR_WORST: u32 = 2;
/// Times below this are nobody's trouble.
const TIME_MIN: Duration = Duration::from_micros(500);

/// What is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes of the disk's cache.
    Flushes,
}

impl What {
    const ALL: [What; 3] = [What::Reads, What::Writes, What::Flushes];

    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            What::Reads => "reads",
            What::Writes => "writes",
            What::Flushes => "flushes",
        }
    }

    /// The times that say it, each to be compared with the same of others.
    fn of(self, meters: &Meters) -> Vec<Times> {
        let less = |all: &Times, scans: &Times| from_fn(|i| all[i].saturating_sub(scans[i]));
        match self {
            What::Reads => {
                vec![less(&meters.disk_reads, &meters.scan_reads), meters.scan_reads]
            }
            What::Writes => vec![less(&meters.disk_writes, &meters.scan_writes)],
            What::Flushes => vec![meters.disk_flushes],
        }
    }
}

/// A leaf that is slower than its siblings, and by what one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The leaf's guid.
    pub guid: u64,
    /// Its device's name.
    pub name: String,
    /// What is slow.
    pub what: What,
    /// How many of them were looked at last.
    pub count: u64,
    /// How long they took, in the mean.
    pub time: Duration,
    /// How long those of its siblings took: the median of their means.
    pub siblings: Duration,
    /// When it was first found, since 1970.
    pub since: Duration,
    /// It is read only where nobody else has the bytes.
    pub sits_out: bool,
}

/// As `reads take 41ms, those of its siblings 8ms`.
impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, siblings) = (short(self.time), short(self.siblings));
        write!(f, "{} take {time}, those of its siblings {siblings}", self.what.name())?;
        f.write_str(if self.sits_out { "; it sits out" } else { "" })
    }
}

/// A time in whole seconds, milliseconds or microseconds.
fn short(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..10_000 => format!("{micros}us"),
        micros @ 10_000..10_000_000 => format!("{}ms", micros / 1_000),
        micros => format!("{}s", micros / 1_000_000),
    }
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A leaf is slow.
    Slow(Slow),
    /// It keeps up again: this is what was said of it.
    Recovered(Slow),
}

/// What a leaf has done so far.
pub(crate) struct Sample {
    pub(crate) guid: u64,
    pub(crate) name: String,
    /// Leaves of one group are siblings.
    pub(crate) group: u64,
    /// It is a disk of its own: files on one disk do not flush for themselves.
    pub(crate) disk: bool,
    /// It lacks a part of what is on its vdev, or is being filled.
    pub(crate) lacks: bool,
    pub(crate) meters: Meters,
}

#[derive(Default)]
struct LeafState {
    /// Readings at the last looks, oldest first.
    readings: VecDeque<Meters>,
    /// For how many looks it has been slow (or, if it is called so, has kept up), by what.
    agree: [u32; 3],
    said: Option<Slow>,
}

/// The looks so far.
#[derive(Default)]
pub(crate) struct Watch {
    leaves: BTreeMap<u64, LeafState>,
    pub(crate) sitting: Sitting,
}

/// I/Os of one kind in the window.
struct Seen {
    count: u64,
    mean: Duration,
    median: Duration,
}

impl Seen {
    fn of(times: &Times) -> Option<Seen> {
        let count = times.iter().sum();
        Some(Seen { count, mean: mean(times)?, median: median(times, count) })
    }

    fn says_something(&self) -> bool {
        let few = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.count >= COUNT_MIN
            || (self.count >= COUNT_LONG_MIN && self.mean.saturating_mul(few) >= LONG)
    }

    fn exceeds(&self, factor: u32, other: &Seen) -> bool {
        self.mean >= other.mean * factor && self.median >= other.median * factor
    }
}

/// The median of so many times, as if those of one step lay evenly in it.
fn median(times: &Times, count: u64) -> Duration {
    let mut before = 0;
    for (i, n) in times.iter().enumerate() {
        if (before + n) * 2 >= count && *n > 0 {
            let inside = (count as f64 / 2.0 - before as f64) / *n as f64;
            return Duration::from_nanos(((1u64 << i) as f64 * (1.0 + inside)) as u64);
        }
        before += n;
    }
    Duration::ZERO
}

/// What a window says of a leaf, the more of it the stronger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    /// Nothing.
    Nothing,
    KeepsUp,
    Slow(Evidence),
}

/// By what one sees that a leaf is slow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Evidence {
    time: Duration,
    siblings: Duration,
    count: u64,
}

fn judge(seen: &Seen, siblings: &[&Seen]) -> Finding {
    let comparable = |other: &&&Seen| other.count >= seen.count.min(COUNT_MIN);
    let mut others: Vec<&Seen> = siblings.iter().filter(comparable).copied().collect();
    if !seen.says_something() || others.len() < SIBLINGS_MIN {
        return Finding::Nothing;
    }
    others.sort_by_key(|other| other.mean);
    let usual = Seen {
        count: 0,
        mean: others[others.len() / 2].mean,
        median: {
            let mut medians: Vec<_> = others.iter().map(|other| other.median).collect();
            medians.sort();
            medians[medians.len() / 2]
        },
    };
    let worst = others.iter().all(|other| seen.exceeds(FACTOR_WORST, other));
    if seen.median >= TIME_MIN && seen.exceeds(FACTOR, &usual) && worst {
        Finding::Slow(Evidence { time: seen.mean, siblings: usual.mean, count: seen.count })
    } else if seen.mean < usual.mean * FACTOR_WORST || seen.median < TIME_MIN {
        Finding::KeepsUp
    } else {
        Finding::Nothing
    }
}

impl Watch {
    /// The leaves that are slow.
    pub(crate) fn slow(&self) -> Vec<Slow> {
        self.leaves.values().filter_map(|leaf| leaf.said.clone()).collect()
    }

    /// Looks at the leaves; what has changed.
    pub(crate) fn look(&mut self, samples: Vec<Sample>) -> Vec<News> {
        self.leaves.retain(|guid, _| samples.iter().any(|sample| sample.guid == *guid));
        let mut windows = Vec::with_capacity(samples.len());
        for sample in samples {
            let leaf = self.leaves.entry(sample.guid).or_default();
            if sample.lacks {
                // It begins anew once it has everything; what was said of it stands.
                *leaf = LeafState { said: leaf.said.take(), ..LeafState::default() };
                continue;
            }
            leaf.readings.push_back(sample.meters.clone());
            let Some(first) = leaf.readings.front() else { continue };
            let window = sample.meters.since(first);
            if leaf.readings.len() > WINDOW {
                leaf.readings.pop_front();
            }
            windows.push((sample, window));
        }
        let mut news = Vec::new();
        for what in What::ALL {
            let seen = |(sample, window): &(Sample, Meters)| -> Vec<Option<Seen>> {
                let counts = sample.disk || what != What::Flushes;
                let times = what.of(window).into_iter();
                times.map(|times| counts.then(|| Seen::of(&times)).flatten()).collect()
            };
            let seen: Vec<_> = windows.iter().map(seen).collect();
            for (at, (sample, _)) in windows.iter().enumerate() {
                let others = windows.iter().zip(&seen).enumerate();
                let others = others
                    .filter(|(other, ((it, _), _))| *other != at && it.group == sample.group)
                    .map(|(_, (_, seen))| seen);
                let finding = |(part, own): (usize, &Option<Seen>)| {
                    let siblings: Vec<_> =
                        others.clone().filter_map(|seen| seen[part].as_ref()).collect();
                    Some(judge(own.as_ref()?, &siblings))
                };
                let Some(finding) = seen[at].iter().enumerate().filter_map(finding).max() else {
                    continue;
                };
                let Some(leaf) = self.leaves.get_mut(&sample.guid) else { continue };
                let slow = |Evidence { time, siblings, count }| Slow {
                    guid: sample.guid,
                    name: sample.name.clone(),
                    what,
                    count,
                    time,
                    siblings,
                    since: rt::time::wall_clock(),
                    sits_out: false,
                };
                news.extend(leaf.take(what, finding, slow));
            }
        }
        news
    }
}

impl LeafState {
    /// Takes in what a look has found.
    fn take(
        &mut self,
        what: What,
        finding: Finding,
        slow: impl FnOnce(Evidence) -> Slow,
    ) -> Option<News> {
        let agree = &mut self.agree[what as usize];
        match (&mut self.said, finding) {
            // Of what it is called slow for.
            (Some(said), finding) if said.what == what => match finding {
                Finding::Slow(evidence) => {
                    *agree = 0;
                    let since = said.since;
                    *said = Slow { since, ..slow(evidence) };
                    None
                }
                Finding::Nothing => None,
                Finding::KeepsUp => {
                    *agree += 1;
                    if *agree < AGREE {
                        return None;
                    }
                    self.agree = [0; 3];
                    self.said.take().map(News::Recovered)
                }
            },
            (_, Finding::Slow(evidence)) => {
                *agree += 1;
                if *agree < AGREE || self.said.is_some() {
                    return None;
                }
                *agree = 0;
                let slow = slow(evidence);
                self.said = Some(slow.clone());
                Some(News::Slow(slow))
            }
            (_, Finding::KeepsUp | Finding::Nothing) => {
                *agree = 0;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
