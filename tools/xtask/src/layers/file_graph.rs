//! Which file of a crate uses which, and the circles among them.
//!
//! A file uses another if its code, without that of tests and fuzzing, names an item that the other
//! defines: in a `use` declaration, in a path, or in the tokens of a macro. A re-export is not a use;
//! code that takes an item through re-exports uses the file that defines the item. Naming a module, as
//! in `mod child;` and `use crate::child;`, is not a use. A call of a method of `self` uses the file
//! whose `impl` block defines the method; other method calls are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::module_tree::ModuleTree;
use crate::Result;

/// The files of one library or program, and the uses between them.
#[derive(Debug)]
pub(super) struct FileGraph {
    pub(super) files: Vec<PathBuf>,
    /// For each file the files that it uses, each with a path that names one of its items.
    pub(super) uses: Vec<BTreeMap<usize, String>>,
    /// For each file the name of the module of the root that it is in; `None` for the root itself.
    pub(super) folders: Vec<Option<String>>,
}

/// What a path leads to.
enum Target {
    Module(usize),
    /// An item of this file.
    Item(usize),
}

impl FileGraph {
    /// Reads the crate whose root is the file `root`.
    ///
    /// # Errors
    /// When a file is missing or is not Rust.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let tree = ModuleTree::read(root)?;
        let mut uses = vec![BTreeMap::new(); tree.files.len()];
        for (index, module) in tree.modules.iter().enumerate() {
            for path in &module.paths {
                if let Some(Target::Item(file)) = tree.resolve(index, path)
                    && file != module.file
                {
                    uses[module.file].entry(file).or_insert_with(|| path.join("::"));
                }
            }
        }
        let methods = tree.methods();
        for (index, module) in tree.modules.iter().enumerate() {
            for (self_type, method) in &module.self_calls {
                let key = tree.key_of_type(index, self_type).map(|key| (key, method.as_str()));
                if let Some(file) = key.and_then(|key| methods.get(&key))
                    && *file != module.file
                {
                    let shown = || format!("{}::{method}", self_type.join("::"));
                    uses[module.file].entry(*file).or_insert_with(shown);
                }
            }
        }
        let folders = tree.folders();
        Ok(Self { files: tree.files, uses, folders })
    }

    /// Returns the circles: the largest sets of at least two files of which each uses each other,
    /// directly or through others; the largest set first.
    pub(super) fn circles(&self) -> Vec<BTreeSet<usize>> {
        let uses: Vec<_> = self.uses.iter().map(|used| used.keys().copied().collect()).collect();
        circles(&uses)
    }

    /// Returns the uses between files of a circle, a line each.
    pub(super) fn uses_within(&self, circle: &BTreeSet<usize>) -> Vec<String> {
        let uses = circle.iter().flat_map(|file| {
            let within = self.uses[*file].iter().filter(|(used, _)| circle.contains(used));
            within.map(|(used, path)| self.use_line(*file, *used, path))
        });
        uses.collect()
    }

    /// Returns the line that says that a file uses an item of another.
    pub(super) fn use_line(&self, user: usize, used: usize, path: &str) -> String {
        format!("{} uses {}: {path}", self.files[user].display(), self.files[used].display())
    }
}

/// Returns the largest sets of at least two nodes of a graph of which each leads to each other; the
/// largest set first. `edges` has for each node those that it leads to.
pub(super) fn circles(edges: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let reached: Vec<_> = (0..edges.len()).map(|node| reached_from(edges, node)).collect();
    let mut circles = BTreeSet::new();
    for (node, from_it) in reached.iter().enumerate() {
        let circle: BTreeSet<usize> =
            from_it.iter().copied().filter(|other| reached[*other].contains(&node)).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reached_from(edges: &[BTreeSet<usize>], node: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![node];
    while let Some(node) = next.pop() {
        next.extend(edges[node].iter().filter(|other| reached.insert(**other)));
    }
    reached
}

/// The file that defines a type, and the name by which another file knows it.
type TypeKey<'a> = (usize, &'a str);

impl ModuleTree {
    /// Returns for each file the name of the module of the root that it is in.
    fn folders(&self) -> Vec<Option<String>> {
        let mut folders = vec![None; self.files.len()];
        let Some(root) = self.modules.first() else { return folders };
        for (name, child) in &root.children {
            let mut next = vec![*child];
            while let Some(module) = next.pop().map(|module| &self.modules[module]) {
                // The code of a module within the root's file is the root's.
                if module.file != root.file {
                    folders[module.file] = Some(name.clone());
                }
                next.extend(module.children.values());
            }
        }
        folders
    }

    /// Returns the files that define the methods of types, apart from those of traits.
    fn methods(&self) -> BTreeMap<(TypeKey<'_>, &str), usize> {
        let mut methods = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            for (self_type, method) in &module.methods {
                if let Some(key) = self.key_of_type(index, self_type) {
                    methods.insert((key, method.as_str()), module.file);
                }
            }
        }
        methods
    }

    fn key_of_type<'a>(&self, module: usize, path: &'a [String]) -> Option<TypeKey<'a>> {
        match self.resolve(module, path)? {
            Target::Item(file) => Some((file, path.last()?)),
            Target::Module(_) => None,
        }
    }

    /// Returns what a path in the code of a module leads to; `None` for a name of another crate or of
    /// a function's own.
    fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        self.resolve_within(module, path, &mut BTreeSet::new())
    }

    /// As [`resolve`](Self::resolve). `tried` has the modules whose `use` declarations of a name were
    /// followed: they may lead back, and `use name::name;` of another crate does.
    fn resolve_within(
        &self,
        module: usize,
        path: &[String],
        tried: &mut BTreeSet<(usize, String)>,
    ) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        let here = &self.modules[module];
        match name.as_str() {
            "crate" => return self.resolve_within(0, rest, tried),
            "self" => return self.resolve_within(module, rest, tried),
            "super" => return self.resolve_within(here.parent?, rest, tried),
            _ => {}
        }
        let in_child = here.children.get(name);
        if let Some(found) = in_child.and_then(|child| self.resolve_within(*child, rest, tried)) {
            return Some(found);
        }
        if here.items.contains(name) {
            return Some(Target::Item(here.file));
        }
        if !tried.insert((module, name.clone())) {
            return None;
        }
        for alias in here.aliases.get(name).into_iter().flatten() {
            let path = [alias.as_slice(), rest].concat();
            if let Some(found) = self.resolve_within(module, &path, tried) {
                return Some(found);
            }
        }
        for glob in &here.globs {
            if let Some(Target::Module(source)) = self.resolve_within(module, glob, tried)
                && let Some(found) = self.resolve_within(source, path, tried)
            {
                return Some(found);
            }
        }
        let defines = self.macros.get(name).filter(|_| rest.is_empty());
        defines.map(|module| Target::Item(self.modules[*module].file))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Returns the graph of a crate of these files, whose names are below the crate's folder.
    pub(in super::super) fn graph(files: &[(&str, &str)]) -> FileGraph {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("roce-xtask-files-{process}-{count}"));
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let mut graph = FileGraph::read(&folder.join("lib.rs")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for file in &mut graph.files {
            *file = file.strip_prefix(&folder).unwrap().to_owned();
        }
        graph
    }

    /// Returns the circles of a crate of these files, each circle as the sorted names of its files.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let graph = graph(files);
        let named = graph.circles().into_iter().map(|circle| {
            let mut names: Vec<String> =
                circle.iter().map(|file| graph.files[*file].display().to_string()).collect();
            names.sort();
            names
        });
        named.collect()
    }

    const NONE: [Vec<String>; 0] = [];
    const LIB: (&str, &str) = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let b = ("b.rs", "use crate::a::A; pub struct B(A);");
        for a in [
            "use crate::b::B; pub struct A(Box<B>);",
            "use super::b::B; pub struct A(Box<B>);",
            "pub struct A(Box<crate::b::B>);",
            "use crate::b; pub struct A(Box<b::B>);",
            "use crate::b::*; pub struct A(Box<B>);",
            // Through the re-export of the root.
            "use crate::{B as Other}; pub struct A(Box<Other>);",
            "pub struct A; impl A { fn make() { use crate::b::B; } }",
            "pub struct A; fn f() { assert!(matches!(g(), crate::b::B { .. })); }",
            "pub struct A; mod inner { fn f(_: &super::super::B) {} }",
        ] {
            assert_eq!(circles(&[LIB, ("a.rs", a), b]), [["a.rs", "b.rs"]], "{a}");
        }
    }

    #[test]
    fn files_that_use_each_other_one_way_only_are_no_circle() {
        let b = ("b.rs", "pub struct B;");
        for a in [
            "use crate::b::B; pub struct A(B);",
            "pub struct A; use std::fmt::Debug; fn f(_: &dyn Debug) { a(); } fn a() {}",
        ] {
            assert_eq!(circles(&[LIB, ("a.rs", a), b]), NONE, "{a}");
        }
    }

    #[test]
    fn modules_reexports_and_tests_are_not_used_by_themselves() {
        let b = ("b.rs", "use crate::a::A; pub struct B(A);");
        for a in [
            "pub use crate::b::B as Other; pub struct A;",
            "use crate::b; pub struct A;",
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; fn f(_: B) {} }",
            "pub struct A; #[cfg(any(test, fuzzing))] fn f(_: crate::b::B) {}",
            "pub struct A; impl A { #[cfg(test)] fn f(_: crate::b::B) {} }",
            // In another crate.
            "pub struct A; fn f(_: ::b::B) {}",
        ] {
            assert_eq!(circles(&[LIB, ("a.rs", a), b]), NONE, "{a}");
        }
        let a = "pub struct A; #[cfg(not(test))] fn f(_: crate::b::B) {}";
        assert_eq!(circles(&[LIB, ("a.rs", a), b]), [["a.rs", "b.rs"]], "{a}");
    }

    #[test]
    fn a_parent_and_a_child_that_use_items_of_each_other_are_a_circle() {
        let lib = ("lib.rs", "mod parent;");
        let child = ("parent/child.rs", "pub struct Child(Option<Box<super::Parent>>);");
        for name in ["parent.rs", "parent/mod.rs"] {
            let declares = (name, "pub mod child; pub use child::Child; pub struct Parent;");
            assert_eq!(circles(&[lib, declares, child]), NONE);
            let uses = (name, "mod child; pub struct Parent(child::Child);");
            let mut expected = [name, "parent/child.rs"];
            expected.sort();
            assert_eq!(circles(&[lib, uses, child]), [expected]);
        }
    }

    #[test]
    fn a_method_of_self_is_used_where_its_impl_block_is() {
        let adds = ("b.rs", "use crate::a::A; pub struct B; impl A { pub fn far(&self) {} }");
        let a = |body: &str| format!("pub struct A; impl A {{ fn near(&self) {{}} {body} }}");
        let calls = a("fn f(&self) { self.near(); self.far(); }");
        assert_eq!(circles(&[LIB, ("a.rs", &calls), adds]), [["a.rs", "b.rs"]]);
        let calls = a("fn f(&self) { self.near(); }");
        assert_eq!(circles(&[LIB, ("a.rs", &calls), adds]), NONE);
        // A method of another type that has the same name.
        let calls = "pub struct A; pub struct C; impl C { fn f(&self) { self.far(); } }";
        assert_eq!(circles(&[LIB, ("a.rs", calls), adds]), NONE);
    }

    #[test]
    fn circles_are_found_over_several_files_and_the_largest_comes_first() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "pub struct B(Option<Box<crate::a::A>>);"),
            ("c.rs", "pub struct C(crate::d::D);"),
            ("d.rs", "pub struct D(crate::e::E, crate::a::A);"),
            ("e.rs", "pub struct E(Option<Box<crate::c::C>>);"),
            ("f.rs", "pub struct F(crate::e::E);"),
        ];
        let expected = [vec!["c.rs", "d.rs", "e.rs"], vec!["a.rs", "b.rs"]];
        assert_eq!(circles(&files), expected);
    }

    #[test]
    fn a_macro_belongs_to_the_file_that_defines_it() {
        let files = [
            ("lib.rs", "#[macro_use] mod macros; mod user;"),
            ("macros.rs", "macro_rules! make { () => { $crate::user::User }; }"),
            ("user.rs", "pub struct User; fn f() -> User { make!() }"),
        ];
        assert_eq!(circles(&files), [["macros.rs", "user.rs"]]);
    }

    #[test]
    fn names_that_lead_back_to_themselves_end() {
        let a =
            ("a.rs", "use probe::probe; pub use super::b::*; pub struct A; fn f() { probe!() }");
        let b = ("b.rs", "pub use super::a::*; pub struct B; fn f(_: Missing) {}");
        assert_eq!(circles(&[LIB, a, b]), NONE);
    }

    #[test]
    fn a_file_that_is_missing_or_not_rust_is_named() {
        let missing = FileGraph::read(Path::new("/nonexistent/lib.rs")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/lib.rs"), "{missing}");
    }
}
