//! `thumper top`: who holds the memory of the server.

use std::ffi::OsString;
use std::time::Duration;

use verbs::memory::Report;
use verbs::props::nice_bytes;

use crate::columns::{Column, Table};
use crate::door::{Door, Ran, Stop, bad_option, text};
use crate::getopt::{Opt, sort};

/// What `-h` says besides.
pub(crate) const HELP: &str = "
Who holds the server's memory (thumper serve): now, and at most since it began. With an interval again every so many
seconds.

\t-j  as JSON, one document a time
\t-p  exact numbers of bytes
";

/// `thumper top`.
pub(crate) fn top(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "jp", &["json"]);
    let (mut json, mut exact) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('j') | Opt::Long(_) => json = true,
            Opt::Flag('p') => exact = true,
            other => return Err(bad_option(other)),
        }
    }
    let mut names: Vec<String> = words.operands.iter().map(|word| text(word)).collect();
    let every = crate::zpool::interval(&mut names)?;
    if let Some(name) = names.first() {
        return Err(Stop::Usage(format!("'{name}' is no interval")));
    }
    let (pause, count) = every.unwrap_or((Duration::ZERO, Some(1)));
    let mut shown = 0;
    loop {
        let Some(report) = door.engine.memory() else {
            let why = "no server is running here, which holds memory for long (thumper serve)";
            return Err(Stop::Said(why.into(), 1));
        };
        let document = match json {
            true => crate::json::memory(&report).into_bytes(),
            false => table(&report, exact),
        };
        door.print(document)?;
        door.out.flush()?;
        shown += 1;
        if count.is_some_and(|count| shown >= count) {
            return Ok(0);
        }
        door.wait(pause)?;
        if !json {
            door.print("\n")?;
        }
    }
}

/// The report for people.
fn table(report: &Report, exact: bool) -> Vec<u8> {
    let shown = |bytes: u64| if exact { bytes.to_string() } else { nice_bytes(bytes) };
    let column = |heading: &str, right| Column::new(heading, 7, right);
    let columns = vec![column("HOLDER", false), column("NOW", true), column("MOST", true)];
    let mut rows: Vec<[String; 3]> = Vec::new();
    for holding in report.holdings().filter(|holding| holding.bytes_max > 0) {
        let name = holding.holder.name().to_string();
        rows.push([name, shown(holding.bytes), shown(holding.bytes_max)]);
    }
    let account = &report.account;
    rows.push(["all".into(), shown(account.used), shown(account.used_max)]);
    rows.push(["cap".into(), shown(account.cap), String::new()]);
    if account.waited_for > 0 {
        rows.push(["waited for".into(), shown(account.waited_for), String::new()]);
    }
    if report.resident > 0 {
        rows.push(["process".into(), shown(report.resident), String::new()]);
        rows.push(["unaccounted".into(), shown(report.unaccounted()), String::new()]);
    }
    let mut table = Table { columns, scripted: false };
    for row in &rows {
        table.columns.iter_mut().zip(row).for_each(|(column, value)| column.fit(value.as_bytes()));
    }
    let mut out = Vec::new();
    table.heading(&mut out);
    rows.iter().for_each(|row| table.row(&mut out, row));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::mem::{Account, Class, Holder};

    #[test]
    fn who_holds_what_is_shown() {
        let account = Account::new(256 << 20, 0);
        let dirty = account.of(Holder::Dirty).take(3 << 20);
        let cache = account.of(Holder::Cache).try_grant(Class::Elastic, 1 << 20);
        drop(dirty);
        let report = Report { account: account.snapshot(), resident: 11 << 20 };
        let text = String::from_utf8(table(&report, false)).expect("text");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["HOLDER", "NOW", "MOST"]);
        assert_eq!(lines[1], ["cache", "1M", "1M"]);
        assert_eq!(lines[2], ["dirty", "0B", "3M"]);
        assert_eq!(lines[3], ["all", "1M", "4M"]);
        assert_eq!(lines[4], ["cap", "256M"]);
        assert_eq!(lines[5], ["process", "11M"]);
        assert_eq!(lines[6], ["unaccounted", "10M"]);
        let exact = String::from_utf8(table(&report, true)).expect("text");
        assert!(exact.contains("268435456"), "{exact}");
        let json = crate::json::memory(&report);
        assert!(json.contains("\"cache\":{\"bytes\":1048576,\"bytes_max\":1048576}"), "{json}");
        assert!(json.ends_with("}}\n") && json.contains("\"cap\":268435456"), "{json}");
        drop(cache);
    }
}
