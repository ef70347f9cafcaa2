use super::*;
use crate::uberblock::UBERBLOCK_SIZE;
use crate::zil::LogBlock;
use crate::{BlkPtr, Checksum, Compress, NvList, ObjectType, Uberblock};

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/data/", $name))
    };
}

macro_rules! printed {
    ($name:literal) => {
        include_str!(concat!("../../tests/data/printed/", $name))
    };
}

#[test]
fn lists_look_as_zdb_prints_them() {
    let golden: [(&[u8], &str, usize); 4] = [
        (data!("configs/label_draid_d00"), printed!("label_draid_d00"), 4),
        (data!("configs/label_features_d00"), printed!("label_features_d00"), 4),
        (data!("configs/label_gpt_d00"), printed!("label_gpt_d00"), 4),
        (data!("configs/mos_resilvering"), printed!("mos_resilvering"), 8),
    ];
    for (bytes, expected, indent) in golden {
        let parsed = NvList::parse(bytes).unwrap();
        assert_eq!(list(&parsed, indent).to_string(), expected);
    }
    // What zdb's printer does not know, and a string that is not UTF-8, are not in the text.
    let mut all = NvList::parse(data!("nvlist_all.xdr")).unwrap();
    for name in ["string", "hrtime", "boolean_array", "double"] {
        all.remove(name).unwrap();
    }
    assert_eq!(list(&all, 4).to_string(), printed!("nvlist_all"));
}

#[test]
fn the_rarer_types_are_printed_too() {
    let all = NvList::parse(data!("nvlist_all.xdr")).unwrap();
    let text = list(&all, 0).to_string();
    for line in
        ["string: 'caf\\xe9'", "hrtime: 123456789012345", "double: 1.5", "boolean_array[2]: true"]
    {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn uberblocks_look_as_zdb_prints_them() {
    let text = |bytes: &[u8]| -> String {
        let blocks = bytes.chunks(UBERBLOCK_SIZE).map(|b| Uberblock::parse(b).unwrap());
        blocks.map(|ub| uberblock(&ub, true).to_string()).collect()
    };
    assert_eq!(text(data!("uberblocks_mir")), printed!("uberblocks_mir"));
    assert_eq!(text(data!("uberblocks_multihost")), printed!("uberblocks_multihost"));
}

#[test]
fn pointers_look_as_zdb_prints_them() {
    // Of `zdb -iiiiii dirty/always`: the second block of the log, to which the first one points.
    let first = &data!("log_blocks")[4..];
    let next = LogBlock::parse(first).unwrap().chain.next;
    assert_eq!(
        blkptr(&next).to_string(),
        "DVA[0]=<1:1b5000:11000> [L0 ZIL intent log] zilog2 uncompressed unencrypted LE contiguous \
         unique single size=11000L/11000P birth=35L/35P fill=0 \
         cksum=171d7308932c82dd:1640bfaddf2ee8f9:000000000000005c:0000000000000011"
    );
    // Of `zdb -iiiiii dirty/secret`: the first block of an encrypted log.
    let mut words = [0; 16];
    words[0] = 1 << 32 | 0x20000 >> 9;
    words[1] = 0x17_4000 >> 9;
    words[4] = 0x9e63_4062_acb5_22e5;
    words[5] = 0xd5ea_83b7_247d_27de;
    words[6] = 0xff | 0xff << 16 | 2 << 32 | 9 << 40 | 9 << 48 | 1 << 61 | 1 << 63;
    words[10] = 34;
    words[11] = 0x7e6d_8a80 << 32;
    words[12..].copy_from_slice(&[0x1a98_151c_149c_474f, 0xaa52_051a_6336_6c45, 0x8d, 0x17]);
    assert_eq!(
        blkptr(&BlkPtr::from_words(words)).to_string(),
        "DVA[0]=<1:174000:20000> salt=9e634062acb522e5 iv=d5ea83b7247d27de:7e6d8a80 [L0 ZIL intent \
         log] zilog2 uncompressed encrypted LE contiguous unique single size=20000L/20000P \
         birth=34L/34P fill=0 \
         cksum=1a98151c149c474f:aa52051a63366c45:000000000000008d:0000000000000017"
    );
    assert_eq!(blkptr(&BlkPtr::ZERO).to_string(), "HOLE [L0 unallocated] size=200L birth=0L");
    let embedded = BlkPtr::embedded(512, Compress::Lz4, ObjectType(0xc4), 11, &[0; 83]).unwrap();
    assert_eq!(
        blkptr(&embedded).to_string(),
        "EMBEDDED [L0 bswap metadata zap] et=0 lz4 size=200L/53P birth=11L"
    );
}

#[test]
fn pointers_of_an_object_look_as_zdb_prints_them() {
    // Of `zdb -dddddd single 1` and of an object whose block is in its pointer.
    let checksum = [0x12_1df6_bd01, 0x472c_4935_88a7, 0x8b_f290_5b8b_f6fe, 0xb7a4_beaf_076b_d091];
    let mut bp = BlkPtr::embedded(512, Compress::Lz4, ObjectType(1), 42, &[0; 37]).unwrap();
    assert_eq!(compact(&bp).to_string(), "EMBEDDED et=0 200L/25P B=42");
    let props = crate::blkptr::BlkProps {
        lsize: 0x4000,
        psize: 0x1000,
        compress: Compress::Lz4,
        checksum: Checksum::Fletcher4,
        kind: ObjectType(1),
        level: 0,
    };
    let dva = |offset| crate::Dva { vdev: 0, offset, asize: 0x1000, gang: false };
    bp = BlkPtr::new(props, &[dva(0x39_7000), dva(0x116_a000)], 19, 1, checksum);
    assert_eq!(
        compact(&bp).to_string(),
        "0:397000:1000 0:116a000:1000 4000L/1000P F=1 B=19/19 \
         cksum=000000121df6bd01:0000472c493588a7:008bf2905b8bf6fe:b7a4beaf076bd091"
    );
    assert_eq!(compact(&BlkPtr::hole(0x20000, ObjectType(19), 0, 7)).to_string(), "20000L B=7");
}

#[test]
fn any_words_can_be_printed() {
    for word in [0, 1, u64::MAX, 0x8080_8080_8080_8080, 0x7fff_7fff_7fff_7fff] {
        for prop in 0..64 {
            let mut words = [word; 16];
            words[6] = word.rotate_left(prop) | 1 << prop;
            let bp = BlkPtr::from_words(words);
            assert!(!blkptr(&bp).to_string().is_empty() && !compact(&bp).to_string().is_empty());
        }
    }
    assert!(Checksum::from_id(99).is_none());
}

#[test]
fn times_are_as_asctime_has_them() {
    // As `TZ=UTC date -d @SECONDS` has them.
    for (seconds, expected) in [
        (0, "Thu Jan  1 00:00:00 1970"),
        (951_782_400, "Tue Feb 29 00:00:00 2000"),
        (951_868_799, "Tue Feb 29 23:59:59 2000"),
        (951_868_800, "Wed Mar  1 00:00:00 2000"),
        (1_709_251_199, "Thu Feb 29 23:59:59 2024"),
        (1_714_521_672, "Wed May  1 00:01:12 2024"),
        (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
        (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
    ] {
        assert_eq!(utc(seconds).to_string(), expected);
    }
    assert!(!utc(u64::MAX).to_string().is_empty());
}

#[test]
fn text_never_carries_control_characters() {
    assert_eq!(text(b"plain").to_string(), "plain");
    assert_eq!(text("größe".as_bytes()).to_string(), "größe");
    assert_eq!(text(b"\x1b[2J\n\xff\xc2\x85").to_string(), "\\x1b[2J\\x0a\\xff\\xc2\\x85");
}
