// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each room of the workspace touches only what it may. The compiler holds the crates apart; this reads the sources for
//! what it cannot hold: names of the standard library, and who imports whom inside `gpuhook-linux`.

use std::fs;
use std::path::{Path, PathBuf};

/// Some files, what none of them may name, and why.
struct Room {
    /// Folders and files, from the workspace's root.
    within: &'static [&'static str],
    /// Parts of it that are rooms of their own.
    except: &'static [&'static str],
    /// Paths and words. A path stands also for everything below it.
    never: &'static [&'static str],
    reason: &'static str,
}

const ROOMS: &[Room] = &[
    Room {
        within: &["lib/core/src"],
        except: &[],
        never: &["std::fs", "std::env", "std::process", "std::net", "std::os", "std::thread", "std::io"],
        reason: "core decides from values: no file, environment, process or stream; gpuhook-linux asks, the hook speaks",
    },
    Room {
        within: &["lib/core/src"],
        except: &[],
        never: &["std::time::SystemTime", "std::time::Instant", "HashMap", "HashSet", "RandomState"],
        reason: "equal inputs give equal bytes in core: no clock, no map without order",
    },
    Room {
        within: &["lib/core/src", "lib/linux/src", "hook/src", "lib/probe/src"],
        except: &["hook/src/main.rs"],
        never: &[
            "print!",
            "println!",
            "eprint!",
            "eprintln!",
            "dbg!",
            "std::io::stdout",
            "std::io::stderr",
            "io::stdout",
            "io::stderr",
            "process::exit",
        ],
        reason: "hook/src/main.rs is the only place that prints or exits: a hook's output goes into LXC's log or a spec",
    },
    Room {
        within: &["lib/linux/src"],
        except: &["lib/linux/src/sys.rs", "lib/linux/src/sys"],
        never: &["libc", "rustix", "nix", "unsafe", "unsafe_code"],
        reason: "only sys makes system calls and holds unsafe code, so every failed call is a SysError with its arguments",
    },
    Room {
        within: &["lib/core/src", "hook/src", "lib/probe/src"],
        except: &[],
        never: &["libc", "rustix", "nix", "unsafe", "extern"],
        reason: "system calls and unsafe code live in lib/linux/src/sys, and in the guest for the sake of dlopen",
    },
    Room {
        within: &["lib/linux/src"],
        // A failpoint is told what to do by the environment, in test builds alone.
        except: &["lib/linux/src/failpoint.rs"],
        never: &["std::env", "std::net"],
        reason: "linux is given a plan and a target: what the environment says is the hook's to read",
    },
    Room {
        within: &["lib/linux/src/sys.rs", "lib/linux/src/sys"],
        except: &[],
        never: &[
            "gpuhook_core::plan",
            "gpuhook_core::request",
            "gpuhook_core::facts",
            "gpuhook_core::config",
            "log::",
            "std::fs",
            "crate::apply",
            "crate::filter",
            "crate::gather",
            "crate::probe",
            "crate::root",
            "crate::target",
            "crate::verify",
        ],
        reason: "sys is one wrapper per call: it decides, parses and logs nothing, and knows nobody above it",
    },
    Room {
        within: &["lib/linux/src/gather.rs", "lib/linux/src/gather", "lib/linux/src/root.rs"],
        except: &[],
        never: &[
            "crate::apply",
            "crate::filter",
            "crate::verify",
            "crate::probe",
            "crate::target",
            "std::fs::write",
            "std::fs::OpenOptions",
            "gpuhook_core::plan",
            "gpuhook_core::request",
        ],
        reason: "gather reads below a Root and hands the text to core: it changes nothing and knows no request",
    },
    Room {
        within: &["lib/linux/src/apply.rs", "lib/linux/src/apply", "lib/linux/src/filter.rs", "lib/linux/src/filter"],
        except: &[],
        never: &[
            "crate::gather",
            "crate::verify",
            "crate::probe",
            "crate::files",
            "crate::lxc",
            "crate::root",
            "gpuhook_core::request",
            "gpuhook_core::config",
            "gpuhook_core::lxc_config",
            "gpuhook_core::oci",
        ],
        reason: "apply and filter do what they are told: they discover, choose and skip nothing",
    },
    Room {
        within: &["lib/linux/src/verify.rs"],
        except: &[],
        // It needs the probe for L3 and L5 and the filter's judge for L2: both look and change nothing.
        never: &[
            "crate::apply",
            "crate::gather",
            "crate::files",
            "crate::modules",
            "crate::filter::allow",
            "crate::filter::handback",
            "filter::allow",
            "filter::handback",
            "std::fs",
            "gpuhook_core::request",
        ],
        reason: "verify looks again and repairs nothing: of filter it may use the judge alone",
    },
    Room {
        within: &["lib/linux/src/filter/judge.rs"],
        except: &[],
        never: &[
            "v1::allow",
            "v2::allow",
            "super::handback",
            "super::pins",
            "bpf::attach",
            "bpf::detach",
            "bpf::replace",
        ],
        reason: "the judge of a filter reads only",
    },
    Room {
        within: &["lib/linux/src/probe.rs", "lib/linux/src/probe"],
        except: &[],
        never: &["crate::apply", "crate::gather", "crate::filter", "crate::verify", "gpuhook_core::plan", "dlopen"],
        reason: "the probe starts a child and believes nothing it says: no code of the container runs in this process",
    },
    Room {
        within: &["hook/src"],
        except: &[],
        never: &["std::fs", "std::process::Command", "std::os", "std::net", "gpuhook_linux::sys", "/proc/"],
        reason: "the hook speaks: what asks or changes the machine is gpuhook-linux's",
    },
    Room {
        within: &["hook/src"],
        except: &["hook/src/environment.rs", "hook/src/main.rs"],
        never: &["std::env"],
        reason: "the environment comes from an image in part: environment.rs reads the few names that mean something",
    },
    Room {
        within: &["lib/probe/guest", "lib/probe/src/record.rs"],
        except: &[],
        never: &["std", "gpuhook_core", "gpuhook_linux", "gpuhook_probe", "libc", "alloc"],
        reason: "the guest runs inside the container under any glibc: it imports nothing but core's C types",
    },
];

/// Crates that a room's `Cargo.toml` may not name under `[dependencies]`.
const MANIFESTS: &[(&str, &[&str], &str)] = &[
    (
        "lib/core/Cargo.toml",
        &["libc", "nix", "rustix", "caps", "log", "env_logger", "procfs", "gpuhook-linux"],
        "core cannot act",
    ),
    ("hook/Cargo.toml", &["libc", "nix", "rustix", "caps", "procfs", "toml"], "the hook makes no system call"),
    ("lib/probe/Cargo.toml", &[""], "the guest is one small program without dependencies"),
];

/// Files whose first lines forbid unsafe code for the whole crate.
const FORBID_UNSAFE: &[&str] = &["lib/core/src/lib.rs", "hook/src/main.rs", "lib/probe/src/lib.rs"];

#[test]
fn every_room_touches_only_what_it_may() {
    let mut wrong = Vec::new();
    for room in ROOMS {
        for file in files(room) {
            let text = fs::read_to_string(workspace().join(&file)).expect("a source file");
            for (line, name) in violations(&text, room.never) {
                wrong.push(format!("{}:{line}: {name}: {}", file.display(), room.reason));
            }
        }
    }
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_room_depends_on_a_crate_that_could_take_it_out() {
    for (manifest, never, reason) in MANIFESTS {
        let text = fs::read_to_string(workspace().join(manifest)).expect("a Cargo.toml");
        for name in dependencies(&text) {
            let forbidden = never.iter().any(|never| never.is_empty() || *never == name);
            assert!(!forbidden, "{manifest}: {name}: {reason}");
        }
    }
}

#[test]
fn crates_without_system_calls_forbid_unsafe_code() {
    for file in FORBID_UNSAFE {
        let text = fs::read_to_string(workspace().join(file)).expect("a crate's root");
        assert!(text.contains("\n#![forbid(unsafe_code)]\n"), "{file} does not forbid unsafe code");
    }
    let allowing: Vec<_> = sources(&workspace().join("lib"))
        .into_iter()
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("allow(unsafe_code")))
        .map(|path| path.strip_prefix(workspace()).expect("below the workspace").display().to_string())
        .collect();
    assert_eq!(allowing, ["lib/linux/src/sys.rs"], "one room allows unsafe code");
}

#[test]
fn every_file_names_its_licence_and_its_job() {
    let mut wrong = Vec::new();
    for folder in ["lib", "hook", "tests"] {
        for path in sources(&workspace().join(folder)) {
            let text = fs::read_to_string(&path).expect("a source file");
            let mut lines = text.lines();
            let licence = lines.next() == Some("// SPDX-License-Identifier: MIT OR Apache-2.0");
            if !licence || !lines.next().is_some_and(|line| line.starts_with("//! ")) {
                wrong.push(path.display().to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "no SPDX line or no //! line after it:\n{}", wrong.join("\n"));
}

/// The check itself: what it must find, and what it must not take for a violation.
#[test]
fn imports_are_found_in_every_form_and_comments_are_not_code() {
    let never = &["std::fs", "println!", "unsafe"];
    for (text, expected) in [
        ("use std::fs;", vec![(1, "std::fs")]),
        ("use std::fs::File;", vec![(1, "std::fs")]),
        ("use std::{\n    env,\n    fs::{self, File},\n};", vec![(1, "std::fs")]),
        ("fn f() {\n    std::fs::read(\"x\");\n}", vec![(2, "std::fs")]),
        ("fn f() {\n    println!(\"x\"); // unsafe\n}", vec![(2, "println!")]),
        ("//! Not std::fs.\n/// Nor unsafe code.\nfn f() {}", vec![]),
        ("use mystd::fs;\nlet unsafe_code = std::fsync;\neprintln!();", vec![]),
        ("/* std::fs */ unsafe { f() }", vec![(1, "unsafe")]),
        ("let web = \"http://x\"; unsafe {}", vec![(1, "unsafe")]),
        ("let quote = '\"'; unsafe {} // \"", vec![(1, "unsafe")]),
        ("let raw = r#\"one \" quote\"#; unsafe {} // unsafe", vec![(1, "unsafe")]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|(line, name)| (line, name.to_owned())).collect();
        assert_eq!(violations(text, never), expected, "{text}");
    }
    assert_eq!(
        dependencies("[package]\nnix = 1\n[dependencies]\nlibc = \"0.2\"\nlog.workspace = true\n[lints]\nx = 1\n"),
        ["libc", "log"]
    );
}

/// The forbidden names in a source text, with their lines (for an import: the line where it begins).
fn violations(text: &str, never: &[&str]) -> Vec<(usize, String)> {
    let code = without_comments(text);
    let mut found: Vec<(usize, String)> = Vec::new();
    for (number, line) in code.lines().enumerate() {
        found.extend(never.iter().filter(|name| names(line, name)).map(|name| (number + 1, (*name).to_owned())));
    }
    for (number, import) in imports(&code) {
        found.extend(never.iter().filter(|name| names(&import, name)).map(|name| (number, (*name).to_owned())));
    }
    found.sort();
    found.dedup();
    found
}

/// Whether `line` names `name` as a whole word; a path also as the beginning of a longer one.
fn names(line: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        let begins = !name.starts_with(word) || !before.is_some_and(|c| word(c) || c == ':');
        begins && (!name.ends_with(word) || !after.is_some_and(word))
    })
}

/// The text with its comments blanked, line for line.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(quote) = ["'\"'", "'\\\"'", "'/'"].iter().find(|quote| rest.starts_with(**quote)) {
            code.push_str(quote);
            rest = &rest[quote.len()..];
            continue;
        } else if rest.starts_with("r#\"") {
            let end = rest.find("\"#").map_or(rest.len(), |end| end + 2);
            code.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        } else if c == '"' {
            let end = string_end(rest);
            code.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        rest = &rest[length..];
    }
    code
}

/// Where the string literal at the beginning of `text` ends.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Every path that a `use` brings in, written out, with the line where its `use` begins.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut line = 1;
    for statement in code.split_inclusive(';') {
        let begin = statement.lines().position(|line| line.trim_start().trim_start_matches("pub ").starts_with("use "));
        if let Some(begin) = begin {
            let tree: String =
                statement.lines().skip(begin).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
            let tree = tree.trim_start_matches("pub ").trim_start_matches("use ").trim_end_matches(';');
            let mut paths = Vec::new();
            expand("", tree, &mut paths);
            found.extend(paths.into_iter().map(|path| (line + begin, path)));
        }
        line += statement.matches('\n').count();
    }
    found
}

/// `std::{env, fs::{self, File}}` -> `std::env`, `std::fs::self`, `std::fs::File`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, group)) = tree.split_once('{') else {
        paths.push(format!("{prefix}{}", tree.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let mut depth = 0_usize;
    let parts = group.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        expand(&prefix, part, paths);
    }
}

/// The names under `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', '=', ' ']).next().filter(|name| !name.is_empty()).map(str::to_owned))
        .collect()
}

fn files(room: &Room) -> Vec<PathBuf> {
    let root = workspace();
    let mut files = Vec::new();
    for part in room.within {
        let path = root.join(part);
        let found = if path.is_dir() { sources(&path) } else { vec![path] };
        assert!(!found.is_empty(), "{part} holds no source file: this test must follow the tree");
        files.extend(found);
    }
    let mut files: Vec<PathBuf> =
        files.into_iter().map(|path| path.strip_prefix(&root).expect("below the workspace").to_owned()).collect();
    files.retain(|file| !room.except.iter().any(|except| file.starts_with(except)));
    files
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("its entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root").to_owned()
}
