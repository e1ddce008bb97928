//! The modules of a crate, as its source files declare them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, Meta, UseTree, Visibility};

use crate::Result;

/// Segments of a path: `["super", "Queue"]`.
pub(super) type Segments = Vec<String>;

/// Files and modules of one library or program.
#[derive(Debug, Default)]
pub(super) struct ModuleTree {
    pub(super) files: Vec<PathBuf>,
    /// The first is the root.
    pub(super) modules: Vec<Module>,
    /// Modules that define a macro with `macro_rules!`, by its name.
    pub(super) macros: BTreeMap<String, usize>,
}

/// A module. Code that exists for tests or fuzzing only is not in it.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) parent: Option<usize>,
    /// Index of the file that its items stand in.
    pub(super) file: usize,
    pub(super) children: BTreeMap<String, usize>,
    /// Names of the items that it defines.
    pub(super) items: BTreeSet<String>,
    /// Paths that `use` gives a name.
    pub(super) aliases: BTreeMap<String, Vec<Segments>>,
    /// Paths of which `use` takes all names.
    pub(super) globs: Vec<Segments>,
    /// Paths in its code, those of private `use` declarations among them.
    pub(super) paths: Vec<Segments>,
    /// Methods that its `impl` blocks without a trait define: the type, and the method.
    pub(super) methods: Vec<(Segments, String)>,
    /// Methods of `self` that its code calls: the type, and the method.
    pub(super) self_calls: Vec<(Segments, String)>,
}

impl ModuleTree {
    /// Reads the crate whose root is the file `root`.
    ///
    /// # Errors
    /// When a file is missing or is not Rust.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.add_file(None, root.to_owned(), folder)?;
        Ok(tree)
    }

    /// Reads the file of a module whose child modules have their files in `folder`. Returns the module.
    fn add_file(&mut self, parent: Option<usize>, path: PathBuf, folder: PathBuf) -> Result<usize> {
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = self.files.len();
        self.files.push(path);
        self.add_module(parent, file, folder, &parsed.items)
    }

    fn add_module(
        &mut self,
        parent: Option<usize>,
        file: usize,
        folder: PathBuf,
        items: &[Item],
    ) -> Result<usize> {
        let module = self.modules.len();
        self.modules.push(Module { parent, file, ..Module::default() });
        let mut reader = Reader { tree: self, module, folder, self_type: None, fault: None };
        for item in items {
            reader.visit_item(item);
        }
        match reader.fault {
            Some(fault) => Err(fault),
            None => Ok(module),
        }
    }
}

/// Reads the items of one module.
struct Reader<'a> {
    tree: &'a mut ModuleTree,
    module: usize,
    /// Where the files of its child modules are.
    folder: PathBuf,
    /// The type of the `impl` block that is being read.
    self_type: Option<Segments>,
    fault: Option<Box<dyn std::error::Error>>,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        &mut self.tree.modules[self.module]
    }

    fn define(&mut self, name: &syn::Ident) {
        self.module().items.insert(name.to_string());
    }

    fn add_child(&mut self, item: &ItemMod) -> Result<()> {
        let name = item.ident.to_string();
        let folder = self.folder.join(&name);
        let child = match (&item.content, path_attribute(&item.attrs)) {
            (Some((_, items)), _) => {
                let file = self.module().file;
                self.tree.add_module(Some(self.module), file, folder, items)?
            }
            (None, Some(path)) => {
                let file = self.module().file;
                let beside = self.tree.files[file].parent().unwrap_or(Path::new("")).to_owned();
                self.tree.add_file(Some(self.module), beside.join(path), folder)?
            }
            (None, None) => {
                let flat = self.folder.join(format!("{name}.rs"));
                let file = if flat.is_file() { flat } else { folder.join("mod.rs") };
                self.tree.add_file(Some(self.module), file, folder)?
            }
        };
        self.module().children.insert(name, child);
        Ok(())
    }

    /// Takes the names of a `use` declaration. Those of a re-export are not used by themselves.
    fn add_use(&mut self, tree: &UseTree, mut before: Segments, is_reexport: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before, is_reexport);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, before.clone(), is_reexport);
                }
            }
            UseTree::Glob(_) => self.module().globs.push(before),
            UseTree::Name(name) if name.ident == "self" => {
                let alias = before.last().cloned().unwrap_or_default();
                self.add_alias(alias, before, is_reexport);
            }
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.add_alias(name.ident.to_string(), before, is_reexport);
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    before.push(rename.ident.to_string());
                }
                self.add_alias(rename.rename.to_string(), before, is_reexport);
            }
        }
    }

    fn add_alias(&mut self, alias: String, path: Segments, is_reexport: bool) {
        let module = self.module();
        if !is_reexport {
            module.paths.push(path.clone());
        }
        module.aliases.entry(alias).or_default().push(path);
    }

    /// Takes the paths in the tokens of a macro, which are not parsed.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        // Colons since the last name.
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.module().paths.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.module().paths.push(std::mem::take(&mut path));
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.module().paths.push(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.module().paths.push(path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes_of(item).iter().any(is_for_tests) {
            return;
        }
        match item {
            Item::Fn(item) => self.define(&item.sig.ident),
            Item::Struct(item) => self.define(&item.ident),
            Item::Enum(item) => self.define(&item.ident),
            Item::Union(item) => self.define(&item.ident),
            Item::Trait(item) => self.define(&item.ident),
            Item::Type(item) => self.define(&item.ident),
            Item::Const(item) => self.define(&item.ident),
            Item::Static(item) => self.define(&item.ident),
            Item::Macro(item) => {
                if let Some(name) = &item.ident {
                    self.define(name);
                    self.tree.macros.insert(name.to_string(), self.module);
                }
            }
            Item::Mod(item) => {
                if let Err(fault) = self.add_child(item) {
                    self.fault.get_or_insert(fault);
                }
                return;
            }
            Item::Use(item) => {
                let is_reexport = !matches!(item.vis, Visibility::Inherited);
                if item.leading_colon.is_none() {
                    self.add_use(&item.tree, Segments::new(), is_reexport);
                }
                return;
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let self_type = match &*item.self_ty {
            syn::Type::Path(path) => Some(segments_of(&path.path)),
            _ => None,
        };
        if let (Some(self_type), None) = (&self_type, &item.trait_) {
            let methods = item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(method) => Some(method.sig.ident.to_string()),
                _ => None,
            });
            let methods = methods.map(|name| (self_type.clone(), name)).collect::<Vec<_>>();
            self.module().methods.extend(methods);
        }
        let before = std::mem::replace(&mut self.self_type, self_type);
        visit::visit_item_impl(self, item);
        self.self_type = before;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_self = matches!(&*call.receiver, syn::Expr::Path(it) if it.path.is_ident("self"));
        if let Some(self_type) = self.self_type.clone().filter(|_| is_self) {
            self.module().self_calls.push((self_type, call.method.to_string()));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Const(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.module().paths.push(segments_of(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.visit_path(&item.path);
        self.add_tokens(item.tokens.clone());
    }

    // Derives and lints name nothing of this crate.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn segments_of(path: &syn::Path) -> Segments {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns true for `cfg` of nothing but `test` and `fuzzing`, and for `#[test]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let Meta::List(list) = &attribute.meta else { return false };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let condition = list.tokens.to_string().replace(' ', "");
    let condition = condition.strip_prefix("any(").and_then(|it| it.strip_suffix(')'));
    match condition {
        Some(any) => any.split(',').all(|it| matches!(it, "test" | "fuzzing")),
        None => matches!(list.tokens.to_string().as_str(), "test" | "fuzzing"),
    }
}

/// Returns the file that `#[path = "…"]` names.
fn path_attribute(attributes: &[Attribute]) -> Option<PathBuf> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => {
                Some(path.value().into())
            }
            _ => None,
        },
        _ => None,
    })
}
