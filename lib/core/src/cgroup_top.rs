// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path of the leaf cgroup and the manager's own words -> the container's top cgroup: the highest one that belongs to
//! this container alone, up to which its manager's device programs are the container's own and not the operator's.

/// What the manager says of its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupHint<'a> {
    /// LXC, with the value of `lxc.cgroup.dir.container` if the container's config has one (`lxc/129` on Proxmox,
    /// where the program sits and init is in `lxc/129/ns`).
    Lxc {
        /// The value as written.
        dir_container: Option<&'a str>,
    },
    /// OCI, with `linux.cgroupsPath` if the spec has one: a path, or `slice:prefix:name` for systemd.
    Oci {
        /// The value as written.
        cgroups_path: Option<&'a str>,
    },
    /// Nothing is known.
    None,
}

/// The container's top cgroup: `leaf` or an ancestor of it, as `/a/b`. Where the hint does not fit the leaf, the
/// nearest `*.scope`, and without one the leaf itself.
pub fn container_top(leaf: &str, hint: CgroupHint<'_>) -> String {
    let names: Vec<&str> = leaf.split('/').filter(|name| !name.is_empty()).collect();
    let hinted = match hint {
        CgroupHint::Lxc { dir_container: Some(dir) } => end_of_path(&names, dir),
        CgroupHint::Lxc { dir_container: None } => {
            names.iter().position(|name| name.starts_with("lxc.payload")).map(|at| at + 1)
        }
        CgroupHint::Oci { cgroups_path: Some(path) } => match path.split(':').collect::<Vec<_>>()[..] {
            [_slice, prefix, name] => {
                let unit = format!("{prefix}-{name}.scope");
                names.iter().position(|found| *found == unit).map(|at| at + 1)
            }
            _ => end_of_path(&names, path),
        },
        CgroupHint::Oci { cgroups_path: None } | CgroupHint::None => None,
    };
    let scope = || names.iter().rposition(|name| name.ends_with(".scope")).map(|at| at + 1);
    let end = hinted.or_else(scope).unwrap_or(names.len());
    format!("/{}", names[..end].join("/"))
}

/// Where `path` ends in `names`, taken at its last occurrence: a manager inside another one makes paths below it.
fn end_of_path(names: &[&str], path: &str) -> Option<usize> {
    let path: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    if path.is_empty() {
        return None;
    }
    names.windows(path.len()).rposition(|window| window == path).map(|at| at + path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_what_the_manager_made() {
        let lxc = |dir_container| CgroupHint::Lxc { dir_container };
        let oci = |cgroups_path| CgroupHint::Oci { cgroups_path };
        for (leaf, hint, top) in [
            ("/lxc/129/ns", lxc(Some("lxc/129")), "/lxc/129"),
            ("/lxc/129/ns/init.scope", lxc(Some("lxc/129")), "/lxc/129"),
            ("/lxc.payload.c1", lxc(None), "/lxc.payload.c1"),
            ("/lxc.payload.c1-1/init.scope", lxc(None), "/lxc.payload.c1-1"),
            ("/system.slice/x.scope/lxc.payload.c1", lxc(None), "/system.slice/x.scope/lxc.payload.c1"),
            ("/lxc.payload.c1", lxc(Some("gone")), "/lxc.payload.c1"),
            (
                "/machine.slice/libpod-ab.scope/container",
                oci(Some("machine.slice:libpod:ab")),
                "/machine.slice/libpod-ab.scope",
            ),
            ("/machine.slice/libpod-ab.scope/container", oci(None), "/machine.slice/libpod-ab.scope"),
            ("/a/b", oci(Some("/a/b")), "/a/b"),
            ("/outer/a/b/inner", oci(Some("a/b")), "/outer/a/b"),
            ("/a/b", oci(None), "/a/b"),
            ("/", CgroupHint::None, "/"),
            ("/a", oci(Some("")), "/a"),
        ] {
            assert_eq!(container_top(leaf, hint), top, "{leaf} {hint:?}");
        }
    }
}
