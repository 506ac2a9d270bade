//! The help of all commands: groups, examples, and a short help that fits one screen.

use clap::Command;

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
    for group in ["Look:", "Write:", "Trust:", "Shell:"] {
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
    assert!(rows(&text) <= 64 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
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

/// The examples are calls that the command line takes.
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
    let folder = crate::support::Folder::new();
    folder.run(&["man", "pages"]).done().says(&["pages to pages"]);
    for command in declared().get_subcommands() {
        let page = folder.path(&format!("pages/onnx-container-{}.1", command.get_name()));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains("Examples:"), "{page}");
    }
    let page = std::fs::read_to_string(folder.path("pages/onnx-container.1")).unwrap();
    assert!(page.contains("onnx\\-container\\-pack(1)"), "{page}");
}
