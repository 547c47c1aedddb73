use proptest::prelude::*;
use regex::Regex;
use serde_json::json;

use super::*;

/// A task of four handoffs, with `words` wherever an agent or a person can write: the second is
/// refused, the third's message is erased.
fn story(words: &str) -> (Value, Vec<Value>, ReportFacts) {
    let agent = |name: &str| json!({ "agentId": format!("{words}{name}"), "agentVersion": words });
    let handoff = |at: usize, from: &str, to: &str, status: &str| {
        json!({
            "handoffId": format!("h{at}"),
            "parentHandoffId": (at > 1).then(|| format!("h{}", at - 1)),
            "leafIndex": at, "committedAt": "2026-06-12T08:00:00.000000Z",
            "fromAgent": agent(from), "toAgent": agent(to),
            "contract": { "id": words, "version": words },
            "taskDescription": words, "status": status, "reason": words, "attempts": 1,
            "acceptedAt": null, "endedAt": null,
            "costTracking": { "costSpentSoFarUSD": 0.25, "costBudgetRemainingUSD": 0.75 },
            "cost": { "usd": 0.125, "tokens": { "prompt": 4200, "completion": 1800 } },
        })
    };
    let record = |at: usize, kind: &str, id: &str| {
        json!({
            "kind": kind, "leafIndex": at, "time": "2026-06-12T08:00:00.000000Z", "handoffId": id,
            "actor": { "role": "agent", "agentId": words }, "reason": words,
            "recordHash": format!("sha256:{at}"), "previousRecordHash": words,
            "messageCommitment": "sha256:c", "content": { words: [words] },
        })
    };
    let message = |at: usize, state: Value| {
        json!({
            "handoffId": format!("h{at}"), "taskDescription": words, "currentState": state,
            "completedSubtasks": [{ "subtaskId": words, "description": words, "result": words }],
        })
    };
    let trace = json!({
        "taskId": words, "status": "COMPLETED",
        "handoffs": [
            handoff(1, "a", "b", "ACCEPTED"), handoff(2, "b", "c", "REJECTED"), handoff(3, "b", "c", "EXPIRED"),
            handoff(4, "c", "a", "PENDING"),
        ],
        "records": [
            record(1, "HANDOFF", "h1"), record(2, "HANDOFF", "h2"), record(3, "REJECTED", "h2"),
            record(4, words, "h3"), record(5, "TASK_COMPLETED", words),
        ],
        "agents": [{ "agentId": words, "sent": 1, "received": 1 }],
        "cost": {
            "totalUSD": 0.375, "reportedSumUSD": 0.75, "tokens": { "prompt": 9, "completion": 8 },
            "perAgent": [{ "agentId": words, "usd": 0.375, "tokens": { "prompt": 9, "completion": 8 } }],
        },
        "verification": { "ok": true, "records": 5, "contents": 4, "erased": 1, "firstBad": null },
    });
    let contents = vec![
        message(1, json!({ words: "one" })),
        message(2, json!({ words: format!("{words}two") })),
        message(4, json!({ words: "four" })),
    ];
    let facts = ReportFacts {
        tenant: words.to_owned(),
        log_id: words.to_owned(),
        generated_at: "2026-06-13T00:00:00Z".to_owned(),
        software: words.to_owned(),
        bundle: Some(words.to_owned()),
        tree_size: Some(7),
        root_hash: Some(words.to_owned()),
        tree_head: Some(words.to_owned()),
    };
    (trace, contents, facts)
}

fn page(words: &str) -> String {
    let (trace, contents, facts) = story(words);
    html(&trace, &contents, &facts)
}

/// Every tag with its attributes, in order.
fn tags(page: &str) -> Vec<&str> {
    Regex::new("<[^>]*>").unwrap().find_iter(page).map(|tag| tag.as_str()).collect()
}

#[test]
fn a_second_opinion_is_told_by_its_verdict() {
    let said = |record: Value| reason(&record);
    let named = json!({ "opinion": { "by": "g", "verdict": "UNSAFE", "label": "persuasion" } });
    assert_eq!(said(named), "UNSAFE persuasion");
    let none = json!({ "opinion": { "by": "g", "verdict": "NONE" }, "reason": "NO_ANSWER" });
    assert_eq!(said(none), "NONE NO_ANSWER");
    assert_eq!(said(json!({ "reason": "DEADLINE" })), "DEADLINE");
}

#[test]
fn the_page_tells_who_what_when_and_at_what_cost() {
    let page = page("calm");
    for part in [
        "<bdi>calma</bdi> → <bdi>calmb</bdi>",
        "REJECTED</span>: the receiver refused; the task went back to the sender (reason: <bdi>calm</bdi>)",
        "0.125 US dollars, 4200 tokens read, 1800 tokens written",
        "<strong>0.375</strong>",
        "<code>sha256:2</code>",
        "<strong>The records of this task are intact.</strong> 5 records and 4 contents",
        "The message is no longer kept",
        "What changed cannot be told",
        "What changed in the state of the work (1)",
        "<td><code>/currentState/calm</code></td><td>changed</td>",
        "The task was declared done at 2026-06-12T08:00:00.000000Z",
        "<dt>Records in the log</dt><dd>7</dd>",
        "handoffd verify calm",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(page.matches("<article class=\"hop\"").count(), 4);
    assert_eq!(
        page.matches("<line class=\"arrow\"").count(),
        4,
        "a picture with an arrow a handoff"
    );
    // The report does not repeat the parent's finished work if the parent is known.
    assert_eq!(page.matches("<details><summary>Result</summary>").count(), 2);
}

#[test]
fn a_broken_trace_says_so_first() {
    let (mut trace, contents, facts) = story("calm");
    trace["verification"] =
        json!({ "ok": false, "firstBad": { "leafIndex": 3, "fault": "record-hash" } });
    let page = html(&trace, &contents, &facts);
    assert!(page.contains("are not intact") && page.contains("fingerprint is number 3"), "{page}");
}

#[test]
fn an_empty_trace_is_a_page_too() {
    let page = html(&json!({}), &[], &ReportFacts::default());
    assert!(page.contains("No handoff was recorded") && page.ends_with("</html>"), "{page}");
}

#[test]
fn the_page_needs_no_network_and_runs_nothing() {
    let page = page("calm");
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"));
    for foreign in ["http:", "https:", "<script", "<link", "<img", "src=", "url(", "@import", " on"]
    {
        let found = tags(&page).into_iter().find(|tag| tag.contains(foreign));
        assert_eq!(found, None, "{foreign}");
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn hostile_words_stay_words() {
    let calm = page("calm");
    for words in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'></title><svg onload=alert(1)>",
        "</pre></details></article><h1>All is well</h1>",
        "<!--",
        "-->",
        "]]>",
        "&lt;b&gt;",
        "{{ 7*7 }}",
        "{% raw %}",
        "</style><style>*{display:none}",
        "javascript:alert(1)",
        "\u{202e}lla",
    ] {
        let page = page(words);
        assert_eq!(tags(&page), tags(&calm), "{words}");
        assert!(!page.contains('\u{202e}') && !page.contains("49</"), "{words}");
    }
    assert!(page("<script>").contains("&#60;script&#62;"));
}

proptest! {
    #[test]
    fn no_words_change_the_page(words in "[<>&\"'/=! a-z\\PC]{1,24}") {
        let (hostile, calm) = (page(&words), page("calm"));
        prop_assert_eq!(tags(&hostile), tags(&calm));
    }
}

/// Finding E8 of 0.3.0: each handoff looked through the records of all.
#[test]
fn a_long_task_shows_each_handoff_with_its_own_records() {
    let hops = 4_000;
    let id = |at: usize| format!("h{at}");
    let agent = |at: usize| json!({ "agentId": format!("a{at}") });
    let records: Vec<Value> = (0..hops)
        .flat_map(|at| ["HANDOFF", "ACCEPTED", "COMPLETED"].map(|kind| (at, kind)))
        .enumerate()
        .map(|(leaf, (at, kind))| json!({ "kind": kind, "leafIndex": leaf, "handoffId": id(at), "reason": format!("r{at}") }))
        .collect();
    let handoffs: Vec<Value> = (0..hops)
        .map(|at| {
            let parent = at.checked_sub(1).map(id);
            json!({ "handoffId": id(at), "parentHandoffId": parent, "fromAgent": agent(at), "toAgent": agent(at + 1) })
        })
        .collect();
    let agents: Vec<Value> = (0..=hops).map(agent).collect();
    let costs: Vec<Value> =
        (0..=hops).map(|at| json!({ "agentId": format!("a{at}"), "usd": at })).collect();
    let trace = json!({
        "taskId": "t", "status": "COMPLETED", "handoffs": handoffs, "records": records,
        "agents": agents, "cost": { "perAgent": costs }, "verification": { "ok": true },
    });
    let facts = ReportFacts::default();
    let page = ReportPage::new(&trace, &[], &facts);
    assert_eq!(page.hops.len(), hops);
    for (at, hop) in page.hops.iter().enumerate() {
        let said: Vec<_> =
            hop.said.iter().map(|one| (one.kind.as_str(), one.reason.clone())).collect();
        let reason = format!("r{at}");
        assert_eq!(said, [("ACCEPTED", reason.clone()), ("COMPLETED", reason)]);
    }
    assert!(page.agents.iter().enumerate().all(|(at, agent)| agent.usd == at.to_string()));
}
