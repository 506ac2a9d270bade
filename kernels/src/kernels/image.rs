//! [ImageDecoder](https://onnx.ai/onnx/operators/onnx__ImageDecoder.html): the pixels of an image
//! file.
//!
//! The formats are left to the crates `image` and `zune-jpeg`, the latter without the instructions
//! of single processors. A stream that is no image, or ends early, gives an image without pixels,
//! as ONNX says; JPEG 2000, which no crate here decodes, is refused. A gray image has three equal
//! samples in color, a color becomes gray as in Pillow, and what is transparent is as if it were
//! not.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits};
use onnx_container_proto::DataType;
use onnx_container_proto::internal::util::byte_size::ByteSize;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::words::meaning_of;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec, needs_value};
use crate::kernel::run_cx::RunCx;

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("ImageDecoder", infer, decode)];

/// What decoding takes at most for a pixel: two copies of four samples of 32 bits.
const BYTES_OF_PIXEL: u64 = 32;

/// What decoding takes for most pixels: two copies of four samples of 8 bits.
const USUAL_BYTES: usize = 8;

/// The most bytes for an image that is decoded before a run says how many there are.
const MOST_BEFORE: u64 = 16 << 20;

/// The most rows and columns: those of a JPEG stream.
const MOST_ROWS: usize = 65_535;

/// The order of the samples of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Rgb,
    Bgr,
    Gray,
}

const ORDERS: [(&str, Order); 3] =
    [("RGB", Order::Rgb), ("BGR", Order::Bgr), ("Grayscale", Order::Gray)];

/// Pixels of one sample, or of red, green and blue.
struct Picture {
    height: usize,
    width: usize,
    is_gray: bool,
    samples: Vec<u8>,
}

/// Why there are no pixels.
enum Failure {
    /// Then ONNX asks for an image without pixels.
    NoImage,
    Refused(Error),
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Limits(limit) => {
                Self::Refused(Error::new(ErrorKind::OutOfMemory, format!("an image: {limit}")))
            }
            ImageError::Unsupported(what) => {
                Self::Refused(Error::new(ErrorKind::Unsupported, what.to_string()))
            }
            _ => Self::NoImage,
        }
    }
}

impl From<DecodeErrors> for Failure {
    fn from(error: DecodeErrors) -> Self {
        match error {
            DecodeErrors::Unsupported(_) => {
                Self::Refused(Error::new(ErrorKind::Unsupported, format!("{error:?}")))
            }
            _ => Self::NoImage,
        }
    }
}

/// The pixels of `stream`, for which there may be `most` bytes.
fn picture(stream: &[u8], most: u64) -> Result<Picture, Failure> {
    match image::guess_format(stream) {
        Ok(ImageFormat::Jpeg) => jpeg(stream, most),
        Ok(
            format @ (ImageFormat::Bmp
            | ImageFormat::Png
            | ImageFormat::Pnm
            | ImageFormat::Tiff
            | ImageFormat::WebP),
        ) => other(format, stream, most),
        _ if is_jpeg_2000(stream) => {
            let reason = "JPEG 2000 is not decoded: give the model the image in another format";
            Err(Failure::Refused(Error::new(ErrorKind::Unsupported, reason)))
        }
        _ => Err(Failure::NoImage),
    }
}

/// Whether a stream begins as a file or as a code stream of ISO 15444-1 does.
fn is_jpeg_2000(stream: &[u8]) -> bool {
    stream.starts_with(b"\0\0\0\x0cjP  ") || stream.starts_with(&[0xff, 0x4f, 0xff, 0x51])
}

/// Whether there may be an image of so many pixels, and is memory for it.
fn check_size(width: usize, height: usize, most: u64) -> Result<(), Failure> {
    let pixels = width.saturating_mul(height);
    let needed = (pixels as u64).saturating_mul(BYTES_OF_PIXEL);
    let refused = |end: String| {
        let needed = ByteSize(needed);
        let reason = format!("an image of {width} x {height} pixels may take {needed}, {end}");
        Err(Failure::Refused(Error::new(ErrorKind::OutOfMemory, reason)))
    };
    if needed > most {
        return refused(format!("and {} may be used", ByteSize(most)));
    }
    // An allocation that fails would end the process in the decoder.
    let usual = pixels.saturating_mul(USUAL_BYTES);
    match Vec::<u8>::new().try_reserve_exact(usual) {
        Ok(()) => Ok(()),
        Err(_) => refused("and there is no memory for it".to_owned()),
    }
}

fn jpeg(stream: &[u8], most: u64) -> Result<Picture, Failure> {
    // A stream that ends early is an error only when the decoder is strict.
    let options = DecoderOptions::default()
        .set_use_unsafe(false)
        .set_strict_mode(true)
        .set_max_width(MOST_ROWS)
        .set_max_height(MOST_ROWS);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(stream), options);
    decoder.decode_headers()?;
    let (width, height) = decoder.dimensions().ok_or(Failure::NoImage)?;
    check_size(width, height, most)?;
    let is_gray = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let colors = if is_gray { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(colors));
    Ok(Picture { height, width, is_gray, samples: decoder.decode()? })
}

fn other(format: ImageFormat, stream: &[u8], most: u64) -> Result<Picture, Failure> {
    let mut reader = ImageReader::with_format(Cursor::new(stream), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(most);
    reader.limits(limits);
    let decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    let [width, height] = [width, height].map(usize::try_from);
    let (Ok(width), Ok(height)) = (width, height) else { return Err(Failure::NoImage) };
    check_size(width, height, most)?;
    let image = DynamicImage::from_decoder(decoder)?;
    let is_gray = !image.color().has_color();
    let samples =
        if is_gray { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() };
    Ok(Picture { height, width, is_gray, samples })
}

/// The order of the samples, and the stream: a vector.
fn parts<'a>(call: &Call<'a>) -> Result<(Order, &'a [u8])> {
    let order = meaning_of(call, "pixel_format", &ORDERS, Order::Rgb)?;
    match *call.shape(0)? {
        [_] => Ok((order, call.input(0)?)),
        ref other => {
            let reason = format!("the stream is of shape {other:?}, not a vector");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

/// How many bytes a picture may have: what the run says, or what is decoded without a run.
fn most(call: &Call<'_>) -> u64 {
    call.most().unwrap_or(MOST_BEFORE)
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (order, stream) = parts(call)?;
    let samples = if order == Order::Gray { 1 } else { 3 };
    let shape = match picture(stream, most(call)) {
        Ok(picture) => [picture.height, picture.width, samples],
        Err(Failure::NoImage) => [0, 0, samples],
        Err(Failure::Refused(error)) if error.kind() == ErrorKind::OutOfMemory => {
            return Err(if call.most().is_none() { needs_value(0) } else { error });
        }
        Err(Failure::Refused(error)) => return Err(error),
    };
    Ok(vec![OutSpec::tensor(DataType::Uint8, shape)])
}

fn decode(cx: &mut RunCx<'_>) -> Result<()> {
    let (order, stream) = parts(cx)?;
    let picture = match picture(stream, most(cx)) {
        Ok(picture) => picture,
        Err(Failure::NoImage) => return cx.output::<u8>(0).map(|_| ()),
        Err(Failure::Refused(error)) => return Err(error),
    };
    let output = cx.output::<u8>(0)?;
    match (order, picture.is_gray) {
        (Order::Rgb, false) | (Order::Gray, true) => {
            output.iter_mut().zip(picture.samples).for_each(|(y, x)| *y = x);
        }
        (Order::Rgb | Order::Bgr, true) => {
            output.chunks_mut(3).zip(picture.samples).for_each(|(pixel, x)| pixel.fill(x));
        }
        (Order::Bgr, false) => {
            for (to, from) in output.chunks_mut(3).zip(picture.samples.chunks(3)) {
                to.iter_mut().zip(from.iter().rev()).for_each(|(y, x)| *y = *x);
            }
        }
        (Order::Gray, false) => {
            let pixels = picture.samples.chunks(3).map(luma);
            output.iter_mut().zip(pixels).for_each(|(y, x)| *y = x);
        }
    }
    Ok(())
}

/// How light a color is, by the weights of ITU-R 601 in 16 bits, rounded to the nearest.
fn luma(pixel: &[u8]) -> u8 {
    let weights = [19_595_u32, 38_470, 7_471];
    let sum: u32 = pixel.iter().zip(weights).map(|(x, weight)| u32::from(*x) * weight).sum();
    let [_, _, luma, _] = (sum + 0x8000).to_le_bytes(); // the weights add up to 65,536
    luma
}
