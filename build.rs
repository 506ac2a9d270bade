//! Tells the linker where libtorch lies, so that tests, examples and doc tests find it when they run.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by torch-sys; absent without the feature `tch` and where only documentation is built.
    if let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
