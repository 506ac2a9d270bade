//! `Container::stats` against a plain reading of the elements, for every type and way to store
//! them.

use half::{bf16, f16};
use num_complex::Complex;
use onnx_container::proto::{GraphProto, ModelProto, Packed, TensorProto};
use onnx_container::stats::{Number, TensorStats};
use onnx_container::{Buffer, Container, DataType, ErrorKind, Initializer, Tensor, WeightSource};
use proptest::prelude::*;

/// A container with one weight.
fn holding(tensor: &Tensor) -> Container {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(tensor.to_proto("w"));
    Container::new(ModelProto::new(graph))
}

fn stats(tensor: &Tensor) -> TensorStats {
    holding(tensor).stats(|_| true).unwrap().remove(0)
}

/// The elements as they are read one by one.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    fn all<T: onnx_container::Element>(tensor: &Tensor, wide: impl Fn(T) -> f64) -> Vec<f64> {
        tensor.to_slice::<T>().unwrap().iter().map(|x| wide(*x)).collect()
    }
    match tensor.dtype() {
        DataType::Double => all(tensor, |x: f64| x),
        DataType::Bool => tensor.as_bytes().unwrap().iter().map(|x| f64::from(*x)).collect(),
        DataType::Uint8 => all(tensor, |x: u8| x.into()),
        DataType::Int8 => all(tensor, |x: i8| x.into()),
        DataType::Uint16 => all(tensor, |x: u16| x.into()),
        DataType::Int16 => all(tensor, |x: i16| x.into()),
        DataType::Uint32 => all(tensor, |x: u32| x.into()),
        DataType::Int32 => all(tensor, |x: i32| x.into()),
        DataType::Uint64 => all(tensor, |x: u64| x as f64),
        DataType::Int64 => all(tensor, |x: i64| x as f64),
        DataType::Complex64 => {
            let parts = |x: &Complex<f32>| [x.re.into(), x.im.into()];
            tensor.to_slice::<Complex<f32>>().unwrap().iter().flat_map(parts).collect()
        }
        DataType::Complex128 => {
            let parts = |x: &Complex<f64>| [x.re, x.im];
            tensor.to_slice::<Complex<f64>>().unwrap().iter().flat_map(parts).collect()
        }
        DataType::Uint4 | DataType::Uint2 => {
            tensor.unpack().unwrap().into_iter().map(f64::from).collect()
        }
        DataType::Int4 | DataType::Int2 => {
            tensor.unpack_signed().unwrap().into_iter().map(f64::from).collect()
        }
        _ => tensor.to_f32().unwrap().iter().map(|x| f64::from(*x)).collect(),
    }
}

/// Holds what was found to the elements.
fn check(found: &TensorStats, numbers: &[f64]) {
    let what = format!("{found:?}");
    let finite: Vec<_> = numbers.iter().copied().filter(|x| x.is_finite()).collect();
    let count = |is: fn(&f64) -> bool| numbers.iter().filter(|x| is(x)).count() as u64;
    assert_eq!(found.nan, count(|x| x.is_nan()), "{what}");
    assert_eq!(found.infinite, count(|x| x.is_infinite()), "{what}");
    assert_eq!(found.zeros, count(|x| *x == 0.0), "{what}");
    let equal = !numbers.is_empty() && numbers.iter().all(|x| *x == numbers[0]);
    assert_eq!(found.all_equal, equal, "{what}");
    let least = finite.iter().copied().reduce(f64::min);
    let most = finite.iter().copied().reduce(f64::max);
    assert_eq!(found.min.map(Number::to_f64), least, "{what}");
    assert_eq!(found.max.map(Number::to_f64), most, "{what}");
    assert_eq!(found.mean.is_none(), finite.is_empty(), "{what}");
    let Some(((mean, std), (least, most))) = found.mean.zip(found.std).zip(least.zip(most)) else {
        assert!(found.histogram.is_none(), "{what}");
        return;
    };
    let sizes = least.abs().max(most.abs());
    if sizes > 1e150 {
        return; // squares are infinite, here and there
    }
    let expected = finite.iter().sum::<f64>() / finite.len() as f64;
    // Many floats of 16 bits are added up in short floats.
    let is_half = matches!(found.dtype, DataType::Float16 | DataType::Bfloat16);
    let is_short = found.elements > 1 << 20 && is_half;
    let exact = if is_short { 1e-6 } else { 1e-9 };
    let of_deviation = if is_short { 1e-6 * std } else { 0.0 };
    let allowed = of_deviation + 1e-12 * sizes;
    assert!((mean - expected).abs() <= allowed, "{mean} {expected}: {what}");
    let squares = finite.iter().map(|x| (x - expected) * (x - expected)).sum::<f64>();
    let expected = (squares / finite.len() as f64).sqrt();
    assert!((std - expected).abs() <= exact * expected + 1e-12 * sizes, "{std} {expected}: {what}");
    let histogram = found.histogram.as_ref().unwrap();
    let edge = |number: usize| histogram.start + number as f64 * histogram.width;
    assert!(histogram.counts.len() <= 64, "{what}");
    if found.elements > 1 << 20 {
        let counted = histogram.counts.iter().sum::<u64>();
        let is_whole = matches!(found.dtype, DataType::Bool | DataType::Float8E4M3Fn);
        if is_whole {
            assert_eq!(counted, finite.len() as u64, "{what}");
            return;
        }
        assert!((counted * 16).abs_diff(finite.len() as u64) < 1 << 17, "{what}");
        return;
    }
    assert_eq!(histogram.counts.iter().sum::<u64>(), finite.len() as u64, "{what}");
    for (number, count) in histogram.counts.iter().enumerate() {
        let bin = edge(number)..edge(number + 1);
        let expected = finite.iter().filter(|x| bin.contains(*x)).count() as u64;
        assert_eq!(*count, expected, "bin {number} {bin:?} of {what}");
    }
}

#[test]
fn every_type_is_read_as_its_elements_are() {
    for dtype in DataType::ALL.iter().filter(|dtype| dtype.bit_width().is_some()) {
        for count in [0_i64, 1, 2, 3, 5, 64, 1001, 9000] {
            let len = usize::try_from(dtype.byte_len(&[count]).unwrap()).unwrap();
            let byte = |n: usize| match dtype {
                DataType::Bool => u8::from(n.is_multiple_of(3)),
                // Every code, in an order that is not theirs.
                _ => ((n * 167 + n / 256 * 13) % 256) as u8,
            };
            let bytes: Vec<_> = (0..len).map(byte).collect();
            let tensor = Tensor::new(*dtype, [count], bytes.into()).unwrap();
            let found = stats(&tensor);
            assert_eq!((found.dtype, found.elements), (*dtype, count as u64));
            check(&found, &numbers(&tensor));
        }
    }
}

#[test]
fn many_elements_of_every_type_are_read_as_they_are() {
    // More than one piece of 16 bits, and an odd number.
    let count = 1_600_001_i64;
    for dtype in [
        DataType::Int8,
        DataType::Uint8,
        DataType::Int4,
        DataType::Uint4,
        DataType::Int16,
        DataType::Uint16,
        DataType::Float16,
        DataType::Bfloat16,
        DataType::Float8E4M3Fn,
        DataType::Bool,
    ] {
        let len = usize::try_from(dtype.byte_len(&[count]).unwrap()).unwrap();
        let mixed = |n: usize| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8;
        let any = |n: usize| if dtype == DataType::Bool { mixed(n) % 2 } else { mixed(n) };
        // The smallest and the largest element are where no block is counted in bins.
        let near = |n: usize| match n {
            _ if dtype == DataType::Bool => u8::from(n == 100_000),
            100_000 | 100_001 => 0x7b,
            200_000 | 200_001 => 0xfb,
            _ => mixed(n) & if n.is_multiple_of(2) { 0xff } else { 0x33 },
        };
        let equal = |_: usize| 1_u8;
        let kinds: [&dyn Fn(usize) -> u8; 3] = [&any, &near, &equal];
        for byte in kinds {
            let bytes: Vec<_> = (0..len).map(byte).collect();
            let tensor = Tensor::new(dtype, [count], bytes.into()).unwrap();
            check(&stats(&tensor), &numbers(&tensor));
        }
    }
}

#[test]
fn many_short_floats_of_all_sizes_are_described() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for values in [
        vec![0.0, -0.0],
        vec![1e-30, 3e-30, -1e-30],
        vec![1e30, -1e30],
        vec![1000.0, 1001.0],
        vec![nan],
        vec![inf, 1.0, 2.0, nan, -inf, 0.0],
    ] {
        let values = values.iter().copied().cycle().take(2_000_001);
        let brain = Tensor::from(values.clone().map(bf16::from_f32).collect::<Vec<_>>());
        check(&stats(&brain), &numbers(&brain));
        let half = Tensor::from(values.map(f16::from_f32).collect::<Vec<_>>());
        check(&stats(&half), &numbers(&half));
    }
}

#[test]
fn integers_are_exact_at_any_size() {
    let long = [i64::MIN, -1, i64::MAX - 1];
    let found = stats(&Tensor::from(long.to_vec()));
    assert_eq!(found.min.zip(found.max), Some((Number::Signed(long[0]), Number::Signed(long[2]))));
    let found = stats(&Tensor::from(vec![u64::MAX, u64::MAX]));
    assert_eq!((found.min, found.all_equal), (Some(Number::Unsigned(u64::MAX)), true));
    let found = stats(&Tensor::from(vec![i64::MAX, i64::MAX - 1]));
    assert!(!found.all_equal);
}

#[test]
fn a_large_mean_does_not_hide_a_small_deviation() {
    let values: Vec<f32> = (0..3_000_000).map(|n| 1000.0 + (n % 2) as f32 / 1024.0).collect();
    let found = stats(&Tensor::from(values));
    assert!((found.std.unwrap() - 0.5 / 1024.0).abs() < 1e-12, "{found:?}");
    assert_eq!(found.mean, Some(1000.0 + 0.5 / 1024.0));
}

#[test]
fn elements_of_all_sizes_and_no_numbers_are_told_apart() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for values in [
        vec![nan; 5],
        vec![inf; 5],
        vec![inf, -inf],
        vec![0.0, -0.0],
        vec![inf, 1.0, nan, -inf, 1.0],
        vec![f32::MAX, f32::MIN, 1e-3],
        vec![f32::MIN_POSITIVE, 1e-45, -1e-45, 0.0],
    ] {
        let tensor = Tensor::from(values.clone());
        check(&stats(&tensor), &numbers(&tensor));
        let long: Vec<_> = values.iter().copied().cycle().take(20_000).collect();
        let tensor = Tensor::from(long);
        check(&stats(&tensor), &numbers(&tensor));
    }
    let huge = stats(&Tensor::from(vec![f64::MAX, f64::MIN]));
    assert_eq!(huge.max, Some(Number::Float(f64::MAX)));
    assert_eq!(huge.std, Some(f64::INFINITY));
}

/// Bytes that are read in parts.
struct Parts(Vec<u8>, [i64; 1]);

impl WeightSource for Parts {
    fn dtype(&self) -> DataType {
        DataType::Float
    }

    fn dims(&self) -> &[i64] {
        &self.1
    }

    fn byte_len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> onnx_container::Result<()> {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.0[start..start + out.len()]);
        Ok(())
    }
}

#[test]
fn the_place_of_the_elements_does_not_matter() {
    // More than one piece.
    let values: Vec<f32> = (0..2_000_000).map(|n| (n as f32 * 0.7).sin()).collect();
    let tensor = Tensor::from(values.clone());
    let expected = stats(&tensor);
    check(&expected, &numbers(&tensor));
    let dims = [2_000_000];
    let bytes: Vec<u8> = tensor.as_bytes().unwrap().to_vec();
    let odd = Buffer::from([&[0], &bytes[..]].concat()).slice(1..).unwrap();
    let lazy = {
        let tensor = tensor.clone();
        Initializer::lazy(DataType::Float, dims, move || Ok(tensor.buffer().unwrap().clone()))
    };
    let sources: [Initializer; 4] = [
        tensor.clone().into(),
        Initializer::from_source(Parts(bytes, dims)).unwrap(),
        Tensor::new(DataType::Float, dims, odd).unwrap().into(),
        lazy.unwrap(),
    ];
    for source in sources {
        let mut graph = GraphProto::new("g");
        for name in ["w", "tied"] {
            graph.initializer.push(TensorProto::external(name, DataType::Float, dims, "#w"));
        }
        let mut container = Container::new(ModelProto::new(graph));
        container.insert("#w", source).unwrap();
        let found = container.stats(|_| true).unwrap();
        assert_eq!(found[0], expected);
        assert_eq!(found[1].mean, expected.mean);
        assert_eq!(container.stats(|tensor| tensor.name() == "tied").unwrap().len(), 1);
    }
    let mut graph = GraphProto::new("g");
    let mut typed = TensorProto::new("w", DataType::Float, dims);
    typed.float_data = Packed::from(values).into();
    graph.initializer.push(typed);
    let found = Container::new(ModelProto::new(graph)).stats(|_| true).unwrap();
    assert_eq!(found, [expected]);
}

#[test]
fn strings_are_counted_and_what_cannot_be_read_is_named() {
    let text = |text: &str| Buffer::from(text.as_bytes());
    let strings = Tensor::from_strings([3], vec![text("a"), text(""), text("a")]).unwrap();
    let found = stats(&strings);
    assert_eq!((found.elements, found.zeros, found.all_equal, found.mean), (3, 1, false, None));
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("gone", DataType::Float, [2], "#gone"));
    graph.initializer.push(TensorProto::new("short", DataType::Float, [2]).with_raw_data(vec![0]));
    let error = Container::new(ModelProto::new(graph)).stats(|_| true).unwrap_err();
    assert_eq!(error.each().count(), 2);
    assert!(error.has(ErrorKind::MissingHandle), "{error}");
}

proptest! {
    #[test]
    fn floats_are_described(values in prop::collection::vec(prop_oneof![
        8 => -1.0_f32..1.0,
        1 => any::<f32>().prop_map(|x| x.clamp(-1e20, 1e20)).prop_map(|x| if x.abs() < 1e-10 { 0.0 } else { x }),
        1 => Just(f32::NAN),
    ], 0..200)) {
        let tensor = Tensor::from(values.clone());
        check(&stats(&tensor), &numbers(&tensor));
        let wide = Tensor::from(values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        check(&stats(&wide), &numbers(&wide));
        let half = Tensor::from(values.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>());
        check(&stats(&half), &numbers(&half));
        let brain = Tensor::from(values.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
        check(&stats(&brain), &numbers(&brain));
    }
}
