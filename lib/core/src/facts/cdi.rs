// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a CDI file -> the device nodes and the host's files that it names. JSON is read as JSON; YAML is read line by
//! line, in the block style that every generator writes: a spec is only compared with the host, never applied.

use serde_json::Value;

use crate::quoted::one_line;

/// What one CDI file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CdiFile {
    /// Its path.
    pub path: String,
    /// `kind`, `nvidia.com/gpu`; `None` where the text is no CDI spec.
    pub kind: Option<String>,
    /// Its device nodes.
    pub nodes: Vec<CdiNode>,
    /// The files of the host that it mounts.
    pub files: Vec<CdiPath>,
}

/// One of `deviceNodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CdiNode {
    /// `path`.
    pub path: String,
    /// `major`, where it is frozen in the file; else the engine looks at the host's node.
    pub major: Option<u32>,
    /// `minor`, likewise; 0 where a major stands alone.
    pub minor: Option<u32>,
    /// The line of its path, counted from 1.
    pub line: usize,
}

/// A path of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdiPath {
    /// The path.
    pub path: String,
    /// Its line, counted from 1.
    pub line: usize,
}

impl CdiFile {
    /// What the file `path` names.
    pub fn parse(path: &str, text: &str) -> Self {
        let mut file = Self { path: one_line(path), ..Self::default() };
        match text.trim_start().starts_with('{') {
            true => file.read_json(text),
            false => file.read_yaml(text),
        }
        file
    }

    fn read_json(&mut self, text: &str) {
        let Ok(spec) = serde_json::from_str::<Value>(text) else { return };
        self.kind = spec.get("kind").and_then(Value::as_str).map(str::to_owned);
        self.walk(&spec, text);
    }

    fn walk(&mut self, value: &Value, text: &str) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| self.walk(value, text)),
            Value::Object(fields) => {
                let mut item = Item::default();
                for (key, value) in fields {
                    match value {
                        Value::String(word) => {
                            let quoted = format!("{:?}", word);
                            let line = text.lines().position(|line| line.contains(&quoted)).map_or(1, |at| at + 1);
                            item.set(key, word, line);
                        }
                        Value::Number(number) => item.set(key, &number.to_string(), 1),
                        deeper => self.walk(deeper, text),
                    }
                }
                self.take(item);
            }
            _ => {}
        }
    }

    fn read_yaml(&mut self, text: &str) {
        // Open list items by the column of their keys, the innermost last.
        let mut open: Vec<(usize, Item)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let mut column = line.len() - trimmed.len();
            let mut rest = trimmed;
            while let Some((_, item)) = open.pop_if(|(of_keys, _)| *of_keys > column) {
                self.take(item);
            }
            while let Some(after) = rest.strip_prefix("- ") {
                let inner = after.trim_start();
                column += rest.len() - inner.len();
                rest = inner;
                open.push((column, Item::default()));
            }
            let Some((key, value)) = rest.split_once(':') else { continue };
            let value = unquoted(value);
            if column == 0 && key == "kind" {
                self.kind = Some(value.to_owned());
            }
            if let Some((_, item)) = open.last_mut().filter(|(of_keys, _)| *of_keys == column) {
                item.set(unquoted(key), value, at + 1);
            }
        }
        while let Some((_, item)) = open.pop() {
            self.take(item);
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            // Hooks have a `path` too.
            Item { is_hook: true, .. } => {}
            Item { host_path: Some(path), is_mount: true, .. } => self.files.push(path),
            Item { path: Some(CdiPath { path, line }), major, minor, .. } if path.starts_with("/dev/") => {
                self.nodes.push(CdiNode { path, major, minor, line });
                self.nodes.sort_by_key(|node| node.line);
            }
            _ => {}
        }
    }
}

/// What one list item or object has of the fields that matter.
#[derive(Default)]
struct Item {
    path: Option<CdiPath>,
    host_path: Option<CdiPath>,
    major: Option<u32>,
    minor: Option<u32>,
    is_hook: bool,
    is_mount: bool,
}

impl Item {
    fn set(&mut self, key: &str, value: &str, line: usize) {
        let path = || Some(CdiPath { path: one_line(value), line });
        match key {
            "path" => self.path = path(),
            "hostPath" => self.host_path = path(),
            "containerPath" => self.is_mount = true,
            "hookName" => self.is_hook = true,
            "major" => self.major = value.parse().ok(),
            "minor" => self.minor = value.parse().ok(),
            _ => {}
        }
    }
}

/// The scalar without blanks, a comment behind it, and one pair of quotes.
fn unquoted(text: &str) -> &str {
    let text = text.split_once(" #").map_or(text, |(value, _)| value).trim();
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
    - path: /dev/nvidia-uvm # unified memory
      major: 510
    - major: 510
      minor: 1
      path: \"/dev/nvidia-uvm-tools\"
  hooks:
  - args:
    - nvidia-cdi-hook
    - update-ldcache
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/libcuda.so.590.48.01
    hostPath: /usr/lib/libcuda.so.590.48.01
    options: [ro, nosuid]
devices:
- name: \"0\"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
";

    fn expected() -> Vec<CdiNode> {
        [
            ("/dev/nvidia-uvm", Some(510), None, 6),
            ("/dev/nvidia-uvm-tools", Some(510), Some(1), 10),
            ("/dev/nvidia0", None, None, 25),
        ]
        .map(|(path, major, minor, line)| CdiNode { path: path.to_owned(), major, minor, line })
        .to_vec()
    }

    #[test]
    fn nodes_and_files_are_read_in_either_order_of_keys_and_hooks_are_not_nodes() {
        let file = CdiFile::parse("/etc/cdi/nvidia.yaml", YAML);
        assert_eq!(file.kind.as_deref(), Some("nvidia.com/gpu"));
        assert_eq!(file.nodes, expected());
        assert_eq!(file.files, [CdiPath { path: "/usr/lib/libcuda.so.590.48.01".to_owned(), line: 19 }]);
    }

    #[test]
    fn json_reads_the_same() {
        let text = "{\"cdiVersion\":\"0.6.0\",\n\"kind\":\"nvidia.com/gpu\",\n\"containerEdits\":{\"deviceNodes\":[\n\
                    {\"path\":\"/dev/nvidia-uvm\",\"major\":510}],\n\
                    \"mounts\":[{\"containerPath\":\"/a\",\"hostPath\":\"/usr/lib/libcuda.so.1.2\"}],\n\
                    \"hooks\":[{\"hookName\":\"createContainer\",\"path\":\"/dev/shm/hook\"}]}}\n";
        let file = CdiFile::parse("/run/cdi/nvidia.json", text);
        assert_eq!(
            file.nodes,
            [CdiNode { path: "/dev/nvidia-uvm".to_owned(), major: Some(510), minor: None, line: 4 }]
        );
        assert_eq!(file.files.len(), 1);
    }

    #[test]
    fn what_is_no_spec_has_no_kind() {
        for text in ["", "\0\u{1b}[2J", "{", "- - - :", "just words"] {
            let file = CdiFile::parse("x", text);
            assert_eq!((file.kind, file.nodes.len()), (None, 0), "{text:?}");
        }
    }
}
