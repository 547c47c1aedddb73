//! Agent cards: what an agent's registration says of it, signed as JWS over its canonical form with the key that signs tree heads
//! (A2A 1.0 §4.4, §8). Pure but for the key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{EXTENSION, VERSION};
use handoffd_domain::agent::{Agent, Card};
use handoffd_domain::canonical;
use handoffd_domain::handoff_tool::ContractTool;
use handoffd_evidence::receipt::Notary;

/// Skills of one card.
const MAX_SKILLS: usize = 100;

/// The card of an agent, without signatures. `base` is the address by which clients reach the broker.
pub(super) fn card(agent: &Agent, said: &Card, base: &str) -> Value {
    let url = format!("{base}/a2a/{}", agent.agent_id);
    let interface = |binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": VERSION });
    let description =
        [agent.description.as_str(), agent.specialization.as_deref().unwrap_or_default()]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or(agent.name.as_str());
    json!({
        "name": agent.name,
        "description": description,
        "version": agent.agent_version.to_string(),
        "supportedInterfaces": [interface("JSONRPC"), interface("HTTP+JSON")],
        "capabilities": {
            "streaming": true, "pushNotifications": true, "extendedAgentCard": true,
            "extensions": [{
                "uri": EXTENSION,
                "description": "Fields of a handoff in a message's metadata; the broker's view of a task in the task's.",
            }],
        },
        "securitySchemes": { "key": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } },
        // For a scheme without scopes the list has the caller's role.
        "securityRequirements": [{ "schemes": { "key": { "list": ["agent"] } } }],
        "defaultInputModes": said.input_modes,
        "defaultOutputModes": said.output_modes,
        "skills": skills(agent, description),
    })
}

/// A skill for each capability; one for the agent as a whole where it names none.
fn skills(agent: &Agent, description: &str) -> Vec<Value> {
    let tags = |own: &str| -> Vec<Value> {
        let mut tags: Vec<Value> =
            agent.domains.iter().take(MAX_SKILLS).map(|tag| tag.as_str().into()).collect();
        if tags.is_empty() {
            tags.push(own.into());
        }
        tags
    };
    let mut skills: Vec<Value> = agent
        .capabilities
        .iter()
        .take(MAX_SKILLS)
        .map(|name| json!({ "id": name, "name": name, "description": description, "tags": tags(name) }))
        .collect();
    if skills.is_empty() {
        let name = agent.agent_type.as_str();
        skills.push(json!({ "id": name, "name": agent.name, "description": description, "tags": tags(name) }));
    }
    skills
}

/// Adds to a card what a client with a key may know: sample tasks, and what a handoff to the agent has to hold.
pub(super) fn extended(mut card: Value, agent: &Agent) -> Value {
    let examples: Vec<&str> = agent.examples.iter().take(MAX_SKILLS).map(String::as_str).collect();
    for skill in card["skills"].as_array_mut().into_iter().flatten() {
        if !examples.is_empty() {
            skill["examples"] = json!(examples);
        }
    }
    let mut known =
        json!({ "agentId": agent.agent_id, "agentType": agent.agent_type, "state": agent.state });
    for (name, list) in
        [("requiredState", &agent.required_state), ("capabilities", &agent.capabilities)]
    {
        if !list.is_empty() {
            known[name] = json!(list);
        }
    }
    if let Some(window) = agent.context_window_tokens {
        known["contextWindowTokens"] = window.into();
    }
    card["capabilities"]["extensions"][0]["params"] = known;
    card
}

/// Adds a skill for each tool that a contract of the client's edge to the agent names.
pub(super) fn add_skills(card: &mut Value, agent: &Agent, tools: &[ContractTool]) {
    let leads_here = |tool: &&ContractTool| {
        [agent.agent_id.as_str(), agent.agent_type.as_str()].contains(&tool.target.as_str())
    };
    let Some(skills) = card["skills"].as_array_mut() else { return };
    for tool in tools.iter().filter(leads_here).take(MAX_SKILLS) {
        let described =
            tool.intent.as_deref().filter(|text| !text.is_empty()).unwrap_or(&tool.name);
        skills.push(json!({
            "id": tool.name, "name": tool.name, "description": described, "tags": [tool.contract],
        }));
    }
}

/// The id of a key: its thumbprint (RFC 7638, RFC 8037 §2).
pub(super) fn key_id(public: &[u8; 32]) -> String {
    let members = json!({ "crv": "Ed25519", "kty": "OKP", "x": URL_SAFE_NO_PAD.encode(public) });
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical::to_vec(&members)))
}

/// A public key as JSON Web Key.
pub(super) fn web_key(public: &[u8; 32]) -> Value {
    json!({
        "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(public), "kid": key_id(public),
        "use": "sig", "alg": "EdDSA",
    })
}

/// A card with its signature. No member of a card here has a default value that the canonical form would leave out.
pub(super) fn signed(mut card: Value, notary: &Notary, base: &str) -> Value {
    let header = json!({
        "alg": "EdDSA", "typ": "JOSE", "kid": key_id(&notary.public_bytes()),
        "jku": format!("{base}/.well-known/jwks.json"),
    });
    let protected = URL_SAFE_NO_PAD.encode(canonical::to_vec(&header));
    let payload = URL_SAFE_NO_PAD.encode(canonical::to_vec(&card));
    if let Some(signature) = notary.sign_jws(&format!("{protected}.{payload}")) {
        card["signatures"] =
            json!([{ "protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature) }]);
    }
    card
}

/// The entity tag of a card: a hash of its content.
pub(super) fn entity_tag(card: &Value) -> String {
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(&Sha256::digest(canonical::to_vec(card))[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_evidence::note::Signer;

    fn agent() -> Agent {
        let mut agent = Agent::new("clerk".parse().unwrap());
        agent.capabilities = vec!["sums".to_owned(), "tax".to_owned()];
        agent.examples = vec!["Add these".to_owned()];
        agent.required_state = vec!["year".to_owned()];
        agent.handoff_targets = vec!["secret-peer".parse().unwrap()];
        agent.callback_url = Some("https://inside.example/cb".to_owned());
        agent
    }

    #[test]
    fn a_card_says_what_the_agent_does_and_nothing_of_its_peers_or_endpoints() {
        let card = card(&agent(), &Card::default(), "https://hand.example");
        assert_eq!(
            card["supportedInterfaces"][1],
            json!({ "url": "https://hand.example/a2a/clerk", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" })
        );
        let skills: Vec<&str> = card["skills"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap())
            .collect();
        assert_eq!((skills, &card["description"]), (vec!["sums", "tax"], &json!("clerk")));
        let text = card.to_string();
        for hidden in ["secret-peer", "inside.example", "Add these", "requiredState"] {
            assert!(!text.contains(hidden), "{hidden}");
        }
        let more = extended(card, &agent()).to_string();
        assert!(
            more.contains("Add these") && more.contains("year") && !more.contains("secret-peer")
        );
    }

    #[test]
    fn a_contract_of_the_clients_edge_is_a_skill_and_that_of_another_edge_is_none() {
        let tool = |name: &str, target: &str| ContractTool {
            name: name.to_owned(),
            contract: "k".to_owned(),
            intent: Some("When sums are due".to_owned()),
            target: target.to_owned(),
        };
        let mut card = card(&agent(), &Card::default(), "http://h");
        add_skills(&mut card, &agent(), &[tool("send_sums", "clerk"), tool("send_mail", "post")]);
        let last = card["skills"].as_array().unwrap().last().unwrap();
        assert_eq!(
            last,
            &json!({ "id": "send_sums", "name": "send_sums", "description": "When sums are due", "tags": ["k"] })
        );
        assert!(!card.to_string().contains("send_mail"));
    }

    #[test]
    fn a_signature_holds_over_the_canonical_card_and_over_no_other() {
        let notary = Notary::new(Signer::new(&[7; 32]), "handoffd".to_owned());
        let plain = card(&agent(), &Card::default(), "http://h");
        let signed = signed(plain.clone(), &notary, "http://h");
        let one = &signed["signatures"][0];
        let protected = one["protected"].as_str().unwrap();
        let header: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(protected).unwrap()).unwrap();
        assert_eq!(
            (&header["alg"], &header["jku"]),
            (&json!("EdDSA"), &json!("http://h/.well-known/jwks.json"))
        );
        assert_eq!(header["kid"], web_key(&notary.public_bytes())["kid"]);
        let key = ed25519_dalek::VerifyingKey::from_bytes(&notary.public_bytes()).unwrap();
        let signature: [u8; 64] =
            URL_SAFE_NO_PAD.decode(one["signature"].as_str().unwrap()).unwrap().try_into().unwrap();
        let signature = ed25519_dalek::Signature::from_bytes(&signature);
        let holds = |card: &Value| {
            let payload = URL_SAFE_NO_PAD.encode(canonical::to_vec(card));
            key.verify_strict(format!("{protected}.{payload}").as_bytes(), &signature).is_ok()
        };
        assert!(holds(&plain));
        let mut other = plain;
        other["name"] = "x".into();
        assert!(!holds(&other));
    }

    #[test]
    fn no_member_of_a_card_is_a_default_that_the_canonical_form_leaves_out() {
        fn defaults(place: &str, value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(members) if members.is_empty() => found.push(place.to_owned()),
                Value::Object(members) => members
                    .iter()
                    .for_each(|(name, one)| defaults(&format!("{place}/{name}"), one, found)),
                Value::Array(items) if items.is_empty() => found.push(place.to_owned()),
                Value::Array(items) => items.iter().for_each(|one| defaults(place, one, found)),
                Value::String(text) if text.is_empty() => found.push(place.to_owned()),
                Value::Bool(false) | Value::Null => found.push(place.to_owned()),
                _ => {}
            }
        }
        let mut found = Vec::new();
        let bare = Agent::new("clerk".parse().unwrap());
        for one in [agent(), bare] {
            defaults("", &extended(card(&one, &Card::default(), "http://h"), &one), &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_thumbprint_is_that_of_rfc_8037() {
        let x = URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        assert_eq!(key_id(&x.try_into().unwrap()), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }
}
