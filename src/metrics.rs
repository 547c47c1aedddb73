//! The instruments. Names after Prometheus' conventions, prefix `handoff_`, base units; labels are
//! bounded sets only.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::domain::handoff::{Handoff, HandoffStatus};

/// Every instrument of one broker.
pub struct Metrics {
    registry: Registry,
    /// Submissions by result: `accepted`, `replayed`, `no_op`, `refused`, `conflict`, `unavailable`.
    pub submissions: IntCounterVec,
    /// Refused submissions by primary reason.
    pub rejections: IntCounterVec,
    /// Safety findings by rule.
    pub safety_findings: IntCounterVec,
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
    /// Records appended.
    pub records_total: IntCounter,
    /// Attempts at delivery by outcome.
    pub attempts: IntCounterVec,
    /// One attempt as the receiver took it, in seconds.
    pub receiver_seconds: Histogram,
    /// Commit to the first attempt's start: the broker's share, in seconds.
    pub broker_seconds: Histogram,
    /// Commit to acceptance, in seconds, by transport.
    pub latency_seconds: HistogramVec,
    /// Ended or accepted handoffs by status.
    pub handoffs: IntCounterVec,
    /// Rollbacks to the sender's checkpoint.
    pub rollbacks: IntCounter,
    /// Dead letters made.
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
    /// HTTP requests by method, route and status class.
    pub http_requests: IntCounterVec,
    /// HTTP request duration in seconds by route.
    pub http_seconds: HistogramVec,
    /// 1 while the store answers.
    pub store_up: IntGauge,
}

/// Seconds, fine below the seed's limits of 200 ms and 500 ms and reaching to a minute.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0];
/// Seconds for what happens inside the process.
const FINE_SECONDS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.25, 1.0];
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

impl Metrics {
    /// Registers every instrument.
    ///
    /// # Errors
    /// When two instruments share a name: a defect.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let gauge = |name: &str, help: &str| {
            let made = IntGauge::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let made =
                Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let histograms = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let made = HistogramVec::new(
                HistogramOpts::new(name, help).buckets(buckets.to_vec()),
                labels,
            )?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let build = IntGaugeVec::new(
            Opts::new("handoff_build_info", "Always 1; the labels tell the build."),
            &["version"],
        )?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let breakers = IntGaugeVec::new(
            Opts::new("handoff_breakers", "Receivers by the state of their circuit breaker."),
            &["state"],
        )?;
        registry.register(Box::new(breakers.clone()))?;
        Ok(Self {
            submissions: counters(
                "handoff_submissions_total",
                "Submissions by result.",
                &["result"],
            )?,
            rejections: counters(
                "handoff_rejections_total",
                "Submissions refused by the gate, by primary reason.",
                &["reason"],
            )?,
            safety_findings: counters(
                "handoff_safety_findings_total",
                "Safety findings by rule.",
                &["rule"],
            )?,
            allowlist_violations: counter(
                "handoff_allowlist_violations_total",
                "Handoffs to a target that is not on the sender's allowlist.",
            )?,
            gate_seconds: histogram(
                "handoff_gate_duration_seconds",
                "Time the gate took over one message.",
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
            records_total: counter("handoff_records_total", "Audit records appended.")?,
            attempts: counters(
                "handoff_delivery_attempts_total",
                "Attempts at delivery by outcome.",
                &["outcome"],
            )?,
            receiver_seconds: histogram(
                "handoff_receiver_duration_seconds",
                "Time a receiver took over one attempt.",
                &SECONDS,
            )?,
            broker_seconds: histogram(
                "handoff_broker_duration_seconds",
                "Time from a handoff's commit to the start of its first attempt.",
                &SECONDS,
            )?,
            latency_seconds: histograms(
                "handoff_latency_seconds",
                "Time from a handoff's commit to its acceptance, by transport.",
                &SECONDS,
                &["transport"],
            )?,
            handoffs: counters(
                "handoff_handoffs_total",
                "Handoffs by the status they reached.",
                &["status"],
            )?,
            rollbacks: counter(
                "handoff_rollbacks_total",
                "Tasks given back to their sender's checkpoint.",
            )?,
            dead_letters_total: counter("handoff_dead_letters_total", "Dead letters made.")?,
            dead_letters: gauge("handoff_dead_letters", "Dead letters that wait for a person.")?,
            outbox_depth: gauge("handoff_outbox_depth", "Handoffs that wait for delivery.")?,
            outbox_oldest_seconds: gauge(
                "handoff_outbox_oldest_age_seconds",
                "Age of the oldest handoff that waits for delivery.",
            )?,
            log_records: gauge("handoff_log_records", "Records in all audit logs.")?,
            breakers,
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
            store_up: gauge("handoff_store_up", "1 while the store answers, else 0.")?,
            registry,
        })
    }

    /// Counts what became of a handoff.
    pub fn count_transition(&self, handoff: &Handoff) {
        match handoff.status {
            HandoffStatus::Pending => return,
            HandoffStatus::Accepted => {
                if let Some(at) = handoff.accepted_at {
                    self.latency_seconds
                        .with_label_values(&[handoff.mode.as_str()])
                        .observe(at.since(handoff.created_at).as_secs_f64());
                }
            }
            _ => {}
        }
        self.handoffs.with_label_values(&[handoff.status.as_str()]).inc();
    }

    /// The metrics page in Prometheus' text format.
    ///
    /// # Errors
    /// When an instrument cannot be encoded.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
