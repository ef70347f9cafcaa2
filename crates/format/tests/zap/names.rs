//! Names in directories of file systems that ignore case or normalize, hashed by the OpenZFS kernel:
//! one for each character that has another case or another form, and thousands of sequences.
//! `data/zap/names.sh` says where they come from.

use format::zap::normal::normalized;
use format::zap::{Key, zap_hash};

use crate::unpack;

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap() as u8;
        out.push(if byte == b'%' { digit() << 4 | digit() } else { byte });
    }
    out
}

#[test]
fn names_hash_as_the_kernel_hashed_them() {
    let text = String::from_utf8(unpack("names.txt.zst")).unwrap();
    let mut directories = Vec::new();
    // Of each directory: names whose hash is right, and names without a known form.
    let mut counts = [(0, 0); 7];
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
        if let [_, normflags, salt] = words[..] {
            directories.push((number(normflags), number(salt)));
            continue;
        }
        let name = unescape(words[0]);
        for ((told, (normflags, salt)), count) in
            words[1..].iter().zip(&directories).zip(&mut counts)
        {
            if *told == "-" {
                continue;
            }
            match zap_hash(*salt, *normflags, 0, Key::Name(&name)) {
                Some(hash) => {
                    assert_eq!(hash >> 36, number(told), "{line}, normflags {normflags:#x}");
                    count.0 += 1;
                }
                None => {
                    assert_eq!(normalized(&name, *normflags), None);
                    count.1 += 1;
                }
            }
        }
    }
    let flags: Vec<_> = directories.iter().map(|(normflags, _)| *normflags).collect();
    assert_eq!(flags, [2, 0x12, 0x62, 0x10, 0x50, 0x20, 0x60]);
    for (flags, (known, unknown)) in flags.iter().zip(counts) {
        // Unknown are long rows of marks, the iota below in upper case, and bytes that are no UTF-8.
        let most = if *flags == 2 { 310 } else { 120 };
        assert!(known > 13_200 && unknown < most, "{flags:#x}: {known} known, {unknown} not");
    }
}
