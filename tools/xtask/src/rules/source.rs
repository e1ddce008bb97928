//! The sources that a rule may have.

/// A document or a program that a rule is taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A part of a document.
    Document(String),
    /// A function, constant or table of another program.
    Program(String),
    /// The source is not known.
    NotKnown,
}

impl Source {
    /// Reads what a citation names; `None` if it has no known form.
    pub(super) fn read(text: &str) -> Option<Self> {
        if text == "not known" {
            return Some(Self::NotKnown);
        }
        if let Some((file, item)) = text.split_once(": ") {
            let is_file = [".c", ".h", ".rst", ".py"].iter().any(|end| file.ends_with(end));
            let is_item = item.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            return (is_file && is_item).then(|| Self::Program(text.to_owned()));
        }
        let (document, part) = text.split_once(' ')?;
        let is_known = match document {
            // Chapters, and compliance statements: `C9-105`, `o9-20`.
            "InfiniBand" => {
                part.trim_start_matches(['C', 'o', 'A']).starts_with(|c: char| c.is_ascii_digit())
            }
            "InfiniBand," | "RoCEv2," => part == "clause not known",
            "RoCEv2" => part.starts_with("A17"),
            "RFC" => part.starts_with(|c: char| c.is_ascii_digit()),
            "IEEE" => part.starts_with("802"),
            _ => false,
        };
        is_known.then(|| Self::Document(text.to_owned()))
    }

    /// Returns the source as the page shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Document(text) => text.clone(),
            Self::Program(text) => format!("`{text}`"),
            Self::NotKnown => "not known".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_part_of_a_document_or_a_function_of_a_program() {
        for known in [
            "InfiniBand 9.7.5.1.2",
            "InfiniBand C9-105",
            "InfiniBand, clause not known",
            "RoCEv2 A17.3.3",
            "RoCEv2, clause not known",
            "RFC 6298 section 2",
            "IEEE 802.1Qbb",
            "rxe_resp.c: check_psn",
            "include/rdma/ib_verbs.h: rdma_flow_label_to_udp_sport",
            "not known",
        ] {
            assert!(Source::read(known).is_some(), "{known}");
        }
        for unknown in ["InfiniBand", "InfiniBand chapter", "the book", "rxe", "rxe_resp.c", "RFC"]
        {
            assert!(Source::read(unknown).is_none(), "{unknown}");
        }
    }
}
