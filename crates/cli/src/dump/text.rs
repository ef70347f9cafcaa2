//! Facts for people, in zdb's layout where zdb has one.
//!
//! Bytes of unknown origin never reach a terminal as they are (`printing::text`).

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use verbs::dump::{BlkPtr, Fact, NvList, PairValue, Value, printing};

use crate::door::time_in;

/// As `ctime` has it.
const LONG: &str = "%a %b %e %H:%M:%S %Y";
/// As histories have it.
const STAMP: &str = "%Y-%m-%d.%H:%M:%S";
/// Kinds before which a blank line and a title come, when another kind was before.
const TITLES: &[(&str, &str)] = &[
    ("mos-entry", "MOS directory:"),
    ("feature", "Features:"),
    ("vdev", "Vdevs:"),
    ("metaslabs", "Metaslabs:"),
    ("log-space-map", "Log Space Maps in Pool:"),
    ("record", "History:"),
];
/// Kinds that may come between two of a kind without a new title.
const INSIDE: &[&str] = &[
    "metaslab",
    "space-map",
    "batch",
    "run",
    "padding",
    "error",
    "mapping",
    "moved",
    "births",
    "born",
];

/// Prints facts one after another.
pub(super) struct Text {
    zone: TimeZone,
    /// The title under which facts are printed.
    title: &'static str,
    /// The kind of the fact before.
    last: &'static str,
    /// The object whose header was printed last.
    object: Option<u64>,
}

impl Text {
    pub(super) fn new(zone: TimeZone) -> Text {
        Text { zone, title: "", last: "", object: None }
    }

    /// The lines of a fact.
    pub(super) fn of(&mut self, fact: &Fact) -> String {
        let mut out = String::new();
        match TITLES.iter().find(|(kind, _)| *kind == fact.kind) {
            Some((_, title)) => {
                if self.title != fact.kind {
                    let _ = write!(out, "\n{title}\n");
                }
                self.title = fact.kind;
            }
            None if !INSIDE.contains(&fact.kind) => self.title = "",
            None => {}
        }
        // Writing to a string cannot fail.
        let _ = self.write(&mut out, fact);
        self.last = fact.kind;
        out
    }

    fn write(&mut self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        match fact.kind {
            "error" => {
                let (what, why) = (self.show(fact, "what"), self.show(fact, "why"));
                writeln!(out, "cannot read {what}: {why}")
            }
            "device" | "label" | "label-check" | "ring" => self.labels(out, fact),
            "uberblock" => match fact.get("uberblock") {
                Some(Value::Uberblock(uberblock)) => {
                    write!(out, "\nUberblock:\n{}", printing::uberblock(uberblock, true))
                }
                _ => Ok(()),
            },
            "config" => match fact.get("config") {
                Some(Value::List(config)) => {
                    write!(out, "\nMOS Configuration:\n{}", printing::list(config, 8))
                }
                _ => Ok(()),
            },
            "list" => match fact.get("list") {
                Some(Value::List(list)) => write!(out, "{}", printing::list(list, 8)),
                _ => Ok(()),
            },
            "mos-entry" | "entry" | "xattr" => self.entry(out, fact),
            "feature" => self.feature(out, fact),
            "vdev" => self.vdev(out, fact),
            "metaslabs" | "metaslab" | "space-map" | "batch" | "run" | "padding"
            | "log-space-map" => self.space(out, fact),
            "mapping" | "moved" | "births" | "born" => self.removed(out, fact),
            "dataset" => self.dataset(out, fact),
            "dnode" => self.dnode(out, fact),
            "bonus" => self.bonus(out, fact),
            "attributes" => self.attributes(out, fact),
            "path" => writeln!(out, "\tpath\t{}", self.show(fact, "path")),
            "encrypted" => writeln!(out, "\t({} encrypted)", self.show(fact, "what")),
            "zap" => self.zap(out, fact),
            "word" => writeln!(out, "\t\t[{}] = {:x}", fact.u64("index"), fact.u64("value")),
            "block" | "segment" | "spill" | "list-entry" | "sublist" => self.blocks(out, fact),
            "deadlist" | "deadlist-key" | "intent-log" | "log-block" | "log-record" => {
                self.lists(out, fact)
            }
            "record" => self.record(out, fact),
            "stored" | "bytes" | "pointer" => self.raw(out, fact),
            _ => {
                write!(out, "{}:", fact.kind)?;
                self.rest(out, fact, &[])?;
                writeln!(out)
            }
        }
    }

    /// A value as text; nothing if there is none.
    fn show(&self, fact: &Fact, name: &str) -> String {
        fact.get(name).map(|value| self.value(value)).unwrap_or_default()
    }

    fn value(&self, value: &Value) -> String {
        match value {
            Value::Number(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Hex(number) => format!("{number:x}"),
            Value::Time(seconds, nanos) => {
                let nanos = nanos.filter(|nanos| *nanos != 0);
                let nanos = nanos.map(|nanos| format!(" +{nanos:09}ns")).unwrap_or_default();
                time_in(&self.zone, *seconds, LONG) + &nanos
            }
            // Reasons may quote what was on the disk.
            Value::Word(word) => printing::text(word.as_bytes()).to_string(),
            Value::Text(bytes) => printing::text(bytes).to_string(),
            Value::Bytes(bytes) => hex(bytes),
            Value::Numbers(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
                numbers.join(" ")
            }
            Value::Words(words) => words.join(" "),
            Value::Checksum([a, b, c, d]) => format!("{a:016x}:{b:016x}:{c:016x}:{d:016x}"),
            Value::Pointer(bp) => printing::blkptr(bp).to_string(),
            Value::List(list) => printing::list(list, 0).to_string(),
            Value::Uberblock(uberblock) => printing::uberblock(uberblock, true).to_string(),
        }
    }

    /// All values but some, as `name=value`.
    fn rest(&self, out: &mut String, fact: &Fact, but: &[&str]) -> std::fmt::Result {
        for (name, value) in fact.values.iter().filter(|(name, _)| !but.contains(name)) {
            write!(out, " {name}={}", self.value(value))?;
        }
        Ok(())
    }

    fn labels(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        const RULE: &str = "------------------------------------";
        match fact.kind {
            "device" => {
                writeln!(out, "\n{}: {} bytes", self.show(fact, "device"), self.show(fact, "size"))
            }
            "label-check" => {
                write!(out, "label {} at {}:", fact.u64("label"), fact.u64("offset"))?;
                for name in ["config", "bootenv"] {
                    write!(out, " {name} {};", self.show(fact, name))?;
                }
                let good = fact.u64("uberblocks");
                write!(out, " {good} uberblocks in slots of {}", fact.u64("slot_size"))?;
                if good > 0 {
                    write!(out, ", newest txg {}", fact.u64("newest_txg"))?;
                }
                match fact.u64("bad_slots") {
                    0 => {}
                    bad => write!(out, ", {bad} slots damaged")?,
                }
                match fact.get("boot") {
                    Some(boot) => writeln!(out, "\n    boot: {}", self.value(boot)),
                    None => writeln!(out),
                }
            }
            "label" => {
                writeln!(out, "{RULE}\nLABEL {}\n{RULE}", fact.u64("label"))?;
                if let Some(Value::List(config)) = fact.get("config") {
                    write!(out, "{}", printing::list(config, 4))?;
                }
                writeln!(out, "    labels = {}", self.show(fact, "labels"))
            }
            _ => {
                writeln!(out, "    Uberblock[{}]", fact.u64("slot"))?;
                match fact.get("uberblock") {
                    Some(uberblock) => write!(out, "{}", self.value(uberblock))?,
                    None => writeln!(out, "\tdamaged: {}", self.show(fact, "error"))?,
                }
                writeln!(out, "        labels = {}", self.show(fact, "labels"))
            }
        }
    }

    fn entry(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        let name = self.show(fact, "name");
        if let Some(object) = fact.get("object") {
            let kind = self.show(fact, "type");
            return writeln!(out, "\t\t{name} = {} (type: {kind})", self.value(object));
        }
        match (fact.get("length"), fact.get("value")) {
            (Some(length), Some(value)) => {
                let (swap, number) = (fact.u64("swap"), fact.u64("number"));
                let (value, length) = (self.value(value), self.value(length));
                writeln!(out, "\t\t{name} = {value} : [{length}:{swap}:{number}]")
            }
            (_, Some(Value::Numbers(numbers))) => {
                let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
                writeln!(out, "\t\t{name} = [ {} ]", numbers.join(" "))
            }
            (_, Some(value)) => writeln!(out, "\t\t{name} = {}", self.value(value)),
            _ => writeln!(out, "\t\t{name}"),
        }
    }

    fn feature(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        let (guid, state) = (self.show(fact, "guid"), self.show(fact, "state"));
        write!(out, "\t{guid:<40} {state:<8} count {}", fact.u64("count"))?;
        write!(out, ", needed to {}", self.show(fact, "needed_to"))?;
        match fact.get("enabled_txg") {
            Some(txg) => writeln!(out, ", enabled in txg {}", self.value(txg)),
            None => writeln!(out),
        }
    }

    fn vdev(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        let indent = 4 * (fact.u64("depth") as usize + 1);
        write!(out, "{:indent$}{}", "", self.show(fact, "type"))?;
        self.rest(out, fact, &["depth", "type"])?;
        writeln!(out)
    }

    fn space(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        let index = fact.u64("index");
        match fact.kind {
            "metaslabs" => {
                write!(out, "\tvdev {:10}", fact.u64("vdev"))?;
                match fact.u64("unflushed_object") {
                    0 => writeln!(out)?,
                    object => writeln!(out, "      ms_unflushed_phys object {object}")?,
                }
                let head = "offset                spacemap          free";
                writeln!(out, "\tmetaslabs {:5}   {head}", fact.u64("count"))
            }
            "metaslab" => {
                write!(
                    out,
                    "\tmetaslab {:6}   offset {:12x}",
                    fact.u64("metaslab"),
                    fact.u64("offset")
                )?;
                write!(out, "   spacemap {:6}", fact.u64("spacemap"))?;
                write!(out, "   free {:>11}", self.show(fact, "free"))?;
                match fact.u64("unflushed_txg") {
                    0 => writeln!(out),
                    txg => writeln!(out, "   unflushed since txg {txg}"),
                }
            }
            "space-map" => {
                writeln!(out, "space map object {}:", fact.object.unwrap_or(0))?;
                writeln!(out, "  smp_length = {:#x}", fact.u64("smp_length"))?;
                writeln!(out, "  smp_alloc = {:#x}", fact.u64("smp_alloc"))?;
                if let Some(Value::Numbers(counts)) = fact.get("histogram") {
                    let shift = fact.u64("histogram_shift");
                    for (power, count) in (shift..).zip(counts).filter(|(_, count)| **count != 0) {
                        writeln!(out, "\t\t\t{power:3}: {count:6}")?;
                    }
                }
                Ok(())
            }
            "batch" => {
                let action = self.show(fact, "action");
                let (txg, pass) = (fact.u64("txg"), fact.u64("pass"));
                writeln!(out, "\t    [{index:6}] {action}: txg {txg} pass {pass}")
            }
            "run" => {
                let letter = self.show(fact, "action").chars().next().unwrap_or(' ');
                let (offset, size) = (fact.u64("offset"), fact.u64("size"));
                let end = offset.saturating_add(size);
                write!(out, "\t    [{index:6}]    {letter}  range: {offset:010x}-{end:010x}")?;
                write!(out, "  size: {size:06x}")?;
                if fact.get("vdev").is_some() {
                    write!(out, " vdev: {:06}", fact.u64("vdev"))?;
                }
                writeln!(out, " words: {}", fact.u64("words"))
            }
            "padding" => writeln!(out, "\t    [{index:6}] padding"),
            _ => {
                let object = fact.object.unwrap_or(0);
                writeln!(out, "Log Spacemap object {object} txg {}", fact.u64("txg"))
            }
        }
    }

    /// What is told of a vdev that was removed.
    fn removed(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        match fact.kind {
            "moved" => {
                let (from, size) = (fact.u64("from"), fact.u64("size"));
                let (vdev, to) = (fact.u64("to_vdev"), fact.u64("to"));
                write!(out, "\t<{}:{from:x}:{size:x}>", fact.u64("vdev"))?;
                writeln!(out, " -> <{vdev}:{to:x}:{size:x}>")
            }
            "born" => writeln!(out, "\toffset {:x} -> txg {}", fact.u64("end"), fact.u64("txg")),
            kind => {
                let object = fact.object.unwrap_or(0);
                write!(out, "indirect {kind} of vdev {} obj {object}:", fact.u64("vdev"))?;
                self.rest(out, fact, &["vdev"])?;
                writeln!(out)
            }
        }
    }

    fn dataset(&mut self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        self.object = None;
        let (name, kind) = (self.show(fact, "name"), self.show(fact, "type"));
        write!(out, "Dataset {name} [{kind}], ID {}", fact.u64("id"))?;
        if fact.get("cr_txg").is_some() {
            let referenced = fact.u64("referenced");
            write!(out, ", cr_txg {}, {referenced}", fact.u64("cr_txg"))?;
        }
        write!(out, ", {} objects", fact.u64("objects"))?;
        writeln!(out, ", rootbp {}", self.show(fact, "rootbp"))
    }

    fn dnode(&mut self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        const HEAD: &str = "    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type";
        let in_full = self.last != "dnode" || self.object.is_none();
        if in_full {
            writeln!(out, "\n{HEAD}")?;
        }
        self.object = fact.object;
        let lsize = fact.u64("lsize");
        let bytes = fact.u64("fill") as f64 * fact.u64("data_block") as f64;
        let full = 100.0 * bytes / fact.u64("per_block").max(1) as f64 / lsize.max(1) as f64;
        let number = fact.object.unwrap_or(0);
        // The accounting objects are those below 0; all others are far from it.
        let number = if number >= u64::MAX - 2 {
            number.cast_signed().to_string()
        } else {
            number.to_string()
        };
        write!(out, "{number:>10}  {:3}  {:5}", fact.u64("levels"), fact.u64("indirect_block"))?;
        write!(out, "  {:5}  {:5}", fact.u64("data_block"), fact.u64("dsize"))?;
        write!(out, "  {:6}  {lsize:5}  {full:6.2}", fact.u64("dnsize"))?;
        let (kind, check) = (self.show(fact, "type"), self.show(fact, "checksum"));
        writeln!(out, "  {kind} (K={check}) (Z={})", self.show(fact, "compress"))?;
        if fact.u64("bonus_len") > 0 {
            let (size, kind) = (fact.u64("bonus_len"), self.show(fact, "bonus_type"));
            writeln!(out, "{:44}{size:6}   bonus  {kind}", "")?;
        }
        writeln!(out, "\tdnode flags: {}", self.show(fact, "flags"))?;
        writeln!(out, "\tdnode maxblkid: {}", fact.u64("maxblkid"))
    }

    fn bonus(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        for (name, value) in &fact.values {
            match value {
                Value::Hex(value) if name.starts_with("smp_") => {
                    writeln!(out, "\t\t{name} = {value:#x}")?;
                }
                value => writeln!(out, "\t\t{name} = {}", self.value(value))?,
            }
        }
        Ok(())
    }

    fn attributes(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        for (name, value) in &fact.values {
            match value {
                Value::Hex(value) if *name == "rdev" => writeln!(out, "\t{name}\t{value:#018x}")?,
                value => writeln!(out, "\t{name}\t{}", self.value(value))?,
            }
        }
        Ok(())
    }

    fn zap(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        let (bytes, entries) = (fact.u64("bytes"), fact.u64("entries"));
        if self.show(fact, "form") == "micro" {
            return writeln!(out, "\tmicrozap: {bytes} bytes, {entries} entries\n");
        }
        writeln!(out, "\tFat ZAP stats:")?;
        writeln!(out, "\t\tZAP entries: {entries}")?;
        writeln!(out, "\t\tLeaf blocks: {}", fact.u64("leaf_blocks"))?;
        writeln!(out, "\t\tTotal blocks: {}", fact.u64("total_blocks"))?;
        for name in ["zt_blk", "zt_numblks", "zt_shift", "zt_nextblk", "zt_blks_copied"] {
            writeln!(out, "\t\t{name}: {}", fact.u64(name))?;
        }
        writeln!(out, "\t\tzap_salt: {:#x}\n", fact.u64("salt"))
    }

    fn blocks(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        match (fact.kind, fact.get("bp")) {
            ("block", Some(Value::Pointer(bp))) => {
                if self.last != "block" {
                    writeln!(out, "Indirect blocks:")?;
                }
                write!(out, "{:16x} ", fact.u64("offset"))?;
                let level = fact.u64("level");
                for at in (0..fact.u64("levels")).rev() {
                    if at == level {
                        write!(out, "L{level}")?;
                    } else {
                        write!(out, " ")?;
                    }
                }
                writeln!(out, " {}", marked(bp))
            }
            ("list-entry", Some(Value::Pointer(bp))) => {
                let mark = if fact.get("mark").is_some() { " freed" } else { "" };
                writeln!(out, "\t{}{mark}", printing::compact(bp))
            }
            ("spill", Some(Value::Pointer(bp))) => {
                writeln!(out, "\tSpill block: {}", printing::blkptr(bp))
            }
            ("segment", _) => {
                if self.last != "segment" {
                    writeln!(out)?;
                }
                let (start, end) = (fact.u64("start"), fact.u64("end"));
                let size = end.saturating_sub(start);
                writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:5}")
            }
            _ => writeln!(out, "\tsub-bpobj {}", fact.u64("bpobj")),
        }
    }

    fn lists(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        match fact.kind {
            "deadlist" => {
                let (used, comp) = (fact.u64("used"), fact.u64("comp"));
                write!(out, "\n    {}: {used}", self.show(fact, "list"))?;
                write!(out, " ({comp}/{} comp)", fact.u64("uncomp"))?;
                writeln!(out, ", {} entries", fact.u64("sublists"))
            }
            "deadlist-key" => {
                let (key, list) = (fact.u64("mintxg"), fact.u64("bpobj"));
                let (count, bytes) = (fact.u64("num_blkptrs"), fact.u64("bytes"));
                write!(out, "\n    mintxg {key} -> obj {list}: object {list}")?;
                write!(out, ", {count} blkptrs")?;
                if let Some(freed) = fact.get("num_freed") {
                    write!(out, ", {} freed", self.value(freed))?;
                }
                writeln!(out, ", {bytes}")
            }
            "intent-log" => {
                write!(out, "\n    ZIL header: claim_txg {}", fact.u64("claim_txg"))?;
                write!(out, ", claim_blk_seq {}", fact.u64("claim_blk_seq"))?;
                write!(out, ", claim_lr_seq {} ", fact.u64("claim_lr_seq"))?;
                write!(out, "replay_seq {}", fact.u64("replay_seq"))?;
                writeln!(out, ", flags {:#x}", fact.u64("flags"))
            }
            "log-block" => {
                let state = self.show(fact, "state");
                let bp = self.show(fact, "bp");
                writeln!(out, "\tBlock seqno {}, {state}, {bp}", fact.u64("seq"))
            }
            _ => {
                let (kind, len) = (self.show(fact, "record"), fact.u64("len"));
                write!(out, "\t\t{kind:<19} len {len:6}")?;
                write!(out, ", txg {}, seq {}", fact.u64("txg"), fact.u64("seq"))?;
                self.rest(out, fact, &["record", "len", "txg", "seq"])?;
                writeln!(out)
            }
        }
    }

    fn record(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        let Some(Value::List(list)) = fact.get("record") else { return Ok(()) };
        let signed = |key: &str| match list.get(key) {
            Some(PairValue::I64(number)) => Some(*number),
            _ => list.u64(key).map(u64::cast_signed),
        };
        let bytes = |key: &str| list.string(key).map(|text| printing::text(text).to_string());
        let time = signed("history time").unwrap_or(0);
        write!(out, "{}", time_in(&self.zone, time, STAMP))?;
        if let Some(command) = bytes("history command") {
            return writeln!(out, " {command}");
        }
        if let Some(name) = bytes("ioctl") {
            writeln!(out, " ioctl {name}")?;
            return self.inner(out, list);
        }
        write!(out, " [txg:{}]", list.u64("history txg").unwrap_or(0))?;
        for key in ["internal_name", "dsname"] {
            if let Some(text) = bytes(key) {
                write!(out, " {text}")?;
            }
        }
        if let Some(id) = list.u64("dsid") {
            write!(out, " ({id})")?;
        }
        writeln!(out, " {}", bytes("history internal str").unwrap_or_default())
    }

    fn inner(&self, out: &mut String, list: &NvList) -> std::fmt::Result {
        for (key, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
            if let Some(inner) = list.list(key) {
                write!(out, "    {title}:\n{}", printing::list(inner, 8))?;
            }
        }
        Ok(())
    }

    fn raw(&self, out: &mut String, fact: &Fact) -> std::fmt::Result {
        match (fact.kind, fact.get("bytes"), fact.get("bp")) {
            ("bytes", Some(Value::Bytes(bytes)), _) => {
                let text: String = bytes
                    .iter()
                    .map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' })
                    .collect();
                let pairs: Vec<_> = bytes.chunks(8).map(hex).collect();
                writeln!(out, "{:08x}  {:<33}  {text}", fact.u64("at"), pairs.join(" "))
            }
            ("pointer", _, Some(bp)) => {
                writeln!(out, "[{:5}] {}", fact.u64("index"), self.value(bp))
            }
            _ => {
                let (vdev, offset) = (fact.u64("vdev"), fact.u64("offset"));
                writeln!(out, "Found vdev {vdev} offset {offset:x}:")?;
                for (name, value) in fact.values.iter().skip(2) {
                    writeln!(out, "\t{name} = {}", self.value(value))?;
                }
                Ok(())
            }
        }
    }
}

/// A pointer as one of many, with what is unusual about it.
fn marked(bp: &BlkPtr) -> String {
    let mut text = printing::compact(bp).to_string();
    if bp.has_space() && bp.is_gang() {
        text += " gang";
    }
    text
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
