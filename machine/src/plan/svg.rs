//! A drawing of a plan: offset against step, one rectangle for each block.
//!
//! Names come from strangers, so everything that XML or a terminal could take for more than text is
//! escaped. A reader points at a rectangle to see its name, or reads it where there is room.

use std::fmt::{self, Display};

use onnx_container::ByteSize;

use super::{Plan, Row};

/// The size of the drawing, and the margins around the plot, in pixels.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 760.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 60.0;
/// What a letter of a name takes, in pixels.
const LETTER: f64 = 6.5;
/// About how many ticks an axis has.
const TICKS: u64 = 10;

const STYLE: &str = "text{font:11px monospace;fill:#222}.title{font-size:14px}\
    .block{fill:#9ecae1;stroke:#3182bd;stroke-width:.5}.peak{fill:#fdae6b;stroke:#e6550d}\
    .axis{stroke:#222}.bound{stroke:#d62728;stroke-dasharray:6 4}.grid{stroke:#ddd}\
    .end{text-anchor:end}.middle{text-anchor:middle}";

/// Draws `rows`, the blocks of `plan`, as an SVG file.
pub fn draw_svg(rows: &[Row<'_>], plan: &Plan) -> String {
    let drawing = Drawing::new(rows, plan);
    let parts = [
        drawing.head(),
        drawing.axes(),
        rows.iter().filter_map(|row| drawing.block(row)).collect(),
        drawing.lines(),
        "</svg>\n".to_owned(),
    ];
    parts.concat()
}

/// The plan with the range of its steps.
struct Drawing<'p> {
    plan: &'p Plan,
    blocks: usize,
    first_step: u64,
    end_step: u64,
}

impl<'p> Drawing<'p> {
    fn new(rows: &[Row<'_>], plan: &'p Plan) -> Self {
        let steps = || rows.iter().filter(|row| !row.block.is_empty()).map(|row| &row.block.steps);
        let first = steps().map(|steps| steps.start).min();
        let end = steps().map(|steps| steps.end).max();
        // Without blocks one step is drawn.
        let (first_step, end_step) = first.zip(end).unwrap_or((0, 1));
        Self { plan, blocks: rows.len(), first_step, end_step }
    }

    /// Where `step` begins, in pixels from the left.
    fn x(&self, step: u64) -> f64 {
        let part = ratio(step - self.first_step, self.end_step - self.first_step);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    /// Where `offset` lies, in pixels from the top; offset 0 is at the bottom.
    fn y(&self, offset: u64) -> f64 {
        HEIGHT - BOTTOM - ratio(offset, self.plan.arena_bytes) * (HEIGHT - TOP - BOTTOM)
    }

    fn head(&self) -> String {
        let Plan { arena_bytes, lower_bound, naive_sum, .. } = self.plan;
        let title = format_args!(
            "{} blocks in {} ({arena_bytes} bytes); lower bound {}; without sharing {}",
            self.blocks,
            ByteSize(*arena_bytes),
            ByteSize(*lower_bound),
            ByteSize(*naive_sum),
        );
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\">\n<style>{STYLE}</style>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>\n{}",
            legend(self.plan.peak_step)
        )
    }

    /// Both axes with their ticks.
    fn axes(&self) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let step_ticks = ticks(self.first_step, self.end_step).map(|step| {
            let (x, y) = (self.x(step), bottom + 16.0);
            format!("<text class=\"middle\" x=\"{x:.1}\" y=\"{y}\">{step}</text>\n")
        });
        let offset_ticks = ticks(0, self.plan.arena_bytes).map(|offset| {
            let (x, y, size) = (LEFT - 6.0, self.y(offset), ByteSize(offset));
            format!(
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text class=\"end\" x=\"{x}\" y=\"{y:.1}\">{size}</text>\n"
            )
        });
        let middle = (LEFT + right) / 2.0;
        let names = format!(
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n\
             <text class=\"middle\" x=\"{middle}\" y=\"{}\">step</text>\n\
             <text class=\"end\" x=\"{}\" y=\"{}\">offset</text>\n",
            bottom + 40.0,
            LEFT - 6.0,
            TOP - 14.0,
        );
        offset_ticks.chain(step_ticks).chain([names]).collect()
    }

    /// A rectangle, and the name of the block if it fits; nothing for an empty block.
    fn block(&self, row: &Row<'_>) -> Option<String> {
        let (block, name) = (row.block, Text(row.id));
        if block.is_empty() {
            return None;
        }
        let (x, y) = (self.x(block.steps.start), self.y(row.offset + block.bytes));
        let (width, height) = (self.x(block.steps.end) - x, self.y(row.offset) - y);
        let class = if block.steps.contains(&self.plan.peak_step) { "block peak" } else { "block" };
        let (size, last) = (ByteSize(block.bytes), block.steps.end - 1);
        let title = format_args!(
            "{name}: {size} ({} bytes) at offset {}, steps {} to {last}",
            block.bytes, row.offset, block.steps.start
        );
        let rectangle = format!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" \
             height=\"{height:.2}\"><title>{title}</title></rect>\n"
        );
        let letters: f64 = row.id.chars().map(|_| LETTER).sum();
        let label = if height >= 12.0 && width >= letters + 6.0 {
            let y = y + height / 2.0 + 4.0;
            format!("<text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>\n", x + 3.0)
        } else {
            String::new()
        };
        Some(rectangle + &label)
    }

    /// The lower bound.
    fn lines(&self) -> String {
        let (y, right) = (self.y(self.plan.lower_bound), WIDTH - RIGHT);
        format!(
            "<line class=\"bound\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\n"
        )
    }
}

/// What the colours mean.
fn legend(peak_step: u64) -> String {
    let peak = format!("needed at the peak, step {peak_step}");
    let boxes = [(LEFT, "block peak", peak.as_str()), (LEFT + 330.0, "block", "others")];
    let boxes = boxes.map(|(x, class, text)| {
        format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"36\" width=\"14\" height=\"12\"/>\
             <text x=\"{}\" y=\"46\">{text}</text>\n",
            x + 20.0
        )
    });
    let (x, end) = (LEFT + 450.0, LEFT + 480.0);
    let line = format!(
        "<line class=\"bound\" x1=\"{x}\" y1=\"42\" x2=\"{end}\" y2=\"42\"/>\
         <text x=\"{}\" y=\"46\">lower bound</text>\n",
        end + 6.0
    );
    boxes.concat() + &line
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Round numbers from `first` to `end`.
fn ticks(first: u64, end: u64) -> impl Iterator<Item = u64> {
    let least = ((end - first) / TICKS).max(1);
    let power = 10_u64.saturating_pow(least.ilog10());
    let distance = [1, 2, 5, 10].map(|n| power.saturating_mul(n));
    // None is enough only where ten times the power does not fit.
    let distance = distance.into_iter().find(|distance| *distance >= least).unwrap_or(least);
    (first.div_ceil(distance)..=end / distance).map(move |n| n * distance)
}

/// Text between tags.
struct Text<'t>(&'t str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            // XML has no way to say the others, and what turns the direction of text could forge
            // some.
            c if c.is_control() || is_bidi(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                write!(f, "{}", c.escape_unicode())
            }
            c => write!(f, "{c}"),
        })
    }
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
