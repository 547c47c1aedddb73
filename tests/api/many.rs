//! Commands on many: they go on until all that fit are decided on, each once, and say how far they are.

use serde_json::Value;

use crate::harness::{Broker, command};
use crate::message::Message;

/// Exit code, the answer as JSON, and what was said aside.
async fn run(broker: &Broker, words: &str) -> (i32, Value, String) {
    let mut settings = broker.settings.clone();
    settings.push(("HANDOFFD_URL".to_owned(), broker.admin.base.clone()));
    let words: Vec<&str> = ["--output", "json"].into_iter().chain(words.split(' ')).collect();
    let done = command(&settings, &words).await;
    let answer = serde_json::from_slice(&done.stdout).unwrap_or_default();
    (done.status.code().unwrap(), answer, String::from_utf8(done.stderr).unwrap())
}

both! {
    async fn a_command_on_many_decides_on_each_once_and_tells_its_progress(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        for _ in 0..5 {
            a.submit(&Message::review("a", "b")).await.expect(202);
        }
        let all = "tasks cancel-all --holder a --rate 2 --reason stop";
        let (code, answer, _) = run(broker, &format!("{all} --dry-run")).await;
        assert_eq!((code, &answer["matched"], &answer["dryRun"]), (0, &5.into(), &true.into()), "{answer}");
        let (code, answer, aside) = run(broker, &format!("{all} --yes")).await;
        assert_eq!(code, 0, "{answer} {aside}");
        let figures = ["matched", "done", "failed"].map(|name| answer[name].as_u64().unwrap());
        assert_eq!((figures, &answer["more"]), ([5, 5, 0], &false.into()), "{answer}");
        assert_eq!(answer["items"].as_array().unwrap().len(), 5, "each once: {answer}");
        assert!(aside.contains("5 of 5, ") && aside.contains(" a second, 0 not done"), "{aside}");
        let (code, answer, _) = run(broker, &format!("{all} --yes")).await;
        assert_eq!((code, &answer["matched"]), (0, &0.into()), "{answer}");
        let (code, _, aside) = run(broker, "tasks cancel-all --reason stop --yes").await;
        assert!(code == 1 && aside.contains("/filter"), "{aside}");
    }
}
