//! What weights for one of several tensors on the same bytes do to the others.
//!
//! A file does not tell why tensors share bytes: because the model ties them, or because a writer
//! stores equal bytes once. So a tensor that no weights name follows only one of its own type and
//! dimensions, and only where the weights agree; the caller may decide otherwise. All that followed
//! or stayed is told.

use std::collections::{BTreeMap, HashMap};

use crate::container::fill::slot::{WeightSlot, same_bytes};
use crate::container::fill::slots::{Range, Slots, Tie, no_slot};
use crate::container::lookup::list;
use crate::container::replace::Tied;
use crate::error::{Error, ErrorKind, Result};

/// The tensors whose bytes were shared with those that got weights, as pairs of slots: the tensor,
/// and the other one.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What changed although no weights name it.
    pub(super) tied: Vec<(usize, usize)>,
    /// What shares bytes no longer.
    pub(super) untied: Vec<(usize, usize)>,
    pub(super) errors: Vec<Error>,
}

/// The slots of a tie that may share an initializer: of one type and dimensions, or of one handle.
#[derive(Default)]
struct Form {
    given: Vec<usize>,
    others: Vec<usize>,
}

/// Decides for all ties which slots get the weights that were given for others. `tied` is the
/// caller's decision.
pub(super) fn resolve(slots: &mut Slots, tied: Option<Tied>) -> Outcome {
    let mut outcome = Outcome::default();
    let handles = std::mem::take(&mut slots.handles);
    for tie in handles.values() {
        outcome.together(slots, tie, tied, true);
        settle_handles(slots, tie).unwrap_or_else(|error| outcome.errors.push(error));
    }
    let ranges = std::mem::take(&mut slots.ranges);
    for tie in ranges_that_tie(&ranges) {
        outcome.together(slots, tie, tied, false);
    }
    outcome.tied.sort_unstable();
    outcome.untied.sort_unstable();
    outcome
}

/// The ties of `ranges` without those at a placeholder. Tensors of several lengths cannot all begin
/// at the first byte of one file, so a location that they share is one.
fn ranges_that_tie(ranges: &BTreeMap<Range, Tie>) -> impl Iterator<Item = &Tie> {
    let mut lengths: HashMap<&str, usize> = HashMap::new();
    for (range, _) in ranges.iter().filter(|(_, tie)| !tie.explicit) {
        *lengths.entry(&range.location).or_default() += 1;
    }
    let is_placeholder =
        move |range: &Range| lengths.get(range.location.as_str()).is_some_and(|count| *count > 1);
    let meant = ranges.iter().filter(move |(range, tie)| tie.explicit || !is_placeholder(range));
    meant.map(|(_, tie)| tie)
}

impl Outcome {
    fn together(&mut self, slots: &mut Slots, tie: &Tie, tied: Option<Tied>, one_handle: bool) {
        let forms = forms(slots, tie, one_handle);
        let given = tie.slots.iter().filter(|slot| is_given(slots, **slot));
        let given: Vec<_> = given.copied().collect();
        let Some(first) = given.first().copied() else { return };
        let is_other = |slot: &&usize| !have_same_bytes(slots, first, **slot);
        let differing: Vec<_> = given.iter().filter(is_other).copied().collect();
        if !differing.is_empty() && !tie.explicit {
            // The weights show that the location was a placeholder.
            return;
        }
        match tied {
            Some(Tied::All) => {
                self.errors.extend(differing.into_iter().filter_map(|s| differ(slots, first, s)));
            }
            Some(Tied::Refuse) => self.errors.extend(refusal(slots, tie, first)),
            Some(Tied::This) | None => {}
        }
        for form in &forms {
            self.share(slots, form, first, tied).unwrap_or_else(|error| self.errors.push(error));
        }
    }

    /// Shares the weights of the first tensor in `form` that has some, where all agree and `tied`
    /// allows it.
    fn share(
        &mut self,
        slots: &mut Slots,
        form: &Form,
        first: usize,
        tied: Option<Tied>,
    ) -> Result<()> {
        let all = tied == Some(Tied::All);
        let leader = match (form.given.first(), form.others.first()) {
            (Some(leader), _) => *leader,
            (None, Some(other)) if all => {
                retype(slots, first, *other)?;
                *other
            }
            _ => {
                self.untied.extend(form.others.iter().map(|other| (*other, first)));
                return Ok(());
            }
        };
        if leader != first && !all && !have_same_bytes(slots, first, leader) {
            self.untied.push((leader, first));
        }
        let is_same = |slot: &usize| have_same_bytes(slots, leader, *slot);
        let (same, differing): (Vec<usize>, _) = form.given.iter().copied().partition(is_same);
        same.into_iter().filter(|s| *s != leader).for_each(|s| slots.stand_for(s, leader));
        self.untied.extend(differing.iter().map(|slot| (*slot, leader)));
        if all || tied.is_none() && differing.is_empty() {
            for other in &form.others {
                follow(slots, leader, *other);
                let with = if *other == leader { first } else { leader };
                self.tied.push((*other, with));
            }
        } else {
            self.untied.extend(form.others.iter().map(|other| (*other, leader)));
        }
        Ok(())
    }
}

/// The slots of `tie` by type and dimensions; those of a handle are of one form.
fn forms(slots: &Slots, tie: &Tie, one_handle: bool) -> Vec<Form> {
    let mut forms = BTreeMap::<_, Form>::new();
    for number in &tie.slots {
        let Some(slot) = slots.get(*number) else { continue };
        let key = (!one_handle).then(|| (slot.dtype.number(), slot.dims.as_slice()));
        let form = forms.entry(key).or_default();
        if slot.given.is_some() { form.given.push(*number) } else { form.others.push(*number) }
    }
    forms.into_values().collect()
}

fn is_given(slots: &Slots, number: usize) -> bool {
    slots.get(number).is_some_and(|slot| slot.given.is_some())
}

fn have_same_bytes(slots: &Slots, one: usize, other: usize) -> bool {
    let given = |number| slots.get(number).and_then(|slot: &WeightSlot| slot.given.as_ref());
    one == other || given(one).zip(given(other)).is_some_and(|(a, b)| same_bytes(a, b))
}

/// Gives the slot `other` the weights of the `leader`, in its own type and dimensions.
fn retype(slots: &mut Slots, leader: usize, other: usize) -> Result<()> {
    let weights = slots.get(leader).and_then(|slot| slot.given.clone()).ok_or_else(no_slot)?;
    let slot = slots.get_mut(other).ok_or_else(no_slot)?;
    slot.given = Some(weights.retyped(slot.dtype, &slot.dims)?);
    Ok(())
}

/// Makes the slot `other` share the weights of the `leader`.
fn follow(slots: &mut Slots, leader: usize, other: usize) {
    if other == leader {
        return;
    }
    slots.stand_for(other, leader);
    let weights = slots.get(leader).and_then(|slot| slot.given.clone());
    if let Some(slot) = slots.get_mut(other) {
        slot.given = weights;
    }
}

/// Decides which of the weights given for the tensors of one handle are put behind it: none while a
/// tensor keeps what is there, else the first. The others get handles of their own.
fn settle_handles(slots: &mut Slots, tie: &Tie) -> Result<()> {
    let is_free = tie.slots.iter().all(|slot| is_given(slots, *slot));
    let mut groups = BTreeMap::<usize, Vec<usize>>::new();
    for slot in tie.slots.iter().filter(|slot| is_given(slots, **slot)) {
        groups.entry(slots.leader(*slot)).or_default().push(*slot);
    }
    for (number, (leader, members)) in groups.iter().enumerate() {
        let model = slots.get(*leader).ok_or_else(no_slot)?;
        let has_form = |slot: &usize| slots.get(*slot).is_some_and(|slot| slot.has_form_of(model));
        // An initializer of one dimension fits every shape.
        let flat = if members.iter().all(has_form) { None } else { Some(model.flat()?) };
        let slot = slots.get_mut(*leader).ok_or_else(no_slot)?;
        if let (Some(dims), Some(weights)) = (flat, &slot.given) {
            slot.given = Some(weights.retyped(slot.dtype, &dims)?);
        }
        if number > 0 || !is_free {
            slot.handle = None;
        }
    }
    Ok(())
}

/// The error when both slots, which are to stay tied, were given weights that differ.
fn differ(slots: &Slots, first: usize, other: usize) -> Option<Error> {
    let (first, other) = (slots.get(first)?, slots.get(other)?);
    let reason = format!(
        "tied to `{}` in the model (both have the same bytes), but the weights `{}` differ from the weights `{}`",
        first.tensor, other.given_as, first.given_as
    );
    Some(Error::new(ErrorKind::InvalidArgument, reason).with_tensor(other.tensor.as_str()))
}

/// The error when weights name only some of the tensors of a tie.
fn refusal(slots: &Slots, tie: &Tie, first: usize) -> Option<Error> {
    let unnamed = tie.slots.iter().filter_map(|slot| slots.get(*slot));
    let unnamed: Vec<_> = unnamed.filter(|slot| !slot.answered()).collect();
    if unnamed.is_empty() {
        return None;
    }
    let names = list(unnamed.iter().map(|slot| format!("`{}`", slot.tensor)));
    let reason = format!("it is tied: its bytes are also those of {names}, which no weights name");
    let first = slots.get(first)?;
    Some(Error::new(ErrorKind::Tied, reason).with_tensor(first.tensor.as_str()))
}
