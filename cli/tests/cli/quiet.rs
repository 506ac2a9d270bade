//! `-q`: a command prints its result, its warnings and its errors, and no notes.

use std::fs;

use crate::leftovers;
use crate::plan::with_a_barrier;
use crate::support::Folder;

/// Makes files in the folder; the call; what it notes on standard error.
type Case = (fn(&Folder), &'static str, &'static str);

const CASES: [Case; 5] = [
    (interrupted, "inspect p.onnx", "note: `.p.onnx.saving-"),
    (shared, "files p.onnx", "note: `p.onnx.data` is also needed by `other.onnx`"),
    (ends_early, "plan u.onnx --dim batch=1", "note: the plan ends before step 1"),
    (ends_early, "plan u.onnx --dim batch=1 --json", "note: the plan ends before step 1"),
    (ends_early, "plan u.onnx --dim batch=1 --csv", "note: the plan ends before step 1"),
];

fn interrupted(folder: &Folder) {
    leftovers::interrupt(folder);
}

fn shared(folder: &Folder) {
    fs::copy(folder.path("p.onnx"), folder.path("other.onnx")).unwrap();
}

/// Its plan ends early.
fn ends_early(folder: &Folder) {
    folder.save("u.onnx", &with_a_barrier());
}

#[test]
fn a_quiet_command_prints_the_same_result_without_notes() {
    for (made, line, note) in CASES {
        let folder = Folder::packed();
        made(&folder);
        let words: Vec<_> = line.split(' ').collect();
        let loud = folder.run(&words);
        assert!(loud.stderr().contains(note), "{line}: {loud:?}");
        let quiet = folder.run(&[&words[..], &["-q"]].concat());
        assert_eq!(quiet.stderr(), "", "{line}");
        assert_eq!((quiet.stdout(), quiet.code()), (loud.stdout(), loud.code()), "{line}");
    }
}
