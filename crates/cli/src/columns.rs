//! Columns: padded for people, separated by tabs for scripts.
//!
//! Widths count bytes, as OpenZFS counts them; a value that is too long sticks out and shifts the
//! rest of its line.

/// How a column lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub heading: Vec<u8>,
    /// Its width in bytes.
    pub width: usize,
    /// Values lie at its right edge.
    pub right: bool,
}

impl Column {
    /// A column as wide as its heading at least.
    #[must_use]
    pub fn new(heading: impl Into<Vec<u8>>, width: usize, right: bool) -> Column {
        let heading = heading.into();
        let width = width.max(heading.len());
        Column { heading, width, right }
    }

    /// Makes room for a value.
    pub fn fit(&mut self, value: &[u8]) {
        self.width = self.width.max(value.len());
    }
}

/// Appends a value at the left of so many bytes.
pub fn left(out: &mut Vec<u8>, value: &[u8], width: usize) {
    out.extend_from_slice(value);
    out.resize(out.len() + width.saturating_sub(value.len()), b' ');
}

/// Appends a value at the right of so many bytes.
pub fn right(out: &mut Vec<u8>, value: &[u8], width: usize) {
    out.resize(out.len() + width.saturating_sub(value.len()), b' ');
    out.extend_from_slice(value);
}

/// A table that is written a line at a time.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Tabs and no heading (`-H`).
    pub scripted: bool,
}

impl Table {
    /// The heading, if there is one, with its newline.
    pub fn heading(&self, out: &mut Vec<u8>) {
        if !self.scripted {
            let headings: Vec<_> = self.columns.iter().map(|c| c.heading.clone()).collect();
            self.row(out, &headings);
        }
    }

    /// One line. The last column is not padded at its right.
    pub fn row<V: AsRef<[u8]>>(&self, out: &mut Vec<u8>, values: &[V]) {
        for (i, (column, value)) in self.columns.iter().zip(values).enumerate() {
            let value = value.as_ref();
            if self.scripted {
                out.extend_from_slice(if i == 0 { b"" } else { b"\t" });
                out.extend_from_slice(value);
                continue;
            }
            out.extend_from_slice(if i == 0 { b"" } else { b"  " });
            let last = i + 1 == self.columns.len();
            match (column.right, last) {
                (true, _) => right(out, value, column.width),
                (false, true) => out.extend_from_slice(value),
                (false, false) => left(out, value, column.width),
            }
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut name = Column::new("NAME", 0, false);
        name.fit(b"tank/a");
        let used = Column::new("USED", 5, true);
        let last = Column::new("MOUNTPOINT", 0, false);
        let mut table = Table { columns: vec![name, used, last], scripted: false };
        let rows = [["tank", "24K", "none"], ["tank/a", "1234567", "/x"]];
        let text = |table: &Table| {
            let mut out = Vec::new();
            table.heading(&mut out);
            rows.iter().for_each(|row| table.row(&mut out, row));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(&table),
            "NAME     USED  MOUNTPOINT\n\
             tank      24K  none\n\
             tank/a  1234567  /x\n"
        );
        table.scripted = true;
        assert_eq!(text(&table), "tank\t24K\tnone\ntank/a\t1234567\t/x\n");
    }
}
