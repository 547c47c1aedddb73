//! Queries of images' addresses: the coordinates and the key of a map, the size of a picture and the settings of a chart carry
//! nothing away; a place for a text does.

use super::template::{CARRIED, is_template};

/// Most brackets of a chart's settings.
const MOST: usize = 64;

/// Names of places for coordinates.
const COORDINATES: [&str; 11] =
    ["x", "y", "z", "s", "lat", "lon", "lng", "zoom", "latitude", "longitude", "bbox"];

/// Names of places for the form of a picture, besides coordinates of more than one letter.
const FORMS: [&str; 17] = [
    "branch", "color", "colour", "dpi", "dpr", "format", "h", "height", "lang", "locale", "r",
    "scale", "size", "style", "theme", "version", "width",
];

/// Names of places for the key of a service, without the signs between their words. "Your" may stand before them.
const KEYS: [&str; 10] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "appid",
    "appkey",
    "key",
    "mapboxaccesstoken",
    "mapkey",
    "token",
];

/// Signs that addresses write with a percent sign and that matter here.
const ESCAPES: [(&str, char); 8] = [
    ("7b", '{'),
    ("7d", '}'),
    ("5b", '['),
    ("5d", ']'),
    ("22", '"'),
    ("27", '\''),
    ("3a", ':'),
    ("2c", ','),
];

/// Whether an image's address has places in its query, and each is one that carries nothing away. `rest` is what follows the
/// host, and may go on behind the address.
pub(super) fn is_harmless_query(rest: &[u8]) -> bool {
    let rest = String::from_utf8_lossy(rest);
    let Some((path, query)) = rest.split_once('?') else { return false };
    let query = without_escapes(query);
    let Some(mut query) = until_end(&query).map(str::to_owned) else { return false };
    let map = is_map(&format!("{path}?{query}"));
    for _ in 0..MOST {
        let Some(close) = query.find([']', '}', '>']) else {
            return is_template(path.as_bytes()) && !query.contains(['[', '{', '<']);
        };
        let Some(open) = query[..close].rfind(['[', '{', '<']) else { return false };
        let inside = query[open + 1..close].trim();
        if !is_place(inside, map) && !is_fixed(inside) {
            return false;
        }
        let open = if query[..open].ends_with('$') { open - 1 } else { open };
        query.replace_range(open..=close, "0");
    }
    false
}

/// A query up to the sign outside of brackets that ends its address; `None` if the brackets stay open.
fn until_end(query: &str) -> Option<&str> {
    let mut depth = 0_i32;
    for (at, sign) in query.char_indices() {
        match sign {
            '{' | '[' | '<' => depth += 1,
            '}' | ']' | '>' if depth > 0 => depth -= 1,
            '}' | ']' | '>' | ')' | '"' | '\'' | ' ' | '\n' if depth == 0 => {
                return Some(&query[..at]);
            }
            _ => {}
        }
    }
    (depth == 0).then_some(query)
}

/// The signs of [`ESCAPES`] as they are meant.
fn without_escapes(query: &str) -> String {
    let mut text = String::with_capacity(query.len());
    let mut rest = query;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3).unwrap_or_default().to_ascii_lowercase();
        let sign = ESCAPES.iter().find(|(escape, _)| *escape == code);
        text.push(sign.map_or('%', |(_, sign)| *sign));
        rest = &rest[at + sign.map_or(1, |_| 3)..];
    }
    text + rest
}

/// Whether a text has the places of a map: one tile of it, or one point.
fn is_map(address: &str) -> bool {
    let places = address.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let names: Vec<String> = places.map(|(name, _)| name.to_ascii_lowercase()).collect();
    let has = |one: &str| names.iter().any(|name| name == one);
    has("x") && has("y") && has("z")
        || has("lat") && (has("lon") || has("lng"))
        || has("latitude") && has("longitude")
}

/// Whether a place is for the form of a picture, or on a map for a coordinate or the key of its service.
fn is_place(name: &str, map: bool) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    let key = plain.strip_prefix("your").unwrap_or(&plain);
    FORMS.contains(&&*plain)
        || plain.len() > 1 && COORDINATES.contains(&&*plain)
        || map && (COORDINATES.contains(&&*plain) || KEYS.contains(&key))
}

/// Whether brackets hold values alone: numbers, quotations, and names, each with such a value. A quotation in capitals that names
/// a content is a place to fill in, and no value.
fn is_fixed(inside: &str) -> bool {
    let value = |item: &str| {
        let item = item.trim();
        let quoted = ['"', '\'']
            .iter()
            .any(|mark| item.len() > 1 && item.starts_with(*mark) && item.ends_with(*mark));
        let carried = || {
            let shouted = item.chars().any(|one| one.is_ascii_uppercase())
                && !item.chars().any(|one| one.is_ascii_lowercase());
            let lower = item.to_ascii_lowercase();
            (shouted || lower.contains("insert") || lower.contains("here"))
                && CARRIED.iter().any(|one| lower.contains(one))
        };
        item.parse::<f64>().is_ok_and(f64::is_finite)
            || matches!(item, "true" | "false" | "null")
            || quoted && !carried()
    };
    inside.split(',').all(|item| match item.split_once(':') {
        Some((_, set)) => value(set),
        None => value(item),
    })
}
