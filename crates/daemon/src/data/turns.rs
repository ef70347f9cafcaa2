//! Whether few connections ask, in turns, or many.
//!
//! The one idea: all requests are counted, so a connection sees at its next one how many came in between.

/// A connection that so often, one time after the other, found that few asked, believes it.
const SURE: u32 = 16;
/// Once it does, a pause of one of them does not change its mind at once.
const SURE_MAX: u32 = 64;

/// The turns of one connection.
pub(super) struct Turns {
    /// So many requests between two of one connection are those of few.
    few: u64,
    /// The number of its last request among those of all.
    last: u64,
    /// How often there were few.
    sure: u32,
}

impl Turns {
    /// Few connections are at most as many as there are `cores`; each may ask twice between two requests of this one.
    pub(super) fn on(cores: usize) -> Turns {
        Turns { few: 2 * cores as u64, last: 0, sure: 0 }
    }

    /// A request came, of this number among all.
    pub(super) fn came(&mut self, number: u64) {
        let were_few = number - self.last <= self.few;
        self.sure = if were_few { (self.sure + 1).min(SURE_MAX) } else { self.sure / 2 };
        self.last = number;
    }

    /// Do few ask?
    pub(super) fn are_of_few(&self) -> bool {
        self.sure >= SURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_take_turns_and_many_do_not_come_to_theirs() {
        let (mut turns, first) = (Turns::on(2), 100);
        (0..16).for_each(|turn| turns.came(first + 3 * turn));
        assert!(!turns.are_of_few(), "the first one was far from anything");
        turns.came(first + 48);
        assert!(turns.are_of_few());
        turns.came(first + 60);
        assert!(!turns.are_of_few());
        // Who was sure for long needs more than one.
        (21..121).for_each(|turn| turns.came(first + 3 * turn));
        (122..124).for_each(|turn| turns.came(first + 5 * turn));
        assert!(turns.are_of_few());
        (124..126).for_each(|turn| turns.came(first + 10 * turn));
        assert!(!turns.are_of_few());
    }
}
