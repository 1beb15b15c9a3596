// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for a public bug report: what names a machine, a card or a network is replaced, the same by the same, so that
//! two places that agreed still agree.

use std::collections::BTreeMap;

/// Replaces, and remembers what by what.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// The machine's names, wherever they stand.
    names: Vec<String>,
    /// Those that are words of the driver or of a path too (a host called `pve`): only where a log or a config has a name.
    ambiguous: Vec<String>,
    seen: BTreeMap<String, String>,
    counts: BTreeMap<Kind, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Uuid,
    Id,
    Mac,
    Ipv4,
    Ipv6,
    Serial,
}

/// What the machine is called afterwards.
const HOST: &str = "host";

impl Redactor {
    /// A redactor that also replaces these names of the machine; a name that is a word of `texts`, whose words have a
    /// meaning, is replaced only where nothing but a name can stand.
    pub fn new<'a>(names: &[&str], texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        names.retain(|name| name.len() > 1 && name != "localhost");
        names.dedup();
        let mut ambiguous: Vec<String> = Vec::new();
        for text in texts {
            let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "-_.".contains(letter)));
            for word in words.filter(|word| !word.is_empty()) {
                let (same, other): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_name(name, word));
                ambiguous.extend(same);
                names = other;
            }
        }
        Self { names, ambiguous, ..Self::default() }
    }

    /// `text` with every UUID, serial number, host name, MAC and IP address replaced. Everything else stays byte by byte.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let line = self.serial_of(line);
            let line = self.logged(&line);
            out.push_str(&self.words(&line));
        }
        out
    }

    /// The same of a container's config, line by line, without remarks, the container's names, and what it is given in
    /// variables that are not NVIDIA's.
    pub fn config(&mut self, text: &str) -> String {
        let lines = text.split_inclusive('\n').map(|line| {
            let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
            match line.split_once([':', '=']) {
                _ if line.trim_start().starts_with('#') => format!("#{end}"),
                Some((key, value)) => match key.trim() {
                    "hostname" | "lxc.uts.name" | "searchdomain" | "tags" | "description" => {
                        let sign = &line[key.len()..=key.len()];
                        format!("{key}{sign} private{end}")
                    }
                    "lxc.environment" | "lxc.environment.hooks" | "lxc.environment.runtime" if !is_told(value) => {
                        let name = value.split_once('=').map_or(value.trim_end(), |(name, _)| name);
                        let sign = &line[key.len()..=key.len()];
                        format!("{key}{sign}{name}=private{end}")
                    }
                    _ => line.to_owned(),
                },
                None => line.to_owned(),
            }
        });
        self.text(&lines.collect::<String>())
    }

    /// `Serial Number: 0324...`: the value after such a key.
    fn serial_of(&mut self, line: &str) -> String {
        match line.split_once(':') {
            Some((key, value)) if key.to_ascii_lowercase().contains("serial") && !value.trim().is_empty() => {
                let fresh = self.replacement(Kind::Serial, value.trim());
                line.replacen(value.trim(), &fresh, 1)
            }
            _ => line.to_owned(),
        }
    }

    /// A log line has the machine's name before the word `kernel:`.
    fn logged(&self, line: &str) -> String {
        let Some((before, rest)) = line.split_once(" kernel:") else { return line.to_owned() };
        let start = before.rfind(' ').map_or(0, |at| at + 1);
        match self.ambiguous.iter().any(|name| is_name(name, &before[start..])) {
            true => format!("{}{HOST} kernel:{rest}", &before[..start]),
            false => line.to_owned(),
        }
    }

    /// Words are made of what names and addresses are made of.
    fn words(&mut self, line: &str) -> String {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while !rest.is_empty() {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | ':' | '.' | '_');
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            out.push_str(&self.word(&rest[..end]));
            let after = rest[end..].find(is_part).map_or(rest.len(), |at| end + at);
            out.push_str(&rest[end..after]);
            rest = &rest[after..];
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        // `2001:db8::` and `::ffff:10.0.0.1` have colons at their ends, `host:` in a log has not.
        if is_ipv6(word) {
            return self.replacement(Kind::Ipv6, word);
        }
        let core = word.trim_matches([':', '.']);
        if core.is_empty() {
            return word.to_owned();
        }
        let fresh = match core {
            _ if self.names.iter().any(|name| is_name(name, core)) => HOST.to_owned(),
            _ if is_mac(core) => self.replacement(Kind::Mac, core),
            _ if is_ipv4(core) => self.replacement(Kind::Ipv4, core),
            _ if is_ipv6(core) => self.replacement(Kind::Ipv6, core),
            _ if core.len() == 32 && is_hex(core) => self.replacement(Kind::Id, core),
            _ => match (core.split_once(':'), uuid_in(core)) {
                (_, Some(uuid)) => {
                    let uuid = uuid.to_owned();
                    core.replace(&uuid, &self.replacement(Kind::Uuid, &uuid))
                }
                // With a port behind it.
                (Some((address, port)), None) if is_ipv4(address) => {
                    format!("{}:{port}", self.replacement(Kind::Ipv4, address))
                }
                _ => return word.to_owned(),
            },
        };
        word.replacen(core, &fresh, 1)
    }

    fn replacement(&mut self, kind: Kind, found: &str) -> String {
        let key = found.to_ascii_lowercase();
        if let Some(known) = self.seen.get(&key) {
            return known.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let fresh = match kind {
            Kind::Uuid => format!("00000000-0000-4000-8000-{count:012x}"),
            Kind::Id => format!("{count:032x}"),
            Kind::Mac => format!("02:00:00:00:{:02x}:{:02x}", *count / 256 % 256, *count % 256),
            // TEST-NET-1 and the documentation prefix (RFC 5737, RFC 3849).
            Kind::Ipv4 => format!("192.0.2.{}", *count % 256),
            Kind::Ipv6 => format!("2001:db8::{count:x}"),
            Kind::Serial => format!("serial-{count}"),
        };
        self.seen.insert(key, fresh.clone());
        fresh
    }
}

/// Whether `word` is the name, alone or with its domain.
fn is_name(name: &str, word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a variable is one that a diagnosis looks at.
fn is_told(variable: &str) -> bool {
    ["NVIDIA_", "CUDA_"].iter().any(|prefix| variable.trim_start().trim_start_matches('"').starts_with(prefix))
}

fn is_mac(word: &str) -> bool {
    let of = |sign| word.split(sign).count() == 6 && word.split(sign).all(|pair| pair.len() == 2 && is_hex(pair));
    word.len() == 17 && (of(':') || of('-'))
}

fn is_ipv4(word: &str) -> bool {
    word.parse::<core::net::Ipv4Addr>().is_ok_and(|address| !address.is_unspecified() && !address.is_loopback())
}

fn is_ipv6(word: &str) -> bool {
    let address = if word.matches(':').count() >= 2 { word.parse::<core::net::Ipv6Addr>().ok() } else { None };
    address.is_some_and(|address| !address.is_unspecified() && !address.is_loopback())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `8-4-4-4-12` hexadecimal digits, which neither a digit nor a letter touches: in `GPU-...`, `MIG-...`, `....json` or alone.
fn uuid_in(word: &str) -> Option<&str> {
    let bytes = word.as_bytes();
    let free = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (0..=word.len().checked_sub(36)?).find_map(|start| {
        let uuid = word.get(start..start + 36)?;
        let lengths = uuid.split('-').map(str::len);
        let fits = lengths.eq([8, 4, 4, 4, 12]) && uuid.split('-').all(is_hex);
        (fits && free(start.checked_sub(1)) && free(Some(start + 36))).then_some(uuid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_replaced_by_the_same_and_all_else_stays() {
        let mut redactor = Redactor::new(&["pve-7", "localhost"], []);
        let text = "GPU UUID: \t GPU-1b2c3d4e-1111-2222-3333-444455556666\nhwaddr=BC:24:11:AA:BB:CC,ip=10.1.2.3/24\n\
                    Jan 1 pve-7 kernel: NVRM: 590.48.01 at 0000:07:00.0 [10de:2330]\nSerial Number: 1324\n\
                    addr fe80::1:2 pve-77 1b2c3d4e-1111-2222-3333-444455556666 bc:24:11:aa:bb:cc 127.0.0.1\n";
        let once = redactor.text(text);
        assert_eq!(
            once,
            "GPU UUID: \t GPU-00000000-0000-4000-8000-000000000001\nhwaddr=02:00:00:00:00:01,ip=192.0.2.1/24\n\
             Jan 1 host kernel: NVRM: 590.48.01 at 0000:07:00.0 [10de:2330]\nSerial Number: serial-1\n\
             addr 2001:db8::1 pve-77 00000000-0000-4000-8000-000000000001 02:00:00:00:00:01 127.0.0.1\n"
        );
    }

    #[test]
    fn what_the_kernel_and_the_driver_print_is_not_taken_for_an_address() {
        let text = "Character devices:\n195 nvidia\n509 nvidia-uvm\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n\
                    0::/lxc.payload.c1\n0000:0b:00.0 1.2.3.4.5 6.14.11-1-pve crw-rw-rw- 1 0 0 195, 0 /dev/nvidia0\n";
        assert_eq!(Redactor::new(&[], []).text(text), text);
    }

    #[test]
    fn every_spelling_of_an_address_is_one() {
        let text = "10.1.2.3:8080 10.1.2.3 ::ffff:10.1.2.3 2001:db9:1::/48 fe80:0:0:0:1:2:3:4%eth0 ::1 :: \
                    bc-24-11-aa-bb-cc MIG-1b2c3d4e-1111-2222-3333-444455556666 \
                    nvidia-1b2c3d4e-1111-2222-3333-444455556666.json 1b2c3d4e11112222333344445555666a\n";
        assert_eq!(
            Redactor::new(&[], []).text(text),
            "192.0.2.1:8080 192.0.2.1 2001:db8::1 2001:db8::2/48 2001:db8::3%eth0 ::1 :: 02:00:00:00:00:01 \
             MIG-00000000-0000-4000-8000-000000000001 nvidia-00000000-0000-4000-8000-000000000001.json \
             00000000000000000000000000000001\n"
        );
    }

    #[test]
    fn a_machines_name_is_told_from_a_word_of_the_driver() {
        let devices = "195 nvidia\n509 nvidia-uvm\n";
        let log = "Jan 1 gpu1.corp.lan kernel: x\nroot@GPU1 gpu12 my-gpu1\n";
        let mut plain = Redactor::new(&["gpu1"], [devices]);
        assert_eq!(plain.text(log), "Jan 1 host kernel: x\nroot@host gpu12 my-gpu1\n");
        // A host called as a directory or a driver.
        let mut pve = Redactor::new(&["pve", "nvidia"], [devices, "etc/pve/lxc/100.conf"]);
        assert_eq!(
            pve.text("etc/pve/lxc/100.conf 195 nvidia 6.14.11-1-pve\n"),
            "etc/pve/lxc/100.conf 195 nvidia 6.14.11-1-pve\n"
        );
        assert_eq!(pve.text("Jan 1 pve kernel: NVRM\n[1.0] NVRM\n"), "Jan 1 host kernel: NVRM\n[1.0] NVRM\n");
    }

    #[test]
    fn a_config_keeps_its_lines_and_loses_what_is_private() {
        let config = "# the notes of admin: secret\nhostname: ollama\r\nlxc.uts.name = c1\nsearchdomain: corp.lan\n\
                      lxc.environment: API_KEY=secret\nlxc.environment = NVIDIA_VISIBLE_DEVICES=all\n\
                      lxc.cgroup2.devices.allow: c 195:* rwm # nvidia\nmp0: /tank,mp=/tank\n";
        assert_eq!(
            Redactor::new(&[], []).config(config),
            "#\nhostname: private\r\nlxc.uts.name = private\nsearchdomain: private\nlxc.environment: API_KEY=private\n\
             lxc.environment = NVIDIA_VISIBLE_DEVICES=all\nlxc.cgroup2.devices.allow: c 195:* rwm # nvidia\n\
             mp0: /tank,mp=/tank\n"
        );
    }
}
