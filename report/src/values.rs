//! Values as the scripts of the page can read them: no text of a megabyte, no integer that
//! JavaScript rounds, no float that JSON cannot say.

use std::io::Write;

use onnx_container::{Error, Result};
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

/// The most characters of a text. A longer one is cut in the middle, and says so.
const MOST: usize = 4096;

/// The largest integer of which JavaScript's numbers have every smaller one.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// An object of JSON. An entry is written when it is added. In its values texts are short and
/// integers are such as JavaScript has.
pub(crate) struct Object<'w> {
    json: &'w mut dyn Write,
    is_empty: bool,
}

impl<'w> Object<'w> {
    pub(crate) fn begin(json: &'w mut dyn Write) -> Result<Self> {
        json.write_all(b"{").map_err(Error::other)?;
        Ok(Self { json, is_empty: true })
    }

    pub(crate) fn end(self) -> Result<()> {
        self.json.write_all(b"}").map_err(Error::other)
    }

    fn name(&mut self, name: &str) -> Result<()> {
        let comma = if std::mem::take(&mut self.is_empty) { "" } else { "," };
        write!(self.json, "{comma}\"{name}\":").map_err(Error::other)
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        self.name(name)?;
        serde_json::to_writer(&mut *self.json, value).map_err(Error::other)
    }

    /// As [`add`](Self::add), for a value that takes no care of its texts and integers. It is held
    /// in memory as a whole, and is not for very many tensors.
    pub(crate) fn add_tidy(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        let mut value = serde_json::to_value(value).map_err(Error::other)?;
        tidy(&mut value);
        self.add(name, &value)
    }

    /// Adds an object, which the caller ends.
    pub(crate) fn object(&mut self, name: &str) -> Result<Object<'_>> {
        self.name(name)?;
        Object::begin(&mut *self.json)
    }
}

/// A text that is not too long.
pub(crate) struct Text<'t>(pub(crate) &'t str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match cut(self.0) {
            Some(text) => serializer.serialize_str(&text),
            None => serializer.serialize_str(self.0),
        }
    }
}

/// An integer; a text where JavaScript would round it.
#[derive(Debug)]
pub(crate) struct Exact(pub(crate) i128);

impl Exact {
    pub(crate) fn value(&self) -> Value {
        let small = i64::try_from(self.0).ok().filter(|n| n.unsigned_abs() <= MOST_EXACT);
        small.map_or_else(|| Value::String(self.0.to_string()), Value::from)
    }
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// Several integers, each as [`Exact`].
pub(crate) struct Integers<'i>(pub(crate) &'i [i64]);

impl Serialize for Integers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|number| Exact((*number).into())))
    }
}

/// Serializes a text that is not too long.
pub(crate) fn text<S: Serializer>(
    text: &str,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    Text(text).serialize(serializer)
}

/// Serializes a length or number as [`Exact`].
pub(crate) fn exact<S: Serializer>(
    number: &u64,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    Exact((*number).into()).serialize(serializer)
}

/// Cuts the texts in `value` and makes texts of long integers.
fn tidy(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(cut) = cut(text) {
                *text = cut;
            }
        }
        Value::Number(number) => {
            if is_long(number) {
                *value = Value::String(number.to_string());
            }
        }
        Value::Array(values) => values.iter_mut().for_each(tidy),
        Value::Object(entries) => entries.values_mut().for_each(tidy),
        Value::Null | Value::Bool(_) => {}
    }
}

fn is_long(number: &Number) -> bool {
    let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    magnitude.is_some_and(|magnitude| magnitude > MOST_EXACT)
}

/// `text` without its middle, when it is too long.
fn cut(text: &str) -> Option<String> {
    if text.len() <= MOST {
        return None;
    }
    let start = text.chars().take(MOST / 2).collect::<String>();
    let end: Vec<_> = text.chars().rev().take(MOST / 4).collect();
    let end: String = end.into_iter().rev().collect();
    let left = text.len().checked_sub(start.len() + end.len()).filter(|left| *left > 0)?;
    Some(format!("{start}… {left} bytes …{end}"))
}

/// A float as JSON: a text for what JSON has no number for.
pub(crate) fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_such_as_javascript_has() {
        let long = "ä".repeat(1 << 20);
        for (given, expected) in [
            (json!(1), json!(1)),
            (json!(MOST_EXACT), json!(MOST_EXACT)),
            (json!(u64::MAX), json!("18446744073709551615")),
            (json!([i64::MIN]), json!(["-9223372036854775808"])),
            (json!({ "a": 0.5 }), json!({ "a": 0.5 })),
            (json!("short"), json!("short")),
        ] {
            let mut found = given;
            tidy(&mut found);
            assert_eq!(found, expected);
        }
        for (number, expected) in [
            (1, "1"),
            (-1, "-1"),
            (i128::from(MOST_EXACT), "9007199254740991"),
            (i128::from(MOST_EXACT) + 1, "\"9007199254740992\""),
            (u64::MAX.into(), "\"18446744073709551615\""),
            (i64::MIN.into(), "\"-9223372036854775808\""),
        ] {
            assert_eq!(serde_json::to_string(&Exact(number)).unwrap(), expected);
        }
        let mut found = json!({ "name": long });
        tidy(&mut found);
        let found = found["name"].as_str().unwrap().to_owned();
        assert!(found.len() < 2 * MOST && found.starts_with("ää") && found.ends_with("ää"));
        assert!(found.contains("2091008 bytes"), "{found}");
    }

    #[test]
    fn objects_have_entries_and_objects() {
        let mut json = Vec::new();
        let mut object = Object::begin(&mut json).unwrap();
        object.object("empty").unwrap().end().unwrap();
        object.add("a", &[1, 2]).unwrap();
        let mut inner = object.object("inner").unwrap();
        inner.add_tidy("b", &u64::MAX).unwrap();
        inner.end().unwrap();
        object.end().unwrap();
        assert_eq!(json, br#"{"empty":{},"a":[1,2],"inner":{"b":"18446744073709551615"}}"#);
    }

    #[test]
    fn floats_that_json_lacks_are_texts() {
        for (number, expected) in [
            (0.5, json!(0.5)),
            (f64::NAN, json!("NaN")),
            (f64::INFINITY, json!("inf")),
            (f64::NEG_INFINITY, json!("-inf")),
        ] {
            assert_eq!(float(number), expected);
        }
    }
}
