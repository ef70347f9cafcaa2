//! The judges themselves: content with what OpenZFS wrote, not with what was damaged.

use std::panic::catch_unwind;

use acceptance::{choose, judge};
use testkit::golden_copy;

#[test]
fn they_are_content_with_a_whole_pool() {
    judge(&golden_copy("nofeat"), "nofeat", 1, 3);
}

#[test]
fn damage_is_not_passed_over() {
    let images = golden_copy("nofeat");
    // one side of the mirror, its labels spared: all of it can be read, and zdb counts the errors
    images.noise(1, 8 << 20, 5);
    let said = catch_unwind(|| judge(&images, "nofeat", 0, 0)).unwrap_err();
    let said = said.downcast_ref::<String>().expect("it says why");
    assert!(said.contains("nofeat"), "{said}");
}

#[test]
fn disks_to_hide_are_different_ones() {
    let mut hidden = choose(11, 3, 7);
    assert_eq!(hidden, choose(11, 3, 7));
    hidden.sort_unstable();
    hidden.dedup();
    assert_eq!(hidden.len(), 3);
    assert_eq!(choose(2, 5, 1).len(), 2);
}
