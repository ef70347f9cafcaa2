//! Every kind of damage is noticed, and healed where redundancy allows; a disk's own checksum misses most.
//!
//! Seen red: with who lied at first, and was right when he was asked again, not blamed for it; and with a slow disk that
//! is as fast as the others.
#![allow(clippy::unwrap_used)]

use lab::faults::{Fault, Layout, run};
use testkit::rounds;

#[test]
fn all_is_detected_and_healed_where_redundancy_allows() {
    let seeds = rounds(2, 200);
    let rows = run(seeds, &mut |_| {}).unwrap();
    for row in &rows {
        assert!(row.is_good(), "{row:?}");
        let none_seen = matches!(
            row.fault,
            Fault::PhantomWrite
                | Fault::MisdirectedRead
                | Fault::MisdirectedWrite
                | Fault::DamageInTransfer
                | Fault::AccidentalOverwrite
                | Fault::TornWrite
        );
        assert!(!none_seen || row.control == 0, "a disk cannot know it: {row:?}");
        let all_seen = matches!(row.fault, Fault::BitRot | Fault::LatentError);
        assert!(!all_seen || row.control == row.injected, "a disk must know it: {row:?}");
    }
    // An experiment that hurts nothing shows nothing.
    for fault in Fault::ALL {
        let of_it = rows.iter().filter(|row| row.fault == fault && row.layout != Layout::Single);
        assert!(of_it.map(|row| row.injected).sum::<u64>() > seeds, "{fault:?} has hurt nothing");
    }
}
