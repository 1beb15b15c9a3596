// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden files: what a program said once, was read and judged, and must say again. `GPUHOOK_BLESS=1` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of golden files below `tests/fixtures`, held against what is said now.
#[derive(Debug)]
pub struct Golden {
    folder: PathBuf,
    held: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Golden {
    /// The folder of that name.
    pub fn folder(name: &str) -> Self {
        Self { folder: fixtures().join(name), held: BTreeSet::new(), wrong: Vec::new() }
    }

    /// Holds `said` against the file.
    pub fn check(&mut self, file: &str, said: &[u8]) {
        self.held.insert(file.to_owned());
        let path = self.folder.join(file);
        if std::env::var_os("GPUHOOK_BLESS").is_some_and(|word| word == "1") {
            fs::create_dir_all(&self.folder).expect("folder of the golden files");
            fs::write(&path, said).expect("golden file");
            return;
        }
        let now = String::from_utf8_lossy(said);
        match fs::read(&path) {
            Ok(golden) if golden == said => {}
            Ok(golden) => {
                let golden = String::from_utf8_lossy(&golden);
                self.wrong.push(format!("--- {file}, golden\n{golden}--- {file}, now\n{now}"));
            }
            Err(error) => self.wrong.push(format!("{}: {error}; now it is\n{now}", path.display())),
        }
    }

    /// Panics where anything differed, or where a file belongs to nothing.
    pub fn done(self) {
        let entries = fs::read_dir(&self.folder).expect("folder of the golden files");
        let files = entries.map(|entry| entry.expect("its entry").path()).filter(|path| path.is_file());
        let names = files.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        let extra: Vec<String> = names.filter(|name| !self.held.contains(name)).collect();
        assert!(self.wrong.is_empty(), "{}\n(GPUHOOK_BLESS=1 writes the files anew)", self.wrong.join("\n"));
        assert!(extra.is_empty(), "{extra:?} in {} belong to nothing", self.folder.display());
    }
}

/// `tests/fixtures`.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}
