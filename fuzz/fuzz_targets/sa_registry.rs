//! Any bytes as the entries of a registry and of the layouts of a file system.
#![no_main]

use format::sa::{Attr, Layouts, Registry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Pieces: a choice of name and a value.
    let names = |choice: u8| Attr::ALL.get(usize::from(choice)).map_or("MINE", |a| a.name());
    let values = bytes.chunks_exact(9).map(|piece| {
        let value = piece[1..].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (names(piece[0]).as_bytes(), value)
    });
    if let Ok(registry) = Registry::from_entries(values) {
        for (_, value) in registry.entries() {
            assert!(registry.def(value as u16).is_some());
        }
    }
    let orders = bytes.chunks(12).map(|piece| {
        let (name, order) = piece.split_at(piece.len().min(3));
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        (&name[..end], order.iter().map(|b| u16::from(*b)).collect())
    });
    if let Ok(mut layouts) = Layouts::from_entries(orders) {
        let number = layouts.find_or_add(&[1, 2, 3]);
        assert!(number.is_err() || layouts.order(number.expect("ok")) == Some(&[1, 2, 3]));
    }
});
