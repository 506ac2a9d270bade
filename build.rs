//! Makes the pages of the guide, which the documentation includes. For the feature `tch`: says
//! where libtorch lies, so that tests, examples and doc tests find it when they run, and compiles
//! what needs C++.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=docs");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    write_guide(Path::new("docs"), &out.join("guide"))?;
    #[cfg(feature = "tch")]
    tch::build();
    Ok(())
}

/// Writes the pages of `docs` to `guide`, named as modules, with links that lead from one module to
/// another.
fn write_guide(docs: &Path, guide: &Path) -> io::Result<()> {
    fs::create_dir_all(guide)?;
    for entry in fs::read_dir(docs)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
            fs::write(guide.join(name), with_links_to_modules(&fs::read_to_string(&path)?))?;
        }
    }
    Ok(())
}

/// `page` with `(../NAME/index.html)` for the links `(NAME.md)`, and the same with anchors.
fn with_links_to_modules(page: &str) -> String {
    let mut parts = page.split("](");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        linked += "](";
        let target = part.split(')').next().unwrap_or_default();
        match target.split_once(".md") {
            Some((name, anchor)) if !name.contains('/') => {
                linked += &format!("../{}/index.html{anchor}", name.replace('-', "_"));
                linked += part.strip_prefix(target).unwrap_or_default();
            }
            _ => linked += part,
        }
    }
    linked
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
