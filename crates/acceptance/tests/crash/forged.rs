//! Intent logs in which something was changed after the crash, each block right by its checksum or one of them wrong: what
//! they cannot say is not guessed, nothing else is harmed, and the judge counts what the pool counts (INV-8).

use std::collections::BTreeMap;

use codec::embedded::{Place, check as examine, seal};
use device::sim::{Cut, SimSet};
use dmu::DmuError;
use format::blkptr::BlkProps;
use format::label::DATA_AT;
use format::scan::ScanFunction;
use format::zil::{Create, LogBlock, Record, RecordKind, Write, ZIL_CHAIN_SIZE, ZilHeader, build};
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType};
use fs::{Filesystem, FsError, NewObject, Volume, Who, mode};
use pool::{Pool, Stored};
use rt::sync::Arc;

use crate::check;
use crate::rig::{self, POOL, STRIPE};

/// Files that are in the log alone.
const FILES: u64 = 12;

fn file() -> NewObject<'static> {
    NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 })
}

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

/// What a crash left of files of so many slots each, of which all but the first are in the log alone.
fn crashed(slots: u64) -> SimSet {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    pool.set_property(POOL, "dnodesize", Some(Stored::Number(slots * 512))).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    for number in 0..=FILES {
        let bytes = vec![number as u8; 5000];
        let made = fs.create_with(fs.root(), &name(number), &file(), &bytes).unwrap();
        // The first is a txg, which begins the log.
        fs.fsync(made).unwrap();
    }
    SimSet::from_images(set.crash(Cut::Dropped, 1))
}

fn header(set: &SimSet) -> ZilHeader {
    let (pool, _) = rig::open_to_read(set, &rig::all(set), u64::MAX).unwrap().unwrap();
    ZilHeader::parse(&pool.dataset(POOL).unwrap().objset.phys().zil_header)
}

/// Where a block is on the one disk.
fn at(bp: &BlkPtr) -> u64 {
    DATA_AT + bp.dva(0).offset
}

/// The written blocks of the log.
fn blocks(set: &SimSet) -> Vec<(BlkPtr, Vec<u8>)> {
    let (mut out, mut next) = (Vec::new(), header(set).log);
    loop {
        let mut block = vec![0; next.psize() as usize];
        set.disk(0).image().read(at(&next), &mut block);
        if examine(Place::Zilog2 { pointer: next.checksum_words() }, &block).is_err() {
            return out;
        }
        let this = std::mem::replace(&mut next, LogBlock::parse(&block).unwrap().chain.next);
        out.push((this, block));
    }
}

/// Puts other records into a block of the log.
fn refill(set: &SimSet, (bp, old): &(BlkPtr, Vec<u8>), records: &[Vec<u8>]) {
    let mut block = vec![0; old.len()];
    let records = records.concat();
    let used = ZIL_CHAIN_SIZE + records.len();
    block[ZIL_CHAIN_SIZE..used].copy_from_slice(&records);
    build::start_block(&mut block, &LogBlock::parse(old).unwrap().chain.next, used);
    seal(Place::Zilog2 { pointer: bp.checksum_words() }, &mut block).unwrap();
    set.disk(0).overwrite(at(bp), &block);
}

/// Changes what the log says of the making of a file.
fn forge(set: &SimSet, of: &[u8], change: impl Fn(&mut Create<'_>)) {
    let mut forged = 0;
    for block in blocks(set) {
        let mut records = Vec::new();
        for raw in LogBlock::parse(&block.1).unwrap().records() {
            let raw = raw.unwrap();
            let Ok(Record::Create(mut create)) = raw.decode() else {
                records.push(raw.bytes.to_vec());
                continue;
            };
            if create.name == of {
                change(&mut create);
                forged += 1;
            }
            let mut bytes = build::encode(raw.kind, &Record::Create(create)).unwrap();
            build::number(&mut bytes, raw.txg, raw.seq);
            records.push(bytes);
        }
        refill(set, &block, &records);
    }
    assert_eq!(forged, 1);
}

fn write(set: &SimSet) -> Arc<Pool> {
    rig::open_to_write(set, &rig::all(set)).unwrap()
}

/// Whoever opens the pool leaves the log, and says why; all that is there lives on.
#[track_caller]
fn is_left(set: &SimSet, why: &str) {
    let pool = write(set);
    let left = fs::replay_logs(&pool).unwrap();
    let [left] = &left[..] else { panic!("{why}: {left:?}") };
    let left = left.to_string();
    assert!(left.contains("its intent log has not been replayed") && left.contains(why), "{left}");
    pool.create_filesystem("tank/new", BTreeMap::new(), fs::make_filesystem).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    assert!(fs.create(fs.root(), b"new", &file()).is_err(), "{why}");
    assert!(fs.resolve(&name(0)).is_ok());
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    check::verified(set, &rig::all(set)).unwrap();
}

/// Seen red: it was replayed as far as it could be read, the rest was gone without a word, and its blocks were nobody's.
#[test]
fn a_claimed_log_is_replayed_to_where_it_was_claimed_or_not_at_all() {
    let set = crashed(1);
    drop(write(&set));
    let log = blocks(&set);
    let (middle, was) = &log[log.len() / 2];
    set.disk(0).overwrite(at(middle) + 300, &[0xa5; 8]);
    let claimed = header(&set);

    let pool = write(&set);
    let left = fs::replay_logs(&pool).unwrap();
    let [left] = &left[..] else { panic!("{left:?}") };
    assert!(left.to_string().contains("it ends before what was claimed"), "{left}");
    let fs = Filesystem::open(&pool, POOL).unwrap();
    assert!(fs.create(fs.root(), b"new", &file()).is_err());
    drop(fs);
    pool.scan_start(ScanFunction::Scrub).unwrap();
    pool.scan_run(&mut |_| true).unwrap();
    let scrub = pool.scan_status().unwrap().unwrap().scan;
    assert_eq!(scrub.errors, 1, "{scrub:?}");
    pool.close().unwrap();
    drop(pool);
    assert_eq!(header(&set), claimed, "all of it is still to be replayed");
    let said = check::verified(&set, &rig::all(&set)).unwrap_err();
    assert!(said.contains("its intent log ends before what was claimed of it"), "{said}");

    // The disk gives what it had.
    set.disk(0).overwrite(at(middle), was);
    let pool = write(&set);
    assert!(fs::replay_logs(&pool).unwrap().is_empty());
    let fs = Filesystem::open(&pool, POOL).unwrap();
    for number in 0..=FILES {
        let mut seen = vec![0; 6000];
        let object = fs.resolve(&name(number)).unwrap();
        assert_eq!(fs.read(object, 0, &mut seen).unwrap(), 5000, "f{number}");
        assert!(seen[..5000].iter().all(|byte| *byte == number as u8), "f{number}");
    }
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}

/// Seen red: a panic in the sync.
#[test]
fn what_no_log_can_make_is_not_made() {
    type Change = fn(&mut Create<'_>);
    let forged: [(&str, u64, Change); 9] = [
        ("makes an object beyond its block", 1, |create| create.slots = 32),
        ("makes an object that is there", 1, |create| create.slots = 3),
        ("makes an object that is there", 1, |create| create.object = 1),
        // The second half of the first file's, which is on disk; and of the one before, which is not.
        ("makes an object that is there", 2, |create| create.object -= 5),
        ("makes an object that is there", 2, |create| create.object -= 1),
        ("gives it no name", 1, |create| create.name = b""),
        ("gives it no name", 1, |create| create.name = b".."),
        ("gives it no name", 1, |create| create.name = b"a/b"),
        ("makes an object of no kind", 1, |create| create.mode = 0o170_644),
    ];
    for (why, slots, change) in forged {
        let set = crashed(slots);
        forge(&set, &name(3), change);
        is_left(&set, why);
    }
}

/// Whoever asks for a number that is none gets an error, and nobody else's slots.
#[test]
fn no_dnode_reaches_beyond_its_block() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let objset = &fs.dataset().objset;
    let tx = pool.admit(fs.dataset(), 0).unwrap();
    let (kind, none) = (ObjectType::PLAIN_FILE_CONTENTS, ObjectType::NONE);
    let ask =
        |number, slots| objset.allocate_at(&tx, number, kind, 512, none, &[], slots).map(drop);
    assert!(matches!(ask(95, 2), Err(DmuError::Limit { object: 95, .. })));
    ask(92, 4).unwrap();
    let are_free = |first, count| objset.are_free(first, count).unwrap();
    assert!(are_free(64, 28) && !are_free(64, 29) && !are_free(92, 1) && !are_free(95, 1));
    assert!(are_free(96, 32) && are_free(1 << 40, 1) && !are_free(1, 1));
    drop(tx);
    pool.sync().unwrap();
    assert!(are_free(64, 28) && !are_free(95, 1) && are_free(96, 1));
    objset.free(&pool.admit(fs.dataset(), 0).unwrap(), 92).unwrap();
    assert!(!are_free(95, 1), "it is on disk");
    pool.sync().unwrap();
    assert!(are_free(64, 32));
}

/// A block that was never written.
fn pointer(offset: u64, birth: u64) -> BlkPtr {
    let props = BlkProps {
        lsize: 16 << 10,
        psize: 16 << 10,
        kind: ObjectType::PLAIN_FILE_CONTENTS,
        checksum: Checksum::Fletcher4,
        compress: Compress::Off,
        level: 0,
    };
    let dva = Dva { vdev: 0, offset, asize: 16 << 10, gang: false };
    BlkPtr::new(props, &[dva], birth, 0, [3, 4, 5, 6])
}

/// Where the data of a write never got to the disk a log ends, though its block goes on.
///
/// Seen red: the judge called what came after it free.
#[test]
fn what_was_not_claimed_is_nobodys() {
    let set = crashed(1);
    let log = blocks(&set);
    let last = log.last().unwrap();
    let raw = LogBlock::parse(&last.1).unwrap().records().next().unwrap().unwrap();
    let elsewhere = |offset: u64| {
        let pointer = pointer(offset, raw.txg);
        let write =
            Write { object: 1, offset: 0, length: 16 << 10, block_offset: 0, pointer, data: None };
        build::encode(RecordKind::Write, &Record::Write(write)).unwrap()
    };
    let mut records = vec![raw.bytes.to_vec(), elsewhere(120 << 20), elsewhere(121 << 20)];
    for (record, seq) in records.iter_mut().zip(raw.seq..) {
        build::number(record, raw.txg, seq);
    }
    refill(&set, last, &records);
    drop(write(&set));
    let claimed = header(&set);
    assert_eq!(claimed.claim_record_seq.get(), raw.seq);
    assert_eq!(claimed.claim_block_seq.get(), last.0.checksum_words()[3]);
    check::verified(&set, &rig::all(&set)).unwrap();
}

/// A file that has moved is in the log with its bytes as they are when somebody asks for anything; so what was cut of it in
/// between is there, too.
///
/// Seen red: it came back as long as it had been, and full of zeros.
#[test]
fn what_was_cut_after_it_had_moved_stays_cut() {
    for (writes_again, size) in [(false, 0), (true, 0), (true, 700)] {
        let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
        let pool = rig::create(&set, STRIPE).unwrap();
        let fs = Filesystem::open(&pool, POOL).unwrap();
        let other = fs.create(fs.root(), b"other", &file()).unwrap();
        fs.fsync(other).unwrap();
        fs.fsync(other).unwrap();
        let txg = pool.open_txg().unwrap();
        let moved = fs.create_with(fs.root(), b"old", &file(), &[7; 100_000]).unwrap();
        fs.rename(fs.root(), b"old", fs.root(), b"new").unwrap();
        if writes_again {
            fs.write(moved, 100_000, &[8; 50_000]).unwrap();
        }
        fs.truncate(moved, size).unwrap();
        fs.fsync(other).unwrap();
        assert_eq!(pool.open_txg().unwrap(), txg, "it is in the log");
        let left = SimSet::from_images(set.crash(Cut::Dropped, 1));
        drop((fs, pool));
        let pool = write(&left);
        assert!(fs::replay_logs(&pool).unwrap().is_empty());
        let fs = Filesystem::open(&pool, POOL).unwrap();
        assert_eq!(fs.resolve(b"new").unwrap(), moved);
        assert_eq!(fs.attrs(moved).unwrap().size, size);
        let mut seen = vec![0; 1000];
        let got = fs.read(moved, 0, &mut seen).unwrap();
        assert!(seen[..got].iter().all(|byte| *byte == 7));
    }
}

/// Gives a data set a log that was claimed, and that nobody can read.
fn plant(pool: &Pool, name: &'static str) {
    let mut header = ZilHeader::default();
    header.log = pointer(120 << 20, pool.txg());
    (header.claim_txg, header.claim_record_seq) = (pool.txg().into(), 1.into());
    let plants = pool.task(move |cx| {
        let head = cx.pool.dataset(name)?;
        head.objset.change_phys(|phys| phys.zil_header = header.to_bytes());
        cx.sync_objset(head.object, &head.objset, 0)
    });
    plants.unwrap();
}

/// Seen red: the size of a volume was changed whatever its property said, and where its log had been left the pool was
/// suspended.
#[test]
fn a_volume_that_can_only_be_read_keeps_its_size() {
    const NAME: &str = "tank/volume";
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    pool.create_volume(NAME, BTreeMap::new(), 16 << 13, 1 << 13).unwrap();
    for by_property in [true, false] {
        match by_property {
            true => pool.set_property(NAME, "readonly", Some(Stored::Number(1))).unwrap(),
            false => {
                pool.set_property(NAME, "readonly", Some(Stored::Number(0))).unwrap();
                plant(&pool, NAME);
                pool.leave_log(NAME, "its log is strange").unwrap();
            }
        }
        let volume = Volume::open(&pool, NAME).unwrap().unwrap();
        let refused = [volume.set_size(&pool, 8 << 13), volume.write(&pool, 0, &[1; 512])];
        for refused in refused {
            assert!(matches!(refused, Err(FsError::ReadOnly { .. })), "{by_property}: {refused:?}");
        }
    }
    pool.sync().unwrap();
    let volume = Volume::open(&pool, NAME).unwrap().unwrap();
    assert_eq!(volume.size(), 16 << 13);
}
