// SPDX-License-Identifier: MIT OR Apache-2.0
//! A JSON object of which only the members that change are taken apart.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::OciError;

/// A JSON object whose values nobody has looked into: its members in their order.
#[derive(Default)]
pub(super) struct Object<'a>(Vec<(String, Cow<'a, RawValue>)>);

impl<'a> Object<'a> {
    pub(super) fn not_json(source: serde_json::Error) -> OciError {
        OciError::NotJson { what: "config.json", source }
    }

    /// An object, or none where there is `null` or nothing.
    fn of(value: Option<&RawValue>) -> Result<Self, OciError> {
        let Some(value) = value else { return Ok(Self::default()) };
        let text = value.get();
        let object: Option<Object<'_>> = serde_json::from_str(text).map_err(Self::not_json)?;
        let owned = object.unwrap_or_default().0.into_iter();
        Ok(Self(owned.map(|(key, value)| (key, Cow::Owned(value.into_owned()))).collect()))
    }

    fn value(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    pub(super) fn get<T: for<'b> Deserialize<'b>>(&self, key: &str) -> Result<Option<T>, OciError> {
        self.value(key).map(|value| serde_json::from_str(value.get()).map_err(Self::not_json)).transpose()
    }

    /// The object at `key`, or one without members.
    pub(super) fn object(&self, key: &str) -> Result<Object<'static>, OciError> {
        Object::of(self.value(key))
    }

    /// The first item of the list at `key` that `is_it` knows, of those that have the shape `T`.
    pub(super) fn find<T: DeserializeOwned>(&self, key: &str, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let items: Vec<&RawValue> = serde_json::from_str(self.value(key)?.get()).ok()?;
        items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).find(is_it)
    }

    pub(super) fn put(&mut self, key: &str, value: &impl Serialize) -> Result<(), OciError> {
        let value = Cow::Owned(to_raw_value(value).map_err(Self::not_json)?);
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
        Ok(())
    }

    /// Changes the object at `key`. Where there was none and nothing was put into it, there still is none.
    pub(super) fn update(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Object<'_>) -> Result<(), OciError>,
    ) -> Result<(), OciError> {
        let mut object = self.object(key)?;
        change(&mut object)?;
        match object.0.is_empty() && self.value(key).is_none() {
            true => Ok(()),
            false => self.put(key, &object),
        }
    }

    /// Takes those that `is_old` knows out of the list at `key`, and puts `new` at its end. An item that is not of
    /// the shape `T` is not ours and stays.
    pub(super) fn renew<T: for<'b> Deserialize<'b>>(
        &mut self,
        key: &str,
        new: &[impl Serialize],
        is_old: impl Fn(&T) -> bool,
    ) -> Result<(), OciError> {
        let text = self.value(key).map_or("null", RawValue::get).to_owned();
        let items: Option<Vec<&RawValue>> = serde_json::from_str(&text).map_err(Self::not_json)?;
        let old = items.unwrap_or_default();
        let mut items: Vec<Cow<'_, RawValue>> = Vec::with_capacity(old.len() + new.len());
        let stays = |item: &&RawValue| !serde_json::from_str(item.get()).is_ok_and(|item| is_old(&item));
        items.extend(old.iter().copied().filter(stays).map(Cow::Borrowed));
        if items.len() == old.len() && new.is_empty() {
            return Ok(());
        }
        for item in new {
            items.push(Cow::Owned(to_raw_value(item).map_err(Self::not_json)?));
        }
        self.put(key, &items)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, OciError> {
        serde_json::to_vec(self).map_err(Self::not_json)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((key, Cow::Borrowed(value)));
                }
                Ok(Object(members))
            }
        }
        from.deserialize_map(Members)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
