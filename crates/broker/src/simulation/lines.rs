//! The network between brokers and the webhook receivers of chunks, and what those receivers do with a chunk.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::dice::pause;
use super::wire::Wire;
use super::world::World;
use crate::dispatch::chunks::ChunkPost;
use crate::dispatch::webhook::{Notice, WebhookRequest};
use crate::transport::{AttemptFailure, FailureClass};
use handoffd_domain::ids::HandoffId;

/// A chunk as its receiver sees it.
#[derive(Debug, Clone)]
pub(super) struct ChunkArrival {
    pub(super) handoff: HandoffId,
    pub(super) seq: i64,
    pub(super) body: Value,
}

fn arrival(request: &WebhookRequest) -> Option<ChunkArrival> {
    Some(ChunkArrival {
        handoff: request.headers.handoff_id.as_ref()?.parse().ok()?,
        seq: request.headers.chunk?,
        body: serde_json::from_slice(&request.body).ok()?,
    })
}

#[async_trait]
impl ChunkPost for Wire {
    async fn post_chunk(&self, request: WebhookRequest) -> Notice {
        let Self { world, host } = self;
        host.moves().await;
        let arrival = arrival(&request).expect("the headers that receivers are promised");
        world.books().line_posted(&arrival);
        let notice = self.carry(&request, &arrival).await;
        let taken = matches!(&notice, Notice::Answered { status: 200..=299, .. });
        let ChunkArrival { handoff, seq, .. } = arrival;
        world.note(|| {
            let id = super::books::short(handoff);
            format!("{} sends chunk {seq} of {id}: taken {taken}", host.name)
        });
        host.moves().await;
        world.books().line_answered(handoff, seq, taken);
        notice
    }
}

impl Wire {
    async fn carry(&self, request: &WebhookRequest, arrival: &ChunkArrival) -> Notice {
        let Self { world, host } = self;
        let deadline = Instant::now() + request.timeout;
        let failed = |reached: bool| {
            let (class, why) = (FailureClass::Timeout, "no answer in time");
            Notice::Failed(if reached {
                AttemptFailure::reached(class, None, why)
            } else {
                AttemptFailure::unreached(FailureClass::Connect, "refused")
            })
        };
        tokio::time::sleep(pause(1, 15)).await;
        host.moves().await;
        if world.fails(world.weather.refused) {
            return failed(false);
        }
        if world.fails(world.weather.unanswered / 2) {
            // It left and arrived nowhere.
            tokio::time::sleep_until(deadline).await;
            return failed(true);
        }
        if world.fails(world.weather.twice) {
            let (world, again) = (Arc::clone(world), arrival.clone());
            tokio::spawn(async move {
                tokio::time::sleep(pause(1, 1_000)).await;
                receive(&world, &again).await;
            });
        }
        let receiving = {
            let (world, arrival) = (Arc::clone(world), arrival.clone());
            tokio::spawn(async move { receive(&world, &arrival).await })
        };
        let Ok(status) = timeout_at(deadline, receiving).await else { return failed(true) };
        let status = status.expect("a receiver does not panic");
        if world.fails(world.weather.crash * 4) {
            world.note(|| format!("{} dies before it hears of chunk {}", host.name, arrival.seq));
            host.dead.cancel();
            host.moves().await;
        }
        if world.fails(world.weather.unanswered / 2) {
            tokio::time::sleep_until(deadline).await;
            return failed(true);
        }
        Notice::Answered { status, retry_after: None }
    }
}

/// A webhook receiver's answer to a chunk.
async fn receive(world: &World, arrival: &ChunkArrival) -> u16 {
    tokio::time::sleep(pause(1, 40)).await;
    if world.fails(50) {
        // Longer than anybody waits.
        tokio::time::sleep(pause(500, 2_000)).await;
    }
    if world.fails(world.weather.unwilling / 3) {
        return 503;
    }
    world.books().line_taken(arrival);
    204
}
