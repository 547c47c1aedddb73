//! The commands, one file each: the request, the rows that it reads, the decision and the reply.

use super::command::{Call, Command, Freed};
use super::context::Context;
pub use super::contracts::Repeat;
use super::needs::Rows;
use super::plan::Decision;
pub use super::refusal::Counted;
use super::reply::{HandoffReply, SubmissionReply};
pub use super::submission::{Submit, SubmitBranch, SubmitGroup};
use handoffd_domain::handoff::HandoffDraft;
use handoffd_store::store::{BatchState, Needs};

pub(crate) mod adopt_states;
pub mod answer;
pub(crate) mod append_chunk;
pub mod ask;
pub(crate) mod cancel_task;
pub(crate) mod change_agent;
pub mod change_master_key;
pub(crate) mod change_subscription;
pub(crate) mod change_tree_key;
pub(crate) mod complete_task;
pub mod compress;
pub(crate) mod create_agent;
pub(crate) mod create_key;
pub(crate) mod create_subscription;
pub(crate) mod disable_subscriber;
pub mod discard;
pub(crate) mod erase_next;
pub(crate) mod expire;
pub(crate) mod finish_erasure;
pub(crate) mod keep_dead_letter;
pub mod lease;
pub(crate) mod place_hold;
pub(crate) mod purge_next;
pub mod put_checkpoint;
pub(crate) mod put_contract;
pub(crate) mod put_payload_schema;
pub(crate) mod record_opinion;
pub(crate) mod refuse;
pub(crate) mod refuse_chunk;
pub mod release;
pub(crate) mod release_group;
pub(crate) mod release_hold;
pub(crate) mod request_erasure;
pub mod resolve;
pub(crate) mod restore_checkpoint;
pub(crate) mod revoke_key;
pub(crate) mod set_cap;
pub mod settle;
pub mod submit;
pub(crate) mod submit_group;
pub(crate) mod take_over;
pub(crate) mod top_up;
pub mod verdict;

pub use adopt_states::AdoptStates;
pub use answer::Answer;
pub use append_chunk::{AppendChunk, Chunked, ClosedStream, StreamEnd};
pub use ask::Ask;
pub use cancel_task::CancelTask;
pub use change_agent::{AgentChange, ChangeAgent, SecretsChange};
pub use change_master_key::ChangeMasterKey;
pub use change_subscription::{ChangeSubscription, SubscriptionChange};
pub use change_tree_key::ChangeTreeKey;
pub use complete_task::CompleteTask;
pub use compress::Compress;
pub use create_agent::CreateAgent;
pub use create_key::CreateKey;
pub use create_subscription::CreateSubscription;
pub use disable_subscriber::DisableSubscriber;
pub use discard::Discard;
pub use erase_next::EraseNext;
pub use expire::Expire;
pub use finish_erasure::FinishErasure;
pub use keep_dead_letter::KeepDeadLetter;
pub use lease::{Lease, Leased};
pub use place_hold::PlaceHold;
pub use purge_next::PurgeNext;
pub use put_checkpoint::PutCheckpoint;
pub use put_contract::{PutContract, PutContractReply};
pub use put_payload_schema::{PutPayloadSchema, PutPayloadSchemaReply};
pub use record_opinion::RecordOpinion;
pub use refuse::{DeadLetter, Refuse};
pub use refuse_chunk::RefuseChunk;
pub use release::Release;
pub use release_group::ReleaseGroup;
pub use release_hold::ReleaseHold;
pub use request_erasure::RequestErasure;
pub use resolve::{Resolve, Resolved};
pub use restore_checkpoint::RestoreCheckpoint;
pub use revoke_key::RevokeKey;
pub use set_cap::{CapChange, SetCap};
pub use settle::{Outcome, Settle};
pub use take_over::TakeOver;
pub use top_up::TopUp;
pub use verdict::{Verdict, VerdictKind};

/// A command with the two ways between its own types and those of a queue that takes all.
pub trait Queued: Command {
    /// The command as one of all.
    fn into_any(self) -> AnyCommand;

    /// The command; `None` where that is another one.
    fn command(any: AnyCommand) -> Option<Self>;

    /// The reply to it; `None` where that is another command's.
    fn reply(any: AnyReply) -> Option<Self::Reply>;
}

macro_rules! commands {
    ($($command:ident),* $(,)?) => {
        /// Any command.
        #[derive(Debug, Clone)]
        pub enum AnyCommand {
            $(
                #[doc = concat!("[`", stringify!($command), "`]")]
                $command(Box<$command>),
            )*
        }

        /// The reply to any command.
        #[derive(Debug)]
        pub enum AnyReply {
            $(
                #[doc = concat!("To [`", stringify!($command), "`].")]
                $command(<$command as Command>::Reply),
            )*
        }

        $(
            impl Queued for $command {
                fn into_any(self) -> AnyCommand {
                    AnyCommand::$command(Box::new(self))
                }

                fn command(any: AnyCommand) -> Option<Self> {
                    match any {
                        AnyCommand::$command(command) => Some(*command),
                        _ => None,
                    }
                }

                fn reply(any: AnyReply) -> Option<Self::Reply> {
                    match any {
                        AnyReply::$command(reply) => Some(reply),
                        _ => None,
                    }
                }
            }
        )*

        impl AnyCommand {
            /// The change as a span attribute.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$command(_) => <$command as Command>::NAME,)*
                }
            }

            /// Whether it changes objects whose states steer the broker.
            #[must_use]
            pub const fn changes_states(&self) -> bool {
                match self {
                    $(Self::$command(_) => <$command as Command>::CHANGES_STATES,)*
                }
            }

            /// Whether its decision asks the caps for room.
            #[must_use]
            pub const fn asks_caps(&self) -> bool {
                match self {
                    $(Self::$command(_) => <$command as Command>::ASKS_CAPS,)*
                }
            }

            /// Adds the rows that it reads to those of its batch.
            pub fn needs(&self, call: &Call, needs: &mut Needs) {
                let mut rows = Rows::new(&call.tenant, needs);
                match self {
                    $(Self::$command(command) => command.needs(&mut rows),)*
                }
            }

            /// Decides over the loaded rows.
            pub(super) fn decide(
                &self,
                state: &BatchState,
                call: &Call,
                context: &Context,
            ) -> Decision<AnyReply> {
                match self {
                    $(
                        Self::$command(command) => {
                            let (changes, reply) = command.decide(state, call, context)?;
                            Ok((changes, AnyReply::$command(reply)))
                        }
                    )*
                }
            }

            /// Whether it may give a tenant its first cap.
            pub(super) const fn changes_caps(&self) -> bool {
                match self {
                    $(Self::$command(_) => <$command as Command>::CHANGES_CAPS,)*
                }
            }

            /// The places in which it may have made handoffs claimable that its reply does not name.
            pub(super) fn frees(&self, reply: Option<&AnyReply>) -> Option<Freed> {
                match self {
                    $(
                        Self::$command(command) => command.frees(match reply {
                            Some(AnyReply::$command(reply)) => Some(reply),
                            _ => None,
                        }),
                    )*
                }
            }

            /// The handoff that the dispatcher may deliver from memory.
            pub(super) fn delivers(&self) -> Option<&HandoffDraft> {
                match self {
                    $(Self::$command(command) => command.delivers(),)*
                }
            }
        }

        impl AnyReply {
            /// The handoff that the command moved.
            pub(super) fn handoff(&self) -> Option<&HandoffReply> {
                match self {
                    $(Self::$command(reply) => <$command as Command>::handoff(reply),)*
                }
            }

            /// The answer to a submission, accepted or refused.
            pub(super) fn submission(&self) -> Option<&SubmissionReply> {
                match self {
                    $(Self::$command(reply) => <$command as Command>::submission(reply),)*
                }
            }
        }
    };
}

commands! {
    Submit,
    SubmitGroup,
    Refuse,
    Verdict,
    Ask,
    Answer,
    Settle,
    Compress,
    RecordOpinion,
    AppendChunk,
    RefuseChunk,
    Lease,
    TakeOver,
    Expire,
    PutCheckpoint,
    CompleteTask,
    CancelTask,
    TopUp,
    SetCap,
    RestoreCheckpoint,
    Resolve,
    Release,
    ReleaseGroup,
    KeepDeadLetter,
    Discard,
    CreateAgent,
    ChangeAgent,
    PutContract,
    PutPayloadSchema,
    CreateSubscription,
    ChangeSubscription,
    DisableSubscriber,
    CreateKey,
    AdoptStates,
    ChangeTreeKey,
    ChangeMasterKey,
    RevokeKey,
    PlaceHold,
    ReleaseHold,
    RequestErasure,
    EraseNext,
    FinishErasure,
    PurgeNext,
}
