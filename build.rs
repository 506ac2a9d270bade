//! For the feature `tch`: says where libtorch lies, so that tests, examples and doc tests find it
//! when they run.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // torch-sys tells it, except on Windows, where programs have no such path.
    let libraries = std::env::var("DEP_TCH_LIBTORCH_LIB").ok();
    let is_unix = std::env::var_os("CARGO_CFG_UNIX").is_some();
    if let Some(libraries) = libraries.filter(|_| is_unix) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libraries}");
    }
}
