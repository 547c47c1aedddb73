//! The actions of the pages as a table: each is one request to the API.

use handoffd_broker::reader::Rights;

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::console) enum Verb {
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub(in crate::console) const fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Values of a field.
#[derive(Debug, Clone, Copy)]
pub(in crate::console) enum Kind {
    Line,
    /// A day or a time in UTC; other texts go to the API as they are.
    Moment,
    /// A JSON number.
    Number,
    /// Several texts, one a line.
    Lines,
    /// A document.
    Json,
    Choice(&'static [(&'static str, &'static str)]),
    /// No field: this JSON.
    Fixed(&'static str),
}

/// A member of the request.
#[derive(Debug, Clone, Copy)]
pub(in crate::console) struct Field {
    /// Name in the form.
    pub(in crate::console) name: &'static str,
    /// Place in the body, by names between slashes; empty for the body itself, `-` for none.
    pub(in crate::console) place: &'static str,
    pub(in crate::console) label: &'static str,
    pub(in crate::console) hint: &'static str,
    pub(in crate::console) kind: Kind,
    pub(in crate::console) required: bool,
    /// Option of the command; empty for none, `.` for a plain argument.
    pub(in crate::console) option: &'static str,
}

/// The roles that may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::console) enum ActRights {
    /// Auditors too.
    Readers,
    /// Operators, and those among them who read no contents.
    Runners,
    Operators,
    Admins,
}

impl ActRights {
    pub(in crate::console) const fn allow(self, rights: Rights) -> bool {
        match self {
            Self::Readers => !rights.is_agent(),
            Self::Runners => rights.runs(),
            Self::Operators => rights.operates(),
            Self::Admins => rights.administers(),
        }
    }
}

/// An action.
#[derive(Debug)]
pub(in crate::console) struct Act {
    pub(in crate::console) name: &'static str,
    pub(in crate::console) title: &'static str,
    pub(in crate::console) button: &'static str,
    pub(in crate::console) explain: &'static str,
    /// Said when it was carried out.
    pub(in crate::console) done: &'static str,
    pub(in crate::console) method: Verb,
    /// Segments of the path: `{}` is the next object, `{name}` the field of that name.
    pub(in crate::console) path: &'static [&'static str],
    pub(in crate::console) fields: &'static [Field],
    pub(in crate::console) rights: ActRights,
    pub(in crate::console) tone: &'static str,
    /// Whether the request has a `dryRun`.
    pub(in crate::console) dry: bool,
    /// Whether the answer is a page of its own: a secret, or what would come of something.
    pub(in crate::console) shows: bool,
    /// Whether the request has no body.
    pub(in crate::console) bare: bool,
    /// Objects that the body has even if no field fills them.
    pub(in crate::console) always: &'static [&'static str],
    /// Words of the command after `handoffd`.
    pub(in crate::console) command: &'static str,
    section: &'static str,
    /// The action that takes it back; empty for none.
    pub(in crate::console) undo: &'static str,
}

impl Act {
    /// The section of the navigation in which its page is.
    pub(in crate::console) const fn section(&self) -> &'static str {
        self.section
    }
}

const fn field(name: &'static str, label: &'static str, kind: Kind, option: &'static str) -> Field {
    let hint = "";
    Field { name, place: name, label, hint, kind, required: false, option }
}

impl Field {
    const fn needed(self) -> Self {
        Self { required: true, ..self }
    }

    const fn at(self, place: &'static str) -> Self {
        Self { place, ..self }
    }

    const fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }
}

const REASON: Field = field("reason", "Reason", Kind::Line, "--reason")
    .needed()
    .hint("Kept with the record, under your name.");

const fn fixed(place: &'static str, json: &'static str) -> Field {
    field("", "", Kind::Fixed(json), "").at(place)
}

const fn act(
    name: &'static str,
    title: &'static str,
    button: &'static str,
    section: &'static str,
) -> Act {
    Act {
        name,
        title,
        button,
        explain: "",
        done: "Done.",
        method: Verb::Post,
        path: &[],
        fields: &[],
        rights: ActRights::Operators,
        tone: "",
        dry: false,
        shows: false,
        bare: false,
        always: &[],
        command: "",
        section,
        undo: "",
    }
}

const RATE: Field = field("ratePerSecond", "Decisions a second", Kind::Number, "--rate")
    .hint("1 to 1000; 50 unless said.");
const AFTER: Field = field("from", "From", Kind::Moment, "--after")
    .hint("A day, or a time in UTC, such as 2026-11-28 09:30.")
    .at("filter/from");
const BEFORE: Field =
    field("to", "Until", Kind::Moment, "--before").hint("A day, or a time in UTC.").at("filter/to");
const OVERLAP: Field =
    field("overlapSeconds", "Old secret stays valid for", Kind::Number, "--overlap-seconds")
        .hint("Seconds; the broker's setting unless said.");
const DEAD_LETTERS: &[Field] = &[
    field("of", "Handoffs", Kind::Lines, "--handoff")
        .at("filter/ids")
        .hint("Ids, one a line; all that fit unless said."),
    field("rule", "Kept for", Kind::Line, "--of-reason")
        .at("filter/reason")
        .hint("A reason such as SAFETY_VIOLATION."),
    field("source", "From agent", Kind::Line, "--from-agent").at("filter/source"),
    field("target", "To agent", Kind::Line, "--to-agent").at("filter/target"),
    AFTER,
    BEFORE,
    RATE,
    REASON,
];
const WAIVE: Field = field("waive", "Waive", Kind::Lines, "--waive")
    .hint("Findings to let through, one a line: a pointer, CODE:pointer, or rule:name.");
const ACTIONS: &[(&str, &str)] = &[
    ("retry", "Retry: deliver it again"),
    ("reassign", "Reassign: to another agent"),
    ("rollback", "Roll back: to the sender"),
    ("cancel", "Cancel the task"),
    ("complete", "Complete the task"),
];
const ROLES: &[(&str, &str)] = &[
    ("operator", "Operator"),
    ("operator-metadata", "Operator, metadata only"),
    ("auditor", "Auditor"),
    ("agent", "Agent"),
    ("admin", "Admin"),
];
const SECRETS: &[(&str, &str)] =
    &[("webhook", "Webhook: signs deliveries"), ("signing", "Signing: checks its messages")];

static ACTS: [Act; 30] = [
    Act {
        explain: "Open handoffs of the task end. An agent at work gets the grace time to finish; then its lease is void. This cannot be undone.",
        done: "The task is being canceled.",
        path: &["tasks", "{}", "cancel"],
        fields: &[
            REASON,
            field("graceMs", "Grace time", Kind::Number, "--grace-ms")
                .hint("Milliseconds for an agent at work; the broker's setting unless said."),
        ],
        tone: "bad",
        command: "tasks cancel",
        rights: ActRights::Runners,
        ..act("cancel-task", "Cancel task", "Cancel task…", "tasks")
    },
    Act {
        explain: "The task ends as completed. Its holder's work counts as its end.",
        done: "The task is completed.",
        path: &["tasks", "{}", "complete"],
        fields: &[field("output", "Output", Kind::Json, "")
            .hint("JSON, kept with the record; may be left out.")],
        command: "tasks complete",
        ..act("complete-task", "Complete task", "Complete…", "tasks")
    },
    Act {
        explain: "Adds money to what the task may still spend.",
        done: "The budget is topped up.",
        path: &["tasks", "{}", "budget"],
        fields: &[field("addUSD", "US dollars to add", Kind::Number, "--add-usd").needed(), REASON],
        command: "tasks top-up",
        rights: ActRights::Runners,
        ..act("top-up-task", "Top up the budget of task", "Top up…", "tasks")
    },
    Act {
        explain: "Cancels each task that fits and has not ended. A dry run says how many there are and changes nothing.",
        done: "The tasks are being canceled.",
        path: &["tasks", "cancel"],
        fields: &[
            field("of", "Tasks", Kind::Lines, "--task")
                .at("filter/ids")
                .hint("Ids, one a line; all that fit unless said."),
            field(
                "status",
                "Status",
                Kind::Choice(&[
                    ("", "any that has not ended"),
                    ("RUNNING", "Running"),
                    ("PENDING_HANDOFF", "Pending handoff"),
                    ("HANDING_OFF", "Handing off"),
                    ("ESCALATED", "Escalated"),
                ]),
                "--status",
            )
            .at("filter/status"),
            field("holder", "Held by", Kind::Line, "--holder").at("filter/holder"),
            field("userRef", "For user", Kind::Line, "--user-ref")
                .at("filter/userRef")
                .hint("A user's reference, not the id."),
            AFTER,
            BEFORE,
            RATE,
            REASON,
        ],
        tone: "bad",
        dry: true,
        shows: true,
        always: &["filter"],
        command: "tasks cancel-all",
        rights: ActRights::Runners,
        ..act("cancel-tasks", "Cancel tasks by filter", "Cancel by filter…", "tasks")
    },
    Act {
        explain: "The handoff passes the gate again, without the findings that you waive, and is delivered. A finding that is not waived keeps it here.",
        done: "The handoff is released.",
        path: &["dead-letters", "{}", "release"],
        fields: &[WAIVE, REASON],
        tone: "good",
        command: "dead-letters release",
        ..act("release", "Release handoff", "Release…", "dead-letters")
    },
    Act {
        explain: "The handoff is never delivered. Its record and its content stay as evidence.",
        done: "The handoff is discarded.",
        path: &["dead-letters", "{}", "discard"],
        fields: &[REASON],
        tone: "bad",
        command: "dead-letters discard",
        rights: ActRights::Runners,
        ..act("discard", "Discard handoff", "Discard…", "dead-letters")
    },
    Act {
        explain: "Releases each open dead letter that fits. A dry run says which would pass the gate and changes nothing.",
        done: "Released.",
        path: &["dead-letters", "release"],
        fields: &[
            WAIVE,
            DEAD_LETTERS[0],
            DEAD_LETTERS[1],
            DEAD_LETTERS[2],
            DEAD_LETTERS[3],
            AFTER,
            BEFORE,
            RATE,
            REASON,
        ],
        tone: "good",
        dry: true,
        shows: true,
        always: &["filter"],
        command: "dead-letters release-all",
        ..act(
            "release-many",
            "Release dead letters by filter",
            "Release by filter…",
            "dead-letters",
        )
    },
    Act {
        explain: "Discards each open dead letter that fits. A dry run says how many there are and changes nothing.",
        done: "Discarded.",
        path: &["dead-letters", "discard"],
        fields: DEAD_LETTERS,
        tone: "bad",
        dry: true,
        shows: true,
        always: &["filter"],
        command: "dead-letters discard-all",
        rights: ActRights::Runners,
        ..act(
            "discard-many",
            "Discard dead letters by filter",
            "Discard by filter…",
            "dead-letters",
        )
    },
    Act {
        explain: "Your decision ends the wait and is recorded with your name.",
        done: "The decision is recorded.",
        path: &["escalations", "{}", "resolve"],
        fields: &[
            field("action", "Decision", Kind::Choice(ACTIONS), "--action").needed(),
            field("agentId", "To agent", Kind::Line, "--agent").hint("For a reassignment alone."),
            REASON,
        ],
        tone: "good",
        command: "escalations resolve",
        rights: ActRights::Runners,
        ..act("resolve", "Decide", "Decide…", "decisions")
    },
    Act {
        explain: "Decides each open escalation that fits. A dry run says how many there are and changes nothing.",
        done: "The decisions are recorded.",
        path: &["escalations", "resolve"],
        fields: &[
            field("action", "Decision", Kind::Choice(ACTIONS), "--action").needed(),
            field("agentId", "To agent", Kind::Line, "--agent").hint("For a reassignment alone."),
            field("of", "Escalations", Kind::Lines, "")
                .at("filter/ids")
                .hint("Ids, one a line; all that fit unless said."),
            field("rule", "Open for", Kind::Line, "--of-reason").at("filter/reason"),
            field("fromAgent", "From agent", Kind::Line, "--from-agent").at("filter/fromAgent"),
            field("toAgent", "To agent (filter)", Kind::Line, "--to-agent").at("filter/toAgent"),
            AFTER,
            BEFORE,
            RATE,
            REASON,
        ],
        dry: true,
        shows: true,
        always: &["filter"],
        command: "escalations resolve-all",
        rights: ActRights::Runners,
        ..act("resolve-many", "Decide by filter", "Decide by filter…", "decisions")
    },
    Act {
        explain: "Nothing more is delivered to it. Handoffs to it are accepted and wait until it resumes.",
        done: "The receiver is paused; handoffs to it are held.",
        method: Verb::Patch,
        path: &["agents", "{}"],
        fields: &[fixed("state", "\"PAUSED\""), fixed("pause", "\"hold\"")],
        command: "agents pause",
        rights: ActRights::Runners,
        undo: "resume",
        ..act("hold", "Pause and hold for", "Pause and hold…", "receivers")
    },
    Act {
        explain: "Nothing more is delivered to it, and handoffs to it are refused until it resumes.",
        done: "The receiver is paused; handoffs to it are refused.",
        method: Verb::Patch,
        path: &["agents", "{}"],
        fields: &[fixed("state", "\"PAUSED\""), fixed("pause", "\"refuse\"")],
        tone: "bad",
        rights: ActRights::Runners,
        undo: "resume",
        ..act("refuse", "Pause and refuse for", "Pause and refuse…", "receivers")
    },
    Act {
        explain: "Deliveries go on. Handoffs that were held are delivered first.",
        done: "The receiver is at work again.",
        method: Verb::Patch,
        path: &["agents", "{}"],
        fields: &[fixed("state", "\"RUNNABLE\"")],
        tone: "good",
        command: "agents resume",
        rights: ActRights::Runners,
        undo: "hold",
        ..act("resume", "Resume", "Resume…", "receivers")
    },
    Act {
        explain: "Switches the endpoint on again after the broker disabled it.",
        done: "The endpoint is enabled.",
        method: Verb::Patch,
        path: &["agents", "{}"],
        fields: &[fixed("delivery/disabled", "false")],
        tone: "good",
        rights: ActRights::Runners,
        ..act("enable", "Enable the endpoint of", "Enable endpoint…", "receivers")
    },
    Act {
        explain: "Sends a test message to the endpoint now. No handoff is made.",
        path: &["agents", "{}", "delivery", "test"],
        shows: true,
        bare: true,
        rights: ActRights::Runners,
        ..act("test-delivery", "Test delivery to", "Test delivery…", "receivers")
    },
    Act {
        explain: "Makes a new secret, which is shown once. The old one stays valid for the time given.",
        path: &["agents", "{}", "secrets", "{kind}", "rotate"],
        fields: &[field("kind", "Secret", Kind::Choice(SECRETS), ".").at("-").needed(), OVERLAP],
        shows: true,
        command: "agents rotate-secret",
        ..act("rotate-agent", "Rotate a secret of", "Rotate secret…", "receivers")
    },
    Act {
        explain: "The agent is removed. Handoffs to it that are open will not be delivered.",
        done: "The agent is removed.",
        method: Verb::Delete,
        path: &["agents", "{}"],
        tone: "bad",
        command: "agents remove",
        ..act("remove-agent", "Remove agent", "Remove…", "receivers")
    },
    Act {
        explain: "The agent may hand off to this target from now on.",
        done: "The edge is added.",
        path: &["agents", "{agent}", "handoff-targets", "{target}"],
        fields: &[
            field("agent", "Agent", Kind::Line, ".")
                .at("-")
                .needed()
                .hint("The agent that hands off."),
            field("target", "Target", Kind::Line, ".")
                .at("-")
                .needed()
                .hint("An agent's id, or type:NAME."),
        ],
        tone: "good",
        bare: true,
        command: "allowlist add",
        undo: "remove-edge",
        ..act("add-edge", "Add an edge", "Add edge…", "edges")
    },
    Act {
        explain: "The agent may not hand off to this target any more. Handoffs under way go on.",
        done: "The edge is removed.",
        method: Verb::Delete,
        path: &["agents", "{}", "handoff-targets", "{}"],
        tone: "bad",
        command: "allowlist remove",
        undo: "add-edge",
        ..act("remove-edge", "Remove edge", "Remove…", "edges")
    },
    Act {
        explain: "Stores a version of the contract, in force at once on its edges. Lint it and ask what-if first.",
        done: "The contract is stored.",
        method: Verb::Put,
        path: &["contracts", "{contract}"],
        fields: &[
            field("contract", "Contract id", Kind::Line, "").at("-").needed(),
            field("document", "Contract", Kind::Json, "").at("").needed().hint("JSON."),
        ],
        command: "contracts put",
        ..act("put-contract", "Put a contract", "Put contract…", "edges")
    },
    Act {
        explain: "Says what is wrong with a contract. Nothing is stored.",
        path: &["contracts", "lint"],
        fields: &[field("document", "Contract", Kind::Json, "").at("").needed().hint("JSON.")],
        rights: ActRights::Readers,
        shows: true,
        command: "contracts lint",
        ..act("lint", "Lint a contract", "Lint", "edges")
    },
    Act {
        explain: "Judges the newest handoffs and open dead letters under this contract. Nothing is changed.",
        path: &["what-if"],
        fields: &[
            field("document", "Contract", Kind::Json, "")
                .at("candidate/contract")
                .needed()
                .hint("JSON."),
            field("handoffs", "Handoffs", Kind::Number, "--handoffs")
                .hint("So many of the newest; 500 unless said."),
            field("seconds", "Seconds", Kind::Number, "--seconds").hint("1 to 60; 10 unless said."),
        ],
        shows: true,
        command: "what-if contract FILE",
        ..act("what-if", "Try a contract on past messages", "Ask what-if", "edges")
    },
    Act {
        explain: "Nothing of the person or of the task is erased or purged while the hold is in force.",
        done: "The hold is placed.",
        method: Verb::Put,
        path: &["legal-holds", "{hold}"],
        fields: &[
            field("hold", "Hold id", Kind::Line, ".").at("-").needed(),
            field("subjectId", "Person", Kind::Line, "--subject")
                .hint("The person whose data stay; or"),
            field("taskId", "Task", Kind::Line, "--task").hint("the task on which all stays."),
            REASON,
        ],
        command: "holds place",
        undo: "release-hold",
        ..act("place-hold", "Place a legal hold", "Place hold…", "evidence")
    },
    Act {
        explain: "Erasure and retention apply again.",
        done: "The hold is released.",
        method: Verb::Delete,
        path: &["legal-holds", "{}"],
        fields: &[Field { required: false, ..REASON }],
        tone: "bad",
        command: "holds release",
        ..act("release-hold", "Release legal hold", "Release…", "evidence")
    },
    Act {
        explain: "Makes a key, which is shown once.",
        path: &["keys"],
        fields: &[
            field("role", "Role", Kind::Choice(ROLES), "--role").needed(),
            field("agentId", "Agent", Kind::Line, "--agent").hint("For an agent's key alone."),
            field("label", "Label", Kind::Line, "--label").hint("For people."),
            field("expiresAt", "Expires", Kind::Moment, "--expires-at")
                .hint("A day, or a time in UTC; never unless said."),
        ],
        rights: ActRights::Admins,
        tone: "good",
        shows: true,
        command: "keys create",
        ..act("create-key", "Create a key", "Create key…", "keys")
    },
    Act {
        explain: "Whatever uses this key is refused at once, and its sessions end. This cannot be undone.",
        done: "The key is revoked.",
        method: Verb::Delete,
        path: &["keys", "{}"],
        rights: ActRights::Admins,
        tone: "bad",
        command: "keys revoke",
        ..act("revoke-key", "Revoke key", "Revoke…", "keys")
    },
    Act {
        explain: "The browser with this session has to log in again.",
        done: "The session is ended.",
        method: Verb::Delete,
        path: &["sessions", "{}"],
        tone: "bad",
        ..act("end-session", "End session", "End…", "sessions")
    },
    Act {
        explain: "Events are delivered again from here on; the subscriber sees them twice.",
        done: "The replay has begun.",
        path: &["subscriptions", "{}", "replay"],
        fields: &[field("since", "Since", Kind::Moment, "--since")
            .needed()
            .hint("A cursor, a day, or a time in UTC.")],
        command: "subscriptions replay",
        ..act("replay", "Replay subscription", "Replay…", "subscriptions")
    },
    Act {
        explain: "Switches the subscription on or off. Events that it missed are delivered when it is on again.",
        done: "The subscription is changed.",
        method: Verb::Patch,
        path: &["subscriptions", "{}"],
        fields: &[field(
            "enabled",
            "Deliver",
            Kind::Choice(&[("true", "on"), ("false", "off")]),
            "--enabled",
        )
        .needed()],
        command: "subscriptions change",
        rights: ActRights::Runners,
        undo: "switch",
        ..act("switch", "Switch subscription", "Switch on or off…", "subscriptions")
    },
    Act {
        explain: "Makes a new secret, which is shown once. The old one stays valid for the time given.",
        path: &["subscriptions", "{}", "secret", "rotate"],
        fields: &[OVERLAP],
        shows: true,
        command: "subscriptions rotate-secret",
        ..act(
            "rotate-subscription",
            "Rotate the secret of subscription",
            "Rotate secret…",
            "subscriptions",
        )
    },
];

/// An action by its name.
pub(in crate::console) fn named(name: &str) -> Option<&'static Act> {
    ACTS.iter().find(|act| act.name == name)
}

/// The action that makes a request such as `POST /tasks/ID/cancel`, with the objects of its path.
pub(in crate::console) fn of_request(request: &str) -> Option<(&'static Act, Vec<String>)> {
    let (method, path) = request.split_once(" /")?;
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    let fits = |act: &&Act| {
        act.method.as_str() == method
            && act.path.len() == segments.len()
            && act.path.iter().zip(&segments).all(|(part, said)| *part == "{}" || part == said)
    };
    let act = ACTS.iter().find(fits)?;
    let objects = act.path.iter().zip(&segments).filter(|(part, _)| **part == "{}");
    Some((act, objects.map(|(_, id)| (*id).to_owned()).collect()))
}

/// The action of a remedy for this cause. A change of an agent is told by the cause alone.
pub(in crate::console) fn of_remedy(
    cause: &str,
    request: &str,
) -> Option<(&'static Act, Vec<String>)> {
    let (act, of) = of_request(request)?;
    let by_cause = match cause {
        "RECEIVER_PAUSED" => named("resume"),
        "ENDPOINT_DISABLED" => named("enable"),
        _ if act.name == "hold" => return None,
        _ => None,
    };
    Some((by_cause.unwrap_or(act), of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_one_request_and_has_one_name() {
        for act in &ACTS {
            assert!(!act.path.is_empty(), "{}", act.name);
            assert_eq!(ACTS.iter().filter(|one| one.name == act.name).count(), 1, "{}", act.name);
        }
    }

    #[test]
    fn an_action_that_can_be_taken_back_names_one_that_exists() {
        for act in ACTS.iter().filter(|act| !act.undo.is_empty()) {
            let undo = named(act.undo).unwrap();
            let places = |act: &Act| act.path.iter().filter(|part| part.starts_with('{')).count();
            assert_eq!(places(undo), places(act), "{}", act.name);
        }
    }

    #[test]
    fn a_remedy_of_the_api_leads_to_its_action() {
        let (act, of) = of_request("POST /tasks/x/cancel").unwrap();
        assert_eq!((act.name, of), ("cancel-task", vec!["x".to_owned()]));
        assert!(of_request("GET /handoffs/x?include=questions").is_none());
    }
}
