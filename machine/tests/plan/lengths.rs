//! How short plans are, on instances that are hard for greedy orders.

use std::time::Duration;

use onnx_container_machine::plan::{Effort, PlanOptions, plan};

use crate::instances::{CAPACITY, HARD_SIZES, hard, network};

/// Far more than the tests need: they end when the capacity is reached, and do not measure time.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_search_is_better_than_every_greedy_order_on_hard_instances() {
    for (seed, count) in (0..).zip(HARD_SIZES) {
        let blocks = hard(count, seed);
        let greedy = plan(&blocks, PlanOptions::new()).unwrap();
        assert!(greedy.lower_bound > CAPACITY * 95 / 100 && greedy.lower_bound <= CAPACITY);
        assert!(greedy.arena_bytes > CAPACITY, "{count} blocks are no hard instance");
        let goal = greedy.arena_bytes * 95 / 100;
        let options = PlanOptions::new().effort(Effort::Search(LONG)).capacity(goal);
        let searched = plan(&blocks, options).unwrap();
        assert!(searched.arena_bytes <= goal, "{count} blocks: {searched:?}");
    }
}

#[test]
fn a_search_has_one_answer() {
    let blocks = hard(154, 1);
    let options = PlanOptions::new().effort(Effort::Search(LONG)).capacity(CAPACITY * 12 / 10);
    assert_eq!(plan(&blocks, options).unwrap(), plan(&blocks, options).unwrap());
}

#[test]
fn deep_searches_do_not_run_out_of_stack() {
    // All are needed at once, so placements are nested 2048 deep; more blocks than that keep the
    // greedy plan.
    for count in [2048, 2049] {
        let mut blocks = network(count, 7);
        blocks.iter_mut().for_each(|block| block.steps = 0..block.steps.end);
        let options = PlanOptions::new().effort(Effort::Search(Duration::from_secs(20)));
        let searched = plan(&blocks, options).unwrap();
        assert!(searched.arena_bytes >= searched.lower_bound);
    }
}

#[test]
fn greedy_plans_of_networks_are_near_the_lower_bound() {
    for seed in 0..20 {
        let plan = plan(&network(500, seed), PlanOptions::new()).unwrap();
        assert!(plan.arena_bytes * 100 <= plan.lower_bound * 120, "seed {seed}: {plan:?}");
    }
}
