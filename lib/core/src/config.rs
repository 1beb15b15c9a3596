// SPDX-License-Identifier: MIT OR Apache-2.0
//! The administrator's file, `/etc/gpuhook/config.toml`. Every key has a default, and no key holds a device number.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::quoted::Quoted;

/// What the administrator decided.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Whether `pre-start` may load the driver's modules. Key `load-modules`, default true.
    pub load_modules: bool,
    /// The OCI runtime that `gpuhook runtime` executes, as an absolute path. Key `runtime`, default empty: the first of
    /// runc and crun that is installed.
    pub runtime: String,
    /// Whether the variables and annotations of an unprivileged container may choose GPUs. Key
    /// `accept-env-when-unprivileged`, default true.
    pub accept_env_when_unprivileged: bool,
    /// Whether mounts below `/var/run/nvidia-container-devices` choose GPUs. Key `accept-mounts`, default true.
    pub accept_mounts: bool,
    /// What the variables of an unprivileged container may ask for beside GPUs. Key `unprivileged-may-ask`, default
    /// nothing.
    #[serde(deserialize_with = "rights")]
    pub unprivileged_may_ask: Rights,
    /// What a failed check means. Table `[verify]`.
    pub verify: VerifyConfig,
}

bitflags::bitflags! {
    /// What somebody may ask for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Rights: u8 {
        /// To choose GPUs.
        const DEVICES = 1;
        /// To configure MIG.
        const MIG_CONFIG = 2;
        /// To monitor MIG.
        const MIG_MONITOR = 4;
        /// To use IMEX channels.
        const IMEX_CHANNELS = 8;
        /// To manage the NVSwitches.
        const NVSWITCH = 16;
    }
}

/// What a failed check means, rung by rung. Keys `l1`, `l2`, `l3`, `l5`, `time-limit-seconds`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the table [verify]")]
pub struct VerifyConfig {
    /// L1: nodes in the container. Default enforce.
    pub l1: Policy,
    /// L2: device filter. Default enforce.
    pub l2: Policy,
    /// L3: open of each node from inside. Default enforce.
    pub l3: Policy,
    /// L5: cuInit in the probe. Default warn.
    pub l5: Policy,
    /// How long the probe may run, 1 to 600 s. Default 30 s.
    #[serde(rename = "time-limit-seconds", deserialize_with = "time_limit")]
    pub time_limit: Duration,
}

/// What to do where a check fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Do not look.
    Off,
    /// Look, and report.
    Warn,
    /// Look, and refuse the start.
    Enforce,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            load_modules: true,
            runtime: String::new(),
            accept_env_when_unprivileged: true,
            accept_mounts: true,
            unprivileged_may_ask: Rights::empty(),
            verify: VerifyConfig::default(),
        }
    }
}

impl Default for VerifyConfig {
    fn default() -> Self {
        Self {
            l1: Policy::Enforce,
            l2: Policy::Enforce,
            l3: Policy::Enforce,
            l5: Policy::Warn,
            time_limit: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// The configuration in `text`, with the default for every key that is not there.
    ///
    /// # Errors
    ///
    /// Where the text is not TOML, a key is unknown, or a value is not one that its key can have.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::new(text, &error))
    }

    /// What the variables of a container may ask for, which may be its image's. A privileged one may ask for all, as
    /// with NVIDIA's toolkit: it could take it anyway.
    pub fn rights_of_image(&self, privileged: bool) -> Rights {
        match privileged {
            true => Rights::all(),
            false if self.accept_env_when_unprivileged => self.unprivileged_may_ask | Rights::DEVICES,
            false => self.unprivileged_may_ask,
        }
    }
}

fn rights<'de, D: Deserializer<'de>>(from: D) -> Result<Rights, D::Error> {
    #[derive(Clone, Copy, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        MigConfig,
        MigMonitor,
        ImexChannels,
        Nvswitch,
    }
    let right = |word| match word {
        Word::MigConfig => Rights::MIG_CONFIG,
        Word::MigMonitor => Rights::MIG_MONITOR,
        Word::ImexChannels => Rights::IMEX_CHANNELS,
        Word::Nvswitch => Rights::NVSWITCH,
    };
    Ok(Vec::deserialize(from)?.into_iter().map(right).collect())
}

fn time_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    const SECONDS: std::ops::RangeInclusive<u64> = 1..=600;
    let seconds = i64::deserialize(from)?;
    match u64::try_from(seconds) {
        Ok(seconds) if SECONDS.contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(D::Error::custom(format_args!("{seconds} is not a time limit; allowed are 1 to 600 seconds"))),
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line, counted from 1.
    pub line: usize,
    /// The line as it stands, with its key.
    pub text: String,
    /// What is wrong with it, and which keys or values are allowed.
    pub reason: String,
}

impl ConfigError {
    fn new(text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.get(..start).unwrap_or_default().matches('\n').count();
        let reason = error.message().replacen("unknown field", "unknown key", 1).replacen("variant", "value", 1);
        Self {
            line: line + 1,
            text: text.split('\n').nth(line).unwrap_or_default().trim().to_owned(),
            reason: reason.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read line {} of the configuration, {}: {}", self.line, Quoted(&self.text), self.reason)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `make install` puts into `/etc/gpuhook`.
    const SHIPPED: &str = include_str!("../../../install/config.toml");

    #[test]
    fn the_shipped_file_names_every_key_with_its_default() {
        assert_eq!(Config::parse(SHIPPED), Ok(Config::default()));
        let setting = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        let all: Vec<String> = SHIPPED.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned())).collect();
        assert_eq!(Config::parse(&all.join("\n")), Ok(Config::default()));
        let keys: Vec<String> =
            SHIPPED.lines().filter_map(setting).filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect();
        let top = ["load-modules", "runtime", "accept-env-when-unprivileged", "accept-mounts", "unprivileged-may-ask"];
        assert_eq!(keys, [&top[..], &["l1", "l2", "l3", "l5", "time-limit-seconds"]].concat());
    }

    #[test]
    fn every_key_changes_its_value_and_no_other() {
        let verify = VerifyConfig::default;
        for (text, config) in [
            ("", Config::default()),
            ("load-modules = false", Config { load_modules: false, ..Config::default() }),
            ("runtime = \"/usr/bin/crun\"", Config { runtime: "/usr/bin/crun".to_owned(), ..Config::default() }),
            (
                "accept-env-when-unprivileged = false",
                Config { accept_env_when_unprivileged: false, ..Config::default() },
            ),
            ("accept-mounts = false", Config { accept_mounts: false, ..Config::default() }),
            (
                "unprivileged-may-ask = [\"nvswitch\", \"mig-monitor\"]",
                Config { unprivileged_may_ask: Rights::NVSWITCH | Rights::MIG_MONITOR, ..Config::default() },
            ),
            (
                "[verify]\nl1 = \"off\"",
                Config { verify: VerifyConfig { l1: Policy::Off, ..verify() }, ..Config::default() },
            ),
            (
                "verify.l2 = \"warn\"",
                Config { verify: VerifyConfig { l2: Policy::Warn, ..verify() }, ..Config::default() },
            ),
            (
                "verify.l3 = \"warn\"",
                Config { verify: VerifyConfig { l3: Policy::Warn, ..verify() }, ..Config::default() },
            ),
            (
                "verify = { l5 = \"enforce\", time-limit-seconds = 600 }",
                Config {
                    verify: VerifyConfig { l5: Policy::Enforce, time_limit: Duration::from_secs(600), ..verify() },
                    ..Config::default()
                },
            ),
        ] {
            assert_eq!(Config::parse(text), Ok(config), "{text:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_with_what_is_allowed() {
        for (text, line, said) in [
            (
                "modules = true",
                1,
                "unknown key `modules`, expected one of `load-modules`, `runtime`, `accept-env-when-unprivileged`, `accept-mounts`, \
                 `unprivileged-may-ask`, `verify`",
            ),
            (
                "unprivileged-may-ask = [\"devices\"]",
                1,
                "unknown value `devices`, expected one of `mig-config`, `mig-monitor`, `imex-channels`, `nvswitch`",
            ),
            (
                "# x\n[verify]\nl4 = \"off\"",
                3,
                "unknown key `l4`, expected one of `l1`, `l2`, `l3`, `l5`, `time-limit-seconds`",
            ),
            ("[verify]\nl3 = \"no\"", 2, "unknown value `no`, expected one of `off`, `warn`, `enforce`"),
            ("[verify]\nl3 = \"Off\"", 2, "unknown value `Off`, expected one of `off`, `warn`, `enforce`"),
            ("verify.time-limit-seconds = 0", 1, "0 is not a time limit; allowed are 1 to 600 seconds"),
            ("verify.time-limit-seconds = 601", 1, "601 is not a time limit; allowed are 1 to 600 seconds"),
            ("verify.time-limit-seconds = -1", 1, "-1 is not a time limit; allowed are 1 to 600 seconds"),
            ("verify = 3", 1, "invalid type: integer `3`, expected the table [verify]"),
            ("load-modules = 1", 1, "invalid type: integer `1`, expected a boolean"),
            ("\nload-modules = true\nload-modules = true", 3, "duplicate key"),
            (
                "\"\\u001b[2J\" = 1",
                1,
                "unknown key `\u{fffd}[2J`, expected one of `load-modules`, `runtime`, `accept-env-when-unprivileged`, \
                 `accept-mounts`, `unprivileged-may-ask`, `verify`",
            ),
        ] {
            let error = Config::parse(text).expect_err(text);
            assert_eq!((error.line, error.reason.as_str()), (line, said), "{text:?}");
            assert!(error.to_string().contains(&format!("line {line} of")), "{error}");
        }
        let error = Config::parse("[verify]\n l3 = \"no\"\n").expect_err("no is no policy");
        assert_eq!(
            error.to_string(),
            "read line 2 of the configuration, \"l3 = \\\"no\\\"\": unknown value `no`, expected one of `off`, `warn`, \
             `enforce`"
        );
    }

    #[test]
    fn text_that_is_no_toml_is_refused_in_one_printable_line() {
        for text in ["\0", "a\x1b[2J", "[verify", "= 1", "load-modules", &"[".repeat(1 << 20), &"é\n".repeat(9)] {
            let shown = Config::parse(text).expect_err("no TOML").to_string();
            assert!(shown.len() < 1000 && !shown.contains(char::is_control), "{shown:?}");
        }
    }
}
