//! Writes the files of this machine's emulated devices below a folder, as `roce run` shows them to programs, and prints
//! those that a program looks for first.
//!
//! `cargo run -p roce-view --example files -- FOLDER`; without a folder the files are in a temporary one for a moment.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs, process};

use roce_verbs::{DeviceNames, NamedDevice};
use roce_view::Tree;

fn main() -> Result<(), Box<dyn Error>> {
    let devices = NamedDevice::list(&DeviceNames::default())?;
    let tree = Tree::new(&devices, roce_view::hardware_folder);
    let named = env::args_os().nth(1).map(PathBuf::from);
    let own = env::temp_dir().join(format!("roce-files-{}", process::id()));
    let folder = named.as_ref().unwrap_or(&own);
    fs::create_dir_all(folder)?;
    tree.write_to(folder)?;

    for device in &devices {
        let port = folder.join("sys/class/infiniband").join(&device.name).join("ports/1");
        let state = fs::read_to_string(port.join("state"))?;
        let gid = fs::read_to_string(port.join("gids/0"))?;
        println!(
            "{} on {}: {}, {}",
            device.name,
            device.info.interface.name,
            state.trim(),
            gid.trim()
        );
        assert_eq!(fs::read_to_string(port.join("link_layer"))?, "Ethernet\n");
    }
    assert!(tree.nodes().all(|(path, _)| fs::symlink_metadata(folder.join(path)).is_ok()));
    if named.is_none() {
        fs::remove_dir_all(own)?;
    }
    Ok(())
}
