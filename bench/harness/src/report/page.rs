//! The part of a page that is made, among what is written by hand.

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// A page with nothing but that part.
pub(super) const EMPTY: &str = "# Performance\n\n<!-- bench:begin -->\n<!-- bench:end -->\n";

pub(super) const NO_MARKERS: &str = "the lines <!-- bench:begin --> and <!-- bench:end --> are missing, once each in this order: \
     put them where the figures are to stand";

/// The page with another generated part; `None` without its markers.
pub(super) fn replace(page: &str, generated: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let again = [before, after]
        .iter()
        .any(|part| part.contains(BEGIN) || part.contains(END));
    let generated = generated.trim();
    (!again).then(|| format!("{before}{BEGIN}\n\n{generated}\n\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page =
            "# By hand\n\n<!-- bench:begin -->\nold\n<!-- bench:end -->\n\n## Also by hand\n";
        let new = replace(page, "new\n\n").expect("it has markers");
        let expected = "# By hand\n\n<!-- bench:begin -->\n\nnew\n\n<!-- bench:end -->\n\n\
                        ## Also by hand\n";
        assert_eq!(new, expected);
        assert_eq!(
            replace(&new, "new").as_deref(),
            Some(expected),
            "again changes nothing"
        );
        assert!(replace(EMPTY, "new").is_some());
    }

    #[test]
    fn a_page_without_its_markers_is_left_alone() {
        for page in [
            "",
            "<!-- bench:begin -->",
            "<!-- bench:end --><!-- bench:begin -->",
            "<!-- bench:begin --><!-- bench:end --><!-- bench:begin --><!-- bench:end -->",
        ] {
            assert_eq!(replace(page, "new"), None, "{page:?}");
        }
    }

    #[test]
    fn the_published_page_has_its_markers() {
        let page = crate::contenders::repository().join("docs/performance.md");
        let page = std::fs::read_to_string(page).expect("it is in the repository");
        assert!(replace(&page, "new").is_some_and(|new| new.contains("## Split votes")));
    }
}
