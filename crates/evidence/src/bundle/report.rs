//! The result of verifying a bundle.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleDefect {
    /// Leaf index of the record concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_index: Option<i64>,
    /// Kind: `damaged`, `manifest`, `missing`, `surplus`, `hash` for files; `tree-head`, `signature`, `fork`;
    /// `flip`, `proof`, `rewrite`, `foreign`, `swap`, `chain`, `drop` for records; `commitments`, `content`,
    /// `contract`, `payload-schema`, `personal-data`, `checkpoint`, `content-gone` for contents; `trace`,
    /// `state`, `page`.
    pub fault: &'static str,
    /// A sentence for people.
    pub detail: String,
}

impl BundleDefect {
    pub(super) fn new(fault: &'static str, detail: impl Into<String>) -> Self {
        Self { leaf_index: None, fault, detail: detail.into() }
    }

    pub(super) fn at(leaf_index: i64, fault: &'static str, detail: impl Into<String>) -> Self {
        Self { leaf_index: Some(leaf_index), ..Self::new(fault, detail) }
    }

    pub(super) fn damaged(detail: impl Into<String>) -> Self {
        Self::new("damaged", detail)
    }
}

/// The result of verifying a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleReport {
    pub task_id: String,
    /// The tenant that owns the task.
    pub tenant: String,
    /// Records with a valid inclusion proof.
    pub records: u64,
    /// Contents that open their commitments.
    pub contents: u64,
    /// Contents erased according to a record of the bundle.
    pub erased: u64,
    /// Personal data left out of the bundle.
    pub withheld: u64,
    /// Number of records in the log.
    pub tree_size: u64,
    /// Origin of the log.
    pub origin: String,
    /// The key that signed the tree head, as `name+hash+base64`.
    pub signed_by: Option<String>,
    /// Whether the caller supplied that key; otherwise it came from the bundle.
    pub key_given: bool,
    /// Tree heads kept elsewhere that match the bundle's.
    pub tree_heads: u64,
    /// Whether `README.md` and `report.html` were compared; only the version that wrote them can do that.
    pub pages_compared: bool,
    /// The first defect; `None` for an intact bundle.
    pub first_fault: Option<BundleDefect>,
}
