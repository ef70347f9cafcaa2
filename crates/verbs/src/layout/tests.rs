use super::*;

fn parse(words: &str) -> Result<Layout, LayoutError> {
    let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    Layout::parse(&words, |word| {
        if word.as_bytes().starts_with(b"no") {
            return Err(LeafError::NoSuchPath(word.to_string_lossy().into_owned()));
        }
        Ok(PathBuf::from("/").join(word))
    })
}

#[test]
fn words_become_groups() {
    let layout = parse("raidz2 a b c mirror d e f log mirror g h spare i j cache k special l")
        .expect("a layout");
    let kinds: Vec<_> = layout.groups.iter().map(|g| (g.kind, g.class, g.devices.len())).collect();
    assert_eq!(
        kinds,
        [
            (GroupKind::Raidz(2), Class::Normal, 3),
            (GroupKind::Mirror, Class::Normal, 3),
            (GroupKind::Mirror, Class::Log, 2),
            (GroupKind::Single, Class::Special, 1),
        ]
    );
    assert_eq!(layout.spares, [PathBuf::from("/i"), PathBuf::from("/j")]);
    assert_eq!(layout.cache, [PathBuf::from("/k")]);
    assert_eq!(layout.devices().count(), 12);
    // A class holds until the next one; spares and cache end it.
    let layout = parse("a log b mirror c d spare e f").expect("a layout");
    assert_eq!(layout.groups.iter().filter(|g| g.class == Class::Log).count(), 2);
    assert_eq!(layout.spares.len(), 2);
    // A class without devices is no matter, but for the log.
    assert_eq!(parse("a special").expect("a layout").groups.len(), 1);
}

#[test]
fn words_that_are_no_layout_are_refused_in_openzfs_s_words() {
    let spec = "invalid vdev specification: ";
    for (words, text) in [
        ("mirror", "mirror requires at least 2 devices"),
        ("mirror a", "mirror requires at least 2 devices"),
        ("mirror mirror a b", "mirror requires at least 2 devices"),
        ("raidz a", "raidz requires at least 2 devices"),
        ("raidz1 a", "raidz1 requires at least 2 devices"),
        ("raidz2 a b", "raidz2 requires at least 3 devices"),
        ("raidz3 a b c", "raidz3 requires at least 4 devices"),
        ("a spare", "spare requires at least 1 devices"),
        ("a spare mirror b c", "spare requires at least 1 devices"),
        ("a spare b spare c", "'spare' can be specified only once"),
        ("a cache", "cache requires at least 1 devices"),
        ("a cache b cache c", "'cache' can be specified only once"),
        ("a log", "log requires at least 1 device"),
        ("a log b log c", "'log' can be specified only once"),
        ("a log raidz b c", "unsupported 'log' device: raidz"),
        ("draid2:4d a b", "dRAID vdevs can be read, but not made"),
        ("", "at least one toplevel vdev must be specified"),
    ] {
        assert_eq!(parse(words).unwrap_err().to_string(), format!("{spec}{text}"), "{words}");
    }
    let many: String = (0..256).map(|i| format!(" d{i}")).collect();
    assert_eq!(
        parse(&format!("raidz2{many}")).unwrap_err().to_string(),
        format!("{spec}raidz2 supports no more than 255 devices")
    );
    // What is wrong with a device comes before what is wrong with its group.
    assert_eq!(parse("mirror nox").unwrap_err().to_string(), "cannot resolve path 'nox'");
    // Words that only look like groups are devices.
    for word in ["raidz0", "raidz4", "raidz02", "mirror1", "draid9"] {
        assert_eq!(parse(word).expect(word).groups.len(), 1);
    }
}

#[test]
fn unsound_layouts_are_named() {
    let facts = |path: &PathBuf| Facts {
        is_file: !path.to_string_lossy().contains("disk"),
        size: if path.to_string_lossy().contains("big") { 256 << 20 } else { 128 << 20 },
    };
    let check = |words: &str| unsound(&parse(words).expect(words), facts);
    for sound in [
        "a",
        "a b",
        "mirror a b c",
        "mirror a b raidz c d e",
        "raidz a b raidz c d e",
        "mirror a b log c",
        "a spare big cache disk1",
        "raidz2 a b c mirror d e f",
    ] {
        assert_eq!(check(sound), None, "{sound}");
    }
    let level = "mismatched replication level: ";
    for (words, text) in [
        ("mirror a big", "mirror contains devices of different sizes".to_string()),
        ("raidz2 a b big", "raidz contains devices of different sizes".into()),
        ("mirror a disk1", format!("{level}mirror contains both files and devices")),
        (
            "mirror a b mirror c d e",
            format!("{level}both 2-way and 3-way mirror vdevs are present"),
        ),
        (
            "raidz a b raidz2 c d e",
            format!("{level}raidz and raidz vdevs with different redundancy, 1 vs. 2 are present"),
        ),
        (
            "mirror a b raidz2 c d e",
            format!(
                "{level}raidz and mirror vdevs with different redundancy, \
                 2 vs. 1 (2-way) are present"
            ),
        ),
        ("a mirror b c", format!("{level}both file and mirror vdevs are present")),
        ("mirror a b special c", format!("{level}both mirror and file vdevs are present")),
        ("a disk1", format!("{level}both file and disk vdevs are present")),
        ("spare a", "at least one general top-level vdev must be specified".into()),
        ("log a", "at least one general top-level vdev must be specified".into()),
    ] {
        assert_eq!(check(words), Some(text), "{words}");
    }
}
