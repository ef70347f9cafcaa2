//! Extended attributes: their names on disk, and who may see them.
//!
//! OpenZFS on Linux stores names as they are, with their namespace; on other systems those of users without one. Both
//! are read; what is set is stored as on Linux. Access control lists are attributes with a meaning (`fs::acl`).

use fs::{FsError, acl};
use fuser::{Errno, Request};

use crate::door::{Answer, Door, errno};
use crate::nodes::Place;

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
/// setxattr(2): the attribute must not be there.
const CREATE: i32 = 1;
/// setxattr(2): the attribute must be there.
const REPLACE: i32 = 2;
const BOTH: i32 = CREATE | REPLACE;

/// What a name is for.
enum Name<'a> {
    /// A value that only means something to who has set it.
    Plain,
    /// One of a user, with its name in pools of other systems.
    User(&'a [u8]),
    /// An access control list.
    Acl,
}

fn has_namespace(name: &[u8]) -> bool {
    [USER, TRUSTED, SECURITY, b"system."].iter().any(|space| name.starts_with(space))
}

impl Door {
    fn sort<'a>(&self, name: &'a [u8]) -> Answer<Name<'a>> {
        if name == acl::ACCESS || name == acl::DEFAULT {
            return if self.props().acl { Ok(Name::Acl) } else { Err(Errno::EOPNOTSUPP) };
        }
        if !self.props().xattr {
            return Err(Errno::EOPNOTSUPP);
        }
        // A namespace is no name.
        if [USER, TRUSTED, SECURITY].contains(&name) {
            return Err(Errno::EINVAL);
        }
        match name.strip_prefix(USER) {
            Some(rest) => Ok(Name::User(rest)),
            None if name.starts_with(TRUSTED) || name.starts_with(SECURITY) => Ok(Name::Plain),
            None => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The value of an attribute.
    pub(crate) fn xattr(&self, place: &Place, name: &[u8]) -> Answer<Vec<u8>> {
        let get = |name: &[u8]| place.fs.xattr(place.object, name).map_err(|e| errno(&e));
        let found = match self.sort(name)? {
            Name::User(bare) => match get(name)? {
                None if !has_namespace(bare) => get(bare)?,
                found => found,
            },
            Name::Plain | Name::Acl => get(name)?,
        };
        found.ok_or(Errno::ENODATA)
    }

    /// The names of all attributes that somebody may see, each with a NUL.
    pub(crate) fn xattr_names(&self, place: &Place, is_root: bool) -> Answer<Vec<u8>> {
        let props = self.props();
        let mut list = Vec::new();
        for name in place.fs.xattr_names(place.object).map_err(|e| errno(&e))? {
            let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
            let is_hidden = name.starts_with(b"system.") || name.starts_with(TRUSTED) && !is_root;
            let shown = if is_acl { props.acl } else { props.xattr && !is_hidden };
            if !shown {
                continue;
            }
            if !has_namespace(&name) {
                list.extend_from_slice(USER);
            }
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// Sets an attribute.
    pub(crate) fn set_xattr(
        &self,
        req: &Request,
        place: &Place,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        let must_be = match flags {
            0 => None,
            CREATE => Some(false),
            REPLACE => Some(true),
            // Nothing is both; which of them it is not is told.
            BOTH => return self.xattr(place, name).and(Err(Errno::EEXIST)),
            _ => return Err(Errno::EINVAL),
        };
        let (fs, object) = (&place.fs, place.object);
        let done = match self.sort(name)? {
            // Whether he is in the file's group by another one of his is not told: then he can set the bit anew.
            Name::Acl => fs.set_acl(object, name, Some(value), (req.uid(), req.gid())),
            Name::Plain => fs.set_xattr_if(object, name, Some(value), must_be),
            Name::User(bare) => {
                let other = match has_namespace(bare) {
                    true => None,
                    false => fs.xattr(object, bare).map_err(|e| errno(&e))?,
                };
                match (other, must_be) {
                    (None, _) => fs.set_xattr_if(object, name, Some(value), must_be),
                    (Some(_), Some(false)) => return Err(Errno::EEXIST),
                    (Some(_), _) => fs
                        .set_xattr(object, name, Some(value))
                        .and_then(|()| fs.set_xattr(object, bare, None)),
                }
            }
        };
        done.map_err(|e| errno(&e))
    }

    /// Takes an attribute away.
    pub(crate) fn remove_xattr(&self, place: &Place, name: &[u8]) -> Answer<()> {
        let (fs, object) = (&place.fs, place.object);
        let gone = match self.sort(name)? {
            Name::Acl => fs.set_acl(object, name, None, (0, 0)),
            Name::Plain => fs.set_xattr(object, name, None),
            Name::User(bare) => match fs.set_xattr(object, name, None) {
                Err(FsError::NoAttribute { .. }) if !has_namespace(bare) => {
                    fs.set_xattr(object, bare, None)
                }
                gone => gone,
            },
        };
        gone.map_err(|e| errno(&e))
    }
}
