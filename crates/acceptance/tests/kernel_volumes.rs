//! Volumes that the program makes, fills and resizes, beside those that the OpenZFS kernel makes in the same pool
//! by the same words: sizes, reservations and space are the same, and so are the bytes.

#![allow(clippy::unwrap_used)]

use acceptance::Stage;
use testkit::data::{Data, Look};
use testkit::workload::Op;
use testkit::{Ran, Vm, tool, vm};

/// Commands for both: `%` is the letter of who does it.
const MADE: &[&str] = &[
    "zfs create -V 100M tank/%1",
    "zfs create -s -V 10M -b 16K tank/%2",
    "zfs create -V 1M -b 512 tank/%3",
    "zfs create -V 12345678 -o compression=lz4 tank/%4",
    "zfs create -V 5M -o refreservation=1M tank/%5",
    "zfs create -V 40M -b 128K -o copies=2 -o checksum=sha256 tank/%6",
    "zfs create -p -V 3M -o copies=3 tank/%dir/%7",
    "zfs create -V 9M tank/%8",
    "zfs set volsize=20M tank/%2",
    "zfs set volsize=64M tank/%1",
    "zfs set volsize=7M refreservation=none tank/%8",
    "zfs set refreservation=auto tank/%5",
];

const ASKED: &str = "volsize,volblocksize,refreservation,reservation,used,usedbyrefreservation,\
                     usedbydataset,referenced,logicalused,logicalreferenced,written,copies,type";

/// The kernel makes its own beside ours, tells of both, and reads and writes ours.
const KERNEL: &str = r#"
set -euo pipefail
zpool import -d /d -o cachefile=none tank
bash -ex /d/commands 2> /d/warnings || { cat /d/warnings; exit 1; }; sed -i '/^+/d' /d/warnings
ask() { zfs get -Hp -o value "$ASKED" "$1"; }
for v in 1 2 3 4 5 6 dir/7 8; do
  ask tank/o${v/dir\//dir\/o} > /d/ours; ask tank/k${v/dir\//dir\/k} > /d/kernels
  diff /d/ours /d/kernels >&2 || { echo "tank/.$v differs"; exit 1; }
done
# They come by and by.
whole() { ls /dev/zd* | grep -v p; }
for i in $(seq 300); do test $(whole | wc -l) = $(zfs list -H -t volume | wc -l) && break; sleep .1; done
whole
for dev in $(whole); do sha256sum $dev; done > /d/sums
zfs list -Hp -o name,used,avail,refer -r tank > /d/list
zfs get -Hp -r all tank/o1 tank/o2 tank/o3 tank/o4 tank/o5 tank/o6 tank/odir tank/o8 > /d/all
zfs send tank/o1@first | zfs receive tank/back
zpool sync tank; zpool scrub -w tank; zpool status -v tank
zpool export tank
"#;

fn digest(bytes: &[u8]) -> String {
    testkit::truth::hex_digest(bytes)
}

fn volumes(joined: &str, disks: usize, options: &str) {
    let stage = Stage::new(disks, 640 << 20);
    let dir = stage.images.path();
    let leaves: Vec<String> = (0..disks).map(|i| format!("$D/d{i:02}")).collect();
    drop(stage.ok(&format!("zpool create {options} tank {joined} {}", leaves.join(" "))));
    for command in MADE {
        let ran: Ran = stage.run(&command.replace('%', "o")).expect_ok();
        let warned = command.contains("-b 512");
        assert_eq!(ran.err.contains("Warning: volblocksize (512) is less"), warned, "{ran}");
        assert_eq!(ran.err.is_empty(), !warned, "{ran}");
    }
    let data = |seed, size| Data { look: Look::Patches, seed, size }.bytes();
    let create = |path: &str| Op::Create { path: path.as_bytes().to_vec(), mode: 0o600 };
    let planted = stage.plant("files", &[create("empty")]);
    let mut first = data(1, 30 << 20);
    std::fs::write(planted.join("first"), &first).unwrap();
    let part = data(2, 1_234_567);
    std::fs::write(planted.join("part"), &part).unwrap();
    drop(stage.ok("put $A/files/first tank/o1:"));
    drop(stage.ok("zfs snapshot tank/o1@first"));
    drop(stage.ok("put $A/files/part tank/o1:"));
    drop(stage.ok("put $A/files/part tank/o4:"));
    first[..part.len()].copy_from_slice(&part);
    first.resize(64 << 20, 0);
    let too_long = stage.run("put $A/files/first tank/o5:");
    assert!(too_long.err.contains("do not fit"), "{too_long}");
    let fetched = |name: &str| {
        let ran = stage.command(&format!("cat tank/{name}:")).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        digest(&ran.stdout)
    };
    assert_eq!(fetched("o1"), digest(&first));
    // Cut below what is written, and grown again: what was cut is gone.
    drop(stage.ok("zfs set volsize=8M tank/o1"));
    drop(stage.ok("zfs set volsize=64M tank/o1"));
    first[8 << 20..].fill(0);
    assert_eq!(fetched("o1"), digest(&first));
    // As the kernel has its own: without data.
    drop(stage.ok("zfs create -V 16M tank/with-data"));
    drop(stage.ok("put $A/files/part tank/with-data:"));
    drop(stage.ok("zfs set volsize=4M tank/with-data"));
    drop(stage.ok("zpool export tank"));
    tool::zdb_content(dir, "tank");
    tool::zdb_objects(dir, "tank");
    drop(testkit::poolaudit(dir, "tank").expect_ok());
    acceptance::assert_verified(dir, "tank");

    // Of those with data the space is not that of the kernel's empty ones; and of those with copies the kernel
    // sets the property after it has written their first blocks.
    let commands: Vec<String> = MADE.iter().map(|c| c.replace('%', "k") + "\n").collect();
    std::fs::write(dir.join("commands"), commands.concat()).unwrap();
    let kernel = KERNEL.replace("$ASKED", ASKED).replace(
        "for v in 1 2 3 4 5 6 dir/7 8",
        "ask() { zfs get -Hp -o value \"volsize,volblocksize,refreservation,copies\" \"$1\"; }\n\
         for v in 1 4 6 dir/7; do\n\
           diff <(ask tank/o${v/dir\\//dir\\/o}) <(ask tank/k${v/dir\\//dir\\/k}) >&2\n\
         done\n\
         ask() { zfs get -Hp -o value \"ASKED\" \"$1\"; }\n\
         for v in 2 3 5 8",
    );
    let kernel = kernel.replace("\"ASKED\"", &format!("\"{ASKED}\""));
    let ran = Vm::new(dir).run(&kernel).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert!(
        text("sums").contains(&digest(&first)),
        "the kernel reads other bytes: {ran} {}",
        text("sums")
    );
    assert!(text("warnings").contains("volblocksize (512) is less"), "{}", text("warnings"));
    tool::zdb_content(dir, "tank");
    acceptance::assert_verified_kernels(dir, "tank");
    // The kernel's copy of the snapshot, and what it says of ours.
    let mut then = data(1, 30 << 20);
    then.resize(64 << 20, 0);
    let ran = stage.command("-d $D cat tank/back:").output().unwrap();
    assert_eq!(digest(&ran.stdout), digest(&then));
    let ours = stage.ok(
        "zfs -d $D get -Hp -r all tank/o1 tank/o2 tank/o3 tank/o4 tank/o5 tank/o6 tank/odir tank/o8",
    );
    // It was written in between, and nothing is mounted.
    let same = |line: &&str| !["available", "mounted"].contains(&line.split('\t').nth(1).unwrap());
    let (ours, all) = (ours.out, text("all"));
    let (ours, theirs): (Vec<_>, Vec<_>) =
        (ours.lines().filter(same).collect(), all.lines().filter(same).collect());
    assert_eq!(ours, theirs);
}

#[test]
fn volumes_are_what_the_kernel_makes() {
    if vm::wanted("that volumes made here are what the kernel makes") {
        volumes("raidz2", 5, "-o ashift=12 -O compression=lz4");
    }
}
