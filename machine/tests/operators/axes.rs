//! Operators over axes (reductions, normalizations, sums of products, attention): versions, types
//! and wrong input that ONNX's node tests do not show.

use half::{bf16, f16};
use onnx_container::proto::AttributeProto;
use onnx_container_machine::Value;

use crate::support::{output, outputs, tensor};

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto::int(name, value)
}

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto::string(name, value)
}

#[test]
fn every_version_and_type_has_its_meaning() {
    let square = || tensor([1, 2, 2], &[0.0_f32; 4]);
    let halves = |x: f32| [f16::from_f32(x), f16::from_f32(x)];
    let [high, low] = [f32::INFINITY, f32::NEG_INFINITY];
    let empty: [f32; 0] = [];
    let axis = |axis: i64| tensor([1], &[axis]);
    type Case = ((&'static str, i64), Vec<AttributeProto>, Vec<Value>, Value);
    let cases: Vec<Case> = vec![
        (("Softmax", 11), vec![], vec![square()], tensor([1, 2, 2], &[0.25_f32; 4])),
        (("Softmax", 13), vec![], vec![square()], tensor([1, 2, 2], &[0.5_f32; 4])),
        (("Softmax", 13), vec![], vec![tensor([2], &halves(7.0))], tensor([2], &halves(0.5))),
        (
            ("Softmax", 13),
            vec![],
            vec![tensor([2], &[bf16::from_f32(1e30); 2])],
            tensor([2], &[bf16::from_f32(0.5); 2]),
        ),
        (
            ("ReduceSum", 11),
            vec![AttributeProto::ints("axes", [-1]), int("keepdims", 0)],
            vec![tensor([2, 2], &[1_i64, 2, 3, i64::MAX])],
            tensor([2], &[3_i64, i64::MAX.wrapping_add(3)]),
        ),
        (
            ("ReduceSumSquare", 18),
            vec![int("noop_with_empty_axes", 1)],
            vec![tensor([2], &[2.0_f32, -3.0])],
            tensor([2], &[4.0_f32, 9.0]),
        ),
        (("ReduceMean", 18), vec![], vec![tensor([2], &[-1_i32, -2])], tensor([1], &[-1_i32])),
        (("ReduceL2", 18), vec![], vec![tensor([2], &[3_i64, 4])], tensor([1], &[5_i64])),
        (("ReduceMin", 18), vec![], vec![tensor([2], &[3_u8, 200])], tensor([1], &[3_u8])),
        (
            ("ReduceMax", 20),
            vec![],
            vec![tensor([2, 0], &empty), axis(1)],
            tensor([2, 1], &[low; 2]),
        ),
        (("ReduceLogSumExp", 18), vec![], vec![tensor([2], &[low; 2])], tensor([1], &[low])),
        (("ReduceLogSumExp", 18), vec![], vec![tensor([2], &[high, 0.0])], tensor([1], &[high])),
        (
            ("ArgMax", 13),
            vec![int("keepdims", 0)],
            vec![tensor([3], &[high, f32::NAN, 0.0])],
            tensor([], &[1_i64]),
        ),
        (
            ("TopK", 1),
            vec![int("k", 2), int("axis", 0)],
            vec![tensor([3, 1], &[1.0_f32, 3.0, 2.0])],
            tensor([2, 1], &[3.0_f32, 2.0]),
        ),
        (
            ("BatchNormalization", 7),
            vec![int("spatial", 0), AttributeProto::float("epsilon", 0.0)],
            [[3.0, 5.0], [2.0, 2.0], [1.0, 1.0], [1.0, 2.0], [4.0, 9.0]]
                .iter()
                .enumerate()
                .map(|(i, x): (usize, &[f32; 2])| match i {
                    0 => tensor([1, 1, 2], x),
                    _ => tensor([1, 2], x),
                })
                .collect(),
            tensor([1, 1, 2], &[3.0_f32, 3.0]),
        ),
        (
            ("LayerNormalization", 17),
            vec![AttributeProto::float("epsilon", 0.0)],
            vec![
                tensor([2, 2], &[1.0_f32, 3.0, 5.0, 1.0]),
                tensor([2, 1], &[1.0_f32, 10.0]),
                tensor([1], &[1.0_f32]),
            ],
            tensor([2, 2], &[0.0_f32, 2.0, 11.0, -9.0]),
        ),
        (
            ("GroupNormalization", 18),
            vec![int("num_groups", 1), AttributeProto::float("epsilon", 0.0)],
            vec![
                tensor([1, 2, 1], &[1.0_f32, 3.0]),
                tensor([1], &[2.0_f32]),
                tensor([1], &[1.0_f32]),
            ],
            tensor([1, 2, 1], &[-1.0_f32, 3.0]),
        ),
        (
            ("Einsum", 12),
            vec![text("equation", "...ii -> ...i")],
            vec![tensor([1, 2, 2], &[1_u8, 2, 3, 4])],
            tensor([1, 2], &[1_u8, 4]),
        ),
        (
            ("Einsum", 12),
            vec![text("equation", "i,j,ij")],
            vec![tensor([2], &[1_i32, 2]), tensor([1], &[3_i32]), tensor([2, 1], &[5_i32, 7])],
            tensor([], &[57_i32]),
        ),
        (
            ("Einsum", 12),
            vec![text("equation", "kb,...k->b...")],
            vec![tensor([2, 2], &[1.0_f32, 2.0, 3.0, 4.0]), tensor([1, 2], &[1.0_f32, 10.0])],
            tensor([2, 1], &[31.0_f32, 42.0]),
        ),
        (("Det", 11), vec![], vec![tensor([2, 0, 0], &empty)], tensor([2], &[1.0_f32; 2])),
        (
            ("Attention", 23),
            vec![],
            vec![
                tensor([1, 1, 1, 2], &[1.0_f32; 2]),
                tensor([1, 1, 0, 2], &empty),
                tensor([1, 1, 0, 1], &empty),
            ],
            tensor([1, 1, 1, 1], &[0.0_f32]),
        ),
    ];
    for (op, attributes, inputs, expected) in cases {
        let count = if op.0 == "TopK" { 2 } else { 1 };
        let found = outputs(op, &attributes, &inputs, count).unwrap();
        assert_eq!(found[0], expected, "{op:?} {inputs:?}");
    }
}

#[test]
fn the_mask_of_dropout_has_the_type_of_its_version() {
    let input = tensor([2], &[1.0_f32, 2.0]);
    let masks = [(7, tensor([2], &[1.0_f32; 2])), (10, tensor([2], &[true; 2]))];
    for (version, mask) in masks {
        let found = outputs(("Dropout", version), &[], std::slice::from_ref(&input), 2).unwrap();
        assert_eq!(found, [input.clone(), mask]);
    }
}

#[test]
fn running_statistics_are_outputs_of_old_versions_too() {
    let one = |x: f32| tensor([1], &[x]);
    let inputs = [tensor([2, 1], &[1.0_f32, 3.0]), one(1.0), one(0.0), one(0.0), one(0.0)];
    let attributes =
        [AttributeProto::float("momentum", 0.5), AttributeProto::float("epsilon", 0.0)];
    let found = outputs(("BatchNormalization", 9), &attributes, &inputs, 5).unwrap();
    let expected = [tensor([2, 1], &[-1.0_f32, 1.0]), one(1.0), one(0.5), one(2.0), one(1.0)];
    assert_eq!(found, expected);
}

#[test]
fn wrong_input_is_an_error_that_says_what_is_wrong() {
    let f = |dims: &[i64]| {
        let len = dims.iter().product::<i64>();
        tensor(dims, &vec![0.0_f32; usize::try_from(len).unwrap()])
    };
    let i = |elements: &[i64]| tensor([i64::try_from(elements.len()).unwrap()], elements);
    type Case = ((&'static str, i64), Vec<AttributeProto>, Vec<Value>, &'static str);
    let cases: Vec<Case> = vec![
        (
            ("Softmax", 13),
            vec![int("axis", 3)],
            vec![f(&[2])],
            "axis 3 of a tensor with 1 dimensions",
        ),
        (
            ("Softmax", 13),
            vec![],
            vec![i(&[1])],
            "the operator does not take elements of type INT64 as input 0 (`input`)",
        ),
        (
            ("Sub", 6),
            vec![int("broadcast", 1), int("axis", 0)],
            vec![f(&[3]), f(&[3, 2])],
            "the shape [3, 2] does not fit [3] from axis 0 on",
        ),
        (
            ("PRelu", 1),
            vec![],
            vec![f(&[2, 3]), f(&[3, 0])],
            "the shape [3, 0] does not fit [2, 3] from axis 1 on",
        ),
        (("ArgMax", 13), vec![], vec![f(&[0, 2])], "axis 0 of the shape [0, 2] has no elements"),
        (("TopK", 11), vec![], vec![f(&[2]), i(&[3])], "3 of the 2 elements along axis 0"),
        (("TopK", 11), vec![], vec![f(&[2]), i(&[-1])], "a dimension of -1 elements"),
        (("CumSum", 14), vec![], vec![f(&[2]), i(&[0, 0])], "2 axes, not one"),
        (
            ("NegativeLogLikelihoodLoss", 13),
            vec![],
            vec![f(&[1, 2]), i(&[2])],
            "label 2 among 2 classes",
        ),
        (
            ("NegativeLogLikelihoodLoss", 13),
            vec![text("reduction", "max")],
            vec![f(&[1, 2]), i(&[1])],
            "the reduction `max` is not none, sum or mean",
        ),
        (
            ("LRN", 13),
            vec![int("size", 0)],
            vec![f(&[1, 1])],
            "0 neighbouring channels of a tensor of shape [1, 1]",
        ),
        (
            ("GroupNormalization", 21),
            vec![int("num_groups", 0)],
            vec![f(&[1, 2]), f(&[2]), f(&[2])],
            "0 groups of 2 scales and 2 biases for a tensor of shape [1, 2]",
        ),
        (
            ("LpNormalization", 22),
            vec![int("p", 3)],
            vec![f(&[1])],
            "`p` is 3, and norms of order 1 and 2 are known",
        ),
        (
            ("Einsum", 12),
            vec![text("equation", "i")],
            vec![f(&[1, 1])],
            "the term [Letter('i')] of the equation for the shape [1, 1]",
        ),
        (("Einsum", 12), vec![text("equation", "i,i")], vec![f(&[1])], "2 terms for 1 inputs"),
        (("Det", 22), vec![], vec![f(&[1, 2])], "a tensor of shape [1, 2] has no square matrices"),
        (
            ("Attention", 23),
            vec![int("q_num_heads", 3), int("kv_num_heads", 1)],
            vec![f(&[1, 1, 2]), f(&[1, 1, 2]), f(&[1, 1, 2])],
            "3 heads of input 0 of shape [1, 1, 2]",
        ),
        (
            ("RotaryEmbedding", 23),
            vec![int("rotary_embedding_dim", 3)],
            vec![f(&[1, 1, 1, 4]), f(&[1, 2]), f(&[1, 2])],
            "pairs of the first 3 of 4 elements of a head",
        ),
        (
            ("Dropout", 13),
            vec![],
            vec![f(&[1]), tensor([], &[1.0_f32]), tensor([], &[true])],
            "a ratio of 1 is not from 0 to below 1",
        ),
    ];
    for (op, attributes, inputs, expected) in cases {
        let count = if op.0 == "TopK" { 2 } else { 1 };
        let error = outputs(op, &attributes, &inputs, count).unwrap_err();
        assert_eq!(error.reason(), expected, "{op:?}");
    }
}

/// A tensor of zeros.
fn zeros(dims: &[i64]) -> Value {
    let count = if dims.contains(&0) { 0 } else { dims.iter().product::<i64>() };
    tensor(dims, &vec![0.0_f32; usize::try_from(count).unwrap()])
}

#[test]
fn an_equation_takes_no_more_than_its_inputs_and_outputs() {
    let long = 1 << 15;
    let huge = 1 << 13;
    let cases = [
        // Repeated letters.
        ("ii,ii->i", [zeros(&[3, 3]), zeros(&[3, 3])], vec![3]),
        ("ii,jj->", [zeros(&[2, 2]), zeros(&[3, 3])], vec![]),
        ("iii,i", [zeros(&[2, 2, 2]), zeros(&[1])], vec![]),
        // As matrices, each of these inputs would have the elements of both.
        ("ab,ab->", [zeros(&[long, 1]), zeros(&[1, 4])], vec![]),
        // Axes without elements, beside long ones.
        ("ab,bc->ac", [zeros(&[0, 1 << 26]), zeros(&[1 << 26, 0])], vec![0, 0]),
        ("ab,bc->ac", [zeros(&[2, 0]), zeros(&[0, 3])], vec![2, 3]),
        ("abc,abc->c", [zeros(&[huge, huge, 0]), zeros(&[huge, 1, 1])], vec![0]),
        ("...a,...b->...", [zeros(&[2, 0, 3]), zeros(&[4])], vec![2, 0]),
    ];
    for (equation, inputs, expected) in cases {
        let found = outputs(("Einsum", 12), &[text("equation", equation)], &inputs, 1);
        assert_eq!(found.unwrap()[0].tensor().unwrap().dims(), expected, "{equation}");
    }
}

#[test]
fn an_equation_with_too_many_products_is_refused() {
    let letters = |from: char| (from..).take(6).collect::<String>();
    let (first, second) = (letters('a'), letters('k'));
    let side = || zeros(&[11; 6]);
    let equation = text("equation", &format!("{first},{second}->"));
    let error = outputs(("Einsum", 12), &[equation], &[side(), side()], 1).unwrap_err();
    let expected = "the equation asks for 3138428376721 products of elements, and at most 1099511627776 are computed";
    assert_eq!(error.reason(), expected);
}

#[test]
fn a_transform_of_a_prime_length_ends() {
    // By the definition, this takes 10^10 products.
    let len = 100_003;
    let mut x = vec![0.0_f32; 100_003];
    x[1] = 1.0;
    let inputs = [tensor([1, len, 1], &x)];
    let found = outputs(("DFT", 17), &[int("axis", 1)], &inputs, 1).unwrap();
    let numbers = found[0].tensor().unwrap();
    let turn = -std::f64::consts::TAU / 100_003.0;
    for (k, number) in numbers.as_slice::<f32>().unwrap().chunks_exact(2).enumerate() {
        let (sin, cos) = libm::sincos(turn * k as f64);
        let apart = (f64::from(number[0]) - cos).abs() + (f64::from(number[1]) - sin).abs();
        assert!(apart < 1e-6, "{k}: {number:?}");
    }
}

/// Lists of axes are as long as a model makes them; searched for each axis, these took minutes.
#[test]
fn as_many_axes_as_a_shape_has_are_moved_at_once() {
    let rank = 200_000_i64;
    let ones = |rank: i64| zeros(&vec![1; usize::try_from(rank).unwrap()]);
    let axes = || tensor([rank - 1], &(0..rank - 1).collect::<Vec<_>>());
    let backwards = AttributeProto::ints("perm", (0..rank).rev().collect::<Vec<_>>());
    let cases = [
        ("Unsqueeze", vec![], vec![ones(1), axes()], ones(rank)),
        ("Squeeze", vec![], vec![ones(rank), axes()], ones(1)),
        ("Transpose", vec![backwards], vec![ones(rank)], ones(rank)),
    ];
    for (op, attributes, inputs, expected) in cases {
        // Not compared with `assert_eq`, which would print the shapes.
        assert!(output((op, 13), &attributes, &inputs).unwrap() == expected, "{op}");
    }
    for (perm, reason) in [
        (vec![0, 0], "[0, 0] is no order of 2 axes"),
        (vec![1], "[1] is no order of 2 axes"),
        (vec![0, 1, 0], "[0, 1, 0] is no order of 2 axes"),
    ] {
        let perm = AttributeProto::ints("perm", perm);
        let error = output(("Transpose", 13), &[perm], &[ones(2)]).unwrap_err();
        assert_eq!(error.reason(), reason);
    }
}

/// What is multiplied by 0 is not read, as in BLAS: NaN and infinities there do not count.
#[test]
fn a_matrix_that_is_added_zero_times_is_left_out() {
    let (a, b) = (tensor([1, 2], &[1.0_f32, 2.0]), tensor([2, 1], &[3.0_f32, 4.0]));
    let product = |beta: f32, c: f32| {
        let inputs = [a.clone(), b.clone(), tensor([1], &[c])];
        output(("Gemm", 13), &[AttributeProto::float("beta", beta)], &inputs).unwrap()
    };
    for c in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 5.0] {
        assert_eq!(product(0.0, c), tensor([1, 1], &[11.0_f32]), "{c}");
    }
    assert_eq!(product(2.0, 5.0), tensor([1, 1], &[21.0_f32]));
}

#[test]
fn a_tensor_without_elements_has_no_vast_dimensions() {
    let vast = [[1, 0, (1 << 26) + 1], [0, 1 << 13, 1 << 14], [1, 1 << 40, 0]];
    for op in [("Softmax", 13), ("SplitToSequence", 11), ("Hardmax", 13)] {
        for dims in vast {
            let error = output(op, &[], &[zeros(&dims)]).unwrap_err();
            assert!(error.to_string().contains("is too large"), "{op:?}: {error}");
        }
    }
    for dims in vast {
        let error = output(("ConstantOfShape", 9), &[], &[tensor([3], &dims)]).unwrap_err();
        assert!(error.to_string().contains("is too large"), "{dims:?}: {error}");
    }
    for dims in [[1, 0, 1 << 26], [0, 1 << 13, 1 << 13], [1, 1 << 20, 0]] {
        let found = output(("ConstantOfShape", 9), &[], &[tensor([3], &dims)]).unwrap();
        assert_eq!(found.tensor().unwrap().dims(), dims);
    }
}
