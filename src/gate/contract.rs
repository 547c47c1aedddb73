//! The contract stage (specification §2.2 stage 7): which contract rules the edge, and what it says of
//! the message. Where none does, nothing is said, unless the broker is set to ask for one.

use std::sync::Arc;

use crate::contract::catalog::Catalog;
use crate::contract::enforce::{Edge, Ready};
use crate::domain::agent::Agent;
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::message::Message;

/// What came of it.
#[derive(Debug, Default)]
pub struct Found {
    /// The contract that rules.
    pub ruling: Option<Arc<Ready>>,
    /// In what the message breaks it.
    pub failures: Vec<Failure>,
}

/// Holds a message against the contract of its edge.
#[must_use]
pub fn check(
    message: &Message,
    source: &Agent,
    target: &Agent,
    catalog: &Catalog,
    required: bool,
) -> Found {
    let named = message.envelope().contract_id.as_deref();
    let violation =
        |pointer, why| vec![Failure::new(Stage::Contract, Code::ContractViolation, pointer, why)];
    match catalog.ruling(source, target, named) {
        Ok(Some(ready)) => Found {
            ruling: Some(Arc::clone(ready)),
            failures: ready.check(message.value(), Edge { source, target }),
        },
        Ok(None) if required => Found {
            ruling: None,
            failures: violation(
                "/toAgent",
                format!(
                    "No contract rules {} → {}, and this broker asks for one.",
                    source.agent_id, target.agent_id
                ),
            ),
        },
        Ok(None) => Found::default(),
        Err(why) => Found {
            ruling: None,
            failures: violation("/contractId", format!("Clause `contractId`: {why}.")),
        },
    }
}
