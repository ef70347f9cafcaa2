//! `kill -9` of who serves a mount: all that was fsynced is there, and the pool is clean.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rt::sync::{Arc, Mutex};
use testkit::random::Rng;
use testkit::rounds;

use crate::served::{judged, serve, stage, wanted};

/// What a writer was told is stable: the name of a file, its size and the byte in it.
type Stable = Vec<(String, u64, u8)>;

/// So many of them stay from one kill to the next: the pool has room for the next ones, too.
const KEPT: usize = 600;

#[test]
fn of_who_serves_loses_nothing_that_was_fsynced() {
    if !wanted("kill -9 of a mount") {
        return;
    }
    let stage = stage(2 << 30, "-O compression=off");
    let stable: Arc<Mutex<Stable>> = Arc::default();
    let mut rng = Rng::new(5);
    let rounds = rounds(3, 20);
    for round in 0..rounds {
        let mut served = serve(&stage, "tank", "mnt");
        for (name, size, byte) in stable.lock().iter() {
            let found = fs::read(served.at(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let whole = found.len() as u64 == *size && found.iter().all(|b| b == byte);
            assert!(whole, "round {round}: {name}: {} bytes of {size}", found.len());
        }
        let before = {
            let mut stable = stable.lock();
            let gone = stable.len().saturating_sub(KEPT);
            stable.drain(..gone).for_each(|(name, ..)| fs::remove_file(served.at(&name)).unwrap());
            stable.len()
        };
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (dir, stable) = (served.dir.clone(), stable.clone());
                let mut rng = Rng::of(round, writer);
                rt::thread::spawn("writer", move || {
                    for i in 0.. {
                        let name = format!("r{round}-w{writer}-{i}");
                        let (size, byte) = (1 + rng.below(300_000), rng.word() as u8);
                        let written = File::create(dir.join(&name)).and_then(|file| {
                            file.write_all_at(&vec![byte; size as usize], 0)?;
                            file.sync_all()
                        });
                        // The server is gone.
                        let Ok(()) = written else { return };
                        stable.lock().push((name, size, byte));
                        if i % 3 == 0 {
                            let (from, to) = (format!("x{round}-{writer}"), format!("y{writer}"));
                            let _ = fs::write(dir.join(&from), b"not synced");
                            let _ = fs::rename(dir.join(&from), dir.join(&to));
                        }
                    }
                })
            })
            .collect();
        rt::time::sleep(Duration::from_millis(500 + rng.below(1000)));
        served.kill();
        writers.into_iter().for_each(rt::thread::JoinHandle::join);
        // Only now: below the mount is a directory that would take their files.
        served.clear();
        let came = stable.lock().len() - before;
        drop(writeln!(std::io::stderr(), "kill {round}: {came} files came to be stable"));
        assert!(came > 10, "round {round}: too slow, or too full, to mean anything");
    }
    // The log of the last round is replayed by whoever opens it next.
    let served = serve(&stage, "tank", "mnt");
    for (name, size, byte) in stable.lock().iter() {
        let found = fs::read(served.at(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.len() as u64 == *size && found.iter().all(|b| b == byte), "{name}");
    }
    served.unmount(&stage);
    judged(&stage);
}
