//! Results of long runs, for `docs/soak-report.md`: each run writes a table of its own into the folder that
//! `KVMAD_SOAK_RESULTS` names, `tests/soak` gathers them. Without the variable nothing is written.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// A table of results, written row by row, so that also a run that fails has told what it saw.
#[derive(Debug)]
pub struct Table(Option<PathBuf>);

impl Table {
    /// The table of the file `NAME.md` (the report has them in the order of their names); `title` is its heading. Tests
    /// that name the same file write rows of one table.
    pub fn open(name: &str, title: &str, columns: &[&str]) -> Self {
        let folder = std::env::var_os("KVMAD_SOAK_RESULTS").map(PathBuf::from);
        let file = folder.map(|folder| folder.join(format!("{name}.md")));
        if let Some(file) = &file
            && let Ok(mut new) = OpenOptions::new().write(true).create_new(true).open(file)
        {
            let head = format!("## {title}\n\n{}{}", line(columns), line(&vec!["---"; columns.len()]));
            new.write_all(head.as_bytes()).expect("the table's head");
        }
        Self(file)
    }

    /// Adds a row.
    pub fn row(&self, cells: &[&str]) {
        let Some(file) = &self.0 else { return };
        let mut file = OpenOptions::new().append(true).open(file).expect("the table");
        file.write_all(line(cells).as_bytes()).expect("a row");
    }
}

fn line(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    format!("| {} |\n", cells.join(" | "))
}
