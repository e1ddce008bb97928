//! Records anew what `testdata/rxe` holds of unreliable services and of connection management:
//! `record_rxe FOLDER [TARGET]`, TARGET being where the guests' image is built or was.
//!
//! Two guests with rxe stand on one switch. Stock programs in them talk to each other, and dumpcap
//! at the switch writes down what passes. Nothing of this project's own stack takes part.
#![forbid(unsafe_code)]

mod immediates;
mod recorder;
mod scenes;
mod world;

use std::path::PathBuf;
use std::{env, fs, io};

use roce_guest::Image;

use recorder::Recorder;
use world::World;

/// Why a recording did not come about; the text says what was being done.
type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().ok_or("usage: record_rxe FOLDER [TARGET]")?;
    let target = arguments.next().unwrap_or_else(|| "target".into());
    fs::create_dir_all(&folder)?;
    // This needs the machine's own network and user, so it comes before any namespace.
    let image = Image::prepare(&target.join("guest"))?;
    roce_netns::enter_user_namespace_if_needed()?;
    let world = World::boot(&image)?;
    for family in [Family::V4, Family::V6] {
        for scene in scenes::SCENES {
            let path = folder.join(format!("{}_{}.pcapng", scene.name, family.name()));
            let recorder = Recorder::start(world.switch(), world::TAP)?;
            let played = (scene.play)(&world, family);
            played.map_err(|error| format!("{}: {error}", path.display()))?;
            world.ping(Family::V4)?;
            let packets = recorder.finish_at_icmp(&path)?;
            println!("{}: {packets} packets", path.display());
        }
    }
    world.power_off().map_err(|error| io::Error::other(error).into())
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// How files of it end.
    fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// Where the guests have an address of it in their GID tables.
    fn gid_index(self) -> u32 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

    /// The address of a guest.
    fn address(self, place: usize) -> String {
        match self {
            Self::V4 => format!("10.9.0.{}", 2 + place),
            Self::V6 => format!("fd00:9::{}", 2 + place),
        }
    }
}
