//! Lists of blocks as MiniMalloc reads and writes them: `id,lower,upper,size[,alignment][,offset]`.
//!
//! The first line names the columns, in any order. As in MiniMalloc, `upper` is the step after the
//! last one that needs the block, and the names of older files are known: `start` or `begin`, and
//! `end`, which is the last step itself. Fields may be quoted, as in RFC 4180. The files come from
//! strangers: every error names the line, and there are limits.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Read;

use csv::{ReaderBuilder, StringRecord};
use onnx_container::Alignment;

use super::{Block, Row, refused};
use crate::exact::Exact;
use crate::numeric::broadcast::saturated;
use crate::{Error, Result};

/// The longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 28;
/// The most blocks that a file can have.
const MAX_BLOCKS: usize = 1 << 17;

/// A block with the name that a file gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name, which no other block of the file has.
    pub id: String,
    /// The block; one with an offset in the file is fixed there.
    pub block: Block,
}

/// Reads blocks from a file that MiniMalloc reads too.
///
/// ```
/// use onnx_container_machine::plan::read_csv;
///
/// let blocks = read_csv("id,lower,upper,size\nb1,0,3,4\nb2,3,9,8\n".as_bytes())?;
/// assert_eq!((blocks[1].id.as_str(), blocks[1].block.bytes), ("b2", 8));
/// assert_eq!(blocks[1].block.steps, 3..9);
/// let error = read_csv("id,lower,upper,size\nb1,0,3,many\n".as_bytes()).unwrap_err();
/// assert_eq!(error.to_string(), "line 2: size `many` is no whole number below 2^64");
/// # Ok::<(), onnx_container_machine::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Plan`](crate::ErrorKind::Plan) names the line that is wrong: an unknown or missing
/// column, a field too many or too few, a text that is not a number, steps that end before they
/// begin, an id that an earlier line has. Files over 256 MiB or over 131,072 blocks are refused.
/// [`ErrorKind::Container`](crate::ErrorKind::Container) when `file` cannot be read.
pub fn read_csv(file: impl Read) -> Result<Vec<Named>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(onnx_container::Error::from)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refused("the file is longer than 256 MiB".to_owned()));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.debug_part(..error.valid_up_to());
        at_line(
            before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1,
            "this is not UTF-8",
        )
    })?;
    let text = text.trim_start_matches('\u{feff}');
    // Rows of another length are refused here, with what is wrong in the words of this format.
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let is_blank =
        |row: &StringRecord| row.len() == 1 && row.iter().all(|field| field.trim().is_empty());
    let rows = reader.records().filter(|row| !row.as_ref().is_ok_and(is_blank));
    let mut rows = rows.map(|row| row.map_err(|error| refused(error.to_string())));
    let header = rows.next().ok_or_else(|| refused("the file is empty".to_owned()))??;
    let columns = columns(&header).map_err(|reason| at_line(line_of(text, &header), &reason))?;
    read_blocks(text, rows, &columns)
}

/// The number of the line of `text` in which `row` begins, from 1. The reader counts a row from the
/// empty lines before it on.
fn line_of(text: &str, row: &StringRecord) -> u64 {
    let Some(position) = row.position() else { return 1 };
    let rest = text.as_bytes().debug_part(saturated(position.byte())..).iter();
    let is_break = |c: &&u8| matches!(c, b'\r' | b'\n');
    let breaks = rest.take_while(is_break).filter(|c| **c == b'\n').count();
    position.line() + breaks as u64
}

fn read_blocks(
    text: &str,
    rows: impl Iterator<Item = Result<StringRecord>>,
    columns: &[Column],
) -> Result<Vec<Named>> {
    let mut blocks = Vec::new();
    let mut ids = HashSet::new();
    for row in rows {
        let row = row?;
        let number = line_of(text, &row);
        let named = read_block(&row, columns).map_err(|reason| at_line(number, &reason))?;
        if !ids.insert(named.id.clone()) {
            return Err(at_line(number, &format!("an earlier line has the id `{}` too", named.id)));
        }
        if blocks.len() == MAX_BLOCKS {
            return Err(at_line(number, &format!("a file holds at most {MAX_BLOCKS} blocks")));
        }
        blocks.push(named);
    }
    Ok(blocks)
}

fn at_line(line: u64, reason: &str) -> Error {
    refused(format!("line {line}: {reason}"))
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    /// The last step, in place of the one after it.
    End,
    Size,
    Alignment,
    Offset,
    Gaps,
}

impl Column {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "id" | "buffer" | "buffer_id" => Ok(Self::Id),
            "lower" | "start" | "begin" => Ok(Self::Lower),
            "upper" => Ok(Self::Upper),
            "end" => Ok(Self::End),
            "size" => Ok(Self::Size),
            "alignment" => Ok(Self::Alignment),
            "offset" => Ok(Self::Offset),
            "gaps" => Ok(Self::Gaps),
            _ => Err(format!(
                "unknown column `{name}`; known are id (or buffer, buffer_id), lower (or start, begin), \
                 upper (or end, the last step itself), size, alignment, offset and gaps"
            )),
        }
    }

    /// What the column says, whichever of its names it has.
    fn subject(self) -> Self {
        if self == Self::End { Self::Upper } else { self }
    }
}

/// The columns that the first line names.
fn columns(header: &StringRecord) -> Result<Vec<Column>, String> {
    let mut columns: Vec<Column> = Vec::new();
    for name in header {
        let column = Column::named(name.trim())?;
        if columns.iter().any(|other| other.subject() == column.subject()) {
            return Err(format!("a second column for what `{}` says", name.trim()));
        }
        columns.push(column);
    }
    let needed = [
        (Column::Id, "id"),
        (Column::Lower, "lower"),
        (Column::Upper, "upper"),
        (Column::Size, "size"),
    ];
    for (column, name) in needed {
        if columns.iter().all(|other| other.subject() != column) {
            return Err(format!(
                "the first line names the columns, and `{name}` is not among them"
            ));
        }
    }
    Ok(columns)
}

fn read_block(row: &StringRecord, columns: &[Column]) -> Result<Named, String> {
    if row.len() != columns.len() {
        return Err(format!("{} fields for {} columns", row.len(), columns.len()));
    }
    let mut named = Named { id: String::new(), block: Block::new(0..0, 0) };
    for (column, field) in columns.iter().zip(row) {
        named.set(*column, field)?;
    }
    let steps = &named.block.steps;
    if steps.end < steps.start {
        return Err(format!("the block is needed from step {} to step {}", steps.start, steps.end));
    }
    Ok(named)
}

impl Named {
    fn set(&mut self, column: Column, field: &str) -> Result<(), String> {
        let block = &mut self.block;
        // Line breaks are part of an id that is in quotes.
        let (id, field) = (field.trim_matches([' ', '\t']), field.trim());
        match column {
            Column::Id => self.id = unescaped(id),
            Column::Lower => block.steps.start = number("lower", field)?,
            Column::Upper => block.steps.end = number("upper", field)?,
            Column::End => {
                let end = number("end", field)?.checked_add(1);
                block.steps.end = end.ok_or("end is greater than any step")?;
            }
            Column::Size => block.bytes = number("size", field)?,
            Column::Alignment => {
                let alignment = Alignment::new(number("alignment", field)?);
                block.alignment = alignment.map_err(|error| error.to_string())?;
            }
            Column::Offset if field.is_empty() => {}
            Column::Offset => block.offset = Some(number("offset", field)?),
            Column::Gaps if field.is_empty() => {}
            Column::Gaps => return Err("blocks with gaps cannot be planned".to_owned()),
        }
        Ok(())
    }
}

/// A number in decimal digits.
fn number(name: &str, field: &str) -> Result<u64, String> {
    let digits = Some(field).filter(|field| field.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| format!("{name} `{}` is no whole number below 2^64", Shown(field)))
}

/// The beginning of a field, as an error shows it.
struct Shown<'t>(&'t str);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().take(40).try_for_each(|c| f.write_char(c))
    }
}

/// Writes blocks and their offsets as MiniMalloc does: `id,lower,upper,size,offset`, with a column
/// `alignment` when a block has one.
///
/// Names with commas, quotes or line breaks are quoted as [RFC
/// 4180](https://www.rfc-editor.org/rfc/rfc4180) has it, and [`read_csv`] reads them back;
/// MiniMalloc knows no quotes. Other control characters and backslashes are written as `\u{1b}`,
/// because the list may be shown on a terminal.
pub fn write_csv(rows: &[Row<'_>]) -> String {
    let aligned = rows.iter().any(|row| row.block.alignment != Alignment::DENSE);
    let columns = if aligned { "size,alignment,offset" } else { "size,offset" };
    let mut text = format!("id,lower,upper,{columns}\n");
    for Row { id, block, offset } in rows {
        let Block { steps, bytes, alignment, .. } = block;
        let alignment = if aligned { format!(",{}", alignment.bytes()) } else { String::new() };
        push_quoted(&mut text, id);
        text.push_str(&format!(",{},{},{bytes}{alignment},{offset}\n", steps.start, steps.end));
    }
    text
}

/// Adds `name` as a field, in quotes if it needs them.
fn push_quoted(text: &mut String, name: &str) {
    let quote = if name.contains([',', '"', '\n', '\r']) { "\"" } else { "" };
    text.push_str(quote);
    let last = name.chars().count().saturating_sub(1);
    for (at, c) in name.chars().enumerate() {
        match c {
            '"' => text.push_str("\"\""),
            // A reader takes them off both ends.
            ' ' | '\t' if at == 0 || at == last => text.extend(c.escape_unicode()),
            '\n' | '\r' | '\t' => text.push(c),
            c if c.is_control() || c == '\\' => text.extend(c.escape_unicode()),
            c => text.push(c),
        }
    }
    text.push_str(quote);
}

/// `field` with what [`push_quoted`] escaped as it was. What is no escape stays.
fn unescaped(field: &str) -> String {
    let (before, escapes) = match field.split_once("\\u{") {
        Some((before, escapes)) => (before, Some(escapes)),
        None => (field, None),
    };
    let mut text = before.to_owned();
    for part in escapes.into_iter().flat_map(|escapes| escapes.split("\\u{")) {
        let escape = part.split_once('}').and_then(|(digits, rest)| {
            let code = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
            Some((char::from_u32(code)?, rest))
        });
        match escape {
            Some((c, rest)) => {
                text.push(c);
                text.push_str(rest);
            }
            None => {
                text.push_str("\\u{");
                text.push_str(part);
            }
        }
    }
    text
}
