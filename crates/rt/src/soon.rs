//! Whether what comes next comes soon, for who would look for it instead of sleeping.
//!
//! The one idea: what came soon, or late, after the same few times before is what is expected, as a processor does with its
//! branches.

/// What is known of something that comes time after time.
#[derive(Debug)]
pub struct Soon {
    /// The last times, the newest in the lowest bit: whether it was soon.
    history: usize,
    /// After each history, how sure it is: soon from [`SURE`] on.
    after: [u8; 1 << TIMES],
}

/// So many times before matter: those of a large file that is sent in some pieces, and a pause behind the last.
const TIMES: u32 = 6;
/// From here on it is expected soon.
const SURE: u8 = 2;
/// As sure as it gets: it takes two times in a row to change that.
const SUREST: u8 = 3;

impl Default for Soon {
    fn default() -> Soon {
        Soon { history: 0, after: [SURE; 1 << TIMES] }
    }
}

impl Soon {
    /// Is what comes next likely to come soon?
    #[must_use]
    pub fn is_likely(&self) -> bool {
        self.after[self.history] >= SURE
    }

    /// It has come: soon, or late.
    pub fn learn(&mut self, was_soon: bool) {
        let after = &mut self.after[self.history];
        *after = if was_soon { (*after + 1).min(SUREST) } else { after.saturating_sub(1) };
        self.history = (self.history << 1 | usize::from(was_soon)) % self.after.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it was expected soon and was not, and the other way round, of the last half of `times`.
    fn wrong(soon: &mut Soon, times: &[bool]) -> (usize, usize) {
        let (mut vain, mut missed) = (0, 0);
        for (at, &was_soon) in times.iter().enumerate() {
            if at >= times.len() / 2 {
                vain += usize::from(soon.is_likely() && !was_soon);
                missed += usize::from(!soon.is_likely() && was_soon);
            }
            soon.learn(was_soon);
        }
        (vain, missed)
    }

    #[test]
    fn what_comes_in_turns_is_foreseen() {
        for pattern in [
            &[true][..],
            &[false],
            &[true, false],
            &[true, true, true, false],
            &[true, false, false, false, false],
        ] {
            let mut soon = Soon::default();
            assert_eq!(wrong(&mut soon, &pattern.repeat(100)), (0, 0), "{pattern:?}");
            // Nor does it take long to see that it has become otherwise.
            let other: Vec<_> = pattern.iter().map(|soon| !soon).collect();
            assert_eq!(wrong(&mut soon, &other.repeat(40)), (0, 0), "not {pattern:?}");
        }
        // One that is late now and then is no reason not to look.
        let mut times = vec![true; 1000];
        (0..1000).step_by(97).for_each(|at| times[at] = false);
        let (vain, missed) = wrong(&mut Soon::default(), &times);
        assert!(vain <= 6 && missed == 0, "{vain} in vain, {missed} missed");
    }
}
