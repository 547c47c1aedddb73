//! The columns that no record determines and none commits to. docs/evidence.md shows the same list; `tests/house` compares
//! them, and `tests/api/states.rs` changes each column of the database that is not in it.

/// All columns of a table.
pub const ALL: &str = "*";

/// Table, columns, and the reason for which a false value says nothing false of the past.
pub const OUTSIDE: &[(&str, &[&str], &str)] = &[
    (
        "handoffs",
        &["attempts", "deadline_at", "started_at", "offered_at", "stream_due", "pulse"],
        "times and counts of the work under way: a false one costs a repetition or an early end, which has its record",
    ),
    (
        "handoffs",
        &["fencing_token", "topped_up_nanos"],
        "bases of the next decision: a false one refuses a holder or a message, and the refusal has its record",
    ),
    (
        "handoffs",
        &["mode", "idempotent", "policy", "origin", "stream"],
        "rules that the contract and the message stated, whose contents the records commit to: a false one changes a decision to come, which has its record",
    ),
    (
        "handoffs",
        &["content_id", "sent_id"],
        "places of contents: a false one sends or shows another message of the tenant; trace, bundle and receipt go by the record's",
    ),
    (
        "handoffs",
        &["digest_salt", "digest"],
        "tell a repetition of a submission from another message",
    ),
    (
        "handoffs",
        &["traceparent", "tracestate", "span", "context", "conversation_id", "user_ref"],
        "ways to find a handoff, and figures of its size",
    ),
    (
        "handoffs",
        &["question", "questions"],
        "the list of questions: the records have each question and answer",
    ),
    (
        "tasks",
        &["checkpoint_execution", "checkpoint_seq"],
        "where a sender goes on after a rollback: the record of the rollback commits to the checkpoint",
    ),
    (
        "tasks",
        &["fence", "undelivered", "failures", "course", "updated_at"],
        "counts and times of the work under way",
    ),
    (
        "tasks",
        &["cost_nanos", "left_nanos"],
        "sums of the budget for lists: a page of a task goes by the budget itself",
    ),
    (
        "dead_letters",
        &["failures"],
        "findings: the records have their codes, and their contents have the words",
    ),
    ("escalations", &["escalation_id"], "an address"),
    (
        "escalations",
        &["channel", "resume_as", "timeout_at"],
        "who is told and who takes over at which time, by the contract that the record names: the take-over has its record",
    ),
    ("events", &["audience", "data"], "who is told, and figures"),
    (
        "checkpoints",
        &["agent_id", "created_at"],
        "who may read it, and its age; the record has both",
    ),
    ("contents", &["created_at", "purged_at"], "its age, and whether retention took it"),
    (
        "contents",
        &["segment", "seg_offset", "seg_length"],
        "the place in the archive: a false one is a damaged content",
    ),
    ("personal_data", &["created_at", "erasure_id", "handoff_id"], "its age, and ways to find it"),
    ("api_keys", &["last_used_at"], "the time of the last use"),
    ("caps", &["mark", "books", "updated_at"], "the usage of a cap: a figure"),
    (
        "audit_records",
        &["tree_size"],
        "the size over which a receipt is made: a false one makes no proof",
    ),
    (
        "audit_nodes",
        &["idx"],
        "the place of a node of the tree: a false one makes a proof that fails",
    ),
    (
        "audit_tree_keys",
        &[ALL],
        "public keys: give the verifier the log's key with `--key`, and none of the database counts",
    ),
    ("audit_identity", &[ALL], "which database the log lies in: a start compares it"),
    (
        "tenants",
        &[ALL],
        "the tenant's log is verified all the same: every table that names a tenant is looked at",
    ),
    ("chunks", &[ALL], "how far a stream has come: the records have each chunk, and commit to it"),
    ("erasures", &[ALL], "the progress of an erasure: its certificate goes by its record"),
    (
        "outbox",
        &[ALL],
        "what is delivered next: a false one repeats or delays a delivery; one for another receiver than the handoff's is not sent",
    ),
    (
        "delivery_attempts",
        &[ALL],
        "the last attempts at a handoff: the verdict and the end of a delivery have their records",
    ),
    (
        "receivers_seen",
        &[ALL],
        "observations of receivers for operators: no decision reads them, and deliveries have their records",
    ),
    (
        "receiver_breakers",
        &[ALL],
        "observations of receivers for operators: no decision reads them, and deliveries have their records",
    ),
    (
        "receiver_windows",
        &[ALL],
        "observations of receivers for operators: no decision reads them, and deliveries have their records",
    ),
    ("returns", &[ALL], "tasks that wait for an agent to take them back"),
    ("leases", &[ALL], "which broker works at what"),
    ("brokers", &[ALL], "which brokers run"),
    ("facts", &[ALL], "check values: a start compares them"),
    ("event_cursors", &[ALL], "how far a subscriber was told"),
    ("event_deliveries", &[ALL], "the last attempts to tell a subscriber"),
    ("stream_lines", &[ALL], "how far a receiver was sent a stream"),
    ("opinions_due", &[ALL], "questions to a classifier that wait"),
    ("idempotency_keys", &[ALL], "tell a repetition from a new submission"),
    ("request_keys", &[ALL], "tell a repetition from a new request"),
    (
        "console_sessions",
        &[ALL],
        "who is logged in to the console: the key of each session decides",
    ),
    ("contract_repeats", &[ALL], "messages that a contract lets pass once"),
    ("task_edges", &[ALL], "figures of the loop guard"),
    ("refused_tasks", &[ALL], "refusals before a task began"),
    ("refusals", &[ALL], "the list of refusals: each has its record"),
    ("paused_agents", &[ALL], "an index over the states of agents"),
    ("waiting_tasks", &[ALL], "an index over the states of tasks"),
    ("open_tasks", &[ALL], "an index over the states of tasks"),
    ("closed_tasks", &[ALL], "an index over the states of tasks"),
    ("agent_changes", &[ALL], "tells brokers to read an agent anew"),
    ("archive_marks", &[ALL], "how far the archive has come"),
    ("purge_marks", &[ALL], "how far retention has come"),
    ("two_phase", &[ALL], "transactions in doubt between two databases"),
    ("_sqlx_migrations", &[ALL], "the version of the tables: a start compares it"),
];

/// The list as lines of a table in Markdown.
#[allow(dead_code, reason = "one of the two that include this file writes the table")]
pub fn lines() -> Vec<String> {
    let line = |(table, columns, why): &(&str, &[&str], &str)| {
        let columns = match columns {
            [ALL] => "all".to_owned(),
            columns => {
                columns.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            }
        };
        format!("| `{table}` | {columns} | {why} |")
    };
    OUTSIDE.iter().map(line).collect()
}
