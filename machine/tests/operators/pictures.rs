//! ImageDecoder: every format, pixel order and kind of wrong stream. The files have 2 rows of 4
//! pixels.

use onnx_container::proto::AttributeProto;
use onnx_container_machine::{ErrorKind, Result, RunLimits, Value};

use crate::support::{output, outputs_within, tensor};

const COLORS: [[u8; 3]; 8] = [
    [255, 0, 0],
    [0, 255, 0],
    [0, 0, 255],
    [250, 128, 10],
    [1, 2, 3],
    [255, 255, 255],
    [0, 0, 0],
    [90, 180, 45],
];

const GRAYS: [u8; 8] = [0, 30, 60, 90, 120, 150, 180, 210];

macro_rules! files {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../data/images/", $name)).as_slice())),*]
    };
}

const COLORED: [(&str, &[u8]); 6] =
    files!("color.bmp", "color.png", "color.pnm", "color.tiff", "color.webp", "alpha.png");
const GRAY: [(&str, &[u8]); 3] = files!("gray.png", "gray.pnm", "gray.tiff");
const LOSSY: [(&str, &[u8]); 2] = files!("color.jpg", "gray.jpg");

fn decode(stream: &[u8], format: &str) -> Result<Value> {
    let len = i64::try_from(stream.len()).unwrap();
    let format = AttributeProto::string("pixel_format", format);
    output(("ImageDecoder", 20), &[format], &[tensor([len], stream)])
}

/// The gray of a color by Pillow's formula.
fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = 19_595 * u32::from(r) + 38_470 * u32::from(g) + 7_471 * u32::from(b);
    u8::try_from((sum + (1 << 15)) >> 16).unwrap()
}

#[test]
fn every_format_has_its_pixels_in_every_order() {
    for (name, file) in COLORED {
        let bgr = COLORS.map(|[r, g, b]| [b, g, r]);
        let rgb = decode(file, "RGB").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(rgb, tensor([2, 4, 3], COLORS.as_flattened()), "{name}");
        assert_eq!(decode(file, "BGR").unwrap(), tensor([2, 4, 3], bgr.as_flattened()), "{name}");
        let gray = decode(file, "Grayscale").unwrap();
        assert_eq!(gray, tensor([2, 4, 1], &COLORS.map(luma)), "{name}");
    }
    for (name, file) in GRAY {
        let gray = decode(file, "Grayscale").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(gray, tensor([2, 4, 1], &GRAYS), "{name}");
        for order in ["RGB", "BGR"] {
            let expected = GRAYS.map(|x| [x; 3]);
            assert_eq!(decode(file, order).unwrap(), tensor([2, 4, 3], expected.as_flattened()));
        }
    }
}

/// The pixels of a JPEG file are near those that were written.
#[test]
fn a_lossy_file_is_near() {
    for ((name, file), expected) in LOSSY.into_iter().zip([COLORS, GRAYS.map(|x| [x; 3])]) {
        let found = decode(file, "RGB").unwrap();
        let found = found.tensor().unwrap().to_slice::<u8>().unwrap();
        let apart = found.iter().zip(expected.as_flattened()).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(apart < Some(6), "{name}: {found:?}");
    }
}

#[test]
fn a_stream_that_is_no_image_has_no_pixels() {
    let none = |format: &str| {
        let samples = if format == "Grayscale" { 1 } else { 3 };
        tensor::<u8>([0, 0, samples], &[])
    };
    for stream in
        [&b""[..], b"GIF89a", b"no image", b"\x89PNG\r\n\x1a\n", b"P6\n4 2\n255\n\0", b"BM"]
    {
        for format in ["RGB", "BGR", "Grayscale"] {
            assert_eq!(decode(stream, format).unwrap(), none(format), "{stream:?}");
        }
    }
    for (name, file) in [&COLORED[..], &GRAY[..], &LOSSY[..]].concat() {
        // Half of the file, which has not all pixels.
        assert_eq!(decode(&file[..file.len() / 2], "RGB").unwrap(), none("RGB"), "{name}");
    }
}

#[test]
fn what_cannot_be_decoded_is_refused_by_name() {
    for stream in [&b"\0\0\0\x0cjP  \r\n\x87\n"[..], &[0xff, 0x4f, 0xff, 0x51, 0]] {
        let error = decode(stream, "RGB").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("JPEG 2000"), "{error}");
    }
    let limits = RunLimits::new().memory_bytes(1 << 20);
    let large = tensor([20], b"P6\n20000 20000\n255\n\0");
    let error = outputs_within(limits, ("ImageDecoder", 20), &[], &[large], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(decode(b"", "CMYK").unwrap_err().kind(), ErrorKind::InvalidModel);
    let matrix = tensor([1, 1], &[0_u8]);
    assert_eq!(output(("ImageDecoder", 20), &[], &[matrix]).unwrap_err().kind(), ErrorKind::Shape);
}

/// Whatever is changed in a file, there are pixels, none, or an error that says why.
#[test]
fn damaged_files_are_no_fault_of_the_machine() {
    let rounds = std::env::var("ONNX_CONTAINER_NODES").map_or(12, |text| text.parse().unwrap());
    let mut state = 0x9e37_79b9_u32;
    let mut next = |most: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % most
    };
    for (name, file) in [&COLORED[..], &GRAY[..], &LOSSY[..]].concat() {
        for _ in 0..rounds {
            let mut stream = file.to_vec();
            for _ in 0..=next(4) {
                let place = next(stream.len());
                stream[place] = next(256) as u8;
            }
            if next(3) == 0 {
                stream.truncate(next(file.len()));
            }
            if let Err(error) = decode(&stream, "RGB") {
                let known = [ErrorKind::Unsupported, ErrorKind::OutOfMemory];
                assert!(known.contains(&error.kind()), "{name}: {error:?}: {stream:?}");
            }
        }
    }
}
