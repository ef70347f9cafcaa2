//! `thumper-bench`: the engine's side of `cargo xtask bench`, one verb per process.
//!
//! Takes the options of `bench/ozbench.c` and means the same by them; prints one JSON object on one
//! line. The clock runs over the engine's work only, from the call of `fs` to the txg on disk.
#![allow(clippy::print_stdout)]

mod clock;
mod data;
mod grow;
mod options;
mod passthrough;
mod path;
mod pieces;
mod spinning;
mod trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use device::{WriteDevice, WriteFile};
use format::scan::ScanFunction;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Devices, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::sync::Arc;
use serde_json::{Value, json};

use crate::clock::{Clock, Timed};
use crate::data::Source;
use crate::options::{Options, Verb};
use crate::spinning::Disks;

/// Name of the pool of the bench.
const POOL: &str = "thbench";
/// Bytes of one call of read or write.
const CHUNK: usize = 1 << 20;

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let line = match options.verb {
        Verb::Pieces => return pieces::print(),
        Verb::Grow => return grow::run(&options),
        Verb::Create => create(&options)?,
        Verb::Write => write(&options)?,
        Verb::Read => read(&options)?,
        Verb::Small => small(&options)?,
        Verb::Free => free(&options)?,
        Verb::Scrub => scrub(&options)?,
        Verb::Resilver => resilver(&options)?,
        Verb::Mixed => mixed(&options)?,
        Verb::Path => path::run(&options)?,
        Verb::Copy => path::copy(&options),
        Verb::Passthrough => return Ok(passthrough::serve(&options.dir, &options.on)?),
    };
    println!("{line}");
    Ok(())
}

fn open_options(options: &Options) -> OpenOptions {
    OpenOptions {
        workers: options.threads,
        host_id: 1,
        host_name: "bench".into(),
        new_name: None,
        memory: None,
    }
}

/// Runs `work` for `0..count` on `threads` threads.
fn on_threads(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<()> + Sync + Send,
) -> Result<()> {
    let results = rt::sync::Mutex::new(Ok(()));
    let workers = rt::workers::Workers::new(threads);
    workers.run(count, |_, job| {
        if let Err(e) = work(job) {
            *results.lock() = Err(e);
        }
    });
    results.into_inner()
}

fn line(verb: &str, options: &Options, timed: &Timed, bytes: u64, items: u64) -> Value {
    json!({
        "engine": "thumper", "verb": verb, "layout": options.layout, "threads": options.threads,
        "record": options.record, "data": options.data, "compress": options.compress,
        "checksum": options.checksum, "bytes": bytes, "items": items,
        "seconds": timed.seconds, "user": timed.user, "sys": timed.sys,
        "mb_s": bytes as f64 / timed.seconds / 1e6, "items_s": items as f64 / timed.seconds,
        "rss_mb": clock::rss_mb(),
    })
}

fn leaf(path: &Path) -> Result<NewLeaf> {
    let device: Arc<dyn WriteDevice> = Arc::new(WriteFile::open(path)?);
    Ok(NewLeaf { path: path.as_os_str().as_encoded_bytes().to_vec(), is_disk: false, device })
}

fn create(options: &Options) -> Result<Value> {
    let layouts = options.tops()?;
    let mut paths: Vec<Vec<PathBuf>> = Vec::new();
    let mut count = 0;
    let zeros = vec![0; CHUNK];
    for (_, disks) in &layouts {
        let mut top = Vec::new();
        for _ in 0..*disks {
            let path = options.dir.join(format!("d{count:02}"));
            let file = std::fs::File::create(&path).context("creating an image")?;
            file.set_len(options.size)?;
            // A disk has its blocks already.
            if !options.sparse {
                use std::os::unix::fs::FileExt;
                let mut at = 0;
                while at < options.size {
                    let part = (options.size - at).min(zeros.len() as u64) as usize;
                    file.write_all_at(&zeros[..part], at)?;
                    at += part as u64;
                }
            }
            top.push(path);
            count += 1;
        }
        paths.push(top);
    }
    let mut tops = Vec::new();
    for ((joined, _), paths) in layouts.iter().zip(&paths) {
        let leaves: Result<Vec<NewLeaf>> = paths.iter().map(|p| leaf(p)).collect();
        tops.push(NewTop { joined: *joined, leaves: leaves?, is_log: false });
    }
    let clock = Clock::start();
    let pool = Pool::create(NewPool {
        name: POOL.into(),
        tops,
        spares: Vec::new(),
        ashift: options.ashift,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props: BTreeMap::new(),
        make: fs::make_filesystem,
        command: "thumper-bench create".into(),
        options: open_options(options),
    })?;
    let timed = clock.stop();
    pool.close()?;
    Ok(line("create", options, &timed, 0, count))
}

fn images(options: &Options) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&options.dir)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"d")) {
            paths.push(path);
        }
    }
    paths.sort();
    ensure!(paths.len() > options.hide, "no images in {}", options.dir.display());
    Ok(paths.split_off(options.hide))
}

fn open(options: &Options, writable: bool) -> Result<Arc<Pool>> {
    Ok(open_with_disks(options, writable)?.0)
}

/// The pool, and its disks if they are spinning ones.
fn open_with_disks(options: &Options, writable: bool) -> Result<(Arc<Pool>, Option<Disks>)> {
    let scan = vdev::import::scan(&images(options)?)?;
    let found = scan.choose(POOL)?;
    if options.spinning {
        let (devices, disks) = spinning::open(found, writable, options.trace.is_some())?;
        let pool = Pool::open(devices, &found.uberblocks, &open_options(options))?;
        return Ok((pool, Some(disks)));
    }
    let devices = if writable {
        Devices::Writable(found.open_write_tree(&found.root)?)
    } else {
        Devices::ReadOnly(Arc::new(found.open_tree()?))
    };
    Ok((Pool::open(devices, &found.uberblocks, &open_options(options))?, None))
}

/// The properties that the options ask for; a no-op if they hold already.
fn prepare(pool: &Pool, options: &Options) -> Result<()> {
    for (name, number) in [
        ("recordsize", options.record),
        ("compression", options.compression()?),
        ("checksum", options.checksum_number()?),
    ] {
        pool.set_property(POOL, name, Some(Stored::Number(number)))?;
    }
    Ok(())
}

fn directory(fs: &Filesystem, name: &[u8]) -> Result<u64> {
    if let Some(entry) = fs.lookup(fs.root(), name)? {
        return Ok(entry.object);
    }
    let who = Who { uid: 0, gid: 0 };
    Ok(fs.create(fs.root(), name, &NewObject::of(mode::DIR | 0o755, who))?)
}

const FILE: NewObject<'static> = NewObject {
    mode: mode::FILE | 0o644,
    who: Who { uid: 1000, gid: 100 },
    target: None,
    rdev: 0,
    flags: 0,
    xattrs: &[],
};

fn write_objects(
    fs: &Filesystem,
    dir: u64,
    prefix: &str,
    options: &Options,
    source: &Source,
) -> Result<()> {
    on_threads(options.threads, options.objects, |object| {
        let number = fs.create(dir, format!("{prefix}{object}").as_bytes(), &FILE)?;
        let mut at = 0;
        while at < options.object_bytes {
            let part = (options.object_bytes - at).min(CHUNK as u64) as usize;
            fs.write(number, at, source.bytes(object as u64, at, part))?;
            at += part as u64;
        }
        Ok(())
    })
}

fn remove_all(fs: &Filesystem, dir: u64) -> Result<u64> {
    let entries = fs.read_dir(dir)?;
    for entry in &entries {
        fs.unlink(dir, &entry.name)?;
    }
    Ok(entries.len() as u64)
}

fn write(options: &Options) -> Result<Value> {
    let pool = open(options, true)?;
    prepare(&pool, options)?;
    let fs = Filesystem::open(&pool, POOL)?;
    let source = Source::new(&options.data)?;
    let dir = directory(&fs, b"objects")?;
    if options.warm > 0 {
        let warm = Options { objects: options.warm, ..options.clone() };
        write_objects(&fs, dir, "warm", &warm, &source)?;
        pool.sync()?;
        remove_all(&fs, dir)?;
        // What was freed may be written again three txgs later.
        for _ in 0..4 {
            pool.sync()?;
        }
    }
    let clock = Clock::start();
    write_objects(&fs, dir, "object", options, &source)?;
    pool.sync()?;
    let timed = clock.stop();
    drop(fs);
    pool.close()?;
    let bytes = options.objects as u64 * options.object_bytes;
    Ok(line("write", options, &timed, bytes, options.objects as u64))
}

fn small(options: &Options) -> Result<Value> {
    let pool = open(options, true)?;
    prepare(&pool, options)?;
    let fs = Filesystem::open(&pool, POOL)?;
    let source = Source::new(&options.data)?;
    let dir = directory(&fs, b"objects")?;
    let make = |prefix: &str, count: usize| {
        // Runs of files, as a client makes them.
        on_threads(options.threads, count.div_ceil(64), |run| {
            for file in run * 64..((run + 1) * 64).min(count) {
                let data = source.bytes(file as u64, 0, options.file_bytes as usize);
                fs.create_with(dir, format!("{prefix}{file}").as_bytes(), &FILE, data)?;
            }
            Ok(())
        })
    };
    if options.warm > 0 {
        make("warm", options.warm)?;
        pool.sync()?;
        remove_all(&fs, dir)?;
        for _ in 0..4 {
            pool.sync()?;
        }
    }
    let clock = Clock::start();
    make("file", options.files)?;
    pool.sync()?;
    let timed = clock.stop();
    drop(fs);
    pool.close()?;
    let bytes = options.files as u64 * options.file_bytes;
    Ok(line("small", options, &timed, bytes, options.files as u64))
}

fn read(options: &Options) -> Result<Value> {
    let (pool, mut disks) = open_with_disks(options, false)?;
    let fs = Filesystem::open(&pool, POOL)?;
    let source = Source::new(&options.data)?;
    let dir = directory(&fs, b"objects")?;
    disks.iter_mut().for_each(Disks::start);
    let clock = Clock::start();
    let entries = fs.read_dir(dir)?;
    let total = rt::sync::atomic::AtomicU64::new(0);
    // One job per large file, one per run of small ones.
    let run = if entries.len() > 1000 { 64 } else { 1 };
    on_threads(options.threads, entries.len().div_ceil(run), |job| {
        let mut buf = vec![0; CHUNK];
        for entry in &entries[job * run..((job + 1) * run).min(entries.len())] {
            let (object, attrs) = fs.open_object(entry.object)?;
            let mut at = 0;
            while at < attrs.size {
                let got = fs.read_open(&object, attrs.size, at, &mut buf)?;
                if options.verify {
                    let digits: String = entry.name.iter().map(|b| *b as char).collect();
                    let number = digits.trim_start_matches(|c: char| !c.is_ascii_digit());
                    let expected = source.bytes(number.parse()?, at, got);
                    if buf[..got] != *expected {
                        bail!("{digits} at {at}: not what was written");
                    }
                }
                at += got as u64;
            }
            total.fetch_add(attrs.size, rt::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    })?;
    let timed = clock.stop();
    let bytes = total.into_inner();
    let mut line = line("read", options, &timed, bytes, entries.len() as u64);
    if let Some(disks) = &disks {
        line["mean_io_kib"] = disks.mean_kib();
        line["busy_seconds"] = disks.busy_seconds();
        disks.write_trace(options.trace.as_deref())?;
    }
    Ok(line)
}

/// Half of the threads read the files that are there, each its own, and half write as many new ones. The first
/// `--warm` of the files are for a round before the clock starts: a server has touched its memory.
fn mixed(options: &Options) -> Result<Value> {
    let (pool, mut disks) = open_with_disks(options, true)?;
    let fs = Filesystem::open(&pool, POOL)?;
    let source = Source::new(&options.data)?;
    let dir = directory(&fs, b"objects")?;
    let entries = fs.read_dir(dir)?;
    let round = |entries: &[fs::DirEntry]| {
        on_threads(2 * entries.len(), 2 * entries.len(), |job| {
            let mut buf = vec![0; CHUNK];
            let entry = &entries[job / 2];
            let (object, attrs) = fs.open_object(entry.object)?;
            let mut at = 0;
            if job % 2 == 0 {
                while at < attrs.size {
                    at += fs.read_open(&object, attrs.size, at, &mut buf)? as u64;
                }
                return Ok(());
            }
            let name = [b"new-", &*entry.name].concat();
            let number = fs.create(dir, &name, &FILE)?;
            while at < attrs.size {
                let part = (attrs.size - at).min(CHUNK as u64) as usize;
                fs.write(number, at, source.bytes(job as u64, at, part))?;
                at += part as u64;
            }
            Ok(())
        })?;
        anyhow::Ok(pool.sync()?)
    };
    let (warm, entries) = entries.split_at(options.warm.min(entries.len()));
    if !warm.is_empty() {
        round(warm)?;
    }
    disks.iter_mut().for_each(Disks::start);
    let clock = Clock::start();
    round(entries)?;
    let timed = clock.stop();
    drop(fs);
    pool.close()?;
    let bytes = 2 * entries.len() as u64 * options.object_bytes;
    let mut line = line("mixed", options, &timed, bytes, 2 * entries.len() as u64);
    if let Some(disks) = &disks {
        line["mean_io_kib"] = disks.mean_kib();
        line["busy_seconds"] = disks.busy_seconds();
        disks.write_trace(options.trace.as_deref())?;
    }
    Ok(line)
}

/// One scrub, of a pool that is opened before the clock starts.
fn scrub(options: &Options) -> Result<Value> {
    let pool = open(options, true)?;
    let bytes = pool.space()?.allocated;
    let clock = Clock::start();
    scan(&pool, ScanFunction::Scrub)?;
    let timed = clock.stop();
    scan_line("scrub", pool, options, &timed, bytes)
}

/// The first disk is lost, and an empty one takes its place.
fn resilver(options: &Options) -> Result<Value> {
    let path = options.dir.join("d00");
    let size = std::fs::metadata(&path)?.len();
    std::fs::remove_file(&path)?;
    let pool = open(options, true)?;
    let bytes = pool.space()?.allocated;
    // A disk has its blocks already.
    std::fs::write(&path, vec![0; usize::try_from(size)?])?;
    let lost = pool.config().vdev_tree.leaves().next().context("a leaf")?.guid;
    let clock = Clock::start();
    pool.attach(lost, leaf(&path)?, true)?;
    scan(&pool, ScanFunction::Resilver)?;
    let timed = clock.stop();
    ensure!(!pool.needs_resilver(), "the disk is not whole");
    scan_line("resilver", pool, options, &timed, bytes)
}

fn scan(pool: &Pool, function: ScanFunction) -> Result<()> {
    let begun = pool.scan_start(function)?;
    ensure!(begun == pool::ScanAnswer::Done, "{begun:?}");
    pool.scan_run(&mut |_| true)?;
    Ok(())
}

fn scan_line(
    verb: &str,
    pool: Arc<Pool>,
    options: &Options,
    timed: &Timed,
    bytes: u64,
) -> Result<Value> {
    let status = pool.scan_status()?.context("a scan")?;
    pool.close()?;
    let mut line = line(verb, options, timed, bytes, 0);
    line["errors"] = status.scan.errors.into();
    line["read"] = status.pass_read.into();
    line["written"] = status.pass_written.into();
    line["what"] = "raw bytes allocated".into();
    Ok(line)
}

fn free(options: &Options) -> Result<Value> {
    let pool = open(options, true)?;
    let fs = Filesystem::open(&pool, POOL)?;
    let dir = directory(&fs, b"objects")?;
    let before = pool.space()?.allocated;
    let clock = Clock::start();
    let items = remove_all(&fs, dir)?;
    pool.sync()?;
    let timed = clock.stop();
    let bytes = before.saturating_sub(pool.space()?.allocated);
    drop(fs);
    pool.close()?;
    Ok(line("free", options, &timed, bytes, items))
}
