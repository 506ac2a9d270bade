//! A breadth-first search of all states of a model, and the shortest way to a fault.
//!
//! A state is known again by a hash of 64 bits. Of a million states, two have one hash, and one of
//! them is not looked at, with a probability below one in ten million.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What can be searched.
pub trait Model {
    /// All that decides what may come next.
    type State: Hash;
    /// One step to another state.
    type Action: Copy;

    /// The first state.
    fn start(&self) -> Self::State;
    /// Adds what may happen in a state.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);
    /// The state after an action; `None` where that is not possible.
    fn next(&self, state: &Self::State, action: Self::Action) -> Option<Self::State>;
    /// The property that a state breaks. Nothing can happen after one that `is_last`.
    fn fault(&self, state: &Self::State, is_last: bool) -> Option<&'static str>;
    /// What an action does in a state, for people.
    fn describe(&self, state: &Self::State, action: Self::Action) -> String;
}

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// How many states were seen.
    pub states: usize,
    /// The broken property, and the actions that lead to it.
    pub counterexample: Option<(&'static str, Vec<String>)>,
}

/// Looks at all states of `model`, up to the first that breaks a property.
pub fn search<M: Model>(model: &M) -> Found {
    let start = model.start();
    let mut seen = HashMap::from([(hash(&start), None)]);
    let mut waiting = VecDeque::from([start]);
    let mut actions = Vec::new();
    while let Some(state) = waiting.pop_front() {
        let own = hash(&state);
        actions.clear();
        model.actions(&state, &mut actions);
        let mut is_last = true;
        for &action in &actions {
            let Some(next) = model.next(&state, action) else { continue };
            is_last = false;
            seen.entry(hash(&next)).or_insert_with(|| {
                waiting.push_back(next);
                Some((own, action))
            });
        }
        if let Some(fault) = model.fault(&state, is_last) {
            let counterexample = Some((fault, path(model, &seen, own)));
            return Found { states: seen.len(), counterexample };
        }
    }
    Found { states: seen.len(), counterexample: None }
}

fn hash(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The actions that lead to the state with the hash `last`.
fn path<M: Model>(
    model: &M,
    seen: &HashMap<u64, Option<(u64, M::Action)>>,
    mut last: u64,
) -> Vec<String> {
    let mut actions = Vec::new();
    while let Some(Some((before, action))) = seen.get(&last) {
        actions.push(*action);
        last = *before;
    }
    let mut state = Some(model.start());
    let said = actions.into_iter().rev().filter_map(|action| {
        let now = state.take()?;
        let said = model.describe(&now, action);
        state = model.next(&now, action);
        Some(said)
    });
    said.collect()
}
