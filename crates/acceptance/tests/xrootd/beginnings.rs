//! The first bytes of new files, which the plug-in holds for a moment until it is seen what follows, or begins to write.

use client::Open;
use testkit::noise;

use crate::gate::{ROOT, Site, tool, until};

const NEW: Open = Open { write: true, create: true, new: true, ..Open::READ };

#[test]
fn what_is_held_is_there_for_who_asks() {
    let site = Site::new();
    let client = site.client("tank");
    drop(site.run(&["zfs", "create", "-o", "quota=20M", "tank/full"]));
    client.chmod(&ROOT, b"/full", 0o777).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xrootd/beginnings.py");
    // Where the close promises something they are begun, as long as few ask, else held.
    for (name, words, lines) in [
        ("begins", "pool=tank", ""),
        ("holds", "pool=tank stable=off", ""),
        ("waits", "pool=tank", "xrootd.async off\n"),
    ] {
        let gate = site.gate(name, &format!("{}{lines}", site.osslib(words)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ran = tool("/usr/bin/python3", &[script, &gate.url(""), "/full/new"], &[]);
                assert!(ran.ok(), "{name}: {ran}");
            });
            let held = || client.stat(&ROOT, b"/held", true).is_ok();
            until("no small file was held", held, || gate.log());
            let filler = client.open(&ROOT, b"/full/filler", NEW, 0o644).unwrap();
            let mut pieces = (0..640).map(|i| filler.write(i << 16, &noise(i, 1 << 16)));
            assert!(pieces.any(|written| written.is_err()));
            client.put(&ROOT, b"/filled", NEW, 0o644, b"", false).unwrap();
        });
        let left = || {
            let mut bytes = [0; 10];
            let got = client.get(&ROOT, b"/left", &mut bytes);
            got.is_ok_and(|(count, _)| &bytes[..count] == b"left")
        };
        until("what was written by a client that has gone is not there", left, || gate.log());
        for path in ["/held", "/filled", "/left", "/full/filler"] {
            client.unlink(&ROOT, path.as_bytes()).unwrap();
        }
    }
    drop(client);
    site.end();
}
