//! What ranks print about their results: nccl-tests' table, and the lines of the C program.

use super::job::Job;
use super::ranks::{Ended, Kind};
use crate::Fault;
use crate::fault::{expect, expect_equal};

/// Expects every rank to have done the whole job correctly.
///
/// Rank 0 prints the sum of what all ranks found wrong; those in guests say it of themselves, and
/// every rank's exit status is that of its own results.
///
/// # Errors
/// At the first rank that says otherwise.
pub(crate) fn expect_exact(ended: &[Ended], job: &Job) -> Result<(), Fault> {
    for end in ended {
        expect(end.status == Some(0), || end.to_string())?;
        let wrong = match (end.rank, end.kind) {
            (0, _) => wrong_in_table(&end.stdout),
            (_, Kind::Rxe) => wrong_in_lines(&end.stdout),
            (_, Kind::Ours) => continue,
        };
        let wrong = wrong.ok_or_else(|| {
            Fault::Wrong(format!("rank {} prints no results:\n{}", end.rank, end.stdout))
        })?;
        // Out of place and in place.
        expect_equal(
            format!("rank {}: number of results", end.rank),
            wrong.len(),
            2 * job.sizes(),
        )?;
        expect(wrong.iter().all(|wrong| *wrong == 0), || {
            format!("rank {} has wrong elements:\n{}", end.rank, end.stdout)
        })?;
    }
    Ok(())
}

/// The `#wrong` columns of nccl-tests' table: two in each row.
fn wrong_in_table(text: &str) -> Option<Vec<u64>> {
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let mut wrong = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split_whitespace().collect();
        for column in [8, 12] {
            wrong.push(columns.get(column)?.parse().ok()?);
        }
    }
    Some(wrong)
}

/// The `wrong=` of each line of the C program.
fn wrong_in_lines(text: &str) -> Option<Vec<u64>> {
    let wrong = |line: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix("wrong="))?;
        value.parse().ok()
    };
    text.lines().map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_elements_are_found_in_both_kinds_of_text() {
        let table = "\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    16.37    0.00    0.00      0    16.25    0.00    0.00      3
# Avg bus bandwidth    : 0
";
        assert_eq!(wrong_in_table(table), Some(vec![0, 3]));
        assert_eq!(wrong_in_table("Segmentation fault\n"), None);
        let lines =
            "size=8 count=2 type=float op=sum placement=out us=3.0 wrong=0\nsize=8 wrong=5\n";
        assert_eq!(wrong_in_lines(lines), Some(vec![0, 5]));
        assert_eq!(wrong_in_lines("size=8 count=2\n"), None);
    }
}
