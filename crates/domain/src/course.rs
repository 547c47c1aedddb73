//! The course that a task takes: the failures that call for a person, and the subtasks by which the loop guard
//! knows progress. Kept with the task, under its lock.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::group::Group;
use super::ids::{AgentId, HandoffId, TaskId};

/// The most subtasks that are remembered of a task: 32 hops with 128 new ones each. A result beyond them is
/// not counted as progress.
const MAX_SUBTASKS: usize = 4_096;

/// Failures on one edge of a task, as its sender addressed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub from: AgentId,
    /// To whom: an agent's id, `type:<agentType>` or `capability:<name>`.
    pub to: String,
    /// How many since it last went well.
    pub failures: i64,
}

/// A handoff that returned its task, until the agent that has it again acts on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    pub handoff: HandoffId,
    /// The agent that asked for the return.
    pub to: AgentId,
}

/// A task's history by edge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Course {
    /// Edges that failed since they last went well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<Failing>,
    /// Subtasks whose results were seen: the first 64 bits of a hash of each one's id, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subtasks: Vec<u64>,
    /// Returns that stand in inboxes, in the order of their commits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<Returned>,
    /// Groups of the task in the order of their commits; at most the last is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Handoffs beside the first of each group: the loop guard counts a group as one hop.
    #[serde(skip_serializing_if = "is_zero")]
    pub beside: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(value: &i64) -> bool {
    *value == 0
}

impl Course {
    /// As stored: JSON; nothing where there is nothing to remember.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        // Plain data always serialises.
        (*self != Self::default()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    #[must_use]
    pub fn open_group(&self) -> Option<&Group> {
        self.groups.last().filter(|group| !group.status.is_final())
    }

    /// The same, to be changed.
    pub fn open_group_mut(&mut self) -> Option<&mut Group> {
        self.groups.last_mut().filter(|group| !group.status.is_final())
    }

    #[must_use]
    pub fn group(&self, id: HandoffId) -> Option<&Group> {
        self.groups.iter().find(|group| group.id == id)
    }

    /// Counts a failure on an edge; returns how many it has now.
    pub fn fail(&mut self, from: &AgentId, to: &str) -> i64 {
        if let Some(edge) = self.failing.iter_mut().find(|edge| edge.from == *from && edge.to == to)
        {
            edge.failures += 1;
            return edge.failures;
        }
        self.failing.push(Failing { from: from.clone(), to: to.to_owned(), failures: 1 });
        1
    }

    /// The edge went well.
    pub fn succeed(&mut self, from: &AgentId, to: &str) {
        self.failing.retain(|edge| edge.from != *from || edge.to != to);
    }

    /// How many subtasks will be known once these have been seen, too.
    #[must_use]
    pub fn progress(&self, seen: &[u64]) -> i64 {
        let new = seen.iter().filter(|one| self.subtasks.binary_search(one).is_err()).count();
        i64::try_from((self.subtasks.len() + new).min(MAX_SUBTASKS)).unwrap_or(i64::MAX)
    }

    pub fn see(&mut self, seen: &[u64]) {
        for one in seen {
            if let Err(place) = self.subtasks.binary_search(one)
                && self.subtasks.len() < MAX_SUBTASKS
            {
                self.subtasks.insert(place, *one);
            }
        }
    }
}

/// The subtasks of a message that have a result, each once: hashes of their ids under the task's, so that what is
/// kept tells nothing of them elsewhere.
#[must_use]
pub fn subtasks_of(task: TaskId, message: &Value) -> Vec<u64> {
    let named = message.get("completedSubtasks").and_then(Value::as_array);
    let mut seen: Vec<u64> = named
        .into_iter()
        .flatten()
        .filter(|one| one.get("result").is_some_and(|result| !result.is_null()))
        .filter_map(|one| one.get("subtaskId")?.as_str())
        .map(|id| {
            let hash = Sha256::new().chain_update(task.0.as_bytes()).chain_update(id).finalize();
            let mut first = [0; 8];
            first.copy_from_slice(&hash[..8]);
            u64::from_be_bytes(first)
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn f2_1_failures_count_by_edge_as_addressed() {
        let (a, b): (AgentId, AgentId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut course = Course::default();
        assert_eq!(course.to_text(), None);
        for n in 1..=3 {
            assert_eq!(course.fail(&a, "type:reviewer"), n);
        }
        assert_eq!((course.fail(&a, "b"), course.fail(&b, "type:reviewer")), (1, 1));
        course.succeed(&a, "type:reviewer");
        assert_eq!(course.fail(&a, "type:reviewer"), 1);
        let kept: Course = serde_json::from_str(&course.to_text().unwrap()).unwrap();
        assert_eq!(kept, course);
    }

    #[test]
    fn f2_10_progress_is_a_new_id_with_a_result() {
        let task = TaskId(uuid::Uuid::from_u128(7));
        let of = |ids: &[(&str, Value)]| {
            let list: Vec<Value> = ids
                .iter()
                .map(|(id, result)| json!({ "subtaskId": id, "result": result }))
                .collect();
            subtasks_of(task, &json!({ "completedSubtasks": list }))
        };
        let done = |id| (id, json!({ "ok": true }));
        let mut course = Course::default();
        assert_eq!(course.progress(&of(&[done("s1")])), 1);
        course.see(&of(&[done("s1")]));
        assert_eq!(course.progress(&of(&[done("s1"), done("s1")])), 1, "the same again");
        assert_eq!(course.progress(&of(&[("s2", Value::Null)])), 1, "no result");
        assert_eq!(course.progress(&of(&[done("s2")])), 2, "another in its place");
        course.see(&of(&[done("s2")]));
        assert_eq!(course.progress(&of(&[done("s1"), done("s2"), done("s3")])), 3);
        assert_eq!(course.progress(&[]), 2);
        let other = TaskId(uuid::Uuid::from_u128(8));
        let list = json!({ "completedSubtasks": [{ "subtaskId": "s1", "result": {} }] });
        assert_ne!(subtasks_of(task, &list), subtasks_of(other, &list));
    }
}
