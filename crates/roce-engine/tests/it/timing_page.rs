//! The page of timing constants lists every constant of the policies with its value.

use std::path::Path;

/// The named constants of a policy's code, without those of its tests, as the page writes them.
fn constants(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let is_indented = line.starts_with(' ');
        let Some((before, declared)) = line.split_once("const ") else { continue };
        let is_visibility = before.is_empty() || before.starts_with("pub");
        let Some((name, _)) = declared.split_once(": ").filter(|_| is_visibility && !is_indented)
        else {
            continue;
        };
        let mut declared = declared.to_owned();
        while !declared.ends_with(';') {
            declared += lines.next().expect("a declaration ends");
        }
        let value = declared.split_once(" = ").expect("a constant has a value").1;
        let value = value.trim_end_matches(';').split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(format!("| `{name}` | `{value}` |"));
    }
    found
}

#[test]
fn the_page_of_timing_constants_lists_each_with_its_value() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/timing.md")).unwrap();
    let mut expected = Vec::new();
    for entry in std::fs::read_dir(root.join("src/policy")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "rs") {
            expected.extend(constants(&std::fs::read_to_string(path).unwrap()));
        }
    }
    assert!(expected.len() > 30, "{}", expected.len());
    let missing: Vec<_> = expected.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/timing.md lacks {missing:#?}");
    let listed = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(listed, expected.len(), "docs/timing.md lists constants that are gone");
}
