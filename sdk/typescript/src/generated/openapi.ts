// Made by scripts/generate.mjs; changes by hand are lost.

export interface paths {
    "/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the tenant's agents. */
        get: operations["listAgents"];
        put?: never;
        /** Register an agent; its key and secrets are shown this once. */
        post: operations["createAgent"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/match": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Find agents that could take something, best first: who takes work now, then by relevance to the task
         *     (a matcher's where one is set and answers, else BM25), then by version.
         */
        get: operations["matchAgents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/{agentId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one agent. */
        get: operations["getAgent"];
        put?: never;
        post?: never;
        /** Remove an agent; its keys stop working. */
        delete: operations["deleteAgent"];
        options?: never;
        head?: never;
        /**
         * Change an agent: a list replaces, `[]` clears, an absent member leaves alone. An agent may change
         *     its own `state`.
         */
        patch: operations["patchAgent"];
        trace?: never;
    };
    "/agents/{agentId}/delivery/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a marked test to an agent, by the transport that its handoffs take. It is not a handoff: nothing is recorded. */
        post: operations["testDelivery"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/{agentId}/handoff-targets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read an agent's allowlist. */
        get: operations["getHandoffTargets"];
        /** Replace an agent's allowlist. */
        put: operations["putHandoffTargets"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/{agentId}/handoff-targets/{target}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Add one entry to an agent's allowlist. */
        post: operations["addHandoffTarget"];
        /** Take one entry out of an agent's allowlist. */
        delete: operations["removeHandoffTarget"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/{agentId}/handoff-tool": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Tool definitions for an agent's language model: `transfer_to_agent` and `handoff_to_specialist`, their
         *     targets enumerated from the agent's allowlist, and the tools that contracts of its edges name
         *     (`trigger.tool_call`). Without anybody to hand off to there are none, so that
         *     the model never sees the choice (seed 003).
         */
        get: operations["getHandoffTool"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/{agentId}/inbox": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Claim handoffs; waits for one where there is none. */
        get: operations["pollInbox"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/agents/{agentId}/secrets/{kind}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Replace an agent's signing or webhook secret; the old one stays valid for a while. */
        post: operations["rotateSecret"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/allowlist": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The whole allowlist as a graph. */
        get: operations["getAllowlist"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/attention": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List what waits for a person or another agent, as the state tells it now. Handoffs and tasks with one cause are one item. */
        get: operations["listAttention"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/checkpoint": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The latest checkpoint of the caller's log: where witnesses are set, the latest that one cosigned. */
        get: operations["getCheckpointNote"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/heads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How far tree heads are published. */
        get: operations["listPublishedHeads"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The public keys that sign the log's tree heads, or did. */
        get: operations["listTreeKeys"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/logs/{logId}/checkpoint": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The latest checkpoint of a log: where witnesses are set, the latest that one cosigned. */
        get: operations["getLogCheckpoint"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/logs/{logId}/tile/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A tile of a log. */
        get: operations["getLogTile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/proofs/consistency": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Proof that the log only grew between two sizes. */
        get: operations["getConsistencyProof"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/proofs/inclusion": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Proof that a record is in the log. */
        get: operations["getInclusionProof"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/records": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Records as they were hashed, in log order. */
        get: operations["listRecords"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/tile/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A tile of the caller's log. */
        get: operations["getTile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/audit/tree-head": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The latest tree head: a signed statement of the log's size and root. */
        get: operations["getTreeHead"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/caps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tenant's caps with what of each is used now: those that operators set, and of the settings'
         *     the tenant's own and those of agents that spent something.
         */
        get: operations["listCaps"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/caps/{window}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Set a cap: what the tenant, or one of its agents, may spend within a window that moves on. Spending that
         *     counts already goes on counting, money and tokens alike; if there was no cap for that window, it begins
         *     empty.
         */
        put: operations["putCap"];
        post?: never;
        /** Take a cap away, or its limit for one unit. If the settings have one for that window, it counts again. */
        delete: operations["deleteCap"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/claims/{token}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a handoff's body by a claim check. The link is the key: it came with the handoff, and expires. */
        get: operations["readClaim"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/contracts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List contracts, each in its highest version, by id; an agent sees those that speak of it. */
        get: operations["listContracts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/contracts/lint": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Lint contracts against this tenant's agents, or a registry sent along; writes nothing. */
        post: operations["lintContracts"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/contracts/{contractId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a contract. */
        get: operations["getContract"];
        /**
         * Put a version of a contract. Versions are kept: the same again changes nothing, another content
         *     needs another version.
         */
        put: operations["putContract"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/costs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Spending by day, edge and agent, from the records: the same figures as those of the tasks. Each amount counts on the day
         *     of its report, in UTC. One request reads a million records at most.
         */
        get: operations["listCosts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/data-subjects/{subjectId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the data held on a person. */
        get: operations["getDataSubject"];
        put?: never;
        post?: never;
        /**
         * Erase a person's data.
         * @description Answers 200 with the certificate when it is done within the wait (`Prefer: wait=N`, else
         *     `erasure.wait_ms`), and 202 with where to look when it takes longer. Asking again gives the same, unless it asks for `messages`
         *     where `personal-data` were erased.
         */
        delete: operations["eraseDataSubject"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/data-subjects/{subjectId}/erasures/{erasureId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Watch an erasure, or fetch its certificate again. */
        get: operations["getErasure"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dead-letters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List dead letters, newest first. */
        get: operations["listDeadLetters"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dead-letters/discard": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Discard many. */
        post: operations["discardDeadLetters"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dead-letters/release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Release many: each is judged afresh, at the given rate. */
        post: operations["releaseDeadLetters"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dead-letters/{handoffId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one dead letter with its message. */
        get: operations["getDeadLetter"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dead-letters/{handoffId}/discard": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Never deliver a dead letter. */
        post: operations["discardDeadLetter"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dead-letters/{handoffId}/release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Deliver a dead letter after all. The gate judges it afresh; only the findings named in `waive` are
         *     let pass. Any other finding keeps the dead letter, and is the answer.
         */
        post: operations["releaseDeadLetter"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/erasures": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List erasures without the persons. */
        get: operations["listErasures"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/escalations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List escalations, newest first. */
        get: operations["listEscalations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/escalations/resolve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resolve many escalations: those open that fit a filter, at the given rate. */
        post: operations["resolveEscalations"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/escalations/{escalationId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one escalation. */
        get: operations["getEscalation"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/escalations/{escalationId}/resolve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Decide on an escalation. Who and why become a record. */
        post: operations["resolveEscalation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read the feed of events, oldest first; an agent sees those it has a part in. */
        get: operations["listEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List handoffs, newest first; an agent sees those it sends or receives.
         * @description A page looks at 20,000 handoffs at most: it may have few rows, or none, and `nextCursor` goes on.
         */
        get: operations["listHandoffs"];
        put?: never;
        /** Submit a handoff: the gate, one commit, then delivery. */
        post: operations["submitHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/validate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask what the gate and the ledger would say now; writes and reserves nothing. A message's sender asks
         *     before it submits, its receiver about what it was sent, an operator for either (`as`).
         */
        post: operations["validateHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one handoff, or a handoff to several receivers by the id of its message. */
        get: operations["getHandoff"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/accept": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Take the task. */
        post: operations["acceptHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/answer": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Answer the open question: the receiver works on under a new lease. The sender answers, or an operator. The answer fits
         *     the question's schema, and the safety rules read it as they read a message.
         */
        post: operations["answerHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/ask": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask the sender: the handoff is INPUT_REQUIRED until the answer, and no lease runs. The safety rules read the question
         *     as they read a message. One question is open at most; the same request again changes nothing.
         */
        post: operations["askHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/attempts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The last attempts at delivering a handoff, newest first. */
        get: operations["listAttempts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/chunks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the chunks of a handoff: a page as JSON, or, with `Accept: text/event-stream`, each as it comes as Server-Sent Events
         *     (`chunk`, then `closed` or `aborted`, after which the stream ends).
         */
        get: operations["listChunks"];
        put?: never;
        /**
         * Add chunks to a handoff whose message comes in pieces: one as JSON, many as NDJSON, in order. The chunks before the first
         *     refused one are kept.
         */
        post: operations["appendChunks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Done. The safety rules read the result as they read a message: 422 `SAFETY_VIOLATION` leaves the handoff as it is, and so
         *     does 422 `MAX_ITERATIONS` for more rounds than the message allows.
         */
        post: operations["completeHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/fail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Give up: the task goes back to the sender's checkpoint. */
        post: operations["failHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Extend the lease. */
        post: operations["heartbeatHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read turns of the original conversation. */
        get: operations["getHistory"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The handoff's context as one user turn, between marks that its content cannot forge. */
        get: operations["getPrompt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/question/prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The receiver's last question, with its answer where there is one, as one user turn: for the model of the sender that is
         *     to answer, and for that of the receiver that asked.
         */
        get: operations["getQuestionPrompt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/reject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Refuse the task: it goes back to the sender's checkpoint. */
        post: operations["rejectHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/result/prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The handoff's result, or the words of a receiver that rejected it or gave it up, as one user turn for the model of the
         *     agent that asked, between marks that its content cannot forge.
         * @description Of a handoff to several receivers, by the id of its message: all results, each under its own branch.
         */
        get: operations["getResultPrompt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/handoffs/{handoffId}/takeover": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Take an accepted handoff over from another worker of the same agent that was silent for four of its own intervals
         *     (`heartbeatIntervalMs` of its acceptance or heartbeats). The answer has a new fencing token and a lease that begins now; the
         *     worker before gets 409 `STALE_LEASE` from then on.
         */
        post: operations["takeOverHandoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the tenant's keys, without the keys. */
        get: operations["listKeys"];
        put?: never;
        /** Make a key; it is shown this once. */
        post: operations["createKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/keys/{keyId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Revoke a key. */
        delete: operations["revokeKey"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/legal-holds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List legal holds, released ones too. */
        get: operations["listLegalHolds"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/legal-holds/{holdId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one legal hold. */
        get: operations["getLegalHold"];
        /** Place a legal hold; placing the same again changes nothing. */
        put: operations["placeLegalHold"];
        post?: never;
        /** Release a legal hold. */
        delete: operations["releaseLegalHold"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The process runs. */
        get: operations["livez"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Metrics in Prometheus' text format: all of them for an operator or admin of the installation's own tenant
         *     (`auth.tenant`), the pairs of its tenant for any other person, its own pairs for an agent.
         */
        get: operations["metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The broker takes requests: the store answers and takes writes, and no stop is under way. */
        get: operations["readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/receivers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the tenant's receivers: breakers, failures and latency of the last 24 hours, and what waits. It may be ten seconds behind. */
        get: operations["listReceivers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/receivers/{agentId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one receiver: breakers, failures and latency in five-minute windows of the last 24 hours, and what waits. */
        get: operations["getReceiver"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/refusals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List refused messages, newest first. An agent sees its own. Refusals are kept as long as events are. */
        get: operations["listRefusals"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The schemas that this broker knows: of messages, and with a key the tenant's payload schemas, each in
         *     its highest version.
         */
        get: operations["listSchemas"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The types of events that this broker tells of. */
        get: operations["listEventSchemas"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/events/{type}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The schema of one type of event, in the standard format: JSON Schema 2020-12. */
        get: operations["getEventSchema"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/handoff/{version}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One message schema: JSON Schema 2020-12. */
        get: operations["getHandoffSchema"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/payloads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the payload schemas, each with its highest version, by id. */
        get: operations["listPayloadSchemas"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/payloads/{schemaId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the versions of a payload schema, in the order in which they were registered. */
        get: operations["listPayloadSchemaVersions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/payloads/{schemaId}/compare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Say what a version would change, and whether it could be registered so; writes nothing. */
        post: operations["comparePayloadSchema"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/payloads/{schemaId}/{version}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one version of a payload schema. */
        get: operations["getPayloadSchema"];
        /**
         * Register a version of a payload schema. Versions are kept: the same again changes nothing. The number
         *     must say what changes: words a patch, an optional property a minor, what breaks senders or receivers a
         *     major; what goes was deprecated in a release before.
         */
        put: operations["putPayloadSchema"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/schemas/sw4rm/handoff-context": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The schema of SW4RM's `HandoffContext`: JSON Schema draft-07 (docs/doors/sw4rm.md). */
        get: operations["getSw4rmContextSchema"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the console's sessions, newest first. A session that ended by time is listed until it is deleted, for some minutes. */
        get: operations["listSessions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sessions/{sessionId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** End a session of the console. */
        delete: operations["endSession"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/subscriptions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the tenant's subscriptions, without their secrets. */
        get: operations["listSubscriptions"];
        put?: never;
        /** Subscribe to events. They are posted, signed after Standard Webhooks, from this moment on, or from `since` on. */
        post: operations["createSubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/subscriptions/{subscriptionId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one subscription, and how far it has been told. */
        get: operations["getSubscription"];
        put?: never;
        post?: never;
        /** End a subscription. */
        delete: operations["deleteSubscription"];
        options?: never;
        head?: never;
        /** Change a subscription: absent members stay; `enabled: true` switches it on again. */
        patch: operations["changeSubscription"];
        trace?: never;
    };
    "/subscriptions/{subscriptionId}/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The last attempts at telling a subscription, newest first. */
        get: operations["listSubscriptionDeliveries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/subscriptions/{subscriptionId}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a subscription again the events since a cursor or a time, as far as they are kept. */
        post: operations["replaySubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/subscriptions/{subscriptionId}/secret/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Replace a subscription's secret; deliveries carry both signatures for a while. */
        post: operations["rotateSubscriptionSecret"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tasks, newest first; an agent sees those it has a part in.
         * @description A page looks at 20,000 tasks, or at 4,000 with their handoffs: it may have few rows, or none, and `nextCursor` goes on.
         */
        get: operations["listTasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Cancel many tasks: those not ended that fit a filter, at the given rate. */
        post: operations["cancelTasks"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read one task. */
        get: operations["getTask"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/blame": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Who wrote a value. */
        get: operations["getBlame"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/budget": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Top a task's budget up: later handoffs may have that much more left than the relay would allow. */
        post: operations["topUpTask"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Withdraw a task: its holder, the agent that began it, or an operator. Handoffs that wait are
         *     withdrawn at once; a receiver that accepted one may still finish within the grace.
         */
        post: operations["cancelTask"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/checkpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the checkpoints of a task, newest first, over all of its runs; an agent sees its own. A
         *     sender that crashed before its handoff finds here what it stored last.
         */
        get: operations["listCheckpoints"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/checkpoints/{executionId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a run's last checkpoint, or one of its earlier ones; an agent reads its own only. */
        get: operations["getCheckpoint"];
        /**
         * Store a checkpoint ahead of a handoff; the body is the state itself, a JSON object. The caller has a part in the
         *     task, or the task does not exist yet. A run is its agent's own: agents that use one `executionId` have a run each.
         */
        put: operations["putCheckpoint"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/checkpoints/{executionId}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a stored checkpoint the task's current one: its holder, for a run of its own, or an operator. */
        post: operations["restoreCheckpoint"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Declare a task done: its current holder, or an operator. */
        post: operations["completeTask"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/cost": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The budget of a task and its spending: by agent, and by handoff. */
        get: operations["getTaskCost"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Watch a task: its events so far, and each as it happens, as Server-Sent Events. */
        get: operations["watchTask"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/trace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Everything that happened on a task. */
        get: operations["getTrace"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/tasks/{taskId}/why": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Why a task does not go on: who it waits for, since when, what was tried, what comes next, and what ends the wait. */
        get: operations["explainTask"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/transports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the transports, with the fields of their settings and credentials. */
        get: operations["listTransports"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/users/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Find the reference to a user, by which tasks, handoffs and costs can be listed. */
        post: operations["searchUser"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/what-if": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Say what would be said of the newest handoffs and the open dead letters if a candidate were put:
         *     a contract, a payload schema, safety rules or policies. Each kept message is judged by the gate under
         *     the present rules and under the candidate. Writes nothing.
         */
        post: operations["whatIf"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
/** The parts of the API's document. */
export interface components {
    schemas: {
        /** @description A receiver's optional words when it takes the task. */
        AcceptBody: {
            /**
             * Format: int64
             * @description The token that came with the delivery, where the header does not have it.
             */
            fencingToken?: number | null;
            /**
             * Format: int64
             * @description How often the broker will hear of this worker. Another worker of the agent may take the handoff over once four such
             *     intervals passed without a word. Without it the lease cannot be taken over before it ends.
             */
            heartbeatIntervalMs?: number | null;
        } & {
            [key: string]: unknown;
        };
        /** @description The data held on a person. */
        AccessReportView: {
            /**
             * Format: int64
             * @description How many data there are.
             */
            count: number;
            /** @description The data, in log order. */
            data: components["schemas"]["DatumView"][];
            /** @description Erasures of the person's data. */
            erasures: components["schemas"]["PastErasureView"][];
            /**
             * Format: date-time
             * @description When the broker made the report, RFC 3339.
             */
            generatedAt: string;
            /** @description Legal holds on the person's data. */
            holds: components["schemas"]["HoldView"][];
            /** @description The person, as the caller named it. */
            subjectId: string;
        };
        /** @description A person's decision on an escalation. */
        Action: ("retry" | "reassign" | "rollback" | "cancel" | "complete") | (string & {});
        /** @description Who acted. A later version may have more. */
        ActorRole: ("agent" | "operator" | "operator-metadata" | "auditor" | "admin" | "broker") | (string & {});
        /** @description An agent as registered. */
        Agent: {
            /** @description Takes handoffs at all. */
            acceptsHandoffs: boolean;
            /** @description Its id, unique within the tenant. */
            agentId: string;
            /** @description The kind of agent; handoffs are usually addressed to a type. */
            agentType: string;
            /** @description Version of the agent, semver. */
            agentVersion: string;
            /** @description URL to which its events are posted. Not shown to other agents. */
            callbackUrl?: string | null;
            /** @description Its abilities; a handoff may require some. */
            capabilities: string[];
            card?: components["schemas"]["Card"] | null;
            contextPolicy?: components["schemas"]["ContextPolicy"] | null;
            /**
             * Format: int64
             * @description Size of its context window, in tokens.
             */
            contextWindowTokens?: number | null;
            /** @description How and where it receives its handoffs. */
            delivery: components["schemas"]["Delivery"];
            /** @description For people and for matching. */
            description: string;
            /** @description Fields of knowledge that it covers. */
            domains: string[];
            /** @description Sample tasks, for matching. */
            examples: string[];
            /** @description The agents to which it may hand off, by id or `type:<agentType>`; empty: none. */
            handoffTargets: string[];
            /** @description Free data of its owner. Not shown to other agents. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description Name for people; the id unless set. */
            name: string;
            orders?: components["schemas"]["Orders"] | null;
            /** @description The action on a handoff that names it by its id while it is `PAUSED`. */
            pause?: components["schemas"]["Pause"];
            /** @description Its permissions. */
            permissions: string[];
            /** @description The region of the endpoint; none: the broker's region. */
            region?: string | null;
            /** @description Refuse its handoffs without a checkpoint of its own. */
            requireCheckpoint: boolean;
            /** @description Refuse its messages without a signature. */
            requireSignature: boolean;
            /** @description Dotted paths that `currentState` must hold for it. */
            requiredState: string[];
            schemaVersions?: components["schemas"]["VersionRange"] | null;
            /** @description The field in which it is best (seed 004). */
            specialization?: string | null;
            /** @description Whether it takes handoffs at the moment. */
            state: components["schemas"]["AgentState"];
            /** @description Who gets its failures. */
            supervisorId?: string | null;
            tokenizer?: components["schemas"]["Tokenizer"] | null;
            /** @description The legal basis of transfers of data to and from its region: a code. */
            transferBasis?: string | null;
        };
        /** @description The cost of one agent's handoffs on the task. */
        AgentCostView: {
            /** @description Id of the agent whose costs these are. */
            agentId: string;
            /**
             * Format: double
             * @description The money that it holds and may still spend or hand on.
             */
            heldUSD: number;
            /**
             * Format: double
             * @description US dollars that it spent on the task.
             */
            spentUSD: number;
            /** @description Tokens that it used. */
            tokens: components["schemas"]["SpentTokensView"];
        };
        /** @description An endpoint is no longer called. */
        AgentEndpointDisabledEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                agentId: string;
                /** @description `delivery` or `callback`. */
                endpoint?: string;
                /** @description A code. */
                reason?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "agent.endpoint_disabled";
        } & {
            [key: string]: unknown;
        };
        /** @description An endpoint is on its way to being disabled. */
        AgentEndpointFailingEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                agentId: string;
                /** @description `delivery` or `callback`. */
                endpoint?: string;
                /** @description How far on that way. */
                percent?: number;
                /** @description A code. */
                reason?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "agent.endpoint_failing";
        } & {
            [key: string]: unknown;
        };
        /** @description A handoff was committed. */
        AgentHandoffOccurredEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                conversation_id: string | null;
                /** Format: uuid */
                handoff_id: string;
                /** @description Why the sender hands over, from the message. */
                reason: string | null;
                source_agent_id: string;
                status?: string;
                /** @description The message's taskSummary. */
                summary: string | null;
                target_agent_id: string;
                /** Format: uuid */
                task_id: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "agent.handoff.occurred";
        } & {
            [key: string]: unknown;
        };
        /**
         * @description A caller's description of an agent, on creation and in a patch: an absent member is left alone,
         *     a list replaces, `[]` clears (seed 003). Spellings in `snake_case` are understood.
         */
        AgentSpec: {
            /**
             * @description Takes handoffs at all.
             * @default null
             */
            acceptsHandoffs?: boolean | null;
            /**
             * @description Its id; made by the broker when absent on creation, refused in a patch.
             * @default null
             */
            agentId?: string | null;
            /**
             * @description The kind of agent; handoffs are usually addressed to a type.
             * @default null
             */
            agentType?: string | null;
            /**
             * @description Version of the agent, semver.
             * @default null
             */
            agentVersion?: string | null;
            /**
             * @description URL to which its events are posted. Not shown to other agents. Null clears it.
             * @default null
             */
            callbackUrl?: string | null;
            /**
             * @description Its abilities; a handoff may require some.
             * @default null
             */
            capabilities?: string[] | null;
            /** @default null */
            card?: components["schemas"]["Card"] | null;
            /** @default null */
            config?: components["schemas"]["OrbitConfig"] | null;
            /** @default null */
            contextPolicy?: components["schemas"]["ContextPolicy"] | null;
            /**
             * Format: int64
             * @description Size of its context window, in tokens. Null clears it.
             * @default null
             */
            contextWindowTokens?: number | null;
            /** @default null */
            delivery?: components["schemas"]["DeliverySpec"] | null;
            /**
             * @description For people and for matching.
             * @default null
             */
            description?: string | null;
            /**
             * @description Fields of knowledge that it covers.
             * @default null
             */
            domains?: string[] | null;
            /**
             * @description Sample tasks, for matching.
             * @default null
             */
            examples?: string[] | null;
            /**
             * @description The agents to which it may hand off, by id or `type:<agentType>`; empty: none.
             * @default null
             */
            handoffTargets?: string[] | null;
            /**
             * @description The same in Orbit's spelling.
             * @default null
             */
            handoff_targets?: string[] | null;
            /**
             * @description Orbit's field; kept in `metadata`.
             * @default null
             */
            instructions?: string | null;
            /** @description Free data of its owner. Not shown to other agents. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * @description Orbit's field; kept in `metadata`.
             * @default null
             */
            model?: string | null;
            /**
             * @description Name for people; the id unless set.
             * @default null
             */
            name?: string | null;
            /** @default null */
            orders?: components["schemas"]["Orders"] | null;
            /** @default null */
            pause?: components["schemas"]["Pause"] | null;
            /**
             * @description Its permissions.
             * @default null
             */
            permissions?: string[] | null;
            /**
             * @description The region of the endpoint; none: the broker's region. Null clears it.
             * @default null
             */
            region?: string | null;
            /**
             * @description Refuse its handoffs without a checkpoint of its own.
             * @default null
             */
            requireCheckpoint?: boolean | null;
            /**
             * @description Refuse its messages without a signature.
             * @default null
             */
            requireSignature?: boolean | null;
            /**
             * @description Dotted paths that `currentState` must hold for it.
             * @default null
             */
            requiredState?: string[] | null;
            /** @default null */
            schemaVersions?: components["schemas"]["VersionRange"] | null;
            /**
             * @description The field in which it is best (seed 004). Null clears it.
             * @default null
             */
            specialization?: string | null;
            /** @default null */
            state?: components["schemas"]["AgentState"] | null;
            /**
             * @description Who gets its failures. Null clears it.
             * @default null
             */
            supervisorId?: string | null;
            /** @default null */
            tokenizer?: components["schemas"]["Tokenizer"] | null;
            /**
             * @description The legal basis of transfers of data to and from its region: a code. Null clears it.
             * @default null
             */
            transferBasis?: string | null;
        };
        /** @description Whether an agent takes work now (seed 001: RUNNABLE). */
        AgentState: ("RUNNABLE" | "BUSY" | "PAUSED") | (string & {});
        /**
         * @description An agent as shown: never with its secrets. Another agent sees neither `metadata` nor `callbackUrl`, and of
         *     `delivery` the mode alone.
         */
        AgentView: components["schemas"]["Agent"] & {
            /** @description The allowlist where Orbit keeps it. */
            config: components["schemas"]["OrbitConfig"];
            /**
             * Format: date-time
             * @description When it was registered, RFC 3339.
             */
            createdAt: string;
            /** @description The allowlist in Orbit's spelling; the same as `handoffTargets`. */
            handoff_targets: string[];
            /** @description Entries of the allowlist that match no agent; they are kept, and ignored at run time. */
            unknownTargets: string[];
            /**
             * Format: date-time
             * @description When it last changed, RFC 3339.
             */
            updatedAt: string;
            /** @description Settings that do not hold in full; only in the answers to changes, and only if there are any. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description The tenant's agents, by id. */
        AgentsView: {
            /** @description All agents of the tenant. */
            items: components["schemas"]["AgentView"][];
        };
        /** @description Something that an operator should look at. */
        AlertRaisedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                agentId?: string;
                /** @description What it is. */
                alert: string;
                /** @description The classifier that calls a message unsafe. */
                by?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** Format: uuid */
                handoffId?: string;
                /** @description What the classifier calls it, a code. */
                label?: string;
                /** @description A code. */
                reason?: string;
                sourceAgentId?: string;
                status?: string;
                /** Format: uuid */
                subscriptionId?: string;
                targetAgentId?: string;
                /** Format: uuid */
                taskId?: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "alert.raised";
        } & {
            [key: string]: unknown;
        };
        /** @description The allowlists of all agents, as a graph. */
        AllowlistView: {
            /** @description The entries of their allowlists. */
            edges: components["schemas"]["EdgeView"][];
            /** @description The agents. */
            nodes: components["schemas"]["NodeView"][];
        };
        /** @description The answer to a receiver's question. */
        AnswerBody: {
            /** @description The answer: of the form that the question's schema asks for, else free. */
            answer: unknown;
            /**
             * Format: int32
             * @description Which question it answers, from 1; the last one unless said.
             */
            number?: number | null;
        };
        /** @description A tool as Anthropic's messages take it. */
        AnthropicTool: {
            /** @description When to call it. */
            description: string;
            /** @description The schema of its arguments. */
            input_schema: components["schemas"]["JsonSchema"];
            /** @description Its name. */
            name: string;
        };
        /** @description A receiver's question. */
        AskBody: {
            /**
             * Format: int64
             * @description Milliseconds until the handoff expires without an answer, 30 days at most; `delivery.answer_timeout_ms` unless said.
             */
            answerWithinMs?: number | null;
            /**
             * Format: int64
             * @description The token that came with the delivery, where the header does not have it.
             */
            fencingToken?: number | null;
            /** @description The question: a text, or data of any form. */
            question: unknown;
            /** @description A JSON Schema (2020-12) that the answer has to fit; within the bounds of a contract's payload schema. */
            schema?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description A question of a receiver to the sender of its handoff, and its answer. */
        AskedView: {
            /** @description The answer; only on the handoff's own page, absent once erased. */
            answer?: unknown;
            /** @description When the handoff expires, or would have, without an answer, RFC 3339. */
            answerBy: string;
            /**
             * Format: date-time
             * @description When it was answered, RFC 3339.
             */
            answeredAt?: string | null;
            /** @description The agent that answered; absent where a person did. */
            answeredBy?: string | null;
            /**
             * Format: date-time
             * @description When it was asked, RFC 3339.
             */
            askedAt: string;
            /**
             * Format: int32
             * @description Its number among the questions of the handoff, from 1.
             */
            number: number;
            /** @description The question; only on the handoff's own page, absent once erased. */
            question?: unknown;
            /** @description The schema that the answer has to fit; only on the handoff's own page. */
            schema?: {
                [key: string]: unknown;
            } | null;
            /** @description Whether the question waits for its answer. */
            state: components["schemas"]["QuestionState"];
        };
        /** @description Attempts within some time. */
        AttemptCountsView: {
            /**
             * Format: int64
             * @description Attempts. Of a receiver that pulls: handoffs that got a first verdict, or none in time.
             */
            attempts: number;
            /**
             * Format: double
             * @description The share of attempts that failed, from 0 to 1; absent without an attempt.
             */
            failureShare?: number | null;
            /**
             * Format: int64
             * @description Those that failed, time-outs among them.
             */
            failures: number;
            /**
             * Format: double
             * @description Half of the answers and time-outs took at most so many milliseconds, to within 19 %; absent for none.
             */
            p50Ms?: number | null;
            /**
             * Format: double
             * @description 95 of 100 answers and time-outs took at most so many milliseconds, to within 19 %; absent for none.
             */
            p95Ms?: number | null;
            /**
             * Format: int64
             * @description Those without a complete answer within the time limit.
             */
            timeouts: number;
        };
        /** @description A header of a request. */
        AttemptHeader: {
            /** @description Name, as it was sent. */
            name: string;
            /** @description Value; `[REDACTED:secret]` in the place of a signature, a key, a token or a signed link. */
            value: string;
        };
        /** @description How an attempt at a delivery ended, as the metric of attempts has it. Any other word is the class of a failure. A later version may have more. */
        AttemptOutcome: ("accepted" | "rejected" | "received" | "busy" | "gone" | "away" | "not_sent" | "request" | "egress" | "dns" | "connect" | "tls" | "timeout" | "status" | "redirect" | "protocol" | "body_too_large" | "unauthorized" | "missing" | "refused") | (string & {});
        /** @description An attempt at a handoff. */
        AttemptView: {
            /**
             * @description The first 4 KiB of the receiver's answer: text of others, shown as it came. Absent where there was none, or where it
             *     may hold values that the redaction policy names.
             */
            answer?: string | null;
            /**
             * Format: int32
             * @description From 1.
             */
            attempt: number;
            /**
             * Format: date-time
             * @description When it began, RFC 3339.
             */
            begunAt: string;
            /**
             * Format: double
             * @description How long it took, in milliseconds; absent where nothing was sent.
             */
            durationMs?: number | null;
            /** @description The failure, in a sentence of the broker or as a code. */
            error?: string | null;
            /** @description How it ended. */
            outcome: components["schemas"]["AttemptOutcome"];
            /** @description Headers that the broker set for this handoff. */
            requestHeaders: components["schemas"]["AttemptHeader"][];
            /**
             * Format: int32
             * @description HTTP status of the answer; absent where none came.
             */
            status?: number | null;
            /** @description The way that it took; absent where nothing was sent. */
            transport?: components["schemas"]["DeliveryMode"];
        };
        /** @description The last attempts at a handoff. */
        AttemptsView: {
            /**
             * Format: int32
             * @description Attempts begun so far. The first one has no item where the receiver took it at once, nor has one that an erasure or the
             *     end of retention took.
             */
            attempts: number;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description Newest first. */
            items: components["schemas"]["AttemptView"][];
            /**
             * Format: int32
             * @description Most items: of more attempts the newest are kept.
             */
            kept: number;
        };
        /** @description The cause of an item. */
        AttentionKind: ("ESCALATED" | "DEAD_LETTERED" | "RECEIVER_DELETED" | "ENDPOINT_DISABLED" | "BUDGET_USED_UP" | "CAP_USED_UP" | "NOT_FETCHED" | "BREAKER_OPEN" | "TRANSPORT_AWAY" | "DELIVERY_FAILING" | "RECEIVER_PAUSED" | "TASKS_IDLE" | "TASKS_UNMOVED" | "QUESTION_OPEN" | "TREE_HEAD_LATE" | "SUBSCRIPTION_DISABLED") | (string & {});
        /** @description One page of the items that need attention. */
        AttentionPageView: {
            /**
             * Format: date-time
             * @description Time of the look, RFC 3339.
             */
            at: string;
            counts: components["schemas"]["SeverityCounts"];
            /** @description The most urgent first, of equal urgency the oldest first. */
            items: components["schemas"]["AttentionView"][];
            /** @description Continues the list; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description How soon a person should look. A later version may have more. */
        AttentionSeverity: ("critical" | "warning" | "notice") | (string & {});
        /** @description One cause, with all that it holds up. */
        AttentionView: {
            /** @description The agent that is waited for, or whose messages wait. */
            agentId?: string | null;
            /**
             * Format: int32
             * @description Most attempts that ended at one of the deliveries.
             */
            attempts: number;
            /**
             * Format: int64
             * @description Handoffs, tasks or decisions that the item covers; 0 for an endpoint, a cap or a subscription by itself.
             */
            count: number;
            /**
             * Format: uuid
             * @description UUID of the oldest dead letter.
             */
            deadLetterId?: string | null;
            /**
             * Format: uuid
             * @description UUID of the oldest escalation.
             */
            escalationId?: string | null;
            /**
             * Format: uuid
             * @description UUID of the oldest handoff.
             */
            handoffId?: string | null;
            /** @description The cause as a code. */
            kind: components["schemas"]["AttentionKind"];
            /** @description Why the last attempt failed, or the reason of a decision: a code. */
            lastError?: string | null;
            next?: components["schemas"]["NextEventView"] | null;
            /** @description Requests that end the wait; an operator's key may make them. */
            remedies: components["schemas"]["RemedyView"][];
            /** @description The cause in one sentence. */
            sentence: string;
            /** @description How soon a person should look. */
            severity: components["schemas"]["AttentionSeverity"];
            /** @description When the oldest wait began, RFC 3339. */
            since: string;
            /**
             * Format: uuid
             * @description UUID of the subscription.
             */
            subscriptionId?: string | null;
            /**
             * Format: uuid
             * @description UUID of the oldest task.
             */
            taskId?: string | null;
        };
        /** @description Who ends a wait. */
        AwaitedKind: ("agent" | "person" | "broker" | "nobody") | (string & {});
        /** @description The effect of a hop on a value. */
        BlameStep: {
            /** @description Id of the agent that sent it. */
            agentId: string | null;
            /** @description The change that the step made to the value. */
            change: components["schemas"]["ValueChange"];
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: int64
             * @description Its record's place in the log.
             */
            leafIndex: number;
            /** @description `sha256:…` over the value's canonical form after it; null where there is none or the caller may not know. */
            valueHash: string | null;
        };
        /** @description Who wrote a value. */
        BlameView: {
            /** @description False where an erased message may have had a part. */
            certain: boolean;
            /** @description The message was erased. */
            erased: boolean;
            /**
             * Format: uuid
             * @description The handoff whose message was looked at.
             */
            handoffId: string;
            /** @description The changes of the value along the parents of that handoff, oldest first. */
            history: components["schemas"]["BlameStep"][];
            messageGone: components["schemas"]["GoneReason"] | null;
            /** @description RFC 6901 pointer into the message. */
            pointer: string;
            /** @description The message has a value there; null where the message was erased. */
            present: boolean | null;
            removedBy: components["schemas"]["BlamedHop"] | null;
            /**
             * Format: uuid
             * @description UUID of the task.
             */
            taskId: string;
            /** @description The value; null where there is none. */
            value: unknown;
            /** @description `sha256:…` over the value's canonical form; null where there is none. */
            valueHash: string | null;
            /** @description The evidence that was recomputed. */
            verification: components["schemas"]["VerificationView"];
            writtenBy: components["schemas"]["BlamedHop"] | null;
        };
        /** @description A hop that wrote or removed a value. */
        BlamedHop: {
            contract: components["schemas"]["RecordContract"] | null;
            fromAgent: components["schemas"]["RecordParty"] | null;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: int64
             * @description Its record's place in the log.
             */
            leafIndex: number;
            /** @description `sha256:…` over the record: the leaf's hash. */
            recordHash: string;
            /**
             * Format: date-time
             * @description When it was committed, RFC 3339.
             */
            time: string | null;
        };
        /** @description A circuit breaker's state. A later version may have more. */
        BreakerState: ("closed" | "half_open" | "open") | (string & {});
        /** @description The circuit breaker that a broker has for a receiver. */
        BreakerView: {
            /** @description The broker's name. */
            broker: string;
            /** @description The last failure that this broker saw, as a code. */
            reason?: string | null;
            /** @description When it opened, or closed again, RFC 3339. Probes do not change that. */
            since: string;
            state: components["schemas"]["BreakerState"];
        };
        /** @description Whom a change of a schema breaks. A later version may have more. */
        BrokenSide: ("senders" | "receivers") | (string & {});
        /** @description An addition to a budget. */
        BudgetBody: {
            /**
             * Format: double
             * @description US dollars to add: more than 0, up to a billion.
             */
            addUSD: number;
            /** @description Why, 1 to 2 000 characters; kept with the record. */
            reason: string;
        };
        /** @description Decide on many dead letters, 1 000 at most. */
        BulkBody: {
            /** @description Say what would happen, and change nothing. */
            dryRun?: boolean;
            /** @description Which; at least one condition. */
            filter: components["schemas"]["BulkFilter"];
            /**
             * Format: int32
             * @description Decisions a second, 1 to 1 000.
             */
            ratePerSecond?: number | null;
            /** @description Why, 1 to 2 000 characters; kept with each record. */
            reason: string;
            /**
             * @description For a release: the findings to waive, as for one; an entry that matches no finding of a dead
             *     letter has no effect on it.
             */
            waive?: string[];
        };
        /** @description Which dead letters to decide on: those open that fit all that is said. */
        BulkFilter: {
            /**
             * @description Kept at this time or later, RFC 3339.
             * @default null
             */
            from?: string | null;
            /**
             * @description Only these handoffs, by their UUIDs.
             * @default null
             */
            ids?: string[] | null;
            /**
             * @description With this primary reason.
             * @default null
             */
            reason?: string | null;
            /**
             * @description Only from this sender.
             * @default null
             */
            source?: string | null;
            /**
             * @description Only to this receiver.
             * @default null
             */
            target?: string | null;
            /**
             * @description Kept before this time, RFC 3339.
             * @default null
             */
            to?: string | null;
        };
        /** @description The result for one dead letter. */
        BulkItem: {
            /** @description Why it could not be decided on. */
            error?: string | null;
            /** @description The failures for which it stays a dead letter. */
            failures?: components["schemas"]["FailureView"][];
            /**
             * Format: uuid
             * @description UUID of the dead letter's handoff.
             */
            handoffId: string;
            /**
             * @description `released`, `discarded`, `refused` or `failed`; in a dry run `would release`, `would discard`, `would refuse` or
             *     `would fail`.
             */
            result: string;
        };
        /** @description The result for one object. */
        BulkResult: {
            /** @description Why it could not be decided on. */
            error?: string | null;
            /** @description UUID of the task or escalation. */
            id: string;
            /** @description `canceled`, `resolved` or `failed`; in a dry run `would cancel` or `would resolve`. */
            result: string;
        };
        /** @description The results for all objects. */
        BulkResults: {
            /** @description How many went as wished; in a dry run, would be decided on. */
            done: number;
            /** @description True where the request asked for a trial: nothing was changed. */
            dryRun: boolean;
            /** @description How many could not be decided on. */
            failed: number;
            /** @description One entry for each. */
            items: components["schemas"]["BulkResult"][];
            /** @description How many the filter found. */
            matched: number;
            /** @description More fit the filter than one call takes, or the broker is stopping: call again. */
            more: boolean;
        };
        /** @description The results for all dead letters. */
        BulkView: {
            /** @description How many went as wished. */
            done: number;
            /** @description True where the request asked for a trial: nothing was changed. */
            dryRun: boolean;
            /** @description How many could not be decided on. */
            failed: number;
            /** @description One entry for each dead letter. */
            items: components["schemas"]["BulkItem"][];
            /** @description How many the filter found. */
            matched: number;
            /** @description More fit the filter than one call takes, or the broker is stopping: call again. */
            more: boolean;
            /** @description How many the gate refused again. */
            refused: number;
        };
        /** @description A wish to withdraw a task. */
        CancelBody: {
            /**
             * Format: int64
             * @description How long who works on the task may still finish, in milliseconds, up to an hour; the broker's
             *     `recovery.cancel_grace_ms` unless said.
             */
            graceMs?: number | null;
            /** @description Why, 1 to 2 000 characters; kept with the record. */
            reason: string;
        };
        /** @description Tasks to cancel, 1 000 at most. */
        CancelTasksBody: {
            /** @description Say what would happen, and change nothing. */
            dryRun?: boolean;
            /** @description Which; at least one condition. */
            filter: components["schemas"]["TaskSelection"];
            /**
             * Format: int64
             * @description How long who works on a task may still finish, in milliseconds, up to an hour; the broker's
             *     `recovery.cancel_grace_ms` unless said.
             */
            graceMs?: number | null;
            /**
             * Format: int32
             * @description Decisions a second, 1 to 1 000; 50 unless said.
             */
            ratePerSecond?: number | null;
            /** @description Why, 1 to 2 000 characters; kept with each record. */
            reason: string;
        };
        /** @description The candidate. */
        CandidateBody: {
            contract?: components["schemas"]["ContractDocument"] | null;
            /** @description Whether every edge must have a contract. */
            requireContract?: boolean | null;
            safety?: components["schemas"]["SafetyBody"] | null;
            schema?: components["schemas"]["SchemaBody"] | null;
        };
        /** @description The changes of a candidate version, and whether it could be registered. */
        CandidateView: {
            /** @description It could be registered. */
            accepted: boolean;
            /** @description The version that it was held against; null where it is the first. */
            against: string | null;
            /** @description Receivers may get what they do not know. */
            breaksReceivers: boolean;
            /** @description Messages that senders send today may be refused. */
            breaksSenders: boolean;
            /** @description The changes, what breaks first; 200 at most. */
            changes: components["schemas"]["SchemaChangeView"][];
            /** @description How many changes there are in all. */
            changesInAll: number;
            /** @description Why it could not. */
            failures: components["schemas"]["FailureView"][];
            needs: components["schemas"]["VersionStep"] | null;
            /** @description The lowest number that it may have. */
            nextVersion: string;
        };
        /** @description How much, of at least one of both; what is not said stays as it is. */
        CapBody: {
            /**
             * Format: int64
             * @description Tokens, read and written.
             */
            tokens?: number | null;
            /** @description Decimal US dollars, as text so that they are exact: `"100.00"`. */
            usd?: string | null;
        };
        /** @description A cap, and what of it is used now. Amounts are decimal US dollars, exactly. */
        CapView: {
            /** @description Whose; absent: the whole tenant's. */
            agentId?: string | null;
            /** @description The money comes from the settings; else an operator set it. */
            default: boolean;
            /** @description The tokens come from the settings; else an operator set them. */
            defaultTokens: boolean;
            /**
             * Format: int64
             * @description Tokens that are left; never less than none.
             */
            leftTokens?: number | null;
            /** @description The remainder; never less than nothing. */
            leftUSD?: string | null;
            /** @description Reserved by open handoffs. */
            reservedUSD: string;
            /**
             * Format: int64
             * @description Tokens spent within the window that ends now, where it holds any.
             */
            spentTokens?: number | null;
            /** @description Spent within the window that ends now. */
            spentUSD: string;
            /**
             * Format: int64
             * @description How many tokens may count against it; absent: it holds none.
             */
            tokens?: number | null;
            /** @description Money that may count against it; absent: it holds no money. */
            usd?: string | null;
            /** @description The parts of the cap that do not hold as they read, in the answer to its change; absent if there are none. */
            warnings?: components["schemas"]["WarningView"][];
            /** @description How long what was spent counts, an ISO 8601 duration. */
            window: string;
        };
        /** @description All caps of a tenant. */
        CapsView: {
            /** @description The tenant's own first, then by agent; each by window. */
            items: components["schemas"]["CapView"][];
        };
        /** @description An agent's public description for other protocols (docs/doors/a2a.md); an agent without one has none. */
        Card: {
            /**
             * @description Media types of parts that the agent reads; a range such as `image/*` is one.
             * @default [
             *       "text/plain",
             *       "application/json"
             *     ]
             */
            inputModes?: string[];
            /**
             * @description Media types of the agent's results.
             * @default [
             *       "text/plain",
             *       "application/json"
             *     ]
             */
            outputModes?: string[];
            /**
             * @description Shown without a key too, where the settings name the agent's tenant.
             * @default false
             */
            public?: boolean;
        };
        /** @description A message of which something else would be said. */
        ChangedVerdict: {
            /** @description The verdict under the candidate rules. */
            after: components["schemas"]["VerdictView"];
            /** @description Under the present rules. */
            before: components["schemas"]["VerdictView"];
            /** @description The change of the verdict. */
            change: components["schemas"]["WhatIfChange"];
            /** @description Id of the agent that sent it. */
            fromAgent: string;
            /**
             * Format: uuid
             * @description UUID of the handoff; of a message to several receivers of the group.
             */
            handoffId: string;
            /** @description Of a message to several receivers all of them, as addressed. */
            receivers?: string[] | null;
            /** @description Its status. */
            status: components["schemas"]["HandoffStatus"];
            /**
             * Format: uuid
             * @description UUID of the handoff's task.
             */
            taskId: string;
            /** @description Id of the agent that received it; of several the first, as addressed. */
            toAgent: string;
        };
        /** @description A checkpoint, by its run and its number. */
        CheckpointRefView: {
            /**
             * Format: uuid
             * @description The run whose state it is.
             */
            executionId: string;
            /**
             * Format: int64
             * @description Its number within that run, from 1.
             */
            seq: number;
        };
        /** @description A checkpoint's state: free, the agent's own. */
        CheckpointState: {
            [key: string]: unknown;
        };
        /** @description A stored checkpoint. */
        CheckpointView: {
            /** @description The agent that stored it. */
            agentId: string;
            /** @description `sha256:…`: what records name it by. */
            commitment: string;
            /**
             * Format: date-time
             * @description When it was stored, RFC 3339.
             */
            createdAt: string;
            /**
             * Format: uuid
             * @description The run whose state it is.
             */
            executionId: string;
            /**
             * Format: int64
             * @description Its number within that run, from 1.
             */
            seq: number;
            /** @description The state; not repeated when it is stored. */
            state?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: uuid
             * @description UUID of the task that it belongs to.
             */
            taskId: string;
            /** @description The parts of the request that do not hold in full. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description Items by the JSON pointer of the array or text that they are added to: free. */
        ChunkAppend: {
            [key: string]: unknown;
        };
        /** @description A chunk of a handoff's message. */
        ChunkBody: {
            /** @description There will be no message: the task goes back to the sender's checkpoint. */
            abort?: boolean;
            /** @description Items for arrays, and texts for texts, by the JSON pointer of the value to which they are added. */
            append?: components["schemas"]["ChunkAppend"];
            /** @description The message is whole: the broker runs the whole gate over it. */
            close?: boolean;
            /**
             * Format: uuid
             * @description The handoff; needed with a signature.
             */
            handoffId?: string;
            /** @description Why it is aborted, in words. */
            reason?: string;
            /**
             * Format: int64
             * @description Its number, from 1 without gaps.
             */
            seq: number;
            /** @description Values by their JSON pointers. */
            set?: components["schemas"]["ChunkSet"];
            /** @description As a message's: HMAC-SHA256 over the RFC 8785 form of the chunk without it. */
            signature?: string;
        };
        /** @description A page of a stream. */
        ChunkPage: {
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description The chunks, in order. */
            items: components["schemas"]["ChunkView"][];
            /**
             * Format: int64
             * @description Give it as `from` to go on.
             */
            next: number;
            /** @description The stream as it is now. */
            stream: components["schemas"]["StreamView"];
        };
        /** @description Values by JSON pointer: free. */
        ChunkSet: {
            [key: string]: unknown;
        };
        /** @description One number of a stream. */
        ChunkView: {
            /** @description There will be no message: stop. */
            abort?: boolean;
            append?: components["schemas"]["ChunkAppend"] | null;
            /** @description The message is whole: it passed the gate. */
            close?: boolean;
            /** @description `sha256:…`: the commitment in its record; absent of the broker's own end of a stream. */
            commitment?: string | null;
            /**
             * Format: date-time
             * @description When it was committed, RFC 3339.
             */
            committedAt: string;
            /** @description Its content was erased, or is past its time. */
            gone?: boolean;
            /** @description Why it was aborted: a code. */
            reason?: string | null;
            /**
             * Format: int64
             * @description Number of the chunk in its stream, from 1.
             */
            seq: number;
            set?: components["schemas"]["ChunkSet"] | null;
        };
        /** @description The answer to chunks. */
        ChunksView: {
            /**
             * Format: int64
             * @description The number of the next chunk.
             */
            expectedSeq: number;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description Chunks that were there already, with the same content. */
            replayed: number;
            /** @description Status of the handoff after these chunks. */
            status: components["schemas"]["HandoffStatus"];
            /** @description Stream of the handoff after these chunks. */
            stream: components["schemas"]["StreamView"];
            /** @description Chunks that this request added. */
            taken: number;
            /** @description The parts of the chunks that do not hold in full. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description An event as CloudEvents 1.0 writes it. */
        CloudEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            /** @description The data of the same event in the standard format. */
            data: components["schemas"]["EventData"];
            /** @description Always `application/json`. */
            datacontenttype: string;
            /** @description URL of the schema of `data`. */
            dataschema: string;
            /** @description The event's id, the same at every delivery. */
            id: string;
            /** @description The broker and the tenant. */
            source: string;
            /** @description Always `1.0`. */
            specversion: string;
            /** @description The task, and the handoff where there is one. */
            subject?: string;
            /**
             * Format: date-time
             * @description When it happened, RFC 3339.
             */
            time: string;
            /** @description The handoff's trace context, W3C `traceparent`. */
            traceparent?: string;
            /** @description Type of the event, such as `handoff.accepted`. */
            type: components["schemas"]["EventType"];
        };
        /** @description A coding that the broker reads and writes. */
        Coding: ("zstd" | "gzip") | (string & {});
        /** @description A version to compare. */
        CompareBody: {
            /** @description The steps that senders would have to take. */
            migration?: string | null;
            /** @description The schema. */
            schema: components["schemas"]["JsonSchema"];
            /** @description The version that it would get; without, it is held against the highest release. */
            version?: string | null;
        };
        /** @description The changes of a version. */
        ComparisonView: {
            /** @description The version that it was held against; null where it is the first. */
            against: string | null;
            /** @description Receivers may get what they do not know. */
            breaksReceivers: boolean;
            /** @description Messages that senders send today may be refused. */
            breaksSenders: boolean;
            /** @description The changes, what breaks first; 200 at most. */
            changes: components["schemas"]["SchemaChangeView"][];
            /** @description How many changes there are in all. */
            changesInAll: number;
            needs: components["schemas"]["VersionStep"] | null;
            /** @description The lowest number that it may have. */
            nextVersion: string;
        };
        /** @description The result of the task. */
        CompleteBody: {
            /** @description The conversation in condensed form. */
            conversationSummary?: string | null;
            costTracking?: components["schemas"]["SaidCost"] | null;
            /**
             * Format: int64
             * @description The token that came with the delivery, where the header does not have it.
             */
            fencingToken?: number | null;
            /**
             * Format: int64
             * @description How many rounds it took; more than the message's `maxIterations` (15 unless said) is refused.
             */
            iterations?: number | null;
            /** @description Result of the receiver: any JSON. */
            result?: unknown;
        } & {
            [key: string]: unknown;
        };
        /** @description The result of a task. */
        CompleteTaskBody: {
            /** @description Output of the task: any JSON. */
            output?: unknown;
        } & {
            [key: string]: unknown;
        };
        /** @description Which compressor wrote a summary. A later version may have more. */
        CompressedBy: ("extractive" | "model" | "trimming") | (string & {});
        /** @description Proof that a tree continues an earlier one (RFC 6962). */
        ConsistencyView: {
            /**
             * Format: int64
             * @description Records of the earlier tree.
             */
            from: number;
            /** @description The earlier tree's root, in base64. */
            fromRootHash: string;
            /** @description Each hash in base64, in the order of RFC 6962 §2.1.2. */
            proof: string[];
            /**
             * Format: int64
             * @description Records of the later tree.
             */
            to: number;
            /** @description The later tree's root, in base64. */
            toRootHash: string;
            /** @description The signed note, where the later tree is the log's latest. */
            treeHead?: string | null;
        };
        /** @description The broker's action on a message over its receiver's limit. A later version may have more. */
        ContextAction: ("none" | "flag" | "compress") | (string & {});
        /** @description Tokens of a message by part. The parts have every member of the message, each once. */
        ContextParts: {
            /**
             * Format: int64
             * @description Every other member.
             */
            context: number;
            /**
             * Format: int64
             * @description `currentState`, `completedSubtasks`, `remainingSubtasks`.
             */
            state: number;
            /**
             * Format: int64
             * @description `conversationHistorySummary`, `taskSummary`.
             */
            summary: number;
            /**
             * Format: int64
             * @description `toolCallHistory`, `toolState`.
             */
            tools: number;
            /**
             * Format: int64
             * @description `conversationHistoryVerbatim`.
             */
            turns: number;
        };
        /** @description The action on a message over its receiver's limit. */
        ContextPolicy: ("flag" | "compress" | "refuse") | (string & {});
        /** @description The tokens of a message as its receiver gets it, and what the broker does about them (docs/context.md). */
        ContextView: {
            /** @description The action on it. */
            action: components["schemas"]["ContextAction"];
            /**
             * Format: int64
             * @description The most tokens of a message to it: a share of its window, or the contract's figure.
             */
            limit?: number | null;
            /** @description The tokens by part. */
            parts: components["schemas"]["ContextParts"];
            /** @description How the tokens were counted. */
            tokenizer: components["schemas"]["Tokenizer"];
            /**
             * Format: int64
             * @description Tokens of the message.
             */
            tokens: number;
            /**
             * Format: int64
             * @description The receiver's context window, in tokens.
             */
            window?: number | null;
        };
        /** @description A contract, as docs/contracts.md describes it: `id`, `version`, and its clauses. */
        ContractDocument: {
            [key: string]: unknown;
        };
        /** @description How far a contract conforms. A later version may have more. */
        ContractLevel: ("L1" | "L2" | "L3") | (string & {});
        /** @description The broker's facts about a contract. */
        ContractMeta: {
            /**
             * Format: date-time
             * @description When it was put, RFC 3339.
             */
            createdAt: string;
            /** @description It is on its way out. */
            deprecated: boolean;
            /** @description The linter's findings; only in the answer that put it. */
            findings?: components["schemas"]["LintFinding"][] | null;
            level?: components["schemas"]["ContractLevel"] | null;
            /** @description The clauses that it lacks for the next level; only in the answer that put it. */
            missing?: string[] | null;
            /** @description SHA-256 over the document's canonical form (RFC 8785), in hexadecimal. */
            sha256: string;
            /** @description All versions that there are; only on the contract's own page. */
            versions?: string[] | null;
        };
        /** @description A contract, or its text in JSON or YAML. */
        ContractOrText: components["schemas"]["ContractDocument"] | string;
        /** @description A contract as shown: its document, and beside it what the broker knows of it. */
        ContractView: {
            /** @description The contract's id. */
            id: string;
            /** @description The broker's facts about it. */
            meta: components["schemas"]["ContractMeta"];
            /** @description Its version. */
            version: string;
            /** @description The parts that are accepted and do not hold in full; only in the answer that put it. */
            warnings?: components["schemas"]["WarningView"][] | null;
        } & {
            [key: string]: unknown;
        };
        /** @description One page with all contracts that the caller may see. */
        ContractsView: {
            /** @description Each in its highest version, by id. */
            items: components["schemas"]["ContractView"][];
        };
        /** @description Turns of a conversation. */
        ConversationView: {
            /** @description The first turn of this answer. */
            from: number;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description The sender's own summary of the conversation before the first turn. */
            summary?: string | null;
            /** @description The turn after the last one of this answer. */
            to: number;
            /** @description Turns of the message in all. */
            total: number;
            /** @description The turns, as they were said. */
            turns: components["schemas"]["HistoryTurn"][];
        };
        /** @description An agent's spending on an edge on a day. */
        CostLineView: {
            /** @description Id of the agent that spent it: the sender or the receiver. */
            agentId: string;
            /** @description The day on which it was said, UTC. */
            day: string;
            /** @description Id of the edge's sender. */
            fromAgentId: string;
            /**
             * Format: int64
             * @description Handoffs that it sent on the edge.
             */
            handoffs: number;
            /**
             * Format: double
             * @description US dollars that it spent.
             */
            spentUSD: number;
            /** @description Id of the edge's receiver. */
            toAgentId: string;
            /** @description Tokens that it used. */
            tokens: components["schemas"]["SpentTokensView"];
        };
        /** @description All lines together. */
        CostTotalView: {
            /**
             * Format: int64
             * @description Handoffs.
             */
            handoffs: number;
            /**
             * Format: double
             * @description US dollars.
             */
            spentUSD: number;
            /** @description Tokens. */
            tokens: components["schemas"]["SpentTokensView"];
        };
        /** @description Cumulative cost as the message states it. */
        CostView: {
            /**
             * Format: double
             * @description US dollars that may still be spent.
             */
            costBudgetRemainingUSD: number;
            /**
             * Format: double
             * @description US dollars so far.
             */
            costSpentSoFarUSD: number;
            /** @description Tokens so far. */
            tokenSpent: components["schemas"]["TokensView"];
        };
        /** @description Costs by day, edge and agent. */
        CostsView: {
            /** @description One line for each day, edge and agent, in that order. */
            items: components["schemas"]["CostLineView"][];
            /** @description All lines together. */
            total: components["schemas"]["CostTotalView"];
            /**
             * Format: int64
             * @description Handoffs of versions before 0.2, whose records do not state what was spent: they count as handoffs, and as 0 dollars.
             */
            unbooked: number;
        };
        /** @description A new agent, with its key and secrets, which are shown this once. */
        CreatedAgentView: components["schemas"]["AgentView"] & {
            /** @description Its key for this API. */
            apiKey: string;
            /** @description Secret that its messages are signed with; shown once. */
            signingSecret: string;
            /** @description The broker signs its deliveries with it. */
            webhookSecret: string;
        };
        /** @description The agent that a datum was delivered to. */
        DatumReceiver: {
            /**
             * Format: date-time
             * @description When the receiver accepted, RFC 3339.
             */
            acceptedAt: string | null;
            /** @description Id of the agent that received it. */
            agentId: string;
            /**
             * Format: int32
             * @description Delivery attempts begun so far.
             */
            attempts: number;
            /** @description It is entitled to personal data at present. */
            entitledNow: boolean;
            /** @description The state of the handoff. */
            handoffStatus: components["schemas"]["HandoffStatus"];
        };
        /** @description The record that a datum came with. */
        DatumRecord: {
            /** @description Its kind. */
            kind: components["schemas"]["RecordKind"];
            /**
             * Format: int64
             * @description Its place in the log.
             */
            leafIndex: number;
            /**
             * Format: int64
             * @description The datum's number within it.
             */
            ordinal: number;
            /** @description `sha256:…` over the record: the leaf's hash. */
            recordHash: string;
            /**
             * Format: date-time
             * @description When it was made, RFC 3339.
             */
            time: string;
        };
        /** @description One datum of a person. */
        DatumView: {
            deliveredTo: components["schemas"]["DatumReceiver"] | null;
            /** @description Id of the agent that sent it; null where its record names none. */
            fromAgent: string | null;
            /**
             * Format: uuid
             * @description UUID of the handoff; null where its record has none.
             */
            handoffId: string | null;
            /** @description The datum: free, the sender's own. */
            held: unknown;
            /** @description The record that it came with. */
            record: components["schemas"]["DatumRecord"];
            /**
             * Format: uuid
             * @description UUID of the task; null where its record has none.
             */
            taskId: string | null;
        };
        /** @description The status of a dead letter. A later version may have more. */
        DeadLetterStatus: ("OPEN" | "RELEASED" | "DISCARDED") | (string & {});
        /** @description A dead letter: a handoff kept for a person. */
        DeadLetterView: {
            /**
             * Format: date-time
             * @description When it was kept, RFC 3339.
             */
            createdAt: string;
            explanation?: components["schemas"]["ExplanationView"] | null;
            /** @description Everything that the gate found. */
            failures: components["schemas"]["FailureView"][];
            /** @description Id of the agent that sent it. */
            fromAgent: string;
            /**
             * Format: uuid
             * @description The handoff's id, and the dead letter's.
             */
            handoffId: string;
            message?: components["schemas"]["StoredMessage"] | null;
            /** @description Code of the primary reason: an error's, or the end of the handoff that had no decision in time. */
            reason: string;
            /**
             * Format: date-time
             * @description When it was decided on, RFC 3339.
             */
            resolvedAt?: string | null;
            /** @description By whom: a key's id. The words are with the record. */
            resolvedBy?: string | null;
            /** @description `OPEN`, `RELEASED` or `DISCARDED`. */
            status: components["schemas"]["DeadLetterStatus"];
            /**
             * Format: uuid
             * @description UUID of the handoff's task.
             */
            taskId: string;
            /** @description To whom, where that was found. */
            toAgent?: string | null;
        };
        /** @description The broker's action if no person decides in time. A later version may have more. */
        DefaultAction: ("resume" | "dead-letter") | (string & {});
        /** @description The endpoint of an agent, and the transport by which it takes its handoffs. */
        Delivery: {
            /** @description Content codings that the endpoint takes, the preferred one first; large bodies go to it so. */
            acceptEncoding?: components["schemas"]["Coding"][];
            /** @description The transport's own settings; `GET /transports` describes them. */
            config?: {
                [key: string]: unknown;
            } | null;
            /** @description Names of the sealed credentials. The broker sets it. */
            credentialsSet?: string[];
            /**
             * @description Set when the endpoint answered 410, or failed too often in a row; cleared by setting a delivery
             *     anew.
             */
            disabled?: boolean;
            failing?: components["schemas"]["Failing"] | null;
            /** @description The form in which handoffs are sent; `handoff` unless said. */
            format?: components["schemas"]["DeliveryFormat"];
            /**
             * Format: int32
             * @description How many handoffs each broker may have on their way to it at once (1 to 1 000).
             * @default 16
             */
            maxInFlight?: number;
            /** @description The transport: `webhook`, `pull`, or another of `GET /transports`. */
            mode: string;
            /**
             * Format: int64
             * @description How long one attempt may take, in milliseconds (100 to 120 000).
             * @default 10000
             */
            timeoutMs?: number;
            /** @description The webhook's URL; http or https. */
            url?: string | null;
        };
        /** @description The form in which a receiver gets its handoffs. */
        DeliveryFormat: ("handoff" | "sw4rm") | (string & {});
        /** @description How an agent takes its handoffs. A later version may have more. */
        DeliveryMode: ("webhook" | "pull" | "a2a" | "temporal" | "sqs" | "nats" | "redis" | "amqp") | (string & {});
        /** @description A request's description of a delivery: an absent member is left alone. A new agent's has a `mode`. */
        DeliverySpec: {
            /** @description Content codings that the endpoint takes, the preferred one first; `[]` clears. */
            acceptEncoding?: components["schemas"]["Coding"][] | null;
            /** @description The transport's own settings, which `GET /transports` describes: each named one is set, and null clears it. */
            config?: {
                [key: string]: unknown;
            } | null;
            /** @description Names of the sealed credentials. The broker sets it. */
            credentialsSet?: string[] | null;
            /** @description `false` takes a disabled endpoint into service again, as each `mode`, `url`, `config` or `credentials` does. */
            disabled?: boolean | null;
            failing?: components["schemas"]["Failing"] | null;
            format?: components["schemas"]["DeliveryFormat"] | null;
            /**
             * Format: int32
             * @description How many handoffs each broker may have on their way to it at once (1 to 1 000); 16 unless said.
             */
            maxInFlight?: number | null;
            /**
             * @description The transport: `webhook`, `pull`, or another of `GET /transports`. Another one than before begins with empty `config` and
             *     `credentials`, and keeps `url`, `format` and `acceptEncoding` where it has a use for them.
             */
            mode?: string | null;
            /**
             * Format: int64
             * @description How long one attempt may take, in milliseconds (100 to 120 000); 10 000 unless said.
             */
            timeoutMs?: number | null;
            /** @description The webhook's URL; http or https. Null clears it. */
            url?: string | null;
        };
        /** @description The result of a test of a delivery. */
        DeliveryTestView: {
            /** @description The server's answer. */
            answered?: string | null;
            /** @description Whether the test reached the agent's endpoint, or its queue. */
            delivered: boolean;
            /** @description The step that was done, or the one that failed. */
            detail: string;
            /**
             * Format: int64
             * @description How long it took, in milliseconds.
             */
            durationMs: number;
            /** @description Class of the failure, as in `handoff_delivery_attempts_total`. */
            failure?: string | null;
            /** @description JSON pointer of the agent's setting that is wrong. */
            field?: string | null;
        };
        /** @description The end of a dead letter. */
        DiscardBody: {
            /** @description Why, 1 to 2 000 characters; kept with the record. */
            reason: string;
        };
        /** @description An entry of an allowlist. */
        EdgeView: {
            /** @description The agents that it names now. */
            resolved: string[];
            /** @description The agent whose allowlist it is. */
            source: string;
            /** @description An id, or `type:<agentType>`. */
            target: string;
            /** @description Whether it matches no agent. */
            unknown: boolean;
        };
        /** @description A session that was ended. */
        EndedSessionView: {
            /**
             * Format: uuid
             * @description UUID of the session.
             */
            sessionId: string;
        };
        /** @description A request for an erasure. */
        EraseBody: {
            /** @description Words for people; kept with the record, they outlive the erasure: do not name a person in them. */
            note?: string | null;
            /** @description A code, `DATA_SUBJECT_REQUEST` by default; it is part of the records. */
            reason?: string | null;
            /** @description Your own reference to the request, e.g. a ticket; kept with the record, outlives the erasure. */
            requestedBy?: string | null;
        };
        /** @description The data that an erasure removed. */
        ErasedCounts: {
            /**
             * Format: int64
             * @description Number of checkpoints that went so far.
             */
            checkpoints: number;
            /**
             * Format: int64
             * @description Messages and other contents of records.
             */
            contents: number;
            /**
             * Format: int64
             * @description Personal data, with their salts.
             */
            personalData: number;
        };
        /** @description An erasure without the person's id and salt. */
        ErasureItem: {
            /** @description Number of data erased so far. */
            erased: components["schemas"]["ErasedCounts"];
            /**
             * Format: date-time
             * @description When it was done.
             */
            erasedAt?: string | null;
            /**
             * Format: uuid
             * @description UUID of the erasure.
             */
            erasureId: string;
            /**
             * Format: int64
             * @description Data held when it was asked for.
             */
            held: number;
            /**
             * Format: int64
             * @description Leaf index of the `ERASURE_COMPLETED` record, which the certificate repeats.
             */
            leafIndex?: number | null;
            /** @description Why it was asked for: a code. */
            reason: string;
            /**
             * Format: date-time
             * @description When it was asked for, RFC 3339.
             */
            requestedAt: string;
            /** @description The data that the erasure covers. */
            scope: components["schemas"]["Scope"];
            /** @description `RUNNING`, `SCRUBBING` (no row holds any of it, files are being cleaned) or `COMPLETED`. */
            status: components["schemas"]["ErasureStatus"];
            /** @description The person as records name one: `sha256:` and a hash over a tag, a salt and the id. */
            subjectCommitment: string;
        };
        /** @description The state of an erasure. */
        ErasureStatus: ("RUNNING" | "SCRUBBING" | "COMPLETED") | (string & {});
        /** @description An erasure, and once it is done its certificate. */
        ErasureView: {
            /** @description The data erased so far. */
            erased: components["schemas"]["ErasedCounts"];
            /**
             * Format: date-time
             * @description When it was done.
             */
            erasedAt?: string | null;
            /**
             * Format: uuid
             * @description UUID of the erasure.
             */
            erasureId: string;
            /**
             * Format: int64
             * @description Data held when it was asked for.
             */
            held: number;
            /** @description Why it was asked for: a code. */
            reason: string;
            receipt?: components["schemas"]["Receipt"] | null;
            /** @description The `ERASURE_COMPLETED` record: `handoffd verify` holds each other member to it. */
            record?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: date-time
             * @description When it was asked for, RFC 3339.
             */
            requestedAt: string;
            /** @description The data that the erasure covers. */
            scope: components["schemas"]["Scope"];
            /** @description `RUNNING`, `SCRUBBING` (no row holds any of it, files are being cleaned) or `COMPLETED`. */
            status: components["schemas"]["ErasureStatus"];
            /** @description The name of the person in records: SHA-256 over a tag, `subjectSalt` and the id. */
            subjectCommitment: string;
            /** @description Whose data, as the caller named it. */
            subjectId: string;
            /** @description In hexadecimal; the broker does not store it, and computes it again for everyone who gives the id. */
            subjectSalt: string;
        };
        /** @description Erasures, the newest first. */
        ErasuresView: {
            /** @description The erasures of this page. */
            items: components["schemas"]["ErasureItem"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description Why a request is refused; /docs/errors/{code} explains each. A later version may have more. */
        ErrorCode: ("UNAUTHENTICATED" | "SIGNATURE_INVALID" | "SCHEMA_INVALID" | "FORBIDDEN" | "SAFETY_VIOLATION" | "CREDENTIAL_FOUND" | "BUDGET_EXHAUSTED" | "BUDGET_MISMATCH" | "LINEAGE_MISMATCH" | "LOOP_DETECTED" | "CONTEXT_TOO_LARGE" | "CONTRACT_VIOLATION" | "NO_CAPABLE_AGENT" | "INCOMPLETE_CONTEXT" | "CONFLICT" | "MAX_ITERATIONS" | "STALE_LEASE" | "NOT_FOUND" | "METHOD_NOT_ALLOWED" | "UNSUPPORTED_MEDIA_TYPE" | "PAYLOAD_TOO_LARGE" | "INVALID_REQUEST" | "OVERLOADED" | "UNAVAILABLE" | "INTERNAL") | (string & {});
        /** @description Which escalations to resolve: those open that fit all that is said. */
        EscalationSelection: {
            /**
             * @description Opened at this time or later, RFC 3339.
             * @default null
             */
            from?: string | null;
            /**
             * @description From this agent.
             * @default null
             */
            fromAgent?: string | null;
            /**
             * @description Only these, by their UUIDs.
             * @default null
             */
            ids?: string[] | null;
            /**
             * @description For this reason.
             * @default null
             */
            reason?: string | null;
            /**
             * Format: uuid
             * @description Of this task.
             * @default null
             */
            taskId?: string | null;
            /**
             * @description Opened before this time, RFC 3339.
             * @default null
             */
            to?: string | null;
            /**
             * @description To this agent.
             * @default null
             */
            toAgent?: string | null;
        };
        /** @description The state of a question to a person. A later version may have more. */
        EscalationState: ("OPEN" | "RESOLVED" | "TIMED_OUT") | (string & {});
        /** @description An escalation: a question that waits for a person. */
        EscalationView: {
            /** @description How the contract says that people are reached. */
            channel?: string | null;
            /** @description The action when no decision comes in time: `resume` or `dead-letter`. */
            defaultAction: components["schemas"]["DefaultAction"];
            /**
             * Format: uuid
             * @description UUID of the escalation.
             */
            escalationId: string;
            /** @description From whom the failing edge leads. */
            fromAgent: string;
            /**
             * Format: uuid
             * @description The handoff that failed; absent where submissions were refused.
             */
            handoffId?: string | null;
            /**
             * Format: date-time
             * @description When it was opened, RFC 3339.
             */
            openedAt: string;
            /** @description Why a person is asked: a code. */
            reason: string;
            /** @description The decision: a code. */
            resolution?: string | null;
            /**
             * Format: date-time
             * @description When it was decided.
             */
            resolvedAt?: string | null;
            /** @description By whom: a key's id, or `broker`. The words are with the record `ESCALATION_RESOLVED`. */
            resolvedBy?: string | null;
            /** @description The agent that takes over when no decision comes in time. */
            resumeAs?: string | null;
            /** @description `OPEN`, `RESOLVED` or `TIMED_OUT`. */
            status: components["schemas"]["EscalationState"];
            /**
             * Format: uuid
             * @description The task that waits.
             */
            taskId: string;
            /**
             * Format: date-time
             * @description When it is decided without a person.
             */
            timeoutAt: string;
            /** @description Id of the agent that the failing edge leads to. */
            toAgent?: string | null;
        };
        /** @description An event, in the format that was asked for. */
        Event: components["schemas"]["StandardEvent"] | components["schemas"]["CloudEvent"];
        /** @description The data of an event: free; the type's schema at /schemas/events/{type} describes it. */
        EventData: {
            [key: string]: unknown;
        };
        /** @description The last attempts. */
        EventDeliveriesView: {
            /** @description Newest first; the last 1 000 are remembered. */
            items: components["schemas"]["EventDeliveryView"][];
        };
        /** @description One attempt at telling a subscription of an event. */
        EventDeliveryView: {
            /**
             * Format: date-time
             * @description When the attempt ended, RFC 3339.
             */
            at: string;
            /**
             * Format: int32
             * @description Of this event, from 1.
             */
            attempt: number;
            /** @description The event's place in the feed. */
            cursor: string;
            /** @description The fault, in a sentence for people. */
            detail?: string | null;
            /**
             * Format: double
             * @description How long it took, in milliseconds.
             */
            durationMs: number;
            /**
             * Format: uuid
             * @description The event; also its `webhook-id`.
             */
            eventId: string;
            /**
             * Format: int64
             * @description The subscription's attempts, counted; give it as `before` to go on.
             */
            number: number;
            /** @description `delivered`, `retry` (to be tried again), `set_aside` (refused too often), `gone` (410). */
            outcome: components["schemas"]["EventOutcome"];
            /**
             * Format: int32
             * @description HTTP status that the endpoint answered; absent where no answer came.
             */
            status?: number | null;
            /** @description The event's type. */
            type: components["schemas"]["EventType"];
        };
        /** @description How an event is written. */
        EventFormat: ("standard" | "cloudevents" | "a2a") | (string & {});
        /** @description The outcome of an attempt to deliver an event to a subscription. A later version may have more. */
        EventOutcome: ("delivered" | "retry" | "set_aside" | "gone") | (string & {});
        /** @description The place of the schema of a type of event. */
        EventSchemaRef: {
            /** @description The path of its schema. */
            href: string;
            /** @description The type. */
            type: components["schemas"]["EventType"];
        };
        /** @description The types of events, with their schemas. */
        EventSchemasView: {
            /** @description One entry for each event type. */
            items: components["schemas"]["EventSchemaRef"][];
        };
        /** @description The type of an event; /schemas/events/{type} has the form of each. A later version may have more. */
        EventType: ("agent.handoff.occurred" | "handoff.accepted" | "handoff.rejected" | "handoff.refused" | "handoff.completed" | "handoff.returned" | "handoff.input_required" | "handoff.input_provided" | "handoff.group_ended" | "handoff.rolled_back" | "handoff.dead_lettered" | "handoff.escalated" | "handoff.failed" | "handoff.expired" | "handoff.canceled" | "handoff.stream_closed" | "handoff.stream_aborted" | "agent.endpoint_disabled" | "agent.endpoint_failing" | "task.completed" | "task.canceled" | "task.budget_changed" | "alert.raised") | (string & {});
        /** @description A finding, in words. */
        ExplainedFinding: {
            /** @description The same as a sentence. */
            because: string;
            /**
             * @description Why it is certain: `ORDER_FOLLOWS`, `ORDER_ITSELF`, `FORM`, `ADDRESSED_AND_TOGETHER`, `TOGETHER`, or `MARK` where it is
             *     not and `orders` refuses it.
             */
            certain: string;
            /** @description The exception for the future. */
            exception: components["schemas"]["FittingException"];
            /** @description Its family of attacks. */
            family: string;
            /** @description The class of the text: `tool_output`, `user_turn`, `task` or `data`. */
            fieldClass: string;
            /** @description First byte of the match in that text. */
            offset: number;
            /** @description The words that follow the match, for `ORDER_FOLLOWS`. */
            order?: string | null;
            /** @description JSON pointer of the text. */
            pointer: string;
            /** @description The rule. */
            rule: string;
            /** @description The entry of `waive` with which a release lets it pass, this once. */
            waive: string;
            /** @description Other rules that count beside it. */
            with: string[];
            /** @description The words that the rule matched, as the scan read them (decoded, disguises undone). It may be an attack: show it as text. */
            words: string;
        };
        /** @description Why the safety rules refuse a message. */
        ExplanationView: {
            /** @description Each finding that refused it and that the rules of now find as well. */
            findings: components["schemas"]["ExplainedFinding"][];
            /** @description Version of the rules that explain it: those of now. */
            rules: string;
            /**
             * @description Findings of the safety stage that cannot be explained: a classifier's, one in content that is not kept (personal data,
             *     erased, past its time), or one that the rules of now do not find.
             */
            unexplained: components["schemas"]["FailureView"][];
        };
        /** @description Why a receiver gives up. */
        FailBody: {
            costTracking?: components["schemas"]["SaidCost"] | null;
            error?: components["schemas"]["SaidError"] | null;
            /**
             * Format: int64
             * @description The token that came with the delivery, where the header does not have it.
             */
            fencingToken?: number | null;
        } & {
            [key: string]: unknown;
        };
        /** @description How far an endpoint is on its way to being disabled. */
        Failing: {
            /**
             * Format: int32
             * @description Failures in a row that counted.
             */
            failures: number;
            /**
             * Format: int32
             * @description The last step told to operators: 50, 70, 90 or 100.
             */
            percent: number;
        };
        /** @description One finding of the gate, or of the request's check. */
        FailureView: {
            /** @description Code of the error; `docs/errors/` has a page on each. */
            code: components["schemas"]["ErrorCode"];
            /** @description The fault, in a sentence for people. */
            message: string;
            /** @description RFC 6901 pointer into the body. */
            pointer: string;
            /** @description Stage of the gate that found it. */
            stage: components["schemas"]["GateStage"];
        };
        /** @description A page of the feed. */
        FeedView: {
            /** @description The events, in order; see `/schemas/events/{type}`. */
            items: components["schemas"]["Event"][];
            /** @description Give it as `since` to go on. A page may be empty and still move on. */
            nextCursor: string;
        };
        /** @description The value of a field that is not given. */
        FieldDefault: string | number | boolean;
        /** @description The type of a field's value. */
        FieldKind: ("text" | "url" | "integer" | "boolean" | "choice" | "pem") | (string & {});
        /** @description The agent, task or handoff that a subscription is limited to. */
        FilterView: {
            /** @description Events that this agent has a part in. */
            agentId?: string | null;
            /**
             * Format: uuid
             * @description Events of this handoff.
             */
            handoffId?: string | null;
            /**
             * Format: uuid
             * @description Events of this task.
             */
            taskId?: string | null;
        };
        /** @description Members of a `[[safety.exceptions]]` that would let a finding pass. */
        FittingException: {
            /** @description The sender. */
            agent: string;
            /** @description The field and all below it. */
            field: string;
            /** @description `observe`: recorded, and delivered. Of a finding that is certain. */
            mode?: string | null;
            /** @description `mark`: fenced, and delivered. Of a mark; the contract of the edge and the receiver have the same member. */
            orders?: string | null;
            /** @description The rule. */
            rules: string[];
            /** @description The receiver, where there is one. */
            to?: string | null;
        };
        /** @description Something that the gate found, without its words. */
        GateFinding: {
            /** @description Code of the error, as a refusal names it. */
            code: components["schemas"]["ErrorCode"];
            /** @description RFC 6901 pointer into the message. */
            pointer: string;
            /** @description The safety rule, or the contract's clause. */
            rule: string | null;
            /** @description Stage of the gate that found it. */
            stage: components["schemas"]["GateStage"];
        };
        /** @description The stage of the gate that found a failure. A later version may have more. */
        GateStage: ("key" | "signature" | "schema" | "identity" | "allowlist" | "route" | "contract" | "completeness" | "budget" | "lineage" | "loop" | "safety" | "context" | "state") | (string & {});
        /** @description Why a message is not there any more. A later version may have more. */
        GoneReason: ("erasure" | "retention") | (string & {});
        /** @description The receiver accepted. */
        HandoffAcceptedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                sourceAgentId: string;
                /** @constant */
                status: "ACCEPTED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.accepted";
        } & {
            [key: string]: unknown;
        };
        /** @description One handoff of a group. */
        HandoffBranch: {
            /** @description Whether its receiver accepted it. */
            acknowledged: boolean;
            /** @description Id of the agent that receives it. */
            agentId: string;
            /**
             * Format: date-time
             * @description When it ended, RFC 3339.
             */
            endedAt?: string | null;
            /**
             * Format: uuid
             * @description The handoff: the receiver's own, or the one that replaces it.
             */
            handoffId: string;
            /**
             * Format: int32
             * @description Its place in the list, from 0.
             */
            index: number;
            /** @description Why it ended badly. */
            reason?: string | null;
            /** @description The receiver's result, as it gave it at `/complete`. */
            result?: unknown;
            /** @description Path of its own page. */
            self: string;
            /** @description Its status. */
            status: components["schemas"]["HandoffStatus"];
        };
        /** @description The handoff was withdrawn. */
        HandoffCanceledEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description A code. */
                reason?: string;
                sourceAgentId: string;
                /** @description The handoff's status. */
                status: string;
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.canceled";
        } & {
            [key: string]: unknown;
        };
        /** @description The receiver completed its part. */
        HandoffCompletedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                sourceAgentId: string;
                /** @constant */
                status: "COMPLETED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.completed";
        } & {
            [key: string]: unknown;
        };
        /** @description The cost of a hop. */
        HandoffCost: {
            /**
             * Format: double
             * @description The operator's cost of a model's summary of the message; not a part of the task's cost.
             */
            compressionUSD?: number;
            /**
             * Format: double
             * @description The receiver's other spending, in US dollars; absent in records of versions without books.
             */
            receiverSpentUSD?: number;
            /**
             * Format: double
             * @description The sender's spending before the handoff, in US dollars; absent in records of versions without books.
             */
            senderSpentUSD?: number;
            /** @description Tokens used, read and written. */
            tokens: components["schemas"]["SpentTokensView"];
            /**
             * Format: double
             * @description The amount spent, in US dollars.
             */
            usd: number;
        };
        /** @description The handoff is kept for a person. */
        HandoffDeadLetteredEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description A code. */
                reason?: string;
                sourceAgentId: string;
                /** @description The handoff's status. */
                status: string;
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.dead_lettered";
        } & {
            [key: string]: unknown;
        };
        /** @description A person is asked to act. */
        HandoffEscalatedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The agent whose submissions were refused; only where no handoff was committed. */
                agentId?: string;
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                escalationId?: string;
                /** Format: uuid */
                handoffId?: string;
                /** @description A code. */
                reason?: string;
                sourceAgentId?: string;
                /** @description The handoff's status. */
                status: string;
                targetAgentId?: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.escalated";
        } & {
            [key: string]: unknown;
        };
        /** @description A deadline passed. */
        HandoffExpiredEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description A code. */
                reason: string;
                sourceAgentId: string;
                /** @constant */
                status: "EXPIRED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.expired";
        } & {
            [key: string]: unknown;
        };
        /** @description The receiver failed, or delivery was given up. */
        HandoffFailedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description A code. */
                reason: string;
                sourceAgentId: string;
                /** @constant */
                status: "FAILED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.failed";
        } & {
            [key: string]: unknown;
        };
        /** @description A handoff to several receivers, or the place of one handoff in it. */
        HandoffGroup: {
            /** @description Its handoffs in the list's order; only of the group itself. */
            branches?: components["schemas"]["HandoffBranch"][];
            /** @description Its id: the `handoffId` of the message. */
            groupId: string;
            /**
             * Format: int32
             * @description The place of this handoff in the message's `receiverList`, from 0; absent of the group itself.
             */
            index?: number | null;
            /** @description How many of them are needed: `all`, `any` or `quorum:N`. */
            join: string;
            /**
             * Format: int32
             * @description How many handoffs it has.
             */
            of: number;
            /** @description The effect of one bad end: `rollback` or `drop`. */
            onReject: string;
        };
        /** @description A handoff to several receivers ended: its join was decided, or its task was completed or canceled before. */
        HandoffGroupEndedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description How many of them were completed. */
                completed: number;
                /**
                 * Format: uuid
                 * @description The group's id: the `handoffId` of the message.
                 */
                handoffId: string;
                /** @description How many of its handoffs were needed. */
                join: string;
                /** @description How many handoffs it had. */
                of: number;
                /** @description Why it failed or was withdrawn: a code. */
                reason?: string | null;
                sourceAgentId: string;
                /**
                 * @description What the group came to.
                 * @enum {unknown}
                 */
                status: "COMPLETED" | "FAILED" | "CANCELED";
                /** Format: uuid */
                taskId: string;
                /** @description Where the task stands now. */
                taskStatus: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.group_ended";
        } & {
            [key: string]: unknown;
        };
        /** @description The receiver's question was answered; the answer stands at `GET /handoffs/{handoffId}`. */
        HandoffInputProvidedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description The number of the question, from 1. */
                question: number;
                sourceAgentId: string;
                /** @constant */
                status: "ACCEPTED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.input_provided";
        } & {
            [key: string]: unknown;
        };
        /** @description The receiver asks its sender something and waits for the answer; the question stands at `GET /handoffs/{handoffId}`. */
        HandoffInputRequiredEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /**
                 * Format: date-time
                 * @description Without an answer by then, the handoff expires.
                 */
                answerBy: string;
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description The number of the question, from 1. */
                question: number;
                sourceAgentId: string;
                /** @constant */
                status: "INPUT_REQUIRED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.input_required";
        } & {
            [key: string]: unknown;
        };
        /**
         * Handoff message
         * @description A handoff message, in any version of its schema that the broker takes.
         */
        HandoffMessage: components["schemas"]["HandoffMessage2_2"] | components["schemas"]["HandoffMessage2_1"] | components["schemas"]["HandoffMessage2_0"];
        /** @description One agent hands control over a task to another. Top-level fields are closed; members of nested objects are open. Follows EAAPL-MAG006 2.0.0, section 5.2. */
        HandoffMessage2_0: {
            /** @description What is done, oldest first. */
            completedSubtasks: ({
                /** @description When it was finished. */
                completedAt: components["schemas"]["MessageDateTime"];
                /** @description What it was about. */
                description: string;
                /** @description What came of it: an object whose members are of the sender's choosing. */
                result: {
                    [key: string]: unknown;
                };
                /** @description The subtask's name, unique within the task. */
                subtaskId: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description Limits on how the task may be done. */
            constraints: string[];
            /** @description The older turns in condensed form; empty when nothing was condensed. */
            conversationHistorySummary: string;
            /** @description The most recent turns as they were, oldest first. */
            conversationHistoryVerbatim: ({
                /** @description What was said: text, or content parts. */
                content: string | unknown[] | Record<string, never>;
                /** @description Free data about the turn. */
                metadata?: {
                    [key: string]: unknown;
                };
                /** @description Of a tool's answer: the tool's name. */
                name?: string;
                /** @description Who spoke, for example `user`, `assistant`, `system`, `developer` or `tool`. */
                role: string;
                /** @description When it was said. */
                timestamp?: components["schemas"]["MessageDateTime"];
                /** @description Of a tool's answer: the call that it answers. */
                tool_call_id?: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description The budget relay. */
            costTracking: {
                /** @description US dollars left. Zero or less passes the schema and is refused by the budget stage with its own code. */
                costBudgetRemainingUSD: number;
                /** @description US dollars spent on the task so far, cumulative. */
                costSpentSoFarUSD: number;
                /** @description Tokens spent on the task so far. */
                tokenSpent: {
                    /** @description Tokens written. */
                    completion: number;
                    /** @description Tokens read. */
                    prompt: number;
                } & {
                    [key: string]: unknown;
                };
            } & {
                [key: string]: unknown;
            };
            /** @description The state that the receiver goes on from; its members belong to the domain. */
            currentState: {
                [key: string]: unknown;
            };
            /** @description Who hands over. */
            fromAgent: {
                /** @description The sender's registered id. */
                agentId: components["schemas"]["MessageAgentId"];
                /** @description The sender's semantic version. */
                agentVersion: string;
                /** @description The run of the sender that this handoff ends; its checkpoint is stored under this id. */
                executionId: components["schemas"]["MessageUuid"];
            } & {
                [key: string]: unknown;
            };
            /** @description Names this handoff; the sender chooses it and uses it again when it repeats a submission. */
            handoffId: components["schemas"]["MessageUuid"];
            /**
             * Format: uuid
             * @description The handoff by which the sender itself came to the task; null for the first of a task.
             */
            parentHandoffId: string | null;
            /** @description Excerpts that the receiver should know. */
            relevantContext: ({
                /** @description The text. */
                excerpt: string;
                /** @description How much it matters, 0 to 1. */
                relevanceScore: number;
                /** @description Where it was taken from. */
                source: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description What is left, in the order it should be done. */
            remainingSubtasks: ({
                /** @description What it is about. */
                description: string;
                /** @description The subtask's name, unique within the task. */
                subtaskId: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description The version of this schema that the message follows: `2.0`, or with any patch number, as `2.0.0`. */
            schemaVersion: string;
            /** @description HMAC-SHA-256 under the sender's signing secret, over the RFC 8785 canonical form of the message without this field; optional. It is not among the fields listed for 2.0 and is allowed all the same, because the tampering section of the same source asks it of 2.0 messages. */
            signature?: string;
            /** @description What the receiver is to do. Exactly `INITIAL` marks a handoff before any work was done. */
            taskDescription: string;
            /** @description Names the task; the same in all its handoffs. */
            taskId: components["schemas"]["MessageUuid"];
            /** @description When the sender made the message. */
            timestamp: components["schemas"]["MessageDateTime"];
            /** @description Who should take the task over: a role and the versions of it that will do. */
            toAgent: {
                /** @description The role asked for. */
                agentType: components["schemas"]["MessageAgentType"];
                /** @description Which versions of that role will do. */
                agentVersion: components["schemas"]["MessageVersionRange"];
            } & {
                [key: string]: unknown;
            };
            /** @description Tools called on the way. */
            toolCallHistory: ({
                /** @description When it was called. */
                calledAt: components["schemas"]["MessageDateTime"];
                /** @description The SHA-256 digest of the input: `sha256:` and hexadecimal digits, 64 of them where the digest is whole. */
                inputHash: string;
                /** @description Size of the output in tokens. */
                outputTokens: number;
                /** @description The tool's name. */
                tool: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description The W3C Trace Context header value under which the sender works: of version 00, or of a later version, of which the parts of version 00 are read. An id of zeros alone is invalid: the broker begins a new trace, and says so in `warnings`. */
            traceparent: string;
        };
        /** @description One agent hands control over a task to another. Top-level fields are closed; members of nested objects are open. Adds optional fields to 2.0. */
        HandoffMessage2_1: {
            /** @description Capabilities that the receiver must have, all of them. */
            capabilitiesRequired?: string[];
            /** @description The sender's state before the handoff, given back on a rollback and never sent to the receiver. */
            checkpoint?: {
                [key: string]: unknown;
            };
            /** @description What is done, oldest first. */
            completedSubtasks: ({
                /** @description When it was finished. */
                completedAt: components["schemas"]["MessageDateTime"];
                /** @description What it was about. */
                description: string;
                /** @description What came of it: an object whose members are of the sender's choosing. */
                result: {
                    [key: string]: unknown;
                };
                /** @description The subtask's name, unique within the task. */
                subtaskId: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description Limits on how the task may be done. */
            constraints: string[];
            /** @description The contract that the sender means this handoff to follow. */
            contractId?: string;
            /** @description The older turns in condensed form; empty when nothing was condensed. */
            conversationHistorySummary: string;
            /** @description The most recent turns as they were, oldest first. */
            conversationHistoryVerbatim: ({
                /** @description What was said: text, or content parts. */
                content: string | unknown[] | Record<string, never>;
                /** @description Free data about the turn. */
                metadata?: {
                    [key: string]: unknown;
                };
                /** @description Of a tool's answer: the tool's name. */
                name?: string;
                /** @description Who spoke, for example `user`, `assistant`, `system`, `developer` or `tool`. */
                role: string;
                /** @description When it was said. */
                timestamp?: components["schemas"]["MessageDateTime"];
                /** @description Of a tool's answer: the call that it answers. */
                tool_call_id?: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description The conversation that the task belongs to. */
            conversationId?: string;
            /** @description The sender's own key to find related messages by. */
            correlationId?: string;
            /** @description The budget relay. */
            costTracking: {
                /** @description US dollars left. Zero or less passes the schema and is refused by the budget stage with its own code. */
                costBudgetRemainingUSD: number;
                /** @description US dollars spent on the task so far, cumulative. */
                costSpentSoFarUSD: number;
                /** @description Tokens spent on the task so far. */
                tokenSpent: {
                    /** @description Tokens written. */
                    completion: number;
                    /** @description Tokens read. */
                    prompt: number;
                } & {
                    [key: string]: unknown;
                };
            } & {
                [key: string]: unknown;
            };
            /** @description The state that the receiver goes on from; its members belong to the domain. */
            currentState: {
                [key: string]: unknown;
            };
            /** @description Free members for what this schema has no field for. */
            extensions?: {
                [key: string]: unknown;
            };
            /** @description Who hands over. */
            fromAgent: {
                /** @description The sender's registered id. */
                agentId: components["schemas"]["MessageAgentId"];
                /** @description The sender's semantic version. */
                agentVersion: string;
                /** @description The run of the sender that this handoff ends; its checkpoint is stored under this id. */
                executionId: components["schemas"]["MessageUuid"];
            } & {
                [key: string]: unknown;
            };
            /** @description Names this handoff; the sender chooses it and uses it again when it repeats a submission. */
            handoffId: components["schemas"]["MessageUuid"];
            /**
             * @description How the conversation was carried over.
             * @enum {string}
             */
            historyStrategy?: "full" | "summary" | "last_k" | "pointer";
            /** @description How many rounds the receiver may take. */
            maxIterations?: number;
            /** @description Free data about the message. */
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The handoff by which the sender itself came to the task; null for the first of a task.
             */
            parentHandoffId: string | null;
            /** @description Personal data, kept apart from the audit log so that it can be erased. */
            personalDataPayload?: {
                /** @description Values elsewhere in the message that are personal: cut out of what is kept, and put back for receivers that are entitled. */
                pointers?: {
                    /** @description An RFC 6901 pointer to a value in a member that holds content, e.g. /currentState/customer/email. */
                    pointer: string;
                    /** @description The person's id in the sender's world. */
                    subjectId: string;
                }[];
                /** @description One entry a person. */
                subjects?: ({
                    /** @description The data; members as the sender likes. */
                    data: {
                        [key: string]: unknown;
                    };
                    /** @description The person's id in the sender's world. */
                    subjectId: string;
                } & {
                    [key: string]: unknown;
                })[];
            };
            /** @description Agents to ask next, in order, where the receiver rejects or cannot be reached. Each has to stand on the sender's allowlist. */
            preferredAgents?: string[];
            /**
             * @description How urgent it is.
             * @enum {string}
             */
            priority?: "low" | "normal" | "high" | "urgent";
            /** @description Where the content comes from. */
            provenance?: {
                [key: string]: unknown;
            };
            /** @description Why the sender hands over. */
            reason?: string;
            /** @description All receivers of a fan-out. */
            receiverList?: (string | {
                /** @description One named agent instead of a role. */
                agentId?: components["schemas"]["MessageAgentId"];
                /** @description The role asked for. */
                agentType?: components["schemas"]["MessageAgentType"];
                /** @description Which versions of that role will do. */
                agentVersion?: components["schemas"]["MessageVersionRange"];
                /** @description Any agent that has this capability. */
                capability?: string;
            })[];
            /** @description Excerpts that the receiver should know. */
            relevantContext: ({
                /** @description The text. */
                excerpt: string;
                /** @description How much it matters, 0 to 1. */
                relevanceScore: number;
                /** @description Where it was taken from. */
                source: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description What is left, in the order it should be done. */
            remainingSubtasks: ({
                /** @description What it is about. */
                description: string;
                /** @description The subtask's name, unique within the task. */
                subtaskId: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description The version of this schema that the message follows: `2.1`, or with any patch number, as `2.1.0`. */
            schemaVersion: string;
            /** @description HMAC-SHA-256 under the sender's signing secret, over the RFC 8785 canonical form of the message without this field. */
            signature?: string;
            /** @description What the receiver is to do. Exactly `INITIAL` marks a handoff before any work was done. */
            taskDescription: string;
            /** @description Names the task; the same in all its handoffs. */
            taskId: components["schemas"]["MessageUuid"];
            /** @description The task in a few words. */
            taskSummary?: string;
            /** @description When the sender made the message. */
            timestamp: components["schemas"]["MessageDateTime"];
            /** @description Who should take the task over: at least one of `agentType`, `agentId` and `capability`. */
            toAgent: ({
                /** @description One named agent instead of a role. */
                agentId?: components["schemas"]["MessageAgentId"];
                /** @description The role asked for. */
                agentType?: components["schemas"]["MessageAgentType"];
                /** @description Which versions of that role will do. */
                agentVersion?: components["schemas"]["MessageVersionRange"];
                /** @description Any agent that has this capability. */
                capability?: string;
            } & {
                [key: string]: unknown;
            }) | unknown | unknown | unknown;
            /** @description Tools called on the way. */
            toolCallHistory: ({
                /** @description When it was called. */
                calledAt: components["schemas"]["MessageDateTime"];
                /** @description The SHA-256 digest of the input: `sha256:` and hexadecimal digits, 64 of them where the digest is whole. */
                inputHash: string;
                /** @description Size of the output in tokens. */
                outputTokens: number;
                /** @description The tool's name. */
                tool: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description State of tools that the receiver goes on using. */
            toolState?: {
                [key: string]: unknown;
            };
            /** @description The W3C Trace Context header value under which the sender works: of version 00, or of a later version, of which the parts of version 00 are read. An id of zeros alone is invalid: the broker begins a new trace, and says so in `warnings`. */
            traceparent: string;
            /** @description The W3C Trace Context header value that belongs to traceparent. One that cannot be read counts as absent. */
            tracestate?: string;
            /** @description The user on whose behalf the agents work. */
            userId?: string;
        };
        /** @description One agent hands control over a task to another. Top-level fields are closed; members of nested objects are open. Adds `returnTo`, `context`, `stream` and the history strategy `compressed` to 2.1, and takes any UUID of RFC 9562 for `handoffId`, `taskId` and `parentHandoffId`, so that clients can derive them (version 5). */
        HandoffMessage2_2: {
            /** @description Capabilities that the receiver must have, all of them. */
            capabilitiesRequired?: string[];
            /** @description The sender's state before the handoff, given back on a rollback and never sent to the receiver. */
            checkpoint?: {
                [key: string]: unknown;
            };
            /** @description What is done, oldest first. */
            completedSubtasks: ({
                /** @description When it was finished. */
                completedAt: components["schemas"]["MessageDateTime"];
                /** @description What it was about. */
                description: string;
                /** @description What came of it: an object whose members are of the sender's choosing. */
                result: {
                    [key: string]: unknown;
                };
                /** @description The subtask's name, unique within the task. */
                subtaskId: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description Limits on how the task may be done. */
            constraints: string[];
            /** @description Of a message that the broker compressed for its receiver: how much was replaced. The turns as they were said stay readable at `GET /handoffs/{handoffId}/history`. */
            context?: {
                /** @description Who wrote the summary, for example `extractive`, `model` or `trimming`. */
                by: string;
                /** @description Turns that follow verbatim. */
                keptTurns: number;
                /** @description Tokens of the message as submitted. */
                originalTokens: number;
                /** @description Turns of the message as submitted. */
                originalTurns: number;
                /** @description Tokens of this message. */
                tokens: number;
                /** @description The places of the turns that follow, in the conversation as submitted, from 0. */
                turns?: number[];
            } & {
                [key: string]: unknown;
            };
            /** @description The contract that the sender means this handoff to follow. */
            contractId?: string;
            /** @description The older turns in condensed form; empty when nothing was condensed. */
            conversationHistorySummary: string;
            /** @description The most recent turns as they were, oldest first. */
            conversationHistoryVerbatim: ({
                /** @description What was said: text, or content parts. */
                content: string | unknown[] | Record<string, never>;
                /** @description Free data about the turn. */
                metadata?: {
                    [key: string]: unknown;
                };
                /** @description Of a tool's answer: the tool's name. */
                name?: string;
                /** @description Who spoke, for example `user`, `assistant`, `system`, `developer` or `tool`. */
                role: string;
                /** @description When it was said. */
                timestamp?: components["schemas"]["MessageDateTime"];
                /** @description Of a tool's answer: the call that it answers. */
                tool_call_id?: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description The conversation that the task belongs to. */
            conversationId?: string;
            /** @description The sender's own key to find related messages by. */
            correlationId?: string;
            /** @description The budget relay. */
            costTracking: {
                /** @description US dollars left. Zero or less passes the schema and is refused by the budget stage with its own code. */
                costBudgetRemainingUSD: number;
                /** @description US dollars spent on the task so far, cumulative. */
                costSpentSoFarUSD: number;
                /** @description Tokens spent on the task so far. */
                tokenSpent: {
                    /** @description Tokens written. */
                    completion: number;
                    /** @description Tokens read. */
                    prompt: number;
                } & {
                    [key: string]: unknown;
                };
            } & {
                [key: string]: unknown;
            };
            /** @description The state that the receiver goes on from; its members belong to the domain. */
            currentState: {
                [key: string]: unknown;
            };
            /** @description Free members for what this schema has no field for. */
            extensions?: {
                [key: string]: unknown;
            };
            /** @description Who hands over. */
            fromAgent: {
                /** @description The sender's registered id. */
                agentId: components["schemas"]["MessageAgentId"];
                /** @description The sender's semantic version. */
                agentVersion: string;
                /** @description The run of the sender that this handoff ends; its checkpoint is stored under this id. */
                executionId: components["schemas"]["MessageUuid"];
            } & {
                [key: string]: unknown;
            };
            /** @description Names this handoff; the sender chooses it and uses it again when it repeats a submission. */
            handoffId: components["schemas"]["MessageAnyUuid"];
            /**
             * @description How the conversation was carried over; `compressed`: the broker put a summary in the place of the oldest turns.
             * @enum {string}
             */
            historyStrategy?: "full" | "summary" | "last_k" | "pointer" | "compressed";
            /** @description How many of the handoffs to `receiverList` are needed: `all` (unless said), `any`, or `quorum:N`. */
            join?: string;
            /** @description How many rounds the receiver may take. */
            maxIterations?: number;
            /** @description Free data about the message. */
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * @description What the bad end of one of the handoffs to `receiverList` means: `rollback` withdraws the others and puts the task back to the checkpoint of before (unless said, where `join` is `all`); `drop` goes on without it as long as the join can hold (unless said, otherwise).
             * @enum {string}
             */
            onReject?: "rollback" | "drop";
            /**
             * Format: uuid
             * @description The handoff by which the sender itself came to the task; null for the first of a task.
             */
            parentHandoffId: string | null;
            /** @description Personal data, kept apart from the audit log so that it can be erased. */
            personalDataPayload?: {
                /** @description Values elsewhere in the message that are personal: cut out of what is kept, and put back for receivers that are entitled. */
                pointers?: {
                    /** @description An RFC 6901 pointer to a value in a member that holds content, e.g. /currentState/customer/email. */
                    pointer: string;
                    /** @description The person's id in the sender's world. */
                    subjectId: string;
                }[];
                /** @description One entry a person. */
                subjects?: ({
                    /** @description The data; members as the sender likes. */
                    data: {
                        [key: string]: unknown;
                    };
                    /** @description The person's id in the sender's world. */
                    subjectId: string;
                } & {
                    [key: string]: unknown;
                })[];
            };
            /** @description Agents to ask next, in order, where the receiver rejects or cannot be reached. Each has to stand on the sender's allowlist. */
            preferredAgents?: string[];
            /**
             * @description How urgent it is.
             * @enum {string}
             */
            priority?: "low" | "normal" | "high" | "urgent";
            /** @description Where the content comes from. */
            provenance?: {
                [key: string]: unknown;
            };
            /** @description Why the sender hands over. */
            reason?: string;
            /** @description The receivers of a handoff to many, 1 to 100, each once: the message goes to each as a handoff of its own, and `join` says how many of them are needed. `toAgent` is the first of them. */
            receiverList?: (string | {
                /** @description One named agent instead of a role. */
                agentId?: components["schemas"]["MessageAgentId"];
                /** @description The role asked for. */
                agentType?: components["schemas"]["MessageAgentType"];
                /** @description Which versions of that role will do. */
                agentVersion?: components["schemas"]["MessageVersionRange"];
                /** @description Any agent that has this capability. */
                capability?: string;
            })[];
            /** @description Excerpts that the receiver should know. */
            relevantContext: ({
                /** @description The text. */
                excerpt: string;
                /** @description How much it matters, 0 to 1. */
                relevanceScore: number;
                /** @description Where it was taken from. */
                source: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description What is left, in the order it should be done. */
            remainingSubtasks: ({
                /** @description What it is about. */
                description: string;
                /** @description The subtask's name, unique within the task. */
                subtaskId: string;
            } & {
                [key: string]: unknown;
            })[];
            /**
             * @description `source`: when the receiver completes the handoff, the task goes back to the sender with the result, and the handoff under which the sender holds the task stays open meanwhile.
             * @enum {string}
             */
            returnTo?: "source";
            /** @description The version of this schema that the message follows: `2.2`, or with any patch number, as `2.2.0`. */
            schemaVersion: string;
            /** @description HMAC-SHA-256 under the sender's signing secret, over the RFC 8785 canonical form of the message without this field. */
            signature?: string;
            /** @description The message comes in pieces: `open` true commits the part that is here, and chunks add to it until one closes the stream. */
            stream?: {
                /** @description Whether chunks follow. */
                open: boolean;
                /** @description The number of chunks in a message that the broker assembled. */
                seq?: number;
            };
            /** @description What the receiver is to do. Exactly `INITIAL` marks a handoff before any work was done. */
            taskDescription: string;
            /** @description Names the task; the same in all its handoffs. */
            taskId: components["schemas"]["MessageAnyUuid"];
            /** @description The task in a few words. */
            taskSummary?: string;
            /** @description When the sender made the message. */
            timestamp: components["schemas"]["MessageDateTime"];
            /** @description Who should take the task over: at least one of `agentType`, `agentId` and `capability`. */
            toAgent: ({
                /** @description One named agent instead of a role. */
                agentId?: components["schemas"]["MessageAgentId"];
                /** @description The role asked for. */
                agentType?: components["schemas"]["MessageAgentType"];
                /** @description Which versions of that role will do. */
                agentVersion?: components["schemas"]["MessageVersionRange"];
                /** @description Any agent that has this capability. */
                capability?: string;
            } & {
                [key: string]: unknown;
            }) | unknown | unknown | unknown;
            /** @description Tools called on the way. */
            toolCallHistory: ({
                /** @description When it was called. */
                calledAt: components["schemas"]["MessageDateTime"];
                /** @description The SHA-256 digest of the input: `sha256:` and hexadecimal digits, 64 of them where the digest is whole. */
                inputHash: string;
                /** @description Size of the output in tokens. */
                outputTokens: number;
                /** @description The tool's name. */
                tool: string;
            } & {
                [key: string]: unknown;
            })[];
            /** @description State of tools that the receiver goes on using. */
            toolState?: {
                [key: string]: unknown;
            };
            /** @description The W3C Trace Context header value under which the sender works: of version 00, or of a later version, of which the parts of version 00 are read. An id of zeros alone is invalid: the broker begins a new trace, and says so in `warnings`. */
            traceparent: string;
            /** @description The W3C Trace Context header value that belongs to traceparent. One that cannot be read counts as absent. */
            tracestate?: string;
            /** @description The user on whose behalf the agents work. */
            userId?: string;
        };
        /** @description A message was refused: no handoff came of it. */
        HandoffRefusedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /**
                 * Format: uuid
                 * @description As the message says, where it says one.
                 */
                handoffId?: string;
                /** @description JSON pointer of the place; a segment that is no plain name is *. */
                pointer: string;
                /** @description Why: a code. */
                reason: string;
                /** @description Who submitted it. */
                sourceAgentId?: string;
                targetAgentId?: string;
                /**
                 * Format: uuid
                 * @description As the message says, where it says one.
                 */
                taskId?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.refused";
        } & {
            [key: string]: unknown;
        };
        /** @description The receiver rejected. */
        HandoffRejectedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description A code. */
                reason: string;
                sourceAgentId: string;
                /** @constant */
                status: "REJECTED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.rejected";
        } & {
            [key: string]: unknown;
        };
        /** @description The receiver completed its part, and the task went back to the agent that asked for its return (`returnTo`). */
        HandoffReturnedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description The agent that has the task again. */
                returnedTo: string;
                sourceAgentId: string;
                /** @constant */
                status: "COMPLETED";
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description Where the task stands now. */
                taskStatus: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.returned";
        } & {
            [key: string]: unknown;
        };
        /** @description The task went back to its sender's checkpoint. */
        HandoffRolledBackEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The agent whose submissions were refused; only where no handoff was committed. */
                agentId?: string;
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** @description The checkpoint that is the task's current one again. */
                checkpoint: {
                    /** Format: uuid */
                    executionId: string;
                    seq: number;
                    /** @description The checkpoint itself; only to its owner, and only up to 256 KiB. */
                    state?: unknown;
                } | null;
                /** @description The receiver's own words; gone once they are erased. */
                detail?: string;
                /** @description Failed handoffs of the task in a row. */
                failures?: number;
                /** Format: uuid */
                handoffId?: string;
                /** @description A code. */
                reason: string;
                sourceAgentId?: string;
                /** @description The handoff's status. */
                status: string;
                targetAgentId?: string;
                /** Format: uuid */
                taskId: string;
                taskStatus?: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.rolled_back";
        } & {
            [key: string]: unknown;
        };
        /** @description The status of a handoff. A later version may have more. */
        HandoffStatus: ("PENDING" | "ACCEPTED" | "INPUT_REQUIRED" | "COMPLETED" | "REJECTED" | "EXPIRED" | "FAILED" | "DEAD_LETTERED" | "CANCELED" | "NO_OP") | (string & {});
        /** @description The stream of a handoff ended without a whole message: the receiver stops. */
        HandoffStreamAbortedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description Why: a code. */
                reason: string;
                /** @description The last number of the stream. */
                seq: number;
                sourceAgentId: string;
                /** @description The handoff's status. */
                status: string;
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.stream_aborted";
        } & {
            [key: string]: unknown;
        };
        /** @description The stream of a handoff was closed: the assembled message passed the gate and is the handoff's message. */
        HandoffStreamClosedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description The contract's name for events of this edge (observability.audit_event). */
                auditEvent?: string;
                /** Format: uuid */
                handoffId: string;
                /** @description The last number of the stream. */
                seq: number;
                sourceAgentId: string;
                /** @description The handoff's status. */
                status: string;
                targetAgentId: string;
                /** Format: uuid */
                taskId: string;
                /** @description The handoff's trace context, W3C traceparent. */
                traceparent?: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "handoff.stream_closed";
        } & {
            [key: string]: unknown;
        };
        /** @description A tool in one of the forms. */
        HandoffTool: components["schemas"]["OpenAiTool"] | components["schemas"]["AnthropicTool"] | components["schemas"]["McpTool"];
        /** @description A handoff and its state. */
        HandoffView: {
            /**
             * Format: date-time
             * @description When the receiver accepted.
             */
            acceptedAt?: string | null;
            asked?: components["schemas"]["AskedView"] | null;
            /**
             * Format: int32
             * @description Delivery attempts begun so far.
             */
            attempts: number;
            checkpoint?: components["schemas"]["CheckpointRefView"] | null;
            context?: components["schemas"]["ContextView"] | null;
            /** @description The conversation that the sender named (`conversationId`). */
            conversationId?: string | null;
            /** @description The receiver's summary of its conversation, as it gave it at `/complete`; only on the handoff's own page. */
            conversationSummary?: string | null;
            /** @description Its cost, cumulative. */
            costTracking: components["schemas"]["CostView"];
            /**
             * Format: date-time
             * @description When it was committed, RFC 3339.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When the verdict or the lease is due, RFC 3339.
             */
            deadlineAt?: string | null;
            /** @description `webhook` or `pull`. */
            deliveryMode: components["schemas"]["DeliveryMode"];
            /**
             * Format: int64
             * @description Milliseconds from acceptance to the end.
             */
            durationMs?: number | null;
            /**
             * Format: date-time
             * @description When it ended, RFC 3339; null before.
             */
            endedAt?: string | null;
            /**
             * Format: int64
             * @description The current fencing token.
             */
            fencingToken: number;
            /** @description Who sent it. */
            fromAgent: components["schemas"]["PartyView"];
            group?: components["schemas"]["HandoffGroup"] | null;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: date-time
             * @description When the broker last heard of that holder, RFC 3339.
             */
            heardAt?: string | null;
            /**
             * Format: int64
             * @description How often the broker hears of its holder, as the holder said: another worker of the receiver may take over after four
             *     such intervals of silence.
             */
            heartbeatIntervalMs?: number | null;
            /**
             * Format: int64
             * @description Rounds that the receiver took, as it said at `/complete`; only on the handoff's own page.
             */
            iterations?: number | null;
            /** @description Paths of related resources. */
            links: components["schemas"]["Links"];
            message?: components["schemas"]["StoredMessage"] | null;
            /**
             * Format: uuid
             * @description The handoff before it.
             */
            parentHandoffId?: string | null;
            /** @description All questions of the receiver to the sender, the first one first; only where asked for with `include=questions`. */
            questions?: components["schemas"]["AskedView"][] | null;
            /** @description Why it ended badly, or why the last attempt failed; `HANDED_ON` where its receiver handed the task on. */
            reason?: string | null;
            receipt?: components["schemas"]["Receipt"] | null;
            /**
             * @description The receiver's result, as it gave it at `/complete`; only on the handoff's own page. Of a handoff to several
             *     receivers that is completed: their results in the list's order, null where one gave none.
             */
            result?: unknown;
            /** @description The agent that gets the task back when the receiver completes the handoff (`returnTo`). */
            returnsTo?: string | null;
            safety?: components["schemas"]["RecordSafety"] | null;
            /** @description Its status. */
            status: components["schemas"]["HandoffStatus"];
            stream?: components["schemas"]["StreamView"] | null;
            /**
             * Format: uuid
             * @description The last handoff that replaced it (a preferred agent, a supervisor, a person's decision), or, after a wait for
             *     the end, the one that brought its task back; only on the handoff's own page.
             */
            successorId?: string | null;
            /**
             * Format: uuid
             * @description UUID of its task.
             */
            taskId: string;
            /** @description Who receives it, as the route resolved it. */
            toAgent: components["schemas"]["PartyView"];
            /** @description The trace context that counts, W3C `traceparent`. */
            traceparent: string;
            /** @description The `tracestate` that belongs to it; empty for none, and after an erasure. */
            tracestate: string;
            /** @description The reference to the user that the sender named (`userId`). */
            userRef?: string | null;
            /**
             * @description `details` and `metadata` of the receiver's verdict, and the `error` of a failure; only where asked for with
             *     `include=verdict`.
             */
            verdict?: {
                [key: string]: unknown;
            } | null;
            /** @description The parts of the request that do not hold in full. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description How much of the log a place has. The broker publishes a head only if the log continues the one that it published before. */
        HeadPlaceView: {
            /**
             * Format: date-time
             * @description When the place last had all of the log; without a head, the time of the first attempt. RFC 3339.
             */
            checkedAt: string;
            /** @description Kind of the place, such as `file`. */
            kind: string;
            /** @description Whether it has lacked records for three intervals (`audit.publish_interval_s`). */
            late: boolean;
            /**
             * Format: int64
             * @description Records in the last head that the place took; 0 without one.
             */
            treeSize: number;
        };
        /** @description A receiver at work. */
        HeartbeatBody: {
            /**
             * Format: int64
             * @description The token that came with the delivery, where the header does not have it.
             */
            fencingToken?: number | null;
            /**
             * Format: int64
             * @description How often the broker will hear of this worker from now on; as it said before where absent.
             */
            heartbeatIntervalMs?: number | null;
        } & {
            [key: string]: unknown;
        };
        /** @description A turn of a conversation: free, as in `conversationHistoryVerbatim`. */
        HistoryTurn: {
            [key: string]: unknown;
        };
        /** @description A page of a task's checkpoints, newest first, without their states. */
        HistoryView: {
            /** @description The checkpoints. */
            items: components["schemas"]["CheckpointView"][];
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description A hold to place: on a person or on a task. */
        HoldBody: {
            /** @description Why, in words; shown to everyone who tries to erase. */
            reason: string;
            /** @description The person whose data may not be erased. */
            subjectId?: string | null;
            /**
             * Format: uuid
             * @description The task on which no person's data may be erased.
             */
            taskId?: string | null;
        };
        /** @description A legal hold: data that no erasure may touch. */
        HoldView: {
            /** @description Id of the hold, as its maker named it. */
            holdId: string;
            /**
             * Format: date-time
             * @description When it was placed, RFC 3339.
             */
            placedAt: string;
            /** @description Why it was placed, in words. */
            reason: string;
            /**
             * Format: date-time
             * @description When it was released.
             */
            releasedAt?: string | null;
            /** @description The person whose data it holds; no longer named once it is released. */
            subjectId?: string | null;
            /**
             * Format: uuid
             * @description The task that it holds: no person with data on it can be erased.
             */
            taskId?: string | null;
            /** @description `NOTHING_HELD` where nothing of the task or person is stored; in the answer to its placing, absent for none. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description Legal holds, by id. */
        HoldsView: {
            /** @description The holds of this page. */
            items: components["schemas"]["HoldView"][];
            /** @description The value of `after` for the next page. */
            nextCursor?: string | null;
        };
        /** @description One handoff. */
        HopCostView: {
            /** @description Id of the agent that sent it. */
            fromAgentId: string;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: uuid
             * @description UUID of the handoff of this list that it follows; absent for one that follows none.
             */
            parentHandoffId?: string | null;
            /**
             * Format: double
             * @description The receiver's own spending, as it reported it at the end; without the money that it handed on.
             */
            receiverSpentUSD: number;
            /**
             * Format: double
             * @description The part of it that its receiver holds.
             */
            reservedUSD: number;
            /**
             * Format: double
             * @description The sender's spending up to the handoff, since its last report. Together with the receivers'
             *     spending, the hops of a task add up to `spentUSD`.
             */
            senderSpentUSD: number;
            /**
             * Format: double
             * @description `costBudgetRemainingUSD` of its message.
             */
            statedRemainingUSD: number;
            /**
             * Format: double
             * @description `costSpentSoFarUSD` of its message: cumulative along the path to it.
             */
            statedSpentUSD: number;
            /** @description Its status. */
            status: components["schemas"]["HandoffStatus"];
            /** @description Id of the agent that received it. */
            toAgentId: string;
            /** @description Tokens of sender and receiver together. */
            tokens: components["schemas"]["SpentTokensView"];
        };
        /** @description One claimed handoff. */
        InboxItem: {
            /**
             * Format: int32
             * @description Counts claims, from 1.
             */
            attempt: number;
            /**
             * Format: date-time
             * @description Without a verdict by then, RFC 3339, the handoff returns to the inbox.
             */
            claimedUntil: string;
            /**
             * Format: int64
             * @description Give this back with the verdict.
             */
            fencingToken: number;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description Message of the handoff, as stored. */
            message: components["schemas"]["StoredMessage"];
            /**
             * Format: uuid
             * @description UUID of the handoff's task.
             */
            taskId: string;
            /** @description Trace context of this delivery, W3C `traceparent`. */
            traceparent: string;
            /** @description The vendors' part of the trace context. */
            tracestate?: string;
            /**
             * Format: date-time
             * @description Without a verdict by then, RFC 3339, the handoff expires, or is offered for one more claim where it was not yet:
             *     the time runs from its first claim on. Absent where a person decides.
             */
            verdictBy?: string | null;
        };
        /** @description The items that the call claimed, by kind. */
        InboxView: {
            /** @description The most urgent first, then the oldest; empty when the wait ran out. */
            items: components["schemas"]["InboxItem"][];
            /** @description Questions of receivers to this agent, the oldest first; absent for none. `POST /handoffs/{handoffId}/answer` answers. */
            questions?: components["schemas"]["QuestionItem"][];
            /** @description Tasks that came back to this agent, the oldest first; absent for none. */
            returns?: components["schemas"]["ReturnItem"][];
        };
        /** @description Proof that a record is in the tree of a size (RFC 6962). */
        InclusionView: {
            /** @description The record's hash, in base64. */
            leafHash: string;
            /**
             * Format: int64
             * @description Place of the record in the log, from 0.
             */
            leafIndex: number;
            /** @description From the leaf up, each hash in base64 (RFC 6962 §2.1.1). */
            proof: string[];
            /** @description The tree's root, in base64. */
            rootHash: string;
            /** @description The signed note, where the tree is the log's latest. */
            treeHead?: string | null;
            /**
             * Format: int64
             * @description Records of the tree that it is proven to be in.
             */
            treeSize: number;
        };
        /** @description A JSON Schema 2020-12 document. */
        JsonSchema: {
            [key: string]: unknown;
        };
        /** @description A key to make. */
        KeyBody: {
            /** @description The agent it is bound to; needed for role `agent`, and for no other. */
            agentId?: string | null;
            /**
             * Format: date-time
             * @description When it stops working, RFC 3339; never unless said.
             */
            expiresAt?: string | null;
            /** @description For people, 200 characters at most. */
            label?: string;
            /** @description The role of the key. */
            role: components["schemas"]["Role"];
        };
        /** @description A key, without the key. */
        KeyView: {
            /** @description The agent it is bound to. */
            agentId?: string | null;
            /** @description The key itself: only in the answer that made it. */
            apiKey?: string | null;
            /**
             * Format: date-time
             * @description When it was made, RFC 3339.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it stopped working, or will.
             */
            expiresAt?: string | null;
            /** @description Public name of the key; it opens nothing. */
            keyId: string;
            /** @description A name for people. */
            label: string;
            /**
             * Format: date-time
             * @description When it was last used, to the minute; absent where it never was, and in the answers to changes.
             */
            lastUsedAt?: string | null;
            /** @description `agent`, `operator`, `operator-metadata`, `auditor` or `admin`. */
            role: components["schemas"]["Role"];
        };
        /** @description All keys of the tenant. */
        KeysView: {
            /** @description The keys, by age. */
            items: components["schemas"]["KeyView"][];
        };
        /** @description Why a hold is released. */
        LegalHoldReleaseBody: {
            /** @description Why it is released, in words. */
            reason?: string;
        };
        /** @description The links to the next steps. */
        Links: {
            /** @description Path of the handoff's page. */
            self: string;
            /** @description Everything that happened on its task. */
            trace: string;
        };
        /** @description The input of the linter: one contract, or several. */
        LintBody: components["schemas"]["LintManyBody"] | components["schemas"]["ContractDocument"];
        /** @description One finding of the linter. */
        LintFinding: {
            /** @description The column, from 1. */
            column: number;
            /** @description The line, from 1. */
            line: number;
            /** @description The fault, in a sentence for people. */
            message: string;
            /** @description Name of the rule that the contract breaks. */
            rule: string;
            /** @description How much it weighs. */
            severity: components["schemas"]["Severity"];
        };
        /** @description Contracts to lint. */
        LintManyBody: {
            /** @description The contracts, a thousand at most. */
            contracts: components["schemas"]["ContractOrText"][];
            registry?: components["schemas"]["LintRegistryBody"] | null;
        };
        /** @description A registry of agents, as docs/contracts.md describes it. */
        LintRegistryBody: {
            [key: string]: unknown;
        };
        /** @description The linter's answer. */
        LintView: {
            /** @description One a contract, in the order in which they were sent. */
            contracts: components["schemas"]["LintedContract"][];
        };
        /** @description The linter's answer on one contract. */
        LintedContract: {
            /** @description Its place in the request: `/contracts/0`, or empty if one was sent alone. */
            file: string;
            /** @description The linter's findings. */
            findings: components["schemas"]["LintFinding"][];
            /** @description The contract's id. */
            id: string | null;
            level: components["schemas"]["ContractLevel"] | null;
            /** @description The clauses that it lacks for the next level. */
            missing: string[];
            /** @description The parts of the contract that would be accepted and not hold in full; absent if there are none. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description Agents that could take something, best first. */
        MatchView: {
            /** @description The agents. */
            items: components["schemas"]["MatchedAgent"][];
            /** @description The ranking in use: `capability`, `text`, or the name of the matcher. */
            rankedBy: string;
        };
        /** @description An agent that could take something. */
        MatchedAgent: {
            /** @description Id of the agent that matches. */
            agentId: string;
            /** @description Its type. */
            agentType: string;
            /** @description Its version. */
            agentVersion: string;
            /** @description The purpose of the agent. */
            description: string;
            /** @description It takes work now. */
            live: boolean;
            /** @description Its name for people. */
            name: string;
            /**
             * Format: double
             * @description How well it fits; compares within one answer.
             */
            score: number;
        };
        /** @description A tool as the Model Context Protocol's `tools/list` gives it. */
        McpTool: {
            /** @description When to call it. */
            description: string;
            /** @description The schema of its arguments. */
            inputSchema: components["schemas"]["JsonSchema"];
            /** @description Its name. */
            name: string;
            /** @description Its name for people. */
            title: string;
        };
        /** @description The name under which an agent is registered. */
        MessageAgentId: string;
        /** @description The role an agent plays; several agents may share one. */
        MessageAgentType: string;
        /**
         * Format: uuid
         * @description A UUID (RFC 9562) of any version from 1 to 8 in its hyphenated form; hexadecimal digits in either case.
         */
        MessageAnyUuid: string;
        /**
         * Format: date-time
         * @description A point in time in the RFC 3339 profile of ISO 8601, offset included.
         */
        MessageDateTime: string;
        /**
         * Format: uuid
         * @description A version 4 UUID (RFC 9562) in its hyphenated form; hexadecimal digits in either case.
         */
        MessageUuid: string;
        /** @description A range of semantic versions as npm writes them, for example `>=1.5.0`, `^1.5 || ^2.0`; a bare version is that version alone, `*` takes any release. */
        MessageVersionRange: string;
        /** @description An event that comes without a person. */
        NextEventView: {
            /**
             * Format: date-time
             * @description When it comes, RFC 3339.
             */
            at: string;
            /** @description The event in words. */
            event: string;
        };
        /** @description An agent as a node of the allowlist's graph. */
        NodeView: {
            /** @description Id of the agent. */
            agentId: string;
            /** @description Its type. */
            agentType: string;
        };
        /** @description Messages that are not at hand, counted. */
        NotReplayable: {
            /** @description Messages in the archive. */
            archived: number;
            /** @description Number of messages that were erased. */
            erased: number;
        };
        /** @description A safety rule that fired and is only recorded. */
        ObservedRule: {
            /** @description RFC 6901 pointer into the message. */
            pointer: string;
            /** @description The rule. */
            rule: string;
        };
        /** @description A function as OpenAI's chat completions take it. */
        OpenAiFunction: {
            /** @description When to call it. */
            description: string;
            /** @description Its name. */
            name: string;
            /** @description The schema of its arguments. */
            parameters: components["schemas"]["JsonSchema"];
        };
        /** @description A tool as OpenAI's chat completions take it. */
        OpenAiTool: {
            /** @description The function. */
            function: components["schemas"]["OpenAiFunction"];
            /** @description Always `function`. */
            type: string;
        };
        /** @description Orbit's place for an agent's allowlist (seed 003). */
        OrbitConfig: {
            /** @description Whom it may hand off to, as `handoffTargets`. */
            handoff_targets?: string[] | null;
        };
        /** @description Orbit's error object (seed 003). */
        OrbitError: {
            /** @description Code of the error, as in `code` beside it. */
            code: components["schemas"]["ErrorCode"];
            /** @description Sentence for people, as in `detail` beside it. */
            message: string;
            /**
             * Format: int32
             * @description Status code of the HTTP answer.
             */
            status: number;
        };
        /** @description The treatment of a place that reads like an order to an assistant inside a tool's output or data. Ordered by strictness. */
        Orders: ("allow" | "mark" | "refuse") | (string & {});
        /** @description One page of a list, newest first. */
        Page_DeadLetterView: {
            /** @description The rows of this page. */
            items: {
                /**
                 * Format: date-time
                 * @description When it was kept, RFC 3339.
                 */
                createdAt: string;
                explanation?: components["schemas"]["ExplanationView"] | null;
                /** @description Everything that the gate found. */
                failures: components["schemas"]["FailureView"][];
                /** @description Id of the agent that sent it. */
                fromAgent: string;
                /**
                 * Format: uuid
                 * @description The handoff's id, and the dead letter's.
                 */
                handoffId: string;
                message?: components["schemas"]["StoredMessage"] | null;
                /** @description Code of the primary reason: an error's, or the end of the handoff that had no decision in time. */
                reason: string;
                /**
                 * Format: date-time
                 * @description When it was decided on, RFC 3339.
                 */
                resolvedAt?: string | null;
                /** @description By whom: a key's id. The words are with the record. */
                resolvedBy?: string | null;
                /** @description `OPEN`, `RELEASED` or `DISCARDED`. */
                status: components["schemas"]["DeadLetterStatus"];
                /**
                 * Format: uuid
                 * @description UUID of the handoff's task.
                 */
                taskId: string;
                /** @description To whom, where that was found. */
                toAgent?: string | null;
            }[];
            /**
             * @description In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
             *     Rows that fit and are newer than this time are on it or before it; older ones follow.
             */
            lookedBackTo?: string | null;
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description One page of a list, newest first. */
        Page_EscalationView: {
            /** @description The rows of this page. */
            items: {
                /** @description How the contract says that people are reached. */
                channel?: string | null;
                /** @description The action when no decision comes in time: `resume` or `dead-letter`. */
                defaultAction: components["schemas"]["DefaultAction"];
                /**
                 * Format: uuid
                 * @description UUID of the escalation.
                 */
                escalationId: string;
                /** @description From whom the failing edge leads. */
                fromAgent: string;
                /**
                 * Format: uuid
                 * @description The handoff that failed; absent where submissions were refused.
                 */
                handoffId?: string | null;
                /**
                 * Format: date-time
                 * @description When it was opened, RFC 3339.
                 */
                openedAt: string;
                /** @description Why a person is asked: a code. */
                reason: string;
                /** @description The decision: a code. */
                resolution?: string | null;
                /**
                 * Format: date-time
                 * @description When it was decided.
                 */
                resolvedAt?: string | null;
                /** @description By whom: a key's id, or `broker`. The words are with the record `ESCALATION_RESOLVED`. */
                resolvedBy?: string | null;
                /** @description The agent that takes over when no decision comes in time. */
                resumeAs?: string | null;
                /** @description `OPEN`, `RESOLVED` or `TIMED_OUT`. */
                status: components["schemas"]["EscalationState"];
                /**
                 * Format: uuid
                 * @description The task that waits.
                 */
                taskId: string;
                /**
                 * Format: date-time
                 * @description When it is decided without a person.
                 */
                timeoutAt: string;
                /** @description Id of the agent that the failing edge leads to. */
                toAgent?: string | null;
            }[];
            /**
             * @description In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
             *     Rows that fit and are newer than this time are on it or before it; older ones follow.
             */
            lookedBackTo?: string | null;
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description One page of a list, newest first. */
        Page_HandoffView: {
            /** @description The rows of this page. */
            items: {
                /**
                 * Format: date-time
                 * @description When the receiver accepted.
                 */
                acceptedAt?: string | null;
                asked?: components["schemas"]["AskedView"] | null;
                /**
                 * Format: int32
                 * @description Delivery attempts begun so far.
                 */
                attempts: number;
                checkpoint?: components["schemas"]["CheckpointRefView"] | null;
                context?: components["schemas"]["ContextView"] | null;
                /** @description The conversation that the sender named (`conversationId`). */
                conversationId?: string | null;
                /** @description The receiver's summary of its conversation, as it gave it at `/complete`; only on the handoff's own page. */
                conversationSummary?: string | null;
                /** @description Its cost, cumulative. */
                costTracking: components["schemas"]["CostView"];
                /**
                 * Format: date-time
                 * @description When it was committed, RFC 3339.
                 */
                createdAt: string;
                /**
                 * Format: date-time
                 * @description When the verdict or the lease is due, RFC 3339.
                 */
                deadlineAt?: string | null;
                /** @description `webhook` or `pull`. */
                deliveryMode: components["schemas"]["DeliveryMode"];
                /**
                 * Format: int64
                 * @description Milliseconds from acceptance to the end.
                 */
                durationMs?: number | null;
                /**
                 * Format: date-time
                 * @description When it ended, RFC 3339; null before.
                 */
                endedAt?: string | null;
                /**
                 * Format: int64
                 * @description The current fencing token.
                 */
                fencingToken: number;
                /** @description Who sent it. */
                fromAgent: components["schemas"]["PartyView"];
                group?: components["schemas"]["HandoffGroup"] | null;
                /**
                 * Format: uuid
                 * @description UUID of the handoff.
                 */
                handoffId: string;
                /**
                 * Format: date-time
                 * @description When the broker last heard of that holder, RFC 3339.
                 */
                heardAt?: string | null;
                /**
                 * Format: int64
                 * @description How often the broker hears of its holder, as the holder said: another worker of the receiver may take over after four
                 *     such intervals of silence.
                 */
                heartbeatIntervalMs?: number | null;
                /**
                 * Format: int64
                 * @description Rounds that the receiver took, as it said at `/complete`; only on the handoff's own page.
                 */
                iterations?: number | null;
                /** @description Paths of related resources. */
                links: components["schemas"]["Links"];
                message?: components["schemas"]["StoredMessage"] | null;
                /**
                 * Format: uuid
                 * @description The handoff before it.
                 */
                parentHandoffId?: string | null;
                /** @description All questions of the receiver to the sender, the first one first; only where asked for with `include=questions`. */
                questions?: components["schemas"]["AskedView"][] | null;
                /** @description Why it ended badly, or why the last attempt failed; `HANDED_ON` where its receiver handed the task on. */
                reason?: string | null;
                receipt?: components["schemas"]["Receipt"] | null;
                /**
                 * @description The receiver's result, as it gave it at `/complete`; only on the handoff's own page. Of a handoff to several
                 *     receivers that is completed: their results in the list's order, null where one gave none.
                 */
                result?: unknown;
                /** @description The agent that gets the task back when the receiver completes the handoff (`returnTo`). */
                returnsTo?: string | null;
                safety?: components["schemas"]["RecordSafety"] | null;
                /** @description Its status. */
                status: components["schemas"]["HandoffStatus"];
                stream?: components["schemas"]["StreamView"] | null;
                /**
                 * Format: uuid
                 * @description The last handoff that replaced it (a preferred agent, a supervisor, a person's decision), or, after a wait for
                 *     the end, the one that brought its task back; only on the handoff's own page.
                 */
                successorId?: string | null;
                /**
                 * Format: uuid
                 * @description UUID of its task.
                 */
                taskId: string;
                /** @description Who receives it, as the route resolved it. */
                toAgent: components["schemas"]["PartyView"];
                /** @description The trace context that counts, W3C `traceparent`. */
                traceparent: string;
                /** @description The `tracestate` that belongs to it; empty for none, and after an erasure. */
                tracestate: string;
                /** @description The reference to the user that the sender named (`userId`). */
                userRef?: string | null;
                /**
                 * @description `details` and `metadata` of the receiver's verdict, and the `error` of a failure; only where asked for with
                 *     `include=verdict`.
                 */
                verdict?: {
                    [key: string]: unknown;
                } | null;
                /** @description The parts of the request that do not hold in full. */
                warnings?: components["schemas"]["WarningView"][];
            }[];
            /**
             * @description In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
             *     Rows that fit and are newer than this time are on it or before it; older ones follow.
             */
            lookedBackTo?: string | null;
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description One page of a list, newest first. */
        Page_RefusalView: {
            /** @description The rows of this page. */
            items: {
                /** @description The reason: a code. */
                code: string;
                /** @description Everything that was found; 32 at most. */
                failures: components["schemas"]["RefusalFindingView"][];
                /** @description Id of the agent that submitted it. */
                fromAgent?: string | null;
                /**
                 * Format: uuid
                 * @description The handoff that it would have been.
                 */
                handoffId?: string | null;
                /** @description The first place with this reason: JSON pointer into the message. */
                pointer: string;
                /** @description UUID of the refusal. */
                refusalId: string;
                /**
                 * Format: date-time
                 * @description When it was refused, RFC 3339.
                 */
                refusedAt: string;
                /**
                 * Format: uuid
                 * @description The task that it names.
                 */
                taskId?: string | null;
                /** @description To whom, where that was found. */
                toAgent?: string | null;
            }[];
            /**
             * @description In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
             *     Rows that fit and are newer than this time are on it or before it; older ones follow.
             */
            lookedBackTo?: string | null;
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description One page of a list, newest first. */
        Page_SessionView: {
            /** @description The rows of this page. */
            items: {
                /**
                 * Format: date-time
                 * @description When the session began, RFC 3339.
                 */
                createdAt: string;
                /**
                 * Format: date-time
                 * @description When the session ends, if it is used until then.
                 */
                expiresAt: string;
                /** @description Public name of the key of the login. */
                keyId: string;
                /**
                 * Format: date-time
                 * @description The last request, to the minute.
                 */
                lastSeenAt: string;
                /** @description The key's role at the login; the key's present role decides on access. */
                role: components["schemas"]["Role"];
                /**
                 * Format: uuid
                 * @description UUID of the session; it opens nothing.
                 */
                sessionId: string;
                /** @description The name that the browser gives itself, 120 characters at most. */
                userAgent?: string | null;
            }[];
            /**
             * @description In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
             *     Rows that fit and are newer than this time are on it or before it; older ones follow.
             */
            lookedBackTo?: string | null;
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description One page of a list, newest first. */
        Page_TaskView: {
            /** @description The rows of this page. */
            items: {
                checkpoint?: components["schemas"]["CheckpointRefView"] | null;
                checkpointState?: components["schemas"]["CheckpointState"] | null;
                /**
                 * Format: double
                 * @description US dollars that may still be spent on it.
                 */
                costBudgetRemainingUSD: number;
                /**
                 * Format: double
                 * @description US dollars that the task has cost so far: the sum of its hops, as in `/cost` and in the trace.
                 */
                costSpentSoFarUSD: number;
                /**
                 * Format: date-time
                 * @description When it was first seen, RFC 3339.
                 */
                createdAt: string;
                /**
                 * Format: int64
                 * @description Failures since it last went well: a handoff completed or handed on, or a person decided. Refused submissions
                 *     count, and the third asks a person.
                 */
                failures: number;
                /**
                 * Format: int64
                 * @description Handoffs committed on it.
                 */
                handoffs: number;
                /** @description Which agent has it. */
                holder: string;
                /** @description The agent that began it, where that is known. */
                openedBy?: string | null;
                /** @description Its status. */
                status: components["schemas"]["TaskStatus"];
                /**
                 * Format: uuid
                 * @description UUID of the task.
                 */
                taskId: string;
                /**
                 * Format: double
                 * @description US dollars that operators added.
                 */
                toppedUpUSD: number;
                /**
                 * Format: int64
                 * @description Handoffs that wait for delivery.
                 */
                undelivered: number;
                /**
                 * Format: date-time
                 * @description When it last changed, RFC 3339.
                 */
                updatedAt: string;
                /** @description The parts of the request that do not hold in full. */
                warnings?: components["schemas"]["WarningView"][];
            }[];
            /**
             * @description In a list of tasks or handoffs, where the page ends because it has looked at as many rows as one page may cost, RFC 3339.
             *     Rows that fit and are newer than this time are on it or before it; older ones follow.
             */
            lookedBackTo?: string | null;
            /** @description Give this as `cursor` for the next page; absent on the last. */
            nextCursor?: string | null;
        };
        /** @description Who sends or receives. */
        PartyView: {
            /** @description Id of the agent. */
            agentId: string;
            /** @description Its type. */
            agentType?: string | null;
            /** @description Its version. */
            agentVersion: string;
            /**
             * Format: uuid
             * @description The agent's run, a UUID.
             */
            executionId?: string | null;
        };
        /** @description An erasure as an access report tells of it. */
        PastErasureView: {
            /**
             * Format: int64
             * @description Number of checkpoints that went.
             */
            checkpoints: number;
            /**
             * Format: int64
             * @description Messages and other contents of records that went.
             */
            contents: number;
            /**
             * Format: date-time
             * @description When it was done, RFC 3339.
             */
            erasedAt: string | null;
            /**
             * Format: uuid
             * @description UUID of the erasure.
             */
            erasureId: string;
            /**
             * Format: int64
             * @description Its record's place in the log.
             */
            leafIndex: number | null;
            /**
             * Format: int64
             * @description Personal data that went, with their salts.
             */
            personalData: number;
            /** @description Why it was asked for: a code. */
            reason: string;
            /**
             * Format: date-time
             * @description When it was asked for, RFC 3339.
             */
            requestedAt: string;
            /** @description The data that the erasure covered. */
            scope: components["schemas"]["Scope"];
            /** @description Its status. */
            status: components["schemas"]["ErasureStatus"];
        };
        /** @description The action on a handoff that names a paused agent by its id. */
        Pause: ("hold" | "refuse") | (string & {});
        /** @description A payload schema in its highest version. */
        PayloadSchemaEntry: {
            /**
             * Format: date-time
             * @description When that version was registered, RFC 3339.
             */
            createdAt: string;
            /** @description The key that registered it. */
            createdBy: string;
            /** @description The senders' steps to move to that version; absent if none were given. */
            migration?: string;
            /** @description Its id. */
            schemaId: string;
            /** @description SHA-256 over that schema's canonical form (RFC 8785), in hexadecimal. */
            sha256: string;
            /** @description Its highest version. */
            version: string;
            /** @description How many versions there are. */
            versions: number;
        };
        /** @description A version of a payload schema. */
        PayloadSchemaMeta: {
            /**
             * Format: date-time
             * @description When it was registered, RFC 3339.
             */
            createdAt: string;
            /** @description The key that registered it. */
            createdBy: string;
            /** @description The senders' steps to move to this version; absent if none were given. */
            migration?: string;
            /** @description Its id. */
            schemaId: string;
            /** @description SHA-256 over the schema's canonical form (RFC 8785), in hexadecimal. */
            sha256: string;
            /** @description Its version. */
            version: string;
        };
        /** @description The versions of a payload schema. */
        PayloadSchemaVersionsView: {
            /** @description In the order in which they were registered. */
            items: components["schemas"]["PayloadSchemaMeta"][];
            /** @description Its id. */
            schemaId: string;
            /** @description The highest release. */
            version: string;
        };
        /** @description A version of a payload schema, with the schema. */
        PayloadSchemaView: {
            comparison?: components["schemas"]["ComparisonView"] | null;
            /**
             * Format: date-time
             * @description When it was registered, RFC 3339.
             */
            createdAt: string;
            /** @description The key that registered it. */
            createdBy: string;
            /** @description The senders' steps to move to this version; absent if none were given. */
            migration?: string;
            /** @description The schema. */
            schema: components["schemas"]["JsonSchema"];
            /** @description Its id. */
            schemaId: string;
            /** @description SHA-256 over the schema's canonical form (RFC 8785), in hexadecimal. */
            sha256: string;
            /** @description Its version. */
            version: string;
        };
        /** @description The payload schemas of a tenant. */
        PayloadSchemasView: {
            /** @description Each in its highest version, by id. */
            items: components["schemas"]["PayloadSchemaEntry"][];
        };
        /** @description RFC 9457, with the specification's extension members (§2.4). */
        ProblemDetails: {
            /** @description Code of the error; `docs/errors/` has a page on each. */
            code: components["schemas"]["ErrorCode"];
            /** @description A sentence for this very case. */
            detail: string;
            /** @description The same error in the form that clients of Orbit read. */
            error: components["schemas"]["OrbitError"];
            /**
             * Format: int64
             * @description Of chunks: the number of the next one.
             */
            expectedSeq?: number | null;
            /** @description Everything that was found. */
            failures: components["schemas"]["FailureView"][];
            /** @description Of a place beyond the end: the last place that may be named. */
            head?: string | null;
            /** @description The path that was asked. */
            instance: string;
            /** @description Of chunks as NDJSON: the line of the refused one, from 1. */
            line?: number | null;
            /** @description The primary reason of a refusal; the same as `code`. */
            reason: components["schemas"]["ErrorCode"];
            /** @description Names this request in the broker's log. */
            requestId: string;
            /**
             * Format: int32
             * @description Status code of the HTTP answer.
             */
            status: number;
            /**
             * @description Of a message whose `handoffId` its sender used before, with other content: `extensions.handoffd.stepDigest` of the
             *     message that has the id, where that has one.
             */
            storedStepDigest?: string | null;
            /**
             * Format: uuid
             * @description The handoff that goes to another agent in place of the refused one, as its contract says.
             */
            successorId?: string | null;
            /** @description Of chunks: how many of the request were committed before the refused one. */
            taken?: number | null;
            taskStatus?: components["schemas"]["TaskStatus"] | null;
            /** @description The code in a few words. */
            title: string;
            /** @description URL of the page that explains the code. */
            type: string;
        };
        /** @description How far a subscription has been told. */
        ProgressView: {
            /**
             * Format: int64
             * @description Attempts since its creation.
             */
            attempts: number;
            /** @description The last event that it was told of, or passed over. */
            cursor: string;
            /**
             * Format: date-time
             * @description Since when every attempt failed, RFC 3339.
             */
            failingSince?: string | null;
            /**
             * Format: int32
             * @description Failed attempts in a row.
             */
            failures: number;
            /**
             * Format: date-time
             * @description When it is tried again, RFC 3339.
             */
            nextAttemptAt?: string | null;
        };
        /** @description The context as a chat model's messages. */
        PromptView: {
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description Always one: everything is data within a single user turn. */
            messages: components["schemas"]["Turn"][];
            /** @description The random number that the marks of this answer carry. */
            nonce: string;
            /** @description The parts of the turn, in order: heading, pointer into the message, claimed role. */
            segments: components["schemas"]["SegmentView"][];
        };
        /** @description Tree heads outside the database. */
        PublishedHeadsView: {
            /** @description Id of the log. */
            logId: string;
            /** @description The places of `audit.publish` that took a head, or did not, since this broker's start. */
            places: components["schemas"]["HeadPlaceView"][];
            /**
             * Format: int64
             * @description Records in the log now.
             */
            treeSize: number;
            witnessed?: components["schemas"]["WitnessedHeadView"] | null;
        };
        /** @description A version to register. */
        PutBody: {
            /**
             * @description The senders' steps to move to this version, 1 to 2 000 characters; needed if it asks for more
             *     than the version before.
             */
            migration?: string | null;
            /** @description The schema: JSON Schema 2020-12, at most 128 KiB, that refers only to itself. */
            schema: components["schemas"]["JsonSchema"];
        };
        /** @description A question of a receiver to this agent, which sent it the handoff. */
        QuestionItem: {
            /** @description Without an answer by then, RFC 3339, the handoff expires. */
            answerBy: string;
            /**
             * Format: date-time
             * @description When it was asked, RFC 3339.
             */
            askedAt: string;
            /** @description The agent that asks. */
            askedBy: string;
            /**
             * Format: date-time
             * @description Unless it is answered by then, RFC 3339, the item comes again.
             */
            claimedUntil: string;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: int32
             * @description The number of the question, from 1.
             */
            number: number;
            /** @description Question as the receiver asked it. */
            question: unknown;
            /** @description The schema that the answer has to fit. */
            schema?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: uuid
             * @description UUID of the handoff's task.
             */
            taskId: string;
        };
        /** @description The state of a receiver's question. A later version may have more. */
        QuestionState: ("OPEN" | "ANSWERED" | "CLOSED") | (string & {});
        /**
         * @description Proof that a handoff's record is in the log: the record's place, the path from it to the root of the
         *     log's Merkle tree (RFC 6962 §2.1.1), and a signed tree head over that root.
         */
        Receipt: {
            /** @description From the leaf up, each hash in base64. */
            inclusionProof: string[];
            /**
             * Format: int64
             * @description The record's place in it.
             */
            leafIndex: number;
            /** @description Id of the log that holds the record. */
            logId: string;
            /** @description `sha256:…` over the record: the leaf's hash. */
            recordHash: string;
            /** @description A C2SP tlog-checkpoint: a signed note with the log's origin, size and root. */
            treeHead: string;
        };
        /** @description One receiver. */
        ReceiverDetailView: components["schemas"]["ReceiverView"] & {
            /**
             * Format: date-time
             * @description Time of the look, RFC 3339.
             */
            at: string;
            /**
             * Format: int64
             * @description Length of a window, in milliseconds: five minutes.
             */
            windowMs: number;
        };
        /** @description A receiver as brokers notice it. */
        ReceiverView: components["schemas"]["AttemptCountsView"] & {
            /** @description The agent's id. */
            agentId: string;
            /** @description The worst state of a breaker of a broker that lives; absent where the receiver pulls. */
            breaker?: components["schemas"]["BreakerState"];
            /** @description The breakers that opened since their brokers started, and whose states are known. */
            breakers: components["schemas"]["BreakerView"][];
            /** @description How it gets its handoffs. */
            delivery: components["schemas"]["DeliveryMode"];
            /** @description Whether its endpoint is disabled after failures. */
            disabled: boolean;
            /** @description Why that attempt failed, as a code. */
            lastFailure?: string | null;
            /**
             * Format: date-time
             * @description The last attempt that failed, RFC 3339.
             */
            lastFailureAt?: string | null;
            /**
             * Format: date-time
             * @description Its last request for its inbox, RFC 3339; absent where none was noticed.
             */
            lastPollAt?: string | null;
            /**
             * Format: date-time
             * @description The last attempt that it answered, RFC 3339; where it pulls, its last verdict.
             */
            lastSuccessAt?: string | null;
            /**
             * Format: int64
             * @description Open handoffs to it, counted up to 1,000.
             */
            open: number;
            /** @description Whether it takes handoffs. */
            state: components["schemas"]["AgentState"];
            /**
             * Format: int64
             * @description Handoffs that wait for it: no attempt or claim holds them.
             */
            waiting: number;
            /** @description When the oldest of these was committed, RFC 3339. */
            waitingSince?: string | null;
            /** @description Windows with an attempt, the oldest first. */
            windows: components["schemas"]["ReceiverWindowView"][];
        };
        /** @description Attempts within one window of time. */
        ReceiverWindowView: components["schemas"]["AttemptCountsView"] & {
            /** @description When the window begins, RFC 3339. */
            from: string;
        };
        /** @description One page of the receivers. */
        ReceiversView: {
            /**
             * Format: date-time
             * @description Time of the look, RFC 3339.
             */
            at: string;
            /** @description By agent id. */
            items: components["schemas"]["ReceiverView"][];
            /** @description Continues the list; absent on the last page. */
            nextCursor?: string | null;
            /**
             * Format: int64
             * @description Length of a window, in milliseconds: an hour.
             */
            windowMs: number;
        };
        /** @description A record of the log. */
        Record: {
            /** @description The actor that caused it. */
            actor: components["schemas"]["RecordActor"];
            /** @description The data to which a `STATE_ADOPTED` record commits. */
            adoption?: components["schemas"]["RecordAdoption"];
            /**
             * Format: int64
             * @description Attempts at delivery under a contract, by the time of the verdict.
             */
            attempts?: number;
            /** @description The contract's name for the edge's events. */
            auditEvent?: string;
            /** @description The changes of an administrative record. */
            changes?: components["schemas"]["RecordChange"][];
            /** @description `sha256:…`, a commitment to the checkpoint. */
            checkpointCommitment?: string;
            /** @description The result of the message's compression. */
            compression?: components["schemas"]["RecordCompression"];
            /** @description The message against its receiver's context window. */
            context?: components["schemas"]["ContextView"];
            /** @description The contract that ruled the edge, or that was put. */
            contract?: components["schemas"]["RecordContract"];
            /** @description The costs that the message stated. */
            costAtHandoff?: components["schemas"]["RecordCost"];
            /** @description The erasure that the record is about. */
            erasure?: components["schemas"]["RecordErasure"];
            /** @description Who sent, as it was then. */
            fromAgent?: components["schemas"]["RecordParty"];
            /** @description The handoff's place in a handoff to several receivers; or what that came to. */
            group?: components["schemas"]["RecordGroup"];
            /**
             * Format: uuid
             * @description UUID of the handoff, where the event concerns one.
             */
            handoffId?: string;
            /** @description Kind of the event that it records. */
            kind: components["schemas"]["RecordKind"];
            /**
             * Format: int64
             * @description Its place in the log, dense from 0.
             */
            leafIndex: number;
            /** @description The legal hold that the record is about. */
            legalHold?: components["schemas"]["RecordHold"];
            /** @description Id of the log that holds it. */
            logId: string;
            /** @description `sha256:…`, a commitment to the message, or to what the actor said. */
            messageCommitment?: string;
            /** @description The external classifier's opinion of a message after its commit. */
            opinion?: components["schemas"]["RecordClassifier"];
            /**
             * Format: uuid
             * @description The handoff before it.
             */
            parentHandoffId?: string;
            /** @description The payload schema that was registered. */
            payloadSchema?: components["schemas"]["RecordContract"];
            /** @description `sha256:…`, one commitment a person. */
            personalDataCommitments?: string[];
            /** @description `sha256:…` over the record before; null in the first. */
            previousRecordHash: string | null;
            /**
             * Format: int32
             * @description The number of the receiver's question, from 1; of a question and of its answer.
             */
            question?: number;
            /** @description Why it happened: a code. */
            reason?: string;
            /** @description Between which regions the data went, and on what basis. */
            residency?: components["schemas"]["RecordResidency"];
            /** @description The data that were removed because they were past their time. */
            retention?: components["schemas"]["RecordRetention"];
            /** @description The safety stage's facts about a message that passed. */
            safety?: components["schemas"]["RecordSafety"];
            /** @description The amounts that the task's budget counted with it. */
            spent?: components["schemas"]["RecordSpent"];
            /** @description The status that resulted. */
            status?: string;
            /** @description The stream with this record, where the message comes in pieces. */
            stream?: components["schemas"]["RecordStream"];
            /**
             * Format: uuid
             * @description UUID of the task, where the event concerns one.
             */
            taskId?: string;
            /** @description The tenant that owns the log. */
            tenant: string;
            /**
             * Format: date-time
             * @description When, RFC 3339 with microseconds.
             */
            time: string;
            /** @description Who received, as it was then. */
            toAgent?: components["schemas"]["RecordParty"];
            /**
             * Format: int64
             * @description The version of the record's form: 1.
             */
            v: number;
        } & {
            [key: string]: unknown;
        };
        /** @description The actor of a record. */
        RecordActor: {
            /** @description The agent, where it is one. */
            agentId?: string;
            /** @description The key used. */
            keyId?: string;
            /** @description Role of the actor: that of its key, or `broker`. */
            role: components["schemas"]["ActorRole"];
        } & {
            [key: string]: unknown;
        };
        /** @description Rows that had no committed state, and have one from this record on. */
        RecordAdoption: {
            /**
             * Format: int64
             * @description The log's size when their rows were read.
             */
            asOf: number;
            /**
             * Format: int64
             * @description How many objects.
             */
            objects: number;
        } & {
            [key: string]: unknown;
        };
        /**
         * @description An object that an administrative record changed: its id and the names of the changed members. The values are in the record's
         *     content.
         */
        RecordChange: {
            /** @description Names of the members that changed; absent where it was made or removed. */
            changed?: string[];
            /** @description Its id; of a cap its window, behind the agent's id where it is an agent's. */
            id: string;
            /** @description The kind of object: `agent`, `key`, `legalHold`, `cap`, `subscription`. */
            object: string;
            /** @description Whether it was removed. */
            removed?: boolean;
            /** @description The role of a key. */
            role?: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The opinion of an external classifier. */
        RecordClassifier: {
            /** @description The model, or the style it speaks. */
            by: string;
            /** @description The texts went to another region for it. */
            crossing?: components["schemas"]["RecordCrossing"];
            /** @description The label that it gave. */
            label?: string;
            /** @description `SAFE`, `UNSAFE`, `NONE` where it gave no answer, or `PENDING` where it is asked after the commit. */
            verdict: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The result of a compression: figures and codes. */
        RecordCompression: {
            /** @description Who wrote the summary. */
            by: components["schemas"]["CompressedBy"];
            /**
             * Format: double
             * @description The cost of the model's call.
             */
            costUSD?: number;
            /** @description The turns went to another region for the model's summary. */
            crossing?: components["schemas"]["RecordCrossing"];
            /**
             * Format: int64
             * @description Facts of the part that was replaced.
             */
            facts: number;
            /**
             * Format: int64
             * @description Those of them that the fidelity check appended.
             */
            factsAppended: number;
            /**
             * Format: int64
             * @description Those that what replaced it holds.
             */
            factsKept: number;
            /** @description Why the embedded compressor took the model's place: a code. */
            fallback?: string;
            /** @description Whether the message is within its receiver's limit now. */
            fits: boolean;
            /**
             * Format: int64
             * @description Turns that stay as they were said.
             */
            keptTurns: number;
            /**
             * Format: int64
             * @description Tokens of the message as submitted.
             */
            originalTokens: number;
            /**
             * Format: int64
             * @description Turns of the message as submitted.
             */
            originalTurns: number;
            /**
             * @description All sentences of the part that was replaced, by class (`constraint`, `warning`, `change`, `commitment`, `decision`,
             *     `question`, `reason`, `figures`, `other`).
             */
            sentences?: {
                [key: string]: components["schemas"]["RecordSentences"];
            };
            /** @description How the tokens were counted. */
            tokenizer: components["schemas"]["Tokenizer"];
            /**
             * Format: int64
             * @description Tokens of the message as delivered.
             */
            tokens: number;
        } & {
            [key: string]: unknown;
        };
        /** @description A version of a contract or of a payload schema. */
        RecordContract: {
            /** @description Its id. */
            id: string;
            /** @description Its version. */
            version: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The costs that a message stated, cumulative. */
        RecordCost: {
            /**
             * Format: double
             * @description US dollars that may still be spent.
             */
            costBudgetRemainingUSD: number;
            /**
             * Format: double
             * @description US dollars so far.
             */
            costSpentSoFarUSD: number;
            /** @description Tokens so far; records of older versions have `promptTokens` and `completionTokens` beside. */
            tokenSpent?: components["schemas"]["TokensView"];
        } & {
            [key: string]: unknown;
        };
        /** @description Data that went from one region to another. */
        RecordCrossing: {
            /** @description The region that the data leave. */
            from: string;
            /** @description At which end: `sender` or `receiver`; or who was shown texts: `classifier` or `model`. */
            party: string;
            /** @description The region that the data enter. */
            to: string;
            /** @description The legal basis of the transfer: a code. */
            transferBasis?: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * @description The facts of an erasure in a record. They hold no id of a person, only a salted commitment to it; the salt is
         *     derived from the broker's master key and the id together.
         */
        RecordErasure: {
            /**
             * Format: int64
             * @description Checkpoints erased: on this page, or in all for `ERASURE_COMPLETED`.
             */
            checkpoints: number;
            /**
             * Format: int64
             * @description Contents of records erased: on this page, or in all for `ERASURE_COMPLETED`.
             */
            contents: number;
            /**
             * Format: int64
             * @description Personal data erased: on this page, or in all for `ERASURE_COMPLETED`.
             */
            data: number;
            /**
             * Format: int64
             * @description Data held at the time of the request; in `ERASURE_COMPLETED` alone, as the certificate says it.
             */
            held?: number;
            /** @description UUID of the erasure. */
            id: string;
            /**
             * Format: date-time
             * @description Time of the request, RFC 3339; in `ERASURE_COMPLETED` alone.
             */
            requestedAt?: string;
            /** @description How much: `personal-data` or `messages`. */
            scope: string;
            /** @description Commitment to the subject's id, `sha256:…`. */
            subjectCommitment: string;
        } & {
            [key: string]: unknown;
        };
        /** @description A fault in a record. */
        RecordFault: {
            /** @description The same in words; of `state` with both values. */
            detail?: string;
            /** @description The fault: a code. `state` if a row of the database differs from the records; the trace goes by the records. */
            fault: string;
            /**
             * Format: int64
             * @description The record's place in the log.
             */
            leafIndex: number;
        } & {
            [key: string]: unknown;
        };
        /** @description The place of a handoff among those of a message to several receivers; or the end of all of them. */
        RecordGroup: {
            /** @description The group: the `handoffId` of the message. */
            id: string;
            /**
             * Format: int32
             * @description The place in the message's list, from 0; absent of the group's end.
             */
            index?: number;
            /** @description How many of them are needed: `all`, `any` or `quorum:N`. */
            join: string;
            /**
             * Format: int32
             * @description How many handoffs the group has.
             */
            of: number;
            /** @description The effect of one bad end: `rollback` or `drop`. */
            onReject: string;
            /** @description The result of the group; only of its end. */
            outcome?: components["schemas"]["HandoffStatus"];
        } & {
            [key: string]: unknown;
        };
        /** @description Legal hold that a record places or releases. */
        RecordHold: {
            /** @description Id of the hold, as its maker named it. */
            id: string;
            /** @description `sha256:…`, a salted commitment to the person's id. */
            subjectCommitment?: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The kind of a record. A later version may have more. */
        RecordKind: ("HANDOFF" | "REFUSED" | "NO_OP" | "DEAD_LETTERED" | "ACCEPTED" | "TAKEN_OVER" | "REJECTED" | "INPUT_REQUESTED" | "INPUT_PROVIDED" | "COMPLETED" | "FAILED" | "EXPIRED" | "COMPRESSED" | "CHUNK" | "STREAM_CLOSED" | "SECOND_OPINION" | "RETURNED" | "GROUP_ENDED" | "ROLLED_BACK" | "CHECKPOINT" | "TASK_COMPLETED" | "TASK_CANCELED" | "CANCELED" | "ESCALATED" | "ESCALATION_RESOLVED" | "RELEASED" | "DISCARDED" | "RELEASE_REFUSED" | "BUDGET_CHANGED" | "CHECKPOINT_RESTORED" | "AGENT_CREATED" | "AGENT_UPDATED" | "AGENT_DELETED" | "ENDPOINT_DISABLED" | "ENDPOINT_FAILING" | "ENDPOINT_RECOVERED" | "SECRET_ROTATED" | "CONTRACT_PUT" | "PAYLOAD_SCHEMA_PUT" | "KEY_CREATED" | "KEY_REVOKED" | "TREE_KEY_CHANGED" | "MASTER_KEY_CHANGED" | "SUBSCRIPTION_CREATED" | "SUBSCRIPTION_UPDATED" | "SUBSCRIPTION_DELETED" | "SUBSCRIPTION_DISABLED" | "SUBSCRIPTION_REPLAYED" | "ERASURE_REQUESTED" | "ERASED" | "ERASURE_COMPLETED" | "LEGAL_HOLD_PLACED" | "LEGAL_HOLD_RELEASED" | "STATE_ADOPTED") | (string & {});
        /** @description An agent as it was when the record was made. */
        RecordParty: {
            /** @description Id of the agent. */
            agentId?: string;
            /** @description Its type. */
            agentType?: string;
            /** @description Its version; of a sender the one that its message claims. */
            agentVersion?: string;
            /**
             * Format: uuid
             * @description The agent's run, a UUID.
             */
            executionId?: string;
            /** @description Of a sender: the version that is registered of it. */
            registeredVersion?: string;
        } & {
            [key: string]: unknown;
        };
        /** @description Between which regions the data of a record went. */
        RecordResidency: {
            /** @description One an end of the edge. */
            crossings: components["schemas"]["RecordCrossing"][];
        } & {
            [key: string]: unknown;
        };
        /** @description The data that were removed because they were past their time. */
        RecordRetention: {
            /** @description Data recorded before this time were removed, RFC 3339. */
            before: string;
            /**
             * Format: int64
             * @description Checkpoints purged, counted.
             */
            checkpoints: number;
            /**
             * Format: int64
             * @description Messages and other contents of records.
             */
            contents: number;
            /**
             * Format: int64
             * @description Personal data purged, counted.
             */
            data: number;
        } & {
            [key: string]: unknown;
        };
        /** @description The safety stage's facts about a message that passed: codes only. */
        RecordSafety: {
            /** @description The external classifier, where one was asked. */
            classifier?: components["schemas"]["RecordClassifier"];
            /** @description Rules that marked an order inside data. */
            marked?: string[];
            /** @description Rules that fired and were only observed. */
            observed?: string[];
            /** @description The version of the rules. */
            rules: string;
        } & {
            [key: string]: unknown;
        };
        /** @description Sentences of a class, and those of them that the summary has as they were said. */
        RecordSentences: {
            /**
             * Format: int64
             * @description Those that are kept.
             */
            kept: number;
            /**
             * Format: int64
             * @description Different sentences.
             */
            of: number;
        } & {
            [key: string]: unknown;
        };
        /** @description Money and tokens that the task's budget counted with a record. */
        RecordSpent: {
            /** @description Tokens that the task's budget counted. */
            tokenSpent: components["schemas"]["TokensView"];
            /**
             * Format: double
             * @description US dollars that the task's budget counted.
             */
            usd: number;
        } & {
            [key: string]: unknown;
        };
        /** @description A record's facts about a stream. */
        RecordStream: {
            /**
             * Format: int64
             * @description The last number; 0 before the first chunk.
             */
            seq: number;
            /** @description The state of the stream. */
            status: components["schemas"]["StreamStatus"];
        } & {
            [key: string]: unknown;
        };
        /** @description A record of the log. */
        RecordView: {
            /** @description The stored bytes in base64, if they are not JSON. */
            bytes?: string | null;
            /**
             * Format: int64
             * @description Place of the record in the log, from 0.
             */
            leafIndex: number;
            record?: components["schemas"]["Record"] | null;
            /** @description `sha256:…` over a zero byte and the record: the leaf's hash. */
            recordHash: string;
        };
        /** @description A page of the log. */
        RecordsView: {
            /**
             * Format: int64
             * @description `from` of the next page; absent at the log's end.
             */
            nextFrom?: number | null;
            /** @description The records, in log order. */
            records: components["schemas"]["RecordView"][];
        };
        /** @description A place at which a refused message failed. The sentence went to its sender, and is in the record's content. */
        RefusalFindingView: {
            /** @description The answer code of the finding. */
            code: string;
            /** @description JSON pointer into the message; a segment that is not a plain name is `*`. */
            pointer: string;
            /** @description The contract's clause or the safety rule. */
            rule?: string | null;
            /** @description The stage of the gate that found it. */
            stage: string;
        };
        /** @description A refused message: ids, codes and places. The message's own claims are shown as it claims them. */
        RefusalView: {
            /** @description The reason: a code. */
            code: string;
            /** @description Everything that was found; 32 at most. */
            failures: components["schemas"]["RefusalFindingView"][];
            /** @description Id of the agent that submitted it. */
            fromAgent?: string | null;
            /**
             * Format: uuid
             * @description The handoff that it would have been.
             */
            handoffId?: string | null;
            /** @description The first place with this reason: JSON pointer into the message. */
            pointer: string;
            /** @description UUID of the refusal. */
            refusalId: string;
            /**
             * Format: date-time
             * @description When it was refused, RFC 3339.
             */
            refusedAt: string;
            /**
             * Format: uuid
             * @description The task that it names.
             */
            taskId?: string | null;
            /** @description To whom, where that was found. */
            toAgent?: string | null;
        };
        /** @description Why a receiver refuses the task. */
        RejectBody: {
            /** @description In words, or as data: free. */
            details?: unknown;
            /**
             * Format: int64
             * @description The token that came with the delivery, where the header does not have it.
             */
            fencingToken?: number | null;
            /** @description Why: a code such as `MISSING_CLAUSE_TEXT`; `REJECTED` unless said. */
            reason?: string | null;
        } & {
            [key: string]: unknown;
        };
        /** @description A decision to release a dead letter. */
        ReleaseBody: {
            /** @description Why, 1 to 2 000 characters; kept with the record. */
            reason: string;
            /** @description The findings to waive: each by its pointer, as `CODE:pointer`, or as `rule:name`. */
            waive?: string[];
        };
        /** @description A request that ends a wait. */
        RemedyView: {
            /** @description The same by the command line. */
            command: string;
            /** @description Its effect, in words. */
            effect: string;
            /** @description Method and path of the API. */
            request: string;
        };
        /** @description From where on to tell again. */
        ReplayBody: {
            /** @description A cursor: everything behind it; or a time, RFC 3339: everything from then on. */
            since: string;
        };
        /** @description A person's decision. */
        ResolveBody: {
            /** @description A person's decision on an escalation. */
            action: components["schemas"]["Action"];
            /** @description To whom; for `reassign`, and for no other action. */
            agentId?: string | null;
            /** @description Why, 1 to 2 000 characters; kept with the record. */
            reason: string;
        };
        /** @description Escalations to resolve, 1 000 at most. */
        ResolveManyBody: {
            /** @description A person's decision on each. */
            action: components["schemas"]["Action"];
            /** @description To whom; for `reassign`, and for no other action. */
            agentId?: string | null;
            /** @description Say what would happen, and change nothing. */
            dryRun?: boolean;
            /** @description Which; at least one condition. */
            filter: components["schemas"]["EscalationSelection"];
            /**
             * Format: int32
             * @description Decisions a second, 1 to 1 000; 50 unless said.
             */
            ratePerSecond?: number | null;
            /** @description Why, 1 to 2 000 characters; kept with each record. */
            reason: string;
        };
        /** @description An escalation that was decided, and its task. */
        ResolvedView: {
            /** @description As it is now. */
            escalation: components["schemas"]["EscalationView"];
            /** @description Its task as it is now. */
            task: components["schemas"]["TaskView"];
        };
        /** @description The checkpoint to restore. */
        RestoreBody: {
            /**
             * Format: int64
             * @description Its number within the run, from 1.
             */
            seq: number;
        };
        /** @description A task that came back: a receiver completed a handoff whose sender asked for the task's return. */
        ReturnItem: {
            /**
             * Format: date-time
             * @description Unless the agent hands the task on, completes or cancels it by then, RFC 3339, the item comes again.
             */
            claimedUntil: string;
            /** @description The agent that completed the handoff. */
            completedBy: string;
            /** @description The receiver's body of `/complete`; absent if it sent none, or if that was erased. */
            completion?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: uuid
             * @description UUID of the completed handoff.
             */
            handoffId: string;
            /**
             * Format: date-time
             * @description When it did, RFC 3339.
             */
            returnedAt: string;
            /**
             * Format: uuid
             * @description The task that came back.
             */
            taskId: string;
        };
        /** @description The rights of a key. */
        Role: ("agent" | "operator" | "operator-metadata" | "auditor" | "admin") | (string & {});
        /** @description How to replace a secret. */
        RotateBody: {
            /**
             * Format: int64
             * @description How long the old one stays valid, in seconds: a year at most.
             */
            overlapSeconds?: number | null;
        };
        /** @description How long the old secret stays valid. */
        RotateSubscriptionBody: {
            /**
             * Format: int64
             * @description In seconds, a year at most; `auth.rotation_overlap_s` unless said.
             * @default null
             */
            overlapSeconds?: number | null;
        };
        /** @description A subscription's new secret. */
        RotatedSecretView: {
            /**
             * Format: date-time
             * @description Until when deliveries carry the old signature too, RFC 3339.
             */
            oldValidUntil: string;
            /** @description The secret that deliveries are signed with from now on. */
            secret: string;
        };
        /** @description A replaced secret: one of the two, by its kind. */
        RotatedView: {
            /**
             * Format: date-time
             * @description Until when the old one counts too, RFC 3339.
             */
            oldValidUntil: string;
            /** @description Signs the agent's messages. */
            signingSecret?: string | null;
            /** @description The broker signs its deliveries to the agent with it. */
            webhookSecret?: string | null;
        };
        /** @description A value of a row that is not what the records say. */
        RowDifference: {
            /** @description By the records. */
            record?: string | null;
            /** @description In the row. */
            row?: string | null;
        };
        /** @description A missing member stays as it is now. */
        SafetyBody: {
            /** @description Exceptions, as `[[safety.exceptions]]` has them; all of them. */
            exceptions?: components["schemas"]["SafetyExceptionBody"][] | null;
            /** @description `enforce`, `observe` or `allow`: the action on a finding that no exception covers. */
            mode?: string | null;
            orders?: components["schemas"]["Orders"] | null;
            rules?: components["schemas"]["SafetyRulesBody"] | null;
        };
        /** @description An exception of the safety stage, as `[[safety.exceptions]]` has it. */
        SafetyExceptionBody: {
            /** @description For messages of this agent. */
            agent?: string | null;
            /** @description For this field of the message. */
            field?: string | null;
            /** @description `enforce`, `observe` or `allow`. */
            mode: string;
            orders?: components["schemas"]["Orders"] | null;
            /** @description For these rules and families; all of them where there is none. */
            rules?: string[];
            /** @description The tenant for which the exception holds. */
            tenant?: string | null;
            /** @description For messages to this agent. */
            to?: string | null;
            /** @description Until then, RFC 3339. */
            until?: string | null;
        };
        /** @description Safety rules, of the form of `config/safety-rules.json`. */
        SafetyRulesBody: {
            [key: string]: unknown;
        };
        /** @description The spending that a receiver reports. */
        SaidCost: {
            /**
             * Format: double
             * @description US dollars spent on the task so far.
             */
            costSpentSoFarUSD?: number | null;
            tokenSpent?: components["schemas"]["TokensView"] | null;
        } & {
            [key: string]: unknown;
        };
        /** @description Why a receiver gives up. */
        SaidError: string | components["schemas"]["SaidErrorObject"];
        /** @description Why a receiver gives up, as a code and in words. */
        SaidErrorObject: {
            /** @description Code of the receiver's own choice. */
            code?: string | null;
            /** @description Sentence for people on what failed. */
            message?: string | null;
        } & {
            [key: string]: unknown;
        };
        /** @description A payload schema for every contract that names it, in whatever version. */
        SchemaBody: {
            /** @description The schema. */
            schema: components["schemas"]["JsonSchema"];
            /** @description Its id in the registry. */
            schemaId: string;
        };
        /** @description The kind of a change at a place of a schema. A later version may have more. */
        SchemaChange: ("property-added" | "property-removed" | "required-added" | "required-removed" | "type-changed" | "narrowed" | "widened" | "incomparable" | "deprecated" | "annotation") | (string & {});
        /** @description One change of a schema. */
        SchemaChangeView: {
            /** @description The side that the change breaks. */
            breaks: components["schemas"]["BrokenSide"][];
            /** @description Kind of change that was found. */
            kind: components["schemas"]["SchemaChange"];
            /** @description By how much it makes the version number rise. */
            needs: components["schemas"]["VersionStep"];
            /** @description RFC 6901 pointer into the schema. */
            pointer: string;
            /** @description The meaning of the change, in a sentence for people. */
            reason: string;
        };
        /** @description The place of a schema. */
        SchemaRef: {
            /** @description Path under which the schema is served. */
            href: string;
            /** @description `handoff`, or `payloads/{schemaId}`. */
            name: string;
            /** @description Its version. */
            version: string;
        };
        /** @description Schemas, with where they are. */
        SchemasView: {
            /** @description One a version of the message's schema, and one a payload schema. */
            items: components["schemas"]["SchemaRef"][];
        };
        /** @description How much an erasure takes. */
        Scope: ("personal-data" | "messages") | (string & {});
        /** @description One piece of the context and where it comes from. */
        SegmentView: {
            /** @description The role that a turn of the conversation claims; `unknown` where it is none that is known. */
            claimedRole?: string;
            /** @description Safety rules that marked an order in it; the block fences the place. */
            orders?: string[];
            /** @description RFC 6901 pointer into the message, or into the group's page. */
            pointer: string;
            /** @description The heading above it. */
            section: string;
        };
        /** @description A login at the console, without its token. */
        SessionView: {
            /**
             * Format: date-time
             * @description When the session began, RFC 3339.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When the session ends, if it is used until then.
             */
            expiresAt: string;
            /** @description Public name of the key of the login. */
            keyId: string;
            /**
             * Format: date-time
             * @description The last request, to the minute.
             */
            lastSeenAt: string;
            /** @description The key's role at the login; the key's present role decides on access. */
            role: components["schemas"]["Role"];
            /**
             * Format: uuid
             * @description UUID of the session; it opens nothing.
             */
            sessionId: string;
            /** @description The name that the browser gives itself, 120 characters at most. */
            userAgent?: string | null;
        };
        /** @description How much a linter's finding weighs. A later version may have more. */
        Severity: ("error" | "warning") | (string & {});
        /** @description Items by severity, on all pages. */
        SeverityCounts: {
            critical: number;
            notice: number;
            warning: number;
        };
        /** @description Tokens that agents reported as used, summed up. */
        SpentTokensView: {
            /**
             * Format: int64
             * @description Tokens that the agents' models wrote.
             */
            completion: number;
            /**
             * Format: int64
             * @description Tokens that the agents' models read.
             */
            prompt: number;
        };
        /** @description An event in the standard format. */
        StandardEvent: components["schemas"]["AgentHandoffOccurredEvent"] | components["schemas"]["HandoffAcceptedEvent"] | components["schemas"]["HandoffRejectedEvent"] | components["schemas"]["HandoffRefusedEvent"] | components["schemas"]["HandoffCompletedEvent"] | components["schemas"]["HandoffReturnedEvent"] | components["schemas"]["HandoffInputRequiredEvent"] | components["schemas"]["HandoffInputProvidedEvent"] | components["schemas"]["HandoffGroupEndedEvent"] | components["schemas"]["HandoffRolledBackEvent"] | components["schemas"]["HandoffDeadLetteredEvent"] | components["schemas"]["HandoffEscalatedEvent"] | components["schemas"]["HandoffFailedEvent"] | components["schemas"]["HandoffExpiredEvent"] | components["schemas"]["HandoffCanceledEvent"] | components["schemas"]["HandoffStreamClosedEvent"] | components["schemas"]["HandoffStreamAbortedEvent"] | components["schemas"]["AgentEndpointDisabledEvent"] | components["schemas"]["AgentEndpointFailingEvent"] | components["schemas"]["TaskCompletedEvent"] | components["schemas"]["TaskCanceledEvent"] | components["schemas"]["TaskBudgetChangedEvent"] | components["schemas"]["AlertRaisedEvent"];
        /** @description A handoff message as the broker keeps and delivers it: values that were named as personal may be cut out, a refused message is as it came, and where the archive does not answer there is `{"unavailable": "cold"}` in its place. */
        StoredMessage: components["schemas"]["HandoffMessage"] | {
            [key: string]: unknown;
        };
        /** @description The status of the stream of a handoff in pieces. A later version may have more. */
        StreamStatus: ("OPEN" | "CLOSED" | "ABORTED") | (string & {});
        /** @description The stream of a handoff whose message comes in pieces. */
        StreamView: {
            /**
             * Format: int64
             * @description Bytes of its chunks.
             */
            bytes: number;
            /**
             * Format: date-time
             * @description When it ends unless a chunk comes, RFC 3339.
             */
            dueAt?: string | null;
            /** @description Whether it takes chunks. */
            open: boolean;
            /** @description Why it was aborted: a code. */
            reason?: string | null;
            /**
             * Format: int64
             * @description The last committed number; 0 before the first chunk.
             */
            seq: number;
            /** @description Whether the stream takes chunks, was closed or aborted. */
            status: components["schemas"]["StreamStatus"];
        };
        /** @description The answer to a submission. */
        SubmittedView: {
            context?: components["schemas"]["ContextView"] | null;
            group?: components["schemas"]["HandoffGroup"] | null;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /** @description Paths of related resources. */
            links: components["schemas"]["Links"];
            /** @description Why it ended badly, if it did while waited for. */
            reason?: string | null;
            receipt?: components["schemas"]["Receipt"] | null;
            /** @description The receiver's result, where the request waited for the end (`until=ended`) and there is one. */
            result?: unknown;
            /** @description `PENDING`, `NO_OP`, or what was waited for. */
            status: components["schemas"]["HandoffStatus"];
            stream?: components["schemas"]["StreamView"] | null;
            /**
             * Format: uuid
             * @description The last handoff that replaced it, if the broker gave the message to another agent during the wait:
             *     `status` and `reason` are those of that handoff.
             */
            successorId?: string | null;
            /**
             * Format: uuid
             * @description UUID of the handoff's task.
             */
            taskId: string;
            /** @description The parts of the message that were accepted and do not hold in full. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description A caller's description of a subscription. */
        SubscriptionBody: {
            /** @description On creation: the value of `Authorization` that the endpoint asks for. It is kept sealed and never shown again. */
            authorization?: string | null;
            /** @description A name for people. */
            description?: string | null;
            /** @description Whether events are delivered. */
            enabled?: boolean | null;
            /** @description Which types; an empty list means all. */
            eventTypes?: components["schemas"]["EventType"][] | null;
            filter?: components["schemas"]["FilterView"] | null;
            format?: components["schemas"]["EventFormat"] | null;
            /** @description The region of the endpoint; none: the broker's region. */
            region?: string | null;
            /**
             * @description On creation: it gets the events since then, in order; a cursor of the feed or an RFC 3339 time. By default, only the
             *     events to come.
             */
            since?: string | null;
            /** @description On creation: the value of `X-A2A-Notification-Token` that the endpoint asks for, kept likewise. */
            token?: string | null;
            /** @description The legal basis of the transfer of events to that region: a code. */
            transferBasis?: string | null;
            /** @description URL to which events are posted; needed on creation. */
            url?: string | null;
        };
        /** @description A subscription, without its secret. */
        SubscriptionView: {
            /**
             * Format: date-time
             * @description When it was made, RFC 3339.
             */
            createdAt: string;
            /** @description The names of the credentials that its endpoint asks for (`authorization`, `token`), never shown; absent where there are none. */
            credentialsSet?: string[];
            /** @description A name for people. */
            description: string;
            /** @description Why the broker switched it off: `ENDPOINT_GONE` or `FAILING`. */
            disabledReason?: string | null;
            /** @description Whether events are delivered. */
            enabled: boolean;
            /** @description Which types; empty: all. */
            eventTypes: components["schemas"]["EventType"][];
            /** @description The agent, task or handoff that it is limited to. */
            filter: components["schemas"]["FilterView"];
            /** @description How events are written. */
            format: components["schemas"]["EventFormat"];
            /** @description The agent whose subscription it is; absent: the operators'. */
            owner?: string | null;
            progress?: components["schemas"]["ProgressView"] | null;
            /** @description The region of the endpoint; none: the broker's region. */
            region?: string | null;
            /** @description The secret that deliveries are signed with: only in the answer that made it. */
            secret?: string | null;
            /**
             * Format: uuid
             * @description Its id.
             */
            subscriptionId: string;
            /** @description The legal basis of the transfer of events to its region: a code. */
            transferBasis?: string | null;
            /**
             * Format: date-time
             * @description When it was changed last, RFC 3339.
             */
            updatedAt: string;
            /** @description URL to which events are posted. */
            url: string;
            /** @description The parts of the subscription that do not hold, in the answer to its change; absent if there are none. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description All subscriptions of the tenant. */
        SubscriptionsView: {
            /** @description The subscriptions, by age. */
            items: components["schemas"]["SubscriptionView"][];
        };
        /** @description The sums of a task. At any time `grantedUSD = spentUSD + reservedUSD + remainingUSD - overdrawnUSD`. */
        SumsView: {
            /**
             * Format: double
             * @description The money that may be spent in all: the task's first budget, and the amounts that operators added.
             */
            grantedUSD: number;
            /**
             * Format: double
             * @description The money that agents report as spent beyond their budget.
             */
            overdrawnUSD: number;
            /**
             * Format: double
             * @description Neither spent nor set aside.
             */
            remainingUSD: number;
            /**
             * Format: double
             * @description The money that open handoffs set aside for their receivers.
             */
            reservedUSD: number;
            /**
             * Format: double
             * @description The money spent in all; never falls.
             */
            spentUSD: number;
            /** @description Tokens of all agents on the task. */
            tokens: components["schemas"]["SpentTokensView"];
        };
        /** @description A worker that takes a handoff over from one that is silent. */
        TakeoverBody: {
            /**
             * Format: int64
             * @description How often the broker will hear of the new holder. Without it the new lease cannot be taken over before it ends.
             */
            heartbeatIntervalMs?: number | null;
        };
        /** @description An allowlist that replaces the present one. */
        TargetsBody: {
            /** @description Agents' ids, and `type:<agentType>` for all agents of a type. */
            handoffTargets: string[];
        };
        /** @description Whom an agent may hand off to. */
        TargetsView: {
            /** @description The agent. */
            agentId: string;
            /** @description Agents by id, or `type:<agentType>`; empty: none. */
            handoffTargets: string[];
            /** @description Entries that match no agent; they are kept, and ignored at run time. */
            unknownTargets: string[];
            /** @description The same entries as warnings, each at its pointer; absent where there are none. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description A task's budget was changed by a person. */
        TaskBudgetChangedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description A code. */
                reason?: string;
                remainingUSD?: number;
                /** @description The task's status. */
                status?: string;
                /** Format: uuid */
                taskId: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "task.budget_changed";
        } & {
            [key: string]: unknown;
        };
        /** @description A task was withdrawn. */
        TaskCanceledEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description A code. */
                reason?: string;
                /** @description The task's status. */
                status?: string;
                /** Format: uuid */
                taskId: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "task.canceled";
        } & {
            [key: string]: unknown;
        };
        /** @description A task is done. */
        TaskCompletedEvent: {
            /** @description Its place in the tenant's feed. */
            cursor: string;
            data: {
                /** @description A code. */
                reason?: string;
                /** @description The task's status. */
                status?: string;
                /** Format: uuid */
                taskId: string;
            } & {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The event's id, the same at every delivery.
             */
            id: string;
            /**
             * Format: date-time
             * @description When it happened.
             */
            timestamp: string;
            /** @constant */
            type: "task.completed";
        } & {
            [key: string]: unknown;
        };
        /** @description The cost of a task. */
        TaskCostView: {
            /** @description The cost by agent. */
            agents: components["schemas"]["AgentCostView"][];
            /** @description By handoff, oldest first: each after the one that it follows. */
            hops: components["schemas"]["HopCostView"][];
            /** @description Its status. */
            status: components["schemas"]["TaskStatus"];
            sums?: components["schemas"]["SumsView"] | null;
            /**
             * Format: uuid
             * @description UUID of the task.
             */
            taskId: string;
        };
        /** @description Which tasks to cancel: those not ended that fit all that is said. */
        TaskSelection: {
            /**
             * @description Begun at this time or later, RFC 3339.
             * @default null
             */
            from?: string | null;
            /**
             * @description Held by this agent.
             * @default null
             */
            holder?: string | null;
            /**
             * @description Only these, by their UUIDs.
             * @default null
             */
            ids?: string[] | null;
            /**
             * @description In this state, one of a task that has not ended.
             * @default null
             */
            status?: string | null;
            /**
             * @description Begun before this time, RFC 3339.
             * @default null
             */
            to?: string | null;
            /**
             * @description For the user with this reference.
             * @default null
             */
            userRef?: string | null;
        };
        /** @description The status of a task. A later version may have more. */
        TaskStatus: ("PENDING_HANDOFF" | "HANDING_OFF" | "RUNNING" | "ESCALATED" | "COMPLETED" | "CANCELED") | (string & {});
        /** @description A task and its state. */
        TaskView: {
            checkpoint?: components["schemas"]["CheckpointRefView"] | null;
            checkpointState?: components["schemas"]["CheckpointState"] | null;
            /**
             * Format: double
             * @description US dollars that may still be spent on it.
             */
            costBudgetRemainingUSD: number;
            /**
             * Format: double
             * @description US dollars that the task has cost so far: the sum of its hops, as in `/cost` and in the trace.
             */
            costSpentSoFarUSD: number;
            /**
             * Format: date-time
             * @description When it was first seen, RFC 3339.
             */
            createdAt: string;
            /**
             * Format: int64
             * @description Failures since it last went well: a handoff completed or handed on, or a person decided. Refused submissions
             *     count, and the third asks a person.
             */
            failures: number;
            /**
             * Format: int64
             * @description Handoffs committed on it.
             */
            handoffs: number;
            /** @description Which agent has it. */
            holder: string;
            /** @description The agent that began it, where that is known. */
            openedBy?: string | null;
            /** @description Its status. */
            status: components["schemas"]["TaskStatus"];
            /**
             * Format: uuid
             * @description UUID of the task.
             */
            taskId: string;
            /**
             * Format: double
             * @description US dollars that operators added.
             */
            toppedUpUSD: number;
            /**
             * Format: int64
             * @description Handoffs that wait for delivery.
             */
            undelivered: number;
            /**
             * Format: date-time
             * @description When it last changed, RFC 3339.
             */
            updatedAt: string;
            /** @description The parts of the request that do not hold in full. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description How the tokens of a message were counted. A later version may have more. */
        Tokenizer: ("o200k" | "cl100k" | "estimate") | (string & {});
        /** @description Tokens by direction: read and written. */
        TokensView: {
            /**
             * Format: int64
             * @description Tokens that the agents' models wrote.
             */
            completion: number;
            /**
             * Format: int64
             * @description Tokens that the agents' models read.
             */
            prompt: number;
        };
        /** @description Tools for a language model. */
        ToolsView: {
            /** @description The tools, in the form that was asked for. */
            tools: components["schemas"]["HandoffTool"][];
        };
        /** @description An agent's part in a task. */
        TraceAgent: {
            /** @description Id of the agent. */
            agentId: string;
            /**
             * Format: int64
             * @description Handoffs that it received.
             */
            received: number;
            /**
             * Format: int64
             * @description Handoffs that it sent.
             */
            sent: number;
        };
        /** @description An agent's spending. */
        TraceAgentCost: {
            /** @description Id of the agent whose costs these are. */
            agentId: string;
            /** @description Tokens used, read and written. */
            tokens: components["schemas"]["SpentTokensView"];
            /**
             * Format: double
             * @description The amount spent, in US dollars.
             */
            usd: number;
        };
        /** @description A message against its receiver's context window, and how it grew. */
        TraceContextSize: {
            /** @description The action on it. */
            action: components["schemas"]["ContextAction"];
            /**
             * Format: int64
             * @description Tokens more than in the handoff before it.
             */
            growth?: number;
            /**
             * Format: int64
             * @description The most tokens of a message to it.
             */
            limit?: number;
            /** @description The tokens by part. */
            parts: components["schemas"]["ContextParts"];
            /** @description How the tokens were counted. */
            tokenizer: components["schemas"]["Tokenizer"];
            /**
             * Format: int64
             * @description Tokens of the message.
             */
            tokens: number;
            /**
             * Format: int64
             * @description The receiver's context window, in tokens.
             */
            window?: number;
        };
        /** @description The cost of a task, by its records. */
        TraceCost: {
            /** @description The cost by agent. */
            perAgent: components["schemas"]["TraceAgentCost"][];
            /** @description By handoff, in log order. */
            perHop: components["schemas"]["TraceHopCost"][];
            /**
             * Format: double
             * @description The plain sum of the costs that the messages stated, in US dollars.
             */
            reportedSumUSD: number;
            /** @description Tokens of all agents on the task. */
            tokens: components["schemas"]["SpentTokensView"];
            /**
             * Format: double
             * @description In all, in US dollars.
             */
            totalUSD: number;
        };
        /** @description A handoff as a trace tells of it. */
        TraceHandoff: {
            /**
             * Format: date-time
             * @description When the receiver accepted, RFC 3339.
             */
            acceptedAt?: string | null;
            /**
             * Format: int32
             * @description Delivery attempts begun so far.
             */
            attempts?: number;
            /**
             * Format: date-time
             * @description When it was committed, RFC 3339.
             */
            committedAt: string;
            /** @description The message against its receiver's context window. */
            context?: components["schemas"]["TraceContextSize"];
            contract: components["schemas"]["RecordContract"] | null;
            cost: components["schemas"]["HandoffCost"] | null;
            costTracking: components["schemas"]["RecordCost"] | null;
            /**
             * Format: date-time
             * @description When it ended, RFC 3339.
             */
            endedAt?: string | null;
            fromAgent: components["schemas"]["RecordParty"] | null;
            /** @description Its place among the handoffs of a message to several receivers. */
            group?: components["schemas"]["RecordGroup"];
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: int64
             * @description Its record's place in the log.
             */
            leafIndex: number;
            /** @description Why its message is not there any more. */
            messageGone?: components["schemas"]["GoneReason"];
            /**
             * Format: uuid
             * @description The handoff before it.
             */
            parentHandoffId: string | null;
            /** @description Why it ended badly; null for an agent that has no part in it. */
            reason?: string | null;
            /** @description Between which regions the data went, and on what basis. */
            residency?: components["schemas"]["RecordResidency"];
            /**
             * @description Members in which the database's row differs from the records, each with both values (`row`, `record`). The entry has
             *     the record's, and `verification` names the fault `state`.
             */
            rowDiffers?: {
                [key: string]: components["schemas"]["RowDifference"];
            };
            /** @description Its status. */
            status?: components["schemas"]["HandoffStatus"];
            /** @description Its stream, where the message comes in pieces; the chunks are at /handoffs/{handoffId}/chunks. */
            stream?: components["schemas"]["RecordStream"];
            /** @description The description of the task; null if the message is gone or the caller may not read it. */
            taskDescription: string | null;
            /**
             * Format: uuid
             * @description UUID of the task.
             */
            taskId: string;
            /** @description The same in short, where the message has it: what a task is about whose first handoff is marked `INITIAL`. */
            taskSummary?: string;
            toAgent: components["schemas"]["RecordParty"] | null;
        };
        /** @description The cost of a handoff. */
        TraceHopCost: {
            /** @description Id of the agent that sent it. */
            agentId: string;
            /**
             * Format: double
             * @description The operator's cost of a model's summary of the message; not a part of the task's cost.
             */
            compressionUSD?: number;
            /**
             * Format: uuid
             * @description UUID of the handoff.
             */
            handoffId: string;
            /**
             * Format: double
             * @description The receiver's other spending, in US dollars; absent in records of versions without books.
             */
            receiverSpentUSD?: number;
            /**
             * Format: double
             * @description The sender's spending before the handoff, in US dollars; absent in records of versions without books.
             */
            senderSpentUSD?: number;
            /** @description Tokens used, read and written. */
            tokens: components["schemas"]["SpentTokensView"];
            /**
             * Format: double
             * @description The amount spent, in US dollars.
             */
            usd: number;
        };
        /** @description A record of the log as a trace shows it: with its hash, and with its content where the caller may read it. */
        TraceRecord: {
            /** @description The actor that caused it. */
            actor: components["schemas"]["RecordActor"];
            /** @description The data to which a `STATE_ADOPTED` record commits. */
            adoption?: components["schemas"]["RecordAdoption"];
            /**
             * Format: int64
             * @description Attempts at delivery under a contract, by the time of the verdict.
             */
            attempts?: number;
            /** @description The contract's name for the edge's events. */
            auditEvent?: string;
            /** @description The changes of an administrative record. */
            changes?: components["schemas"]["RecordChange"][];
            /** @description `sha256:…`, a commitment to the checkpoint. */
            checkpointCommitment?: string;
            /** @description The result of the message's compression. */
            compression?: components["schemas"]["RecordCompression"];
            /**
             * @description The content: free text and values of the actor. Absent if there is none, if the caller may not read it,
             *     or if it was erased; a message is shown with its handoff.
             */
            content?: unknown;
            /** @description The message against its receiver's context window. */
            context?: components["schemas"]["ContextView"];
            /** @description The contract that ruled the edge, or that was put. */
            contract?: components["schemas"]["RecordContract"];
            /** @description The costs that the message stated. */
            costAtHandoff?: components["schemas"]["RecordCost"];
            /** @description The erasure that the record is about. */
            erasure?: components["schemas"]["RecordErasure"];
            /** @description Who sent, as it was then. */
            fromAgent?: components["schemas"]["RecordParty"];
            /** @description The handoff's place in a handoff to several receivers; or what that came to. */
            group?: components["schemas"]["RecordGroup"];
            /**
             * Format: uuid
             * @description UUID of the handoff, where the event concerns one.
             */
            handoffId?: string;
            /** @description Kind of the event that it records. */
            kind: components["schemas"]["RecordKind"];
            /**
             * Format: int64
             * @description Its place in the log, dense from 0.
             */
            leafIndex: number;
            /** @description The legal hold that the record is about. */
            legalHold?: components["schemas"]["RecordHold"];
            /** @description Id of the log that holds it. */
            logId: string;
            /** @description `sha256:…`, a commitment to the message, or to what the actor said. */
            messageCommitment?: string;
            /** @description The external classifier's opinion of a message after its commit. */
            opinion?: components["schemas"]["RecordClassifier"];
            /**
             * Format: uuid
             * @description The handoff before it.
             */
            parentHandoffId?: string;
            /** @description The payload schema that was registered. */
            payloadSchema?: components["schemas"]["RecordContract"];
            /** @description `sha256:…`, one commitment a person. */
            personalDataCommitments?: string[];
            /** @description `sha256:…` over the record before; null in the first. */
            previousRecordHash: string | null;
            /**
             * Format: int32
             * @description The number of the receiver's question, from 1; of a question and of its answer.
             */
            question?: number;
            /** @description Why it happened: a code. */
            reason?: string;
            /** @description `sha256:…` over the record: the leaf's hash. */
            recordHash: string;
            /** @description Between which regions the data went, and on what basis. */
            residency?: components["schemas"]["RecordResidency"];
            /** @description The data that were removed because they were past their time. */
            retention?: components["schemas"]["RecordRetention"];
            /** @description The safety stage's facts about a message that passed. */
            safety?: components["schemas"]["RecordSafety"];
            /** @description The amounts that the task's budget counted with it. */
            spent?: components["schemas"]["RecordSpent"];
            /** @description The status that resulted. */
            status?: string;
            /** @description The stream with this record, where the message comes in pieces. */
            stream?: components["schemas"]["RecordStream"];
            /**
             * Format: uuid
             * @description UUID of the task, where the event concerns one.
             */
            taskId?: string;
            /** @description The tenant that owns the log. */
            tenant: string;
            /**
             * Format: date-time
             * @description When, RFC 3339 with microseconds.
             */
            time: string;
            /** @description Who received, as it was then. */
            toAgent?: components["schemas"]["RecordParty"];
            /**
             * Format: int64
             * @description The version of the record's form: 1.
             */
            v: number;
        } & {
            [key: string]: unknown;
        };
        /** @description Everything that happened on a task. */
        TraceView: {
            /** @description The agents that had a part; absent in a window. */
            agents?: components["schemas"]["TraceAgent"][];
            /** @description The cost of the task, by its records; absent in a window. */
            cost?: components["schemas"]["TraceCost"];
            /** @description One entry a boundary, in log order; in a window newest first. */
            handoffs: components["schemas"]["TraceHandoff"][];
            /** @description Give this as `cursor` for the next window; absent on the last, and in a whole trace. */
            nextCursor?: string;
            /** @description Every record of the task, in log order; in a window those of the page, newest first. */
            records: components["schemas"]["TraceRecord"][];
            status: components["schemas"]["TaskStatus"] | null;
            /**
             * Format: uuid
             * @description UUID of the task.
             */
            taskId: string;
            /** @description The evidence that was recomputed. */
            verification: components["schemas"]["VerificationView"];
        };
        /** @description A transport, as `GET /transports` shows it. */
        TransportDescription: {
            /** @description Members of `delivery.config`. */
            configFields: components["schemas"]["TransportField"][];
            /** @description Members of `delivery.credentials`. */
            credentialFields: components["schemas"]["TransportField"][];
            /** @description Its purpose, in a sentence or two. */
            description: string;
            /** @description Whether the broker takes handoffs in by the transport. */
            intake: boolean;
            /** @description Name for people. */
            label: string;
            /** @description Largest message in bytes, headers included; a larger body goes as a claim check. Absent: no limit of its own. */
            maxMessageBytes?: number | null;
            /** @description Whether receivers may send verdicts back by the transport. */
            replyChannel: boolean;
            /** @description The value of an agent's `delivery.mode`. */
            type: string;
        };
        /** @description One field of a transport's `config` or `credentials`. */
        TransportField: {
            default?: components["schemas"]["FieldDefault"] | null;
            /** @description The effect of the value. */
            description: string;
            /** @description The member's name. */
            key: string;
            /** @description Name for people. */
            label: string;
            /**
             * Format: int64
             * @description Largest value of an `integer`.
             */
            maximum?: number | null;
            /**
             * Format: int64
             * @description Smallest value of an `integer`.
             */
            minimum?: number | null;
            /** @description The values of a `choice`. */
            options?: string[];
            /** @description Regular expression that the whole text matches. */
            pattern?: string | null;
            /** @description Whether an agent must give it. */
            required: boolean;
            /** @description Whether the value is a secret: sealed, and never read back. */
            sensitive: boolean;
            /** @description Type of the value. */
            type: components["schemas"]["FieldKind"];
        };
        /** @description The transports of this broker. */
        TransportsView: {
            /** @description One description for each value of `delivery.mode` that this broker serves. */
            items: components["schemas"]["TransportDescription"][];
        };
        /** @description A tree head with what it says. */
        TreeHeadView: {
            /** @description Id of the log whose tree it is. */
            logId: string;
            /** @description The name of the log in its tree heads, and its keys. */
            origin: string;
            /** @description The tree's root (RFC 6962 §2.1), in base64. */
            rootHash: string;
            /** @description The signed note (C2SP tlog-checkpoint). */
            treeHead: string;
            /**
             * Format: int64
             * @description Records in the tree.
             */
            treeSize: number;
        };
        /** @description A key that signs tree heads, or did. */
        TreeKeyView: {
            /**
             * Format: date-time
             * @description Since when, RFC 3339.
             */
            createdAt: string;
            /** @description It signs the tree heads of now. */
            current: boolean;
            /** @description `name+hash+base64`, as C2SP signed-note has it (a "vkey"). */
            key: string;
            /**
             * Format: date-time
             * @description Until when; what it signed before stays signed.
             */
            retiredAt?: string | null;
        };
        /** @description The keys of a log. */
        TreeKeysView: {
            /** @description The keys, oldest first. */
            keys: components["schemas"]["TreeKeyView"][];
        };
        /** @description A turn. */
        Turn: {
            /** @description Guarded block, as a model is to read it. */
            content: string;
            /** @description Always `user`. */
            role: string;
        };
        /** @description A user to look for. */
        UserSearchBody: {
            /** @description The user's id, as senders write it into `userId`. */
            userId: string;
        };
        /** @description A user's reference, and when something was last committed for it. */
        UserView: {
            /**
             * Format: date-time
             * @description When the newest handoff for the user was committed, RFC 3339; absent where there is none.
             */
            lastHandoffAt?: string | null;
            /**
             * Format: date-time
             * @description When the newest task with a handoff for the user began, RFC 3339; absent where there is none.
             */
            lastTaskAt?: string | null;
            /** @description The reference, for `userRef` of lists and costs. It is a keyed hash, so the id cannot be computed from it. */
            userRef: string;
        };
        /** @description The gate's answer. */
        ValidationView: {
            /** @description Everything that was found. */
            failures?: components["schemas"]["FailureView"][];
            reason?: components["schemas"]["ErrorCode"] | null;
            /** @description Whether the gate would accept the message. */
            valid: boolean;
            /** @description The parts of the message that would be accepted and not hold in full. */
            warnings?: components["schemas"]["WarningView"][];
        };
        /** @description The kind of a change that a hop made to a value. A later version may have more. */
        ValueChange: ("set" | "changed" | "removed" | "erased") | (string & {});
        /** @description The gate's verdict on a message. */
        VerdictView: {
            /** @description The contract that rules, with its version; of several receivers that of the first edge. */
            contract: string | null;
            /** @description Of a message to several receivers that passes, the contract of each edge in the list's order; null where none rules. */
            contracts?: (string | null)[] | null;
            /** @description Findings of the gate on the message. */
            findings: components["schemas"]["GateFinding"][];
            /** @description Safety rules that fired and are only recorded. */
            observed: components["schemas"]["ObservedRule"][];
            reason: components["schemas"]["ErrorCode"] | null;
            /** @description Whether the message passes the gate. */
            verdict: components["schemas"]["WhatIfVerdict"];
        };
        /** @description The parts of a task's evidence that were recomputed while it was read. */
        VerificationView: {
            /**
             * Format: int64
             * @description Contents whose commitment was recomputed.
             */
            contents: number;
            /**
             * Format: int64
             * @description Contents that are not there any more.
             */
            erased: number;
            firstBad: components["schemas"]["RecordFault"] | null;
            /** @description Nothing was found wrong. */
            ok: boolean;
            /**
             * Format: int64
             * @description Of these, what was past its time; absent where there is none.
             */
            purged?: number;
            /**
             * Format: int64
             * @description Records whose hash was recomputed.
             */
            records: number;
            /**
             * Format: int64
             * @description Contents that the archive does not give; absent where there is none.
             */
            unavailable?: number;
        };
        VersionRange: string;
        /** @description By how much a version number has to rise. A later version may have more. */
        VersionStep: ("patch" | "minor" | "major") | (string & {});
        /** @description Why a task waits, by how much it asks of a person: the first of a task's waits is the one to look at. */
        WaitCause: ("ESCALATED" | "DEAD_LETTERED" | "RECEIVER_DELETED" | "ENDPOINT_DISABLED" | "RECEIVER_PAUSED" | "BUDGET_USED_UP" | "IDLE" | "RETRYING" | "NOT_FETCHED" | "QUESTION_OPEN" | "STREAM_OPEN" | "VERDICT_DUE" | "RECEIVER_WORKS" | "DELIVERY_DUE" | "BEHIND" | "ENDED") | (string & {});
        /** @description One reason why a task does not go on. */
        WaitView: {
            /**
             * Format: int32
             * @description Attempts at its delivery begun so far.
             */
            attempts: number;
            /** @description Who ends the wait. */
            awaited: components["schemas"]["AwaitedKind"];
            /** @description The agent that is waited for. */
            awaitedAgentId?: string | null;
            /** @description The reason as a code. */
            cause: components["schemas"]["WaitCause"];
            /**
             * Format: uuid
             * @description The handoff that waits, or the last one.
             */
            handoffId?: string | null;
            /** @description Why the last attempt failed, or the handoff ended: a code. */
            lastError?: string | null;
            next?: components["schemas"]["NextEventView"] | null;
            /** @description Requests that end the wait; an operator's key may make them. */
            remedies: components["schemas"]["RemedyView"][];
            /** @description The reason in one sentence. */
            sentence: string;
            /** @description When the wait began, RFC 3339. */
            since: string;
        };
        /** @description A part that the broker accepts and that does not hold in full; docs/warnings.md explains each. A later version may have more. */
        WarningCode: ("WITHOUT_EFFECT" | "UNKNOWN_AGENT" | "ENDPOINT_REFUSED" | "NO_ROOM" | "NOTHING_HELD" | "CONTRACT_FINDING" | "BELOW_MINIMUM_LEVEL" | "CONTRACT_UNKNOWN" | "CLAUSE_NOT_ENFORCED" | "DEDUPE_KEY_ABSENT" | "TRACE_ID_ABSENT" | "RESIDENCY_CROSSING" | "AGENT_VERSION_MISMATCH" | "SCHEMA_DOWNGRADED" | "TRACE_RESTARTED" | "CREDENTIAL_FOUND" | "CONTEXT_OVER_LIMIT" | "EMBEDDED_BINARY" | "ORDER_IN_DATA" | "OPINION_PENDING" | "UNREADABLE") | (string & {});
        /** @description A shortfall that refuses nothing: something was taken and does not hold in full. */
        WarningView: {
            /** @description Its code; `docs/warnings.md` explains each. */
            code: components["schemas"]["WarningCode"];
            /** @description The part that does not hold, and the part that does. */
            message: string;
            /** @description RFC 6901 pointer into the body. */
            pointer: string;
        };
        /** @description The question: how other rules would decide. */
        WhatIfBody: {
            /** @description The candidate; at least one member. */
            candidate: components["schemas"]["CandidateBody"];
            /**
             * Format: int64
             * @description Judge so many of the newest open dead letters, 0 to 10 000; 500 unless said.
             */
            deadLetters?: number | null;
            /**
             * Format: int64
             * @description Judge so many of the newest handoffs, 0 to 10 000; 500 unless said.
             */
            handoffs?: number | null;
            /**
             * Format: int64
             * @description Judge for so many seconds, 1 to 60; 10 unless said.
             */
            seconds?: number | null;
        };
        /** @description The difference between two verdicts on a message. A later version may have more. */
        WhatIfChange: ("newlyRefused" | "newlyPassed" | "refusedDifferently" | "observedDifferently") | (string & {});
        /** @description The answers that the candidate would give to some messages, counted. */
        WhatIfCounts: {
            /** @description All that were asked for, or all that there are, were looked at in the time. */
            complete: boolean;
            /** @description Messages that were examined. */
            examined: number;
            /** @description Are refused now, and would pass. */
            newlyPassed: number;
            /** @description Pass now, and would be refused. */
            newlyRefused: number;
            /** @description Messages that cannot be replayed. */
            notReplayable: components["schemas"]["NotReplayable"];
            /** @description Pass either way, and something else is recorded. */
            observedDifferently: number;
            /** @description Newly refused messages by the primary reason, a code. */
            reasons: {
                [key: string]: number;
            };
            /** @description Refused under the present rules, whatever was said then. */
            refusedAtPresent: number;
            /** @description Are refused either way, for something else. */
            refusedDifferently: number;
            /** @description Messages that were judged under both rules. */
            replayed: number;
            /** @description As it is now. */
            same: number;
        };
        /** @description The gate's verdict. A later version may have more. */
        WhatIfVerdict: ("pass" | "refuse") | (string & {});
        /** @description The answer that the candidate would give. */
        WhatIfView: {
            /** @description Each message of which something else would be said. */
            changed: components["schemas"]["ChangedVerdict"][];
            /** @description Of the newest open dead letters. */
            deadLetters: components["schemas"]["WhatIfCounts"];
            /** @description Of the newest handoffs. */
            handoffs: components["schemas"]["WhatIfCounts"];
        };
        /** @description Why a task does not go on. */
        WhyView: {
            /** @description The first reason's sentence. */
            sentence: string;
            /** @description Its status. */
            status: components["schemas"]["TaskStatus"];
            /**
             * Format: uuid
             * @description UUID of the task.
             */
            taskId: string;
            /** @description All reasons, the most urgent one first; at least one. */
            waits: components["schemas"]["WaitView"][];
        };
        /** @description A cosigned head. */
        WitnessedHeadView: {
            /**
             * Format: int64
             * @description Records in its tree.
             */
            treeSize: number;
            /** @description Names of the witnesses that cosigned it. */
            witnesses: string[];
        };
    };
    responses: {
        /** @description The store is away, or the broker takes no more requests */
        Away: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
        /** @description Not JSON, or a malformed header */
        BadBody: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
        /** @description Overloaded, or the store is away: nothing was written */
        Busy: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
        /** @description No valid key */
        NoKey: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
        /** @description Not application/json, or in a Content-Encoding other than those that the answer's Accept-Encoding names */
        NotJson: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
        /** @description Any other refusal: its `code` says why */
        Refused: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
        /** @description The body is too large, as it is or decoded */
        TooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["ProblemDetails"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
/** The operations of the API's document, by id. */
export interface operations {
    listAgents: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All agents, by id */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentsView"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    createAgent: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        /** @description An agent */
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentSpec"];
            };
        };
        responses: {
            /** @description The agent, with `apiKey`, `signingSecret` and `webhookSecret` */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedAgentView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The id is taken */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The agent does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    matchAgents: {
        parameters: {
            query?: {
                /** @description Agents that can do this. */
                capability?: string;
                /** @description Agents whose names, capabilities, description or examples fit this text. */
                task?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agents, fifty at most */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MatchView"];
                };
            };
            /** @description Neither capability nor task */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agent, without its secrets; `unknownTargets` lists allowlist entries that fit no agent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    deleteAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Gone */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    patchAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        /** @description The members to change */
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentSpec"];
            };
        };
        responses: {
            /** @description The agent as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The change does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    testDelivery: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The result: `delivered` is false if it failed, with the setting that is wrong and the server's answer */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeliveryTestView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The Idempotency-Key was used for another request */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getHandoffTargets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The allowlist */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TargetsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    putHandoffTargets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        /** @description The list; a bare array is taken too */
        requestBody: {
            content: {
                "application/json": components["schemas"]["TargetsBody"];
            };
        };
        responses: {
            /** @description The allowlist as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TargetsView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description Not a list of targets */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    addHandoffTarget: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The agent's id */
                agentId: string;
                /** @description An agent's id, or `type:<agentType>` */
                target: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The allowlist as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TargetsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent, or not a target */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The list is full */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    removeHandoffTarget: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
                /** @description An agent's id, or `type:<agentType>` */
                target: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The allowlist as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TargetsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent, or not a target */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The list is full */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getHandoffTool: {
        parameters: {
            query: {
                /** @description `openai` (chat completions), `anthropic` (messages) or `mcp` (tools/list). */
                style: "openai" | "anthropic" | "mcp";
            };
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tools in that form; none if the agent reaches no other agent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolsView"];
                };
            };
            /** @description No style, or an unknown one */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    pollInbox: {
        parameters: {
            query?: {
                /** @description Seconds to wait for a handoff when there is none, up to 60. */
                wait?: number;
                /** @description Handoffs to claim at most, 0 to 100; 1 unless said. With 0 the poll gives returns and questions alone. */
                max?: number;
            };
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The claimed handoffs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InboxView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not this agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The agent takes its handoffs by webhook */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The agent polls too often at once */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    rotateSecret: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The agent's id */
                agentId: string;
                /** @description `signing` or `webhook` */
                kind: string;
            };
            cookie?: never;
        };
        /** @description How long the old secret stays valid */
        requestBody: {
            content: {
                "application/json": components["schemas"]["RotateBody"];
            };
        };
        responses: {
            /** @description The new secret, shown this once */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RotatedView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent or secret */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Changed meanwhile */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getAllowlist: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Every agent, and every entry of every list */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AllowlistView"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listAttention: {
        parameters: {
            query?: {
                /** @description Only what waits for this agent, or its messages. */
                agentId?: string;
                /** @description Only items of this kind. */
                kind?: string;
                /** @description Only items of this severity: `critical`, `warning` or `notice`. */
                severity?: string;
                /** @description Only items whose oldest wait is at least this old, in milliseconds. */
                minAgeMs?: number;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Items a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttentionPageView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getCheckpointNote: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A C2SP tlog-checkpoint */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    listPublishedHeads: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The places, and the newest cosigned head */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PublishedHeadsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    listTreeKeys: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Every key, also those that were replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TreeKeysView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    getLogCheckpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As receipts and tree heads have it */
                logId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A C2SP tlog-checkpoint */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description No valid key, and `audit.public` is off */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such log, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    getLogTile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As receipts and tree heads have it */
                logId: string;
                /** @description As at `/audit/tile/{path}` */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Hashes of 32 bytes, or records each after its length in two bytes */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            /** @description No valid key, and `audit.public` is off, or records are asked for and `audit.public_entries` is off */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such log, or not the caller's, or no such tile (yet) */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    getConsistencyProof: {
        parameters: {
            query: {
                /** @description Records of the earlier tree. */
                from: number;
                /** @description Records of the later tree; all that the log has unless said. */
                to?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The proof (RFC 6962 §2.1.2) */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ConsistencyView"];
                };
            };
            /** @description A malformed parameter, or a size out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    getInclusionProof: {
        parameters: {
            query?: {
                /** @description The record's place. One of `leafIndex`, `recordHash` and `handoffId` is needed. */
                leafIndex?: number;
                /** @description `sha256:…`; found among the newest 65 536 records of the tree. */
                recordHash?: string;
                /** @description The handoff whose commit the record tells of. */
                handoffId?: string;
                /** @description Records of the tree; all that the log has unless said. */
                treeSize?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The proof (RFC 6962 §2.1.1) */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InclusionView"];
                };
            };
            /** @description A malformed parameter, or a size or index out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such record */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    listRecords: {
        parameters: {
            query?: {
                /** @description The first record's place; 0 unless said. The log's size asks for what comes next. */
                from?: number;
                /** @description Records a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page. Each `record` has exactly the bytes that were hashed: SHA-256 over a zero byte and these is `recordHash` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RecordsView"];
                };
            };
            /** @description A malformed parameter, or `from` beyond the log's end */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    getTile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `<L>/<N>[.p/<W>]` for hashes, `entries/<N>[.p/<W>]` for records; `<N>` in groups of three digits: `x001/x234/067` */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Hashes of 32 bytes, or records each after its length in two bytes */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The log has no such tile (yet) */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    getTreeHead: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tree head; with `Accept: text/plain` the signed note alone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TreeHeadView"];
                    "text/plain": string;
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    listCaps: {
        parameters: {
            query?: {
                /** @description This agent's; the whole tenant's unless said. */
                agentId?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The caps */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CapsView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    putCap: {
        parameters: {
            query?: {
                /** @description This agent's; the whole tenant's unless said. */
                agentId?: string;
            };
            header?: never;
            path: {
                /** @description An ISO 8601 duration from PT1M to P31D */
                window: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CapBody"];
            };
        };
        responses: {
            /** @description The cap as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CapView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    deleteCap: {
        parameters: {
            query?: {
                /** @description This agent's; the whole tenant's unless said. */
                agentId?: string;
                /** @description `usd` or `tokens`: only what it holds of that; all of it unless said. */
                unit?: string;
            };
            header?: never;
            path: {
                /** @description An ISO 8601 duration from PT1M to P31D */
                window: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No operator set such a cap */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    readClaim: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description As the link has it */
                token: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The bytes that its signature covers: the message, or the request of SW4RM for a receiver that asks for that form */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StoredMessage"];
                };
            };
            /** @description The link was not made by this broker, or has expired; or the message was erased */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listContracts: {
        parameters: {
            query?: {
                /** @description Only contracts with this source. */
                source?: string;
                /** @description Only contracts with this target. */
                target?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The contracts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ContractsView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    lintContracts: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description One contract, or `{contracts: [contract, or its text], registry?}`, as JSON or YAML */
        requestBody: {
            content: {
                "application/json": components["schemas"]["LintBody"];
            };
        };
        responses: {
            /** @description The linter's findings */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LintView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description Not what can be linted */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getContract: {
        parameters: {
            query?: {
                /** @description A semver version; the highest unless said. */
                version?: string;
            };
            header?: never;
            path: {
                /** @description The contract's id */
                contractId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The contract, with `meta`: hash, time, all versions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ContractView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such contract or version */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    putContract: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The contract's id, kebab-case */
                contractId: string;
            };
            cookie?: never;
        };
        /** @description The contract (docs/contracts.md), as `application/json` or `application/yaml` */
        requestBody: {
            content: {
                "application/json": components["schemas"]["ContractDocument"];
            };
        };
        responses: {
            /** @description It was there already */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ContractView"];
                };
            };
            /** @description The contract, with `meta` and the linter's `level`, `missing` and `findings` in it, and `warnings`: what is taken and does not hold in full */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ContractView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description This version has another content */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description A clause cannot be enforced */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listCosts: {
        parameters: {
            query?: {
                /** @description Only what was said at this time or later, RFC 3339. */
                from?: string;
                /** @description Only what was said before this time, RFC 3339. */
                to?: string;
                /** @description Only what this agent spent. */
                agentId?: string;
                /** @description Only on edges from this agent. */
                fromAgent?: string;
                /** @description Only on edges to this agent. */
                toAgent?: string;
                /** @description Only on this task. */
                taskId?: string;
                /** @description Only of handoffs for the user with this reference; `POST /users/search` gives it. */
                userRef?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lines, and all together */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CostsView"];
                };
            };
            /** @description A malformed parameter, or too much for one answer: ask for a shorter window */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getDataSubject: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The person's id, as senders wrote it */
                subjectId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Each datum with its record, handoff and task, and where it was delivered to */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AccessReportView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Nothing is or was held on this person */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    eraseDataSubject: {
        parameters: {
            query?: {
                /**
                 * @description `personal-data` (unless said), or `messages`: all contents and checkpoints of the tasks that the person's data
                 *     came with, too. It may follow an erasure of the scope `personal-data`.
                 */
                scope?: string;
            };
            header?: never;
            path: {
                /** @description The person's id, as senders wrote it */
                subjectId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EraseBody"];
            };
        };
        responses: {
            /** @description Erased: the certificate */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErasureView"];
                };
            };
            /** @description Under way; Location says where it can be watched */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErasureView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Nothing is or was held on this person */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A legal hold forbids it, or an erasure of a narrower scope came before it */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getErasure: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The person's id, as senders wrote it */
                subjectId: string;
                /** @description The erasure's UUID */
                erasureId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The erasure */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErasureView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such erasure of this person */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listDeadLetters: {
        parameters: {
            query?: {
                /** @description `OPEN`, `RELEASED` or `DISCARDED`. */
                status?: string;
                /** @description Only of this task. */
                taskId?: string;
                /** @description With this primary reason. */
                reason?: string;
                /** @description Only from this sender. */
                fromAgent?: string;
                /** @description Only to this receiver. */
                toAgent?: string;
                /** @description Only kept at this time or later, RFC 3339. */
                from?: string;
                /** @description Only kept before this time, RFC 3339. */
                to?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_DeadLetterView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    discardDeadLetters: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BulkBody"];
            };
        };
        responses: {
            /** @description The result of each */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    releaseDeadLetters: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BulkBody"];
            };
        };
        responses: {
            /** @description The result of each */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getDeadLetter: {
        parameters: {
            query?: {
                /** @description `true` adds why the safety rules refuse it, in words of the message; operators and admins only. */
                explain?: boolean;
            };
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The dead letter */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeadLetterView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key, or `explain` with an auditor's */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such dead letter */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    discardDeadLetter: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DiscardBody"];
            };
        };
        responses: {
            /** @description Discarded */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeadLetterView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such dead letter */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Decided before */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    releaseDeadLetter: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReleaseBody"];
            };
        };
        responses: {
            /** @description Released: it is on its way */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeadLetterView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator, or the gate still forbids it */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such dead letter */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Decided before, erased, or the task has ended */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description Refused again, with what was found; or an entry names no finding */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listErasures: {
        parameters: {
            query?: {
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page, the newest first */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ErasuresView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listEscalations: {
        parameters: {
            query?: {
                /** @description `OPEN`, `RESOLVED` or `TIMED_OUT`. */
                status?: string;
                /** @description Only escalations of this task. */
                taskId?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_EscalationView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    resolveEscalations: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ResolveManyBody"];
            };
        };
        responses: {
            /** @description The result of each */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkResults"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getEscalation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The escalation's UUID */
                escalationId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The escalation */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EscalationView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such escalation */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    resolveEscalation: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The escalation's UUID */
                escalationId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ResolveBody"];
            };
        };
        responses: {
            /** @description Decided */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ResolvedView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such escalation */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Decided before, or there is nothing to reassign */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit, the agent takes no handoffs, or the contract of the edge to it refuses the message */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listEvents: {
        parameters: {
            query?: {
                /** @description `nextCursor` of the page before, or a time, RFC 3339; from the oldest kept event on unless said. */
                since?: string;
                /** @description Types, separated by commas; all unless said. */
                types?: string;
                /** @description Only events that this agent has a part in. */
                agentId?: string;
                /** @description Only events of this task. */
                taskId?: string;
                /** @description Seconds to wait for an event when there is none, up to 60. */
                wait?: number;
                /** @description Events a page, 1 to 500; 50 unless said. */
                limit?: number;
                /** @description How events are written: `standard` unless said, or `cloudevents`. */
                format?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FeedView"];
                };
            };
            /** @description A malformed parameter, or `since` ahead of the feed: `head` is its end */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listHandoffs: {
        parameters: {
            query?: {
                /** @description Only handoffs of this task. */
                taskId?: string;
                /** @description Only rows in this state. */
                status?: string;
                /** @description Only of this conversation (`conversationId` of the messages). */
                conversationId?: string;
                /** @description Only from this sender. */
                fromAgent?: string;
                /** @description Only to this receiver. */
                toAgent?: string;
                /** @description Only committed at this time or later, RFC 3339. */
                from?: string;
                /** @description Only committed before this time, RFC 3339. */
                to?: string;
                /** @description Only for the user with this reference; `POST /users/search` gives it. */
                userRef?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_HandoffView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    submitHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes a repeated submission safe */
                "Idempotency-Key"?: string | null;
                /** @description The token by which the sender holds `parentHandoffId`: 409 `STALE_LEASE` where another worker took over */
                "Handoff-Fencing-Token"?: number | null;
                /** @description `wait=N`: hold the answer up to N seconds (60 at most) for the verdict; `wait=N, until=ended`: for the end, with the result; `wait=N, until=asked`: for the end, or a question of the receiver */
                Prefer?: string | null;
                /** @description W3C trace context; a valid one goes before the message's, with its `tracestate` */
                traceparent?: string | null;
                /** @description The vendors' part of that trace context */
                tracestate?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        /** @description The canonical handoff message; see /schemas/handoff/2.1 */
        requestBody: {
            content: {
                "application/json": components["schemas"]["HandoffMessage"];
            };
        };
        responses: {
            /** @description The verdict came within the wait, or a handoff to oneself */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubmittedView"];
                };
            };
            /** @description Committed */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubmittedView"];
                };
            };
            400: components["responses"]["BadBody"];
            /** @description No valid key, or a wrong signature */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Not the key's agent, or not on the allowlist */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The id exists with another content (`storedStepDigest` has the digest of that step), the task has ended, or the token is stale */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description Refused by the gate */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Overloaded, or the store is away: nothing was written */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    validateHandoff: {
        parameters: {
            query?: {
                /** @description For operators: the agent, sender or receiver of the message, in whose place they ask. */
                as?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The canonical handoff message */
        requestBody: {
            content: {
                "application/json": components["schemas"]["HandoffMessage"];
            };
        };
        responses: {
            /** @description The verdict that the gate would give */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ValidationView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description `as` names another agent, and the key is not an operator's */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description `as` names no agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getHandoff: {
        parameters: {
            query?: {
                /**
                 * @description `message`: show the stored message too; `verdict`: what the receiver said with its verdict; `questions`: all questions with
                 *     their answers. Several are separated by commas.
                 */
                include?: string;
                /** @description Seconds to hold the answer, 60 at most: until the handoff, or the one that replaces it, has a verdict. */
                wait?: number;
                /**
                 * @description With `wait`: `verdict` (unless said), `ended`, `asked` (ended, or a question waits for an answer), or `answered` (no
                 *     question waits).
                 */
                until?: string;
            };
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The handoff */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such handoff, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    acceptHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description The token that came with the delivery; or `fencingToken` in the body */
                "Handoff-Fencing-Token"?: number | null;
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        /** @description Further members are kept with the record */
        requestBody: {
            content: {
                "application/json": components["schemas"]["AcceptBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A stale token, or not in this state */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The token is missing, or the body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    answerHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes a repeated answer safe */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AnswerBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Neither the sender's key nor an operator's */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff, or no question of that number */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No question is open, or it has another answer */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The answer is missing or does not fit the question's schema, the safety rules refuse it, or the Idempotency-Key was used for another one */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    askHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description The token that came with the delivery; or `fencingToken` in the body */
                "Handoff-Fencing-Token"?: number | null;
                /** @description Makes a repeated question safe after its answer, too */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AskBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A stale token, not in this state, or a question is open */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The token or the question is missing, the schema is none, the safety rules refuse the question, or the Idempotency-Key was used for another one */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listAttempts: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The attempts that are kept */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttemptsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Neither an operator nor an admin */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listChunks: {
        parameters: {
            query?: {
                /** @description The first number; 1 unless said. */
                from?: number;
                /** @description Seconds to wait for a chunk when there is none, up to 60. */
                wait?: number;
                /** @description Chunks a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: {
                /** @description Of Server-Sent Events: go on behind this number; browsers send it by themselves */
                "Last-Event-ID"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The chunks; of Server-Sent Events `id` is the number and `data` the chunk */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChunkPage"];
                    "text/event-stream": string;
                };
            };
            /** @description A malformed parameter, or a place ahead of the next chunk: `head` is its number */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description A dead letter: its text reaches no agent */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The handoff's message came whole */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    appendChunks: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        /** @description A chunk, or a line for each */
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChunkBody"];
                "application/x-ndjson": components["schemas"]["ChunkBody"];
            };
        };
        responses: {
            /** @description The chunks are committed */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChunksView"];
                };
            };
            400: components["responses"]["BadBody"];
            /** @description No valid key, or a wrong signature */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Not the sender's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Not the next number (`expectedSeq`), a number with another content, or the stream has ended */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The gate refuses a chunk, or the message that it closes */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    completeHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description The token that came with the delivery; or `fencingToken` in the body */
                "Handoff-Fencing-Token"?: number | null;
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        /** @description Further members are kept with the record */
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompleteBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A stale token, or not in this state */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The token is missing, or the body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    failHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description The token that came with the delivery; or `fencingToken` in the body */
                "Handoff-Fencing-Token"?: number | null;
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        /** @description Further members are kept with the record */
        requestBody: {
            content: {
                "application/json": components["schemas"]["FailBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A stale token, or not in this state */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The token is missing, or the body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    heartbeatHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description The token that came with the delivery; or `fencingToken` in the body */
                "Handoff-Fencing-Token"?: number | null;
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        /** @description Further members are kept with the record */
        requestBody: {
            content: {
                "application/json": components["schemas"]["HeartbeatBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A stale token, or not in this state */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The token is missing, or the body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getHistory: {
        parameters: {
            query?: {
                /** @description The first turn, from 0; 0 unless said. */
                from?: number;
                /** @description The turn after the last one; 500 turns after `from` at most. */
                to?: number;
            };
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The turns */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ConversationView"];
                };
            };
            /** @description A malformed parameter, or `from` beyond the last turn: `head` is their number */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description A dead letter: its text reaches no agent */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff, not the caller's, or its message was erased or past its time */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getPrompt: {
        parameters: {
            query?: {
                /** @description `text` (unless said) or `messages`. */
                format?: string;
                /** @description Turns of the conversation to show, counted from the end; 5 unless said. */
                turns?: number;
                /** @description The most tokens of the block, by the receiver's tokenizer; what does not fit is named at its end. */
                maxTokens?: number;
            };
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The block as text, or as `messages` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptView"];
                    "text/plain": string;
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description A dead letter: its text reaches no agent */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff, not the caller's, or its message was erased or past its time */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getQuestionPrompt: {
        parameters: {
            query?: {
                /** @description `text` (unless said) or `messages`. */
                format?: string;
            };
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The block as text, or as `messages` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptView"];
                    "text/plain": string;
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description A dead letter: its text reaches no agent */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff, not the caller's, its receiver asked nothing, or the question was erased or past its time */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    rejectHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description The token that came with the delivery; or `fencingToken` in the body */
                "Handoff-Fencing-Token"?: number | null;
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        /** @description Further members are kept with the record */
        requestBody: {
            content: {
                "application/json": components["schemas"]["RejectBody"];
            };
        };
        responses: {
            /** @description The handoff as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description A stale token, or not in this state */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The token is missing, or the body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getResultPrompt: {
        parameters: {
            query?: {
                /** @description `text` (unless said) or `messages`. */
                format?: string;
            };
            header?: never;
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The block as text, or as `messages` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptView"];
                    "text/plain": string;
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such handoff, not the caller's, or its receiver gave no result, or it was erased or past its time */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The handoff is not completed, and its receiver gave no reason in words */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    takeOverHandoff: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The handoff's UUID */
                handoffId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TakeoverBody"];
            };
        };
        responses: {
            /** @description The handoff with its new token */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HandoffView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not the receiver's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such handoff */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Its holder was heard of, or said no interval, or no lease runs */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listKeys: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The keys */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeysView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an admin */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    createKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KeyBody"];
            };
        };
        responses: {
            /** @description The key */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an admin */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The key does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    revokeKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key's public name */
                keyId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Revoked */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an admin */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such key */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The key that is used for this very request */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listLegalHolds: {
        parameters: {
            query?: {
                /** @description Only of this person. */
                subjectId?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page, by id */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HoldsView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getLegalHold: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The hold */
                holdId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The hold */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HoldView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such hold */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    placeLegalHold: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description A code of your own: letters, digits, `.`, `_`, `-`, 64 at most; the audit log keeps it for ever, so put no person's name in it */
                holdId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HoldBody"];
            };
        };
        responses: {
            /** @description It was there */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HoldView"];
                };
            };
            /** @description Placed */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HoldView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The id holds, or held, something else */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The hold does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    releaseLegalHold: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The hold */
                holdId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LegalHoldReleaseBody"];
            };
        };
        responses: {
            /** @description Released, now or before */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HoldView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such hold */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    livez: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It runs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description An unknown query parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Metrics */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain; version=0.0.4": string;
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Metrics have a listener of their own */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Ready */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description An unknown query parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Stopping, or the store is away or takes no writes */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    listReceivers: {
        parameters: {
            query?: {
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Receivers a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReceiversView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getReceiver: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent's id */
                agentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The receiver */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReceiverDetailView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such agent */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listRefusals: {
        parameters: {
            query?: {
                /** @description Only messages of this sender. */
                fromAgent?: string;
                /** @description Only messages to this receiver. */
                toAgent?: string;
                /** @description Only messages that name this task. */
                taskId?: string;
                /** @description Only for this reason: a code. */
                code?: string;
                /** @description Only where the reason was found at this JSON pointer. */
                pointer?: string;
                /** @description Only at this time or later, RFC 3339. */
                from?: string;
                /** @description Only before this time, RFC 3339. */
                to?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_RefusalView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listSchemas: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schemas */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SchemasView"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listEventSchemas: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The types */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventSchemasView"];
                };
            };
            /** @description An unknown query parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getEventSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description e.g. `handoff.rolled_back` */
                type: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schema */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/schema+json": components["schemas"]["JsonSchema"];
                };
            };
            /** @description No such type */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getHandoffSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description e.g. `2.1` */
                version: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schema */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/schema+json": components["schemas"]["JsonSchema"];
                };
            };
            /** @description No such version */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listPayloadSchemas: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schemas */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PayloadSchemasView"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listPayloadSchemaVersions: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schema's id */
                schemaId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The versions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PayloadSchemaVersionsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such schema */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    comparePayloadSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schema's id */
                schemaId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompareBody"];
            };
        };
        responses: {
            /** @description The changes that it would make */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CandidateView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description No schema, id or version */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getPayloadSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schema's id */
                schemaId: string;
                /** @description The version */
                version: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The version, with its schema */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PayloadSchemaView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such schema or version */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    putPayloadSchema: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schema's id, kebab-case */
                schemaId: string;
                /** @description A semantic version without build metadata */
                version: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PutBody"];
            };
        };
        responses: {
            /** @description It was there already */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PayloadSchemaView"];
                };
            };
            /** @description Registered, with what it changes */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PayloadSchemaView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description This version has another content, or its number does not say what changes: every fault with its pointer */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description No schema, id or version */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getSw4rmContextSchema: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schema */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/schema+json": components["schemas"]["JsonSchema"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    listSessions: {
        parameters: {
            query?: {
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_SessionView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    endSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session's UUID */
                sessionId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Ended */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EndedSessionView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such session, or it has ended */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listSubscriptions: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The subscriptions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionsView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    createSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        /** @description `url` is needed */
        requestBody: {
            content: {
                "application/json": components["schemas"]["SubscriptionBody"];
            };
        };
        responses: {
            /** @description The subscription, with its secret, shown this once */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The subscription does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getSubscription: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The subscription's UUID */
                subscriptionId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The subscription */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such subscription */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    deleteSubscription: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The subscription's UUID */
                subscriptionId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such subscription */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    changeSubscription: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The subscription's UUID */
                subscriptionId: string;
            };
            cookie?: never;
        };
        /** @description As on creation, each member optional */
        requestBody: {
            content: {
                "application/json": components["schemas"]["SubscriptionBody"];
            };
        };
        responses: {
            /** @description The subscription as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such subscription */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The change does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listSubscriptionDeliveries: {
        parameters: {
            query?: {
                /** @description Only attempts with a lower number: the last one of the page before. */
                before?: number;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The subscription's UUID */
                subscriptionId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventDeliveriesView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such subscription */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    replaySubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The subscription's UUID */
                subscriptionId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReplayBody"];
            };
        };
        responses: {
            /** @description The subscription; it is told from there on, in order */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionView"];
                };
            };
            /** @description `since` is neither a cursor that the feed has come to, nor a time */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such subscription */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The body does not fit, or `since` is ahead of the subscription's cursor */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    rotateSubscriptionSecret: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The subscription's UUID */
                subscriptionId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RotateSubscriptionBody"];
            };
        };
        responses: {
            /** @description The secret, shown this once */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RotatedSecretView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description An auditor, or not the agent's to subscribe to */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such subscription */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Changed meanwhile */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listTasks: {
        parameters: {
            query?: {
                /** @description Only rows in this state. */
                status?: string;
                /** @description Only begun at this time or later, RFC 3339. */
                from?: string;
                /** @description Only begun before this time, RFC 3339. */
                to?: string;
                /** @description Only with so much left or less, decimal US dollars; 0: those whose budget is used up. */
                leftAtMostUSD?: string;
                /** @description Only on which so much was spent, or more, decimal US dollars. */
                spentAtLeastUSD?: string;
                /** @description Only for the user with this reference; `POST /users/search` gives it. */
                userRef?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_TaskView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    cancelTasks: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CancelTasksBody"];
            };
        };
        responses: {
            /** @description The result of each */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkResults"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getTask: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The task */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such task, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getBlame: {
        parameters: {
            query: {
                /** @description RFC 6901 pointer into the message, e.g. `/currentState/riskScore`. */
                pointer: string;
                /**
                 * @description The handoff whose message is looked at: the task's last unless said; for an agent, the last
                 *     that it sent or received.
                 */
                handoff?: string;
            };
            header?: never;
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Who wrote it. An agent may ask about the messages that it sent or received; hashes of others' values are left out */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BlameView"];
                };
            };
            /** @description Not a pointer, or a malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such task or handoff, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store or the archive is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    topUpTask: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BudgetBody"];
            };
        };
        responses: {
            /** @description The task as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such task */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The task has ended */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    cancelTask: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CancelBody"];
            };
        };
        responses: {
            /** @description The task as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Neither its holder nor who began it */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such task */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description It is done already */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listCheckpoints: {
        parameters: {
            query?: {
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Rows a page, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The task's UUID; it need not exist yet */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryView"];
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description Not a UUID */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    getCheckpoint: {
        parameters: {
            query?: {
                /** @description Its number within the run, from 1; the last unless said. */
                seq?: number;
            };
            header?: never;
            path: {
                /** @description The task's UUID */
                taskId: string;
                /** @description The UUID of the agent's run */
                executionId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The checkpoint with its state */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CheckpointView"];
                };
            };
            /** @description An unknown parameter, or no number */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such checkpoint, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    putCheckpoint: {
        parameters: {
            query?: never;
            header?: {
                /** @description The handoff on which the agent's worker works, with its token: a worker whose handoff another one took over saves nothing */
                "Handoff-Id"?: string | null;
                /** @description The token by which the worker holds that handoff */
                "Handoff-Fencing-Token"?: number | null;
            };
            path: {
                /** @description The task's UUID; it need not exist yet */
                taskId: string;
                /** @description The UUID of the agent's run */
                executionId: string;
            };
            cookie?: never;
        };
        /** @description The state */
        requestBody: {
            content: {
                "application/json": components["schemas"]["CheckpointState"];
            };
        };
        responses: {
            /** @description Stored */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CheckpointView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description No agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Not UUIDs, or a task in which the caller has no part */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The task has ended, and no grace runs in which the caller may finish its work on it; or the token is stale */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description Not an object */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    restoreCheckpoint: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The task's UUID */
                taskId: string;
                /** @description The UUID of the agent's run */
                executionId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RestoreBody"];
            };
        };
        responses: {
            /** @description The task as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not its holder */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such task or checkpoint, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The task has ended, or a handoff is on its way */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    completeTask: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        /** @description The result; further members are kept too */
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompleteTaskBody"];
            };
        };
        responses: {
            /** @description The task as it is now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not its holder */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such task */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Not in this state */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getTaskCost: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its books */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskCostView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such task, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    watchTask: {
        parameters: {
            query?: never;
            header?: {
                /** @description Go on behind this event; browsers send it by themselves. `now`: behind what is committed */
                "Last-Event-ID"?: string | null;
            };
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream; `id` is the event's cursor, `event` its type, `data` the event in the standard format */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description `Last-Event-ID` is not a cursor, or the feed has not reached it: `head` is the last */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description No such task, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    getTrace: {
        parameters: {
            query?: {
                /** @description `json` (unless said), or `bundle`: a zip for a regulator, which `handoffd verify` checks offline. */
                format?: string;
                /** @description Put personal data into the bundle; for operators and admins. */
                includePersonal?: boolean;
                /** @description Only records of this time or later, RFC 3339. */
                from?: string;
                /** @description Only records before this time, RFC 3339. */
                to?: string;
                /** @description `nextCursor` of the page before. */
                cursor?: string;
                /** @description Records of a window, 1 to 500; 50 unless said. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One entry a boundary, every record, and the cost; or a window of it. An agent reads the words (content, task description, reason) of its own handoffs only. As a bundle: a zip, see docs/bundle.md */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TraceView"];
                    "application/zip": string;
                };
            };
            /** @description A malformed parameter */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description A bundle is not for agents, nor personal data for auditors */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such task, or not the caller's */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
    explainTask: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The reasons, the most urgent one first */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WhyView"];
                };
            };
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description No such task */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    listTransports: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One description for each delivery mode */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TransportsView"];
                };
            };
            401: components["responses"]["NoKey"];
            503: components["responses"]["Away"];
            default: components["responses"]["Refused"];
        };
    };
    searchUser: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters; the same request again under the same key changes nothing, and is answered as the first time, with `Idempotency-Replayed: true`, for a day */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UserSearchBody"];
            };
        };
        responses: {
            /** @description The reference; the same for each request */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UserView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description An agent's key */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description The first request under this Idempotency-Key is under way, or its end is not known */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The body does not fit */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            503: components["responses"]["Busy"];
            default: components["responses"]["Refused"];
        };
    };
    whatIf: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WhatIfBody"];
            };
        };
        responses: {
            /** @description Counts, and each message of which something else would be said, with both verdicts: codes, places and rules, never the content */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WhatIfView"];
                };
            };
            400: components["responses"]["BadBody"];
            401: components["responses"]["NoKey"];
            /** @description Not an operator */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            413: components["responses"]["TooLarge"];
            415: components["responses"]["NotJson"];
            /** @description The candidate cannot be put so */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            /** @description Another one is under way, or the store is away */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["ProblemDetails"];
                };
            };
            default: components["responses"]["Refused"];
        };
    };
}
