//! Numbers of contents, which tell whether the bytes of a range are still those that they were.
//!
//! A range in use gets a new number when it is taken, and whenever a step or an input may write to
//! a byte of it. No number is given twice by one memory.

use super::Memory;
use super::span::{Span, WEIGHT, WEIGHTS};

impl Memory {
    /// The number of the content of `span`: while it is the same, so are the bytes. `None` for a
    /// range that nobody holds, and for constants of a body that a node runs: those of the next
    /// body have the same addresses.
    #[doc(hidden)]
    pub fn content(&self, span: Span) -> Option<u64> {
        if span.len == 0 {
            return Some(WEIGHT);
        }
        if span.is_weight() {
            return (span.end() <= WEIGHTS + self.model_weights).then_some(WEIGHT);
        }
        let (offset, held) = self.held.range(..=span.offset).next_back()?;
        (span.end() <= offset + held.len).then_some(held.content)
    }

    /// A number that no content had so far.
    pub(super) fn new_content(&mut self) -> u64 {
        self.contents += 1;
        self.contents
    }

    /// Gives a new number to all that `written` may change.
    pub(super) fn renumber(&mut self, written: Span) {
        let content = self.new_content();
        let below = self.held.range_mut(..written.end()).rev();
        for (_, held) in below.take_while(|(offset, held)| *offset + held.len > written.offset) {
            held.content = content;
        }
    }
}

#[cfg(test)]
mod tests {
    use onnx_container_proto::Buffer;

    use super::super::Weights;
    use super::*;

    #[test]
    fn a_content_has_its_number_until_a_byte_of_it_may_change() {
        let mut memory = Memory::new(Weights::default(), None);
        let [a, b] = [100, 4096].map(|len| memory.allocate(len).unwrap());
        let part = Span { offset: b.offset + 64, len: 8 };
        let number = |memory: &Memory, span| memory.content(span).unwrap();
        let before = [a, b].map(|span| number(&memory, span));
        assert_ne!(before[0], before[1]);
        assert_eq!(number(&memory, part), before[1]);

        memory.borrow_step(&[a], &[b]).unwrap();
        assert_eq!(number(&memory, a), before[0]);
        assert_ne!(number(&memory, b), before[1]);

        let whole = number(&memory, b);
        memory.write(part, &[0; 8]).unwrap();
        assert_ne!(number(&memory, b), whole);

        // What is used again is not what it was, and joined segments are.
        let kept = number(&memory, b);
        memory.release(a);
        assert_eq!(memory.content(a), None);
        assert_eq!(memory.allocate(100).unwrap(), a);
        assert_ne!(number(&memory, a), before[0]);
        memory.join(1 << 22).unwrap();
        assert_eq!(number(&memory, b), kept);
        memory.clear();
        let again = memory.allocate(100).unwrap();
        assert_eq!(again, a);
        assert!(![before[0], before[1], whole, kept].contains(&number(&memory, again)));

        let across = Span { offset: a.offset, len: 129 };
        assert_eq!(memory.content(across), None);
        let empty = Span { offset: 0, len: 0 };
        assert_eq!(memory.content(empty), Some(WEIGHT));
    }

    #[test]
    fn only_the_weights_of_the_model_never_change() {
        let mut weights = Weights::default();
        let offset = weights.add(Buffer::from(vec![1_u8; 4]), 1).unwrap();
        let mut memory = Memory::new(weights, None);
        assert_eq!(memory.content(Span { offset, len: 4 }), Some(WEIGHT));
        let offset = memory.weights_mut().add(Buffer::from(vec![2_u8; 4]), 1).unwrap();
        assert_eq!(memory.content(Span { offset, len: 4 }), None);
    }
}
