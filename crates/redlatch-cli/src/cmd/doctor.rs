//! `redlatch doctor`: checks the nodes from this machine, and says what to do.

use redlatch::{Finding, Verdict};
use serde_json::json;

use crate::connect::builder;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, print};
use crate::settings::Settings;
use crate::table::{Cell, Color, Table};

pub(super) async fn run(settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let findings = builder(settings)?.examine().await?;
    let text = match output.json {
        true => findings.iter().map(as_json).collect(),
        false => as_table(&findings, output.paint),
    };
    print(text.as_bytes())?;
    let is_well = |finding: &Finding| finding.verdict == Verdict::Good;
    let unwell = findings.iter().filter(|finding| !is_well(finding)).count();
    if unwell == 0 {
        output.info("all is well");
        return Ok(ExitCode::Success);
    }
    let all = findings.len();
    output.info(&format!("{unwell} of {all} checks need a look"));
    Ok(ExitCode::Unwell)
}

fn as_table(findings: &[Finding], paint: bool) -> String {
    let mut table = Table::new(["NODE", "CHECK", "VERDICT", "FOUND", "WHAT TO DO"], paint);
    for finding in findings {
        let color = match finding.verdict {
            Verdict::Good => Color::Green,
            Verdict::Bad => Color::Red,
            _ => Color::Yellow,
        };
        let node = match finding.node.as_str() {
            "" => "all",
            node => node,
        };
        table.row(vec![
            Cell::new(node),
            Cell::new(finding.check),
            Cell::new(finding.verdict.to_string()).color(color),
            Cell::new(&finding.seen),
            Cell::new(&finding.advice),
        ]);
    }
    table.text()
}

fn as_json(finding: &Finding) -> String {
    let object = json!({
        "node": finding.node,
        "check": finding.check,
        "verdict": finding.verdict.to_string(),
        "found": finding.seen,
        "advice": finding.advice,
    });
    format!("{object}\n")
}
