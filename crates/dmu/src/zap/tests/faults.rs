//! Blocks that fail, and blocks that lie.

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Blocks of which the n-th first touch fails: a read of any block, or the first change of one in
/// this operation. After a change there are no more failures of that block, as promised.
struct Failing {
    blocks: MemoryBlocks,
    left: Cell<u32>,
    changed: BTreeSet<u64>,
}

impl Failing {
    fn tick(&self, blkid: u64) -> Result<(), ZapError> {
        if self.changed.contains(&blkid) {
            return Ok(());
        }
        let left = self.left.get().checked_sub(1).ok_or(ZapError::Full)?;
        self.left.set(left);
        Ok(())
    }
}

impl ZapBlocks for Failing {
    type Error = ZapError;

    fn block_size(&self) -> usize {
        self.blocks.block_size()
    }
    fn max_block(&self) -> u64 {
        self.blocks.max_block()
    }
    fn read<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R, ZapError> {
        self.tick(blkid)?;
        self.blocks.read(blkid, f)
    }
    fn modify<R>(&mut self, blkid: u64, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, ZapError> {
        // A new block needs no read and does not fail.
        if blkid <= self.blocks.max_block() {
            self.tick(blkid)?;
        }
        self.changed.insert(blkid);
        self.blocks.modify(blkid, f)
    }
    fn set_block_size(&mut self, bytes: usize) -> Result<(), ZapError> {
        self.tick(0)?;
        self.changed.insert(0);
        self.blocks.set_block_size(bytes)
    }
    fn free_blocks(&mut self, first: u64, count: u64) -> Result<(), ZapError> {
        self.blocks.free_blocks(first, count)
    }
    fn error(&self, error: ZapError) -> ZapError {
        error
    }
}

/// Does `change` with the first, the second, ... touch failing, until it succeeds; whenever it
/// fails, the ZAP is what it was.
fn at_each_fault(blocks: &mut MemoryBlocks, change: impl Fn(&mut Failing) -> Result<(), ZapError>) {
    let before = content(blocks);
    for left in 0.. {
        let left = Cell::new(left);
        let mut failing = Failing { blocks: blocks.clone(), left, changed: BTreeSet::new() };
        let done = change(&mut failing);
        assert_eq!(findings(&failing.blocks), [], "{done:?}");
        if done.is_ok() {
            assert!(left_over(&failing));
            *blocks = failing.blocks;
            return;
        }
        assert!(content(&failing.blocks) == before);
    }
}

/// Did the change end because it was done, not because nothing could fail?
fn left_over(failing: &Failing) -> bool {
    failing.left.get() == 0
}

#[test]
fn a_failed_change_changes_nothing() {
    let mut blocks = micro(0);
    let deep = colliding(40, 12, 400);
    for (i, name) in deep.iter().enumerate() {
        at_each_fault(&mut blocks, |b| add(b, name.as_slice(), &Value::u64(1)).map(|_| ()));
        if i == 100 {
            // On the way to a fat one.
            at_each_fault(&mut blocks, |b| update(b, "text", &Value::string(b"some")));
        }
        if i % 10 == 0 {
            at_each_fault(&mut blocks, |b| update(b, name.as_slice(), &Value::bytes(&[1; 200])));
        }
        if i % 20 == 0 {
            at_each_fault(&mut blocks, |b| remove(b, name.as_slice()).map(|_| ()));
        }
    }
    assert!(head(&blocks).table_blocks.get() >= 2);
    assert_eq!(count(&blocks), Ok(400 + 1 - 20));
}

#[test]
fn a_micro_zap_among_other_blocks_does_not_grow() {
    let mut blocks = micro(0);
    blocks.modify(1, |block| block.fill(1)).unwrap();
    for i in 0..7u64 {
        assert!(add(&mut blocks, format!("name {i}").as_str(), &Value::u64(i)).unwrap());
    }
    let damaged = |done| matches!(done, Err(ZapError::Damaged(_)));
    assert!(damaged(add(&mut blocks, "one more", &Value::u64(1)).map(|_| ())));
    assert!(damaged(update(&mut blocks, "name 3", &Value::string(b"text"))));
    assert_eq!(count(&blocks), Ok(7));
    assert!(remove(&mut blocks, "name 3").unwrap());
}

#[test]
fn a_pointer_beyond_the_last_block_makes_no_blocks() {
    let mut blocks = fat(10, 0);
    for leaf in [0u64, 2, 1 << 40, u64::MAX] {
        blocks
            .modify(0, |block| {
                block[512..].as_chunks_mut().0.fill(leaf.to_le_bytes());
                // And a freeblk that allows it.
                block[56..64].copy_from_slice(&(leaf.wrapping_add(1)).to_le_bytes());
            })
            .unwrap();
        let done = [
            add(&mut blocks, "name", &Value::u64(1)).map(|_| ()),
            update(&mut blocks, "name", &Value::u64(1)),
            remove(&mut blocks, "name").map(|_| ()),
            lookup(&blocks, "name").map(|_| ()),
        ];
        assert!(done.iter().all(|d| matches!(d, Err(ZapError::Damaged(_)))), "{done:?}");
        assert_eq!(blocks.blocks().len(), 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Changed bytes anywhere in a ZAP give errors or wrong names, never a panic or a loop.
    #[test]
    fn hostile_zaps_end(
        changes in prop::collection::vec((0..8usize, 0..1024usize, any::<u8>()), 1..12),
        words in prop::collection::vec((0..128usize, prop::sample::select(vec![
            0u64, 1, 2, 3, 10, 11, 14, 63, 64, 1 << 20, 1 << 47, 1 << 63, u64::MAX,
        ])), 0..3),
        is_fat in any::<bool>(),
        steps in prop::collection::vec((0..4u8, 0..40u16), 1..40),
    ) {
        let mut blocks = if is_fat { fat(10, 0) } else { micro(0) };
        for i in 0..40u64 {
            add(&mut blocks, format!("entry {i}").as_str(), &Value::u64(i)).unwrap();
        }
        let mut raw = blocks.blocks().to_vec();
        for (block, at, byte) in changes {
            let block = block % raw.len();
            let at = at % raw[block].len();
            raw[block][at] = byte;
        }
        for (word, value) in words {
            raw[0].chunks_exact_mut(8).nth(word % 64).unwrap().copy_from_slice(&value.to_le_bytes());
        }
        let mut blocks = MemoryBlocks::of(raw);
        for (what, i) in steps {
            let name = format!("entry {i}");
            let key = name.as_str();
            let _ = match what {
                0 => add(&mut blocks, key, &Value::u64(1)).map(|_| ()),
                1 => remove(&mut blocks, key).map(|_| ()),
                2 => update(&mut blocks, key, &Value::bytes(&[7; 100])),
                _ => increment(&mut blocks, key, 1),
            };
            let _ = lookup(&blocks, key);
            let _ = lookup_normalized(&blocks, key.as_bytes(), false);
            prop_assert!(blocks.blocks().len() < 4000, "{} blocks", blocks.blocks().len());
        }
        let _ = entries(&blocks);
        let _ = list(&blocks, Cursor { hash: 1 << 60, cd: 0 }, 10);
        let _ = findings(&blocks);
    }
}
