//! RAID-Z parity: P, Q and R of the data columns of a block, and lost columns from what is left.
//!
//! One idea: each parity is a polynomial in its own point (1, 2, 4) with the data columns as
//! coefficients, evaluated from the first column to the last. What is lost solves a small linear
//! system whose right sides are the parities of what is there, added to the stored ones: the same
//! pass over the data as generation.
//!
//! Columns may end early: a shorter one counts as filled with zeros. FORMAT: section 4.4.

mod gf;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

/// The most parity columns.
pub const PARITY_MAX: usize = 3;

/// A column of a block, as [`reconstruct`] gets it.
#[derive(Debug)]
pub enum Column<'a> {
    /// Known to be right, or tried as such.
    Good(&'a [u8]),
    /// To be rebuilt; what is there is not read. Has the column's length.
    Lost(&'a mut [u8]),
    /// A parity column that is neither to be used nor wanted.
    Unused,
}

/// Why columns cannot be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// More data columns are lost than parity columns are there.
    #[error("{lost} data columns are lost, {left} parity columns are left")]
    TooManyLost {
        /// Data columns lost.
        lost: usize,
        /// Parity columns that are good.
        left: usize,
    },
    /// The columns are not those of a block: no data, more than 3 parities, a column longer than
    /// the ones before it, parity columns that are not as long as the first data column, or a data
    /// column that is unused.
    #[error("column {column} of {columns}, {parities} of them parity, has no place in a block")]
    Shape {
        /// Index of the column.
        column: usize,
        /// Number of columns.
        columns: usize,
        /// Number of parity columns.
        parities: usize,
    },
}

/// Computes the parity columns P, PQ or PQR of `data` in one pass.
///
/// The first data columns are the longest; each parity column is as long as the first data column.
///
/// # Panics
/// If the columns are not so: their lengths come from the vdev's geometry, not from a disk.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    Engine::best().generate(data, parity);
}

/// Rebuilds the lost ones of `columns`, of which the first `parities` are P, Q, R, the others the
/// data in order.
pub fn reconstruct(parities: usize, columns: &mut [Column<'_>]) -> Result<(), ParityError> {
    Engine::best().reconstruct(parities, columns)
}

/// The code that computes: the plain one, or one for the processor at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Eight bytes at a time.
    Scalar,
    /// 32 bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64 bytes at a time, with instructions for the field.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Engine {
    /// All that this processor can run, the plain one first.
    pub fn available() -> impl Iterator<Item = Engine> {
        let all = [
            Some(Engine::Scalar),
            #[cfg(target_arch = "x86_64")]
            x86::has_avx2().then_some(Engine::Avx2),
            #[cfg(target_arch = "x86_64")]
            x86::has_avx512().then_some(Engine::Avx512),
        ];
        all.into_iter().flatten()
    }

    /// The fastest that this processor can run.
    #[inline]
    pub fn best() -> Engine {
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_avx512() {
                return Engine::Avx512;
            }
            if x86::has_avx2() {
                return Engine::Avx2;
            }
        }
        Engine::Scalar
    }

    /// As [`generate`], with this engine.
    ///
    /// # Panics
    /// As [`generate`], or if this processor cannot run this engine.
    pub fn generate(self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let longest = data.first().map_or(0, |column| column.len());
        assert!((1..=PARITY_MAX).contains(&parity.len()), "a block has 1 to 3 parity columns");
        assert!(data.is_sorted_by(|a, b| a.len() >= b.len()), "longer columns come first");
        assert!(
            parity.iter().all(|column| column.len() == longest),
            "parity is as long as the first column"
        );
        let columns: Vec<Option<&[u8]>> = data.iter().copied().map(Some).collect();
        let mut out = parity.iter_mut();
        let mut rows = [(); PARITY_MAX].map(|()| out.next().map(|column| &mut **column));
        self.generate_rows(&columns, &mut rows);
    }

    /// Computes the wanted ones of P, Q, R.
    fn generate_rows(self, columns: &[Option<&[u8]>], rows: &mut [Option<&mut [u8]>; PARITY_MAX]) {
        let wanted = [0, 1, 2].map(|row| rows[row].is_some());
        let mut start = 0;
        while let Some((active, end)) = range(columns, |c| c.map_or(0, <[u8]>::len), start) {
            let ended = columns.len() - active;
            let finish = (ended > 0).then(|| Finish {
                scale: [0, 1, 2].map(|row| gf::exp(row * ended)),
                stored: [None; 3],
                solve: None,
            });
            let out = rows.each_mut().map(|row| row.as_mut().map(|row| &mut row[start..end]));
            self.run(Pass { columns: &columns[..active], start, wanted, finish, out });
            start = end;
        }
    }

    /// As [`reconstruct`], with this engine.
    ///
    /// # Panics
    /// If this processor cannot run this engine.
    pub fn reconstruct(
        self,
        parities: usize,
        columns: &mut [Column<'_>],
    ) -> Result<(), ParityError> {
        check_shape(parities, columns)?;
        let (parity, data) = columns.split_at_mut(parities);
        self.solve(parity, data)?;

        // Lost parity follows from the data, which is complete by now.
        let mut rows = [None, None, None];
        for (row, column) in rows.iter_mut().zip(parity) {
            if let Column::Lost(column) = column {
                *row = Some(&mut **column);
            }
        }
        if rows.iter().any(Option::is_some) {
            let data: Vec<Option<&[u8]>> = data.iter().map(|column| Some(bytes(column))).collect();
            self.generate_rows(&data, &mut rows);
        }
        Ok(())
    }

    /// Rebuilds the lost data columns.
    fn solve(self, parity: &[Column<'_>], data: &mut [Column<'_>]) -> Result<(), ParityError> {
        let count = data.len();
        let lost = data.iter().filter(|column| matches!(column, Column::Lost(_))).count();
        let left = parity.iter().filter(|column| matches!(column, Column::Good(_))).count();
        if lost > left {
            return Err(ParityError::TooManyLost { lost, left });
        }
        if lost == 0 {
            return Ok(());
        }
        // The first parities that are there: the cheaper ones.
        let mut stored: [Option<&[u8]>; PARITY_MAX] = [None; PARITY_MAX];
        for (row, column) in parity.iter().enumerate() {
            if let Column::Good(column) = column
                && stored.iter().flatten().count() < lost
            {
                stored[row] = Some(column);
            }
        }
        let wanted = stored.map(|column| column.is_some());

        let mut good = Vec::with_capacity(count);
        let mut out: [Option<&mut [u8]>; PARITY_MAX] = [None, None, None];
        let mut lost_at = [0; PARITY_MAX];
        let mut lost_len = [0; PARITY_MAX];
        let mut lost_seen = 0;
        for (at, column) in data.iter_mut().enumerate() {
            good.push(match column {
                Column::Good(column) => Some(&**column),
                Column::Unused => None,
                Column::Lost(column) => {
                    (lost_at[lost_seen], lost_len[lost_seen]) = (at, column.len());
                    out[lost_seen] = Some(&mut **column);
                    lost_seen += 1;
                    None
                }
            });
        }

        let lens: Vec<usize> = {
            let mut lost_lens = lost_len.iter();
            good.iter()
                .map(|column| column.map_or_else(|| *lost_lens.next().unwrap_or(&0), <[u8]>::len))
                .collect()
        };
        let mut start = 0;
        while let Some((active, end)) = range(&lens, |len| *len, start) {
            // Lost columns that have ended here are known: they are zero.
            let unknown = lost_at[..lost].iter().filter(|at| **at < active).count();
            // As many equations as unknowns: again the first ones.
            let mut used = [0; PARITY_MAX];
            let mut uses = 0;
            let mut wanted = wanted;
            for (row, wanted) in wanted.iter_mut().enumerate() {
                *wanted &= uses < unknown;
                if *wanted {
                    used[uses] = row;
                    uses += 1;
                }
            }
            if unknown > 0 {
                let mut matrix = gf::Matrix::default();
                for (equation, row) in used[..unknown].iter().enumerate() {
                    for (column, at) in lost_at[..unknown].iter().enumerate() {
                        matrix[equation][column] = gf::exp(row * (count - 1 - at));
                    }
                }
                let solve = gf::invert(matrix, unknown)
                    .expect("different powers of the generator give independent equations");
                let finish = Some(Finish {
                    scale: [0, 1, 2].map(|row| gf::exp(row * (count - active))),
                    stored: [0, 1, 2].map(|row| {
                        stored[row].filter(|_| wanted[row]).map(|column| &column[start..end])
                    }),
                    solve: Some(solve),
                });
                let mut outs = out.iter_mut().take(unknown);
                let out = [(); PARITY_MAX]
                    .map(|()| outs.next().and_then(Option::as_mut).map(|o| &mut o[start..end]));
                self.run(Pass { columns: &good[..active], start, wanted, finish, out });
            }
            start = end;
        }
        Ok(())
    }

    fn run(self, pass: Pass<'_>) {
        match self {
            Engine::Scalar => scalar::run(pass, 0),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx2 => x86::avx2(pass),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx512 => x86::avx512(pass),
        }
    }
}

/// One pass over a range of bytes in which the same columns have data.
struct Pass<'a> {
    /// The columns that reach into the range, whole; `None`: counts as zero.
    columns: &'a [Option<&'a [u8]>],
    /// Where in the columns the range starts, in bytes. It is as long as each of `out`.
    start: usize,
    /// Which of P, Q, R are computed.
    wanted: [bool; PARITY_MAX],
    /// What is done with them before they are written; `None`: nothing.
    finish: Option<Finish<'a>>,
    /// Where the results go. Without `finish.solve`: by row; with it: the unknowns in order.
    out: [Option<&'a mut [u8]>; PARITY_MAX],
}

/// What is done with the computed rows.
struct Finish<'a> {
    /// Factors for the columns that have ended before the range.
    scale: [u8; PARITY_MAX],
    /// Stored parity that is added to the rows.
    stored: [Option<&'a [u8]>; PARITY_MAX],
    /// Matrix from the wanted rows, in order, to the unknowns.
    solve: Option<gf::Matrix>,
}

impl Finish<'_> {
    /// Factors of P, Q, R, scaled but without what is stored, in each of three results: the matrix
    /// widened to the rows that are not wanted.
    fn factors(&self, wanted: [bool; PARITY_MAX]) -> gf::Matrix {
        let Some(solve) = self.solve else {
            return [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
        };
        let mut factors = gf::Matrix::default();
        let rows = (0..PARITY_MAX).filter(|row| wanted[*row]);
        for (equation, row) in rows.enumerate() {
            for unknown in 0..PARITY_MAX {
                factors[unknown][row] = solve[unknown][equation];
            }
        }
        factors
    }
}

/// How many columns reach beyond `start`, and how far all of these go; `None` at the end.
fn range<T>(columns: &[T], len: impl Fn(&T) -> usize, start: usize) -> Option<(usize, usize)> {
    let active = columns.partition_point(|column| len(column) > start);
    Some((active, len(columns[..active].last()?)))
}

fn bytes<'a>(column: &'a Column<'_>) -> &'a [u8] {
    match column {
        Column::Good(column) => column,
        Column::Lost(column) => column,
        Column::Unused => &[],
    }
}

fn check_shape(parities: usize, columns: &[Column<'_>]) -> Result<(), ParityError> {
    let error = |column| Err(ParityError::Shape { column, columns: columns.len(), parities });
    if parities == 0 || parities > PARITY_MAX || columns.len() <= parities {
        return error(parities);
    }
    let longest = bytes(&columns[parities]).len();
    let mut before = longest;
    for (at, column) in columns.iter().enumerate() {
        let len = bytes(column).len();
        let unused = matches!(column, Column::Unused);
        let fits = if at < parities { unused || len == longest } else { !unused && len <= before };
        if !fits {
            return error(at);
        }
        if at >= parities {
            before = len;
        }
    }
    Ok(())
}
