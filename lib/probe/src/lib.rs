// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's image, and the reader of what it writes. Pure: who starts the image is `gpuhook-linux`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

/// One record, as both sides know it.
mod record;

pub use record::{Record, Stage};

/// The guest: an ELF program to be started with nothing open but a pipe on descriptor 3. It needs `libc.so.6` and
/// `libdl.so.2` of the container and no version of any symbol.
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));

/// The most that an honest guest writes: one record for each stage on its way. Whoever writes more is not the guest.
pub const MAX_OUTPUT: usize = 4 * Record::SIZE;

/// Bytes that no guest of ours writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// More than [`MAX_OUTPUT`], or a part of a record.
    Length(usize),
    /// Not our magic or not our layout.
    Layout,
    /// A stage that does not exist, or that cannot follow the one before.
    Stage(u32),
    /// A count or a code below zero, which CUDA does not have, or one for a stage that cannot know it.
    Value,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "{length} bytes are not whole records of the probe"),
            Self::Layout => f.write_str("the record has a foreign layout"),
            Self::Stage(stage) => write!(f, "stage {stage} cannot stand there"),
            Self::Value => f.write_str("the record holds a value that its stage cannot have"),
        }
    }
}

impl Error for RecordError {}

impl Record {
    /// The record in exactly `bytes`. They come from the container and are taken for hostile.
    ///
    /// # Errors
    /// [`RecordError`] for everything that [`Record::to_bytes`] does not make.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let Ok(bytes) = <&[u8; Self::SIZE]>::try_from(bytes) else {
            return Err(RecordError::Length(bytes.len()));
        };
        let word = |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let stages = [Stage::Started, Stage::NoLibrary, Stage::Loaded, Stage::Initialised, Stage::Done];
        let number = word(8).cast_unsigned();
        let stage = stages.into_iter().find(|stage| *stage as u32 == number).ok_or(RecordError::Stage(number))?;
        let record =
            Self { stage, cuinit: word(12), count_code: word(16), devices: word(20), driver_version: word(24) };
        if record.to_bytes() != *bytes {
            return Err(RecordError::Layout);
        }
        let late = [record.count_code, record.devices, record.driver_version];
        let known = match stage {
            Stage::Done => true,
            Stage::Initialised => late == [0; 3],
            _ => late == [0; 3] && record.cuinit == 0,
        };
        match known && record.cuinit >= 0 && late.iter().all(|value| *value >= 0) {
            true => Ok(record),
            false => Err(RecordError::Value),
        }
    }

    /// The last record in all that the guest wrote, or nothing where it wrote nothing.
    ///
    /// # Errors
    /// [`RecordError`] where any part is not a record, or stages do not follow each other.
    pub fn last(output: &[u8]) -> Result<Option<Self>, RecordError> {
        if output.len() > MAX_OUTPUT {
            return Err(RecordError::Length(output.len()));
        }
        let mut last: Option<Self> = None;
        for bytes in output.chunks(Self::SIZE) {
            let record = Self::parse(bytes)?;
            let follows = match record.stage {
                Stage::Started => last.is_none(),
                Stage::NoLibrary | Stage::Loaded => last.is_some_and(|last| last.stage == Stage::Started),
                Stage::Initialised => last.is_some_and(|last| last.stage == Stage::Loaded),
                Stage::Done => {
                    last.is_some_and(|last| (last.stage, last.cuinit) == (Stage::Initialised, record.cuinit))
                }
            };
            if !follows {
                return Err(RecordError::Stage(record.stage as u32));
            }
            last = Some(record);
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn done(cuinit: i32, devices: i32) -> Record {
        Record { stage: Stage::Done, cuinit, count_code: 0, devices, driver_version: 13000 }
    }

    fn output(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(Record::to_bytes).collect()
    }

    #[test]
    fn the_last_record_counts() {
        let initialised = Record { cuinit: 999, ..Record::new(Stage::Initialised) };
        let all = [Record::new(Stage::Started), Record::new(Stage::Loaded), initialised, done(999, 0)];
        for count in 0..=all.len() {
            assert_eq!(Record::last(&output(&all[..count])), Ok(count.checked_sub(1).map(|last| all[last])));
        }
        let none = [Record::new(Stage::Started), Record::new(Stage::NoLibrary)];
        assert_eq!(Record::last(&output(&none)), Ok(Some(none[1])));
    }

    #[test]
    fn an_answer_without_the_way_to_it_is_hostile() {
        for records in [
            &[done(0, 8)][..],
            &[Record::new(Stage::Started), done(0, 8)],
            &[Record::new(Stage::Started), Record::new(Stage::Started)],
            &[Record::new(Stage::Started), Record::new(Stage::NoLibrary), Record::new(Stage::Initialised)],
            &[Record::new(Stage::Started), Record::new(Stage::Loaded), Record::new(Stage::Initialised), done(3, 0)],
        ] {
            assert!(matches!(Record::last(&output(records)), Err(RecordError::Stage(_))), "{records:?}");
        }
    }

    #[test]
    fn every_other_byte_is_hostile() {
        let bytes = done(0, 8).to_bytes();
        for at in (0..12).chain(28..32) {
            let mut bytes = bytes;
            bytes[at] ^= 0x40;
            assert!(Record::parse(&bytes).is_err(), "byte {at}");
        }
        for bytes in [&b"printed"[..], &[0; 31], &[0; 32], &[b'!'; 32], &[0; 33]] {
            assert!(Record::last(bytes).is_err(), "{bytes:?}");
        }
        let flood = Record::new(Stage::Started).to_bytes().repeat(5);
        assert_eq!(Record::last(&flood), Err(RecordError::Length(160)));
    }

    #[test]
    fn values_that_their_stage_cannot_know_are_hostile() {
        let early = Record { cuinit: 1, ..Record::new(Stage::Loaded) };
        let later = Record { devices: 8, ..Record::new(Stage::Initialised) };
        for record in [early, later, done(-1, 0), done(0, -1)] {
            assert_eq!(Record::parse(&record.to_bytes()), Err(RecordError::Value), "{record:?}");
        }
    }
}
