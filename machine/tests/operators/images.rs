//! Operators over images and signals: versions, types, groups and wrong input that ONNX's node
//! tests do not show.

use half::f16;
use onnx_container::proto::AttributeProto;
use onnx_container_machine::ErrorKind;

use crate::support::{output, outputs, tensor};

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto::ints(name, values)
}

/// Numbers whose sums depend on their order.
fn numbers(count: usize, seed: u16) -> Vec<f32> {
    let number = |i: usize| u16::try_from((i * 7919 + usize::from(seed)) % 1013).unwrap();
    (0..count).map(|i| f32::from(number(i)) / 333.0 - 1.4).collect()
}

/// A convolution of `groups` groups of channels of a 9 x 11 image by 3 x 2 taps, by the definition.
fn conv_by_definition(
    x: &[f32],
    w: &[f32],
    [groups, inputs, outputs, stride, dilation, pad]: [usize; 6],
) -> (usize, usize, Vec<f32>) {
    let len = |dim: usize, taps: usize| (dim + 2 * pad - (taps - 1) * dilation - 1) / stride + 1;
    let (height, width) = (len(9, 3), len(11, 2));
    let mut y = Vec::new();
    for (channel, i, j) in (0..groups * outputs)
        .flat_map(|c| (0..height).flat_map(move |i| (0..width).map(move |j| (c, i, j))))
    {
        let mut sum = 0.0;
        for (c, s, t) in (0..inputs * 6).map(|k| (k / 6, k / 2 % 3, k % 2)) {
            let (row, column) = (i * stride + s * dilation, j * stride + t * dilation);
            let inside = (pad..9 + pad).contains(&row) && (pad..11 + pad).contains(&column);
            let at = (channel / outputs * inputs + c) * 99;
            let x = if inside { x[at + (row - pad) * 11 + column - pad] } else { 0.0 };
            sum += w[(channel * inputs + c) * 6 + s * 2 + t] * x;
        }
        y.push(sum);
    }
    (height, width, y)
}

#[test]
fn a_convolution_has_the_bits_of_the_definition() {
    let cases = [
        [1, 1, 1, 1, 1, 0],
        [1, 5, 20, 1, 1, 1],
        [1, 50, 3, 2, 1, 1],
        [6, 1, 1, 1, 1, 1],
        [6, 1, 2, 2, 2, 2],
        [3, 1, 9, 1, 2, 1],
        [2, 4, 7, 3, 1, 2],
    ];
    for case @ [groups, inputs, outputs, stride, dilation, pad] in cases {
        let (x, w) = (numbers(groups * inputs * 99, 1), numbers(groups * outputs * inputs * 6, 2));
        let (height, width, expected) = conv_by_definition(&x, &w, case);
        let int = |n: usize| i64::try_from(n).unwrap();
        let attributes = vec![
            AttributeProto::int("group", int(groups)),
            ints("strides", &[int(stride); 2]),
            ints("dilations", &[int(dilation); 2]),
            ints("pads", &[int(pad); 4]),
        ];
        let (channels, filters) = (int(groups * inputs), int(groups * outputs));
        let inputs = [tensor([1, channels, 9, 11], &x), tensor([filters, int(inputs), 3, 2], &w)];
        let y = output(("Conv", 22), &attributes, &inputs).unwrap();
        assert_eq!(y, tensor([1, filters, int(height), int(width)], &expected), "{case:?}");
    }
}

#[test]
fn halves_are_summed_as_floats_and_rounded_once() {
    let (x, w) = ([2048.0, 1.0, 1.0, 1.0].map(f16::from_f32), [1.0; 4].map(f16::from_f32));
    let inputs = [tensor([1, 1, 4], &x), tensor([1, 1, 4], &w)];
    // 2048 + 1 is 2048 in FLOAT16, so that sums of halves would stay at 2048.
    let expected = tensor([1, 1, 1], &[f16::from_f32(2051.0)]);
    assert_eq!(output(("Conv", 22), &[], &inputs).unwrap(), expected);
}

#[test]
fn early_versions_have_their_attributes() {
    let image = tensor([1, 1, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
    let nearest = AttributeProto::string("mode", "nearest");
    let twice = [1.0_f32, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
    let scales = AttributeProto::floats("scales", [1.0, 1.0, 1.0, 2.0]);
    let y = output(("Upsample", 7), &[nearest.clone(), scales], std::slice::from_ref(&image));
    assert_eq!(y.unwrap(), tensor([1, 1, 2, 4], &twice));
    let scales = vec![
        nearest,
        AttributeProto::float("height_scale", 1.0),
        AttributeProto::float("width_scale", 2.0),
    ];
    let y = output(("Upsample", 1), &scales, std::slice::from_ref(&image));
    assert_eq!(y.unwrap(), tensor([1, 1, 2, 4], &twice));
    for (version, name) in [(1, "paddings"), (2, "pads")] {
        let pads =
            vec![ints(name, &[0, 0, 0, 1, 0, 0, 0, -1]), AttributeProto::float("value", 9.0)];
        let y = output(("Pad", version), &pads, std::slice::from_ref(&image)).unwrap();
        assert_eq!(y, tensor([1, 1, 2, 2], &[9.0_f32, 1.0, 9.0, 3.0]));
    }
}

#[test]
fn the_maximum_of_regions_is_of_rounded_edges() {
    let image: Vec<f32> = (0_u8..16).map(f32::from).collect();
    let rois = tensor([2, 5], &[0.0_f32, 0.0, 0.0, 3.0, 3.0, 0.0, 2.4, 1.6, 3.0, 3.0]);
    let inputs = [tensor([1, 1, 4, 4], &image), rois];
    let y = output(("MaxRoiPool", 1), &[ints("pooled_shape", &[2, 2])], &inputs).unwrap();
    let expected = [5.0_f32, 7.0, 13.0, 15.0, 10.0, 11.0, 14.0, 15.0];
    assert_eq!(y, tensor([2, 1, 2, 2], &expected));
}

#[test]
fn impossible_windows_and_scales_are_errors() {
    let image = tensor([1, 2, 3, 3], &[0.0_f32; 18]);
    let weights =
        |dims: [i64; 4]| tensor(dims, &vec![0.0_f32; dims.iter().product::<i64>() as usize]);
    let huge = i64::MAX;
    let cases = [
        ("Conv", vec![], Some(weights([1, 3, 1, 1])), ErrorKind::Shape),
        (
            "Conv",
            vec![AttributeProto::int("group", 0)],
            Some(weights([1, 2, 1, 1])),
            ErrorKind::Shape,
        ),
        ("Conv", vec![], Some(weights([1, 2, 4, 1])), ErrorKind::Shape),
        ("Conv", vec![ints("strides", &[0, 1])], Some(weights([1, 2, 1, 1])), ErrorKind::Value),
        ("Conv", vec![ints("pads", &[huge; 4])], Some(weights([1, 2, 1, 1])), ErrorKind::Shape),
        (
            "Conv",
            vec![ints("dilations", &[huge; 2])],
            Some(weights([1, 2, 2, 2])),
            ErrorKind::Shape,
        ),
        ("MaxPool", vec![], None, ErrorKind::InvalidModel),
        ("MaxPool", vec![ints("kernel_shape", &[5, 1])], None, ErrorKind::Shape),
        ("AveragePool", vec![ints("kernel_shape", &[huge; 2])], None, ErrorKind::Shape),
        ("DepthToSpace", vec![AttributeProto::int("blocksize", 0)], None, ErrorKind::Shape),
        ("DepthToSpace", vec![AttributeProto::int("blocksize", 2)], None, ErrorKind::Shape),
        ("ConvTranspose", vec![], Some(weights([3, 1, 1, 1])), ErrorKind::Shape),
        ("GridSample", vec![], Some(weights([1, 2, 2, 3])), ErrorKind::Shape),
    ];
    for (op, attributes, second, kind) in cases {
        let inputs: Vec<_> = std::iter::once(image.clone()).chain(second).collect();
        let error = output((op, 20), &attributes, &inputs).unwrap_err();
        assert_eq!(error.kind(), kind, "{op} {attributes:?}: {error}");
    }
}

/// `floor((6 - 7) / 2) + 1` is 0 outputs, and with `ceil_mode` one. Windows that are longer still
/// have none.
#[test]
fn a_pooling_of_a_window_that_is_a_little_too_long_is_empty() {
    let x = tensor([1, 1, 4], &[1.0_f32, 2.0, 3.0, 4.0]);
    for op in ["MaxPool", "AveragePool", "LpPool"] {
        let attributes =
            [ints("kernel_shape", &[3]), ints("dilations", &[2]), ints("strides", &[2])];
        let found = output((op, 22), &attributes, std::slice::from_ref(&x)).unwrap();
        assert_eq!(found.tensor().unwrap().shape(), [1, 1, 0], "{op}");
        let longer = [ints("kernel_shape", &[4]), ints("dilations", &[2]), ints("strides", &[2])];
        let error = output((op, 22), &longer, std::slice::from_ref(&x)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape, "{op}");
    }
    let w = tensor([1, 1, 3], &[1.0_f32; 3]);
    let attributes = [ints("dilations", &[2]), ints("strides", &[2])];
    assert_eq!(output(("Conv", 22), &attributes, &[x, w]).unwrap_err().kind(), ErrorKind::Shape);
}

/// The text of VALID has one number of outputs for both: `ceil((7 - 3 + 1) / 3)` and `floor((7 - 3)
/// / 3) + 1`.
#[test]
fn windows_without_padding_are_the_same_with_ceil_mode() {
    let x = tensor([1, 1, 7], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    for op in ["MaxPool", "AveragePool", "LpPool"] {
        for ceil in [0, 1] {
            let attributes = [
                ints("kernel_shape", &[2]),
                ints("dilations", &[2]),
                ints("strides", &[3]),
                AttributeProto::string("auto_pad", "VALID"),
                AttributeProto::int("ceil_mode", ceil),
            ];
            let found = output((op, 22), &attributes, std::slice::from_ref(&x)).unwrap();
            assert_eq!(found.tensor().unwrap().shape(), [1, 1, 2], "{op}, ceil_mode {ceil}");
        }
    }
}

#[test]
fn windows_of_signals_are_those_of_their_texts() {
    let of = |op: &str, len: i64, attributes: &[AttributeProto]| {
        output((op, 17), attributes, &[tensor([], &[len])]).unwrap()
    };
    for op in ["HannWindow", "HammingWindow", "BlackmanWindow"] {
        let found = of(op, 1, &[AttributeProto::int("periodic", 0)]);
        let bits = found.tensor().unwrap().to_slice::<f32>().unwrap()[0].to_bits();
        assert_eq!(bits, 0x7fc0_0000, "{op}: 0 / 0");
    }
    let integers = [AttributeProto::int("output_datatype", 6)];
    assert_eq!(of("BlackmanWindow", 4, &integers), tensor([4], &[0, 0, 1, 0]));
}

/// From x to FLOAT(x + 3): the difference is 3 as FLOAT, and more as DOUBLE.
#[test]
fn the_samples_of_a_region_are_counted_in_the_type_of_the_region() {
    let start = 1.0 + 3.0 * f32::EPSILON;
    let end = start + 3.0;
    assert!(end - start == 3.0 && f64::from(end) - f64::from(start) > 3.0);
    let image: Vec<f32> = (0..64_u16).map(|i| f32::from(i * 37 % 64)).collect();
    let of = |ratio: i64| {
        let attributes = [
            AttributeProto::int("sampling_ratio", ratio),
            AttributeProto::string("coordinate_transformation_mode", "output_half_pixel"),
        ];
        let inputs = [
            tensor([1, 1, 8, 8], &image),
            tensor([1, 4], &[start, start, end, end]),
            tensor([1], &[0_i64]),
        ];
        output(("RoiAlign", 16), &attributes, &inputs).unwrap()
    };
    assert_eq!(of(0), of(3));
    assert_ne!(of(0), of(4));
}

/// What the text of GRU-1 calls its default is misspelt there.
#[test]
fn the_default_direction_of_gru_1_may_be_written_out() {
    let inputs = [
        tensor([1, 1, 2], &[0.5_f32, -0.5]),
        tensor([1, 3, 2], &[0.1_f32, 0.2, 0.3, 0.4, 0.5, 0.6]),
        tensor([1, 3, 1], &[0.1_f32, 0.2, 0.3]),
    ];
    let of = |version: i64, direction: Option<&str>| {
        let size = Some(AttributeProto::int("hidden_size", 1));
        let direction = direction.map(|name| AttributeProto::string("direction", name));
        let attributes: Vec<_> = size.into_iter().chain(direction).collect();
        outputs(("GRU", version), &attributes, &inputs, 2)
    };
    assert_eq!(of(1, Some("foward")).unwrap(), of(1, None).unwrap());
    assert_eq!(of(7, Some("foward")).unwrap_err().kind(), ErrorKind::InvalidModel);
}
