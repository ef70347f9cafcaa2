//! Labels and uberblocks: any three of the four kinds lost, on every disk.

use device::sim::SimSet;
use rt::Rng;

use crate::{RAIDZ3, check, choices, nothing_is_left, open, rig, scrub, tell};

/// Bytes of a label.
const LABEL: u64 = 256 << 10;

/// Where a label lies on a disk of this size.
fn place(label: usize, size: u64) -> u64 {
    match label {
        0 | 1 => label as u64 * LABEL,
        _ => size / LABEL * LABEL - (4 - label as u64) * LABEL,
    }
}

#[test]
fn three_of_the_four_labels_come_back() {
    let told = tell(RAIDZ3, 4);
    let size = told.shape.disk_bytes;
    for lost in choices(4, 3) {
        for noise in [false, true] {
            let set: SimSet = told.set();
            let mut rng = Rng::new(lost[0] as u64);
            for disk in set.disks() {
                for label in &lost {
                    let mut bytes = vec![0; LABEL as usize];
                    if noise {
                        rng.fill(&mut bytes);
                    }
                    disk.overwrite(place(*label, size), &bytes);
                }
            }
            let what = format!("labels {lost:?} lost, noise {noise}");
            told.is_whole(&set, &rig::all(&set), &[]).unwrap_or_else(|e| panic!("{what}: {e}"));
            let pool = open(&set, &rig::all(&set));
            assert_eq!(scrub(&pool).scan.errors, 0, "{what}");
            pool.close().unwrap();
            drop(pool);
            let report = check::report(&set, &rig::all(&set)).unwrap();
            assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
            // Noise in a ring goes as the ring comes round.
            let lost_rings: Vec<u8> = lost.iter().map(|label| *label as u8).collect();
            let alike = |mut d: verify::DeviceDamage| {
                let rings = std::mem::take(&mut d.rings);
                d.is_clean() && rings == if noise { &lost_rings[..] } else { &[] }
            };
            let devices = report.devices;
            assert!(devices.len() == if noise { set.disks().len() } else { 0 }, "{what}");
            assert!(devices.iter().cloned().all(alike), "{what}: {devices:?}");
            // Now the one that was left may go.
            let left = (0..4).find(|label| !lost.contains(label)).unwrap();
            for disk in set.disks() {
                disk.overwrite(place(left, size), &vec![0; LABEL as usize]);
            }
            told.is_whole(&set, &rig::all(&set), &[]).unwrap_or_else(|e| panic!("{what}: {e}"));
            nothing_is_left(&set, &what);
        }
    }
}
