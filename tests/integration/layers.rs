//! The rooms of the crates: a room uses only rooms above it in the lists of docs/design.md,
//! and no two files of a room use each other.
//!
//! The sources are read as tokens, so that every form of path counts: `use` with groups and
//! aliases, paths from `crate`, `self` and `super`, paths that start at a child module, paths
//! inside macros, and names that another file re-exports. Tests may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A crate whose modules are in rooms.
struct Crate {
    /// Its sources, below the root of the repository.
    sources: &'static str,
    /// The name of its list in docs/design.md.
    list: &'static str,
    /// Rooms of which none uses another one of its group.
    strangers: &'static [&'static [&'static str]],
    /// Uses that close a circle and are excused: a file, the file that it uses, and why.
    excused: &'static [(&'static str, &'static str, &'static str)],
    /// The least number of uses between modules that a reader finds which looks in the right place.
    uses: usize,
}

/// Why files in a folder may use the file of the folder, which uses them.
const PARTS: &str = "a file has the types of a subject, and those in its folder work on them";

const MESSAGES: Crate = Crate {
    sources: "proto/src",
    list: "layers of the messages",
    strangers: &[],
    excused: &[
        ("proto::*", "proto::*", "messages hold each other: a node's attribute may have a graph"),
        ("proto::wire::*", "proto::wire::*", "messages hold fields, and fields hold messages"),
        (
            "tensor::initializer::torch",
            "tensor::initializer",
            "PyTorch tensors become initializers, and initializers become PyTorch tensors",
        ),
    ],
    uses: 100,
};

const LIBRARY: Crate = Crate {
    sources: "src",
    list: "layers",
    strangers: &[&["graph", "files"], &["load", "save"]],
    excused: &[],
    uses: 300,
};

const KERNELS: Crate = Crate {
    sources: "kernels/src",
    list: "layers of the kernels",
    strangers: &[],
    excused: &[
        ("kernels::recurrent::*", "kernels::recurrent", PARTS),
        ("kernels::tree::*", "kernels::tree", PARTS),
        ("program::*", "program", PARTS),
    ],
    uses: 300,
};

const MACHINE: Crate = Crate {
    sources: "machine/src",
    list: "layers of the machine",
    strangers: &[],
    excused: &[
        ("machine::*", "machine", PARTS),
        ("machine::control::*", "machine::control", PARTS),
        ("machine::runner", "machine::control", "a block has nodes, and a node may have blocks"),
        ("plan::*", "plan", PARTS),
        ("program::*", "program", PARTS),
        ("ready::*", "ready", PARTS),
        ("trace::*", "trace", PARTS),
    ],
    uses: 100,
};

const FILES: Crate = Crate {
    sources: "files/src",
    list: "layers of the files",
    strangers: &[],
    excused: &[],
    uses: 0,
};

const SIGNING: Crate = Crate {
    sources: "signing/src",
    list: "layers of the signatures",
    strangers: &[],
    excused: &[],
    uses: 50,
};

const REPORT: Crate = Crate {
    sources: "report/src",
    list: "layers of the report",
    strangers: &[],
    excused: &[],
    uses: 10,
};

const STORES: Crate = Crate {
    sources: "stores/src",
    list: "layers of the stores",
    strangers: &[],
    excused: &[("store", "probe", "a store remembers what a trial of it has shown")],
    uses: 30,
};

const COMMAND: Crate = Crate {
    sources: "cli/src",
    list: "layers of the command",
    strangers: &[],
    excused: &[
        ("args::*", "args", PARTS),
        ("commands::check::*", "commands::check", PARTS),
        ("commands::evaluate::*", "commands::evaluate", PARTS),
        ("commands::inspect::*", "commands::inspect", PARTS),
        ("commands::plan::*", "commands::plan", PARTS),
        ("commands::trace::*", "commands::trace", PARTS),
        ("commands::write::*", "commands::write", PARTS),
        ("files::tensor_file::*", "files::tensor_file", PARTS),
        ("model::place::*", "model::place", PARTS),
    ],
    uses: 200,
};

const PYTHON: Crate = Crate {
    sources: "python/src",
    list: "layers of the Python package",
    strangers: &[],
    excused: &[(
        "bytes",
        "initializer",
        "bytes are weights of an initializer, and its elements are bytes",
    )],
    uses: 20,
};

/// The path of a module below the crate: `["save", "plan"]`. The crate itself is empty.
type Module = Vec<String>;

/// What the source of one module says.
#[derive(Default)]
struct Source {
    /// The names that `use` brings in, with the paths that they stand for.
    imports: BTreeMap<String, Vec<String>>,
    /// Every path in the source, from the crate's root on.
    paths: BTreeSet<Vec<String>>,
}

/// The sources of the library by module.
struct Library {
    sources: BTreeMap<Module, Source>,
}

impl Library {
    fn read(sources: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(sources);
        let mut files = Vec::new();
        find_files(&root, &Vec::new(), &mut files);
        Self::parse(
            files.iter().map(|(module, path)| (module.clone(), fs::read_to_string(path).unwrap())),
        )
    }

    fn parse(files: impl IntoIterator<Item = (Module, String)>) -> Self {
        let files: BTreeMap<_, _> = files.into_iter().collect();
        let modules: BTreeSet<_> = files.keys().cloned().collect();
        let sources = files.iter().map(|(module, text)| {
            let mut reader = Reader::new(module, &modules);
            reader.read(text.parse().unwrap());
            let Reader { mut source, handed_out, words, .. } = reader;
            let used = handed_out.into_iter().filter(|(name, _)| words.contains(name));
            source.paths.extend(used.map(|(_, path)| path));
            (module.clone(), source)
        });
        Self { sources: sources.collect() }
    }

    /// The module that defines what `path` names: re-exports and imports are followed.
    fn definer(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        // Imports that lead in a circle do not compile; the bound is for a reader that errs.
        for _ in 0..16 {
            let depth = (0..=path.len()).rev().find(|n| self.sources.contains_key(&path[..*n]));
            let depth = depth.unwrap();
            let imports = &self.sources[&path[..depth]].imports;
            match path.get(depth).and_then(|name| imports.get(name)) {
                Some(target) if *target != path[..=depth] => {
                    path = [target, &path[depth + 1..]].concat();
                }
                _ => return path[..depth].to_vec(),
            }
        }
        panic!("the imports on the way to {path:?} lead in a circle");
    }

    /// The modules that `module` uses, except itself.
    fn used_by(&self, module: &Module) -> BTreeSet<Module> {
        let used = self.sources[module].paths.iter().map(|path| self.definer(path));
        used.filter(|used| used != module && !used.is_empty()).collect()
    }
}

fn find_files(folder: &Path, module: &Module, files: &mut Vec<(Module, PathBuf)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let child = [module.as_slice(), std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            find_files(&path, &child, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push((if name == "lib" { Vec::new() } else { child }, path));
        }
    }
}

/// Reads the tokens of one module.
struct Reader<'m> {
    module: &'m Module,
    modules: &'m BTreeSet<Module>,
    source: Source,
    /// What it makes public of its own files, by name.
    handed_out: Vec<(String, Vec<String>)>,
    /// The words outside of `use` declarations.
    words: BTreeSet<String>,
}

impl<'m> Reader<'m> {
    fn new(module: &'m Module, modules: &'m BTreeSet<Module>) -> Self {
        Self {
            module,
            modules,
            source: Source::default(),
            handed_out: Vec::new(),
            words: BTreeSet::new(),
        }
    }
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                _ if is_test_only(&tokens[at..]) => after_item(&tokens, at + 2),
                TokenTree::Ident(word) if *word == "pub" => after_visibility(&tokens, at),
                TokenTree::Ident(word) if *word == "use" => self.import(&tokens, at),
                TokenTree::Ident(word) if *word == "mod" => self.inline_module(&tokens, at + 1),
                TokenTree::Ident(word) => self.path(&word.to_string(), &tokens, at),
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Reads a module that is written inside its parent, whose name stands at `at`.
    fn inline_module(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let Some(TokenTree::Group(body)) = tokens.get(at + 1) else { return at };
        let module = [self.module.as_slice(), &[tokens[at].to_string()]].concat();
        let mut inner = Reader::new(&module, self.modules);
        inner.read(body.stream());
        self.source.paths.extend(inner.source.paths);
        at + 2
    }

    /// Reads the `use` declaration at `at`, up to its semicolon. A `pub use` of a module's own
    /// files counts as a use only where the module uses the name itself.
    fn import(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let is_public =
            at > 0 && matches!(&tokens[at - 1], TokenTree::Ident(word) if *word == "pub");
        let at = at + 1;
        let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
        let end = tokens[at..].iter().position(is_end).map_or(tokens.len(), |n| at + n);
        for (path, name) in use_tree(&tokens[at..end], &[]) {
            if let Some(path) = self.absolute(&path) {
                self.source.imports.insert(name.clone(), path.clone());
                if is_public && path.starts_with(self.module) {
                    self.handed_out.push((name, path));
                } else {
                    self.source.paths.insert(path);
                }
            }
        }
        end
    }

    /// Notes the path that starts with the word at `at`, when it is one of the crate.
    fn path(&mut self, first: &str, tokens: &[TokenTree], at: usize) -> usize {
        self.words.insert(first.to_owned());
        let (mut path, mut at) = (vec![first.to_owned()], at + 1);
        let follows = at >= 2 && is_colons(&tokens[at.saturating_sub(3)..at - 1]);
        while is_colons(&tokens[at..]) {
            let Some(TokenTree::Ident(word)) = tokens.get(at + 2) else { break };
            path.push(word.to_string());
            at += 3;
        }
        if path.len() > 1
            && !follows
            && let Some(path) = self.absolute(&path)
        {
            self.source.paths.insert(path);
        }
        at
    }

    /// `path` from the crate's root on; `None` for one that leads into another crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut base = self.module.clone();
        let mut rest = path;
        match path[0].as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                let child = [base.as_slice(), &[child.to_owned()]].concat();
                self.modules.contains(&child).then_some(())?;
            }
        }
        Some([base.as_slice(), rest].concat())
    }
}

/// The index behind the `pub` at `at` and what restricts it, such as `(in crate::save)`.
fn after_visibility(tokens: &[TokenTree], at: usize) -> usize {
    let restricted = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
    if tokens.get(at + 1).is_some_and(restricted) { at + 2 } else { at + 1 }
}

/// The paths of a `use` tree behind `prefix`, with the names that they get.
fn use_tree(tokens: &[TokenTree], prefix: &[String]) -> Vec<(Vec<String>, String)> {
    let (mut path, mut alias) = (prefix.to_vec(), None);
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if *word == "as" => {
                alias = tokens.next().map(ToString::to_string)
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                let is_comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
                return inner.split(is_comma).flat_map(|tree| use_tree(tree, &path)).collect();
            }
            _ => {}
        }
    }
    if path.len() > prefix.len() && path.last().is_some_and(|word| word == "self") {
        path.pop();
    }
    if path.len() == prefix.len() && alias.is_none() && !tokens.as_slice().is_empty() {
        return Vec::new();
    }
    let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
    if path.is_empty() { Vec::new() } else { vec![(path, name)] }
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(tokens.first()) && is_colon(tokens.get(1))
}

/// Whether `tokens` start with `#[cfg(test)]` or another attribute that only tests have.
fn is_test_only(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else { return false };
    let text = group.stream().to_string().replace(' ', "");
    hash.as_char() == '#' && (text.starts_with("cfg(test") || text.starts_with("cfg(all(test"))
}

/// The index behind the item that starts at `at`.
fn after_item(tokens: &[TokenTree], at: usize) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens[at..].iter().position(is_end).map_or(tokens.len(), |n| at + n + 1)
}

/// The lines of a list in docs/design.md, from the ground up: a room, or a room and a module inside
/// it. A room with lines inside has its own files at the line with its name.
fn layers(list: &str) -> Vec<Module> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/design.md");
    let page = fs::read_to_string(page).unwrap();
    let block = page.split_once(&format!("```{list}\n")).unwrap().1.split_once("```").unwrap().0;
    let mut layers: Vec<Module> = Vec::new();
    for line in block.lines() {
        let name = line.split_whitespace().next().unwrap().to_owned();
        let room = layers.last().map(|last| last[0].clone()).filter(|_| line.starts_with(' '));
        layers.push(room.into_iter().chain([name]).collect());
    }
    layers
}

/// The line of a module in `layers`: its own, or that of its room.
fn layer_of(module: &Module, layers: &[Module]) -> Option<usize> {
    let at = |layer: &[String]| layers.iter().position(|line| line == layer);
    let own = [module[0].clone(), module[0].clone()];
    let listed = module.get(..2).and_then(at);
    listed.or_else(|| at(&own)).or_else(|| at(&module[..1]))
}

/// Whether the use of `used` by `module` is among `excused`.
fn is_excused(module: &Module, used: &Module, excused: &[(&str, &str)]) -> bool {
    let names = |module: &Module| {
        let parent = module[..module.len() - 1].join("::");
        [module.join("::"), format!("{}::*", module.join("::")), format!("{parent}::*")]
    };
    let (users, used) = (names(module), names(used));
    excused.iter().any(|(a, b)| users.iter().any(|x| x == a) && used.iter().any(|x| x == b))
}

/// What is wrong with the uses of `library`, whose modules have the order of `layers`.
fn faults(
    library: &Library,
    layers: &[Module],
    strangers: &[&[&str]],
    excused: &[(&str, &str)],
) -> Vec<String> {
    let is_stranger = |a: &Module, b: &Module| {
        let both = |group: &&[&str]| [a, b].iter().all(|m| group.contains(&m[0].as_str()));
        a[0] != b[0] && strangers.iter().any(both)
    };
    let mut faults = Vec::new();
    for module in library.sources.keys().filter(|module| !module.is_empty()) {
        let layer = layer_of(module, layers);
        if layer.is_none() {
            faults.push(format!("{} has no layer", module.join("::")));
        }
        for used in library.used_by(module) {
            let is_above = layer_of(&used, layers) > layer && !is_excused(module, &used, excused);
            if is_above || is_stranger(module, &used) {
                faults.push(format!("{} uses {}", module.join("::"), used.join("::")));
            }
        }
    }
    faults
}

/// The uses of `library` that are part of a circle, except those that are `excused`, such as
/// `("a::b", "a")`. `a::*` is the module `a` and each file in its folder.
fn circles(library: &Library, excused: &[(&str, &str)]) -> Vec<String> {
    let uses: BTreeMap<_, Vec<_>> = library
        .sources
        .keys()
        .filter(|module| !module.is_empty())
        .map(|module| {
            let used = library.used_by(module).into_iter();
            (module.clone(), used.filter(|used| !is_excused(module, used, excused)).collect())
        })
        .collect();
    let reached = |from: &Module| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            let new = uses[module].iter().filter(|used| reached.insert(*used));
            next.extend(new.collect::<Vec<_>>());
        }
        reached
    };
    let reached: BTreeMap<_, _> = uses.keys().map(|module| (module, reached(module))).collect();
    let all = uses.iter().flat_map(|(module, used)| used.iter().map(move |used| (module, used)));
    all.filter(|(module, used)| reached[used].contains(module))
        .map(|(module, used)| {
            format!("in a circle: {} uses {}", module.join("::"), used.join("::"))
        })
        .collect()
}

#[test]
fn every_file_uses_only_what_is_above_it() {
    let mut faults_of_all = Vec::new();
    for Crate { sources, list, strangers, excused, uses: least } in
        [MESSAGES, LIBRARY, KERNELS, MACHINE, FILES, SIGNING, REPORT, STORES, COMMAND, PYTHON]
    {
        let library = Library::read(sources);
        let uses: usize = library.sources.keys().map(|module| library.used_by(module).len()).sum();
        assert!(
            uses >= least,
            "{sources}: only {uses} uses found: the test looks in the wrong place"
        );
        let pairs: Vec<_> = excused.iter().map(|(module, used, _)| (*module, *used)).collect();
        let mut found = faults(&library, &layers(list), strangers, &pairs);
        found.extend(circles(&library, &pairs));
        // An excuse that nothing needs any more is a fault.
        for pair in &pairs {
            let others: Vec<_> = pairs.iter().copied().filter(|other| other != pair).collect();
            if circles(&library, &others).is_empty() {
                found.push(format!("{pair:?} needs no excuse"));
            }
        }
        faults_of_all.extend(found.into_iter().map(|fault| format!("{sources}: {fault}")));
    }
    assert!(faults_of_all.is_empty(), "{}", faults_of_all.join("\n"));
}

/// What a model's graph and its files say does not depend on elements.
#[test]
fn graphs_and_files_use_no_tensors() {
    let library = Library::read(LIBRARY.sources);
    let of_tensors = |path: &&Vec<String>| {
        path.first().is_some_and(|name| ["tensor", "Tensor", "Initializer"].contains(&&**name))
    };
    let users: Vec<_> = library
        .sources
        .iter()
        .filter(|(_, source)| source.paths.iter().any(|path| of_tensors(&path)))
        .map(|(module, _)| module.join("::"))
        .collect();
    let rooms = ["graph", "files"];
    let wrong = users.iter().filter(|user| rooms.contains(&user.split("::").next().unwrap()));
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
    assert!(users.len() > 20, "only {} users of tensors were found", users.len());
}

#[test]
fn every_form_of_path_is_found() {
    // `top` is the lower layer in each case and `low` the upper one, so every use of `top` is a
    // fault.
    let forms = [
        "use crate::top::T;",
        "use crate::{error::E, top::{self, T}};",
        "use super::top::T;",
        "use crate::T;",
        "fn f(t: crate::T) {}",
        "fn f() { crate::top::f(); }",
        "fn f() { m!(a, [crate::top::f()]); }",
        "use crate::T as Other;",
        "use crate::top;",
        "mod inner { use super::super::top::T; }",
    ];
    for form in forms {
        let layers = ["error", "low", "top"].map(|name| vec![name.to_owned()]);
        let found = faults(&example(form), &layers, &[], &[]);
        assert_eq!(found, ["low uses top"], "{form}");
    }
    for form in [
        "mod inner { use super::T; }",
        "#[cfg(test)] mod tests { use crate::top::T; }",
        "// crate::top::T",
        "use top::T;",
    ] {
        let layers = ["error", "low", "top"].map(|name| vec![name.to_owned()]);
        let found = faults(&example(form), &layers, &[], &[]);
        assert_eq!(found, Vec::<String>::new(), "{form}");
    }
}

#[test]
fn circles_inside_a_module_are_found() {
    let library = |top: &str, b: &str| {
        let files = [
            (vec![], "mod top;"),
            (vec!["top"], top),
            (vec!["top", "a"], "use super::b::B; struct A;"),
            (vec!["top", "b"], b),
        ];
        let files = files.iter().map(|(module, text)| {
            (module.iter().map(|name| (*name).to_owned()).collect(), (*text).to_owned())
        });
        Library::parse(files)
    };
    let with = |b: &str| library("mod a; mod b; pub(crate) use a::A; struct Mine;", b);
    assert_eq!(circles(&with("struct B;"), &[]), [""; 0]);
    for circle in ["use super::A;", "use crate::top::a::A;", "use super::Mine;"] {
        assert!(circles(&with(circle), &[]).len() > 1, "{circle}");
    }
    for excuse in [("top::b", "top::a"), ("top::a", "top::b")] {
        assert_eq!(circles(&with("use super::A;"), &[excuse]), [""; 0]);
    }
    assert_eq!(circles(&with("use super::Mine;"), &[("top::*", "top")]), [""; 0]);
    // What is made public is used only where its name stands.
    let handing_out =
        |mine: &str| library(&format!("mod a; mod b; pub use a::A; {mine}"), "use super::Mine;");
    assert_eq!(circles(&handing_out("struct Mine;"), &[]), [""; 0]);
    assert!(circles(&handing_out("struct Mine(A);"), &[]).len() > 1);
}

#[test]
fn lines_inside_a_room_and_strangers_are_held() {
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Module>();
    let layers = [&["low"][..], &["room"], &["room", "a"], &["room", "room"], &["top"]].map(path);
    let with = |module: &[&str], text: &str| {
        let modules = [&["low"][..], &["room"], &["room", "a"], &["room", "other"], &["top"]];
        let files = modules.map(|names| {
            (path(names), if names == module { text } else { "struct S;" }.to_owned())
        });
        let root = (Vec::new(), String::new());
        faults(&Library::parse(files.into_iter().chain([root])), &layers, &[&["low", "top"]], &[])
    };
    let none = Vec::<String>::new();
    assert_eq!(with(&["room"], "use crate::room::a::S;"), none);
    assert_eq!(with(&["room", "a"], "use crate::room::S;"), ["room::a uses room"]);
    assert_eq!(with(&["room", "a"], "use crate::room::other::S;"), ["room::a uses room::other"]);
    assert_eq!(with(&["room", "other"], "use crate::room::a::S;"), none);
    assert_eq!(with(&["top"], "use crate::room::S;"), none);
    assert_eq!(with(&["top"], "use crate::low::S;"), ["top uses low"]);
}

/// A library of three modules, of which `low` has the text `low`.
fn example(low: &str) -> Library {
    let files = [("error", "struct E;"), ("low", low), ("top", "struct T; fn f() {}")];
    let files = files.map(|(name, text)| (vec![name.to_owned()], text.to_owned()));
    let root = (Vec::new(), "mod error; mod low; mod top; pub use top::T;".to_owned());
    Library::parse(files.into_iter().chain([root]))
}

/// The crates below each crate, by its folder. Cargo refuses a circle, but not another arrow.
const CRATES: [(&str, &[&str]); 10] = [
    ("proto", &[]),
    (".", &["proto"]),
    ("kernels", &["proto"]),
    ("machine", &["", "kernels"]),
    ("files", &[""]),
    ("signing", &["", "files"]),
    ("report", &["", "files", "machine"]),
    ("stores", &[""]),
    ("cli", &["", "files", "signing", "machine", "report", "store"]),
    ("python", &["", "cli", "machine", "report", "signing", "store"]),
];

#[test]
fn crates_use_only_the_crates_below_them() {
    for (folder, below) in CRATES {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("Cargo.toml");
        let text = fs::read_to_string(manifest).unwrap();
        let (_, dependencies) = text.split_once("\n[dependencies]\n").unwrap();
        let dependencies = dependencies.split("\n[").next().unwrap().lines();
        let used: BTreeSet<_> = dependencies
            .filter_map(|line| line.strip_prefix("onnx-container"))
            .map(|rest| rest.split([' ', '=', '.']).next().unwrap().trim_start_matches('-'))
            .collect();
        assert_eq!(used, below.iter().copied().collect(), "{folder}/Cargo.toml");
    }
}

/// A file of one purpose is short. What a script generated is as long as its table.
#[test]
fn files_have_at_most_500_lines_without_their_tests() {
    let (mut long, mut files) = (Vec::new(), Vec::new());
    for sources in [
        "proto/src",
        "protocol/src",
        "src",
        "kernels/src",
        "machine/src",
        "files/src",
        "signing/src",
        "report/src",
        "stores/src",
        "cli/src",
        "python/src",
    ] {
        find_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(sources), &Vec::new(), &mut files);
    }
    assert!(files.len() > 300, "only {} files were found", files.len());
    for (_, path) in files {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split_once("\nmod tests {").map_or(&*text, |(code, _)| code);
        let lines = code.lines().count();
        if lines > 500 && !text.contains("//! Generated by ") {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
