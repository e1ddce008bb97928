//! The table inside another page, between two comments.

/// Puts `text` between the markers of `page`; `None` when the page has not both, in order.
///
/// ```
/// use roce_bench::report::put_between_markers;
/// let page = "# Speed\n<!-- bench -->\nold\n<!-- /bench -->\nmore\n";
/// let page = put_between_markers(page, "new\n").unwrap();
/// assert_eq!(page, "# Speed\n<!-- bench -->\nnew\n<!-- /bench -->\nmore\n");
/// ```
pub fn put_between_markers(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", text.trim_end()))
}

const BEGIN: &str = "<!-- bench -->";
const END: &str = "<!-- /bench -->";

#[cfg(test)]
mod tests {
    use super::put_between_markers;

    #[test]
    fn a_page_without_both_markers_is_left_alone() {
        for page in ["", "<!-- bench -->", "<!-- /bench -->\n<!-- bench -->"] {
            assert_eq!(put_between_markers(page, "text"), None);
        }
    }

    #[test]
    fn putting_the_same_twice_changes_nothing() {
        let page = put_between_markers("a<!-- bench --><!-- /bench -->b", "text\n\n").unwrap();
        assert_eq!(page, "a<!-- bench -->\ntext\n<!-- /bench -->b");
        assert_eq!(put_between_markers(&page, "text").as_ref(), Some(&page));
    }
}
