//! Links between pages lead somewhere, and the list of the book has every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of the repository.
fn pages() -> Vec<PathBuf> {
    let in_folder = |folder: &str| fs::read_dir(root().join(folder)).unwrap();
    let files = ["", "docs", "kernels", "proto", "python"].into_iter().flat_map(in_folder);
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|of| of == "md")).collect()
}

/// The targets of the links in `page`, outside of code.
fn links(page: &str) -> Vec<String> {
    let mut code = false;
    let is_text = |line: &&str| {
        code ^= line.starts_with("```");
        !code
    };
    let text: String = page.lines().filter(is_text).collect::<Vec<_>>().join("\n");
    let ends = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    ends.filter_map(|end| Some(end.split_once(')')?.0.to_owned())).collect()
}

/// What the headings of `page` are called in links.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            looked_at += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let is_there = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                Err(_) => target.is_dir(),
            };
            if !is_there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(looked_at > 80, "only {looked_at} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = links(&summary).into_iter().collect();
    let names = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let pages: BTreeSet<_> =
        names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

#[test]
fn the_guide_has_every_page() {
    let guide = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    let (_, modules) = guide.split_once("pages! {").unwrap();
    let modules: BTreeSet<_> = modules.trim_end_matches(['}', '\n']).split(',').collect();
    let modules: BTreeSet<_> = modules.iter().map(|name| name.trim()).collect();
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in links(&summary) {
        let module = page.trim_end_matches(".md").replace('-', "_");
        assert!(modules.contains(module.as_str()), "{page}");
        assert!(guide.contains(&format!("[`{module}`]")), "{page}");
    }
}
