//! Every real model at hand: how close its plan comes to the lower bound.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::{Container, LoadOptions};
use onnx_container_machine::plan::{PlanOptions, ProgramPlan, plan_program};
use onnx_container_machine::{Dim, Program, ProgramOptions, Registry};

/// The sizes that dimensions with names are given, all the same one: the first that the model
/// takes.
const SIZES: [usize; 5] = [64, 1, 2, 8, 512];

fn find_models(folder: &Path, models: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            // The tests of operators are one node each.
            if !path.ends_with("data/node") {
                find_models(&path, models);
            }
        } else if path.extension().is_some_and(|extension| extension == "onnx") {
            models.push(path);
        }
    }
}

/// The plan of the model in `path` up to its barrier, when it has at least four tensors that need a
/// place.
fn planned(path: &Path) -> Option<ProgramPlan> {
    let container = Container::load(path, LoadOptions::new()).ok()?;
    let program = Program::new(&container, ProgramOptions::new()).ok()?;
    let dims = program.main.inputs.iter().filter_map(|input| input.dims.as_ref()).flatten();
    let names: Vec<_> = dims
        .filter_map(|dim| if let Dim::Symbol(name) = dim { Some(name) } else { None })
        .collect();
    let plan = SIZES.iter().find_map(|size| {
        let sizes = names.iter().map(|name| ((*name).clone(), *size)).collect();
        plan_program(&program, &Registry::new(), &sizes, PlanOptions::new()).ok()
    })?;
    (plan.rows().len() >= 4).then_some(plan)
}

#[test]
fn real_models_have_plans_of_the_length_of_the_lower_bound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut models = Vec::new();
    for folder in ["../shared/data", ".models", "tests/data"] {
        find_models(&root.join(folder), &mut models);
    }
    models.sort();
    // One of several files with the same plan.
    let mut plans: HashMap<_, _> = HashMap::new();
    for path in models {
        let Some(plan) = planned(&path) else { continue };
        let rows = plan.rows().len();
        plans.entry((rows, plan.plan.naive_sum, plan.plan.arena_bytes)).or_insert((path, plan));
    }
    let plans: Vec<_> = plans.into_values().collect();
    let ratio = |plan: &ProgramPlan| plan.plan.arena_bytes as f64 / plan.plan.lower_bound as f64;
    let mut missed: Vec<_> = plans.iter().filter(|(_, plan)| ratio(plan) > 1.0).collect();
    missed.sort_by(|a, b| ratio(&a.1).total_cmp(&ratio(&b.1)));
    for (path, plan) in &missed {
        let rows = plan.rows().len();
        eprintln!("{:.4} of the bound, {rows} tensors: {}", ratio(plan), path.display());
    }
    let share = |most: f64| {
        let reached = plans.iter().filter(|(_, plan)| ratio(plan) <= most).count();
        (reached * 1000).checked_div(plans.len()).unwrap_or(1000) as f64 / 10.0
    };
    let (exact, close) = (share(1.0), share(1.02));
    eprintln!("{} models: {exact} % at the bound, {close} % within 1.02 of it", plans.len());
    if plans.len() < 20 {
        eprintln!("SKIPPED: the real models are not here (scripts/models.py)");
        return;
    }
    assert!(exact >= 85.0 && close >= 95.0, "{exact} % and {close} %");
}
