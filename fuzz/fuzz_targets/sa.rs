//! Any bytes as a bonus of system attributes or an old znode, with a spill block behind it.
#![no_main]

use format::accounting::Owner;
use format::sa::{Attr, Layouts, Registry, SaBuilder, SaView, bonus_max};
use format::swap::{Direction, attributes};
use format::znode::{Znode, link_target};
use format::{ObjectType, acl, dxattr};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, cut], bytes)) = bytes.split_first_chunk() else { return };
    let (bonus, spill) = bytes.split_at((usize::from(*cut) * 2).min(bytes.len()));
    let spill = (!spill.is_empty()).then_some(spill);
    let kind = if kind % 4 == 0 { ObjectType::ZNODE } else { ObjectType::SA };
    let registry = Registry::standard();
    let orders = [
        (&b"2"[..], vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]),
        (b"3", vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19, 20]),
        (b"4", vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17, 20]),
        (b"5", vec![17, 20]),
        (b"6", vec![17, 400]),
        (b"7", vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 10, 16, 19, 9]),
    ];
    let mut layouts = Layouts::from_entries(orders).expect("fixed layouts");
    let _ = Owner::of(kind, bonus);
    let mut turned = bonus.to_vec();
    attributes(Direction::ToBig, &registry, &layouts, &mut turned);
    attributes(Direction::FromBig, &registry, &layouts, &mut turned);
    assert_eq!(turned, bonus);

    let known = layouts.clone();
    let Ok(view) = SaView::new(&registry, &known, kind, bonus, spill) else { return };
    assert!(view.values().count() <= 34);
    let count = view.get_u64(Attr::DaclCount).ok().flatten().unwrap_or(0);
    if let Ok(Some(aces)) = view.get(Attr::DaclAces) {
        let _ = acl::decode(aces, count);
    }
    if let Ok(Some(xattrs)) = view.get(Attr::Dxattr) {
        let _ = dxattr::Dxattr::parse(xattrs);
    }
    if let Ok(znode) = Znode::read(&view) {
        let _ = link_target(&view, bonus, znode.size);
        let mut patched = bonus.to_vec();
        if znode.patch(&registry, &known, kind, &mut patched) == Ok(true) {
            let view = SaView::new(&registry, &known, kind, &patched, spill).expect("still whole");
            assert_eq!(Znode::read(&view), Ok(znode));
        }
    }
    // What was read can be written again, and then reads the same.
    let Ok(builder) = SaBuilder::from_view(&view) else { return };
    if kind == ObjectType::SA
        && let Ok(image) = builder.build(&registry, &mut layouts, bonus_max(1))
    {
        let spill = image.spill.as_deref();
        let view = SaView::new(&registry, &layouts, kind, &image.bonus, spill).expect("ours");
        assert_eq!(SaBuilder::from_view(&view), Ok(builder));
    }
});
