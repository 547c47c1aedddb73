//! The instruments. Names after Prometheus' conventions, prefix `handoff_`, base units; labels are
//! bounded sets only.

mod contracts;
mod pairs;

use std::cell::RefCell;

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use self::contracts::Series;
use self::pairs::Pairs;
use handoffd_core::domain::failure::{Code, Failure, RefusalClass};
use handoffd_core::domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_core::domain::latency::{LatencySample, Objective};
use handoffd_core::domain::policy::{EdgePolicy, Moment};

/// Every instrument of one broker.
pub struct Metrics {
    registry: Registry,
    described: Vec<InstrumentDescription>,
    /// Submissions by result, each once; see [`RESULTS`].
    pub submissions: IntCounterVec,
    /// Refused submissions by reason, once under each that was found.
    pub rejections: IntCounterVec,
    /// Findings of refusals by reason.
    pub findings: IntCounterVec,
    /// Refused submissions by the class of what was found, once under each.
    pub refusals: IntCounterVec,
    /// Submissions with a safety finding, refused or observed.
    pub safety_flagged: IntCounter,
    /// Safety findings by rule.
    pub safety_findings: IntCounterVec,
    /// Submissions refused because a rolling cap has no room, by the cap's scope.
    pub cap_refusals: IntCounterVec,
    /// Use of rolling caps at each entry, as shares of one.
    pub cap_use: HistogramVec,
    /// Findings that were only observed, by rule.
    pub safety_observed: IntCounterVec,
    /// Verdicts of the safety classifier.
    pub classifier_verdicts: IntCounterVec,
    /// Answers of the external matcher.
    pub matcher_answers: IntCounterVec,
    /// Allowlist refusals.
    pub allowlist_violations: IntCounter,
    /// Time the gate took, in seconds.
    pub gate_seconds: Histogram,
    /// Time one batch took to commit, in seconds.
    pub ledger_commit_seconds: Histogram,
    /// Commands in one batch.
    pub ledger_batch_size: Histogram,
    /// Commands refused because the queue was full.
    pub ledger_overloads: IntCounter,
    /// Batches prepared on the log's database at the last check.
    pub ledger_in_doubt: IntGauge,
    /// Prepared batches of other brokers that this broker ended.
    pub ledger_in_doubt_ended: IntCounter,
    /// Records appended.
    pub records_total: IntCounter,
    /// Attempts at delivery by outcome.
    pub attempts: IntCounterVec,
    /// One attempt from its request to its answer, in seconds, by transport.
    pub attempt_seconds: HistogramVec,
    /// The request's first byte to acceptance, in seconds, by transport.
    latency_seconds: HistogramVec,
    /// The broker's share of the latency, until the receiver could take the handoff.
    broker_seconds: HistogramVec,
    /// The receiver's share of the latency.
    receiver_seconds: HistogramVec,
    /// Handoffs that took longer than a limit of their transport.
    latency_over: IntCounterVec,
    /// Latency by pair of agents; see `pairs`.
    pair_latency_seconds: HistogramVec,
    /// Handoffs of a pair that took longer than their transport's p99.
    pair_latency_over: IntCounterVec,
    /// Accepted or ended handoffs by pair of agents and status.
    pub pair_handoffs: IntCounterVec,
    pairs: Pairs,
    /// Counts of contracts' metrics, by contract and metric; see `contracts`.
    pub contract_metrics: IntCounterVec,
    /// Latencies of contracts' metrics, in seconds.
    pub contract_seconds: HistogramVec,
    series: Series,
    /// Connections to the store by state: `busy`, `idle`.
    pub store_connections: IntGaugeVec,
    /// Ended or accepted handoffs by status.
    pub handoffs: IntCounterVec,
    /// Rollbacks to the sender's checkpoint.
    pub rollbacks: IntCounter,
    /// Events by type.
    pub events: IntCounterVec,
    /// Attempts to deliver an event to a subscriber, by outcome: `delivered`, `retry`, `set_aside`, `gone`.
    pub event_deliveries: IntCounterVec,
    /// From an event to its delivery to a subscriber, in seconds.
    pub event_lag_seconds: Histogram,
    /// Subscribers whose event delivery the broker disabled.
    pub subscribers_disabled: IntCounter,
    /// Decisions on dead letters by result: `released`, `refused`, `discarded`.
    pub dead_letter_decisions: IntCounterVec,
    /// Escalations opened.
    pub escalations_total: IntCounter,
    /// Escalations decided, by a person or by time.
    pub escalations_resolved: IntCounter,
    /// Escalations that wait for a person.
    pub escalations: IntGauge,
    /// Dead letters created.
    pub dead_letters_total: IntCounter,
    /// Dead letters that wait for a person.
    pub dead_letters: IntGauge,
    /// Rows in the outbox.
    pub outbox_depth: IntGauge,
    /// Age of the oldest row in the outbox, in seconds.
    pub outbox_oldest_seconds: IntGauge,
    /// Records in all logs.
    pub log_records: IntGauge,
    /// Receivers by the state of their circuit breaker.
    pub breakers: IntGaugeVec,
    /// Receivers that wait because the broker has no free delivery slot.
    pub receivers_waiting: IntGauge,
    /// Retries deferred because their receiver's retry budget was spent.
    pub retries_put_off: IntCounter,
    /// Alerts on receivers' endpoints: `failing`, `disabled`, `recovered`.
    pub endpoint_alerts: IntCounterVec,
    /// HTTP requests by method, route and status class.
    pub http_requests: IntCounterVec,
    /// HTTP request duration in seconds by route.
    pub http_seconds: HistogramVec,
    /// Erasures of data subjects carried out.
    pub erasures: IntCounter,
    /// Erased entries of personal data.
    pub personal_data_erased: IntCounter,
    /// 1 while the store answers.
    pub store_up: IntGauge,
    /// Instruments of the archive.
    pub archive: ArchiveMetrics,
    /// Instruments of the retention purge.
    pub retention: RetentionMetrics,
    /// Instruments of tree head publication.
    pub witness: WitnessMetrics,
}

/// The description of an instrument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstrumentDescription {
    /// Metric name.
    pub name: String,
    /// Help text.
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Label names.
    pub labels: Vec<String>,
}

/// Instruments of tree head publication.
#[derive(Clone)]
pub struct WitnessMetrics {
    /// Tree heads by kind of place and outcome: `published`, `failed`, `refused`.
    pub published: IntCounterVec,
    /// Unix time at which a kind of destination last accepted a tree head.
    pub last: IntGaugeVec,
    /// Records in the trees of all logs.
    pub tree_size: IntGauge,
    /// Times a log was found inconsistent with its published tree head.
    pub forks: IntCounter,
}

/// Instruments of the retention purge.
#[derive(Clone)]
pub struct RetentionMetrics {
    /// Purged contents of records.
    pub contents: IntCounter,
    /// Purged entries of personal data.
    pub personal_data: IntCounter,
    /// Purged checkpoints.
    pub checkpoints: IntCounter,
    /// Failed runs, counted by tenant.
    pub failures: IntCounter,
    /// Unix time of the last run without errors for all tenants.
    pub last_run: IntGauge,
    /// Records past their retention time that the last full run retained.
    pub held: IntGauge,
}

/// Instruments of the archive.
#[derive(Clone)]
pub struct ArchiveMetrics {
    /// Contents moved to the archive.
    pub contents: IntCounter,
    /// Bytes of segments written.
    pub bytes: IntCounter,
    /// Segments written.
    pub segments: IntCounter,
    /// Erased contents whose frames were removed from segments.
    pub forgotten: IntCounter,
    /// Failed runs, counted by tenant.
    pub failures: IntCounter,
    /// Unix time of the last run without errors for all tenants.
    pub last_run: IntGauge,
    /// Contents old enough for the archive that the last run retained.
    pub held: IntGauge,
}

/// Seconds, fine below the seed's limits of 200 ms and 500 ms and reaching to a minute.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0];
/// Seconds for what happens inside the process.
const FINE_SECONDS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.25, 1.0];
/// Seconds for each pair of agents: the seed's limits, and little more, for there are many pairs.
const PAIR_SECONDS: [f64; 7] = [0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 60.0];
/// Shares of a whole, and beyond.
const SHARES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0, 1.25];
const PAIR: [&str; 3] = ["tenant", "source", "target"];
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

impl Metrics {
    /// Registers every instrument.
    ///
    /// # Errors
    /// When two instruments share a name: a defect.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let described = RefCell::new(Vec::new());
        let describe = |name: &str, help: &str, kind, labels: &[&str]| {
            described.borrow_mut().push(InstrumentDescription {
                name: name.to_owned(),
                help: help.to_owned(),
                kind,
                labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            });
        };
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "counter", &[]);
            Ok(made)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "counter", labels);
            Ok::<_, prometheus::Error>(made)
        };
        let gauge = |name: &str, help: &str| {
            let made = IntGauge::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "gauge", &[]);
            Ok::<_, prometheus::Error>(made)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            let made = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "gauge", labels);
            Ok::<_, prometheus::Error>(made)
        };
        let floats = |name: &str, help: &str, labels: &[&str]| {
            let made = GaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "gauge", labels);
            Ok::<_, prometheus::Error>(made)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let made =
                Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "histogram", &[]);
            Ok::<_, prometheus::Error>(made)
        };
        let histograms = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let made = HistogramVec::new(
                HistogramOpts::new(name, help).buckets(buckets.to_vec()),
                labels,
            )?;
            registry.register(Box::new(made.clone()))?;
            describe(name, help, "histogram", labels);
            Ok::<_, prometheus::Error>(made)
        };
        let build =
            gauges("handoff_build_info", "Always 1; the labels identify the build.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let breakers = gauges(
            "handoff_breakers",
            "Receivers by the state of their circuit breaker.",
            &["state"],
        )?;
        let published_at = gauges(
            "handoff_audit_published_timestamp_seconds",
            "Unix time at which a kind of destination last accepted a tree head.",
            &["destination"],
        )?;
        let latency_over = counters(
            "handoff_latency_over_total",
            "Accepted handoffs that took longer than a limit of their transport, by transport and limit: p99, max.",
            &["transport", "limit"],
        )?;
        let objectives = floats(
            "handoff_latency_objective_seconds",
            "The limits of a transport: at most 1 % of its handoffs take longer than p99, none longer than max.",
            &["transport", "limit"],
        )?;
        for mode in DeliveryMode::ALL {
            let Objective { p99, max } = mode.objective();
            for (limit, time) in [("p99", p99), ("max", max)] {
                let labels = [mode.as_str(), limit];
                latency_over.with_label_values(&labels);
                objectives.with_label_values(&labels).set(time.as_secs_f64());
            }
        }
        let reasons: Vec<&str> =
            Code::ALL.into_iter().filter(|code| code.class().is_some()).map(Code::as_str).collect();
        Ok(Self {
            events: counters("handoff_events_total", "Events by type.", &["type"])?,
            event_deliveries: counters(
                "handoff_event_deliveries_total",
                "Attempts to deliver an event to a subscriber, by outcome.",
                &["outcome"],
            )?,
            event_lag_seconds: histogram(
                "handoff_event_lag_seconds",
                "Time from an event to its delivery to a subscriber.",
                &SECONDS,
            )?,
            subscribers_disabled: counter(
                "handoff_event_subscribers_disabled_total",
                "Subscribers whose event delivery the broker disabled.",
            )?,
            submissions: from_zero(
                counters(
                    "handoff_submissions_total",
                    "Submissions by result, each counted once, after the ledger's commit: accepted, no_op, refused; replayed (the first answer repeated); conflict, unavailable, failed (nothing was recorded).",
                    &["result"],
                )?,
                &RESULTS,
            ),
            rejections: from_zero(
                counters(
                    "handoff_rejections_total",
                    "Refused submissions by reason; one with several reasons counts once under each.",
                    &["reason"],
                )?,
                &reasons,
            ),
            findings: from_zero(
                counters(
                    "handoff_findings_total",
                    "Findings of refused submissions, by reason.",
                    &["reason"],
                )?,
                &reasons,
            ),
            refusals: from_zero(
                counters(
                    "handoff_refusals_total",
                    "Refused submissions by class of reason, once under each class: validation, safety, access, loop.",
                    &["class"],
                )?,
                &RefusalClass::ALL.map(RefusalClass::as_str),
            ),
            safety_flagged: counter(
                "handoff_safety_flagged_total",
                "Submissions with a safety finding, refused or only observed.",
            )?,
            cap_refusals: from_zero(
                counters(
                    "handoff_cap_refusals_total",
                    "Submissions refused because a rolling cap has no room, by whose cap: tenant or agent.",
                    &["scope"],
                )?,
                &["tenant", "agent"],
            ),
            cap_use: histograms(
                "handoff_cap_use_ratio",
                "How full a rolling cap is (spent and reserved, of what it allows) at each entry, by scope (tenant or agent) and unit (usd or tokens).",
                &SHARES,
                &["scope", "unit"],
            )?,
            safety_findings: counters(
                "handoff_safety_findings_total",
                "Safety findings that refuse, by rule.",
                &["rule"],
            )?,
            safety_observed: counters(
                "handoff_safety_observed_total",
                "Safety findings that were recorded without refusing the handoff, by rule.",
                &["rule"],
            )?,
            classifier_verdicts: counters(
                "handoff_safety_classifier_verdicts_total",
                "Verdicts of the external safety classifier: SAFE, UNSAFE, or NONE where it did not answer.",
                &["verdict"],
            )?,
            matcher_answers: counters(
                "handoff_matcher_answers_total",
                "Requests to the external matcher: ranked, or none where the broker ranked by text relevance instead.",
                &["outcome"],
            )?,
            allowlist_violations: counter(
                "handoff_allowlist_violations_total",
                "Handoffs to a target that is not on the sender's allowlist.",
            )?,
            gate_seconds: histogram(
                "handoff_gate_duration_seconds",
                "Time that the gate took for one message.",
                &FINE_SECONDS,
            )?,
            ledger_commit_seconds: histogram(
                "handoff_ledger_commit_duration_seconds",
                "Time from taking a batch to its durable commit.",
                &FINE_SECONDS,
            )?,
            ledger_batch_size: histogram(
                "handoff_ledger_batch_commands",
                "Commands that shared one transaction.",
                &SIZES,
            )?,
            ledger_overloads: counter(
                "handoff_ledger_overloads_total",
                "Commands refused because the ledger's queue was full.",
            )?,
            ledger_in_doubt: gauge(
                "handoff_ledger_batches_prepared",
                "Batches prepared on the log's database (audit.database_url) at the last check; a batch that stays is in doubt.",
            )?,
            ledger_in_doubt_ended: counter(
                "handoff_ledger_batches_in_doubt_ended_total",
                "Prepared batches that another broker left and this broker ended.",
            )?,
            records_total: counter("handoff_records_total", "Audit records appended.")?,
            attempts: counters(
                "handoff_delivery_attempts_total",
                "Attempts at delivery by outcome.",
                &["outcome"],
            )?,
            attempt_seconds: histograms(
                "handoff_attempt_duration_seconds",
                "Time one attempt at delivery took, from its request to the receiver's answer, by transport.",
                &SECONDS,
                &["transport"],
            )?,
            latency_seconds: observed(histograms(
                "handoff_latency_seconds",
                "Time from the first byte of a handoff's request to its acceptance, by transport; for a released dead letter, from its release.",
                &SECONDS,
                &["transport"],
            )?),
            broker_seconds: observed(histograms(
                "handoff_broker_duration_seconds",
                "The broker's share of the latency: until the first attempt began, or the handoff was committed to an inbox; by transport.",
                &SECONDS,
                &["transport"],
            )?),
            receiver_seconds: observed(histograms(
                "handoff_receiver_duration_seconds",
                "The receiver's share of the latency: from the end of the broker's share to acceptance, further attempts and the wait in an inbox included; by transport.",
                &SECONDS,
                &["transport"],
            )?),
            latency_over,
            pair_latency_seconds: histograms(
                "handoff_pair_latency_seconds",
                "Time from the first byte of a handoff's request to its acceptance, by pair of agents; beyond 200 pairs `other`.",
                &PAIR_SECONDS,
                &PAIR,
            )?,
            pair_latency_over: counters(
                "handoff_pair_latency_over_total",
                "Accepted handoffs that took longer than the p99 objective of their transport, by pair of agents; beyond 200 pairs `other`.",
                &PAIR,
            )?,
            pair_handoffs: counters(
                "handoff_pair_handoffs_total",
                "Handoffs by pair of agents and the status they reached; beyond 200 pairs `other`.",
                &["tenant", "source", "target", "status"],
            )?,
            pairs: Pairs::default(),
            store_connections: gauges(
                "handoff_store_connections",
                "Connections to the store, by state.",
                &["state"],
            )?,
            handoffs: counters(
                "handoff_handoffs_total",
                "Handoffs by the status they reached.",
                &["status"],
            )?,
            rollbacks: counter(
                "handoff_rollbacks_total",
                "Tasks rolled back to their sender's checkpoint.",
            )?,
            dead_letter_decisions: counters(
                "handoff_dead_letter_decisions_total",
                "Decisions on dead letters, by result.",
                &["result"],
            )?,
            escalations_total: counter("handoff_escalations_total", "Escalations opened.")?,
            escalations_resolved: counter(
                "handoff_escalations_resolved_total",
                "Escalations decided, by a person or by time.",
            )?,
            escalations: gauge("handoff_escalations", "Escalations that wait for a person.")?,
            dead_letters_total: counter("handoff_dead_letters_total", "Dead letters created.")?,
            dead_letters: gauge("handoff_dead_letters", "Dead letters that wait for a person.")?,
            outbox_depth: gauge("handoff_outbox_depth", "Handoffs that wait for delivery.")?,
            outbox_oldest_seconds: gauge(
                "handoff_outbox_oldest_age_seconds",
                "Age of the oldest handoff that waits for delivery.",
            )?,
            log_records: gauge("handoff_log_records", "Records in all audit logs.")?,
            breakers,
            receivers_waiting: gauge(
                "handoff_receivers_waiting",
                "Receivers that wait because the broker has no free delivery slot.",
            )?,
            retries_put_off: counter(
                "handoff_retries_put_off_total",
                "Retries deferred because their receiver's retry budget was spent.",
            )?,
            endpoint_alerts: from_zero(
                counters(
                    "handoff_endpoint_alerts_total",
                    "Alerts on receivers' endpoints.",
                    &["what"],
                )?,
                &["failing", "disabled"],
            ),
            http_requests: counters(
                "handoff_http_requests_total",
                "HTTP requests by method, route and status.",
                &["method", "route", "status"],
            )?,
            http_seconds: histograms(
                "handoff_http_request_duration_seconds",
                "HTTP request duration by route.",
                &SECONDS,
                &["route"],
            )?,
            erasures: counter("handoff_erasures_total", "Completed erasures of data subjects.")?,
            personal_data_erased: counter(
                "handoff_personal_data_erased_total",
                "Erased entries of personal data.",
            )?,
            store_up: gauge("handoff_store_up", "1 while the store answers, else 0.")?,
            witness: WitnessMetrics {
                published: counters(
                    "handoff_audit_published_total",
                    "Published tree heads by kind of destination and outcome.",
                    &["destination", "outcome"],
                )?,
                last: published_at,
                tree_size: gauge(
                    "handoff_audit_tree_size",
                    "Records in the Merkle trees of all logs, at the last check.",
                )?,
                forks: counter(
                    "handoff_audit_forks_total",
                    "Times a log was found inconsistent with its published tree head.",
                )?,
            },
            archive: ArchiveMetrics {
                contents: counter(
                    "handoff_archive_contents_total",
                    "Contents moved to the archive.",
                )?,
                bytes: counter(
                    "handoff_archive_bytes_total",
                    "Bytes of segments written to the archive.",
                )?,
                segments: counter(
                    "handoff_archive_segments_total",
                    "Segments written to the archive.",
                )?,
                forgotten: counter(
                    "handoff_archive_forgotten_total",
                    "Erased contents removed from segments of the archive.",
                )?,
                failures: counter(
                    "handoff_archive_failures_total",
                    "Runs of the archive that failed, by tenant and run.",
                )?,
                last_run: gauge(
                    "handoff_archive_last_run_timestamp_seconds",
                    "Unix time of the archive's last run without errors for all tenants; 0: never.",
                )?,
                held: gauge(
                    "handoff_archive_held_contents",
                    "Contents old enough for the archive that the last full run retained.",
                )?,
            },
            contract_metrics: counters(
                "handoff_contract_metrics_total",
                "Counts of contracts' metrics (observability.metrics), by contract and metric; beyond 200 series other.",
                &["contract", "metric"],
            )?,
            contract_seconds: histograms(
                "handoff_contract_metric_seconds",
                "Durations of contracts' metrics, from a handoff's first byte to its acceptance, by contract and metric; beyond 200 series other.",
                &SECONDS,
                &["contract", "metric"],
            )?,
            series: Series::default(),
            retention: RetentionMetrics {
                contents: counter(
                    "handoff_retention_contents_total",
                    "Contents of records purged after their retention time.",
                )?,
                personal_data: counter(
                    "handoff_retention_personal_data_total",
                    "Entries of personal data purged after their retention time.",
                )?,
                checkpoints: counter(
                    "handoff_retention_checkpoints_total",
                    "Checkpoints purged after their retention time.",
                )?,
                failures: counter(
                    "handoff_retention_failures_total",
                    "Runs of the purge that failed, by tenant and run.",
                )?,
                last_run: gauge(
                    "handoff_retention_last_run_timestamp_seconds",
                    "Unix time of the purge's last run without errors for all tenants; 0: never.",
                )?,
                held: gauge(
                    "handoff_retention_held_records",
                    "Records past their retention time that the last full run retained.",
                )?,
            },
            described: described.into_inner(),
            registry,
        })
    }

    /// Every instrument, in the order of their names.
    #[must_use]
    pub fn described(&self) -> Vec<&InstrumentDescription> {
        let mut all: Vec<_> = self.described.iter().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Counts a handoff that was committed by the metrics of its contract.
    pub fn count_emitted(&self, handoff: &Handoff) {
        self.count_moment(handoff, Moment::Emitted);
    }

    /// Counts a message that the gate refused under a contract: its acceptance failed before the receiver
    /// saw it.
    pub fn count_contract_refusal(&self, edge: &EdgePolicy) {
        self.series.each(edge, |name, labels| {
            if Moment::of_metric(name) == Some(Moment::Rejected) {
                self.contract_metrics.with_label_values(labels).inc();
            }
        });
    }

    fn count_moment(&self, handoff: &Handoff, moment: Moment) {
        let Some(ruling) = &handoff.ruling else { return };
        self.series.each(&ruling.edge, |name, labels| {
            // What names no moment counts each handoff once.
            if Moment::of_metric(name).unwrap_or(Moment::Emitted) == moment {
                self.contract_metrics.with_label_values(labels).inc();
            }
        });
    }

    /// Counts a handoff's transition to its new status.
    pub fn count_transition(&self, handoff: &Handoff) {
        if handoff.status == HandoffStatus::Pending {
            return;
        }
        let moment = match handoff.status {
            HandoffStatus::Accepted => Some(Moment::Accepted),
            HandoffStatus::Rejected => Some(Moment::Rejected),
            HandoffStatus::Completed => Some(Moment::Completed),
            HandoffStatus::Failed => Some(Moment::Failed),
            HandoffStatus::Expired => Some(Moment::Expired),
            _ => None,
        };
        if let Some(moment) = moment {
            self.count_moment(handoff, moment);
        }
        let status = handoff.status.as_str();
        self.handoffs.with_label_values(&[status]).inc();
        self.pairs.labelled(handoff, |pair| {
            self.pair_handoffs.with_label_values(&[pair, &[status]].concat()).inc();
        });
    }

    /// Observes the known latencies of a handoff.
    pub fn observe_latency(&self, handoff: &Handoff, sample: &LatencySample) {
        let transport = handoff.mode.as_str();
        if let Some((broker, receiver)) = sample.shares {
            self.broker_seconds.with_label_values(&[transport]).observe(broker.as_secs_f64());
            self.receiver_seconds.with_label_values(&[transport]).observe(receiver.as_secs_f64());
        }
        let Some(whole) = sample.whole else { return };
        if let Some(ruling) = &handoff.ruling {
            self.series.each(&ruling.edge, |name, labels| {
                if Moment::of_metric(name) == Some(Moment::Latency) {
                    self.contract_seconds.with_label_values(labels).observe(whole.as_secs_f64());
                }
            });
        }
        self.latency_seconds.with_label_values(&[transport]).observe(whole.as_secs_f64());
        let Objective { p99, max } = handoff.mode.objective();
        for (limit, time) in [("p99", p99), ("max", max)] {
            let over = self.latency_over.with_label_values(&[transport, limit]);
            over.inc_by(u64::from(whole > time));
        }
        self.pairs.labelled(handoff, |pair| {
            self.pair_latency_seconds.with_label_values(pair).observe(whole.as_secs_f64());
            // There from the pair's first handoff on, so that an alert sees the first that is late.
            let over = self.pair_latency_over.with_label_values(pair);
            over.inc_by(u64::from(whole > p99));
        });
    }

    /// Counts a submission by its result, and its findings where it was refused.
    pub fn count_submission(&self, result: &str, failures: &[Failure]) {
        self.submissions.with_label_values(&[result]).inc();
        let mut counted: Vec<Code> = Vec::new();
        let mut classes: Vec<RefusalClass> = Vec::new();
        for Failure { code, .. } in failures {
            self.findings.with_label_values(&[code.as_str()]).inc();
            if !counted.contains(code) {
                counted.push(*code);
                self.rejections.with_label_values(&[code.as_str()]).inc();
            }
            if let Some(class) = code.class().filter(|class| !classes.contains(class)) {
                classes.push(class);
                self.refusals.with_label_values(&[class.as_str()]).inc();
            }
        }
    }

    /// The metrics page in Prometheus' text format.
    ///
    /// # Errors
    /// When an instrument cannot be encoded.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Values of the label `result`.
pub const RESULTS: [&str; 7] =
    ["accepted", "no_op", "refused", "replayed", "conflict", "unavailable", "failed"];

/// A histogram that is there for every transport from the start.
fn observed(histogram: HistogramVec) -> HistogramVec {
    for mode in DeliveryMode::ALL {
        histogram.with_label_values(&[mode.as_str()]);
    }
    histogram
}

/// A counter whose values of its one label are there from the start: of one that appears with its first
/// count, Prometheus sees no increase, and an alert on a rare event would miss the first.
fn from_zero(counter: IntCounterVec, values: &[&str]) -> IntCounterVec {
    for value in values {
        counter.with_label_values(&[value]);
    }
    counter
}
