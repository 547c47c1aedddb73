//! `handoffs`: route, status, token, deadline, cost, and the salted digest of the submission.
//!
//! A row, and how it changes:
//!
//! - `handoffs`: a handoff: route, status, token, deadline, cost, salted digest of the submission, conversation, the
//!   reference to its user. `questions` has the receiver's questions as JSON with content ids and salted digests.
//!   Updated until it ends.

use crate::store::HandoffKey;
use crate::store::driver::{by_each_driver, in_memory};
use crate::store::lists::{Cursor, HandoffFilter};
use crate::store::query::{Dialect, Row, Statement, Texts, unreadable};
use crate::store::rows::{
    checkpoint_ref, context, get, handoff_status, hash32_opt, micros, micros_opt, mode, parse,
    parse_opt, ruling,
};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::handoff::{Cost, Handoff};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::lease::HolderPulse;
use handoffd_domain::money::Usd;
use handoffd_domain::question;
use handoffd_domain::stream::Stream;
use std::collections::HashMap;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("handoffs", "SELECT, INSERT, UPDATE")];

/// The columns, as a statement lists them.
pub(in crate::store) const HANDOFF: &str = HANDOFFS.list;

table! {
    /// Only an erasure changes the fixed columns (the digest, `tracestate`, the conversation and the user). An update writes
    /// a row that was read earlier, and would restore the erased values.
    HANDOFFS: Handoff = "handoffs" by 2 {
        "tenant" Text: |handoff| &handoff.tenant,
        "handoff_id" Text: |handoff| handoff.id,
        "task_id" Text fixed: |handoff| handoff.task_id,
        "parent_id" Text fixed: |handoff| handoff.parent_id,
        "source" Text fixed: |handoff| &handoff.source,
        "source_version" Text fixed: |handoff| &handoff.source_version,
        "source_execution" Text fixed: |handoff| handoff.source_execution,
        "target" Text: |handoff| &handoff.target,
        "target_type" Text: |handoff| &handoff.target_type,
        "target_version" Text: |handoff| &handoff.target_version,
        "mode" Text: |handoff| handoff.mode.as_str(),
        "status" Text: |handoff| handoff.status.stored(),
        "fencing_token" Long: |handoff| handoff.fencing_token,
        "attempts" Int: |handoff| handoff.attempts,
        "deadline_at" Long: |handoff| handoff.deadline_at,
        "spent_nanos" Long: |handoff| handoff.cost.spent.0,
        "remaining_nanos" Long: |handoff| handoff.cost.remaining.0,
        "prompt_tokens" Long: |handoff| i64::try_from(handoff.cost.prompt_tokens).unwrap_or(i64::MAX),
        "completion_tokens" Long: |handoff| i64::try_from(handoff.cost.completion_tokens).unwrap_or(i64::MAX),
        "idempotent" Flag: |handoff| handoff.idempotent,
        "checkpoint_execution" Text: |handoff| handoff.checkpoint.map(|at| at.execution_id),
        "checkpoint_seq" Long: |handoff| handoff.checkpoint.map(|at| at.seq),
        "content_id" Text: |handoff| handoff.content_id.map(|id| id.to_string()),
        "digest_salt" Bytes fixed: |handoff| &handoff.digest_salt,
        "digest" Bytes fixed: |handoff| &handoff.digest,
        "reason" Text: |handoff| handoff.reason.as_deref(),
        "traceparent" Text fixed: |handoff| &handoff.traceparent,
        "created_at" Long fixed: |handoff| handoff.created_at,
        "accepted_at" Long: |handoff| handoff.accepted_at,
        "ended_at" Long: |handoff| handoff.ended_at,
        "policy" Text: |handoff| handoff.ruling.as_ref().map(|ruling| ruling.to_text()),
        "commitment" Bytes: |handoff| handoff.commitment.as_ref(),
        "checkpoint_commitment" Bytes: |handoff| handoff.checkpoint_commitment.as_ref(),
        "topped_up_nanos" Long: |handoff| handoff.topped_up.0,
        "origin" Text fixed: |handoff| handoff.origin,
        "tracestate" Text fixed: |handoff| &handoff.tracestate,
        "span" Text fixed: |handoff| &handoff.span,
        "started_at" Long: |handoff| handoff.clock.started_at,
        "offered_at" Long: |handoff| handoff.clock.offered_at,
        "context" Text: |handoff| handoff.context.map(|facts| facts.to_text()),
        "sent_id" Text: |handoff| handoff.sent_id.map(|id| id.to_string()),
        "question" Long: |handoff| handoff.open_question().map(i64::from),
        "questions" Text: |handoff| question::to_text(&handoff.questions),
        "conversation_id" Text fixed: |handoff| handoff.conversation_id.as_deref(),
        "stream" Text: |handoff| handoff.stream.as_ref().map(Stream::to_text),
        "stream_due" Long: |handoff| handoff.stream.as_ref().and_then(|stream| stream.due_at),
        "pulse" Text: |handoff| handoff.pulse.as_ref().map(HolderPulse::to_text),
        "user_ref" Text fixed: |handoff| handoff.user_ref.as_deref(),
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<Handoff> {
    Ok(Handoff {
        tenant: parse(row, "tenant")?,
        id: parse(row, "handoff_id")?,
        task_id: parse(row, "task_id")?,
        parent_id: parse_opt(row, "parent_id")?,
        source: parse(row, "source")?,
        source_version: get(row, "source_version")?,
        source_execution: parse(row, "source_execution")?,
        target: parse(row, "target")?,
        target_type: get(row, "target_type")?,
        target_version: get(row, "target_version")?,
        mode: mode(row)?,
        status: handoff_status(row)?,
        fencing_token: get(row, "fencing_token")?,
        attempts: get(row, "attempts")?,
        deadline_at: micros_opt(row, "deadline_at")?,
        pulse: pulse(row)?,
        cost: Cost {
            spent: Usd(get(row, "spent_nanos")?),
            remaining: Usd(get(row, "remaining_nanos")?),
            prompt_tokens: get::<i64>(row, "prompt_tokens")?.max(0) as u64,
            completion_tokens: get::<i64>(row, "completion_tokens")?.max(0) as u64,
        },
        idempotent: get(row, "idempotent")?,
        checkpoint: checkpoint_ref(row)?,
        content_id: parse_opt(row, "content_id")?,
        digest_salt: get(row, "digest_salt")?,
        digest: get(row, "digest")?,
        reason: get(row, "reason")?,
        traceparent: get(row, "traceparent")?,
        created_at: micros(row, "created_at")?,
        accepted_at: micros_opt(row, "accepted_at")?,
        ended_at: micros_opt(row, "ended_at")?,
        ruling: ruling(row)?,
        context: context(row)?,
        sent_id: parse_opt(row, "sent_id")?,
        questions: questions(row)?,
        conversation_id: get(row, "conversation_id")?,
        user_ref: get(row, "user_ref")?,
        stream: stream(row)?,
        commitment: hash32_opt(row, "commitment")?,
        checkpoint_commitment: hash32_opt(row, "checkpoint_commitment")?,
        topped_up: Usd(get(row, "topped_up_nanos")?),
        origin: parse_opt(row, "origin")?,
        tracestate: get(row, "tracestate")?,
        span: get(row, "span")?,
        clock: LatencyClock {
            // For rows of 0.1.0 the commit is the earliest known time.
            started_at: micros_opt(row, "started_at")?
                .map_or_else(|| micros(row, "created_at"), Ok)?,
            offered_at: micros_opt(row, "offered_at")?,
        },
    })
}

/// Adds a row to those that a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let handoff = decode(row)?;
    state.handoffs.insert((handoff.tenant.clone(), handoff.id), handoff);
    Ok(())
}

fn questions(row: &dyn Row) -> Result<Vec<handoffd_domain::question::Question>> {
    get::<Option<&str>>(row, "questions")?
        .map(serde_json::from_str)
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|err| unreadable("questions", err))
}

fn stream(row: &dyn Row) -> Result<Option<handoffd_domain::stream::Stream>> {
    get::<Option<&str>>(row, "stream")?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|err| unreadable("stream", err))
}

fn pulse(row: &dyn Row) -> Result<Option<handoffd_domain::lease::HolderPulse>> {
    get::<Option<&str>>(row, "pulse")?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|err| unreadable("pulse", err))
}

/// See [`crate::store::Store::list_overdue`].
pub(in crate::store) fn overdue(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT {HANDOFF} FROM handoffs \
         WHERE deadline_at IS NOT NULL AND status IN ('PENDING', 'ACCEPTED') AND deadline_at <= ? \
         AND NOT (status = 'PENDING' AND EXISTS (SELECT 1 FROM paused_agents AS p \
           WHERE p.tenant = handoffs.tenant AND p.agent_id = handoffs.target)) \
         ORDER BY deadline_at, handoff_id LIMIT ?"
        ),
        Dialect::Postgres => format!(
            "SELECT {HANDOFF} FROM handoffs WHERE deadline_at IS NOT NULL AND deadline_at <= $1 \
         AND status IN ('PENDING', 'ACCEPTED') \
         AND NOT (status = 'PENDING' AND EXISTS (SELECT 1 FROM paused_agents AS p \
           WHERE p.tenant = handoffs.tenant AND p.agent_id = handoffs.target)) \
         ORDER BY deadline_at, handoff_id LIMIT $2"
        ),
    }
}

/// See [`crate::store::Store::count_open`].
///
/// Postgres: Walks the receivers by the index of open handoffs, one step each. Grouped, the planner may read all of a tenant's
/// handoffs, closed ones too: it cannot know how few are open.
pub(in crate::store) const OPEN: Texts = Texts {
    sqlite: "SELECT target, min(count(*), ?1) AS open FROM handoffs \
               WHERE tenant = ?2 AND status IN ('PENDING', 'ACCEPTED') GROUP BY target",
    postgres: "WITH RECURSIVE receivers AS ( \
       (SELECT h.target FROM handoffs AS h \
         WHERE h.tenant = $1 AND h.status IN ('PENDING', 'ACCEPTED') ORDER BY h.target LIMIT 1) \
       UNION ALL \
       SELECT n.target FROM receivers AS r CROSS JOIN LATERAL ( \
         SELECT h.target FROM handoffs AS h WHERE h.tenant = $1 AND h.target > r.target \
           AND h.status IN ('PENDING', 'ACCEPTED') ORDER BY h.target LIMIT 1) AS n) \
     SELECT r.target, c.open FROM receivers AS r CROSS JOIN LATERAL ( \
       SELECT count(*) AS open FROM (SELECT FROM handoffs AS h WHERE h.tenant = $1 \
         AND h.target = r.target AND h.status IN ('PENDING', 'ACCEPTED') LIMIT $2) AS o) AS c",
};

/// Handoffs that stand in for these. They are found by their tasks, which have an index.
pub(in crate::store) const STAND_INS: Texts = Texts {
    sqlite: "WITH wanted AS MATERIALIZED (SELECT value AS id FROM json_each(?1)), \
           touched AS MATERIALIZED (SELECT DISTINCT h.task_id AS id FROM wanted AS w \
             CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = w.id) \
         SELECT h.handoff_id FROM touched AS t \
         CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.task_id = t.id \
         WHERE h.origin IN (SELECT id FROM wanted) ORDER BY h.handoff_id",
    postgres: "SELECT h.handoff_id FROM UNNEST($2::text[]) AS t(task_id) \
         JOIN handoffs AS h ON h.tenant = $1 AND h.task_id = t.task_id \
         WHERE h.origin = ANY($3) ORDER BY h.handoff_id",
};

/// The tasks of these handoffs, refused ones included.
pub(in crate::store) const TASKS: Texts = Texts {
    sqlite: "WITH wanted AS MATERIALIZED (SELECT value AS id FROM json_each(?1)) \
         SELECT h.task_id FROM wanted AS w \
           CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = w.id \
         UNION SELECT d.task_id FROM wanted AS w \
           CROSS JOIN dead_letters AS d ON d.tenant = ?2 AND d.handoff_id = w.id \
         ORDER BY task_id",
    postgres: "SELECT task_id FROM handoffs WHERE tenant = $1 AND handoff_id = ANY($2) \
         UNION SELECT task_id FROM dead_letters WHERE tenant = $1 AND handoff_id = ANY($2)",
};

/// All handoffs of these tasks.
pub(in crate::store) const OF_TASKS: Texts = Texts {
    sqlite: "SELECT h.handoff_id FROM json_each(?1) AS t \
         CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.task_id = t.value ORDER BY h.handoff_id",
    postgres: "SELECT h.handoff_id FROM UNNEST($2::text[]) AS t(task_id) \
         JOIN handoffs AS h ON h.tenant = $1 AND h.task_id = t.task_id ORDER BY h.handoff_id",
};

/// Which of these handoffs' rows still hold what goes with a content.
pub(in crate::store) const UNCLEAN: Texts = Texts {
    sqlite: "SELECT w.value AS handoff_id FROM json_each(?2) AS w WHERE \
           EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = ?1 AND h.handoff_id = w.value \
             AND (length(h.digest) > 0 OR h.reason GLOB '*[^A-Z0-9_]*')) \
           OR EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.tenant = ?1 \
             AND d.handoff_id = w.value AND d.failures <> '[]') \
           OR EXISTS (SELECT 1 FROM delivery_attempts AS a WHERE a.tenant = ?1 \
             AND a.handoff_id = w.value)",
    postgres: "SELECT w.handoff_id FROM UNNEST($2::text[]) AS w(handoff_id) WHERE \
           EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = $1 \
             AND h.handoff_id = w.handoff_id \
             AND (length(h.digest) > 0 OR h.reason ~ '[^A-Z0-9_]')) \
           OR EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.tenant = $1 \
             AND d.handoff_id = w.handoff_id AND d.failures <> '[]') \
           OR EXISTS (SELECT 1 FROM delivery_attempts AS a WHERE a.tenant = $1 \
             AND a.handoff_id = w.handoff_id)",
};

/// Erases the columns that stem from a message.
pub(in crate::store) const ERASE: Texts = Texts {
    sqlite: "UPDATE handoffs SET digest_salt = x'', digest = x'', tracestate = '', \
               conversation_id = NULL, user_ref = NULL \
               WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))",
    postgres: "UPDATE handoffs SET digest_salt = '', digest = '', tracestate = '', \
               conversation_id = NULL, user_ref = NULL WHERE tenant = $1 AND handoff_id = ANY($2)",
};

/// Erases a person from handoffs. Postgres locks them in key order, as batches do.
pub(in crate::store) const ERASE_PERSON: Texts = Texts {
    sqlite: "UPDATE handoffs SET user_ref = NULL WHERE tenant = ? AND user_ref = ?",
    postgres: "WITH named AS MATERIALIZED ( \
               SELECT h.tenant, h.handoff_id FROM handoffs AS h \
               WHERE h.tenant = $1 AND h.user_ref = $2 \
               ORDER BY h.tenant, h.handoff_id FOR UPDATE OF h) \
             UPDATE handoffs AS h SET user_ref = NULL FROM named \
             WHERE h.tenant = named.tenant AND h.handoff_id = named.handoff_id",
};

/// Erases reasons: only what is a code stays.
pub(in crate::store) const ERASE_REASON: Texts = Texts {
    sqlite: "UPDATE handoffs SET reason = NULL WHERE tenant = ? \
                   AND handoff_id IN (SELECT value FROM json_each(?)) \
                   AND reason GLOB '*[^A-Z0-9_]*'",
    postgres: "UPDATE handoffs SET reason = NULL \
                   WHERE tenant = $1 AND handoff_id = ANY($2) AND reason ~ '[^A-Z0-9_]'",
};

/// SQLite: see [`crate::store::Store::list_unrecorded`].
pub(in crate::store) const UNRECORDED: &str = "SELECT handoff_id FROM handoffs AS h WHERE tenant = ? AND NOT EXISTS \
           (SELECT 1 FROM audit_records AS r \
            WHERE r.tenant = h.tenant AND r.handoff_id = h.handoff_id \
              AND (kind = 'HANDOFF' OR kind = 'DEAD_LETTERED' OR kind = 'NO_OP')) \
         ORDER BY handoff_id LIMIT ?";

/// Postgres: a page of handoffs, which is compared with the log.
pub(in crate::store) const PAGE: &str = "SELECT handoff_id FROM handoffs WHERE tenant = $1 AND handoff_id > $2 \
             ORDER BY handoff_id LIMIT $3";

impl Store {
    /// Open handoffs by receiver, counted up to [`MOST_OPEN`](crate::store::MOST_OPEN) for each: a difference above that is not a reason to
    /// prefer one of two receivers, and counting costs a look at each handoff.
    pub async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
        by_each_driver!(self, db => db.count_open(tenant))
    }

    pub async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>> {
        in_memory!(self, db => db.find_handoff(key));
        let text = format!("SELECT {HANDOFF} FROM handoffs WHERE tenant = $1 AND handoff_id = $2");
        let find = Statement::new(text).of(HANDOFFS.shape.columns);
        self.find(find.bind(&key.0).bind(key.1), decode).await
    }

    /// Handoffs, newest first.
    pub async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        by_each_driver!(self, db => db.list_handoffs(tenant, filter, after, limit))
    }

    /// Open handoffs past their deadline.
    pub async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        by_each_driver!(self, db => db.list_overdue(now, limit))
    }
}
