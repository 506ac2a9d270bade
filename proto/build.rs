//! For the feature `tch`: says where libtorch lies, so that tests, examples and doc tests find it
//! when they run, and compiles what needs C++.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "tch")]
    tch::build();
}

#[cfg(feature = "tch")]
mod tch {
    use std::env;
    use std::path::{Path, PathBuf};

    /// The crate's calls of C++, beside what its Rust declares of them.
    const SHIM: &str = "src/tensor/initializer/torch/script.cpp";

    pub fn build() {
        let Some(libraries) = libraries() else { return };
        if env::var_os("CARGO_CFG_UNIX").is_some() {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.display());
        }
        compile(&libraries);
    }

    /// Where libtorch's libraries are; `None` where only documentation is built.
    fn libraries() -> Option<PathBuf> {
        println!("cargo:rerun-if-env-changed=LIBTORCH");
        let told = env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from);
        if told.is_some() || env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("windows") {
            return told;
        }
        // There torch-sys tells nothing.
        let libtorch = env::var_os("LIBTORCH").map(PathBuf::from);
        if libtorch.is_none() {
            println!(
                "cargo:warning=LIBTORCH is not set: what needs C++ is not compiled, nor linked"
            );
        }
        libtorch.map(|libtorch| libtorch.join("lib"))
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
        let mut build = cc::Build::new();
        if env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("msvc") {
            build.flag("/EHsc"); // without it exceptions are not caught
        }
        build
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
