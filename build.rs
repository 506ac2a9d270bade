//! For the feature `tch`: says where libtorch lies, so that tests, examples and doc tests find it when
//! they run, and compiles what needs C++.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "tch")]
    tch::build();
}

#[cfg(feature = "tch")]
mod tch {
    use std::env;
    use std::path::Path;

    /// The crate's calls of C++, beside what its Rust declares of them.
    const SHIM: &str = "src/initializer/torch/script.cpp";

    pub fn build() {
        // Set by torch-sys, and absent where only documentation is built.
        let Ok(libraries) = env::var("DEP_TCH_LIBTORCH_LIB") else { return };
        if env::var_os("CARGO_CFG_UNIX").is_some() {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{libraries}");
        }
        compile(Path::new(&libraries));
    }

    /// As torch-sys compiles its own: the same headers, standard and ABI.
    fn compile(libraries: &Path) {
        println!("cargo:rerun-if-changed={SHIM}");
        println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
        println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
        let base = env::var_os("LIBTORCH_INCLUDE").map(Into::into);
        let base = base.unwrap_or_else(|| libraries.join(".."));
        let include = base.join("include");
        let abi = env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .warnings(false)
            .debug(false)
            .include(&include)
            .include(include.join("torch/csrc/api/include"))
            .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
            .file(SHIM)
            .compile("onnx_container_script");
    }
}
