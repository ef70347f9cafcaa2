//! Configs of pools that name more than any pool has: each command ends soon, in little memory, and says what is wrong
//! (INV-8). Planted from inside, with all checksums right; labels know nothing of it.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use acceptance::{SHAPES, Session, Shape};
use dmu::SpaceMap;
use format::ObjectType;
use format::config::{Indirect, PoolConfig, TopConfig, VdevConfig, VdevKind};
use format::dtl::Dtl;
use pool::mos::key;
use testkit::{Images, Ran};

const SMALL: Shape = Shape { disk_bytes: 128 << 20, ..SHAPES[0] };
/// Memory and seconds that a command may take; far more than any of these pools is worth.
const KIB_MAX: u64 = 2 << 20;
const SECONDS_MAX: u64 = 240;

/// A pool with a config in its MOS that is not the one it is worked with.
fn planted(session: Session, images: Images, change: impl FnOnce(&mut PoolConfig)) -> Images {
    let mut config = session.pool().config();
    change(&mut config);
    let list = config.to_nvlist();
    session
        .pool()
        .task(move |cx| {
            let mos = cx.making.mos;
            mos.set_nvlist(cx.tx, mos.expect(key::CONFIG)?, &list)
        })
        .unwrap();
    drop(session);
    images
}

/// A top-level vdev of no device and no guid, so that all guids add up as before.
fn top(config: &PoolConfig, kind: VdevKind, top: TopConfig) -> VdevConfig {
    let id = config.vdev_tree.children.len() as u64;
    VdevConfig { top: Some(top), ..VdevConfig::new(kind, id, 0) }
}

/// Runs `thumper`, within bounds.
fn run(images: &Images, words: &[&str]) -> Ran {
    let state = testkit::temp_dir();
    let script = format!("ulimit -v {KIB_MAX}; exec timeout {SECONDS_MAX} \"$@\"");
    let program: &Path = &acceptance::program::thumper_path();
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(program).arg("-d").arg(images.path()).args(words);
    command.env("THUMPER_STATE", state.path().join("pools"));
    let ran = Ran::of(&mut command);
    assert!(![101, 124, 134, 137, 139].contains(&ran.status), "{ran}");
    ran
}

/// Is told by whoever opens the pool, or judges it, or shows it.
fn all(images: &Images) {
    for words in [
        &["zpool", "import", "-d", &images.path().display().to_string()][..],
        &["zpool", "list", "tank"],
        &["ls", "tank:/"],
        &["dump", "tank"],
        &["verify", "tank"],
    ] {
        drop(run(images, words));
    }
}

/// Seen red: `zpool list` took eight bytes for each metaslab of each hole, 100 GB in all.
#[test]
fn metaslabs_of_holes() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let images = planted(session, images, |config| {
        for _ in 0..12_000 {
            let has =
                TopConfig { asize: 1 << 40, metaslab_shift: 20, ashift: 12, ..Default::default() };
            let hole = top(config, VdevKind::Hole, has);
            config.vdev_tree.children.push(hole);
        }
    });
    all(&images);
}

/// Seen red: `zpool list` added them up, with a panic.
#[test]
fn sizes_that_add_up_to_more_than_a_number_holds() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let images = planted(session, images, |config| {
        for _ in 0..4 {
            let has =
                TopConfig { asize: 1 << 63, metaslab_shift: 50, ashift: 12, ..Default::default() };
            let away = top(config, VdevKind::Missing, has);
            config.vdev_tree.children.push(away);
        }
    });
    all(&images);
}

/// Seen red: `verify` went through each of them for hours.
#[test]
fn metaslabs_of_a_vdev_that_is_away() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let images = planted(session, images, |config| {
        let has =
            TopConfig { asize: 1 << 57, metaslab_shift: 40, ashift: 12, ..Default::default() };
        let away = top(config, VdevKind::File, has);
        config.vdev_tree.children.push(away);
    });
    all(&images);
}

/// A mapping that is one hole, of 64 vdevs. Seen red: `zpool import` took 100 MB for each.
#[test]
fn mappings_without_end() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let number = session
        .pool()
        .task(|cx| {
            let mos = &cx.making.mos.objset;
            let count = 4u64 << 20;
            let mut phys = [0; 32];
            phys[16..24].copy_from_slice(&count.to_le_bytes());
            let kind = ObjectType::SPACE_MAP;
            let object =
                mos.allocate(cx.tx, kind, 128 << 10, ObjectType::SPACE_MAP_HEADER, &phys, 1)?;
            object.write(cx.tx, count * 24 - 8, &[7; 8])?;
            Ok(object.number())
        })
        .unwrap();
    session.pool().sync().unwrap();
    let images = planted(session, images, |config| {
        for _ in 0..64 {
            let mut gone =
                top(config, VdevKind::Indirect, TopConfig { ashift: 12, ..Default::default() });
            gone.indirect = Some(Indirect { object: number, births: None, previous_vdev: None });
            config.vdev_tree.children.push(gone);
        }
    });
    all(&images);
}

/// One DTL of many txgs, of all of them. Seen red: `zpool import` took a megabyte for each.
#[test]
fn what_thousands_of_leaves_lack() {
    let (images, session) = Session::create(&SMALL, 128 << 10);
    let number = session
        .pool()
        .task(|cx| {
            let mut lacks = Dtl::default();
            (1..60_000).for_each(|txg| lacks.add(2 * txg, 2 * txg + 1));
            let map = SpaceMap::create_dtl(&cx.making.mos.objset, cx.tx, true)?;
            map.set_dtl(cx.tx, 1, true, &lacks)?;
            Ok(map.number())
        })
        .unwrap();
    let images = planted(session, images, |config| {
        for index in 0..3_000 {
            let has =
                TopConfig { asize: 1 << 30, metaslab_shift: 24, ashift: 12, ..Default::default() };
            let mut away = top(config, VdevKind::File, has);
            // Two and two are nothing.
            let guid = 1000 + index / 2;
            away.guid = if index % 2 == 0 { guid } else { u64::wrapping_neg(guid) };
            away.dtl = Some(number);
            config.vdev_tree.children.push(away);
        }
    });
    all(&images);
}
