//! Tells whether an operator means the same in two versions of its domain.
//!
//! A local function may import another version of a domain than the model that calls it. Its body
//! can move into the model only if each operator has the same schema in both versions. The table of
//! schemas is onnx's own. Which operators to compare is left to the caller.

mod arities;
mod defaults;
mod formals;
mod row;
mod signatures;
mod table;

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use arities::{ARITIES, Arities};
pub(crate) use defaults::DefaultValue;
use defaults::{DEFAULTS, Defaults};
pub(crate) use formals::{Formals, Misfit};
use row::Row;
use signatures::SIGNATURES;
pub(crate) use signatures::Signature;
use table::{DOMAINS, Domain};

/// The version of a domain in which an operator was added or last changed, as seen from one version
/// of the domain: onnx's `since_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// The operator is unchanged since this version. This may be the version that deprecated it.
    Known(i64),
    /// The operator is added in a later version of the domain.
    NotYet,
    /// Onnx has no schema for it: a custom operator, or an operator of a custom domain.
    NoSchema,
    /// Onnx has schemas for the domain, but the table ends before this version.
    NewerThanTable,
}

/// The canonical name of a domain: `ai.onnx` and the empty string are the same domain.
pub(crate) fn normalized(domain: &[u8]) -> &[u8] {
    if domain == b"ai.onnx" { b"" } else { domain }
}

/// Since which version `op_type` is as it is in `version` of `domain`.
pub(crate) fn since_version(domain: &[u8], op_type: &[u8], version: i64) -> Since {
    let Some(domain) = known_domain(normalized(domain)) else { return Since::NoSchema };
    if version > domain.newest {
        return Since::NewerThanTable;
    }
    let Some(versions) = versions_of(domain, op_type) else { return Since::NoSchema };
    let since = versions.iter().rfind(|since| **since <= version);
    since.map_or(Since::NotYet, |since| Since::Known(*since))
}

/// Whether `op_type` means the same in versions `a` and `b` of `domain`.
///
/// An operator without a schema is the same in all versions: this is the rule of onnx's checker for
/// custom operators. Past the end of the table an operator may have changed, so there only equal
/// versions are the same.
pub(crate) fn same_operator(domain: &[u8], op_type: &[u8], a: i64, b: i64) -> bool {
    let since = since_version(domain, op_type, a);
    a == b || (since != Since::NewerThanTable && since == since_version(domain, op_type, b))
}

/// Whether some version of `domain` has an operator of this name.
pub(crate) fn has_operator(domain: &[u8], name: &[u8]) -> bool {
    known_domain(normalized(domain)).is_some_and(|domain| versions_of(domain, name).is_some())
}

/// The inputs and outputs of `op_type` in `version` of `domain`, where onnx has a schema of it.
pub(crate) fn arity(domain: &[u8], op_type: &[u8], version: i64) -> Option<(Formals, Formals)> {
    let Since::Known(since) = since_version(domain, op_type, version) else { return None };
    arity_since(domain, op_type, since)
}

/// The inputs and outputs of `op_type` in the version that came `since`.
pub(crate) fn arity_since(domain: &[u8], op_type: &[u8], since: i64) -> Option<(Formals, Formals)> {
    let row = row(&ARITY_ROWS, domain, op_type, since)?;
    Some((Formals(row.inputs), Formals(row.outputs)))
}

/// The attributes of `op_type` that have a default, in the version that came `since`, by their
/// names.
pub(crate) fn defaults(
    domain: &[u8],
    op_type: &[u8],
    since: i64,
) -> &'static [(&'static str, DefaultValue)] {
    row(&DEFAULT_ROWS, domain, op_type, since).map_or(&[], |row| row.attributes)
}

/// The rows of each operator by its domain and name, one for each version in which something
/// changed: large models ask for each of their nodes.
type ByOperator<'n, R> = HashMap<(&'n [u8], &'n [u8]), &'static [R], RandomState>;

static DEFAULT_ROWS: LazyLock<ByOperator<'_, Defaults>> = LazyLock::new(|| by_operator(DEFAULTS));
static ARITY_ROWS: LazyLock<ByOperator<'_, Arities>> = LazyLock::new(|| by_operator(ARITIES));

fn by_operator<R: Row>(table: &'static [R]) -> ByOperator<'static, R> {
    let of = |row: &R| (row.key().0.as_bytes(), row.key().1.as_bytes());
    let by_operator = table.chunk_by(|a, b| of(a) == of(b));
    by_operator.filter_map(|rows| Some((of(rows.first()?), rows))).collect()
}

/// The row of `op_type` for the version that came `since`.
fn row<'n, R: Row>(
    rows: &ByOperator<'n, R>,
    domain: &'n [u8],
    op_type: &'n [u8],
    since: i64,
) -> Option<&'static R> {
    let rows = rows.get(&(normalized(domain), op_type)).copied()?;
    let after = rows.partition_point(|row| row.key().2 <= since);
    rows.get(after.checked_sub(1)?)
}

/// What an input or output of an operator may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Formal {
    /// Never floating point.
    Other,
    /// FLOAT in every node.
    Float,
    /// Of the type that this variable stands for in the node.
    Variable(usize),
    /// Of a type that no variable of an input tells.
    Unclear,
}

impl Signature {
    /// What `op_type` has in `version` of the standard domain, if anything in it is floating point.
    pub(crate) fn of(op_type: &[u8], version: i64) -> Option<&'static Self> {
        let Since::Known(since) = since_version(b"", op_type, version) else { return None };
        let key = (op_type, since);
        let row = SIGNATURES.binary_search_by_key(&key, |row| (row.name.as_bytes(), row.since));
        SIGNATURES.get(row.ok()?)
    }

    pub(crate) fn input(&self, index: usize) -> Formal {
        formal(self.inputs, index)
    }

    pub(crate) fn output(&self, index: usize) -> Formal {
        formal(self.outputs, index)
    }

    /// Whether `variable` may be the type with this bit.
    pub(crate) fn takes(&self, variable: usize, bit: u8) -> bool {
        self.variables.get(variable).is_some_and(|types| types & bit != 0)
    }
}

fn formal(formals: &str, index: usize) -> Formal {
    let letters = formals.trim_end_matches('*').as_bytes();
    let last = letters.len().checked_sub(1).filter(|_| formals.ends_with('*'));
    let code = letters.get(index).or_else(|| letters.get(last?));
    match code {
        Some(b'.') => Formal::Other,
        Some(b'1') => Formal::Float,
        Some(letter @ b'a'..=b'z') => Formal::Variable(usize::from(letter - b'a')),
        _ => Formal::Unclear,
    }
}

fn known_domain(name: &[u8]) -> Option<&'static Domain> {
    DOMAINS.iter().find(|domain| domain.name.as_bytes() == name)
}

fn versions_of(domain: &Domain, op_type: &[u8]) -> Option<&'static [i64]> {
    let place = domain.operators.binary_search_by_key(&op_type, |(name, _)| name.as_bytes());
    place.ok().and_then(|place| domain.operators.get(place)).map(|(_, versions)| *versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ML: &str = "ai.onnx.ml";

    #[test]
    fn an_operator_is_as_old_as_its_last_change() {
        let newest = known_domain(b"").unwrap().newest;
        for (domain, op_type, version, expected) in [
            ("", "Add", 1, Since::Known(1)),
            ("", "Add", 13, Since::Known(13)),
            ("", "Add", 14, Since::Known(14)),
            ("", "Add", newest, Since::Known(14)),
            ("ai.onnx", "Add", 17, Since::Known(14)),
            ("", "Add", newest + 1, Since::NewerThanTable),
            ("ai.onnx", "Mine", i64::MAX, Since::NewerThanTable),
            ("", "Add", 0, Since::NotYet),
            ("", "Add", i64::MIN, Since::NotYet),
            ("", "Upsample", 9, Since::Known(9)),
            ("", "Upsample", newest, Since::Known(10)),
            ("", "add", 14, Since::NoSchema),
            ("", "", 14, Since::NoSchema),
            (ML, "Add", 5, Since::NoSchema),
            (ML, "LabelEncoder", 3, Since::Known(2)),
            (ML, "TreeEnsemble", 4, Since::NotYet),
            (ML, "TreeEnsemble", 6, Since::NewerThanTable),
            ("ai.onnx.preview.training", "Adam", 1, Since::Known(1)),
            ("ai.onnx.m", "LabelEncoder", 3, Since::NoSchema),
            ("com.microsoft", "Gelu", i64::MAX, Since::NoSchema),
        ] {
            let since = since_version(domain.as_bytes(), op_type.as_bytes(), version);
            assert_eq!(since, expected, "{domain}.{op_type} in {version}");
        }
    }

    #[test]
    fn an_operator_is_the_same_until_it_changes() {
        let newest = known_domain(b"").unwrap().newest;
        for (domain, op_type, a, b, expected) in [
            ("", "Add", 16, 17, true),
            ("", "Add", 14, newest, true),
            ("", "Add", 13, 14, false),
            ("ai.onnx", "Add", 16, 18, true),
            ("ai.onnx", "Add", 13, 14, false),
            ("", "Softmax", 11, 12, true),
            ("", "Softmax", 12, 13, false),
            ("", "ReduceLogSum", 17, 18, false),
            ("", "Relu", 13, 14, false),
            // Deprecated in 10, and unchanged (unusable) from then on.
            ("", "Upsample", 9, 10, false),
            ("", "Upsample", 10, 13, true),
            // New in 17.
            ("", "LayerNormalization", 16, 17, false),
            ("", "LayerNormalization", 15, 16, true),
            // Past the table.
            ("", "Add", newest, newest + 1, false),
            ("", "Add", newest + 1, newest + 2, false),
            ("", "Add", newest + 1, newest + 1, true),
            ("", "Mine", newest, newest + 1, false),
            (ML, "Scaler", 5, 6, false),
            // Without a schema.
            ("", "Mine", 7, newest, true),
            ("com.microsoft", "Gelu", 1, i64::MAX, true),
            ("local", "Add", 13, 14, true),
            (ML, "Scaler", 1, 5, true),
            (ML, "LabelEncoder", 1, 2, false),
            (ML, "LabelEncoder", 2, 3, true),
            (ML, "TreeEnsembleRegressor", 4, 5, false),
            (ML, "TreeEnsemble", 4, 5, false),
        ] {
            for (a, b) in [(a, b), (b, a)] {
                let same = same_operator(domain.as_bytes(), op_type.as_bytes(), a, b);
                assert_eq!(same, expected, "{domain}.{op_type} in {a} and {b}");
            }
        }
    }

    #[test]
    fn a_signature_says_which_types_share_a_variable() {
        use Formal::{Float, Other, Unclear, Variable};
        let cases = [
            ("Add", 13, [Variable(0); 2], Variable(0), [true, true]),
            ("Add", 7, [Variable(0); 2], Variable(0), [true, false]),
            ("Max", 13, [Variable(0); 2], Variable(0), [true, true]),
            ("Range", 11, [Variable(0); 2], Variable(0), [false, false]),
            ("QuantizeLinear", 13, [Variable(0), Float], Other, [false, false]),
            ("Cast", 13, [Variable(0), Unclear], Unclear, [true, true]),
            ("SequenceInsert", 11, [Unclear, Variable(0)], Unclear, [true, false]),
            ("Gather", 13, [Variable(0), Other], Variable(0), [true, true]),
        ];
        for (op_type, version, inputs, output, takes) in cases {
            let signature = Signature::of(op_type.as_bytes(), version).unwrap();
            assert_eq!([0, 1].map(|index| signature.input(index)), inputs, "{op_type}");
            assert_eq!(signature.output(0), output, "{op_type}");
            assert_eq!([2, 4].map(|bit| signature.takes(0, bit)), takes, "{op_type}");
        }
        for (op_type, version) in [("And", 7), ("Mine", 7), ("Add", 999), ("Add", 0)] {
            assert!(Signature::of(op_type.as_bytes(), version).is_none(), "{op_type}");
        }
        assert!(SIGNATURES.is_sorted_by_key(|row| (row.name, row.since)));
    }

    #[test]
    fn a_default_is_that_of_the_version() {
        use DefaultValue::{Float, Int, String};
        type Case = (&'static str, &'static str, i64, &'static [(&'static str, DefaultValue)]);
        let cases: &[Case] = &[
            ("", "Softmax", 11, &[("axis", Int(1))]),
            ("ai.onnx", "Softmax", 13, &[("axis", Int(-1))]),
            ("", "Concat", 1, &[("axis", Int(1))]),
            ("", "Concat", 13, &[]),
            ("", "LeakyRelu", 16, &[("alpha", Float(0x3c23_d70a))]),
            ("", "ConstantOfShape", 25, &[("value", DefaultValue::ZeroTensor)]),
            ("", "Relu", 14, &[]),
            ("", "Softmax", 0, &[]),
            ("", "Zzz", 1, &[]),
            ("mine", "Softmax", 13, &[]),
            (ML, "LinearRegressor", 1, &[("post_transform", String("NONE")), ("targets", Int(1))]),
        ];
        for (domain, op_type, since, expected) in cases {
            let found = defaults(domain.as_bytes(), op_type.as_bytes(), *since);
            assert_eq!(found, *expected, "{domain}.{op_type} {since}");
        }
        assert!(DEFAULTS.is_sorted_by_key(Row::key));
        assert!(DEFAULTS.iter().all(|row| row.attributes.is_sorted_by_key(|(name, _)| *name)));
    }

    #[test]
    fn an_arity_is_that_of_the_version() {
        for (domain, op_type, version, inputs, outputs) in [
            ("", "Split", 1, "ro", "*1"),
            ("", "Split", 11, "r", "*1"),
            ("ai.onnx", "Split", 18, "ro", "*1"),
            ("", "Loop", 25, "oo*0", "*1"),
            ("", "BatchNormalization", 9, "rrrrr", "roooo"),
            ("", "BatchNormalization", 15, "rrrrr", "roo"),
            ("", "Constant", 13, "", "r"),
            ("", "Upsample", 13, "?rr", "?r"),
            (ML, "FeatureVectorizer", 1, "*1", "r"),
        ] {
            let found = arity(domain.as_bytes(), op_type.as_bytes(), version).unwrap();
            assert_eq!(found, (Formals(inputs), Formals(outputs)), "{domain}.{op_type} {version}");
        }
        for (domain, op_type, version) in [("", "Mine", 1), ("mine", "Add", 1), ("", "Selu", 0)] {
            assert!(arity(domain.as_bytes(), op_type.as_bytes(), version).is_none());
        }
        assert!(ARITIES.is_sorted_by_key(Row::key));
        for domain in DOMAINS {
            for (op_type, versions) in domain.operators {
                let of = |since: &i64| arity(domain.name.as_bytes(), op_type.as_bytes(), *since);
                assert!(versions.iter().all(|since| of(since).is_some()), "{op_type}");
            }
        }
    }

    #[test]
    fn the_table_is_sorted_and_has_no_duplicates() {
        for domain in DOMAINS {
            let named = known_domain(normalized(domain.name.as_bytes())).unwrap();
            assert!(std::ptr::eq(named, domain), "{} is there twice", domain.name);
            assert!(domain.operators.is_sorted_by(|(a, _), (b, _)| a < b), "{}", domain.name);
            for (op_type, versions) in domain.operators {
                assert!(versions.is_sorted_by(|a, b| a < b), "{op_type}: {versions:?}");
                assert!(versions.iter().all(|since| (1..=domain.newest).contains(since)));
                let since =
                    since_version(domain.name.as_bytes(), op_type.as_bytes(), domain.newest);
                assert_eq!(Some(since), versions.last().copied().map(Since::Known), "{op_type}");
            }
        }
    }
}
