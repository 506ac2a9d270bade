//! Says that the PyTorch tests did not run: they need the feature `tch`, and that a libtorch.

#[test]
#[ignore = "SKIPPED: the PyTorch tests did not run. They need a libtorch: \
            eval \"$(scripts/setup-libtorch.sh)\" && cargo test --features tch"]
fn pytorch_tests_need_the_feature_tch() {
    println!("SKIPPED: the PyTorch tests did not run");
}

#[test]
fn pytorch_tests_are_not_required_here() {
    let required = std::env::var("TCH_TESTS").is_ok_and(|value| value == "require");
    assert!(!required, "TCH_TESTS=require, but this was built without the feature `tch`");
}
