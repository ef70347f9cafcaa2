//! Attributes that OpenZFS wrote: read as the kernel's stat and zdb say, built again to the byte.
//! `data/extract.py` says where the bytes come from.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use format::accounting::Owner;
use format::acl::{self, OldAcl};
use format::dirent::FileType;
use format::dxattr::Dxattr;
use format::sa::{Attr, Layouts, Registry, SaBuilder, SaView, bonus_max};
use format::znode::{Pflags, Time, Znode, device_number, device_parts, link_target};
use format::{ObjectType, master_node};
use serde_json::Value;

fn hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// One object and the file system it is in.
struct Object {
    row: Value,
    dataset: String,
    registry: Registry,
    layouts: Layouts,
    kind: ObjectType,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
}

impl Object {
    fn view(&self) -> SaView<'_> {
        let spill = self.spill.as_deref();
        SaView::new(&self.registry, &self.layouts, self.kind, &self.bonus, spill).unwrap()
    }

    fn znode(&self) -> Znode {
        Znode::read(&self.view()).unwrap()
    }

    fn name(&self) -> String {
        format!("{} object {}", self.dataset, self.row["object"])
    }

    fn is_old(&self) -> bool {
        self.kind == ObjectType::ZNODE
    }
}

const GOLDEN: &str = include_str!("data/sa.jsonl");
const EDGES: &str = include_str!("data/sa_edges.jsonl");

fn objects() -> Vec<Object> {
    let mut found: Vec<Object> = Vec::new();
    let mut set = (String::new(), Registry::default(), Layouts::default());
    for line in GOLDEN.lines().chain(EDGES.lines()) {
        let row: Value = serde_json::from_str(line).unwrap();
        if let Some(dataset) = row["dataset"].as_str() {
            let registry = row["registry"].as_object().unwrap();
            let registry = registry.iter().map(|(k, v)| (k.as_bytes(), v.as_u64().unwrap()));
            let layouts = row["layouts"].as_object().unwrap().iter().map(|(name, order)| {
                let order = order.as_array().unwrap();
                (name.as_bytes(), order.iter().map(|n| n.as_u64().unwrap() as u16).collect())
            });
            set = (
                dataset.to_owned(),
                Registry::from_entries(registry).unwrap(),
                Layouts::from_entries(layouts).unwrap(),
            );
            continue;
        }
        let (dataset, registry, layouts) = set.clone();
        let bonus = hex(row["bonus"].as_str().unwrap());
        let spill = row["spill"].as_str().map(hex);
        let kind = ObjectType(row["bonus_type"].as_u64().unwrap() as u8);
        found.push(Object { row, dataset, registry, layouts, kind, bonus, spill });
    }
    assert!(found.len() > 50);
    found
}

/// "SEC.NSEC" of the truth.
fn time(text: &Value) -> Time {
    let (secs, nanos) = text.as_str().unwrap().split_once('.').unwrap();
    Time { secs: secs.parse().unwrap(), nanos: nanos.parse().unwrap() }
}

#[test]
fn registries_and_master_nodes_are_as_we_make_them() {
    let mut sets = 0;
    for line in GOLDEN.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let Some(master) = row["master"].as_object() else { continue };
        let version = master[master_node::VERSION].as_u64().unwrap();
        assert_eq!(
            master.contains_key(master_node::SA_ATTRS),
            version >= master_node::ZPL_VERSION_SA
        );
        assert!(master.contains_key(master_node::ROOT));
        assert!(master.contains_key(master_node::DELETE_QUEUE));
        assert_eq!(master[master_node::CASE_SENSITIVITY], 0);
        if row["dataset"] == "mir/quota" {
            assert!(master_node::Quota::ALL.iter().all(|q| master.contains_key(q.key())));
        }
        let registry = row["registry"].as_object().unwrap();
        if version >= master_node::ZPL_VERSION_SA {
            let ours: Vec<_> = Registry::standard().entries().collect();
            assert_eq!(registry.len(), ours.len());
            for (name, value) in ours {
                assert_eq!(registry[name].as_u64(), Some(value), "{name}");
            }
            sets += 1;
        }
    }
    assert!(sets > 5);
}

#[test]
fn attributes_are_what_stat_and_zdb_say() {
    let (mut with_truth, mut devices, mut projects) = (0, 0, 0);
    for object in objects() {
        let (znode, name) = (object.znode(), object.name());
        let zdb = object.row["zdb"].as_object().unwrap();
        for (field, found) in [
            ("uid", znode.uid),
            ("gid", znode.gid),
            ("gen", znode.gen_txg),
            ("mode", znode.mode),
            ("size", znode.size),
            ("parent", znode.parent),
            ("links", znode.links),
            ("pflags", znode.flags),
            ("xattr", znode.xattr_object.unwrap_or(0)),
            ("rdev", znode.rdev.unwrap_or(0)),
            ("crtime", znode.crtime.secs as u64),
        ] {
            let said = zdb.get(field).map_or(0, |v| v.as_u64().unwrap());
            assert_eq!(said, found, "{name}: {field}");
        }
        let owner = Owner::of(object.kind, &object.bonus).unwrap().unwrap();
        let project = znode.project.unwrap_or(0);
        assert_eq!(owner, Owner { uid: znode.uid, gid: znode.gid, project }, "{name}");
        assert_eq!(znode.project.is_some(), znode.flags & Pflags::PROJID != 0, "{name}");
        projects += u32::from(project != 0);
        let Some(truth) = object.row["truth"].as_object() else { continue };
        with_truth += 1;
        let mode = u64::from_str_radix(truth["mode"].as_str().unwrap(), 8).unwrap();
        let kind = match truth["type"].as_str().unwrap() {
            "dir" => FileType::Directory,
            "file" => FileType::File,
            "link" => FileType::Link,
            "block" => FileType::Block,
            "char" => FileType::Char,
            "fifo" => FileType::Fifo,
            "socket" => FileType::Socket,
            other => panic!("{other}"),
        };
        assert_eq!(znode.mode, kind.mode_bits() | mode, "{name}");
        assert_eq!(znode.kind(), Some(kind), "{name}");
        assert_eq!(truth["size"].as_u64(), Some(znode.size), "{name}");
        assert_eq!(truth["nlink"].as_u64(), Some(znode.links), "{name}");
        assert_eq!(time(&truth["atime"]), znode.atime, "{name}");
        assert_eq!(time(&truth["mtime"]), znode.mtime, "{name}");
        assert_eq!(time(&truth["ctime"]), znode.ctime, "{name}");
        if let Some(rdev) = truth.get("rdev") {
            let (major, minor) = device_parts(znode.rdev.unwrap());
            assert_eq!((&rdev[0], &rdev[1]), (&major.into(), &minor.into()), "{name}");
            assert_eq!(Some(device_number(major, minor)), znode.rdev, "{name}");
            devices += 1;
        }
        if let Some(project) = truth.get("project") {
            assert_eq!(project.as_u64(), znode.project, "{name}");
        }
    }
    assert!(with_truth > 45 && devices > 1 && projects > 0);
}

#[test]
fn link_targets_are_those_of_readlink() {
    let (mut links, mut old, mut spilled) = (0, 0, 0);
    for object in objects() {
        let Some(target) = object.row["truth"]["target"].as_str() else { continue };
        let (view, size) = (object.view(), object.znode().size);
        let found = link_target(&view, &object.bonus, size).unwrap().unwrap();
        assert_eq!(found, target.as_bytes(), "{}", object.name());
        links += 1;
        old += u32::from(object.is_old());
        spilled += u32::from(object.spill.is_some());
    }
    assert!(links > 5 && old > 0 && spilled > 0);
}

#[test]
fn extended_attributes_are_those_of_getxattr() {
    let mut seen = 0;
    for object in objects() {
        let Some(bytes) = object.view().get(Attr::Dxattr).unwrap() else { continue };
        let xattrs = Dxattr::parse(bytes).unwrap();
        assert_eq!(xattrs.to_bytes().unwrap(), bytes, "{}", object.name());
        let Some(truth) = object.row["truth"]["xattrs"].as_object() else { continue };
        for (name, value) in xattrs.iter() {
            let name = std::str::from_utf8(name).unwrap();
            // Access ACLs of the kernel's mount come back with the ids translated; others as is.
            if let Some(text) = truth[name].as_str() {
                assert_eq!(hex(text), value, "{}: {name}", object.name());
                seen += 1;
            }
        }
        assert!(xattrs.iter().count() <= truth.len());
    }
    assert!(seen > 8);
}

/// Do the buffers hold the same attributes in the same bytes?
///
/// What lies between and behind them is left from earlier contents where OpenZFS wrote, 0 with us.
fn assert_same(object: &Object, bonus: &[u8], spill: Option<&[u8]>) {
    let name = object.name();
    assert_eq!(bonus.len(), object.bonus.len(), "{name}");
    assert_eq!(spill.map(<[u8]>::len), object.spill.as_ref().map(Vec::len), "{name}");
    let buffers = [(bonus, Some(&object.bonus)), (spill.unwrap_or(&[]), object.spill.as_ref())];
    let mut varying = [0, 0];
    for value in object.view().values() {
        let (number, place, _) = value.unwrap();
        let (ours, theirs) = buffers[usize::from(place.in_spill)];
        assert_eq!(ours[place.range.clone()], theirs.unwrap()[place.range], "{name}: {number}");
        let is_varying = object.registry.def(number).unwrap().length == 0;
        varying[usize::from(place.in_spill)] += usize::from(is_varying);
    }
    for ((ours, theirs), varying) in buffers.into_iter().zip(varying) {
        let Some(theirs) = theirs else { continue };
        let lengths_end = 6 + 2 * varying;
        assert_eq!(ours[..lengths_end], theirs[..lengths_end], "{name}: header");
    }
}

#[test]
fn rebuilding_gives_the_same_bytes() {
    let mut spilled = 0;
    for object in objects().into_iter().filter(|o| !o.is_old()) {
        let builder = SaBuilder::from_view(&object.view()).unwrap();
        let mut layouts = object.layouts.clone();
        let slots = object.row["slots"].as_u64().unwrap() as usize;
        let image = builder.build(&object.registry, &mut layouts, bonus_max(slots)).unwrap();
        assert_same(&object, &image.bonus, image.spill.as_deref());
        assert_eq!(layouts, object.layouts);
        spilled += u32::from(image.spill.is_some());
    }
    assert!(spilled > 6);
}

#[test]
fn building_from_fields_gives_the_same_bytes() {
    for object in objects().into_iter().filter(|o| !o.is_old()) {
        let (view, znode, registry) = (object.view(), object.znode(), &object.registry);
        let aces = view.get(Attr::DaclAces).unwrap().unwrap();
        let target = view.get(Attr::Symlink).unwrap();
        let mut builder = znode.builder(registry, aces, target).unwrap();
        if let Some(xattrs) = view.get(Attr::Dxattr).unwrap() {
            builder.set(registry.number(Attr::Dxattr).unwrap(), xattrs);
        }
        let mut layouts = object.layouts.clone();
        let slots = object.row["slots"].as_u64().unwrap() as usize;
        let image = builder.build(registry, &mut layouts, bonus_max(slots)).unwrap();
        assert_same(&object, &image.bonus, image.spill.as_deref());
    }
}

#[test]
fn patching_writes_every_field_at_its_place() {
    for mut object in objects() {
        let znode = object.znode();
        let other = Znode {
            mode: znode.mode ^ 0o777,
            size: !znode.size,
            gen_txg: 1,
            uid: 2,
            gid: 3,
            parent: 4,
            flags: 5 | znode.flags & Pflags::PROJID,
            atime: Time { secs: -1, nanos: 6 },
            mtime: Time { secs: 7, nanos: 8 },
            ctime: Time { secs: 9, nanos: 10 },
            crtime: Time { secs: 11, nanos: 12 },
            links: 13,
            project: znode.project.map(|_| 14),
            rdev: znode.rdev.map(|_| 15),
            xattr_object: znode.xattr_object.map(|_| 16),
            acl_count: znode.acl_count.map(|_| 17),
        };
        let (before, size) = (object.bonus.clone(), object.bonus.len());
        let (registry, layouts, kind) = (&object.registry, &object.layouts, object.kind);
        assert_eq!(other.patch(registry, layouts, kind, &mut object.bonus), Ok(true));
        assert_eq!(object.bonus.len(), size);
        assert_eq!(object.znode(), other, "{}", object.name());
        let (registry, layouts) = (&object.registry, &object.layouts);
        assert_eq!(znode.patch(registry, layouts, kind, &mut object.bonus), Ok(true));
        assert_eq!(object.bonus, before, "{}", object.name());
        let new = Znode { xattr_object: Some(18), rdev: Some(19), ..znode };
        if !object.is_old() {
            assert_eq!(new.patch(registry, layouts, kind, &mut object.bonus), Ok(false));
            assert_eq!(object.bonus, before);
        }
    }
}

#[test]
fn trivial_acls_and_flags_are_as_we_make_them() {
    let mut compared = 0;
    for object in objects() {
        let (view, znode, name) = (object.view(), object.znode(), object.name());
        let aces = if object.is_old() {
            let old = OldAcl::parse(view.get(Attr::ZnodeAcl).unwrap().unwrap()).unwrap();
            assert_eq!((old.object, old.version, usize::from(old.count)), (0, 1, old.aces.len()));
            old.aces
        } else {
            let bytes = view.get(Attr::DaclAces).unwrap().unwrap();
            let aces = acl::decode(bytes, znode.acl_count.unwrap()).unwrap();
            assert_eq!(acl::encode(&aces).unwrap(), bytes, "{name}");
            aces
        };
        let meaning = acl::meaning(&aces, znode.uid, znode.gid);
        let flagged = znode.flags & Pflags::NO_EXECS_DENIED != 0;
        assert_eq!(meaning.no_execs_denied, flagged, "{name}");
        // Under acltype=posix (pool mir) the kernel takes the umask off the mode only.
        let is_posix = object.dataset.starts_with("mir");
        if is_posix || znode.flags & Pflags::XATTR != 0 {
            continue;
        }
        assert_eq!(meaning.permissions, znode.mode & 0o777, "{name}");
        // The files whose mode was changed after they were made.
        let path = object.row["truth"]["path"].as_str().unwrap_or("");
        let of_edges = object.dataset == "sat/modes" && object.row["name"].as_str().unwrap() >= "h";
        let changed = of_edges || path.starts_with("attrs/m") || path == "special/blk";
        let made = if changed { acl::trivial_changed } else { acl::trivial_new };
        assert_eq!(aces, made(znode.mode), "{name}");
        let kind = znode.kind().unwrap();
        let with_project = znode.project.is_some();
        let made = Znode::new(kind, znode.mode, with_project);
        assert_eq!((made.mode, made.project), (znode.mode, znode.project), "{name}");
        if !object.is_old() {
            assert_eq!(made.acl_count, znode.acl_count, "{name}");
        }
        let chosen = Pflags::IMMUTABLE | Pflags::APPENDONLY | Pflags::NODUMP;
        assert_eq!(made.flags, znode.flags & !chosen, "{name}");
        compared += 1;
    }
    assert!(compared > 40);
}
