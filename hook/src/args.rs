// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: one table of commands with their help, and a parser that checks nothing but what was typed.

use std::ffi::OsString;
use std::path::Path;

use lexopt::prelude::*;

use crate::failure::Failure;

/// What was typed, apart from the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) host_root: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) verbose: bool,
    pub(crate) json: bool,
    pub(crate) gpu: bool,
    pub(crate) opt_in: bool,
    pub(crate) host: bool,
    pub(crate) lxc: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) bundle: Option<String>,
    pub(crate) devices: Option<String>,
    pub(crate) capabilities: Option<String>,
    pub(crate) mig_config: Option<String>,
    pub(crate) mig_monitor: Option<String>,
    pub(crate) imex_channels: Option<String>,
    pub(crate) nvswitch: bool,
    pub(crate) container_config: Option<String>,
    pub(crate) probe: Option<String>,
    pub(crate) check: bool,
    pub(crate) dev: Option<String>,
    pub(crate) output: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) all: bool,
    pub(crate) write: bool,
    pub(crate) undo: bool,
    pub(crate) remove_foreign: bool,
    pub(crate) dev_entries: bool,
    pub(crate) pre_start: bool,
    pub(crate) verify: bool,
    pub(crate) fixed: bool,
    /// What stands behind `runtime`, for the real one.
    pub(crate) passed: Vec<OsString>,
    /// The words after the options: what a container manager appends.
    pub(crate) words: Vec<String>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Lxc,
    Oci,
    Runtime,
    Cdi,
    Majors,
    Plan,
    Inject,
    Probe,
    Doctor,
    Nodes,
    Report,
    Config,
}

/// A whole command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Print this and end.
    Print(String),
    /// Do this.
    Run(Verb, Box<Options>),
}

struct Command {
    verb: Verb,
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    /// The options that it takes beside the global ones.
    options: &'static [&'static str],
    /// How many words may follow the options.
    words: usize,
}

/// After this command every word is the runtime's.
const RUNTIME: &str = "runtime";

const REQUEST: [&str; 6] = ["devices", "capabilities", "mig-config", "mig-monitor", "imex-channels", "nvswitch"];

const COMMANDS: &[Command] = &[
    Command {
        verb: Verb::Lxc,
        name: "lxc",
        usage: "gpuhook lxc [--devices LIST] [--capabilities LIST] [--opt-in]",
        summary: "an LXC hook (pre-start, start-host, post-stop): LXC adds the container's name and the stage",
        options: &[REQUEST[0], REQUEST[1], REQUEST[2], REQUEST[3], REQUEST[4], REQUEST[5], "opt-in"],
        // Name, section and stage; the stage `stop` is followed by one word per namespace.
        words: 16,
    },
    Command {
        verb: Verb::Oci,
        name: "oci",
        usage: "gpuhook oci precreate [--devices LIST] [--capabilities LIST]
gpuhook oci prestart|createRuntime|poststop [--verify] [--devices LIST] [--capabilities LIST]",
        summary: "precreate: podman's hook, which writes the devices into the spec; the others: OCI hooks, with the \
                  container's state on standard input; --verify: only look, the spec brought the devices in",
        options: &[REQUEST[0], REQUEST[1], REQUEST[2], REQUEST[3], REQUEST[4], REQUEST[5], "verify"],
        words: 1,
    },
    Command {
        verb: Verb::Runtime,
        name: RUNTIME,
        usage: "gpuhook runtime ARGUMENTS OF runc OR crun
gpuhook-runtime ARGUMENTS OF runc OR crun",
        summary: "an OCI runtime for docker, containerd and CRI-O: writes the devices into the bundle's spec, then becomes \
                  runc or crun",
        options: &[],
        words: 0,
    },
    Command {
        verb: Verb::Cdi,
        name: "cdi",
        usage: "gpuhook cdi generate [--kind VENDOR/CLASS] [--static] [--output FILE]",
        summary: "a CDI file without numbers for this host's GPUs and MIG devices; --static: only a hook, so that it \
                  serves every host",
        options: &["kind", "static", "output"],
        words: 1,
    },
    Command {
        verb: Verb::Majors,
        name: "majors",
        usage: "gpuhook majors [--gpu] [--json]",
        summary: "the live character majors by name; --gpu: of GPU drivers only",
        options: &["json", "gpu"],
        words: 0,
    },
    Command {
        verb: Verb::Plan,
        name: "plan",
        usage: "gpuhook plan (--lxc NAME | --bundle DIR | --devices LIST) [--capabilities LIST] [--json]",
        summary: "what would be done for a container; changes nothing",
        options: &[REQUEST[0], REQUEST[1], REQUEST[2], REQUEST[3], REQUEST[4], REQUEST[5], "lxc", "bundle", "json"],
        words: 0,
    },
    Command {
        verb: Verb::Inject,
        name: "inject",
        usage: "gpuhook inject (--lxc NAME | --pid PID) [--devices LIST] [--capabilities LIST]",
        summary: "brings GPUs into a running container, without a restart",
        options: &[REQUEST[0], REQUEST[1], REQUEST[2], REQUEST[3], REQUEST[4], REQUEST[5], "lxc", "pid", "json"],
        words: 0,
    },
    Command {
        verb: Verb::Probe,
        name: "probe",
        usage: "gpuhook probe (--host | --lxc NAME | --pid PID) [--devices LIST] [--json]",
        summary: "the ladder of checks up to cuInit, on the host or from inside a running container",
        options: &[
            REQUEST[0], REQUEST[1], REQUEST[2], REQUEST[3], REQUEST[4], REQUEST[5], "host", "lxc", "pid", "json",
        ],
        words: 0,
    },
    Command {
        verb: Verb::Doctor,
        name: "doctor",
        usage: "gpuhook doctor [--lxc NAME | --pid PID | --container-config FILE [--kind lxc|pve|raw]] [--probe FILE] [--json]",
        summary: "why CUDA fails on this host or in a container, and the command that cures it; --probe FILE: judges what an \
                  earlier `gpuhook probe --json` printed",
        options: &["lxc", "pid", "container-config", "kind", "probe", "json"],
        words: 0,
    },
    Command {
        verb: Verb::Nodes,
        name: "nodes",
        usage: "gpuhook nodes [--check] [--dev DIR] [--json]",
        summary: "loads the driver's modules and makes or repairs the host's nodes; --check only looks; --dev DIR: in DIR \
                  instead of /dev (of --host-root: instead of its dev)",
        options: &["check", "dev", "json"],
        words: 0,
    },
    Command {
        verb: Verb::Report,
        name: "report",
        usage: "gpuhook report [--lxc NAME | --pid PID | --container-config FILE [--kind lxc|pve|raw]] [--output FILE]",
        summary: "what doctor reads, as one tar for a bug report, with UUIDs, serials, the host's name and addresses replaced",
        options: &["lxc", "pid", "container-config", "kind", "probe", "output"],
        words: 0,
    },
    Command {
        verb: Verb::Config,
        name: "config",
        usage: "gpuhook config lint (FILE... | --all) [--kind lxc|pve|raw] [--json]
gpuhook config migrate FILE... [--write] [--pre-start] [--dev-entries] [--remove-foreign] [--kind lxc|pve|raw]
gpuhook config migrate --undo FILE...",
        summary: "what each GPU line of a container's config does on this host today; a config without numbers, as a diff",
        options: &["all", "kind", "json", "write", "undo", "pre-start", "dev-entries", "remove-foreign"],
        words: usize::MAX,
    },
];

const GLOBAL_HELP: &str = "\
global options:
  --host-root DIR   read the driver's facts below DIR instead of this host (another machine's files)
  --config FILE     read FILE instead of /etc/gpuhook/config.toml
  -v                say what is done, on standard error (GPUHOOK_LOG=debug does the same)
  --version, --help
";

const REQUEST_HELP: &str = "\
request options, with the meaning of NVIDIA's variables:
  --devices LIST        all, none, void, or a list of indices, UUIDs, bus ids,
                        MIG devices (0:1) and CDI names (nvidia.com/gpu=0)         NVIDIA_VISIBLE_DEVICES
  --capabilities LIST   compute, utility, graphics, video, display, all ...        NVIDIA_DRIVER_CAPABILITIES
  --mig-config LIST     all: the right to configure MIG                            NVIDIA_MIG_CONFIG_DEVICES
  --mig-monitor LIST    all: the right to monitor MIG                              NVIDIA_MIG_MONITOR_DEVICES
  --imex-channels LIST  IMEX channels by number                                    NVIDIA_IMEX_CHANNELS
  --nvswitch            the NVSwitches                                             NVIDIA_NVSWITCH=enabled
";

/// Reads the command line, the program's name first: under the name `gpuhook-runtime` it is `gpuhook runtime`, since
/// containerd hands its runtime no arguments of the administrator's.
///
/// # Errors
/// A usage failure that names the word and what was expected.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Failure> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_default();
    if Path::new(&program).file_name().is_some_and(|name| name == "gpuhook-runtime") {
        let options = Options { passed: arguments.collect(), ..Options::default() };
        return Ok(Invocation::Run(Verb::Runtime, Box::new(options)));
    }
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options::default();
    let mut command: Option<&Command> = None;
    while let Some(argument) = parser.next().map_err(usage(command))? {
        let option = match argument {
            Short('h') | Long("help") => return Ok(Invocation::Print(help(command))),
            Short('V') | Long("version") => return Ok(Invocation::Print(version())),
            Short('v') => {
                options.verbose = true;
                continue;
            }
            Value(word) if command.is_none() => {
                command = Some(find(&word)?);
                if word == *RUNTIME {
                    options.passed = parser.raw_args().map_err(usage(command))?.collect();
                    break;
                }
                continue;
            }
            Value(word) => {
                options.words.push(text(word, command)?);
                if command.is_some_and(|command| command.verb == Verb::Lxc) {
                    // LXC appends the container's name, which may look like an option; nothing after it is one.
                    let rest: Vec<OsString> = parser.raw_args().map_err(usage(command))?.collect();
                    for word in rest {
                        options.words.push(text(word, command)?);
                    }
                    break;
                }
                continue;
            }
            Long(name) => name.to_owned(),
            Short(letter) => return Err(wrong(command, format!("unknown option -{letter}"))),
        };
        set(&mut options, &option, &mut parser, command)?;
    }
    let command = command.ok_or_else(|| wrong(None, "no command was given"))?;
    match options.words.get(command.words) {
        Some(word) => Err(wrong(Some(command), format!("one word too many: {word:?}"))),
        None => Ok(Invocation::Run(command.verb, Box::new(options))),
    }
}

fn set(
    options: &mut Options,
    name: &str,
    parser: &mut lexopt::Parser,
    command: Option<&'static Command>,
) -> Result<(), Failure> {
    let global = matches!(name, "host-root" | "config");
    if !global && !command.is_some_and(|command| command.options.contains(&name)) {
        return Err(wrong(command, format!("unknown option --{name}")));
    }
    let flag = match name {
        "json" => Some(&mut options.json),
        "gpu" => Some(&mut options.gpu),
        "opt-in" => Some(&mut options.opt_in),
        "nvswitch" => Some(&mut options.nvswitch),
        "host" => Some(&mut options.host),
        "check" => Some(&mut options.check),
        "all" => Some(&mut options.all),
        "write" => Some(&mut options.write),
        "undo" => Some(&mut options.undo),
        "remove-foreign" => Some(&mut options.remove_foreign),
        "dev-entries" => Some(&mut options.dev_entries),
        "pre-start" => Some(&mut options.pre_start),
        "verify" => Some(&mut options.verify),
        "static" => Some(&mut options.fixed),
        _ => None,
    };
    if let Some(flag) = flag {
        *flag = true;
        return Ok(());
    }
    let value = text(parser.value().map_err(usage(command))?, command)?;
    match name {
        "host-root" => options.host_root = Some(value),
        "config" => options.config = Some(value),
        "lxc" => options.lxc = Some(value),
        "bundle" => options.bundle = Some(value),
        "kind" => options.kind = Some(value),
        "devices" => options.devices = Some(value),
        "capabilities" => options.capabilities = Some(value),
        "mig-config" => options.mig_config = Some(value),
        "mig-monitor" => options.mig_monitor = Some(value),
        "imex-channels" => options.imex_channels = Some(value),
        "container-config" => options.container_config = Some(value),
        "probe" => options.probe = Some(value),
        "dev" => options.dev = Some(value),
        "output" => options.output = Some(value),
        "pid" => {
            let pid = value.parse::<u32>().ok().filter(|pid| *pid > 0);
            options.pid = Some(pid.ok_or_else(|| wrong(command, format!("--pid {value:?} is not a process id")))?);
        }
        _ => return Err(wrong(command, format!("unknown option --{name}"))),
    }
    Ok(())
}

fn find(word: &OsString) -> Result<&'static Command, Failure> {
    let found = COMMANDS.iter().find(|command| *word == *command.name);
    found.ok_or_else(|| {
        let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
        wrong(None, format!("unknown command {word:?}; there are {}", names.join(", ")))
    })
}

fn text(word: OsString, command: Option<&'static Command>) -> Result<String, Failure> {
    word.into_string().map_err(|word| wrong(command, format!("{word:?} is not UTF-8")))
}

fn usage(command: Option<&'static Command>) -> impl Fn(lexopt::Error) -> Failure {
    move |error| wrong(command, error.to_string())
}

/// A usage failure with the command that shows what is right.
pub(crate) fn wrong_for(verb: Verb, sentence: impl Into<String>) -> Failure {
    wrong(COMMANDS.iter().find(|command| command.verb == verb), sentence)
}

fn wrong(command: Option<&Command>, sentence: impl Into<String>) -> Failure {
    let name = command.map(|command| format!(" {}", command.name)).unwrap_or_default();
    Failure::usage(format!("{}; hint: gpuhook{name} --help", sentence.into()))
}

fn version() -> String {
    format!("gpuhook {}\n", env!("CARGO_PKG_VERSION"))
}

fn help(command: Option<&Command>) -> String {
    match command {
        Some(command) => {
            let request = if command.options.contains(&"devices") { REQUEST_HELP } else { "" };
            let blank = if request.is_empty() { "" } else { "\n" };
            format!("{}\n  {}\n\n{request}{blank}{GLOBAL_HELP}", command.usage, command.summary)
        }
        None => {
            let mut text = "gpuhook: opens the GPU device numbers of the running kernel to a container\n\n".to_owned();
            for command in COMMANDS {
                text.push_str(&format!("{}\n  {}\n", command.usage, command.summary));
            }
            format!(
                "{text}\n{REQUEST_HELP}\n{GLOBAL_HELP}\nexit codes: 0 fine, 1 a problem or a refused start, 2 wrong usage, 3 could not look\n"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<Invocation, String> {
        parse(["gpuhook"].into_iter().chain(line.split_whitespace()).map(OsString::from))
            .map_err(|failure| failure.to_string())
    }

    fn options(line: &str) -> Options {
        match run(line) {
            Ok(Invocation::Run(_, options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_lxc_appends_is_never_an_option() {
        let options = options("lxc --devices 0,1 --opt-in c1 lxc start-host --help");
        assert_eq!(options.words, ["c1", "lxc", "start-host", "--help"]);
        assert_eq!(options.devices.as_deref(), Some("0,1"));
        assert!(options.opt_in);
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in ["--host-root /x majors --json", "majors --json --host-root /x", "majors --host-root=/x --json"] {
            let options = options(line);
            assert_eq!(options.host_root.as_deref(), Some("/x"), "{line}");
            assert!(options.json, "{line}");
        }
    }

    #[test]
    fn options_stand_before_or_after_the_stage_of_an_oci_hook() {
        for line in ["oci --mig-config all prestart", "oci prestart --mig-config all", "oci prestart --mig-config=all"]
        {
            assert_eq!(options(line).mig_config.as_deref(), Some("all"), "{line}");
            assert_eq!(options(line).words, ["prestart"], "{line}");
        }
    }

    #[test]
    fn everything_behind_runtime_is_the_runtimes() {
        let options = options("--config /c runtime --root /r --help create -b /b c1");
        assert_eq!((options.config.as_deref(), &options.host_root), (Some("/c"), &None));
        assert_eq!(options.passed, ["--root", "/r", "--help", "create", "-b", "/b", "c1"]);
        let renamed = ["/usr/bin/gpuhook-runtime", "--version"].map(OsString::from);
        match parse(renamed) {
            Ok(Invocation::Run(Verb::Runtime, options)) => assert_eq!(options.passed, ["--version"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wrong_word_is_named_with_the_help_that_shows_the_right_ones() {
        for (line, sentence) in [
            ("", "no command was given; hint: gpuhook --help"),
            (
                "frobnicate",
                "unknown command \"frobnicate\"; there are lxc, oci, runtime, cdi, majors, plan, inject, probe, doctor, nodes, report, config; \
                 hint: gpuhook --help",
            ),
            ("majors --devices all", "unknown option --devices; hint: gpuhook majors --help"),
            ("majors extra", "one word too many: \"extra\"; hint: gpuhook majors --help"),
            ("probe --pid zero", "--pid \"zero\" is not a process id; hint: gpuhook probe --help"),
        ] {
            assert_eq!(run(line), Err(sentence.to_owned()), "{line:?}");
        }
    }

    #[test]
    fn the_table_has_each_name_once() {
        for command in COMMANDS {
            assert_eq!(COMMANDS.iter().filter(|other| other.name == command.name).count(), 1);
            assert!(command.usage.starts_with(&format!("gpuhook {}", command.name)), "{}", command.name);
        }
    }
}
