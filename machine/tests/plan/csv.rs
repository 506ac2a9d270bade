//! Files of blocks: what MiniMalloc writes is read, and what is wrong is named by its line.

use onnx_container::Alignment;
use onnx_container_machine::ErrorKind;
use onnx_container_machine::plan::{
    Block, Named, PlanOptions, Row, draw_svg, plan, read_csv, write_csv,
};
use proptest::prelude::*;

/// The example of MiniMalloc's documentation.
const EXAMPLE: &str = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

fn row(named: &Named, offset: u64) -> Row<'_> {
    Row { id: &named.id, block: &named.block, offset }
}

fn read(text: &str) -> Vec<Named> {
    read_csv(text.as_bytes()).unwrap()
}

#[test]
fn the_example_fits_its_capacity_and_is_written_with_offsets() {
    let named = read(EXAMPLE);
    let blocks: Vec<_> = named.iter().map(|named| named.block.clone()).collect();
    let plan = plan(&blocks, PlanOptions::new()).unwrap();
    assert_eq!((plan.arena_bytes, plan.lower_bound), (12, 12));
    let row = |(named, offset): (_, &u64)| row(named, *offset);
    let rows: Vec<_> = named.iter().zip(&plan.offsets).map(row).collect();
    let text = write_csv(&rows);
    assert_eq!(text.lines().next(), Some("id,lower,upper,size,offset"));
    for (again, (named, offset)) in read(&text).iter().zip(named.iter().zip(&plan.offsets)) {
        let block = named.block.clone().fixed_at(*offset);
        assert_eq!(again, &Named { id: named.id.clone(), block });
    }
}

#[test]
fn the_columns_of_older_files_are_known_in_any_order() {
    let block = Block::new(2..6, 7);
    for text in [
        "size,upper,id,lower\n7,6,a,2\n",
        "buffer,start,upper,size\na,2,6,7",
        "buffer_id,begin,end,size\na,2,5,7\n",
        "\u{feff}id,lower,upper,size\r\na,2,6,7\r\n\r\n",
        "id, lower, upper, size, offset, gaps\n a, 2, 6, 7, , \n",
    ] {
        assert_eq!(read(text), [Named { id: "a".to_owned(), block: block.clone() }], "{text}");
    }
    let aligned = block.aligned(Alignment::CACHE_LINE).fixed_at(128);
    let text = write_csv(&[Row { id: "a", block: &aligned, offset: 128 }]);
    assert_eq!(text, "id,lower,upper,size,alignment,offset\na,2,6,7,64,128\n");
    assert_eq!(read(&text), [Named { id: "a".to_owned(), block: aligned }]);
}

#[test]
fn names_cannot_forge_lines() {
    let block = Block::new(0..9, 1);
    let ids = [
        "a,1",
        "a\n0,1,1,1",
        "a\r\nb",
        "a\"b\"",
        "\"",
        "\n",
        "a\tb",
        "a",
        " a",
        "a ",
        " a\t",
        "\t",
        "  ",
        "",
        "a\\u{5c}",
        "\\",
        "\\u{",
        "\\u{110000}",
        "\u{1b}[2J\\",
    ];
    let text = write_csv(&ids.map(|id| Row { id, block: &block, offset: 0 }));
    let found: Vec<_> = read(&text).into_iter().map(|named| named.id).collect();
    assert_eq!(found, ids);
    // What is no escape stays as it is.
    let foreign = "id,lower,upper,size\na\\b\\u{x}\\u{+1}\\u{41}\\u{d800},0,9,1\n";
    assert_eq!(read(foreign)[0].id, "a\\b\\u{x}\\u{+1}A\\u{d800}");
    let text = write_csv(&[Row { id: "\u{1b}[2J\\", block: &block, offset: 0 }]);
    assert_eq!(text, "id,lower,upper,size,offset\n\\u{1b}[2J\\u{5c},0,9,1,0\n");
    let plan = plan(std::slice::from_ref(&block), PlanOptions::new()).unwrap();
    let id = "</title><script>&\u{1b}\u{202e}";
    let drawing = draw_svg(&[Row { id, block: &block, offset: 0 }], &plan);
    assert!(
        drawing.contains("<title>&lt;/title&gt;&lt;script&gt;&amp;\\u{1b}\\u{202e}: 1 B"),
        "{drawing}"
    );
    assert!(!drawing.contains("<script>") && !drawing.contains('\u{1b}'));
}

#[test]
fn errors_name_the_line() {
    let wide = "9".repeat(1000);
    let cases = [
        (String::new(), "the file is empty"),
        ("\n\n".into(), "the file is empty"),
        (
            "id,lower,upper\n".into(),
            "line 1: the first line names the columns, and `size` is not among them",
        ),
        (
            "b1,0,3,4\n".into(),
            "line 1: unknown column `b1`; known are id (or buffer, buffer_id), lower (or start, begin), \
             upper (or end, the last step itself), size, alignment, offset and gaps",
        ),
        ("id,lower,upper,end,size\n".into(), "line 1: a second column for what `end` says"),
        (format!("{EXAMPLE}b6,1,2\n"), "line 7: 3 fields for 4 columns"),
        (format!("{EXAMPLE}\n\nb1,1,2,3\n"), "line 9: an earlier line has the id `b1` too"),
        (format!("{EXAMPLE}b6,5,3,4\n"), "line 7: the block is needed from step 5 to step 3"),
        (format!("{EXAMPLE}b6,-1,3,4\n"), "line 7: lower `-1` is no whole number below 2^64"),
        (format!("{EXAMPLE}b6,+1,3,4\n"), "line 7: lower `+1` is no whole number below 2^64"),
        (format!("{EXAMPLE}b6,1,3,\n"), "line 7: size `` is no whole number below 2^64"),
        (format!("{EXAMPLE}b6,1,3,1e3\n"), "line 7: size `1e3` is no whole number below 2^64"),
        (
            format!("{EXAMPLE}b6,1,3,{wide}\n"),
            "line 7: size `9999999999999999999999999999999999999999` is no whole number below 2^64",
        ),
        (
            "id,lower,end,size\na,0,18446744073709551615,1\n".into(),
            "line 2: end is greater than any step",
        ),
        (
            "id,lower,upper,size,alignment\na,0,1,1,48\n".into(),
            "line 2: alignment 48 is not a power of two",
        ),
        (
            "id,lower,upper,size,gaps\na,0,9,1,3-4\n".into(),
            "line 2: blocks with gaps cannot be planned",
        ),
    ];
    for (text, reason) in cases {
        let error = read_csv(text.as_bytes()).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Plan, reason), "{text}");
    }
    let error = read_csv(&b"id,lower,upper,size\na,0,1,1\n\xff,0,1,1\n"[..]).unwrap_err();
    assert_eq!(error.to_string(), "line 3: this is not UTF-8");
}

#[test]
fn a_file_without_an_end_is_refused() {
    let error = read_csv(std::io::repeat(b'a')).unwrap_err();
    assert_eq!(error.to_string(), "the file is longer than 256 MiB");
}

proptest! {
    /// The fuzz target `plan_csv`, on files that are nearly right.
    #[test]
    fn any_file_is_read_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        columns in prop::sample::subsequence(&["alignment", "offset", "gaps"][..], 0..3),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut header = EXAMPLE.lines().next().unwrap().to_owned();
        columns.iter().for_each(|column| header += &format!(",{column}"));
        let rest = EXAMPLE.lines().skip(1).map(|line| line.to_owned() + &",".repeat(columns.len()));
        let text = [header].into_iter().chain(rest).collect::<Vec<_>>().join("\n");
        let mut edited = text.into_bytes();
        for (at, byte) in edits {
            let at = at.index(edited.len());
            edited[at] = byte;
        }
        for file in [edited, bytes] {
            let Ok(named) = read_csv(&file[..]) else { continue };
            let blocks: Vec<_> = named.iter().map(|named| named.block.clone()).collect();
            let Ok(plan) = plan(&blocks, PlanOptions::new()) else { continue };
            let rows: Vec<_> =
                named.iter().zip(&plan.offsets).map(|(named, at)| row(named, *at)).collect();
            let again = read(&write_csv(&rows));
            let blocks = again.into_iter().map(|named| named.block);
            let fixed = rows.iter().map(|row| row.block.clone().fixed_at(row.offset));
            prop_assert!(blocks.eq(fixed));
        }
    }
}
