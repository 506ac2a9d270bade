//! Decodes and encodes models for a test that compares the results with the official library's.
//!
//! Standard input is any number of models, each with its length in four little-endian bytes before
//! it. The answer to each is a byte, 1 for a model and 0 for an error, and a length and that many
//! bytes: the encoded model, or the error's text.

use std::io::{self, BufReader, BufWriter, Read, Write};

use onnx_container::proto::{DecodeOptions, Message, ModelProto};
use onnx_container::{Buffer, Result};

fn reencode(input: Vec<u8>) -> Result<Vec<u8>> {
    let options = DecodeOptions::new().threads(1);
    ModelProto::decode_with(&Buffer::from(input), &options)?.encode_to_vec()
}

fn answer(out: &mut impl Write, good: bool, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&[u8::from(good)])?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(bytes)?;
    out.flush()
}

fn main() -> io::Result<()> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut out = BufWriter::new(io::stdout().lock());
    let mut len = [0; 4];
    while input.read_exact(&mut len).is_ok() {
        let mut model = Vec::new();
        let wanted = u64::from(u32::from_le_bytes(len));
        (&mut input).take(wanted).read_to_end(&mut model)?;
        match reencode(model) {
            Ok(bytes) => answer(&mut out, true, &bytes)?,
            Err(error) => answer(&mut out, false, error.to_string().as_bytes())?,
        }
    }
    Ok(())
}
