//! Imports tensors for a test that compares their elements with what the official library reads.
//!
//! Standard input is any number of requests: a byte, `M` for the path of a model and `T` for an
//! encoded TensorProto, and that path or message with its length before it. An answer is a byte, 1
//! or 0, and the number of tensors, or the text of an error. Of each tensor there follow its name
//! and a byte, 1 or 0, and the number of its type, its dimensions and its elements, or the text of
//! an error. Numbers have eight little-endian bytes; before every list is how many it has. The
//! elements are a list of bytes: little-endian ones, one element a byte for narrower types, and for
//! strings each with its length before it.

use std::io::{self, BufReader, BufWriter, Read, Write};

use onnx_container::external_data::{self, ExternalData};
use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, Container, Error, ErrorKind, MmapChoice, Result, Tensor, traversal};

/// An answer that grows.
struct Answer(Vec<u8>);

impl Answer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A byte that says that all is well, or not and why.
    fn result<T>(&mut self, result: Result<T>, good: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(result.is_ok()));
        match result {
            Ok(value) => good(self, value),
            Err(error) => self.bytes(error.to_string().as_bytes()),
        }
    }

    fn tensor(&mut self, (name, tensor): (String, Result<Tensor>)) {
        self.bytes(name.as_bytes());
        let elements = tensor.and_then(|tensor| Ok((elements(&tensor)?, tensor)));
        self.result(elements, |answer, (elements, tensor)| {
            answer.number(u64::from(tensor.dtype().number().unsigned_abs()));
            answer.number(tensor.shape().len() as u64);
            tensor.shape().iter().for_each(|dim| answer.number(*dim as u64));
            answer.bytes(&elements);
        });
    }
}

fn elements(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut answer = Answer(Vec::new());
    match (tensor.as_bytes(), tensor.dtype().bit_width()) {
        (Some(_), Some(..8)) => answer.0 = tensor.unpack()?,
        (Some(bytes), _) => answer.0.extend_from_slice(bytes),
        (None, _) => {
            tensor.strings().unwrap_or_default().iter().for_each(|text| answer.bytes(text));
        }
    }
    Ok(answer.0)
}

/// The tensor in `proto`, or behind its handle.
fn import(container: &Container, proto: &TensorProto) -> Result<Tensor> {
    if !external_data::is_external(proto) {
        return Tensor::try_from(proto);
    }
    let location = ExternalData::parse(proto)?.location;
    let missing = || Error::new(ErrorKind::MissingHandle, location.clone());
    container.get(&location).ok_or_else(missing)?.to_tensor()
}

fn model(path: &str) -> Result<Vec<(String, Result<Tensor>)>> {
    let container = Container::load(path, MmapChoice::never())?;
    let mut all = Vec::new();
    traversal::tensors(container.model(), |place, proto| {
        all.push((place.qualified_name(proto), import(&container, proto)));
        Ok(())
    })?;
    Ok(all)
}

fn message(bytes: Vec<u8>) -> Result<Vec<(String, Result<Tensor>)>> {
    let proto = TensorProto::decode(&Buffer::from(bytes))?;
    Ok(vec![(String::new(), Tensor::try_from(&proto))])
}

fn main() -> io::Result<()> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut kind, mut len) = ([0], [0; 8]);
    while input.read_exact(&mut kind).is_ok() {
        input.read_exact(&mut len)?;
        let mut request = Vec::new();
        (&mut input).take(u64::from_le_bytes(len)).read_to_end(&mut request)?;
        let tensors = match &kind {
            b"M" => model(&String::from_utf8_lossy(&request)),
            _ => message(request),
        };
        let mut answer = Answer(Vec::new());
        answer.result(tensors, |answer, tensors| {
            answer.number(tensors.len() as u64);
            tensors.into_iter().for_each(|tensor| answer.tensor(tensor));
        });
        out.write_all(&answer.0)?;
        out.flush()?;
    }
    Ok(())
}
