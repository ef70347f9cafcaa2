//! What a file system says of itself: its master node, and how its attributes are laid out.
//!
//! The one idea of what is done without them, when a damaged pool is read: objects tell their type, attributes have
//! fixed numbers, and every layout begins with the same twelve of them, which user accounting relies on. Links
//! lose their targets then, and files their extended attributes, but no file its size. FORMAT: sections 11.1 to 11.3.

use dmu::{Objset, Zap};
use format::ObjectType;
use format::sa::{Layouts, Registry, SA_LAYOUTS, SA_REGISTRY, SaView};

use crate::attrs::Attrs;
use crate::error::{FsError, Result};
use crate::zpl::{self, ZPL_VERSION, key};

/// What a file system says of itself.
pub(crate) struct Own {
    pub(crate) root: u64,
    pub(crate) delete_queue: u64,
    pub(crate) version: u64,
    pub(crate) normflags: u64,
    pub(crate) case: u64,
    pub(crate) utf8_only: bool,
    pub(crate) registry: Registry,
    pub(crate) layouts: Layouts,
    /// Where new layouts are put.
    pub(crate) layouts_zap: Option<Zap>,
}

impl Own {
    /// As the file system called `name` has it.
    pub(crate) fn read(objset: &Objset, name: &str) -> Result<Own> {
        let no_root = || FsError::NotAFilesystem {
            name: name.into(),
            reason: "its master node has no root".into(),
        };
        let damaged = |object, source| FsError::Damaged { name: name.into(), object, source };
        let master = Zap::open(objset, zpl::MASTER_NODE)?;
        let word = |key| master.get_u64(key);
        let root = word(key::ROOT)?.ok_or_else(no_root)?;
        let sa = word(key::SA_ATTRS)?.unwrap_or(0);
        let (mut registry, mut layouts) = (Registry::default(), Layouts::default());
        let mut layouts_zap = None;
        if sa != 0 {
            let sa = Zap::open(objset, sa)?;
            if let Some(number) = sa.get_u64(SA_REGISTRY.as_bytes())? {
                registry = registry_of(&Zap::open(objset, number)?, |e| damaged(number, e))?;
            }
            if let Some(number) = sa.get_u64(SA_LAYOUTS.as_bytes())? {
                let zap = Zap::open(objset, number)?;
                layouts = layouts_of(&zap, |e| damaged(number, e))?;
                layouts_zap = Some(zap);
            }
        }
        Ok(Own {
            root,
            delete_queue: word(key::DELETE_QUEUE)?.unwrap_or(0),
            version: word(key::VERSION)?.unwrap_or(0),
            normflags: word(key::NORMALIZATION)?.unwrap_or(0),
            case: word(key::CASESENSITIVITY)?.unwrap_or(0),
            utf8_only: word(key::UTF8ONLY)?.unwrap_or(0) != 0,
            registry,
            layouts,
            layouts_zap,
        })
    }

    /// As far as it can be told without the objects in which it stands. `None`: there is no directory at all.
    pub(crate) fn from_ruins(objset: &Objset) -> Option<Own> {
        let (mut registry, mut layouts) = (Registry::standard(), Layouts::beginnings());
        let mut directories = Vec::new();
        let mut from = 0;
        while let Some((number, dnode)) = objset.next_object_left(from) {
            from = number + 1;
            let zap = || Zap::open(objset, number).map_err(FsError::from);
            let error = |e| FsError::Damaged { name: String::new(), object: number, source: e };
            match dnode.kind() {
                ObjectType::SA_ATTR_REGISTRATION => {
                    registry = zap().and_then(|zap| registry_of(&zap, error)).unwrap_or(registry);
                }
                ObjectType::SA_ATTR_LAYOUTS => {
                    layouts = zap().and_then(|zap| layouts_of(&zap, error)).unwrap_or(layouts);
                }
                ObjectType::DIRECTORY_CONTENTS => directories.push((number, dnode)),
                _ => {}
            }
        }
        // The root is its own parent. It is made first, too.
        let is_root = |(number, dnode): &&(u64, format::DnodePhys)| {
            let view = SaView::new(&registry, &layouts, dnode.bonus_kind(), dnode.bonus(), None);
            let attrs = view.and_then(|view| Attrs::parse(&view, dnode.bonus()));
            attrs.is_ok_and(|attrs| attrs.parent == *number)
        };
        let root = directories.iter().find(is_root).or(directories.first())?.0;
        Some(Own {
            root,
            delete_queue: 0,
            version: ZPL_VERSION,
            normflags: 0,
            case: 0,
            utf8_only: false,
            registry,
            layouts,
            layouts_zap: None,
        })
    }
}

fn registry_of(zap: &Zap, damaged: impl Fn(format::FormatError) -> FsError) -> Result<Registry> {
    let entries = zap.entries()?;
    let entries = entries.iter().map(|e| (e.name.as_slice(), e.value.as_u64().unwrap_or(0)));
    Registry::from_entries(entries).map_err(damaged)
}

fn layouts_of(zap: &Zap, damaged: impl Fn(format::FormatError) -> FsError) -> Result<Layouts> {
    let entries = zap.entries()?;
    let entries = entries.iter().map(|e| {
        let order = e.value.ints().into_iter().map(|i| i as u16).collect();
        (e.name.as_slice(), order)
    });
    Layouts::from_entries(entries).map_err(damaged)
}
