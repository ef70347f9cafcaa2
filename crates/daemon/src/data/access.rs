//! Who may do what with a file, by its owner, group and permissions.

use fs::Znode;
use wire::Subject;

/// To read it, or list it.
pub(super) const READ: u32 = 4;
/// To write it, or change names in it.
pub(super) const WRITE: u32 = 2;
/// To go through it.
pub(super) const THROUGH: u32 = 1;

/// A program that acts as its group; a directory in which all that is made is of its group.
pub(super) const SET_GID: u32 = 0o2000;

/// A directory in which only owners remove names.
const STICKY: u32 = 0o1000;

fn is_in(who: &Subject, gid: u64) -> bool {
    u64::from(who.gid) == gid || who.groups.iter().any(|group| u64::from(*group) == gid)
}

/// Is the file his?
pub(super) fn owns(who: &Subject, znode: &Znode) -> bool {
    who.uid == 0 || u64::from(who.uid) == znode.uid
}

/// May he do all of `want` with it?
pub(super) fn may(who: &Subject, znode: &Znode, want: u32) -> bool {
    let permissions = znode.mode as u32;
    let class = match () {
        () if who.uid == 0 => return true,
        () if u64::from(who.uid) == znode.uid => permissions >> 6,
        () if is_in(who, znode.gid) => permissions >> 3,
        () => permissions,
    };
    class & want == want
}

/// The permissions that somebody gives a file of group `gid`: no program acts as a group that he is not in.
pub(super) fn given_by(who: &Subject, gid: u64, mode: u32) -> u32 {
    let may = who.uid == 0 || is_in(who, gid);
    if may { mode } else { mode & !SET_GID }
}

/// May he take the name of a file with `znode` out of a directory?
pub(super) fn may_remove(who: &Subject, dir: &Znode, znode: &Znode) -> bool {
    let sticky = dir.mode as u32 & STICKY != 0;
    may(who, dir, WRITE | THROUGH) && (!sticky || owns(who, dir) || owns(who, znode))
}

/// May who may write it give it attributes? Those of a directory in which names are their owners' are its owner's.
pub(super) fn may_give_attributes(who: &Subject, znode: &Znode) -> bool {
    !znode.is_dir() || znode.mode as u32 & STICKY == 0 || owns(who, znode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32, uid: u64, gid: u64) -> Znode {
        Znode { mode: mode.into(), uid, gid, ..Znode::default() }
    }

    fn who(uid: u32, gid: u32) -> Subject {
        Subject { uid, gid, groups: vec![30] }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let attrs = file(0o100_640, 10, 20);
        assert!(may(&who(10, 1), &attrs, READ | WRITE) && !may(&who(10, 1), &attrs, THROUGH));
        assert!(may(&who(11, 20), &attrs, READ) && !may(&who(11, 20), &attrs, WRITE));
        assert!(!may(&who(11, 21), &attrs, READ));
        assert!(may(&who(11, 21), &file(0o640, 10, 30), READ), "by another group");
        assert!(may(&who(0, 0), &file(0, 10, 20), READ | WRITE | THROUGH));
        assert!(!may(&who(10, 20), &file(0o077, 10, 20), READ), "the owner has less than others");
    }

    #[test]
    fn programs_act_as_nobody_who_did_not_want_it() {
        let given = |uid, gid| format!("{:o}", given_by(&who(uid, 20), gid, 0o2755));
        assert_eq!([given(10, 20), given(10, 30), given(10, 40)], ["2755", "2755", "755"]);
        assert_eq!(given(0, 40), "2755");
    }

    #[test]
    fn names_go_with_the_directory_and_in_sticky_ones_with_their_owner() {
        let (open, sticky) = (file(0o040_777, 1, 1), file(0o041_777, 1, 1));
        let theirs = file(0o100_600, 10, 20);
        assert!(may_remove(&who(11, 5), &open, &theirs));
        assert!(!may_remove(&who(11, 5), &sticky, &theirs));
        assert!(
            may_remove(&who(10, 5), &sticky, &theirs) && may_remove(&who(1, 5), &sticky, &theirs)
        );
        assert!(!may_remove(&who(11, 5), &file(0o040_755, 1, 1), &theirs));
    }
}
