use proptest::prelude::*;

use super::*;

const ALL_XDR: &[u8] = include_bytes!("../../tests/data/nvlist_all.xdr");
const ALL_NATIVE: &[u8] = include_bytes!("../../tests/data/nvlist_all.native");
/// Lists of the first label of a device of golden pools, with some of the zeros after them.
const LABELS: [&[u8]; 4] = [
    include_bytes!("../../tests/data/configs/label_single_d00"),
    include_bytes!("../../tests/data/configs/label_mir_d00"),
    include_bytes!("../../tests/data/configs/label_rz1_d00"),
    include_bytes!("../../tests/data/configs/label_rz2_d00"),
];

/// The list that tests/data/make_nvlists.py makes with OpenZFS's library.
fn all_types() -> NvList {
    let list = |pairs: &[(&str, Value)]| {
        let mut list = NvList::new();
        pairs.iter().for_each(|(name, value)| list.put(name, value.clone()));
        list
    };
    let leaf = list(&[("s", Value::String(b"leaf".to_vec()))]);
    let inner = list(&[("deep", Value::U64(7)), ("leaf", Value::List(leaf.clone()))]);
    let strings = |v: &[&str]| v.iter().map(|s| s.as_bytes().to_vec()).collect();
    list(&[
        ("boolean", Value::Boolean),
        ("byte", Value::Byte(0xf1)),
        ("int16", Value::I16(-2)),
        ("uint16", Value::U16(0xfedc)),
        ("int32", Value::I32(-3)),
        ("uint32", Value::U32(0xfedc_ba98)),
        ("int64", Value::I64(-4)),
        ("uint64", Value::U64(0xfedc_ba98_7654_3210)),
        ("string", Value::String(b"caf\xe9".to_vec())),
        ("byte_array", Value::ByteArray(vec![1, 0, 255, 3, 128])),
        ("int16_array", Value::I16Array(vec![1, -1, 300])),
        ("uint16_array", Value::U16Array(vec![1, 65535])),
        ("int32_array", Value::I32Array(vec![1, -1, 70000])),
        ("uint32_array", Value::U32Array(vec![5])),
        ("int64_array", Value::I64Array(vec![-1, 1])),
        ("uint64_array", Value::U64Array(vec![1 << 63, 2])),
        ("string_array", Value::StringArray(strings(&["a", "", "four"]))),
        ("hrtime", Value::HrTime(123_456_789_012_345)),
        ("nvlist", Value::List(inner.clone())),
        ("nvlist_array", Value::ListArray(vec![leaf, NvList::new(), inner])),
        ("boolean_value", Value::BooleanValue(true)),
        ("int8", Value::I8(-5)),
        ("uint8", Value::U8(0xc8)),
        ("boolean_array", Value::BooleanArray(vec![true, false, true])),
        ("int8_array", Value::I8Array(vec![-1, 2, 3])),
        ("uint8_array", Value::U8Array(vec![255, 2, 3, 4])),
        ("empty", Value::List(NvList::new())),
        ("no_words", Value::U64Array(Vec::new())),
        ("no_strings", Value::StringArray(Vec::new())),
        ("double", Value::Double(1.5f64.to_bits())),
    ])
}

#[test]
fn every_type_encodes_as_openzfs_does() {
    let list = all_types();
    // The library allots four bytes to a count that it then does not write.
    let (xdr, rest) = ALL_XDR.split_at(ALL_XDR.len() - 4);
    assert_eq!(rest, [0; 4]);
    assert_eq!(list.to_xdr().unwrap(), xdr);
    assert_eq!(list.to_native().unwrap(), ALL_NATIVE);
    assert_eq!(NvList::parse_prefix(ALL_XDR).unwrap(), (list.clone(), xdr.len()));
    assert_eq!(NvList::parse_prefix(ALL_NATIVE).unwrap(), (list, ALL_NATIVE.len()));
}

#[test]
fn kernel_labels_encode_to_the_same_bytes() {
    for bytes in LABELS {
        let (list, size) = NvList::parse_prefix(bytes).unwrap();
        assert!(bytes[size..].iter().all(|b| *b == 0));
        assert_eq!(list.to_xdr().unwrap(), &bytes[..size]);
        assert_eq!(NvList::parse(&list.to_native().unwrap()).unwrap(), list);
    }
}

#[test]
fn lookups_are_by_name_and_type() {
    let list = NvList::parse(LABELS[3]).unwrap();
    assert_eq!(list.u64("version"), Some(5000));
    assert_eq!(list.string("name"), Some(&b"rz2"[..]));
    assert_eq!(list.text("hostname").unwrap(), "thumper");
    assert_eq!(list.u64("name"), None);
    assert_eq!(list.u64("nothing"), None);
    let tree = list.list("vdev_tree").unwrap();
    let children = tree.list_array("children").unwrap();
    assert_eq!(children.len(), 11);
    assert_eq!(children[10].string("path"), Some(&b"/d/d10"[..]));
    assert!(list.list("features_for_read").unwrap().contains("com.delphix:hole_birth"));
}

#[test]
fn put_keeps_the_place_of_a_name() {
    let mut list = NvList::new();
    list.put_u64("a", 1);
    list.put_string("b", "two");
    list.put_u64("a", 3);
    let names: Vec<_> = list.pairs().iter().map(|p| p.name.as_slice()).collect();
    assert_eq!(names, [b"a", b"b"]);
    assert_eq!(list.u64("a"), Some(3));
    assert_eq!(list.remove("a"), Some(Value::U64(3)));
    assert_eq!(list.len(), 1);
}

#[test]
fn the_native_encoding_of_a_big_endian_host() {
    let mut bytes = vec![0, 0, 0, 0];
    for word in [0u32, 1, 32, 0x0002_0000, 1, 8] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(b"a\0\0\0\0\0\0\0");
    bytes.extend_from_slice(&77u64.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let (list, size) = NvList::parse_prefix(&bytes).unwrap();
    assert_eq!(size, bytes.len());
    assert_eq!(list.u64("a"), Some(77));
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let mut list = NvList::new();
        for _ in 1..levels {
            let mut outer = NvList::new();
            outer.put_list("l", list);
            list = outer;
        }
        list
    };
    let deepest = nested(DEPTH_MAX);
    assert_eq!(NvList::parse(&deepest.to_xdr().unwrap()).unwrap(), deepest);
    assert_eq!(NvList::parse(&deepest.to_native().unwrap()).unwrap(), deepest);
    assert!(nested(DEPTH_MAX + 1).to_xdr().is_err());
    assert!(nested(DEPTH_MAX + 1).to_native().is_err());
    // One level more, wrapped by hand: what the builder refuses, the parser refuses too.
    let inner = deepest.to_xdr().unwrap();
    let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    bytes.extend_from_slice(&(24 + inner.len() as u32 - 4).to_be_bytes());
    for word in [48u32, 1, u32::from_be_bytes(*b"l\0\0\0"), 19, 1] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(&inner[4..]);
    bytes.extend_from_slice(&[0; 8]);
    let error = NvList::parse(&bytes).unwrap_err();
    assert!(matches!(error, FormatError::Bounds { field: "nesting", .. }), "{error}");
}

#[test]
fn a_nul_inside_is_refused() {
    for value in [Value::String(b"a\0b".to_vec()), Value::StringArray(vec![vec![0]])] {
        let mut list = NvList::new();
        list.put("name", value);
        assert!(list.to_xdr().is_err());
        assert!(list.to_native().is_err());
    }
    let mut list = NvList::new();
    list.put_u64(b"a\0b", 1);
    assert!(list.to_xdr().is_err() && list.to_native().is_err());
    let mut list = NvList::new();
    list.put_u64(vec![b'a'; 40_000], 1);
    assert!(list.to_xdr().is_ok() && list.to_native().is_err());
}

#[test]
fn false_counts_are_refused_before_memory_is_taken() {
    for golden in [ALL_XDR, ALL_NATIVE] {
        for at in (4..golden.len() - 4).step_by(4) {
            for word in [u32::MAX, i32::MAX as u32, 1 << 24, 0] {
                let mut bytes = golden.to_vec();
                bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
                let _ = NvList::parse(&bytes);
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                let _ = NvList::parse(&bytes);
            }
        }
    }
}

#[test]
fn what_takes_far_more_memory_than_bytes_is_bounded() {
    let of = |value| {
        let mut list = NvList::new();
        list.put("a", value);
        list
    };
    let mut pairs = NvList::new();
    (0..ITEMS_MAX).for_each(|_| pairs.push(b"", Value::Boolean));
    let halves = |half: Value| {
        let mut list = of(half.clone());
        list.put("b", half);
        list
    };
    let strings = |count| Value::StringArray(vec![Vec::new(); count]);
    let lists = |count| Value::ListArray(vec![NvList::new(); count]);
    let many = [
        of(strings(ITEMS_MAX)),
        of(lists(ITEMS_MAX)),
        of(Value::List(pairs)),
        halves(strings(ITEMS_MAX / 2)),
        halves(lists(ITEMS_MAX / 2)),
    ];
    for list in many {
        for bytes in [list.to_xdr().unwrap(), list.to_native().unwrap()] {
            let error = NvList::parse(&bytes).map(drop).unwrap_err();
            let is_told = matches!(error, FormatError::Field { field: "number of items", .. });
            assert!(is_told, "{error}");
        }
    }
    let full = of(strings(ITEMS_MAX - 2));
    for bytes in [full.to_xdr().unwrap(), full.to_native().unwrap()] {
        assert!(NvList::parse(&bytes).as_ref() == Ok(&full));
    }
}

#[test]
fn truncated_lists_are_refused() {
    for bytes in LABELS.into_iter().chain([ALL_XDR, ALL_NATIVE]) {
        let (_, size) = NvList::parse_prefix(bytes).unwrap();
        for len in 0..size {
            assert!(NvList::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}

/// Bytes without NUL.
fn string() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1u8..=255, 0..20)
}

fn value() -> impl Strategy<Value = Value> {
    use proptest::collection::vec;
    let scalar = prop_oneof![
        Just(Value::Boolean),
        any::<u8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::HrTime),
        any::<bool>().prop_map(Value::BooleanValue),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<u64>().prop_map(Value::Double),
        string().prop_map(Value::String),
    ];
    let array = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Value::ByteArray),
        vec(any::<i16>(), 0..9).prop_map(Value::I16Array),
        vec(any::<u16>(), 0..9).prop_map(Value::U16Array),
        vec(any::<i32>(), 0..9).prop_map(Value::I32Array),
        vec(any::<u32>(), 0..9).prop_map(Value::U32Array),
        vec(any::<i64>(), 0..9).prop_map(Value::I64Array),
        vec(any::<u64>(), 0..9).prop_map(Value::U64Array),
        vec(any::<bool>(), 0..9).prop_map(Value::BooleanArray),
        vec(any::<i8>(), 0..9).prop_map(Value::I8Array),
        vec(any::<u8>(), 0..9).prop_map(Value::U8Array),
        vec(string(), 0..5).prop_map(Value::StringArray),
    ];
    prop_oneof![scalar, array].prop_recursive(4, 40, 6, |inner| {
        let list = vec((string(), inner), 0..6)
            .prop_map(|pairs| {
                let mut list = NvList::new();
                pairs.into_iter().for_each(|(name, value)| list.push(&name, value));
                list
            })
            .boxed();
        prop_oneof![list.clone().prop_map(Value::List), vec(list, 0..4).prop_map(Value::ListArray)]
    })
}

proptest! {
    #[test]
    fn both_encodings_are_inverse(pairs in proptest::collection::vec((string(), value()), 0..8)) {
        let mut list = NvList::new();
        pairs.into_iter().for_each(|(name, value)| list.push(&name, value));
        for bytes in [list.to_xdr().unwrap(), list.to_native().unwrap()] {
            prop_assert_eq!(NvList::parse_prefix(&bytes).unwrap(), (list.clone(), bytes.len()));
        }
    }

    #[test]
    fn damaged_lists_never_panic(
        native: bool,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = if native { ALL_NATIVE } else { ALL_XDR }.to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(list) = NvList::parse(&bytes) {
            // What was parsed can be built, unless a string was cut where the builder is stricter.
            let again = list.to_xdr().unwrap();
            prop_assert_eq!(NvList::parse(&again).unwrap(), list);
        }
    }

    #[test]
    fn random_bytes_never_panic(head in 0u8..2, bytes: Vec<u8>) {
        let mut all = vec![head, 1, 0, 0];
        all.extend(bytes);
        let _ = NvList::parse(&all);
    }
}
