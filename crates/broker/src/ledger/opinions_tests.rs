//! Second opinions after the commit, decided.

use super::commands::{AnyCommand, AnyReply, RecordOpinion, VerdictKind};
use super::context::{Context, Rules, Spare};
use super::decide_tests::{
    Order, claim_of, command, decide, is_superseded, submit, tenant, uuid, verdict,
};
use super::plan::Plan;
use super::reply::{Noted, SubmissionReply};
use handoffd_domain::event::EventType;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_evidence::record::{ClassifierFacts, RecordKind, SafetyFacts};
use handoffd_store::store::{BatchState, HandoffKey, Writes};

const HANDOFF: u8 = 1;
const TASK: u8 = 100;

fn key() -> HandoffKey {
    (tenant(), HandoffId(uuid(HANDOFF)))
}

/// A submission whose record says this of the classifier.
fn judged(verdict: &str) -> Order {
    let mut command = submit(HANDOFF, TASK, 7);
    if let AnyCommand::Submit(submit) = &mut command.command {
        submit.safety = Some(SafetyFacts {
            rules: "1".to_owned(),
            observed: Vec::new(),
            marked: vec!["order".to_owned()],
            classifier: Some(ClassifierFacts::new("guard", verdict)),
        });
    }
    command
}

fn opinion(attempt: i32, facts: ClassifierFacts) -> Order {
    let opinion = RecordOpinion {
        task_id: TaskId(uuid(TASK)),
        handoff_id: HandoffId(uuid(HANDOFF)),
        attempt,
        facts,
        reason: None,
    };
    command(20, opinion)
}

fn labelled() -> ClassifierFacts {
    ClassifierFacts {
        label: Some("persuasion".to_owned()),
        ..ClassifierFacts::new("guard", ClassifierFacts::UNSAFE)
    }
}

fn decided(state: BatchState, command: &Order) -> (BatchState, Writes, AnyReply) {
    let context = Context {
        rules: Rules::default(),
        spare: Spare::new(Micros(0)),
        waited: std::time::Duration::ZERO,
        claim: claim_of(command),
    };
    let mut plan = Plan::new(state);
    let (changes, reply) = decide(&plan.state, command, &context).unwrap();
    plan.apply(changes);
    (plan.state, plan.writes, reply)
}

/// A committed handoff whose opinion was claimed so often.
fn claimed(attempts: i32) -> BatchState {
    let (mut state, ..) = decided(BatchState::default(), &judged(ClassifierFacts::PENDING));
    state.opinions.insert(key(), attempts);
    state
}

#[test]
fn an_opinion_is_due_with_the_commit_where_the_record_says_that_it_is_pending() {
    let (state, writes, _) = decided(BatchState::default(), &judged(ClassifierFacts::PENDING));
    assert_eq!(writes.opinions, [(key(), Some(Micros(7)))].into());
    let (_, again, reply) = decided(state, &judged(ClassifierFacts::PENDING));
    assert!(
        matches!(reply.submission(), Some(SubmissionReply::Handoff { replayed: true, .. })),
        "{reply:?}"
    );
    assert!(again.opinions.is_empty(), "a replay has none of its own");
    for said in [ClassifierFacts::SAFE, ClassifierFacts::UNSAFE, ClassifierFacts::NONE] {
        let (_, writes, _) = decided(BatchState::default(), &judged(said));
        assert!(writes.opinions.is_empty(), "{said}: it was asked for before");
    }
    let (_, plain, _) = decided(BatchState::default(), &submit(HANDOFF, TASK, 7));
    assert!(plain.opinions.is_empty());
}

#[test]
fn an_opinion_is_recorded_once_and_moves_nothing() {
    let state = claimed(2);
    let (state, writes, reply) = decided(state, &opinion(2, labelled()));
    assert!(matches!(reply, AnyReply::RecordOpinion(Noted::Recorded)), "{reply:?}");
    assert_eq!(writes.opinions, [(key(), None)].into());
    let [record] = &writes.records[..] else { panic!("{:?}", writes.records) };
    assert_eq!(record.kind, RecordKind::SecondOpinion);
    assert_eq!(record.opinion, Some(labelled()));
    assert_eq!((record.status, record.content.is_none()), (Some("PENDING"), true));
    assert!(writes.tasks.is_empty() && writes.handoffs.is_empty() && writes.outbox.is_empty());
    let (_, again, reply) = decided(state, &opinion(2, labelled()));
    assert!(is_superseded(&reply), "{reply:?}");
    assert!(again.records.is_empty());
}

#[test]
fn an_attempt_that_a_later_claim_overtook_records_nothing() {
    for attempt in [1, 3] {
        let (state, writes, reply) = decided(claimed(2), &opinion(attempt, labelled()));
        assert!(is_superseded(&reply), "{attempt}: {reply:?}");
        assert!(writes.records.is_empty() && writes.opinions.is_empty());
        assert_eq!(state.opinions[&key()], 2);
    }
}

#[test]
fn only_an_unsafe_opinion_raises_an_alert() {
    for (facts, alerts) in [
        (ClassifierFacts::new("guard", ClassifierFacts::SAFE), 0),
        (ClassifierFacts::new("guard", ClassifierFacts::NONE), 0),
        (ClassifierFacts::new("guard", ClassifierFacts::UNSAFE), 1),
        (labelled(), 1),
    ] {
        let (_, writes, _) = decided(claimed(1), &opinion(1, facts.clone()));
        assert_eq!(writes.events.len(), alerts, "{facts:?}");
        for (record, event) in &writes.events {
            assert_eq!((*record, event.kind), (0, EventType::AlertRaised));
            assert_eq!(event.data["alert"], "SECOND_OPINION_UNSAFE");
            assert_eq!(
                event.data.get("label").and_then(|label| label.as_str()),
                facts.label.as_deref()
            );
        }
    }
}

#[test]
fn an_opinion_on_a_handoff_that_ended_says_as_what_it_ended() {
    let mut state = claimed(1);
    for kind in [VerdictKind::Accept, VerdictKind::Complete] {
        (state, ..) = decided(state, &verdict(HANDOFF, TASK, 10, 1, kind));
    }
    let (state, writes, _) = decided(state, &opinion(1, labelled()));
    assert_eq!(writes.records[0].status, Some("COMPLETED"));
    assert_eq!(state.handoffs[&key()].status, HandoffStatus::Completed);
}
