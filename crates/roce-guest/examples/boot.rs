//! Boots a guest on a tap, runs the commands it is given there, and powers it off:
//! `boot TAP COMMAND...`. The tap must exist and be up.

use std::time::Instant;

use roce_guest::{Guest, GuestConfig, Image};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let tap = arguments.next().ok_or("usage: boot TAP COMMAND...")?;
    let start = Instant::now();
    let image = Image::prepare("target/guest".as_ref())?;
    println!("image ready after {:.1?}: {}", start.elapsed(), image.kernel_release());
    let guest = Guest::boot(&image, &GuestConfig::new(&tap), |command| command.spawn())?;
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
