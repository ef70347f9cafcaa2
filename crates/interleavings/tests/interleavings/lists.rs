//! Permissions and the access control list of one file, changed by two at once: both changes count, one after the other.
//!
//! Seen red: a list that is read before its file is locked, to be changed.

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, NewObject, Setattr, Who, acl, mode};
use rt::sync::Arc;
use rt::thread::spawn;
use testkit::rounds;

use crate::create;

/// Times that each is changed.
const TIMES: u32 = 8;

/// A list that names one user, with these permissions.
fn naming(permissions: u32) -> Vec<u8> {
    let entries = [
        (0x01, 7, u32::MAX),
        (0x02, permissions, 1000),
        (0x04, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag, 0, permissions as u8, 0]);
        list.extend(u32::to_le_bytes(id));
    }
    list
}

/// The permissions of an entry of such a list.
fn entry(list: &[u8], index: usize) -> u32 {
    list[4 + 8 * index + 2].into()
}

fn story() {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let file = fs.create(fs.root(), b"file", &new).unwrap();
    for time in 0..TIMES {
        // Now and then it goes.
        let wanted = (time % 3 != 2).then_some(time % 8);
        let theirs = fs.clone();
        let other = spawn("list", move || {
            let list = wanted.map(naming);
            theirs.set_acl(file, acl::ACCESS, list.as_deref(), (0, 0)).unwrap();
        });
        let set = Setattr { mode: Some(0o600 + time % 8), ..Setattr::default() };
        fs.setattr(file, &set).unwrap();
        other.join();
        let list = fs.xattr(file, acl::ACCESS).unwrap();
        assert_eq!(list.as_deref().map(|list| entry(list, 1)), wanted, "change {time}");
        let Some(list) = list else { continue };
        let means = entry(&list, 0) << 6 | entry(&list, 3) << 3 | entry(&list, 4);
        assert_eq!(fs.attrs(file).unwrap().permissions(), means, "change {time}");
    }
}

#[test]
fn lists_and_permissions_are_changed_one_after_the_other() {
    for seed in 0..rounds(40, 500) {
        #[cfg(feature = "sim")]
        rt::sim::run(seed, story);
        #[cfg(not(feature = "sim"))]
        {
            let _ = seed;
            story();
        }
    }
}
