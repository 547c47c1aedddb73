//! Point 6: one mechanism for warnings.

use serde_json::json;

use crate::message::Message;

both! {
    async fn f6_what_has_no_effect_is_named_in_the_answer_and_in_validate(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b").set("/receiverList", json!(["b", "c"]));
        let said = a.api.post("/handoffs/validate", &message).await.expect(200);
        assert_eq!(said.body["valid"], true);
        assert_eq!(said.body["warnings"][0]["code"], "WITHOUT_EFFECT");
        assert_eq!(said.body["warnings"][0]["pointer"], "/receiverList");
        let first = a.submit(&message).await.expect(202);
        assert_eq!(first.body["warnings"], said.body["warnings"]);
        let again = a.submit(&message).await.expect(202);
        assert_eq!(again.body, first.body, "a replay answers as the first time");
        let plain = a.submit(&Message::initial("a", "b")).await.expect(202);
        assert!(plain.body.get("warnings").is_none());
    }
}
