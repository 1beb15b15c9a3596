// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest writes: one record of fixed size before each stage, so that a crash or a hang shows where it stood.
//! Compiled into the guest as well, so it needs nothing but `core`.

/// How far the guest came. Each is written when the stage before it is over; the numbers are part of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stage {
    /// It runs, and loads libcuda next.
    Started = 1,
    /// Last word: `dlopen("libcuda.so.1")` failed, or what it opened lacks the CUDA functions.
    NoLibrary = 2,
    /// libcuda is loaded, and `cuInit` comes next.
    Loaded = 3,
    /// `cuInit` has returned, and the count of devices comes next.
    Initialised = 4,
    /// Last word: everything was asked.
    Done = 5,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// How far the guest came.
    pub stage: Stage,
    /// What `cuInit(0)` returned; 0 before [`Stage::Initialised`].
    pub cuinit: i32,
    /// What `cuDeviceGetCount` returned; 0 before [`Stage::Done`] and where it was not called.
    pub count_code: i32,
    /// The number of devices; 0 where it is not known.
    pub devices: i32,
    /// `cuDriverGetVersion`: 1000 x major + 10 x minor of the newest CUDA that libcuda speaks; 0 where it is not known.
    pub driver_version: i32,
}

impl Record {
    /// Bytes of one record.
    pub const SIZE: usize = 32;

    const MAGIC: u32 = u32::from_le_bytes(*b"GPUh");
    const VERSION: u32 = 1;

    /// The record of a guest that came to `stage` and knows nothing yet.
    pub const fn new(stage: Stage) -> Self {
        Self { stage, cuinit: 0, count_code: 0, devices: 0, driver_version: 0 }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let [cuinit, count_code, devices, version] =
            [self.cuinit, self.count_code, self.devices, self.driver_version].map(i32::to_le_bytes);
        let [magic, layout, stage] = [Self::MAGIC, Self::VERSION, self.stage as u32].map(u32::to_le_bytes);
        let words = [magic, layout, stage, cuinit, count_code, devices, version, [0; 4]];
        let mut bytes = [0; Self::SIZE];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word);
        }
        bytes
    }
}
