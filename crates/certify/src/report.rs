//! The report: one list of outcomes, in four forms.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use askama::Template;
use serde::Serialize;
use tokio::time::Instant;

use crate::CertifyError;
use crate::args::Form;
use crate::claims::Claim;

/// How a claim fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds.
    Pass,
    /// A fact contradicts the claim.
    Fail,
    /// The kit could not examine the claim here.
    Unsupported,
    /// The broker does not make the claim.
    NotClaimed,
}

impl Verdict {
    /// The word in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Unsupported => "unsupported",
            Self::NotClaimed => "not claimed",
        }
    }
}

/// The verdict on one claim, with its evidence.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub claim: &'static str,
    pub promise: &'static str,
    pub source: &'static str,
    pub verdict: Verdict,
    /// The evidence for a pass, the first contradicting fact of a failure, or the reason why the claim was not examined.
    pub evidence: String,
    pub seconds: f64,
}

impl Outcome {
    pub(crate) fn new(
        claim: &'static Claim,
        verdict: Verdict,
        evidence: impl Into<String>,
        began: Instant,
    ) -> Self {
        Self {
            claim: claim.id,
            promise: claim.promise,
            source: claim.source,
            verdict,
            evidence: evidence.into(),
            seconds: rounded(began.elapsed()),
        }
    }

    /// One line of the table.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{:<12} {:<19} {}", self.verdict.word(), self.claim, self.evidence)
    }
}

/// Seconds, in hundredths.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

/// The whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form of report.
    pub format: &'static str,
    pub url: String,
    /// Title and version that the broker states of itself; empty where it states none.
    pub product: String,
    /// Version of the kit.
    pub kit: &'static str,
    pub passed: usize,
    pub failed: usize,
    pub unsupported: usize,
    pub not_claimed: usize,
    pub claims: Vec<Outcome>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
}

#[derive(Template)]
#[template(path = "junit.xml", escape = "html")]
struct Junit<'a> {
    report: &'a Report,
    seconds: f64,
}

impl Report {
    pub(crate) fn new(url: &str, product: String, claims: Vec<Outcome>) -> Self {
        let count = |verdict| claims.iter().filter(|outcome| outcome.verdict == verdict).count();
        Self {
            format: "handoffd-certify/1",
            url: url.to_owned(),
            product,
            kit: env!("CARGO_PKG_VERSION"),
            passed: count(Verdict::Pass),
            failed: count(Verdict::Fail),
            unsupported: count(Verdict::Unsupported),
            not_claimed: count(Verdict::NotClaimed),
            claims,
        }
    }

    /// Whether nothing failed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failed == 0
    }

    /// The figures in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{} passed, {} failed, {} unsupported, {} not claimed",
            self.passed, self.failed, self.unsupported, self.not_claimed
        )
    }

    /// The report in one form.
    #[must_use]
    pub fn render(&self, form: Form) -> String {
        let rendered = match form {
            Form::Text => return self.text(),
            Form::Json => return serde_json::to_string_pretty(self).unwrap_or_default() + "\n",
            Form::Html => Page { report: self }.render(),
            Form::Junit => {
                let seconds = self.claims.iter().map(|outcome| outcome.seconds).sum();
                Junit { report: self, seconds }.render()
            }
        };
        // The templates only print members, which cannot fail.
        rendered.unwrap_or_default() + "\n"
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for outcome in &self.claims {
            let _ = writeln!(text, "{}", outcome.line());
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    /// Writes the report into a file, in the form that the file's ending names.
    ///
    /// # Errors
    /// [`CertifyError::File`]: an ending that names no form, or a file that cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), CertifyError> {
        let wrong = |why: String| CertifyError::File { file: file.display().to_string(), why };
        let form = match file.extension().and_then(|ending| ending.to_str()) {
            Some("txt") => Form::Text,
            Some("json") => Form::Json,
            Some("xml") => Form::Junit,
            Some("html") => Form::Html,
            _ => return Err(wrong("the ending is none of .txt, .json, .xml, .html".to_owned())),
        };
        std::fs::write(file, self.render(form)).map_err(|err| wrong(err.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::CLAIMS;

    fn report() -> Report {
        let now = Instant::now();
        let outcomes = vec![
            Outcome::new(&CLAIMS[0], Verdict::Pass, "200 acknowledged", now),
            Outcome::new(&CLAIMS[1], Verdict::Fail, "<b>\"&' was said", now),
            Outcome::new(&CLAIMS[2], Verdict::Unsupported, "needs --kill", now),
        ];
        Report::new("http://127.0.0.1:1", "broker 1".to_owned(), outcomes)
    }

    #[test]
    fn ids_are_unique_and_every_claim_has_a_promise_and_a_source() {
        for (place, claim) in CLAIMS.iter().enumerate() {
            assert!(CLAIMS[..place].iter().all(|other| other.id != claim.id), "{}", claim.id);
            assert!(claim.promise.ends_with('.') && !claim.source.is_empty(), "{}", claim.id);
        }
    }

    #[test]
    fn each_form_tells_the_same_outcomes() {
        let report = report();
        assert!(!report.holds());
        let text = report.render(Form::Text);
        assert!(text.ends_with("1 passed, 1 failed, 1 unsupported, 0 not claimed\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.render(Form::Json)).unwrap();
        assert_eq!(json["claims"][1]["verdict"], "fail");
        let junit = report.render(Form::Junit);
        assert!(junit.contains("tests=\"3\" failures=\"1\" skipped=\"1\""), "{junit}");
        for form in [Form::Junit, Form::Html] {
            let page = report.render(form);
            assert!(!page.contains("<b>\"") && page.contains("was said"), "{page}");
        }
    }

    #[test]
    fn a_file_is_written_in_the_form_of_its_ending_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        report().write(&file).unwrap();
        let read: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(read["failed"], 1);
        assert!(
            report()
                .write(&folder.path().join("report.pdf"))
                .unwrap_err()
                .to_string()
                .contains("ending")
        );
    }
}
