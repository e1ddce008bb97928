//! Paths of the view.

/// Longest path in bytes, with the zero at its end.
pub(crate) const MAX_LEN: usize = libc::PATH_MAX as usize;

/// Writes the path below `root` that serves an absolute path, without a zero at its end. Returns its
/// length; `None` if the view does not have the path, or the result has more than `out` holds.
///
/// `.`, `..` and repeated slashes are resolved up to the folder of the view. The rest stays as it
/// is, since `..` behind a link depends on the link's target.
pub(crate) fn translate(root: &[u8], absolute: &[u8], out: &mut [u8]) -> Option<usize> {
    out.get_mut(..root.len())?.copy_from_slice(root);
    let mut len = root.len();
    let mut rest = absolute;
    loop {
        let start = rest.iter().position(|byte| *byte != b'/')?;
        rest = rest.get(start..)?;
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (component, behind) = rest.split_at_checked(end)?;
        rest = behind;
        match component {
            b"." => {}
            b".." => {
                let walked = out.get(root.len()..len)?;
                len = root.len() + walked.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            }
            _ => {
                len = append(out, len, b"/")?;
                len = append(out, len, component)?;
                if is_view_folder(out.get(root.len()..len)?) {
                    return append(out, len, rest);
                }
            }
        }
    }
}

/// Writes `more` behind the first `len` bytes. Returns the new length.
pub(crate) fn append(out: &mut [u8], len: usize, more: &[u8]) -> Option<usize> {
    let end = len.checked_add(more.len())?;
    out.get_mut(len..end)?.copy_from_slice(more);
    Some(end)
}

/// Returns true if a path without `.`, `..` and repeated slashes is a folder of the view:
/// `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and the like, `/dev/infiniband`,
/// `/sys/class/misc/rdma_cm`, or `device/infiniband` of an interface in `/sys/class/net`.
fn is_view_folder(path: &[u8]) -> bool {
    let class = path.strip_prefix(b"/sys/class/infiniband");
    let interface = path.strip_prefix(b"/sys/class/net/");
    let interface = interface.and_then(|tail| tail.strip_suffix(b"/device/infiniband"));
    matches!(path, b"/dev/infiniband" | b"/sys/class/misc/rdma_cm")
        || interface.is_some_and(|name| !name.contains(&b'/'))
        || class.is_some_and(|tail| matches!(tail, [] | [b'_', ..]) && !tail.contains(&b'/'))
}

/// Returns the part of `path` behind `root`, if it is a path below it.
pub(crate) fn below<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(root).filter(|tail| !root.is_empty() && tail.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(path: &str) -> Option<String> {
        let mut out = [0; 64];
        let len = translate(b"/tmp/v", path.as_bytes(), &mut out)?;
        Some(String::from_utf8_lossy(&out[..len]).into_owned())
    }

    #[test]
    fn paths_of_the_view_lie_below_its_folder() {
        for (path, found) in [
            ("/sys/class/infiniband", "/tmp/v/sys/class/infiniband"),
            ("/sys/class/infiniband/", "/tmp/v/sys/class/infiniband/"),
            ("/sys/class/infiniband/roce0/ports/1", "/tmp/v/sys/class/infiniband/roce0/ports/1"),
            ("/sys/class/infiniband_verbs/uverbs0", "/tmp/v/sys/class/infiniband_verbs/uverbs0"),
            ("/dev/infiniband/uverbs0", "/tmp/v/dev/infiniband/uverbs0"),
            ("/sys/class/misc/rdma_cm/abi_version", "/tmp/v/sys/class/misc/rdma_cm/abi_version"),
            ("/sys/class/net/a/device/infiniband", "/tmp/v/sys/class/net/a/device/infiniband"),
            ("//sys/./class/net/../infiniband//a", "/tmp/v/sys/class/infiniband//a"),
            ("/../sys/class/infiniband/a/../b", "/tmp/v/sys/class/infiniband/a/../b"),
        ] {
            assert_eq!(translated(path).as_deref(), Some(found));
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        for path in [
            "",
            "/",
            "/sys/class",
            "/sys/class/",
            "/sys/class/infinibandage",
            "/sys/class/net/infiniband",
            "/sys/class/net/eth0/device/infiniband_x",
            "/sys/class/net/eth0/x/device/infiniband",
            "/dev/infiniband_x",
            "/sys/class/misc/rdma_cm_x",
            "/sys/class/misc",
            "/dev/null",
            "/home/sys/class/infiniband",
        ] {
            assert_eq!(translated(path), None, "{path}");
        }
        // Longer than the buffer.
        assert_eq!(translated(&format!("/dev/infiniband/{}", "a".repeat(64))), None);
        assert_eq!(translated(&format!("/{}", "a/".repeat(64))), None);
    }

    #[test]
    fn a_path_is_below_a_folder_only_behind_a_slash() {
        assert_eq!(below(b"/tmp/v", b"/tmp/v/dev/x"), Some(&b"/dev/x"[..]));
        for path in ["/tmp/v", "/tmp/view/dev", "/tmp"] {
            assert_eq!(below(b"/tmp/v", path.as_bytes()), None, "{path}");
        }
    }
}
