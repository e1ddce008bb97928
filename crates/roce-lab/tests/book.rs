//! The book has a chapter and the output of each lesson.

use std::path::{Path, PathBuf};

use roce_lab::{Lesson, LessonRun, TextOptions};

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src")
}

#[test]
fn every_lesson_prints_the_output_in_the_book() {
    for lesson in Lesson::all() {
        let path = book().join(format!("output/{:02}_{}.txt", lesson.number, lesson.name));
        let shown = std::fs::read_to_string(&path).unwrap_or_default();
        let printed = LessonRun::simulate(&lesson).unwrap().text(&TextOptions::default());
        let hint = "run `cargo run -p roce-lab --example book`";
        assert!(shown == printed, "{} is not what the lesson prints; {hint}", path.display());
    }
}

#[test]
fn every_output_in_the_book_belongs_to_a_lesson() {
    let lessons = Lesson::all();
    let of_lesson = |lesson: &Lesson| format!("{:02}_{}.txt", lesson.number, lesson.name);
    let mut expected: Vec<_> = lessons.iter().map(of_lesson).collect();
    // The only one of `roce dissect`.
    expected.push("mixed_ring.txt".to_owned());
    let folder = std::fs::read_dir(book().join("output")).unwrap();
    let mut found: Vec<_> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn every_lesson_has_its_chapter_and_every_chapter_is_in_the_summary() {
    let summary = std::fs::read_to_string(book().join("SUMMARY.md")).unwrap();
    for lesson in Lesson::all() {
        let name = format!("chapter-{:02}.md", lesson.number);
        assert!(summary.contains(&format!("({name})")), "{name}");
        let chapter = std::fs::read_to_string(book().join(&name)).unwrap();
        assert!(chapter.contains(&format!("roce lab {}\n", lesson.name)), "{name}");
        let output = format!("output/{:02}_{}.txt", lesson.number, lesson.name);
        assert!(chapter.contains(&format!("{{{{#include {output}}}}}")), "{name}");
    }
}
