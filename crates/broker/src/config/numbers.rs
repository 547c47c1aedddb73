//! Counts, sizes and times: the bounds of each, and pairs that must fit together.

use super::{Config, ConfigError};
use handoffd_domain::question::LONGEST_ANSWER;

/// The largest count or size that makes sense, and that every queue can take (1 GiB).
const MAX_COUNT: usize = 1 << 30;

/// Longest wait of an acceptance for company: a fraction of any deadline.
const MAX_SETTLE_DELAY_MS: u64 = 10_000;

/// Longest wait of an attempt for its reply: it keeps a slot of its receiver.
const MAX_REPLY_WAIT_MS: u64 = 1_000;

/// Longest grace of a canceled task, as `graceMs` of a call has it (docs/recovery.md): an hour.
const MAX_CANCEL_GRACE_MS: u64 = 3_600_000;

/// Most handoffs of a task: its trace, cost, bundle and report are tried at this many.
const MAX_HOPS: u32 = 10_000;
/// Longest time for which a start leaves passed deadlines alone: an hour.
const MAX_START_GRACE_MS: u64 = 3_600_000;

/// Longest session of the console: 30 days.
const MAX_SESSION_HOURS: u64 = 720;

/// Longest stop, and longest age of the directory's contents: a day. The cache panics above a thousand years.
const DAY_MS: u64 = 86_400_000;

/// Fewest connections to a Postgres database: the store opens two pools.
const MIN_POSTGRES_CONNECTIONS: u32 = 2;

impl Config {
    /// Checks every number that has a bound.
    pub(super) fn check_numbers(&self) -> Result<(), ConfigError> {
        self.check_positive()?;
        self.check_bounded()?;
        self.check_pairs()?;
        self.check_connections()
    }

    /// Counts and times that must be at least 1.
    fn check_positive(&self) -> Result<(), ConfigError> {
        let positive = [
            ("server.max_body_bytes", self.server.max_body_bytes as u64),
            ("server.max_requests", self.server.max_requests as u64),
            ("server.max_waits", self.server.max_waits as u64),
            ("server.max_connections", self.server.max_connections as u64),
            ("server.max_connection_bytes", self.server.max_connection_bytes as u64),
            ("server.max_connections_bytes", self.server.max_connections_bytes as u64),
            ("server.header_timeout_ms", self.server.header_timeout_ms),
            ("server.write_timeout_ms", self.server.write_timeout_ms),
            ("database.max_connections", u64::from(self.database.max_connections)),
            ("ledger.queue", self.ledger.queue as u64),
            ("ledger.batch", self.ledger.batch as u64),
            ("ledger.submissions", self.ledger.submissions as u64),
            ("ledger.workers", self.ledger.workers as u64),
            ("audit.publish_interval_s", self.audit.publish_interval_s),
            ("delivery.max_attempts", u64::from(self.delivery.max_attempts)),
            ("delivery.max_in_flight", self.delivery.max_in_flight as u64),
            ("delivery.poll_ms", self.delivery.poll_ms),
            ("delivery.verdict_timeout_ms", self.delivery.verdict_timeout_ms),
            ("delivery.lease_ms", self.delivery.lease_ms),
            ("delivery.answer_timeout_ms", self.delivery.answer_timeout_ms),
            ("delivery.claim_ttl_ms", self.delivery.claim_ttl_ms),
            ("delivery.unclaimed_ms", self.delivery.unclaimed_ms),
            ("events.retention_days", self.events.retention_days),
            ("events.timeout_ms", self.events.timeout_ms),
            ("events.retry_base_ms", self.events.retry_base_ms),
            ("events.set_aside_after", u64::try_from(self.events.set_aside_after).unwrap_or(0)),
            ("events.lease_ms", self.events.lease_ms),
            ("events.max_in_flight", self.events.max_in_flight as u64),
            ("gate.max_hops", u64::from(self.gate.max_hops)),
            ("gate.max_edge_repeats", u64::from(self.gate.max_edge_repeats)),
            ("gate.max_iterations", self.gate.max_iterations),
            ("context.model.timeout_ms", self.context.model.timeout_ms),
            ("safety.classifier.timeout_ms", self.safety.classifier.timeout_ms),
            ("safety.classifier.max_bytes", self.safety.classifier.max_bytes as u64),
            ("routing.matcher.timeout_ms", self.routing.matcher.timeout_ms),
            ("routing.matcher.max_agents", self.routing.matcher.max_agents as u64),
            ("recovery.escalation_timeout_ms", self.recovery.escalation_timeout_ms),
            ("recovery.max_checkpoint_bytes", self.recovery.max_checkpoint_bytes as u64),
            ("stream.idle_ms", self.stream.idle_ms),
            ("stream.max_chunk_bytes", self.stream.max_chunk_bytes as u64),
            ("stream.max_bytes", self.stream.max_bytes),
            ("stream.max_chunks", u64::from(self.stream.max_chunks)),
            ("erasure.page", self.erasure.page as u64),
            ("delivery.breaker_failures", u64::from(self.delivery.breaker_failures)),
            ("retention.delete_interval_s", self.retention.delete_interval_s),
            ("retention.segment_records", self.retention.segment_records as u64),
            ("retention.segment_bytes", self.retention.segment_bytes as u64),
            ("doors.a2a.poll_ms", self.doors.a2a.poll_ms),
            ("doors.a2a.silence_ms", self.doors.a2a.silence_ms),
            ("console.session_hours", u64::from(self.console.session_hours)),
            ("console.idle_minutes", u64::from(self.console.idle_minutes)),
            ("console.logins_per_minute", u64::from(self.console.logins_per_minute)),
            ("delivery.retry_budget_per_s", u64::from(self.delivery.retry_budget_per_s)),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError(format!("{name} must be at least 1")));
        }
        Ok(())
    }

    /// Counts and sizes that have an upper bound.
    fn check_bounded(&self) -> Result<(), ConfigError> {
        let bounded = [
            ("server.max_body_bytes", self.server.max_body_bytes),
            ("server.max_large_bytes", self.server.max_large_bytes),
            ("server.max_requests", self.server.max_requests),
            ("server.max_waits", self.server.max_waits),
            ("server.max_connections", self.server.max_connections),
            ("server.max_connection_bytes", self.server.max_connection_bytes),
            ("server.max_connections_bytes", self.server.max_connections_bytes),
            ("ledger.queue", self.ledger.queue),
            ("ledger.batch", self.ledger.batch),
            ("ledger.submissions", self.ledger.submissions),
            ("ledger.submissions_each", self.ledger.submissions_each),
            ("ledger.workers", self.ledger.workers),
            ("delivery.max_in_flight", self.delivery.max_in_flight),
            ("retention.segment_records", self.retention.segment_records),
            ("retention.segment_bytes", self.retention.segment_bytes),
            ("retention.cache_bytes", self.retention.cache_bytes),
            ("events.max_in_flight", self.events.max_in_flight),
            ("events.max_streams", self.events.max_streams),
            ("erasure.page", self.erasure.page),
            ("safety.classifier.max_bytes", self.safety.classifier.max_bytes),
            ("routing.matcher.max_agents", self.routing.matcher.max_agents),
        ];
        if let Some((name, _)) = bounded.iter().find(|(_, value)| *value > MAX_COUNT) {
            return Err(ConfigError(format!("{name} must be at most {MAX_COUNT}")));
        }
        if self.gate.max_hops > MAX_HOPS {
            return Err(ConfigError(format!("gate.max_hops must be at most {MAX_HOPS}")));
        }
        let longest_answer = u64::try_from(LONGEST_ANSWER.as_millis()).unwrap_or(u64::MAX);
        let times = [
            ("delivery.answer_timeout_ms", self.delivery.answer_timeout_ms, longest_answer),
            ("transports.reply_wait_ms", self.transports.reply_wait_ms, MAX_REPLY_WAIT_MS),
            ("ledger.settle_delay_ms", self.ledger.settle_delay_ms, MAX_SETTLE_DELAY_MS),
            ("recovery.cancel_grace_ms", self.recovery.cancel_grace_ms, MAX_CANCEL_GRACE_MS),
            ("recovery.start_grace_ms", self.recovery.start_grace_ms, MAX_START_GRACE_MS),
            ("server.stop_timeout_ms", self.server.stop_timeout_ms, DAY_MS),
            ("server.header_timeout_ms", self.server.header_timeout_ms, DAY_MS),
            ("server.write_timeout_ms", self.server.write_timeout_ms, DAY_MS),
            ("auth.cache_ttl_ms", self.auth.cache_ttl_ms, DAY_MS),
            ("console.session_hours", u64::from(self.console.session_hours), MAX_SESSION_HOURS),
            ("console.idle_minutes", u64::from(self.console.idle_minutes), MAX_SESSION_HOURS * 60),
        ];
        if let Some((name, _, most)) = times.iter().find(|(_, value, most)| value > most) {
            return Err(ConfigError(format!("{name} must be at most {most}")));
        }
        Ok(())
    }

    /// Pairs of settings of which the first must not be above the second.
    fn check_pairs(&self) -> Result<(), ConfigError> {
        let (delivery, events) = (&self.delivery, &self.events);
        let (a2a, stream) = (&self.doors.a2a, &self.stream);
        let pairs = [
            (
                ("delivery.retry_base_ms", delivery.retry_base_ms),
                ("delivery.retry_cap_ms", delivery.retry_cap_ms),
            ),
            (
                ("events.retry_base_ms", events.retry_base_ms),
                ("events.retry_cap_ms", events.retry_cap_ms),
            ),
            (
                ("server.max_connection_bytes", self.server.max_connection_bytes as u64),
                ("server.max_connections_bytes", self.server.max_connections_bytes as u64),
            ),
            (("doors.a2a.poll_ms", a2a.poll_ms), ("doors.a2a.poll_max_ms", a2a.poll_max_ms)),
            (
                ("stream.max_chunk_bytes", stream.max_chunk_bytes as u64),
                ("stream.max_bytes", stream.max_bytes),
            ),
        ];
        for ((name, value), (upper, most)) in pairs {
            if value > most {
                return Err(ConfigError(format!("{name} must not be above {upper}")));
            }
        }
        Ok(())
    }

    /// Connections to Postgres: batches have a quarter of them, and one at least; all else has the others.
    fn check_connections(&self) -> Result<(), ConfigError> {
        let postgres = self.database_url().starts_with("postgres");
        if postgres && self.database.max_connections < MIN_POSTGRES_CONNECTIONS {
            let why = "on Postgres: one connection for batches, one for all else";
            return Err(ConfigError(format!(
                "database.max_connections must be at least {MIN_POSTGRES_CONNECTIONS} {why}"
            )));
        }
        Ok(())
    }
}
