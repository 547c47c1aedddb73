//! `handoffd lint` as a process: each rule fires on its fixture and is silent on the repaired twin.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest, Sha256};

const EXAMPLE: &str = include_str!("../contracts/triage-to-refunds.yaml");
const REGISTRY: &str = include_str!("../contracts/registry.yaml");
const SCHEMA: &str = include_str!("../contracts/schemas/refund-handoff@1.2.0.json");

/// The way back, with a guard of its own.
const BACK: &str = "\
id: refunds-to-triage-v1
version: 1.0.0
source: refund-agent
target: triage-agent
trigger: {intent: done, tool_call: transfer_to_triage_agent}
payload: {schema: ./schemas/refund-handoff@1.2.0.json}
acceptance_criteria:
  required_fields: []
  domain_match: \"true\"
  permission_check: perm:triage:read
recovery: {on_reject: source, on_timeout: source, on_error: source, loop_guard: state.visited_agents}
";

/// A folder with the worked example, its schema and a registry.
struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new(contract: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let case = Self { folder };
        case.write("contracts/triage.yaml", contract);
        case.write("contracts/schemas/refund-handoff@1.2.0.json", SCHEMA);
        case.write("registry.yaml", REGISTRY);
        case
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lint(&self) -> (i32, Value) {
        let registry = self.path("registry.yaml");
        let arguments = ["--registry", registry.to_str().unwrap(), "--output", "json"];
        let output = handoffd(&self.path("contracts"), &arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let answer = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}"));
        (output.status.code().unwrap(), answer)
    }

    /// Rules that fired on the worked example's file, with their lines.
    fn rules(&self) -> Vec<(String, u64)> {
        let (code, answer) = self.lint();
        let contracts = answer["contracts"].as_array().unwrap();
        let errors = contracts
            .iter()
            .flat_map(|contract| contract["findings"].as_array().unwrap())
            .any(|finding| finding["severity"] == "error");
        assert_eq!(code, i32::from(errors), "the exit code says whether there are errors");
        let of_example = contracts
            .iter()
            .find(|contract| contract["file"].as_str().unwrap().ends_with("triage.yaml"))
            .unwrap();
        of_example["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                (finding["rule"].as_str().unwrap().to_owned(), finding["line"].as_u64().unwrap())
            })
            .collect()
    }

    fn level(&self) -> (Value, Vec<String>) {
        let (_, answer) = self.lint();
        let contract = &answer["contracts"][0];
        let missing = contract["missing"].as_array().unwrap();
        let missing = missing.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        (contract["level"].clone(), missing)
    }
}

fn handoffd(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
    command.arg("lint").arg(path).args(arguments).output().unwrap()
}

fn line_of(text: &str, part: &str) -> u64 {
    text.lines().position(|line| line.contains(part)).unwrap() as u64 + 1
}

/// Just that rule fires, at the line that holds `at`; the twin is silent.
fn fires(rule: &str, at: &str, broken: &str, repaired: &str) {
    let found = Case::new(broken).rules();
    assert_eq!(found, [(rule.to_owned(), line_of(broken, at))], "{rule}");
    assert_eq!(Case::new(repaired).rules(), [], "the twin of {rule}");
}

fn with(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "{from}");
    EXAMPLE.replace(from, to)
}

#[test]
fn c42_the_worked_example_is_l2_without_a_finding() {
    let case = Case::new(EXAMPLE);
    assert_eq!(case.rules(), []);
    let frozen = "payload.schema (frozen: its hash in `reviewed`)";
    let missing = vec!["reviewed_by".to_owned(), frozen.to_owned()];
    assert_eq!(case.level(), (Value::from("L2"), missing));
}

#[test]
fn c34_an_orphan_target_is_found() {
    let broken = EXAMPLE.replace("target: refund-agent", "target: refunds-agent");
    let found = Case::new(&broken).rules();
    assert_eq!(found, [("orphan-target".to_owned(), line_of(&broken, "target: refunds-agent"))]);
    // A role is as good as a name.
    assert_eq!(Case::new(&broken.replace("refunds-agent", "refund")).rules(), []);
}

#[test]
fn c35_an_unreachable_handoff_is_found() {
    fires(
        "unreachable-handoff",
        "tool_call",
        &with("transfer_to_refund_agent", "transfer_to_nobody"),
        EXAMPLE,
    );
    fires(
        "unreachable-handoff",
        "source: ",
        &with("source: triage-agent", "source: other-agent"),
        EXAMPLE,
    );
    let by_prompt = Case::new(&with("  tool_call: transfer_to_refund_agent\n", ""));
    assert_eq!(by_prompt.rules(), []);
    by_prompt.write(
        "registry.yaml",
        &REGISTRY.replace("tools: [transfer_to_refund_agent]", "tools: []"),
    );
    assert_eq!(by_prompt.rules()[0].0, "unreachable-handoff");
    let prompt = "prompt: Refunds go to the refund-agent.";
    let registry = REGISTRY
        .replace("tools: [transfer_to_refund_agent]", "tools: []")
        .replace("prompt: You sort what customers ask for.", prompt);
    by_prompt.write("registry.yaml", &registry);
    assert_eq!(by_prompt.rules(), []);
}

#[test]
fn c36_a_missing_recovery_is_found() {
    for way in ["  on_reject: supervisor\n", "  on_timeout: supervisor\n", "  on_error: source\n"] {
        fires("missing-recovery", "recovery:", &with(way, ""), EXAMPLE);
    }
}

#[test]
fn c37_a_loop_risk_is_found_over_all_contracts() {
    let broken = with("  loop_guard: state.visited_agents\n", "");
    let case = Case::new(&broken);
    let at = line_of(&broken, "recovery:");
    let absent = ("missing-clause".to_owned(), at);
    assert_eq!(case.rules(), std::slice::from_ref(&absent), "nothing leads back");
    case.write("contracts/back.yaml", BACK);
    assert_eq!(case.rules(), [("loop-risk".to_owned(), at), absent.clone()]);
    case.write("contracts/triage.yaml", EXAMPLE);
    assert_eq!(case.rules(), []);
    // By way of a role, and of a third agent.
    case.write("contracts/triage.yaml", &broken);
    case.write("contracts/back.yaml", &BACK.replace("target: triage-agent", "target: desk"));
    assert_eq!(case.rules(), [absent]);
    let third = BACK
        .replace("id: refunds-to-triage-v1", "id: desk-to-triage-v1")
        .replace("source: refund-agent", "source: desk")
        .replace("target: triage-agent", "target: triage");
    case.write("contracts/third.yaml", &third);
    assert_eq!(case.rules()[0].0, "loop-risk");
}

#[test]
fn c38_a_retry_of_what_is_not_idempotent_is_found() {
    let broken =
        with("max_retries: 0", "max_retries: 2").replace("idempotent: true", "idempotent: false");
    fires(
        "retry-non-idempotent",
        "max_retries",
        &broken,
        &with("max_retries: 0", "max_retries: 2"),
    );
    assert_eq!(Case::new(&with("idempotent: true", "idempotent: false")).rules(), []);
}

#[test]
fn c39_a_schema_that_is_missing_or_changed_is_found() {
    fires(
        "schema-drift",
        "  schema:",
        &with("refund-handoff@1.2.0", "refund-handoff@1.3.0"),
        EXAMPLE,
    );
    let case = Case::new(EXAMPLE);
    let reviewed = hex::encode(Sha256::digest(SCHEMA));
    let registry =
        format!("{REGISTRY}reviewed:\n  ./schemas/refund-handoff@1.2.0.json: {reviewed}\n");
    case.write("registry.yaml", &registry);
    assert_eq!(case.rules(), []);
    case.write("contracts/schemas/refund-handoff@1.2.0.json", &SCHEMA.replace("500", "900"));
    assert_eq!(case.rules(), [("schema-drift".to_owned(), line_of(EXAMPLE, "  schema:"))]);
}

#[test]
fn c40_a_permission_that_is_not_declared_is_found() {
    fires(
        "permission-mismatch",
        "permission_check",
        &with("perm:refund:read", "perm:refund:write"),
        EXAMPLE,
    );
}

#[test]
fn c41_a_whole_history_without_a_reason_is_a_warning() {
    let broken = with("history_strategy: summary", "history_strategy: full");
    let repaired = with("history_strategy: summary", "history_strategy: full  # disputes quote it");
    fires("full-history", "history_strategy", &broken, &repaired);
    let unsaid = with("  history_strategy: summary\n", "").replace(
        "[task_summary, provenance.order_id, c",
        "[task_summary, messages, provenance.order_id, c",
    );
    assert_eq!(Case::new(&unsaid).rules()[0].0, "full-history");
}

#[test]
fn what_cannot_be_enforced_is_an_error_with_its_place() {
    fires("invalid-clause", "predicate", &with("confidence >= 0.7\"", "confidence >= \""), EXAMPLE);
    fires("invalid-clause", "id: ", &with("id: triage-to", "id: Triage_to"), EXAMPLE);
    let wildcard = Case::new(&with("target: refund-agent", "target: refund-*")).rules();
    assert!(
        wildcard.iter().any(|(rule, line)| rule == "invalid-clause" && *line == 4),
        "{wildcard:?}"
    );
}

#[test]
fn c32_levels_say_what_is_missing_for_the_next() {
    let l1 = EXAMPLE.split("observability:").next().unwrap().replace("version: 1.2.0\n", "");
    let (level, missing) = Case::new(&l1).level();
    assert_eq!(level, "L1");
    assert_eq!(missing, ["version", "observability", "idempotency.idempotent"]);
    let (level, missing) = Case::new(&with("  loop_guard: state.visited_agents\n", "")).level();
    assert_eq!((level, missing), (Value::Null, vec!["recovery.loop_guard".to_owned()]));
    let signed = format!(
        "{EXAMPLE}reviewed_by: {{name: j.doe, at: 2026-11-02, sha256: {}}}\n",
        hex::encode(Sha256::digest(SCHEMA))
    );
    assert_eq!(Case::new(&signed).level(), (Value::from("L3"), vec![]));
    let case = Case::new(&signed);
    let open = SCHEMA.replace(
        "\"type\": \"string\", \"maxLength\": 500",
        "\"$ref\": \"https://x.example/s.json\"",
    );
    case.write("contracts/schemas/refund-handoff@1.2.0.json", &open);
    assert_eq!(case.level().0, "L2");
}

#[test]
fn json_and_yaml_are_linted_alike() {
    let case = Case::new(EXAMPLE);
    let yaml = case.lint().1;
    let value = handoffd_contract(EXAMPLE);
    std::fs::remove_file(case.path("contracts/triage.yaml")).unwrap();
    case.write("contracts/triage.json", &serde_json::to_string_pretty(&value).unwrap());
    let json = case.lint().1;
    assert_eq!(yaml["contracts"][0]["level"], json["contracts"][0]["level"]);
    assert_eq!(json["contracts"][0]["findings"], Value::Array(vec![]));
}

fn handoffd_contract(text: &str) -> Value {
    handoffd_gate::contract::document::Document::parse(text).unwrap().value().clone()
}

#[test]
fn exit_codes_tell_errors_usage_and_what_cannot_be_read_apart() {
    let case = Case::new(&with("  on_error: source\n", ""));
    let code = |path: &Path, arguments: &[&str]| handoffd(path, arguments).status.code();
    let contracts = case.path("contracts");
    assert_eq!(code(&contracts, &[]), Some(1));
    assert_eq!(code(&contracts, &["--no-such-flag"]), Some(2));
    assert_eq!(code(&case.path("nowhere"), &[]), Some(3));
    assert_eq!(code(&contracts, &["--registry", "/nowhere/registry.yaml"]), Some(3));
    case.write("contracts/triage.yaml", EXAMPLE);
    assert_eq!(code(&contracts, &[]), Some(0));
    case.write("contracts/triage.yaml", "id: [source target recovery\n");
    assert_eq!(code(&contracts, &[]), Some(1));
    let usage = Command::new(env!("CARGO_BIN_EXE_handoffd")).arg("lint").output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    let usage = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["openapi", "--output", "sarif"])
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn text_and_sarif_carry_the_place() {
    let broken = with("  on_error: source\n", "");
    let case = Case::new(&broken);
    let text = String::from_utf8(handoffd(&case.path("contracts"), &[]).stdout).unwrap();
    let place = format!("triage.yaml:{}:1: error missing-recovery", line_of(&broken, "recovery:"));
    assert!(text.contains(&place), "{text}");
    assert!(text.contains("below L1; missing for the next level: recovery.on_error"), "{text}");
    let sarif = handoffd(&case.path("contracts"), &["--output", "sarif"]).stdout;
    let sarif: Value = serde_json::from_slice(&sarif).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(
        (&sarif["version"], &result["ruleId"]),
        (&"2.1.0".into(), &"missing-recovery".into())
    );
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!(region["startLine"], line_of(&broken, "recovery:"));
    assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap().len(), 23);
}

#[test]
fn a_registered_schema_is_looked_for_in_a_folder_of_schemas() {
    const NAME: &str = "registry:refund-handoff@1.2.0";
    let broken = with("./schemas/refund-handoff@1.2.0.json", NAME);
    let case = Case::new(&broken);
    // Beside the contract.
    assert_eq!(case.rules(), []);
    let file = "contracts/schemas/refund-handoff@1.2.0.json";
    case.write(file, "{\"type\": \"no such type\"}");
    let drift = [("schema-drift".to_owned(), line_of(&broken, "  schema:"))];
    assert_eq!(case.rules(), drift);
    case.write(file, "{");
    assert_eq!(case.rules(), drift);
    std::fs::remove_file(case.path(file)).unwrap();
    // Nowhere: it was not checked, which is said, and no error.
    let said = case.lint();
    let finding = &said.1["contracts"][0]["findings"][0];
    assert_eq!((said.0, &finding["rule"]), (0, &Value::from("unchecked-schema")));
    let message = finding["message"].as_str().unwrap();
    for part in [NAME, "schemas/refund-handoff@1.2.0.json", "--schemas", "--broker"] {
        assert!(message.contains(part), "{message}");
    }
    // Beside the registry.
    case.write("schemas/refund-handoff@1.2.0.json", SCHEMA);
    assert_eq!(case.rules(), []);
    // In the folder that is named, and then nowhere else.
    let lint = |folder: &str| {
        let (registry, folder) = (case.path("registry.yaml"), case.path(folder));
        let arguments =
            ["--registry", registry.to_str().unwrap(), "--schemas", folder.to_str().unwrap()];
        let output = handoffd(&case.path("contracts"), &arguments);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(lint("schemas").0, Some(0));
    let (code, text) = lint("contracts");
    assert_eq!(code, Some(1));
    assert!(text.contains("error schema-drift") && text.contains("does not exist"), "{text}");
    assert_eq!(lint("nowhere").0, Some(3));
    // Its review covers its content, whatever the layout.
    let document: Value = serde_json::from_str(SCHEMA).unwrap();
    let hash =
        |value: &Value| hex::encode(Sha256::digest(handoffd_domain::canonical::to_vec(value)));
    let reviewed = format!("{REGISTRY}reviewed:\n  \"{NAME}\": {}\n", hash(&document));
    case.write("registry.yaml", &reviewed);
    assert_eq!(case.rules(), []);
    case.write("schemas/refund-handoff@1.2.0.json", &format!("{document:#}"));
    assert_eq!(case.rules(), []);
    case.write("schemas/refund-handoff@1.2.0.json", &SCHEMA.replace("500", "900"));
    assert_eq!(case.rules(), drift);
}

#[test]
fn f3_3_a_schema_is_resolved_or_an_error_and_frozen_by_its_hash_alone() {
    let schema = "./schemas/refund-handoff@1.2.0.json";
    for nowhere in ["RefundHandoff", "https://schemas.example/refund@1.2.0.json", "./no@1.2.0.json"]
    {
        let broken = with(schema, nowhere);
        let found = Case::new(&broken).rules();
        assert_eq!(
            found,
            [("schema-drift".to_owned(), line_of(&broken, "  schema:"))],
            "{nowhere}"
        );
    }
    let at = line_of(&format!("{EXAMPLE}reviewed_by"), "reviewed_by");
    // A text signs nothing, and neither does an entry without time or hash.
    for entry in ["j.doe", "{name: j.doe}", "{name: j.doe, at: 2026-11-02}"] {
        let case = Case::new(&format!("{EXAMPLE}reviewed_by: {entry}\n"));
        assert_eq!(case.level().0, "L2", "{entry}");
        assert_eq!(case.rules(), [("unsigned-review".to_owned(), at)], "{entry}");
    }
    let signed = |hash: &str| {
        Case::new(&format!(
            "{EXAMPLE}reviewed_by: [{{name: j.doe, at: 2026-11-02, sha256: {hash}}}]\n"
        ))
    };
    let canonical =
        handoffd_domain::canonical::to_vec(&serde_json::from_str::<Value>(SCHEMA).unwrap());
    for bytes in [SCHEMA.as_bytes(), &canonical] {
        let case = signed(&hex::encode(Sha256::digest(bytes)));
        assert_eq!((case.level().0, case.rules()), (Value::from("L3"), vec![]));
    }
    let stale = signed(&"ab".repeat(32));
    assert_eq!((stale.level().0, stale.rules().len()), (Value::from("L2"), 1));
    assert_eq!(stale.rules()[0].0, "schema-drift");
    // Frozen without a signature is not enough either.
    let case = Case::new(EXAMPLE);
    let hash = hex::encode(Sha256::digest(SCHEMA));
    case.write("registry.yaml", &format!("{REGISTRY}reviewed:\n  {schema}: {hash}\n"));
    assert_eq!(case.level(), (Value::from("L2"), vec!["reviewed_by".to_owned()]));
}

#[test]
fn f3_4_what_a_contract_must_and_should_say_is_found_when_it_does_not() {
    fires("missing-clause", "recovery:", &with("  timeout_ms: 30000\n", ""), EXAMPLE);
    fires(
        "missing-clause",
        "recovery:",
        &with("  loop_guard: state.visited_agents\n", ""),
        EXAMPLE,
    );
    let required = "[task_summary, provenance.order_id, constraints.policy_window_days]";
    fires(
        "recommended-clause",
        "  required: ",
        // The schema describes it, so the list alone need not.
        &with(required, "[task_summary, provenance.order_id]")
            .replace("./schemas/refund-handoff@1.2.0.json", "{type: object}"),
        EXAMPLE,
    );
    let neither = with(required, "[order_id]")
        .replace("./schemas/refund-handoff@1.2.0.json", "{type: object}")
        .replace(
            "required_fields: [task_summary, provenance.order_id]",
            "required_fields: [order_id]",
        );
    let rules: Vec<String> =
        Case::new(&neither).rules().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(rules, ["missing-clause", "missing-clause", "recommended-clause"]);
    fires(
        "recommended-clause",
        "trigger:",
        &with("  intent: \"Refund, cancellation, or money-back inquiry.\"\n", ""),
        EXAMPLE,
    );
    fires("orphan-recovery", "on_error", &with("on_error: source", "on_error: nobody"), EXAMPLE);
    assert_eq!(Case::new(&with("on_error: source", "on_error: triage-agent")).rules(), []);
    let word = |sunset: &str, next: &str| {
        format!("{EXAMPLE}deprecation: {{sunset: {sunset}, replacement_id: {next}}}\n")
    };
    let case = Case::new(&word("2020-01-01", "next"));
    case.write("contracts/next.yaml", &EXAMPLE.replace("triage-to-refunds-v1", "next"));
    assert_eq!(case.rules().into_iter().map(|(rule, _)| rule).collect::<Vec<_>>(), ["past-sunset"]);
    case.write("contracts/triage.yaml", &word("2999-01-01", "next"));
    assert_eq!(case.rules(), []);
    case.write("contracts/triage.yaml", &word("2999-01-01", "nowhere"));
    assert_eq!(case.rules()[0].0, "unknown-replacement");
    // A breaking change as a patch, as a minor, and as what it is.
    let next = with("confidence >= 0.7", "confidence >= 0.9");
    for (version, found) in [("1.2.1", 1), ("1.3.0", 1), ("2.0.0", 0)] {
        let next = next.replace("version: 1.2.0", &format!("version: {version}"));
        let case = Case::new(&next);
        case.write("contracts/before.yaml", EXAMPLE);
        let rules = case.rules();
        assert_eq!(rules.len(), found, "{version}");
        assert!(rules.iter().all(|(rule, _)| rule == "breaking-change"), "{rules:?}");
    }
}

#[test]
fn f3_8_lint_asks_for_a_level() {
    let case = Case::new(EXAMPLE);
    let code = |level: &str| handoffd(&case.path("contracts"), &["--level", level]).status.code();
    assert_eq!(
        (code("L1"), code("L2"), code("L3"), code("L4")),
        (Some(0), Some(0), Some(1), Some(2))
    );
    case.write("contracts/triage.yaml", &with("  idempotent: true\n", ""));
    let said = handoffd(&case.path("contracts"), &["--level", "L2"]);
    assert_eq!(said.status.code(), Some(1));
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("below L2: triage-to-refunds-v1"), "{told}");
}
