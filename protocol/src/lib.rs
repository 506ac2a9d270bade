//! A model of the switch of docs/safety.md, and a search of all its states: which files programs
//! find after any kill and any power failure.
//!
//! The library does what this model says by calls of the system; `tests/search.rs` looks at every
//! order of them. It breaks the protocol too, in one way after the other, and the search has to
//! find what that harms.
//!
//! | step of docs/safety.md | here | in the library |
//! |---|---|---|
//! | 1: new files are written and flushed | `Process::writer`: `MakeStaging`, `Write`, `FlushBytes`, `Flush` | `Staging::create`, `flush`, `locks` in `src/save/target/publish.rs` |
//! | 2: the folder is locked, dead saves are recovered | `Lock`, `Recover` | `Staging::lock` in `src/save/target/publish.rs`, `FolderLock` in `src/files/recovery/lock.rs` |
//! | 2: which files are replaced | `Publish`, `Rules::listed` | `Staging::renames`, `Switch::new` and `removing` in `src/files/recovery/switch.rs` |
//! | 3: the journal | `Announce` in `Switch::publish` | `Switch::announce` in `src/files/recovery/switch/announced.rs` |
//! | 4, 5: the renames | `Switch::finish` | `Switch::finish` in `src/files/recovery/switch.rs` |
//! | 6: staging folder, then journal | `Switch::end` | `Staging::end` in `src/save/target/publish.rs`; `remove_staging`, `close` |
//! | a save that fails | `Action::Fail`, `Switch::give_up` | `Staging::switch` in `src/save/target/publish.rs`, `Switch::undo` |
//! | a removal | `Switch::take_all_away` | `take_away` in `src/model_files/remove.rs`, `take_all_away` in `src/files/recovery/switch/removal.rs` |
//! | Recovery: what is done | `Switch::way`, `Switch::recover` | `Switch::way` in `src/files/recovery/switch/way.rs`, `go_on` in `src/files/recovery.rs` |
//! | how old files are told from new ones | `Switch::position` | `Switch::position` in `src/files/recovery/switch/way.rs` |
//! | a folder that no journal names | `Sweep` | `remove_abandoned` in `src/files/recovery/abandoned.rs` |
//! | a reader that knows the journal | `Look` to `LookForModel` | `read_one_save` in `src/files/consistent_read.rs`, `recover_for_reading` in `src/files/recovery.rs` |
//!
//! A reader that does not know the journal is no process here: what is in place is compared in
//! every state, as a program finds it that reads all files in one instant. One that reads slowly
//! beside a save may open the old model and new weights; that is why ours looks again.
//!
//! Every call is a step of its own, with these exceptions. The staging folder is made with `new`
//! and `old` in it, and the journal is written and renamed in one. A process that holds the lock
//! reads the folder once and then makes the calls that follow: nobody else renames files there.
//!
//! A rename is whole or not done. A power failure keeps the first of the steps in each folder that
//! were not flushed, or, where `Rules::in_order` is not set, any that do not need one that is lost;
//! bytes that were not flushed may be gone. With the latter, until a recovery has run, a model that
//! is in place may lack weights: of the renames of step 4 the first may be the one that is lost.
//!
//! Not modelled: files of strangers; saves without `sync`; several models in one switch; a model
//! that is the only file; folders below the model's; the lock of a reader that has looked too
//! often; systems without locks; failures of calls other than a writer's renames; the clock (all
//! files have one length and one time).

mod disk;
mod process;
mod rules;
mod search;
mod switch;
mod world;

pub use rules::{Files, Mutation, Rules};
pub use search::{Found, Model, search};
pub use world::{Action, World};
