//! The state of a judgement, kept in a file, so that one that was stopped goes on instead of beginning anew.
//!
//! The one idea: nearly all of the time goes into reading the contents of files and volumes, and nothing is
//! learnt from those blocks but whether they are good. So the walk itself is always made anew, from the
//! pointers, in the same order; what is kept is how far in that order contents were read, and which of them
//! were not good. Those before that place are passed over; those that were not good are read again.
//! It holds only for the same state of the pool, on the same disks, with the same data sets walked until there: else
//! all begins anew, and the report says so. Only contents of data sets are kept: what of the MOS leads to contents,
//! trees that are being freed, has no place in that order. Below what could not be read nobody was, so behind that
//! the place stays where it is.

use crate::space::repeats;
use crate::walk::{MOS, Scope, Walk};
use format::BlkPtr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// First line of the file.
const MAGIC: &str = "thumper verify 2";
/// Blocks with damage that are kept; 24 bytes each. Beyond, the place stays where it is.
const BAD_MAX: usize = 1 << 18;
/// The largest file that is believed, in bytes: one with all lines as long as can be.
const FILE_MAX: u64 = (BAD_MAX as u64 + 8) * 70;

/// Where a judgement's state is kept, and how often it is written.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The file. It need not be there; when the judge is done it goes.
    pub file: PathBuf,
    /// Bytes of contents examined between two writes of it.
    pub every: u64,
}

impl Keep {
    /// Keeps state in `file`, every few seconds on fast disks, every few minutes on slow ones.
    pub fn new(file: impl Into<PathBuf>) -> Keep {
        Keep { file: file.into(), every: 4 << 30 }
    }
}

/// What a state is true of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Guid of the pool.
    pub pool: u64,
    /// The txg, and the checksum of its root.
    pub txg: u64,
    /// See `txg`.
    pub root: [u64; 4],
    /// Guids of the leaves that are there.
    pub leaves: Vec<u64>,
}

/// A block of contents, in the order of the walk: which data set it was, in order; its object; its number.
pub(crate) type Place = (u32, u64, u64);

/// What is in the file, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// All contents up to here were examined, this place included.
    upto: Option<Place>,
    /// What stands for the data sets that were walked until then, in order.
    sets: u64,
    /// Blocks until then of which pieces are missing, and the rest is good.
    missing: u64,
    /// Blocks until then that were not good, in order.
    bad: Vec<Place>,
}

/// The state of the judgement that is going on.
#[derive(Debug)]
pub(crate) struct Kept {
    keep: Keep,
    subject: Subject,
    /// What an earlier judgement left.
    earlier: State,
    /// What there is to be kept of this one; includes the earlier one.
    now: State,
    /// Bytes examined since the last write.
    since: u64,
    /// Bytes that were passed over.
    passed: u64,
    /// The number of the data set that is walked, in the order of the walk.
    turn: u32,
    /// What stands for the data sets up to each turn.
    sets: Vec<u64>,
    /// What the report has to say about it.
    notes: Vec<String>,
    full: bool,
}

impl Kept {
    /// Begins where the file says that an earlier judgement was.
    ///
    /// # Errors
    /// If the file can't be read or written, is no such file, or another pool's.
    pub(crate) fn begin(keep: &Keep, subject: Subject) -> io::Result<Kept> {
        let mut notes = Vec::new();
        let mut earlier = State::default();
        if let Some(text) = read(&keep.file)? {
            let (of, state) = parse(&text).map_err(|line| {
                bad_file(format!("line {line} is not what a judgement's state has there"))
            })?;
            if of.pool != subject.pool {
                return Err(bad_file(format!("it is of a pool with guid {}", of.pool)));
            }
            if (of.txg, of.root) != (subject.txg, subject.root) {
                let (was, is) = (of.txg, subject.txg);
                notes.push(format!(
                    "the pool was written since txg {was}, it is at {is}: begun anew"
                ));
            } else if of.leaves != subject.leaves {
                notes.push("other disks are there than before: begun anew".into());
            } else {
                earlier = state;
            }
        }
        let now = earlier.clone();
        let (since, passed) = (0, 0);
        let keep = keep.clone();
        let (turn, sets, full) = (0, Vec::new(), false);
        let kept = Kept { keep, subject, earlier, now, since, passed, turn, sets, notes, full };
        kept.write()?;
        Ok(kept)
    }

    /// These data sets will be walked, in this order. If they are not those of before, all begins anew.
    pub(crate) fn walks(&mut self, objects: impl Iterator<Item = u64>) {
        // Odd factors mix without loss; nobody is to be deceived but by chance.
        let next = |sum: &mut u64, object: u64| {
            *sum = (*sum ^ object).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            Some(*sum)
        };
        let mut sum = 1;
        self.sets = std::iter::once(sum).chain(objects.map_while(|o| next(&mut sum, o))).collect();
        let Some((turn, ..)) = self.earlier.upto else { return };
        if self.sets.get(turn as usize) != Some(&self.earlier.sets) {
            self.notes.push("other data sets can be read than before: begun anew".into());
            (self.earlier, self.now) = Default::default();
        }
    }

    /// Something could not be read, and nobody knows what is below it: nothing behind it is kept.
    pub(crate) fn stay(&mut self) {
        self.full = true;
    }

    /// The next data set is walked.
    pub(crate) fn next_dataset(&mut self) {
        self.turn += 1;
    }

    /// Was this block examined, and good? Then `bytes` of it are passed over.
    pub(crate) fn is_known_good(&self, object: u64, block: u64) -> bool {
        let place = (self.turn, object, block);
        self.earlier.upto.is_some_and(|upto| place <= upto)
            && self.earlier.bad.binary_search(&place).is_err()
    }

    /// Notes that so many bytes were passed over.
    pub(crate) fn pass(&mut self, bytes: u64) {
        self.passed = self.passed.saturating_add(bytes);
    }

    /// Blocks that were passed over of which pieces are missing.
    pub(crate) fn missing(&self) -> u64 {
        self.earlier.missing
    }

    /// Notes a block of contents that was examined: `bytes` on disk.
    pub(crate) fn note(&mut self, object: u64, block: u64, bytes: u64, found: Found) {
        let place = (self.turn, object, block);
        if self.full || self.earlier.upto.is_some_and(|upto| place <= upto) {
            return;
        }
        // Trees of hostile shapes come to a place again.
        if self.now.upto.is_some_and(|upto| place <= upto) {
            self.full = true;
            return;
        }
        if found == Found::Bad && self.now.bad.len() >= BAD_MAX {
            self.full = true;
            return;
        }
        match found {
            Found::Good => {}
            Found::Missing => self.now.missing += 1,
            Found::Bad => self.now.bad.push(place),
        }
        self.now.upto = Some(place);
        self.now.sets = self.sets.get(self.turn as usize).copied().unwrap_or_default();
        self.since = self.since.saturating_add(bytes);
        if self.since >= self.keep.every {
            self.since = 0;
            if let Err(error) = self.write() {
                self.full = true;
                let file = self.keep.file.display();
                self.notes.push(format!("its state could not be kept in {file}: {error}"));
            }
        }
    }

    /// The judgement ends before it is done: another one may go on from here.
    pub(crate) fn leave(&self) {
        // What cannot be written was written some time before.
        drop(self.write());
    }

    /// The judgement is done: the file goes. What is to be said about it.
    pub(crate) fn end(mut self) -> Vec<String> {
        if let Err(error) = fs::remove_file(&self.keep.file) {
            self.notes.push(format!("{} could not be removed: {error}", self.keep.file.display()));
        }
        if self.passed > 0 {
            self.notes.push(format!("{} bytes of it were examined before", self.passed));
        }
        self.notes
    }

    /// Writes the file, whole or not at all.
    fn write(&self) -> io::Result<()> {
        let mut part = self.keep.file.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part)?;
        let mut out = io::BufWriter::new(&file);
        let Subject { pool, txg, root: [a, b, c, d], leaves } = &self.subject;
        write!(out, "{MAGIC}\npool {pool} txg {txg} root {a} {b} {c} {d}\nleaves")?;
        for leaf in leaves {
            write!(out, " {leaf}")?;
        }
        write!(out, "\nmissing {} sets {}", self.now.missing, self.now.sets)?;
        if let Some((turn, object, block)) = self.now.upto {
            write!(out, "\nupto {turn} {object} {block}")?;
        }
        for (turn, object, block) in &self.now.bad {
            write!(out, "\nbad {turn} {object} {block}")?;
        }
        out.write_all(b"\n")?;
        out.flush()?;
        file.sync_all()?;
        fs::rename(&part, &self.keep.file)
    }
}

/// What was found of a block of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All of it.
    Good,
    /// What is there is good, and enough.
    Missing,
    /// Anything else.
    Bad,
}

impl Walk<'_> {
    /// Looks at a block of a file's or a volume's contents, but at one that is known to be good.
    pub(crate) fn look_at_contents(
        &mut self,
        scope: Scope,
        object: u64,
        bp: &BlkPtr,
        number: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        let of_a_set = scope.dataset != MOS;
        let known = |kept: &Kept| of_a_set && kept.is_known_good(object, number);
        let known = self.kept.as_ref().is_some_and(known);
        if known && self.blocks.segments(bp, &mut self.audit).is_ok() {
            let segments = std::mem::take(&mut self.audit.segments);
            let size = segments.iter().map(|(_, _, size)| *size).fold(0, u64::saturating_add);
            self.claim(scope, object, repeats(bp), &segments);
            self.audit.segments = segments;
            self.kept.iter_mut().for_each(|kept| kept.pass(size));
            self.count_block();
            return Ok(());
        }
        let result = self.look(scope, object, bp, bytes);
        // What was not read for want of anybody who waits is not bad.
        let is_kept = of_a_set && !self.blocks.is_over();
        if let Some(kept) = self.kept.as_mut().filter(|_| is_kept) {
            let audit = &self.audit;
            let bad = result.is_err() || audit.is_damaged() || !audit.oddities.is_empty();
            let found = match audit.missing {
                _ if bad => Found::Bad,
                0 => Found::Good,
                _ => Found::Missing,
            };
            let size = audit.segments.iter().map(|(_, _, size)| *size);
            kept.note(object, number, size.fold(0, u64::saturating_add), found);
        }
        result
    }
}

fn bad_file(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The text of the file; `None` if there is none.
fn read(file: &Path) -> io::Result<Option<String>> {
    match fs::metadata(file) {
        Ok(meta) if meta.len() > FILE_MAX || !meta.is_file() => {
            Err(bad_file(format!("it is not the state of a judgement ({} bytes)", meta.len())))
        }
        Ok(_) => fs::read_to_string(file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what [`Kept::write`] wrote; else the number of the line that is wrong.
fn parse(text: &str) -> Result<(Subject, State), usize> {
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(1);
    }
    let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let ["pool", pool, "txg", txg, "root", a, b, c, d] = words[..] else { return Err(2) };
    let [pool, txg, a, b, c, d] = numbers([pool, txg, a, b, c, d]).ok_or(2usize)?;
    let leaves = lines.next().and_then(|line| line.strip_prefix("leaves")).ok_or(3usize)?;
    let leaves: Result<_, _> = leaves.split_whitespace().map(str::parse).collect();
    let leaves = leaves.map_err(|_| 3usize)?;
    let mut state = State::default();
    let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let ["missing", missing, "sets", sets] = words[..] else { return Err(4) };
    [state.missing, state.sets] = numbers([missing, sets]).ok_or(4usize)?;
    for (number, line) in (5usize..).zip(lines) {
        let words: Vec<_> = line.split(' ').collect();
        let [what, turn, object, block] = words[..] else { return Err(number) };
        let [turn, object, block] = numbers([turn, object, block]).ok_or(number)?;
        let place = (u32::try_from(turn).map_err(|_| number)?, object, block);
        let in_order = state.bad.last().is_none_or(|last| *last < place);
        match what {
            "upto" if number == 5 => state.upto = Some(place),
            "bad" if in_order && state.upto.is_some_and(|upto| place <= upto) => {
                state.bad.push(place);
            }
            _ => return Err(number),
        }
    }
    Ok((Subject { pool, txg, root: [a, b, c, d], leaves }, state))
}

fn numbers<const N: usize>(words: [&str; N]) -> Option<[u64; N]> {
    let mut out = [0; N];
    for (number, word) in out.iter_mut().zip(words) {
        *number = word.parse().ok()?;
    }
    Some(out)
}
