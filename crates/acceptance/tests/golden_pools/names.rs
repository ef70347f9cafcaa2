//! Names in file systems that ignore case or normalize: what a name leads to, as the kernel says.

use fs::Filesystem;

use crate::open;

/// Names that are looked up.
const NAMES: [&str; 26] = [
    "CamelCase",
    "camelcase",
    "CAMELCASE",
    "LOWER",
    "upper",
    "caf\u{e9}",
    "cafe\u{301}",
    "CAF\u{c9}",
    "CAFE\u{301}",
    "\u{c5}ngstr\u{f6}m",
    "A\u{30a}ngstro\u{308}m",
    "\u{e5}NGSTR\u{d6}M",
    "\u{fb01}le",
    "file",
    "FILE",
    "Stra\u{df}e",
    "STRASSE",
    "STRA\u{df}E",
    "\u{ac00}",
    "\u{1100}\u{1161}",
    "mu\u{b5}",
    "MU\u{39c}",
    "mu\u{3bc}",
    "both/name",
    "both/Name",
    "both/NAME",
];

/// The inodes that the 2.1.11 kernel found them by in each file system of `rz1`, 0: none.
#[rustfmt::skip]
const FOUND: [(&str, [u64; 26]); 8] = [
    ("insens", [2, 2, 2, 3, 4, 5, 6, 5, 6, 7, 0, 7, 8, 0, 0, 9, 0, 9, 10, 0, 11, 11, 11, 0, 0, 0]),
    ("mixed", [2, 0, 0, 0, 0, 5, 6, 0, 0, 7, 0, 0, 8, 0, 0, 9, 0, 0, 10, 0, 11, 0, 0, 0, 128, 129]),
    ("formC", [2, 0, 0, 0, 0, 5, 5, 0, 0, 6, 6, 0, 7, 0, 0, 8, 0, 0, 9, 9, 10, 0, 0, 0, 0, 0]),
    ("formD", [2, 0, 0, 0, 0, 5, 5, 0, 0, 6, 6, 0, 7, 0, 0, 8, 0, 0, 9, 9, 10, 0, 0, 0, 0, 0]),
    ("formKC", [2, 0, 0, 0, 0, 5, 5, 0, 0, 6, 6, 0, 7, 7, 0, 8, 0, 0, 9, 9, 10, 0, 10, 0, 0, 0]),
    ("formKD", [2, 0, 0, 0, 0, 5, 5, 0, 0, 6, 6, 0, 7, 7, 0, 8, 0, 0, 9, 9, 10, 0, 10, 0, 0, 0]),
    ("utf8only", [2, 0, 0, 0, 0, 5, 6, 0, 0, 7, 0, 0, 8, 0, 0, 9, 0, 0, 10, 0, 11, 0, 0, 0, 0, 0]),
    ("both", [2, 2, 2, 3, 4, 5, 5, 5, 5, 6, 6, 6, 7, 0, 0, 8, 0, 8, 9, 9, 10, 10, 10, 0, 0, 0]),
];

#[test]
fn names_lead_where_the_kernel_says() {
    let pool = open(&[testkit::golden("rz1")], "rz1");
    for (dataset, found) in FOUND {
        let fs = Filesystem::open(&pool, &format!("rz1/{dataset}")).unwrap();
        for (name, told) in NAMES.iter().zip(found) {
            let seen = fs.resolve(name.as_bytes()).unwrap_or(0);
            assert_eq!(seen, told, "{dataset}: {name}");
        }
    }
}
