//! Tells the linker the library's name and its symbol versions.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let script = folder.join("versions.map");
    fs::write(&script, roce_abi::version_script()).expect("OUT_DIR can be written");
    // rustc passes a script of its own before this one, without a name. lld takes both, zig the last one, and
    // GNU ld refuses them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // The engine's threads run its code after a program has closed the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
