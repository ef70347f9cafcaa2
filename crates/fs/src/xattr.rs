//! Extended attributes: with the system attributes (xattr=sa) or in a hidden directory.
//!
//! FORMAT: section 11.6. A name includes its namespace ("user.", "security.").

use dmu::{Tx, Zap};
use format::nvlist::{NvList, Value};
use format::znode::Pflags;
use rt::sync::Arc;

use crate::attrs::{self, Attrs, mode};
use crate::error::{FsError, Result, shown};
use crate::filesystem::{Filesystem, NewObject, Who};

/// The longest value kept with the system attributes, in bytes.
const SA_VALUE_MAX: usize = 32 << 10;
/// The longest packed list kept with the system attributes, in bytes.
const SA_LIST_MAX: usize = 64_000;

fn unpack(packed: &[u8]) -> format::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let list = NvList::parse(packed)?;
    let mut out = Vec::new();
    for pair in list.pairs() {
        if let Value::ByteArray(bytes) = &pair.value {
            out.push((pair.name.clone(), bytes.clone()));
        }
    }
    Ok(out)
}

impl Filesystem {
    /// All extended attributes of an object, by name.
    pub fn xattrs(&self, number: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let attrs = self.attrs(number)?;
        self.xattrs_of(number, &attrs)
    }

    /// All extended attributes of an object whose attributes are known.
    pub fn xattrs_of(&self, number: u64, attrs: &Attrs) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut out = match &attrs.xattrs {
            Some(packed) => unpack(packed).map_err(|e| self.damaged(number, e))?,
            None => Vec::new(),
        };
        if let Some(dir) = attrs.xattr_object {
            for entry in self.read_dir(dir)? {
                if out.iter().any(|(name, _)| *name == entry.name) {
                    continue;
                }
                let size = self.attrs(entry.object)?.size;
                if size > 1 << 20 {
                    let reason = "an extended attribute of more than 1 MiB";
                    return Err(FsError::Invalid { path: shown(&entry.name), reason });
                }
                let mut value = vec![0; size as usize];
                self.read(entry.object, 0, &mut value)?;
                out.push((entry.name, value));
            }
        }
        out.sort();
        Ok(out)
    }

    /// Sets an extended attribute; `None` removes it.
    pub fn set_xattr(&self, number: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let lock = self.lock(number);
        let tx = self.enter(value.map_or(0, |v| v.len() as u64))?;
        let object = self.object(number)?;
        let mut attrs = self.attrs_of(&object)?;
        let mut list = match &attrs.xattrs {
            Some(packed) => NvList::parse(packed).map_err(|e| self.damaged(number, e))?,
            None => NvList::new(),
        };
        let had = list.remove(name).is_some();
        let in_dir = match attrs.xattr_object {
            Some(dir) => self.lookup(dir, name)?,
            None => None,
        };
        if value.is_none() && !had && in_dir.is_none() {
            return Err(FsError::NoAttribute { name: shown(name) });
        }
        if let (Some(dir), Some(old)) = (attrs.xattr_object, &in_dir) {
            self.remove_hidden(&tx, dir, &old.name, old.object)?;
        }
        if let Some(value) = value {
            let mut with = list.clone();
            with.put(name, Value::ByteArray(value.to_vec()));
            let packed = with.to_xdr().map_err(|e| self.damaged(number, e))?;
            if self.xattr_sa && value.len() <= SA_VALUE_MAX && packed.len() <= SA_LIST_MAX {
                list = with;
            } else {
                self.put_hidden(&tx, number, &mut attrs, name, value)?;
            }
        }
        attrs.xattrs = if list.is_empty() {
            None
        } else {
            Some(list.to_xdr().map_err(|e| self.damaged(number, e))?)
        };
        attrs.ctime = attrs::now();
        self.set_attrs(&tx, &object, &attrs)?;
        self.tell_untold(&tx, number);
        drop((tx, lock));
        self.done(number)
    }

    pub(crate) fn remove_hidden(
        &self,
        tx: &Tx<'_>,
        dir: u64,
        name: &[u8],
        object: u64,
    ) -> Result<()> {
        self.directory(dir)?.remove(tx, name)?;
        self.free_hidden(tx, object)?;
        self.count_hidden(tx, dir, -1)
    }

    pub(crate) fn count_hidden(&self, tx: &Tx<'_>, dir: u64, entries: i64) -> Result<()> {
        let object = self.object(dir)?;
        self.change_znode(tx, &object, |znode| {
            znode.size = znode.size.saturating_add_signed(entries);
        })
    }

    /// Puts a value into the hidden directory, which is made if there is none.
    fn put_hidden(
        &self,
        tx: &Tx<'_>,
        number: u64,
        attrs: &mut Attrs,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let who = Who { uid: attrs.uid, gid: attrs.gid };
        let new =
            |kind: u32| NewObject { flags: Pflags::XATTR, ..NewObject::of(kind | 0o600, who) };
        let dir = match attrs.xattr_object {
            Some(dir) => dir,
            None => {
                let mut hidden = new(mode::DIR);
                hidden.mode = mode::DIR | 0o755;
                let made = self.make(tx, number, &hidden, self.contents(&[]))?.number();
                attrs.xattr_object = Some(made);
                made
            }
        };
        let file = self.make(tx, dir, &new(mode::FILE), self.contents(value))?;
        let zap: Zap = self.directory(dir)?;
        zap.put_u64(tx, name, 8 << 60 | file.number())?;
        self.count_hidden(tx, dir, 1)
    }

    /// An open object with its attributes.
    pub fn open_object(&self, number: u64) -> Result<(Arc<dmu::Object>, Attrs)> {
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        Ok((object, attrs))
    }
}
