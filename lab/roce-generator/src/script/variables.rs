//! Variables of scripts.

use std::collections::{BTreeMap, BTreeSet};

use roce_dissect::{FieldPlace, NamedField, Packet, PacketFields};

/// Variables and their values.
///
/// In a statement `$name` or `${name}` is its value, and `$name+1` or `$name-0x10` a sum. A value that is
/// written in hexadecimal keeps its number of digits in a sum, and wraps: `0xffffff` and 1 are
/// `0x000000`, which is how PSNs count.
///
/// ```
/// let mut variables = roce_generator::Variables::default();
/// variables.fix("psn", "0xffffff")?;
/// assert_eq!(variables.fill("psn=$psn+2")?, "psn=0x000001");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    values: BTreeMap<String, String>,
    /// Those that a script does not change by `let`.
    fixed: BTreeSet<String>,
}

impl Variables {
    /// Gives a variable a value that `let` does not change.
    ///
    /// # Errors
    /// The name is none, or the value has a letter that none may have.
    pub fn fix(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.set(name, value)?;
        self.fixed.insert(name.to_owned());
        Ok(())
    }

    /// Gives a variable a value, unless it is fixed.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        check_name(name)?;
        if value.is_empty() || value.len() > MAX_VALUE || value.contains(['$', '\n']) {
            return Err(format!("{name} needs a value of 1 to {MAX_VALUE} letters without $"));
        }
        if !self.fixed.contains(name) {
            self.values.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }

    /// Gives a variable the first value of a packet's field; a number is written in hexadecimal with the
    /// digits of its field.
    ///
    /// # Errors
    /// The packet does not have the field.
    pub fn take(
        &mut self,
        name: &str,
        packet: &Packet<'_>,
        field: NamedField,
    ) -> Result<String, String> {
        let fields = PacketFields::new(packet);
        let read = |place: FieldPlace| {
            Some((place.read_number(packet.frame.bytes)?, place.bit_len().div_ceil(4)))
        };
        let number = fields.place(field).and_then(read);
        let value = match number {
            Some((number, digits)) => format!("0x{number:0digits$x}"),
            None => {
                let text = fields.text_of(field).into_iter().next();
                text.ok_or_else(|| format!("the packet has no field {}", field.name()))?
            }
        };
        self.fixed.remove(name);
        self.set(name, &value)?;
        Ok(value)
    }

    /// Returns a text with the values of its variables.
    ///
    /// # Errors
    /// A variable has no value, or a sum is none.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('$') {
            filled.push_str(before);
            let (name, after) = split_name(behind);
            if name.is_empty() {
                return Err("a $ begins the name of a variable, such as $psn".to_owned());
            }
            let value = self.values.get(name).ok_or_else(|| {
                format!(
                    "${name} has no value: write `let {name} = …` before, or give the option --let {name}=…"
                )
            })?;
            let (summand, after) = split_summand(after);
            match summand {
                Some((sign, digits)) => filled.push_str(&sum(name, value, sign, digits)?),
                None => filled.push_str(value),
            }
            if filled.len() > MAX_FILLED {
                return Err(format!("the statement is longer than {MAX_FILLED} bytes"));
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

/// Refuses what is no name of a variable.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let is_name = !name.starts_with(|it: char| it.is_ascii_digit()) && name.chars().all(is_letter);
    if is_name && (1..=40).contains(&name.len()) {
        return Ok(());
    }
    let name: String = name.chars().take(40).collect();
    Err(format!("{name:?} is no name of a variable: it has letters, digits and _"))
}

/// Returns the names of variables in a text.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|behind| split_name(behind).0)
}

/// Returns the name at the start of a text, also one in braces, and what is behind it.
fn split_name(text: &str) -> (&str, &str) {
    if let Some((name, after)) = text.strip_prefix('{').and_then(|it| it.split_once('}')) {
        return (name, after);
    }
    let end = text.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns sign and digits of `+1` or `-0x10` at the start of a text, and what is behind it.
fn split_summand(text: &str) -> (Option<(char, &str)>, &str) {
    let sign = text.chars().next().filter(|it| "+-".contains(*it));
    let is_number = text.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    match sign {
        Some(sign) if is_number => {
            let end = text[1..].find(|it: char| !it.is_ascii_alphanumeric());
            let (digits, after) = text[1..].split_at(end.unwrap_or(text.len() - 1));
            (Some((sign, digits)), after)
        }
        _ => (None, text),
    }
}

fn sum(name: &str, value: &str, sign: char, digits: &str) -> Result<String, String> {
    let no_number = |text: &str| format!("{text:?} is no number, so ${name}{sign}{digits} is none");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| no_number(text)),
        None => text.parse::<u64>().map_err(|_| no_number(text)),
    };
    let (a, b) = (number(value)?, number(digits)?);
    if let Some(hex) = value.strip_prefix("0x") {
        // At most 16 digits are a number.
        let width = hex.len().clamp(1, 16);
        let total = if sign == '+' { a.wrapping_add(b) } else { a.wrapping_sub(b) };
        return Ok(format!("0x{:0width$x}", total & (u64::MAX >> (64 - 4 * width))));
    }
    let total = if sign == '+' { a.checked_add(b) } else { a.checked_sub(b) };
    let why =
        || format!("${name}{sign}{digits} is no number of 64 bits; in hexadecimal {name} wraps");
    total.map(|total| total.to_string()).ok_or_else(why)
}

const MAX_VALUE: usize = 200;
const MAX_FILLED: usize = 64 << 10;
