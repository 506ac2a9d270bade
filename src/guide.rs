//! The guide: jobs with their code, the formats, and what this library promises.
//!
//! - First: [`recipes`], [`questions`].
//! - Load and own: [`tensors`], [`sources`], [`ownership`], [`pytorch`], [`python`],
//!   [`python_cookbook`], [`python_api`].
//! - Save and ship: [`format`](mod@format), [`safety`], [`jobs`], [`stores`], [`safetensors`],
//!   [`inlining`].
//! - Prove: [`digests`], [`signing`], [`semantic_digest`], [`machine`], [`plan`].
//! - Script: [`commands`], [`json`].
//! - Contribute: [`design`], [`benchmarks`], [`platforms`], [`releasing`].

/// A module for each page of the folder `docs`, as the build script has written it.
macro_rules! pages {
    ($($name:ident),* $(,)?) => {
        $(
            #[doc = include_str!(concat!(env!("OUT_DIR"), "/guide/", stringify!($name), ".md"))]
            pub mod $name {}
        )*
    };
}

pages! {
    benchmarks,
    commands,
    design,
    digests,
    format,
    inlining,
    jobs,
    json,
    machine,
    ownership,
    plan,
    platforms,
    python,
    python_api,
    python_cookbook,
    pytorch,
    questions,
    recipes,
    releasing,
    safetensors,
    safety,
    semantic_digest,
    signing,
    sources,
    stores,
    tensors,
}
