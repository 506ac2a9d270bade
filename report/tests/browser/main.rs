//! Pages in a real browser: what a person finds there, by mouse and by keys, and that the page asks
//! for nothing. `bash scripts/test.sh browser` runs these tests, which need Chromium.
#![cfg(unix)]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests"
)]

mod chromium;
mod pages;

use std::time::Instant;

use chromium::{Browser, Tab};
use onnx_container::proto::TensorProto;
use onnx_container_report::ReportOptions;
use pages::{Models, Written};

const NEEDS: &str = "Chromium is needed";

/// The page in a browser, drawn without an error, without a request, and without a violation of its
/// policy.
fn shown<'b>(browser: &'b mut Browser, page: &Written) -> Tab<'b> {
    let mut tab = browser.open(&page.url);
    tab.wait_for("document.documentElement.dataset.ready !== undefined");
    assert_eq!(
        tab.text("document.documentElement.dataset.ready"),
        "yes",
        "{}",
        tab.text("document.body.innerText")
    );
    assert_eq!(tab.requests(), std::slice::from_ref(&page.url));
    assert_eq!(tab.troubles(), [""; 0]);
    tab
}

/// The page of tensors with these names, each of so many bytes.
fn page_of<'n>(names: impl IntoIterator<Item = &'n str>, bytes: i64) -> Written {
    let models = Models::new();
    let tensors = names.into_iter().map(|name| {
        TensorProto::new(name, TensorProto::UINT8, [bytes]).with_raw_data(vec![1; bytes as usize])
    });
    models.save("m.onnx", tensors);
    models.page("m.onnx", None, &ReportOptions::default())
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn tensors_are_searched_sorted_and_gone_through_by_keys() {
    let mut browser = Browser::start().expect(NEEDS);
    let names: Vec<_> = (0..1000).map(|n| format!("layers.{n}.weight")).collect();
    let page = page_of(names.iter().map(String::as_str).chain(["head"]), 4);
    let mut tab = shown(&mut browser, &page);
    assert_eq!(tab.text("document.querySelector('.counted').textContent"), "1,001 rows");
    let rows = tab.number("document.querySelectorAll('#tensors tr[data-at]').length");
    assert!((20.0..100.0).contains(&rows), "{rows} rows are elements");
    // Sorted by name, in the order of the numbers.
    let name =
        |row: usize| format!("document.querySelector('#tensor-row-{row} .name').textContent");
    tab.evaluate("document.querySelector('#tensors thead button').click()");
    assert_eq!(tab.text(&name(0)), "head");
    assert_eq!(tab.text(&name(11)), "layers.10.weight");
    assert_eq!(tab.text("document.querySelector('#tensors th').ariaSort"), "ascending");
    tab.evaluate("document.querySelector('#tensors thead button').click()");
    assert_eq!(tab.text(&name(0)), "layers.999.weight");
    // To the end by keys, and there is the last row.
    tab.evaluate("document.querySelector('#tensors table').focus()");
    tab.key("End");
    tab.wait_for("document.querySelector('#tensor-row-1000') !== null");
    assert_eq!(tab.text(&name(1000)), "head");
    assert_eq!(tab.text("document.querySelector('[aria-selected]').id"), "tensor-row-1000");
    tab.key("ArrowUp");
    assert_eq!(
        tab.text("document.activeElement.getAttribute('aria-activedescendant')"),
        "tensor-row-999"
    );
    // `/` searches, the arrow goes to the rows, Enter shows a tensor, Escape closes.
    tab.key("/");
    assert_eq!(tab.text("document.activeElement.id"), "tensor-search");
    tab.write("layers.77 weight");
    assert_eq!(tab.text("document.querySelector('.counted').textContent"), "11 of 1,001 rows");
    tab.key("ArrowDown");
    tab.key("Enter");
    tab.wait_for("document.querySelector('dialog').open");
    assert_eq!(tab.text("location.hash"), "#tensor=layers.779.weight");
    assert!(tab.text("document.querySelector('dialog').innerText").contains("UINT8"));
    tab.key("Escape");
    tab.wait_for("!document.querySelector('dialog').open");
    tab.wait_for("location.hash === '#tensors'");
    tab.key("Escape");
    assert_eq!(tab.text("document.querySelector('.counted').textContent"), "1,001 rows");
    assert_eq!(tab.troubles(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn an_address_shows_a_tensor() {
    let mut browser = Browser::start().expect(NEEDS);
    let mut page = page_of(["a/b %41.w", "other"], 4);
    let plain = page.url.clone();
    page.url = format!("{plain}#tensor=a%2Fb%20%2541.w");
    let mut tab = browser.open(&page.url);
    tab.wait_for("document.querySelector('dialog').open");
    assert_eq!(tab.text("document.querySelector('dialog h2').textContent"), "a/b %41.w");
    tab.evaluate("location.hash = '#tensor=none'");
    tab.wait_for("document.querySelector('dialog p') !== null");
    assert!(tab.text("document.querySelector('dialog p').textContent").contains("No tensor"));
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn hostile_names_are_texts() {
    let mut browser = Browser::start().expect(NEEDS);
    let long = "x".repeat(1 << 20);
    let names = [
        "</script><script>window.hacked = 1</script>",
        "<img src=x onerror=window.hacked=1>",
        "<!--<script>",
        "__proto__",
        "constructor",
        "right \u{202e}tfel",
        "line\nbreak\u{0}\u{7f}\u{2028}",
        "\u{1f600}\u{e000}",
        "{{data}}${window.hacked=1}",
        long.as_str(),
    ];
    let page = page_of(names, 4);
    let mut tab = shown(&mut browser, &page);
    assert_eq!(tab.text("typeof window.hacked"), "undefined");
    assert_eq!(tab.number("document.scripts.length"), 3.0);
    assert_eq!(tab.number("document.images.length"), 0.0);
    let text = tab.text("document.querySelector('#tensors tbody').innerText");
    for shown in
        [names[0], names[1], "right \\u{202e}tfel", "line\\u{a}break\\u{0}\\u{7f}\\u{2028}"]
    {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    assert!(!text.contains('\u{202e}'));
    let longest =
        "Math.max(...[...document.querySelectorAll('.name')].map((it) => it.textContent.length))";
    assert!(tab.number(longest) < 300.0);
    let title = "[...document.querySelectorAll('#tensors .name')].find((it) => it.textContent.startsWith('xxx')).title.length";
    assert!((1000.0..5000.0).contains(&tab.number(title)));
    for name in ["__proto__", "constructor"] {
        tab.evaluate(&format!("location.hash = '#tensor={name}'"));
        tab.wait_for(&format!("document.querySelector('dialog h2')?.textContent === '{name}'"));
        assert!(tab.text("document.querySelector('dialog').innerText").contains("UINT8"));
    }
    assert_eq!(tab.troubles(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn the_map_is_opened_by_keys_and_coloured() {
    let mut browser = Browser::start().expect(NEEDS);
    let names: Vec<_> =
        (0..12).flat_map(|n| [format!("h.{n}.a.w"), format!("h.{n}.b.w")]).collect();
    let page = page_of(names.iter().map(String::as_str).chain(["wte"]), 64);
    let mut tab = shown(&mut browser, &page);
    let labels = "[...document.querySelectorAll('.cell-name')].map((it) => it.textContent).join()";
    assert_eq!(tab.text(labels), "h,0 … 11 ×12,a,w,b,w,wte");
    assert!(tab.text("document.querySelector('.cell').ariaLabel").contains("24 tensors"));
    tab.evaluate("document.querySelector('.cell').focus()");
    tab.key("ArrowDown");
    assert!(tab.text("document.activeElement.ariaLabel").starts_with("0 … 11 ×12: "));
    tab.key("Enter");
    tab.wait_for("document.querySelectorAll('.crumbs > *').length === 3");
    tab.key("Escape");
    tab.key("Escape");
    assert_eq!(tab.number("document.querySelectorAll('.crumbs > *').length"), 1.0);
    tab.evaluate(
        "const it = document.querySelector('#map-colour'); it.value = 'storage'; it.dispatchEvent(new Event('change'))",
    );
    assert!(
        tab.text("document.querySelector('#weights .legend').textContent").contains("raw_data")
    );
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn every_part_is_drawn() {
    let mut browser = Browser::start().expect(NEEDS);
    let models = Models::new();
    models.save_packed("a.onnx", 64);
    models.save_packed("b.onnx", 65);
    let options = ReportOptions::default().stats(true).plan(pages::plan());
    let page = models.page("a.onnx", Some("b.onnx"), &options);
    let mut tab = shown(&mut browser, &page);
    let sections = "[...document.querySelectorAll('section')].map((it) => it.id).join()";
    assert_eq!(
        tab.text(sections),
        "overview,differences,weights,tensors,files,plan,operators,values,findings"
    );
    assert_eq!(tab.number("document.querySelectorAll('.plan .block').length"), 2.0);
    // The file, and its three tensors.
    assert_eq!(tab.number("document.querySelectorAll('.strip rect').length"), 4.0);
    assert!(tab.number("document.querySelectorAll('#tensors .histogram').length") >= 3.0);
    assert!(tab.text("document.querySelector('#differences').innerText").contains("changed"));
    let found = tab.text("document.querySelector('#findings').innerText");
    for said in ["This model", "b.onnx", "with this model", "with the other model"] {
        assert!(found.contains(said), "{said}: {found}");
    }
    // Narrow and dark, nothing is wider than the window.
    tab.window(360, 800);
    assert!(tab.number("document.documentElement.scrollWidth") <= 360.0);
    let back = "getComputedStyle(document.body).backgroundColor";
    let light = tab.text(back);
    tab.media("screen", "dark");
    let dark = tab.text(back);
    assert_ne!(light, dark);
    tab.evaluate("document.querySelector('#theme').click()");
    assert_eq!(tab.text(back), light);
    assert_eq!(tab.troubles(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn bytes_of_layers_in_several_files_are_those_of_each_file() {
    let mut browser = Browser::start().expect(NEEDS);
    let models = Models::new();
    models.save_shards("m.onnx");
    let page = models.page("m.onnx", None, &ReportOptions::default());
    let mut tab = shown(&mut browser, &page);
    let legend = "[...document.querySelectorAll('#weights .legend li')].map((it) => it.textContent).sort().join('; ')";
    for (kind, expected) in [
        ("dtype", "UINT8, 400 kB"),
        ("storage", "external, 300 kB; raw_data, 100 kB"),
        ("file", "0.data, 100 kB; 1.data, 100 kB; 2.data, 100 kB; in the model, 100 kB"),
    ] {
        tab.evaluate(&format!(
            "(() => {{ const it = document.querySelector('#map-colour'); it.value = '{kind}'; it.dispatchEvent(new Event('change')); }})()"
        ));
        assert_eq!(tab.text(legend), expected, "{kind}");
    }
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn the_greatest_differences_come_first() {
    let mut browser = Browser::start().expect(NEEDS);
    let models = Models::new();
    let tensors = |far: f64, bad: f64| {
        [("near", vec![1.0, 2.0]), ("far", vec![far, 1.0]), ("bad", vec![bad, 1.0])]
    };
    models.save_doubles("a.onnx", &tensors(f64::MAX, 0.0), "a");
    let mut other = tensors(-f64::MAX, f64::NAN);
    other[0].1[0] = 1.5;
    models.save_doubles("b.onnx", &other, "b");
    let page = models.page("a.onnx", Some("b.onnx"), &ReportOptions::default().stats(true));
    let mut tab = shown(&mut browser, &page);
    assert!(
        tab.text("document.querySelector('#differences').innerText")
            .contains("Also different: documentation: 1 changed.")
    );
    let farthest = "[...document.querySelectorAll('#differences thead button')].find((it) => it.textContent === 'Farthest')";
    tab.evaluate(&format!("{farthest}.click()"));
    let rows = "[...document.querySelectorAll('#differences tr[data-at]')].map((row) => [1, 5, 6, 7].map((i) => row.children[i].textContent).join(' ')).join('; ')";
    assert_eq!(tab.text(rows), "far infinite 1 ; bad not finite 1 0 | 1; near 0.5 1 ");
}

#[test]
#[ignore = "needs Chromium: scripts/test.sh browser"]
fn a_hundred_thousand_tensors_are_drawn_and_printed() {
    let mut browser = Browser::start().expect(NEEDS);
    let models = Models::new();
    models.save_very_many("m.onnx", 100_000);
    let page = models.page("m.onnx", None, &ReportOptions::default());
    let start = Instant::now();
    let mut tab = shown(&mut browser, &page);
    let own = tab.number("performance.now()");
    println!(
        "100,000 tensors: {} bytes, drawn after {:?}; {own:.0} ms by the clock of the page",
        page.bytes,
        start.elapsed()
    );
    assert_eq!(tab.text("document.querySelector('.counted').textContent"), "100,000 rows");
    tab.evaluate("document.querySelector('#tensors .scroller').scrollTop = 1e9");
    tab.wait_for("document.querySelector('#tensor-row-99999') !== null");
    let start = Instant::now();
    tab.evaluate("document.querySelector('#tensors thead button').click()");
    println!("sorted by name in {:?}", start.elapsed());
    let start = Instant::now();
    tab.evaluate("const it = document.querySelector('#tensor-search'); it.value = '99 proj'; it.dispatchEvent(new Event('input'))");
    println!("searched in {:?}", start.elapsed());
    let found = tab.text("document.querySelector('.counted').textContent");
    assert!(found.ends_with("of 100,000 rows") && !found.starts_with('0'), "{found}");
    // On paper are the first rows, as elements.
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))");
    assert!(tab.number("document.querySelectorAll('#tensors tr[data-at]').length") <= 200.0);
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))");
    assert!(tab.pdf_len() > 10_000);
}
