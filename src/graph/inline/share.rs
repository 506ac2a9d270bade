//! Copies a long list of nodes with several threads.
//!
//! Where the numbers of calls are known beforehand, parts of a list do not depend on one another.
//! Each thread has a copy of the functions: the nodes it makes share strings with them, and threads
//! that count references to the same strings would slow one another down.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::{iter, thread};

use super::bodies::Bodies;
use super::calls::Size;
use super::context::Context;
use super::copy::{Copier, Reserved};
use super::functions::Functions;
use super::identity::Identity;
use super::names::{Fresh, Numbers, second_attempts};
use super::place::InlinePlace;
use super::scope::{Binding, Scope};
use super::splice::{Spliced, Step};
use crate::error::{Error, Result};
use crate::proto::{DecodeOptions, FunctionProto, Message, ModelProto};
use crate::util::cancel::{self, Token};

/// The least number of new nodes for which threads pay off.
const LONG: u64 = 16 << 10;
/// Functions of more bytes than this are not copied for each thread, so one thread does the work.
const LARGE: u64 = 1 << 20;

/// About how many parts each thread makes.
const PARTS: u64 = 8;

/// A part of a list that is to be copied.
struct Task<'s> {
    steps: &'s [Step],
    callees: &'s [usize],
    size: Size,
    /// The state of the numbers before the first call of this part.
    numbers: Numbers,
}

/// The result of a task: nodes, the number of calls, and how many of these had device
/// configurations.
#[derive(Default)]
pub(super) struct CopiedPart {
    pub(super) spliced: Spliced,
    pub(super) calls: u64,
    pub(super) devices: u64,
}

impl CopiedPart {
    /// Appends the parts that are `made` in the order of the list; the first error ends the work.
    fn collect(
        &mut self,
        made: mpsc::Receiver<(usize, Result<Self>)>,
        next: &AtomicUsize,
        parts: usize,
    ) -> Result<()> {
        let (mut waiting, mut place) = (BTreeMap::new(), 0);
        let mut result = Ok(());
        for (number, part) in made {
            waiting.insert(number, part);
            while let Some(part) = waiting.remove(&place) {
                place += 1;
                match part {
                    Ok(part) if result.is_ok() => self.append(part),
                    Err(error) if result.is_ok() => {
                        next.fetch_max(parts, Ordering::Relaxed);
                        result = Err(error);
                    }
                    _ => {}
                }
            }
        }
        result
    }

    fn append(&mut self, later: Self) {
        self.spliced.append(later.spliced);
        self.calls += later.calls;
        self.devices += later.devices;
    }
}

/// Copies a place's first list with several threads.
pub(super) struct ParallelCopy<'m> {
    pub(super) place: &'m InlinePlace<'m>,
    pub(super) bodies: &'m Bodies<'m>,
    pub(super) reserved: &'m Reserved,
    pub(super) numbers: Numbers,
    pub(super) max_nodes: u64,
}

impl<'m> ParallelCopy<'m> {
    /// Whether several threads pay off for the place's first list. The caller makes sure that its
    /// bodies are uniform and that its fresh names equal none that the model has.
    pub(super) fn is_worthwhile(&self, list: &[FunctionProto]) -> bool {
        let len = || list.iter().fold(0_u64, |sum, f| sum.saturating_add(f.encoded_len()));
        let identity = Identity::of(&self.place.context, self.place.imports.version(b""));
        cores() > 1
            && identity == Identity::Every
            && self.place.size_of_list(0).nodes >= LONG
            && len() <= LARGE
    }

    /// Copies the place's first list. Returns the copy, and the state of the numbers after it.
    ///
    /// There are many parts, and they are appended while later ones are made: their memory is
    /// reused.
    pub(super) fn run(&self, functions: &[FunctionProto]) -> Result<(CopiedPart, Numbers)> {
        let (parts, numbers) = self.tasks();
        let next = AtomicUsize::new(0);
        let mut whole =
            CopiedPart { spliced: Spliced::with_room(self.len()), ..CopiedPart::default() };
        let ((sender, made), token) = (mpsc::channel(), Token::current());
        // Not the loops of `parallel`: each thread makes functions and bodies of its own before its
        // first part, and the end of all senders tells this thread that nothing more comes.
        thread::scope(|scope| {
            let work = |sender| token.scope(|| self.work(&parts, &next, functions, &sender));
            let spawned = (0..cores()).map(|_| {
                let sender = sender.clone();
                thread::Builder::new().spawn_scoped(scope, move || work(sender))
            });
            // If the system refuses a thread, the others do the work; if it refuses all, this one
            // does.
            let workers: Vec<_> = spawned.flatten().collect();
            if workers.is_empty() {
                work(sender.clone())?;
            }
            drop(sender);
            let result = whole.collect(made, &next, parts.len());
            for worker in workers {
                worker.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            result
        })?;
        Ok((whole, numbers))
    }

    fn len(&self) -> u64 {
        self.place.size_of_list(0).nodes
    }

    /// The list in parts of about the same size, and the state of the numbers after them.
    fn tasks(&self) -> (Vec<Task<'m>>, Numbers) {
        let (mut tasks, mut numbers) = (Vec::new(), self.numbers.clone());
        let Some((_, steps)) = self.place.lists.first() else { return (tasks, numbers) };
        let each = self.len() / (PARTS * u64::try_from(cores()).unwrap_or(1)) + 1;
        let (mut steps, mut callees) = (steps.list.as_slice(), steps.callees.as_slice());
        while !steps.is_empty() {
            let (taken, called, size) = self.take(steps, callees, each);
            let (own, rest) = steps.split_at(taken);
            let (called, others) = callees.split_at(called);
            let after = numbers.after(size.calls, second_attempts(called, self.bodies));
            tasks.push(Task { steps: own, callees: called, size, numbers });
            (steps, callees, numbers) = (rest, others, after);
        }
        (tasks, numbers)
    }

    /// How many of the first `steps`, with how many calls and of which size, make `nodes` nodes.
    fn take(&self, steps: &[Step], callees: &[usize], nodes: u64) -> (usize, usize, Size) {
        let (mut called, mut size) = (0, Size::default());
        for (taken, step) in steps.iter().enumerate() {
            let calls = match step {
                Step::Keep(run) => {
                    size = size.plus(Size::of_nodes(u64::try_from(run.len()).unwrap_or(u64::MAX)));
                    0
                }
                Step::Call(..) => 1,
                Step::Copy(_, calls) => *calls,
            };
            let made = callees.get(called..called + calls).unwrap_or_default();
            size = made.iter().map(|callee| self.place.size_of(*callee)).fold(size, Size::plus);
            called += calls;
            if size.nodes >= nodes {
                return (taken + 1, called, size);
            }
        }
        (steps.len(), callees.len(), size)
    }

    /// Copies parts until there are no more.
    fn work(
        &self,
        tasks: &[Task<'_>],
        next: &AtomicUsize,
        functions: &[FunctionProto],
        made: &mpsc::Sender<(usize, Result<CopiedPart>)>,
    ) -> Result<()> {
        let own = private(functions)?;
        let functions = Functions::new(&own)?;
        let decision = self.place.context.decision.clone();
        let context = Context { functions: &functions, decision };
        let bodies = Bodies::new(&context, iter::empty())?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return Ok(()) };
            cancel::check()?;
            if made.send((number, self.part(task, &context, &bodies))).is_err() {
                return Ok(());
            }
        }
    }

    fn part(
        &self,
        task: &Task<'_>,
        context: &Context<'_>,
        bodies: &Bodies<'_>,
    ) -> Result<CopiedPart> {
        let list = self.place.lists.first();
        let (nodes, _) = list.ok_or_else(|| Error::internal("a place without nodes is copied"))?;
        let fresh = Fresh::new(&self.reserved.names, task.numbers.clone())
            .ahead(task.callees.to_vec(), bodies);
        let opset = self.place.imports.version(b"");
        let mut copier = Copier::new(context, bodies, self.reserved, fresh, self.max_nodes, opset);
        let mut scope = Scope::written(Binding::default(), iter::empty());
        let len = task.size.nodes;
        let spliced = Spliced::new(nodes, task.steps, &mut scope, &mut copier, len)?;
        Ok(CopiedPart { spliced, calls: copier.calls, devices: copier.devices })
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// A copy of `functions` that shares no strings with them.
fn private(functions: &[FunctionProto]) -> Result<Vec<FunctionProto>> {
    let mut model = ModelProto::default();
    model.functions = functions.to_vec();
    let bytes = model.encode_to_vec()?.into();
    Ok(ModelProto::decode_with(&bytes, &DecodeOptions::default().threads(1))?.functions)
}
