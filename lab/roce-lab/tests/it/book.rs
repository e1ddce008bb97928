//! The book has a chapter for each lesson, with its plots.

use std::path::{Path, PathBuf};

use roce_lab::{Lesson, LessonRun};

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src")
}

/// Returns the plots of a lesson, and the names of their files in the book.
fn outputs(lesson: &Lesson) -> Vec<(String, String)> {
    let run = LessonRun::simulate(lesson).unwrap();
    let stem = format!("{:02}_{}", lesson.number, lesson.name);
    let plots = run.sections.iter().flat_map(|section| &section.plots);
    let plots = (1..).zip(plots);
    plots.map(|(number, plot)| (format!("{stem}_{number}.svg"), plot.svg.clone())).collect()
}

#[test]
fn the_book_has_the_plots_of_every_lesson_and_no_others() {
    let made: Vec<_> = Lesson::all().iter().flat_map(outputs).collect();
    for (name, made) in &made {
        let shown = std::fs::read_to_string(book().join("output").join(name)).unwrap_or_default();
        let hint = "run `cargo run -p roce-lab --example book`";
        assert!(shown == *made, "{name} is not what the lesson makes; {hint}");
    }
    let mut expected: Vec<_> = made.into_iter().map(|(name, _)| name).collect();
    expected.sort();
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
        let plots = lesson.section.iter().map(|section| section.plot.len()).sum::<usize>();
        for number in 1..=plots {
            let plot = format!("](output/{:02}_{}_{number}.svg)", lesson.number, lesson.name);
            assert!(chapter.contains(&plot), "{name} shows no {plot}");
        }
    }
}
