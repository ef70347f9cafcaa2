//! The tables against what OpenZFS's own library says, and each error text.

use std::fmt::Write as _;

use super::assign::{RECORD_SIZE_MAX, is_user_property};
use super::name::{check_entity, check_new_dataset, check_pool};
use super::pool::PoolAccess;
use super::*;

const DATASET: &str = include_str!("../../tests/props/dataset.txt");
const POOL: &str = include_str!("../../tests/props/pool.txt");
const NAMES: &str = include_str!("../../tests/props/names.txt");
const NUMBERS: &str = include_str!("../../tests/props/nicenum.txt");

fn side(right: bool) -> &'static str {
    if right { "right" } else { "left" }
}

fn width(width: usize, elastic: bool) -> String {
    format!("{width}{}", if elastic { "+" } else { "" })
}

fn default_text(default: DefaultValue) -> String {
    match default {
        DefaultValue::None => "-".into(),
        DefaultValue::Number(number) => number.to_string(),
        DefaultValue::Text(text) => text.into(),
    }
}

#[test]
fn the_table_of_data_sets_is_openzfs_s() {
    let mut ours = String::new();
    for prop in Prop::all() {
        let info = prop.info();
        let kinds: String = [
            (Kind::Filesystem, 'f'),
            (Kind::Snapshot, 's'),
            (Kind::Volume, 'v'),
            (Kind::Bookmark, 'b'),
        ]
        .iter()
        .filter(|(kind, _)| info.applies.contains(*kind))
        .map(|(_, letter)| *letter)
        .collect();
        let (access, default) = match info.access {
            // Counts have a default without being settable: "not counted".
            Access::Computed => ("computed", DefaultValue::None),
            Access::Inherited => ("inherited", info.default),
            // The version is the objset's own; libzfs calls it 0 where it is not known.
            Access::Own if prop == Prop::Version => ("own", DefaultValue::Number(0)),
            Access::Own => ("own", info.default),
            Access::Once => ("once", info.default),
            Access::OnceOwn => ("once-own", info.default),
        };
        let form = match info.form {
            Form::Number(_) => "number",
            Form::Text => "text",
            Form::Words(_) => "words",
        };
        let hint = if prop.hint().is_empty() { "-" } else { prop.hint() };
        let row = [
            prop.name().into(),
            prop.column(),
            kinds,
            access.into(),
            default_text(default).replace("18446744073709551615", &u64::MAX.to_string()),
            form.into(),
            width(prop.width(), prop.is_elastic()),
            side(prop.is_right_aligned()).into(),
            hint.into(),
        ];
        ours += &row.join("\t");
        if let Some(words) = prop.words() {
            let mut shown: Vec<_> = words.table.iter().map(|(_, n)| *n).collect();
            shown.sort_unstable();
            shown.dedup();
            let shown: Vec<_> =
                shown.iter().map(|n| format!("{}={n}", words.word(*n).unwrap())).collect();
            write!(ours, "\t{}", shown.join(" ")).unwrap();
        }
        ours.push('\n');
    }
    for (ours, theirs) in ours.lines().zip(DATASET.lines()) {
        // What `mounted` says is made up by the program: libzfs's table has `on` and `off`.
        if !theirs.starts_with("mounted\t") {
            assert_eq!(ours, theirs);
        }
    }
    assert_eq!(ours.lines().count(), DATASET.lines().count());
}

#[test]
fn the_table_of_pools_is_openzfs_s() {
    let mut rows = 0;
    for (prop, theirs) in PoolProp::all().zip(POOL.lines()) {
        let info = prop.info();
        let computed = info.access == PoolAccess::Computed;
        let form = match info.form {
            pool::PoolForm::Text if prop == PoolProp::Health => "number",
            pool::PoolForm::Text => "text",
            pool::PoolForm::Words(_) => "words",
            _ => "number",
        };
        let default = match prop {
            // A fact of the import, shown without a default.
            PoolProp::Readonly => "0".into(),
            _ => default_text(info.default),
        };
        let ours = [
            prop.name().into(),
            info.column.into(),
            if computed { "computed".into() } else { "settable".to_string() },
            default,
            form.into(),
            width(prop.width(), prop.is_elastic()),
            side(prop.is_right_aligned()).into(),
            if info.hint.is_empty() { "-".into() } else { info.hint.to_string() },
        ];
        assert_eq!(ours.join("\t"), theirs);
        rows += 1;
    }
    assert_eq!(rows, POOL.lines().count());
    assert_eq!(rows, PoolProp::all().count());
}

#[test]
fn names_are_allowed_and_refused_as_by_openzfs() {
    let mut checked = 0;
    for row in NAMES.lines() {
        let [name, entity, open, new] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let why = match check_entity(name.as_bytes()) {
            Ok(()) => "fine",
            Err(NameError::TooLong) => "long",
            Err(NameError::LeadingSlash) => "leading",
            Err(NameError::TrailingSlash) => "trailing",
            Err(NameError::EmptyComponent) => "empty",
            Err(NameError::Character(_)) => "character",
            Err(NameError::Delimiters) => "delimiters",
            Err(NameError::SelfReference) => "self",
            Err(NameError::ParentReference) => "parent",
            Err(other) => panic!("{name}: {other}"),
        };
        assert_eq!(why, entity, "{name}");
        for (is_new, expected) in [(false, open), (true, new)] {
            let fine = check_pool(name.as_bytes(), is_new).is_ok();
            assert_eq!(fine, expected == "fine", "pool {name}, new {is_new}");
        }
        checked += 1;
    }
    assert!(checked > 70);
}

#[test]
fn names_say_why_they_are_refused() {
    let deep = format!("tank{}", "/n".repeat(50));
    let long = format!("tank/{}", "n".repeat(300));
    for (name, text) in [
        ("tank/", "trailing slash in name"),
        ("/tank/a", "leading slash in name"),
        ("tank//a", "empty component or misplaced '@' or '#' delimiter in name"),
        ("tank/a@s", "snapshot delimiter '@' is not expected here"),
        ("tank/a#s", "bookmark delimiter '#' is not expected here"),
        ("tank/a%b", "invalid character % in name"),
        ("tank/a$b", "invalid character '$' in name"),
        ("tank/ä", "invalid character '\\xc3' in name"),
        ("tank/.", "self reference, '.' is found in name"),
        ("tank/..", "parent reference, '..' is found in name"),
        ("tank@a@b", "multiple '@' and/or '#' delimiters in name"),
        (&deep, "maximum name nesting depth exceeded"),
        (&long, "name is too long"),
    ] {
        assert_eq!(check_new_dataset(name.as_bytes()).unwrap_err().to_string(), text, "{name}");
    }
    for (name, text) in [
        ("1tank", "name must begin with a letter"),
        ("", "name must begin with a letter"),
        ("mirror", "name is reserved"),
        ("spare2", "name is reserved"),
        ("log", "name is reserved"),
        ("tank/a", "invalid character '/' in pool name"),
        ("tank%", "invalid character '%' in pool name"),
    ] {
        assert_eq!(check_pool(name.as_bytes(), true).unwrap_err().to_string(), text, "{name}");
    }
    assert!(check_pool(b"spare2", false).is_ok(), "pools of such names are there");
}

#[test]
fn numbers_are_shortened_as_by_openzfs() {
    let mut checked = 0;
    for row in NUMBERS.lines() {
        let [number, count, bytes] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let number: u64 = number.parse().unwrap();
        assert_eq!(nice_count(number), count, "{number}");
        assert_eq!(nice_bytes(number), bytes, "{number}");
        checked += 1;
    }
    assert!(checked > 1000);
}

const FS: Target = Target {
    kind: Kind::Filesystem,
    creating: false,
    encrypted: false,
    record_size_max: RECORD_SIZE_MAX,
};

#[test]
fn values_go_to_disk_as_the_format_says() {
    let number = |name: &str, value: &str, target: &Target| {
        let (_, value) = assign(name.as_bytes(), value.as_bytes(), target).unwrap();
        value.number().unwrap()
    };
    for (name, value, stored) in [
        ("recordsize", "1M", 1 << 20),
        ("recordsize", "512", 512),
        ("recordsize", "128KiB", 131_072),
        ("compression", "lz4", 15),
        ("compression", "gzip", 10),
        ("compression", "gzip-6", 10),
        ("compression", "zstd-3", 400),
        ("compression", "zstd-fast-1000", 15760),
        ("checksum", "sha512", 11),
        ("atime", "off", 0),
        ("xattr", "dir", 1),
        ("acltype", "posixacl", 1),
        ("quota", "none", 0),
        ("quota", "10M", 10 << 20),
        ("filesystem_limit", "none", u64::MAX),
        ("filesystem_limit", "0", 0),
        ("snapshot_limit", "1.5", 1),
        ("special_small_blocks", "0", 0),
        ("dnodesize", "1k", 1024),
        ("version", "current", 5),
        ("userquota@0", "1G", 1 << 30),
        ("userquota@0", "none", 0),
    ] {
        assert_eq!(number(name, value, &FS), stored, "{name}={value}");
    }
    let new = Target { creating: true, ..FS };
    assert_eq!(number("normalization", "formD", &new), 0x10);
    assert_eq!(number("casesensitivity", "mixed", &new), 2);
    let volume = Target::existing(Kind::Volume);
    assert_eq!(number("refreservation", "auto", &volume), u64::MAX);
    for (name, value) in [
        ("mountpoint", "legacy"),
        ("mountpoint", "/x/../y"),
        ("org.site:tag", ""),
        ("keylocation", "none"),
    ] {
        let (key, stored) = assign(name.as_bytes(), value.as_bytes(), &FS).unwrap();
        assert_eq!((key.name().as_str(), stored), (name, Value::text(value)));
    }
    let snapshot = Target::existing(Kind::Snapshot);
    assert!(assign(b"org.site:note", b"x", &snapshot).is_ok());
}

#[test]
fn every_refusal_has_openzfs_s_words() {
    let new = Target { creating: true, ..FS };
    let volume = Target::existing(Kind::Volume);
    let snapshot = Target::existing(Kind::Snapshot);
    let encrypted = Target { encrypted: true, ..FS };
    let no_pool = Target { record_size_max: assign::BLOCK_SIZE_MAX, ..new };
    let long = format!("o:{}", "n".repeat(300));
    let long_text = format!("property name '{long}' is too long");
    let huge = "v".repeat(8192);
    let table: &[(&str, &str, &Target, &str)] = &[
        ("bogus", "1", &FS, "invalid property 'bogus'"),
        ("Org.site:tag", "1", &FS, "invalid property 'Org.site:tag'"),
        ("used", "1", &FS, "'used' is readonly"),
        ("name", "x", &FS, "'name' is readonly"),
        ("casesensitivity", "mixed", &FS, "'casesensitivity' is readonly"),
        ("userused@0", "5", &FS, "'userused@0' is readonly"),
        ("written@s", "5", &FS, "'written@s' is readonly"),
        ("volsize", "1M", &FS, "'volsize' does not apply to datasets of this type"),
        ("quota", "none", &volume, "'quota' does not apply to datasets of this type"),
        ("readonly", "on", &snapshot, "this property can not be modified for snapshots"),
        ("atime", "perhaps", &FS, "'atime' must be one of 'on | off'"),
        ("sync", "never", &FS, "'sync' must be one of 'standard | always | disabled'"),
        ("copies", "4", &FS, "'copies' must be one of '1 | 2 | 3'"),
        (
            "compression",
            "LZ4",
            &FS,
            "'compression' must be one of 'on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | \
             zstd | zstd-[1-19] | zstd-fast | \
             zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]'",
        ),
        (
            "dedup",
            "edonr",
            &FS,
            "'dedup' must be one of 'on | off | verify | sha256[,verify] | \
             sha512[,verify] | skein[,verify] | edonr,verify'",
        ),
        ("recordsize", "1000", &FS, "'recordsize' must be power of 2 from 512B to 1M"),
        ("recordsize", "0", &FS, "'recordsize' must be power of 2 from 512B to 1M"),
        ("recordsize", "3", &no_pool, "'recordsize' must be power of 2 from 512B to 16M"),
        ("recordsize", "abc", &FS, "bad numeric value 'abc'"),
        ("recordsize", "", &FS, "bad numeric value ''"),
        ("recordsize", "12Q", &FS, "invalid numeric suffix 'Q'"),
        ("quota", "20000P", &FS, "numeric value is too large"),
        ("quota", "0", &FS, "use 'none' to disable quota/refquota"),
        ("volsize", "0", &volume, "'volsize' cannot be zero"),
        ("refreservation", "auto", &FS, "'refreservation=auto' only allowed on volumes"),
        ("quota", "auto", &FS, "'auto' is invalid value for 'quota'"),
        (
            "special_small_blocks",
            "3K",
            &FS,
            "invalid 'special_small_blocks=3072' property: \
             must be zero or a power of 2 from 512B to 1M",
        ),
        (
            "mountpoint",
            "relative",
            &FS,
            "'mountpoint' must be an absolute path, 'none', or 'legacy'",
        ),
        (&long, "1", &FS, &long_text),
        ("o:n", &huge, &FS, "property value too long"),
        ("mlslabel", "x", &FS, "mlslabels are unsupported"),
        ("keylocation", "prompt", &FS, "keylocation must be 'none' for unencrypted datasets"),
        (
            "keylocation",
            "none",
            &encrypted,
            "keylocation must not be 'none' for encrypted datasets",
        ),
        ("copies", "3", &encrypted, "encrypted datasets cannot have 3 copies"),
        (
            "keylocation",
            "prompt",
            &new,
            "Encryption must be turned on to set encryption properties.",
        ),
        ("keyformat", "raw", &new, "Encryption must be turned on to set encryption properties."),
        ("encryption", "on", &new, "encrypted data sets are read and verified, but not made"),
    ];
    for (name, value, target, text) in table {
        let error = assign(name.as_bytes(), value.as_bytes(), target).unwrap_err();
        assert_eq!(error.to_string(), *text, "{name}={value}");
    }
}

#[test]
fn pool_properties_are_read_and_refused_as_by_openzfs() {
    let known = |name: &str| name == "lz4_compress";
    let set = |name: &str, value: &str, when| {
        assign_pool(name.as_bytes(), value.as_bytes(), when, known).map_err(|e| e.to_string())
    };
    let (create, open) = (When::Create, When::Open);
    assert_eq!(set("ashift", "12", create).unwrap().1, Value::Number(12));
    assert_eq!(set("comment", "a comment", open).unwrap().1, Value::text("a comment"));
    assert_eq!(set("feature@lz4_compress", "disabled", create).unwrap().1, Value::Number(0));
    assert_eq!(set("readonly", "on", When::Import).unwrap().1, Value::Number(1));
    for (name, value, when, text) in [
        ("bogus", "5", open, "invalid property 'bogus'"),
        ("size", "1", create, "'size' is readonly"),
        ("guid", "1", open, "'guid' is readonly"),
        ("bootfs", "t/x", create, "property 'bootfs' cannot be set at creation or import time"),
        ("autoexpand", "maybe", create, "'autoexpand' must be one of 'on | off'"),
        ("failmode", "stop", create, "'failmode' must be one of 'wait | continue | panic'"),
        ("version", "29", create, "property 'version' number 29 is invalid."),
        ("feature@bogus", "enabled", create, "feature 'bogus' unsupported by kernel"),
        (
            "feature@lz4_compress",
            "on",
            create,
            "property 'feature@lz4_compress' can only be set to 'enabled' or 'disabled'",
        ),
        (
            "feature@lz4_compress",
            "disabled",
            open,
            "property 'feature@lz4_compress' can only be set to 'disabled' at creation time",
        ),
        (
            "cachefile",
            "relative",
            create,
            "property 'cachefile' must be empty, an absolute path, or 'none'",
        ),
        ("altroot", "relative", create, "bad alternate root 'relative'"),
        (
            "altroot",
            "/x",
            open,
            "property 'altroot' can only be set during pool creation or import",
        ),
        ("readonly", "on", open, "property 'readonly' can only be set at import time"),
        ("comment", "a\tb", create, "comment may only have printable characters"),
        (
            "comment",
            "0123456789012345678901234567890123456789",
            create,
            "comment must not exceed 32 characters",
        ),
        (
            "ashift",
            "20",
            open,
            "property 'ashift' number 20 is invalid, only values between 9 and 16 are allowed.",
        ),
        ("ashift", "x", open, "bad numeric value 'x'"),
        ("bootfs", "t//x", open, "'t//x' is an invalid name"),
    ] {
        assert_eq!(set(name, value, when).unwrap_err(), text, "{name}={value}");
    }
}

#[test]
fn keys_are_found_by_name_and_heading() {
    assert_eq!(Key::named_or_column(b"refer"), Some(Key::Native(Prop::Referenced)));
    assert_eq!(Key::named_or_column(b"USED"), None);
    assert_eq!(Key::named(b"refer"), None);
    assert_eq!(PoolProp::named_or_column(b"cap"), Some(PoolProp::Capacity));
    assert_eq!(PoolProp::named_or_column(b"CAP"), None);
    for name in ["userobjquota@x", "written@s", "written#b", "a:b", "projectused@5"] {
        assert_eq!(Key::named(name.as_bytes()).unwrap().name(), name);
    }
    assert_eq!(Key::named(b"written"), Some(Key::Native(Prop::Written)));
    for (name, user) in [("a:b", true), (":", true), ("ab", false), ("a:B", false), ("a:/", false)]
    {
        assert_eq!(is_user_property(name.as_bytes()), user, "{name}");
    }
}

#[test]
fn the_nearest_value_holds() {
    type Level<'a> = &'a [(&'a str, u64)];
    let find = |name: &str, levels: &[(&str, Level<'_>)]| {
        let levels = levels.iter().map(|(dataset, stored)| {
            let get = move |key: &str| {
                let found = stored.iter().find(|(k, _)| *k == key);
                Ok::<_, ()>(found.map(|(_, n)| Value::Number(*n)))
            };
            ((*dataset).to_string(), get)
        });
        lookup(&Key::named(name.as_bytes()).unwrap(), levels).unwrap()
    };
    let number = |n, source| Some((Value::Number(n), source));
    let above = Source::Inherited("tank".into());
    let tank: Level<'_> = &[("compression", 15), ("quota", 5)];
    let fs: Level<'_> = &[];
    assert_eq!(find("compression", &[("tank/a", fs), ("tank", tank)]), number(15, above.clone()));
    assert_eq!(find("compression", &[("tank", tank)]), number(15, Source::Local));
    assert_eq!(find("compression", &[("tank/a", fs)]), number(2, Source::Default));
    assert_eq!(find("quota", &[("tank/a", fs), ("tank", tank)]), number(0, Source::Default));
    assert_eq!(find("used", &[("tank/a", fs)]), None);
    assert_eq!(find("a:b", &[("tank/a", fs), ("tank", &[("a:b", 1)])]), number(1, above.clone()));
    let received: Level<'_> = &[("compression$recvd", 3)];
    assert_eq!(find("compression", &[("tank/a", received)]), number(3, Source::Received));
    let aside: Level<'_> = &[("compression$recvd", 3), ("compression$inherit", 0)];
    assert_eq!(find("compression", &[("tank/a", aside), ("tank", tank)]), number(15, above));
    let over: Level<'_> = &[("compression$recvd", 3), ("compression", 1)];
    assert_eq!(find("compression", &[("tank/a", over)]), number(1, Source::Local));
    let newer: Level<'_> = &[("compression$iuv", 400), ("compression", 1)];
    assert_eq!(find("compression", &[("tank/a", newer)]), number(400, Source::Local));
}

#[test]
fn values_are_shown_as_by_openzfs() {
    let date = |seconds: u64| format!("@{seconds}");
    let shown = |prop: Prop, value: Value, exact: bool| {
        show(prop, &value, Style { exact, date: &date }).map(|t| String::from_utf8(t).unwrap())
    };
    for (prop, number, human, exact) in [
        (Prop::Used, 0, "0B", "0"),
        (Prop::Used, 24576, "24K", "24576"),
        (Prop::Written, 0, "0", "0"),
        (Prop::Recordsize, 512, "512", "512"),
        (Prop::Recordsize, 131_072, "128K", "131072"),
        (Prop::Quota, 0, "none", "0"),
        (Prop::Quota, 512, "512B", "512"),
        (Prop::FilesystemLimit, u64::MAX, "none", "18446744073709551615"),
        (Prop::FilesystemLimit, 7, "7", "7"),
        (Prop::Compressratio, 169, "1.69x", "1.69"),
        (Prop::Creation, 17, "@17", "17"),
        (Prop::Guid, u64::MAX, "18446744073709551615", "18446744073709551615"),
        (Prop::Compression, 10, "gzip", "gzip"),
        (Prop::Compression, 13200, "zstd-fast", "zstd-fast"),
        (Prop::Xattr, 1, "on", "on"),
        (Prop::Mounted, 0, "no", "no"),
    ] {
        assert_eq!(shown(prop, Value::Number(number), false).unwrap(), human, "{prop:?}");
        assert_eq!(shown(prop, Value::Number(number), true).unwrap(), exact, "{prop:?}");
    }
    assert_eq!(shown(Prop::Mountpoint, Value::text("/x"), false).unwrap(), "/x");
    assert_eq!(shown(Prop::Compression, Value::Number(999), false), None);
}
