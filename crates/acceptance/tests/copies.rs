//! `put`, `get`, `mkdir` and `mv` where cp and its kin would do no harm: names that are already there, links that a
//! tree brings along, owners that cannot be given, sources and blocks that cannot be read, devices and pipes.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use acceptance::{Server, Stage};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use testkit::Ran;
use testkit::data::{Data, Look};

/// A pool of one disk whose data lies on it as it is.
fn stage() -> Stage {
    let stage = Stage::new(1, 64 << 20);
    drop(stage.ok("zpool create -O compression=off -O mountpoint=none p $D/d00"));
    drop(stage.ok("zfs create p/f"));
    stage
}

/// Spoils every block that has these bytes in it.
#[track_caller]
fn damage(stage: &Stage, bytes: &[u8]) {
    let path = &stage.images.disks()[0];
    let image = fs::read(path).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    let mut found = 0;
    for (at, _) in image.windows(bytes.len()).enumerate().filter(|(_, there)| *there == bytes) {
        file.write_all_at(&vec![0; bytes.len()], at as u64).unwrap();
        found += 1;
    }
    assert!(found > 0, "the bytes to damage are nowhere on the disk");
}

fn noise(seed: u64, size: u64) -> Vec<u8> {
    Data { look: Look::Noise, seed, size }.bytes()
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The program as somebody who may write into the stage, and is not root. `None`, and it is said, for who is not root.
#[expect(clippy::print_stderr, reason = "what a test did not do belongs on its output")]
fn as_nobody(stage: &Stage, words: &str) -> Option<Ran> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN, only root becomes somebody else: {words}");
        return None;
    }
    let program = stage.aside("thumper");
    if !program.exists() {
        fs::copy(acceptance::thumper_path(), &program).unwrap();
    }
    let disks = [stage.images.path(), &stage.images.disks()[0], &stage.aside("")];
    for path in disks.into_iter().map(Path::to_path_buf).chain([stage.aside("pools")]) {
        set_mode(&path, 0o777);
    }
    let like = stage.command(words);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    command.args(like.get_args()).current_dir(stage.aside(""));
    for (name, value) in like.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Some(Ran::of(&mut command))
}

/// Seen red: the copy was unlinked to make room for a link to itself.
#[test]
fn sources_that_are_one_file_are_stored_once() {
    let stage = stage();
    for dir in ["ha", "hb", "hc", "both"] {
        fs::create_dir(stage.aside(dir)).unwrap();
    }
    fs::write(stage.aside("ha/n"), "data").unwrap();
    fs::hard_link(stage.aside("ha/n"), stage.aside("hb/n")).unwrap();
    drop(stage.ok("put ha/n hb/n p/f:/"));
    assert_eq!(stage.ok("cat p/f:/n").out, "data");
    drop(stage.ok("put ha/n ha/n p/f:/"));
    assert_eq!(stage.ok("cat p/f:/n").out, "data");
    // A name that another file got meanwhile is nothing to link to.
    fs::hard_link(stage.aside("ha/n"), stage.aside("hb/m")).unwrap();
    fs::write(stage.aside("hc/n"), "other").unwrap();
    drop(stage.ok("put ha/n hc/n hb/m p/f:/"));
    assert_eq!(stage.ok("cat p/f:/n p/f:/m").out, "otherdata");

    drop(stage.ok("zfs create -o casesensitivity=insensitive p/i"));
    fs::write(stage.aside("both/File"), "one").unwrap();
    fs::hard_link(stage.aside("both/File"), stage.aside("both/file")).unwrap();
    drop(stage.ok("put -r both p/i:/"));
    assert_eq!(stage.ok("cat p/i:/both/FILE").out, "one");
    assert!(stage.ok("verify p").out.contains("clean"));
}

/// Seen red: files were written where links of the tree led, and beside the destination.
#[test]
fn a_tree_writes_nothing_outside_the_destination() {
    let stage = stage();
    let at = |name: &str| stage.aside(name);
    for dir in ["outside", "tree", "tree/x", "tree/x/link", "tree/src", "tree/dir"] {
        fs::create_dir(at(dir)).unwrap();
    }
    symlink(at("outside"), at("tree/link")).unwrap();
    symlink(at("outside"), at("tree/lost+found")).unwrap();
    fs::write(at("tree/x/link/evil"), "x").unwrap();
    // So many that their directory is a block of its own.
    let names =
        noise(9, 40 * 20).iter().map(|byte| char::from(b'A' + byte % 26)).collect::<String>();
    for from in (0..names.len()).step_by(20) {
        fs::write(at("tree/dir").join(&names[from..from + 20]), "lost").unwrap();
    }
    drop(stage.ok("put -r tree/. p/f:/"));
    let nothing = |why: &str| assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0, "{why}");

    fs::create_dir(at("out")).unwrap();
    let ran = stage.run("get -r p/f:/link p/f:/x/link out");
    nothing("a link came first");
    assert!(ran.status == 1 && ran.err.contains("'out/link': File exists"), "{ran}");

    fs::create_dir_all(at("deep/out")).unwrap();
    drop(stage.ok("get -r p/f:/src/.. deep/out"));
    assert_eq!(fs::read_dir(at("deep")).unwrap().count(), 1, "beside the destination");
    assert!(at("deep/out/x/link/evil").exists());

    damage(&stage, &names.as_bytes()[45..55]);
    let ran = stage.run("get -r --salvage p/f:/ saved");
    nothing("a link called lost+found");
    assert!(ran.status == 1 && ran.err.contains("'saved/lost+found': File exists"), "{ran}");

    // Where somebody put a link himself, he means the directory; and without the link there is a place for the rest.
    drop(stage.ok("rm p/f:/lost+found"));
    fs::create_dir(at("meant")).unwrap();
    symlink("meant", at("by-hand")).unwrap();
    let ran = stage.run("get -r --salvage p/f:/ by-hand");
    assert!(ran.status == 1 && !ran.err.contains("File exists"), "{ran}");
    assert_eq!(fs::read_dir(at("meant/lost+found")).unwrap().count(), 40, "{ran}");
    assert_eq!(mode_of(&at("meant/lost+found")) & 0o777, 0o700);
}

/// Seen red: a file of root's that sets the user was made one that sets who fetched it.
#[test]
fn bits_that_set_the_owner_go_with_him() {
    let stage = stage();
    fs::create_dir(stage.aside("t")).unwrap();
    let file = stage.aside("t/tool");
    fs::write(&file, "#!").unwrap();
    set_mode(&file, 0o6755);
    drop(stage.ok("put t/tool p/f:/"));
    drop(stage.ok("get p/f:/tool kept"));
    assert_eq!(mode_of(&stage.aside("kept")) & 0o7777, 0o6755);
    if let Some(ran) = as_nobody(&stage, "get p/f:/tool dropped") {
        assert!(ran.ok() && ran.err.is_empty(), "{ran}");
        assert_eq!(mode_of(&stage.aside("dropped")) & 0o7777, 0o755);
    }
}

/// Seen red: what came of the attributes decided whether a private file was private.
#[test]
fn an_attribute_that_cannot_be_read_costs_nothing_else() {
    let stage = stage();
    drop(stage.ok("zfs create -o xattr=dir p/x"));
    let (file, value) = (stage.aside("file"), noise(5, 3000));
    fs::write(&file, "text").unwrap();
    rustix::fs::setxattr(&file, "user.much", &value, XattrFlags::empty()).unwrap();
    set_mode(&file, 0o4600);
    let old = fs::metadata(&file).unwrap();
    drop(stage.ok("put file p/x:/"));
    damage(&stage, &value[100..200]);
    let ran = stage.run("get p/x:/file back");
    assert!(ran.status == 1 && ran.err.starts_with("cannot read 'p/x:/file': "), "{ran}");
    let new = fs::metadata(stage.aside("back")).unwrap();
    let told = |meta: &fs::Metadata| (meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.size());
    assert_eq!(told(&new), told(&old));
}

/// Seen red: nothing of files that tell no size, and an empty file where the source could not be opened.
#[test]
fn a_source_is_read_to_its_end_and_before_the_copy_goes() {
    let stage = stage();
    for source in ["/proc/version", "/proc/sys/kernel/ostype"] {
        drop(stage.ok(&format!("put {source} p/f:/known")));
        assert_eq!(stage.ok("cat p/f:/known").out, fs::read_to_string(source).unwrap());
    }
    let sparse = File::create(stage.aside("sparse")).unwrap();
    sparse.write_all_at(b"end", 3 << 20).unwrap();
    sparse.set_len(8 << 20).unwrap();
    drop(stage.ok("put sparse p/f:/"));
    drop(stage.ok("get p/f:/sparse back"));
    let (old, new) = (fs::read(stage.aside("sparse")), fs::read(stage.aside("back")));
    assert!(old.unwrap() == new.unwrap());
    assert!(fs::metadata(stage.aside("back")).unwrap().blocks() < 1000, "holes are no holes");

    fs::write(stage.aside("closed"), "new").unwrap();
    fs::write(stage.aside("keep"), "kept").unwrap();
    drop(stage.ok("put keep p/f:/keep"));
    set_mode(&stage.aside("closed"), 0);
    let ran = match as_nobody(&stage, "put closed p/f:/keep") {
        Some(ran) => ran,
        None => stage.run("put closed p/f:/keep"),
    };
    assert_eq!((ran.status, &*ran.err), (1, "cannot read 'closed': Permission denied\n"), "{ran}");
    assert_eq!(stage.ok("cat p/f:/keep").out, "kept");
}

/// Seen red: the file that was there went first, and half of the new one stayed.
#[test]
fn what_cannot_be_read_replaces_nothing() {
    let stage = stage();
    let bytes = noise(7, 300_000);
    fs::write(stage.aside("file"), &bytes).unwrap();
    drop(stage.ok("put file p/f:/"));
    damage(&stage, &bytes[200_000..200_100]);
    fs::create_dir(stage.aside("out")).unwrap();
    let ran = stage.run("get p/f:/file file");
    assert!(ran.status == 1 && ran.err.starts_with("cannot read 'p/f:/file': "), "{ran}");
    assert!(fs::read(stage.aside("file")).unwrap() == bytes);
    assert_eq!(stage.run("get p/f:/file out").status, 1);
    assert_eq!(fs::read_dir(stage.aside("out")).unwrap().count(), 0, "something half was left");
    // What is asked for in part comes in part, and in the place of the old one.
    assert_eq!(stage.run("get --salvage p/f:/file file").status, 1);
    let part = fs::read(stage.aside("file")).unwrap();
    assert!(part.len() == bytes.len() && part != bytes);
    // A directory is no place for a file, and a name may have all bytes that the host allows.
    fs::create_dir_all(stage.aside("out/file")).unwrap();
    stage.refused("get --salvage p/f:/file out", 1, "cannot write 'out/file': Is a directory\n");
    let long = "l".repeat(255);
    fs::write(stage.aside(&long), "long").unwrap();
    drop(stage.ok(&format!("put {long} p/f:/")));
    drop(stage.ok(&format!("get p/f:/{long} out")));
    assert_eq!(fs::read(stage.aside("out").join(&long)).unwrap(), b"long");
}

/// Seen red: the node was removed, and a plain file made in its place.
#[test]
fn devices_and_pipes_take_the_bytes() {
    let stage = stage();
    fs::write(stage.aside("file"), "through").unwrap();
    File::options().write(true).open(stage.aside("file")).unwrap().set_len(20_000).unwrap();
    symlink("file", stage.aside("link")).unwrap();
    drop(stage.ok("put file link p/f:/"));
    drop(stage.ok("zfs create -V 8K p/vol"));
    let pipe = stage.aside("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    // Open at both ends, so that nobody waits for the other side.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut ends =
        File::options().read(true).write(true).custom_flags(nonblock).open(&pipe).unwrap();
    for (place, len) in [("p/f:/file", 20_000), ("p/vol:", 8192)] {
        drop(stage.ok(&format!("get {place} pipe")));
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{place}");
        let mut got = vec![0; 65_536];
        assert_eq!(ends.read(&mut got).unwrap(), len, "{place}");
        assert_eq!(got.starts_with(b"through"), place == "p/f:/file");
    }
    assert_eq!(mode_of(&pipe) & 0o7777, 0o640);
    stage.refused("get p/f:/link pipe", 1, "cannot write 'pipe': File exists\n");
    stage.refused("get -r p/f:/ pipe", 1, "cannot write 'pipe': File exists\n");
    stage.refused("get --salvage p/f:/file pipe", 1, "cannot write 'pipe': it is no file");
    symlink("/dev/full", stage.aside("full")).unwrap();
    stage.refused("get p/f:/file full", 1, "cannot write 'full': No space left on device\n");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());

    // What a shell gives as an output is a link, and stays one.
    let out = File::create(stage.aside("out")).unwrap();
    let status = stage.command("get p/f:/file /proc/self/fd/1").stdout(out).status().unwrap();
    assert!(status.success());
    assert_eq!(fs::read(stage.aside("out")).unwrap().len(), 20_000);

    // And as an input; nodes are stored as nodes with their trees only.
    let mut put = stage.command("put /dev/stdin p/f:/in");
    let mut put = put.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut put.stdin.take().unwrap(), &noise(3, 200_000)).unwrap();
    assert!(put.wait().unwrap().success());
    drop(stage.ok("get p/f:/in in"));
    assert!(fs::read(stage.aside("in")).unwrap() == noise(3, 200_000));
    let file = File::open(stage.aside("file")).unwrap();
    assert!(stage.command("put /dev/stdin p/f:/in").stdin(file).status().unwrap().success());
    assert!(stage.ok("ls -l p/f:/in").out.starts_with("-"));
    drop(stage.ok("put -r pipe link p/f:/"));
    let kinds: Vec<String> = ["pipe", "link"]
        .iter()
        .map(|name| stage.ok(&format!("ls -l p/f:/{name}")).out[..1].to_string())
        .collect();
    assert_eq!(kinds, ["p", "l"]);
}

/// Seen red: plain files where a slash had asked for a directory, and 0755 whatever the umask.
#[test]
fn directories_are_meant_and_made_as_elsewhere() {
    let stage = stage();
    fs::write(stage.aside("f"), "f").unwrap();
    fs::create_dir(stage.aside("d")).unwrap();
    drop(stage.ok("put f p/f:/"));
    let no_directory = |end: &str| format!("cannot {end}: Not a directory\n");
    stage.refused("put f p/f:/new/", 1, &no_directory("write to 'p/f:/new/'"));
    stage.refused("put f p/f:/f/", 1, &no_directory("write to 'p/f:/f/'"));
    stage.refused("mv p/f:/f p/f:/new/", 1, &no_directory("move 'p/f:/f'"));
    stage.refused("get p/f:/f new/", 1, &no_directory("write 'new/'"));
    assert_eq!(stage.ok("ls p/f:/").out, "f\n");
    assert!(!stage.aside("new").exists());
    drop(stage.ok("put -r d p/f:/new/"));
    drop(stage.ok("mv p/f:/new p/f:/newer/"));
    drop(stage.ok("get -r p/f:/newer new/"));
    assert!(stage.aside("new").is_dir());

    let under = |umask: &str, words: &str| {
        let like = stage.command(words);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\""));
        command.arg(like.get_program()).args(like.get_args());
        for (name, value) in like.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        drop(Ran::of(&mut command).expect_ok());
    };
    under("077", "mkdir p/f:/private");
    under("002", "mkdir p/f:/shared");
    under("077", "mkdir -m 751 p/f:/given");
    under("477", "mkdir -p -m 711 p/f:/above/below");
    let told = stage.ok("ls -l p/f:/").out;
    let mode = |name: &str| {
        let line = told.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        line[..10].to_string()
    };
    assert_eq!(mode("private"), "drwx------");
    assert_eq!(mode("shared"), "drwxrwxr-x");
    assert_eq!(mode("given"), "drwxr-x--x");
    assert_eq!(mode("above"), "d-wx------");
    assert!(stage.ok("ls -l p/f:/above").out.starts_with("drwx--x--x"));
}

/// What a command has open the server has not: under the same names it has others.
#[test]
fn a_server_takes_nothing_of_its_own_for_the_commands() {
    let stage = stage();
    fs::write(stage.aside("f"), "f").unwrap();
    let server = Server::start(&stage.aside("pools"));
    let why = "a server runs this, and has other files open: name a file\n";
    stage.refused("put /dev/stdin p/f:/in", 1, &format!("cannot read '/dev/stdin': {why}"));
    drop(stage.ok("put f p/f:/"));
    let fd = "/proc/self/fd/1";
    stage.refused(&format!("get p/f:/f {fd}"), 1, &format!("cannot write '{fd}': {why}"));
    assert_eq!(stage.ok("ls p/f:/").out, "f\n");
    drop(server);
}

/// Only root gives files away; to whom is told by the pool.
#[test]
fn root_gives_files_to_their_owners() {
    let stage = stage();
    fs::write(stage.aside("f"), "f").unwrap();
    if chown(stage.aside("f"), Some(1234), Some(5678)).is_err() {
        eprintln!("NOT RUN, only root gives files away");
        return;
    }
    set_mode(&stage.aside("f"), 0o6711);
    drop(stage.ok("put f p/f:/"));
    drop(stage.ok("get p/f:/f back"));
    let meta = fs::metadata(stage.aside("back")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (1234, 5678, 0o6711));
}
