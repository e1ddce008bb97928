//! Writes the plots of the lessons into the book: `cargo run -p roce-lab --example book`.

use std::path::Path;

use roce_lab::{Lesson, LessonRun};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/output");
    std::fs::create_dir_all(&folder)?;
    for lesson in Lesson::all() {
        let run = LessonRun::simulate(&lesson)?;
        let stem = format!("{:02}_{}", lesson.number, lesson.name);
        for (number, plot) in (1..).zip(run.sections.iter().flat_map(|section| &section.plots)) {
            std::fs::write(folder.join(format!("{stem}_{number}.svg")), &plot.svg)?;
        }
    }
    Ok(())
}
