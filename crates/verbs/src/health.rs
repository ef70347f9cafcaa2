//! How a tree of vdevs is: states from the leaves up, and what is most urgently wrong.
//!
//! A leaf is there, or it is missing, unreadable, or out of use; a mirror needs one child, RAID-Z
//! all but its parity, the pool every top-level vdev. FORMAT: sections 4 and 13.3.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use format::config::{VdevConfig, VdevKind as Kind};

use crate::layout::Class;
use crate::meters::{Meters, Slow};
use crate::pools::{Aux, Condition, State, Stats, Vdev, VdevKind};

/// What is known of a leaf or a top-level vdev besides its config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Where a leaf's device was found; `None`: nowhere.
    pub path: Option<PathBuf>,
    /// What a leaf that is not there looks like.
    pub absent: Option<Aux>,
    /// Counters and sizes.
    pub stats: Stats,
    /// What a leaf's device has done.
    pub meters: Meters,
    /// A leaf is slower than its siblings.
    pub slow: Option<Slow>,
    /// What whoever watches the leaf has made of it, if it is not fine.
    pub verdict: Option<(State, Aux)>,
    /// What a top-level vdev is for, if its config does not say.
    pub class: Option<Class>,
}

/// The tree as it is. `known` tells of each leaf and each top-level vdev. With `open`, a leaf that
/// is not there goes by its guid, as in a pool that is open.
pub fn tree(root: &VdevConfig, open: bool, known: &mut dyn FnMut(&VdevConfig) -> Known) -> Vdev {
    let mut tree = describe(root, Class::Normal, open, known);
    tree.kind = VdevKind::Root;
    for (id, top) in root.children.iter().enumerate() {
        let facts = known(top);
        let class = facts.class.unwrap_or_else(|| class_of(top));
        let mut child = describe(top, class, open, known);
        child.id = top.id.unwrap_or(id as u64);
        if !top.kind.is_leaf() {
            child.stats = facts.stats;
        }
        tree.children.push(child);
    }
    settle(&mut tree, root);
    add_up(&mut tree);
    tree
}

/// What a vdev has done is what those below it have.
fn add_up(vdev: &mut Vdev) {
    for child in &mut vdev.children {
        add_up(child);
        vdev.meters.add(&child.meters);
    }
}

/// Spares and cache devices as they are.
pub fn others(list: &[VdevConfig], known: &mut dyn FnMut(&VdevConfig) -> Known) -> Vec<Vdev> {
    list.iter().map(|config| describe(config, Class::Normal, false, known)).collect()
}

fn class_of(top: &VdevConfig) -> Class {
    if top.top.is_some_and(|top| top.is_log) { Class::Log } else { Class::Normal }
}

fn describe(
    config: &VdevConfig,
    class: Class,
    open: bool,
    known: &mut dyn FnMut(&VdevConfig) -> Known,
) -> Vdev {
    let parity = u8::try_from(config.nparity.unwrap_or(1)).unwrap_or(u8::MAX);
    let kind = match &config.kind {
        Kind::Root => VdevKind::Root,
        Kind::Mirror => VdevKind::Mirror,
        Kind::Replacing => VdevKind::Replacing,
        Kind::Spare => VdevKind::Spare,
        Kind::Raidz => VdevKind::Raidz(parity),
        Kind::Draid => VdevKind::Draid(parity),
        Kind::Disk => VdevKind::Disk,
        Kind::File | Kind::DraidSpare => VdevKind::File,
        Kind::Hole => VdevKind::Hole,
        Kind::Indirect => VdevKind::Indirect,
        Kind::Missing | Kind::Other(_) => VdevKind::Missing,
    };
    let path = config.path.clone().map(|path| PathBuf::from(OsString::from_vec(path)));
    let mut vdev = Vdev {
        kind,
        id: config.id.unwrap_or(0),
        guid: config.guid,
        path,
        whole_disk: config.whole_disk.unwrap_or(false),
        not_present: config.not_present,
        class,
        state: State::Online,
        aux: None,
        stats: Stats::default(),
        meters: Box::default(),
        slow: None,
        children: Vec::new(),
    };
    if config.kind.is_leaf() {
        leaf(&mut vdev, config, open, known(config));
        return vdev;
    }
    if config.kind == Kind::Root {
        return vdev;
    }
    if vdev.kind == VdevKind::Missing {
        (vdev.state, vdev.aux) = (State::Unavail, Some(Aux::CannotOpen));
        return vdev;
    }
    for (id, child) in config.children.iter().enumerate() {
        let mut child = describe(child, class, open, known);
        child.id = id as u64;
        vdev.children.push(child);
    }
    settle(&mut vdev, config);
    vdev
}

fn leaf(vdev: &mut Vdev, config: &VdevConfig, open: bool, known: Known) {
    vdev.stats = known.stats;
    *vdev.meters = known.meters;
    vdev.slow = known.slow;
    let there = known.path.is_some();
    if there {
        vdev.path = known.path;
        vdev.not_present = false;
    }
    (vdev.state, vdev.aux) = match (config, there) {
        (c, _) if c.removed => (State::Removed, None),
        (c, _) if c.faulted => match c.aux_state.as_deref() {
            Some(b"external") => (State::Faulted, Some(Aux::External)),
            _ => (State::Faulted, Some(Aux::TooManyErrors)),
        },
        (c, _) if c.offline => (State::Offline, None),
        (_, false) => {
            vdev.not_present |= open;
            (State::Unavail, Some(known.absent.unwrap_or(Aux::CannotOpen)))
        }
        (c, true) if c.degraded => (State::Degraded, None),
        (_, true) if let Some((state, aux)) = known.verdict => {
            (state, Some(aux).filter(|_| state != State::Removed))
        }
        (_, true) => (State::Online, None),
    };
}

/// True for a vdev that gives nothing.
fn is_dead(vdev: &Vdev) -> bool {
    matches!(vdev.state, State::Unavail | State::Faulted | State::Offline | State::Removed)
}

/// The state of a vdev from those of its children.
fn settle(vdev: &mut Vdev, config: &VdevConfig) {
    if vdev.children.is_empty() {
        return;
    }
    let is_member = |v: &&Vdev| !matches!(v.kind, VdevKind::Hole | VdevKind::Indirect);
    let spared = match vdev.kind {
        VdevKind::Root => 0,
        VdevKind::Raidz(parity) | VdevKind::Draid(parity) => usize::from(parity),
        _ => vdev.children.iter().filter(is_member).count().saturating_sub(1),
    };
    // A pool can do without its logs.
    let is_root = vdev.kind == VdevKind::Root;
    let is_log = |child: &Vdev| is_root && child.class == Class::Log;
    let is_lost = |child: &&Vdev| is_dead(child) && !is_log(child);
    let mut dead = vdev.children.iter().filter(is_member).filter(is_lost).count();
    // A leaf that is given up by its watcher alone is used all the same. So OpenZFS has it, too: it gives up no device
    // that the others cannot do without.
    for (child, config) in vdev.children.iter_mut().zip(&config.children).rev() {
        let is_said = child.state == State::Faulted && config.kind.is_leaf() && !config.faulted;
        if dead > spared && is_said && !is_log(child) {
            child.state = State::Degraded;
            dead -= 1;
        }
    }
    let is_weak = |child: &Vdev| child.state == State::Degraded || is_log(child) && is_dead(child);
    (vdev.state, vdev.aux) = if dead > spared {
        (State::Unavail, Some(Aux::NoReplicas))
    } else if dead > 0 || vdev.children.iter().filter(is_member).any(is_weak) {
        (State::Degraded, None)
    } else {
        (State::Online, None)
    };
}

/// What decides on a pool's condition besides its tree.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Blocks are damaged that no redundancy covers.
    pub data_errors: bool,
    /// A resilver is under way.
    pub resilvering: bool,
    /// Top-level vdevs are missing that nothing is known of.
    pub bad_guid_sum: bool,
    /// The pool's own structures cannot be read.
    pub corrupt_pool: bool,
    /// Another system had the pool last, and did not let go of it.
    pub other_system: bool,
    /// Features that are not known: reading needs them.
    pub unknown: Vec<(String, String)>,
    /// Features that are not known: writing alone needs them.
    pub unknown_for_writing: Vec<(String, String)>,
    /// The version is older than features.
    pub old_version: bool,
    /// Features are off that could be on.
    pub features_off: bool,
    /// The pool is open, not found by its labels.
    pub open: bool,
    /// It takes no changes until its devices are back.
    pub suspended: bool,
}

/// What is most urgently wrong.
#[must_use]
pub fn condition(tree: &Vdev, facts: Facts) -> Condition {
    let dead = tree.state == State::Unavail;
    let any = |test: fn(&Vdev) -> bool| any_leaf(tree, test);
    let faulted = any(|v| v.state == State::Faulted);
    let missing = any(|v| v.aux == Some(Aux::CannotOpen));
    let broken = any(|v| v.state == State::Unavail && v.aux != Some(Aux::CannotOpen));
    let removed = any(|v| v.state == State::Removed);
    let errors = any(|v| v.stats.read_errors + v.stats.write_errors + v.stats.checksum_errors > 0);
    if facts.resilvering {
        Condition::Resilvering
    } else if !facts.unknown.is_empty() {
        Condition::UnknownFeatures(facts.unknown)
    } else if !facts.unknown_for_writing.is_empty() && !facts.open {
        Condition::UnknownFeaturesForWriting(facts.unknown_for_writing)
    } else if facts.bad_guid_sum {
        Condition::BadGuidSum
    } else if facts.suspended {
        Condition::Suspended
    } else if dead && faulted {
        Condition::Faulted
    } else if dead && missing {
        Condition::Missing
    } else if dead && broken {
        Condition::CorruptLabel
    } else if facts.corrupt_pool {
        Condition::CorruptPool
    } else if facts.other_system && !facts.open {
        Condition::OtherSystem
    } else if facts.data_errors {
        Condition::CorruptData
    } else if faulted {
        Condition::FaultedReplaceable
    } else if missing {
        Condition::MissingReplaceable
    } else if broken {
        Condition::CorruptLabelReplaceable
    } else if removed && facts.open {
        Condition::Removed
    } else if errors && facts.open {
        Condition::FailingDevice
    } else if any(|v| v.slow.is_some()) {
        Condition::SlowDevice
    } else if any(|v| v.state == State::Offline) {
        Condition::Offline
    } else if facts.old_version {
        Condition::OldVersion
    } else if facts.features_off {
        Condition::FeaturesOff
    } else {
        Condition::Fine
    }
}

fn any_leaf(vdev: &Vdev, test: fn(&Vdev) -> bool) -> bool {
    if vdev.children.is_empty() {
        return vdev.kind != VdevKind::Root && test(vdev);
    }
    vdev.children.iter().any(|child| any_leaf(child, test))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: Kind, children: Vec<VdevConfig>) -> VdevConfig {
        let mut config = VdevConfig::new(kind, None, 7);
        config.children = children;
        config
    }

    fn leaves(names: &str) -> Vec<VdevConfig> {
        let leaf = |name: char| {
            let mut leaf = VdevConfig::new(Kind::File, None, u64::from(name));
            leaf.path = Some(format!("/{name}").into_bytes());
            leaf
        };
        names.chars().map(leaf).collect()
    }

    fn raidz(parity: u64, names: &str) -> VdevConfig {
        let mut raidz = config(Kind::Raidz, leaves(names));
        raidz.nparity = Some(parity);
        raidz
    }

    /// Small letters are there, capitals are missing, digits have no label; `x` to `z` gave too many errors.
    fn look(tops: Vec<VdevConfig>) -> Vdev {
        tree(&config(Kind::Root, tops), true, &mut |leaf| {
            let name = leaf.path.as_ref().map_or(b'a', |path| path[1]);
            Known {
                path: name.is_ascii_lowercase().then(|| "/there".into()),
                absent: name.is_ascii_digit().then_some(Aux::BadLabel),
                verdict: (name >= b'x').then_some((State::Faulted, Aux::TooManyErrors)),
                ..Known::default()
            }
        })
    }

    #[test]
    fn states_rise_from_the_leaves() {
        use Condition::*;
        for (tops, state, expected) in [
            (vec![raidz(2, "abcd")], State::Online, Fine),
            (vec![raidz(2, "aBCd")], State::Degraded, MissingReplaceable),
            (vec![raidz(2, "aBCD")], State::Unavail, Missing),
            (vec![raidz(2, "a12d")], State::Degraded, CorruptLabelReplaceable),
            (vec![raidz(1, "a12d")], State::Unavail, CorruptLabel),
            (vec![raidz(2, "a1Cd")], State::Degraded, MissingReplaceable),
            (vec![config(Kind::Mirror, leaves("aBC"))], State::Degraded, MissingReplaceable),
            (vec![config(Kind::Mirror, leaves("ABC"))], State::Unavail, Missing),
            (leaves("ab"), State::Online, Fine),
            (leaves("aB"), State::Unavail, Missing),
            (
                vec![raidz(1, "abc"), config(Kind::Mirror, leaves("Ab"))],
                State::Degraded,
                MissingReplaceable,
            ),
            (vec![raidz(1, "abc"), config(Kind::Hole, vec![])], State::Online, Fine),
            (vec![raidz(1, "abc"), config(Kind::Missing, vec![])], State::Unavail, Missing),
        ] {
            let tree = look(tops.clone());
            assert_eq!(tree.state, state, "{tops:?}");
            assert_eq!(condition(&tree, Facts::default()), expected, "{tops:?}");
        }
    }

    /// What its watcher says of a leaf takes nothing away from those above it: the leaf is used as before.
    #[test]
    fn nobody_is_given_up_whom_the_others_cannot_do_without() {
        use State::{Degraded, Faulted, Online, Unavail};
        let log = |names| {
            let mut log = leaves(names).remove(0);
            log.top = Some(format::config::TopConfig { is_log: true, ..Default::default() });
            log
        };
        let spare = |names| config(Kind::Spare, leaves(names));
        let spared = |names, others| {
            let mut raidz = raidz(1, others);
            raidz.children.insert(0, spare(names));
            raidz
        };
        for (tops, states) in [
            (vec![raidz(1, "axc")], vec![Online, Faulted, Online]),
            (vec![raidz(1, "xyc")], vec![Faulted, Degraded, Online]),
            (vec![raidz(1, "xBc")], vec![Degraded, Unavail, Online]),
            (vec![raidz(1, "Bxc")], vec![Unavail, Degraded, Online]),
            (vec![raidz(2, "xBc")], vec![Faulted, Unavail, Online]),
            (vec![config(Kind::Mirror, leaves("ax"))], vec![Online, Faulted]),
            (vec![config(Kind::Mirror, leaves("xB"))], vec![Degraded, Unavail]),
            (vec![config(Kind::Mirror, leaves("xyz"))], vec![Faulted, Faulted, Degraded]),
            (leaves("ax"), vec![Online, Degraded]),
            (vec![leaves("a").remove(0), log("x")], vec![Online, Faulted]),
            (vec![spared("xb", "ay")], vec![Faulted, Online, Online, Faulted]),
            (vec![spared("xB", "ay")], vec![Degraded, Unavail, Online, Faulted]),
            (vec![spared("AB", "ay")], vec![Unavail, Unavail, Online, Degraded]),
        ] {
            let tree = look(tops.clone());
            let mut seen = Vec::new();
            fn states_of(vdev: &Vdev, seen: &mut Vec<State>) {
                match vdev.children.is_empty() {
                    true => seen.push(vdev.state),
                    false => vdev.children.iter().for_each(|child| states_of(child, seen)),
                }
            }
            states_of(&tree, &mut seen);
            assert_eq!((seen, tree.state), (states, Degraded), "{tops:?}");
        }
        // What is beyond redundancy without anybody's word stays so, and so does what the pool itself has given up.
        assert_eq!(look(vec![raidz(1, "xBC")]).state, Unavail);
        let mut given_up = raidz(1, "aBc");
        given_up.children[0].faulted = true;
        let tree = look(vec![given_up]);
        assert_eq!((tree.state, tree.children[0].children[0].state), (Unavail, Faulted));
    }

    #[test]
    fn a_leaf_out_of_use_says_so() {
        let mut tops = vec![config(Kind::Mirror, leaves("ab"))];
        tops[0].children[0].offline = true;
        let tree = look(tops.clone());
        assert_eq!(
            (tree.state, tree.children[0].children[0].state),
            (State::Degraded, State::Offline)
        );
        assert_eq!(condition(&tree, Facts::default()), Condition::Offline);
        tops[0].children[0].faulted = true;
        let tree = look(tops);
        assert_eq!(tree.children[0].children[0].state, State::Faulted);
        assert_eq!(condition(&tree, Facts::default()), Condition::FaultedReplaceable);
        let gone = look(vec![raidz(1, "aBc")]);
        assert!(gone.children[0].children[1].not_present);
        assert_eq!(gone.children[0].children[1].path, Some("/B".into()));
    }

    #[test]
    fn what_is_most_urgent_comes_first() {
        let tree = look(vec![raidz(1, "aBc")]);
        let unknown = vec![("com.example:x".to_string(), String::new())];
        for (facts, expected) in [
            (Facts { resilvering: true, ..Facts::default() }, Condition::Resilvering),
            (
                Facts { unknown: unknown.clone(), ..Facts::default() },
                Condition::UnknownFeatures(unknown),
            ),
            (Facts { bad_guid_sum: true, ..Facts::default() }, Condition::BadGuidSum),
            (
                Facts { suspended: true, data_errors: true, ..Facts::default() },
                Condition::Suspended,
            ),
            (Facts { corrupt_pool: true, ..Facts::default() }, Condition::CorruptPool),
            (Facts { data_errors: true, ..Facts::default() }, Condition::CorruptData),
            (Facts { old_version: true, ..Facts::default() }, Condition::MissingReplaceable),
        ] {
            assert_eq!(condition(&tree, facts), expected);
        }
        let fine = look(vec![raidz(1, "abc")]);
        let old = Facts { old_version: true, ..Facts::default() };
        assert_eq!(condition(&fine, old), Condition::OldVersion);
        let off = Facts { features_off: true, ..Facts::default() };
        assert_eq!(condition(&fine, off), Condition::FeaturesOff);
    }
}
