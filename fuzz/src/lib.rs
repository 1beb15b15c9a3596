// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host that the targets' texts meet.

use gpuhook_core::facts::{Gpu, HostFacts, Majors, PciAddress};

/// A host with two GPUs, on which foreign drivers have majors that NVIDIA's once had.
pub fn host() -> HostFacts {
    let majors = "195 nvidia\n195 nvidiactl\n234 mei\n236 kfd\n237 nvidia-caps\n238 nvidia-caps-imex-channels\n\
                  509 nvidia-uvm\n\nBlock devices:\n";
    let gpu = |bus: &str, minor: u32| {
        let address = PciAddress::parse(bus).expect("an address");
        let text = format!("GPU UUID: \t GPU-00000000-0000-4000-8000-{minor:012}\nDevice Minor: \t {minor}\n");
        Gpu::parse(address, &text).expect("a GPU")
    };
    HostFacts {
        majors: Some(Majors::parse(majors)),
        gpus: vec![gpu("0000:07:00.0", 1), gpu("0000:0b:00.0", 0)],
        ..HostFacts::default()
    }
}

/// `bytes` as the readers of files hand them on.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
