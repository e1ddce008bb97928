//! `results.json`: every figure of every run.

use std::fs;
use std::io;
use std::path::Path;

use super::Report;

/// Writes the whole report.
///
/// # Errors
/// The system's reason, with the file's name.
pub fn write_json(report: &Report, path: &Path) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(report).map_err(io::Error::other)?;
    text.push('\n');
    fs::write(path, text).map_err(|error| named(path, &error))
}

/// Reads a report that was written.
///
/// # Errors
/// The system's reason, or what is wrong with the JSON, with the file's name.
pub fn read_json(path: &Path) -> io::Result<Report> {
    let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
    serde_json::from_str(&text).map_err(|error| named(path, &error.into()))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_report_survives_the_way_to_disk_and_back() {
        let path = std::env::temp_dir().join(format!("roce-bench-{}.json", std::process::id()));
        let report = example::report();
        write_json(&report, &path).unwrap();
        let back = read_json(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(back.unwrap(), report);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = read_json(Path::new("/nowhere/results.json")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/results.json: "), "{error}");
    }
}
