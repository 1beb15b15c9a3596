// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/proc/modules` and of `modules.dep` -> which modules are loaded, and which could be.

use std::collections::BTreeSet;

/// The names in `/proc/modules` (kernel/module/procfs.c, `m_show`), with underscores as the kernel writes them.
pub fn loaded(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.split_ascii_whitespace().next()).map(str::to_owned).collect()
}

/// Whether `modules.dep` (depmod(8)) has a file of the unified memory module: `nvidia-uvm.ko`, in Debian's package
/// `nvidia-current-uvm.ko`, compressed or not.
pub fn has_uvm(modules_dep: &str) -> bool {
    modules_dep.lines().filter_map(|line| line.split_once(':')).any(|(path, _)| {
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = file.split_once(".ko").map_or(file, |(name, _)| name).replace('_', "-");
        name.starts_with("nvidia-") && name.ends_with("uvm")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_memory_module_is_found_under_every_distributions_name() {
        for (line, found) in [
            ("updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko", true),
            ("updates/dkms/nvidia-current-uvm.ko.xz: x", true),
            ("kernel/drivers/video/nvidia_uvm.ko.zst:", true),
            ("kernel/drivers/video/nvidia.ko: kernel/nvidia-uvm.ko", false),
            ("updates/dkms/nvidia-modeset.ko:", false),
            ("", false),
        ] {
            assert_eq!(has_uvm(&format!("kernel/fs/fat.ko:\n{line}\n")), found, "{line}");
        }
    }

    #[test]
    fn loaded_modules_are_named_as_the_kernel_does() {
        let text = "nvidia_uvm 1769472 4 - Live 0x0 (O)\nnvidia 14381056 70 nvidia_uvm, Live 0x0 (O)\n";
        assert_eq!(loaded(text).into_iter().collect::<Vec<_>>(), ["nvidia", "nvidia_uvm"]);
    }
}
