//! A model that is replaced while it is loaded or checked: what is read is one save's, or an error.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onnx_container::check::{Severity, check_model};
use onnx_container::{Container, ErrorKind, LoadOptions, MmapChoice, SaveOptions, WeightFiles};

use crate::support::{add_w, both_choices};

/// The model of save `generation`: `w` has as many elements, all of them that number.
fn generation(number: u16) -> Container {
    let mut container = Container::new(add_w(number.into()));
    container.model_mut().graph.as_mut().unwrap().name = Some(number.to_string().into());
    let weights = vec![f32::from(number); number.into()];
    container.insert("#w", ndarray::Array1::from(weights)).unwrap();
    container
}

/// Ends the saves also when an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Saves two models in turn to `path` while `read` runs, which is called until it has `wanted`
/// results that are whole.
fn while_two_models_take_turns(
    path: &Path,
    files: WeightFiles,
    wanted: usize,
    read: impl Fn() -> bool,
) {
    let models = [300, 700].map(generation);
    let save = |container: &Container| {
        let options = SaveOptions::from(files).sync(false);
        container.save(path, options).unwrap();
    };
    save(&models[0]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&done);
        let writer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                models.iter().for_each(save);
            }
        });
        let mut whole = 0;
        while whole < wanted && !writer.is_finished() {
            whole += usize::from(read());
        }
    });
}

/// Whether a load gave a model, which then is one save's; an error says why there is none.
fn is_whole(path: &Path, mmap: MmapChoice) -> bool {
    let container = match Container::load(path, LoadOptions::from(mmap)) {
        Ok(container) => container,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
            assert!(error.reason().contains("is being replaced"), "{error}");
            return false;
        }
    };
    let name = container.model().graph.as_ref().unwrap().name.as_ref().unwrap().to_string();
    let generation: u16 = name.parse().unwrap();
    let tensor = container.tensor("w").unwrap();
    let values = tensor.as_slice::<f32>().unwrap();
    assert_eq!(values, vec![f32::from(generation); generation.into()]);
    true
}

#[test]
fn a_load_never_pairs_one_models_graph_with_anothers_weights() {
    for files in
        [WeightFiles::Packed, WeightFiles::PerTensor, WeightFiles::Sharded { max_bytes: 1000 }]
    {
        // Windows deletes no old file that a reader has mapped, so that the next save waits for it.
        let choices = both_choices();
        let choices = if cfg!(windows) { &choices[1..] } else { &choices[..] };
        for &mmap in choices {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            while_two_models_take_turns(&path, files, 300, || is_whole(&path, mmap));
        }
    }
}

#[test]
fn a_check_looks_at_one_saves_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    while_two_models_take_turns(&path, WeightFiles::Packed, 300, || {
        let findings = match check_model(&path, MmapChoice::never()) {
            Ok(checked) => checked.findings,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
                return false;
            }
        };
        // What the saves are at just now is no finding about the model.
        let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).collect();
        assert!(errors.is_empty(), "{errors:?}");
        true
    });
}
