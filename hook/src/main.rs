// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gpuhook`: what a person or a container manager says, turned into calls, and what came of it, said back. The only
//! place that prints or exits.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use gpuhook_core::quoted::one_line;

use crate::args::{Invocation, Options, Verb};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::failure::Failure;

mod args;
mod cli;
mod environment;
mod exit;
mod failure;
mod flow;
mod handback;
mod lxc;
mod oci;
mod runtime;
mod setting;
mod spec;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    gpuhook_linux::failpoint::set_up(|name| std::env::var(name).ok());
    let environment = Environment::read();
    let result = args::parse(std::env::args_os()).and_then(|invocation| match invocation {
        Invocation::Print(text) => print(&text).map(|()| Exit::Fine),
        Invocation::Run(verb, options) => {
            start_log(&environment, options.verbose);
            run(verb, &options, &environment)
        }
    });
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // One line in one write: LXC hangs on long output and logs each write apart, and what a container named
            // must not forge a second line.
            io::stderr().write_all(format!("gpuhook: {}\n", one_line(&failure.to_string())).as_bytes()).ok();
            failure.exit.into()
        }
    }
}

fn run(verb: Verb, options: &Options, environment: &Environment) -> Result<Exit, Failure> {
    match verb {
        Verb::Lxc => lxc::run(options, environment).map(|()| Exit::Fine),
        Verb::Oci => oci::run(options).map(|()| Exit::Fine),
        Verb::Runtime => runtime::run(options).map(|never| match never {}),
        Verb::Cdi => cli::cdi::run(options),
        Verb::Majors => cli::majors::run(options),
        Verb::Plan => cli::plan::run(options),
        Verb::Inject => cli::inject::run(options),
        Verb::Probe => cli::probe::run(options),
        Verb::Doctor => cli::doctor::run(options),
        Verb::Nodes => cli::nodes::run(options),
        Verb::Report => cli::report::run(options),
        Verb::Config => cli::config::run(options),
    }
}

/// Says on a terminal what takes long; a script hears nothing of it.
fn progress(sentence: &str) {
    if io::stderr().is_terminal() {
        io::stderr().write_all(format!("{sentence} ...\n").as_bytes()).ok();
    }
}

/// Whether a person reads the answer.
fn answers_a_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a remark beside the answer.
fn say(text: &str) {
    io::stderr().write_all(format!("gpuhook: {}\n", one_line(text)).as_bytes()).ok();
}

/// Writes a command's answer; a reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// The same for an answer that may hold a file's own bytes.
fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::could_not_look(error)),
        _ => Ok(()),
    }
}

fn start_log(environment: &Environment, verbose: bool) {
    let wanted = environment.get("GPUHOOK_LOG").or(verbose.then_some("debug"));
    if let Some(level) = wanted {
        env_logger::Builder::new().parse_filters(level).init();
    }
}
