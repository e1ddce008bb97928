//! Words of a filter.

use std::ops::Range;

use super::error::FilterError;

/// Most bytes of a filter.
pub(super) const MAX_LEN: usize = 1 << 16;

/// A word of a filter, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) kind: TokenKind<'t>,
    pub(super) bytes: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind<'t> {
    /// A name, a number or an address.
    Word(&'t str),
    /// Text in quotation marks, without them.
    Quoted(String),
    And,
    Or,
    Not,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
    In,
    Open,
    Close,
    OpenSet,
    CloseSet,
    Comma,
    /// `..`
    To,
    End,
}

/// Splits a filter into its words; the last one is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    if text.len() > MAX_LEN {
        let message = format!("a filter has at most {} bytes", MAX_LEN);
        return Err(FilterError::new(text, MAX_LEN..MAX_LEN, message));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        let Some(first) = trimmed.chars().next() else { break };
        let (kind, len) = match symbol(trimmed) {
            Some((kind, len)) => (kind, len),
            None if first == '"' || first == '\'' => quoted(text, at, first)?,
            None if is_word(first) => word(trimmed),
            None => {
                let message = format!("{first:?} has no meaning here");
                return Err(FilterError::new(text, at..at + first.len_utf8(), message));
            }
        };
        tokens.push(Token { kind, bytes: at..at + len });
        at += len;
    }
    tokens.push(Token { kind: TokenKind::End, bytes: text.len()..text.len() });
    Ok(tokens)
}

fn symbol(text: &str) -> Option<(TokenKind<'_>, usize)> {
    let known = [
        ("&&", TokenKind::And),
        ("||", TokenKind::Or),
        ("==", TokenKind::Equal),
        ("!=", TokenKind::NotEqual),
        ("<=", TokenKind::LessOrEqual),
        (">=", TokenKind::GreaterOrEqual),
        ("..", TokenKind::To),
        ("!", TokenKind::Not),
        ("<", TokenKind::Less),
        (">", TokenKind::Greater),
        ("(", TokenKind::Open),
        (")", TokenKind::Close),
        ("{", TokenKind::OpenSet),
        ("}", TokenKind::CloseSet),
        (",", TokenKind::Comma),
    ];
    known
        .into_iter()
        .find(|(sign, _)| text.starts_with(sign))
        .map(|(sign, kind)| (kind, sign.len()))
}

/// Returns true for a letter of names, numbers, addresses, and prefixes of addresses.
fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || "._:/-+".contains(letter)
}

fn word(text: &str) -> (TokenKind<'_>, usize) {
    let end = text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    // The dots of a range end the number before them.
    let end = text[..end].find("..").unwrap_or(end);
    let word = &text[..end];
    let kind = match word.to_ascii_lowercase().as_str() {
        "and" => TokenKind::And,
        "or" => TokenKind::Or,
        "not" => TokenKind::Not,
        "eq" => TokenKind::Equal,
        "ne" => TokenKind::NotEqual,
        "lt" => TokenKind::Less,
        "le" => TokenKind::LessOrEqual,
        "gt" => TokenKind::Greater,
        "ge" => TokenKind::GreaterOrEqual,
        "contains" => TokenKind::Contains,
        "in" => TokenKind::In,
        _ => TokenKind::Word(word),
    };
    (kind, end)
}

/// Reads text in quotation marks; a backslash takes the next letter as it is.
fn quoted(text: &str, at: usize, mark: char) -> Result<(TokenKind<'_>, usize), FilterError> {
    let mut inner = String::new();
    let mut letters = text[at + 1..].char_indices();
    while let Some((offset, letter)) = letters.next() {
        match letter {
            letter if letter == mark => return Ok((TokenKind::Quoted(inner), offset + 2)),
            '\\' => match letters.next() {
                Some((_, letter)) => inner.push(letter),
                None => break,
            },
            letter => inner.push(letter),
        }
    }
    let message = format!("the text that begins here has no {mark} at its end");
    Err(FilterError::new(text, at..at + 1, message))
}
