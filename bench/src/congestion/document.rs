//! The tables in their document.

use super::{Failure, Outcome, Row, Scenario, beside_simulation, table};
use crate::report::put_between_markers;

/// Returns a Markdown page with the table of the real packets between its markers `bench`, and that of
/// the simulated scenarios, if there are any, between its markers `simulated`.
///
/// ```
/// use roce_bench::congestion::{Control, Fabric, Outcome, Row, Scenario, put_tables};
///
/// let scenario = Scenario::new(4, Control::named("ecn").unwrap(), Fabric::Lossy);
/// let row = Row { scenario, rounds: vec![Outcome::default()], simulated: None };
/// let page = put_tables("# A\n<!-- bench -->\nold\n<!-- /bench -->\n", &[row]).unwrap();
/// assert!(page.contains("| 4:1 lossy | ecn |") && !page.contains("old"));
/// ```
///
/// # Errors
/// The markers that the page lacks.
pub fn put_tables(page: &str, rows: &[Row]) -> Result<String, Failure> {
    let put = |page: &str, name: &str, text: &str| {
        put_between_markers(page, name, text).ok_or_else(|| {
            Failure::from(format!("no <!-- {name} --> with a <!-- /{name} --> behind it"))
        })
    };
    let measured: Vec<(Scenario, Outcome)> =
        rows.iter().map(|row| (row.scenario, row.median())).collect();
    let page = put(page, "bench", &table(&measured))?;
    if rows.iter().all(|row| row.simulated.is_none()) {
        return Ok(page);
    }
    put(&page, "simulated", &beside_simulation(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Control, Fabric};

    /// All rows that the command measures by default.
    fn rows(has_simulated: bool) -> Vec<Row> {
        let scenario = |senders| {
            Fabric::ALL.into_iter().flat_map(move |fabric| {
                Control::ALL.map(|control| Scenario::new(senders, control, fabric))
            })
        };
        let row = |scenario: Scenario| Row {
            scenario,
            rounds: vec![Outcome::default()],
            simulated: (has_simulated && scenario.fabric.is_simulated()).then(Outcome::default),
        };
        [4, 8, 32].into_iter().flat_map(scenario).map(row).collect()
    }

    /// Returns the text without its figures.
    fn structure(text: &str) -> String {
        let mut structure = String::new();
        for line in text.lines() {
            // The first two cells have names.
            let names = if line.starts_with('|') { line.match_indices('|').nth(2) } else { None };
            let (name, figures) = line.split_at(names.map_or(line.len(), |(at, _)| at));
            structure += name;
            structure.extend(figures.chars().filter(|it| !it.is_ascii_digit() && *it != '.'));
            structure += "\n";
        }
        structure
    }

    #[test]
    fn the_document_has_the_tables_of_the_command() {
        let page = include_str!("../../../docs/congestion.md");
        let again = put_tables(page, &rows(true)).unwrap();
        assert_eq!(structure(&again), structure(page));
    }

    #[test]
    fn without_simulation_its_table_stays_as_it_is() {
        let page = "<!-- bench -->\n<!-- /bench -->\n<!-- simulated -->\nold\n<!-- /simulated -->";
        let again = put_tables(page, &rows(false)).unwrap();
        assert!(again.ends_with("\n<!-- simulated -->\nold\n<!-- /simulated -->"), "{again}");
        assert!(!put_tables(page, &rows(true)).unwrap().contains("old"));
    }

    #[test]
    fn a_page_without_the_markers_of_a_table_is_refused_with_their_name() {
        let page = "<!-- bench -->\n<!-- /bench -->";
        assert!(put_tables(page, &rows(false)).is_ok());
        let why = put_tables(page, &rows(true)).unwrap_err();
        assert!(why.to_string().contains("<!-- simulated -->"), "{why}");
    }
}
