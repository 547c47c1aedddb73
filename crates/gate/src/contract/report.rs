//! A lint's reports as JSON (specification §4.4), as warnings, and as SARIF 2.1.0.

use serde_json::{Value, json};

use super::lint::{LintReport, RULES, Severity};
use handoffd_domain::warning::{Warning, WarningCode};

/// Parts of a contract that are taken and do not hold in full: each finding, by its rule's name and its place.
#[must_use]
pub fn warnings(report: &LintReport) -> Vec<Warning> {
    let warning = |finding: &super::lint::LintFinding| {
        let code = match finding.rule.name {
            "without-effect" | "unknown-field" | "unchecked-schema" | "no-supervisor" => {
                WarningCode::WithoutEffect
            }
            _ => WarningCode::ContractFinding,
        };
        let message = format!("{}: {}", finding.rule.name, finding.message);
        Warning::new(code, finding.pointer.clone(), message)
    };
    report.findings.iter().map(warning).collect()
}

/// `{"contracts": [{id, file, level, missing, findings: [{rule, severity, line, column, message}]}]}`, with
/// `warnings: [{code, pointer, message}]` where there are any.
#[must_use]
pub fn json(reports: &[LintReport]) -> Value {
    let contracts: Vec<Value> = reports
        .iter()
        .map(|report| {
            let findings: Vec<Value> = report
                .findings
                .iter()
                .map(|finding| {
                    json!({
                        "rule": finding.rule.name,
                        "severity": finding.rule.severity.as_str(),
                        "line": finding.place.line,
                        "column": finding.place.column,
                        "message": finding.message,
                    })
                })
                .collect();
            let mut shown = json!({
                "id": report.id,
                "file": report.file,
                "level": report.level.map(super::level::Level::as_str),
                "missing": report.missing,
                "findings": findings,
            });
            let warnings = warnings(report);
            if !warnings.is_empty() {
                shown["warnings"] = json!(warnings);
            }
            shown
        })
        .collect();
    json!({ "contracts": contracts })
}

/// SARIF 2.1.0, for code hosts and editors.
#[must_use]
pub fn sarif(reports: &[LintReport], tool_version: &str) -> Value {
    let level = |severity: Severity| severity.as_str();
    let rules: Vec<Value> = RULES
        .iter()
        .map(|rule| {
            json!({
                "id": rule.name,
                "shortDescription": { "text": rule.about },
                "defaultConfiguration": { "level": level(rule.severity) },
            })
        })
        .collect();
    let results: Vec<Value> = reports
        .iter()
        .flat_map(|report| report.findings.iter().map(move |finding| (report, finding)))
        .map(|(report, finding)| {
            json!({
                "ruleId": finding.rule.name,
                "ruleIndex": RULES.iter().position(|rule| rule.name == finding.rule.name),
                "level": level(finding.rule.severity),
                "message": { "text": finding.message },
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": { "uri": report.file.replace('\\', "/") },
                        "region": {
                            "startLine": finding.place.line,
                            "startColumn": finding.place.column,
                        },
                    },
                }],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "handoffd lint", "version": tool_version, "rules": rules } },
            "results": results,
        }],
    })
}
