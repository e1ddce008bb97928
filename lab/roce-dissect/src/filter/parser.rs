//! Reads a filter: `or` joins what `and` joins, which joins tests, each perhaps behind `not`.

use super::FilterError;
use super::condition::Condition;
use super::literal::{self, Comparison, Literal};
use super::token::{Token, TokenKind, tokens};
use crate::{FieldKind, NamedField};

/// Parses a filter.
pub(super) fn parse(text: &str) -> Result<Condition, FilterError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0 };
    if parser.peek() == &TokenKind::End {
        return Err(parser.error_here("the filter is empty; write for example: qp == 0x12"));
    }
    let condition = parser.any(MAX_DEPTH)?;
    match parser.peek() {
        TokenKind::End => Ok(condition),
        TokenKind::Close => Err(parser.error_here("this parenthesis closes none")),
        _ => Err(parser.error_here("\"and\" or \"or\" is missing before this")),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    next: usize,
}

impl<'t> Parser<'t> {
    fn any(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let mut inner = vec![self.all(depth)?];
        while self.take(&TokenKind::Or) {
            inner.push(self.all(depth)?);
        }
        Ok(if inner.len() == 1 { inner.remove(0) } else { Condition::Any(inner) })
    }

    fn all(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let mut inner = vec![self.negated(depth)?];
        while self.take(&TokenKind::And) {
            inner.push(self.negated(depth)?);
        }
        Ok(if inner.len() == 1 { inner.remove(0) } else { Condition::All(inner) })
    }

    fn negated(&mut self, depth: usize) -> Result<Condition, FilterError> {
        let Some(depth) = depth.checked_sub(1) else {
            let message = format!("more than {MAX_DEPTH} levels of \"not\" and parentheses");
            return Err(self.error_here(message));
        };
        if self.take(&TokenKind::Not) {
            return Ok(Condition::Not(Box::new(self.negated(depth)?)));
        }
        let opened = self.place();
        if self.take(&TokenKind::Open) {
            let inner = self.any(depth)?;
            return match self.take(&TokenKind::Close) {
                true => Ok(inner),
                false if self.peek() == &TokenKind::End => {
                    Err(FilterError::new(self.text, opened, "this parenthesis is not closed"))
                }
                false => Err(self.error_here("\"and\", \"or\" or \")\" is missing before this")),
            };
        }
        self.test()
    }

    fn test(&mut self) -> Result<Condition, FilterError> {
        let TokenKind::Word(name) = *self.peek() else {
            return Err(self.error_here("the name of a field is missing here"));
        };
        let field = find(name).map_err(|message| self.error_here(message))?;
        self.next += 1;
        let at = self.place();
        let comparison = match self.peek() {
            TokenKind::Equal => Comparison::Equal,
            TokenKind::NotEqual => Comparison::NotEqual,
            TokenKind::Less => Comparison::Less,
            TokenKind::LessOrEqual => Comparison::LessOrEqual,
            TokenKind::Greater => Comparison::Greater,
            TokenKind::GreaterOrEqual => Comparison::GreaterOrEqual,
            TokenKind::Contains => Comparison::Contains,
            TokenKind::In => {
                self.next += 1;
                return self.set(field);
            }
            TokenKind::Word(_) | TokenKind::Quoted(_) => {
                let message =
                    "a comparison is missing before this: ==, !=, <, <=, >, >=, contains or in";
                return Err(self.error_here(message));
            }
            _ => return Ok(Condition::Present(field)),
        };
        let can = match comparison {
            Comparison::Equal | Comparison::NotEqual => field.kind() != FieldKind::Layer,
            Comparison::Contains => matches!(field.kind(), FieldKind::Text | FieldKind::Bytes),
            _ => !matches!(field.kind(), FieldKind::Layer | FieldKind::Flag | FieldKind::Text),
        };
        if !can {
            let (name, kind) = (field.name(), field.kind());
            let message = format!("{name} cannot be compared so: its kind is {kind}");
            return Err(FilterError::new(self.text, at, message));
        }
        self.next += 1;
        let literal = self.literal(field, comparison != Comparison::Contains)?;
        Ok(Condition::Compare { field, comparison, literal })
    }

    /// Reads `{ value, value, first..last }`.
    fn set(&mut self, field: NamedField) -> Result<Condition, FilterError> {
        if field.kind() == FieldKind::Layer {
            return Err(self.error_here(format!("{} is a layer and has no value", field.name())));
        }
        if !self.take(&TokenKind::OpenSet) {
            return Err(self.error_here("a set such as {1, 2, 5..9} is missing here"));
        }
        let mut ranges = Vec::new();
        loop {
            let first = self.literal(field, true)?;
            let last = match self.take(&TokenKind::To) {
                true => self.literal(field, true)?,
                false => first.clone(),
            };
            ranges.push((first, last));
            if self.take(&TokenKind::CloseSet) {
                return Ok(Condition::In { field, ranges });
            }
            if !self.take(&TokenKind::Comma) {
                return Err(self.error_here("\",\" or \"}\" is missing here"));
            }
        }
    }

    fn literal(&mut self, field: NamedField, is_whole: bool) -> Result<Literal, FilterError> {
        let (word, is_quoted) = match self.peek() {
            TokenKind::Word(word) => (*word, false),
            TokenKind::Quoted(text) => (text.as_str(), true),
            _ => {
                return Err(self.error_here(format!("a value of {} is missing here", field.name())));
            }
        };
        if let Some(message) = literal::unknown_name(field.name(), word).filter(|_| is_whole) {
            return Err(self.error_here(message));
        }
        let literal = Literal::read(word, is_quoted, field.kind());
        let literal = literal.map_err(|message| {
            self.error_here(format!("{} is compared with {message}", field.name()))
        })?;
        self.next += 1;
        Ok(literal)
    }

    fn peek(&self) -> &TokenKind<'t> {
        // The last token is the end, and nothing steps over it.
        self.tokens.get(self.next).map_or(&TokenKind::End, |token| &token.kind)
    }

    fn place(&self) -> std::ops::Range<usize> {
        let end = self.text.len();
        self.tokens.get(self.next).map_or(end..end, |token| token.bytes.clone())
    }

    fn take(&mut self, kind: &TokenKind<'t>) -> bool {
        let is_here = self.peek() == kind;
        self.next += usize::from(is_here);
        is_here
    }

    fn error_here(&self, message: impl Into<String>) -> FilterError {
        FilterError::new(self.text, self.place(), message)
    }
}

/// Returns the field of a name, in small or capital letters.
fn find(name: &str) -> Result<NamedField, String> {
    let name = name.to_ascii_lowercase();
    // The finding itself is its name.
    let name = if name == "findings" { "findings.name" } else { name.as_str() };
    NamedField::find(name).ok_or_else(|| match NamedField::similar(name).as_slice() {
        [] => format!("no field is called {name:?}"),
        similar => format!("no field is called {name:?}; similar: {}", similar.join(", ")),
    })
}

/// Levels of parentheses and negations.
const MAX_DEPTH: usize = 64;
