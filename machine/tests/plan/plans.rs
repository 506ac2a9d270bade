//! What a plan is: every block in bounds, aligned, apart from those that are needed with it.

use std::time::Duration;

use onnx_container::Alignment;
use onnx_container_machine::ErrorKind;
use onnx_container_machine::plan::{Block, Effort, Plan, PlanOptions, plan, verify};
use proptest::prelude::*;

use crate::instances::network;

/// Blocks with few sizes and few steps, so that many of them meet.
fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let block =
        (0..12_u64, 0..6_u64, 0..40_u64, 0..4_u32).prop_map(|(first, steps, bytes, log)| {
            Block::new(first..first + steps, bytes).aligned(Alignment::new(1 << log).unwrap())
        });
    prop::collection::vec(block, 0..12)
}

/// Some of `blocks` fixed where a plan has put them.
fn with_some_fixed(blocks: &[Block], fixed: u16) -> Vec<Block> {
    let offsets = plan(blocks, PlanOptions::new()).unwrap().offsets;
    let fix = |(i, (block, offset)): (usize, (&Block, u64))| {
        if fixed >> i & 1 == 1 { block.clone().fixed_at(offset) } else { block.clone() }
    };
    blocks.iter().zip(offsets).enumerate().map(fix).collect()
}

/// Every pair of blocks, every bound: the definition of a plan, without a trick.
fn assert_is_plan(blocks: &[Block], plan: &Plan) {
    let takes_place = |block: &Block| block.bytes > 0 && !block.steps.is_empty();
    let placed: Vec<_> =
        blocks.iter().zip(&plan.offsets).filter(|(block, _)| takes_place(block)).collect();
    assert_eq!(blocks.len(), plan.offsets.len());
    for (i, (a, at_a)) in placed.iter().enumerate() {
        assert!(*at_a + a.bytes <= plan.arena_bytes);
        assert!(a.offset.is_none_or(|fixed| fixed == **at_a));
        assert_eq!(*at_a % a.alignment.bytes(), 0);
        for (b, at_b) in &placed[i + 1..] {
            let apart_in_time = a.steps.end <= b.steps.start || b.steps.end <= a.steps.start;
            let apart_in_space = *at_a + a.bytes <= **at_b || *at_b + b.bytes <= **at_a;
            assert!(apart_in_time || apart_in_space, "{a:?} at {at_a} and {b:?} at {at_b}");
        }
    }
    let live = |step| {
        let needed = placed.iter().filter(|(block, _)| block.steps.contains(&step));
        needed.map(|(block, _)| block.bytes).sum::<u64>()
    };
    let most = placed.iter().map(|(block, _)| live(block.steps.start)).max().unwrap_or(0);
    assert!(most <= plan.lower_bound && plan.lower_bound <= plan.arena_bytes);
    let sum = |length: fn(&Block) -> u64| blocks.iter().map(length).sum::<u64>();
    let padded = sum(|block| block.bytes.next_multiple_of(block.alignment.bytes()));
    let least = plan.lower_bound.max(sum(|block| block.bytes));
    assert!((least..=padded.max(least)).contains(&plan.naive_sum), "{blocks:?}");
}

/// Whether `block` at `offset` shares no byte with what is `placed`.
fn is_free(block: &Block, offset: u64, placed: &[(&Block, u64)]) -> bool {
    placed.iter().all(|(other, at)| {
        let apart = block.steps.end <= other.steps.start || other.steps.end <= block.steps.start;
        apart || offset + block.bytes <= *at || at + other.bytes <= offset
    })
}

/// The length of the shortest plan: of all orders of placing each block at the lowest offset that
/// is free.
fn shortest<'b>(left: &[&'b Block], placed: &mut Vec<(&'b Block, u64)>) -> u64 {
    let ends = (0..left.len()).map(|i| {
        let mut rest = left.to_vec();
        let block = rest.remove(i);
        let mut multiples = (0..).map(|n| n * block.alignment.bytes());
        let offset = multiples.find(|offset| is_free(block, *offset, placed)).unwrap();
        placed.push((block, offset));
        let end = shortest(&rest, placed);
        placed.pop();
        end
    });
    let shortest = ends.min();
    let end = || placed.iter().map(|(block, offset)| offset + block.bytes).max().unwrap_or(0);
    shortest.unwrap_or_else(end)
}

fn shortest_of(blocks: &[Block]) -> u64 {
    let takes_place = |block: &&Block| block.bytes > 0 && !block.steps.is_empty();
    let (fixed, free): (Vec<_>, Vec<_>) =
        blocks.iter().filter(takes_place).partition(|block| block.offset.is_some());
    shortest(&free, &mut fixed.iter().map(|block| (*block, block.offset.unwrap())).collect())
}

fn searched(blocks: &[Block]) -> Plan {
    plan(blocks, PlanOptions::new().effort(Effort::Search(Duration::from_secs(600)))).unwrap()
}

proptest! {
    #[test]
    fn every_plan_is_one(blocks in blocks(), fixed: u16) {
        for blocks in [with_some_fixed(&blocks, fixed), blocks] {
            let greedy = plan(&blocks, PlanOptions::new()).unwrap();
            assert_is_plan(&blocks, &greedy);
            let capacity = greedy.lower_bound + (greedy.arena_bytes - greedy.lower_bound) / 2;
            let search = Effort::Search(Duration::from_millis(2));
            let options = PlanOptions::new().effort(search).capacity(capacity);
            let searched = plan(&blocks, options).unwrap();
            assert_is_plan(&blocks, &searched);
            assert!(searched.arena_bytes <= greedy.arena_bytes);
            assert_eq!(verify(&blocks, &searched.offsets).unwrap(), searched.arena_bytes);
        }
    }

    #[test]
    fn a_search_finds_the_shortest_plan(blocks in blocks(), fixed: u16) {
        let few = &blocks[..blocks.len().min(6)];
        for blocks in [with_some_fixed(few, fixed), few.to_vec()] {
            let plan = searched(&blocks);
            assert_is_plan(&blocks, &plan);
            assert_eq!(plan.arena_bytes, shortest_of(&blocks), "{blocks:?}");
            assert!(plan.optimal);
        }
    }

    #[test]
    fn a_block_that_is_moved_into_another_is_found(seed in 0..1000_u64, from: u16, onto: u16) {
        let blocks = network(100, seed);
        let good = plan(&blocks, PlanOptions::new()).unwrap();
        let (from, onto) = (usize::from(from) % 100, usize::from(onto) % 100);
        let mut offsets = good.offsets;
        offsets[from] = offsets[onto] + blocks[onto].bytes / 2;
        let [a, b] = [&blocks[from], &blocks[onto]];
        let together = a.steps.start < b.steps.end && b.steps.start < a.steps.end;
        if together && from != onto {
            assert_eq!(verify(&blocks, &offsets).unwrap_err().kind(), ErrorKind::Plan);
        }
    }
}

#[test]
fn wrong_plans_are_told() {
    let blocks = [Block::new(0..2, 8), Block::new(1..3, 8).aligned(Alignment::CACHE_LINE)];
    let fixed = [Block::new(0..2, 8).fixed_at(16)];
    let cases: [(&[Block], &[u64], _); 6] = [
        (&blocks, &[0, 0], "blocks 0 and 1 share bytes at step 1"),
        (&blocks, &[64, 64], "blocks 0 and 1 share bytes at step 1"),
        (&blocks, &[0, 8], "block 1 lies at 8, no multiple of 64"),
        (&blocks, &[0], "2 blocks have 1 offsets"),
        (&blocks, &[u64::MAX - 4, 0], "block 0 ends beyond 2^63 bytes"),
        (&fixed, &[8], "block 0 lies at 8, and is fixed at 16"),
    ];
    for (blocks, offsets, reason) in cases {
        let error = verify(blocks, offsets).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Plan, reason));
    }
    assert_eq!(verify(&blocks, &[0, 64]).unwrap(), 72);
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn blocks_that_cannot_be_planned_are_refused() {
    let block = |bytes| Block::new(0..1, bytes);
    let cases = [
        (vec![Block::new(3..2, 1)], "block 0 is needed from step 3 to step 2"),
        (vec![block(u64::MAX)], "the blocks are longer than 2^63 bytes"),
        (vec![block(1 << 62), block(1 << 62)], "the blocks are longer than 2^63 bytes"),
        (vec![block(8).fixed_at(u64::MAX)], "the blocks are longer than 2^63 bytes"),
        (vec![block(8).fixed_at(0), block(8).fixed_at(4)], "blocks 0 and 1 share bytes at step 0"),
        (
            vec![block(8).aligned(Alignment::CACHE_LINE).fixed_at(4)],
            "block 0 lies at 4, no multiple of 64",
        ),
    ];
    for (blocks, reason) in cases {
        for effort in [Effort::Greedy, Effort::Search(Duration::from_secs(1))] {
            let error = plan(&blocks, PlanOptions::new().effort(effort)).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Plan, reason));
        }
    }
}

#[test]
fn a_block_without_bytes_or_steps_takes_no_place() {
    let blocks = [Block::new(0..9, 0), Block::new(4..4, 100), Block::new(0..1, 5)];
    let plan = searched(&blocks);
    assert_eq!(plan.offsets, [0, 0, 0]);
    assert_eq!((plan.arena_bytes, plan.lower_bound, plan.naive_sum), (5, 5, 105));
    assert_eq!(searched(&[]).arena_bytes, 0);
}

#[test]
fn nothing_shared_is_never_less_than_the_lower_bound() {
    let aligned = |bytes| Block::new(0..2, bytes).aligned(Alignment::new(64).unwrap());
    let cases = [
        (vec![aligned(100), aligned(50), aligned(100)], 292),
        (vec![aligned(4), aligned(4)], 68),
        // What saves the most by being the last, saves it: 4 bytes behind 128.
        (vec![aligned(4), aligned(100)], 132),
        // A block is rounded up to the alignment of the next one.
        (vec![Block::new(0..1, 3), aligned(4), aligned(4)], 71),
        (vec![Block::new(0..1, 5).fixed_at(1000)], 1005),
        (vec![Block::new(0..1, 4), Block::new(1..2, 4)], 8),
        (vec![], 0),
    ];
    for (blocks, expected) in cases {
        let plan = searched(&blocks);
        assert_eq!(plan.naive_sum, expected, "{blocks:?}");
        assert!(plan.naive_sum >= plan.lower_bound);
    }
}

#[test]
fn the_lower_bound_counts_what_alignment_takes() {
    let block = |bytes| Block::new(0..1, bytes).aligned(Alignment::CACHE_LINE);
    let plan = searched(&[block(1), block(65), block(100)]);
    assert_eq!((plan.lower_bound, plan.arena_bytes), (257, 257), "64 + 128 and 65, not rounded up");
}
