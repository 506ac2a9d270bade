//! What targets that read models share: changes that leave a model a model, where changes of bytes
//! would seldom be decoded, and values for its inputs; and the nodes of every operator that the
//! tests of the machine make.

#[path = "../../machine/tests/nodes/case.rs"]
pub mod case;
mod change;
mod choices;
#[path = "../../machine/tests/nodes/mutate.rs"]
pub mod mutate;
#[path = "../../machine/tests/nodes/recipes.rs"]
pub mod recipes;
#[path = "../../machine/tests/nodes/schemas.rs"]
pub mod schemas;
mod values;

pub use change::{change, join};
pub use choices::Choices;
pub use values::value_for;

use onnx_container::Buffer;
use onnx_container::proto::{Message, ModelProto};

/// The model in `bytes`.
pub fn decode(bytes: &[u8]) -> Option<ModelProto> {
    ModelProto::decode(&Buffer::from(bytes)).ok()
}

/// Writes `model` over `out`; its length, `None` when it does not fit.
pub fn write(model: &ModelProto, out: &mut [u8]) -> Option<usize> {
    let bytes = model.encode_to_vec().ok()?;
    out.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    Some(bytes.len())
}

/// Changes and joins models where libFuzzer would change and join bytes.
#[macro_export]
macro_rules! mutate_models {
    () => {
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let changed = $crate::decode(&data[..size])
                .map(|model| $crate::change(model, &mut $crate::Choices::new(seed.into())))
                .and_then(|model| $crate::write(&model, &mut data[..max_size]));
            changed.unwrap_or_else(|| libfuzzer_sys::fuzzer_mutate(data, size, max_size))
        });

        libfuzzer_sys::fuzz_crossover!(|one: &[u8], two: &[u8], out: &mut [u8], _seed: u32| {
            let models = $crate::decode(one).zip($crate::decode(two));
            let joined = models.map(|(one, two)| $crate::join(one, two));
            joined.and_then(|model| $crate::write(&model, out)).unwrap_or(0)
        });
    };
}
