//! What `zdb` and `thumper dump` say of a pool, as sets of facts that can be compared: one reader
//! for both, so that neither can please it by its own layout.

use std::collections::BTreeMap;

/// Facts, each with how often it was said.
pub(crate) type Facts = BTreeMap<String, u64>;

/// Attributes that both print of every object. (zdb has the project of some only, and paths cost
/// a search.)
const ATTRIBUTES: [&str; 14] = [
    "uid", "gid", "atime", "mtime", "ctime", "crtime", "gen", "mode", "size", "parent", "links",
    "pflags", "rdev", "xattr",
];

/// Fields of bonuses that only one of them prints; zdb shows `num_freed` of lists that lack it.
const UNCOMMON: [&str; 7] =
    ["dl_used", "dl_comp", "dl_uncomp", "smp_length", "smp_alloc", "size", "num_freed"];

/// Starts of lines that both print alike, wherever they stand.
const ALIKE: [&str; 8] = [
    "\tdnode ",
    "\tmicrozap:",
    "\t\tZAP entries:",
    "\t\tLeaf blocks:",
    "\t\tTotal blocks:",
    "\t\tzt_",
    "\t\t\tzt_",
    "    ZIL header:",
];

/// Starts of lines of deadlists, before all objects. What zdb prints after the last object belongs to
/// data sets that it does not list.
const LISTS: [&str; 3] = ["    Deadlist:", "    Livelist:", "    mintxg "];

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the lines before were.
#[derive(Default)]
struct At {
    dataset: String,
    object: String,
    segments: bool,
    /// Words of an array so far.
    index: usize,
}

/// The facts about data sets and objects: of `zdb -P -dddddd`, of `dump -ddddd`.
pub(crate) fn objects(said: &str) -> Facts {
    let mut facts = Facts::new();
    let mut at = At::default();
    for line in said.lines() {
        for fact in facts_of(line, &mut at) {
            // The pool's own data sets, $ORIGIN and its like, zdb does not list.
            if !at.dataset.contains("/$") {
                let fact = format!("{} object {}: {fact}", at.dataset, at.object);
                *facts.entry(fact).or_default() += 1;
            }
        }
    }
    facts
}

/// What one line says.
fn facts_of(line: &str, at: &mut At) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let starts = |list: &[&str]| list.iter().any(|start| line.starts_with(start));
    if let Some(rest) = line.strip_prefix("Dataset ") {
        let name = rest.split(" [").next().unwrap_or_default();
        *at = At { dataset: name.into(), ..At::default() };
        let rootbp = rest.split(", rootbp ").nth(1).unwrap_or_default();
        return vec![squeezed(if name == "mos" { rootbp } else { rest })];
    }
    if line.contains(" (K=") {
        at.object = words.first().copied().unwrap_or_default().into();
        let shape = line.split(" (K=").next().unwrap_or_default();
        let checksum = line.split("(K=").nth(1).and_then(|rest| rest.split(')').next());
        // zdb's segments of dnodes are other ones; of a block of no round size it never sees that
        // it is a hole.
        let block: u64 = words.get(3).and_then(|word| word.parse().ok()).unwrap_or_default();
        at.segments = !shape.ends_with("DMU dnode") && block.is_power_of_two();
        return vec![format!("dnode {} checksum {}", shape_of(shape), checksum.unwrap_or("?"))];
    }
    if is_block(&words) {
        return vec![format!("block {}", squeezed(line.strip_suffix(" gang").unwrap_or(line)))];
    }
    if words.get(1) == Some(&"bonus") || starts(&ALIKE) {
        return vec![squeezed(line)];
    }
    if starts(&LISTS) || line.starts_with("\tEMBEDDED et=") || line.contains("P F=0 B=") {
        // Of lists that are objects zdb prints the headers alone.
        return if at.object.is_empty() { vec![squeezed(line)] } else { vec![] };
    }
    if line.starts_with("\t\tsegment [") {
        return if at.segments { vec![squeezed(line)] } else { vec![] };
    }
    if let Some(entry) = line.strip_prefix("\t\t") {
        return if is_array(entry) {
            array(entry, at)
        } else {
            entry_of(entry).into_iter().collect()
        };
    }
    let is_attribute = words.first().is_some_and(|first| ATTRIBUTES.contains(first));
    // Records of a log have owners on one line, with commas.
    if line.starts_with('\t') && is_attribute && !line.contains(',') {
        // zdb has no nanoseconds.
        return vec![squeezed(line.split(" +").next().unwrap_or(line))];
    }
    vec![]
}

/// A field of a bonus, or an entry of a ZAP: `name = value`.
fn entry_of(entry: &str) -> Option<String> {
    let (name, value) = entry.split_once(" = ")?;
    let name = name.trim_end();
    // zdb prints the bytes of names as they are, newlines too: odd ones are not compared.
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    let odd = name.is_empty() || entry.contains('\\') || !entry.trim_end().chars().all(plain);
    // Keys of several words are those of dedup tables, which zdb prints elsewhere.
    let words = name.split(' ').filter(|word| word.parse::<u64>().is_ok()).count();
    let common = !odd && words < 2 && !UNCOMMON.contains(&name);
    common.then(|| format!("{name} = {}", value_of(value)))
}

/// The value of an entry: numbers as ones that are not negative, several without brackets.
fn value_of(value: &str) -> String {
    let value = value.replace(['[', ']'], " ");
    let words = value.split_whitespace().map(|word| match word.parse::<i64>() {
        Ok(number) => number.cast_unsigned().to_string(),
        Err(_) => word.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A line of an array of words, as zdb prints it: `[4a, 49, 0, 0,`.
fn is_array(line: &str) -> bool {
    let line = line.trim_end();
    let words = line.trim_start_matches('[').trim_end_matches([',', ']']);
    line.ends_with([',', ']']) && words.split(", ").all(|w| u64::from_str_radix(w, 16).is_ok())
}

/// The words of an array that are not 0: zdb prints all, we only those.
fn array(line: &str, at: &mut At) -> Vec<String> {
    if line.starts_with('[') {
        at.index = 0;
    }
    let mut found = Vec::new();
    for word in line.split(['[', ',', ']', ' ']).filter(|word| !word.is_empty()) {
        if word != "0" {
            found.push(format!("[{}] = {word}", at.index));
        }
        at.index += 1;
    }
    found
}

/// The shape of a dnode. zdb rounds the space that it uses to sectors.
fn shape_of(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    if let Some(used) = words.get_mut(4)
        && let Ok(bytes) = used.parse::<u64>()
    {
        *used = ((bytes + 256) / 512 * 512).to_string();
    }
    words.join(" ")
}

/// `OFFSET L0 ...`: a line of a tree of blocks.
fn is_block(words: &[&str]) -> bool {
    let [offset, level, _, ..] = words else { return false };
    let level = level.strip_prefix('L').and_then(|level| level.parse::<u8>().ok());
    level.is_some() && u64::from_str_radix(offset, 16).is_ok()
}

/// The facts about metaslabs and their maps: of `zdb -P -mmmmmm`, of `dump -mmm`.
pub(crate) fn metaslabs(said: &str) -> Facts {
    let mut facts = Facts::new();
    let (mut vdev, mut map) = (String::new(), String::new());
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut add = |fact: String| *facts.entry(fact).or_default() += 1;
        match words[..] {
            ["vdev", id, ..] => {
                vdev = id.into();
                if let Some((_, object)) = line.split_once("ms_unflushed_phys") {
                    add(format!("vdev {vdev} unflushed {}", squeezed(object)));
                }
            }
            ["metaslabs", "0", ..] => {}
            ["metaslabs", count, ..] => add(format!("vdev {vdev} has {count} metaslabs")),
            ["metaslab", number, "offset", offset, "spacemap", object, ..] => {
                add(format!("vdev {vdev} metaslab {number} at {offset}: map {object}"));
            }
            ["space", "map", "object", object] => map = object.into(),
            ["offset", offset, "->", "txg", txg] => add(format!("born {offset} {txg}")),
            [from, "->", to, ..] if from.starts_with('<') => add(format!("moved {from} {to}")),
            ["Log", "Spacemap", "object", object, "txg", txg] => add(format!("log {object} {txg}")),
            [name @ ("smp_length" | "smp_alloc"), "=", value] => {
                add(format!("map {map} {name} {value}"));
            }
            ["[", ..] if line.starts_with("\t    [") => {
                // Of an entry of one word zdb prints a vdev that is none.
                let line = match line.split_once(" vdev: ") {
                    Some((entry, rest)) if rest.ends_with("words: 1") => {
                        format!("{entry} words: 1")
                    }
                    _ => line.into(),
                };
                add(format!("map {map} {}", squeezed(&line)));
            }
            _ => {}
        }
    }
    facts
}

/// The lines of labels and their rings: of `zdb -lu`, of `dump -lu`.
pub(crate) fn labels(said: &str) -> Vec<String> {
    let from_first = said.lines().skip_while(|line| !line.starts_with("LABEL "));
    let lines = from_first.filter(|line| !line.starts_with("---") && !line.trim().is_empty());
    // zdb has no root pointers here; the uberblocks of a pool are compared with theirs.
    let lines = lines.filter(|line| !line.starts_with("\trootbp ="));
    lines.map(|line| line.trim_end().to_string()).collect()
}

/// What the one has and the other has not, in words, at most some of it; empty if they are equal.
pub(crate) fn difference(zdb: &Facts, ours: &Facts) -> String {
    let lines = |one: &Facts, other: &Facts, who: &str| -> Vec<String> {
        let more = one.iter().filter(|(fact, count)| other.get(*fact).unwrap_or(&0) < count);
        more.map(|(fact, _)| format!("only {who}: {fact}")).collect()
    };
    let (theirs, own) = (lines(zdb, ours, "zdb "), lines(ours, zdb, "dump"));
    let count = theirs.len() + own.len();
    let some: Vec<_> = theirs.into_iter().take(15).chain(own.into_iter().take(15)).collect();
    if count == 0 { String::new() } else { format!("{count} differ:\n{}", some.join("\n")) }
}
