//! One check: a command of cargo or of this program, with its name.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::{deny, package, targets, tidy};

/// One check.
pub struct Step {
    pub name: String,
    pub what: What,
}

/// What it does.
pub enum What {
    Tidy,
    Deny,
    Package,
    /// Types on other systems, of which one is checked by this toolchain.
    Systems(Option<String>),
    Arm,
    /// An example that the step before has built, and its arguments.
    Example(PathBuf, &'static [&'static str]),
    /// Arguments of cargo, and the environment they run in.
    Cargo {
        arguments: Vec<String>,
        environment: Vec<(&'static str, &'static str)>,
    },
}

impl Step {
    /// A command of cargo, its arguments parted by spaces.
    pub fn cargo(name: impl Into<String>, arguments: &str) -> Self {
        Self {
            name: name.into(),
            what: What::Cargo {
                arguments: arguments.split_whitespace().map(str::to_owned).collect(),
                environment: Vec::new(),
            },
        }
    }

    /// One more argument, which may hold spaces.
    pub fn argument(mut self, argument: String) -> Self {
        if let What::Cargo { arguments, .. } = &mut self.what {
            arguments.push(argument);
        }
        self
    }

    /// A variable of its environment.
    pub fn with(mut self, variable: &'static str, value: &'static str) -> Self {
        if let What::Cargo { environment, .. } = &mut self.what {
            environment.push((variable, value));
        }
        self
    }

    /// Whether it runs nothing that it builds: it reads, lints, checks types or writes documentation.
    pub fn is_static(&self) -> bool {
        match &self.what {
            What::Tidy | What::Deny | What::Package | What::Systems(_) => true,
            What::Arm | What::Example(..) => false,
            What::Cargo { arguments, .. } => {
                let command = arguments.iter().find(|argument| !argument.starts_with('+'));
                let is =
                    |command: &String| matches!(&**command, "fmt" | "clippy" | "check" | "doc");
                command.is_some_and(is)
            }
        }
    }

    pub fn run(&self, shell: &Shell, root: &Path) -> anyhow::Result<()> {
        match &self.what {
            What::Tidy => tidy::run(root),
            What::Deny => deny::run(shell),
            What::Package => package::run(shell, root),
            What::Systems(oldest) => targets::systems(shell, oldest.as_deref()),
            What::Arm => targets::arm(shell),
            What::Example(program, arguments) => {
                let arguments = arguments.iter();
                Ok(cmd!(shell, "{program} {arguments...}").run()?)
            }
            What::Cargo {
                arguments,
                environment,
            } => {
                let command = cmd!(shell, "cargo {arguments...}").envs(environment.iter().copied());
                Ok(command.run()?)
            }
        }
    }
}
