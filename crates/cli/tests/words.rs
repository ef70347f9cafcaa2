//! Words that make no sense are refused as OpenZFS refuses them: message and status, held to
//! every such command in the transcripts.

mod support;

use support::{Case, Gone, Told, WAITED_MAX, cases, run, words};

const TRANSCRIPTS: [&str; 8] =
    ["create-errors", "create-inuse", "lifecycle", "dataset", "hurt", "columns", "space", "props"];

/// Commands that we answer otherwise, each with the reason.
const OTHERWISE: &[(&str, &str)] = &[
    (" -h", "usage is given, on standard output, without a fault"),
    (" --help", "usage is given, on standard output, without a fault"),
    ("zpool import -c x -d", "the device of the scenario is needed to come that far"),
];

fn is_ours(case: &Case) -> bool {
    let piped = case.command.contains(" | ");
    !piped && !OTHERWISE.iter().any(|(part, _)| case.command.contains(part))
}

#[test]
fn usage_errors_are_openzfs_s() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for case in TRANSCRIPTS.iter().flat_map(|name| cases(name)) {
        if case.status != 2 || !is_ours(&case) {
            continue;
        }
        let (out, err, status) = run(&mut Told::default(), &words(&case.command));
        let head = |text: &str| text.lines().take(1).map(String::from).collect::<String>();
        if status != 2 || head(&err) != head(&case.err) || !out.is_empty() {
            wrong.push(format!(
                "{}\n  {}\n  {} ({status})",
                case.command,
                head(&case.err),
                head(&err)
            ));
        }
        assert!(err.contains("usage:"), "{}: {err}", case.command);
        checked += 1;
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked >= 70, "{checked}");
}

#[test]
fn help_is_given_everywhere() {
    for command in [
        "zpool -h",
        "zpool --help",
        "zfs -?",
        "thumper --help",
        "zpool create -h",
        "zfs list --help",
        "thumper ls -h",
        "thumper zpool import -h",
        "thumper zfs get --help",
        "thumper verify -h",
        "thumper dump --help",
        "thumper put -h",
    ] {
        let (out, err, status) = run(&mut Told::default(), &words(command));
        assert_eq!((err.as_str(), status), ("", 0), "{command}");
        assert!(out.starts_with("usage:"), "{command}: {out}");
    }
    let (out, _, status) = run(&mut Told::default(), &words("thumper version"));
    assert!(out.starts_with("thumper-") && status == 0, "{out}");
}

#[test]
fn verbs_to_come_are_named_as_such() {
    for command in [
        "zpool checkpoint tank",
        "zpool import --rewind-to-checkpoint tank",
        "zpool remove -n tank d0",
        "zfs redact tank@s b tank@t",
        "thumper zfs send tank@s",
    ] {
        let (_, err, status) = run(&mut Told::default(), &words(command));
        assert!(err.ends_with("is not there yet\n") && status == 1, "{command}: {err}");
    }
}

#[test]
fn own_verbs_refuse_nonsense() {
    for (command, message, status) in [
        ("thumper", "missing command", 2),
        ("thumper frobnicate", "unrecognized command 'frobnicate'", 2),
        ("thumper ls", "missing POOL:PATH argument", 2),
        ("thumper ls tank", "'tank' is no POOL[/FS][@SNAP]:PATH", 2),
        ("thumper ls -q tank:", "invalid option 'q'", 2),
        ("thumper cat", "missing POOL:PATH argument", 2),
        ("thumper get tank:a", "missing destination after 'tank:a'", 2),
        ("thumper get", "missing source", 2),
        ("thumper put a b", "'b' is no POOL[/FS][@SNAP]:PATH", 2),
        ("thumper put -x a tank:", "invalid option 'x'", 2),
        ("thumper mkdir -m 9 tank:a", "invalid mode '9'", 2),
        ("thumper mv tank:a", "missing destination after 'tank:a'", 2),
        ("thumper rm", "missing POOL:PATH argument", 2),
        ("thumper rm -d", "missing argument for 'd' option", 2),
        ("thumper verify", "missing pool argument", 3),
        ("thumper verify a b", "too many arguments", 3),
        ("thumper verify nosuch", "cannot open 'nosuch': no such pool", 3),
        ("thumper dump", "missing pool or device argument", 2),
        ("thumper dump -l", "missing device argument", 2),
        ("thumper dump -x tank", "invalid option 'x'", 2),
        ("thumper dump tank pond", "'pond' is no object and no data set of 'tank'", 2),
        ("thumper dump /dev/sda", "'/dev/sda' is no pool; the labels of a device: -l", 2),
        ("thumper dump -b tank 5", "'5' is no vdev:offset:[lsize/]psize[:flags]", 2),
    ] {
        let (_, err, got) = run(&mut Told::default(), &words(command));
        assert_eq!((err.lines().next(), got), (Some(message), status), "{command}");
    }
}

/// Seen red: it was taken for what the devices have.
#[test]
fn sectors_have_a_number() {
    for command in ["zpool attach -o ashift=banana tank a b", "zpool replace -o ashift=20 tank a"] {
        let mut engine = Told::default();
        let (_, err, status) = run(&mut engine, &words(command));
        let is_said = err.contains("must be a number") || err.contains("between 9 and 16");
        assert!(status == 1 && is_said && engine.asked.is_empty(), "{command}: {err}");
    }
}

/// Seen red: it waited to the end, and scrubbed the next pool; and `verify` had found something wrong.
#[test]
fn who_has_gone_is_not_waited_for() {
    for command in ["zpool scrub -w tank pond", "zpool replace -w tank d0"] {
        let mut engine = Told::default();
        assert_eq!(cli::run(&words(command), &mut engine, &mut Gone, &mut Gone), 1, "{command}");
        assert_eq!((engine.waited, engine.asked.len()), (0, 1), "{command}");
        let mut engine = Told::default();
        assert_eq!(run(&mut engine, &words(command)).2, 0);
        assert_eq!(engine.waited, WAITED_MAX, "{command}");
    }
    let verify = words("thumper -d /x verify nosuch");
    assert_eq!(cli::run(&verify, &mut Told::default(), &mut Gone, &mut Gone), 3);
}

#[test]
fn requests_are_what_the_words_say() {
    let asked = |command: &str| {
        let mut engine = Told::default();
        let (_, err, status) = run(&mut engine, &words(command));
        assert_eq!((err.trim_end_matches("no datasets available\n"), status), ("", 0), "{command}");
        engine.asked.pop().unwrap_or_default()
    };
    for (command, parts) in [
        (
            "zpool import -d /a -d /b -o readonly=on -f tank pond",
            vec![
                "Name(\"tank\")",
                "places: [\"/a\", \"/b\"]",
                "Some(\"pond\")",
                "force: true",
                "readonly: true",
            ],
        ),
        ("zpool -d /a import 123", vec!["Guid(123)", "places: [\"/a\"]"]),
        ("thumper -d /x zpool export -a", vec!["all: true", "/x"]),
        (
            "zfs create -p -o atime=off -o a:b=c tank/a/b",
            vec!["name: \"tank/a/b\"", "parents: true", "atime", "a:b", "command: \"zfs create -p"],
        ),
        ("zfs destroy -rf tank/a", vec!["name: \"tank/a\"", "recursive: true", "force: true"]),
        ("zfs set atime=off exec=on tank/a tank/b", vec!["[\"tank/a\", \"tank/b\"]", "exec"]),
        (
            "zfs -d /dev get -r all tank",
            vec!["depth: Some(18446744073709551615)", "all: true", "/dev"],
        ),
        ("zfs get -d /dev all tank", vec!["depth: None", "places: [\"/dev\"]"]),
        ("zfs list -d 2 tank", vec!["depth: Some(2)"]),
        ("thumper ls -lr -d /a tank/fs@s:/x tank:y", vec!["tank/fs@s", "recursive: true", "/a"]),
        ("thumper put -r a b tank:c", vec!["from: [\"a\", \"b\"]", "recursive: true"]),
        ("thumper mkdir -p -m 700 tank:c", vec!["parents: true", "mode: Some(448)"]),
        ("thumper mv -n tank:a tank:b", vec!["no_clobber: true"]),
        ("thumper rm -rf tank:a", vec!["recursive: true", "force: true"]),
        ("thumper -d /x dump -dd tank/a 5", vec!["tank/a", "/x", "datasets: 2", "[(5, 5)]"]),
        ("thumper dump -d /x -l a b", vec!["Labels", "[\"a\", \"b\"]", "rings: false"]),
    ] {
        let request = asked(command);
        for part in parts {
            assert!(request.contains(part), "{command}: {part} is not in {request}");
        }
    }
}

#[test]
fn verbs_have_openzfs_s_other_names() {
    for (other, verb) in [("zfs snap -x", "zfs snapshot -x"), ("zfs umount -x", "zfs unmount -x")] {
        let said = run(&mut Told::default(), &words(verb));
        assert_eq!(run(&mut Told::default(), &words(other)), said, "{other}");
        assert_eq!(said.2, 2, "{verb}");
    }
}

/// As OpenZFS does it. Seen red: nothing was set anywhere.
#[test]
fn a_wrong_name_keeps_no_other_from_being_set() {
    let mut engine = Told::default();
    let (_, err, status) = run(&mut engine, &words("zfs set a:b=1 'tank/$x' tank/a"));
    assert!(err.starts_with("cannot open 'tank/$x': invalid") && status == 1, "{err}");
    let is_set = |asked: &String| asked.contains("[\"tank/a\"]") && asked.contains("a:b");
    assert!(engine.asked.iter().any(is_set), "{:?}", engine.asked);
}

/// As OpenZFS does it: a path means what is mounted there. Seen red: nothing was, whatever a server had mounted.
#[test]
fn a_path_means_the_file_system_that_is_mounted_there() {
    let dir = std::env::temp_dir().join(format!("thumper-paths-{}", std::process::id()));
    let (inside, beside) = (dir.join("m/sub/dir"), dir.join("mm"));
    std::fs::create_dir_all(&inside).expect("directories");
    std::fs::create_dir_all(&beside).expect("a directory");
    std::os::unix::fs::symlink(&inside, dir.join("link")).expect("a link");
    let dir = dir.canonicalize().expect("it is there");
    let asked = |verb: &str, path: &str| {
        let mounted = [("tank/m", "m"), ("tank/m/s", "m/sub")];
        let mounted = mounted.map(|(name, at)| (name.to_string(), dir.join(at))).to_vec();
        let mut engine = Told { mounted, ..Told::default() };
        let path = dir.join(path);
        let (_, err, _) = run(&mut engine, &words(&format!("{verb} {}", path.display())));
        let last = engine.asked.pop().unwrap_or_default();
        let name = last.split("name").nth(1).unwrap_or_default().split('"').nth(1);
        (name.unwrap_or_default().to_string(), err)
    };
    for verb in ["zfs list", "zfs get type", "zfs userspace", "zfs projectspace"] {
        for (path, name) in [
            ("m", "tank/m"),
            ("m/", "tank/m"),
            ("m/sub/dir", "tank/m/s"),
            ("link", "tank/m/s"),
            ("m/../m", "tank/m"),
        ] {
            assert_eq!(asked(verb, path).0, name, "{verb} {path}");
        }
        let (name, err) = asked(verb, "mm");
        assert!(name.is_empty() && err.ends_with("/mm': not a ZFS filesystem\n"), "{err}");
        assert!(asked(verb, "none").1.contains("No such file or directory"));
    }
    std::fs::remove_dir_all(dir).expect("they go");
}
