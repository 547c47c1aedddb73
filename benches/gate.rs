//! The gate by itself: what a message of 4 KB and one with 50 000 tokens of history cost, stage by stage, and
//! whether the size of a tenant tells; then the other pure parts of a submission, for counting their
//! instructions. See docs/performance.md, "The gate".
//!
//! `cargo bench --bench gate`, or `cargo bench --bench gate -- --once PATH N`: that path so many times and
//! nothing else, for `scripts/instructions`.

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use handoffd::ledger::command::Call;
use handoffd::ledger::commands::{AnyCommand, Queued, Submit};
use handoffd::ledger::context::{Context, DispatcherClaim, Rules, Spare};
use handoffd::ledger::decide::decide;
use handoffd::store::BatchState;
use handoffd_domain::agent::{Agent, Target};
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::handoff::{Cost, DeliveryMode, HandoffDraft, HandoffStatus, Priority};
use handoffd_domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::json;
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::message::Message;
use handoffd_domain::money::Usd;
use handoffd_domain::policy::EdgePolicy;
use handoffd_domain::roster::Roster;
use handoffd_domain::window::{ContextLimit, ContextPolicy, Tokenizer};
use handoffd_evidence::append::LogAppender;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_evidence::merkle::Frontier;
use handoffd_evidence::record::{
    Actor, LogHead, RecordContent, RecordDraft, RecordKind, RecordParty,
};
use handoffd_gate::context;
use handoffd_gate::contract;
use handoffd_gate::contract::catalog::Catalog;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::safety::{FieldClass, Scanner};
use handoffd_gate::{Gate, GateLookup, GateVerdict, address, budget, completeness, signature};
use serde_json::{Value, json};
use uuid::Uuid;

/// A usual message, in bytes.
const SMALL: usize = 4_096;
/// One with 50 000 tokens of history.
const LARGE: usize = 220_000;
/// Rounds of which the middle one counts.
const ROUNDS: usize = 51;
/// Agents of a large tenant, each with a contract.
const AGENTS: usize = 10_000;
/// Whom each of them may hand off to.
const TARGETS: usize = 10;
const SECRET: &[u8] = b"a signing secret of the sender's";

/// Ordinary text.
const PROSE: &str = concat!(
    include_str!("../docs/reliability.md"),
    include_str!("../docs/evidence.md"),
    include_str!("../docs/contracts.md"),
    include_str!("../docs/delivery.md"),
    include_str!("../docs/erasure.md"),
    include_str!("../docs/recovery.md"),
    include_str!("../docs/events.md"),
    include_str!("../docs/stores.md"),
    include_str!("../docs/retention.md"),
    include_str!("../docs/tracing.md"),
    include_str!("../docs/bundle.md"),
    include_str!("../docs/metrics.md"),
    include_str!("../docs/performance.md"),
    include_str!("../docs/budget.md"),
    include_str!("../docs/routing.md"),
    include_str!("../docs/configuration.md"),
    include_str!("../CHANGELOG.md"),
    include_str!("../ARCHITECTURE.md"),
    include_str!("../README.md"),
);

fn id(n: usize) -> AgentId {
    format!("agent-{n}").parse().unwrap()
}

/// A tenant, with whatever a message is looked up in.
struct Tenant {
    name: TenantId,
    roster: Roster,
    contracts: Catalog,
    caller: AgentId,
}

impl Tenant {
    fn of(agents: usize) -> Self {
        let made = (0..agents).map(|n| {
            let mut agent = Agent::new(id(n));
            agent.require_signature = true;
            agent.capabilities = vec!["review".to_owned(), format!("skill-{}", n % 100)];
            agent.handoff_targets = (1..=TARGETS.min(agents - 1))
                .map(|step| Target::Agent(id((n + step) % agents)))
                .collect();
            agent
        });
        let contracts = (0..agents).map(|n| {
            let doc = json!({
                "id": format!("contract-{n}"), "version": "1.0.0",
                "source": id(n), "target": id((n + 1) % agents),
                "trigger": { "intent": "Review", "predicate": "state.confidence >= 0.7" },
                "payload": {
                    "schema": {
                        "type": "object",
                        "required": ["task_description"],
                        "properties": { "task_description": { "type": "string" } },
                    },
                    "required": ["task_description", "document_type"],
                },
            });
            let (contract, _) = contract::read(&Document::from_value(doc.clone()));
            Arc::new(CompiledContract::new(contract, doc.to_string(), String::new(), Micros(0)))
        });
        Self {
            name: "default".parse().unwrap(),
            roster: Roster::new(made.collect(), &HashMap::new()),
            contracts: Catalog::new(contracts.collect()),
            caller: id(0),
        }
    }

    fn lookup<'a>(&'a self, secrets: &'a [&'a [u8]]) -> GateLookup<'a> {
        GateLookup {
            tenant: &self.name,
            at: Micros(1),
            caller: Some(&self.caller),
            receiver: None,
            roster: &self.roster,
            contracts: &self.contracts,
            signing_secrets: secrets,
        }
    }
}

/// A signed message from the first agent to the second, of about so many bytes.
fn message(size: usize) -> Vec<u8> {
    written(size, &PROSE.chars().filter(char::is_ascii).collect::<String>())
}

/// The same with words that do not change with the documentation, for what is counted and compared.
fn fixed(size: usize) -> Vec<u8> {
    const SENTENCE: &str = "The supplier limits its liability to the fees of the last twelve months, except for \
        gross negligence (clause 4.2), and the buyer asked on 3 June whether 7.1 stands. ";
    written(size, &SENTENCE.repeat(size / SENTENCE.len() + 1))
}

fn written(size: usize, prose: &str) -> Vec<u8> {
    let mut message = json!({
        "schemaVersion": "2.1",
        "handoffId": "0190f5fe-7c00-4a00-8f00-000000000002",
        "taskId": "0190f5fe-7c00-4a00-8f00-000000000001",
        "parentHandoffId": null,
        "fromAgent": {
            "agentId": "agent-0",
            "agentVersion": "1.0.0",
            "executionId": "0190f5fe-7c00-4a00-8f00-000000000003",
        },
        "toAgent": { "agentId": "agent-1" },
        "timestamp": "2026-06-12T08:00:00Z",
        "taskDescription": "Score the liability risk of the extracted clauses",
        "completedSubtasks": [{
            "subtaskId": "s1",
            "description": "Extract limitation-of-liability clauses",
            "result": { "clauses": ["4.2", "7.1"] },
            "completedAt": "2026-06-12T08:00:00Z",
        }],
        "remainingSubtasks": [{ "subtaskId": "s2", "description": "Score each clause" }],
        "currentState": { "document_type": "contract", "confidence": 0.9, "pendingDecisions": [] },
        "relevantContext": [],
        "constraints": ["returnJSON:true"],
        "costTracking": {
            "costSpentSoFarUSD": 0.01,
            "costBudgetRemainingUSD": 0.4,
            "tokenSpent": { "prompt": 1200, "completion": 300 },
        },
        "conversationHistorySummary": "A supply contract is reviewed for liability risk.",
        "conversationHistoryVerbatim": [],
        "toolCallHistory": [],
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    });
    let room = size.saturating_sub(message.to_string().len() + 120);
    if size <= SMALL {
        let excerpt = json!({
            "source": "Contract PDF 2026-06-11", "excerpt": prose[..room - 80], "relevanceScore": 0.92,
        });
        message["relevantContext"] = json!([excerpt]);
    } else {
        // Turns of a conversation, a kilobyte each; markdown's quotes and breaks are escaped in JSON.
        // Some of it speaks of attacks.
        let scanner = Scanner::builtin();
        let harmless = |text: &&str| scanner.scan_text(text, FieldClass::ToolOutput).is_empty();
        let (mut turns, mut used) = (Vec::new(), 0);
        let texts = (0..prose.len() - 1_000).step_by(1_000).map(|at| &prose[at..at + 1_000]);
        for (n, text) in texts.filter(harmless).enumerate() {
            let turn = json!({
                "role": if n % 2 == 0 { "user" } else { "assistant" },
                "content": text,
                "timestamp": "2026-06-12T08:00:00Z",
            });
            used += turn.to_string().len() + 1;
            if used > room {
                break;
            }
            turns.push(turn);
        }
        message["conversationHistoryVerbatim"] = json!(turns);
    }
    let canonical = CanonicalObject::from_value(&message).unwrap();
    message["signature"] = signature::sign(&canonical, SECRET).into();
    message.to_string().into_bytes()
}

/// The middle of so many rounds.
fn median<T>(mut run: impl FnMut() -> T) -> Duration {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            black_box(run());
            begun.elapsed()
        })
        .collect();
    rounds.sort();
    rounds[rounds.len() / 2]
}

fn row(name: &str, took: Duration) {
    println!("  {name:<34} {:>9.1} µs", took.as_secs_f64() * 1e6);
}

fn stages(gate: &Gate, tenant: &Tenant, body: &[u8]) {
    println!("a message of {} bytes", body.len());
    let secrets: [&[u8]; 1] = [SECRET];
    let lookup = tenant.lookup(&secrets);
    row("whole gate", median(|| passes(gate, body, &lookup)));
    let value = json::parse(body).ok().unwrap();
    let canonical = CanonicalObject::from_value(&value).unwrap();
    row("parse", median(|| json::parse(body).is_ok()));
    row("canonicalise", median(|| CanonicalObject::from_value(&value)));
    row(
        "signature",
        median(|| signature::verify(&canonical, value.get("signature"), &secrets, true).is_ok()),
    );
    row("schema", median(|| gate.schemas.check(&value).is_ok()));
    let shell = CanonicalObject::from_value(&json!({})).unwrap();
    let made = || Message::new(value.clone(), shell.clone()).unwrap();
    let copying = median(|| (value.clone(), shell.clone()));
    row("typed fields", median(made).saturating_sub(copying));
    let message = made();
    let envelope = message.envelope();
    let source = tenant.roster.find(&tenant.caller).unwrap();
    let readers = address::ReceiverForms::new(&gate.schemas, message.value());
    let route =
        || address::resolve(source, &envelope.to_agent, &[], &tenant.roster, &readers, None);
    row("address", median(route));
    let target = route().target.unwrap();
    let terms = handoffd_gate::edge_contract::ContractTerms {
        required: true,
        minimum_level: None,
        pinned: handoffd_gate::contract::catalog::PinnedVersionRule::Refused,
        at: lookup.at,
    };
    row(
        "contract",
        median(|| {
            handoffd_gate::edge_contract::check(&message, source, &target, &tenant.contracts, terms)
        }),
    );
    row("completeness", median(|| completeness::check(message.value(), &[])));
    row("budget", median(|| budget::check(message.value())));
    row("safety scan", median(|| gate.scanner.scan(message.value())));
    measures(&canonical);
    println!("  beside the gate:");
    let content = canonical.without(&["signature"]);
    row("commitment (hash)", median(|| commit(CommitmentSubject::Message, &[7; 16], &content)));
    row(
        "commitment, packed to be kept",
        median(|| PackedContent::new(CommitmentSubject::Message, [7; 16], &content)),
    );
}

/// Measures the count of tokens in time: for a receiver without a window, and for one whose limit the message is near, by each tokenizer.
fn measures(message: &CanonicalObject) {
    let limit = |tokens, tokenizer| ContextLimit {
        window: tokens,
        tokens,
        policy: ContextPolicy::Flag,
        tokenizer,
    };
    let open = limit(None, Tokenizer::Estimate);
    row("context, estimated", median(|| context::measure(message, &open)));
    let near = Some(context::measure(message, &open).0.total());
    for (name, tokenizer) in
        [("context, exact: o200k", Tokenizer::O200k), ("context, exact: cl100k", Tokenizer::Cl100k)]
    {
        let limit = limit(near, tokenizer);
        // The vocabulary is unpacked once.
        let (parts, by) = context::measure(message, &limit);
        assert_eq!(by, tokenizer, "the message is near its limit");
        row(name, median(|| context::measure(message, &limit)));
        println!("  {:<34} {:>9} tokens", "", parts.total());
    }
}

fn passes(gate: &Gate, body: &[u8], lookup: &GateLookup<'_>) {
    match gate.run(black_box(body), lookup) {
        GateVerdict::Pass(passed) => drop(black_box(passed)),
        GateVerdict::Malformed(why) => panic!("{why:?}"),
        GateVerdict::Refused(refused) => panic!("{:?}", refused.failures),
    }
}

/// Prints what token measuring adds to the gate: runs in turn the gate, which measures once, and the gate with a second measurement.
fn measuring(gate: &Gate, tenant: &Tenant) {
    println!("the gate with measuring against without, by turns");
    let secrets: [&[u8]; 1] = [SECRET];
    let lookup = tenant.lookup(&secrets);
    let limit = ContextLimit {
        window: None,
        tokens: None,
        policy: ContextPolicy::Flag,
        tokenizer: Tokenizer::Estimate,
    };
    for size in [SMALL, LARGE] {
        let body = message(size);
        let canonical = CanonicalObject::from_value(&json::parse(&body).ok().unwrap()).unwrap();
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS * 5 {
            for (again, took) in [false, true].into_iter().zip(&mut took) {
                let begun = Instant::now();
                passes(gate, &body, &lookup);
                if again {
                    black_box(context::measure(black_box(&canonical), &limit));
                }
                took.push(begun.elapsed());
            }
        }
        let [once, twice] = took.map(middle_micros);
        let without = once - (twice - once);
        println!(
            "  {:>6} bytes {once:>9.1} µs, without {without:>9.1} µs: {:+.1} %",
            body.len(),
            (once / without - 1.0) * 100.0
        );
    }
}

fn middle_micros(mut took: Vec<Duration>) -> f64 {
    took.sort();
    took[took.len() / 2].as_secs_f64() * 1e6
}

/// The same message in a small tenant and in a large one, by turns.
fn tenants(gate: &Gate, small: &Tenant) {
    let large = Tenant::of(AGENTS);
    println!("2 agents against {AGENTS} with {TARGETS} targets and a contract each, by turns");
    let secrets: [&[u8]; 1] = [SECRET];
    for size in [SMALL, LARGE] {
        let body = message(size);
        let lookups = [small.lookup(&secrets), large.lookup(&secrets)];
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS * 5 {
            for (lookup, took) in lookups.iter().zip(&mut took) {
                let begun = Instant::now();
                passes(gate, &body, lookup);
                took.push(begun.elapsed());
            }
        }
        let [few, many] = took.map(middle_micros);
        println!("  {:>6} bytes {few:>9.1} µs {many:>9.1} µs, ratio {:.2}", body.len(), many / few);
    }
}

/// A submission as the ledger gets it.
fn submission(at: Micros) -> (Call, AnyCommand) {
    let uuid = |n| Uuid::from_u128(n);
    let part =
        |text: &str| PackedContent::new(CommitmentSubject::Message, [1; 16], text.as_bytes());
    let party = |n| RecordParty {
        agent_id: Some(id(n)),
        agent_type: Some("reviewer".to_owned()),
        agent_version: Some("1.0.0".to_owned()),
        execution_id: None,
        registered_version: None,
    };
    let handoff = HandoffDraft {
        tenant: "default".parse().unwrap(),
        id: HandoffId(uuid(1)),
        task_id: TaskId(uuid(2)),
        parent_id: None,
        source: id(0),
        source_version: "1.0.0".to_owned(),
        source_execution: ExecutionId(uuid(3)),
        target: id(1),
        target_type: "reviewer".to_owned(),
        target_version: "1.0.0".to_owned(),
        mode: DeliveryMode::Webhook,
        status: HandoffStatus::Pending,
        cost: Cost { spent: Usd(1), remaining: Usd(1), prompt_tokens: 0, completion_tokens: 0 },
        idempotent: true,
        ruling: None,
        context: None,
        stream: None,
        conversation_id: None,
        user_ref: None,
        digest_salt: vec![2; 16],
        digest: vec![3; 32],
        traceparent: String::new(),
        tracestate: String::new(),
        span: String::new(),
        created_at: at,
        clock: LatencyClock::starting(at),
    };
    let submit = Submit {
        handoff,
        from: party(0),
        to: party(1),
        content: RecordContent { id: ContentId(uuid(4)), part: part("message") },
        checkpoint: Some(part("checkpoint")),
        implied_checkpoint: part("implied"),
        require_checkpoint: false,
        priority: Priority::Normal,
        policy: EdgePolicy::default(),
        repeat: None,
        personal: Vec::new(),
        whole: vec![1; SMALL],
        idempotency_key: None,
        fencing_token: None,
        has_part: true,
        subtasks: vec![1],
        residency: None,
        declared_budget: None,
        refusal_salt: [0; 16],
        safety: None,
    };
    let call = Call { tenant: "default".parse().unwrap(), at, actor: Actor::broker() };
    (call, submit.into_any())
}

fn draft() -> RecordDraft {
    let mut draft = RecordDraft::new(
        "default".parse().unwrap(),
        RecordKind::Handoff,
        Micros(1_800_000_000_000_000),
        Actor::broker(),
    );
    draft.task_id = Some(TaskId(Uuid::from_u128(2)));
    draft.handoff_id = Some(HandoffId(Uuid::from_u128(1)));
    draft.content = Some(RecordContent {
        id: ContentId(Uuid::from_u128(4)),
        part: PackedContent::new(CommitmentSubject::Message, [1; 16], b"message"),
    });
    draft.checkpoint_commitment = Some([5; 32]);
    draft
}

/// One path so many times, and nothing that grows with how often.
fn once(path: &str, times: usize) {
    match path {
        "gate-4k" => {
            let (gate, tenant, body) = (Gate::new(), Tenant::of(2), fixed(SMALL));
            let secrets: [&[u8]; 1] = [SECRET];
            let lookup = tenant.lookup(&secrets);
            (0..times).for_each(|_| passes(&gate, &body, &lookup));
        }
        "commit-4k" => {
            let value: Value = serde_json::from_slice(&fixed(SMALL)).unwrap();
            for _ in 0..times {
                let canonical = CanonicalObject::from_value(black_box(&value)).unwrap();
                let content = canonical.without(&["signature"]);
                black_box(commit(CommitmentSubject::Message, &[7; 16], &content));
            }
        }
        "decide-submit" => {
            let at = Micros(1_800_000_000_000_000);
            let (state, command) = (BatchState::default(), submission(at));
            let (rules, waited) = (Rules::default(), Duration::ZERO);
            let claim = Some(DispatcherClaim { broker: "broker".to_owned(), until: at });
            let context = Context { rules, spare: Spare::new(at), waited, claim };
            for _ in 0..times {
                let decided =
                    decide(black_box(&state), black_box((&command.0, &command.1)), &context);
                assert!(black_box(decided).is_ok());
            }
        }
        "seal-append" => {
            let (head, draft) = (
                LogHead {
                    tenant: "default".parse().unwrap(),
                    log_id: "0190f5fe-7c00-7a00-8f00-000000000001".to_owned(),
                    size: 0,
                    hash: Vec::new(),
                    tree: Frontier::default(),
                },
                draft(),
            );
            let mut log = LogAppender::new(head);
            for _ in 0..times {
                black_box(log.append(black_box(&draft)));
            }
        }
        other => panic!("no path {other}: gate-4k, commit-4k, decide-submit, seal-append"),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(place) = words.iter().position(|word| word == "--once") {
        return once(&words[place + 1], words[place + 2].parse().unwrap());
    }
    let (gate, small) = (Gate::new(), Tenant::of(2));
    for size in [SMALL, LARGE] {
        stages(&gate, &small, &message(size));
    }
    measuring(&gate, &small);
    tenants(&gate, &small);
}
