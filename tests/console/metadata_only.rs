//! The console for a key that reads no contents: pages without a word of an agent, and buttons of its own rights.

use crate::browser::Browser;
use crate::spoken::{self, WORD, story};

both! {
    with [spoken::SETTINGS[0], spoken::SETTINGS[1]]
    async fn pages_say_that_and_not_what(broker: Broker) {
        let tale = story(broker).await;
        let browser = Browser::of(broker, "operator-metadata").await;
        let mut paths: Vec<String> = [
            "", "/tasks", "/handoffs", "/dead-letters", "/decisions", "/receivers", "/receivers/a", "/receivers/c", "/refusals", "/costs",
            "/edges", "/evidence", "/subscriptions", "/do/cancel-tasks", "/do/discard-many", "/do/resolve-many",
        ]
        .map(|path| format!("/console{path}"))
        .to_vec();
        for message in tale.messages() {
            paths.push(format!("/console{}", message.path()));
            paths.push(format!("/console{}", message.task_path()));
            paths.push(format!("/console{}?from=2000-01-01T00:00:00Z", message.task_path()));
        }
        paths.push(format!("/console/dead-letters/{}", tale.dead.id()));
        paths.push(format!("/console/decisions/{}", tale.escalation));
        paths.push(format!("/console/subscriptions/{}", tale.subscription));
        for path in &paths {
            let page = browser.get(path).await;
            // A message that was refused for good has no task.
            assert!([200, 404].contains(&page.status), "{path}: {}", page.text);
            assert!(!page.text.contains(WORD), "{path}: {}", page.text);
            assert!(page.says("Metadata only"), "{path}");
            let join = if path.contains('?') { '&' } else { '?' };
            let data = browser.get(&format!("{path}{join}format=json")).await;
            assert!(!data.text.contains(WORD), "{path}: {}", data.text);
        }
        let admin = Browser::of(broker, "admin").await;
        let page = admin.get(&format!("/console{}", tale.completed.path())).await.expect(200);
        assert!(page.says(WORD) && !page.says("Metadata only"), "an admin reads it");

        let page = browser.get(&format!("/console/dead-letters/{}", tale.dead.id())).await.expect(200);
        assert!(page.says("/console/do/discard?") && !page.says("/console/do/release"), "{}", page.text);
        let task = format!("/console{}", tale.open.task_path());
        let page = browser.get(&task).await.expect(200);
        assert!(page.says("/console/do/cancel-task?") && !page.says("/console/do/complete-task?"), "{}", page.text);
        assert!(!page.says("Download bundle"), "{}", page.text);
        browser.get(&format!("{task}/bundle")).await.expect(403);
        for closed in ["/console/keys", "/console/sessions"] {
            browser.get(closed).await.expect(403);
        }
        browser.get(&format!("/console/do/release?of={}", tale.dead.id())).await.expect(403);
        let cancel = format!("/console/do/cancel-task?of={}", tale.open.task());
        browser.post(&cancel, &[("reason", "the queue is full")]).await.expect(303);
        let end = broker.task(&tale.open).await;
        assert_eq!(end["status"], "CANCELED");
    }

    async fn an_auditor_opens_a_dead_letter_without_its_explanation(broker: Broker) {
        let tale = story(broker).await;
        let auditor = Browser::of(broker, "auditor").await;
        let page = auditor.get(&format!("/console/dead-letters/{}", tale.dead.id())).await.expect(200);
        assert!(page.says(WORD) && !page.says("Findings in place"), "{}", page.text);
    }
}
