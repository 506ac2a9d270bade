//! What the command prints.
//!
//! Names in a model are untrusted, so control characters are escaped: no name can forge a line or
//! move a terminal's cursor. A reader that closes the pipe (`| head`) is no error: the rest of the
//! output is dropped, and the exit code is the same as without it.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Serialize, Serializer};

/// A path in JSON, which has no way to say bytes that are not UTF-8: they become `\u{FFFD}`.
pub fn lossy<S: Serializer>(path: impl AsRef<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_ref().display())
}

/// As [`lossy`], where there may be none.
pub fn lossy_or_null<S: Serializer>(
    path: &Option<impl AsRef<Path>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => lossy(path, serializer),
        None => serializer.serialize_none(),
    }
}

/// Whether something was printed to standard output.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether something was printed to standard output, so that nothing can be put before it.
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// The width that lines keep to where their parts allow it, in characters.
const WIDTH: usize = 80;

/// The width of the labels of a report, in characters.
pub const LABEL: usize = 10;

/// The most characters of a name where JSON has it in full: exporters make names of hundreds.
const LONGEST_NAME: usize = 60;

/// Standard output.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<Stdout>,
    closed: bool,
}

impl Output {
    /// Standard output, buffered.
    pub fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout()), closed: false }
    }

    /// Prints one line.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self, "{}", Escaped(text))
    }

    /// Prints one line: on a terminal folded between its words, with further lines indented by
    /// `indent`, else whole, for programs that read lines. No word is cut, so paths can be copied.
    pub fn folded(&mut self, text: impl Display, indent: usize) -> io::Result<()> {
        if !io::stdout().is_terminal() {
            return self.line(text);
        }
        folded(&Escaped(text).to_string(), indent, WIDTH)
            .into_iter()
            .try_for_each(|line| writeln!(self, "{line}"))
    }

    /// Prints a row of a report, as [`folded`](Self::folded).
    pub fn folded_row(&mut self, label: &str, text: impl Display) -> io::Result<()> {
        self.folded(format_args!("{label:<LABEL$}{text}"), LABEL)
    }

    /// Prints a row of a report: its label and `text`.
    pub fn row(&mut self, label: &str, text: impl Display) -> io::Result<()> {
        self.line(format_args!("{label:<LABEL$}{text}"))
    }

    /// Prints a row of a report whose `text` may need several lines: [`prose`](Self::prose).
    pub fn prose_row(&mut self, label: &str, text: impl Display) -> io::Result<()> {
        self.prose(&format!("{label:<LABEL$}"), text)
    }

    /// Prints a row of a report whose `parts`, with `separator` between them, may need several
    /// lines.
    pub fn row_of_parts(
        &mut self,
        label: &str,
        parts: impl IntoIterator<Item = String>,
        separator: &str,
    ) -> io::Result<()> {
        self.wrapped(format!("{label:<LABEL$}"), parts, separator, LABEL)
    }

    /// Prints `parts` after `start`, with `separator` between them, in as many lines as are needed;
    /// each further line is indented by `indent`.
    pub fn wrapped(
        &mut self,
        start: String,
        parts: impl IntoIterator<Item = String>,
        separator: &str,
        indent: usize,
    ) -> io::Result<()> {
        wrapped(start, parts, separator, (indent, WIDTH))
            .into_iter()
            .try_for_each(|line| self.line(line))
    }

    /// Prints a row of a list: as [`wrapped`](Self::wrapped) on a terminal, else in one line, for
    /// programs that read lines.
    pub fn listed(
        &mut self,
        start: String,
        parts: impl IntoIterator<Item = String>,
        separator: &str,
        indent: usize,
    ) -> io::Result<()> {
        if io::stdout().is_terminal() {
            return self.wrapped(start, parts, separator, indent);
        }
        let parts: Vec<_> = parts.into_iter().collect();
        self.line(format!("{start}{}", parts.join(separator)).trim_end())
    }

    /// Prints `text` after `start`, in as many lines as its words need; each further line is
    /// indented as far as the first one. Long words are names, which are shortened, unless they are
    /// digests.
    pub fn prose(&mut self, start: &str, text: impl Display) -> io::Result<()> {
        let text = text.to_string();
        let words = text
            .split(' ')
            .map(|word| if has_digest(word) { word.to_owned() } else { short_name(word) });
        self.wrapped(start.to_owned(), words, " ", start.chars().count())
    }

    /// Prints a value as JSON.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *self, value)?;
        self.write_all(b"\n")
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }

    /// The result of a write; from a broken pipe on, all writes succeed and do nothing.
    fn settle<T>(&mut self, result: io::Result<T>, dropped: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(dropped)
            }
            other => other,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BEGUN.store(true, Ordering::Relaxed);
        if self.closed {
            return Ok(bytes.len());
        }
        let result = self.out.write(bytes);
        self.settle(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let result = self.out.flush();
        self.settle(result, ())
    }
}

/// Prints one line on stderr. A failure is ignored, because it could be reported nowhere else.
pub fn print_on_stderr(text: impl Display) {
    let text = Escaped(text).to_string();
    let lines = match io::stderr().is_terminal() {
        true => folded(&text, INDENT_OF_ERRORS, WIDTH),
        false => vec![text],
    };
    // In one call: standard error has no buffer.
    let _ = io::stderr().write_all(format!("{}\n", lines.join("\n")).as_bytes());
}

/// How far the further lines of an error are indented on a terminal.
const INDENT_OF_ERRORS: usize = 4;

/// `text` in lines of at most `width` characters where its words allow it; each further line is
/// indented by `indent`.
fn folded(text: &str, indent: usize, width: usize) -> Vec<String> {
    wrapped(String::new(), text.split(' '), " ", (indent, width))
}

/// `start` and `parts`, with `separator` between them, in lines of at most `width` characters where
/// the parts allow it; each further line is indented by `indent`.
fn wrapped(
    start: String,
    parts: impl IntoIterator<Item = impl AsRef<str>>,
    separator: &str,
    (indent, width): (usize, usize),
) -> Vec<String> {
    let len = |text: &str| text.chars().count();
    let (mut lines, mut line, mut between) = (Vec::new(), start, "");
    for part in parts {
        let part = part.as_ref();
        let is_begun = !line.trim().is_empty();
        if is_begun && len(&line) + len(between) + len(part) > width {
            lines.push(format!("{line}{between}").trim_end().to_owned());
            line = " ".repeat(indent);
        } else if is_begun || lines.is_empty() {
            line += between;
        }
        line += part;
        between = separator;
    }
    lines.push(line.trim_end().to_owned());
    lines
}

/// `text` as lines show it: with control characters and backslashes escaped.
#[cfg(test)]
pub fn escaped(text: impl Display) -> impl Display {
    Escaped(text)
}

/// Text with its control characters and its backslashes escaped, so that escapes are unambiguous.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if is_harmless(c) {
                self.0.write_char(c)
            } else {
                write!(self.0, "{}", c.escape_default())
            }
        })
    }
}

/// Whether `c` is shown as it is: it is no control character, does not change the direction of text
/// and is not the backslash that begins an escape.
fn is_harmless(c: char) -> bool {
    !c.is_control() && c != '\\' && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text`, with `...` in place of its middle when it has more than `most` characters.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let len = text.chars().count();
    if len <= most {
        return text.into();
    }
    let kept = most.saturating_sub(3);
    let start = text.chars().take(kept / 2);
    let end = text.chars().skip(len - (kept - kept / 2));
    start.chain("...".chars()).chain(end).collect()
}

/// Whether a word is a SHA-256, which is compared with another: it is never cut.
fn has_digest(word: &str) -> bool {
    let digits = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `name`, without its middle if it is so long that lines around it could not be read.
pub fn short_name(name: &str) -> String {
    cut(name, LONGEST_NAME).into_owned()
}

/// `path` without a `./` before it.
pub fn tidy(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// A number with at most six digits, as a person writes it: `0.001`, `51.79`, `1.5e-12`.
pub struct Number(pub f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0;
        if !number.is_finite() || number == 0.0 {
            return write!(f, "{number}");
        }
        // Rounded first, because the rounded number decides whether it is shown with an exponent.
        let rounded = format!("{number:.5e}");
        let rounded = rounded.parse::<f64>().unwrap_or(number);
        if (1e-4..1e6).contains(&rounded.abs()) {
            write!(f, "{rounded}")
        } else {
            write!(f, "{rounded:e}")
        }
    }
}

/// `1 tensor`, `2 tensors`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_between_words() {
        let cases: [(&str, usize, &[&str]); 8] = [
            ("", 2, &[""]),
            ("one two", 2, &["one two"]),
            ("error: one two three", 4, &["error: one", "    two", "    three"]),
            ("row       one  two", 4, &["row", "    one", "    two"]),
            ("  indented text here", 4, &["  indented", "    text", "    here"]),
            ("averylongwordofall x", 2, &["averylongwordofall", "  x"]),
            ("x averylongwordofall", 2, &["x", "  averylongwordofall"]),
            ("éééé éééé ééé", 0, &["éééé éééé", "ééé"]),
        ];
        for (text, indent, expected) in cases {
            assert_eq!(folded(text, indent, 10), expected, "{text}");
        }
    }

    #[test]
    fn lists_are_wrapped_behind_their_separators() {
        let cases: [(&str, &[&str], &[&str]); 5] = [
            ("list  ", &[], &["list"]),
            ("list  ", &["a", "b"], &["list  a, b"]),
            ("list  ", &["one", "two"], &["list  one,", "  two"]),
            ("  ", &["one", "two", "three"], &["  one, two,", "  three"]),
            ("", &["averylongwordofall", "x"], &["averylongwordofall,", "  x"]),
        ];
        for (start, parts, expected) in cases {
            assert_eq!(wrapped(start.to_owned(), parts, ", ", (2, 10)), expected, "{parts:?}");
        }
    }

    #[test]
    fn numbers_have_six_digits() {
        let cases = [
            (0.0, "0"),
            (1e-3, "0.001"),
            (-1.0 / 3.0, "-0.333333"),
            (51.789_992_886_56, "51.79"),
            (1.000_000_003_725, "1"),
            (999_999.9, "1e6"),
            (7.84e-10, "7.84e-10"),
            (f64::INFINITY, "inf"),
        ];
        for (number, text) in cases {
            assert_eq!(Number(number).to_string(), text);
        }
    }

    #[test]
    fn names_cannot_forge_lines() {
        assert_eq!(
            Escaped("a\nerror: b\u{1b}[2J\u{202e}é\\n").to_string(),
            "a\\nerror: b\\u{1b}[2J\\u{202e}é\\\\n"
        );
    }
}
