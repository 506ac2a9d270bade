//! Why a model is not verified, in one line.

use std::collections::BTreeMap;

use crate::terms::{Term, Terms};
use crate::verdict::{ContentVerdict, FilesVerdict, Problem, ProblemKind as Kind};

/// What the verification was asked, beside the statements.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Whether only files are proof.
    pub files_required: bool,
    /// Whether content was signed, and a folder given, which has none.
    pub content_of_folder: bool,
    pub terms: Terms,
}

/// Why the statements do not verify the model; nothing where they do.
///
/// Files that hold need no more, and neither does content, unless files are required. Both
/// statements are about the model: one that does not hold is a contradiction, except that files of
/// the model may differ, and those that it had may be gone, where its content is as signed.
pub fn reason(
    files: Option<&FilesVerdict>,
    content: Option<&ContentVerdict>,
    asked: Asked,
) -> Option<String> {
    let compared = content.and_then(|content| content.as_signed);
    let content_fails = match content {
        Some(content) if compared == Some(false) => Some(differs(content)),
        Some(content) if content.error.is_some() => Some("the content was not compared".to_owned()),
        // Files that are as signed have no byte that was not signed.
        Some(ContentVerdict { ambiguous: Some(why), as_signed: Some(true), .. })
            if !files.is_some_and(|files| files.as_signed) =>
        {
            Some(format!("by its content alone, which is as signed: {why}"))
        }
        _ => None,
    };
    let files_fail = match (files, content) {
        (None, _) => asked.files_required.then(|| {
            let option = (asked.terms)(&Term::RequireFiles);
            format!("{option} needs a signature on files, and there is none")
        }),
        (Some(files), _) if files.as_signed => None,
        (Some(files), Some(content)) if compared == Some(true) => by_content(files, content, asked),
        (Some(files), _) => {
            let mut reason = summary(files.problems.iter(), files, asked.terms);
            if asked.content_of_folder {
                reason += "; the content was not compared: give the model";
            }
            Some(reason)
        }
    };
    match (files_fail, content_fails) {
        (Some(files), Some(content)) => Some(format!("{files}; {content}")),
        (files, content) => files.or(content),
    }
}

fn differs(content: &ContentVerdict) -> String {
    let about = match content.is_of_that_name {
        true => String::new(),
        false => format!(": its signature is about `{}`", content.signed_model),
    };
    format!("the content is not as signed{about}")
}

/// What of the files the content, which is as signed, does not excuse.
fn by_content(files: &FilesVerdict, content: &ContentVerdict, asked: Asked) -> Option<String> {
    let mut strict = files.not_excused(content).peekable();
    if strict.peek().is_some() {
        return Some(summary(strict, files, asked.terms));
    }
    asked.files_required.then(|| {
        let option = (asked.terms)(&Term::RequireFiles);
        format!("{option}, and {}", summary(files.problems.iter(), files, asked.terms))
    })
}

/// How many problems of each kind there are; the file, where it is one.
fn summary<'p>(
    problems: impl Iterator<Item = &'p Problem>,
    files: &FilesVerdict,
    terms: Terms,
) -> String {
    let mut kinds: BTreeMap<Kind, Vec<&Problem>> = BTreeMap::new();
    problems.for_each(|problem| kinds.entry(problem.kind).or_default().push(problem));
    let texts = kinds.iter().map(|(kind, problems)| {
        let what = of_kind(*kind, problems, files, terms);
        match problems.as_slice() {
            [one] => format!("`{}` {what}", one.path),
            many => format!("{} files {what}", many.len()),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn of_kind(kind: Kind, problems: &[&Problem], files: &FilesVerdict, terms: Terms) -> String {
    let is_model = problems.iter().any(|problem| files.model.as_ref() == Some(&problem.path));
    let is_needed = problems.iter().any(|problem| files.own.contains(&problem.path));
    let is_one = problems.len() == 1;
    let text = match (kind, is_one) {
        (Kind::Changed, true) => "was changed",
        (Kind::Changed, false) => "were changed",
        (Kind::Missing, true) => "was signed and is gone",
        (Kind::Missing, false) => "were signed and are gone",
        (Kind::Unsigned, true) if is_model => "is the model, and was not signed",
        (Kind::Unsigned, true) if is_needed => "was not signed, and the model needs it",
        (Kind::Unsigned, false) if is_needed => "were not signed, and the model needs some",
        (Kind::Unsigned, _) => {
            let (were, them) = if is_one { ("was", "it") } else { ("were", "them") };
            let option = terms(&Term::IgnoreUnsignedFiles);
            return format!("{were} not signed ({option} ignores {them})");
        }
        (Kind::Refused, true) => "was refused",
        (Kind::Refused, false) => "were refused",
    };
    text.to_owned()
}
