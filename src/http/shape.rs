//! Reads a JSON value as a type: only an object is a struct, and an error has its place.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};
use serde_path_to_error::Segment;

use super::problem::{Problem, wrong};
use handoffd_domain::failure::escaped;

/// A value whose structs are objects. A derived struct can be read from an array, too, which is never meant.
struct Shaped(Value);

impl IntoDeserializer<'_, Error> for Shaped {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Shaped {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(list) => {
                let mut items = SeqDeserializer::new(list.into_iter().map(Self));
                let read = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(read)
            }
            Value::Object(object) => {
                let members =
                    object.into_iter().map(|(name, value)| (Self(name.into()), Self(value)));
                let mut members = MapDeserializer::new(members);
                let read = visitor.visit_map(&mut members)?;
                members.end()?;
                Ok(read)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.0.is_array() {
            return Err(Error::invalid_type(Unexpected::Seq, &"an object"));
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// A value as a type.
///
/// # Errors
/// [`Problem`] with the place of the part that does not fit.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Shaped(value)).map_err(|err| {
        let segments = err.path().iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Map { key } => Some(escaped(key)),
            // A variant is a member of its object, or no place of its own.
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let pointer: String = segments.flat_map(|segment| ["/".to_owned(), segment]).collect();
        wrong(&pointer, err.into_inner().to_string())
    })
}

/// Refuses each `null` of a patch that clears nothing: it would say the same as an absent member. `at` is the pointer of the
/// object.
///
/// # Errors
/// [`Problem`] with its place.
pub(crate) fn no_idle_nulls<T>(at: &str, patch: &Map<String, Value>) -> Result<(), Problem>
where
    T: DeserializeOwned + Default + PartialEq,
{
    for (name, _) in patch.iter().filter(|(_, value)| value.is_null()) {
        let alone = Value::Object(Map::from_iter([(name.clone(), Value::Null)]));
        // An unknown name is refused when the whole patch is read.
        if typed::<T>(alone).is_ok_and(|alone| alone == T::default()) {
            let pointer = format!("{at}/{}", escaped(name));
            return Err(wrong(
                &pointer,
                "null clears nothing here: leave the member out, or give its new value",
            ));
        }
    }
    Ok(())
}
