//! HTML page of a ladder.

use serde::Serialize;
use thiserror::Error;

use super::columns::{CLASSES, Columns};
use super::{Ladder, Narration};
use crate::lesson::Question;

/// Failure to serialise the page's data.
#[derive(Debug, Error)]
#[error("the page's data cannot be written: {0}")]
pub struct PageError(#[from] serde_json::Error);

/// The way from a page to the others of a set.
///
/// ```
/// use roce_lab::{Ladder, Lesson, LessonRun, PageLink, PageLinks};
/// let lesson = Lesson::find("one-packet").unwrap();
/// let ladder = Ladder::of_lesson(&LessonRun::simulate(&lesson).unwrap());
/// let next = PageLink { address: "2.html".to_owned(), title: "One WRITE".to_owned() };
/// let links = PageLinks { index: "index.html".to_owned(), previous: None, next: Some(next) };
/// assert!(ladder.to_html_among(&links).unwrap().contains("<a href=\"2.html\" rel=\"next\">"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLinks {
    /// Address of the index.
    pub index: String,
    /// The page before.
    pub previous: Option<PageLink>,
    /// The page behind.
    pub next: Option<PageLink>,
}

/// The address and the title of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLink {
    /// A URL, absolute or relative to the page that has the link.
    pub address: String,
    /// The text of the link.
    pub title: String,
}

impl PageLinks {
    fn to_html(&self) -> String {
        let mut html = "\n    <nav id=\"links\" aria-label=\"Lessons\">".to_owned();
        let mut add = |address: &str, relation: &str, text: &str| {
            let (address, text) = (escape(address), escape(text));
            html += &format!("<a href=\"{address}\"{relation}>{text}</a>");
        };
        if let Some(PageLink { address, title }) = &self.previous {
            add(address, " rel=\"prev\"", &format!("← {title}"));
        }
        add(&self.index, "", "All lessons");
        if let Some(PageLink { address, title }) = &self.next {
            add(address, " rel=\"next\"", &format!("{title} →"));
        }
        html + "</nav>"
    }
}

/// Data for the page's script.
#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    subtitle: &'a str,
    hosts: &'a [String],
    classes: Vec<&'static str>,
    packets: &'a Columns,
    remarks: Remarks<'a>,
    sections: Vec<Section<'a>>,
    question: Option<&'a Question>,
    chunks: Vec<(u64, usize, usize, f32)>,
    left_out: u64,
    losses: Vec<(usize, Data<'a>)>,
    hex_psns: bool,
}

#[derive(Default, Serialize)]
struct Remarks<'a> {
    at: Vec<u64>,
    host: Vec<usize>,
    after: Vec<usize>,
    words: Vec<&'a str>,
    class: Vec<&'static str>,
}

#[derive(Serialize)]
struct Section<'a> {
    say: &'a str,
    then: &'a str,
    packets: [usize; 2],
    remarks: [usize; 2],
    shown: &'a [(String, Vec<String>)],
    /// Titles and SVGs.
    plots: Vec<(&'a str, String)>,
}

impl<'a> From<&'a Narration> for Section<'a> {
    fn from(narration: &'a Narration) -> Self {
        let Narration { say, then, packets, remarks, shown, plots } = narration;
        // A page needs no name space.
        let plots = plots.iter().map(|(title, svg)| (&title[..], svg.replace(NAME_SPACE, "")));
        let plots = plots.collect();
        Self { say, then, packets: *packets, remarks: *remarks, shown, plots }
    }
}

impl Ladder {
    /// Returns an HTML page that loads no other file.
    ///
    /// # Errors
    /// [`PageError`] if the data cannot be written as JSON.
    pub fn to_html(&self) -> Result<String, PageError> {
        self.page("")
    }

    /// Returns the page with links to others.
    ///
    /// # Errors
    /// [`PageError`] if the data cannot be written as JSON.
    pub fn to_html_among(&self, links: &PageLinks) -> Result<String, PageError> {
        self.page(&links.to_html())
    }

    fn data(&self) -> Data<'_> {
        let mut remarks = Remarks::default();
        for remark in &self.remarks {
            remarks.at.push(remark.at.as_nanos());
            remarks.host.push(remark.host);
            remarks.after.push(remark.after_packets);
            remarks.words.push(&remark.words);
            remarks.class.push(remark.class);
        }
        Data {
            title: &self.title,
            subtitle: &self.subtitle,
            hosts: &self.hosts,
            classes: CLASSES.iter().map(|class| class.name()).collect(),
            packets: &self.columns,
            remarks,
            sections: self.sections.iter().map(Section::from).collect(),
            question: self.question.as_ref(),
            chunks: self.chunks.iter().map(|it| (it.0.as_nanos(), it.1, it.2, it.3)).collect(),
            left_out: self.left_out,
            losses: self.losses.iter().map(|(lost, ladder)| (*lost, ladder.data())).collect(),
            hex_psns: self.hex_psns,
        }
    }

    fn page(&self, links: &str) -> Result<String, PageError> {
        // `<` could end the script element or begin a comment.
        let data = serde_json::to_string(&self.data())?.replace('<', "\\u003c");
        let mut page = String::with_capacity(data.len() + STYLE.len() + SCRIPT.len() + 4096);
        for (place, part) in TEMPLATE.split("{{").enumerate() {
            let Some((name, rest)) = part.split_once("}}").filter(|_| place > 0) else {
                page.push_str(part);
                continue;
            };
            match name {
                "title" => page.push_str(&escape(&self.title)),
                "links" => page.push_str(links),
                "style" => page.push_str(STYLE),
                "data" => page.push_str(&data),
                "script" => page.push_str(SCRIPT),
                _ => {}
            }
            page.push_str(rest);
        }
        Ok(page)
    }
}

const NAME_SPACE: &str = " xmlns=\"http://www.w3.org/2000/svg\"";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const TEMPLATE: &str = include_str!("../page/ladder.html");
const STYLE: &str = include_str!("../page/ladder.css");
const SCRIPT: &str = concat!(
    include_str!("../page/layout.js"),
    include_str!("../page/detail.js"),
    include_str!("../page/reply.js"),
    include_str!("../page/ring.js"),
    include_str!("../page/ladder.js"),
    include_str!("../page/lose.js"),
);
