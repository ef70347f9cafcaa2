//! How long modelled disks take for what they were asked.
//!
//! The one idea: what was asked is known from a run of one thread, so it is the same each time; here it is dealt out to
//! as many threads as a server has. A chunk is what is read at once, and what is written when all of that is there; each
//! thread takes the next one when it has done with its own. Everything else waits for what is before it.

use std::time::Duration;

use device::spinning::{Model, Parameters};

use crate::sparse::{Io, What};

/// Threads of a server that work on chunks.
const THREADS: usize = 4;

fn ask(disks: &mut [Model], now: Duration, io: &Io) -> Duration {
    let disk = &mut disks[io.disk];
    match io.what {
        What::Read => disk.read(now, io.offset, io.bytes),
        What::Write => disk.write(now, io.offset, io.bytes),
        What::Flush => disk.flush(now),
    }
}

/// When all of them have ended that are asked for at once.
fn together(disks: &mut [Model], now: Duration, ios: &[Io]) -> Duration {
    ios.iter().map(|io| ask(disks, now, io)).max().unwrap_or(now)
}

/// How many begin a list for which this holds.
fn leading(ios: &[Io], mut holds: impl FnMut(&Io) -> bool) -> usize {
    ios.iter().take_while(|io| holds(io)).count()
}

/// What belongs to the first of the list: alike, and asked for along with it, or of another disk.
fn side_by_side(ios: &[Io]) -> usize {
    let mut seen = Vec::new();
    leading(ios, |io| {
        let belongs = seen.is_empty() || io.along || !seen.contains(&io.disk);
        seen.push(io.disk);
        belongs && !io.scan && io.what == ios[0].what
    })
}

/// The time until all is done, and on the platters.
pub(crate) fn replay(ios: &[Io], disks: usize, parameters: Parameters) -> Duration {
    let mut disks: Vec<Model> = (0..disks).map(|_| Model::new(parameters)).collect();
    let mut threads = [Duration::ZERO; THREADS];
    let mut rest = ios;
    while let Some(first) = rest.first() {
        if first.scan {
            let reads = leading(rest, |io| io.scan && io.what == What::Read);
            let writes = leading(&rest[reads..], |io| io.scan && io.what == What::Write);
            let Some(thread) = threads.iter_mut().min() else { break };
            let there = together(&mut disks, *thread, &rest[..reads]);
            *thread = together(&mut disks, there, &rest[reads..reads + writes]);
            rest = &rest[(reads + writes).max(1)..];
        } else {
            let now = threads.iter().max().copied().unwrap_or_default();
            let (now_ios, later) = rest.split_at(side_by_side(rest));
            threads = [together(&mut disks, now, now_ios); THREADS];
            rest = later;
        }
    }
    let end = threads.iter().max().copied().unwrap_or_default();
    disks.iter_mut().map(|disk| disk.flush(end)).max().unwrap_or(end)
}

/// The time for writing so many bytes in a row.
pub(crate) fn streaming(bytes: u64, parameters: Parameters) -> Duration {
    const PIECE: u64 = 8 << 20;
    let mut disk = Model::new(parameters);
    let (mut now, mut at) = (Duration::ZERO, 0);
    while at < bytes {
        let part = PIECE.min(bytes - at);
        now = disk.write(now, at, part);
        at += part;
    }
    disk.flush(now)
}
