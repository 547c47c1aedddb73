//! Compares objects: properties, property names, required members.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::facts::{hop, is_open, short, texts};
use super::{BOTH, RECEIVERS, SENDERS, SchemaComparison, SchemaPair, below};
use crate::contract::evolution::{Change, Kind};

impl<'a> SchemaComparison<'a> {
    pub(super) fn properties(&mut self, at: &SchemaPair<'a>) {
        let (old, new) = at.maps("properties");
        let open = is_open(at.new.get("additionalProperties"))
            && at.new.get("patternProperties").is_none();
        for name in old.into_iter().flatten().map(|(name, _)| name) {
            let here = at.under("properties", Some(name));
            if new.is_some_and(|new| new.contains_key(name)) {
                self.schema(here);
                continue;
            }
            let announced =
                at.announced || hop(self.old, here.old, "").is_ok_and(|old| old.deprecated);
            let reason = if open {
                format!(
                    "`{name}` is no longer described: a receiver that reads it may find nothing, or anything"
                )
            } else {
                format!(
                    "`{name}` is no longer described: a receiver that reads it finds nothing, and who sends it is refused"
                )
            };
            self.changes.push(Change {
                pointer: here.old_at,
                kind: Kind::PropertyRemoved,
                breaks: if open { RECEIVERS } else { BOTH },
                reason,
                announced,
            });
        }
        for name in new.into_iter().flatten().map(|(name, _)| name) {
            if old.is_some_and(|old| old.contains_key(name)) {
                continue;
            }
            let here = at.under("properties", Some(name));
            if at.old.get("patternProperties").is_some() {
                let why = format!("`patternProperties` may have spoken of `{name}` before");
                self.say(&here, "", Kind::Incomparable, BOTH, why);
                continue;
            }
            self.say(&here, "", Kind::PropertyAdded, &[], format!("`{name}` is described anew"));
            // Of a map every name was described before.
            let before = at.old.get("additionalProperties");
            if let Some(before) =
                before.filter(|before| before.is_object() && !is_open(Some(before)))
            {
                let old_at = below(&at.old_at, "additionalProperties", None);
                self.schema(SchemaPair { old: before, old_at, ..here });
            }
        }
    }

    pub(super) fn other_properties(&mut self, at: &SchemaPair<'a>) {
        let keyword = "additionalProperties";
        let (old, new) = at.both(keyword);
        let closed = |schema: Option<&Value>| schema == Some(&Value::Bool(false));
        match (is_open(old), is_open(new)) {
            (true, true) => {}
            (true, false) => {
                self.say(
                    at,
                    keyword,
                    Kind::Narrowed,
                    SENDERS,
                    "properties that are not described are refused or restricted from now on",
                );
            }
            (false, _) if closed(old) && closed(new) => {}
            (false, _) if closed(old) => {
                self.say(
                    at,
                    keyword,
                    Kind::Widened,
                    &[],
                    "properties that are not described are allowed",
                );
            }
            (false, _) => self.schema(at.under(keyword, None)),
        }
        let keyword = "patternProperties";
        let (old, new) = at.maps(keyword);
        for name in old.into_iter().flatten().map(|(name, _)| name) {
            let here = at.under(keyword, Some(name));
            if new.is_some_and(|new| new.contains_key(name)) {
                self.schema(here);
            } else {
                let reason = format!("names like `{}` are no longer described", short(name));
                self.changes.push(Change {
                    pointer: here.old_at,
                    kind: Kind::PropertyRemoved,
                    breaks: BOTH,
                    reason,
                    announced: here.announced,
                });
            }
        }
        for name in new.into_iter().flatten().map(|(name, _)| name) {
            if old.is_none_or(|old| !old.contains_key(name)) {
                let here = at.under(keyword, Some(name));
                let reason = format!("names like `{}` are restricted from now on", short(name));
                self.say(&here, "", Kind::Narrowed, SENDERS, reason);
            }
        }
        if at.both("propertyNames") != (None, None) {
            self.schema(at.under("propertyNames", None));
        }
    }

    pub(super) fn required(&mut self, at: &SchemaPair<'a>) {
        let (old, new) = (texts(at.old.get("required")), texts(at.new.get("required")));
        for name in new.difference(&old) {
            let reason =
                format!("`{name}` must be there from now on: who does not send it is refused");
            self.say(at, "required", Kind::RequiredAdded, SENDERS, reason);
        }
        for name in old.difference(&new) {
            let reason =
                format!("`{name}` may be left out: a receiver that relies on it may find nothing");
            self.say(at, "required", Kind::RequiredRemoved, RECEIVERS, reason);
        }
        let keyword = "dependentRequired";
        let (old, new) = at.maps(keyword);
        let names = |map: Option<&'a Map<String, Value>>, name: &str| {
            texts(map.and_then(|map| map.get(name)))
        };
        let all: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for name in all {
            let here = at.under(keyword, Some(name));
            let (old, new) = (names(old, name), names(new, name));
            if new.difference(&old).next().is_some() {
                self.say(
                    &here,
                    "",
                    Kind::Narrowed,
                    SENDERS,
                    format!("with `{name}` more must be there from now on"),
                );
            }
            if old.difference(&new).next().is_some() {
                self.say(
                    &here,
                    "",
                    Kind::RequiredRemoved,
                    RECEIVERS,
                    format!("with `{name}` less must be there"),
                );
            }
        }
        let keyword = "dependentSchemas";
        let (old, new) = at.maps(keyword);
        let all: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for name in all {
            self.schema(at.under(keyword, Some(name)));
        }
    }
}
