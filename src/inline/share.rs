//! A long list of nodes, copied by several threads.
//!
//! Where the numbers of calls are known beforehand, parts of a list do not depend on one another.
//! Each thread has functions of its own: copies share strings with them, and threads that count
//! references to the same string would wait for one another.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

use super::binding::Binding;
use super::body::Bodies;
use super::calls::Functions;
use super::context::Context;
use super::copy::{Copier, Identity, Reserved};
use super::fresh::Fresh;
use super::names::Numbers;
use super::place::Place;
use super::scope::Scope;
use super::splice::{Spliced, Step};
use super::weight::Size;
use crate::error::Result;
use crate::proto::{DecodeOptions, FunctionProto, Message, ModelProto, NodeProto};

/// From how many new nodes on a list is long.
const LONG: u64 = 16 << 10;
/// Functions of more bytes than this are not copied.
const LARGE: u64 = 1 << 20;

/// A part of a list.
#[derive(Default)]
struct Part<'s> {
    steps: &'s [Step],
    callees: &'s [usize],
    size: Size,
}

/// What every thread needs to know.
pub(super) struct Job<'m> {
    pub(super) place: &'m Place<'m>,
    pub(super) reserved: &'m Reserved,
    pub(super) numbers: Numbers,
    pub(super) max_nodes: u64,
}

impl<'m> Job<'m> {
    /// Whether the place's first list is worth several threads. Its bodies have to be even, and its
    /// names to meet none that is taken.
    pub(super) fn pays(&self, list: &[FunctionProto]) -> bool {
        let len = || list.iter().fold(0_u64, |sum, f| sum.saturating_add(f.encoded_len()));
        let identity = Identity::of(&self.place.context, self.place.imports.version(b""));
        cores() > 1
            && identity == Identity::Every
            && self.place.size_of_list(0).nodes >= LONG
            && len() <= LARGE
    }

    /// Copies the place's first list. Also gives what the copies were: calls, and calls with devices.
    pub(super) fn run(&self, functions: &[FunctionProto]) -> Result<(Spliced, u64, u64)> {
        let Some((nodes, _)) = self.place.lists.first() else { return Ok(Default::default()) };
        let parts = self.parts();
        let mut numbers = Vec::with_capacity(parts.len());
        let mut before = self.numbers.clone();
        for part in &parts {
            numbers.push(before.clone());
            before = before.after(part.size.calls);
        }
        let len = self.place.size_of_list(0).nodes;
        let copies = thread::scope(|scope| {
            let mut jobs = parts.iter().zip(numbers);
            let first = jobs.next();
            let others = jobs.map(|(part, numbers)| {
                let work = move || self.part(nodes, part, numbers, functions, part.size.nodes);
                // Without another thread, this one does the work.
                thread::Builder::new().spawn_scoped(scope, work.clone()).map_err(|_| work)
            });
            let others: Vec<_> = others.collect();
            // The first has room for what the others append.
            let first =
                first.map(|(part, numbers)| self.part(nodes, part, numbers, functions, len));
            let others = others.into_iter().map(|other| match other {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(work) => work(),
            });
            first.into_iter().chain(others).collect::<Result<Vec<_>>>()
        })?;
        let joined = copies.into_iter().reduce(|mut whole, (spliced, calls, devices)| {
            whole.0.append(spliced);
            (whole.0, whole.1 + calls, whole.2 + devices)
        });
        Ok(joined.unwrap_or_default())
    }

    /// The list in parts of about the same size.
    fn parts(&self) -> Vec<Part<'m>> {
        let Some((_, steps)) = self.place.lists.first() else { return Vec::new() };
        let each = self.place.size_of_list(0).nodes / u64::try_from(cores()).unwrap_or(1) + 1;
        let mut parts = Vec::new();
        let (mut steps, mut callees) = (steps.list.as_slice(), steps.callees.as_slice());
        while !steps.is_empty() {
            let (mut taken, mut called, mut size) = (0, 0, Size::default());
            for step in steps {
                let calls = match step {
                    Step::Keep(run) => {
                        let nodes = u64::try_from(run.len()).unwrap_or(u64::MAX);
                        size = size.plus(Size::of_nodes(nodes));
                        0
                    }
                    Step::Call(..) => 1,
                    Step::Copy(_, calls) => *calls,
                };
                let made = callees.get(called..called + calls).unwrap_or_default();
                let made = made.iter().map(|callee| self.place.size_of(*callee));
                size = made.fold(size, Size::plus);
                (taken, called) = (taken + 1, called + calls);
                if size.nodes >= each {
                    break;
                }
            }
            let (part, rest) = steps.split_at(taken);
            let (own, others) = callees.split_at(called);
            parts.push(Part { steps: part, callees: own, size });
            (steps, callees) = (rest, others);
        }
        parts
    }

    fn part(
        &self,
        nodes: &'m [NodeProto],
        part: &Part<'_>,
        numbers: Numbers,
        functions: &[FunctionProto],
        len: u64,
    ) -> Result<(Spliced, u64, u64)> {
        let own = private(functions)?;
        let functions = Functions::new(&own)?;
        let decision = self.place.context.decision.clone();
        let context = Context { functions: &functions, decision };
        let bodies = Bodies::new(&context, std::iter::empty())?;
        let fresh = Fresh::new(&self.reserved.names, numbers).ahead(part.callees.to_vec(), &bodies);
        let opset = self.place.imports.version(b"");
        let mut copier =
            Copier::new(&context, &bodies, self.reserved, fresh, self.max_nodes, opset);
        let mut scope = Scope::written(Binding::default(), std::iter::empty());
        let spliced = Spliced::new(nodes, part.steps, &mut scope, &mut copier, len)?;
        Ok((spliced, copier.calls, copier.devices))
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The same functions with strings of their own.
fn private(functions: &[FunctionProto]) -> Result<Vec<FunctionProto>> {
    let model = ModelProto { functions: functions.to_vec(), ..ModelProto::default() };
    let bytes = model.encode_to_vec()?.into();
    Ok(ModelProto::decode_with(&bytes, &DecodeOptions::default().threads(1))?.functions)
}
