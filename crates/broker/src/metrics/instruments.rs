//! Every instrument, declared once: field, kind, name, help and labels. Names follow Prometheus' conventions, with the
//! prefix `handoff_` and base units; labels are bounded sets.

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

type Result<T> = std::result::Result<T, prometheus::Error>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstrumentDescription {
    pub name: String,
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<String>,
}

/// Seconds, fine below the seed's limits of 200 ms and 500 ms and reaching to a minute.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0];
/// Seconds for what happens inside the process.
const FINE_SECONDS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.25, 1.0];
/// Seconds for each pair of agents: the seed's limits, and little more, for there are many pairs.
const PAIR_SECONDS: [f64; 7] = [0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 60.0];
/// Tokens of a message: up to the largest windows.
const TOKENS: [f64; 10] = [
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    25_000.0,
    50_000.0,
    100_000.0,
    250_000.0,
    1_000_000.0,
];
/// Shares of a sender's spending, around the seed's bound.
const COST_SHARES: [f64; 6] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.5];
/// Shares of a whole, and beyond.
const SHARES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0, 1.25];
const PAIR: [&str; 3] = ["tenant", "source", "target"];
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Registers instruments, and keeps their descriptions.
#[derive(Default)]
pub(super) struct Registrar {
    pub(super) registry: Registry,
    pub(super) described: Vec<InstrumentDescription>,
}

impl Registrar {
    fn add<C: Collector + Clone + 'static>(&mut self, made: C, kind: &'static str) -> Result<C> {
        for one in made.desc() {
            self.described.push(InstrumentDescription {
                name: one.fq_name.clone(),
                help: one.help.clone(),
                kind,
                labels: one.variable_labels.clone(),
            });
        }
        self.registry.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn counter(&mut self, name: &str, help: &str) -> Result<IntCounter> {
        self.add(IntCounter::new(name, help)?, "counter")
    }

    fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?, "counter")
    }

    fn gauge(&mut self, name: &str, help: &str) -> Result<IntGauge> {
        self.add(IntGauge::new(name, help)?, "gauge")
    }

    fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?, "gauge")
    }

    fn floats(&mut self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(name, help), labels)?, "gauge")
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(options)?, "histogram")
    }

    fn histograms(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(options, labels)?, "histogram")
    }
}

/// The type of a kind of instrument; each kind is a method of [`Registrar`], too.
macro_rules! instrument {
    (counter) => {
        IntCounter
    };
    (counters) => {
        IntCounterVec
    };
    (gauge) => {
        IntGauge
    };
    (gauges) => {
        IntGaugeVec
    };
    (floats) => {
        GaugeVec
    };
    (histogram) => {
        Histogram
    };
    (histograms) => {
        HistogramVec
    };
}

/// A group of instruments: from each row `field: kind(name, help, ...)` come the field, with the help as its
/// documentation, and the registration.
macro_rules! instruments {
    (
        $(#[$meta:meta])*
        pub struct $group:ident {
            $($vis:vis $field:ident: $kind:ident($name:literal, $help:literal $(, $more:expr)* $(,)?),)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $group {
            $(#[doc = $help] $vis $field: instrument!($kind),)*
        }

        impl $group {
            pub(super) fn register(registrar: &mut Registrar) -> Result<Self> {
                Ok(Self { $($field: registrar.$kind($name, $help $(, $more)*)?,)* })
            }
        }
    };
}

instruments! {
    /// Instruments of one broker outside the groups below.
    pub struct Instruments {
        pub submissions: counters(
            "handoff_submissions_total",
            "Submissions by result, each counted once, after the ledger's commit: accepted, no_op, refused; replayed (the first answer repeated); conflict, unavailable, failed (nothing was recorded).",
            &["result"],
        ),
        pub rejections: counters(
            "handoff_rejections_total",
            "Refused submissions by reason; one with several reasons counts once under each.",
            &["reason"],
        ),
        pub findings: counters(
            "handoff_findings_total",
            "Findings of refused submissions, by reason.",
            &["reason"],
        ),
        pub refusals: counters(
            "handoff_refusals_total",
            "Refused submissions by class of reason, once under each class: validation, safety, access, loop.",
            &["class"],
        ),
        pub context_tokens: histograms(
            "handoff_context_tokens",
            "Tokens of a submitted message as its receiver gets it, by what became of it: none, flag, compress, refuse.",
            &TOKENS,
            &["action"],
        ),
        pub context_parts: counters(
            "handoff_context_part_tokens_total",
            "Tokens of submitted messages by part: summary, turns, state, tools, context.",
            &["part"],
        ),
        pub compressions: counters(
            "handoff_compressions_total",
            "Messages compressed for their receivers, by compressor: extractive, model, trimming.",
            &["by"],
        ),
        pub compressions_over: counter(
            "handoff_compressions_over_limit_total",
            "Compressed messages that are over their receiver's limit all the same: turns that stay, or the state, are too large.",
        ),
        pub compression_fallbacks: counters(
            "handoff_compression_fallbacks_total",
            "Compressions for which the embedded compressor took the model's place, by reason.",
            &["reason"],
        ),
        pub compression_facts: counters(
            "handoff_compression_facts_total",
            "Facts in the replaced text: kept by the summary, appended by the fidelity check, lost.",
            &["result"],
        ),
        pub compression_seconds: histogram(
            "handoff_compression_seconds",
            "Time to compress a message, a model's answer included.",
            &SECONDS,
        ),
        pub compression_cost_share: histogram(
            "handoff_compression_cost_share",
            "Cost of a model's summary as a share of the spending that the sender states (the bound is 0.05).",
            &COST_SHARES,
        ),
        pub chunks: counters(
            "handoff_chunks_total",
            "Chunks of handoffs in pieces, by outcome: taken, replayed, out_of_order, refused, sent, retried.",
            &["outcome"],
        ),
        pub streams_opened: counter(
            "handoff_streams_opened_total",
            "Handoffs committed whose message comes in pieces.",
        ),
        pub streams_ended: counters(
            "handoff_streams_ended_total",
            "Streams of handoffs that ended, by outcome: closed, aborted, timeout, refused, ended.",
            &["outcome"],
        ),
        pub chunk_seconds: histograms(
            "handoff_chunk_seconds",
            "Time from the commit of a chunk until its receiver has it, by transport: webhook, pull.",
            &SECONDS,
            &["transport"],
        ),
        pub safety_flagged: counter(
            "handoff_safety_flagged_total",
            "Submissions with a safety finding, refused or only observed.",
        ),
        pub safety_findings: counters(
            "handoff_safety_findings_total",
            "Safety findings that refuse a message or a result, by rule.",
            &["rule"],
        ),
        pub agent_refusals: counters(
            "handoff_agent_refusals_total",
            "Refused submissions by sender and first reason; senders beyond the bound count as `other`.",
            &["tenant", "agent", "code"],
        ),
        pub cap_refusals: counters(
            "handoff_cap_refusals_total",
            "Submissions refused because a rolling cap has no room, by whose cap: tenant or agent.",
            &["scope"],
        ),
        pub cap_use: histograms(
            "handoff_cap_use_ratio",
            "The used share of a rolling cap (spent and reserved, divided by the cap) at each entry, by scope (tenant or agent) and unit (usd or tokens).",
            &SHARES, &["scope", "unit"],
        ),
        pub safety_marked: counters(
            "handoff_safety_marked_total",
            "Orders inside tools' outputs and data that were marked, by rule.",
            &["rule"],
        ),
        pub safety_observed: counters(
            "handoff_safety_observed_total",
            "Safety findings that refuse neither the message nor the result they are in, by rule.",
            &["rule"],
        ),
        pub classifier_verdicts: counters(
            "handoff_safety_classifier_verdicts_total",
            "Verdicts of the external safety classifier: SAFE, UNSAFE, or NONE where it did not answer.",
            &["verdict"],
        ),
        pub opinions_due: gauge(
            "handoff_safety_opinions_due",
            "Committed messages that the external safety classifier is still to be asked about.",
        ),
        pub matcher_answers: counters(
            "handoff_matcher_answers_total",
            "Requests to the external matcher: ranked, or none where the broker ranked by text relevance instead.",
            &["outcome"],
        ),
        pub allowlist_violations: counter(
            "handoff_allowlist_violations_total",
            "Handoffs to a target that is not on the sender's allowlist.",
        ),
        pub gate_seconds: histogram(
            "handoff_gate_duration_seconds",
            "Time that the gate took for one message.",
            &FINE_SECONDS,
        ),
        pub ledger_commit_seconds: histogram(
            "handoff_ledger_commit_duration_seconds",
            "Time from taking a batch to its durable commit.",
            &FINE_SECONDS,
        ),
        pub ledger_batch_size: histogram(
            "handoff_ledger_batch_commands",
            "Commands that shared one transaction.",
            &SIZES,
        ),
        pub ledger_overloads: counter(
            "handoff_ledger_overloads_total",
            "Commands refused because the ledger's queue was full.",
        ),
        pub submissions_waiting: gauge(
            "handoff_submissions_waiting",
            "Submissions that wait for a place (ledger.submissions).",
        ),
        pub ledger_in_doubt: gauge(
            "handoff_ledger_batches_prepared",
            "Batches prepared on the log's database (audit.database_url) at the last check; a batch that stays is in doubt.",
        ),
        pub ledger_in_doubt_ended: counter(
            "handoff_ledger_batches_in_doubt_ended_total",
            "Prepared batches that another broker left and this broker ended.",
        ),
        pub records_total: counter("handoff_records_total", "Audit records appended."),
        pub attempts: counters(
            "handoff_delivery_attempts_total",
            "Attempts at delivery by transport and outcome; `none` is the transport of an attempt that sent nothing.",
            &["transport", "outcome"],
        ),
        pub replies: counters(
            "handoff_replies_total",
            "Verdicts on reply channels, by transport and result: taken, later, malformed, too_large, signature, timestamp, or the code of the refusal in lower case.",
            &["transport", "result"],
        ),
        pub queue_submissions: counters(
            "handoff_queue_submissions_total",
            "Handoffs that came in by a transport other than HTTP, by transport and result: committed, refused, parked, later.",
            &["transport", "result"],
        ),
        pub claim_checks: counters(
            "handoff_claim_checks_total",
            "Attempts that sent a link in the place of a body which is too large for the transport, by transport.",
            &["transport"],
        ),
        pub attempt_seconds: histograms(
            "handoff_attempt_duration_seconds",
            "Time one attempt at delivery took, from its request to the receiver's answer, by transport.",
            &SECONDS, &["transport"],
        ),
        pub(super) latency_seconds: histograms(
            "handoff_latency_seconds",
            "Time from the first byte of a handoff's request to its acceptance, by transport; for a released dead letter, from its release.",
            &SECONDS, &["transport"],
        ),
        pub(super) broker_seconds: histograms(
            "handoff_broker_duration_seconds",
            "The broker's share of the latency: until the first attempt began, or the handoff was committed to an inbox; by transport.",
            &SECONDS, &["transport"],
        ),
        pub(super) receiver_seconds: histograms(
            "handoff_receiver_duration_seconds",
            "The receiver's share of the latency: from the end of the broker's share to acceptance, further attempts and the wait in an inbox included; by transport.",
            &SECONDS, &["transport"],
        ),
        pub(super) latency_over: counters(
            "handoff_latency_over_total",
            "Accepted handoffs that took longer than a limit of their transport, by transport and limit: p99, max.",
            &["transport", "limit"],
        ),
        pub(super) pair_latency_seconds: histograms(
            "handoff_pair_latency_seconds",
            "Time from the first byte of a handoff's request to its acceptance, by pair of agents; of each tenant the first 100 pairs and then the busiest, 200 at most, the rest `other`.",
            &PAIR_SECONDS, &PAIR,
        ),
        pub(super) pair_latency_over: counters(
            "handoff_pair_latency_over_total",
            "Accepted handoffs that took longer than the p99 objective of their transport, by pair of agents; of each tenant the first 100 pairs and then the busiest, 200 at most, the rest `other`.",
            &PAIR,
        ),
        pub pair_handoffs: counters(
            "handoff_pair_handoffs_total",
            "Handoffs by pair of agents and the status they reached; of each tenant the first 100 pairs and then the busiest, 200 at most, the rest `other`.",
            &["tenant", "source", "target", "status"],
        ),
        pub contract_metrics: counters(
            "handoff_contract_metrics_total",
            "Counts of contracts' metrics (observability.metrics), by contract and metric; beyond 200 series other.",
            &["contract", "metric"],
        ),
        pub contract_seconds: histograms(
            "handoff_contract_metric_seconds",
            "Durations of contracts' metrics, from a handoff's first byte to its acceptance, by contract and metric; beyond 200 series other.",
            &SECONDS, &["contract", "metric"],
        ),
        pub store_connections: gauges(
            "handoff_store_connections",
            "Connections to the store, by state.",
            &["state"],
        ),
        pub handoffs: counters(
            "handoff_handoffs_total",
            "Handoffs by the status they reached, also with the end of their task or group.",
            &["status"],
        ),
        pub questions: counters(
            "handoff_questions_total",
            "Questions of receivers to the senders of their handoffs, by what was committed: asked or answered.",
            &["event"],
        ),
        pub rollbacks: counter(
            "handoff_rollbacks_total",
            "Tasks rolled back to their sender's checkpoint.",
        ),
        pub groups: counters(
            "handoff_groups_total",
            "Handoffs to several receivers that ended, by what they asked for and what they came to.",
            &["join", "outcome"],
        ),
        pub events: counters("handoff_events_total", "Events by type.", &["type"]),
        pub event_deliveries: counters(
            "handoff_event_deliveries_total",
            "Attempts to deliver an event to a subscriber, by outcome.",
            &["outcome"],
        ),
        pub event_lag_seconds: histogram(
            "handoff_event_lag_seconds",
            "Time from an event to its delivery to a subscriber.",
            &SECONDS,
        ),
        pub subscribers_disabled: counter(
            "handoff_event_subscribers_disabled_total",
            "Subscribers whose event delivery the broker disabled.",
        ),
        pub dead_letter_decisions: counters(
            "handoff_dead_letter_decisions_total",
            "Decisions on dead letters, by result.",
            &["result"],
        ),
        pub escalations_total: counter("handoff_escalations_total", "Escalations opened."),
        pub escalations_resolved: counter(
            "handoff_escalations_resolved_total",
            "Escalations decided, by a person or by time.",
        ),
        pub escalations: gauge("handoff_escalations", "Escalations that wait for a person."),
        pub tasks_idle: gauge(
            "handoff_tasks_idle",
            "Tasks that went back to their senders an hour ago or earlier and wait for the next handoff.",
        ),
        pub dead_letters_total: counter("handoff_dead_letters_total", "Dead letters created."),
        pub dead_letters: gauge("handoff_dead_letters", "Dead letters that wait for a person."),
        pub outbox_depth: gauge("handoff_outbox_depth", "Handoffs that wait for delivery."),
        pub outbox_oldest_seconds: gauge(
            "handoff_outbox_oldest_age_seconds",
            "Age of the oldest handoff that waits for delivery.",
        ),
        pub log_records: gauge("handoff_log_records", "Records in all audit logs."),
        pub breakers: gauges(
            "handoff_breakers",
            "Receivers by the state of their circuit breaker.",
            &["state"],
        ),
        pub receivers_waiting: gauge(
            "handoff_receivers_waiting",
            "Receivers that wait because the broker has no free delivery slot.",
        ),
        pub retries_put_off: counter(
            "handoff_retries_put_off_total",
            "Retries deferred because their receiver's retry budget was spent.",
        ),
        pub endpoint_alerts: counters(
            "handoff_endpoint_alerts_total",
            "Alerts on receivers' endpoints: failing, disabled, recovered; agents beyond the bound count as `other`.",
            &["what", "tenant", "agent"],
        ),
        pub pool_refusals: counters(
            "handoff_pool_refusals_total",
            "Requests without a place in a pool, by pool (requests, waits, streams, large_bodies) and limit: full (503), caller or tenant (429, over its share).",
            &["pool", "limit"],
        ),
        pub pool_held: gauges(
            "handoff_pool_held",
            "Places taken of a pool: requests, waits, streams; large_bodies in KiB.",
            &["pool"],
        ),
        pub pool_size: gauges(
            "handoff_pool_size",
            "The size of a pool, by pool, in the unit of handoff_pool_held.",
            &["pool"],
        ),
        pub http_requests: counters(
            "handoff_http_requests_total",
            "HTTP requests by method, route and status.",
            &["method", "route", "status"],
        ),
        pub http_seconds: histograms(
            "handoff_http_request_duration_seconds",
            "HTTP request duration by route.",
            &SECONDS, &["route"],
        ),
        pub http_connections: gauge(
            "handoff_http_connections",
            "Open HTTP connections."
        ),
        pub http_ended: counters(
            "handoff_http_connections_ended_total",
            "HTTP connections and streams that the broker ended: no_request (nothing came in time), room (a newer \
             connection needed the place or the memory), unread (too much waited to be read), slow (nothing was read in time).",
            &["reason"],
        ),
        pub door_calls: counters(
            "handoff_door_calls_total",
            "Calls by door, operation and outcome.",
            &["door", "operation", "outcome"],
        ),
        pub door_seconds: histograms(
            "handoff_door_call_duration_seconds",
            "Call duration by door and operation, waits included.",
            &SECONDS, &["door", "operation"],
        ),
        pub strategy_outcomes: counters(
            "handoff_strategy_outcomes_total",
            "Handoffs whose receiver a door chose, by strategy and outcome: success, failure; refused (by the gate), none (the door found no agent).",
            &["strategy", "outcome"],
        ),
        pub(super) strategy_seconds: histograms(
            "handoff_strategy_duration_seconds",
            "Time from the commit to the end of a handoff whose receiver a door chose, by strategy.",
            &SECONDS, &["strategy"],
        ),
        pub erasures: counter("handoff_erasures_total", "Completed erasures of data subjects."),
        pub personal_data_erased: counter(
            "handoff_personal_data_erased_total",
            "Erased entries of personal data.",
        ),
        pub store_up: gauge("handoff_store_up", "1 while the store answers and takes writes, else 0."),
        pub state_mismatches: counters(
            "handoff_state_mismatches_total",
            "Rows that were loaded and are not what the log commits to, by object: key, contract, legalHold. They get no service.",
            &["object"],
        ),
        pub clock_steps: counters(
            "handoff_clock_steps_total",
            "How often the machine's clock was set while the broker ran, by direction: forward, back.",
            &["direction"],
        ),
        pub clock_ahead: floats(
            "handoff_clock_ahead_seconds",
            "Seconds by which a clock is ahead of its reference: machine (the machine's clock, of the broker's own time), brokers (the broker's time, of the other brokers' median).",
            &["clock"],
        ),
        pub store_write_failures: counters(
            "handoff_store_write_failures_total",
            "Batches that the store did not take, by reason: unavailable, conflict, denied (a right, a trigger, a cut log), refused (a value).",
            &["reason"],
        ),
        pub(super) build_info: gauges(
            "handoff_build_info",
            "Always 1; the labels identify the build.",
            &["version"],
        ),
        pub(super) latency_objectives: floats(
            "handoff_latency_objective_seconds",
            "The limits of a transport: at most 1 % of its handoffs take longer than p99, none longer than max.",
            &["transport", "limit"],
        ),
    }
}

instruments! {
    /// Instruments of tree head publication.
    pub struct WitnessMetrics {
        pub published: counters(
            "handoff_audit_published_total",
            "Published tree heads by kind of destination and outcome.",
            &["destination", "outcome"],
        ),
        pub last: gauges(
            "handoff_audit_published_timestamp_seconds",
            "Unix time at which a kind of destination last accepted a tree head.",
            &["destination"],
        ),
        pub unpublished: gauges(
            "handoff_audit_unpublished_records",
            "Records that no tree head at a kind of destination covers, after the last run.",
            &["destination"],
        ),
        pub tree_size: gauge(
            "handoff_audit_tree_size",
            "Records in the Merkle trees of all logs, at the last check.",
        ),
        pub forks: counter(
            "handoff_audit_forks_total",
            "Times a log was found inconsistent with its published tree head.",
        ),
    }
}

instruments! {
    /// Instruments of the retention purge.
    pub struct RetentionMetrics {
        pub contents: counter(
            "handoff_retention_contents_total",
            "Contents of records purged after their retention time.",
        ),
        pub personal_data: counter(
            "handoff_retention_personal_data_total",
            "Entries of personal data purged after their retention time.",
        ),
        pub checkpoints: counter(
            "handoff_retention_checkpoints_total",
            "Checkpoints purged after their retention time.",
        ),
        pub failures: counter(
            "handoff_retention_failures_total",
            "Runs of the purge that failed, by tenant and run.",
        ),
        pub last_run: gauge(
            "handoff_retention_last_run_timestamp_seconds",
            "Unix time of the purge's last run without errors for all tenants; 0: never.",
        ),
        pub held: gauge(
            "handoff_retention_held_records",
            "Records past their retention time that the last full run retained.",
        ),
    }
}

instruments! {
    pub struct ArchiveMetrics {
        pub contents: counter("handoff_archive_contents_total", "Contents moved to the archive."),
        pub bytes: counter(
            "handoff_archive_bytes_total",
            "Bytes of segments written to the archive.",
        ),
        pub segments: counter("handoff_archive_segments_total", "Segments written to the archive."),
        pub forgotten: counter(
            "handoff_archive_forgotten_total",
            "Erased contents removed from segments of the archive.",
        ),
        pub failures: counter(
            "handoff_archive_failures_total",
            "Runs of the archive that failed, by tenant and run.",
        ),
        pub last_run: gauge(
            "handoff_archive_last_run_timestamp_seconds",
            "Unix time of the archive's last run without errors for all tenants; 0: never.",
        ),
        pub held: gauge(
            "handoff_archive_held_contents",
            "Contents old enough for the archive that the last full run retained.",
        ),
    }
}
