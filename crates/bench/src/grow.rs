//! `grow`: how the cost of an operation grows with what it works on.
//!
//! Each thing is made twice, of half the size and of the whole, in pools on sparse images of their
//! own, and the same operation is timed on both. It is called as the commands call it, through
//! `verbs`, where a command has it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use fs::Filesystem;
use serde_json::{Value, json};
use verbs::datasets::Query;
use verbs::files::{List, Listed, Place};
use verbs::judge::{Verdict, Verify};
use verbs::props::{Key, Kind, Kinds, Prop};
use verbs::state::StateFile;
use verbs::{Engine, Local};

use crate::clock::{self, Clock, Timed};
use crate::options::Options;
use crate::{FILE, POOL, directory, on_threads, open};

/// Bytes of an image: sparse, and more than any of the pools needs.
const IMAGE_BYTES: u64 = 64 << 30;
/// Bytes of a record where blocks are to be many.
const BLOCK: usize = 512;
/// Blocks of a file where blocks are to be many.
const FILE_BLOCKS: usize = 16 << 10;
/// Requests that share a txg while data sets are made.
const AT_ONCE: usize = 256;
/// Times that what only reads is repeated; the median counts.
const ROUNDS: usize = 3;

/// One pool of a size.
struct Case<'a> {
    options: &'a Options,
    what: &'a str,
    count: usize,
}

/// Runs `--what` at half of `--count` and at the whole, and prints a line for each step of each.
pub(crate) fn run(options: &Options) -> Result<()> {
    for (name, count) in [("half", options.count / 2), ("full", options.count)] {
        let dir = options.dir.join(name);
        std::fs::create_dir_all(&dir).context("making a directory for images")?;
        let options = Options {
            dir: dir.clone(),
            layout: "disk:1".into(),
            ashift: 9,
            size: IMAGE_BYTES,
            sparse: true,
            record: BLOCK as u64,
            ..options.clone()
        };
        crate::create(&options)?;
        let case = Case { options: &options, what: &options.what, count };
        match options.what.as_str() {
            "list" => case.list()?,
            "names" => case.names()?,
            "open" => case.open()?,
            "verify" => case.verify()?,
            "snapshots" => case.snapshots()?,
            other => bail!("unknown '{other}': list, names, open, verify or snapshots"),
        }
        if !options.keep {
            std::fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

impl Case<'_> {
    fn tell(&self, step: &str, timed: &Timed) {
        let line: Value = json!({
            "engine": "thumper", "verb": "grow", "what": self.what, "step": step,
            "count": self.count, "seconds": timed.seconds, "user": timed.user, "sys": timed.sys,
            "rss_mb": clock::rss_mb(),
        });
        println!("{line}");
    }

    /// Times a step that can be done once only.
    fn once<T>(&self, step: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let clock = Clock::start();
        let done = work()?;
        self.tell(step, &clock.stop());
        Ok(done)
    }

    /// Times a step that changes nothing, several times.
    fn often(&self, step: &str, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let clock = Clock::start();
            work()?;
            all.push(clock.stop());
        }
        all.sort_by(|a, b| (a.user + a.sys).total_cmp(&(b.user + b.sys)));
        let median = all.get(ROUNDS / 2).context("no rounds")?;
        self.tell(step, median);
        Ok(())
    }

    /// The engine as a command has it, without a pool that it remembers.
    fn engine(&self) -> (Local, Vec<PathBuf>) {
        let state = self.options.dir.join("state");
        (Local::new(StateFile::new(state)), vec![self.options.dir.clone()])
    }

    /// `zfs list -r` of as many file systems.
    fn list(&self) -> Result<()> {
        let pool = open(self.options, true)?;
        self.once("make", || {
            on_threads(AT_ONCE, self.count, |n| {
                let name = format!("{POOL}/fs{n}");
                Ok(pool.create_filesystem(&name, BTreeMap::new(), fs::make_filesystem)?)
            })
        })?;
        pool.close()?;
        drop(pool);
        let columns = [Prop::Name, Prop::Used, Prop::Available, Prop::Referenced, Prop::Mountpoint];
        let (mut engine, places) = self.engine();
        let query = Query {
            names: vec![POOL.into()],
            depth: Some(usize::MAX),
            kinds: Kinds::NONE.with(Kind::Filesystem).with(Kind::Volume),
            keys: columns.map(Key::Native).to_vec(),
            places,
            ..Query::default()
        };
        self.often("list", || {
            let report = engine.dataset_query(&query)?;
            ensure!(report.errors.is_empty(), "{:?}", report.errors);
            ensure!(report.datasets.len() == self.count + 1, "not all data sets are listed");
            Ok(())
        })
    }

    /// `ls` of a directory with as many names.
    fn names(&self) -> Result<()> {
        let pool = open(self.options, true)?;
        let fs = Filesystem::open(&pool, POOL)?;
        let dir = directory(&fs, b"names")?;
        self.once("make", || {
            on_threads(self.options.threads, self.count.div_ceil(1000), |run| {
                for n in run * 1000..((run + 1) * 1000).min(self.count) {
                    fs.create(dir, format!("name{n}").as_bytes(), &FILE)?;
                }
                Ok(())
            })?;
            Ok(pool.sync()?)
        })?;
        drop(fs);
        pool.close()?;
        drop(pool);
        let (mut engine, dirs) = self.engine();
        let place = Place::parse(format!("{POOL}:/names").as_bytes()).context("a place")?;
        let request = List { places: vec![place], dirs, ..List::default() };
        self.often("ls", || {
            let mut seen = 0;
            let errors = engine.list(&request, &mut |listed| {
                seen += usize::from(matches!(listed, Listed::File(_)));
            })?;
            ensure!(errors.is_empty(), "{errors:?}");
            ensure!(seen == self.count, "{seen} names of {}", self.count);
            Ok(())
        })?;
        let pool = open(self.options, true)?;
        let fs = Filesystem::open(&pool, POOL)?;
        self.once("rm", || {
            crate::remove_all(&fs, dir)?;
            Ok(pool.sync()?)
        })?;
        drop(fs);
        Ok(pool.close()?)
    }

    /// A pool with as many blocks, and as many again that were freed from between them.
    fn many_blocks(&self) -> Result<()> {
        let pool = open(self.options, true)?;
        crate::prepare(&pool, self.options)?;
        let fs = Filesystem::open(&pool, POOL)?;
        let source = crate::data::Source::new("random")?;
        let dir = directory(&fs, b"blocks")?;
        self.once("make", || {
            on_threads(self.options.threads, self.count.div_ceil(FILE_BLOCKS), |file| {
                let blocks = FILE_BLOCKS.min(self.count - file * FILE_BLOCKS);
                let number = fs.create(dir, format!("file{file}").as_bytes(), &FILE)?;
                let piece = 1 << 20;
                let mut at = 0;
                while at < blocks * BLOCK {
                    let part = piece.min(blocks * BLOCK - at);
                    fs.write(number, at as u64, source.bytes(file as u64, at as u64, part))?;
                    at += part;
                }
                Ok(())
            })?;
            Ok(pool.sync()?)
        })?;
        // Every eighth is written anew, so that free space is in pieces all over.
        self.once("pierce", || {
            let entries = fs.read_dir(dir)?;
            on_threads(self.options.threads, entries.len(), |file| {
                let size = fs.attrs(entries[file].object)?.size;
                for at in (0..size).step_by(BLOCK * 8) {
                    let bytes = source.bytes(file as u64 + 1, at, BLOCK);
                    fs.write(entries[file].object, at, bytes)?;
                }
                Ok(())
            })?;
            for _ in 0..4 {
                pool.sync()?;
            }
            Ok(())
        })?;
        drop(fs);
        Ok(pool.close()?)
    }

    /// Opening a pool with as many blocks, for reading and for writing.
    fn open(&self) -> Result<()> {
        self.many_blocks()?;
        self.often("open", || {
            let pool = open(self.options, false)?;
            pool.space()?;
            Ok(())
        })?;
        self.often("open for writing", || {
            let pool = open(self.options, true)?;
            pool.space()?;
            Ok(pool.close()?)
        })?;
        // What is left until something is written has to be done then.
        let mut times = 0;
        self.often("open and write", || {
            let pool = open(self.options, true)?;
            let fs = Filesystem::open(&pool, POOL)?;
            fs.create_with(fs.root(), format!("new{times}").as_bytes(), &FILE, &[1; BLOCK])?;
            times += 1;
            drop(fs);
            Ok(pool.close()?)
        })
    }

    /// The judge over a pool with as many blocks.
    fn verify(&self) -> Result<()> {
        self.many_blocks()?;
        let (mut engine, places) = self.engine();
        let request = Verify { name: POOL.into(), places, ..Default::default() };
        self.often("verify", || {
            let report = engine.verify(&request, &mut |_| true)?;
            ensure!(report.verdict == Verdict::Clean, "{report:?}");
            ensure!(report.blocks >= self.count as u64, "{} blocks", report.blocks);
            Ok(())
        })
    }

    /// As many snapshots taken one by one, each with a change before it, and destroyed one by one.
    fn snapshots(&self) -> Result<()> {
        let pool = open(self.options, true)?;
        let fs = Filesystem::open(&pool, POOL)?;
        let dir = directory(&fs, b"files")?;
        let source = crate::data::Source::new("random")?;
        let number = fs.create(dir, b"file", &FILE)?;
        let name = |n: usize| format!("{POOL}@snap{n}");
        self.once("take", || {
            for n in 0..self.count {
                fs.write(number, 0, source.bytes(n as u64, 0, 4096))?;
                pool.snapshot(&[name(n)], &[])?;
            }
            Ok(())
        })?;
        drop(fs);
        pool.close()?;
        drop(pool);
        let pool = open(self.options, true)?;
        self.once("destroy", || {
            for n in 0..self.count {
                pool.destroy_snapshots(&[name(n)], false)?;
            }
            Ok(pool.sync()?)
        })?;
        Ok(pool.close()?)
    }
}
