//! Words of another agent, as a door's answer shows them to a model.

use crate::http::Api;
use handoffd_core::gate::safety::FieldClass;

/// Whether the safety rules neither refuse nor mark anything in these words, read as data of another agent.
pub(super) fn are_harmless(api: &Api, words: &str) -> bool {
    let report = api.intake.gate.scanner.report_text(words, FieldClass::Data);
    report.findings.is_empty() && report.marks.is_empty()
}
