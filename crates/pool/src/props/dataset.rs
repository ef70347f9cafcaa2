//! The native properties of data sets, in the order in which `zfs get all` prints them.
//!
//! One row a property: name, what it applies to, who may change it, default, kind and what usage
//! says of its values. Everything else in this module is read from this table.

use super::words::*;

/// What a property applies to, or a set of kinds of data sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

/// The kind of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A file system.
    Filesystem = 1,
    /// A snapshot, of a file system or a volume.
    Snapshot = 2,
    /// A volume.
    Volume = 4,
    /// A bookmark.
    Bookmark = 8,
}

impl Kind {
    /// The kind's name, as the property `type` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Filesystem => "filesystem",
            Kind::Snapshot => "snapshot",
            Kind::Volume => "volume",
            Kind::Bookmark => "bookmark",
        }
    }
}

impl Kinds {
    /// No kind.
    pub const NONE: Kinds = Kinds(0);
    /// All kinds.
    pub const ALL: Kinds = Kinds(15);

    /// True if the kind is one of these.
    #[must_use]
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & kind as u8 != 0
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | kind as u8)
    }
}

const F: Kinds = Kinds(1);
const S: Kinds = Kinds(2);
const V: Kinds = Kinds(4);
const FS: Kinds = Kinds(1 | 2);
const FV: Kinds = Kinds(1 | 4);
const SV: Kinds = Kinds(2 | 4);
const FSV: Kinds = Kinds(1 | 2 | 4);
const FSVB: Kinds = Kinds::ALL;

/// What a numeric property counts, which is how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds since 1970.
    Date,
    /// Bytes, short with a `B` for small ones: `24K`, `512B`, `0B`.
    Bytes,
    /// Bytes or a count, short without a unit for small ones: `128K`, `512`, `0`.
    Size,
    /// Bytes, where 0 is `none`.
    Limit,
    /// A count, where the largest number is `none`.
    Tally,
    /// Hundredths: `1.23x`.
    Ratio,
    /// A number that is never shortened: guid, txg, object.
    Plain,
}

/// What kind of value a property has.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A number.
    Number(Unit),
    /// A text.
    Text,
    /// One of some words, stored as a number.
    Words(&'static Words),
}

/// Who gives a property its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The engine; nobody sets it.
    Computed,
    /// The user, for this data set and those below it that have no value of their own.
    Inherited,
    /// The user, for this data set alone.
    Own,
    /// The user when the data set is made; the parent's value is the default.
    Once,
    /// The user when the data set is made.
    OnceOwn,
}

/// The value of a property that nobody set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// There is none.
    None,
    /// A number (of a word, too).
    Number(u64),
    /// A text.
    Text(&'static str),
}

/// One row of the table.
#[derive(Debug)]
pub struct Property {
    /// The property.
    pub prop: Prop,
    /// Its name, also its key on disk.
    pub name: &'static str,
    /// The kinds of data sets that have it.
    pub applies: Kinds,
    /// Who sets it.
    pub access: Access,
    /// Its value if nobody did.
    pub default: DefaultValue,
    /// What its values are.
    pub form: Form,
    hint: &'static str,
}

const NO_LIMIT: u64 = u64::MAX;
const TYPES: &str = "filesystem | volume | snapshot | bookmark";
const RATIO: &str = "<1.00x or higher if compressed>";
const KEY_PLACES: &str = "prompt | <file URI> | <https URL> | <http URL>";
const LIMIT: &str = "<size> | none";
const BLOCK: &str = "512 to 128k, power of 2";
const RECORD: &str = "512 to 1M, power of 2";
const PLACE: &str = "<path> | legacy | none";
const NFS: &str = "on | off | NFS share options";
const SMB: &str = "on | off | SMB share options";
const COUNT: &str = "<count> | none";
const DEFCON: &str = "<selinux defcontext>";
const ROOTCON: &str = "<selinux rootcontext>";
const DATASET: &str = "<filesystem | volume>";
const SMALL_BLOCKS: &str = "zero or 512 to 1M, power of 2";

macro_rules! default {
    (_) => {
        DefaultValue::None
    };
    (NO_LIMIT) => {
        DefaultValue::Number(NO_LIMIT)
    };
    ("/") => {
        DefaultValue::Text("/")
    };
    ("off") => {
        DefaultValue::Text("off")
    };
    ("none") => {
        DefaultValue::Text("none")
    };
    ($number:literal) => {
        DefaultValue::Number($number)
    };
}

macro_rules! form {
    (Number($unit:ident, $hint:expr)) => {
        Form::Number(Unit::$unit)
    };
    (Words($words:ident)) => {
        Form::Words(&$words)
    };
    (Text($hint:expr)) => {
        Form::Text
    };
}

macro_rules! hint {
    (Number($unit:ident, $hint:expr)) => {
        $hint
    };
    (Words($words:ident)) => {
        $words.hint
    };
    (Text($hint:expr)) => {
        $hint
    };
}

macro_rules! properties {
    ($($prop:ident $name:literal $kinds:ident $access:ident $default:tt
        $form:ident $args:tt;)*) => {
        /// A native property of data sets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are OpenZFS's, in zfsprops(7)")]
        pub enum Prop { $($prop),* }

        static TABLE: &[Property] = &[$(Property {
            prop: Prop::$prop,
            name: $name,
            applies: $kinds,
            access: Access::$access,
            default: default!($default),
            form: form!($form $args),
            hint: hint!($form $args),
        }),*];
    };
}

properties! {
    Type                 "type"                 FSVB Computed  _        Text(TYPES);
    Creation             "creation"             FSVB Computed  _        Number(Date, "<date>");
    Used                 "used"                 FSV  Computed  _        Number(Bytes, "<size>");
    Available            "available"            FV   Computed  _        Number(Bytes, "<size>");
    Referenced           "referenced"           FSVB Computed  _        Number(Bytes, "<size>");
    Compressratio        "compressratio"        FSVB Computed  _        Number(Ratio, RATIO);
    Mounted              "mounted"              F    Computed  _        Words(YES_NO);
    Origin               "origin"               FV   Computed  _        Text("<snapshot>");
    Quota                "quota"                F    Own       0        Number(Limit, LIMIT);
    Reservation          "reservation"          FV   Own       0        Number(Limit, LIMIT);
    Volsize              "volsize"              SV   Own       0        Number(Size, "<size>");
    Volblocksize         "volblocksize"         V    Once      8192     Number(Size, BLOCK);
    Recordsize           "recordsize"           F    Inherited 131072   Number(Size, RECORD);
    Mountpoint           "mountpoint"           F    Inherited "/"      Text(PLACE);
    Sharenfs             "sharenfs"             F    Inherited "off"    Text(NFS);
    Checksum             "checksum"             FV   Inherited 1        Words(CHECKSUM);
    Compression          "compression"          FV   Inherited 2        Words(COMPRESSION);
    Atime                "atime"                F    Inherited 1        Words(ON_OFF);
    Devices              "devices"              FS   Inherited 1        Words(ON_OFF);
    Exec                 "exec"                 FS   Inherited 1        Words(ON_OFF);
    Setuid               "setuid"               FS   Inherited 1        Words(ON_OFF);
    Readonly             "readonly"             FV   Inherited 0        Words(ON_OFF);
    Zoned                "zoned"                F    Inherited 0        Words(ON_OFF);
    Snapdir              "snapdir"              F    Inherited 0        Words(HIDDEN_VISIBLE);
    Aclmode              "aclmode"              F    Inherited 0        Words(ACLMODE);
    Aclinherit           "aclinherit"           F    Inherited 4        Words(ACLINHERIT);
    Createtxg            "createtxg"            FSVB Computed  _        Number(Plain, "<uint64>");
    Name                 "name"                 FSVB Computed  _        Text("");
    Canmount             "canmount"             F    Own       1        Words(CANMOUNT);
    Iscsioptions         "iscsioptions"         V    Inherited _        Text("");
    Xattr                "xattr"                FS   Inherited 1        Words(XATTR);
    Numclones            "numclones"            S    Computed  _        Number(Size, "");
    Copies               "copies"               FV   Inherited 1        Words(COPIES);
    Version              "version"              FS   Own       _        Words(VERSION);
    Utf8only             "utf8only"             FS   Once      0        Words(ON_OFF);
    Normalization        "normalization"        FS   Once      0        Words(NORMALIZATION);
    Casesensitivity      "casesensitivity"      FS   Once      0        Words(CASESENSITIVITY);
    Vscan                "vscan"                F    Inherited 0        Words(ON_OFF);
    Nbmand               "nbmand"               FS   Inherited 0        Words(ON_OFF);
    Sharesmb             "sharesmb"             F    Inherited "off"    Text(SMB);
    Refquota             "refquota"             F    Own       0        Number(Limit, LIMIT);
    Refreservation       "refreservation"       FV   Own       0        Number(Limit, LIMIT);
    Guid                 "guid"                 FSVB Computed  _        Number(Plain, "<uint64>");
    Primarycache         "primarycache"         FSV  Inherited 2        Words(CACHE);
    Secondarycache       "secondarycache"       FSV  Inherited 2        Words(CACHE);
    Usedbysnapshots      "usedbysnapshots"      FV   Computed  _        Number(Bytes, "<size>");
    Usedbydataset        "usedbydataset"        FV   Computed  _        Number(Bytes, "<size>");
    Usedbychildren       "usedbychildren"       FV   Computed  _        Number(Bytes, "<size>");
    Usedbyrefreservation "usedbyrefreservation" FV   Computed  _        Number(Bytes, "<size>");
    Useraccounting       "useraccounting"       FSV  Computed  _        Number(Plain, "");
    StmfSbdLu            "stmf_sbd_lu"          V    Inherited _        Text("");
    DeferDestroy         "defer_destroy"        S    Computed  _        Words(DEFER_DESTROY);
    Userrefs             "userrefs"             S    Computed  _        Number(Size, "<count>");
    Logbias              "logbias"              FV   Inherited 0        Words(LOGBIAS);
    Unique               "unique"               FSV  Computed  _        Number(Size, "");
    Objsetid             "objsetid"             FSV  Computed  _        Number(Plain, "<uint64>");
    Dedup                "dedup"                FV   Inherited 2        Words(DEDUP);
    Mlslabel             "mlslabel"             FSV  Inherited "none"   Text("<sensitivity label>");
    Sync                 "sync"                 FV   Inherited 0        Words(SYNC);
    Dnodesize            "dnodesize"            F    Inherited 0        Words(DNODESIZE);
    Refcompressratio     "refcompressratio"     FSV  Computed  _        Number(Ratio, RATIO);
    Written              "written"              FSV  Computed  _        Number(Size, "<size>");
    Clones               "clones"               S    Computed  _        Text("<dataset>[,...]");
    Logicalused          "logicalused"          FV   Computed  _        Number(Size, "<size>");
    Logicalreferenced    "logicalreferenced"    FSVB Computed  _        Number(Size, "<size>");
    Inconsistent         "inconsistent"         FSV  Computed  _        Number(Plain, "");
    Volmode              "volmode"              FV   Inherited 0        Words(VOLMODE);
    FilesystemLimit      "filesystem_limit"     F    Own       NO_LIMIT Number(Tally, COUNT);
    SnapshotLimit        "snapshot_limit"       FV   Own       NO_LIMIT Number(Tally, COUNT);
    FilesystemCount      "filesystem_count"     F    Computed  NO_LIMIT Number(Tally, "<count>");
    SnapshotCount        "snapshot_count"       FV   Computed  NO_LIMIT Number(Tally, "<count>");
    Snapdev              "snapdev"              FV   Inherited 0        Words(HIDDEN_VISIBLE);
    Acltype              "acltype"              FS   Inherited 0        Words(ACLTYPE);
    Context              "context"              FSV  Own       "none"   Text("<selinux context>");
    Fscontext            "fscontext"            FSV  Own       "none"   Text("<selinux fscontext>");
    Defcontext           "defcontext"           FSV  Own       "none"   Text(DEFCON);
    Rootcontext          "rootcontext"          FSV  Own       "none"   Text(ROOTCON);
    Relatime             "relatime"             F    Inherited 0        Words(ON_OFF);
    RedundantMetadata    "redundant_metadata"   FV   Inherited 0        Words(REDUNDANT_METADATA);
    Overlay              "overlay"              F    Inherited 1        Words(ON_OFF);
    Prevsnap             "prevsnap"             FV   Computed  _        Text("");
    ReceiveResumeToken   "receive_resume_token" FV   Computed  _        Text("<string token>");
    Encryption           "encryption"           FSV  Once      2        Words(ENCRYPTION);
    Keylocation          "keylocation"          FV   Own       "none"   Text(KEY_PLACES);
    Keyformat            "keyformat"            FV   OnceOwn   0        Words(KEYFORMAT);
    Pbkdf2salt           "pbkdf2salt"           FV   OnceOwn   0        Number(Plain, "");
    Pbkdf2iters          "pbkdf2iters"          FV   OnceOwn   0        Number(Size, "<iters>");
    Encryptionroot       "encryptionroot"       FSV  Computed  _        Text(DATASET);
    Keyguid              "keyguid"              FSV  Computed  _        Number(Plain, "");
    Keystatus            "keystatus"            FSV  Computed  _        Words(KEYSTATUS);
    Remaptxg             "remaptxg"             FSV  Computed  _        Number(Plain, "");
    SpecialSmallBlocks   "special_small_blocks" F    Inherited 0        Number(Size, SMALL_BLOCKS);
    Ivsetguid            "ivsetguid"            FSVB Computed  _        Number(Plain, "");
    Redacted             "redacted"             FSV  Computed  _        Number(Plain, "");
    RedactSnaps          "redact_snaps"         FSVB Computed  _        Text("<snapshot>[,...]");
}

/// Columns that are not the name in capitals.
const COLUMNS: &[(Prop, &str)] = &[
    (Prop::Available, "AVAIL"),
    (Prop::Referenced, "REFER"),
    (Prop::Compressratio, "RATIO"),
    (Prop::Reservation, "RESERV"),
    (Prop::Volblocksize, "VOLBLOCK"),
    (Prop::Recordsize, "RECSIZE"),
    (Prop::Compression, "COMPRESS"),
    (Prop::Readonly, "RDONLY"),
    (Prop::Casesensitivity, "CASE"),
    (Prop::Refreservation, "REFRESERV"),
    (Prop::Usedbysnapshots, "USEDSNAP"),
    (Prop::Usedbydataset, "USEDDS"),
    (Prop::Usedbychildren, "USEDCHILD"),
    (Prop::Usedbyrefreservation, "USEDREFRESERV"),
    (Prop::Dnodesize, "DNSIZE"),
    (Prop::Refcompressratio, "REFRATIO"),
    (Prop::Logicalused, "LUSED"),
    (Prop::Logicalreferenced, "LREFER"),
    (Prop::FilesystemLimit, "FSLIMIT"),
    (Prop::SnapshotLimit, "SSLIMIT"),
    (Prop::FilesystemCount, "FSCOUNT"),
    (Prop::SnapshotCount, "SSCOUNT"),
    (Prop::RedundantMetadata, "REDUND_MD"),
    (Prop::ReceiveResumeToken, "RESUMETOK"),
    (Prop::Encryptionroot, "ENCROOT"),
    (Prop::RedactSnaps, "RSNAPS"),
];

/// Properties that are there but never listed: asking for them by name is the only way.
const HIDDEN: &[Prop] = &[
    Prop::Name,
    Prop::Iscsioptions,
    Prop::Numclones,
    Prop::Useraccounting,
    Prop::StmfSbdLu,
    Prop::Unique,
    Prop::Inconsistent,
    Prop::Prevsnap,
    Prop::Pbkdf2salt,
    Prop::Keyguid,
    Prop::Remaptxg,
    Prop::Ivsetguid,
    Prop::Redacted,
];

impl Prop {
    /// All properties, hidden ones too, in the order of `zfs get all`.
    pub fn all() -> impl Iterator<Item = Prop> {
        TABLE.iter().map(|row| row.prop)
    }

    /// The property's row.
    #[must_use]
    pub fn info(self) -> &'static Property {
        TABLE.get(self as usize).expect("the table is made from the same rows as the enumeration")
    }

    /// The property's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The property of a name, exactly as written.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Prop> {
        TABLE.iter().find(|row| row.name.as_bytes() == name).map(|row| row.prop)
    }

    /// The property of a name or of a column heading, in small letters (`refer`, `avail`).
    #[must_use]
    pub fn named_or_column(name: &[u8]) -> Option<Prop> {
        Prop::all().find(|prop| {
            prop.name().as_bytes() == name || prop.column().to_ascii_lowercase().as_bytes() == name
        })
    }

    /// The heading of the property's column.
    #[must_use]
    pub fn column(self) -> String {
        let short = COLUMNS.iter().find(|(prop, _)| *prop == self);
        short.map_or_else(|| self.name().to_ascii_uppercase(), |(_, column)| (*column).into())
    }

    /// True if `all` lists the property.
    #[must_use]
    pub fn is_visible(self) -> bool {
        !HIDDEN.contains(&self)
    }

    /// True if a value set above applies below: settable ones, and those of creation time.
    #[must_use]
    pub fn is_inherited(self) -> bool {
        matches!(self.info().access, Access::Inherited | Access::Once)
    }

    /// True if nobody can set the property once the data set is there.
    #[must_use]
    pub fn is_readonly(self) -> bool {
        matches!(self.info().access, Access::Computed | Access::Once | Access::OnceOwn)
    }

    /// True if the property is shown right-aligned.
    #[must_use]
    pub fn is_right_aligned(self) -> bool {
        matches!(self.info().form, Form::Number(unit) if unit != Unit::Date)
    }

    /// The least width of the property's column, in bytes, as OpenZFS lays it out.
    #[must_use]
    pub fn width(self) -> usize {
        let least = match self.info().form {
            // OpenZFS gives this one the width of a pool's health.
            Form::Number(_) if self == Prop::Referenced => 8,
            Form::Number(_) => 5,
            Form::Words(words) => words.width(),
            Form::Text => 0,
        };
        least.max(self.column().len())
    }

    /// True if the column grows with what is in it; others let long values stick out.
    #[must_use]
    pub fn is_elastic(self) -> bool {
        matches!(self.info().form, Form::Text | Form::Number(Unit::Date))
    }

    /// What usage and errors say of the property's values; empty for hidden ones.
    #[must_use]
    pub fn hint(self) -> &'static str {
        self.info().hint
    }

    /// The words of an index property.
    #[must_use]
    pub fn words(self) -> Option<&'static Words> {
        match self.info().form {
            Form::Words(words) => Some(words),
            Form::Number(_) | Form::Text => None,
        }
    }
}
