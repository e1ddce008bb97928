//! Names with hyphens, and as libibverbs has them.

/// Returns true if `word` is `name`, in letters of either case, with hyphens or underscores, and with
/// `prefix` before it or not.
pub(super) fn is_called(name: &str, prefix: &str, word: &str) -> bool {
    let has_prefix = word.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix));
    let bare = if has_prefix { &word[prefix.len()..] } else { word };
    let same = |(left, right): (u8, u8)| {
        left.eq_ignore_ascii_case(&right) || (left == b'-' && right == b'_')
    };
    name.len() == bare.len() && name.bytes().zip(bare.bytes()).all(same)
}
