//! Roots that were found among the blocks of disks, kept in a file: a search reads every sector, and is done once.
//!
//! A line for each: the guid of the pool, the txg, and the pointer to the object set of its MOS, in hex.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;

use format::blkptr::BlkPtr;
use format::uberblock::Uberblock;
use pool::Pool;
use pool::devices::FoundPool;

use super::Here;
use super::opening::as_it_is_on;

use crate::{Doing, Error, Result, Why, find};

/// Bytes that a file of roots has at most.
const FILE_MAX: u64 = 16 << 20;

fn failed(file: &Path, why: String) -> Error {
    Error::cannot(Doing::Open(file.display().to_string()), Why::Host(why))
}

/// A file that nobody has anything in: a new one, or one that a search has left that was interrupted.
fn empty(file: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    let open = options.write(true).create(true).truncate(false).open(file)?;
    match open.metadata()?.len() {
        0 => Ok(open),
        _ => Err(rustix::io::Errno::EXIST.into()),
    }
}

/// Searches the disks of pools, and writes what was found into a new file.
pub(super) fn search(
    pools: &[FoundPool],
    file: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let told = |error: std::io::Error| failed(file, error.to_string());
    // Before hours of reading: can it be kept at all?
    let mut open = empty(file).map_err(told)?;
    let mut text = String::new();
    for found in pools {
        let tree = found.open_tree().map_err(|error| failed(file, error.to_string()))?;
        for root in tree.search_roots(progress) {
            let words = root.root.words();
            _ = write!(text, "{} {} ", found.guid(), root.txg);
            words.iter().for_each(|word| _ = write!(text, "{word:016x}"));
            text.push('\n');
        }
    }
    open.write_all(text.as_bytes()).map_err(told)
}

/// The roots in the file that may be this pool's, newest first, but those of txgs that have an uberblock.
pub(super) fn read(found: &FoundPool, file: &Path) -> Result<Vec<Uberblock>> {
    let told = |error: std::io::Error| failed(file, error.to_string());
    let mut text = String::new();
    let open = File::open(file).map_err(told)?;
    open.take(FILE_MAX).read_to_string(&mut text).map_err(told)?;
    let mut roots = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let bad =
            || failed(file, format!("line {number} is no root ('thumper rescue scan --roots')"));
        let (guid, root) = parse(line).ok_or_else(bad)?;
        let known = found.uberblocks.iter().any(|known| known.txg == root.txg);
        if guid == found.guid() && !known {
            roots.push(root);
        }
    }
    roots.sort_by_key(|root| std::cmp::Reverse(root.txg.get()));
    Ok(roots)
}

/// Gives the pool the newest root in the file that leads to a MOS of its own, up to this txg, as an uberblock.
pub(super) fn take(
    here: &Here,
    found: &mut FoundPool,
    file: &Path,
    txg: Option<u64>,
) -> Result<()> {
    for mut root in read(found, file)? {
        if txg.is_some_and(|txg| root.txg.get() > txg) {
            continue;
        }
        let tree = found.open_tree_in(&here.memory);
        let tree = tree.map_err(|error| failed(file, error.to_string()))?;
        let (devices, options) = (as_it_is_on(found, tree), find::options(&here.memory));
        if let Ok(pool) = Pool::open(devices, std::slice::from_ref(&root), &options) {
            root.guid_sum = pool.config().vdev_tree.guid_sum().into();
            found.uberblocks.push(root);
            found.uberblocks.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.txg.get()));
            break;
        }
    }
    Ok(())
}

fn parse(line: &str) -> Option<(u64, Uberblock)> {
    let mut words = line.split(' ');
    let guid = words.next()?.parse().ok()?;
    let txg: u64 = words.next()?.parse().ok()?;
    let hex = words.next().filter(|hex| hex.len() == 256 && hex.is_ascii())?;
    let mut root = [0; 16];
    for (at, word) in root.iter_mut().enumerate() {
        *word = u64::from_str_radix(hex.get(16 * at..16 * at + 16)?, 16).ok()?;
    }
    (words.next().is_none()).then(|| (guid, Uberblock::new(txg, 0, 0, BlkPtr::from_words(root))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Seen red: after a search that was interrupted the next one found its file in its way.
    #[test]
    fn a_file_with_nothing_in_it_is_taken() {
        let file = std::env::temp_dir().join(format!("thumper-roots-{}", std::process::id()));
        for text in ["", "roots"] {
            empty(&file).unwrap().write_all(text.as_bytes()).unwrap();
        }
        let error = failed(&file, empty(&file).unwrap_err().to_string()).to_string();
        assert!(error.contains("File exists"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "roots");
        std::fs::remove_file(file).unwrap();
    }
}
