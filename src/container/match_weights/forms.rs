//! The forms in which a tensor may have the elements of a weight: its axes in another order,
//! another shape, a slice.

use super::mapping::{WeightPart, WeightSlice};

/// Axes of up to this many are tried in every order.
const AXES: usize = 4;

/// Every order of `count` things, the one that they have first.
pub(super) fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        let longer = orders.iter().flat_map(|order: &Vec<usize>| {
            let left = (0..count).filter(|next| !order.contains(next));
            left.map(|next| order.iter().copied().chain([next]).collect())
        });
        orders = longer.collect();
    }
    orders
}

/// The dimensions that are not 1.
fn squeezed(dims: &[i64]) -> Vec<i64> {
    dims.iter().copied().filter(|dim| *dim != 1).collect()
}

/// The forms of a whole weight of `dims` as a tensor of dimensions `wanted`, which has as many
/// elements: as it is, then with its axes in another order, then with the axes of the tensor in
/// another order.
pub(super) fn of_whole(weight: &str, dims: &[i64], wanted: &[i64]) -> Vec<WeightPart> {
    let mut forms = vec![WeightPart::whole(weight, dims)];
    let (own, target) = (squeezed(dims), squeezed(wanted));
    let form = |shape: Vec<i64>, permutation: Vec<usize>| WeightPart {
        weight: weight.to_owned(),
        dims: dims.to_vec(),
        slice: None,
        shape,
        permutation,
    };
    if own.len() <= AXES {
        let others = orders(own.len()).into_iter().skip(1);
        forms.extend(others.map(|permutation| form(own.clone(), permutation)));
    }
    if target.len() <= AXES {
        for permutation in orders(target.len()).into_iter().skip(1) {
            let mut shape = target.clone();
            for (axis, dim) in permutation.iter().zip(&target) {
                if let Some(place) = shape.get_mut(*axis) {
                    *place = *dim;
                }
            }
            let form = form(shape, permutation);
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    // Those that have the tensor's dimensions are likelier than those that a reshape follows.
    let (_, others) = forms.split_first_mut().unwrap_or((&mut WeightPart::whole("", &[]), &mut []));
    others.sort_by_key(|form| form.permuted() != target);
    forms
}

/// The slices along one axis of a weight of `dims` that have the dimensions `wanted`, each in an
/// order of its axes. They begin at index 0: where they begin has to be found.
pub(super) fn of_slice(weight: &str, dims: &[i64], wanted: &[i64]) -> Vec<WeightPart> {
    let mut forms = Vec::new();
    if dims.len() != wanted.len() || dims.len() > AXES {
        return forms;
    }
    for permutation in orders(dims.len()) {
        let pairs: Vec<_> = permutation.iter().zip(wanted).collect();
        let differ = pairs.iter().filter(|(axis, want)| dims.get(**axis) != Some(*want));
        let differ: Vec<_> = differ.collect();
        let [(axis, len)] = differ.as_slice() else { continue };
        if dims.get(**axis).is_none_or(|dim| *dim < **len) || **len == 0 {
            continue;
        }
        let mut shape = dims.to_vec();
        if let Some(place) = shape.get_mut(**axis) {
            *place = **len;
        }
        let slice = Some(WeightSlice { axis: **axis, start: 0, len: **len });
        let (weight, dims) = (weight.to_owned(), dims.to_vec());
        forms.push(WeightPart { weight, dims, slice, shape, permutation });
    }
    forms
}
