//! Names of values as they are given: lists with commas, and pairs with `=`. A name may have either
//! character, so the values of the models tell where a text is split. A text that they allow to
//! split in two ways is refused. A doubled character always belongs to a name.

use std::collections::HashSet;
use std::iter;

use onnx_container::Container;
use onnx_container::proto::{GraphProto, ValueInfoProto};

use crate::terminal::failure::Failure;
use crate::terminal::shell::quoted;

/// The names of the values of a main graph.
pub struct Values(HashSet<String>);

impl Values {
    /// Those of its inputs, initializers and nodes.
    pub fn of(container: &Container) -> Self {
        let Some(graph) = graph(container) else { return Self(HashSet::new()) };
        let sparse = graph.sparse_initializer.iter().filter_map(|one| one.values.as_deref());
        let tensors = graph.initializer.iter().chain(sparse).filter_map(|one| one.name.as_ref());
        let results = graph.node.iter().flat_map(|node| &node.output);
        let named = tensors.chain(results).map(ToString::to_string);
        Self(named.chain(names(&graph.input)).collect())
    }

    /// The names in `texts`, which `option` gives. Each text is a name, or several with commas
    /// between them.
    pub fn split(&self, option: &str, texts: &[String]) -> Result<Vec<String>, Failure> {
        let split = texts.iter().map(|text| self.split_one(option, text));
        Ok(split.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn split_one(&self, option: &str, text: &str) -> Result<Vec<String>, Failure> {
        let mut readings = Splits::of(text, &self.0).readings();
        let ways = readings.iter().map(|names| (names.clone(), repeated(option, names)));
        refuse_two(option, text, ways)?;
        Ok(readings.pop().unwrap_or_else(|| self.split_unknown(text)))
    }

    /// The names in a text that cannot be split into values alone. The longest name that is there
    /// comes first, so that an error is about one that is not.
    fn split_unknown(&self, text: &str) -> Vec<String> {
        let (mut found, mut rest) = (Vec::new(), Some(text));
        while let Some(text) = rest {
            let (name, after) = self.first(text);
            found.push(name.to_owned());
            rest = after;
        }
        found
    }

    /// The longest beginning of `text` that is a name and ends at a comma, or what is before the
    /// first comma; and what comes after it.
    fn first<'t>(&self, text: &'t str) -> (&'t str, Option<&'t str>) {
        if self.0.contains(text) {
            return (text, None);
        }
        let mut splits = text.rmatch_indices(',').filter_map(|(at, _)| text.split_at_checked(at));
        let named = splits.find(|(name, _)| self.0.contains(*name));
        let first = named.map(|(name, after)| (name, after.strip_prefix(',')));
        first
            .or_else(|| text.split_once(',').map(|(name, after)| (name, Some(after))))
            .unwrap_or((text, None))
    }
}

/// The ways to split a list into names of values.
struct Splits<'t> {
    text: &'t str,
    names: &'t HashSet<String>,
    /// Where the parts between commas start, and where one after the end would.
    starts: Vec<usize>,
    /// From the last part to the first: the fewest and the most parts that a name has which starts
    /// there, where the rest can be split too.
    steps: Vec<Option<(usize, usize)>>,
}

impl<'t> Splits<'t> {
    fn of(text: &'t str, names: &'t HashSet<String>) -> Self {
        let after_commas =
            text.match_indices(',').map(|(at, comma)| at.saturating_add(comma.len()));
        let end = text.len().saturating_add(1);
        let starts: Vec<_> = iter::once(0).chain(after_commas).chain([end]).collect();
        let mut splits = Self { text, names, starts, steps: Vec::new() };
        // A comma of a name may be doubled.
        let most = names.iter().map(|name| 2 * name.matches(',').count() + 1).max().unwrap_or(1);
        let parts = splits.parts();
        for first in (0..parts).rev() {
            let is_name =
                |take: &usize| splits.is_end(first + take) && splits.name(first, *take).is_some();
            let mut takes = (1..=most.min(parts - first)).filter(is_name);
            let step = takes.next().map(|least| (least, takes.next_back().unwrap_or(least)));
            splits.steps.push(step);
        }
        splits
    }

    /// The number of parts between commas.
    fn parts(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// What was found for the part with this number.
    fn step(&self, part: usize) -> Option<(usize, usize)> {
        let from_the_end = self.parts().checked_sub(part)?.checked_sub(1)?;
        self.steps.get(from_the_end).copied().flatten()
    }

    /// Whether a name may end before this part.
    fn is_end(&self, part: usize) -> bool {
        part == self.parts() || self.step(part).is_some()
    }

    /// The name that these parts are.
    fn name(&self, first: usize, take: usize) -> Option<String> {
        let (start, end) = (self.starts.get(first)?, self.starts.get(first.checked_add(take)?)?);
        let piece = self.text.get(*start..end.checked_sub(1)?)?;
        meant(piece, ",", |name| self.names.contains(name))
    }

    /// No way, the only one, or two of several.
    fn readings(&self) -> Vec<Vec<String>> {
        let all = [self.reading(|(least, _)| least), self.reading(|(_, most)| most)];
        let mut all: Vec<_> = all.into_iter().flatten().collect();
        all.dedup();
        all
    }

    fn reading(&self, choose: fn((usize, usize)) -> usize) -> Option<Vec<String>> {
        let (mut names, mut part) = (Vec::new(), 0);
        while part < self.parts() {
            let take = choose(self.step(part)?);
            names.push(self.name(part, take)?);
            part = part.checked_add(take)?;
        }
        Some(names)
    }
}

/// The name that `piece` is, as it stands or with doubled separators for single ones.
fn meant(piece: &str, separator: &str, is_name: impl Fn(&str) -> bool) -> Option<String> {
    let single = piece.replace(&separator.repeat(2), separator);
    [piece.to_owned(), single].into_iter().find(|name| is_name(name))
}

/// The option as it gives these names one by one.
fn repeated(option: &str, names: &[String]) -> String {
    let one = |name: &String| format!("{option} {}", quoted(&name.replace(',', ",,")));
    names.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Refuses a text with two readings: the names in each, and how it is given alone.
fn refuse_two(
    option: &str,
    text: &str,
    readings: impl IntoIterator<Item = (Vec<String>, String)>,
) -> Result<(), Failure> {
    let mut ways = readings.into_iter().map(|(names, given)| {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("{} is {given}", names.join(" and "))
    });
    let (Some(one), Some(other)) = (ways.next(), ways.next()) else { return Ok(()) };
    let reason = format!("{option} {} can mean two things: {one}; {other}", quoted(text));
    Err(Failure::Usage(reason))
}

/// The two names in each of `texts`, which `option` gives with a `=` between them: of `of_a` and
/// `of_b` where a split gives such, else split at the first `=`.
pub fn pairs(
    option: &str,
    texts: &[String],
    of_a: &[ValueInfoProto],
    of_b: &[ValueInfoProto],
) -> Result<Vec<(String, String)>, Failure> {
    let (of_a, of_b): (HashSet<_>, HashSet<_>) =
        (names(of_a).into_iter().collect(), names(of_b).into_iter().collect());
    let pair = |text: &String| {
        let splits = text.match_indices('=').filter_map(|(at, _)| text.split_at_checked(at));
        let mut splits = splits.filter_map(|(from, to)| Some((from, to.strip_prefix('=')?)));
        let known = splits.clone().filter_map(|(from, to)| {
            let from = meant(from, "=", |name| of_a.contains(name))?;
            Some((from, meant(to, "=", |name| of_b.contains(name))?))
        });
        let ways = known.clone().map(|(from, to)| {
            let given = format!("{}={}", from.replace('=', "=="), to.replace('=', "=="));
            (vec![from, to], format!("{option} {}", quoted(&given)))
        });
        refuse_two(option, text, ways)?;
        let unknown = splits.next().map(|(from, to)| (from.to_owned(), to.to_owned()));
        Ok::<_, Failure>(known.clone().next().or(unknown))
    };
    Ok(texts.iter().map(pair).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// The main graph.
pub fn graph(container: &Container) -> Option<&GraphProto> {
    container.model().graph.as_deref()
}

/// The names of values.
pub fn names(infos: &[ValueInfoProto]) -> Vec<String> {
    infos.iter().filter_map(|info| Some(info.name.as_ref()?.to_string())).collect()
}
