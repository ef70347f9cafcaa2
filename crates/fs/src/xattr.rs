//! Extended attributes: with the system attributes (xattr=sa) or in a hidden directory.
//!
//! FORMAT: section 11.6. A name includes its namespace ("user.", "security.").

use dmu::{Tx, Zap};
use format::nvlist::{NvList, Value};
use format::znode::Pflags;
use rt::sync::Arc;

use crate::attrs::{self, Attrs, mode};
use crate::error::{FsError, Refusal, Result, shown};
use crate::filesystem::Filesystem;
use crate::locks::Locked;
use crate::names::{NAME_MAX, entry_value};
use crate::new::{NewObject, Who};
use crate::protected::Change;
use crate::quota::Payers;

/// The longest value kept with the system attributes, in bytes.
const SA_VALUE_MAX: usize = 32 << 10;
/// The longest packed list kept with the system attributes, in bytes.
pub(crate) const SA_LIST_MAX: usize = 64_000;

/// Attributes in a hidden directory, at most: who writes the file or removes it looks at all of them, in one txg. The system lists
/// 64 KiB of names.
const HIDDEN_MAX: u64 = 4096;

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

/// Refuses a name that has no place in a directory or a list.
fn check_attribute(name: &[u8]) -> Result<()> {
    let bad = |reason| Err(FsError::BadName { path: shown(name), reason });
    match name.len() {
        0 => bad("Invalid argument"),
        1..=NAME_MAX if !name.contains(&0) => Ok(()),
        1..=NAME_MAX => bad("Invalid argument"),
        _ => Err(FsError::Refused { path: shown(name), why: Refusal::AttributeNameTooLong }),
    }
}

impl Filesystem {
    /// The attributes of an object; where extended ones are in a hidden directory, with its lock: a change takes one out
    /// there before it is elsewhere.
    fn attrs_with_hidden(&self, number: u64) -> Result<(Attrs, Option<Locked<'_>>)> {
        let attrs = self.attrs(number)?;
        if attrs.xattr_object.is_none() {
            return Ok((attrs, None));
        }
        let lock = self.lock(number);
        Ok((self.attrs(number)?, Some(lock)))
    }

    /// All extended attributes of an object, by name.
    pub fn xattrs(&self, number: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (attrs, _lock) = self.attrs_with_hidden(number)?;
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
                let value = self.hidden_value(&entry.name, entry.object)?;
                out.push((entry.name, value));
            }
        }
        out.sort();
        Ok(out)
    }

    /// One extended attribute of an object.
    pub fn xattr(&self, number: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let (attrs, _lock) = self.attrs_with_hidden(number)?;
        self.xattr_of(number, &attrs, name)
    }

    /// The same, of an object whose attributes are known, and that is locked if it has hidden ones.
    pub(crate) fn xattr_of(
        &self,
        number: u64,
        attrs: &Attrs,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if let Some(packed) = &attrs.xattrs {
            let list = NvList::parse(packed).map_err(|e| self.damaged(number, e))?;
            if let Some(Value::ByteArray(bytes)) = list.get(name) {
                return Ok(Some(bytes.clone()));
            }
        }
        let Some(dir) = attrs.xattr_object else { return Ok(None) };
        match self.lookup(dir, name)? {
            Some(entry) => Ok(Some(self.hidden_value(&entry.name, entry.object)?)),
            None => Ok(None),
        }
    }

    /// The names of the extended attributes of an object.
    pub fn xattr_names(&self, number: u64) -> Result<Vec<Vec<u8>>> {
        let (attrs, _lock) = self.attrs_with_hidden(number)?;
        let mut names: Vec<Vec<u8>> = match &attrs.xattrs {
            Some(packed) => {
                let list = unpack(packed).map_err(|e| self.damaged(number, e))?;
                list.into_iter().map(|(name, _)| name).collect()
            }
            None => Vec::new(),
        };
        if let Some(dir) = attrs.xattr_object {
            names.extend(self.read_dir(dir)?.into_iter().map(|entry| entry.name));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn hidden_value(&self, name: &[u8], object: u64) -> Result<Vec<u8>> {
        let size = self.attrs(object)?.size;
        if size > 1 << 20 {
            let reason = "an extended attribute of more than 1 MiB";
            return Err(FsError::Invalid { path: shown(name), reason });
        }
        let mut value = vec![0; size as usize];
        self.read(object, 0, &mut value)?;
        Ok(value)
    }

    /// Sets an extended attribute; `None` removes it.
    pub fn set_xattr(&self, number: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.set_xattr_if(number, name, value, None)
    }

    /// As [`Filesystem::set_xattr`]; it must be there, or must not, as `must_be` says.
    pub fn set_xattr_if(
        &self,
        number: u64,
        name: &[u8],
        value: Option<&[u8]>,
        must_be: Option<bool>,
    ) -> Result<()> {
        check_attribute(name)?;
        self.permit_to(number, Change::Attributes)?;
        let lock = self.lock(number);
        if let Some(value) = value.filter(|_| self.dataset.has_user_quotas()) {
            self.charge_xattr(number, name, value)?;
        }
        self.change_xattr(lock, number, name, value, must_be, |_| ())
    }

    /// Refuses a value that gets an object of its own, if one who pays for that has no more quota. What stands in the list is
    /// part of the file, as with OpenZFS. To be called with the object's lock, outside of any txg.
    fn charge_xattr(&self, number: u64, name: &[u8], value: &[u8]) -> Result<()> {
        let attrs = self.attrs(number)?;
        let mut list = self.xattr_list(number, &attrs)?;
        list.put(name, Value::ByteArray(value.to_vec()));
        if self.fits(number, value, &list)? {
            return Ok(());
        }
        let objects = match attrs.xattr_object {
            // The directory, too.
            None => 2,
            Some(dir) => u64::from(self.lookup(dir, name)?.is_none()),
        };
        self.charge(Payers::of(&attrs), value.len() as u64, objects)
    }

    /// The extended attributes that stand with the system attributes.
    fn xattr_list(&self, number: u64, attrs: &Attrs) -> Result<NvList> {
        match &attrs.xattrs {
            Some(packed) => NvList::parse(packed).map_err(|e| self.damaged(number, e)),
            None => Ok(NvList::new()),
        }
    }

    /// May a value stand in a list that has it?
    fn fits(&self, number: u64, value: &[u8], list: &NvList) -> Result<bool> {
        let packed = list.to_xdr().map_err(|e| self.damaged(number, e))?;
        Ok(self.xattr_sa() && value.len() <= SA_VALUE_MAX && packed.len() <= SA_LIST_MAX)
    }

    /// Sets an extended attribute of an object that is locked, by a name that can be, and in the same change other
    /// attributes.
    pub(crate) fn change_xattr(
        &self,
        lock: Locked<'_>,
        number: u64,
        name: &[u8],
        value: Option<&[u8]>,
        must_be: Option<bool>,
        change: impl FnOnce(&mut Attrs),
    ) -> Result<()> {
        let tx = self.enter(value.map_or(0, |v| v.len() as u64))?;
        let object = self.object(number)?;
        let mut attrs = self.attrs_of(&object)?;
        let mut list = self.xattr_list(number, &attrs)?;
        let had = list.remove(name).is_some();
        let in_dir = match attrs.xattr_object {
            Some(dir) => self.lookup(dir, name)?,
            None => None,
        };
        let is_there = had || in_dir.is_some();
        if !is_there && (value.is_none() || must_be == Some(true)) {
            return Err(FsError::NoAttribute { name: shown(name) });
        }
        if is_there && must_be == Some(false) {
            return Err(FsError::Exists { path: shown(name) });
        }
        let mut to_hide = None;
        if let Some(value) = value {
            let mut with = list.clone();
            with.put(name, Value::ByteArray(value.to_vec()));
            if self.fits(number, value, &with)? {
                list = with;
            } else {
                // Before the old value goes, and before anything is made.
                self.check_form(name)?;
                to_hide = Some(value);
            }
        }
        if let (Some(dir), Some(old)) = (attrs.xattr_object, &in_dir) {
            self.remove_hidden(&tx, dir, &old.name, old.object)?;
        }
        if let Some(value) = to_hide {
            self.put_hidden(&tx, number, &mut attrs, name, value)?;
        }
        attrs.xattrs = if list.is_empty() {
            None
        } else {
            Some(list.to_xdr().map_err(|e| self.damaged(number, e))?)
        };
        attrs.ctime = attrs::now();
        change(&mut attrs);
        self.set_attrs(&tx, &object, &attrs)?;
        self.tell_untold(&tx, number);
        drop((tx, lock));
        self.done(number)
    }

    /// Gives a new object extended attributes, and returns those that are to go into a hidden directory.
    pub(crate) fn give_xattrs<'a>(
        &self,
        attrs: &mut Attrs,
        xattrs: &'a [(&'a [u8], &'a [u8])],
    ) -> Result<&'a [(&'a [u8], &'a [u8])]> {
        if xattrs.is_empty() || !self.xattr_sa() {
            return Ok(xattrs);
        }
        let mut list = NvList::new();
        for (name, value) in xattrs {
            list.put(name, Value::ByteArray(value.to_vec()));
        }
        let packed = list.to_xdr().map_err(|e| self.damaged(0, e))?;
        if packed.len() > SA_LIST_MAX {
            return Ok(xattrs);
        }
        attrs.xattrs = Some(packed);
        Ok(&[])
    }

    pub(crate) fn remove_hidden(
        &self,
        tx: &Tx<'_>,
        dir: u64,
        name: &[u8],
        object: u64,
    ) -> Result<()> {
        let object = self.object(object)?;
        self.directory(dir)?.remove(tx, name)?;
        self.free_hidden(tx, &object)?;
        self.count_hidden(tx, dir, -1)
    }

    pub(crate) fn count_hidden(&self, tx: &Tx<'_>, dir: u64, entries: i64) -> Result<()> {
        let object = self.object(dir)?;
        self.change_znode(tx, &object, |znode| {
            znode.size = znode.size.saturating_add_signed(entries);
        })
    }

    /// Puts a value into the hidden directory, which is made if there is none; where the name gets no place, nothing stays of
    /// what was made for it.
    pub(crate) fn put_hidden(
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
        let (dir, made) = match attrs.xattr_object {
            Some(dir) if self.attrs(dir)?.size.saturating_sub(2) >= HIDDEN_MAX => {
                return Err(FsError::NoSpace { name: self.name() });
            }
            Some(dir) => (dir, None),
            None => {
                let mut hidden = new(mode::DIR);
                hidden.mode = mode::DIR | 0o755;
                let made = self.make(tx, number, &hidden, self.contents(&[]))?;
                (made.number(), Some(made))
            }
        };
        let put = || {
            let zap: Zap = self.directory(dir)?;
            let file = self.make(tx, dir, &new(mode::FILE), self.contents(value))?;
            let named = zap.put_u64(tx, name, entry_value(file.number(), mode::FILE));
            named.inspect_err(|_| self.unmake(tx, &file, None))?;
            self.count_hidden(tx, dir, 1)
        };
        put().inspect_err(|_| {
            made.iter().for_each(|made| self.unmake(tx, made, None));
        })?;
        attrs.xattr_object = Some(dir);
        Ok(())
    }

    /// An open object with its attributes.
    pub fn open_object(&self, number: u64) -> Result<(Arc<dmu::Object>, Attrs)> {
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        Ok((object, attrs))
    }
}
