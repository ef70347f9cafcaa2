//! What the program tells of the golden pools: `zfs list` line by line, volumes, partitions, and what
//! does not open.

use acceptance::thumper;
use sha2::{Digest, Sha256};
use testkit::{Ran, golden, temp_dir, truth};

/// Golden pools that open, with the truth about each.
const POOLS: [(&str, &str); 14] = [
    ("single", "single"),
    ("mir", "mir"),
    ("rz1", "rz1"),
    ("rz2", "rz2"),
    ("rz3", "rz3"),
    ("wide", "wide"),
    ("gpt", "gpt"),
    ("old", "old"),
    ("nofeat", "nofeat"),
    ("hurt", "hurt"),
    ("hurt2", "hurt2"),
    ("dirty", "dirty.ro"),
    ("resilvering", "resilvering"),
    ("features", "features"),
];

/// Runs `thumper -d IMAGES WORDS`.
fn run(images: &str, words: &str) -> Ran {
    let aside = temp_dir();
    let mut command = thumper(&aside.path().join("pools"));
    command.arg("-d").arg(golden(images)).args(words.split(' '));
    Ran::of(&mut command)
}

#[test]
fn data_sets_are_listed_as_the_kernel_lists_them() {
    for (images, truth) in POOLS.map(|(images, name)| (images, truth(name))) {
        let words = truth.command_name("zfs list");
        let ours = run(images, words).expect_ok();
        let theirs = truth.command(words);
        for (our, their) in ours.out.lines().zip(theirs.lines()) {
            assert_eq!(our, their, "{images}");
        }
        assert_eq!(ours.out.lines().count(), theirs.lines().count(), "{images}");
    }
}

#[test]
fn a_volume_is_a_file() {
    let truth = truth("rz2");
    let (aside, dir) = (temp_dir(), golden("rz2"));
    for (name, size, told) in truth.volumes() {
        let file = name.rsplit('/').next().unwrap();
        let mut command = thumper(&aside.path().join("pools"));
        command.arg("-d").arg(&dir).arg("get").arg(format!("{name}:")).arg(aside.path());
        drop(Ran::of(&mut command).expect_ok());
        let bytes = std::fs::read(aside.path().join(file)).unwrap();
        let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!((bytes.len() as u64, digest.as_str()), (size, told), "{name}");
        std::fs::remove_file(aside.path().join(file)).unwrap();
        let listed = run("rz2", &format!("ls -l {name}:")).expect_ok().out;
        let words: Vec<_> = listed.split_whitespace().collect();
        let is = [words[0], words[4], words[7]];
        assert_eq!(is, ["-rw-------", &size.to_string(), file], "{listed}");
    }
    let mut command = thumper(&aside.path().join("pools"));
    command.arg("-d").arg(&dir).args(["cat", "rz2/vol@v1:"]);
    let bytes = command.output().unwrap().stdout;
    let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    assert!(truth.volumes().contains(&("rz2/vol@v1", 8 << 20, &digest)));
    let below = run("rz2", "cat rz2/vol:x");
    assert_eq!((below.status, below.err.trim()), (1, "cannot access 'rz2/vol:x': Not a directory"));
}

#[test]
fn a_pool_in_partitions_is_shown_by_its_disks() {
    let status = |words: &str| {
        let out = run("gpt", words).expect_ok().out;
        out.replace(&format!("{}/", golden("gpt").display()), "")
    };
    let full = status("zpool status -P");
    assert!(
        ["d00-part1", "d01-part1", "d02-part1"].iter().all(|disk| full.contains(disk)),
        "{full}"
    );
    let short = status("zpool status");
    assert!(short.contains("d00 ") && !short.contains("-part1"), "{short}");
    assert!(status("zpool import").contains("d02 "));
}

#[test]
fn what_is_encrypted_is_named_so() {
    for (images, name) in [("rz2", "rz2/secret/child"), ("dirty", "dirty/secret@synced")] {
        let ran = run(images, &format!("ls {name}:"));
        let said = format!(
            "cannot open '{name}': it is encrypted, and its files cannot be decrypted here"
        );
        assert_eq!((ran.status, ran.err.trim()), (2, said.as_str()));
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    let ran = run("draid", "zfs list drd");
    assert!(ran.status == 1 && ran.err.contains("kind draid is not supported"), "{ran}");
}
