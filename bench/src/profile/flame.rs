//! A graph of stacks: the outermost functions on top, what they call below, as wide as often.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::groups::{ALL, group_of};
use super::{Frame, Place, Profile, group};

/// The graph as an SVG that needs no script: what is under the pointer is told by its title.
///
/// Functions with less than [`MIN_SHARE`] of all ticks are left out, and their callers stay.
pub fn svg(title: &str, profile: &Profile) -> String {
    let mut root = Node::default();
    for stack in &profile.stacks {
        let mut node = &mut root;
        node.count += stack.count;
        for frame in stack.frames.iter().rev() {
            node = node.calls.entry(frame).or_default();
            node.count += stack.count;
        }
    }
    let mut shapes = String::new();
    let scale = WIDTH / root.count.max(1) as f64;
    let mut depth = 0;
    draw(&root, 0.0, 0, scale, root.count, &mut shapes, &mut depth);
    let legend = legend(profile, TOP + ROW * (depth as f64 + 1.5));
    let height = TOP + ROW * (depth as f64 + 2.5 + legend.1 as f64);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {height}\" width=\"{w}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{w}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"20\" font-size=\"15\">{}</text>\n\
         <text x=\"{MARGIN}\" y=\"37\" fill=\"#555555\">{} ticks of a clock; width: share of \
         them; callers above, what they call below; colour: what a function does</text>\n\
         {shapes}{}</svg>\n",
        escaped(title),
        root.count,
        legend.0,
        w = WIDTH + 2.0 * MARGIN,
    )
}

#[derive(Default)]
struct Node<'a> {
    count: u64,
    calls: BTreeMap<&'a Frame, Node<'a>>,
}

fn draw(
    node: &Node<'_>,
    mut x: f64,
    depth: usize,
    scale: f64,
    all: u64,
    shapes: &mut String,
    deepest: &mut usize,
) {
    let mut calls: Vec<_> = node.calls.iter().collect();
    calls.sort_by_key(|(_, call)| std::cmp::Reverse(call.count));
    for (frame, call) in calls {
        let share = call.count as f64 / all.max(1) as f64;
        if share < MIN_SHARE {
            continue;
        }
        let width = call.count as f64 * scale;
        *deepest = (*deepest).max(depth + 1);
        rect(frame, share, (MARGIN + x, TOP + ROW * depth as f64, width), shapes);
        draw(call, x, depth + 1, scale, all, shapes, deepest);
        x += width;
    }
}

fn rect(frame: &Frame, share: f64, (x, y, width): (f64, f64, f64), shapes: &mut String) {
    let known = group_of(frame);
    let colour = known.map_or(PLAIN, |group| group.colour);
    let whose = match (frame.place, &frame.file) {
        (Place::Kernel, _) => "kernel".to_owned(),
        (Place::Library, _) => "library".to_owned(),
        (Place::Program, file) => file.clone().unwrap_or_default(),
    };
    let what = known.map(|group| format!("\n{}", group.name)).unwrap_or_default();
    let tip = format!("{} ({whose}), {:.1} %{what}", frame.name, share * 100.0);
    // A String takes everything.
    let _ = writeln!(
        shapes,
        "<g><title>{}</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" \
         fill=\"{colour}\"/>{}</g>",
        escaped(&tip),
        (width - 0.5).max(0.3),
        ROW - 1.0,
        label(&frame.name, x, y, width),
    );
}

/// As much of a name as fits, its end rather than its beginning.
fn label(name: &str, x: f64, y: f64, width: f64) -> String {
    let room = ((width - 6.0) / LETTER) as usize;
    let short = if name.len() > room { name.rsplit("::").next().unwrap_or(name) } else { name };
    if room < 3 {
        return String::new();
    }
    let text: String = if short.chars().count() > room {
        short.chars().take(room - 1).chain(['…']).collect()
    } else {
        short.to_owned()
    };
    format!("<text x=\"{:.1}\" y=\"{}\">{}</text>", x + 3.0, y + ROW - 5.0, escaped(&text))
}

/// What the colours mean, of those that are there, with the share of each; and in how many lines.
fn legend(profile: &Profile, y: f64) -> (String, usize) {
    let all = profile.count().max(1) as f64;
    let mut text = String::new();
    let mut number = 0;
    for known in ALL {
        let stacks = profile.stacks.iter().filter(|stack| group(stack) == *known);
        let share = stacks.map(|stack| stack.count).sum::<u64>() as f64 / all;
        if share < MIN_SHARE {
            continue;
        }
        let (column, line) = (number % COLUMNS, number / COLUMNS);
        let x = MARGIN + WIDTH / COLUMNS as f64 * column as f64;
        let y = y + ROW * line as f64;
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{} {:.1} %</text>",
            known.colour,
            x + 17.0,
            y + 10.0,
            escaped(known.name),
            share * 100.0,
        );
        number += 1;
    }
    (text, number.div_ceil(COLUMNS))
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect()
}

/// The least share of all ticks that is drawn.
pub const MIN_SHARE: f64 = 0.003;
const WIDTH: f64 = 1280.0;
const MARGIN: f64 = 10.0;
const TOP: f64 = 50.0;
const ROW: f64 = 18.0;
/// How wide a letter is, about.
const LETTER: f64 = 6.1;
const COLUMNS: usize = 4;
const PLAIN: &str = "#eeeeee";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Stack;

    fn stack(names: &[&str], count: u64) -> Stack {
        let frame =
            |name: &&str| Frame { name: (*name).to_owned(), file: None, place: Place::Kernel };
        Stack { frames: names.iter().rev().map(frame).collect(), count }
    }

    fn widths(svg: &str, name: &str) -> Vec<f64> {
        let of_name = |line: &&str| line.contains(&format!("<title>{name} "));
        let width = |line: &str| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
        svg.lines().filter(of_name).filter_map(width).collect()
    }

    #[test]
    fn a_function_is_as_wide_as_often_it_was_found_and_no_wider_than_its_caller() {
        let stacks = vec![stack(&["main", "a"], 750), stack(&["main", "b"], 249), stack(&["c"], 1)];
        let svg = svg("<t>", &Profile { stacks, seconds: 1.0 });
        let [main, a, b] = ["main", "a", "b"].map(|name| widths(&svg, name)[0]);
        assert!((main - 0.999 * WIDTH).abs() < 1.0 && (a - 0.75 * WIDTH).abs() < 1.0);
        assert!(a + b <= main + 0.5, "{a} {b} {main}");
        assert!(widths(&svg, "c").is_empty(), "less than is drawn");
        assert!(svg.contains("&lt;t&gt;") && !svg.contains("<t>"));
    }

    #[test]
    fn a_label_is_never_wider_than_its_function() {
        assert_eq!(label("anything", 0.0, 0.0, 10.0), "");
        let text = label("a::very_long_name_of_a_function", 0.0, 0.0, 60.0);
        assert!(text.contains(">very_lo…<"), "{text}");
    }

    #[test]
    fn nothing_recorded_is_an_empty_graph() {
        assert!(svg("t", &Profile::default()).ends_with("</svg>\n"));
    }
}
