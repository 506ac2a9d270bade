//! The drawing of a plan.

use onnx_container_machine::plan::{Block, PlanOptions, Row, draw_svg, plan};

/// The numbers of the attribute `name` in each rectangle of a block.
fn numbers(drawing: &str, name: &str) -> Vec<f64> {
    let blocks = drawing.lines().filter(|line| line.contains("<title>"));
    let number = |line: &str| {
        let (_, after) = line.split_once(&format!(" {name}=\"")).unwrap();
        after.split_once('"').unwrap().0.parse().unwrap()
    };
    blocks.map(number).collect()
}

#[test]
fn a_drawing_has_a_rectangle_for_each_block_at_its_steps_and_offset() {
    let blocks = [
        Block::new(10..12, 400),
        Block::new(11..13, 100),
        Block::new(12..13, 300),
        Block::new(0..1, 0),
    ];
    let plan = plan(&blocks, PlanOptions::new()).unwrap();
    let rows: Vec<_> = ["first", "second", "third", "empty"]
        .into_iter()
        .zip(&blocks)
        .zip(&plan.offsets)
        .map(|((id, block), offset)| Row { id, block, offset: *offset })
        .collect();
    let drawing = draw_svg(&rows, &plan);
    let (x, width) = (numbers(&drawing, "x"), numbers(&drawing, "width"));
    let (y, height) = (numbers(&drawing, "y"), numbers(&drawing, "height"));
    assert_eq!(x.len(), 3, "an empty block is not drawn");
    let close = |a: f64, b: f64| assert!((a - b).abs() < 0.1, "{a} {b} in {drawing}");
    close(width[0], 2.0 * width[2]);
    close(x[0] + width[0], x[2]);
    close(height[0], 4.0 * height[1]);
    close(y[1] + height[1], y[0]);
    close(y[0] + height[0], y[2] + height[2]);
    for text in
        ["4 blocks in 500 B", "lower bound 500 B", "without sharing 800 B", "step 11", ">first<"]
    {
        assert!(drawing.contains(text), "no {text} in {drawing}");
    }
}

#[test]
fn every_plan_can_be_drawn() {
    let lists = [
        vec![],
        vec![Block::new(0..0, 0)],
        vec![Block::new(0..u64::MAX, 1)],
        vec![Block::new(u64::MAX - 1..u64::MAX, (1 << 62) + 1)],
    ];
    for blocks in lists {
        let plan = plan(&blocks, PlanOptions::new()).unwrap();
        let rows: Vec<_> = blocks.iter().map(|block| Row { id: "x", block, offset: 0 }).collect();
        let drawing = draw_svg(&rows, &plan);
        assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"), "{drawing}");
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        assert!(drawing.lines().count() < 100);
    }
}
