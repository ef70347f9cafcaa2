//! `thumper`: the command line.
//!
//! Place: a door; it makes requests of words and prints reports, and does nothing itself. The one
//! idea: what users and scripts read is interface, so words, columns, wording and exit statuses
//! are OpenZFS's, held to recorded transcripts, and where they are not, a list says so.
//!
//! Called as `zpool` or `zfs` it is that program; called as `thumper` it has both as verbs
//! besides its own.

pub mod columns;
pub mod door;
pub mod dump;
pub mod files;
pub mod getopt;
pub mod json;
pub mod judge;
mod lab;
mod lists;
pub mod mount;
pub mod rescue;
pub mod serve;
pub mod top;
pub mod usage;
pub mod zfs;
pub mod zpool;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::Path;

use jiff::tz::TimeZone;
use verbs::Engine;

use door::{Door, Ran, Stop};
use usage::Appendix;

/// One verb of a program.
struct Verb {
    name: &'static str,
    usage: &'static str,
    appendix: Appendix,
    run: fn(&mut Door<'_>, &[OsString]) -> Ran,
}

const ZPOOL: &[Verb] = &[
    Verb {
        name: "create",
        usage: "create [-fnd] [-o property=value] ... \n    \
                [-O file-system-property=value] ... \n    \
                [-m mountpoint] [-R root] <pool> <vdev> ...",
        appendix: Appendix::None,
        run: zpool::create::create,
    },
    Verb {
        name: "destroy",
        usage: "destroy [-f] <pool>",
        appendix: Appendix::None,
        run: zpool::create::destroy,
    },
    Verb {
        name: "list",
        usage: "list [-gHjLpPv] [-o property[,...]] [-T d|u] [pool] ... \n    [interval [count]]",
        appendix: Appendix::PoolProperties,
        run: zpool::list::list,
    },
    Verb {
        name: "status",
        usage: "status [-gijLpPstvx] [-T d|u] [pool] ... \n    [interval [count]]",
        appendix: Appendix::None,
        run: zpool::status::status,
    },
    Verb {
        name: "iostat",
        usage: "iostat [[[-c [script1,script2,...][-lq]]|[-rw]] [-T d | u] [-ghHjLpPvy]\n    \
                [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]",
        appendix: Appendix::None,
        run: zpool::iostat::iostat,
    },
    Verb {
        name: "import",
        usage: "import [-d dir] [-Dj]\n\
                import [-o property=value] ... \n    \
                [-d dir] [-D] [-f] [-m] [-N] [-R root] -a\n\
                import [-o property=value] ... \n    \
                [-d dir] [-D] [-f] [-m] [-N] [-R root] <pool | id> [newpool]",
        appendix: Appendix::None,
        run: zpool::import::import,
    },
    Verb {
        name: "export",
        usage: "export [-af] <pool> ...",
        appendix: Appendix::None,
        run: zpool::create::export,
    },
    Verb {
        name: "add",
        usage: "add [-fgLnP] [-o property=value] <pool> <vdev> ...",
        appendix: Appendix::None,
        run: zpool::disks::add,
    },
    Verb {
        name: "remove",
        usage: "remove <pool> <device> ...",
        appendix: Appendix::None,
        run: zpool::disks::remove,
    },
    Verb {
        name: "online",
        usage: "online [-e] <pool> <device> ...",
        appendix: Appendix::None,
        run: zpool::disks::online,
    },
    Verb {
        name: "offline",
        usage: "offline [-f] [-t] <pool> <device> ...",
        appendix: Appendix::None,
        run: zpool::disks::offline,
    },
    Verb {
        name: "attach",
        usage: "attach [-fsw] [-o property=value] <pool> <device> <new-device>",
        appendix: Appendix::None,
        run: zpool::disks::attach,
    },
    Verb {
        name: "detach",
        usage: "detach <pool> <device>",
        appendix: Appendix::None,
        run: zpool::disks::detach,
    },
    Verb {
        name: "replace",
        usage: "replace [-fsw] [-o property=value] <pool> <device> [new-device]",
        appendix: Appendix::None,
        run: zpool::disks::replace,
    },
    Verb {
        name: "labelclear",
        usage: "labelclear [-f] <vdev>",
        appendix: Appendix::None,
        run: zpool::disks::labelclear,
    },
    Verb {
        name: "clear",
        usage: "clear [-nF] <pool> [device]",
        appendix: Appendix::None,
        run: zpool::set::clear,
    },
    Verb {
        name: "resilver",
        usage: "resilver <pool> ...",
        appendix: Appendix::None,
        run: zpool::scrub::resilver,
    },
    Verb {
        name: "scrub",
        usage: "scrub [-s | -p] [-w] <pool> ...",
        appendix: Appendix::None,
        run: zpool::scrub::scrub,
    },
    Verb {
        name: "history",
        usage: "history [-il] [<pool>] ...",
        appendix: Appendix::None,
        run: zpool::status::history,
    },
    Verb {
        name: "events",
        usage: "events [-vHf [pool] | -c]",
        appendix: Appendix::None,
        run: zpool::events::events,
    },
    Verb {
        name: "get",
        usage: "get [-Hjp] [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...",
        appendix: Appendix::PoolProperties,
        run: zpool::list::get,
    },
    Verb {
        name: "set",
        usage: "set <property=value> <pool> ",
        appendix: Appendix::PoolProperties,
        run: zpool::set::set,
    },
];

const ZFS: &[Verb] = &[
    Verb {
        name: "create",
        usage: "create [-Pnpuv] [-o property=value] ... <filesystem>\n\
                create [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>",
        appendix: Appendix::Pointer,
        run: zfs::change::create,
    },
    Verb {
        name: "destroy",
        usage: "destroy [-fnpRrv] <filesystem|volume>\n\
                destroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\
                destroy <filesystem|volume>#<bookmark>",
        appendix: Appendix::Pointer,
        run: zfs::change::destroy,
    },
    Verb {
        name: "snapshot",
        usage: "snapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...",
        appendix: Appendix::Pointer,
        run: zfs::branch::snapshot,
    },
    Verb {
        name: "snap",
        usage: "snapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...",
        appendix: Appendix::Pointer,
        run: zfs::branch::snapshot,
    },
    Verb {
        name: "rollback",
        usage: "rollback [-rRf] <snapshot>",
        appendix: Appendix::Pointer,
        run: zfs::branch::rollback,
    },
    Verb {
        name: "clone",
        usage: "clone [-p] [-o property=value] ... <snapshot> <filesystem|volume>",
        appendix: Appendix::Pointer,
        run: zfs::branch::clone,
    },
    Verb {
        name: "promote",
        usage: "promote <clone-filesystem>",
        appendix: Appendix::Pointer,
        run: zfs::branch::promote,
    },
    Verb {
        name: "rename",
        usage: "rename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n\
                rename -p [-f] <filesystem|volume> <filesystem|volume>\n\
                rename -u [-f] <filesystem> <filesystem>\n\
                rename -r <snapshot> <snapshot>",
        appendix: Appendix::Pointer,
        run: zfs::branch::rename,
    },
    Verb {
        name: "bookmark",
        usage: "bookmark <snapshot|bookmark> <newbookmark>",
        appendix: Appendix::Pointer,
        run: zfs::bookmark::bookmark,
    },
    Verb {
        name: "hold",
        usage: "hold [-r] <tag> <snapshot> ...",
        appendix: Appendix::Pointer,
        run: zfs::branch::hold,
    },
    Verb {
        name: "holds",
        usage: "holds [-rH] <snapshot> ...",
        appendix: Appendix::Pointer,
        run: zfs::branch::holds,
    },
    Verb {
        name: "release",
        usage: "release [-r] <tag> <snapshot> ...",
        appendix: Appendix::Pointer,
        run: zfs::branch::release,
    },
    Verb {
        name: "mount",
        usage: "mount\nmount [-fO] <-a | filesystem>",
        appendix: Appendix::Pointer,
        run: zfs::places::mount,
    },
    Verb {
        name: "unmount",
        usage: "unmount [-fu] <-a | filesystem|mountpoint>",
        appendix: Appendix::Pointer,
        run: zfs::places::unmount,
    },
    Verb {
        name: "umount",
        usage: "unmount [-fu] <-a | filesystem|mountpoint>",
        appendix: Appendix::Pointer,
        run: zfs::places::unmount,
    },
    Verb {
        name: "diff",
        usage: "diff [-FHt] <snapshot> [snapshot|filesystem]",
        appendix: Appendix::Pointer,
        run: zfs::diff::diff,
    },
    Verb {
        name: "list",
        usage: "list [-Hjp] [-r|-d max] [-o property[,...]] [-s property]...\n    \
                [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...",
        appendix: Appendix::DatasetProperties,
        run: zfs::list::list,
    },
    Verb {
        name: "set",
        usage: "set <property=value> ... <filesystem|volume|snapshot> ...",
        appendix: Appendix::DatasetProperties,
        run: zfs::change::set,
    },
    Verb {
        name: "get",
        usage: "get [-rHjp] [-d max] [-o \"all\" | field[,...]]\n    \
                [-t type[,...]] [-s source[,...]]\n    \
                <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...",
        appendix: Appendix::DatasetProperties,
        run: zfs::get::get,
    },
    Verb {
        name: "inherit",
        usage: "inherit [-rS] <property> <filesystem|volume|snapshot> ...",
        appendix: Appendix::DatasetProperties,
        run: zfs::inherit::inherit,
    },
    Verb {
        name: "userspace",
        usage: "userspace [-Hinp] [-o field[,...]] [-s field] ...\n    \
                [-S field] ... [-t type[,...]] <filesystem|snapshot|path>",
        appendix: Appendix::Pointer,
        run: zfs::space::users,
    },
    Verb {
        name: "groupspace",
        usage: "groupspace [-Hinp] [-o field[,...]] [-s field] ...\n    \
                [-S field] ... [-t type[,...]] <filesystem|snapshot|path>",
        appendix: Appendix::Pointer,
        run: zfs::space::groups,
    },
    Verb {
        name: "projectspace",
        usage: "projectspace [-Hp] [-o field[,...]] [-s field] ... \n    \
                [-S field] ... <filesystem|snapshot|path>",
        appendix: Appendix::Pointer,
        run: zfs::space::projects,
    },
];

const OWN: &[Verb] = &[
    Verb {
        name: "ls",
        usage: "ls [-ljr] [--replay] [-T txg] [-d dir] <pool[/fs][@snap]:path> ...",
        appendix: Appendix::Text(files::PLACES),
        run: files::ls,
    },
    Verb {
        name: "cat",
        usage: "cat [--replay] [-T txg] [-d dir] <pool[/fs][@snap]:path> ...",
        appendix: Appendix::Text(files::PLACES),
        run: files::cat,
    },
    Verb {
        name: "get",
        usage: "get [-jr] [--replay] [--salvage] [-T txg] [-d dir] <pool[/fs][@snap]:path> ... <destination>",
        appendix: Appendix::Text(files::PLACES),
        run: files::get,
    },
    Verb {
        name: "put",
        usage: "put [-r] [-d dir] <source> ... <pool[/fs]:path>",
        appendix: Appendix::None,
        run: files::put,
    },
    Verb {
        name: "mkdir",
        usage: "mkdir [-p] [-m mode] [-d dir] <pool[/fs]:path> ...",
        appendix: Appendix::None,
        run: files::mkdir,
    },
    Verb {
        name: "mv",
        usage: "mv [-n] [-d dir] <pool[/fs]:path> ... <pool[/fs]:path>",
        appendix: Appendix::None,
        run: files::mv,
    },
    Verb {
        name: "rm",
        usage: "rm [-rf] [-d dir] <pool[/fs]:path> ...",
        appendix: Appendix::None,
        run: files::rm,
    },
    Verb {
        name: "mount",
        usage: "mount [-r] [-d dir] <pool[/fs][@snap]> <directory>",
        appendix: Appendix::Text(mount::HELP),
        run: mount::mount,
    },
    Verb {
        name: "unmount",
        usage: "unmount [-l] [-d dir] <directory>",
        appendix: Appendix::Text(mount::UNMOUNT_HELP),
        run: mount::unmount,
    },
    Verb {
        name: "umount",
        usage: "umount [-l] [-d dir] <directory>",
        appendix: Appendix::Text(mount::UNMOUNT_HELP),
        run: mount::unmount,
    },
    Verb {
        name: "verify",
        usage: "verify [-jq] [-m memory] [-s statefile] [-T txg] [-d dir]\n    \
                [--at-risk disk[,...]] <pool>",
        appendix: Appendix::Text(judge::HELP),
        run: judge::verify,
    },
    Verb {
        name: "lab",
        usage: "lab faults [-j] [--seeds count]\n    lab rebuild [-j] [--used size] [--svg file]",
        appendix: Appendix::Text(lab::HELP),
        run: lab::lab,
    },
    Verb {
        name: "rescue",
        usage: rescue::USAGE,
        appendix: Appendix::Text(rescue::HELP),
        run: rescue::rescue,
    },
    Verb {
        name: "serve",
        usage: "serve [-s socket] [-u user,..] [--memory size] [--hooks dir] [--listen-metrics address]\n    \
                [--foreground] [--log-json] [--mount] [pool] ...",
        appendix: Appendix::Text(serve::HELP),
        run: serve::serve,
    },
    Verb {
        name: "top",
        usage: "top [-jp] [interval [count]]",
        appendix: Appendix::Text(top::HELP),
        run: top::top,
    },
    Verb {
        name: "dump",
        usage: dump::USAGE,
        appendix: Appendix::Text(dump::HELP),
        run: dump::dump,
    },
];

/// Verbs of OpenZFS that are not there yet.
const LATER_ZPOOL: &[&str] =
    &["checkpoint", "initialize", "reguid", "reopen", "split", "sync", "trim", "upgrade", "wait"];
const LATER_ZFS: &[&str] = &[
    "allow",
    "change-key",
    "load-key",
    "program",
    "project",
    "receive",
    "recv",
    "redact",
    "send",
    "share",
    "unallow",
    "unload-key",
    "unshare",
    "upgrade",
    "wait",
];

/// The program that is being run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Zpool,
    Zfs,
    Thumper,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Zpool => "zpool",
            Program::Zfs => "zfs",
            Program::Thumper => "thumper",
        }
    }

    fn verbs(self) -> &'static [Verb] {
        match self {
            Program::Zpool => ZPOOL,
            Program::Zfs => ZFS,
            Program::Thumper => OWN,
        }
    }

    fn later(self) -> &'static [&'static str] {
        match self {
            Program::Zpool => LATER_ZPOOL,
            Program::Zfs => LATER_ZFS,
            Program::Thumper => &[],
        }
    }

    fn usage(self) -> String {
        let mut lines: Vec<_> = self.verbs().iter().map(|verb| verb.usage).collect();
        // Other names of a verb are beside it, and not told of.
        lines.dedup();
        let mut text = match self {
            Program::Zpool => usage::of_program("zpool", &lines),
            Program::Zfs => {
                usage::of_program("zfs", &lines)
                    + "Each dataset is of the form: pool/[dataset/]*dataset[@name]\n\n\
                       For the property list, run: zfs set|get\n"
            }
            Program::Thumper => {
                lines.insert(0, "zfs <command> [args ...]");
                lines.insert(0, "zpool <command> [args ...]");
                usage::of_program("thumper", &lines)
            }
        };
        text +=
            "\nBefore the command, -d DIR names a directory (or device) to look for pools in.\n";
        text
    }
}

/// The program that was called, and the words after its name.
fn called(words: &[OsString]) -> (Program, &[OsString]) {
    let (program, rest) = match words.split_first() {
        Some((first, rest)) => (Path::new(first).file_name().unwrap_or_default(), rest),
        None => (OsStr::new("thumper"), words),
    };
    let program = match program.to_str() {
        Some("zpool") => Program::Zpool,
        Some("zfs") => Program::Zfs,
        _ => Program::Thumper,
    };
    (program, rest)
}

/// The verb of `thumper` itself, if it is one.
fn own_verb(words: &[OsString]) -> Option<&OsString> {
    let (program, mut rest) = called(words);
    while rest.first().is_some_and(|word| word == "-d") {
        rest = rest.get(2..).unwrap_or_default();
    }
    rest.first().filter(|_| program == Program::Thumper)
}

/// Is it a command that no server can run, but this process alone?
#[must_use]
pub fn is_own(words: &[OsString]) -> bool {
    own_verb(words).is_some_and(|verb| verb == "serve" || verb == "rescue" || verb == "lab")
}

/// The exit status of a command that did not come to its end, whatever was in its way.
#[must_use]
pub fn broken_off(words: &[OsString]) -> u8 {
    match own_verb(words) {
        Some(verb) if verb == "verify" => judge::NO_VERDICT,
        _ => 1,
    }
}

/// Runs a command line: the words with the program's name first. The exit status.
pub fn run(
    words: &[OsString],
    engine: &mut dyn Engine,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    run_in(words, engine, out, err, TimeZone::system())
}

/// The same, with times in this zone.
pub fn run_in(
    words: &[OsString],
    engine: &mut dyn Engine,
    out: &mut dyn Write,
    err: &mut dyn Write,
    zone: TimeZone,
) -> u8 {
    let (program, rest) = called(words);
    let mut door = Door { engine, out, err, zone, places: Vec::new(), command: String::new() };
    let status = start(program, rest, &mut door);
    let flushed = door.out.flush();
    match (status, flushed) {
        (Ok(status), Ok(())) => status,
        (Ok(_), Err(error)) | (Err(error), _) => {
            // Somebody who reads no further is no failure worth a message.
            if error.kind() != ErrorKind::BrokenPipe {
                let _ = writeln!(door.err, "cannot write: {error}");
            }
            broken_off(words)
        }
    }
}

/// Takes options before the verb, then the verb.
fn start(program: Program, mut words: &[OsString], door: &mut Door<'_>) -> std::io::Result<u8> {
    while let Some((first, rest)) = words.split_first() {
        match first.to_str() {
            Some("-d") if !rest.is_empty() => {
                door.places.extend(rest.first().map(Into::into));
                words = rest.get(1..).unwrap_or_default();
            }
            Some("-h" | "--help" | "-?") => {
                write!(door.out, "{}", program.usage())?;
                return Ok(0);
            }
            Some("version" | "--version" | "-V") => {
                writeln!(door.out, "thumper-{}", env!("CARGO_PKG_VERSION"))?;
                return Ok(0);
            }
            Some("zpool") if program == Program::Thumper => {
                return start(Program::Zpool, rest, door);
            }
            Some("zfs") if program == Program::Thumper => return start(Program::Zfs, rest, door),
            _ => break,
        }
    }
    let Some((name, rest)) = words.split_first() else {
        write!(door.err, "missing command\n{}", program.usage())?;
        return Ok(2);
    };
    let Some(verb) = program.verbs().iter().find(|verb| name == verb.name) else {
        if let Some(later) = program.later().iter().find(|later| name == **later) {
            writeln!(door.err, "'{} {later}' is not there yet", program.name())?;
            return Ok(1);
        }
        let shown = name.to_string_lossy();
        write!(door.err, "unrecognized command '{shown}'\n{}", program.usage())?;
        return Ok(2);
    };
    door.command = format!("{} {}", program.name(), verbs::pools::command_text(words));
    let ran = if door::wants_help(rest) { Err(Stop::Help) } else { (verb.run)(door, rest) };
    finish(verb, ran, door)
}

fn finish(verb: &Verb, ran: Ran, door: &mut Door<'_>) -> std::io::Result<u8> {
    match ran {
        Ok(status) => Ok(status),
        Err(Stop::Help) => {
            write!(door.out, "{}", usage::of_verb(verb.usage, verb.appendix))?;
            Ok(0)
        }
        Err(Stop::Usage(message)) => {
            if !message.is_empty() {
                writeln!(door.err, "{message}")?;
            }
            write!(door.err, "{}", usage::of_verb(verb.usage, verb.appendix))?;
            Ok(if verb.name == "verify" { judge::NO_VERDICT } else { 2 })
        }
        Err(Stop::Failed(error)) => {
            writeln!(door.err, "{error}")?;
            Ok(1)
        }
        Err(Stop::Said(message, status)) => {
            writeln!(door.err, "{message}")?;
            Ok(status)
        }
        Err(Stop::Output(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_to_come() {
        for program in [Program::Zpool, Program::Zfs, Program::Thumper] {
            let there = |later: &&&str| program.verbs().iter().any(|verb| verb.name == **later);
            let both: Vec<_> = program.later().iter().filter(there).collect();
            assert!(both.is_empty(), "{}: {both:?}", program.name());
        }
    }

    #[test]
    fn a_verb_is_told_of_once() {
        let text = Program::Zfs.usage();
        for line in ["\tsnapshot [-r]", "\tunmount [-fu]"] {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
    }
}
