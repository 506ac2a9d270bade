//! Operators on one element at a time: numbers at the ends of their types.

use onnx_container::proto::AttributeProto;
use onnx_container_machine::Value;

use crate::support::{output, tensor};

#[test]
fn integers_beyond_the_floats_are_compared_exactly() {
    let large = 1_i64 << 53;
    let signed = |x: &[i64]| tensor([i64::try_from(x.len()).unwrap()], x);
    let unsigned = |x: &[u64]| tensor([i64::try_from(x.len()).unwrap()], x);
    let truth = |x: &[bool]| tensor([i64::try_from(x.len()).unwrap()], x);
    let (a, b) = (signed(&[large, large + 1, -large]), signed(&[large + 1, large, -large - 1]));
    let (u, v) = (unsigned(&[u64::MAX, u64::MAX - 1]), unsigned(&[u64::MAX - 1, u64::MAX]));
    let cases = [
        ("Equal", [a.clone(), b.clone()], truth(&[false; 3])),
        ("Less", [a.clone(), b.clone()], truth(&[true, false, false])),
        ("LessOrEqual", [a.clone(), b.clone()], truth(&[true, false, false])),
        ("Greater", [a.clone(), b.clone()], truth(&[false, true, true])),
        ("GreaterOrEqual", [a.clone(), b.clone()], truth(&[false, true, true])),
        ("Max", [a.clone(), b.clone()], signed(&[large + 1, large + 1, -large])),
        ("Min", [a.clone(), b.clone()], signed(&[large, large, -large - 1])),
        ("Equal", [u.clone(), v.clone()], truth(&[false; 2])),
        ("Greater", [u.clone(), v.clone()], truth(&[true, false])),
        ("Max", [u.clone(), v.clone()], unsigned(&[u64::MAX; 2])),
        ("Min", [u, v], unsigned(&[u64::MAX - 1; 2])),
        // The power of -1 tells whether the exponent is odd.
        ("Pow", [signed(&[-1; 3]), a], signed(&[1, -1, 1])),
        ("Pow", [signed(&[-1, -1]), unsigned(&[u64::MAX, 1 << 63])], signed(&[-1, 1])),
    ];
    for (op, inputs, expected) in cases {
        assert_eq!(output((op, 20), &[], &inputs).unwrap(), expected, "{op} {inputs:?}");
    }
    let chosen = [truth(&[true, false, true]), b.clone(), signed(&[large; 3])];
    let expected = signed(&[large + 1, large, -large - 1]);
    assert_eq!(output(("Where", 20), &[], &chosen).unwrap(), expected);
    let [low, high] = [large + 1, large + 3].map(|x| tensor([], &[x]));
    let clipped = [signed(&[large, large + 2, large + 4]), low, high];
    let expected = signed(&[large + 1, large + 2, large + 3]);
    assert_eq!(output(("Clip", 20), &[], &clipped).unwrap(), expected);
    let threshold = [AttributeProto::float("threshold", 9_007_199_254_740_992.0)];
    let above = output(("ai.onnx.ml::Binarizer", 1), &threshold, &[b]).unwrap();
    assert_eq!(above, signed(&[1, 0, 0]));
}

/// The bounds that are left out are numbers, so an infinity becomes the largest one.
#[test]
fn an_infinity_is_clipped_to_the_bounds_that_are_left_out() {
    let single = |x: [f32; 3]| tensor([3], &x);
    let double = |x: [f64; 3]| tensor([3], &x);
    let (largest, of_float) = (f64::MAX, f64::from(f32::MAX));
    let singles = single([f32::INFINITY, -1.0, f32::NEG_INFINITY]);
    let doubles = double([f64::INFINITY, -1.0, f64::NEG_INFINITY]);
    let cases = [
        (1, singles.clone(), singles.clone()),
        (6, singles.clone(), single([f32::MAX, -1.0, f32::MIN])),
        (6, doubles.clone(), double([of_float, -1.0, -of_float])),
        (13, singles, single([f32::MAX, -1.0, f32::MIN])),
        (13, doubles, double([largest, -1.0, -largest])),
    ];
    for (version, x, expected) in cases {
        assert_eq!(output(("Clip", version), &[], &[x]).unwrap(), expected, "version {version}");
    }
}

#[test]
fn celu_is_an_error_where_it_is_not_defined() {
    let celu = |alpha: f32| {
        let attributes = [AttributeProto::float("alpha", alpha)];
        output(("Celu", 12), &attributes, &[tensor([2], &[-1.0_f32, 2.0])])
    };
    for alpha in [0.0, -0.0, f32::INFINITY, f32::NAN] {
        let error = celu(alpha).unwrap_err().to_string();
        assert!(error.contains("is not a number"), "{error}");
    }
    let found = celu(2.0).unwrap();
    let found = found.tensor().unwrap().to_slice::<f32>().unwrap();
    // 2 * (exp(-0.5) - 1).
    assert!((found[0] + 0.786_938_7).abs() < 1e-6 && found[1] == 2.0, "{found:?}");
}

#[test]
fn functions_keep_their_value_where_a_part_of_them_overflows() {
    let single = |x: f32| tensor([1], &[x]);
    let double = |x: f64| tensor([1], &[x]);
    let largest = f32::MAX;
    let cases: Vec<(&str, Value, f64)> = vec![
        ("Softplus", single(1000.0), 1000.0),
        ("Softplus", single(largest), f64::from(largest)),
        ("Softplus", single(-1000.0), 0.0),
        ("Softplus", single(-30.0), 9.357_622_968_839_299e-14),
        ("Softplus", single(f32::INFINITY), f64::INFINITY),
        ("Softplus", single(f32::NEG_INFINITY), 0.0),
        ("Softplus", single(f32::NAN), f64::NAN),
        ("Softplus", double(1e300), 1e300),
        ("Softplus", double(1.0), 1.313_261_687_518_222_8),
        ("Mish", single(1000.0), 1000.0),
        ("Acosh", single(1.0), 0.0),
        // The nearest number above 1 is 1 + d, and acosh(1 + d) is the root of 2d.
        ("Acosh", single(1.0 + f32::EPSILON), (2.0 * f64::from(f32::EPSILON)).sqrt()),
        ("Acosh", single(0.999), f64::NAN),
        ("Acosh", single(-1.0), f64::NAN),
        ("Acosh", single(-100.0), f64::NAN),
        ("Acosh", single(-1e9), f64::NAN),
        ("Acosh", double(-2000.0), f64::NAN),
        ("Acosh", double(-1e7), f64::NAN),
        ("Acosh", double(f64::NEG_INFINITY), f64::NAN),
    ];
    for (op, x, expected) in cases {
        let y = output((op, 18), &[], std::slice::from_ref(&x)).unwrap();
        let tensor = y.tensor().unwrap();
        let found = tensor.as_slice::<f64>().map_or_else(
            |_| f64::from(tensor.as_slice::<f32>().unwrap()[0]),
            |elements| elements[0],
        );
        let near = (found - expected).abs() <= 1e-7 * expected.abs();
        assert!(
            found == expected || near || (found.is_nan() && expected.is_nan()),
            "{op} {x:?}: {found}, not {expected}"
        );
    }
}

/// Of version 28: a zero has the sign of the divisor, as every remainder.
#[test]
fn a_remainder_has_the_sign_of_the_divisor() {
    fn bits(of: [f64; 6], dtype: i64) -> Value {
        let attribute = [AttributeProto::int("to", dtype)];
        output(("Cast", 26), &attribute, &[tensor([6], &of)]).unwrap()
    }
    for dtype in [1, 10, 11, 16] {
        let a = bits([6.0, -6.0, 0.0, -0.0, -0.0, 5.0], dtype);
        let b = bits([-3.0, 3.0, -3.0, 3.0, f64::INFINITY, -3.0], dtype);
        let expected = bits([-0.0, 0.0, -0.0, 0.0, 0.0, -1.0], dtype);
        let found = output(("Mod", 28), &[], &[a, b]).unwrap();
        let bytes = |value: &Value| value.tensor().unwrap().as_bytes().unwrap().to_vec();
        assert_eq!(bytes(&found), bytes(&expected), "type {dtype}");
    }
}

#[test]
fn a_nan_is_the_highest_element() {
    let nan = f32::NAN;
    for (x, expected) in [
        ([1.0, nan, 2.0], [0.0_f32, 1.0, 0.0]),
        ([nan, 1.0, nan], [1.0, 0.0, 0.0]),
        ([1.0, f32::INFINITY, 2.0], [0.0, 1.0, 0.0]),
    ] {
        let found = output(("Hardmax", 13), &[], &[tensor([1, 3], &x)]).unwrap();
        assert_eq!(found, tensor([1, 3], &expected), "{x:?}");
    }
}

/// Two scores whose difference, 0.25, is lost in FLOAT16 and BFLOAT16: the softmax tells in which
/// type they entered it. Without a precision it is that of the queries and keys.
#[test]
fn scores_enter_the_softmax_of_attention_in_its_precision() {
    let lost = 0.5;
    let kept = 0.562_176_500_885_798; // 1 / (1 + exp(-0.25))
    let elements = |shape: [i64; 4], of: &[f64], dtype: i64| {
        let to = [AttributeProto::int("to", dtype)];
        output(("Cast", 26), &to, &[tensor(shape, of)]).unwrap()
    };
    // The element type, and half a unit in the last place of 0.56 in it.
    for (dtype, unit) in [(1, 3e-8), (10, 2.5e-4), (11, 1e-15), (16, 2e-3)] {
        for precision in [None, Some(1), Some(10), Some(11), Some(16)] {
            let inputs = [
                elements([1, 1, 1, 2], &[1.0, 1.0], dtype),
                elements([1, 1, 2, 2], &[1024.0, 0.25, 1024.0, 0.0], dtype),
                elements([1, 1, 2, 1], &[1.0, 0.0], dtype),
            ];
            let scale = AttributeProto::float("scale", 1.0);
            let precise = precision.map(|number| AttributeProto::int("softmax_precision", number));
            let attributes: Vec<_> = [scale].into_iter().chain(precise).collect();
            let found = output(("Attention", 23), &attributes, &inputs).unwrap();
            let to = [AttributeProto::int("to", 11)];
            let found = output(("Cast", 26), &to, &[found]).unwrap();
            let found = found.tensor().unwrap().to_slice::<f64>().unwrap()[0];
            let is_double = dtype == 11 && precision.unwrap_or(dtype) == 11;
            let (expected, unit) = match precision.unwrap_or(dtype) {
                10 | 16 => (lost, 0.0),
                _ => (kept, if is_double { unit } else { if unit > 6e-8 { unit } else { 6e-8 } }),
            };
            let is_near = (found - expected).abs() <= unit;
            assert!(is_near, "type {dtype}, precision {precision:?}: {found}, not {expected}");
        }
    }
}

/// The error of FLOAT16 and BFLOAT16 is that of rounding scores, probabilities and the result once
/// each.
#[test]
fn attention_in_halves_is_near_the_exact_result() {
    let (queries, keys, len) = (5, 9, 8);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (dtype, unit) in [(10, libm::ldexp(1.0, -11)), (16, libm::ldexp(1.0, -8))] {
        let numbers = |rows: i64, seed: usize| {
            let of = |i: usize| ((i + seed) * 7919 % 257) as f64 / 128.0 - 1.0;
            let wide: Vec<_> = (0..usize::try_from(rows * len).unwrap()).map(of).collect();
            let cast = |to: i64, value: Value| {
                output(("Cast", 26), &[AttributeProto::int("to", to)], &[value]).unwrap()
            };
            let half = cast(dtype, tensor([1, 1, rows, len], &wide));
            let exact = cast(11, half.clone());
            (half, exact.tensor().unwrap().to_slice::<f64>().unwrap().to_vec())
        };
        let ((q, exact_q), (k, exact_k), (v, exact_v)) =
            (numbers(queries, 1), numbers(keys, 50), numbers(keys, 99));
        let found = output(("Attention", 23), &[], &[q, k, v]).unwrap();
        let found = output(("Cast", 26), &[AttributeProto::int("to", 11)], &[found]).unwrap();
        let found = found.tensor().unwrap().to_slice::<f64>().unwrap().to_vec();
        for (q, found) in exact_q.chunks(8).zip(found.chunks(8)) {
            let scores = exact_k.chunks(8).map(|k| libm::exp(dot(q, k) / 8_f64.sqrt()));
            let scores: Vec<_> = scores.collect();
            for (j, found) in found.iter().enumerate() {
                let column: Vec<_> = exact_v.iter().skip(j).step_by(8).copied().collect();
                let exact = dot(&scores, &column) / scores.iter().sum::<f64>();
                // Scores below 4, of which half a unit is `2 * unit`, and two roundings of numbers
                // below 1.
                assert!((found - exact).abs() <= 4.0 * unit, "{dtype}: {found}, not {exact}");
            }
        }
    }
}

/// The least bits of the result tell which softmax it was.
#[test]
fn attention_computes_its_softmax_in_the_precision_that_it_is_given() {
    let query = tensor([1, 1, 1, 1], &[1.0_f32]);
    let key = tensor([1, 1, 2, 1], &[1.0_f32, 1.75]);
    let value = tensor([1, 1, 2, 1], &[0.0_f32, 1.0]);
    let exact = 0.679_178_699_175_393; // 1 / (1 + exp(-0.75))
    let of = |precision: Option<i64>| {
        let precision = precision.map(|number| AttributeProto::int("softmax_precision", number));
        let attributes: Vec<_> = precision.into_iter().collect();
        let inputs = [query.clone(), key.clone(), value.clone()];
        let found = output(("Attention", 23), &attributes, &inputs).unwrap();
        f64::from(found.tensor().unwrap().to_slice::<f32>().unwrap()[0])
    };
    for (precision, below, above) in [
        (None, 0.0, 1e-7),
        (Some(1), 0.0, 1e-7),
        (Some(11), 0.0, 1e-7),
        (Some(10), 1e-7, 1e-3),
        (Some(16), 1e-4, 1e-2),
    ] {
        let error = (of(precision) - exact).abs();
        assert!((below..above).contains(&error), "{precision:?}: {error}");
    }
    let half = f64::from(half::f16::from_f64(exact));
    assert_eq!(of(Some(10)), half);
}

/// Of BOOL a sum and the larger are an "or", a product and the smaller an "and".
#[test]
fn truth_values_are_scattered_by_every_reduction() {
    let (x, updates) = (tensor([2], &[true, false]), tensor([2], &[false, true]));
    for (op, indices) in
        [("ScatterElements", tensor([2], &[0_i64, 0])), ("ScatterND", tensor([2, 1], &[0_i64, 0]))]
    {
        for (reduction, expected) in
            [("none", true), ("add", true), ("mul", false), ("max", true), ("min", false)]
        {
            let reduction = AttributeProto::string("reduction", reduction);
            let inputs = [x.clone(), indices.clone(), updates.clone()];
            let found = output((op, 18), std::slice::from_ref(&reduction), &inputs).unwrap();
            assert_eq!(found, tensor([2], &[expected, false]), "{op} {reduction:?}");
        }
    }
}

/// An index without coordinates names the whole tensor, and the last update stays.
#[test]
fn an_empty_index_scatters_the_whole_tensor() {
    let x = tensor([2], &[1_i64, 2]);
    let indices = |count| tensor::<i64>([count, 0], &[]);
    let updates = tensor([2, 2], &[3_i64, 4, 5, 6]);
    let inputs = [x.clone(), indices(2), updates];
    assert_eq!(output(("ScatterND", 18), &[], &inputs).unwrap(), tensor([2], &[5_i64, 6]));
    let add = AttributeProto::string("reduction", "add");
    assert_eq!(output(("ScatterND", 18), &[add], &inputs).unwrap(), tensor([2], &[9_i64, 12]));
    // No index of many: nothing is written, however many there are.
    let empty = tensor::<i64>([0], &[]);
    let many = [empty.clone(), indices(1 << 20), tensor::<i64>([1 << 20, 0], &[])];
    assert_eq!(output(("ScatterND", 18), &[], &many).unwrap(), empty);
}

#[test]
fn a_range_ends_at_a_number() {
    for limit in [f32::NAN, f32::INFINITY] {
        let inputs = [0.0, limit, 1.0].map(|x: f32| tensor([], &[x]));
        assert!(output(("Range", 11), &[], &inputs).is_err(), "{limit}");
    }
}
