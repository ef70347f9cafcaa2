//! The rescue door: what is left of pools that OpenZFS does not open, and nothing made up.
//!
//! The referee is the tree that was put in: whatever is copied out differs from it in the ranges that were told to
//! be lost, and nowhere else.

#![allow(clippy::unwrap_used)]

use acceptance::{Server, Stage};
use rt::random::Rng;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use testkit::Ran;
use testkit::data::LOOKS;
use testkit::workload::Workload;

/// Files with what they hold, by path from `dir`.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(here) = left.pop() {
        for entry in std::fs::read_dir(&here).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                let name = entry.path().strip_prefix(dir).unwrap().to_path_buf();
                found.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

/// The ranges that `get --salvage -j` told, by place.
fn told(ran: &Ran) -> BTreeMap<String, Vec<(u64, u64)>> {
    let mut lost: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for line in ran.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| line[key].as_u64().unwrap();
        let range = (number("offset"), number("length"));
        lost.entry(line["file"].as_str().unwrap().into()).or_default().push(range);
    }
    lost
}

/// What came of a rescue.
#[derive(Debug, Default, PartialEq)]
struct Saved {
    whole: usize,
    in_part: usize,
    gone: usize,
}

/// Compares what was salvaged of `pool:/` with what there was: right, but for what was told to be lost.
fn compare(ran: &Ran, was: &Path, is: &Path, pool: &str) -> Saved {
    let (was, is, lost) = (files(was), files(is), told(ran));
    let mut saved = Saved::default();
    for (name, old) in &was {
        let Some(new) = is.get(name) else {
            saved.gone += 1;
            continue;
        };
        let place = format!("{pool}:/{}", name.display());
        let lost = lost.get(&place).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(new.len(), old.len(), "{place}");
        let mut due = old.clone();
        for (offset, len) in lost {
            due[*offset as usize..(offset + len) as usize].fill(0);
        }
        assert!(due == *new, "{place} differs where nothing was told to be lost");
        if lost.is_empty() { saved.whole += 1 } else { saved.in_part += 1 }
    }
    // What has no name any more is one of those that had one.
    for (name, bytes) in is.iter().filter(|(name, _)| !was.contains_key(*name)) {
        assert!(name.starts_with("lost+found"), "{} was made up", name.display());
        let object = name.strip_prefix("lost+found").unwrap();
        let place = format!("{pool}:/<object {}>", object.display());
        if !lost.contains_key(&place) {
            assert!(was.values().any(|old| old == bytes), "{place} was made up");
        }
    }
    saved
}

/// A raidz1 of five disks with some hundred files, and where they are on the host, too.
fn stage() -> (Stage, PathBuf) {
    let stage = Stage::new(5, 96 << 20);
    drop(
        stage
            .ok("zpool create -f -o ashift=12 -O recordsize=32K tank raidz1 $D/d00 $D/d01 $D/d02 $D/d03 $D/d04"),
    );
    let mut load = Workload::new(11);
    for dir in 0..4 {
        load.mkdir(format!("dir{dir}").as_bytes());
        for file in 0..60u64 {
            let (size, look) = (1 << (file % 20), LOOKS[file as usize % LOOKS.len()]);
            load.file(format!("dir{dir}/file-{file}").as_bytes(), look, size + file);
        }
    }
    let host = stage.plant("host", &load.ops);
    drop(stage.ok(&format!("put -r {}/. tank:/", host.display())));
    (stage, host)
}

/// Seen red: through the rescue door, and beside another process, a pool in use was judged, and called lost.
#[test]
fn a_pool_that_is_in_use_is_not_judged() {
    let stage = Stage::new(1, 96 << 20);
    drop(stage.ok("zpool create -f tank $D/d00"));
    let server = Server::start(&stage.aside("pools"));
    for words in ["verify tank", "verify -T 99999 tank"] {
        drop(stage.refused(words, 3, "cannot verify 'tank': it is served"));
    }
    // No server is asked for this.
    drop(stage.refused("rescue verify tank", 3, "cannot verify 'tank': another process"));
    // Another server's.
    let mut command = stage.command("verify -d $D tank");
    let elsewhere = Ran::of(command.env("THUMPER_STATE", stage.aside("others")));
    assert!(elsewhere.status == 3 && elsewhere.err.contains("another process"), "{elsewhere}");
    drop(server.stop());
    drop(stage.ok("verify tank"));
    let writer = device::WriteFile::open(stage.images.disk(0)).unwrap();
    for words in ["verify tank", "verify -T 99999 tank", "rescue verify tank"] {
        drop(stage.refused(words, 3, "cannot verify 'tank': another process is writing it"));
    }
    drop(writer);
    drop(stage.ok("verify tank"));
    drop(stage.ok("zfs create tank/more"));
}

#[test]
fn a_pool_is_read_as_it_was_at_an_older_txg() {
    let stage = Stage::new(1, 96 << 20);
    drop(stage.ok("zpool create -f tank $D/d00"));
    let note = stage.aside("note");
    let mut seen = Vec::new();
    for words in ["first", "second"] {
        std::fs::write(&note, words).unwrap();
        drop(stage.ok(&format!("put {} tank:/note", note.display())));
        let left = stage.ok("rescue scan $D");
        let line = left.out.lines().find(|line| line.ends_with("  opens")).unwrap().trim();
        seen.push((line.split("  ").next().unwrap().to_string(), words));
    }
    for (txg, words) in &seen {
        assert_eq!(stage.ok(&format!("cat -T {txg} tank:/note")).out, *words, "txg {txg}");
        assert_eq!(stage.ok(&format!("rescue -T {txg} cat tank:/note")).out, *words, "txg {txg}");
        let judged = stage.ok(&format!("verify -T {txg} tank"));
        assert!(judged.out.contains(&format!("at txg {txg}: clean")), "{judged}");
    }
    let too_old = stage.run("cat -T 1 tank:/note");
    assert!(
        too_old.status == 1 && too_old.err.contains("the first txg that is left is"),
        "{too_old}"
    );
    // Whatever writes is not let through.
    drop(stage.refused("put -T 5 $A/note tank:/other", 1, "cannot open"));
    drop(stage.refused("rescue rm tank:/note", 2, "'rm tank:/note' is no command that only reads"));
    assert_eq!(stage.ok("cat tank:/note").out, "second");
}

#[test]
fn what_is_at_risk_is_what_is_lost() {
    let (stage, host) = stage();
    let disks = stage.images.disks();
    let name = |at: usize| disks[at].file_name().unwrap().to_str().unwrap().to_string();
    let (one, two) = (name(1), name(3));
    let risk = stage.run(&format!("verify -q --at-risk {one} tank"));
    assert_eq!(risk.status, 1, "{risk}");
    let risk = stage.run(&format!("verify -q --at-risk {one},{two} tank"));
    assert_eq!(risk.status, 2, "{risk}");
    let foretold: Vec<&str> =
        risk.out.lines().filter_map(|line| line.strip_prefix("lost: ")).collect();
    assert!(!foretold.is_empty(), "{risk}");
    drop(stage.refused("verify --at-risk nobody tank", 3, "no such device in pool: nobody"));

    drop(stage.ok("zpool export tank"));
    for disk in [1, 3] {
        std::fs::rename(&disks[disk], stage.aside(&format!("away{disk}"))).unwrap();
    }
    assert!(stage.run("ls -d $D tank:/").status != 0, "it opens without the rescue door");
    let to = stage.aside("out");
    std::fs::create_dir(&to).unwrap();
    let ran = stage.run(&format!("rescue -d $D get -rj --salvage tank:/ {}", to.display()));
    let saved = compare(&ran, &host, &to, "tank");
    assert!(saved.whole > 0 && saved.in_part > 0, "{saved:?}");
    let lost = told(&ran);
    let named =
        |place: &String| foretold.iter().any(|line| line.ends_with(&format!(" of {place}")));
    assert!(lost.keys().all(named), "{lost:?} but {foretold:?}");
    assert_eq!(lost.len() + saved.gone, foretold.len(), "{saved:?} {foretold:?}");
}

/// What can be read of a volume is copied, too; and neither of it nor of a file do holes cost anything: these have 8 TiB.
#[test]
fn a_volume_is_salvaged_and_holes_are_passed_over() {
    const BLOCK: usize = 16 << 10;
    let (stage, size) = (Stage::new(1, 96 << 20), 8u64 << 40);
    drop(stage.ok("zpool create -f -o ashift=12 -O recordsize=16K tank $D/d00"));
    drop(stage.ok("zfs create -s -b 16K -V 8T tank/volume"));
    let mut bytes = vec![0; 64 * BLOCK];
    Rng::new(5).fill(&mut bytes);
    let (dense, sparse) = (stage.aside("dense"), stage.aside("sparse"));
    std::fs::write(&dense, &bytes).unwrap();
    let file = std::fs::File::create(&sparse).unwrap();
    file.set_len(size).unwrap();
    let far = 5 << 40;
    file.write_all_at(&bytes, far).unwrap();
    drop(stage.ok("put $A/dense tank/volume:"));
    drop(stage.ok("put $A/sparse tank:/sparse"));
    drop(stage.ok("zpool export tank"));
    // Both hold the same blocks, and lose the same.
    let disk = stage.images.disks().remove(0);
    let stored = std::fs::read(&disk).unwrap();
    let image = std::fs::File::options().write(true).open(&disk).unwrap();
    for block in [0, 20, 21, 63] {
        let sought = &bytes[block * BLOCK..][..BLOCK];
        let places: Vec<_> = (0..stored.len() / 4096)
            .map(|sector| sector * 4096)
            .filter(|at| stored.get(*at..at + BLOCK) == Some(sought))
            .collect();
        assert_eq!(places.len(), 2, "block {block}");
        places.iter().for_each(|at| image.write_all_at(&[1; BLOCK], *at as u64).unwrap());
        bytes[block * BLOCK..][..BLOCK].fill(0);
    }
    for (place, start) in [("tank/volume:", 0), ("tank:/sparse", far)] {
        let ran = stage.run(&format!("rescue -d $D get -j --salvage {place} $A/out"));
        let lost: Vec<_> = told(&ran).into_values().collect();
        let due = [(0, 1), (20, 2), (63, 1)]
            .map(|(at, len)| (start + at * BLOCK as u64, len * BLOCK as u64));
        assert_eq!(lost, [due], "{ran}");
        let out = std::fs::File::open(stage.aside("out")).unwrap();
        assert_eq!(out.metadata().unwrap().len(), size, "{place}");
        let mut got = vec![1; bytes.len()];
        out.read_exact_at(&mut got, start).unwrap();
        assert!(got == bytes, "{place}");
    }
}

/// Noise anywhere but in the first label: more comes back than the judge finds whole, and nothing is made up.
#[test]
fn of_pools_full_of_noise_nothing_is_made_up() {
    let (stage, host) = stage();
    drop(stage.ok("zpool export tank"));
    let sound: Vec<Vec<u8>> =
        stage.images.disks().iter().map(|disk| std::fs::read(disk).unwrap()).collect();
    let mut sums = Vec::new();
    for seed in 0..testkit::rounds(6, 300) {
        let mut rng = Rng::new(seed);
        for (disk, bytes) in stage.images.disks().iter().zip(&sound) {
            std::fs::write(disk, bytes).unwrap();
            let file = std::fs::File::options().write(true).open(disk).unwrap();
            let stains = 1 << rng.below(9);
            for _ in 0..stains {
                let size = 512 << rng.below(6);
                let at = (256 << 10) + rng.below(24 << 20);
                let noise: Vec<u8> = (0..size).map(|_| rng.below(256) as u8).collect();
                file.write_all_at(&noise, at).unwrap();
            }
        }
        let to = stage.aside(&format!("out{seed}"));
        std::fs::create_dir(&to).unwrap();
        let ran = stage.run(&format!("rescue -d $D get -rj --salvage tank:/ {}", to.display()));
        let saved = compare(&ran, &host, &to, "tank");
        std::fs::remove_dir_all(&to).unwrap();
        sums.push((saved.whole, saved.in_part, saved.gone));
    }
    let all: usize = sums.iter().map(|(whole, ..)| whole).sum();
    assert!(all > 0 && sums.iter().any(|(_, part, gone)| part + gone > 0), "{sums:?}");
}

/// The beginnings of the labels of a device.
fn labels(disk: &Path) -> [u64; 4] {
    let size = std::fs::metadata(disk).unwrap().len();
    [0, 256 << 10, size - (512 << 10), size - (256 << 10)]
}

/// Takes all uberblocks from a device.
fn without_rings(disk: &Path) {
    let file = std::fs::File::options().write(true).open(disk).unwrap();
    labels(disk)
        .iter()
        .for_each(|at| file.write_all_at(&[0; 128 << 10], at + (128 << 10)).unwrap());
}

/// All rings of all labels are gone, and a disk with them: the roots are found among the blocks, and the newest is the
/// pool as it was, though the one that was on the disks before lived for longer.
#[test]
fn without_any_uberblock_the_blocks_lead_to_the_pool() {
    for (layout, ashift) in [("", 12), ("mirror", 9), ("raidz1", 9), ("raidz2", 12), ("raidz3", 9)]
    {
        let disks = if layout.is_empty() { 1 } else { 5 };
        let stage = Stage::new(disks, 64 << 20);
        let all = stage.images.disks();
        let names: Vec<String> = all.iter().map(|disk| disk.display().to_string()).collect();
        let create =
            format!("zpool create -f -o ashift={ashift} tank {layout} {}", names.join(" "));
        drop(stage.ok(&create));
        (0..6).for_each(|child| drop(stage.ok(&format!("zfs create tank/before{child}"))));
        drop(stage.ok("zpool destroy tank"));
        drop(stage.ok(&create));
        let mut load = Workload::new(7);
        for (file, look) in LOOKS.iter().enumerate() {
            load.file(format!("file-{file}").as_bytes(), *look, 3 << (2 * file));
        }
        let host = stage.plant("host", &load.ops);
        drop(stage.ok(&format!("put -r {}/. tank:/", host.display())));
        drop(stage.ok("zpool export tank"));
        all.iter().for_each(|disk| without_rings(disk));
        if disks > 1 {
            std::fs::rename(&all[1], stage.aside("away")).unwrap();
        }
        let none = stage.ok("rescue scan $D");
        assert!(none.out.contains("none: no label has a whole uberblock"), "{none}");
        let why = "cannot open 'tank': no label has a valid uberblock";
        drop(stage.refused("rescue -d $D ls tank:/", 2, why));

        let found = stage.ok("rescue scan --roots $A/roots $D");
        let opens: Vec<&str> = found.out.lines().filter(|line| line.ends_with("  opens")).collect();
        assert!(opens.len() > 1 && opens[0].contains("  found among the blocks  "), "{found}");
        let out = stage.aside("out");
        std::fs::create_dir(&out).unwrap();
        drop(stage.ok("rescue --roots $A/roots -d $D get -r tank:/ $A/out"));
        assert_eq!(files(&host), files(&out), "{layout}");
        let judged = stage.run("rescue --roots $A/roots -d $D verify -q tank");
        assert!(judged.status <= 1 && !judged.out.contains("lost:"), "{judged}");
        // Before the files were put in it was empty.
        let first = opens.last().unwrap().trim().split("  ").next().unwrap();
        let ls = format!("rescue --roots $A/roots -d $D ls -T {first} tank:/");
        assert_eq!(stage.ok(&ls).out, "", "{layout}");
    }
}

/// Roots of another pool are on the disks, too: they are named, and not taken for this one's.
#[test]
fn roots_of_another_pool_are_not_taken() {
    let (old, new) = (Stage::new(1, 64 << 20), Stage::new(1, 64 << 20));
    for stage in [&old, &new] {
        drop(stage.ok("zpool create -f tank $D/d00"));
        drop(stage.ok("zpool export tank"));
    }
    let (from, disk) = (&old.images.disks()[0], &new.images.disks()[0]);
    // The label of one, the blocks of the other.
    let file = std::fs::File::options().write(true).open(disk).unwrap();
    let bytes = std::fs::read(from).unwrap();
    file.write_all_at(&bytes[4 << 20..60 << 20], 4 << 20).unwrap();
    without_rings(disk);
    let found = new.ok("rescue scan --roots $A/roots $D");
    assert!(found.out.contains("it is that of another pool, "), "{found}");
    assert!(!found.out.contains("  opens"), "{found}");
    let none = "cannot open 'tank': no label has a valid uberblock";
    drop(new.refused("rescue --roots $A/roots -d $D ls tank:/", 2, none));
    // What is there is not written over, and what is no root is told.
    let again = "cannot open '$A/roots': File exists";
    drop(new.refused("rescue scan --roots $A/roots $D", 1, again));
    std::fs::write(new.aside("roots"), "5 of them\n").unwrap();
    let no_root = "cannot open '$A/roots': line 1 is no root";
    drop(new.refused("rescue --roots $A/roots -d $D ls tank:/", 2, no_root));
}

/// Likewise what the kernel wrote: without rings the same files come back as with them.
#[test]
fn roots_that_the_kernel_wrote_are_found() {
    for (name, filled) in [("rz2", "/srv/"), ("mir", "/work")] {
        let stage = Stage::with(testkit::golden_copy(name));
        let get = |how: &str, to: &str| {
            std::fs::create_dir(stage.aside(to)).unwrap();
            // Nothing is told to be lost where nothing is.
            let list = stage.ok(&format!("rescue {how} -d $D zfs list -Ho name -t filesystem"));
            for (dataset, number) in
                list.out.lines().zip(0..).filter(|(name, _)| name.contains(filled))
            {
                drop(stage.ok(&format!("rescue {how} -d $D get -r {dataset}:/ $A/{to}/{number}")));
            }
            files(&stage.aside(to))
        };
        let sound = get("-T 999999", "sound");
        stage.images.disks().iter().for_each(|disk| without_rings(disk));
        drop(stage.ok("rescue scan --roots $A/roots $D"));
        let rescued = get("--roots $A/roots", "rescued");
        assert!(!sound.is_empty() && sound == rescued, "{name}");
    }
}
