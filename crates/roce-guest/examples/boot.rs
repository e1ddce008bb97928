//! Boots a guest on a tap, runs the commands it is given there, and powers it off:
//! `boot amd64|arm64 TAP COMMAND...`. The tap must exist and be up.

use std::path::Path;
use std::time::Instant;

use roce_guest::{Architecture, Guest, GuestConfig, Image, Kernel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: boot amd64|arm64 TAP COMMAND...";
    let architecture = arguments.next().and_then(|name| Architecture::of_debian(&name));
    let (architecture, tap) = architecture.zip(arguments.next()).ok_or(usage)?;
    let start = Instant::now();
    let kernel = Kernel::from_environment();
    let directory = Path::new("target").join(kernel.directory(architecture));
    let image = Image::prepare_with(&directory, architecture, &kernel)?;
    println!("image ready after {:.1?}: {}", start.elapsed(), image.kernel_release());
    let guest = Guest::boot(&image, &GuestConfig::new(&tap), |mut command| command.spawn())?;
    println!("answers after {:.1?}", start.elapsed());
    for command in arguments {
        let output = guest.run(&command)?;
        print!("$ {command}\n{}{}({})\n", output.stdout, output.stderr, output.status);
    }
    println!("commands done after {:.1?}", start.elapsed());
    guest.power_off()?;
    println!("off after {:.1?}", start.elapsed());
    Ok(())
}
