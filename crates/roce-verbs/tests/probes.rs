//! The probes as a tracer finds them: by the notes of a program that links this crate.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::collections::BTreeMap;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Object, ObjectSection, SectionKind};

/// A probe's note: three addresses, three strings.
#[derive(Debug)]
struct Note {
    location: u64,
    provider: String,
    name: String,
    arguments: String,
}

impl Note {
    fn parse(mut desc: &[u8]) -> Option<Self> {
        let mut address = || {
            let (head, rest) = desc.split_first_chunk()?;
            desc = rest;
            Some(u64::from_ne_bytes(*head))
        };
        let (location, _base, semaphore) = (address()?, address()?, address()?);
        assert_eq!(semaphore, 0, "a probe counts no watchers");
        let mut texts = desc.split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()));
        let mut text = || texts.next()?.ok();
        Some(Self { location, provider: text()?, name: text()?, arguments: text()? })
    }
}

/// What `readelf -n` would say of this very program, our provider's notes alone.
fn notes(program: &ElfFile64<'_>, bytes: &[u8]) -> Vec<Note> {
    let header: &FileHeader64<object::Endianness> = program.elf_header();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, bytes).unwrap();
    let mut all = Vec::new();
    for section in sections.iter() {
        let Some(mut notes) = section.notes(endian, bytes).unwrap() else { continue };
        while let Some(note) = notes.next().unwrap() {
            if note.name() == b"stapsdt" {
                all.push(Note::parse(note.desc()).unwrap());
            }
        }
    }
    all.retain(|note| note.provider == "roce");
    all
}

const NOP: &[u8] = if cfg!(target_arch = "x86_64") { &[0x90] } else { &[0x1f, 0x20, 0x03, 0xd5] };

#[test]
fn each_probe_is_one_no_operation_at_one_place_and_has_the_arguments_of_the_table() {
    // A program that links the crate has all probes, used or not.
    let _trace = roce_verbs::Trace::new(0);
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let program = ElfFile64::parse(&*bytes).unwrap();
    let mut found = BTreeMap::new();
    for note in notes(&program, &bytes) {
        let section = program
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .find(|it| (it.address()..it.address() + it.size()).contains(&note.location))
            .unwrap_or_else(|| panic!("{note:?} is nowhere in the program"));
        let at = (note.location - section.address()) as usize;
        assert!(section.data().unwrap()[at..].starts_with(NOP), "{note:?}");
        let arguments = note.arguments.split_whitespace().count();
        assert!(note.arguments.split_whitespace().all(|it| it.starts_with("-8@")), "{note:?}");
        assert_eq!(found.insert(note.name.clone(), arguments), None, "{note:?} is there twice");
    }
    let expected = [
        ("modify_qp", 3),
        ("nak_received", 3),
        ("nak_sent", 3),
        ("poll_cq", 5),
        ("post_recv", 2),
        ("post_send", 4),
        ("post_srq_recv", 2),
        ("retransmit", 3),
        ("ring_receive", 4),
        ("ring_send", 4),
        ("rnr_received", 3),
        ("rnr_sent", 2),
    ];
    let expected = expected.map(|(name, arguments)| (name.to_owned(), arguments));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}
