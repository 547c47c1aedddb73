//! The protocol's methods, by the names that both bindings share.

use serde_json::Value;

use super::call::Call;
use super::error::{A2aError, Refused};
use super::request::{SendMessageRequest, TaskRequest, read};
use super::stream::{self, Updates};
use super::{cards, operations, push};

/// A method of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    SendMessage,
    SendStreamingMessage,
    GetTask,
    ListTasks,
    CancelTask,
    SubscribeToTask,
    CreatePushConfig,
    GetPushConfig,
    ListPushConfigs,
    DeletePushConfig,
    GetExtendedAgentCard,
}

/// The result of a method.
pub(super) enum Outcome {
    Json(Value),
    Stream(Box<Updates>),
}

/// Methods with their JSON-RPC names and their labels in metrics.
const NAMES: [(Method, &str, &str); 11] = [
    (Method::SendMessage, "SendMessage", "send_message"),
    (Method::SendStreamingMessage, "SendStreamingMessage", "send_streaming_message"),
    (Method::GetTask, "GetTask", "get_task"),
    (Method::ListTasks, "ListTasks", "list_tasks"),
    (Method::CancelTask, "CancelTask", "cancel_task"),
    (Method::SubscribeToTask, "SubscribeToTask", "subscribe_to_task"),
    (Method::CreatePushConfig, "CreateTaskPushNotificationConfig", "create_push_config"),
    (Method::GetPushConfig, "GetTaskPushNotificationConfig", "get_push_config"),
    (Method::ListPushConfigs, "ListTaskPushNotificationConfigs", "list_push_configs"),
    (Method::DeletePushConfig, "DeleteTaskPushNotificationConfig", "delete_push_config"),
    (Method::GetExtendedAgentCard, "GetExtendedAgentCard", "get_extended_agent_card"),
];

impl Method {
    /// The method of a JSON-RPC name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known, _)| *known == name).map(|(method, _, _)| *method)
    }

    /// Its label in metrics.
    pub(super) fn label(self) -> &'static str {
        NAMES.iter().find(|(method, _, _)| *method == self).map_or("other", |(_, _, label)| label)
    }

    /// Runs it.
    pub(super) async fn run(self, call: Call, params: Value) -> Result<Outcome, Refused> {
        let json = match self {
            Self::SendMessage => operations::send(&call, read("", params)?).await?,
            Self::SendStreamingMessage => {
                let request: SendMessageRequest = read("", params)?;
                return Ok(Outcome::Stream(Box::new(stream::send(call, request).await?)));
            }
            Self::GetTask => operations::get(&call, read("", params)?).await?,
            Self::ListTasks => operations::list(&call, read("", params)?).await?,
            Self::CancelTask => operations::cancel(&call, read("", params)?).await?,
            Self::SubscribeToTask => {
                let request: TaskRequest = read("", params)?;
                return Ok(Outcome::Stream(Box::new(stream::subscribe(call, request).await?)));
            }
            Self::CreatePushConfig => {
                let Value::Object(config) = params else {
                    return Err(A2aError::invalid("params", "must be an object"));
                };
                let config = push::PushConfig::read(config)?;
                let Some(task) = config.task_id.clone() else {
                    return Err(A2aError::invalid("taskId", "is needed"));
                };
                push::create(&call, &task, config, false).await?
            }
            Self::GetPushConfig => push::get(&call, read("", params)?).await?,
            Self::ListPushConfigs => push::list(&call, read("", params)?).await?,
            Self::DeletePushConfig => push::delete(&call, read("", params)?).await?,
            Self::GetExtendedAgentCard => cards::extended(&call).await?,
        };
        Ok(Outcome::Json(json))
    }
}
