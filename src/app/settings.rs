//! The rooms' settings, from the configuration.

use std::time::Duration;

use super::StartError;
use handoffd_broker::config::{Config, ContractsException, FanOut, MinimumLevel};
use handoffd_broker::dispatch::backoff::RetryPolicy;
use handoffd_broker::dispatch::breaker::BreakerSettings;
use handoffd_broker::dispatch::budget::BudgetSettings;
use handoffd_broker::dispatch::chunks::ChunkSenderSettings;
use handoffd_broker::dispatch::{dispatcher, events};
use handoffd_broker::erasure;
use handoffd_broker::intake::policies::policies;
use handoffd_broker::intake::spoken::WordLimits;
use handoffd_broker::intake::stream::StreamSettings;
use handoffd_broker::ledger;
use handoffd_broker::ledger::context::Rules;
use handoffd_broker::opinions::OpinionSettings;
use handoffd_gate::contract::level::Level;
use handoffd_gate::{Gate, edge_contract};
use handoffd_store::clock;

#[must_use]
pub fn ledger_settings(config: &Config) -> ledger::Settings {
    let postgres = config.database_url().starts_with("postgres");
    ledger::Settings {
        queue: config.ledger.queue,
        batch: config.ledger.batch,
        workers: if postgres { config.ledger.workers } else { 1 },
        conflict_tries: config.ledger.conflict_tries,
        settle_delay: Duration::from_millis(config.ledger.settle_delay_ms),
        claim_ttl: config.delivery.broker_claim(),
        rules: rules(config),
    }
}

pub(super) fn rules(config: &Config) -> Rules {
    Rules {
        max_hops: i64::from(config.gate.max_hops),
        max_edge_repeats: i64::from(config.gate.max_edge_repeats),
        reserve: config.budget.fan_out == FanOut::Reserve,
        lease: Duration::from_millis(config.delivery.lease_ms),
        verdict: Duration::from_millis(config.delivery.verdict_timeout_ms),
        claim: Duration::from_millis(config.delivery.claim_ttl_ms),
        escalation_timeout: Duration::from_millis(config.recovery.escalation_timeout_ms),
        caps: config.budget.caps(),
        residency: config.residency.rules(),
        context: config.context.settings(),
    }
}

pub(super) fn word_limits(config: &Config) -> WordLimits {
    WordLimits {
        max_iterations: config.gate.max_iterations,
        answer: Duration::from_millis(config.delivery.answer_timeout_ms),
        reply_age: Duration::from_secs(config.transports.reply_max_age_s),
        checkpoint_bytes: config.recovery.max_checkpoint_bytes,
        message_bytes: config.server.max_body_bytes,
    }
}

pub(super) fn stream_settings(config: &Config) -> StreamSettings {
    let stream = config.stream;
    StreamSettings {
        idle: Duration::from_millis(stream.idle_ms),
        max_chunk_bytes: stream.max_chunk_bytes,
        max_bytes: stream.max_bytes,
        max_chunks: i64::from(stream.max_chunks),
    }
}

/// Attempts at a delivery, and the pauses between them.
fn delivery_retry(config: &Config) -> RetryPolicy {
    let delivery = &config.delivery;
    RetryPolicy {
        base: Duration::from_millis(delivery.retry_base_ms),
        cap: Duration::from_millis(delivery.retry_cap_ms),
        max_attempts: delivery.max_attempts,
    }
}

pub(super) fn opinion_settings(config: &Config) -> OpinionSettings {
    OpinionSettings {
        retry: delivery_retry(config),
        timeout: Duration::from_millis(config.safety.classifier.timeout_ms),
        lease: Duration::from_millis(config.events.lease_ms),
        poll: Duration::from_millis(config.delivery.poll_ms),
    }
}

pub(super) fn chunk_sender_settings(config: &Config) -> ChunkSenderSettings {
    let delivery = &config.delivery;
    ChunkSenderSettings {
        retry: delivery_retry(config),
        lease: Duration::from_millis(config.events.lease_ms),
        poll: Duration::from_millis(delivery.poll_ms),
        at_once: delivery.max_in_flight,
    }
}

pub(super) fn publisher_settings(config: &Config) -> events::PublisherSettings {
    let events = &config.events;
    events::PublisherSettings {
        retry: RetryPolicy {
            base: Duration::from_millis(events.retry_base_ms),
            cap: Duration::from_millis(events.retry_cap_ms),
            // The events of an endpoint wait in order until it answers or the broker gives it up.
            max_attempts: u32::MAX,
        },
        timeout: Duration::from_millis(events.timeout_ms),
        set_aside_after: events.set_aside_after,
        disable_after: Duration::from_secs(events.disable_after_h.saturating_mul(3_600)),
        lease: Duration::from_millis(events.lease_ms),
        poll: Duration::from_millis(config.delivery.poll_ms),
        at_once: events.max_in_flight,
    }
}

/// The contracts that edges must have.
fn requirement(config: &Config) -> edge_contract::ContractRequirement {
    let required = config.gate.contract_exceptions.iter().map(|one| {
        let (tenant, agent, to) = (one.tenant.clone(), one.agent.clone(), one.to.clone());
        (edge_contract::EdgeFilter { tenant, agent, to, until: one.until }, one.require_contract)
    });
    let edges = |one: &ContractsException| edge_contract::EdgeFilter {
        tenant: one.tenant.clone(),
        agent: one.agent.clone(),
        to: one.to.clone(),
        until: one.until,
    };
    let level = |minimum: MinimumLevel| match minimum {
        MinimumLevel::None => None,
        MinimumLevel::L1 => Some(Level::L1),
        MinimumLevel::L2 => Some(Level::L2),
        MinimumLevel::L3 => Some(Level::L3),
    };
    let contracts = &config.contracts;
    let said = contracts.exceptions.iter();
    edge_contract::ContractRequirement {
        required: edge_contract::EdgeRule {
            default: config.gate.require_contract,
            exceptions: required.collect(),
        },
        minimum_level: edge_contract::EdgeRule {
            default: level(contracts.minimum_level),
            exceptions: said
                .clone()
                .filter_map(|one| Some((edges(one), level(one.minimum_level?))))
                .collect(),
        },
        accept_pinned: edge_contract::EdgeRule {
            default: contracts.accept_pinned,
            exceptions: said.filter_map(|one| Some((edges(one), one.accept_pinned?))).collect(),
        },
    }
}

/// Builds the gate with the configured policies.
///
/// # Errors
/// [`StartError::Config`] where an exception names no rule.
pub(super) fn gate_of(config: &Config) -> Result<Gate, StartError> {
    let policies = policies(&config.safety);
    let mut gate = Gate::with(policies, requirement(config));
    gate.scanner = gate.scanner.remembering(clock::random());
    gate.residency = config.residency.rules();
    gate.versions = config.gate.agent_version;
    gate.credentials = config.redaction.secrets;
    gate.context = config.context.settings();
    gate.max_checkpoint = config.recovery.max_checkpoint_bytes;
    match gate.policies.unknown(gate.scanner.rules()) {
        Some(name) => Err(StartError::Config(format!(
            "safety.exceptions: no rule and no family is named {name:?}"
        ))),
        None => Ok(gate),
    }
}

pub(super) fn erasure_settings(config: &Config) -> erasure::ErasureSettings {
    erasure::ErasureSettings {
        page: i64::try_from(config.erasure.page).unwrap_or(i64::MAX),
        period: Duration::from_millis(config.delivery.broker_timeout_ms),
        patience: Duration::from_millis(config.delivery.broker_timeout_ms.saturating_mul(3)),
    }
}

pub(super) fn dispatcher_settings(config: &Config) -> dispatcher::DispatcherSettings {
    let delivery = &config.delivery;
    dispatcher::DispatcherSettings {
        retry: RetryPolicy {
            base: Duration::from_millis(delivery.retry_base_ms),
            cap: Duration::from_millis(delivery.retry_cap_ms),
            max_attempts: delivery.max_attempts,
        },
        max_in_flight: delivery.max_in_flight,
        breaker: BreakerSettings {
            failure_threshold: delivery.breaker_failures,
            ..BreakerSettings::default()
        },
        disable_after: delivery.disable_after_failures,
        budget: BudgetSettings {
            share: f64::from(delivery.retry_budget_percent) / 100.0,
            floor: f64::from(delivery.retry_budget_per_s),
            ..BudgetSettings::default()
        },
        poll: Duration::from_millis(delivery.poll_ms),
        claim: delivery.broker_claim(),
        reply_wait: Duration::from_millis(config.transports.reply_wait_ms),
        verdict: Duration::from_millis(delivery.verdict_timeout_ms),
        lease: Duration::from_millis(delivery.lease_ms),
        compress_above: delivery.compress_above_bytes,
    }
}
