//! The server's own counters, read from `/metrics`.

use crate::connection::BenchConnection;

/// Counters of the ledger since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) commits: u64,
    pub(crate) requests: u64,
}

/// `None` if the server does not report them, which is not an error.
pub(crate) async fn read(connection: &mut BenchConnection, request: &[u8]) -> Option<Counters> {
    match connection.exchange(request).await {
        Ok(200) => parse(&String::from_utf8_lossy(connection.body())),
        _ => None,
    }
}

fn parse(text: &str) -> Option<Counters> {
    let value = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(found, _)| *found == name)
            .and_then(|(_, value)| value.parse().ok())
    };
    Some(Counters {
        commits: value("consign_commits_total")?,
        requests: value("consign_requests_total")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_counters_are_found_among_others() {
        let text = "# HELP consign_commits_total Commits\n# TYPE consign_commits_total counter\n\
                    consign_commits_total 7\nconsign_requests_total 70\nother 1\n";
        let expected = Counters {
            commits: 7,
            requests: 70,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("consign_commits_total 7\n"), None);
    }
}
