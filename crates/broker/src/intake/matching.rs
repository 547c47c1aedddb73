//! Agents that could take a handoff, before a message is written (specification §4.1).

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use super::Intake;
use super::refused::Refusal;
use crate::directory::{Agents, Matcher, Principal, Ranking};
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff_tool::reachable;
use handoffd_domain::ids::AgentId;

/// The ranking by words in common.
const BY_TEXT: &str = "text";

/// The work for which an agent is looked for.
#[derive(Debug, Clone, Copy)]
pub struct WantedAgent<'a> {
    /// A capability that it has.
    pub capability: Option<&'a str>,
    /// A text that fits its names, capabilities, description or examples.
    pub task: Option<&'a str>,
    /// Only agents to which the caller may hand off.
    pub reachable_only: bool,
}

/// Agents that fit, best first.
#[derive(Debug)]
pub struct MatchedAgents {
    pub agents: Arc<Agents>,
    /// Each with its score, which compares within one answer.
    pub ranking: Ranking,
    /// The ranking in use: `capability`, `text`, or the name of the matcher.
    pub ranked_by: String,
}

impl Intake {
    /// Finds agents that fit: those that take work now first, then by relevance to the task, then by version. The matcher ranks,
    /// where there is one and it answers, else the words in common.
    ///
    /// # Errors
    /// Neither a capability nor a task is stated, or the store cannot be read.
    pub async fn matching_agents(
        &self,
        principal: &Principal,
        matcher: Option<&dyn Matcher>,
        wanted: WantedAgent<'_>,
    ) -> Result<MatchedAgents, Refusal> {
        if wanted.capability.is_none() && wanted.task.is_none() {
            let why = "say what to match: capability=… or task=…";
            return Err(Refusal::because(Code::InvalidRequest, why));
        }
        let agents = self.directory.agents(&principal.tenant).await?;
        let caller = principal.agent.as_ref().filter(|_| wanted.reachable_only);
        // Others must not take the places of those to which the caller may hand off.
        let reached: Option<HashSet<&AgentId>> = caller.map(|id| {
            let sender = agents.roster.find(id);
            let reached =
                sender.map(|sender| reachable(sender, &agents.roster)).unwrap_or_default();
            reached.into_iter().map(|agent| &agent.agent_id).collect()
        });
        let is_eligible = |agent: &Agent| {
            agent.accepts_handoffs
                && wanted.capability.is_none_or(|wanted| agent.can(wanted))
                && reached.as_ref().is_none_or(|reached| reached.contains(&agent.agent_id))
        };
        let (mut ranking, ranked_by): (Ranking, String) = match wanted.task {
            None => {
                let able = agents.roster.iter().filter(|agent| is_eligible(agent));
                let able = able.map(|agent| (1.0, agent.agent_id.clone()));
                (able.collect(), "capability".to_owned())
            }
            Some(task) => {
                let mut by_text = by_text(&agents, task).await?;
                by_text.retain(|(_, id)| agents.roster.find(id).is_some_and(is_eligible));
                self.by_matcher(matcher, task, &agents, is_eligible, by_text).await
            }
        };
        sort(&mut ranking, &agents);
        Ok(MatchedAgents { agents, ranking, ranked_by })
    }

    /// The matcher's ranking, where there is one and it answers; else the ranking by text. The matcher is shown the agents of that
    /// ranking, then others that take work now: a model understands a text that shares no word.
    async fn by_matcher(
        &self,
        matcher: Option<&dyn Matcher>,
        task: &str,
        agents: &Agents,
        is_eligible: impl Fn(&Agent) -> bool,
        by_text: Ranking,
    ) -> (Ranking, String) {
        let Some(matcher) = matcher else { return (by_text, BY_TEXT.to_owned()) };
        let first: HashSet<&AgentId> = by_text.iter().map(|(_, id)| id).collect();
        let others = agents.roster.iter().filter(|agent| {
            agent.is_live() && is_eligible(agent) && !first.contains(&agent.agent_id)
        });
        let ranked = by_text.iter().filter_map(|(_, id)| agents.roster.find(id));
        let shown: Vec<&Agent> = ranked.chain(others).take(matcher.most()).collect();
        if shown.is_empty() {
            return (by_text, BY_TEXT.to_owned());
        }
        let answers = &self.metrics.matcher_answers;
        match matcher.rank(task, &shown).await {
            Ok(ranking) => {
                answers.with_label_values(&["ranked"]).inc();
                (ranking, matcher.name().to_owned())
            }
            Err(why) => {
                answers.with_label_values(&["none"]).inc();
                tracing::warn!(matcher = matcher.name(), error = why, "the matcher did not answer");
                (by_text, BY_TEXT.to_owned())
            }
        }
    }
}

/// Ranks agents by the words that they share with a task.
async fn by_text(agents: &Arc<Agents>, task: &str) -> Result<Ranking, Refusal> {
    let (agents, task) = (Arc::clone(agents), task.to_owned());
    // An index over thousands of agents takes a while to make, once for each change of theirs.
    let ranking = tokio::task::spawn_blocking(move || {
        let ranked = agents.relevance().rank(&task);
        ranked.into_iter().map(|(score, id)| (score, id.clone())).collect()
    });
    ranking.await.map_err(|_| Refusal::because(Code::Internal, "the agents were not ranked"))
}

/// Sorts a ranking, and leaves out agents that do not exist.
fn sort(ranking: &mut Ranking, agents: &Agents) {
    ranking.retain(|(_, id)| agents.roster.find(id).is_some());
    ranking.sort_by(|(score, id), (other_score, other)| {
        match (agents.roster.find(id), agents.roster.find(other)) {
            (Some(one), Some(other)) => before((*score, one), (*other_score, other)),
            _ => Ordering::Equal,
        }
    });
}

/// The order of two agents: the one that takes work now, the higher score, a release, the higher version, then by id.
fn before((score, one): (f64, &Agent), (other_score, other): (f64, &Agent)) -> Ordering {
    let is_release = |agent: &Agent| agent.agent_version.pre.is_empty();
    let by_work = other.is_live().cmp(&one.is_live());
    by_work
        .then_with(|| other_score.total_cmp(&score))
        .then_with(|| is_release(other).cmp(&is_release(one)))
        .then_with(|| other.agent_version.cmp_precedence(&one.agent_version))
        .then_with(|| one.agent_id.cmp(&other.agent_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str, version: &str) -> Agent {
        Agent { agent_version: version.parse().unwrap(), ..Agent::new(id.parse().unwrap()) }
    }

    #[test]
    fn agents_come_by_score_then_release_then_version_then_id() {
        let mut agents = [
            (0.5, agent("b", "1.0.0")),
            (0.5, agent("a", "1.0.0")),
            (0.5, agent("c", "2.0.0")),
            (0.5, agent("d", "3.0.0-rc.1")),
            (0.9, agent("e", "0.1.0")),
        ];
        agents.sort_by(|(score, one), (other_score, other)| {
            before((*score, one), (*other_score, other))
        });
        let ids: Vec<&str> = agents.iter().map(|(_, agent)| agent.agent_id.as_str()).collect();
        assert_eq!(ids, ["e", "c", "a", "b", "d"]);
    }

    #[test]
    fn an_agent_that_takes_work_now_comes_before_a_better_match_that_does_not() {
        let live = agent("live", "1.0.0");
        let mut paused = agent("paused", "1.0.0");
        paused.accepts_handoffs = false;
        assert!(live.is_live() && !paused.is_live());
        assert_eq!(before((0.1, &live), (0.9, &paused)), Ordering::Less);
    }
}
