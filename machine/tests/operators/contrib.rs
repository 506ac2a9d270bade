//! The operators of onnxruntime: results that were computed by hand, and what is refused.
//! `tests/interop/contrib.py` holds them to onnxruntime.

use half::f16;
use onnx_container::DataType::{self, Float8E4M3Fn};
use onnx_container::proto::AttributeProto;
use onnx_container::{Buffer, Tensor};
use onnx_container_machine::{ErrorKind, Profile, Result, RunLimits, Value};

use crate::support::{outputs_of, tensor};

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto::int(name, value)
}

fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto::float(name, value)
}

/// The outputs of an operator of onnxruntime in a profile.
fn run(
    profile: Profile,
    op: &str,
    attributes: &[AttributeProto],
    inputs: &[Option<Value>],
    count: usize,
) -> Result<Vec<Value>> {
    let (name, version) = match op {
        "SimplifiedLayerNormalization" => (op.to_owned(), 21),
        op => (format!("com.microsoft::{op}"), 1),
    };
    outputs_of((RunLimits::new(), profile), (&name, version), attributes, inputs, count)
}

/// Inputs of FLOAT, each with its dimensions; without dimensions one is left out.
fn floats(all: &[(&[i64], &[f32])]) -> Vec<Option<Value>> {
    let one = |(dims, elements): &(&[i64], &[f32])| match (dims.len(), elements.len()) {
        (0, 0) => None,
        _ => Some(tensor(dims.to_vec(), elements)),
    };
    all.iter().map(one).collect()
}

const ABSENT: (&[i64], &[f32]) = (&[], &[]);

/// A tensor of codes of 8 bits.
fn codes_of(dtype: DataType, dims: [i64; 2], codes: &[u8]) -> Value {
    Value::Tensor(Tensor::new(dtype, dims, Buffer::from(codes)).unwrap())
}

type Case = (&'static str, Vec<AttributeProto>, Vec<Option<Value>>, Vec<Value>);

fn check(cases: Vec<Case>) {
    for (op, attributes, inputs, expected) in cases {
        for profile in [Profile::Strict, Profile::Fast] {
            let found = run(profile, op, &attributes, &inputs, expected.len());
            let found = found.unwrap_or_else(|error| panic!("{op}, {attributes:?}: {error}"));
            assert_eq!(found, expected, "{op}, {attributes:?}, {profile}");
        }
    }
}

#[test]
fn rows_are_normalized_with_what_is_added_to_them() {
    let rows = |elements: &[f32]| tensor([1, 2], elements);
    let zero = || vec![float("epsilon", 0.0)];
    check(vec![
        (
            "SkipLayerNormalization",
            zero(),
            floats(&[
                (&[1, 2], &[1.0, 3.0]),
                (&[1, 2], &[1.0, 1.0]),
                (&[2], &[2.0, 2.0]),
                (&[2], &[1.0, 1.0]),
                (&[2], &[-1.0, -1.0]),
            ]),
            vec![
                rows(&[-1.0, 3.0]),
                tensor([1, 1], &[2.0_f32]),
                tensor([1, 1], &[1.0_f32]),
                rows(&[1.0, 3.0]),
            ],
        ),
        (
            "SkipLayerNormalization",
            zero(),
            floats(&[
                (&[2, 1, 2], &[1.0, 3.0, 0.0, 8.0]),
                (&[1, 2], &[0.0, 0.0]),
                (&[2], &[1.0, 1.0]),
            ]),
            vec![tensor([2, 1, 2], &[-1.0_f32, 1.0, -1.0, 1.0])],
        ),
        (
            "SkipSimplifiedLayerNormalization",
            zero(),
            floats(&[
                (&[1, 2], &[2.0, 2.0]),
                (&[1, 2], &[-1.0, -2.0]),
                (&[2], &[2.0, 3.0]),
                (&[2], &[0.0, -1.0]),
            ]),
            vec![
                rows(&[2.0, -3.0]),
                tensor([1, 1], &[0.0_f32]),
                tensor([1, 1], &[1.0_f32]),
                rows(&[1.0, -1.0]),
            ],
        ),
        (
            "SimplifiedLayerNormalization",
            zero(),
            floats(&[(&[1, 2], &[2.0, -2.0]), (&[2], &[1.0, 2.0])]),
            vec![rows(&[1.0, -2.0]), tensor([1, 1], &[0.5_f32])],
        ),
    ]);
}

#[test]
fn products_are_those_of_transposed_factors() {
    let halves = |x: &[f32]| x.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
    check(vec![
        (
            "FusedMatMul",
            vec![int("transA", 1), int("transB", 1), float("alpha", 0.5)],
            floats(&[(&[2, 1], &[1.0, 2.0]), (&[1, 2], &[3.0, 4.0])]),
            vec![tensor([1, 1], &[5.5_f32])],
        ),
        (
            "FusedMatMul",
            vec![int("transBatchA", 1)],
            floats(&[(&[2, 2, 1], &[1.0, 2.0, 3.0, 4.0]), (&[2, 1, 1], &[10.0, 100.0])]),
            vec![tensor([2, 2, 1], &[10.0_f32, 30.0, 200.0, 400.0])],
        ),
        // The sum is 65536, which FLOAT16 has not: alpha comes before the rounding.
        (
            "FusedMatMul",
            vec![float("alpha", 0.25)],
            vec![
                Some(tensor([1, 2], &halves(&[256.0, 256.0]))),
                Some(tensor([2, 1], &halves(&[128.0, 128.0]))),
            ],
            vec![tensor([1, 1], &halves(&[16384.0]))],
        ),
    ]);
}

#[test]
fn the_forms_of_gelu_are_exact_where_it_is_a_line() {
    let x = || (&[1_i64, 3][..], &[0.0_f32, 100.0, 30.0][..]);
    let y = || vec![tensor([1, 3], &[0.0_f32, 100.0, 30.0])];
    let biased: (&[i64], &[f32]) = (&[1, 3], &[1.0, 98.0, 33.0]);
    let bias: (&[i64], &[f32]) = (&[3], &[-1.0, 2.0, -3.0]);
    check(vec![
        ("Gelu", vec![], floats(&[x()]), y()),
        ("QuickGelu", vec![], floats(&[x()]), y()),
        ("QuickGelu", vec![float("alpha", 5.0)], floats(&[x()]), y()),
        ("FastGelu", vec![], floats(&[x()]), y()),
        ("FastGelu", vec![], floats(&[biased, bias]), y()),
        ("BiasGelu", vec![], floats(&[biased, bias]), y()),
    ]);
}

/// The attributes of a product with a matrix of so many columns and rows of codes.
fn bits(k: i64, n: i64, bits: i64) -> Vec<AttributeProto> {
    vec![int("K", k), int("N", n), int("bits", bits), int("block_size", 16)]
}

#[test]
fn codes_of_every_width_become_numbers() {
    let counted: Vec<f32> = (0..16_u8).map(f32::from).collect();
    let one = |n: i64, scales: &[f32]| tensor([n], scales);
    let product = |a: &[f32], codes: &[u8], scales: &[f32], rest: [Option<Value>; 3]| {
        let bytes = i64::try_from(codes.len()).unwrap();
        let len = i64::try_from(a.len()).unwrap();
        let n = i64::try_from(scales.len()).unwrap();
        let first =
            [Some(tensor([1, len], a)), Some(tensor([1, 1, bytes], codes)), Some(one(n, scales))];
        first.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let none = || [None, None, None];
    let y = |x: f32| vec![tensor([1, 1], &[x])];
    let ones = [1.0_f32; 32];
    check(vec![
        // Codes 8 and 9 in turn are 0 and 1: 1 + 3 + .. + 15 is 64.
        ("MatMulNBits", bits(16, 1, 4), product(&counted, &[0x98; 8], &[0.5], none()), y(32.0)),
        (
            "MatMulNBits",
            bits(16, 1, 4),
            product(&counted, &[0x98; 8], &[0.5], [None, None, Some(one(1, &[1.0]))]),
            y(33.0),
        ),
        // Without 7 they are 1 and 2: 56 + 2 * 64 is 184.
        (
            "MatMulNBits",
            bits(16, 1, 4),
            product(&counted, &[0x98; 8], &[0.5], [Some(tensor([1], &[7_u8])), None, None]),
            y(92.0),
        ),
        (
            "MatMulNBits",
            bits(16, 1, 4),
            product(&counted, &[0x98; 8], &[0.5], [Some(one(1, &[7.5])), None, None]),
            y(0.5 * (0.5 * 56.0 + 1.5 * 64.0)),
        ),
        // Codes 0, 1, 2 and 3 are -2, -1, 0 and 1.
        ("MatMulNBits", bits(16, 1, 2), product(&ones[..16], &[0xe4; 4], &[0.5], none()), y(-4.0)),
        ("MatMulNBits", bits(16, 1, 8), product(&ones[..16], &[129; 16], &[0.5], none()), y(8.0)),
        // All codes have the scale of the second block.
        (
            "MatMulNBits",
            bits(32, 1, 4),
            product(
                &ones,
                &[0x99; 16],
                &[1.0, 10.0],
                [None, Some(tensor([32], &[1_i32; 32])), None],
            ),
            y(320.0),
        ),
        // A matrix that is left out, and its bias.
        (
            "MatMulNBits",
            bits(20, 2, 4),
            vec![
                Some(tensor([1, 20], &ones[..20])),
                Some(tensor::<u8>([2, 0, 8], &[])),
                Some(tensor::<f32>([0], &[])),
            ],
            vec![tensor([1, 2], &[0.0_f32; 2])],
        ),
        (
            "MatMulNBits",
            bits(20, 2, 4),
            vec![
                Some(tensor([1, 20], &ones[..20])),
                Some(tensor::<u8>([2, 2, 0], &[])),
                Some(tensor([2, 2], &[1.0_f32; 4])),
                None,
                None,
                Some(tensor([2], &[1.0_f32, 2.0])),
            ],
            vec![tensor([1, 2], &[1.0_f32, 2.0])],
        ),
        // The last block is used in part: 16 times 1 and 4 times 10.
        (
            "MatMulNBits",
            bits(20, 1, 4),
            product(&ones[..20], &[0x99; 16], &[1.0, 10.0], none()),
            y(56.0),
        ),
    ]);
}

/// One row is computed in another way than two, with the same result.
#[test]
fn one_row_has_the_bits_that_it_has_among_others() {
    let (n, k, blocks) = (37_u8, 70_u8, 5_usize);
    let numbers = |count: usize, by: usize| {
        let number = |i| (i * by % 1013) as f32 / 97.0 - 5.0;
        (0..count).map(number).collect::<Vec<f32>>()
    };
    let codes = |count: usize| (0..count).map(|i| (i * 7919 % 251) as u8).collect::<Vec<_>>();
    let (rows, columns) = (usize::from(n), usize::from(k));
    let (n, k) = (i64::from(n), i64::from(k));
    let a = numbers(columns, 577);
    let scales = tensor([n, 5], &numbers(rows * blocks, 331));
    for bits in [2, 4, 8] {
        let (blob, packed) = (2 * bits, (blocks * bits).div_ceil(8));
        let [blob_dim, packed_dim] = [blob, packed].map(|len| i64::try_from(len).unwrap());
        let b = tensor([n, 5, blob_dim], &codes(rows * blocks * blob));
        let zeros = [
            None,
            Some(tensor([n, packed_dim], &codes(rows * packed))),
            Some(tensor([n, 5], &numbers(rows * blocks, 613))),
        ];
        for (zeros, profile) in
            zeros.iter().flat_map(|zeros| [(zeros, Profile::Strict), (zeros, Profile::Fast)])
        {
            let product = |m: i64| {
                let a = tensor([m, k], &a.repeat(usize::try_from(m).unwrap()));
                let inputs = [Some(a), Some(b.clone()), Some(scales.clone()), zeros.clone()];
                let width = i64::try_from(bits).unwrap();
                let found = run(profile, "MatMulNBits", &self::bits(k, n, width), &inputs, 1);
                found.unwrap()[0].tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
            };
            let bits_of = |all: Vec<f32>| all.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let one = bits_of(product(1));
            assert_eq!(bits_of(product(2)), one.repeat(2), "{bits} bits, {profile}");
        }
    }
}

#[test]
fn rows_of_quantized_tables_are_gathered() {
    let table = |codes: [u8; 16]| Some(tensor([2, 8], &codes));
    let codes = || {
        let mut codes = [0x88; 16];
        (codes[0], codes[8]) = (0x79, 0x0f);
        table(codes)
    };
    let scales = || Some(tensor([2, 1], &[0.5_f32, 2.0]));
    let row = |start: &[f32], rest: f32| {
        let mut row = vec![rest; 16];
        row[..start.len()].copy_from_slice(start);
        row
    };
    let block = || vec![int("block_size", 16)];
    check(vec![
        (
            "GatherBlockQuantized",
            block(),
            vec![codes(), Some(tensor([2], &[1_i64, -2])), scales()],
            vec![tensor([2, 16], &[row(&[14.0, -16.0], 0.0), row(&[0.5, -0.5], 0.0)].concat())],
        ),
        // The zero point of the row is 15.
        (
            "GatherBlockQuantized",
            block(),
            vec![
                codes(),
                Some(tensor([], &[1_i32])),
                scales(),
                Some(tensor([2, 1], &[0_u8, 0x0f])),
            ],
            vec![tensor([16], &row(&[0.0, -30.0], -14.0))],
        ),
        (
            "GatherBlockQuantized",
            vec![int("block_size", 16), int("bits", 8)],
            vec![
                Some(tensor([1, 16], &[130_u8; 16])),
                Some(tensor([1], &[0_i64])),
                Some(tensor([1, 1], &[0.5_f32])),
            ],
            vec![tensor([1, 16], &[1.0_f32; 16])],
        ),
        // An index of no row has zeros.
        (
            "GatherBlockQuantized",
            block(),
            vec![codes(), Some(tensor([3], &[2_i64, 1, -3])), scales()],
            vec![tensor(
                [3, 16],
                &[row(&[], 0.0), row(&[14.0, -16.0], 0.0), row(&[], 0.0)].concat(),
            )],
        ),
        // Floats, which have one block in each row, and one scale for all rows.
        (
            "GatherBlockQuantized",
            vec![int("block_size", 0)],
            vec![
                Some(codes_of(Float8E4M3Fn, [2, 3], &[0x38, 0x40, 0xc8, 0x30, 0x3c, 0x50])),
                Some(tensor([1], &[1_i64])),
                Some(tensor([1, 1], &[2.0_f32])),
            ],
            vec![tensor([1, 3], &[1.0_f32, 3.0, 16.0])],
        ),
    ]);
}

#[test]
fn heads_are_turned_by_their_positions() {
    // By no angle, and by a right one.
    let caches = || [Some(tensor([2, 1], &[1.0_f32, 0.0])), Some(tensor([2, 1], &[0.0_f32, 1.0]))];
    let turned = |dims: [i64; 3], x: &[f32], positions: Value| {
        let first = [Some(tensor(dims, x)), Some(positions)];
        first.into_iter().chain(caches()).collect::<Vec<_>>()
    };
    let x = [1.0, 2.0, 3.0, 4.0];
    check(vec![
        (
            "RotaryEmbedding",
            vec![],
            turned([1, 2, 2], &x, tensor([1], &[0_i64])),
            vec![tensor([1, 2, 2], &[1.0_f32, 2.0, -4.0, 3.0])],
        ),
        (
            "RotaryEmbedding",
            vec![],
            turned([1, 2, 2], &x, tensor([1, 2], &[1_i64, 0])),
            vec![tensor([1, 2, 2], &[-2.0_f32, 1.0, 3.0, 4.0])],
        ),
        (
            "RotaryEmbedding",
            vec![int("num_heads", 1), int("rotary_embedding_dim", 2)],
            turned([1, 1, 4], &x, tensor([1, 1], &[1_i64])),
            vec![tensor([1, 1, 4], &[-2.0_f32, 1.0, 3.0, 4.0])],
        ),
    ]);
}

/// The attributes of an attention with so many heads on one.
fn heads(heads: i64) -> Vec<AttributeProto> {
    vec![int("num_heads", heads), int("kv_num_heads", 1)]
}

/// Queries of 0, which attend to all keys alike, with these values, after `past` ones; and how many
/// keys there are.
fn attended(of_heads: usize, values: &[f32], past: &[f32]) -> Vec<Option<Value>> {
    let new = i64::try_from(values.len()).unwrap();
    let old = i64::try_from(past.len()).unwrap();
    let total = i32::try_from(new + old).unwrap();
    let hidden = i64::try_from(of_heads).unwrap();
    let query = tensor([1, new, hidden], &vec![0.0_f32; of_heads * values.len()]);
    let cache = || (!past.is_empty()).then(|| tensor([1, 1, old, 1], past));
    let keys = tensor([1, new, 1], values);
    let lengths = [Some(tensor([1], &[total - 1])), Some(tensor([1], &[total]))];
    [Some(query), Some(keys.clone()), Some(keys), cache(), cache()]
        .into_iter()
        .chain(lengths)
        .collect()
}

#[test]
fn heads_share_keys_and_values() {
    let with = |more: Vec<AttributeProto>| [heads(1), more].concat();
    let values = |y: &[f32]| tensor([1, i64::try_from(y.len()).unwrap(), 1], y);
    let cache = |y: &[f32]| tensor([1, 1, i64::try_from(y.len()).unwrap(), 1], y);
    let prompt = || attended(1, &[2.0, 4.0], &[]);
    let sinks = || {
        let more = [None, None, None, None, Some(tensor([1], &[0.0_f32]))];
        prompt().into_iter().chain(more).collect::<Vec<_>>()
    };
    let op = "GroupQueryAttention";
    check(vec![
        (op, heads(1), prompt(), vec![values(&[2.0, 3.0]), cache(&[2.0, 4.0]), cache(&[2.0, 4.0])]),
        (op, with(vec![int("causal", 0)]), prompt(), vec![values(&[3.0, 3.0])]),
        (op, with(vec![int("local_window_size", 1)]), prompt(), vec![values(&[2.0, 4.0])]),
        (op, with(vec![int("smooth_softmax", 1)]), prompt(), vec![values(&[1.0, 2.0])]),
        (op, heads(1), sinks(), vec![values(&[1.0, 2.0])]),
        (
            op,
            heads(2),
            attended(2, &[2.0], &[6.0]),
            vec![tensor([1, 1, 2], &[4.0_f32, 4.0]), cache(&[6.0, 2.0]), cache(&[6.0, 2.0])],
        ),
    ]);
}

/// Caches that are left out are not made, and what is behind the keys of a sequence is 0.
#[test]
fn caches_are_as_long_as_they_must_be_and_may_be_left_out() {
    let numbers = |dims: [i64; 3], from: f32| {
        let len = usize::try_from(dims.iter().product::<i64>()).unwrap();
        let elements: Vec<_> = (0..7_u8).cycle().take(len).map(|x| f32::from(x) - from).collect();
        Some(tensor(dims, &elements))
    };
    let cache = |from: f32| {
        let elements: Vec<_> = (0..48_u8).map(|x| f32::from(x) - from).collect();
        Some(tensor([2, 2, 6, 2], &elements))
    };
    let inputs = [
        numbers([2, 1, 8], 3.0),
        numbers([2, 1, 4], 2.0),
        numbers([2, 1, 4], 1.0),
        cache(20.0),
        cache(10.0),
        Some(tensor([2], &[3, 1])),
        Some(tensor([1], &[4])),
    ];
    let attributes = vec![int("num_heads", 4), int("kv_num_heads", 2)];
    let of = |count| run(Profile::Strict, "GroupQueryAttention", &attributes, &inputs, count);
    let (alone, all) = (of(1).unwrap(), of(3).unwrap());
    assert_eq!(alone[0], all[0]);
    let keys = all[1].tensor().unwrap().as_slice::<f32>().unwrap();
    // Three old keys, the new one, and nothing; then one old key.
    assert_eq!(
        keys[..12],
        [-20.0, -19.0, -18.0, -17.0, -16.0, -15.0, -2.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    );
    assert_eq!(keys[24..36], [4.0, 5.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

/// The first position of prompts counts for all of their places, in every sequence; later steps
/// have positions of their own.
#[test]
fn prompts_go_on_from_their_first_position() {
    // The cosine of a position is its number, and the sine is 0: a key of 1 becomes its position.
    let attend = |new: i64, past: i64, positions: &[i64]| {
        let rows = |elements: f32| {
            let len = usize::try_from(4 * new).unwrap();
            Some(tensor([2, new, 2], &vec![elements; len]))
        };
        let old = || {
            let len = usize::try_from(4 * past).unwrap();
            (past > 0).then(|| tensor([2, 1, past, 2], &vec![0.0_f32; len]))
        };
        let total = i32::try_from(new + past).unwrap();
        let inputs = [
            rows(0.0),
            rows(1.0),
            rows(0.0),
            old(),
            old(),
            Some(tensor([2], &[total - 1; 2])),
            Some(tensor([1], &[total])),
            Some(tensor([6, 1], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0_f32])),
            Some(tensor([6, 1], &[0.0_f32; 6])),
            Some(tensor([2, new], positions)),
        ];
        let attributes = [heads(1), vec![int("do_rotary", 1)]].concat();
        let keys = run(Profile::Strict, "GroupQueryAttention", &attributes, &inputs, 2)?.remove(1);
        let keys = keys.tensor().unwrap().as_slice::<f32>().unwrap().to_vec();
        let past = usize::try_from(past).unwrap();
        let sequences = keys.chunks(keys.len() / 2);
        let rows = sequences.flat_map(|rows| rows.iter().step_by(2).skip(past));
        Ok::<_, onnx_container_machine::Error>(rows.copied().collect::<Vec<_>>())
    };
    let cases: [(i64, i64, &[i64], &[f32]); 6] = [
        (2, 0, &[0, 1, 0, 1], &[0.0, 1.0, 0.0, 1.0]),
        (2, 0, &[3, 4, 0, 1], &[3.0, 4.0, 3.0, 4.0]),
        (3, 0, &[1, 1, 0, 0, 1, 2], &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]),
        (2, 0, &[0, -1, -1, -1], &[0.0, 1.0, 0.0, 1.0]),
        (1, 1, &[5, 2], &[5.0, 2.0]),
        (1, 0, &[4, 2], &[4.0, 4.0]),
    ];
    for (new, past, positions, expected) in cases {
        assert_eq!(attend(new, past, positions).unwrap(), expected, "{new} {past} {positions:?}");
    }
    for (new, past, positions) in
        [(2, 0, &[-1, 0, 0, 1][..]), (2, 0, &[5, 0, 0, 0]), (1, 1, &[0, -1])]
    {
        let error = attend(new, past, positions).unwrap_err();
        assert!(error.to_string().contains("in caches of 6 positions"), "{error}");
    }
}

#[test]
fn quantized_numbers_are_computed_and_quantized_again() {
    let scale = |x: f32| Some(tensor([], &[x]));
    let zero = |x: u8| Some(tensor([], &[x]));
    let codes = |x: &[u8]| Some(tensor([i64::try_from(x.len()).unwrap()], x));
    let y = |x: &[u8]| vec![tensor([i64::try_from(x.len()).unwrap()], x)];
    // 0.5, 1 and -1 by half steps from 100, and 2 by whole ones.
    let x = || [codes(&[101, 102, 98]), scale(0.5), zero(100)];
    let two = || [codes(&[2]), scale(1.0), zero(0)];
    let to = || [scale(0.25), zero(10)];
    let join = |parts: &[&[Option<Value>]]| parts.concat();
    let image = |x: &[u8]| Some(tensor([1, 1, 2, 2], x));
    let window =
        || ["kernel_shape", "strides"].map(|name| AttributeProto::ints(name, [2])).to_vec();
    let line = || Some(tensor([1, 1, 3], &[10_u8, 20, 30]));
    let three = || vec![line(), scale(1.0), zero(0), scale(1.0), zero(0)];
    let y3 = |x: &[u8]| vec![tensor([1, 1, 2], x)];
    check(vec![
        ("QLinearAdd", vec![], join(&[&x(), &two(), &to()]), y(&[20, 22, 14])),
        ("QLinearMul", vec![], join(&[&x(), &two(), &to()]), y(&[14, 18, 2])),
        ("QLinearSigmoid", vec![], join(&[&two(), &[scale(1.0 / 256.0), zero(0)]]), y(&[225])),
        ("QLinearLeakyRelu", vec![float("alpha", 0.5)], join(&[&x(), &to()]), y(&[12, 14, 8])),
        (
            "QLinearSoftmax",
            vec![int("opset", 13)],
            vec![codes(&[7, 7]), scale(1.0), zero(0), scale(1.0 / 256.0), zero(0)],
            y(&[128, 128]),
        ),
        (
            "QLinearWhere",
            vec![],
            join(&[&[Some(tensor([3], &[true, false, true]))], &x(), &two(), &to()]),
            y(&[12, 18, 6]),
        ),
        ("QLinearConcat", vec![int("axis", 0)], join(&[&to(), &x(), &two()]), y(&[12, 14, 6, 18])),
        (
            "QLinearGlobalAveragePool",
            vec![],
            join(&[&[image(&[1, 2, 3, 6]), scale(1.0), zero(0)], &to()]),
            vec![tensor([1, 1, 1, 1], &[22_u8])],
        ),
        (
            "QLinearAveragePool",
            vec![AttributeProto::ints("kernel_shape", [2, 1])],
            join(&[&[image(&[1, 2, 3, 6]), scale(1.0), zero(0)], &to()]),
            vec![tensor([1, 1, 1, 2], &[18_u8, 26])],
        ),
        // The second window has 1 of 2 taps in the input, and 0 counts as none or as one.
        (
            "QLinearAveragePool",
            [window(), vec![int("ceil_mode", 1)]].concat(),
            three(),
            y3(&[15, 30]),
        ),
        (
            "QLinearAveragePool",
            [window(), vec![int("ceil_mode", 1), int("count_include_pad", 1)]].concat(),
            three(),
            y3(&[15, 15]),
        ),
        // 101 - 100 is 1, by 3 and by 5, plus 1.
        (
            "QGemm",
            vec![],
            vec![
                Some(tensor([1, 1], &[101_u8])),
                scale(0.5),
                zero(100),
                Some(tensor([1, 2], &[3_u8, 5])),
                scale(1.0),
                zero(0),
                Some(tensor([1], &[1_i32])),
            ],
            vec![tensor([1, 2], &[2.0_f32, 3.0])],
        ),
    ]);
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    let codes = || Some(tensor([1, 1, 8], &[0_u8; 8]));
    let row = || Some(tensor([1, 16], &[0.0_f32; 16]));
    let one = || Some(tensor([1], &[1.0_f32]));
    let product = || vec![row(), codes(), one()];
    let grouped = |zeros: Option<Value>| {
        let groups = Some(tensor([16], &[0_i32; 16]));
        [product(), vec![zeros, groups]].concat()
    };
    let prompt = || attended(1, &[2.0, 4.0], &[]);
    let behind = |i: usize, value: Value| {
        let mut inputs = prompt();
        inputs.resize(i, None);
        inputs.push(Some(value));
        inputs
    };
    let attention = |name: &str, value: i64| [heads(1), vec![int(name, value)]].concat();
    let rotary = || {
        let x = [Some(tensor([1, 2, 2], &[0.0_f32; 4])), Some(tensor([1], &[1_i64]))];
        let cache = || Some(tensor([2, 1], &[0.0_f32; 2]));
        x.into_iter().chain([cache(), cache()]).collect::<Vec<_>>()
    };
    let prepacked = || [bits(16, 1, 4), vec![int("weight_prepacked", 1)]].concat();
    let typed = |name: &str| [heads(1), vec![AttributeProto::string(name, "PER_TENSOR")]].concat();
    let norm = floats(&[(&[1, 1], &[1.0]), (&[1], &[1.0])]);
    let gqa = "GroupQueryAttention";
    type Refused =
        (&'static str, Vec<AttributeProto>, Vec<Option<Value>>, usize, ErrorKind, &'static str);
    let (unsupported, invalid) = (ErrorKind::UnsupportedOp, ErrorKind::InvalidModel);
    let cases: Vec<Refused> = vec![
        ("MatMulNBits", bits(16, 1, 3), product(), 1, unsupported, "`bits` 3"),
        ("MatMulNBits", prepacked(), product(), 1, unsupported, "`weight_prepacked`"),
        ("MatMulNBits", bits(16, 2, 4), product(), 1, ErrorKind::Shape, "`B`"),
        (
            "MatMulNBits",
            bits(16, 1, 4),
            vec![row(), Some(tensor::<u8>([2, 0, 8], &[])), one()],
            1,
            ErrorKind::Shape,
            "`B`",
        ),
        ("MatMulNBits", bits(17, 1, 4), product(), 1, ErrorKind::Shape, "K = 17"),
        ("MatMulNBits", bits(16, 1, 8), grouped(None), 1, unsupported, "`g_idx` and `bits` 8"),
        (
            "MatMulNBits",
            bits(16, 1, 4),
            grouped(Some(tensor([1], &[0_u8]))),
            1,
            unsupported,
            "`g_idx` and packed zero points",
        ),
        (gqa, attention("kv_cache_bit_width", 8), prompt(), 1, unsupported, "`kv_cache_bit_width`"),
        (gqa, attention("qk_output", 1), prompt(), 1, unsupported, "`qk_output`"),
        (gqa, attention("local_window_size", 0), prompt(), 1, unsupported, "`local_window_size` 0"),
        (gqa, typed("k_quant_type"), prompt(), 1, unsupported, "`k_quant_type` PER_TENSOR"),
        (gqa, heads(1), prompt(), 4, unsupported, "`output_qk`"),
        (gqa, heads(1), behind(14, tensor([1], &[1.0_f32])), 1, unsupported, "`q_norm_weight`"),
        (gqa, attention("window", 1), prompt(), 1, invalid, "no attribute `window`"),
        ("RotaryEmbedding", vec![float("scale", 0.5)], rotary(), 1, unsupported, "`scale` 0.5"),
        ("RotaryEmbedding", vec![], rotary(), 1, ErrorKind::Value, "position 2 in caches of 2"),
        (
            "SimplifiedLayerNormalization",
            vec![int("stash_type", 11)],
            norm,
            1,
            unsupported,
            "`stash_type` 11",
        ),
        (
            "SimplifiedLayerNormalization",
            vec![],
            floats(&[(&[1, 2], &[1.0, 2.0]), (&[1], &[1.0])]),
            1,
            ErrorKind::Shape,
            "input 1 has 1 elements, not 2",
        ),
        (
            "QLinearConcat",
            vec![int("axis", 0)],
            vec![
                Some(tensor([], &[1.0_f32])),
                Some(tensor([], &[0_u8])),
                Some(tensor([1], &[0_u8])),
            ],
            1,
            invalid,
            "3 inputs",
        ),
    ];
    for (op, attributes, inputs, count, kind, says) in cases {
        let error = run(Profile::Strict, op, &attributes, &inputs, count).unwrap_err();
        assert_eq!(error.kind(), kind, "{op}: {error}");
        assert!(error.to_string().contains(says), "{op}: {error}, not {says}");
    }
}

#[test]
fn a_bias_has_the_length_of_a_row() {
    for op in ["BiasGelu", "FastGelu"] {
        for bias in [&[2_i64][..], &[1, 3]] {
            let len = usize::try_from(bias.iter().product::<i64>()).unwrap();
            let inputs = [
                Some(tensor([1, 3], &[0.0_f32; 3])),
                Some(tensor(bias.to_vec(), &vec![0.0_f32; len])),
            ];
            let error = run(Profile::Strict, op, &[], &inputs, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Shape, "{op}: {error}");
        }
    }
    let inputs = floats(&[(&[1, 2], &[1.0, 3.0]), (&[2], &[1.0, 1.0]), ABSENT, ABSENT]);
    let error = run(Profile::Strict, "SkipLayerNormalization", &[], &inputs, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
}
