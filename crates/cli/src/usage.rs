//! Usage: the verbs with their words, and the lists of properties.

use std::fmt::Write as _;

use verbs::props::dataset::Access;
use verbs::props::pool::PoolAccess;
use verbs::props::{PoolProp, Prop, space};

/// What follows a verb's usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appendix {
    /// Nothing.
    None,
    /// Where the properties are listed.
    Pointer,
    /// The properties of pools.
    PoolProperties,
    /// The properties of data sets.
    DatasetProperties,
    /// More words about it.
    Text(&'static str),
}

/// The text for one verb: its lines, then what belongs to them.
#[must_use]
pub fn of_verb(lines: &str, appendix: Appendix) -> String {
    let mut text = String::from("usage:\n");
    for line in lines.lines() {
        let _ = writeln!(text, "\t{line}");
    }
    match appendix {
        Appendix::None => {}
        Appendix::Text(more) => text += more,
        Appendix::Pointer => text += "\nFor the property list, run: zfs set|get\n",
        Appendix::PoolProperties => text += &pool_properties(),
        Appendix::DatasetProperties => text += &dataset_properties(),
    }
    text
}

/// The text for a program: all its verbs.
#[must_use]
pub fn of_program(program: &str, verbs: &[&str]) -> String {
    let mut text =
        format!("usage: {program} command args ...\nwhere 'command' is one of the following:\n\n");
    for lines in verbs {
        for line in lines.lines() {
            let _ = writeln!(text, "\t{line}");
        }
        text.push('\n');
    }
    text
}

fn pool_properties() -> String {
    let mut text = String::from(
        "\nthe following properties are supported:\n\n\tPROPERTY             EDIT   VALUES\n\n",
    );
    let mut rows: Vec<_> = PoolProp::all().filter(|p| p.is_visible()).collect();
    rows.sort_by_key(|p| (p.info().access != PoolAccess::Computed, p.name()));
    for prop in rows {
        let computed = prop.info().access == PoolAccess::Computed;
        let edit = if computed { "NO" } else { "YES" };
        let pad = if computed { "  " } else { " " };
        let _ = writeln!(text, "\t{:<19}  {pad}{edit}   {}", prop.name(), prop.info().hint);
    }
    text += "\tfeature@...           YES   disabled | enabled | active\n\n\
             The feature@ properties must be appended with a feature name.\n\
             See zpool-features(7).\n";
    text
}

fn dataset_properties() -> String {
    let mut text = String::from(
        "\nThe following properties are supported:\n\n\
         \tPROPERTY       EDIT  INHERIT   VALUES\n\n",
    );
    let mut row = |name: &str, edit: bool, inherit: bool, values: &str| {
        let word = |yes| if yes { "YES" } else { "NO" };
        let _ =
            writeln!(text, "\t{name:<15} {:>3}      {:>3}   {values}", word(edit), word(inherit));
    };
    let mut rows: Vec<_> = Prop::all().filter(|p| p.is_visible()).collect();
    rows.sort_by_key(|p| (p.info().access != Access::Computed, p.name()));
    for prop in rows {
        row(prop.name(), !prop.is_readonly(), prop.is_inherited(), prop.hint());
    }
    for prefix in space::PREFIXES {
        let quota = prefix.ends_with("quota");
        let values = if quota { "<size> | none" } else { "<size>" };
        row(&format!("{prefix}@..."), quota, false, values);
    }
    row("written@<snap>", false, false, "<size>");
    row("written#<bookmark>", false, false, "<size>");
    text += "\nSizes are specified in bytes with standard units such as K, M, G, etc.\n\n\
             User-defined properties can be specified by using a name containing a colon (:).\n\n\
             The {user|group|project}[obj]{used|quota}@ properties must be appended with\n\
             a user|group|project specifier of one of these forms:\n    \
             POSIX name      (eg: \"matt\")\n    \
             POSIX id        (eg: \"126829\")\n    \
             SMB name@domain (eg: \"matt@sun\")\n    \
             SMB SID         (eg: \"S-1-234-567-89\")\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The usage that follows a command in a transcript.
    fn recorded<'a>(transcript: &'a str, command: &str) -> Vec<&'a str> {
        let start = transcript.find(&format!("$ {command}\n")).expect(command);
        let lines = transcript[start..].lines().take_while(|line| !line.starts_with("= "));
        lines
            .filter_map(|line| line.strip_prefix('!'))
            .map(|l| l.strip_prefix(' ').unwrap_or(l))
            .collect()
    }

    #[test]
    fn property_lists_are_openzfs_s() {
        let lifecycle = include_str!("../tests/transcripts/lifecycle.transcript");
        let dataset = include_str!("../tests/transcripts/dataset.transcript");
        for (theirs, ours) in [
            (recorded(lifecycle, "zpool get"), pool_properties()),
            (recorded(dataset, "zfs set"), dataset_properties()),
        ] {
            let start = theirs.iter().position(|l| l.contains("following properties")).unwrap() - 1;
            assert_eq!(ours.lines().collect::<Vec<_>>(), theirs[start..]);
        }
    }
}
