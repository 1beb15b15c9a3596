// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tar archive of small files as bytes (POSIX.1-2017 pax(1), "ustar Interchange Format"). Equal inputs give equal bytes:
//! no owner, no time.

/// The archive of `files`, path and content, in their order; a path that ends in `/` is a directory. A path longer than 100 bytes is left out: none that a report
/// has is.
pub fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, content) in files.iter().filter(|(path, _)| path.len() <= 100) {
        out.extend(header(path, content.len()));
        out.extend(content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn header(path: &str, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, path.as_bytes());
    put(100, if path.ends_with('/') { b"0000755\0" } else { b"0000644\0" });
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The checksum is taken with blanks in its own place.
    put(148, b"        ");
    put(156, if path.ends_with('/') { b"5" } else { b"0" });
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_in_blocks_and_the_end_is_two_empty_ones() {
        let archive = archive(&[("a/b".to_owned(), b"text\n".to_vec()), ("e".to_owned(), Vec::new())]);
        assert_eq!(archive.len(), 512 * 5);
        assert_eq!(
            (&archive[..3], &archive[257..262], &archive[512..517]),
            (&b"a/b"[..], &b"ustar"[..], &b"text\n"[..])
        );
        assert!(archive[512 * 3..].iter().all(|byte| *byte == 0));
    }
}
