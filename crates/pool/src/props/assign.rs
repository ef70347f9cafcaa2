//! Setting: from `name=value` as a user writes it to the key and value that go to disk.
//!
//! Everything is checked that the property, the kind of data set and the two texts decide alone;
//! what depends on the pool (space, quotas, encryption) is checked where it is known. The wording
//! is OpenZFS's, because scripts read it.

use super::dataset::{Access, Form, Kind, Prop, Unit};
use super::number::{NumberError, nice_bytes, parse_number};
use super::share;
use super::space::SpaceProp;

/// Bytes in the name of a user property, at most.
pub const USER_NAME_MAX: usize = 255;
/// Bytes in a property's text, at most.
pub const TEXT_MAX: usize = 8191;
/// Bytes in the text of a native property, at most.
pub const NATIVE_TEXT_MAX: usize = 4095;
/// Bytes between two slashes of a mount point, at most.
const COMPONENT_MAX: usize = 255;
/// Record size of a pool with large blocks, in bytes, at most.
pub const RECORD_SIZE_MAX: u64 = 1 << 20;
/// The largest block of the format in bytes: the limit where no pool is known yet.
pub const BLOCK_SIZE_MAX: u64 = 16 << 20;

/// A value as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number: also a word's.
    Number(u64),
    /// A text, without the NUL that ends it on disk.
    Text(Vec<u8>),
}

impl Value {
    /// A text.
    #[must_use]
    pub fn text(text: impl AsRef<[u8]>) -> Value {
        Value::Text(text.as_ref().to_vec())
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

/// What a property's name names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A native property.
    Native(Prop),
    /// A user's own property, by name.
    User(String),
    /// Space or quota of one user, group or project.
    Space(SpaceProp),
    /// `written@SNAPSHOT` or `written#BOOKMARK`, the part after the word with its sign.
    Written(String),
}

impl Key {
    /// The key of a name; `None` if nothing has such a name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Key> {
        if let Some(prop) = Prop::named(name) {
            return Some(Key::Native(prop));
        }
        Key::beyond_native(name)
    }

    /// As [`Key::named`], and native ones by the heading of their column, in small letters, too.
    #[must_use]
    pub fn named_or_column(name: &[u8]) -> Option<Key> {
        if let Some(prop) = Prop::named_or_column(name) {
            return Some(Key::Native(prop));
        }
        Key::beyond_native(name)
    }

    fn beyond_native(name: &[u8]) -> Option<Key> {
        if let Some(space) = SpaceProp::named(name) {
            return Some(Key::Space(space));
        }
        let text = std::str::from_utf8(name).ok()?;
        if let Some(origin) = text.strip_prefix("written")
            && (origin.starts_with('@') || origin.starts_with('#'))
        {
            return Some(Key::Written(origin.into()));
        }
        is_user_property(name).then(|| Key::User(text.into()))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Key::Native(prop) => prop.name().into(),
            Key::User(name) => name.clone(),
            Key::Space(space) => space.name(),
            Key::Written(origin) => format!("written{origin}"),
        }
    }
}

/// True for the name of a user property: a colon and small letters, digits, `:`, `.`, `-`, `_`.
#[must_use]
pub fn is_user_property(name: &[u8]) -> bool {
    name.contains(&b':')
        && name.iter().all(|c| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b':' | b'.' | b'-' | b'_')
        })
}

/// On what a property is set.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The kind of data set.
    pub kind: Kind,
    /// It is being made, so that properties of creation time can be given.
    pub creating: bool,
    /// It is encrypted.
    pub encrypted: bool,
    /// The largest record of the pool, in bytes.
    pub record_size_max: u64,
}

impl Target {
    /// A data set that is there, of a pool that knows large blocks.
    #[must_use]
    pub fn existing(kind: Kind) -> Target {
        Target { kind, creating: false, encrypted: false, record_size_max: RECORD_SIZE_MAX }
    }

    /// A data set that is being made.
    #[must_use]
    pub fn new(kind: Kind) -> Target {
        Target { creating: true, ..Target::existing(kind) }
    }
}

/// Why a property cannot be set so. The text is the reason; who asks says what could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropError {
    /// There is no such property.
    #[error("invalid property '{0}'")]
    Unknown(String),
    /// Nobody sets it.
    #[error("'{0}' is readonly")]
    ReadOnly(String),
    /// The kind of data set has no such property.
    #[error("'{0}' does not apply to datasets of this type")]
    WrongKind(String),
    /// Only user properties can be set on snapshots.
    #[error("this property can not be modified for snapshots")]
    Snapshot,
    /// The value is none of the words.
    #[error("'{name}' must be one of '{words}'")]
    Word {
        /// The property.
        name: &'static str,
        /// The words.
        words: &'static str,
    },
    /// The value is no number.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// The size is no power of two, or out of bounds.
    #[error("'{name}' must be power of 2 from 512B to {}", nice_bytes(*max))]
    PowerOfTwo {
        /// The property.
        name: &'static str,
        /// The largest size in bytes.
        max: u64,
    },
    /// As [`PropError::PowerOfTwo`], where 0 is allowed.
    #[error(
        "invalid '{name}={value}' property: must be zero or a power of 2 from 512B to {}",
        nice_bytes(*max)
    )]
    ZeroOrPowerOfTwo {
        /// The property.
        name: &'static str,
        /// The value given.
        value: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// A quota of 0 would forbid everything.
    #[error("use 'none' to disable quota/refquota")]
    ZeroQuota,
    /// A size of 0 makes no sense.
    #[error("'{0}' cannot be zero")]
    Zero(&'static str),
    /// `auto` where it means nothing.
    #[error("'{0}=auto' only allowed on volumes")]
    AutoOnVolumes(&'static str),
    /// `auto` for another property.
    #[error("'auto' is invalid value for '{0}'")]
    Auto(&'static str),
    /// Not a place to mount.
    #[error("'{0}' must be an absolute path, 'none', or 'legacy'")]
    Mountpoint(&'static str),
    /// The name of a user property is too long.
    #[error("property name '{0}' is too long")]
    NameTooLong(String),
    /// The value is too long.
    #[error("property value too long")]
    TextTooLong,
    /// The value of a native property is too long.
    #[error("'{0}' is too long")]
    TooLong(&'static str),
    /// A part of a path is too long.
    #[error("component of '{0}' is too long")]
    ComponentTooLong(&'static str),
    /// Not what can be said of a share.
    #[error("'{0}' cannot be set to invalid options")]
    ShareOptions(&'static str),
    /// Labels of Trusted Solaris.
    #[error("mlslabels are unsupported")]
    Mlslabel,
    /// A key's place for a data set that has no key.
    #[error("keylocation must be 'none' for unencrypted datasets")]
    KeyWithoutEncryption,
    /// No key's place for a data set that has a key.
    #[error("keylocation must not be 'none' for encrypted datasets")]
    NoKeyWithEncryption,
    /// A copy's room is taken by the authentication of encrypted blocks.
    #[error("encrypted datasets cannot have 3 copies")]
    CopiesOfEncrypted,
    /// Names cannot be normalized that need not be text.
    #[error("'utf8only' must be set 'on' if normalization chosen")]
    NormalizedBytes,
    /// The part after the `@` is no user, group or project.
    #[error("'{0}' has an invalid user/group name")]
    Who(String),
    /// A property that encryption has, without encryption.
    #[error("Encryption must be turned on to set encryption properties.")]
    EncryptionProperty,
    /// Encrypted data sets cannot be made.
    #[error("encrypted data sets are read and verified, but not made")]
    Encryption,
}

impl PropError {
    fn unknown(name: &[u8]) -> PropError {
        PropError::Unknown(String::from_utf8_lossy(name).into_owned())
    }
}

/// Reads an assignment: the key, and the value as it goes to disk.
///
/// # Errors
/// [`PropError`] says why not.
pub fn assign(name: &[u8], value: &[u8], target: &Target) -> Result<(Key, Value), PropError> {
    let key = Key::named_or_column(name).ok_or_else(|| PropError::unknown(name))?;
    match &key {
        Key::User(name) => {
            if name.len() > USER_NAME_MAX {
                return Err(PropError::NameTooLong(name.clone()));
            }
            if value.len() > TEXT_MAX {
                return Err(PropError::TextTooLong);
            }
            return Ok((key, Value::text(value)));
        }
        _ if matches!(target.kind, Kind::Snapshot | Kind::Bookmark) => {
            return Err(PropError::Snapshot);
        }
        Key::Space(space) => {
            if !space.is_quota() {
                return Err(PropError::ReadOnly(space.name()));
            }
            let value = if value == b"none" { 0 } else { parse_number(value)? };
            return Ok((key, Value::Number(value)));
        }
        Key::Written(_) => return Err(PropError::ReadOnly(key.name())),
        Key::Native(_) => {}
    }
    let Key::Native(prop) = key else { return Err(PropError::unknown(name)) };
    let info = prop.info();
    if !info.applies.contains(target.kind) {
        return Err(PropError::WrongKind(prop.name().into()));
    }
    let settable = match info.access {
        Access::Computed => false,
        Access::Inherited | Access::Own => true,
        Access::Once | Access::OnceOwn => target.creating,
    };
    if !settable {
        return Err(PropError::ReadOnly(prop.name().into()));
    }
    let value = match info.form {
        Form::Words(words) => {
            let word = PropError::Word { name: prop.name(), words: words.hint };
            Value::Number(words.number(value).ok_or(word)?)
        }
        Form::Text => text_of(prop, value)?,
        Form::Number(unit) => Value::Number(number_of(prop, unit, value, target)?),
    };
    check(prop, &value, target)?;
    Ok((key, value))
}

fn text_of(prop: Prop, value: &[u8]) -> Result<Value, PropError> {
    if value.len() > NATIVE_TEXT_MAX {
        return Err(PropError::TooLong(prop.name()));
    }
    match prop {
        Prop::Mountpoint => {
            let place = value.starts_with(b"/") || value == b"none" || value == b"legacy";
            if !place {
                return Err(PropError::Mountpoint(prop.name()));
            }
            if value.split(|byte| *byte == b'/').any(|part| part.len() > COMPONENT_MAX) {
                return Err(PropError::ComponentTooLong(prop.name()));
            }
        }
        Prop::Sharenfs if !share::is_nfs(value) => {
            return Err(PropError::ShareOptions(prop.name()));
        }
        Prop::Sharesmb if !share::is_smb(value) => {
            return Err(PropError::ShareOptions(prop.name()));
        }
        Prop::Mlslabel => return Err(PropError::Mlslabel),
        _ => {}
    }
    Ok(Value::text(value))
}

fn number_of(prop: Prop, unit: Unit, value: &[u8], target: &Target) -> Result<u64, PropError> {
    match value {
        b"none" if unit == Unit::Tally => return Ok(u64::MAX),
        b"none" => return Ok(0),
        b"auto" if prop == Prop::Refreservation && target.kind == Kind::Volume => {
            return Ok(u64::MAX);
        }
        b"auto" if prop == Prop::Refreservation => {
            return Err(PropError::AutoOnVolumes(prop.name()));
        }
        b"auto" => return Err(PropError::Auto(prop.name())),
        _ => {}
    }
    let number = parse_number(value)?;
    if number == 0 && matches!(prop, Prop::Quota | Prop::Refquota) {
        return Err(PropError::ZeroQuota);
    }
    Ok(number)
}

/// What the value must be besides of the right form.
fn check(prop: Prop, value: &Value, target: &Target) -> Result<(), PropError> {
    let is_block = |size: u64, max: u64| size.is_power_of_two() && (512..=max).contains(&size);
    match (prop, value) {
        (Prop::Recordsize | Prop::Volblocksize, Value::Number(size)) => {
            let max = target.record_size_max;
            if !is_block(*size, max) {
                return Err(PropError::PowerOfTwo { name: prop.name(), max });
            }
        }
        (Prop::SpecialSmallBlocks, Value::Number(size)) => {
            let max = target.record_size_max.min(RECORD_SIZE_MAX);
            if *size != 0 && !is_block(*size, max) {
                let (name, value) = (prop.name(), *size);
                return Err(PropError::ZeroOrPowerOfTwo { name, value, max });
            }
        }
        (Prop::Volsize, Value::Number(0)) => return Err(PropError::Zero(prop.name())),
        (Prop::Copies, Value::Number(3)) if target.encrypted => {
            return Err(PropError::CopiesOfEncrypted);
        }
        (Prop::Keylocation, Value::Text(place)) if !target.creating => {
            let none = place == b"none";
            if !target.encrypted && !none {
                return Err(PropError::KeyWithoutEncryption);
            }
            if target.encrypted && none {
                return Err(PropError::NoKeyWithEncryption);
            }
        }
        (Prop::Encryption, Value::Number(suite)) if *suite != 2 => {
            return Err(PropError::Encryption);
        }
        (Prop::Keylocation, Value::Text(place)) if place != b"none" => {
            return Err(PropError::EncryptionProperty);
        }
        (Prop::Keyformat | Prop::Pbkdf2iters, Value::Number(n)) if *n != 0 => {
            return Err(PropError::EncryptionProperty);
        }
        _ => {}
    }
    Ok(())
}
