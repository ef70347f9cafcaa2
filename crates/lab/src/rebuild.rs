//! `thumper lab rebuild`: how long until a lost disk is whole again, if what is used is filled, and if all of it is.
//!
//! The one idea: the engine fills a real pool of simulated disks; what it asked of them is replayed on modelled ones. So
//! times come from the order of its reads and writes, and are the same on every machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use device::spinning::Parameters;
use format::scan::ScanFunction;
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::{Devices, Joined, NewPool, NewTop, OpenOptions, Pool, ScanAnswer, Stored};
use rt::random::Rng;
use rt::sync::Arc;

use crate::experiment::{Done, POOL, found, leaf, scan, told, tree};
use crate::replay::{replay, streaming};
use crate::sparse::{Trace, What, Witness};

const ASHIFT: u32 = 12;
const RECORD: usize = 128 << 10;
const FILE: usize = 64 << 20;
/// Records that are written at once.
const AT_ONCE: usize = 8;

/// Bytes of files in the founders' experiment, and in their pool of 33 disks.
pub const USED: u64 = 1_780_000_000;
const USED_33: u64 = 5_000_000_000_000;

/// A pool, and what is in it.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Disks of each of its raidz2 vdevs.
    pub vdevs: Vec<usize>,
    /// Bytes of files.
    pub used: u64,
    /// Rounds in which a third of all records are written anew: then those that are left lie scattered.
    pub rounds: usize,
}

/// What a rebuild took.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebuilt {
    /// What was done.
    pub what: String,
    /// Disks of the pool.
    pub disks: usize,
    /// Bytes of files.
    pub files: u64,
    /// Bytes that are allocated for them, with parity.
    pub used: u64,
    /// Bytes that disks were asked for.
    pub read: u64,
    /// Bytes that the new disk was given.
    pub written: u64,
    /// Seconds until the pool said that it is whole.
    pub seconds: f64,
    /// What the new disk took in a second, of what it takes in a row.
    pub share: f64,
    /// Seconds for all of the disk.
    pub whole: f64,
    /// Computed from the rate of a smaller one.
    pub by_model: bool,
}

/// As on a server of 16 GiB, whatever the machine.
fn options() -> OpenOptions {
    let memory = Some(pool::account(4 << 30));
    OpenOptions {
        workers: 1,
        host_id: 1,
        host_name: "lab".into(),
        memory,
        ..OpenOptions::default()
    }
}

fn create(disks: &[Arc<Witness>], shape: &Shape) -> Done<Arc<Pool>> {
    let mut rest = disks;
    let mut tops = Vec::new();
    for count in &shape.vdevs {
        let (these, after) = rest.split_at(*count);
        rest = after;
        let leaves = these.iter().map(leaf).collect();
        tops.push(NewTop { joined: Joined::Raidz(2), leaves, is_log: false });
    }
    let props = [("compression", 2), ("recordsize", RECORD as u64)];
    Pool::create(NewPool {
        name: POOL.into(),
        tops,
        spares: vec![],
        ashift: ASHIFT,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props: props.map(|(name, value)| (name.to_string(), Stored::Number(value))).into(),
        make: make_filesystem,
        command: format!("zpool create {POOL}"),
        options: options(),
    })
    .map_err(told)
}

/// Writes records, each of one word.
fn write(fs: &Filesystem, file: u64, record: usize, count: usize, rng: &mut Rng) -> Done<()> {
    let mut bytes = Vec::with_capacity(count * RECORD);
    for _ in 0..count {
        bytes.extend(rng.next_u64().to_le_bytes().repeat(RECORD / 8));
    }
    fs.write(file, (record * RECORD) as u64, &bytes).map_err(told)?;
    Ok(())
}

fn fill(pool: &Arc<Pool>, shape: &Shape, rng: &mut Rng) -> Done<()> {
    let fs = Filesystem::open(pool, POOL).map_err(told)?;
    let records = (shape.used as usize).div_ceil(RECORD);
    let per_file = FILE / RECORD;
    let mut files = Vec::new();
    for number in 0..records.div_ceil(per_file) {
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        let name = format!("f{number}");
        let file = fs.create(fs.root(), name.as_bytes(), &new).map_err(told)?;
        files.push(file);
        let count = per_file.min(records - number * per_file);
        for first in (0..count).step_by(AT_ONCE) {
            write(&fs, file, first, AT_ONCE.min(count - first), rng)?;
        }
        pool.sync().map_err(told)?;
    }
    for _ in 0..shape.rounds {
        for record in 0..records {
            if rng.chance(1, 3) {
                write(&fs, files[record / per_file], record % per_file, 1, rng)?;
            }
            if record % (2 * per_file) == 0 {
                pool.sync().map_err(told)?;
            }
        }
    }
    pool.sync().map_err(told)?;
    Ok(())
}

/// Opens the pool without its first disk.
fn open(disks: &[Arc<Witness>]) -> Done<Arc<Pool>> {
    let scan = scan(&disks[1..]);
    let found = found(&scan)?;
    let tree = tree(found, &disks[1..])?;
    Pool::open(Devices::Writable(tree), &found.uberblocks, &options()).map_err(told)
}

/// Loses the first disk of such a pool, and fills another in its place.
///
/// # Errors
/// What kept it from being done.
pub fn run_one(what: &str, shape: &Shape, seed: u64) -> Done<Rebuilt> {
    let parameters = Parameters::disk_2tb_7200();
    let mut rng = Rng::new(seed);
    let trace = Trace::default();
    let count: usize = shape.vdevs.iter().sum();
    let new = |disk| Witness::new(disk, parameters.capacity, &trace);
    let disks: Vec<Arc<Witness>> = (0..count).map(new).collect();
    let pool = create(&disks, shape)?;
    fill(&pool, shape, &mut rng)?;
    pool.close().map_err(told)?;
    drop(pool);

    let pool = open(&disks)?;
    let used = pool.space().map_err(told)?.allocated;
    let lost = pool.config().vdev_tree.leaves().next().ok_or("no leaf")?.guid;
    trace.lock().clear();
    pool.attach(lost, leaf(&new(count)), true).map_err(told)?;
    // How long it takes here is not how long it takes there.
    pool.set_scan_save(Duration::MAX);
    let begun = pool.scan_start(ScanFunction::Resilver).map_err(told)?;
    if begun != ScanAnswer::Done {
        return Err(format!("the resilver does not begin: {begun:?}"));
    }
    pool.scan_run(&mut |_| true).map_err(told)?;
    if pool.needs_resilver() {
        return Err("the disk is not whole".into());
    }
    let ios = trace.lock().clone();
    pool.close().map_err(told)?;

    let sum = |what| ios.iter().filter(|io| io.scan && io.what == what).map(|io| io.bytes).sum();
    let (read, written): (u64, u64) = (sum(What::Read), sum(What::Write));
    // The rate is that of the work itself: from the reads that lead to the first block until the last is written.
    let first = ios.iter().position(|io| io.scan).unwrap_or(0);
    let leading = ios[..first].iter().rev().take_while(|io| io.what == What::Read).count();
    let last = ios.iter().rposition(|io| io.scan).map_or(0, |last| last + 1);
    let work = replay(&ios[first - leading..last], count + 1, parameters);
    let share = streaming(written, parameters).as_secs_f64() / work.as_secs_f64();
    Ok(Rebuilt {
        what: what.into(),
        disks: count,
        files: shape.used,
        used,
        read,
        written,
        seconds: replay(&ios, count + 1, parameters).as_secs_f64(),
        share,
        whole: streaming(parameters.capacity, parameters).as_secs_f64(),
        by_model: false,
    })
}

/// The same with more in it, if each byte takes as long, and the disk gets slower towards its middle.
fn scaled(what: &str, row: &Rebuilt, files: u64) -> Rebuilt {
    let by = |bytes: u64| (u128::from(bytes) * u128::from(files) / u128::from(row.files)) as u64;
    let parameters = Parameters::disk_2tb_7200();
    let alone = |bytes| streaming(bytes, parameters).as_secs_f64();
    let fixed = row.seconds - alone(row.written) / row.share;
    let written = by(row.written);
    Rebuilt {
        what: what.into(),
        files,
        used: by(row.used),
        read: by(row.read),
        written,
        seconds: fixed.max(0.0) + alone(written) / row.share,
        by_model: true,
        ..row.clone()
    }
}

/// Does all of it; `tell` hears of each row.
///
/// # Errors
/// What kept it from being done.
pub fn run(used: u64, seed: u64, tell: &mut dyn FnMut(&Rebuilt)) -> Done<Vec<Rebuilt>> {
    if used == 0 {
        return Err("no bytes of files: there would be nothing to rebuild".into());
    }
    let eleven = Shape { vdevs: vec![11], used, rounds: 0 };
    let scattered = Shape { rounds: 3, ..eleven.clone() };
    let many = Shape { vdevs: vec![17, 16], used, rounds: 0 };
    let mut rows = Vec::new();
    for (what, shape) in
        [("filled in order", eleven), ("a third anew, three times", scattered), ("two vdevs", many)]
    {
        let row = run_one(what, &shape, seed)?;
        tell(&row);
        rows.push(row);
    }
    let row = scaled("two vdevs, by the model", &rows[2], USED_33);
    tell(&row);
    rows.push(row);
    Ok(rows)
}

/// A time in words.
#[must_use]
pub fn time(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// The rows as a picture: two bars each, on a scale where each step is ten times as long.
#[must_use]
pub fn svg(rows: &[Rebuilt]) -> String {
    const LEFT: f64 = 260.0;
    const DECADE: f64 = 110.0;
    let height = 70 + rows.len() * 56;
    let x = |seconds: f64| LEFT + DECADE * seconds.max(0.1).log10() + DECADE;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"16\">Until a lost disk of 2 TB is whole again</text>\n"
    );
    let bar = |out: &mut String, y: usize, seconds: f64, colour: &str, what: &str| {
        let (width, end) = (x(seconds) - LEFT, x(seconds) + 6.0);
        let text = y + 15;
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"20\" fill=\"{colour}\"/>\n\
             <text x=\"{end:.1}\" y=\"{text}\">{}, {what}</text>",
            time(seconds)
        );
    };
    for (row, y) in rows.iter().zip((44..).step_by(56)) {
        let (name, below) = (y + 14, y + 32);
        let files = row.files as f64 / 1e9;
        let _ = writeln!(
            out,
            "<text x=\"10\" y=\"{name}\">{}</text>\n\
             <text x=\"10\" y=\"{below}\" fill=\"#666\">{} disks, {files:.2} GB of files</text>",
            row.what, row.disks
        );
        bar(&mut out, y, row.seconds, "#2a7", "what is used");
        bar(&mut out, y + 22, row.whole, "#c66", "the whole disk");
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Seen red: the rows before the last were told, and then it was divided by nothing.
    #[test]
    fn nothing_is_not_rebuilt() {
        let error = run(0, 1, &mut |row| panic!("{row:?}")).unwrap_err();
        assert!(error.starts_with("no bytes of files"), "{error}");
    }

    #[test]
    fn what_is_used_is_filled_in_the_order_of_the_disks() {
        for (what, rounds, least) in [("in order", 0, 0.7), ("scattered", 3, 0.4)] {
            let shape = Shape { vdevs: vec![11], used: USED, rounds };
            let row = run_one(what, &shape, 1).unwrap();
            assert!(row.share >= least, "{row:?}");
            assert!(row.read + row.written <= row.used + row.used * 15 / 100, "{row:?}");
            assert!(row.written >= row.used / 12 && row.seconds < row.whole / 1000.0, "{row:?}");
        }
        let shape = Shape { vdevs: vec![11], used: USED / 8, rounds: 0 };
        let row = run_one("in order", &shape, 1).unwrap();
        let picture = svg(std::slice::from_ref(&row));
        assert!(picture.contains("11 disks") && picture.matches("<rect").count() == 3);
        let again = run_one("in order", &shape, 1).unwrap();
        let asked = |row: &Rebuilt| (row.used, row.read, row.written);
        assert_eq!(asked(&again), asked(&row), "it is the same each time");
    }
}
