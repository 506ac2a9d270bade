//! A list of blocks is read or refused; what is read is planned, and reads the same when it is
//! written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container_machine::plan::{PlanOptions, Row, draw_svg, plan, read_csv, verify, write_csv};

fuzz_target!(|bytes: &[u8]| {
    let Ok(named) = read_csv(bytes) else { return };
    let blocks: Vec<_> = named.iter().map(|named| named.block.clone()).collect();
    let Ok(plan) = plan(&blocks, PlanOptions::new()) else { return };
    assert_eq!(verify(&blocks, &plan.offsets).unwrap(), plan.arena_bytes);
    assert!(plan.lower_bound <= plan.arena_bytes);
    let rows: Vec<_> = named
        .iter()
        .zip(&plan.offsets)
        .map(|(named, offset)| Row { id: &named.id, block: &named.block, offset: *offset })
        .collect();
    let again = read_csv(write_csv(&rows).as_bytes()).unwrap();
    assert_eq!(again.len(), named.len());
    for (again, row) in again.iter().zip(&rows) {
        assert_eq!(again.block, row.block.clone().fixed_at(row.offset));
    }
    assert!(draw_svg(&rows, &plan).ends_with("</svg>\n"));
});
