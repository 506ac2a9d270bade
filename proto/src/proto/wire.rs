//! Reads and writes the protobuf wire format, from and to [`Buffer`]s.
//!
//! Models are larger than protobuf libraries allow, and a container must write back what it read,
//! byte for byte. So this layer counts in 64 bits, makes strings and payloads slices of the input,
//! keeps field presence and unknown records, and is as lenient as the official parser. The messages
//! themselves are defined elsewhere: `table.rs` turns a table of fields into messages, and
//! [`crate::proto`] is that table.

mod budget;
mod closed;
mod depth;
mod field;
pub(crate) mod nested;
mod number;
mod outline;
mod overlay;
mod packed;
mod parallel;
mod placing;
mod rare;
mod reader;
mod spread;
mod table;
mod text;
mod unknown;
mod value;
mod varints;
mod writer;

use std::fmt::Debug;
use std::io::{self, Write};

use self::budget::Budget;
use self::closed::Closed;
pub use self::closed::has_no_value;
pub use self::depth::walk;
pub(crate) use self::depth::{show, visit_strings};
pub(crate) use self::field::plain;
pub use self::field::{Field, FieldInfo, Label};
pub(crate) use self::number::{Number, Varint};
pub use self::overlay::{Overlay, Replacement};
pub use self::packed::Packed;
use self::placing::Copying;
pub use self::rare::Rare;
pub(crate) use self::rare::{Empty, RareFields};
pub use self::reader::{Reader, Tag, Wire};
pub(crate) use self::table::messages;
pub use self::text::Str;
pub use self::unknown::Unknown;
pub use self::value::Value;
pub(crate) use self::value::one_size;
pub use self::value::{delimited_size, write_one};
use self::writer::GATHERED;
pub use self::writer::{Sizes, Writer};

use crate::buffer::alignment::Alignment;
use crate::buffer::{Buffer, TensorBufferOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{Limit, Limits, exceeded_in_memory};

/// A protobuf message: decoded from a [`Buffer`], of which it keeps slices, and encoded to any
/// [`Write`].
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::Buffer;
/// use onnx_container::proto::{Message, TensorProto};
///
/// let tensor = TensorProto::new("encoder.w", TensorProto::FLOAT, [2, 3]);
/// let bytes = tensor.encode_to_vec()?;
/// assert_eq!(TensorProto::decode(&Buffer::from(bytes))?, tensor);
/// # Ok::<(), onnx_container::Error>(())
/// ```
pub trait Message:
    RareFields + Clone + Debug + Default + PartialEq + Send + Sync + 'static
{
    #[doc(hidden)]
    const NAME: &'static str;
    #[doc(hidden)]
    const FIELDS: &'static [FieldInfo];
    /// Whether no field is a message. Then counting the size twice is faster than remembering it.
    #[doc(hidden)]
    const LEAF: bool;
    /// The number of the field `raw_data`, the bytes of a tensor; 0 if the message has no such
    /// field.
    #[doc(hidden)]
    const RAW_DATA: u32 = field::number_of("raw_data", Self::FIELDS);
    /// The field of an enum, if there is one.
    #[doc(hidden)]
    const ENUM: Option<Closed> = closed::among(Self::FIELDS);
    /// Whether an overlay may replace it while a message around it is encoded.
    #[doc(hidden)]
    const REPLACEABLE: bool;

    /// Whether an outline passes over the elements of its lists that hold no tensor.
    #[doc(hidden)]
    const OUTLINED: bool;

    /// Whether it may hold messages of its own type.
    #[doc(hidden)]
    const RECURSIVE: bool;

    /// Merges the value of a record. `false`, with nothing read, if the record is not of a known
    /// field.
    #[doc(hidden)]
    fn merge_record(&mut self, tag: Tag, reader: &mut Reader<'_>) -> Result<bool>;
    /// Passes over the value of a record. `None`, with nothing read, if the record is not of a
    /// known field; else whether it holds a tensor, in which case the reader may be left in its
    /// middle.
    #[doc(hidden)]
    fn pass_record(tag: Tag, reader: &mut Reader<'_>) -> Result<Option<bool>>;
    /// How many elements the list has that a record belongs to; `None` if it belongs to no list of
    /// messages.
    #[doc(hidden)]
    fn listed(&self, tag: Tag) -> Option<usize>;
    /// Whether the messages inside it nest at most `levels` deep.
    #[doc(hidden)]
    fn within(&self, levels: u32) -> bool;
    #[doc(hidden)]
    fn size_of_fields(&self, sizes: &mut Sizes<'_>) -> u64;
    #[doc(hidden)]
    fn fields_size(&self, sizes: &mut Sizes<'_>) -> u64 {
        walk::<Self, _>(|| self.size_of_fields(sizes))
    }
    #[doc(hidden)]
    fn write_fields(&self, writer: &mut Writer<'_>) -> io::Result<()>;
    #[doc(hidden)]
    fn unknown_mut(&mut self) -> &mut Unknown;

    /// Decodes the message that `input` as a whole is.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`], with the offset of the invalid byte, when the input is not such a
    /// message.
    fn decode(input: &Buffer) -> Result<Self> {
        Self::decode_with(input, &DecodeOptions::default())
    }

    /// Decodes the message that `input` as a whole is, with `options`.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`], with the offset of the invalid byte, when the input is not such a
    /// message.
    fn decode_with(input: &Buffer, options: &DecodeOptions) -> Result<Self> {
        let mut message = Self::default();
        let budget = Budget::new(input.len(), &options.limits);
        message.merge_body(&mut Reader::new(input, options, &budget))?;
        Ok(message)
    }

    /// Calls `visit` with every string of this message and of the messages inside it. Fields of the
    /// type `bytes` are skipped.
    fn strings(&self, visit: &mut dyn FnMut(&Str)) {
        visit_strings(self, &mut |string| visit(string));
    }

    #[doc(hidden)]
    fn strings_of_fields<'m>(&'m self, visit: &mut dyn FnMut(&'m Str));

    /// The length of the encoded message in bytes.
    fn encoded_len(&self) -> u64 {
        self.fields_size(&mut Sizes::default())
    }

    /// Writes the encoded message to `out`, large payloads straight from where they lie.
    ///
    /// # Errors
    /// What `out` gives: [`ErrorKind::NoSpace`] or [`ErrorKind::Io`]. [`ErrorKind::TooLarge`] when
    /// messages nest deeper than a reader accepts, see
    /// [`Limit::Nesting`](crate::Limit::Nesting).
    fn encode(&self, out: &mut impl Write) -> Result<()> {
        self.encode_with(out, &Limits::new())
    }

    /// As [`encode`](Self::encode), with another limit of nesting; the other limits are for whole
    /// models. Every level takes stack, about 1 KiB.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    fn encode_with(&self, out: &mut impl Write, limits: &Limits) -> Result<()> {
        self.check_nesting(limits)?;
        encode_over(self, None, out)
    }

    /// Refuses a message that was made in memory and is deeper than one that is read may be: no
    /// reader would take it.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when messages nest deeper than [`Limit::Nesting`] of `limits`
    /// allows.
    fn check_nesting(&self, limits: &Limits) -> Result<()> {
        let Some(most) = limits.get(Limit::Nesting) else { return Ok(()) };
        if self.within(u32::try_from(most).unwrap_or(u32::MAX)) {
            return Ok(());
        }
        Err(exceeded_in_memory(Limit::Nesting, most))
    }

    /// The encoded message in memory.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when there is no memory for it, or when messages nest deeper than a
    /// reader accepts, see [`Limit::Nesting`](crate::Limit::Nesting).
    fn encode_to_vec(&self) -> Result<Vec<u8>> {
        self.encode_to_vec_with(&Limits::new())
    }

    /// As [`encode_to_vec`](Self::encode_to_vec), with another limit of nesting; the other limits
    /// are for whole models. Every level takes stack, about 1 KiB.
    ///
    /// # Errors
    /// Those of [`encode_to_vec`](Self::encode_to_vec).
    fn encode_to_vec_with(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check_nesting(limits)?;
        encode_over_to_vec(self, None)
    }

    #[doc(hidden)]
    fn merge_body(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        while !reader.at_end() {
            let tag = reader.tag()?;
            reader.expect_raw_data(Self::RAW_DATA != 0 && tag.number() == Self::RAW_DATA);
            if Self::OUTLINED
                && reader.is_outline()
                && let Some(gap) = outline::gap(self, tag, reader)?
            {
                self.unknown_mut().push_gap(gap);
                continue;
            }
            if closed::is_no_value::<Self>(tag, reader) || !self.merge_record(tag, reader)? {
                reader.count(KEPT_RECORD)?;
                self.unknown_mut().push(reader.unknown(tag)?);
            }
        }
        Ok(())
    }
}

/// What the record of an unknown field takes at most, on average, in bytes of memory.
const KEPT_RECORD: usize = 64;

/// The length of `message` in bytes, as it is written under `overlay`.
pub fn encoded_len_over(message: &impl Message, overlay: &dyn Overlay) -> u64 {
    message.fields_size(&mut Sizes::over(Some(overlay)))
}

/// As [`Message::encode`], with the replacements of `overlay`.
pub fn encode_over(
    message: &impl Message,
    overlay: Option<&dyn Overlay>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut sizes = Sizes::over(overlay);
    let len = message.fields_size(&mut sizes);
    let mut window = vec![0; usize::try_from(len.min(GATHERED)).unwrap_or_default()];
    let mut writer = Writer::new(&mut window, Some(out), sizes);
    message.write_fields(&mut writer).and_then(|()| writer.finish(len)).map_err(write_error)
}

/// As [`Message::encode_to_vec`], with the replacements of `overlay`.
pub fn encode_over_to_vec(
    message: &impl Message,
    overlay: Option<&dyn Overlay>,
) -> Result<Vec<u8>> {
    let mut sizes = Sizes::over(overlay);
    let len = message.fields_size(&mut sizes);
    let mut bytes = zeros(len)?;
    let mut writer = Writer::new(&mut bytes, None, sizes);
    message.write_fields(&mut writer).and_then(|()| writer.finish(len)).map_err(write_error)?;
    Ok(bytes)
}

/// Options of decoding: `DecodeOptions::new().no_copy(true)`.
///
/// By default nothing is copied: the message is made of slices of the input and keeps it alive.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::proto::{DecodeOptions, Message, TensorProto};
/// use onnx_container::buffer::Ownership;
/// use onnx_container::{Alignment, Buffer};
///
/// let tensor = TensorProto::new("w", TensorProto::UINT8, [2048]).with_raw_data(vec![1; 2048]);
/// let input = Buffer::from(tensor.encode_to_vec()?);
/// let raw_data = |options: DecodeOptions| {
///     TensorProto::decode_with(&input, &options).map(|tensor| tensor.raw_data.unwrap())
/// };
/// assert!(raw_data(DecodeOptions::new())?.same_owner(&input));
/// assert_eq!(raw_data(DecodeOptions::new().no_copy(false))?.ownership(), Ownership::Owned);
///
/// let page = DecodeOptions::new().alignment(Alignment::PAGE);
/// assert_eq!(raw_data(page.clone())?.as_ptr().addr() % 4096, 0); // a copy
/// assert!(raw_data(page.no_copy(true)).is_err()); // an odd place in the input
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DecodeOptions {
    #[doc(hidden)]
    pub limits: Limits,
    threads: usize,
    #[doc(hidden)]
    pub buffers: TensorBufferOptions,
    copying: Copying,
    /// Whether only what holds tensors is decoded.
    #[doc(hidden)]
    pub outline: bool,
}

impl DecodeOptions {
    /// The defaults: the usual [`Limits`], and every core for a large message.
    pub fn new() -> Self {
        let buffers = TensorBufferOptions::new().raw_data_threshold(1024);
        let copying = Copying::WhereUnaligned;
        Self { limits: Limits::new(), threads: 0, buffers, copying, outline: false }
    }

    /// How deep messages may nest and how much memory they may take: [`Limit::Nesting`] and
    /// [`Limit::Memory`](crate::Limit::Memory) of `limits`. The others are for whole models,
    /// see `LoadOptions::limits`.
    ///
    /// [`Limit::Nesting`]: crate::Limit::Nesting
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How many threads may decode a large message; 0, the default, is one for each core. The
    /// result does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether decoding must not copy the input, or must copy it. Without this call, the message is
    /// made of slices of the input, and only a tensor whose bytes do not have the requested
    /// [`alignment`](Self::alignment) is copied.
    ///
    /// - `true`: nothing is copied. A tensor that is not aligned is [`ErrorKind::Unsupported`].
    /// - `false`: everything is copied, and the input can be freed. A tensor at or above the
    ///   [threshold](Self::raw_data_threshold) has its own memory, which is freed with it; shorter
    ///   values, such as names, share blocks of memory.
    #[must_use]
    pub fn no_copy(mut self, no_copy: bool) -> Self {
        self.copying = if no_copy { Copying::Never } else { Copying::Always };
        self
    }

    /// The least number of bytes from which a tensor's `raw_data` is aligned and, if the message is
    /// copied, has its own memory. Default: 1024.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.buffers.raw_data_threshold = bytes;
        self
    }

    /// The alignment of the addresses of `raw_data` at or above the threshold. Default: `None`, any
    /// address. Packed fields such as `float_data` are not aligned.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.buffers.alignment = alignment.into();
        self
    }

    fn thread_count(&self) -> usize {
        match self.threads {
            0 => spread::cores(),
            threads => threads,
        }
    }
}

impl From<TensorBufferOptions> for DecodeOptions {
    fn from(buffers: TensorBufferOptions) -> Self {
        Self { buffers, ..Self::default() }
    }
}

impl AsRef<TensorBufferOptions> for DecodeOptions {
    fn as_ref(&self) -> &TensorBufferOptions {
        &self.buffers
    }
}

impl From<DecodeOptions> for TensorBufferOptions {
    fn from(options: DecodeOptions) -> Self {
        options.buffers
    }
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Zeroed memory. The system provides its pages only when they are written to.
fn zeros(len: u64) -> Result<Vec<u8>> {
    let room = |len| Vec::<u8>::new().try_reserve_exact(len).is_ok().then_some(len);
    let len = usize::try_from(len).ok().and_then(room).ok_or(len);
    len.map(|len| vec![0; len])
        .map_err(|len| Error::new(ErrorKind::TooLarge, format!("{len} bytes of memory")))
}

/// What stopped the writing: an error of this crate where a source of bytes failed, or `out`'s own.
fn write_error(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    error.downcast().unwrap_or_else(|error| Error::new(kind, error.to_string()))
}
