// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a test repeats what it counts: as often as is quick by default, more in CI, most in `make endurance`.

/// `GPUHOOK_REPEAT`, else `otherwise`.
pub fn times(otherwise: u32) -> u32 {
    of("GPUHOOK_REPEAT", otherwise)
}

/// The number in the variable `name`, else `otherwise`.
pub fn of(name: &str, otherwise: u32) -> u32 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => otherwise,
    }
}
