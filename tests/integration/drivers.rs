//! Runs the Python drivers of tests/interop by what `scripts/test.sh` names in the environment.

use std::env;
use std::path::Path;
use std::process::Command;

/// The value of an environment variable that `scripts/test.sh` sets.
pub fn setting(name: &str) -> String {
    let value = env::var(name).unwrap_or_default();
    assert!(!value.is_empty(), "{name} is not set: run this test by scripts/test.sh");
    value
}

/// Runs one driver; what it prints belongs to this test's output.
pub fn run_driver(name: &str) {
    run_driver_with(name, &[]);
}

pub fn run_driver_with(name: &str, arguments: &[&str]) {
    run_python(&format!("tests/interop/{name}"), arguments);
}

/// Runs a Python file of the repository.
pub fn run_python(name: &str, arguments: &[&str]) {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let output = Command::new(setting("ONNX_CONTAINER_PYTHON"))
        .arg("-B")
        .arg(driver)
        .args(arguments)
        .env("ONNX_CONTAINER_BIN", setting("ONNX_CONTAINER_BIN"))
        .current_dir(env::temp_dir())
        .output();
    assert!(output.is_ok(), "the Python of scripts/test.sh does not start: {output:?}");
    let Ok(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let failures = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{failures}", output.status);
}
