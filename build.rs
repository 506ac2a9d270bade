//! Makes the pages of the guide, which the documentation includes. For the feature `tch`: says
//! where libtorch lies, so that tests, examples and doc tests find it when they run.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=docs");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    write_guide(Path::new("docs"), &out.join("guide"))?;
    // torch-sys tells it, except on Windows, where programs have no such path.
    let libraries = env::var("DEP_TCH_LIBTORCH_LIB").ok();
    let is_unix = env::var_os("CARGO_CFG_UNIX").is_some();
    if let Some(libraries) = libraries.filter(|_| is_unix) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libraries}");
    }
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
