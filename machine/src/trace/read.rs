//! Reads a trace, which a stranger may have written: every line is checked, and the chain of
//! digests too.

use std::io::{BufRead, Read as _};

use super::{Chain, End, Head, Line, Step, Trace, VERSION, failed, json};
use crate::error::Result;

/// The longest line in bytes. A line names the inputs and outputs of one step; the head names the
/// weights.
const LONGEST: u64 = 256 << 20;

impl Trace {
    /// The trace in `lines`.
    ///
    /// # Errors
    /// [`ErrorKind::Trace`](crate::ErrorKind::Trace), with the number of the line: it is no JSON,
    /// lacks a key, or is not what was digested; the head is not first, steps are not in order, or
    /// the end is missing.
    pub fn read(lines: impl BufRead) -> Result<Self> {
        TraceReader { lines, number: 0, chain: Chain::default() }.trace()
    }
}

struct TraceReader<R> {
    lines: R,
    /// The number of the line that was read last, from 1.
    number: u64,
    chain: Chain,
}

impl<R: BufRead> TraceReader<R> {
    fn trace(mut self) -> Result<Trace> {
        let head = match self.next()? {
            Some(Line::Head(head)) => self.known(head)?,
            Some(_) => return Err(self.wrong("a trace begins with a line of `\"t\":\"head\"`")),
            None => return Err(failed("the file is empty")),
        };
        let mut steps: Vec<Step> = Vec::new();
        loop {
            match self.next()? {
                Some(Line::Step(step)) if step.i == steps.len() as u64 => steps.push(step),
                Some(Line::Step(step)) => {
                    let (i, expected) = (step.i, steps.len());
                    return Err(self.wrong(format_args!("step {i} stands where {expected} should")));
                }
                Some(Line::End(end)) => return self.finish(head, steps, end),
                Some(Line::Head(_)) => return Err(self.wrong("a second head")),
                None => {
                    let done = steps.len();
                    return Err(failed(format_args!(
                        "the trace has no end: the run stopped after {done} steps"
                    )));
                }
            }
        }
    }

    /// `head`, when it is of a version that is known here.
    fn known(&self, head: Head) -> Result<Head> {
        if head.v == VERSION {
            return Ok(head);
        }
        let v = head.v;
        Err(self.wrong(format_args!("version {v} of the format, {VERSION} is known here")))
    }

    fn finish(mut self, head: Head, steps: Vec<Step>, end: End) -> Result<Trace> {
        if end.steps != steps.len() as u64 {
            let (said, found) = (end.steps, steps.len());
            return Err(self.wrong(format_args!("the end counts {said} steps, there are {found}")));
        }
        match self.next()? {
            None => Ok(Trace { head, steps, end }),
            Some(_) => Err(self.wrong("a line after the end")),
        }
    }

    /// The next line, with its chain as it was stated; `None` after the last one.
    fn next(&mut self) -> Result<Option<Line>> {
        let mut text = Vec::new();
        self.number += 1;
        let read = (&mut self.lines).take(LONGEST).read_until(b'\n', &mut text);
        read.map_err(|error| self.wrong(error))?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.pop_if(|last| *last == b'\n').is_none() && text.len() as u64 >= LONGEST {
            return Err(self.wrong(format_args!("longer than {LONGEST} bytes")));
        }
        let mut line: Line = serde_json::from_slice(&text).map_err(|error| self.unread(&error))?;
        let (stated, stats) = line.take_chain();
        let stated = stated.ok_or_else(|| self.wrong("missing field `chain`"))?;
        if self.chain.next(&json(&line)?) != stated {
            return Err(
                self.wrong("its digest `chain` is another: this line or one before it changed")
            );
        }
        line.put_chain(stated, stats);
        Ok(Some(line))
    }

    /// A line that is no line of a trace. One that ends too early is the last one of a file that
    /// was cut off.
    fn unread(&self, error: &serde_json::Error) -> crate::error::Error {
        if !error.is_eof() {
            return self.wrong(error);
        }
        let expected = if self.number == 1 { "the head" } else { "a step or the end" };
        self.wrong(format_args!("the file was cut off: {expected} of the trace is not all there"))
    }

    fn wrong(&self, reason: impl std::fmt::Display) -> crate::error::Error {
        failed(format_args!("line {}: {reason}", self.number))
    }
}
