// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `node-check` and `cuda-check` said inside a container.

/// Everything that was said, in lines.
#[derive(Clone, Debug)]
pub struct Inside(pub String);

/// One device node as the container sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `char`, `block`, `file`, `dir`, `fifo`, `link` or `socket`.
    pub kind: String,
    /// Its major and minor; 0:0 for what is not a device.
    pub number: (u32, u32),
    /// Its permission bits.
    pub mode: u32,
    /// Its owner, as the container numbers users.
    pub uid: u32,
    /// Its group, as the container numbers groups.
    pub gid: u32,
    /// `OK`, or the errno's name of `open(O_RDWR|O_NONBLOCK)`.
    pub open: String,
}

/// A running container, whoever runs it.
pub trait Container {
    /// What init's first instructions saw.
    fn report(&self) -> &Inside;
    /// What a command inside printed, on stdout and stderr.
    fn run(&self, args: &[&str]) -> Inside;
    /// What the manager and its hooks said, for a failed assertion.
    fn story(&self) -> String;

    /// What `node-check` says of each path now.
    fn nodes(&self, paths: &[&str]) -> Inside {
        self.run(&[&["/bin/node-check"], paths].concat())
    }

    /// What an open of a node says that the container makes itself: `EPERM` where it cannot even make one.
    fn open_own(&self, number: (u32, u32)) -> String {
        let number = format!("{}:{}", number.0, number.1);
        let said = self.run(&["/bin/node-check", "--mknod", &number, "/dev/own"]);
        said.mknod_refused("/dev/own").unwrap_or_else(|| said.open("/dev/own"))
    }

    /// What `cuda-check` says now.
    fn cuda(&self) -> Inside {
        self.run(&["/bin/cuda-check"])
    }
}

impl Inside {
    /// The node at `path`, or `None` where there is none. Panics where nobody looked.
    pub fn node(&self, path: &str) -> Option<Node> {
        let words = self.said_of(path);
        match words[..] {
            ["absent", "ENOENT"] => None,
            [kind, number, mode, ids, open] => Some(Node {
                kind: kind.to_owned(),
                number: pair(number),
                mode: u32::from_str_radix(mode, 8).expect("octal mode"),
                uid: pair(ids).0,
                gid: pair(ids).1,
                open: open.strip_prefix("open=").expect("open=RESULT").to_owned(),
            }),
            _ => panic!("{path}: {}", words.join(" ")),
        }
    }

    /// What an open of `path` gives: `OK`, or the errno's name; `ENOENT` where there is no node.
    pub fn open(&self, path: &str) -> String {
        self.node(path).map_or_else(|| "ENOENT".to_owned(), |node| node.open)
    }

    /// The errno's name of a `--mknod` that failed, or `None` where the node could be made.
    pub fn mknod_refused(&self, path: &str) -> Option<String> {
        match self.said_of(path)[..] {
            [word] => word.strip_prefix("mknod=").map(str::to_owned),
            _ => None,
        }
    }

    /// What `cuda-check` got from cuInit. Panics where it did not run or found no library.
    pub fn cuinit(&self) -> i32 {
        let code = self.0.lines().find_map(|line| line.strip_prefix("cuInit=")).and_then(|rest| rest.split(' ').next());
        code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no cuInit=<code> in:\n{}", self.0))
    }

    /// How many devices `cuda-check` saw.
    pub fn devices(&self) -> u32 {
        let count =
            self.0.lines().filter(|line| line.starts_with("cuInit=")).find_map(|line| line.split("devices=").nth(1));
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no devices=<count> in:\n{}", self.0))
    }

    fn said_of(&self, path: &str) -> Vec<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(path).and_then(|rest| rest.strip_prefix(' ')));
        line.unwrap_or_else(|| panic!("nothing on {path} in:\n{}", self.0)).split(' ').collect()
    }
}

fn pair(text: &str) -> (u32, u32) {
    let (one, other) = text.split_once(':').expect("two numbers");
    (one.parse().expect("a number"), other.parse().expect("a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkers_lines_are_understood() {
        let inside = Inside(
            "/dev/nvidia-uvm char 509:0 0666 0:65534 open=EPERM\n/dev/nvidia0 absent ENOENT\n/dev/x mknod=EPERM\n\
             cuInit=999 devices=0\n"
                .to_owned(),
        );
        let node = inside.node("/dev/nvidia-uvm").expect("it is there");
        assert_eq!((node.number, node.mode, node.uid, node.gid), ((509, 0), 0o666, 0, 65534));
        assert_eq!(inside.open("/dev/nvidia-uvm"), "EPERM");
        assert_eq!(inside.open("/dev/nvidia0"), "ENOENT");
        assert_eq!(inside.mknod_refused("/dev/x").as_deref(), Some("EPERM"));
        assert_eq!((inside.cuinit(), inside.devices()), (999, 0));
    }

    #[test]
    #[should_panic(expected = "nothing on /dev/nvidiactl")]
    fn a_node_that_nobody_looked_at_is_not_taken_for_absent() {
        Inside("/dev/nvidia0 absent ENOENT\n".to_owned()).node("/dev/nvidiactl");
    }
}
