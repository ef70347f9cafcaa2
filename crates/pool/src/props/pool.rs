//! The properties of pools, in the order in which `zpool get all` prints them.

use super::dataset::DefaultValue;
use super::number::{NumberError, parse_number};
use super::words::{FAILMODE, ON_OFF, Words};
use super::{Value, name};

/// How a pool property's value is made.
#[derive(Clone, Copy, Debug)]
pub enum PoolForm {
    /// A number of bytes or a count, shortened.
    Size,
    /// As [`PoolForm::Size`], and `-` for 0.
    SizeIfAny,
    /// A share in percent.
    Percent,
    /// Hundredths.
    Ratio,
    /// A number in full.
    Plain,
    /// A text.
    Text,
    /// One of some words.
    Words(&'static Words),
}

/// When a pool property can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAccess {
    /// Never: the engine computes it.
    Computed,
    /// When the pool is made, imported or at any time.
    Settable,
    /// When the pool is made or imported.
    AtOpen,
    /// When the pool is imported.
    AtImport,
    /// Once the pool is there.
    Later,
}

/// One row of the table.
#[derive(Debug)]
pub struct PoolProperty {
    /// The property.
    pub prop: PoolProp,
    /// Its name, also its key in the MOS.
    pub name: &'static str,
    /// The heading of its column.
    pub column: &'static str,
    /// When it can be given.
    pub access: PoolAccess,
    /// Its value if nobody set it.
    pub default: DefaultValue,
    /// How its value is made.
    pub form: PoolForm,
    /// What usage says of its values; empty for those that are not listed.
    pub hint: &'static str,
}

macro_rules! properties {
    ($($prop:ident $name:literal $column:literal $access:ident $default:expr,
        $form:expr, $hint:expr;)*) => {
        /// A native property of pools.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are OpenZFS's, in zpoolprops(7)")]
        pub enum PoolProp { $($prop),* }

        static TABLE: &[PoolProperty] = &[$(PoolProperty {
            prop: PoolProp::$prop,
            name: $name,
            column: $column,
            access: PoolAccess::$access,
            default: $default,
            form: $form,
            hint: $hint,
        }),*];
    };
}

use DefaultValue::{None as NONE, Number as N, Text as T};
use PoolForm::{Percent, Plain, Ratio, Size, SizeIfAny, Text, Words as W};

const COMPAT: &str = "<file[,file...]> | off | legacy";
const DEDUP: &str = "<1.00x or higher if deduped>";
const SHIFT: &str = "<ashift, 9-16, or 0=default>";

properties! {
    Name          "name"          "NAME"          Computed NONE,   Text, "";
    Size          "size"          "SIZE"          Computed NONE,   Size, "<size>";
    Capacity      "capacity"      "CAP"           Computed NONE,   Percent, "<size>";
    Altroot       "altroot"       "ALTROOT"       AtOpen   NONE,   Text, "<path>";
    Health        "health"        "HEALTH"        Computed NONE,   Text, "<state>";
    Guid          "guid"          "GUID"          Computed NONE,   Plain, "<guid>";
    Version       "version"       "VERSION"       Settable N(5000), Plain, "<version>";
    Bootfs        "bootfs"        "BOOTFS"        Later    NONE,   Text, "<filesystem>";
    Delegation    "delegation"    "DELEGATION"    Settable N(1),   W(&ON_OFF), ON_OFF.hint;
    Autoreplace   "autoreplace"   "REPLACE"       Settable N(0),   W(&ON_OFF), ON_OFF.hint;
    Cachefile     "cachefile"     "CACHEFILE"     Settable NONE,   Text, "<file> | none";
    Failmode      "failmode"      "FAILMODE"      Settable N(0),   W(&FAILMODE), FAILMODE.hint;
    Listsnapshots "listsnapshots" "LISTSNAPS"     Settable N(0),   W(&ON_OFF), ON_OFF.hint;
    Autoexpand    "autoexpand"    "EXPAND"        Settable N(0),   W(&ON_OFF), ON_OFF.hint;
    Dedupditto    "dedupditto"    "DEDUPDITTO"    Settable N(0),   Plain, "";
    Dedupratio    "dedupratio"    "DEDUP"         Computed NONE,   Ratio, DEDUP;
    Free          "free"          "FREE"          Computed NONE,   Size, "<size>";
    Allocated     "allocated"     "ALLOC"         Computed NONE,   Size, "<size>";
    Readonly      "readonly"      "RDONLY"        AtImport NONE,   W(&ON_OFF), ON_OFF.hint;
    Ashift        "ashift"        "ASHIFT"        Settable N(0),   Plain, SHIFT;
    Comment       "comment"       "COMMENT"       Settable NONE,   Text, "<comment-string>";
    Expandsize    "expandsize"    "EXPANDSZ"      Computed NONE,   SizeIfAny, "<size>";
    Freeing       "freeing"       "FREEING"       Computed NONE,   Size, "<size>";
    Fragmentation "fragmentation" "FRAG"          Computed NONE,   Percent, "<percent>";
    Leaked        "leaked"        "LEAKED"        Computed NONE,   Size, "<size>";
    Maxblocksize  "maxblocksize"  "MAXBLOCKSIZE"  Computed NONE,   Plain, "";
    Tname         "tname"         "TNAME"         AtOpen   NONE,   Text, "";
    Maxdnodesize  "maxdnodesize"  "MAXDNODESIZE"  Computed NONE,   Plain, "";
    Multihost     "multihost"     "MULTIHOST"     Settable N(0),   W(&ON_OFF), ON_OFF.hint;
    Checkpoint    "checkpoint"    "CKPOINT"       Computed NONE,   SizeIfAny, "<size>";
    LoadGuid      "load_guid"     "LOAD_GUID"     Computed NONE,   Plain, "<load_guid>";
    Autotrim      "autotrim"      "AUTOTRIM"      Settable N(0),   W(&ON_OFF), ON_OFF.hint;
    Compatibility "compatibility" "COMPATIBILITY" Settable T("off"), Text, COMPAT;
}

impl PoolProp {
    /// All properties, unlisted ones too.
    pub fn all() -> impl Iterator<Item = PoolProp> {
        TABLE.iter().map(|row| row.prop)
    }

    /// The property's row.
    #[must_use]
    pub fn info(self) -> &'static PoolProperty {
        TABLE.get(self as usize).expect("the table is made from the same rows as the enumeration")
    }

    /// The property's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The property of a name, exactly as written.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<PoolProp> {
        TABLE.iter().find(|row| row.name.as_bytes() == name).map(|row| row.prop)
    }

    /// The property of a name or of a column heading in small letters (`cap`, `alloc`).
    #[must_use]
    pub fn named_or_column(name: &[u8]) -> Option<PoolProp> {
        let row = TABLE.iter().find(|row| {
            row.name.as_bytes() == name || row.column.to_ascii_lowercase().as_bytes() == name
        });
        row.map(|row| row.prop)
    }

    /// True if `all` lists the property.
    #[must_use]
    pub fn is_visible(self) -> bool {
        !self.info().hint.is_empty()
    }

    /// True if the property is shown right-aligned.
    #[must_use]
    pub fn is_right_aligned(self) -> bool {
        self == PoolProp::Health || !matches!(self.info().form, Text | PoolForm::Words(_))
    }

    /// The least width of the property's column, in bytes, as OpenZFS lays it out.
    #[must_use]
    pub fn width(self) -> usize {
        let least = match self.info().form {
            Text if self == PoolProp::Health => 8,
            Text => 0,
            PoolForm::Words(words) => words.width(),
            _ => 5,
        };
        least.max(self.info().column.len())
    }

    /// True if the column grows with what is in it; others let long values stick out.
    #[must_use]
    pub fn is_elastic(self) -> bool {
        let text = matches!(self.info().form, Text) && self != PoolProp::Health;
        text || self == PoolProp::Size
    }
}

/// The value of a property that nobody set.
#[must_use]
pub fn default_pool_value(prop: PoolProp) -> Option<Value> {
    match prop.info().default {
        DefaultValue::None => None,
        DefaultValue::Number(number) => Some(Value::Number(number)),
        DefaultValue::Text(text) => Some(Value::text(text)),
    }
}

/// What a pool property's name names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PoolKey {
    /// A native property.
    Native(PoolProp),
    /// `feature@NAME`, the name of the feature alone.
    Feature(String),
    /// `unsupported@GUID`, the guid alone.
    Unsupported(String),
}

impl PoolKey {
    /// The key of a name or column heading.
    #[must_use]
    pub fn named_or_column(name: &[u8]) -> Option<PoolKey> {
        if let Some(prop) = PoolProp::named_or_column(name) {
            return Some(PoolKey::Native(prop));
        }
        let text = std::str::from_utf8(name).ok()?;
        if let Some(feature) = text.strip_prefix("feature@") {
            return Some(PoolKey::Feature(feature.into()));
        }
        Some(PoolKey::Unsupported(text.strip_prefix("unsupported@")?.into()))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            PoolKey::Native(prop) => prop.name().into(),
            PoolKey::Feature(name) => format!("feature@{name}"),
            PoolKey::Unsupported(guid) => format!("unsupported@{guid}"),
        }
    }
}

/// When a pool property is being set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The pool is being made.
    Create,
    /// The pool is being imported.
    Import,
    /// The pool is open.
    Open,
}

/// Why a pool property cannot be set so. The text is the reason alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolPropError {
    /// There is no such property.
    #[error("invalid property '{0}'")]
    Unknown(String),
    /// Nobody sets it.
    #[error("'{0}' is readonly")]
    ReadOnly(&'static str),
    /// There is no such feature.
    #[error("feature '{0}' unsupported by kernel")]
    NoFeature(String),
    /// A feature is `enabled` or `disabled`.
    #[error("property 'feature@{0}' can only be set to 'enabled' or 'disabled'")]
    FeatureValue(String),
    /// A feature cannot be taken away.
    #[error("property 'feature@{0}' can only be set to 'disabled' at creation time")]
    FeatureDisabled(String),
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
    /// The number is not allowed.
    #[error("property '{0}' number {1} is invalid.")]
    Version(&'static str, u64),
    /// The sector size is out of bounds.
    #[error(
        "property '{name}' number {value} is invalid, only values between 9 and 16 are allowed."
    )]
    Shift {
        /// The property.
        name: &'static str,
        /// The value given.
        value: u64,
    },
    /// It belongs to a pool that is there.
    #[error("property '{0}' cannot be set at creation or import time")]
    Later(&'static str),
    /// It belongs to opening the pool.
    #[error("property '{0}' can only be set during pool creation or import")]
    AtOpen(&'static str),
    /// It belongs to making the pool.
    #[error("property '{0}' can only be set at creation time")]
    AtCreate(&'static str),
    /// It belongs to importing the pool.
    #[error("property '{0}' can only be set at import time")]
    AtImport(&'static str),
    /// The path is not absolute.
    #[error("bad alternate root '{0}'")]
    Root(String),
    /// The path is not absolute.
    #[error("property '{0}' must be empty, an absolute path, or 'none'")]
    Path(&'static str),
    /// The comment has other bytes than printable ones.
    #[error("comment may only have printable characters")]
    CommentBytes,
    /// The comment is too long.
    #[error("comment must not exceed 32 characters")]
    CommentLength,
    /// The name is no data set's.
    #[error("'{0}' is an invalid name")]
    Name(String),
}

/// Reads an assignment: the key and the value as it goes to disk. A feature's value is 1 for
/// `enabled`. `is_feature` knows the features' names.
///
/// # Errors
/// [`PoolPropError`] says why not.
pub fn assign_pool(
    name: &[u8],
    value: &[u8],
    when: When,
    is_feature: impl Fn(&str) -> bool,
) -> Result<(PoolKey, Value), PoolPropError> {
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let key = PoolKey::named_or_column(name).ok_or_else(|| PoolPropError::Unknown(shown(name)))?;
    match &key {
        PoolKey::Native(prop) => {
            let value = native(*prop, value, when)?;
            Ok((key, value))
        }
        PoolKey::Feature(feature) => {
            if !is_feature(feature) {
                return Err(PoolPropError::NoFeature(feature.clone()));
            }
            match value {
                b"enabled" => Ok((key, Value::Number(1))),
                b"disabled" if when == When::Create => Ok((key, Value::Number(0))),
                b"disabled" => Err(PoolPropError::FeatureDisabled(feature.clone())),
                _ => Err(PoolPropError::FeatureValue(feature.clone())),
            }
        }
        PoolKey::Unsupported(_) => Err(PoolPropError::Unknown(key.name())),
    }
}

fn native(prop: PoolProp, value: &[u8], when: When) -> Result<Value, PoolPropError> {
    let (info, name) = (prop.info(), prop.name());
    if info.access == PoolAccess::Computed {
        return Err(PoolPropError::ReadOnly(name));
    }
    let parsed = match info.form {
        PoolForm::Words(words) => {
            let word = PoolPropError::Word { name, words: words.hint };
            Value::Number(words.number(value).ok_or(word)?)
        }
        Text => Value::text(value),
        _ => Value::Number(parse_number(value)?),
    };
    match (info.access, when) {
        (PoolAccess::Later, When::Create | When::Import) => return Err(PoolPropError::Later(name)),
        (PoolAccess::AtOpen, When::Open) if prop == PoolProp::Tname => {
            return Err(PoolPropError::AtCreate(name));
        }
        (PoolAccess::AtOpen, When::Open) => return Err(PoolPropError::AtOpen(name)),
        (PoolAccess::AtImport, When::Create | When::Open) => {
            return Err(PoolPropError::AtImport(name));
        }
        _ => {}
    }
    check(prop, &parsed)?;
    Ok(parsed)
}

fn check(prop: PoolProp, value: &Value) -> Result<(), PoolPropError> {
    let name = prop.name();
    match (prop, value) {
        (PoolProp::Ashift, Value::Number(shift)) if *shift != 0 && !(9..=16).contains(shift) => {
            Err(PoolPropError::Shift { name, value: *shift })
        }
        (PoolProp::Version, Value::Number(version)) if *version != 5000 => {
            Err(PoolPropError::Version(name, *version))
        }
        (PoolProp::Altroot, Value::Text(root)) if root.first() != Some(&b'/') => {
            Err(PoolPropError::Root(String::from_utf8_lossy(root).into_owned()))
        }
        (PoolProp::Cachefile, Value::Text(path)) => {
            let fine = path.is_empty() || path == b"none" || path.first() == Some(&b'/');
            if fine { Ok(()) } else { Err(PoolPropError::Path(name)) }
        }
        (PoolProp::Comment, Value::Text(text)) => {
            if text.iter().any(|c| !matches!(c, b' '..=b'~')) {
                return Err(PoolPropError::CommentBytes);
            }
            if text.len() > 32 { Err(PoolPropError::CommentLength) } else { Ok(()) }
        }
        (PoolProp::Bootfs, Value::Text(fs)) if !fs.is_empty() => match name::check_entity(fs) {
            Ok(()) => Ok(()),
            Err(_) => Err(PoolPropError::Name(String::from_utf8_lossy(fs).into_owned())),
        },
        _ => Ok(()),
    }
}
