//! Writes the output of the lessons into the book: `cargo run -p roce-lab --example book`.

use std::path::Path;

use roce_lab::{Lesson, LessonRun, TextOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/output");
    std::fs::create_dir_all(&folder)?;
    for lesson in Lesson::all() {
        let path = folder.join(format!("{:02}_{}.txt", lesson.number, lesson.name));
        std::fs::write(path, LessonRun::simulate(&lesson)?.text(&TextOptions::default()))?;
    }
    Ok(())
}
