//! Sorting more records than memory may hold: sorted runs in a scratch file, merged at the end.
//!
//! The one idea: what the judge must remember of every block is four words. They are collected in
//! a vector of fixed size; when it is full it is sorted and written out, and in the end all runs
//! are read side by side.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Four words that sort in their order.
pub(crate) type Record = [u64; 4];

const RECORD: usize = size_of::<Record>();
/// Records that are read from a run at once.
const CHUNK: usize = 512;

/// Collects records.
pub(crate) struct Sorter {
    records: Vec<Record>,
    max: usize,
    scratch: PathBuf,
    file: Option<File>,
    /// Ends of the runs in the file, in records.
    ends: Vec<u64>,
    /// A write failed: what was collected is not complete.
    failed: Option<io::Error>,
}

impl Sorter {
    /// A sorter that uses about `memory` bytes, and files in the directory `scratch` beyond.
    pub(crate) fn new(memory: usize, scratch: &Path) -> Sorter {
        Sorter {
            records: Vec::new(),
            max: (memory / RECORD).max(CHUNK),
            scratch: scratch.to_owned(),
            file: None,
            ends: Vec::new(),
            failed: None,
        }
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: Record) {
        if self.records.len() >= self.max
            && let Err(error) = self.spill()
        {
            self.failed.get_or_insert(error);
            self.records.clear();
        }
        if self.records.capacity() == 0 {
            // At once: growing would need the old and the new room together. What is never used of
            // it is never there.
            self.records.reserve_exact(self.max);
        }
        self.records.push(record);
    }

    /// Are some of the records in the scratch file?
    #[cfg(test)]
    pub(crate) fn has_spilled(&self) -> bool {
        !self.ends.is_empty()
    }

    fn spill(&mut self) -> io::Result<()> {
        self.records.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(scratch_file(&self.scratch)?),
        };
        let mut out = io::BufWriter::with_capacity(1 << 20, &mut *file);
        for word in self.records.iter().flatten() {
            out.write_all(&word.to_le_bytes())?;
        }
        out.flush()?;
        drop(out);
        let end = self.ends.last().copied().unwrap_or(0);
        self.ends.push(end + self.records.len() as u64);
        self.records.clear();
        Ok(())
    }

    /// All records in order.
    ///
    /// # Errors
    /// If the scratch file could not be written.
    pub(crate) fn finish(mut self) -> io::Result<Sorted> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.records.sort_unstable();
        let mut runs = Vec::new();
        let mut at = 0;
        for end in &self.ends {
            runs.push(Run { at, end: *end, ready: Vec::new() });
            at = *end;
        }
        let memory = self.records.into_iter();
        let mut sorted = Sorted {
            file: self.file,
            runs,
            memory,
            heap: BinaryHeap::new(),
            failed: Rc::default(),
        };
        for source in 0..=sorted.runs.len() {
            sorted.refill(source);
        }
        Ok(sorted)
    }
}

/// A file that has no name any more.
fn scratch_file(dir: &Path) -> io::Result<File> {
    for attempt in 0..1000u32 {
        let name = format!("thumper-verify-{}-{attempt}", std::process::id());
        let path = dir.join(name);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// A part of the scratch file that is in order; `ready` holds its next records, last first.
struct Run {
    at: u64,
    end: u64,
    ready: Vec<Record>,
}

/// Iterator over all records in order. After a failed read it ends, and says so in `failed`.
pub(crate) struct Sorted {
    file: Option<File>,
    runs: Vec<Run>,
    memory: std::vec::IntoIter<Record>,
    /// The next record of every source; the last source is memory.
    heap: BinaryHeap<Reverse<(Record, usize)>>,
    failed: Rc<OnceCell<io::Error>>,
}

impl Sorted {
    /// Where it will be said why the iteration ended too early, if it does.
    pub(crate) fn failed(&self) -> Rc<OnceCell<io::Error>> {
        self.failed.clone()
    }

    fn refill(&mut self, source: usize) {
        let next = match (self.runs.get_mut(source), &self.file) {
            (Some(run), Some(file)) => match run.next(file) {
                Ok(next) => next,
                Err(error) => {
                    drop(self.failed.set(error));
                    None
                }
            },
            _ => self.memory.next(),
        };
        self.heap.extend(next.map(|record| Reverse((record, source))));
    }
}

impl Run {
    fn next(&mut self, file: &File) -> io::Result<Option<Record>> {
        if self.ready.is_empty() {
            let count = (self.end - self.at).min(CHUNK as u64) as usize;
            let mut bytes = vec![0; count * RECORD];
            file.read_exact_at(&mut bytes, self.at * RECORD as u64)?;
            self.at += count as u64;
            let (words, _) = bytes.as_chunks::<8>();
            let (records, _) = words.as_chunks::<4>();
            self.ready = records.iter().map(|words| words.map(u64::from_le_bytes)).rev().collect();
        }
        Ok(self.ready.pop())
    }
}

impl Iterator for Sorted {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.failed.get().is_some() {
            return None;
        }
        let Reverse((record, source)) = self.heap.pop()?;
        self.refill(source);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(count: u64, memory: usize) -> (Vec<Record>, usize) {
        let mut sorter = Sorter::new(memory, &std::env::temp_dir());
        for i in 0..count {
            // A permutation, as long as the modulus is prime to the factor.
            sorter.push([i.wrapping_mul(7919) % 10_007, i, !i, 1]);
        }
        let runs = sorter.ends.len();
        let sorted = sorter.finish().unwrap();
        (sorted.collect(), runs)
    }

    #[test]
    fn spilled_or_not_the_order_is_the_same() {
        let (in_memory, runs) = sorted(10_007, 1 << 20);
        assert_eq!(runs, 0);
        let (spilled, runs) = sorted(10_007, 40_000);
        assert_eq!(runs, 8);
        assert_eq!(in_memory, spilled);
        assert!(in_memory.is_sorted());
        assert_eq!(in_memory.len(), 10_007);
        assert_eq!(sorted(0, 40_000).0, Vec::<Record>::new());
    }

    #[test]
    fn a_scratch_directory_that_is_not_there_is_an_error() {
        let mut sorter = Sorter::new(0, Path::new("/nonexistent/scratch"));
        for i in 0..CHUNK as u64 + 1 {
            sorter.push([i, 0, 0, 0]);
        }
        assert!(sorter.finish().is_err());
    }
}
