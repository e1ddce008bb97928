//! The body of a fuzz target. Not part of the crate's interface: for the fuzzer, and for the test that
//! replays its corpus.

use crate::{
    AddressMapping, Change, QueuePairMapping, Script, Step, Variables, find_opcode, parse_payload,
};

/// Reads any bytes as a script, a change of a field, an opcode, a payload and mappings: no panic; a mistake
/// of a script names one of its lines, and what was checked is a step.
pub fn texts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut variables = Variables::default();
    // A name and a value that are right.
    let _fixed = variables.fix("psn", "0xffffff");
    match Script::parse(&text, &variables) {
        Ok(script) => {
            let takes =
                |at| matches!(script.step(at, &mut variables.clone()), Ok(Step::Take { .. }));
            let takes_none = !(0..script.len()).any(takes);
            for at in 0..script.len() {
                let step = script.step(at, &mut variables);
                assert!(step.is_ok() || !takes_none, "{step:?}");
            }
        }
        Err(error) => assert!((1..=text.lines().count().max(1)).contains(&error.line()), "{error}"),
    }
    let _filled = variables.fill(&text);
    let _read = (text.parse::<Change>(), find_opcode(&text), parse_payload(&text));
    let _mapped = (text.parse::<AddressMapping>(), text.parse::<QueuePairMapping>());
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_text_in_the_corpus_is_a_script_or_a_mistake() {
        roce_fuzz_support::replay("bootstrap", 1, super::texts);
    }

    #[test]
    fn the_documented_scripts_are_stored_seeds() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/send");
        let mut found = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().replace('-', "_");
            let script = std::fs::read(&path).unwrap();
            roce_fuzz_support::check_seed("bootstrap", &name, &script);
            super::texts(&script);
            found += 1;
        }
        assert_eq!(found, 3);
    }
}
