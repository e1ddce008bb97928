//! Simulates one ring allreduce: `cargo run --release -p roce-lab --example scale -- 8 1048576`.

use roce_lab::Scale;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let ranks = arguments.next().unwrap_or_else(|| "8".to_owned()).parse()?;
    let bytes = arguments.next().unwrap_or_else(|| "1048576".to_owned()).parse()?;
    let result = Scale { ranks, bytes, ..Scale::default() }.simulate()?;
    println!("{ranks} ranks, {bytes} bytes: {:?}", result.time);
    println!("{:?} by the model, ratio {:.3}", result.scale.model_time(), result.ratio());
    println!("{} packets, {} resent, wrong {:?}", result.packets, result.resent, result.wrong);
    Ok(())
}
