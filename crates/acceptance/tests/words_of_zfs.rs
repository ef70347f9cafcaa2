//! Commands of `zfs` as they are typed: what is refused, in OpenZFS's words, leaves nothing behind, and what OpenZFS
//! does is done. All answers were recorded from OpenZFS 2.1.11.
//!
//! Seen red: clones whose properties nobody checked (`refreservation=auto` suspended the pool), a rollback that
//! stopped half-way at a snapshot that had gone by itself, holds that one wrong name kept from all others, and a
//! volume that kept a size for which there was no room.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use acceptance::{Session, Shape, Stage, engine::POOL};
use format::dsl_dataset::DslDatasetFlags;
use pool::Stored;
use pool::dsl::lookup;

/// A pool `p` on one disk, with what these commands make.
fn stage(megabytes: u64, made: &[&str]) -> Stage {
    let stage = Stage::new(1, megabytes << 20);
    drop(stage.ok("zpool create p $D/d00"));
    made.iter().for_each(|words| drop(stage.ok(words)));
    stage
}

/// The values of properties, exactly.
fn values(stage: &Stage, properties: &str, name: &str) -> String {
    let ran = stage.ok(&format!("zfs get -Hp -o value {properties} {name}"));
    ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What there is below a data set, snapshots too.
fn listed(stage: &Stage, name: &str) -> String {
    let ran = stage.ok(&format!("zfs list -H -r -t all -o name {name}"));
    ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each of these commands is refused with a message.
#[track_caller]
fn refused(stage: &Stage, all: &[(&str, &str)]) {
    for (words, message) in all {
        let ran = stage.refused(words, 1, message);
        assert_eq!(ran.err, format!("{message}\n"), "{words}");
    }
}

#[test]
fn a_clone_keeps_what_its_properties_promise() {
    let made = ["zfs create p/f", "zfs create -V 16M p/v", "zfs snapshot p/f@s p/v@s"];
    let stage = stage(200, &made);
    for words in [
        "-o refreservation=auto p/v@s p/auto",
        "-o volsize=8M p/v@s p/sized",
        "-o volsize=8M -o refreservation=auto p/v@s p/both",
        "-o userquota@0=1M p/f@s p/user",
        "-o version=5 p/f@s p/version",
        "-o reservation=8M -o refreservation=8M -o refquota=20M -o quota=30M p/f@s p/limits",
        "-o filesystem_limit=5 p/f@s p/count",
    ] {
        drop(stage.ok(&format!("zfs clone {words}")));
    }
    assert_eq!(values(&stage, "refreservation,volsize", "p/auto"), "19398656 16777216");
    assert_eq!(values(&stage, "refreservation,volsize", "p/sized"), "0 8388608");
    assert_eq!(values(&stage, "refreservation,volsize", "p/both"), "10485760 8388608");
    assert_eq!(values(&stage, "userquota@0", "p/user"), "1048576");
    assert_eq!(values(&stage, "version", "p/version"), "5");
    let limits = "quota,refquota,reservation,refreservation";
    assert_eq!(values(&stage, limits, "p/limits"), "31457280 20971520 8388608 8388608");
    drop(stage.ok("zfs destroy p/user"));
    assert!(stage.ok("verify p").out.contains("clean"));
}

#[test]
fn a_clone_that_cannot_be_so_is_not_there() {
    let made = ["zfs create p/f", "zfs create -V 16M p/v", "zfs snapshot p/f@s p/v@s"];
    let stage = stage(200, &made);
    let before = listed(&stage, "p");
    let to_file_system = [
        ("reservation=10G", "out of space"),
        ("refreservation=10G", "out of space"),
        ("reservation=20M -o quota=10M", "out of space"),
        ("quota=10M -o refquota=5M -o refreservation=7M", "out of space"),
        ("casesensitivity=insensitive", "'casesensitivity' is readonly"),
        ("normalization=formC", "'normalization' is readonly"),
        ("utf8only=on", "'utf8only' is readonly"),
        ("encryption=on", "'encryption' is readonly"),
        ("version=4", "Can not downgrade; already at version 5"),
        ("keylocation=prompt", "keylocation must be 'none' for unencrypted datasets"),
        ("refreservation=auto", "'refreservation=auto' only allowed on volumes"),
    ];
    for (property, why) in to_file_system {
        let words = format!("zfs clone -o {property} p/f@s p/x");
        refused(&stage, &[(&words, &format!("cannot create 'p/x': {why}"))]);
    }
    let to_volume = [
        ("volblocksize=8K", "'volblocksize' is readonly"),
        ("volsize=5000", "'volsize' must be a multiple of volume block size (8K)"),
    ];
    for (property, why) in to_volume {
        let words = format!("zfs clone -o {property} p/v@s p/x");
        refused(&stage, &[(&words, &format!("cannot create 'p/x': {why}"))]);
    }
    let below = "cannot create 'p/v/x': parent is not a filesystem";
    refused(&stage, &[("zfs clone p/f@s p/v/x", below), ("zfs rename p/f p/v/x", below)]);
    assert_eq!(listed(&stage, "p"), before);
}

#[test]
fn what_waits_for_its_last_clone_is_in_nobodys_way() {
    let made = [
        "zfs create p/g",
        "zfs snapshot p/g@a",
        "zfs snapshot p/g@b",
        "zfs snapshot p/g@c",
        "zfs clone p/g@b p/gc",
        "zfs destroy -d p/g@b",
    ];
    let stage = stage(128, &made);
    drop(stage.ok("zfs rollback -R p/g@a"));
    assert_eq!(listed(&stage, "p"), "p p/g p/g@a");
    made[2..].iter().for_each(|words| drop(stage.ok(words)));
    drop(stage.ok("zfs destroy -R p/g"));
    assert_eq!(listed(&stage, "p"), "p");
}

#[test]
fn holds_count_for_each_name() {
    let made = [
        "zfs create p/h",
        "zfs create -p p/t/u",
        "zfs snapshot p/h@a p/t@x p/t/u@x",
        "zfs snapshot p/h@b",
        "zfs hold k p/t/u@x",
    ];
    let stage = stage(128, &made);
    let none = "dataset does not exist";
    let wrong = format!(
        "cannot hold snapshot 'p/h@zzz': {none}\n'p/h' is not a snapshot\ncannot open 'p/nosuch': {none}\n\
         cannot open 'nopool': {none}\ncannot open 'p/': trailing slash in name"
    );
    refused(&stage, &[("zfs hold t p/h@a p/h@zzz p/h@b p/h p/nosuch@a nopool@a p/@x", &wrong)]);
    assert_eq!(values(&stage, "userrefs", "p/h@a p/h@b"), "1 1");
    let wrong = format!(
        "cannot release hold from snapshot 'p/h@zzz': {none}\n'p/h' is not a snapshot\n\
         cannot release hold from snapshot 'p/h@a': no such tag on this dataset"
    );
    refused(&stage, &[("zfs release t p/h@a p/h@zzz p/h@b p/h p/h@a", &wrong)]);
    assert_eq!(values(&stage, "userrefs", "p/h@a p/h@b"), "0 0");
    // Those that have the tag, and only if none has it a complaint.
    drop(stage.ok("zfs release -r k p/t@x"));
    assert_eq!(values(&stage, "userrefs", "p/t/u@x"), "0");
    let release = "cannot release hold from snapshot";
    refused(
        &stage,
        &[
            ("zfs release -r k p/t@x", &format!("{release} 'p/t@x': no such tag on this dataset")),
            ("zfs release -r k p/t@no", &format!("{release} 'p/t@no': {none}")),
            ("zfs release .x p/h@a", &format!("{release} 'p/h@a': no such tag on this dataset")),
        ],
    );
    let long = format!("zfs hold {} p/h@a", "x".repeat(257));
    refused(&stage, &[(&long, "cannot hold snapshot 'p/h@a': tag too long")]);
    drop(stage.refused("zfs hold .x p/h@a", 2, "tag may not start with '.'\nusage:\n"));
    // What went wrong in part is not noted as done.
    let history = stage.ok("zpool history p").out;
    assert!(history.contains("release -r k p/t@x\n") && !history.contains("zzz"), "{history}");
}

#[test]
fn what_is_set_together_fits_together() {
    let made = [
        "zfs create -V 16M p/v",
        "zfs create -o quota=10M p/q",
        "zfs create -o refquota=5M p/r",
        "zfs set reservation=20M quota=50M p/q",
        "zfs set refreservation=8M refquota=20M p/r",
    ];
    let stage = stage(256, &made);
    assert_eq!(values(&stage, "reservation,quota", "p/q"), "20971520 52428800");
    assert_eq!(values(&stage, "refreservation,refquota", "p/r"), "8388608 20971520");
    // What does not is told once, and keeps nothing else back.
    let above = |name: &str| {
        format!("cannot set property for '{name}': size is greater than available space")
    };
    refused(&stage, &[("zfs set reservation=900M quota=40M p/q", &above("p/q"))]);
    assert_eq!(values(&stage, "reservation,quota", "p/q"), "20971520 41943040");
    // A volume is as large as what is reserved for it.
    refused(&stage, &[("zfs set volsize=1G p/v", &above("p/v"))]);
    assert_eq!(values(&stage, "volsize,refreservation", "p/v"), "16777216 19398656");
    drop(stage.ok("zfs set volsize=1G refreservation=none p/v"));
    assert_eq!(values(&stage, "volsize,refreservation", "p/v"), "1073741824 0");
    // A reservation moves with its data set.
    drop(stage.ok("zfs create -o reservation=50M p/a"));
    refused(&stage, &[("zfs rename p/a p/q/a", "cannot rename 'p/a': out of space")]);
    assert_eq!(listed(&stage, "p/q"), "p/q");
}

#[test]
fn names_stay_within_bounds() {
    let stage = stage(200, &["zfs create p/h", "zfs snapshot p/h@a"]);
    let percent = "invalid character % in name";
    refused(
        &stage,
        &[
            ("zfs snapshot p/h@a%b", &format!("cannot create snapshot 'p/h@a%b': {percent}")),
            ("zfs rename p/h@a p/h@q%r", &format!("cannot rename to 'p/h@q%r': {percent}")),
            ("zfs rename p/h@a q%r", &format!("cannot rename to 'q%r': {percent}")),
            ("zfs bookmark p/h@a p/h#x%y", "cannot create bookmark 'p/h#x%y': invalid argument"),
        ],
    );
    let deep = format!("p{}", "/a".repeat(46));
    drop(stage.ok(&format!("zfs create -p {deep}")));
    drop(stage.ok(&format!("zfs create -p p/b{}", "/b".repeat(20))));
    let words = format!("zfs rename p/b {deep}/c");
    refused(&stage, &[(&words, "cannot rename 'p/b': dataset name is too long")]);
    drop(stage.ok(&format!("zfs rename p/h {deep}/c")));
}

#[test]
fn a_quota_that_is_refused_leaves_nothing_behind() {
    let stage = Stage::new(1, 128 << 20);
    drop(stage.ok("zpool create -d q $D/d00"));
    let create = "cannot create 'q/pq': pool must be upgraded to set this property or value";
    let set = "cannot set property for 'q': pool and or dataset must be upgraded to set this property or value";
    refused(
        &stage,
        &[("zfs create -o projectquota@5=1G q/pq", create), ("zfs set projectquota@5=1G q", set)],
    );
    assert_eq!(listed(&stage, "q"), "q");
}

#[test]
fn properties_are_taken_as_openzfs_takes_them() {
    let made = [
        "zfs create -o compress=lz4 p/f",
        "zfs set reserv=1M p/f",
        "zfs set sharenfs= p/f",
        "zfs set sharenfs=rw=@10.0.0.0/8:[fe80::]/64,,no_root_squash,fsid=5 p/f",
        "zfs snapshot p/f@1",
        "zfs bookmark p/f@1 p/f#z",
        "zfs snapshot p/f@2",
        "zfs bookmark p/f@2 p/f#a",
        "zfs create -V 8M p/v",
    ];
    let stage = stage(200, &made);
    assert_eq!(values(&stage, "compression,reservation", "p/f"), "lz4 1048576");
    let set = "cannot set property for 'p/f':";
    let options = |name: &str| format!("{set} '{name}' cannot be set to invalid options");
    for options_of in ["foo", "rw,foo", "on,rw", "=5", "rw:ro"] {
        let words = format!("zfs set sharenfs={options_of} p/f");
        refused(&stage, &[(&words, &options("sharenfs"))]);
    }
    refused(&stage, &[("zfs set sharesmb=name=foo p/f", &options("sharesmb"))]);
    let component = format!("zfs set mountpoint=/{} p/f", "a".repeat(256));
    let long = format!("zfs set mountpoint={} p/f", "/aaaa".repeat(900));
    let key = format!("zfs set keylocation={} p/f", "k".repeat(4096));
    refused(
        &stage,
        &[
            (&component, &format!("{set} component of 'mountpoint' is too long")),
            (&long, &format!("{set} 'mountpoint' is too long")),
            (&key, &format!("{set} 'keylocation' is too long")),
            (
                "zfs inherit -S volsize p/v",
                "'volsize' property cannot be reverted to a received value",
            ),
            (
                "zfs inherit -S version p/f",
                "'version' property cannot be reverted to a received value",
            ),
        ],
    );
    drop(stage.ok(&format!("zfs set mountpoint=/{} p/f", "a".repeat(255))));
    assert_eq!(listed(&stage, "p/f"), "p/f p/f@1 p/f@2 p/f#a p/f#z");
    // A dry run writes nothing: a pool that is open for reading takes it.
    drop(stage.ok("zpool export p"));
    drop(stage.ok("zpool import -d $D -o readonly=on p"));
    let would = stage.ok("zfs destroy -nv p/f@2").out;
    assert!(would.starts_with("would destroy p/f@2\nwould reclaim "), "{would}");
    drop(stage.ok("zfs create -n p/new"));
    drop(stage.refused("zfs create p/new", 1, "cannot create 'p/new': pool is read-only"));
}

#[test]
fn what_was_received_is_told_beside_what_holds() {
    let (images, mut session) = Session::create_of(&Shape::SMALL, &[], true);
    let pool = session.pool().clone();
    let set = |name: &str, property: &str, value: Stored| {
        pool.set_property(name, property, Some(value)).unwrap();
    };
    // What a stream would have left: a number that is overridden since, a text that holds.
    set(POOL, "compression$recvd", Stored::Number(3));
    set(POOL, "compression", Stored::Number(2));
    set(POOL, "org:x$recvd", Stored::Text(b"theirs".to_vec()));
    drop(pool);
    session.close().unwrap();
    drop(session);
    let stage = Stage::with(images);
    let words = format!("zfs get -d $D -H -o value,received,source compression,org:x {POOL}");
    assert_eq!(stage.ok(&words).out, "off\tlzjb\tlocal\ntheirs\ttheirs\treceived\n");
}

/// Seen red: it was listed, and kept all from a snapshot that are above it.
#[test]
fn what_a_receive_is_not_done_with_is_in_nobodys_way() {
    let (images, mut session) = Session::create_of(&Shape::SMALL, &[], true);
    let pool = session.pool().clone();
    for name in ["tank/a", "tank/a/b", "tank/a/x"] {
        pool.create_filesystem(name, BTreeMap::new(), fs::make_filesystem).unwrap();
    }
    // As `zfs receive -s` leaves it, broken off.
    let left = |cx: &pool::TaskContext<'_>| {
        let mos = cx.making.mos;
        let mut found = lookup::find(mos, "tank/a/x")?;
        found.phys.flags.set(found.phys.flags.get() | DslDatasetFlags::INCONSISTENT);
        mos.set_dataset(cx.tx, found.object, &found.phys)?;
        let above = mos.dir(found.dir.parent_object.get())?;
        let names = mos.zap(above.child_dir_zap_object.get())?;
        names.remove(cx.tx, b"x")?;
        Ok(names.put_u64(cx.tx, b"%recv", found.dir_object)?)
    };
    pool.task(left).unwrap();
    drop(pool);
    session.close().unwrap();
    drop(session);
    let stage = Stage::with(images);
    drop(stage.ok(&format!("zpool import -f -d $D {POOL}")));
    drop(stage.ok("zfs snapshot -r tank@s"));
    drop(stage.ok("zfs hold -r t tank/a@s"));
    drop(stage.ok("zfs rename -r tank/a@s tank/a@t"));
    drop(stage.ok("zfs inherit -r org:x tank"));
    assert_eq!(listed(&stage, "tank"), "tank tank@s tank/a tank/a@t tank/a/b tank/a/b@t");
    // It goes with what is above it, or keeps that.
    let unfinished = "cannot destroy 'tank/a': ";
    drop(stage.ok("zfs release -r t tank/a@t"));
    drop(stage.refused("zfs destroy -r tank/a", 1, unfinished));
    drop(stage.ok("zfs rename tank/a tank/c"));
    assert!(stage.ok("verify tank").out.contains("clean"));
}

#[test]
fn a_volume_is_resized_before_it_can_only_be_read() {
    let stage = Stage::new(1, 128 << 20);
    drop(stage.ok("zpool create p $D/d00"));
    drop(stage.ok("zfs create -s -V 16M p/v"));
    drop(stage.ok("zfs snapshot p/v@s"));
    drop(stage.ok("zfs set readonly=on volsize=8M p/v"));
    drop(stage.ok("zfs clone -o readonly=on -o volsize=32M p/v@s p/c"));
    let said = stage.ok("zfs get -H -o name,value -p readonly,volsize p/v p/c").out;
    assert_eq!(said, "p/c\ton\np/c\t33554432\np/v\ton\np/v\t8388608\n");
    let said = "cannot set property for 'p/v': dataset is read-only: ";
    drop(stage.refused("zfs set volsize=16M p/v", 1, said));
}

/// Seen red: the pool kept the number of what had gone, which stood for nothing then and soon for something else, and no
/// `zpool list`, `zpool status` or `zpool get` told anything of the pool any more. One that was left so is told of, too.
#[test]
fn a_pool_boots_from_nothing_once_its_bootfs_is_destroyed() {
    let stage = stage(128, &["zfs create p/a", "zpool set bootfs=p/a p"]);
    let bootfs = || stage.ok("zpool get -H -o value,source bootfs p").out;
    assert_eq!(bootfs(), "p/a\tlocal\n");
    drop(stage.ok("zfs destroy p/a"));
    assert_eq!(bootfs(), "-\tdefault\n");
    let pool = acceptance::engine::open_for_writing(stage.images.path(), "p");
    assert_eq!(pool.pool_properties().unwrap(), []);
    pool.set_pool_property("bootfs", Some(Stored::Number(54321))).unwrap();
    pool.close().unwrap();
    drop(pool);
    drop(stage.ok("zpool import -f -d $D p"));
    assert_eq!(bootfs(), "-\tdefault\n");
    assert_eq!(stage.ok("zpool list -H -o name p").out, "p\n");
    assert!(stage.ok("zpool status p").out.contains("state: ONLINE"));
}
