// SPDX-License-Identifier: MIT OR Apache-2.0
//! The build of gpuhook with failpoints, the list of its points, which is read from its source, and an ear that hears
//! which of them fired.

use std::collections::BTreeSet;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use crate::bed::Bed;
use crate::program;

/// `make failpoints` builds it; `None`, and `SKIP` printed, where nobody did.
pub fn gpuhook() -> Option<PathBuf> {
    let dir = program::build_dir();
    // target/TRIPLE/PROFILE of the tests, target/failpoints/TRIPLE/debug of that build.
    let triple = dir.parent().expect("a profile lies in a folder");
    let path = triple.with_file_name("failpoints").join(triple.file_name().expect("a triple")).join("debug/gpuhook");
    if path.exists() {
        return Some(path);
    }
    let reason = format!("{} is not built; make failpoints builds it", path.display());
    assert!(std::env::var_os("GPUHOOK_MUST_WORK").is_none_or(|word| word != "1"), "must work, but {reason}");
    println!("SKIP {reason}");
    None
}

/// Every point of the program, by name.
pub fn points() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for dir in ["lib/linux/src", "hook/src"] {
        collect(&root.join(dir), &mut found);
    }
    found
}

fn collect(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("folder of the source") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            collect(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("source");
        for call in ["failpoint::reach(\"", "point(\""] {
            let names = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

/// What the hook of a container is told, and what it says of it.
#[derive(Debug)]
pub struct Ear {
    socket: UnixDatagram,
    name: String,
    orders: PathBuf,
}

impl Ear {
    /// One for the containers of `bed`.
    pub fn new(bed: &Bed) -> Self {
        let name = format!("{}-failpoints", bed.name());
        let address = SocketAddr::from_abstract_name(&name).expect("address");
        let socket = UnixDatagram::bind_addr(&address).expect("socket");
        socket.set_nonblocking(true).expect("non-blocking");
        let ear = Self { socket, name, orders: bed.dir("failpoints").join("orders") };
        ear.order("");
        ear
    }

    /// The words to put before a hook's command. The orders are read anew at every call.
    pub fn words(&self) -> String {
        format!("/usr/bin/env FAILPOINT_EAR={} FAILPOINT_ORDERS={}", self.name, self.orders.display())
    }

    /// What the hook is told from now on, in the words of the crate `fail`.
    pub fn order(&self, failpoints: &str) {
        fs::write(&self.orders, failpoints).expect("orders");
    }

    /// The points that fired since the last call.
    pub fn fired(&self) -> BTreeSet<String> {
        let mut buffer = [0; 256];
        let mut names = BTreeSet::new();
        while let Ok(length) = self.socket.recv(&mut buffer) {
            names.insert(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        names
    }
}
