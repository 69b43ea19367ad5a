//! What was measured, as a table.

use std::fmt;
use std::time::Duration;

/// One line: what, ours, the other side's, and the goal in words.
#[derive(Debug)]
struct Row {
    what: String,
    ours: String,
    bare: String,
    ratio: String,
    goal: &'static str,
}

/// The table.
#[derive(Debug, Default)]
pub struct Report(Vec<Row>);

/// The middle one of `times`; zero when there are none.
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

impl Report {
    /// Ours over theirs.
    pub fn ratio(&mut self, what: &str, ours: Duration, bare: Duration, goal: &'static str) {
        let ratio = format!("{:.2}", ours.as_secs_f64() / bare.as_secs_f64().max(1e-9));
        self.0.push(Row { what: what.to_owned(), ours: shown(ours), bare: shown(bare), ratio, goal });
    }

    /// A figure of ours that stands alone.
    pub fn figure(&mut self, what: &str, ours: String, goal: &'static str) {
        self.0.push(Row { what: what.to_owned(), ours, bare: String::new(), ratio: String::new(), goal });
    }

    /// A time of ours that stands alone.
    pub fn time(&mut self, what: &str, ours: Duration, goal: &'static str) {
        self.figure(what, shown(ours), goal);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<74} {:>12} {:>12} {:>7}  goal", "medians", "kvmad", "bare", "ratio")?;
        for row in &self.0 {
            writeln!(f, "{:<74} {:>12} {:>12} {:>7}  {}", row.what, row.ours, row.bare, row.ratio, row.goal)?;
        }
        Ok(())
    }
}
