//! The broker's counts and measurements. `instruments.rs` declares each instrument.

mod bounded;
mod instruments;

use prometheus::proto::LabelPair;
use prometheus::{IntCounterVec, Registry, TextEncoder};

use self::bounded::{BoundedLabels, PairLabels};
use self::instruments::Registrar;
pub use self::instruments::{
    ArchiveMetrics, InstrumentDescription, Instruments, RetentionMetrics, WitnessMetrics,
};
use handoffd_domain::failure::{Code, Failure, RefusalClass};
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::latency::{LatencySample, Objective};
use handoffd_domain::policy::{EdgePolicy, Moment};
use handoffd_domain::ruling::Standing;

/// Every instrument of one broker.
pub struct Metrics {
    registry: Registry,
    described: Vec<InstrumentDescription>,
    instruments: Instruments,
    /// Tenant, source and target. Each has a histogram of eight buckets and some counters.
    pairs: PairLabels,
    /// A contract and the name of a metric. One that is timed has a histogram of 16 buckets.
    contracts: BoundedLabels<2>,
    /// Tenant and agent, of senders whose messages are refused.
    refused_senders: BoundedLabels<2>,
    /// Tenant and agent, of agents whose endpoints were told of.
    endpoints: BoundedLabels<2>,
    /// Instruments of the archive.
    pub archive: ArchiveMetrics,
    /// Instruments of the retention purge.
    pub retention: RetentionMetrics,
    /// Instruments of tree head publication.
    pub witness: WitnessMetrics,
}

impl std::ops::Deref for Metrics {
    type Target = Instruments;
    fn deref(&self) -> &Instruments {
        &self.instruments
    }
}

impl Instruments {
    /// Sets label values that are there from the start. Prometheus sees no increase in a counter that appears with its
    /// first count, and an alert on a rare event would miss the first.
    fn begin(&self) {
        let from_zero = |counter: &IntCounterVec, values: &[&str]| {
            for value in values {
                counter.with_label_values(&[value]);
            }
        };
        let reasons: Vec<&str> =
            Code::ALL.into_iter().filter(|code| code.class().is_some()).map(Code::as_str).collect();
        from_zero(&self.submissions, &RESULTS);
        from_zero(&self.rejections, &reasons);
        from_zero(&self.findings, &reasons);
        from_zero(&self.refusals, &RefusalClass::ALL.map(RefusalClass::as_str));
        from_zero(&self.cap_refusals, &["tenant", "agent"]);
        from_zero(&self.clock_steps, &["forward", "back"]);
        for clock in ["machine", "brokers"] {
            self.clock_ahead.with_label_values(&[clock]);
        }
        from_zero(&self.store_write_failures, &["unavailable", "conflict", "denied", "refused"]);
        from_zero(&self.state_mismatches, &["key", "contract", "legalHold"]);
        from_zero(&self.compression_facts, &["kept", "appended", "lost"]);
        from_zero(&self.http_ended, &["no_request", "room", "unread", "slow"]);
        from_zero(&self.classifier_verdicts, &["SAFE", "UNSAFE", "NONE"]);
        self.build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        for mode in DeliveryMode::ALL {
            for by_transport in
                [&self.latency_seconds, &self.broker_seconds, &self.receiver_seconds]
            {
                by_transport.with_label_values(&[mode.as_str()]);
            }
            let Objective { p99, max } = mode.objective();
            for (limit, time) in [("p99", p99), ("max", max)] {
                let labels = [mode.as_str(), limit];
                self.latency_over.with_label_values(&labels);
                self.latency_objectives.with_label_values(&labels).set(time.as_secs_f64());
            }
        }
    }
}

impl Metrics {
    /// Registers every instrument.
    ///
    /// # Errors
    /// When two instruments share a name: a defect.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut registrar = Registrar::default();
        let instruments = Instruments::register(&mut registrar)?;
        instruments.begin();
        let archive = ArchiveMetrics::register(&mut registrar)?;
        let retention = RetentionMetrics::register(&mut registrar)?;
        let witness = WitnessMetrics::register(&mut registrar)?;
        let Registrar { registry, described } = registrar;
        Ok(Self {
            registry,
            described,
            instruments,
            pairs: PairLabels::default(),
            contracts: BoundedLabels::default(),
            refused_senders: BoundedLabels::default(),
            endpoints: BoundedLabels::default(),
            archive,
            retention,
            witness,
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
        self.each_of_contract(edge, |name, labels| {
            if Moment::of_metric(name) == Some(Moment::Rejected) {
                self.contract_metrics.with_label_values(labels).inc();
            }
        });
    }

    /// A handoff's pair of agents, with its tenant.
    fn pair_of(handoff: &Handoff) -> [&str; 3] {
        let Handoff { tenant, source, target, .. } = handoff;
        [tenant.as_str(), source.as_str(), target.as_str()]
    }

    /// Calls `with` with the name and the labels of each metric of a contract.
    fn each_of_contract(&self, edge: &EdgePolicy, mut with: impl FnMut(&str, &[&str])) {
        let Some(contract) = &edge.contract else { return };
        for name in &edge.metrics {
            with(name, &self.contracts.bounded([contract.id.as_str(), name.as_str()]));
        }
    }

    fn count_moment(&self, handoff: &Handoff, moment: Moment) {
        let Some(ruling) = &handoff.ruling else { return };
        self.each_of_contract(&ruling.edge, |name, labels| {
            // A metric that names no moment counts each handoff once.
            if Moment::of_metric(name).unwrap_or(Moment::Emitted) == moment {
                self.contract_metrics.with_label_values(labels).inc();
            }
        });
    }

    /// Counts a handoff's transition to its new status.
    pub fn count_transition(&self, handoff: &Handoff) {
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
        self.count_strategy(handoff);
        let pair = self.pairs.counted(Self::pair_of(handoff));
        self.pair_handoffs.with_label_values(&[&pair[..], &[status]].concat()).inc();
    }

    /// Counts the end of a handoff whose receiver a door chose. A handoff that replaces it does not count.
    fn count_strategy(&self, handoff: &Handoff) {
        let ruling = handoff.ruling.as_ref().filter(|ruling| ruling.standing == Standing::Own);
        let Some(strategy) = ruling.and_then(|ruling| ruling.strategy) else { return };
        let Some(ended_at) = handoff.ended_at else { return };
        let outcome =
            if handoff.status == HandoffStatus::Completed { "success" } else { "failure" };
        self.strategy_outcomes.with_label_values(&[strategy.as_str(), outcome]).inc();
        let took = ended_at.since(handoff.created_at);
        self.strategy_seconds.with_label_values(&[strategy.as_str()]).observe(took.as_secs_f64());
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
            self.each_of_contract(&ruling.edge, |name, labels| {
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
        let pair = self.pairs.shown(Self::pair_of(handoff));
        self.pair_latency_seconds.with_label_values(&pair).observe(whole.as_secs_f64());
        // There from the pair's first handoff on, so that an alert sees the first that is late.
        let over = self.pair_latency_over.with_label_values(&pair);
        over.inc_by(u64::from(whole > p99));
    }

    /// Counts the safety rules that refused a message or a result, those that were only observed, and those that marked it.
    pub fn count_safety_rules(&self, refused: &[String], observed: &[String], marked: &[String]) {
        for rule in refused {
            self.safety_findings.with_label_values(&[rule]).inc();
        }
        for rule in observed {
            self.safety_observed.with_label_values(&[rule]).inc();
        }
        for rule in marked {
            self.safety_marked.with_label_values(&[rule]).inc();
        }
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

    /// Counts a refused message by its sender and its reason.
    pub fn count_agent_refusal(&self, tenant: &TenantId, agent: &AgentId, code: Code) {
        let [tenant, agent] = self.refused_senders.bounded([tenant.as_str(), agent.as_str()]);
        self.agent_refusals.with_label_values(&[tenant, agent, code.as_str()]).inc();
    }

    /// Counts an alert on an agent's endpoint.
    pub fn endpoint_alert(&self, what: &str, tenant: &TenantId, agent: &AgentId) {
        let [tenant, agent] = self.endpoints.bounded([tenant.as_str(), agent.as_str()]);
        self.endpoint_alerts.with_label_values(&[what, tenant, agent]).inc();
    }

    /// The metrics page in Prometheus' text format.
    ///
    /// # Errors
    /// When an instrument cannot be encoded.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// The pairs of one tenant alone; of one agent its own, as a sender or a receiver.
    ///
    /// # Errors
    /// When an instrument cannot be encoded.
    pub fn render_own(
        &self,
        tenant: &TenantId,
        agent: Option<&AgentId>,
    ) -> Result<String, prometheus::Error> {
        let mut families = self.registry.gather();
        families.retain_mut(|family| {
            let mut own = family.take_metric();
            own.retain(|metric| {
                let value = |name: &str| {
                    metric
                        .get_label()
                        .iter()
                        .find(|label| label.name() == name)
                        .map(LabelPair::value)
                };
                let is_part = |agent: &AgentId| {
                    ["source", "target"].iter().any(|name| value(name) == Some(agent.as_str()))
                };
                value("tenant") == Some(tenant.as_str()) && agent.is_none_or(is_part)
            });
            family.set_metric(own);
            !family.get_metric().is_empty()
        });
        TextEncoder::new().encode_to_string(&families)
    }
}

/// Values of the label `result`.
pub const RESULTS: [&str; 7] =
    ["accepted", "no_op", "refused", "replayed", "conflict", "unavailable", "failed"];
