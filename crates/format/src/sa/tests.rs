use proptest::prelude::*;

use super::*;
use crate::ObjectType;

fn view<'a>(
    registry: &'a Registry,
    layouts: &'a Layouts,
    bonus: &'a [u8],
    spill: Option<&'a [u8]>,
) -> SaView<'a> {
    SaView::new(registry, layouts, ObjectType::SA, bonus, spill).unwrap()
}

fn put(header: SaHeader, lengths: &[u16]) -> crate::Result<Vec<u8>> {
    let mut out = Vec::new();
    header.put(lengths, &mut out).map(|()| out)
}

#[test]
fn registry_values_are_those_of_the_format() {
    let registry = Registry::standard();
    let value = |name| registry.entries().find(|(n, _)| *n == name).unwrap().1;
    // As zdb shows them: "ZPL_DACL_ACES = 40013 : [0:4:19]".
    assert_eq!(value("ZPL_DACL_ACES"), 0x40013);
    assert_eq!(value("ZPL_ZNODE_ACL"), 0x5803_000f);
    assert_eq!(value("ZPL_PROJID"), 0x800_0015);
    assert_eq!(registry.entries().count(), 22);
    let entries: Vec<_> = registry.entries().collect();
    let again = Registry::from_entries(entries.iter().map(|(n, v)| (n.as_bytes(), *v)));
    assert_eq!(again.unwrap(), registry);
}

#[test]
fn registries_of_other_numbers_work_and_contradictions_are_refused() {
    let dxattr = AttrDef { number: 300, length: 0, swap: AttrSwap::U8 };
    let other = AttrDef { number: 16, length: 24, swap: AttrSwap::U64 };
    let from =
        |list: &[(&str, u64)]| Registry::from_entries(list.iter().map(|(n, v)| (n.as_bytes(), *v)));
    let registry = from(&[("ZPL_DXATTR", dxattr.encode()), ("MINE", other.encode())]).unwrap();
    assert_eq!(registry.number(Attr::Dxattr), Some(300));
    assert_eq!(registry.attr(300), Some(Attr::Dxattr));
    assert_eq!(
        (registry.attr(16), registry.attr(20), registry.attr(5)),
        (None, None, Some(Attr::Mode))
    );
    assert_eq!(registry.number(Attr::DaclAces), None);
    assert_eq!(registry.number(Attr::Mode), Some(5));
    assert_eq!(registry.def(16), Some(other));
    assert!(from(&[("ZPL_DXATTR", other.encode())]).is_err());
    assert!(from(&[("A", other.encode()), ("B", other.encode())]).is_err());
    assert!(from(&[("A", AttrDef { number: 3, ..other }.encode())]).is_err());
    assert!(from(&[("ZPL_MODE", AttrDef { number: 16, length: 8, ..other }.encode())]).is_err());
    assert!(from(&[("A", 5 << 16)]).is_err());
}

#[test]
fn layouts_are_found_made_and_bounded() {
    let entries = [(&b"2"[..], vec![5, 6]), (b"7", vec![5])];
    let mut layouts = Layouts::from_entries(entries).unwrap();
    assert_eq!(layouts.unsaved().count(), 0);
    assert_eq!(layouts.find_or_add(&[5]), Ok(7));
    assert_eq!(layouts.find_or_add(&[]), Ok(LAYOUT_EMPTY));
    assert_eq!(layouts.find_or_add(&[6, 5]), Ok(8));
    assert_eq!(layouts.unsaved().collect::<Vec<_>>(), [("8".to_owned(), &[6, 5][..])]);
    layouts.saved();
    assert_eq!(layouts.unsaved().count(), 0);
    assert_eq!(layouts.order(3), None);
    for i in 9..LAYOUTS_MAX {
        assert_eq!(layouts.find_or_add(&[i as u16]), Ok(i as u16));
    }
    assert!(layouts.find_or_add(&[9, 9]).is_err());
    for bad in ["", "0", "1", "1024", "x", "02", "+2", "99999999"] {
        assert!(Layouts::from_entries([(bad.as_bytes(), vec![])]).is_err(), "{bad}");
    }
}

#[test]
fn headers_beyond_their_bytes_are_refused() {
    let header = SaHeader { layout: 2, size: 16 };
    let bytes = put(header, &[1, 2, 3]).unwrap();
    assert_eq!(bytes.len(), 16);
    assert_eq!(SaHeader::parse(&bytes), Ok(header));
    assert_eq!((header.length(&bytes, 2), header.length(&bytes, 5)), (Some(3), None));
    assert!(SaHeader::parse(&bytes[..15]).is_err());
    assert!(SaHeader::parse(&[0; 16]).is_err());
    assert!(put(SaHeader { layout: 2, size: 8 }, &[1, 2]).is_err());
    assert!(put(SaHeader { layout: 2, size: 0 }, &[]).is_err());
    assert_eq!([0, 1, 2, 5, 6].map(SaHeader::size_for), [8, 8, 16, 16, 24]);
}

#[test]
fn values_beyond_their_buffer_are_errors() {
    let registry = Registry::standard();
    let layouts = Layouts::from_entries([(&b"2"[..], vec![17, 5]), (b"3", vec![999])]).unwrap();
    let header = SaHeader { layout: 2, size: 8 };
    let mut bytes = put(header, &[3]).unwrap();
    bytes.extend([7; 16]);
    assert_eq!(view(&registry, &layouts, &bytes, None).get(Attr::Symlink), Ok(Some(&[7; 3][..])));
    let short = &bytes[..23];
    let short = view(&registry, &layouts, short, None);
    assert!(short.get(Attr::Mode).is_err());
    assert_eq!(short.values().count(), 2);
    let unknown = put(SaHeader { layout: 3, size: 8 }, &[]).unwrap();
    assert!(view(&registry, &layouts, &unknown, None).get(Attr::Mode).is_err());
    for layout in [0, 4] {
        let bytes = put(SaHeader { layout, size: 8 }, &[]).unwrap();
        assert!(SaView::new(&registry, &layouts, ObjectType::SA, &bytes, None).is_err());
    }
    assert!(SaView::new(&registry, &layouts, ObjectType::DSL_DIR, &bytes, None).is_err());
}

#[test]
fn one_byte_more_than_fits_spills() {
    let registry = Registry::standard();
    let mut layouts = Layouts::default();
    let room = bonus_max(1);
    assert_eq!(room, 320);
    let mut builder = SaBuilder::new();
    builder.set_standard(Attr::Mode, &[1; 8]);
    builder.set_standard(Attr::Symlink, &[2; 320 - 16]);
    let image = builder.build(&registry, &mut layouts, room).unwrap();
    assert_eq!((image.bonus.len(), image.spill), (320, None));
    builder.set_standard(Attr::Symlink, &[2; 320 - 15]);
    let image = builder.build(&registry, &mut layouts, room).unwrap();
    let spill = image.spill.unwrap();
    assert_eq!((image.bonus.len(), spill.len()), (192, 512));
    let view = view(&registry, &layouts, &image.bonus, Some(&spill));
    assert_eq!(view.get(Attr::Symlink).unwrap().unwrap().len(), 305);
    assert!(view.place(17).unwrap().unwrap().in_spill);
}

#[test]
fn what_the_registry_does_not_allow_is_not_built() {
    let registry = Registry::default();
    let mut layouts = Layouts::default();
    let mut build = |attr: Attr, bytes: &[u8]| {
        let mut builder = SaBuilder::new();
        builder.set_standard(attr, bytes);
        builder.build(&registry, &mut layouts, 320).map(|_| ())
    };
    assert!(build(Attr::Mode, &[0; 8]).is_ok());
    assert!(build(Attr::Mode, &[0; 7]).is_err());
    assert!(build(Attr::Dxattr, &[0; 7]).is_err());
    let registry = Registry::standard();
    let mut build = |first: usize, second: usize| {
        let mut builder = SaBuilder::new();
        builder.set_standard(Attr::Dxattr, &vec![0; first]);
        builder.set_standard(Attr::Symlink, &vec![0; second]);
        builder.build(&registry, &mut layouts, 320).map(|image| image.spill.unwrap().len())
    };
    assert_eq!(build(65_535, 65_520), Ok(131_072));
    assert!(build(65_535, 65_528).is_err());
    assert!(build(65_536, 0).is_err());
    assert!(build(65_535, 65_535).is_err());
}

/// A list of values: standard attributes in any order, varying ones of any length.
fn lists() -> impl Strategy<Value = Vec<(Attr, Vec<u8>)>> {
    let attr = prop::sample::subsequence(Attr::ALL.to_vec(), 0..=Attr::ALL.len()).prop_shuffle();
    attr.prop_flat_map(|attrs| {
        let value = |attr: Attr| {
            let length = usize::from(attr.length());
            let range = if length == 0 { 0..=400 } else { length..=length };
            prop::collection::vec(any::<u8>(), range).prop_map(move |bytes| (attr, bytes))
        };
        attrs.into_iter().map(value).collect::<Vec<_>>()
    })
}

proptest! {
    #[test]
    fn what_is_built_is_read(list in lists(), slots in 1usize..=32) {
        let registry = Registry::standard();
        let mut layouts = Layouts::default();
        let mut builder = SaBuilder::new();
        for (attr, bytes) in &list {
            builder.set_standard(*attr, bytes);
        }
        let room = bonus_max(slots);
        let image = builder.build(&registry, &mut layouts, room).unwrap();
        let max = if image.spill.is_some() { room - 128 } else { room };
        prop_assert!(image.bonus.len() <= max);
        let view = view(&registry, &layouts, &image.bonus, image.spill.as_deref());
        prop_assert_eq!(SaBuilder::from_view(&view).unwrap(), builder);
        for (attr, bytes) in &list {
            prop_assert_eq!(view.get(*attr).unwrap(), Some(bytes.as_slice()));
        }
    }

    #[test]
    fn a_list_is_what_was_set_last(
        changes in prop::collection::vec(
            (0u16..6, prop::option::of(prop::collection::vec(any::<u8>(), 0..40))),
            0..60,
        ),
    ) {
        let (mut builder, mut list) = (SaBuilder::new(), Vec::<(u16, Vec<u8>)>::new());
        for (number, value) in changes {
            match (value, list.iter_mut().find(|(one, _)| *one == number)) {
                (None, _) => {
                    builder.remove(number);
                    list.retain(|(one, _)| *one != number);
                }
                (Some(value), Some((_, old))) => {
                    builder.set(number, &value);
                    *old = value;
                }
                (Some(value), None) => {
                    builder.set(number, &value);
                    list.push((number, value));
                }
            }
            for number in 0..6 {
                let value = list.iter().find(|(one, _)| *one == number);
                prop_assert_eq!(builder.get(number), value.map(|(_, value)| value.as_slice()));
            }
            let mut anew = SaBuilder::new();
            for (number, value) in &list {
                anew.set(*number, value);
            }
            prop_assert_eq!(&anew, &builder);
        }
    }

    #[test]
    fn damaged_buffers_are_read_or_refused(
        list in lists(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let registry = Registry::standard();
        let mut layouts = Layouts::default();
        let mut builder = SaBuilder::new();
        for (attr, bytes) in &list {
            builder.set_standard(*attr, bytes);
        }
        let image = builder.build(&registry, &mut layouts, 320).unwrap();
        let mut bonus = image.bonus;
        for (at, value) in flips {
            let at = at.index(bonus.len());
            bonus[at] = value;
        }
        bonus.truncate(cut.index(bonus.len() + 1));
        let spill = image.spill.as_deref();
        if let Ok(view) = SaView::new(&registry, &layouts, ObjectType::SA, &bonus, spill) {
            prop_assert!(view.values().count() <= 2 * 22);
        }
    }
}
