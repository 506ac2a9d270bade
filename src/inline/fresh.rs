//! Fresh names for the bodies of calls.
//!
//! Names are parts of a text that many share, because a string of its own for each would cost more than
//! the rest of the copy. Calls are numbered in the order in which they are met, so where no
//! call's names depend on another's, names are made for many calls at once, ahead of the copies.

use std::{slice, vec};

use super::bodies::Bodies;
use super::body::Body;
use super::names::{Numbers, Taken};
use super::scope::Name;
use crate::buffer::Buffer;
use crate::proto::Str;

/// How many bytes of names are made at once.
const AHEAD: usize = 64 << 10;

/// Makes names, and strings of them.
pub(super) struct Fresh<'m> {
    taken: &'m Taken,
    numbers: Numbers,
    /// The number of the call at hand.
    call: u64,
    texts: Vec<Buffer>,
    ahead: Option<Ahead<'m>>,
}

/// The calls that are not named yet, and names that no call has yet.
struct Ahead<'m> {
    bodies: &'m Bodies<'m>,
    roots: vec::IntoIter<usize>,
    way: Vec<slice::Iter<'m, Option<usize>>>,
    /// Where the names of the last text end, and how many of them were given.
    ends: Vec<usize>,
    given: usize,
}

impl<'m> Fresh<'m> {
    /// The calls after the one numbered `call` are named one by one.
    pub(super) fn new(taken: &'m Taken, numbers: Numbers) -> Self {
        let call = numbers.call;
        Self { taken, numbers, call, texts: Vec::new(), ahead: None }
    }

    /// Names ahead: `roots` are the functions that will be called, which call others.
    pub(super) fn ahead(mut self, roots: Vec<usize>, bodies: &'m Bodies<'m>) -> Self {
        let (roots, way, ends) = (roots.into_iter(), Vec::new(), Vec::new());
        self.ahead = Some(Ahead { bodies, roots, way, ends, given: 0 });
        self
    }

    /// What the next maker of names begins with.
    pub(super) fn into_numbers(self) -> Numbers {
        self.numbers
    }

    /// The number of the call at hand.
    pub(super) fn call(&self) -> u64 {
        self.call
    }

    /// Goes on to the next call and appends the names of what its body defines: those in `bound`, else
    /// fresh ones.
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
                let again = local.earlier.is_some_and(|earlier| bound(earlier).is_none());
                self.numbers.push(local.base.as_bytes(), again, self.taken, &mut text);
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
                Str::from(text.and_then(|text| text.slice(start..end)).unwrap_or_default())
            }
        }
    }
}

fn last(texts: &[Buffer]) -> u32 {
    u32::try_from(texts.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

impl<'m> Ahead<'m> {
    /// The names of the next calls.
    fn make(&mut self, numbers: &mut Numbers, taken: &Taken) -> Buffer {
        let mut text = Vec::with_capacity(AHEAD + AHEAD / 8);
        self.ends.clear();
        self.given = 0;
        while text.len() < AHEAD {
            let Some(body) = self.body() else { break };
            numbers.next();
            for local in &body.locals {
                numbers.push(local.base.as_bytes(), false, taken, &mut text);
                self.ends.push(text.len());
            }
        }
        Buffer::from(text)
    }

    /// The body of the next call, in the order of the copies.
    fn body(&mut self) -> Option<&'m Body<'m>> {
        loop {
            let next = match self.way.last_mut() {
                Some(callees) => match callees.next() {
                    Some(callee) => *callee,
                    None => {
                        self.way.pop();
                        continue;
                    }
                },
                None => Some(self.roots.next()?),
            };
            if let Some(body) = next.and_then(|callee| self.bodies.function(callee)) {
                self.way.push(body.callees.iter());
                return Some(body);
            }
        }
    }
}
