//! [`Types`]: a set of the types that a schema allows.

use onnx_container_proto::DataType;

use crate::value::Type;

/// A set of types: the element types of each of the [`KINDS`]. Types that no [`Type`] stands for
/// are left out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Types([u32; 8]);

/// What there are sets of element types for.
const KINDS: [&str; 8] = [
    "tensor(",
    "seq(tensor(",
    "optional(tensor(",
    "optional(seq(tensor(",
    "map(int64,tensor(",
    "map(string,tensor(",
    "seq(map(int64,tensor(",
    "seq(map(string,tensor(",
];

impl Types {
    pub(super) fn new(names: &str) -> Self {
        let mut types = Self::default();
        for name in names.split(' ') {
            let element =
                |kind: &str| name.strip_prefix(kind).map(|rest| rest.trim_end_matches(')'));
            for (mask, element) in types.0.iter_mut().zip(KINDS.map(element)) {
                *mask |= element.and_then(data_type).map_or(0, bit);
            }
        }
        types
    }

    /// Whether `ty` is one of them.
    pub(super) fn contains(&self, ty: &Type) -> bool {
        let of_key = |key: DataType| usize::from(key == DataType::String);
        let kind = match ty {
            Type::Tensor(dtype) => Some((0, dtype)),
            Type::Map(key, value) => Some((4 + of_key(*key), value)),
            Type::Sequence(element) => match &**element {
                Type::Tensor(dtype) => Some((1, dtype)),
                Type::Map(key, value) => Some((6 + of_key(*key), value)),
                _ => None,
            },
            Type::Optional(element) => match &**element {
                Type::Tensor(dtype) => Some((2, dtype)),
                Type::Sequence(element) => match &**element {
                    Type::Tensor(dtype) => Some((3, dtype)),
                    _ => None,
                },
                _ => None,
            },
        };
        kind.is_some_and(|(kind, dtype)| {
            self.0.get(kind).is_some_and(|mask| mask & bit(*dtype) != 0)
        })
    }

    /// Whether tensors are among them.
    pub(super) fn has_tensors(&self) -> bool {
        let [tensors, ..] = self.0;
        tensors != 0
    }

    /// The only type among them.
    pub(super) fn only(&self) -> Option<Type> {
        let [tensors, others @ ..] = self.0;
        if others.iter().any(|mask| *mask != 0) {
            return None;
        }
        let mut all = DataType::ALL.iter().filter(|dtype| tensors & bit(**dtype) != 0);
        all.next().filter(|_| tensors.count_ones() == 1).map(|dtype| Type::Tensor(*dtype))
    }
}

pub(super) fn bit(dtype: DataType) -> u32 {
    1 << dtype.number()
}

pub(super) fn data_type(name: &str) -> Option<DataType> {
    DataType::ALL.iter().find(|dtype| dtype.name().eq_ignore_ascii_case(name)).copied()
}
