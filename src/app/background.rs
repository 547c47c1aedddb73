//! Work in the background: delivery, upkeep, events, erasure. Each task ends when the broker stops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::parts::{BrokerParts, WritePath};
use super::settings::{
    chunk_sender_settings, erasure_settings, opinion_settings, publisher_settings,
};
use super::transports::QueueSinks;
use crate::http::{Api, problem};
use handoffd_broker::archive::{self, Archivist};
use handoffd_broker::brokers::{self, beat};
use handoffd_broker::config::Config;
use handoffd_broker::console_sessions;
use handoffd_broker::dispatch::chunks::{self, ChunkSender};
use handoffd_broker::dispatch::events::{self, EventPublisher};
use handoffd_broker::dispatch::inboxes::Inboxes;
use handoffd_broker::dispatch::listeners::Listeners;
use handoffd_broker::dispatch::webhook::WebhookClient;
use handoffd_broker::erasure::{self, Eraser};
use handoffd_broker::feed::Feed;
use handoffd_broker::intake::verdicts::channel::ReplyDesk;
use handoffd_broker::ledger::Ledger;
use handoffd_broker::opinions::{OpinionDependencies, OpinionWorker};
use handoffd_broker::receivers::ReceiverWriter;
use handoffd_broker::recovery::{Sweeper, forget_events, settle_in_doubt, tend, watch_clock};
use handoffd_broker::retention::Purger;
use handoffd_broker::witness::Publisher;
use handoffd_gate::context::tokens;
use handoffd_store::store::StoreError;

/// Delivers: this broker's claims, inboxes, and, where brokers share the database, its heartbeat and the claims of
/// brokers that died.
pub(super) fn spawn_delivery(parts: &BrokerParts, path: WritePath) {
    let WritePath { ledger, dispatcher, nudges, outbound } = path;
    let delivery = &parts.config.delivery;
    let timeout = Duration::from_millis(delivery.broker_timeout_ms);
    let (store, clock, stopping) = (&parts.store, &parts.clock, &parts.stopping);
    let breakers = dispatcher.clone();
    let writer = ReceiverWriter {
        journal: Arc::clone(&parts.receivers),
        breakers: Box::new(move || breakers.breakers()),
        store: Arc::clone(store),
        broker: parts.broker.clone(),
        stopping: stopping.clone(),
    };
    parts.background.spawn(writer.run());
    parts.background.spawn(dispatcher.run(nudges));
    parts.background.spawn(
        Inboxes {
            store: Arc::clone(store),
            directory: Arc::clone(&parts.directory),
            ledger: ledger.clone(),
            outbound: Arc::clone(&outbound),
            clock: Arc::clone(clock),
            period: Duration::from_millis(delivery.poll_ms),
            unclaimed: Duration::from_millis(delivery.unclaimed_ms),
            stopping: stopping.clone(),
        }
        .run(),
    );
    if parts.alone() {
        // No other broker listens for a heartbeat, and each beat would make an idle disk synchronise once a second.
        return;
    }
    parts.background.spawn(beat(
        Arc::clone(store),
        Arc::clone(clock),
        parts.broker.clone(),
        timeout,
        stopping.clone(),
    ));
    let monitor = brokers::BrokerMonitor {
        store: Arc::clone(store),
        clock: Arc::clone(clock),
        metrics: Arc::clone(&parts.metrics),
        broker: parts.broker.clone(),
        outbound,
        timeout,
        stopping: stopping.clone(),
    };
    parts.background.spawn(monitor.run());
}

/// Hears reply channels, and takes handoffs in by the transports.
pub(super) fn spawn_listeners(parts: &BrokerParts, api: &Api) {
    let listeners = Listeners {
        transports: parts.transports.clone(),
        store: Arc::clone(&parts.store),
        directory: Arc::clone(&parts.directory),
        vault: parts.vault.clone(),
        sinks: Arc::new(QueueSinks {
            desk: ReplyDesk {
                intake: Arc::clone(&api.intake),
                contents: api.contents.clone(),
                early: Arc::clone(&parts.replies),
            },
            settings: parts.config.transports.clone(),
            document: problem::of_queue,
        }),
        stopping: parts.stopping.clone(),
    };
    parts.background.spawn(listeners.run());
}

/// Unpacks the vocabularies that the agents' models count by, beside the start.
pub(super) fn spawn_tokenizers(parts: &BrokerParts) {
    let store = Arc::clone(&parts.store);
    parts.background.spawn(async move {
        let named = async {
            let mut named = BTreeSet::new();
            for tenant in store.list_tenants().await? {
                let agents = store.list_agents(&tenant).await?;
                named.extend(agents.iter().filter_map(|row| row.agent.tokenizer));
            }
            Ok::<_, StoreError>(named)
        };
        match named.await {
            Ok(named) => {
                for tokenizer in named {
                    tokio::task::spawn_blocking(move || tokens::load(tokenizer));
                }
            }
            // Their first use unpacks them.
            Err(err) => tracing::warn!(error = %err, "the agents' tokenizers cannot be read"),
        }
    });
}

/// Shortest pause between two looks at the deadlines that counts as a standstill: longer than a loaded database takes.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Time without a look at the deadlines after which those that passed meanwhile get the grace of a start.
fn standstill(config: &Config) -> Duration {
    (Duration::from_millis(config.delivery.poll_ms) * 10).max(STANDSTILL)
}

/// Keeps time and order: deadlines, the tables' care, batches in doubt, tree heads, the archive.
pub(super) fn spawn_upkeep(parts: &BrokerParts, ledger: &Ledger, witness: &Arc<Publisher>) {
    let (store, stopping, background) = (&parts.store, &parts.stopping, &parts.background);
    background.spawn(
        Sweeper {
            store: Arc::clone(store),
            ledger: ledger.clone(),
            clock: Arc::clone(&parts.clock),
            period: Duration::from_millis(parts.config.delivery.poll_ms),
            standstill: standstill(&parts.config),
            stream_idle: Duration::from_millis(parts.config.stream.idle_ms),
            stopping: stopping.clone(),
        }
        .run(),
    );
    let (clock, metrics) = (Arc::clone(&parts.clock), Arc::clone(&parts.metrics));
    background.spawn(watch_clock(clock, metrics, stopping.clone()));
    background.spawn(tend(Arc::clone(store), stopping.clone()));
    let audit = &parts.config.audit;
    if !audit.database_url.is_empty() {
        let metrics = Arc::clone(&parts.metrics);
        background.spawn(settle_in_doubt(Arc::clone(store), metrics, stopping.clone()));
    }
    let interval = Duration::from_secs(audit.publish_interval_s);
    background.spawn(Arc::clone(witness).run(interval, stopping.clone()));
    spawn_archive(parts);
}

/// Moves contents of old records, where there is an archive and an interval is set.
fn spawn_archive(parts: &BrokerParts) {
    let retention = &parts.config.retention;
    let interval = Duration::from_secs(retention.archive_interval_s);
    if interval.is_zero() {
        return;
    }
    let archivist = archivist(parts);
    if !archivist.has_archive() {
        tracing::info!("contents stay in the database: retention.archive_url names no archive");
        return;
    }
    let sweep = archive::sweep(archivist, retention.hot_days, interval, parts.stopping.clone());
    parts.background.spawn(sweep);
}

/// Asks for the second opinions that are due, where there is a classifier: also for those that were due under earlier
/// settings.
pub(super) fn spawn_opinions(parts: &BrokerParts, ledger: &Ledger) {
    let Some(classifier) = parts.second_opinion.clone() else { return };
    let worker = OpinionWorker::new(
        OpinionDependencies {
            store: Arc::clone(&parts.store),
            contents: parts.archive.contents(Arc::clone(&parts.store)),
            clock: Arc::clone(&parts.clock),
            ledger: ledger.clone(),
            classifier,
            settings: opinion_settings(&parts.config),
            stopping: parts.stopping.clone(),
        },
        parts.attempts.clone(),
    );
    parts.background.spawn(worker.run());
}

fn archivist(parts: &BrokerParts) -> Archivist {
    let (store, clock) = (Arc::clone(&parts.store), Arc::clone(&parts.clock));
    parts.archive.archivist(store, clock, parts.metrics.archive.clone())
}

/// Publishes events to subscribers, and removes those past their retention time.
pub(super) fn spawn_events(parts: &BrokerParts, ledger: &Ledger) -> Feed {
    let feed = Feed::new(Arc::clone(&parts.store));
    let publisher = EventPublisher::new(
        events::PublisherDependencies {
            store: Arc::clone(&parts.store),
            feed: feed.clone(),
            directory: Arc::clone(&parts.directory),
            vault: parts.vault.clone(),
            clock: Arc::clone(&parts.clock),
            metrics: Arc::clone(&parts.metrics),
            client: WebhookClient::new(parts.client.clone()),
            ledger: ledger.clone(),
            settings: publisher_settings(&parts.config),
            broker: parts.broker.clone(),
            stopping: parts.stopping.clone(),
        },
        parts.attempts.clone(),
    );
    parts.background.spawn(publisher.run());
    let sender = ChunkSender::new(
        chunks::ChunkSenderDependencies {
            store: Arc::clone(&parts.store),
            directory: Arc::clone(&parts.directory),
            vault: parts.vault.clone(),
            clock: Arc::clone(&parts.clock),
            metrics: Arc::clone(&parts.metrics),
            post: Arc::new(WebhookClient::new(parts.client.clone())),
            ledger: ledger.clone(),
            settings: chunk_sender_settings(&parts.config),
            broker: parts.broker.clone(),
            stopping: parts.stopping.clone(),
        },
        parts.attempts.clone(),
    );
    parts.background.spawn(sender.run());
    parts.background.spawn(forget_events(
        Arc::clone(&parts.store),
        Arc::clone(&parts.clock),
        Duration::from_secs(parts.config.events.retention_days.saturating_mul(86_400)),
        console_sessions::idle_us(&parts.config.console),
        parts.stopping.clone(),
    ));
    feed
}

/// Erases data subjects, and purges what is past its retention time.
pub(super) fn spawn_erasure(parts: &BrokerParts, ledger: &Ledger) -> Eraser {
    let settings = erasure_settings(&parts.config);
    let retention = &parts.config.retention;
    if retention.delete_after_days > 0 {
        let purger = Purger {
            directory: Arc::clone(&parts.directory),
            store: Arc::clone(&parts.store),
            ledger: ledger.clone(),
            cold: Arc::new(archivist(parts)),
            clock: Arc::clone(&parts.clock),
            metrics: parts.metrics.retention.clone(),
            page: settings.page,
        };
        let interval = Duration::from_secs(retention.delete_interval_s);
        let sweep = purger.sweep(retention.delete_after_days, interval, parts.stopping.clone());
        parts.background.spawn(sweep);
    }
    let eraser = Eraser::new(erasure::EraserContext {
        directory: Arc::clone(&parts.directory),
        store: Arc::clone(&parts.store),
        ledger: ledger.clone(),
        cold: Arc::new(archivist(parts)),
        clock: Arc::clone(&parts.clock),
        metrics: Arc::clone(&parts.metrics),
        settings,
        tracker: parts.background.clone(),
        stopping: parts.stopping.clone(),
    });
    parts.background.spawn(eraser.clone().sweep(parts.alone()));
    eraser
}
