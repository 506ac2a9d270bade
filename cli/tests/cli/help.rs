//! The help of all commands: groups, examples, a short help that fits one screen, manual pages and
//! completions.

use clap::Command;

use crate::support::Folder;

fn declared() -> Command {
    onnx_container_cli::declaration()
}

#[test]
fn the_declaration_is_sound() {
    declared().debug_assert();
}

#[test]
fn every_command_is_in_one_group_and_has_two_examples() {
    let mut cli = declared();
    let help = cli.render_help().to_string();
    for group in ["Look:", "Write:", "Stores:", "Trust:", "Shell:"] {
        assert!(help.contains(group), "{help}");
    }
    for command in cli.get_subcommands_mut().filter(|it| it.get_name() != "help") {
        let name = command.get_name().to_owned();
        let lines = help.lines().filter(|line| line.split_whitespace().next() == Some(&name));
        assert_eq!(lines.count(), 1, "{name}: {help}");
        let own = command.render_help().to_string();
        let example = format!("  onnx-container {name} ");
        assert_eq!(own.matches(&example).count(), 2, "{own}");
        assert!(command.render_long_help().to_string().contains(&example), "{name}");
    }
}

/// A terminal of 80 columns and 40 rows.
#[test]
fn short_help_fits_one_screen() {
    let mut cli = declared();
    cli.build();
    let rows = |text: &str| text.lines().count();
    let text = cli.render_help().to_string();
    assert!(rows(&text) <= 72 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let mut long = Vec::new();
    for command in cli.get_subcommands_mut().filter(|it| it.get_name() != "help") {
        let text = command.render_help().to_string();
        if rows(&text) > 40 {
            long.push(format!("{}: {} rows\n{text}", command.get_name(), rows(&text)));
        }
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{}", command.get_name());
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The long help has every option with its whole text.
#[test]
fn long_help_has_everything() {
    let mut cli = declared();
    cli.build();
    for command in cli.get_subcommands_mut().filter(|it| it.get_name() != "help") {
        let text = command.render_long_help().to_string();
        for option in command.get_arguments().filter_map(|arg| arg.get_long()) {
            assert!(text.contains(&format!("--{option}")), "{}: {option}", command.get_name());
        }
    }
}

/// What an option needs is in the same help.
#[test]
fn the_short_help_has_what_shown_options_need() {
    let mut cli = declared();
    cli.build();
    let help = cli.find_subcommand_mut("pack").unwrap().render_help().to_string();
    for option in ["--config", "--shard-names", "--max-shard-size"] {
        assert!(help.contains(option), "{help}");
    }
}

/// The examples are calls that the command line takes.
#[cfg(feature = "machine")]
#[test]
fn examples_are_valid() {
    let mut cli = declared();
    cli.build();
    let names: Vec<_> = cli.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names.iter().filter(|name| *name != "help") {
        let command = cli.find_subcommand_mut(name).unwrap();
        let help = command.render_help().to_string();
        for line in help.lines().filter(|line| line.starts_with("  onnx-container ")) {
            let call = line.split(" | ").next().unwrap().split(" > ").next().unwrap();
            let words = call.split_whitespace().map(|word| word.trim_matches('\''));
            let parsed = declared().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn manual_pages_are_made_for_every_command() {
    let folder = Folder::new();
    folder.run(&["man", "pages"]).done().says(&["pages to pages"]);
    for command in declared().get_subcommands() {
        let page = folder.path(&format!("pages/onnx-container-{}.1", command.get_name()));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains("Examples:"), "{page}");
        let synopsis = page.split(".SH SYNOPSIS\n").nth(1).unwrap();
        let called = format!("\\fBonnx\\-container {}\\fR", command.get_name().replace('-', "\\-"));
        assert!(synopsis.starts_with(&called), "no {called} in {synopsis}");
    }
    let page = std::fs::read_to_string(folder.path("pages/onnx-container.1")).unwrap();
    assert!(page.contains("onnx\\-container\\-pack(1)"), "{page}");
}

#[test]
fn help_and_version_are_exit_code_0() {
    let folder = Folder::new();
    folder.run(&["--version"]).done().says(&["onnx-container 0."]);
    folder.run(&["--help"]).done().says(&["pack", "split", "embed", "check", "inspect", "files"]);
    folder.run(&["--help"]).done().says(&["inline-functions", "[alias: inline]"]);
    folder.run(&["--help"]).done().says(&["extract", "replace"]);
    folder.run(&["extract", "--help"]).done().says(&["--codes", "then_branch/w", "NAME[0]"]);
    folder.run(&["replace", "--help"]).done().says(&["--tied", "stay inline", "NAME[0]"]);
    folder.run(&["pack", "--help"]).done().says(&["--min-bytes", "--no-mmap", "--verify"]);
    folder
        .run(&["check", "--help"])
        .done()
        .says(&["Operators are not compared with their schemas"]);
    folder.run(&["completions", "bash"]).done().says(&["onnx-container"]);
}

/// The script is run by bash, as a person's shell does after the Tab key.
#[cfg(unix)]
#[test]
fn completions_complete_in_bash() {
    let folder = Folder::new();
    if std::process::Command::new("bash").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "there is no bash");
        eprintln!("SKIPPED: there is no bash");
        return;
    }
    let script = folder.run(&["completions", "bash"]).done().stdout();
    let driver = r#"
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        previous=$((COMP_CWORD - 1))
        "_onnx__container" onnx-container "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[previous]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    std::fs::write(folder.path("driver"), [&script, driver].concat()).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["pa"], "pack"),
        (&["verify-"], "verify-signature"),
        (&["pack", "--shard-n"], "--shard-names"),
        (&["pack", "--paths", "tr"], "trusted"),
        (&["pack", "--paths", "=", "tr"], "trusted"),
        (&["completions", "z"], "zsh"),
        (&["inline-functions", "--max-no"], "--max-nodes"),
        (&["export-safetensors", "--max-sh"], "--max-shard-size"),
        (&["verify-signature", "--sig"], "--signature"),
        #[cfg(feature = "machine")]
        (&["trace", "di"], "diff"),
        #[cfg(feature = "machine")]
        (&["trace", "diff", "--dump-a"], "--dump-a"),
    ];
    for (words, completed) in cases {
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "driver", "onnx-container"]).args(*words);
        let output = bash.current_dir(folder.path("")).output().unwrap();
        let found = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(found.trim_end(), *completed, "{words:?}: {output:?}");
    }
}

/// `clap_complete` puts the texts of values into double quotes and escapes none in them: fish then
/// takes the rest of a text for commands, and a `>` in it for a redirection.
#[test]
fn no_text_ends_the_quotes_of_a_script_for_fish() {
    let script = Folder::new().run(&["completions", "fish"]).done().stdout();
    let script = script.replace("test -z \"$cmd\"", "");
    assert!(script.contains("using_subcommand completions\" -f -a \"bash "), "{script}");
    let quoted = script.matches("-n \"").count() + script.matches("-a \"").count();
    assert!(quoted > 500, "{quoted}");
    assert_eq!(script.matches('"').count(), 2 * quoted);
}

#[test]
fn help_fits_80_columns_and_breaks_no_word() {
    let folder = Folder::new();
    let commands = "pack split embed inline-functions cast import-safetensors export-safetensors check inspect \
                    files extract replace edit mv cp rm share strip attach extract-model merge scan stats digest diff report job";
    let machine =
        if cfg!(feature = "machine") { &["plan", "run", "trace", "verify"][..] } else { &[] };
    for command in commands.split_whitespace().chain(machine.iter().copied()) {
        let mut run = folder.command(&[command, "--help"]);
        let help = String::from_utf8(run.env("COLUMNS", "80").output().unwrap().stdout).unwrap();
        let long: Vec<_> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty() && help.len() > 300, "{command}: {long:#?}");
    }
}
