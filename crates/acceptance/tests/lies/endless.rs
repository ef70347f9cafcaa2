//! Lies that lead whoever believes them in a circle, or beyond the last number: every walk ends, and says where.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use acceptance::engine::POOL;
use acceptance::{SHAPES, Session, Shape};
use format::dnode::{BLKPTR, DNODE_CORE};
use format::scan::ScanFunction;
use format::{BlkPtr, Checksum, DnodePhys, ObjectType};
use fs::Filesystem;
use pool::dsl::lookup;
use pool::{Devices, OpenOptions, Pool, ScanAnswer, ScanStep, Stored};
use testkit::{Images, temp_dir};
use verbs::files::{Get, List, Listed, Place, Remove};
use verbs::props::{Kind, Kinds};
use verbs::state::StateFile;
use verbs::{Engine, Local, datasets};
use zerocopy::IntoBytes;

use crate::forge::{Forge, Os};

/// What an entry of a directory says of it beside its object: that it leads to a directory.
const TO_DIRECTORY: u64 = 4 << 60;
/// Places in a dnode: how many levels it has, and its last block.
const LEVELS_AT: usize = 2;
const MAX_BLOCK_AT: usize = 16;
/// Word of a space map: the bytes of its entries.
const SPACE_MAP_LENGTH: usize = 1;
/// Word of a DSL directory: the ZAP of its children.
const CHILDREN: usize = 4;

fn engine(state: &Path) -> Local {
    Local::new(StateFile::new(state.join("pools")))
}

fn place(text: &str) -> Place {
    Place::parse(text.as_bytes()).unwrap()
}

fn words(errors: &[verbs::Error]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// `single` with a directory that is below itself: `dirs/deep1/deep2/deep3` leads to `dirs` again. With `twice`
/// `dirs/micro` leads to `dirs/few`.
fn circle(twice: bool) -> Images {
    let mut forge = Forge::of("single");
    let os = Os::Set(forge.dataset("single"));
    let (top, deep) = (forge.file(os, "dirs"), forge.file(os, "dirs/deep1/deep2"));
    forge.set_zap(os, deep, "deep3", top | TO_DIRECTORY);
    if twice {
        let few = forge.file(os, "dirs/few");
        forge.set_zap(os, top, "micro", few | TO_DIRECTORY);
    }
    assert!(!forge.failed.get());
    forge.close()
}

const MET: &str = "it was met before: it has two names, or is below itself";

#[test]
fn a_directory_below_itself_is_listed_once() {
    let (images, state) = (circle(true), temp_dir());
    let list = List {
        places: vec![place("single:/dirs")],
        recursive: true,
        dirs: vec![images.path().to_owned()],
        ..Default::default()
    };
    let mut dirs = Vec::new();
    let mut each = |told| {
        if let Listed::Directory(path) = told {
            dirs.push(String::from_utf8(path).unwrap());
        }
        assert!(dirs.len() < 100, "{dirs:?}");
    };
    let errors = engine(state.path()).list(&list, &mut each).unwrap();
    let expected = ["deep1/deep2/deep3", "micro"]
        .map(|path| format!("cannot access 'single:/dirs/{path}': {MET}"));
    assert_eq!(words(&errors), expected);
    let expected = ["", "/deep1", "/deep1/deep2", "/empty", "/fat", "/few"];
    assert_eq!(dirs, expected.map(|path| format!("single:/dirs{path}")));
}

#[test]
fn a_directory_below_itself_is_copied_once() {
    let (images, aside) = (circle(true), temp_dir());
    let to: PathBuf = aside.path().join("got");
    let get = Get {
        places: vec![place("single:/dirs")],
        to: to.clone(),
        recursive: true,
        salvage: false,
        replay: false,
        dirs: vec![images.path().to_owned()],
    };
    let (_, errors) = engine(aside.path()).get(&get).unwrap();
    let expected = ["deep1/deep2/deep3", "micro"]
        .map(|path| format!("cannot read 'single:/dirs/{path}': {MET}"));
    assert_eq!(words(&errors), expected);
    let names = |dir: &str| {
        let names = std::fs::read_dir(to.join(dir)).unwrap().map(|e| e.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(""), ["deep1", "empty", "fat", "few"].map(String::from).into());
    assert_eq!(names("deep1/deep2"), [""; 0].map(String::from).into());
}

/// The way to it stays.
#[test]
fn a_directory_below_itself_is_not_removed() {
    let (images, state) = (circle(false), temp_dir());
    let remove = Remove {
        places: vec![place("single:/dirs/deep1")],
        recursive: true,
        force: false,
        dirs: vec![images.path().to_owned()],
    };
    let errors = engine(state.path()).remove(&remove).unwrap();
    let expected = format!("cannot remove 'single:/dirs/deep1/deep2/deep3/deep1': {MET}");
    assert_eq!(words(&errors), [expected]);
}

/// A data set's directory that is its own child.
#[test]
fn data_sets_below_themselves_are_listed_once() {
    let mut forge = Forge::of("mir");
    let quota = forge.dir("mir/quota");
    let children = forge.word(Os::Mos, quota, CHILDREN);
    forge.set_zap(Os::Mos, children, "child", quota);
    assert!(!forge.failed.get());
    let (images, state) = (forge.close(), temp_dir());
    let query = datasets::Query {
        names: vec!["mir".into()],
        depth: Some(usize::MAX),
        kinds: Kinds::NONE.with(Kind::Filesystem),
        places: vec![images.path().to_owned()],
        ..Default::default()
    };
    let report = engine(state.path()).dataset_query(&query).unwrap();
    let names: Vec<&str> = report.datasets.iter().map(|dataset| &dataset.name[..]).collect();
    let all = ["", "/base", "/clone", "/dirattr", "/large", "/noacl", "/promoted"];
    let all = [&all[..], &["/quota", "/work"]].concat();
    assert_eq!(names, all.into_iter().map(|name| format!("mir{name}")).collect::<Vec<_>>());
    let errors = words(&report.errors);
    assert!(errors.len() == 1 && errors[0].contains("'mir/quota'"), "{errors:?}");
    assert!(errors[0].contains(&format!("object {quota}")), "{errors:?}");
}

fn scrub(images: &Images, name: &str) -> pool::ScanStatus {
    let session = Session::open(images.path(), name, name).unwrap();
    assert_eq!(session.pool().scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    assert_eq!(session.pool().scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    session.pool().scan_status().unwrap().unwrap()
}

/// A pointer to the same block, whatever is in it.
fn unchecked(bp: BlkPtr) -> BlkPtr {
    let mut words = bp.words();
    words[6] = words[6] & !(0xff << 40) | u64::from(Checksum::Off.id()) << 40;
    BlkPtr::from_words(words)
}

/// Object 0 in its own first block, with a pointer to just that block, which no checksum holds back.
#[test]
fn a_block_of_dnodes_in_itself_is_scrubbed_once() {
    let mut forge = Forge::of("rz1");
    let os = Os::Set(forge.dataset("rz1/rs16K"));
    for _ in 0..2 {
        // The first time over it is found out how the block is compressed.
        let mut own = unchecked(forge.pointer(os, 0, 0, 0)).words();
        // One sector of each: so there can be as many as can be.
        own[0] = own[0] & !0xff_ffff | 1;
        let mut dnode = DnodePhys::new(ObjectType::DNODE, 16 << 10, ObjectType::NONE, 0, 1);
        dnode.blkptrs_mut()[0] = BlkPtr::from_words(own);
        forge.edit(os, 0, (0, 0), |bytes| dnode.store(&mut bytes[..512]));
        let now = forge.pointer(os, 0, 0, 0).words();
        if (own[6] ^ now[6]) & !(0xff << 40) == 0 {
            break;
        }
    }
    assert!(!forge.failed.get());
    let status = scrub(&forge.close(), "rz1");
    assert!(!status.is_running(), "{status:?}");
}

/// The tree of dnodes one level further down, where the numbers of its blocks still fit, and those of objects do not.
fn beyond() -> Images {
    let mut forge = Forge::of("rz1");
    let os = Os::Set(forge.dataset("rz1/rs512"));
    let top = forge.dnode(os, 0).core().levels - 1;
    assert_eq!((top, forge.dnode(os, 0).pointers_shift()), (5, 10));
    // A block of pointers that can be spared becomes the new top.
    let (below, file) = (unchecked(forge.pointer(os, 0, top, 0)), forge.file(os, "text"));
    forge.edit(os, file, (1, 0), |bytes| {
        bytes.fill(0);
        bytes[..128].copy_from_slice(below.as_bytes());
    });
    let mut words = forge.pointer(os, file, 1, 0).words();
    words[6] = words[6] & !(0xff_ff << 48) | u64::from(ObjectType::DNODE.0) << 48;
    words[6] |= u64::from(top + 1) << 56 | 1 << 63;
    let above = BlkPtr::from_words(words);
    forge.edit_dnode(os, 0, |bytes| {
        bytes[LEVELS_AT] = top + 2;
        bytes[DNODE_CORE..][..2 * BLKPTR].fill(0);
        bytes[DNODE_CORE + BLKPTR..][..BLKPTR].copy_from_slice(above.as_bytes());
    });
    assert!(!forge.failed.get());
    forge.close()
}

#[test]
fn dnodes_beyond_all_numbers_are_not_scrubbed() {
    let status = scrub(&beyond(), "rz1");
    assert!(!status.is_running() && status.scan.errors > 0, "{status:?}");
}

#[test]
fn dnodes_beyond_all_numbers_are_not_freed() {
    let images = beyond();
    let session = Session::open(images.path(), "rz1", "rz1").unwrap();
    let pool = session.pool();
    pool.set_freeing(100, false).unwrap();
    pool.destroy_dataset("rz1/rs512").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    assert!(lookup::find(pool.mos(), "rz1/rs512").is_err());
    assert!(pool.freeing().unwrap() > 0);
    pool.sync().unwrap();
}

/// A last block whose number has no next one.
#[test]
fn a_last_block_beyond_which_there_is_no_number() {
    let mut forge = Forge::of("single");
    let os = Os::Set(forge.dataset("single/a"));
    let file = forge.file(os, "f");
    for object in [0, file] {
        forge.edit_dnode(os, object, |bytes| bytes[MAX_BLOCK_AT..][..8].fill(0xff));
    }
    assert!(!forge.failed.get());
    let images = forge.close();
    let session = Session::open(images.path(), "single", "single/a").unwrap();
    let fs: &Filesystem = session.filesystem();
    let (mut entries, mut at) = (0, 0);
    while let Some(number) = fs.next_entry_left(at) {
        (entries, at) = (entries + 1, number + 1);
    }
    assert_eq!(entries, 3);
    let (object, attrs) = fs.open_object(file).unwrap();
    assert_eq!(attrs.size, 200_000);
    fs.truncate(file, 0).unwrap();
    session.pool().sync().unwrap();
    assert_eq!(object.used_bytes(), 0);
}

const SMALL: Shape = Shape { disk_bytes: 128 << 20, ..SHAPES[0] };
/// Levels of an object whose pointers all lead to one block, and its blocks.
const LEVELS: u8 = 6;
const BLOCKS: u64 = 128u64.pow(LEVELS as u32 - 1);

/// The top of such an object, in blocks of others, each of them 128 pointers to the one before; the first is `leaf`.
fn leads_on(pool: &Pool, leaf: &[u8]) -> BlkPtr {
    let mut bytes = leaf.to_vec();
    let mut level = 0;
    loop {
        let block = std::mem::take(&mut bytes);
        let object = pool.task(move |cx| {
            let (kind, none) = (ObjectType::SPACE_MAP, ObjectType::NONE);
            let size = block.len() as u32;
            let object = cx.making.mos.objset.allocate(cx.tx, kind, size, none, &[], 1)?;
            object.write(cx.tx, 0, &block)?;
            Ok(object.number())
        });
        let mut words = pool.mos().objset.pointer(object.unwrap(), 0, 0).unwrap().words();
        words[6] |= u64::from(level) << 56;
        let bp = BlkPtr::from_words(words);
        level += 1;
        if level == LEVELS {
            return bp;
        }
        bytes = bp.as_bytes().repeat(128);
    }
}

/// Makes a space map such an object, with blocks of so many bytes.
fn has_no_end(images: Images, map: u64, top: BlkPtr, block: u64) -> Images {
    let mut forge = Forge::on(images);
    forge.edit_dnode(Os::Mos, map, |bytes| {
        bytes[LEVELS_AT] = LEVELS;
        bytes[MAX_BLOCK_AT..][..8].copy_from_slice(&(BLOCKS - 1).to_le_bytes());
        bytes[DNODE_CORE..][..BLKPTR].copy_from_slice(top.as_bytes());
    });
    forge.set(Os::Mos, map, SPACE_MAP_LENGTH, BLOCKS * block);
    assert!(!forge.failed.get());
    forge.close()
}

/// Does something that must end.
fn in_time<T: Send + 'static>(
    images: &Images,
    what: impl FnOnce(&Path) -> T + Send + 'static,
) -> T {
    let (sent, done) = rt::sync::mpsc::bounded(1);
    let path = images.path().to_owned();
    rt::thread::spawn("opener", move || {
        let _ = sent.send(what(&path));
    });
    done.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends")
}

/// A DTL of more blocks than there are: every pointer on each level leads to the same block, whose runs are all one.
///
/// Seen red: whoever opened the pool, or listed it, read on and on.
#[test]
fn a_dtl_without_end_is_not_read_to_its_end() {
    let (images, mut session) = Session::create(&SMALL, 128 << 10);
    let pool = session.pool();
    pool.store().tree().leaves()[0].lacks.add(2, 3);
    pool.task(|_| Ok(())).unwrap();
    let dtl = pool.config().vdev_tree.leaves().find_map(|leaf| leaf.dtl).unwrap();
    // A run of one txg, again and again.
    let top = leads_on(pool, &[0; 4096]);
    session.close().unwrap();
    let images = has_no_end(images, dtl, top, 4096);
    let open = move |path: &Path| {
        acceptance::engine::open(path, POOL).read_only_reason().map(str::to_owned)
    };
    let reason = in_time(&images, open);
    assert!(reason.as_ref().is_some_and(|why| why.contains("the bytes of a")), "{reason:?}");
}

/// The same of a log of all metaslabs, whose runs are of a vdev that is not there.
#[test]
fn a_log_of_space_maps_without_end_is_not_read_to_its_end() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let pool = session.pool();
    let words = [(3u64 << 62) | 5, 0].map(u64::to_le_bytes).concat();
    let top = leads_on(pool, &words.repeat((128 << 10) / 16));
    let logs = pool.mos().find(pool::mos::key::LOG_SPACEMAP_ZAP).unwrap().unwrap();
    let logs = pool.mos().zap(logs).unwrap().entries().unwrap();
    let log = logs.last().unwrap().value.as_u64().unwrap();
    drop(session);
    let images = has_no_end(images, log, top, 128 << 10);
    let open = |path: &Path| {
        let scan = vdev::import::scan(&[path.to_owned()]).unwrap();
        let found = scan.choose(POOL).unwrap();
        let devices = Devices::ReadOnly(rt::sync::Arc::new(found.open_tree().unwrap()));
        let pool = Pool::open(devices, &found.uberblocks, &OpenOptions::default());
        pool.and_then(|pool| pool.space()).map_err(|error| error.to_string())
    };
    let told = in_time(&images, open);
    assert!(told.as_ref().is_err_and(|why| why.contains("the bytes of a")), "{told:?}");
}

/// The same of a metaslab's own map, in which a sector comes and goes for ever.
#[test]
fn a_space_map_without_end_is_not_read_to_its_end() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let pool = session.pool();
    let words = [5u64 << 16, 5u64 << 16 | 1 << 15].map(u64::to_le_bytes).concat();
    let top = leads_on(pool, &words.repeat((128 << 10) / 16));
    let array = pool.config().vdev_tree.children[0].top.unwrap().metaslab_array;
    let mut word = [0; 8];
    pool.mos().objset.object(array).unwrap().read(0, &mut word).unwrap();
    drop(session);
    let images = has_no_end(images, u64::from_le_bytes(word), top, 128 << 10);
    let change = |path: &Path| {
        let pool = acceptance::engine::open(path, POOL);
        let quota = Some(Stored::Number(1 << 40));
        pool.set_property(POOL, "quota", quota).map_err(|error| error.to_string())
    };
    let told = in_time(&images, change);
    assert!(told.as_ref().is_err_and(|why| why.contains("the bytes of a")), "{told:?}");
}
