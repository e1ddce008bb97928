//! Commands on memory windows: regions that are lent, and taken back.

use std::time::{Duration, Instant};

use roce_verbs::{AccessFlags, CompletionStatus, SendOperation, SendWr, WindowType};

use crate::completions::next_by_polling;
use crate::objects::{Objects, Pair};
use crate::parse::Words;
use crate::regions::{register, rights};
use crate::result::Result;

/// `lend NAME qp=NAME size=N type=1|2`
pub(crate) fn lend(objects: &mut Objects, words: &Words<'_>) -> Result<String> {
    let window_type = match words.number("type", 2u8)? {
        1 => WindowType::Type1,
        2 => WindowType::Type2B,
        other => return Err(format!("no such type of windows: {other}").into()),
    };
    let window = objects.pd.alloc_window(window_type)?;
    let len = register(objects, words, rights("lwrab")?)?.len();
    objects.keep_window(words.at(1), window);
    bind_range(objects, words, 0, len)
}

/// `bind NAME qp=NAME offset=N len=N`
pub(crate) fn bind(objects: &mut Objects, words: &Words<'_>) -> Result<String> {
    bind_range(objects, words, words.number("offset", 0)?, words.number("len", 0)?)
}

/// `invalidate NAME qp=NAME`
pub(crate) fn invalidate(objects: &mut Objects, words: &Words<'_>) -> Result<String> {
    let (pair, window) = (pair(objects, words)?, objects.window(words.at(1))?);
    execute(pair, SendOperation::LocalInvalidate { key: window.rkey() })?;
    Ok(String::new())
}

/// Binds the window of a region to a range of it, with all rights, and waits for it.
fn bind_range(objects: &Objects, words: &Words<'_>, offset: usize, len: usize) -> Result<String> {
    let (pair, window) = (pair(objects, words)?, objects.window(words.at(1))?);
    let region = objects.region(words.at(1))?;
    let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let end = offset.checked_add(len).ok_or("offset and len are too large")?;
    let binding = window.binding(window.next_tag(), region, offset..end, access)?;
    execute(pair, SendOperation::BindWindow(binding))?;
    Ok(format!("lkey={:#x} rkey={:#x} address={:#x}", region.lkey(), binding.rkey(), binding.addr))
}

fn pair<'a>(objects: &'a Objects, words: &Words<'_>) -> Result<&'a Pair> {
    objects.pair(words.text("qp").unwrap_or_default())
}

/// Posts a request on windows and waits for its completion.
fn execute(pair: &Pair, operation: SendOperation) -> Result<()> {
    pair.qp.post_send([SendWr::new(0, operation, []).signaled()])?;
    match next_by_polling(&pair.send, Instant::now() + LIMIT) {
        Some(done) if done.status == CompletionStatus::Success => Ok(()),
        Some(done) => Err(format!("{operation:?}: {}", done.status).into()),
        None => Err(format!("{operation:?}: no completion").into()),
    }
}

/// How long a request on windows may take.
const LIMIT: Duration = Duration::from_secs(5);
