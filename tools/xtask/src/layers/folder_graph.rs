//! Which folder of a crate uses which, and the circles among them.
//!
//! A folder is a module that the root of a library or program declares: `foo.rs` together with all
//! files below `foo/`. A folder uses another if one of its files uses one of the other's, as
//! [`file_graph`] says. The root itself is no folder: it puts them together.

use std::collections::{BTreeMap, BTreeSet};

use super::file_graph::{self, FileGraph};

/// The folders of one library or program that use each other in a circle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FolderCircle {
    /// Their names, in alphabetical order.
    pub(super) folders: Vec<String>,
    /// What files of different folders use of each other, a line each.
    pub(super) uses: Vec<String>,
}

/// Returns the circles of folders; the largest first.
pub(super) fn circles(graph: &FileGraph) -> Vec<FolderCircle> {
    let names: BTreeSet<&str> = graph.folders.iter().flatten().map(String::as_str).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let numbers: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
    let number = |file: usize| graph.folders[file].as_deref().map(|name| numbers[name]);

    let mut edges = vec![BTreeSet::new(); names.len()];
    let mut uses = Vec::new();
    for (user, used_files) in graph.uses.iter().enumerate() {
        for (used, path) in used_files {
            if let (Some(from), Some(to)) = (number(user), number(*used))
                && from != to
            {
                edges[from].insert(to);
                uses.push((from, to, graph.use_line(user, *used, path)));
            }
        }
    }
    uses.sort();
    let circles = file_graph::circles(&edges).into_iter().map(|circle| FolderCircle {
        folders: circle.iter().map(|folder| names[*folder].to_owned()).collect(),
        uses: uses
            .iter()
            .filter(|(from, to, _)| circle.contains(from) && circle.contains(to))
            .map(|(_, _, line)| line.clone())
            .collect(),
    });
    circles.collect()
}

#[cfg(test)]
mod tests {
    use super::super::file_graph::tests::graph;
    use super::*;

    /// Returns the names of the folders of each circle of a crate of these files.
    fn folders(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        circles(&graph(files)).into_iter().map(|circle| circle.folders).collect()
    }

    const NONE: [Vec<String>; 0] = [];
    const LIB: (&str, &str) = ("lib.rs", "mod queue; mod table; pub use queue::Queue;");

    #[test]
    fn folders_that_use_each_other_are_a_circle_although_their_files_are_none() {
        let files = [
            LIB,
            ("queue.rs", "mod entry; pub struct Queue(crate::table::Table);"),
            ("queue/entry.rs", "pub struct Entry;"),
            ("table.rs", "mod row; pub struct Table(row::Row);"),
            ("table/row.rs", "pub struct Row(crate::queue::entry::Entry);"),
        ];
        assert!(graph(&files).circles().is_empty());
        let found = circles(&graph(&files));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].folders, ["queue", "table"]);
        assert_eq!(
            found[0].uses,
            [
                "queue.rs uses table.rs: crate::table::Table",
                "table/row.rs uses queue/entry.rs: crate::queue::entry::Entry",
            ]
        );
    }

    #[test]
    fn folders_that_use_each_other_one_way_only_are_no_circle() {
        let files = [
            LIB,
            ("queue.rs", "mod entry; pub struct Queue(crate::table::Table, entry::Entry);"),
            ("queue/entry.rs", "pub struct Entry(crate::table::row::Row, super::Length);"),
            ("table.rs", "mod row; pub struct Table(row::Row);"),
            ("table/row.rs", "pub struct Row;"),
        ];
        assert_eq!(folders(&files), NONE);
    }

    #[test]
    fn a_use_through_the_root_is_one_of_the_folder_that_defines_the_item() {
        let queue = ("queue.rs", "pub struct Queue(crate::table::Table);");
        let table = ("table.rs", "mod row; pub struct Table;");
        let row = ("table/row.rs", "pub struct Row(Box<crate::Queue>);");
        assert_eq!(folders(&[LIB, queue, table, row]), [["queue", "table"]]);
    }

    #[test]
    fn the_root_and_its_inline_modules_are_no_folder() {
        let lib = "mod queue; pub struct Error(queue::Queue); pub mod prelude { pub struct It; }";
        let queue = "pub struct Queue(Option<Box<crate::Error>>, crate::prelude::It);";
        assert_eq!(folders(&[("lib.rs", lib), ("queue.rs", queue)]), NONE);
    }

    #[test]
    fn files_of_one_folder_that_use_each_other_are_no_circle_of_folders() {
        let files = [
            ("lib.rs", "mod queue;"),
            ("queue.rs", "mod entry; pub struct Queue(entry::Entry);"),
            ("queue/entry.rs", "pub struct Entry(Option<Box<super::Queue>>);"),
        ];
        assert_eq!(folders(&files), NONE);
    }
}
