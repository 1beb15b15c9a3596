// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of an OCI runtime, as far as a wrapper has to understand it: runc's (urfave/cli, which takes `-x` for
//! `--x`) and crun's (argp). Both take global options before the command, and both end the options at the command.

/// What a runtime is called to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCall {
    /// The spec of the container that is to be made, where one is: `create` and `run`. Relative to the working directory.
    pub spec: Option<String>,
    /// The file with the new limits of a running container, where they come in one: `update`. `-` is standard input.
    pub resources: Option<String>,
    /// The container's id, where it is to be made or updated.
    pub id: Option<String>,
    /// How many words come before the command.
    pub global: usize,
    /// `--log`, where the engine looks for the reason of a failure; nothing where it is no file.
    pub log: Option<String>,
    /// `--log-format json`.
    pub log_is_json: bool,
}

/// Global options with a value.
const GLOBAL: &[&str] = &["root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager"];

/// Options of `update` with a value.
const UPDATE: &[&str] = &[
    "resources",
    "blkio-weight",
    "cpu-burst",
    "cpu-idle",
    "cpu-period",
    "cpu-quota",
    "cpu-rt-period",
    "cpu-rt-runtime",
    "cpu-share",
    "cpuset-cpus",
    "cpuset-mems",
    "kernel-memory",
    "kernel-memory-tcp",
    "l3-cache-schema",
    "mem-bw-schema",
    "memory",
    "memory-reservation",
    "memory-swap",
    "pids-limit",
];

/// Options of `create` and `run` with a value. `--config` is crun's.
const CREATE: &[&str] = &["bundle", "config", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"];

impl RuntimeCall {
    /// What `arguments`, which follow the runtime's name, say. Nothing is an error: that is for the runtime to say.
    pub fn parse(arguments: &[String]) -> Self {
        let mut call = Self::default();
        let mut words =
            Words { rest: arguments.iter().map(String::as_str), valued: GLOBAL, letters: &[], ended: false };
        let command = loop {
            match words.next() {
                None => return call,
                Some(Word::Plain(command)) => break command,
                Some(Word::Option("log", value)) => call.log = value.and_then(log_file).map(str::to_owned),
                Some(Word::Option("log-format", value)) => call.log_is_json = value == Some("json"),
                Some(Word::Option(..)) => {}
            }
        };
        call.global = arguments.len() - words.rest.len() - 1;
        if command == "update" {
            for word in (Words { valued: UPDATE, letters: &[("r", "resources")], ..words }) {
                match word {
                    Word::Option("resources", value) => call.resources = value.map(str::to_owned),
                    Word::Option(..) => {}
                    Word::Plain(id) => call.id = Some(id.to_owned()),
                }
            }
            return call;
        }
        if !matches!(command, "create" | "run") {
            return call;
        }
        let letters = &[("b", "bundle"), ("f", "config")];
        let words = Words { valued: CREATE, letters, ..words };
        let (mut bundle, mut config) = (".", "config.json");
        for word in words {
            match word {
                Word::Option("bundle", Some(value)) => bundle = value,
                Word::Option("config", Some(value)) => config = value,
                Word::Option(..) => {}
                Word::Plain(id) => call.id = Some(id.to_owned()),
            }
        }
        call.spec = Some(match config.starts_with('/') {
            true => config.to_owned(),
            false => format!("{bundle}/{config}"),
        });
        call
    }

    /// `reason` as a line of the runtime's log.
    pub fn log_line(&self, reason: &str) -> String {
        match self.log_is_json {
            true => format!("{}\n", serde_json::json!({ "level": "error", "msg": reason })),
            false => format!("level=error msg={reason:?}\n"),
        }
    }
}

/// crun also logs to `journald:ID` and `syslog:ID`, and a file may be `file:PATH`.
fn log_file(destination: &str) -> Option<&str> {
    let elsewhere = ["journald:", "syslog:"].iter().any(|kind| destination.starts_with(kind));
    (!elsewhere).then(|| destination.strip_prefix("file:").unwrap_or(destination))
}

enum Word<'a> {
    /// An option by its long name, with its value where it has one.
    Option(&'a str, Option<&'a str>),
    Plain(&'a str),
}

/// Words one by one, each option with its value.
struct Words<I> {
    rest: I,
    /// The long names of options whose value is the next word, if it is not in the same.
    valued: &'static [&'static str],
    /// Short names for some of them.
    letters: &'static [(&'static str, &'static str)],
    /// `--` was read: no options follow.
    ended: bool,
}

impl<'a, I: Iterator<Item = &'a str>> Iterator for Words<I> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let word = self.rest.next()?;
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|_| !self.ended && word != "-");
        let Some(name) = name else { return Some(Word::Plain(word)) };
        if name.is_empty() {
            self.ended = true;
            return self.next();
        }
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        let short = self.letters.iter().find(|(letter, _)| *letter == name).map(|(_, long)| *long);
        if let Some(known) = short.or_else(|| self.valued.iter().find(|known| **known == name).copied()) {
            return Some(Word::Option(known, value.or_else(|| self.rest.next())));
        }
        // crun's argp also takes a letter's value in the same word: `-b/run/x`.
        let attached = self.letters.iter().find_map(|(letter, long)| Some((*long, word[1..].strip_prefix(letter)?)));
        match attached {
            Some((long, value)) if !word.starts_with("--") && value.starts_with(['/', '.']) => {
                Some(Word::Option(long, Some(value)))
            }
            _ => Some(Word::Option(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> RuntimeCall {
        RuntimeCall::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_bundle_is_found_behind_every_form_of_options() {
        for (line, spec) in [
            ("create c1", "./config.json"),
            ("create --bundle /b c1", "/b/config.json"),
            ("create --bundle=/b c1", "/b/config.json"),
            ("create -bundle /b c1", "/b/config.json"),
            ("create -b /b c1", "/b/config.json"),
            ("create -b=/b c1", "/b/config.json"),
            ("create -b/b c1", "/b/config.json"),
            ("run -d -b sub/x c1", "sub/x/config.json"),
            ("run --pid-file --bundle --bundle /b c1", "/b/config.json"),
            ("create --no-pivot --console-socket /s --preserve-fds 3 --bundle /b c1", "/b/config.json"),
            ("create -f spec.json -b /b c1", "/b/spec.json"),
            ("create --config=/etc/spec.json -b /b c1", "/etc/spec.json"),
            ("--root /create --log /l --log-format json --systemd-cgroup create --bundle /b c1", "/b/config.json"),
            ("-root /r -log=/l --debug=true --rootless true run --bundle /b c1", "/b/config.json"),
            ("--cgroup-manager systemd --log-level debug create -b /b c1", "/b/config.json"),
            ("--criu create --root=/run run c1", "./config.json"),
            ("create --bundle /b -- c1", "/b/config.json"),
        ] {
            let call = call(line);
            assert_eq!(call.spec.as_deref(), Some(spec), "{line}");
            assert_eq!(call.id.as_deref(), Some("c1"), "{line}");
        }
    }

    #[test]
    fn every_other_command_makes_no_container() {
        for line in [
            "",
            "--version",
            "--help",
            "features",
            "--root /r state c1",
            "--root create state c1",
            "exec --process /p c1 create",
            "kill create 9",
            "start run",
            "delete --force create",
            "--log run events --stats c1",
            "restore --bundle /b c1",
        ] {
            assert_eq!(call(line).spec, None, "{line}");
        }
    }

    #[test]
    fn an_update_says_where_its_limits_are() {
        for (line, resources, global) in [
            ("update --resources /t/r.json c1", Some("/t/r.json"), 0),
            ("--root /r --systemd-cgroup update -r /t/r.json c1", Some("/t/r.json"), 3),
            ("--root=/r update -r=- c1", Some("-"), 1),
            ("update -r/t/r.json -- c1", Some("/t/r.json"), 0),
            ("update --memory 1g --cpu-share 7 c1", None, 0),
            ("update --pids-limit -1 --resources - c1", Some("-"), 0),
        ] {
            let call = call(line);
            assert_eq!((call.resources.as_deref(), call.global), (resources, global), "{line}");
            assert_eq!((call.id.as_deref(), call.spec), (Some("c1"), None), "{line}");
        }
    }

    #[test]
    fn the_log_is_where_the_engine_said() {
        let json = call("--root /r --log /l/log.json --log-format json create --log x c1");
        assert_eq!((json.log.as_deref(), json.log_is_json), (Some("/l/log.json"), true));
        let text = call("-log=/l create c1");
        assert_eq!((text.log.as_deref(), text.log_is_json), (Some("/l"), false));
        assert_eq!(call("create c1").log, None);
        assert_eq!(call("--log file:/l create c1").log.as_deref(), Some("/l"));
        assert_eq!(call("--log journald:c1 create c1").log, None);
        assert_eq!(json.log_line("no \"GPU\""), "{\"level\":\"error\",\"msg\":\"no \\\"GPU\\\"\"}\n");
        assert_eq!(text.log_line("no \"GPU\""), "level=error msg=\"no \\\"GPU\\\"\"\n");
    }
}
