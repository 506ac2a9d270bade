//! Whether a node has as many inputs or outputs as its operator takes, and all that are required.

/// The inputs, or the outputs, of one version of an operator, as the table of arities says them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Formals(pub(super) &'static str);

/// What is wrong with the inputs or outputs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// There are fewer than so many.
    Fewer(usize),
    /// There are more than so many.
    More(usize),
    /// The one with this index is left out, and is required.
    Missing(usize),
}

impl Formals {
    /// What is wrong with these, of each of which it is said whether it is left out by an empty
    /// name.
    pub(crate) fn misfit(self, left_out: impl ExactSizeIterator<Item = bool>) -> Option<Misfit> {
        let (count, (least, most)) = (left_out.len(), self.bounds()?);
        if count < least {
            return Some(Misfit::Fewer(least));
        }
        if let Some(most) = most.filter(|most| count > *most) {
            return Some(Misfit::More(most));
        }
        let required = self.0.bytes().take_while(|code| *code != b'*').map(|code| code == b'r');
        let missing = required.zip(left_out).position(|(required, left_out)| required && left_out);
        missing.map(Misfit::Missing)
    }

    /// How many have a meaning of their own: all but those of a list at the end, in which each one
    /// counts, also one that is left out.
    pub(crate) fn single(self) -> usize {
        self.0.bytes().filter(u8::is_ascii_alphabetic).count()
    }

    /// The least and the largest number; nothing for a deprecated operator.
    fn bounds(self) -> Option<(usize, Option<usize>)> {
        if self.0.starts_with('?') {
            return None;
        }
        match self.0.split_once('*') {
            Some((before, least)) => Some((before.len() + least.parse::<usize>().ok()?, None)),
            None => Some((self.0.rfind('r').map_or(0, |last| last + 1), Some(self.0.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_required_ones_are_compared() {
        use Misfit::{Fewer, Missing, More};
        const X: bool = false;
        const NONE: bool = true;
        let cases: &[(&str, &[bool], Option<Misfit>)] = &[
            ("", &[], None),
            ("", &[X], Some(More(0))),
            ("rr", &[X], Some(Fewer(2))),
            ("rr", &[X, NONE], Some(Missing(1))),
            ("rr", &[X, X, X], Some(More(2))),
            ("roo", &[X], None),
            ("roo", &[X, NONE, X], None),
            ("roo", &[NONE, X], Some(Missing(0))),
            ("or", &[X], Some(Fewer(2))),
            ("*1", &[], Some(Fewer(1))),
            ("*1", &[NONE, X, X], None),
            ("oo*0", &[X], Some(Fewer(2))),
            ("r*2", &[X, X], Some(Fewer(3))),
            ("r*2", &[NONE, X, X], Some(Missing(0))),
            ("?r", &[X, X], None),
        ];
        for (formals, given, expected) in cases {
            let found = Formals(formals).misfit(given.iter().copied());
            assert_eq!(found, *expected, "{formals} {given:?}");
        }
        for (formals, single) in [("", 0), ("rro", 3), ("*1", 0), ("oo*0", 2), ("?rr", 2)] {
            assert_eq!(Formals(formals).single(), single, "{formals}");
        }
    }
}
