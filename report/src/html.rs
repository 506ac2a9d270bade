//! The page: one file with its style, its scripts and its data.
//!
//! The policy in its head allows these scripts and this style by their digests, and nothing else:
//! no other script, no frame, no image, no request. The data are no script, and are read as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onnx_container::{Error, Result};
use sha2::{Digest, Sha256};

use crate::encoded::Encoded;

/// What every page begins with, by which a later report knows that it may replace it.
pub(crate) const BEGINNING: &str = "<!doctype html>\n<!-- onnx-container report -->\n";

const TEMPLATE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/style.css");
/// Of https://d3js.org/d3-hierarchy/ 3.1.3, as it is on npm: `d3-hierarchy.LICENSE`.
const HIERARCHY: &str = include_str!("../page/d3-hierarchy.min.js");

/// The scripts, each after those that it uses.
const SCRIPTS: [&str; 12] = [
    include_str!("../page/text.js"),
    include_str!("../page/dom.js"),
    include_str!("../page/store.js"),
    include_str!("../page/table.js"),
    include_str!("../page/details.js"),
    include_str!("../page/overview.js"),
    include_str!("../page/treemap.js"),
    include_str!("../page/tensors.js"),
    include_str!("../page/files.js"),
    include_str!("../page/plan.js"),
    include_str!("../page/differences.js"),
    include_str!("../page/main.js"),
];

/// The page called `title` that shows `data`, which are JSON.
pub(crate) fn html(title: &str, data: Encoded) -> Result<String> {
    let script = format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat());
    let scripts = [HIERARCHY, &script].map(source).join(" ");
    let policy = format!(
        "default-src 'none'; script-src {scripts}; style-src {}; base-uri 'none'; form-action 'none'",
        source(STYLE)
    );
    let title = escaped(title);
    let values = [
        ("title", title.as_str()),
        ("policy", &policy),
        ("style", STYLE),
        ("encoding", data.encoding),
        ("data", &data.text),
        ("hierarchy", HIERARCHY),
        ("script", &script),
    ];
    filled(TEMPLATE, &values).map(|page| format!("{BEGINNING}{page}"))
}

/// How a policy names a script or style: by its digest.
fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// `text` between tags and in attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() || is_format(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

/// Whether `c` is not seen, or changes the direction of text.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// `template` with a value for each `{{name}}`. What is in a value is not looked at.
fn filled(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let len = template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>();
    let (mut page, mut rest) = (String::with_capacity(len), template);
    while let Some((before, after)) = rest.split_once("{{") {
        let unknown = || Error::internal("a template with an unknown name");
        let (name, after) = after.split_once("}}").ok_or_else(unknown)?;
        let value = values.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        page.push_str(before);
        page.push_str(value.1);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::encoded::Encoder;

    /// The page called `title` that shows this JSON.
    fn page_of(title: &str, json: &str) -> String {
        let mut encoder = Encoder::default();
        encoder.write_all(json.as_bytes()).unwrap();
        html(title, encoder.end().unwrap()).unwrap()
    }

    /// What is between `start` and `end`.
    fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
        text.split_once(start).unwrap().1.split_once(end).unwrap().0
    }

    #[test]
    fn the_page_has_words_for_every_kind_of_change() {
        for what in ["value_types", "documentation", "node_order", "attribute_order"] {
            let scripts = SCRIPTS.concat();
            let is_told = [format!("\"{what}\""), format!("{what}: \"")];
            assert!(is_told.iter().any(|told| scripts.contains(told)), "{what}");
        }
    }

    #[test]
    fn the_policy_has_the_digests_of_what_is_there() {
        let page = page_of("t", "{}");
        let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
        let style = between(&page, "<style>", "</style>");
        let scripts: Vec<_> = page
            .split("<script>")
            .skip(1)
            .map(|it| it.split_once("</script>").unwrap().0)
            .collect();
        assert_eq!(scripts.len(), 2);
        let expected = format!(
            "default-src 'none'; script-src {} {}; style-src {}; base-uri 'none'; form-action 'none'",
            source(scripts[0]),
            source(scripts[1]),
            source(style)
        );
        assert_eq!(policy, expected);
        // Before anything that it is for.
        assert!(page.find("Content-Security-Policy") < page.find("<style>"));
        assert_eq!(source(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
    }

    #[test]
    fn the_page_loads_nothing_and_sets_no_markup() {
        let page = page_of("t", "{}");
        for word in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"]
        {
            assert!(!SCRIPTS.concat().contains(word), "{word}");
        }
        for word in [" src=", "@import", "url(", "<link", "<iframe", "style=\""] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.len() < 300_000, "{} bytes without data", page.len());
    }

    #[test]
    fn templates_are_filled_once() {
        let values = [("a", "{{b}}"), ("b", "2")];
        assert_eq!(filled("<{{a}}{{b}}>", &values).unwrap(), "<{{b}}2>");
        assert!(filled("{{c}}", &values).is_err());
    }

    proptest! {
        #[test]
        fn no_text_ends_an_element(parts in prop::collection::vec(
            prop::sample::select(vec!["</script>", "<!--", "<script", "]]>", "{{data}}", "\u{202e}", "\u{2028}", "\0",
                "\"", "'", "&lt;", "a", "</title>", "\\u003c", "\\", "\u{7f}"]), 0..12)) {
            let hostile = parts.concat();
            let data = json!({ "name": hostile });
            let page = page_of(&hostile, &data.to_string());
            let found = between(&page, "data-encoding=\"json\">", "</script>");
            prop_assert!(!found.contains('<') && !found.contains('>') && !found.contains('&'));
            prop_assert_eq!(serde_json::from_str::<Value>(found).unwrap(), data);
            // As many elements as without the text.
            let tame = page_of("t", r#"{ "name": "t" }"#);
            prop_assert_eq!(page.matches('<').count(), tame.matches('<').count());
            let title = between(&page, "<title>", "</title>");
            prop_assert!(!title.contains('"') && !title.chars().any(|c| c.is_control() || is_format(c)));
        }
    }
}
