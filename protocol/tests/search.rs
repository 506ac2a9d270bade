//! The protocol has every property in every state, and each way to break it is found.

use std::time::Instant;

use onnx_container_protocol::{Files, Found, Mutation, Rules, search};

const NOBODY: Rules = Rules {
    files: Files::SameNames,
    writers: 1,
    reader: false,
    kills: 0,
    fails: 0,
    power_failures: 0,
    in_order: true,
    both_names: false,
    inodes: true,
    mutation: None,
};

/// Who takes part and what happens to them.
const CASES: [(&str, Rules); 8] = [
    (
        "two writers and a reader, 2 kills, 1 failed rename",
        Rules { writers: 2, reader: true, kills: 2, fails: 1, ..NOBODY },
    ),
    (
        "two writers and a reader, 1 kill, 1 failed rename, inodes unknown",
        Rules { writers: 2, reader: true, kills: 1, fails: 1, inodes: false, ..NOBODY },
    ),
    (
        "a writer and a reader, 1 kill, 1 failed rename, 2 power failures",
        Rules { reader: true, kills: 1, fails: 1, power_failures: 2, ..NOBODY },
    ),
    (
        "two writers, 1 failed rename, 1 power failure",
        Rules { writers: 2, fails: 1, power_failures: 1, ..NOBODY },
    ),
    (
        "a writer, 2 kills, 1 failed rename, 2 power failures in any order",
        Rules { kills: 2, fails: 1, power_failures: 2, in_order: false, ..NOBODY },
    ),
    (
        "two writers, 1 power failure in any order",
        Rules { writers: 2, power_failures: 1, in_order: false, ..NOBODY },
    ),
    (
        "a writer, 2 kills, 1 failed rename, 2 power failures that leave both names",
        Rules { kills: 2, fails: 1, power_failures: 2, both_names: true, ..NOBODY },
    ),
    (
        "the same in any order",
        Rules {
            kills: 2,
            fails: 1,
            power_failures: 2,
            in_order: false,
            both_names: true,
            ..NOBODY
        },
    ),
];

/// The least number of states of a case: a model that lost its actions has fewer.
const LEAST: usize = 3_000;

fn shown(found: &Found) -> String {
    let Some((fault, path)) = &found.counterexample else { return String::new() };
    format!("{fault}:\n  {}", path.join("\n  "))
}

fn holds(files: Files) {
    let mut all = 0;
    for (said, rules) in CASES {
        let begin = Instant::now();
        let found = search(&Rules { files, ..rules });
        let took = begin.elapsed().as_secs_f32();
        println!("{files:?}, {said}: {} states, {took:.2} s", found.states);
        assert!(found.counterexample.is_none(), "{files:?}, {said}: {}", shown(&found));
        assert!(found.states >= LEAST, "{files:?}, {said}: only {} states", found.states);
        all += found.states;
    }
    assert!(all >= 150_000, "{files:?}: only {all} states");
}

#[test]
fn saves_under_the_same_names() {
    holds(Files::SameNames);
}

#[test]
fn saves_under_new_names() {
    holds(Files::NewNames);
}

#[test]
fn saves_under_new_names_that_remove_old_weights() {
    holds(Files::Removed);
}

#[test]
fn first_saves() {
    holds(Files::NoModel);
}

#[test]
fn a_removal_and_a_save() {
    holds(Files::Removal);
}

const MIXED: &str = "a reader finds a model without its weights";
const NO_MODEL: &str = "a reader finds no model";
const DELETED: &str = "an old file is deleted while it is needed";
const LEFT: &str = "a journal, a staging folder or a file is left";
const LOST: &str = "the model is lost";
const OTHERS: &str = "a call finds other files than those it was planned for";
const NO_WAY: &str = "a recovery finds an error and touches nothing";

const KILL: Rules = Rules { kills: 1, ..NOBODY };
const FAIL: Rules = Rules { fails: 1, ..NOBODY };
const TWO: Rules = Rules { writers: 2, kills: 1, ..NOBODY };
const READ: Rules = Rules { reader: true, kills: 1, ..NOBODY };
const POWER: Rules = Rules { power_failures: 1, ..NOBODY };
const BOTH_NAMES: Rules = Rules { both_names: true, ..POWER };
const ANY_ORDER: Rules = Rules { kills: 1, power_failures: 1, in_order: false, ..NOBODY };

#[test]
fn each_way_to_break_the_protocol_is_found() {
    use Files::{NewNames, NoModel, Removal, Removed, SameNames};
    let cases = [
        (
            "the new model is moved before its weights",
            Mutation::ModelBeforeWeights,
            SameNames,
            NOBODY,
            MIXED,
        ),
        (
            "the old weights are moved before their model",
            Mutation::OldModelAfterOldWeights,
            SameNames,
            NOBODY,
            MIXED,
        ),
        (
            "weights are replaced beneath the old model",
            Mutation::ModelStaysInPlace,
            SameNames,
            NOBODY,
            MIXED,
        ),
        (
            "old files are deleted before new ones are in place",
            Mutation::OldDeletedEarly,
            SameNames,
            NOBODY,
            DELETED,
        ),
        (
            "the journal goes before the staging folder",
            Mutation::JournalBeforeStaging,
            SameNames,
            KILL,
            LEFT,
        ),
        ("there is no journal", Mutation::NoJournal, NoModel, KILL, LOST),
        (
            "a save replaces the journal of a dead one",
            Mutation::OtherJournalReplaced,
            SameNames,
            TWO,
            LEFT,
        ),
        (
            "a save unlocks before its journal is gone",
            Mutation::UnlockedBeforeJournalGoes,
            Removal,
            TWO,
            LOST,
        ),
        ("the recovery does not lock", Mutation::RecoveryWithoutLock, SameNames, NOBODY, OTHERS),
        (
            "the recovery removes folders that saves use",
            Mutation::RunningSavesSwept,
            SameNames,
            NOBODY,
            OTHERS,
        ),
        (
            "an undo brings the model back first",
            Mutation::UndoBringsModelBackFirst,
            SameNames,
            FAIL,
            MIXED,
        ),
        (
            "an undo brings old files back first",
            Mutation::UndoBringsOldBackFirst,
            SameNames,
            FAIL,
            OTHERS,
        ),
        ("a removal takes the model last", Mutation::RemovalTakesModelLast, Removal, NOBODY, MIXED),
        (
            "a removal deletes file by file",
            Mutation::RemovalDeletesAtOnce,
            Removal,
            NOBODY,
            DELETED,
        ),
        ("a reader does not look again", Mutation::ReaderLooksOnce, Removed, READ, MIXED),
        ("a reader does not recover", Mutation::ReaderRecoversNothing, SameNames, READ, NO_MODEL),
        ("bytes are not flushed", Mutation::BytesNotFlushed, NewNames, POWER, MIXED),
        ("the journal is not flushed", Mutation::JournalNotFlushed, NoModel, ANY_ORDER, LOST),
        (
            "a journal that is found is not flushed",
            Mutation::FoundJournalNotFlushed,
            NoModel,
            ANY_ORDER,
            LOST,
        ),
        ("step 4 is not flushed", Mutation::OldNotFlushed, SameNames, ANY_ORDER, MIXED),
        (
            "the weights of step 5 are not flushed",
            Mutation::WeightsNotFlushed,
            NewNames,
            ANY_ORDER,
            NO_WAY,
        ),
        ("the model of step 5 is not flushed", Mutation::ModelNotFlushed, NoModel, ANY_ORDER, LOST),
        (
            "the end of the staging folder is not flushed",
            Mutation::StagingNotFlushed,
            SameNames,
            ANY_ORDER,
            LEFT,
        ),
        (
            "a recovery takes a name that a rename has left for a file",
            Mutation::SecondNamesStay,
            SameNames,
            BOTH_NAMES,
            OTHERS,
        ),
        (
            "`old/` is not flushed at the end of an undo",
            Mutation::UndoneOldNotFlushed,
            SameNames,
            Rules { fails: 1, ..BOTH_NAMES },
            LEFT,
        ),
    ];
    for (said, mutation, files, rules, fault) in cases {
        let right = search(&Rules { files, ..rules });
        assert!(right.counterexample.is_none(), "{said}: {}", shown(&right));
        let found = search(&Rules { files, mutation: Some(mutation), ..rules });
        let which = found.counterexample.as_ref().map(|(fault, _)| *fault);
        assert_eq!(which, Some(fault), "{said}: {}", shown(&found));
        let calls = found.counterexample.as_ref().map_or(0, |(_, path)| path.len());
        println!("{said}: {fault}, after {calls} steps");
    }
}
