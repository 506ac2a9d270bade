//! What is written in place of an external tensor while a model is encoded.
//!
//! A model may have tens of thousands of them, and each is counted, written and perhaps counted
//! again. So a message is not built for it: the fields that stay are written from the graph's own
//! tensor, and the entries that name a range of a file between them. The bytes of a tensor that
//! becomes inline are produced when the encoder reaches it.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::container::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data;
use crate::proto::TensorProto;
use crate::save::gather::weights::Weight;
use crate::tensor::initializer::Initializer;
use crate::wire::{self, Field, Replacement, Sizes, Str, Writer};

/// What is written in place of a tensor's elements. All else is taken from the graph's own tensor
/// while that is written: a model can have so many tensors that their names take more memory than
/// the rest of a save.
pub(crate) enum NewTensor {
    /// The bytes are in this range of this file.
    InFile(Arc<File>, Range<u64>),
    /// The bytes are stored in the model.
    Inline(Box<InlineBytes>),
}

/// A weights file that tensors name.
pub(crate) struct File {
    location: Str,
    checksum: Option<Str>,
}

/// Bytes that are stored in the model.
pub(crate) struct InlineBytes {
    initializer: Initializer,
    handle: Handle,
    len: u64,
}

impl File {
    /// The files at these locations, with their checksums as far as there are any.
    pub(crate) fn all<'a>(
        locations: impl Iterator<Item = &'a String>,
        checksums: &[Str],
    ) -> Vec<Arc<Self>> {
        let checksums = checksums.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let file = |(location, checksum): (&String, _)| {
            Arc::new(Self { location: location.as_str().into(), checksum })
        };
        locations.zip(checksums).map(file).collect()
    }

    pub(crate) fn is_at(&self, location: &str) -> bool {
        self.location == location
    }

    /// The same file at another location.
    pub(crate) fn renamed(&self, location: &str) -> Self {
        Self { location: location.into(), checksum: self.checksum.clone() }
    }
}

impl NewTensor {
    pub(crate) fn inline(weight: &Weight<'_>) -> Self {
        let (initializer, handle) = (weight.initializer.clone(), weight.handle.clone());
        Self::Inline(Box::new(InlineBytes { initializer, handle, len: weight.len }))
    }

    /// The file that has the bytes.
    pub(crate) fn file_mut(&mut self) -> Option<&mut Arc<File>> {
        if let Self::InFile(file, _) = self { Some(file) } else { None }
    }

    /// Refuses bytes that are to be stored in the model and are only declared.
    pub(crate) fn refuse_declared(&self) -> Result<()> {
        match self {
            Self::Inline(bytes) if bytes.initializer.is_declared() => {
                let reason = "the weight would be stored in the model, and is only declared";
                let error = Error::new(ErrorKind::MissingHandle, reason);
                Err(error.with_tensor(bytes.handle.name()))
            }
            _ => Ok(()),
        }
    }

    /// The message that is written in place of `original`.
    pub(crate) fn message(&self, original: &TensorProto) -> Result<TensorProto> {
        let mut message = external_data::header_of(original);
        match self {
            Self::InFile(file, range) => {
                let named = (&file.location, file.checksum.as_ref());
                external_data::set_range(&mut message, named, range);
            }
            Self::Inline(bytes) => message.raw_data = Some(bytes.produce()?),
        }
        Ok(message)
    }
}

impl InlineBytes {
    /// The bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] when their number is not the one that the encoded length counts.
    fn produce(&self) -> Result<Buffer> {
        let named = |error: Error| error.with_tensor(self.handle.name());
        let bytes = self.initializer.to_buffer().map_err(named)?;
        if u64::try_from(bytes.len()) == Ok(self.len) {
            return Ok(bytes);
        }
        let reason = "an initializer changed its length while it was saved";
        Err(named(Error::new(ErrorKind::OutOfBounds, reason)))
    }
}

/// The numbers of fields of a tensor, in the order in which they are written.
mod number {
    pub(in crate::save) const DIMS: u32 = 1;
    pub(in crate::save) const DATA_TYPE: u32 = 2;
    pub(in crate::save) const SEGMENT: u32 = 3;
    pub(in crate::save) const NAME: u32 = 8;
    pub(in crate::save) const RAW_DATA: u32 = 9;
    pub(in crate::save) const DOC_STRING: u32 = 12;
    pub(in crate::save) const EXTERNAL_DATA: u32 = 13;
    pub(in crate::save) const DATA_LOCATION: u32 = 14;
    pub(in crate::save) const METADATA_PROPS: u32 = 16;
    /// Of an entry of external data.
    pub(in crate::save) const KEY: u32 = 1;
    pub(in crate::save) const VALUE: u32 = 2;
}

const EXTERNAL: Option<i32> = Some(TensorProto::EXTERNAL);

impl Replacement for NewTensor {
    /// Zero where `original` is no tensor, of which [`write`](Self::write) then makes an error.
    fn size(&self, original: &dyn Any, sizes: &mut Sizes<'_>) -> u64 {
        let Some(original) = original.downcast_ref::<TensorProto>() else { return 0 };
        let TensorProto {
            dims, data_type, segment, name, doc_string, metadata_props, unknown, ..
        } = original;
        let own = dims.size(number::DIMS, sizes)
            + data_type.size(number::DATA_TYPE, sizes)
            + segment.size(number::SEGMENT, sizes)
            + name.size(number::NAME, sizes)
            + doc_string.size(number::DOC_STRING, sizes)
            + metadata_props.size(number::METADATA_PROPS, sizes)
            + unknown.size();
        own + match self {
            Self::InFile(file, range) => {
                let mut entries = EXTERNAL.size(number::DATA_LOCATION, sizes);
                let Ok(()) = file.entries::<Infallible>(range, |key, value| {
                    entries += wire::delimited_size(number::EXTERNAL_DATA, entry_len(key, value));
                    Ok(())
                });
                entries
            }
            Self::Inline(bytes) => wire::delimited_size(number::RAW_DATA, bytes.len),
        }
    }

    fn write(&self, original: &dyn Any, writer: &mut Writer<'_>) -> io::Result<()> {
        let not_a_tensor = || io::Error::other(Error::internal("a message that is no tensor"));
        let original = original.downcast_ref::<TensorProto>().ok_or_else(not_a_tensor)?;
        original.dims.write(number::DIMS, writer)?;
        original.data_type.write(number::DATA_TYPE, writer)?;
        original.segment.write(number::SEGMENT, writer)?;
        original.name.write(number::NAME, writer)?;
        if let Self::Inline(bytes) = self {
            let bytes = bytes.produce().map_err(io::Error::other)?;
            wire::write_one(&bytes, number::RAW_DATA, writer)?;
        }
        original.doc_string.write(number::DOC_STRING, writer)?;
        if let Self::InFile(file, range) = self {
            file.entries(range, |key, value| {
                writer.delimiter(number::EXTERNAL_DATA, entry_len(key, value))?;
                writer.record(number::KEY, key.as_bytes())?;
                writer.record(number::VALUE, value)
            })?;
            EXTERNAL.write(number::DATA_LOCATION, writer)?;
        }
        original.metadata_props.write(number::METADATA_PROPS, writer)?;
        original.unknown.write(writer)
    }
}

impl File {
    /// Calls `visit` with the key and the value of each entry of a tensor that has `range` (bytes)
    /// of the file.
    fn entries<E>(
        &self,
        range: &Range<u64>,
        visit: impl FnMut(&str, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        external_data::entries_of_range((&self.location, self.checksum.as_ref()), range, visit)
    }
}

/// The length of an entry's message.
fn entry_len(key: &str, value: &[u8]) -> u64 {
    wire::delimited_size(number::KEY, key.len() as u64)
        + wire::delimited_size(number::VALUE, value.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::tensor_proto::Segment;
    use crate::proto::{Message, SparseTensorProto, StringStringEntryProto};
    use crate::wire::Overlay;

    /// Replaces the tensor at one address.
    struct One(usize, NewTensor);

    impl Overlay for One {
        fn replacement(&self, address: usize) -> Option<&dyn Replacement> {
            (address == self.0).then_some(&self.1)
        }
    }

    fn in_file(range: Range<u64>, checksum: Option<&str>) -> NewTensor {
        let checksum = checksum.map(Str::from);
        NewTensor::InFile(Arc::new(File { location: "m.onnx.data".into(), checksum }), range)
    }

    /// A tensor with every field, external entries and a field that is not known.
    fn full() -> TensorProto {
        let mut tensor = TensorProto::external("w", TensorProto::INT32, [2, 1], "#w");
        let mut segment = Segment::default();
        (segment.begin, segment.end) = (Some(1), Some(300));
        tensor.segment = Some(Box::new(segment));
        *tensor.int32_data = vec![1, 2].into();
        *tensor.string_data = vec![Buffer::from(&b"text"[..])];
        tensor.raw_data = Some(Buffer::from(&[0; 8][..]));
        tensor.doc_string = Some(Box::new("a description".into()));
        tensor.metadata_props.push(StringStringEntryProto::new("key", "value"));
        let mut bytes = tensor.encode_to_vec().unwrap();
        bytes.extend([0xa0, 0x06, 7]); // field 100
        TensorProto::decode(&bytes.into()).unwrap()
    }

    #[test]
    fn what_is_written_is_the_message() {
        let inline = || {
            let initializer = Initializer::from(vec![1_i32, -2]);
            let bytes = InlineBytes { initializer, handle: "#w".parse().unwrap(), len: 8 };
            NewTensor::Inline(Box::new(bytes))
        };
        let tensors = [
            full(),
            TensorProto::external("", TensorProto::INT32, [0_i64; 0], "#w"),
            TensorProto::default(),
        ];
        for original in tensors {
            let news = [
                in_file(0..8, None),
                in_file(u64::MAX - 8..u64::MAX, Some("da39a3ee5e6b4b0d3255bfef95601890afd80709")),
                in_file(7..7, None),
                inline(),
            ];
            for new in news {
                let message = new.message(&original).unwrap();
                let around = |tensor| {
                    let mut sparse = SparseTensorProto::default();
                    sparse.values = Some(Box::new(tensor));
                    sparse
                };
                let (expected, model) =
                    (around(message).encode_to_vec().unwrap(), around(original.clone()));
                let address = std::ptr::from_ref(&**model.values.as_ref().unwrap()).addr();
                let written = wire::encode_over_to_vec(&model, Some(&One(address, new))).unwrap();
                assert_eq!(written, expected);
            }
        }
    }
}
