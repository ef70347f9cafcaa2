//! Images that lie or are cut short, read through the whole engine: every verb ends, in bounded time, with
//! what it could read or with an error that says where; none panics (INV-8).
//!
//! A failure prints its seed and what was changed.

#![allow(clippy::unwrap_used)]

mod image;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use acceptance::Stage;
use image::Image;
use rt::Workers;
use rt::sync::Mutex;
use testkit::data::Look;
use testkit::random::Rng;
use testkit::workload::Workload;
use testkit::{rounds, temp_dir};
use verbs::files::{Get, List, Place};
use verbs::props::{Key, Prop};
use verbs::state::StateFile;
use verbs::{Engine, Local, datasets, judge, pools};

const DISK_BYTES: u64 = 64 << 20;
const ASHIFT: u64 = 9;

/// No verb may take longer for a pool of a few hundred kilobytes, even on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The image of a small pool of one disk with a bit of everything.
fn small() -> Vec<u8> {
    let stage = Stage::new(1, DISK_BYTES);
    let _made = stage.ok(&format!("zpool create -o ashift={ASHIFT} -O xattr=sa tank $D/d00"));
    let _made = stage.ok("zfs create -o compression=lz4 -o recordsize=4K -o quota=20M tank/fs");
    let mut load = Workload::new(3);
    load.mkdir(b"dir");
    for i in 0..60 {
        load.file(
            format!("dir/a file with a long name, number {i}").as_bytes(),
            Look::Words,
            i * 97,
        );
    }
    load.file(b"large", Look::Root, 300_000);
    let name = b"user.note".to_vec();
    load.push(testkit::workload::Op::SetXattr {
        path: b"large".to_vec(),
        name,
        value: vec![7; 300],
    });
    let _planted = stage.plant("files", &load.ops);
    let _put = stage.ok("put -r files tank:/files");
    let _put = stage.ok("put -r files tank/fs:/files");
    let _gone = stage.ok("rm tank:/files/large");
    fs::read(stage.images.disk(0)).unwrap()
}

/// Writes an image; what is zero becomes a hole.
fn store(bytes: &[u8], path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (i, chunk) in bytes.chunks(64 << 10).enumerate() {
        if chunk.iter().any(|b| *b != 0) {
            file.write_all_at(chunk, (i * (64 << 10)) as u64).unwrap();
        }
    }
}

/// Asks for everything that can be read of the pool in `dir`; how many requests were answered.
fn ask_all(dir: &Path, aside: &Path) -> usize {
    let mut engine = Local::new(StateFile::new(aside.join("pools")));
    let dirs = vec![dir.to_path_buf()];
    let place = |dataset: &str| Place { dataset: dataset.into(), path: b"/".to_vec() };
    let names = || vec!["tank".to_string()];
    let mut answered = 0;
    let mut count = |ok: bool| answered += usize::from(ok);
    let find = pools::Find { places: dirs.clone(), ..Default::default() };
    count(engine.pool_find(&find).is_ok_and(|found| !found.is_empty()));
    let status = pools::Status { names: names(), places: dirs.clone(), damaged: true, lost: false };
    count(engine.pool_status(&status).is_ok_and(|all| all.iter().all(Result::is_ok)));
    let history = pools::History { names: names(), places: dirs.clone() };
    count(engine.pool_history(&history).is_ok_and(|all| all.iter().all(Result::is_ok)));
    let query = datasets::Query {
        names: names(),
        depth: Some(usize::MAX),
        keys: vec![Key::Native(Prop::Used)],
        all: true,
        places: dirs.clone(),
        ..Default::default()
    };
    count(engine.dataset_query(&query).is_ok_and(|report| report.errors.is_empty()));
    for dataset in ["tank", "tank/fs"] {
        let list = List {
            places: vec![place(dataset)],
            recursive: true,
            dirs: dirs.clone(),
            ..Default::default()
        };
        count(engine.list(&list, &mut |_| {}).is_ok_and(|errors| errors.is_empty()));
        let to = aside.join("got");
        drop(fs::remove_dir_all(&to));
        let get = Get {
            places: vec![place(dataset)],
            to,
            recursive: true,
            dirs: dirs.clone(),
            replay: false,
            salvage: dataset == "tank/fs",
        };
        count(engine.get(&get).is_ok_and(|(_, errors)| errors.is_empty()));
    }
    let verify = judge::Verify { name: "tank".into(), places: dirs, ..Default::default() };
    let clean = |report: judge::VerifyReport| report.verdict == judge::Verdict::Clean;
    count(engine.verify(&verify, &mut |_| true).is_ok_and(clean));
    answered
}

/// All requests of [`ask_all`].
const ALL: usize = 9;

/// Asks everything of `count` images, each spoiled by `spoil` from its seed.
fn survive(what: &str, count: u64, spoil: impl Fn(&mut Image, &mut Rng) -> String + Sync) {
    let whole = Image::new(small(), ASHIFT);
    let (wrong, answers) = (Mutex::new(Vec::<String>::new()), Mutex::new(vec![0; ALL + 1]));
    Workers::per_core().run(count as usize, |_, job| {
        let seed = job as u64;
        let (dir, aside) = (temp_dir(), temp_dir());
        let mut image = whole.clone();
        let told = spoil(&mut image, &mut Rng::of(seed, what.len() as u64));
        let path: PathBuf = dir.path().join("d00");
        store(&image.bytes, &path);
        let began = rt::time::now();
        let done = catch_unwind(AssertUnwindSafe(|| ask_all(dir.path(), aside.path())));
        let took = began.elapsed();
        match done {
            Ok(answered) if took < TIME_MAX => {
                answers.lock()[answered] += 1;
                return;
            }
            Ok(_) => wrong.lock().push(format!("seed {seed}: {told}: {took:?}")),
            Err(_) => wrong.lock().push(format!("seed {seed}: {told}: a panic, printed above")),
        }
        // for whoever looks into it
        let kept = std::env::temp_dir().join(format!("liars-{}-{seed}", what.replace(' ', "-")));
        drop(fs::rename(&path, &kept));
    });
    let (wrong, answers) = (wrong.into_inner(), answers.into_inner());
    assert!(wrong.is_empty(), "{what}: {} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    // if all were answered, or none, nothing was tried
    let line = format!("{what}: {count} images; so many answered 0 to {ALL} requests: {answers:?}");
    drop(writeln!(std::io::stderr(), "{line}"));
}

#[test]
fn what_is_whole_is_answered_whole() {
    let (dir, aside) = (temp_dir(), temp_dir());
    store(&small(), &dir.path().join("d00"));
    assert_eq!(ask_all(dir.path(), aside.path()), ALL);
}

#[test]
fn blocks_that_lie_under_right_checksums() {
    survive("blocks", rounds(150, 5000), Image::lie_in_block);
}

#[test]
fn labels_that_lie_under_right_checksums() {
    survive("uberblocks", rounds(25, 1000), Image::lie_in_uberblock);
    survive("configs", rounds(50, 2000), Image::lie_in_config);
}

#[test]
fn damage_that_checksums_tell() {
    survive("damage", rounds(50, 1000), |image, rng| {
        let used = image.bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
        let first = image.label(2).min(used);
        for _ in 0..rng.between(1, 60) {
            // labels at both ends, and the blocks in use, which come first
            let at = match rng.below(4) {
                0 => rng.index(512 << 10),
                1 => image.label(2) + rng.index(512 << 10),
                _ => (4 << 20) + rng.index((first - (4 << 20)).min(8 << 20)),
            };
            let len = 1 + rng.index(3000.min(image.bytes.len() - at));
            rng.fill(&mut image.bytes[at..at + len]);
        }
        "noise here and there".into()
    });
}

#[test]
fn images_cut_short_or_of_noise() {
    survive("short", rounds(30, 300), |image, rng| {
        let len = image.bytes.len();
        if rng.one_in(3) {
            rng.fill(&mut image.bytes[..16 << 20]);
            return "16 MiB of noise".into();
        }
        let cut = match rng.below(3) {
            0 => rng.index(1 << 20),
            1 => rng.index(16 << 20),
            _ => rng.index(len),
        };
        image.bytes.truncate(cut);
        format!("cut to {cut} bytes")
    });
}
