//! `completions SHELL`: a completion script, from the declaration of the command line.

use std::io::Write;

use clap::Arg;
use clap_complete::Shell;

use crate::args::CompletionsArgs;
use crate::commands::{Execute, declared};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

impl Execute for CompletionsArgs {
    fn name(&self) -> &'static str {
        "completions"
    }

    fn json(&self) -> bool {
        false
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints the script.
fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut declared(), "onnx-container", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        Shell::Bash => with_values_behind_equals(&named_alike(&script)),
        Shell::Fish => with_values_of_arguments(&script),
        Shell::Zsh => model_or_command(&script),
        _ => script.into_owned(),
    };
    out.write_all(script.as_bytes())?;
    Ok(Outcome::Done)
}

/// The script for bash with one name for each command: where its name has a hyphen, clap_complete
/// 4.6 sets `onnx__container__subcmd__pack` and compares it with
/// `onnx__subcmd__container__subcmd__pack`.
fn named_alike(script: &str) -> String {
    script.replace("onnx__subcmd__container", "onnx__container")
}

/// The script for bash with the values of `--option=`: bash takes the `=` for a word of its own,
/// which `clap_complete` then takes for the option.
fn with_values_behind_equals(script: &str) -> String {
    let previous = "    prev=\"$3\"\n";
    let option = "    if [[ \"${prev}\" == \"=\" ]] && (( COMP_CWORD > 1 )); then\n        \
                  prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n    fi\n";
    script.replacen(previous, &format!("{previous}{option}"), 1)
}

/// The script for fish with the values of arguments that are no options, which `clap_complete`
/// leaves out.
fn with_values_of_arguments(script: &str) -> String {
    let mut script = script.to_owned();
    for command in declared().get_subcommands() {
        let values = command.get_positionals().flat_map(Arg::get_possible_values);
        let values: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        if !values.is_empty() {
            let (name, values) = (command.get_name(), values.join(" "));
            script += &format!(
                "complete -c onnx-container -n \"__fish_onnx_container_using_subcommand {name}\" \
                 -f -a \"{values}\"\n"
            );
        }
    }
    script
}

/// The script for zsh with `trace MODEL` and `trace diff`: `clap_complete` expects the subcommand
/// after the model, and so completes neither it nor its options.
fn model_or_command(script: &str) -> String {
    let commands = "_onnx-container__subcmd__trace_commands";
    let after = format!("\":: :{commands}\" \\\n\"*::: :->trace\" \\\n");
    let either = format!("\"models:model:_files\" \"commands:command:{commands}\"");
    let places = format!(
        "(trace)\n\
        local -a places=(': : _alternative {either}')\n\
        if [[ $words[2] == diff ]] && (( CURRENT > 2 )); then\n    \
            places=(\":: :{commands}\" \"*::: :->trace\")\n\
        fi\n\
        _arguments"
    );
    let model = "':model -- The model:_files' \\\n";
    script
        .replacen("(trace)\n_arguments", &places, 1)
        .replacen(&format!("{model}{after}"), "\"${places[@]}\" \\\n", 1)
        .replace("$line[2]", "$line[1]")
}
