// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made-up bytes for property tests: the same for the same seed, so that a failure can be repeated.

/// A stream of numbers (xorshift64*, after Marsaglia and Vigna).
pub(crate) struct Bytes(u64);

impl Bytes {
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(mixed).unwrap_or(0) % limit
    }

    /// Something that looks like a config in places: pieces of real lines among any bytes, with every kind of line end.
    pub(crate) fn config(&mut self) -> Vec<u8> {
        const PIECES: &[&[u8]] = &[
            b"lxc.cgroup2.devices.allow",
            b"lxc.cgroup.devices.allow",
            b"lxc.mount.entry",
            b"lxc.include",
            b"lxc.cgroup2",
            b"lxc.environment",
            b"lxc.hook.pre-start",
            b"dev0",
            b"unprivileged",
            b"lock",
            b":",
            b": ",
            b" = ",
            b"=",
            b" ",
            b"\n",
            b"\n",
            b"\n",
            b"\r\n",
            b"\t",
            b"#",
            b"# nvidia-uvm",
            b"[snap]",
            b"[pve:pending]",
            b"a",
            b"c 195:* rwm",
            b"c 509:* rwm",
            b"c 504:0 rw",
            b"c 226:* rwm",
            b"c 234:* rwm",
            b"236:* rwm",
            b"c  195:* rwm",
            b"/dev/nvidia0",
            b"/dev/nvidia0 dev/nvidia0 none bind,optional,create=file",
            b"/dev/dri dev/dri none bind,create=dir",
            b"/dev/nvidia-uvm dev/nvidia-uvm none",
            b"bind,optional,create=file",
            b"/usr/share/gpuhook/lxc.conf",
            b"NVIDIA_VISIBLE_DEVICES=all",
            b"/usr/share/lxc/hooks/nvidia",
            b"/dev/kfd dev/kfd none bind,create=dir",
            b"1",
            b"\xff",
            b"\0",
            b"\xc3\xa9",
            b"'",
            b"\"",
            b"/dev/nvidia-caps dev/nvidia-caps none bind,optional,create=dir",
        ];
        let mut bytes = Vec::new();
        for _ in 0..self.below(40) {
            match self.below(12) {
                0 => bytes.push(u8::try_from(self.below(256)).unwrap_or_default()),
                _ => bytes.extend_from_slice(PIECES[self.below(PIECES.len())]),
            }
        }
        bytes
    }
}
