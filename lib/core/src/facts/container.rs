// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/proc/PID/{uid_map,gid_map}` -> id maps (user_namespaces(7)).

use super::{IdMap, Malformed, decimal};

impl IdMap {
    /// The map in `text`.
    ///
    /// # Errors
    /// A line is not three numbers.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let ranges = text.lines().map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(|word| decimal(word, u32::MAX));
            match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
                (Some(Some(inside)), Some(Some(outside)), Some(Some(count)), None) => Ok((inside, outside, count)),
                _ => Err(Malformed::line("three numbers of an id map", line)),
            }
        });
        ranges.collect::<Result<_, _>>().map(Self)
    }

    /// The host's id for the container's `inside`; nothing where the container has no such id.
    pub fn to_host(&self, inside: u32) -> Option<u32> {
        if self.0.is_empty() {
            return Some(inside);
        }
        self.0.iter().find_map(|(first, outside, count)| {
            let offset = inside.checked_sub(*first).filter(|offset| offset < count)?;
            outside.checked_add(offset)
        })
    }

    /// The container's id for the host's `outside`; nothing where the container has none for it.
    pub fn to_inside(&self, outside: u32) -> Option<u32> {
        if self.0.is_empty() {
            return Some(outside);
        }
        self.0.iter().find_map(|(inside, first, count)| {
            let offset = outside.checked_sub(*first).filter(|offset| offset < count)?;
            inside.checked_add(offset)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_translated_range_by_range() {
        let map = IdMap::parse("         0     100000       1000\n      1000       1000          1\n").unwrap();
        for (inside, host) in
            [(0, Some(100_000)), (999, Some(100_999)), (1000, Some(1000)), (1001, None), (u32::MAX, None)]
        {
            assert_eq!(map.to_host(inside), host, "{inside}");
        }
        for (outside, inside) in [(100_000, Some(0)), (1000, Some(1000)), (44, None), (101_000, None)] {
            assert_eq!(map.to_inside(outside), inside, "{outside}");
        }
        assert_eq!(IdMap::parse("0 0 4294967295\n").unwrap().to_host(65_534), Some(65_534));
        assert_eq!(IdMap::default().to_host(1000), Some(1000));
    }

    #[test]
    fn an_odd_map_is_refused_with_its_line() {
        for odd in ["0 100000", "0 100000 65536 1", "0 -1 1", "0 100000 4294967296", "a b c"] {
            let refusal = IdMap::parse(odd).unwrap_err().to_string();
            assert!(refusal.contains(odd), "{refusal}");
        }
    }
}
