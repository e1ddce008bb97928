//! The CRC by instructions of the processor, beside that of its definition.

use crc32fast::Hasher;

/// Returns the CRC of bytes behind a CRC, bit by bit.
fn by_definition(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

/// Returns the instructions of this processor by which a CRC is computed, if it has any.
fn instructions() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let found = std::arch::is_x86_feature_detected!("pclmulqdq").then_some("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let found = std::arch::is_aarch64_feature_detected!("crc").then_some("crc32x");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let found = None;
    found
}

//= test icrc-crc
#[test]
fn the_crc_by_instructions_of_the_processor_is_that_of_the_definition() {
    println!("CRC by {}", instructions().unwrap_or("tables"));
    let bytes: Vec<u8> = (0..4400_u32).map(|i| (i * i + 11 * i + 5) as u8).collect();
    // Three streams are computed side by side from 1536 bytes on by one implementation, and blocks of 128 by another.
    let lengths = (0..200).chain([1023, 1024, 1535, 1536, 1543, 2048, 4096, 4127]);
    for len in lengths {
        for start in 0..16 {
            let bytes = &bytes[start..start + len];
            for before in [0, 1, 0x1234_5678, u32::MAX] {
                let mut crc = Hasher::new_with_initial(before);
                crc.update(bytes);
                let place = format!("{len} bytes from {start} behind {before:#x}");
                assert_eq!(crc.finalize(), by_definition(before, bytes), "{place}");
            }
        }
    }
}
