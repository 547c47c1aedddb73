//! The specialist that a strategy chooses for a task.

use super::super::submission::Refusal;
use super::call::Call;
use super::outcomes;
use super::router::{SpecialistQuery, choose, matching};
use handoffd_domain::agent::Agent;
use handoffd_domain::strategy::RoutingStrategy;

/// Characters of a task that are ranked: a request's line has its bounds, and a task's first words say what it is.
const RANKED: usize = 2_000;

impl Call {
    /// The specialist that a strategy chooses.
    ///
    /// # Errors
    /// The API's refusal to rank.
    pub(super) async fn specialist(
        &self,
        strategy: RoutingStrategy,
        wanted: SpecialistQuery<'_>,
        task: &str,
    ) -> Result<Option<&Agent>, Refusal> {
        let available = self.available();
        let found = match strategy {
            RoutingStrategy::Relevance => self.ranked(&available, task).await?,
            RoutingStrategy::FirstMatch | RoutingStrategy::LeastBusy => {
                matching(&available, wanted)
            }
            RoutingStrategy::SuccessRate => {
                let mut found = matching(&available, wanted);
                outcomes::rank(self, &mut found, wanted.kind).await?;
                found
            }
        };
        let able = |agent: &&Agent| wanted.required.iter().all(|one| agent.can(one));
        let found: Vec<&Agent> = found.into_iter().filter(able).collect();
        let in_flight = |agent: &Agent| self.agents.roster.in_flight(&agent.agent_id);
        Ok(choose(strategy, &found, in_flight))
    }

    /// Those of the agents whose descriptions fit a task, best first.
    pub(super) async fn ranked<'a>(
        &self,
        available: &[&'a Agent],
        task: &str,
    ) -> Result<Vec<&'a Agent>, Refusal> {
        let task: String = task.chars().take(RANKED).collect();
        let found = self.client.matching(Some(&task), None).await?.items.into_iter();
        let known = |id: String| available.iter().copied().find(|it| it.agent_id.as_str() == id);
        Ok(found.filter_map(|item| known(item.agent_id)).collect())
    }
}
