//! Pools whose own objects contradict each other, planted from inside: whoever opens or changes them gets
//! an error that says where, at once; nothing is promised or charged that is not there (INV-8).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use acceptance::{SHAPES, Session, Shape, engine::POOL};
use codec::embedded::{Place, seal};
use dmu::{SpaceMap, Zap};
use format::blkptr::BlkProps;
use format::label::DATA_AT;
use format::scan::{Bookmark, ScanFunction};
use format::zap::Value;
use format::zil::{ZIL_CHAIN_SIZE, ZilHeader};
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::dsl::lookup;
use pool::{PoolError, ScanAnswer, ScanStep, Stored};
use rt::sync::Arc;
use testkit::Images;
use testkit::workload::Op;
use zerocopy::IntoBytes;

const SMALL: Shape = Shape { disk_bytes: 128 << 20, ..SHAPES[0] };

fn fresh() -> (Images, Session) {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let make = |name| {
        session.pool().create_filesystem(name, BTreeMap::new(), make_filesystem).unwrap();
    };
    ["tank/a", "tank/a/b"].into_iter().for_each(make);
    (images, session)
}

/// Puts entries into a directory of `tank/a` that no file system would.
fn put_entries(
    session: &Session,
    dir: u64,
    entries: impl IntoIterator<Item = (String, Value)> + Send + 'static,
) {
    session.pool().sync().unwrap();
    let put = move |cx: &pool::TaskContext<'_>| {
        let head = cx.pool.dataset("tank/a")?;
        let zap = Zap::of(head.objset.object(dir)?)?;
        for (name, value) in entries {
            zap.put(cx.tx, name.as_bytes(), &value)?;
        }
        cx.sync_objset(head.object, &head.objset, 0)
    };
    session.pool().task(put).unwrap();
    session.pool().sync().unwrap();
}

/// Leaves the pool as it is on disk, as a crash would, and opens it anew.
fn reopen(images: &Images, session: Session) -> Session {
    drop(session);
    Session::open(images.path(), POOL, POOL).unwrap()
}

#[test]
fn a_directory_that_is_its_own_parent_ends_every_walk() {
    let (images, session) = fresh();
    session
        .pool()
        .task(|cx| {
            let mos = cx.making.mos;
            let number = lookup::find_dir(mos, "tank/a")?.unwrap();
            let mut dir = mos.dir(number)?;
            dir.parent_object.set(number);
            mos.set_dir(cx.tx, number, &dir)
        })
        .unwrap();
    let session = reopen(&images, session);
    let pool: &Arc<pool::Pool> = session.pool();
    let found = lookup::find(pool.mos(), "tank/a/b").unwrap();
    let error = pool.available(&found).unwrap_err().to_string();
    assert!(error.contains("parents without end"), "{error}");
    // What would charge it is refused, and nothing of it comes to the disk.
    let error = pool.create_filesystem("tank/a/c", BTreeMap::new(), make_filesystem).unwrap_err();
    assert!(error.to_string().contains("parents without end"), "{error}");
    let txg = pool.txg();
    let session = reopen(&images, session);
    assert_eq!(session.pool().txg(), txg);
}

#[test]
fn a_directory_that_is_its_own_child_is_listed_once() {
    let (images, session) = fresh();
    session
        .pool()
        .task(|cx| {
            let mos = cx.making.mos;
            let number = lookup::find_dir(mos, "tank/a")?.unwrap();
            let children = mos.zap(mos.dir(number)?.child_dir_zap_object.get())?;
            children.put_u64(cx.tx, b"again", number)?;
            children.put_u64(cx.tx, b"once-more", number)?;
            Ok(())
        })
        .unwrap();
    let session = reopen(&images, session);
    let error = lookup::walk(session.pool().mos(), "tank").unwrap_err().to_string();
    assert!(error.contains("was met before"), "{error}");
    let reason = session.pool().read_only_reason().unwrap_or("none");
    assert!(reason.contains("is the child of two"), "{reason}");
}

/// Headers of space maps with absurd sums and lengths.
#[test]
fn absurd_space_maps_are_neither_summed_nor_followed() {
    let (images, session) = fresh();
    let array = session.pool().config().vdev_tree.children[0].top.unwrap().metaslab_array;
    session
        .pool()
        .task(move |cx| {
            let mos = cx.making.mos;
            let array = mos.objset.object(array)?;
            for (index, alloc, length) in [(5, i64::MAX, 0u64), (6, i64::MAX, 8), (7, -1, 1 << 60)]
            {
                let map = SpaceMap::create(&mos.objset, cx.tx, true)?;
                let (mut phys, _) = map.phys()?;
                phys.alloc.set(alloc);
                phys.length.set(length);
                mos.objset.object(map.number())?.set_bonus(cx.tx, phys.bonus(true), None)?;
                array.write(cx.tx, index * 8, &map.number().to_le_bytes())?;
            }
            Ok(())
        })
        .unwrap();
    let mut session = reopen(&images, session);
    let space = session.pool().space().unwrap();
    assert!(space.allocated < space.size, "{space:?}");
    // Metaslab 7 says that it is empty; whoever wants to use it finds out.
    let mut refused = None;
    for i in 0..200 {
        let data = testkit::data::Data { look: testkit::data::Look::Noise, seed: i, size: 1 << 20 };
        let path = format!("f{i}").into_bytes();
        let done = session
            .apply(&Op::Create { path: path.clone(), mode: 0o600 })
            .and_then(|()| session.apply(&Op::Write { path, offset: 0, data }))
            .and_then(|()| session.apply(&Op::Sync));
        if let Err(e) = done {
            refused = Some(e.to_string());
            break;
        }
    }
    let refused = refused.unwrap();
    assert!(refused.contains("space map") || refused.contains("space"), "{refused}");
}

/// OpenZFS refuses these, in these words; an engine that took them would promise what is not there.
#[test]
fn nobody_is_promised_more_than_there_is() {
    let (images, mut session) = fresh();
    session.apply(&Op::Create { path: b"f".to_vec(), mode: 0o600 }).unwrap();
    let data = testkit::data::Data { look: testkit::data::Look::Noise, seed: 1, size: 3 << 20 };
    session.apply(&Op::Write { path: b"f".to_vec(), offset: 0, data }).unwrap();
    session.apply(&Op::Sync).unwrap();
    let (above, below) = (
        "size is greater than available space",
        "size is less than current used or reserved space",
    );
    for (name, property, number, words) in [
        ("tank/a", "reservation", u64::MAX, above),
        ("tank/a", "reservation", 1 << 63, above),
        ("tank/a", "reservation", 1 << 30, above),
        ("tank/a", "refreservation", u64::MAX, above),
        ("tank/a", "refreservation", 1 << 30, above),
        ("tank", "quota", 1 << 20, below),
        ("tank", "refquota", 1 << 20, below),
    ] {
        let set = session.pool().set_property(name, property, Some(Stored::Number(number)));
        let error = set.unwrap_err();
        assert!(matches!(&error, PoolError::Invalid(text) if text == words), "{property}: {error}");
    }
    for property in ["reservation", "refreservation"] {
        let props = BTreeMap::from([(property.to_string(), Stored::Number(1 << 40))]);
        let made = session.pool().create_filesystem("tank/c", props, make_filesystem);
        assert!(matches!(made.unwrap_err(), PoolError::Invalid(_)));
    }
    // The pool lives on, and its accounts are right.
    session.pool().set_property("tank/a", "reservation", Some(Stored::Number(9 << 20))).unwrap();
    session.close().unwrap();
    testkit::tool::zdb_content(images.path(), POOL);
    drop(testkit::poolaudit(images.path(), POOL).expect_ok());
}

/// Blocks of an intent log, each right by its checksum, of which the last leads back to the first.
#[test]
fn an_intent_log_that_leads_in_a_circle_is_not_claimed() {
    let (images, session) = fresh();
    let born = session.pool().txg() + 2;
    let pointer = |offset: u64, seq: u64| {
        let props = BlkProps {
            lsize: 4096,
            psize: 4096,
            kind: ObjectType::INTENT_LOG,
            checksum: Checksum::Zilog2,
            compress: Compress::Off,
            level: 0,
        };
        let dva = Dva { vdev: 0, offset, asize: 4096, gang: false };
        BlkPtr::new(props, &[dva], born, 0, [3, 4, 5, seq])
    };
    let (first, second) = (pointer(96 << 20, 1), pointer(97 << 20, 2));
    let disk = std::fs::OpenOptions::new().write(true).open(images.disk(0)).unwrap();
    for (at, next) in [(first, second), (second, first)] {
        let mut block = vec![0; 4096];
        block[8..136].copy_from_slice(next.as_bytes());
        block[136..144].copy_from_slice(&(ZIL_CHAIN_SIZE as u64).to_le_bytes());
        let place = Place::Zilog2 { pointer: at.checksum_words() };
        seal(place, &mut block).unwrap();
        disk.write_all_at(&block, DATA_AT + at.dva(0).offset).unwrap();
    }
    let mut header = ZilHeader::default();
    header.log = first;
    session
        .pool()
        .task(move |cx| {
            let head = cx.pool.dataset("tank/a")?;
            head.objset.change_phys(|phys| phys.zil_header = header.to_bytes());
            cx.sync_objset(head.object, &head.objset, 0)
        })
        .unwrap();
    drop(session);
    let session = Session::open(images.path(), POOL, POOL);
    let pool = session.as_ref().map(|session| session.pool().read_only_reason());
    let reason = pool.unwrap().unwrap_or("none");
    assert!(reason.contains("'tank/a'") && reason.contains("does not follow"), "{reason}");
}

/// A tree is copied to where it was asked for, and nowhere else: not where names lead that are none, nor where a link leads
/// that lies below.
#[test]
fn a_copy_stays_in_its_directory() {
    let (images, session) = fresh();
    let fs = Filesystem::open(session.pool(), "tank/a").unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let object = fs.create_with(fs.root(), b"good", &file, b"bytes").unwrap();
    let dir =
        fs.create(fs.root(), b"sub", &NewObject::of(mode::DIR | 0o755, Who { uid: 0, gid: 0 }));
    fs.create_with(dir.unwrap(), b"below", &file, b"bytes").unwrap();
    let root = fs.root();
    drop(fs);
    let names = ["../out", "sub/in", "..", "."];
    put_entries(&session, root, names.map(|name| (name.to_owned(), Value::u64(object | 8 << 60))));
    drop(session);
    let aside = testkit::temp_dir();
    let (to, elsewhere) = (aside.path().join("to"), aside.path().join("elsewhere"));
    std::fs::create_dir_all(to.join("a")).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, to.join("a/sub")).unwrap();
    let mut command = acceptance::thumper(&aside.path().join("state"));
    command.arg("-d").arg(images.path()).args(["get", "-r", "tank/a:/"]).arg(to.join("a"));
    let ran = testkit::Ran::of(&mut command);
    assert!(ran.status == 1 && ran.err.matches("this is no name").count() == 4, "{ran}");
    assert!(ran.err.contains("File exists"), "{ran}");
    assert_eq!(std::fs::read(to.join("a/good")).unwrap(), b"bytes");
    let names = |dir: &std::path::Path| std::fs::read_dir(dir).unwrap().flatten().count();
    assert_eq!([names(&to), names(&elsewhere), names(&to.join("a"))], [1, 0, 2]);
}

/// Entries that lead nowhere hide none that does: a listing in pieces goes on behind them.
#[test]
fn a_listing_goes_on_behind_entries_whose_values_are_no_numbers() {
    let (_images, session) = fresh();
    let fs = Filesystem::open(session.pool(), "tank/a").unwrap();
    let (file, root) = (NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 }), fs.root());
    let names: Vec<_> = (0..20).map(|n| format!("good{n}").into_bytes()).collect();
    for name in &names {
        fs.create(root, name, &file).unwrap();
    }
    drop(fs);
    let odd = (0..400).map(|n| (format!("odd{n}"), Value::string(b"text")));
    put_entries(&session, root, odd);
    let fs = Filesystem::open(session.pool(), "tank/a").unwrap();
    for max in [1, 8, 128] {
        let (mut listed, mut at) = (Vec::new(), 0);
        loop {
            let piece = fs.list_dir(root, at, max).unwrap();
            let Some((_, next)) = piece.last() else { break };
            at = *next;
            listed.extend(piece.iter().map(|(entry, _)| entry.name.clone()));
            // Callers take a piece that is not full for the last one.
            assert!(piece.len() == max || listed.len() == names.len(), "{max}");
        }
        listed.sort_unstable();
        assert!(listed.iter().eq(names.iter().collect::<std::collections::BTreeSet<_>>()), "{max}");
    }
}

/// A disk that is said to lack txgs which nobody can reach: it is given what there is, and the pool can be written by whoever
/// opens it next.
///
/// Seen red: the resilver was of txgs that cannot be, and nobody goes on with such a one.
#[test]
fn what_a_leaf_lacks_of_txgs_to_come_nobody_gives_it() {
    let shape = Shape { disk_bytes: 128 << 20, ..SHAPES[1] };
    let (images, session) = Session::create(&shape, 128 << 10);
    session.pool().store().tree().leaves()[0].lacks.add(2, (1 << 50) + 5);
    session.pool().sync().unwrap();
    let session = reopen(&images, session);
    assert_eq!(session.pool().scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    let mut session = reopen(&images, session);
    let pool = session.pool();
    assert_eq!(pool.read_only_reason(), None);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    assert!(pool.store().tree().leaves().iter().all(|leaf| leaf.lacks.is_empty()));
    session.close().unwrap();
    testkit::tool::zdb_content(images.path(), POOL);
}

/// The pool's log of errors is lost itself: what is found then is told in a new one, and nothing else suffers.
///
/// Seen red: no txg came to the disk any more.
#[test]
fn who_cannot_tell_of_a_loss_goes_on() {
    let (images, session) = fresh();
    let at = |object| Bookmark { objset: 1 << 20, object, level: 0, block: 0 };
    session.pool().lost(at(1));
    session.pool().sync().unwrap();
    let mos = session.pool().mos();
    let log = mos.find(pool::mos::key::ERRLOG_LAST).unwrap().unwrap();
    let bp = mos.objset.pointer(log, 0, 0).unwrap();
    drop(session);
    let disk = std::fs::File::options().write(true).open(&images.disks()[0]).unwrap();
    for dva in bp.dvas() {
        disk.write_all_at(&vec![0x5a; dva.asize as usize], DATA_AT + dva.offset).unwrap();
    }
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    pool.lost(at(2));
    pool.sync().unwrap();
    pool.create_filesystem("tank/c", BTreeMap::new(), make_filesystem).unwrap();
    assert!(pool.lost_blocks().unwrap().contains(&at(2)));
    session.close().unwrap();
    testkit::tool::zdb_content(images.path(), POOL);
    drop(testkit::poolaudit(images.path(), POOL).expect_ok());
}
