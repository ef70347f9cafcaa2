use std::fs::File;
use std::path::PathBuf;

use fs::{NewObject, Who};
use verbs::layout::{Class, Group, GroupKind, Layout};
use verbs::state::StateFile;
use verbs::{Engine, Local, datasets, pools};

use super::super::handles::Handle;
use super::*;

const ROOT: Who = Who { uid: 0, gid: 0 };

/// The pool `tank` on one image in a directory, held.
pub(in super::super) fn held(dir: &std::path::Path) -> (Arc<Held>, Local) {
    let held = Arc::new(Held::default());
    let mut engine = Local::new(StateFile::new(dir.join("pools"))).holding(held.clone());
    create_pool(&mut engine, "tank", &dir.join("disk"));
    (held, engine)
}

/// One more on an image.
pub(in super::super) fn create_pool(engine: &mut Local, name: &str, disk: &std::path::Path) {
    File::create(disk).unwrap().set_len(64 << 20).unwrap();
    let devices = vec![disk.to_path_buf()];
    let group = Group { kind: GroupKind::Single, class: Class::Normal, devices };
    let layout = Layout { groups: vec![group], ..Layout::default() };
    let request = pools::Create { name: name.into(), layout, ..pools::Create::default() };
    engine.pool_create(&request).unwrap();
}

fn create(engine: &mut Local, name: &str) {
    let request = datasets::Create {
        name: name.into(),
        parents: false,
        volume: None,
        properties: Vec::new(),
        dry_run: false,
        unmounted: true,
        places: Vec::<PathBuf>::new(),
        command: String::new(),
    };
    engine.dataset_create(&request).unwrap();
}

pub(in super::super) fn close(held: &Held, engine: &Local) {
    let failed = held.close(engine.state());
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn what_has_got_the_number_of_what_was_found_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let tree = Tree::new(held.clone(), "tank").unwrap();
    let fs = held.system("tank").unwrap().unwrap().fs.clone();
    let file = NewObject::of(mode::FILE | 0o600, ROOT);
    let make = |name: &str| fs.create(fs.root(), name.as_bytes(), &file).unwrap();
    let number = make("a");
    let found = tree.find(&Subject::ROOT, b"a", true).unwrap();
    fs.unlink(fs.root(), b"a").unwrap();
    let is_his = |name: &String| {
        held.pool("tank").unwrap().sync().unwrap();
        make(name) == number
    };
    let other = (0..100).map(|i| format!("other {i}")).find(is_his).unwrap();
    let refused = Handle::of(&tree, found).err().map(|failure| failure.errno);
    assert_eq!(refused, Some(code::STALE), "'{other}' has its number");
    // And so it is looked for again, where there is nothing.
    let anew = again(|| Handle::of(&tree, tree.find(&Subject::ROOT, b"a", true)?));
    assert_eq!(anew.err().map(|failure| failure.errno), Some(code::NOENT));
    // What another was renamed to is another.
    let found = tree.find(&Subject::ROOT, other.as_bytes(), true).unwrap();
    make("b");
    fs.rename(fs.root(), b"b", fs.root(), other.as_bytes()).unwrap();
    assert_eq!(tree.confirm(&found).err().map(|failure| failure.errno), Some(code::STALE));
    // And so is what has changed places with another, or has another name.
    make("c");
    let find = |name: &[u8]| tree.find(&Subject::ROOT, name, true).unwrap();
    let both = [find(b"c"), find(other.as_bytes())];
    fs.exchange(fs.root(), b"c", fs.root(), other.as_bytes()).unwrap();
    for found in &both {
        assert_eq!(tree.confirm(found).err().map(|failure| failure.errno), Some(code::STALE));
    }
    let found = find(b"c");
    fs.rename(fs.root(), b"c", fs.root(), b"d").unwrap();
    assert_eq!(tree.confirm(&found).err().map(|failure| failure.errno), Some(code::STALE));
    // What is lost elsewhere is no matter.
    let found = find(b"d");
    fs.unlink(fs.root(), other.as_bytes()).unwrap();
    assert_eq!(tree.confirm(&found), Ok(()));
    drop((fs, tree, both));
    close(&held, &engine);
}

#[test]
fn what_is_made_to_be_open_is_so_before_anybody_can_remove_it() {
    let dir = tempfile::tempdir().unwrap();
    let (held, engine) = held(dir.path());
    let fs = held.system("tank").unwrap().unwrap().fs.clone();
    let file = NewObject::of(mode::FILE | 0o600, ROOT);
    let object = fs.create_held(fs.root(), b"a", &file).unwrap();
    let handle = Handle::held(Place { fs: fs.clone(), object });
    fs.unlink(fs.root(), b"a").unwrap();
    held.pool("tank").unwrap().sync().unwrap();
    assert_eq!(handle.place.znode().map(|znode| znode.links).ok(), Some(0));
    drop(handle);
    assert!(fs.attrs(object).is_err(), "it went with who had it open");
    drop(fs);
    close(&held, &engine);
}

#[test]
fn what_is_where_it_was_found_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let (held, mut engine) = held(dir.path());
    create(&mut engine, "tank/below");
    let tree = Tree::new(held.clone(), "tank").unwrap();
    let fs = held.system("tank").unwrap().unwrap().fs.clone();
    let make = |dir, name: &[u8], mode, target| {
        let new = NewObject { target, ..NewObject::of(mode | 0o755, ROOT) };
        fs.create(dir, name, &new).unwrap()
    };
    let dir = make(fs.root(), b"dir", mode::DIR, None);
    make(fs.root(), b"file", mode::FILE, None);
    make(dir, b"up", mode::SYMLINK, Some(&b"../file"[..]));
    make(dir, b"top", mode::SYMLINK, Some(&b".."[..]));
    for path in ["", "/", "dir", "file", "dir/up", "dir/top", "dir/top/below", "below"] {
        let found = tree.find(&Subject::ROOT, path.as_bytes(), true).unwrap();
        // By a task of the pool all file systems are opened anew.
        create(&mut engine, &format!("tank/{}", path.replace('/', "_") + "_"));
        let place = found.place.clone();
        let handle = Handle::of(&tree, found).map_err(|failure| failure.text);
        assert!(handle.is_ok_and(|handle| handle.place.is(&place)), "{path}");
    }
    drop((fs, tree));
    close(&held, &engine);
}

#[test]
fn the_last_name_is_found_where_it_is() {
    for (path, expected) in [
        ("", None),
        ("/", None),
        ("./.", None),
        ("a", Some(("", "a"))),
        ("/a", Some(("", "a"))),
        ("/a/b", Some(("/a", "b"))),
        ("a//b//", Some(("a/", "b"))),
        // What it is the name of is `a`, and not something in it.
        ("a/.", Some(("", "a"))),
        ("x/a/././/", Some(("x", "a"))),
        ("./a/.b", Some(("./a", ".b"))),
    ] {
        let found = split(path.as_bytes());
        let expected = expected.map(|(a, b): (&str, &str)| (a.as_bytes(), b.as_bytes()));
        assert_eq!(found, expected, "{path:?}");
        let last = names(path.as_bytes()).unwrap().last();
        assert_eq!(found.map(|(_, name)| name), last, "{path:?}");
    }
}
