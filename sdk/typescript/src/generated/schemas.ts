// Made by scripts/generate.mjs; changes by hand are lost.

import type { Schema } from "../validate/engine.js";

/** The message schemas by minor version, oldest first; annotations are left out. */
export const SCHEMAS: Record<string, Schema> = {
 "2.0": {
  "type": "object",
  "additionalProperties": false,
  "required": [
   "schemaVersion",
   "handoffId",
   "taskId",
   "parentHandoffId",
   "fromAgent",
   "toAgent",
   "timestamp",
   "taskDescription",
   "completedSubtasks",
   "remainingSubtasks",
   "currentState",
   "relevantContext",
   "constraints",
   "costTracking",
   "conversationHistorySummary",
   "conversationHistoryVerbatim",
   "toolCallHistory",
   "traceparent"
  ],
  "properties": {
   "schemaVersion": {
    "type": "string",
    "pattern": "^2\\.0(\\.(0|[1-9][0-9]{0,8}))?$"
   },
   "handoffId": {
    "$ref": "#/$defs/uuid"
   },
   "taskId": {
    "$ref": "#/$defs/uuid"
   },
   "parentHandoffId": {
    "type": [
     "string",
     "null"
    ],
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "fromAgent": {
    "type": "object",
    "required": [
     "agentId",
     "agentVersion",
     "executionId"
    ],
    "properties": {
     "agentId": {
      "$ref": "#/$defs/agentId"
     },
     "agentVersion": {
      "type": "string",
      "minLength": 1,
      "maxLength": 128
     },
     "executionId": {
      "$ref": "#/$defs/uuid"
     }
    }
   },
   "toAgent": {
    "type": "object",
    "required": [
     "agentType",
     "agentVersion"
    ],
    "properties": {
     "agentType": {
      "$ref": "#/$defs/agentType"
     },
     "agentVersion": {
      "$ref": "#/$defs/versionRange"
     }
    }
   },
   "timestamp": {
    "$ref": "#/$defs/dateTime"
   },
   "taskDescription": {
    "type": "string",
    "minLength": 1
   },
   "completedSubtasks": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "subtaskId",
      "description",
      "result",
      "completedAt"
     ],
     "properties": {
      "subtaskId": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      },
      "description": {
       "type": "string"
      },
      "result": {
       "type": "object"
      },
      "completedAt": {
       "$ref": "#/$defs/dateTime"
      }
     }
    }
   },
   "remainingSubtasks": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "subtaskId",
      "description"
     ],
     "properties": {
      "subtaskId": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      },
      "description": {
       "type": "string"
      }
     }
    }
   },
   "currentState": {
    "type": "object"
   },
   "relevantContext": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "source",
      "excerpt",
      "relevanceScore"
     ],
     "properties": {
      "source": {
       "type": "string"
      },
      "excerpt": {
       "type": "string"
      },
      "relevanceScore": {
       "type": "number",
       "minimum": 0,
       "maximum": 1
      }
     }
    }
   },
   "constraints": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "string",
     "pattern": "^[^:]+:",
     "maxLength": 4096
    }
   },
   "costTracking": {
    "type": "object",
    "required": [
     "costSpentSoFarUSD",
     "costBudgetRemainingUSD",
     "tokenSpent"
    ],
    "properties": {
     "costSpentSoFarUSD": {
      "type": "number",
      "maximum": 1000000000,
      "x-limit": {
       "maximum": "1000000000.0"
      },
      "minimum": 0
     },
     "costBudgetRemainingUSD": {
      "type": "number",
      "maximum": 1000000000,
      "x-limit": {
       "maximum": "1000000000.0",
       "minimum": "-1000000000.0"
      },
      "minimum": -1000000000
     },
     "tokenSpent": {
      "type": "object",
      "required": [
       "prompt",
       "completion"
      ],
      "properties": {
       "prompt": {
        "type": "integer",
        "minimum": 0
       },
       "completion": {
        "type": "integer",
        "minimum": 0
       }
      }
     }
    }
   },
   "conversationHistorySummary": {
    "type": "string"
   },
   "conversationHistoryVerbatim": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "role",
      "content"
     ],
     "properties": {
      "role": {
       "type": "string",
       "minLength": 1,
       "maxLength": 128
      },
      "content": {
       "type": [
        "string",
        "array",
        "object"
       ]
      },
      "timestamp": {
       "$ref": "#/$defs/dateTime"
      },
      "tool_call_id": {
       "type": "string"
      },
      "name": {
       "type": "string"
      },
      "metadata": {
       "type": "object"
      }
     }
    }
   },
   "toolCallHistory": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "tool",
      "calledAt",
      "inputHash",
      "outputTokens"
     ],
     "properties": {
      "tool": {
       "type": "string",
       "minLength": 1
      },
      "calledAt": {
       "$ref": "#/$defs/dateTime"
      },
      "inputHash": {
       "type": "string",
       "pattern": "^sha256:[0-9a-fA-F]{1,64}$"
      },
      "outputTokens": {
       "type": "integer",
       "minimum": 0
      }
     }
    }
   },
   "traceparent": {
    "type": "string",
    "maxLength": 512,
    "pattern": "^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(0[1-9a-f]|[1-9a-e][0-9a-f]|f[0-9a-e])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\\x20-\\x7e]*)?)$"
   },
   "signature": {
    "type": "string",
    "pattern": "^hmac-sha256:[0-9a-fA-F]{64}$"
   }
  },
  "$defs": {
   "uuid": {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "dateTime": {
    "type": "string",
    "format": "date-time"
   },
   "agentId": {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
   },
   "agentType": {
    "type": "string",
    "pattern": "^[A-Za-z0-9._:@-]{1,128}$"
   },
   "versionRange": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   }
  }
 },
 "2.1": {
  "type": "object",
  "additionalProperties": false,
  "required": [
   "schemaVersion",
   "handoffId",
   "taskId",
   "parentHandoffId",
   "fromAgent",
   "toAgent",
   "timestamp",
   "taskDescription",
   "completedSubtasks",
   "remainingSubtasks",
   "currentState",
   "relevantContext",
   "constraints",
   "costTracking",
   "conversationHistorySummary",
   "conversationHistoryVerbatim",
   "toolCallHistory",
   "traceparent"
  ],
  "properties": {
   "schemaVersion": {
    "type": "string",
    "pattern": "^2\\.1(\\.(0|[1-9][0-9]{0,8}))?$"
   },
   "handoffId": {
    "$ref": "#/$defs/uuid"
   },
   "taskId": {
    "$ref": "#/$defs/uuid"
   },
   "parentHandoffId": {
    "type": [
     "string",
     "null"
    ],
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "fromAgent": {
    "type": "object",
    "required": [
     "agentId",
     "agentVersion",
     "executionId"
    ],
    "properties": {
     "agentId": {
      "$ref": "#/$defs/agentId"
     },
     "agentVersion": {
      "type": "string",
      "minLength": 1,
      "maxLength": 128
     },
     "executionId": {
      "$ref": "#/$defs/uuid"
     }
    }
   },
   "toAgent": {
    "type": "object",
    "properties": {
     "agentType": {
      "$ref": "#/$defs/agentType"
     },
     "agentVersion": {
      "$ref": "#/$defs/versionRange"
     },
     "agentId": {
      "$ref": "#/$defs/agentId"
     },
     "capability": {
      "type": "string",
      "minLength": 1,
      "maxLength": 256
     }
    },
    "anyOf": [
     {
      "required": [
       "agentType"
      ]
     },
     {
      "required": [
       "agentId"
      ]
     },
     {
      "required": [
       "capability"
      ]
     }
    ]
   },
   "timestamp": {
    "$ref": "#/$defs/dateTime"
   },
   "taskDescription": {
    "type": "string",
    "minLength": 1
   },
   "completedSubtasks": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "subtaskId",
      "description",
      "result",
      "completedAt"
     ],
     "properties": {
      "subtaskId": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      },
      "description": {
       "type": "string"
      },
      "result": {
       "type": "object"
      },
      "completedAt": {
       "$ref": "#/$defs/dateTime"
      }
     }
    }
   },
   "remainingSubtasks": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "subtaskId",
      "description"
     ],
     "properties": {
      "subtaskId": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      },
      "description": {
       "type": "string"
      }
     }
    }
   },
   "currentState": {
    "type": "object"
   },
   "relevantContext": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "source",
      "excerpt",
      "relevanceScore"
     ],
     "properties": {
      "source": {
       "type": "string"
      },
      "excerpt": {
       "type": "string"
      },
      "relevanceScore": {
       "type": "number",
       "minimum": 0,
       "maximum": 1
      }
     }
    }
   },
   "constraints": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "string",
     "pattern": "^[^:]+:",
     "maxLength": 4096
    }
   },
   "costTracking": {
    "type": "object",
    "required": [
     "costSpentSoFarUSD",
     "costBudgetRemainingUSD",
     "tokenSpent"
    ],
    "properties": {
     "costSpentSoFarUSD": {
      "type": "number",
      "maximum": 1000000000,
      "x-limit": {
       "maximum": "1000000000.0"
      },
      "minimum": 0
     },
     "costBudgetRemainingUSD": {
      "type": "number",
      "maximum": 1000000000,
      "x-limit": {
       "maximum": "1000000000.0",
       "minimum": "-1000000000.0"
      },
      "minimum": -1000000000
     },
     "tokenSpent": {
      "type": "object",
      "required": [
       "prompt",
       "completion"
      ],
      "properties": {
       "prompt": {
        "type": "integer",
        "minimum": 0
       },
       "completion": {
        "type": "integer",
        "minimum": 0
       }
      }
     }
    }
   },
   "conversationHistorySummary": {
    "type": "string"
   },
   "conversationHistoryVerbatim": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "role",
      "content"
     ],
     "properties": {
      "role": {
       "type": "string",
       "minLength": 1,
       "maxLength": 128
      },
      "content": {
       "type": [
        "string",
        "array",
        "object"
       ]
      },
      "timestamp": {
       "$ref": "#/$defs/dateTime"
      },
      "tool_call_id": {
       "type": "string"
      },
      "name": {
       "type": "string"
      },
      "metadata": {
       "type": "object"
      }
     }
    }
   },
   "toolCallHistory": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "tool",
      "calledAt",
      "inputHash",
      "outputTokens"
     ],
     "properties": {
      "tool": {
       "type": "string",
       "minLength": 1
      },
      "calledAt": {
       "$ref": "#/$defs/dateTime"
      },
      "inputHash": {
       "type": "string",
       "pattern": "^sha256:[0-9a-fA-F]{1,64}$"
      },
      "outputTokens": {
       "type": "integer",
       "minimum": 0
      }
     }
    }
   },
   "traceparent": {
    "type": "string",
    "maxLength": 512,
    "pattern": "^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(0[1-9a-f]|[1-9a-e][0-9a-f]|f[0-9a-e])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\\x20-\\x7e]*)?)$"
   },
   "tracestate": {
    "type": "string"
   },
   "signature": {
    "type": "string",
    "pattern": "^hmac-sha256:[0-9a-fA-F]{64}$"
   },
   "checkpoint": {
    "type": "object"
   },
   "receiverList": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": [
      "string",
      "object"
     ],
     "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$",
     "minProperties": 1,
     "properties": {
      "agentType": {
       "$ref": "#/$defs/agentType"
      },
      "agentVersion": {
       "$ref": "#/$defs/versionRange"
      },
      "agentId": {
       "$ref": "#/$defs/agentId"
      },
      "capability": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      }
     }
    }
   },
   "personalDataPayload": {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": false,
    "properties": {
     "pointers": {
      "type": "array",
      "maxItems": 10000,
      "items": {
       "type": "object",
       "required": [
        "subjectId",
        "pointer"
       ],
       "additionalProperties": false,
       "properties": {
        "subjectId": {
         "type": "string",
         "minLength": 1,
         "maxLength": 256,
         "pattern": "^[^\\x00]*$"
        },
        "pointer": {
         "type": "string",
         "minLength": 2,
         "maxLength": 1024,
         "pattern": "^/"
        }
       }
      }
     },
     "subjects": {
      "type": "array",
      "maxItems": 10000,
      "items": {
       "type": "object",
       "required": [
        "subjectId",
        "data"
       ],
       "properties": {
        "subjectId": {
         "type": "string",
         "minLength": 1,
         "maxLength": 256,
         "pattern": "^[^\\x00]*$"
        },
        "data": {
         "type": "object"
        }
       }
      }
     }
    }
   },
   "contractId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "historyStrategy": {
    "type": "string",
    "enum": [
     "full",
     "summary",
     "last_k",
     "pointer"
    ]
   },
   "taskSummary": {
    "type": "string",
    "maxLength": 500
   },
   "provenance": {
    "type": "object"
   },
   "reason": {
    "type": "string"
   },
   "conversationId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "correlationId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "userId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "priority": {
    "type": "string",
    "enum": [
     "low",
     "normal",
     "high",
     "urgent"
    ]
   },
   "preferredAgents": {
    "type": "array",
    "maxItems": 32,
    "uniqueItems": true,
    "items": {
     "type": "string",
     "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
    }
   },
   "capabilitiesRequired": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "string",
     "minLength": 1,
     "maxLength": 256
    }
   },
   "maxIterations": {
    "type": "integer",
    "minimum": 1
   },
   "toolState": {
    "type": "object"
   },
   "metadata": {
    "type": "object"
   },
   "extensions": {
    "type": "object"
   }
  },
  "$defs": {
   "uuid": {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "dateTime": {
    "type": "string",
    "format": "date-time"
   },
   "agentId": {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
   },
   "agentType": {
    "type": "string",
    "pattern": "^[A-Za-z0-9._:@-]{1,128}$"
   },
   "versionRange": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   }
  }
 },
 "2.2": {
  "type": "object",
  "additionalProperties": false,
  "required": [
   "schemaVersion",
   "handoffId",
   "taskId",
   "parentHandoffId",
   "fromAgent",
   "toAgent",
   "timestamp",
   "taskDescription",
   "completedSubtasks",
   "remainingSubtasks",
   "currentState",
   "relevantContext",
   "constraints",
   "costTracking",
   "conversationHistorySummary",
   "conversationHistoryVerbatim",
   "toolCallHistory",
   "traceparent"
  ],
  "properties": {
   "schemaVersion": {
    "type": "string",
    "pattern": "^2\\.2(\\.(0|[1-9][0-9]{0,8}))?$"
   },
   "handoffId": {
    "$ref": "#/$defs/anyUuid"
   },
   "taskId": {
    "$ref": "#/$defs/anyUuid"
   },
   "parentHandoffId": {
    "type": [
     "string",
     "null"
    ],
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "fromAgent": {
    "type": "object",
    "required": [
     "agentId",
     "agentVersion",
     "executionId"
    ],
    "properties": {
     "agentId": {
      "$ref": "#/$defs/agentId"
     },
     "agentVersion": {
      "type": "string",
      "minLength": 1,
      "maxLength": 128
     },
     "executionId": {
      "$ref": "#/$defs/uuid"
     }
    }
   },
   "toAgent": {
    "type": "object",
    "properties": {
     "agentType": {
      "$ref": "#/$defs/agentType"
     },
     "agentVersion": {
      "$ref": "#/$defs/versionRange"
     },
     "agentId": {
      "$ref": "#/$defs/agentId"
     },
     "capability": {
      "type": "string",
      "minLength": 1,
      "maxLength": 256
     }
    },
    "anyOf": [
     {
      "required": [
       "agentType"
      ]
     },
     {
      "required": [
       "agentId"
      ]
     },
     {
      "required": [
       "capability"
      ]
     }
    ]
   },
   "timestamp": {
    "$ref": "#/$defs/dateTime"
   },
   "taskDescription": {
    "type": "string",
    "minLength": 1
   },
   "completedSubtasks": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "subtaskId",
      "description",
      "result",
      "completedAt"
     ],
     "properties": {
      "subtaskId": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      },
      "description": {
       "type": "string"
      },
      "result": {
       "type": "object"
      },
      "completedAt": {
       "$ref": "#/$defs/dateTime"
      }
     }
    }
   },
   "remainingSubtasks": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "subtaskId",
      "description"
     ],
     "properties": {
      "subtaskId": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      },
      "description": {
       "type": "string"
      }
     }
    }
   },
   "currentState": {
    "type": "object"
   },
   "relevantContext": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "source",
      "excerpt",
      "relevanceScore"
     ],
     "properties": {
      "source": {
       "type": "string"
      },
      "excerpt": {
       "type": "string"
      },
      "relevanceScore": {
       "type": "number",
       "minimum": 0,
       "maximum": 1
      }
     }
    }
   },
   "constraints": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "string",
     "pattern": "^[^:]+:",
     "maxLength": 4096
    }
   },
   "costTracking": {
    "type": "object",
    "required": [
     "costSpentSoFarUSD",
     "costBudgetRemainingUSD",
     "tokenSpent"
    ],
    "properties": {
     "costSpentSoFarUSD": {
      "type": "number",
      "maximum": 1000000000,
      "x-limit": {
       "maximum": "1000000000.0"
      },
      "minimum": 0
     },
     "costBudgetRemainingUSD": {
      "type": "number",
      "maximum": 1000000000,
      "x-limit": {
       "maximum": "1000000000.0",
       "minimum": "-1000000000.0"
      },
      "minimum": -1000000000
     },
     "tokenSpent": {
      "type": "object",
      "required": [
       "prompt",
       "completion"
      ],
      "properties": {
       "prompt": {
        "type": "integer",
        "minimum": 0
       },
       "completion": {
        "type": "integer",
        "minimum": 0
       }
      }
     }
    }
   },
   "conversationHistorySummary": {
    "type": "string"
   },
   "conversationHistoryVerbatim": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "role",
      "content"
     ],
     "properties": {
      "role": {
       "type": "string",
       "minLength": 1,
       "maxLength": 128
      },
      "content": {
       "type": [
        "string",
        "array",
        "object"
       ]
      },
      "timestamp": {
       "$ref": "#/$defs/dateTime"
      },
      "tool_call_id": {
       "type": "string"
      },
      "name": {
       "type": "string"
      },
      "metadata": {
       "type": "object"
      }
     }
    }
   },
   "toolCallHistory": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "object",
     "required": [
      "tool",
      "calledAt",
      "inputHash",
      "outputTokens"
     ],
     "properties": {
      "tool": {
       "type": "string",
       "minLength": 1
      },
      "calledAt": {
       "$ref": "#/$defs/dateTime"
      },
      "inputHash": {
       "type": "string",
       "pattern": "^sha256:[0-9a-fA-F]{1,64}$"
      },
      "outputTokens": {
       "type": "integer",
       "minimum": 0
      }
     }
    }
   },
   "traceparent": {
    "type": "string",
    "maxLength": 512,
    "pattern": "^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(0[1-9a-f]|[1-9a-e][0-9a-f]|f[0-9a-e])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\\x20-\\x7e]*)?)$"
   },
   "tracestate": {
    "type": "string"
   },
   "signature": {
    "type": "string",
    "pattern": "^hmac-sha256:[0-9a-fA-F]{64}$"
   },
   "checkpoint": {
    "type": "object"
   },
   "receiverList": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": [
      "string",
      "object"
     ],
     "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$",
     "minProperties": 1,
     "properties": {
      "agentType": {
       "$ref": "#/$defs/agentType"
      },
      "agentVersion": {
       "$ref": "#/$defs/versionRange"
      },
      "agentId": {
       "$ref": "#/$defs/agentId"
      },
      "capability": {
       "type": "string",
       "minLength": 1,
       "maxLength": 256
      }
     }
    }
   },
   "personalDataPayload": {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": false,
    "properties": {
     "pointers": {
      "type": "array",
      "maxItems": 10000,
      "items": {
       "type": "object",
       "required": [
        "subjectId",
        "pointer"
       ],
       "additionalProperties": false,
       "properties": {
        "subjectId": {
         "type": "string",
         "minLength": 1,
         "maxLength": 256,
         "pattern": "^[^\\x00]*$"
        },
        "pointer": {
         "type": "string",
         "minLength": 2,
         "maxLength": 1024,
         "pattern": "^/"
        }
       }
      }
     },
     "subjects": {
      "type": "array",
      "maxItems": 10000,
      "items": {
       "type": "object",
       "required": [
        "subjectId",
        "data"
       ],
       "properties": {
        "subjectId": {
         "type": "string",
         "minLength": 1,
         "maxLength": 256,
         "pattern": "^[^\\x00]*$"
        },
        "data": {
         "type": "object"
        }
       }
      }
     }
    }
   },
   "contractId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "historyStrategy": {
    "type": "string",
    "enum": [
     "full",
     "summary",
     "last_k",
     "pointer",
     "compressed"
    ]
   },
   "taskSummary": {
    "type": "string",
    "maxLength": 500
   },
   "provenance": {
    "type": "object"
   },
   "reason": {
    "type": "string"
   },
   "conversationId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "correlationId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "userId": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   },
   "priority": {
    "type": "string",
    "enum": [
     "low",
     "normal",
     "high",
     "urgent"
    ]
   },
   "preferredAgents": {
    "type": "array",
    "maxItems": 32,
    "uniqueItems": true,
    "items": {
     "type": "string",
     "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
    }
   },
   "context": {
    "type": "object",
    "required": [
     "originalTurns",
     "keptTurns",
     "originalTokens",
     "tokens",
     "by"
    ],
    "properties": {
     "originalTurns": {
      "type": "integer",
      "minimum": 0
     },
     "keptTurns": {
      "type": "integer",
      "minimum": 0
     },
     "originalTokens": {
      "type": "integer",
      "minimum": 0
     },
     "tokens": {
      "type": "integer",
      "minimum": 0
     },
     "by": {
      "type": "string",
      "minLength": 1,
      "maxLength": 64
     },
     "turns": {
      "type": "array",
      "maxItems": 10000,
      "items": {
       "type": "integer",
       "minimum": 0
      }
     }
    }
   },
   "returnTo": {
    "type": "string",
    "enum": [
     "source"
    ]
   },
   "stream": {
    "type": "object",
    "additionalProperties": false,
    "required": [
     "open"
    ],
    "properties": {
     "open": {
      "type": "boolean"
     },
     "seq": {
      "type": "integer",
      "minimum": 0
     }
    }
   },
   "join": {
    "type": "string",
    "pattern": "^(all|any|quorum:[1-9][0-9]{0,2})$"
   },
   "onReject": {
    "type": "string",
    "enum": [
     "rollback",
     "drop"
    ]
   },
   "capabilitiesRequired": {
    "type": "array",
    "maxItems": 10000,
    "items": {
     "type": "string",
     "minLength": 1,
     "maxLength": 256
    }
   },
   "maxIterations": {
    "type": "integer",
    "minimum": 1
   },
   "toolState": {
    "type": "object"
   },
   "metadata": {
    "type": "object"
   },
   "extensions": {
    "type": "object"
   }
  },
  "$defs": {
   "uuid": {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "anyUuid": {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
   },
   "dateTime": {
    "type": "string",
    "format": "date-time"
   },
   "agentId": {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
   },
   "agentType": {
    "type": "string",
    "pattern": "^[A-Za-z0-9._:@-]{1,128}$"
   },
   "versionRange": {
    "type": "string",
    "minLength": 1,
    "maxLength": 256
   }
  }
 }
};
