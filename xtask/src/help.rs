//! The text of `--help`: the commands, or the flags of one.

/// What stands before each command in the text of xflags, which is of all commands and their flags.
const COMMAND: &str = "\n\nxtask ";

/// Of the help on everything, that on the command, or else the commands with what each is for.
pub fn of(everything: &str, command: &str) -> String {
    let mut sections = everything.split(COMMAND);
    let about = sections.next().unwrap_or_default().trim_end();
    let sections: Vec<&str> = sections.map(str::trim_end).collect();
    let named = |section: &&&str| section.lines().next() == Some(command);
    if let Some(section) = sections.iter().find(named) {
        return format!("cargo xtask {section}");
    }
    let is_before_flags = |line: &&str| !["  ARGS:", "  OPTIONS:"].contains(line);
    let commands = sections.iter().map(|section| {
        let lines: Vec<&str> = section.lines().take_while(is_before_flags).collect();
        lines.join("\n").trim_end().to_owned()
    });
    let commands: Vec<String> = commands.collect();
    format!(
        "{about}\n\n{}\n\n`cargo xtask COMMAND --help` lists the flags of a command.",
        commands.join("\n\n")
    )
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::flags::Xtask;

    fn everything() -> String {
        Xtask::from_vec(vec!["--help".into()])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_command_is_told_with_its_flags_alone() {
        let text = of(&everything(), "tidy");
        assert!(text.starts_with("cargo xtask tidy\n  Checks"), "{text}");
        assert!(text.contains("--circles"), "{text}");
        assert!(!text.contains("--baseline"), "{text}");
    }

    #[test]
    fn without_a_command_all_are_told_without_flags() {
        for command in ["--help", "nosuch"] {
            let text = of(&everything(), command);
            for name in [
                "tidy",
                "ci",
                "exam",
                "bench",
                "gpu",
                "parity",
                "dist",
                "reference",
            ] {
                assert!(text.contains(&format!("\n{name}\n  ")), "{name}: {text}");
            }
            assert!(!text.contains("--circles"), "{text}");
        }
    }
}
