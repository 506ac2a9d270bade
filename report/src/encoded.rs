//! The data of a page as the text of an element: as they are, or deflated where they are long. They
//! are deflated while they are written: of very many tensors, the whole text takes more memory than
//! all else of a page.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output, create_comp_flags_from_zip_params,
};
use onnx_container::{Error, Result};

/// Data of more bytes than this are deflated, so many at a time.
const DEFLATED: usize = 1 << 20;
/// How much work is spent on that: what zlib does by default.
const LEVEL: i32 = 6;
/// The form that browsers call `deflate`: that of zlib.
const ZLIB: i32 = 1;

/// Takes data as JSON.
#[derive(Default)]
pub(crate) struct Encoder {
    /// What is not deflated yet.
    rest: Vec<u8>,
    deflated: Option<Deflated>,
}

/// Data as the text of an element, and how they are encoded there.
pub(crate) struct Encoded {
    pub(crate) encoding: &'static str,
    pub(crate) text: String,
}

struct Deflated {
    compressor: Box<CompressorOxide>,
    bytes: Vec<u8>,
}

impl Encoder {
    /// The end of the data.
    pub(crate) fn end(mut self) -> Result<Encoded> {
        if let Some(mut deflated) = self.deflated.take() {
            deflated.add(&self.rest, TDEFLFlush::Finish)?;
            return Ok(Encoded { encoding: "deflate", text: STANDARD.encode(&deflated.bytes) });
        }
        let json = String::from_utf8(self.rest).map_err(Error::other)?;
        // Nothing that an HTML parser looks for is left.
        let safe = json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
        let text = safe.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
        Ok(Encoded { encoding: "json", text })
    }
}

impl Write for Encoder {
    fn write(&mut self, json: &[u8]) -> std::io::Result<usize> {
        self.rest.extend_from_slice(json);
        if self.rest.len() > DEFLATED {
            let deflated = self.deflated.get_or_insert_with(Deflated::new);
            deflated.add(&self.rest, TDEFLFlush::None).map_err(std::io::Error::other)?;
            self.rest.clear();
        }
        Ok(json.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Deflated {
    fn new() -> Self {
        let flags = create_comp_flags_from_zip_params(LEVEL, ZLIB, 0);
        Self { compressor: Box::new(CompressorOxide::new(flags)), bytes: Vec::new() }
    }

    fn add(&mut self, json: &[u8], flush: TDEFLFlush) -> Result<()> {
        let bytes = &mut self.bytes;
        let (status, taken) = compress_to_output(&mut self.compressor, json, flush, |more| {
            bytes.extend_from_slice(more);
            true
        });
        match status {
            TDEFLStatus::Okay | TDEFLStatus::Done if taken == json.len() => Ok(()),
            _ => Err(Error::internal("data that could not be deflated")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_data_are_deflated_piece_by_piece() {
        for (pieces, expected) in
            [(0, "json"), (1, "json"), (52_000, "json"), (60_000, "deflate"), (200_000, "deflate")]
        {
            let all: Vec<_> = (0..pieces).map(|n| format!("layer.{n:06}.weight&")).collect();
            let mut encoder = Encoder::default();
            for piece in &all {
                encoder.write_all(piece.as_bytes()).unwrap();
            }
            let Encoded { encoding, text } = encoder.end().unwrap();
            assert_eq!(encoding, expected, "{pieces}");
            let all = all.concat();
            if encoding == "json" {
                assert_eq!(text.replace("\\u0026", "&"), all);
                continue;
            }
            let bytes = STANDARD.decode(&text).unwrap();
            let found = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).unwrap();
            assert!(found == all.as_bytes() && text.len() < all.len() / 3);
        }
    }
}
