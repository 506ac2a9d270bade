//! The help of all commands, arranged: commands in groups, the options that all commands have in
//! common apart, examples, and a short help (`-h`) that fits one screen.
//!
//! The texts are those of the declaration in `args`. The short help has the first sentence of each
//! option, and leaves rare ones out; `--help` has everything.

mod examples;

use clap::{Arg, Command};

use examples::examples;

/// The commands by what they are for.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Look", &["inspect", "files", "scan", "check", "digest", "diff", "stats", "report"]),
    (
        "Write",
        &[
            "pack",
            "split",
            "embed",
            "edit",
            "cast",
            "strip",
            "attach",
            "extract-model",
            "merge",
            "share",
            "inline-functions",
            "extract",
            "replace",
            "import-safetensors",
            "export-safetensors",
            "mv",
            "cp",
            "rm",
            "job",
            "recover",
        ],
    ),
    ("Stores", &["publish", "rollback", "versions", "sweep", "stores"]),
    ("Trust", &["sign", "verify-signature"]),
    ("Run", &["plan", "run", "trace", "verify"]),
    ("Shell", &["completions", "man", "help"]),
];

/// The options that nearly every command has.
const COMMON: [&str; 5] = ["json", "quiet", "no_mmap", "paths", "limits"];

/// What few people need: `--help` has them.
const RARE: [&str; 27] = [
    "align_large",
    "all_tensors",
    "allow_over_2gib",
    "checksums",
    "delete_old",
    "dump_a",
    "dump_b",
    "ignore_stored_digests",
    "limits",
    "mapping",
    "max_memory",
    "max_steps",
    "no_direct_io",
    "no_mmap",
    "no_sync",
    "ort_library",
    "ort_unoptimized",
    "padding",
    "paths",
    "profile",
    "replace_prefix",
    "shard_form",
    "shard_names",
    "shard_size",
    "strip_prefix",
    "tied",
    "timings",
];

/// The command line `cli` with its help arranged.
pub fn arrange(mut cli: Command) -> Command {
    let names: Vec<_> = cli.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        cli = cli.mut_subcommand(name, arranged);
    }
    let groups = groups(&cli);
    cli.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// The groups with a line for each command.
fn groups(cli: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let lines: Vec<_> = names.iter().filter_map(|name| line(cli, name)).collect();
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}:\n{}", lines.concat()));
        }
    }
    text
}

/// The line of the command `name`; none where this build has no such command.
fn line(cli: &Command, name: &str) -> Option<String> {
    let about = match name {
        "help" => "Print this message, or the help of a command".to_owned(),
        name => {
            let command = cli.get_subcommands().find(|it| it.get_name() == name)?;
            let aliases: Vec<_> = command.get_visible_aliases().collect();
            let aliases = match aliases.as_slice() {
                [] => String::new(),
                aliases => format!(" [alias: {}]", aliases.join(", ")),
            };
            format!("{}{aliases}", command.get_about()?)
        }
    };
    Some(format!("  {name:<19} {about}\n"))
}

/// A command with its options in two groups, examples, and a short help.
fn arranged(mut command: Command) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |part| part.mut_args(shortened));
    }
    let after = command.get_after_help().map(|it| format!("\n\n{it}")).unwrap_or_default();
    let shown = shown(command.get_name());
    // What --config needs is shown with it.
    let has_config = command.get_arguments().any(|arg| arg.get_id() == "config");
    let mut command = command.mut_args(shortened);
    if has_config {
        command = command.mut_arg("shard_names", |arg| arg.hide_short_help(false));
    }
    command.after_help(shown.clone()).after_long_help(format!("{shown}{after}"))
}

/// The examples of a command, as a part of its help.
fn shown(name: &str) -> String {
    let lines = examples(name).iter().map(|line| format!("\n  onnx-container {name} {line}"));
    format!("Examples:{}", lines.collect::<String>())
}

/// An option as both helps show it.
fn shortened(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let long = arg.get_long_help().map(ToString::to_string).unwrap_or_else(|| help.clone());
    let id = arg.get_id().to_string();
    let is_rare = RARE.contains(&id.as_str());
    let arg = arg.hide_short_help(is_rare).help(first_sentence(&help).to_owned()).long_help(long);
    if COMMON.contains(&id.as_str()) { arg.help_heading("Common options") } else { arg }
}

/// The text up to the end of its first sentence or clause.
fn first_sentence(text: &str) -> &str {
    let ends = [". ", "; ", ": ", " ["];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}
