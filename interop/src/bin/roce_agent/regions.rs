//! Commands on registered memory.

use roce_interop::pattern;
use roce_verbs::{AccessFlags, MemoryRegion};

use crate::objects::Objects;
use crate::parse::Words;
use crate::result::Result;

/// `mr NAME size=N rights=lwrab seed=N`
pub(crate) fn register<'a>(
    objects: &'a mut Objects,
    words: &Words<'_>,
    access: AccessFlags,
) -> Result<&'a MemoryRegion> {
    objects.is_free(words.at(1))?;
    let size = words.number("size", 0)?;
    let region = objects.pd.register(size, access)?;
    if words.text("seed").is_some() {
        region.write(0, &pattern::bytes(words.number("seed", 0)?, size))?;
    }
    objects.keep_region(words.at(1), region);
    objects.region(words.at(1))
}

/// `fill NAME offset=N len=N seed=N`, `crc NAME offset=N len=N`, `get NAME offset=N`,
/// `set NAME offset=N value=N`
pub(crate) fn memory(objects: &Objects, words: &Words<'_>) -> Result<String> {
    let region = objects.region(words.at(1))?;
    let offset: usize = words.number("offset", 0)?;
    let len: usize = words.number("len", region.len().saturating_sub(offset))?;
    let len = if matches!(words.at(0), "get" | "set") { 8 } else { len };
    if offset > region.len() || len > region.len() - offset {
        return Err(format!("{offset}+{len} is not inside {}", words.at(1)).into());
    }
    let mut bytes = vec![0; len];
    match words.at(0) {
        "fill" => region.write(offset, &pattern::bytes(words.number("seed", 0)?, len))?,
        "set" => region.write(offset, &words.number("value", 0u64)?.to_ne_bytes())?,
        "crc" => {
            region.read(offset, &mut bytes)?;
            return Ok(format!("crc={:#x}", pattern::checksum(&bytes)));
        }
        _ => {
            region.read(offset, &mut bytes)?;
            let value = u64::from_ne_bytes(bytes.try_into().map_err(|_| "not eight bytes")?);
            return Ok(format!("value={value:#x}"));
        }
    }
    Ok(String::new())
}

pub(crate) fn rights(letters: &str) -> Result<AccessFlags> {
    letters.chars().try_fold(AccessFlags::empty(), |flags, letter| match letter {
        'l' => Ok(flags | AccessFlags::LOCAL_WRITE),
        'w' => Ok(flags | AccessFlags::REMOTE_WRITE),
        'r' => Ok(flags | AccessFlags::REMOTE_READ),
        'a' => Ok(flags | AccessFlags::REMOTE_ATOMIC),
        'b' => Ok(flags | AccessFlags::MW_BIND),
        'g' => Ok(flags | AccessFlags::FLUSH_GLOBAL),
        '-' => Ok(flags),
        _ => Err(format!("no such right: {letter}").into()),
    })
}
