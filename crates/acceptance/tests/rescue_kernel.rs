//! Beside OpenZFS: of pools damaged at random, metadata first, as many files come back through the rescue door as a
//! read-only import by the kernel gives, and none of them wrong.

#![allow(clippy::unwrap_used)]

use acceptance::Stage;
use format::{BlkPtr, ObjectType};
use pool::{Devices, OpenOptions, Pool};

use rt::sync::Arc;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use testkit::data::LOOKS;
use testkit::random::Rng;
use testkit::workload::Workload;
use testkit::{Vm, rounds, vm};

/// Blocks of a pool on one disk, by what they are in: every copy, as (offset on the disk, size).
type Map = BTreeMap<&'static str, Vec<Vec<(u64, u64)>>>;

fn copies(bp: &BlkPtr) -> Vec<(u64, u64)> {
    bp.dvas().map(|dva| ((4 << 20) + dva.offset, bp.psize())).collect()
}

/// What can be damaged of the pool.
fn map(dir: &Path) -> Map {
    let scan = vdev::import::scan(&[dir.to_path_buf()]).unwrap();
    let found = scan.choose("tank").unwrap();
    let tree = Arc::new(found.open_tree().unwrap());
    let options = OpenOptions::default();
    let pool = Pool::open(Devices::ReadOnly(tree), &found.uberblocks, &options).unwrap();
    let mut map = Map::new();
    let add = |map: &mut Map, what, objset: &dmu::Objset, kinds: &[ObjectType]| {
        let mut from = 0;
        while let Some((number, dnode)) = objset.next_object(from).unwrap() {
            from = number + 1;
            if kinds.is_empty() || kinds.contains(&dnode.kind()) {
                let there = dnode.blkptrs().iter().filter(|bp| !bp.is_hole() && !bp.is_embedded());
                map.entry(what).or_default().extend(there.map(copies));
            }
        }
    };
    let mos = &pool.mos().objset;
    add(&mut map, "any object of the MOS", mos, &[]);
    add(&mut map, "space maps", mos, &[ObjectType::SPACE_MAP, ObjectType::OBJECT_ARRAY]);
    let head = pool.dataset("tank").unwrap();
    let objset = &head.objset;
    add(&mut map, "directories", objset, &[ObjectType::DIRECTORY_CONTENTS]);
    let own = [
        ObjectType::MASTER_NODE,
        ObjectType::SA_MASTER_NODE,
        ObjectType::SA_ATTR_REGISTRATION,
        ObjectType::SA_ATTR_LAYOUTS,
        ObjectType::UNLINKED_SET,
    ];
    add(&mut map, "the file system's own", objset, &own);
    add(&mut map, "files", objset, &[ObjectType::PLAIN_FILE_CONTENTS]);
    map
}

/// Damages the disk, in a way that the seed says; what was damaged.
fn damage(disk: &Path, map: &Map, seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let file = std::fs::File::options().write(true).open(disk).unwrap();
    let size = file.metadata().unwrap().len();
    let mut spoil = |at: u64, len: u64| {
        let noise: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        file.write_all_at(&noise, at).unwrap();
    };
    let labels = [0, 256 << 10, size - (512 << 10), size - (256 << 10)];
    let mut told = Vec::new();
    if seed.is_multiple_of(3) {
        // Three labels of four, wholly.
        let kept = (seed / 3 % 4) as usize;
        let lost = labels.iter().enumerate().filter(|(at, _)| *at != kept);
        lost.for_each(|(_, at)| spoil(*at, 256 << 10));
        told.push(format!("all labels but {kept}"));
    }
    let mut rng = Rng::of(seed, 1);
    let kinds: Vec<&&str> = map.keys().collect();
    for _ in 0..=seed % 3 {
        let kind = kinds[rng.index(kinds.len())];
        let blocks = &map[*kind];
        for _ in 0..1 + rng.below(3) {
            let block = &blocks[rng.index(blocks.len())];
            block.iter().for_each(|(at, len)| spoil(*at, *len));
        }
        told.push((*kind).to_string());
    }
    told.join(", ")
}

/// Sums of the files below a directory, by their paths.
fn sums(dir: &Path) -> BTreeMap<String, String> {
    let script = "find . -type f -print0 | sort -z | xargs -0 -r sha256sum 2>/dev/null; true";
    let ran = Command::new("bash").args(["-c", script]).current_dir(dir).output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(s, n)| (n.into(), s.into()))
        .collect()
}

/// What was put in, and how it lies on the disk.
struct Truth {
    files: BTreeMap<String, String>,
    map: Map,
    disk: Vec<u8>,
}

/// Salvages the pool in `dir`: how many files are whole. What is neither whole nor told to be lost fails.
fn salvaged(stage: &Stage, dir: &Path, truth: &Truth) -> u64 {
    let to = stage.aside("out");
    std::fs::create_dir(&to).unwrap();
    let words = format!("rescue -d {} get -rj --salvage tank:/ {}", dir.display(), to.display());
    let ran = stage.run(&words);
    let place = |line: &str| -> String {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["file"].as_str().unwrap().into()
    };
    let lost: BTreeSet<String> = ran.out.lines().map(place).collect();
    let good: BTreeSet<&String> = truth.files.values().collect();
    let mut whole = 0;
    for (name, sum) in sums(&to) {
        // What no directory leads to any more is told by its number.
        let name = name.strip_prefix("./").unwrap();
        let (place, known) = match name.strip_prefix("lost+found/") {
            None => (format!("tank:/{name}"), truth.files.get(&format!("./{name}")) == Some(&sum)),
            Some(below) => {
                let (object, rest) = below.split_at(below.find('/').unwrap_or(below.len()));
                (format!("tank:/<object {object}>{rest}"), good.contains(&sum))
            }
        };
        assert!(known || lost.contains(&place), "{place} is wrong, and nobody says so: {ran}");
        whole += u64::from(known);
    }
    std::fs::remove_dir_all(&to).unwrap();
    whole
}

/// What the kernel gives of the pools in `s0`, `s1` .. of the disks' directory: so many files are right in each. Of the
/// one that it does not survive it gives none; the others after that have another kernel.
fn imported(stage: &Stage, seeds: &[u64], truth: &Truth) -> Vec<u64> {
    let mut counts = Vec::new();
    while let Some(rest) = seeds.get(counts.len()..).filter(|rest| !rest.is_empty()) {
        let ran = Vm::new(stage.images.path()).options(["-t", "300"]).run(&look_at(rest));
        let told = rest.iter().map_while(|seed| {
            let start = format!("s{seed} ");
            let files = ran.out.lines().find_map(|line| line.strip_prefix(&start))?;
            let files = files.split(';').filter_map(|file| file.split_once("  "));
            let right =
                |(sum, name): &(&str, &str)| truth.files.get(*name).is_some_and(|was| was == sum);
            Some(files.filter(right).count() as u64)
        });
        counts.extend(told);
        if counts.len() < seeds.len() {
            counts.push(0);
        }
    }
    counts
}

/// Imports these pools one after the other, and tells the sums of their files, a line for each pool. A kernel that
/// refuses is asked not to look at what it does not need, and then to go back a few txgs.
fn look_at(seeds: &[u64]) -> String {
    let mut script = String::from(
        "mkdir -p /m\n\
         verify() { echo $1 >/sys/module/zfs/parameters/spa_load_verify_metadata; }\n\
         import() { timeout 60 zpool import -o cachefile=none -o readonly=on -f -R /m \"$@\" tank 2>/dev/null; }\n",
    );
    for seed in seeds {
        script += &format!(
            "import -d /d/s{seed} || {{ verify 0; import -d /d/s{seed} || import -d /d/s{seed} -F; verify 1; }}\n\
             echo \"s{seed} $(cd /m/tank 2>/dev/null && timeout 60 find . -type f -print0 | xargs -0 -r sha256sum \
             2>/dev/null | tr '\\n' ';')\"\ntimeout 60 zpool export tank >/dev/null 2>&1\n"
        );
    }
    script
}

#[test]
fn more_comes_back_than_the_kernel_gives() {
    if !vm::wanted("that more comes back of damaged pools than from the OpenZFS kernel") {
        return;
    }
    let stage = Stage::new(1, 64 << 20);
    drop(stage.ok("zpool create -f -o ashift=12 -O recordsize=32K tank $D/d00"));
    let mut load = Workload::new(5);
    for dir in 0..8 {
        load.mkdir(format!("dir{dir}").as_bytes());
        for file in 0..40u64 {
            let (size, look) = (1 << (file % 17), LOOKS[file as usize % LOOKS.len()]);
            load.file(format!("dir{dir}/file-{file}").as_bytes(), look, size + file);
        }
    }
    let host = stage.plant("host", &load.ops);
    drop(stage.ok(&format!("put -r {}/. tank:/", host.display())));
    drop(stage.ok("zpool export tank"));
    let disk = stage.images.disks()[0].clone();
    let truth = Truth {
        files: sums(&host),
        map: map(stage.images.path()),
        disk: std::fs::read(&disk).unwrap(),
    };
    std::fs::remove_file(&disk).unwrap();

    let (mut ours, mut theirs, mut more, mut fewer) = (0, 0, 0, Vec::new());
    let seeds: Vec<u64> = (0..rounds(12, 300)).collect();
    for some in seeds.chunks(12) {
        let mut saved = Vec::new();
        for seed in some {
            let dir = stage.images.path().join(format!("s{seed}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("d00"), &truth.disk).unwrap();
            let told = damage(&dir.join("d00"), &truth.map, *seed);
            saved.push((salvaged(&stage, &dir, &truth), told));
        }
        for ((kernel, (saved, told)), seed) in
            imported(&stage, some, &truth).into_iter().zip(saved).zip(some)
        {
            (ours, theirs) = (ours + saved, theirs + kernel);
            more += u64::from(saved > kernel);
            if saved < kernel {
                fewer.push(format!("{seed}: {saved}, the kernel {kernel}: {told}"));
            }
            std::fs::remove_dir_all(stage.images.path().join(format!("s{seed}"))).unwrap();
        }
    }
    let (files, count) = (truth.files.len() * seeds.len(), seeds.len());
    drop(writeln!(
        std::io::stderr(),
        "rescue: {ours} of {files} files, the kernel {theirs}; more in {more} of {count} pools"
    ));
    assert!(theirs > 0 && ours > theirs, "{ours} of {files} files, the kernel {theirs}");
    assert!(fewer.is_empty(), "{fewer:#?}");
    assert!(ours * 100 > files as u64 * 98, "{ours} of {files} files");
}
