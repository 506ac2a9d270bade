//! Fresh names: names that nothing else in the model has.
//!
//! A name `t` that a body defines becomes `t__n` in the copy for call number `n`, as in onnx's
//! inliner. Every call has a number of its own, so these names differ from one another. Only a name
//! that the model has already, or that a body defines in two places, needs a second attempt,
//! `t__n_k`. So of the model's names, only those that end like a fresh name are remembered: usually
//! none. Every call makes a fresh name from the same name, so of a very long one only the beginning
//! is repeated.
//!
//! Fresh names are parts of one shared text, because an allocation for each would cost more than
//! the rest of the copy. Calls are numbered in the order in which they are met. Where no call's
//! names depend on another's, the names of many calls are made at once, ahead of the copies.

use std::collections::{HashMap, HashSet};
use std::iter::successors;
use std::{slice, vec};

use foldhash::fast::RandomState;

use super::bodies::Bodies;
use super::body::Body;
use super::functions::{LONGEST, shortened};
use crate::buffer::Buffer;
use crate::proto::{FunctionProto, Message, Str};

/// The names of one name space that a fresh name could equal.
#[derive(Debug, Default)]
pub(super) struct Taken {
    names: HashSet<Str>,
    /// The part of each before `__n`.
    stems: HashSet<Box<[u8]>>,
}

impl Taken {
    pub(super) fn add(&mut self, name: &Str) {
        if let Some(stem) = stem(name.as_bytes()) {
            self.stems.insert(stem.into());
            self.names.insert(name.clone());
        }
    }

    pub(super) fn extend<'s>(&mut self, names: impl IntoIterator<Item = &'s Str>) {
        names.into_iter().for_each(|name| self.add(name));
    }

    /// Whether no fresh name can equal one of these.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a fresh name of `base` may be taken.
    fn could_have(&self, base: &[u8]) -> bool {
        !self.stems.is_empty() && self.stems.contains(base)
    }

    fn has(&self, name: &[u8]) -> bool {
        self.names.contains(name)
    }
}

/// The part of `name` before its ending `__n` or `__n_k`; `None` without such an ending.
fn stem(name: &[u8]) -> Option<&[u8]> {
    let last = without_digits(name)?;
    let stem = last.strip_suffix(b"__");
    // `t__1_2` is `t`, `1`, `2`; `t__1__2` is `t__1`, `2`.
    stem.or_else(|| without_digits(last.strip_suffix(b"_")?)?.strip_suffix(b"__"))
}

fn without_digits(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { None } else { name.get(..name.len() - digits) }
}

/// Numbers calls, and makes names for what they define.
#[derive(Debug, Default, Clone)]
pub(super) struct Numbers {
    /// The number of the last call.
    pub(super) call: u64,
    /// How many second attempts there were.
    attempts: u64,
    /// `__n` of the last call.
    suffix: Vec<u8>,
}

impl Numbers {
    /// The state after `calls` more calls, whose names need this many second `attempts`.
    pub(super) fn after(&self, calls: u64, attempts: u64) -> Self {
        let (call, attempts) =
            (self.call.saturating_add(calls), self.attempts.saturating_add(attempts));
        Self { call, attempts, ..self.clone() }
    }

    /// Goes on to the next call.
    pub(super) fn next(&mut self) {
        self.call += 1;
        self.suffix.clear();
        self.suffix.extend_from_slice(b"__");
        push_number(&mut self.suffix, self.call);
    }

    /// Appends the fresh name of `base` to `text`. `again` says that this call already has a fresh
    /// name of that base.
    pub(super) fn push(&mut self, base: &[u8], again: bool, taken: &Taken, text: &mut Vec<u8>) {
        let start = text.len();
        text.extend_from_slice(base);
        text.extend_from_slice(&self.suffix);
        let risky = taken.could_have(base);
        let is_taken = |text: &[u8]| risky && taken.has(text.get(start..).unwrap_or_default());
        let end = text.len();
        let mut next = again || is_taken(text);
        while next {
            text.truncate(end);
            text.push(b'_');
            push_number(text, self.attempts);
            self.attempts += 1;
            next = is_taken(text);
        }
    }
}

/// The names of the symbolic dimensions of a model, which those of copied bodies must not equal.
#[derive(Debug, Default)]
pub(super) struct Dimensions {
    /// How many underscores follow `__n`, for each name that ends with `__n` and underscores.
    endings: HashSet<usize>,
    /// A number for each name of a function that is longer than [`LONGEST`].
    long: HashMap<Str, usize, RandomState>,
}

impl Dimensions {
    /// Numbers the long names in `functions`: several of them may be equal once they are shortened.
    pub(super) fn prepare(&mut self, functions: &[FunctionProto]) {
        let mut add = |name: &Str| {
            if name.as_bytes().len() > LONGEST {
                let number = self.long.len();
                self.long.entry(name.clone()).or_insert(number);
            }
        };
        functions.iter().for_each(|function| function.strings(&mut add));
    }

    pub(super) fn add(&mut self, name: &Str) {
        let name = name.as_bytes();
        let underscores = name.iter().rev().take_while(|byte| **byte == b'_').count();
        let before = name.get(..name.len() - underscores).and_then(without_digits);
        if before.is_some_and(|before| before.ends_with(b"__")) {
            self.endings.insert(underscores);
        }
    }

    /// The fresh name of dimension `name` in the body of call `number`. It is unique: all fresh
    /// names end with the same number of underscores after `__n`, and no name of the model does.
    pub(super) fn fresh(&self, name: &Str, number: u64) -> Str {
        let underscores = (0..).find(|count| !self.endings.contains(count)).unwrap_or_default();
        let mut text = self.base(name);
        text.extend_from_slice(b"__");
        push_number(&mut text, number);
        text.resize(text.len() + underscores, b'_');
        Str::from(text.as_slice())
    }

    /// The beginning of the fresh names of dimension `name`. For a long name it is longer than any
    /// name that is not long, and it ends with the number of the name, so it is unique.
    fn base(&self, name: &Str) -> Vec<u8> {
        let long = Some(name).filter(|name| name.as_bytes().len() > LONGEST);
        match long.and_then(|name| self.long.get(name)) {
            Some(number) => {
                [shortened(name.as_bytes()), format!("_{number:08}").as_bytes()].concat()
            }
            None => name.as_bytes().to_vec(),
        }
    }
}

fn push_number(text: &mut Vec<u8>, number: u64) {
    let mut digits = [0_u8; 20];
    let (mut rest, mut len) = (number, 0);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        len += 1;
        if rest == 0 {
            break;
        }
    }
    text.extend_from_slice(digits.get(digits.len() - len..).unwrap_or_default());
}

/// A name that a copy will have. It becomes a string only in the copy, and is cheap to pass around.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name<'m> {
    Absent,
    /// A name of the model, unchanged.
    Written(&'m Str),
    /// A fresh name: these bytes of the text with this index.
    Fresh {
        text: u32,
        start: usize,
        end: usize,
    },
}

impl Name<'_> {
    pub(super) fn is_empty(self) -> bool {
        match self {
            Self::Absent => true,
            Self::Written(name) => name.is_empty(),
            Self::Fresh { .. } => false,
        }
    }
}

/// About how many bytes of names are made at once.
const AHEAD: usize = 64 << 10;

/// Makes fresh names, and strings of them.
pub(super) struct Fresh<'m> {
    taken: &'m Taken,
    numbers: Numbers,
    /// The number of the present call.
    call: u64,
    texts: Vec<Buffer>,
    ahead: Option<Ahead<'m>>,
}

/// The calls that have no names yet, and the names that no call uses yet.
struct Ahead<'m> {
    bodies: &'m Bodies<'m>,
    roots: vec::IntoIter<usize>,
    /// For each body on the path to the present one, the callees that follow in it.
    stack: Vec<slice::Iter<'m, Option<usize>>>,
    /// Where each name of the last text ends.
    ends: Vec<usize>,
    /// How many of these names are used.
    given: usize,
}

impl<'m> Fresh<'m> {
    /// Names the calls after those that `numbers` counted, one call at a time.
    pub(super) fn new(taken: &'m Taken, numbers: Numbers) -> Self {
        let call = numbers.call;
        Self { taken, numbers, call, texts: Vec::new(), ahead: None }
    }

    /// Names many calls at a time: `roots` are the functions that the place calls, in order.
    pub(super) fn ahead(mut self, roots: Vec<usize>, bodies: &'m Bodies<'m>) -> Self {
        self.ahead = Some(Ahead::new(roots, bodies));
        self
    }

    /// The state that the next `Fresh` continues from.
    pub(super) fn into_numbers(self) -> Numbers {
        self.numbers
    }

    /// The number of the present call.
    pub(super) fn call(&self) -> u64 {
        self.call
    }

    /// Moves to the next call and appends a name for each local of its `body` to `names`: the name
    /// in `bound` where there is one, else a fresh name.
    pub(super) fn next(
        &mut self,
        body: &Body<'m>,
        bound: &[Option<Name<'m>>],
        names: &mut Vec<Name<'m>>,
    ) {
        self.call += 1;
        if self.ahead.is_some() {
            self.next_of_many(body, bound, names);
        } else {
            self.next_alone(body, bound, names);
        }
    }

    fn next_of_many(
        &mut self,
        body: &Body<'m>,
        bound: &[Option<Name<'m>>],
        names: &mut Vec<Name<'m>>,
    ) {
        if let Some(ahead) = &mut self.ahead
            && ahead.given == ahead.ends.len()
            && !body.locals.is_empty()
        {
            let text = ahead.make(&mut self.numbers, self.taken);
            self.texts.push(text);
        }
        let (Some(ahead), text) = (&mut self.ahead, last(&self.texts)) else { return };
        let before = ahead.given.checked_sub(1).and_then(|last| ahead.ends.get(last));
        let mut start = before.copied().unwrap_or(0);
        let ends = ahead.ends.get(ahead.given..).unwrap_or_default();
        let mut bound = bound.iter();
        names.extend(ends.iter().take(body.locals.len()).map(|end| {
            let fresh = Name::Fresh { text, start, end: *end };
            start = *end;
            bound.next().copied().flatten().unwrap_or(fresh)
        }));
        ahead.given += body.locals.len();
    }

    fn next_alone(
        &mut self,
        body: &Body<'m>,
        bound: &[Option<Name<'m>>],
        names: &mut Vec<Name<'m>>,
    ) {
        self.numbers.next();
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let mut text = Vec::new();
        let bound = |local: usize| bound.get(local).copied().flatten();
        for (i, local) in body.locals.iter().enumerate() {
            let start = text.len();
            let name = bound(i).unwrap_or_else(|| {
                let same_base = |local: &usize| body.locals.get(*local)?.earlier;
                let again = successors(local.earlier, same_base).any(|l| bound(l).is_none());
                self.numbers.push(local.base, again, self.taken, &mut text);
                Name::Fresh { text: number, start, end: text.len() }
            });
            names.push(name);
        }
        self.texts.push(Buffer::from(text));
    }

    /// The name as a string.
    #[inline]
    pub(super) fn text(&self, name: Name<'_>) -> Str {
        match name {
            Name::Absent => Str::default(),
            Name::Written(name) => name.clone(),
            Name::Fresh { text, start, end } => {
                let text = usize::try_from(text).ok().and_then(|text| self.texts.get(text));
                let Some(name) = text.and_then(|text| text.slice(start..end)) else {
                    unreachable!("a fresh name is a part of a text that was made")
                };
                Str::from(name)
            }
        }
    }
}

fn last(texts: &[Buffer]) -> u32 {
    u32::try_from(texts.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

/// How many second attempts the names of the calls of `roots` need, with the calls in them, when
/// bodies are uniform and no name is taken.
pub(super) fn second_attempts(roots: &[usize], bodies: &Bodies<'_>) -> u64 {
    let mut ahead = Ahead::new(roots.to_vec(), bodies);
    std::iter::from_fn(|| ahead.body()).map(|body| body.repeats).sum()
}

impl<'m> Ahead<'m> {
    fn new(roots: Vec<usize>, bodies: &'m Bodies<'m>) -> Self {
        let (roots, stack, ends) = (roots.into_iter(), Vec::new(), Vec::new());
        Self { bodies, roots, stack, ends, given: 0 }
    }

    /// Makes the names of the next calls.
    fn make(&mut self, numbers: &mut Numbers, taken: &Taken) -> Buffer {
        let mut text = Vec::with_capacity(AHEAD + AHEAD / 8);
        self.ends.clear();
        self.given = 0;
        while text.len() < AHEAD {
            let Some(body) = self.body() else { break };
            numbers.next();
            for local in &body.locals {
                numbers.push(local.base, local.earlier.is_some(), taken, &mut text);
                self.ends.push(text.len());
            }
        }
        Buffer::from(text)
    }

    /// The body of the next call, in the order in which calls are copied.
    fn body(&mut self) -> Option<&'m Body<'m>> {
        loop {
            let next = match self.stack.last_mut() {
                Some(callees) => match callees.next() {
                    Some(callee) => *callee,
                    None => {
                        self.stack.pop();
                        continue;
                    }
                },
                None => Some(self.roots.next()?),
            };
            if let Some(body) = next.and_then(|callee| self.bodies.function(callee)) {
                self.stack.push(body.callees.iter());
                return Some(body);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_is_the_part_of_a_name_before_the_number() {
        let cases: [(&str, Option<&str>); 10] = [
            ("t__1", Some("t")),
            ("t__1_2", Some("t")),
            ("t__1__2", Some("t__1")),
            ("__7", Some("")),
            ("t_1", None),
            ("t1", None),
            ("1", None),
            ("t__", None),
            ("t__1x", None),
            ("t__x_2", None),
        ];
        for (name, expected) in cases {
            assert_eq!(stem(name.as_bytes()), expected.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn fresh_names_equal_no_name_of_the_model() {
        let mut taken = Taken::default();
        taken.extend(&["t__1", "t__1_0", "u__2", "x"].map(Str::from));
        let mut numbers = Numbers::default();
        numbers.next();
        let mut name = |base: &str, again| {
            let mut text = Vec::new();
            numbers.push(base.as_bytes(), again, &taken, &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(name("x", false), "x__1");
        assert_eq!(name("t", false), "t__1_1", "`t__1` and `t__1_0` are the model's");
        assert_eq!(name("u", false), "u__1");
        assert_eq!(name("u", true), "u__1_2");
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let mut text = Vec::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string().into_bytes());
        }
        let mut dimensions = Dimensions::default();
        assert_eq!(dimensions.fresh(&"N".into(), 5), "N__5");
        for (name, fresh) in
            [("N_5", "N__5"), ("N__1", "N__5_"), ("M__7__", "N__5_"), ("N__1_", "N__5___")]
        {
            dimensions.add(&name.into());
            assert_eq!(dimensions.fresh(&"N".into(), 5), fresh, "beside {name}");
        }
    }
}
