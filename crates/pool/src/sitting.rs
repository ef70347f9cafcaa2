//! When slow leaves sit out, and for how long.
//!
//! The one idea: who is not read from cannot show that he keeps up again. So a leaf sits out for a while only, then it
//! is read from again for long enough to be judged; if it is still slow, it sits out twice as long.

use std::collections::BTreeMap;
use std::time::Duration;

use rt::time::Instant;
use vdev::Tree;

use crate::slow::News;

/// For so long a leaf sits out the first time ..
const FIRST: Duration = Duration::from_secs(60);
/// .. and at most.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// For so long it is read from in between: some looks more than a verdict needs.
const TRIAL: Duration = Duration::from_secs(60);

/// The leaves that sit out, or are tried again, by guid.
#[derive(Default)]
pub(crate) struct Sitting(BTreeMap<u64, Turn>);

struct Turn {
    /// When it is let in, or judged.
    until: Instant,
    length: Duration,
    out: bool,
}

impl Sitting {
    /// Has leaves of `tree` sit out, or lets them in, after a look that told `news`; `slow` are those that are slow
    /// now.
    pub(crate) fn look(&mut self, tree: &Tree, news: &[News], slow: &[u64], now: Instant) {
        for news in news {
            if let News::Slow(slow) = news {
                self.send_out(tree, slow.guid, FIRST, now);
            }
        }
        // Not those alone that are told to keep up again: of one whose device has gone nothing is said any more.
        self.0.retain(|guid, _| {
            let is_slow = slow.contains(guid);
            if !is_slow && let Some(leaf) = tree.leaf_by_guid(*guid) {
                tree.let_in(leaf);
            }
            is_slow
        });
        let due: Vec<u64> =
            self.0.iter().filter(|(_, turn)| turn.until <= now).map(|(guid, _)| *guid).collect();
        for guid in due {
            let Some(turn) = self.0.get_mut(&guid) else { continue };
            if turn.out {
                (turn.out, turn.until) = (false, now + TRIAL);
                tree.leaf_by_guid(guid).into_iter().for_each(|leaf| tree.let_in(leaf));
            } else {
                let length = (turn.length * 2).min(LONGEST);
                self.send_out(tree, guid, length, now);
            }
        }
    }

    fn send_out(&mut self, tree: &Tree, guid: u64, length: Duration, now: Instant) {
        // Where nobody can do without it, that is asked again after a while.
        let out = tree.leaf_by_guid(guid).is_some_and(|leaf| tree.sit_out(leaf));
        let until = now + if out { length } else { TRIAL };
        self.0.insert(guid, Turn { until, length, out });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::sim::SimSet;
    use format::config::{TopConfig, VdevConfig, VdevKind};
    use rt::sync::Arc;
    use vdev::Found;

    /// A raidz1 of five disks with the guids 1 to 5.
    fn tree() -> Tree {
        let set = SimSet::new(5, 64 << 20);
        let leaf = |id: u64| VdevConfig::new(VdevKind::File, id, id + 1);
        let mut top = VdevConfig::new(VdevKind::Raidz, 0, 100);
        top.children = (0..5).map(leaf).collect();
        top.nparity = Some(1);
        top.top = Some(TopConfig { ashift: 12, asize: 256 << 20, ..TopConfig::default() });
        let mut root = VdevConfig::new(VdevKind::Root, 0, 200);
        root.children = vec![top];
        let found = |disk: usize| {
            let device: Arc<dyn device::Device> = Arc::new(set.disk(disk).reader());
            (disk as u64 + 1, Found { device, labelled: true })
        };
        Tree::open(&root, (0..5).map(found).collect()).expect("it is one")
    }

    fn slow(guid: u64) -> crate::slow::Slow {
        crate::slow::Slow {
            guid,
            name: String::new(),
            what: crate::slow::What::Reads,
            count: 100,
            time: Duration::from_secs(1),
            siblings: Duration::from_millis(1),
            since: Duration::ZERO,
            sits_out: false,
        }
    }

    #[test]
    fn a_leaf_of_which_nothing_is_said_any_more_is_let_in() {
        let (tree, mut sitting, now) = (tree(), Sitting::default(), rt::time::now());
        sitting.look(&tree, &[News::Slow(slow(3))], &[3], now);
        assert!(tree.leaves()[2].sits_out());
        // Its device has gone, and with that what was known of it: nobody tells that it keeps up again.
        sitting.look(&tree, &[], &[], now);
        assert!(!tree.leaves()[2].sits_out());
    }

    #[test]
    fn a_leaf_is_tried_again_and_sits_out_longer_each_time() {
        let (tree, mut sitting, start) = (tree(), Sitting::default(), rt::time::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let out = |leaf: usize| tree.leaves()[leaf].sits_out();
        sitting.look(&tree, &[News::Slow(slow(3))], &[3], at(0));
        assert!(out(2));
        // One disk's parity spares one: the other is asked for again later.
        sitting.look(&tree, &[News::Slow(slow(4))], &[3, 4], at(5));
        assert!(out(2) && !out(3));
        sitting.look(&tree, &[], &[3, 4], at(60));
        assert!(!out(2) && !out(3));
        sitting.look(&tree, &[], &[3, 4], at(65));
        assert!(!out(2) && out(3), "now it is the other's turn");
        sitting.look(&tree, &[News::Recovered(slow(4))], &[3], at(70));
        assert!(!out(3));
        sitting.look(&tree, &[], &[3], at(120));
        assert!(out(2), "it is slow still");
        sitting.look(&tree, &[], &[3], at(120 + 119));
        assert!(out(2), "twice as long");
        sitting.look(&tree, &[], &[3], at(120 + 120));
        assert!(!out(2));
        sitting.look(&tree, &[News::Recovered(slow(3))], &[], at(250));
        sitting.look(&tree, &[], &[], at(10_000));
        assert!(!out(2) && sitting.0.is_empty());
    }
}
