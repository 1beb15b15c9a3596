// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for a public bug report: what names a machine, a card or a network is replaced, the same by the same, so that
//! two places that agreed still agree.

use std::collections::BTreeMap;

/// Replaces, and remembers what by what.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    host_names: Vec<String>,
    seen: BTreeMap<String, String>,
    counts: BTreeMap<Kind, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Uuid,
    Mac,
    Ipv4,
    Ipv6,
    Serial,
}

impl Redactor {
    /// A redactor that also replaces these names of the machine.
    pub fn new(host_names: &[&str]) -> Self {
        let names = host_names.iter().filter(|name| name.len() > 1 && **name != "localhost");
        Self { host_names: names.map(|name| (*name).to_owned()).collect(), ..Self::default() }
    }

    /// `text` with every UUID, serial number, host name, MAC and IP address replaced. Everything else stays byte by byte.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let line = self.serial(line);
            out.push_str(&self.words(&line));
        }
        out
    }

    /// `Serial Number: 0324...`: the value after such a key.
    fn serial(&mut self, line: &str) -> String {
        match line.split_once(':') {
            Some((key, value)) if key.to_ascii_lowercase().contains("serial") && !value.trim().is_empty() => {
                let fresh = self.replacement(Kind::Serial, value.trim());
                line.replacen(value.trim(), &fresh, 1)
            }
            _ => line.to_owned(),
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
        let core = word.trim_matches([':', '.']);
        if core.is_empty() {
            return word.to_owned();
        }
        let fresh = match core {
            _ if self.host_names.iter().any(|name| name == core) => "host".to_owned(),
            _ if is_mac(core) => self.replacement(Kind::Mac, core),
            _ if is_ipv4(core) => self.replacement(Kind::Ipv4, core),
            _ if core.matches(':').count() >= 2 && core.parse::<core::net::Ipv6Addr>().is_ok() => {
                self.replacement(Kind::Ipv6, core)
            }
            _ => match uuid_in(core) {
                Some(uuid) => {
                    let uuid = uuid.to_owned();
                    core.replace(&uuid, &self.replacement(Kind::Uuid, &uuid))
                }
                None => return word.to_owned(),
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

fn is_mac(word: &str) -> bool {
    word.len() == 17 && word.split(':').count() == 6 && word.split(':').all(|pair| pair.len() == 2 && is_hex(pair))
}

fn is_ipv4(word: &str) -> bool {
    word.parse::<core::net::Ipv4Addr>().is_ok_and(|address| !address.is_unspecified() && !address.is_loopback())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `8-4-4-4-12` hexadecimal digits at the end of `GPU-...`, `MIG-...` or of nothing.
fn uuid_in(word: &str) -> Option<&str> {
    let start = word.len().checked_sub(36)?;
    let uuid = word.get(start..)?;
    let groups: Vec<&str> = uuid.split('-').collect();
    let fits = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(|group| is_hex(group));
    (fits && (start == 0 || word.as_bytes()[start - 1] == b'-')).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_replaced_by_the_same_and_all_else_stays() {
        let mut redactor = Redactor::new(&["pve-7", "localhost"]);
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
        assert_eq!(Redactor::new(&[]).text(text), text);
    }
}
