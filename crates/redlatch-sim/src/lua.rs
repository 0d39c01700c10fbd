//! Runs the shipped scripts as Redis does: Lua 5.1, and a table `redis`.

use std::collections::BTreeMap;

use mlua::{Function, Lua, MultiValue, Table};

use crate::store::WRONG_TYPE;
use crate::value::Value;

/// Runs scripts. Nothing of a server is in here, so all servers share one.
pub(crate) struct Engine {
    lua: Lua,
    compiled: BTreeMap<String, Function>,
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            lua: Lua::new(),
            compiled: BTreeMap::new(),
        }
    }

    /// Runs a script to its end. `call` does what the script asks the server for. What the
    /// server refuses to do ends the script, with that answer.
    pub(crate) fn run(
        &mut self,
        text: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
        mut call: impl FnMut(&[Vec<u8>]) -> Value,
    ) -> Value {
        let lua = &self.lua;
        let refused = std::cell::RefCell::new(None);
        let compiled = match self.compiled.get(text) {
            Some(function) => Ok(function.clone()),
            None => lua.load(text).into_function(),
        };
        let ran = compiled.and_then(|function| {
            self.compiled
                .entry(text.to_owned())
                .or_insert_with(|| function.clone());
            let strings = |texts: &[Vec<u8>]| -> mlua::Result<Table> {
                let texts = texts.iter().map(|text| lua.create_string(text));
                lua.create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
            };
            let globals = lua.globals();
            globals.set("KEYS", strings(keys)?)?;
            globals.set("ARGV", strings(arguments)?)?;
            let call = std::cell::RefCell::new(&mut call);
            lua.scope(|scope| {
                let redis = lua.create_table()?;
                redis.set(
                    "call",
                    scope.create_function(|lua, words: MultiValue| {
                        match (call.borrow_mut())(&read_words(words)) {
                            Value::Error(error) => {
                                *refused.borrow_mut() = Some(error.clone());
                                Err(mlua::Error::RuntimeError(error))
                            }
                            value => to_lua(lua, value),
                        }
                    })?,
                )?;
                redis.set(
                    "pcall",
                    scope.create_function(|lua, words: MultiValue| {
                        to_lua(lua, (call.borrow_mut())(&read_words(words)))
                    })?,
                )?;
                globals.set("redis", redis)?;
                function.call::<mlua::Value>(())
            })
        });
        match ran.and_then(from_lua) {
            Ok(value) => value,
            Err(error) => match refused.take() {
                Some(refused) if refused != WRONG_TYPE => Value::Error(refused),
                // None of our scripts may fail, whatever it finds.
                _ => panic!("a script failed: {error}"),
            },
        }
    }
}

fn read_words(words: MultiValue) -> Vec<Vec<u8>> {
    let read = |word: mlua::Value| match word {
        mlua::Value::String(text) => text.as_bytes().to_vec(),
        mlua::Value::Integer(number) => number.to_string().into_bytes(),
        mlua::Value::Number(number) => format!("{number}").into_bytes(),
        other => panic!("Redis takes no {} in a command", other.type_name()),
    };
    words.into_iter().map(read).collect()
}

fn to_lua(lua: &Lua, value: Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Nil => mlua::Value::Boolean(false),
        Value::Int(number) => mlua::Value::Number(number as f64),
        Value::Text(text) => mlua::Value::String(lua.create_string(text)?),
        Value::Status(status) => mlua::Value::Table(lua.create_table_from([("ok", status)])?),
        Value::Error(error) => mlua::Value::Table(lua.create_table_from([("err", error)])?),
        Value::Array(values) | Value::Push(values) => {
            let values = values.into_iter().map(|value| to_lua(lua, value));
            let values = values.collect::<mlua::Result<Vec<_>>>()?;
            mlua::Value::Table(lua.create_sequence_from(values)?)
        }
        Value::Map(_) => panic!("no command of ours answers a map"),
    })
}

fn from_lua(value: mlua::Value) -> mlua::Result<Value> {
    Ok(match value {
        mlua::Value::Nil | mlua::Value::Boolean(false) => Value::Nil,
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Integer(number) => Value::Int(number),
        mlua::Value::Number(number) => Value::Int(number as i64),
        mlua::Value::String(text) => Value::text(text.as_bytes()),
        mlua::Value::Table(table) => {
            if let Some(error) = table.raw_get::<Option<String>>("err")? {
                return Ok(Value::Error(error));
            }
            // As in Redis: the array ends at the first nil.
            let mut values = Vec::new();
            for at in 1.. {
                match table.raw_get::<mlua::Value>(at)? {
                    mlua::Value::Nil => break,
                    value => values.push(from_lua(value)?),
                }
            }
            Value::Array(values)
        }
        other => panic!("no script of ours returns a {}", other.type_name()),
    })
}
