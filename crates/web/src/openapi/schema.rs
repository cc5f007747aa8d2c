//! The schema of a JSON value: type, limits and purpose.
//!
//! Each schema is rendered twice: as JSON Schema and as text. Fields keep the order in which they are declared, which is
//! the order for readers.

use std::fmt::Display;

use serde_json::{Map, Value, json};

/// The schema of one value.
#[derive(Debug, Clone)]
#[must_use]
pub struct Schema {
    /// A named schema is defined once and referred to.
    name: Option<&'static str>,
    is_defined_elsewhere: bool,
    about: &'static str,
    /// The types of JSON Schema; none means any type.
    types: Vec<&'static str>,
    /// All other keywords of JSON Schema.
    rules: Map<String, Value>,
    /// Limits as text, including those that JSON Schema cannot express.
    limits: Vec<String>,
    fields: Vec<SchemaField>,
    items: Option<Box<Self>>,
    /// The value matches exactly one of these.
    variants: Vec<Self>,
}

/// A member of an object.
#[derive(Debug, Clone)]
pub struct SchemaField {
    pub name: &'static str,
    pub required: bool,
    pub schema: Schema,
}

pub fn required(name: &'static str, schema: Schema) -> SchemaField {
    SchemaField {
        name,
        required: true,
        schema,
    }
}

pub fn optional(name: &'static str, schema: Schema) -> SchemaField {
    SchemaField {
        name,
        required: false,
        schema,
    }
}

pub fn anything() -> Schema {
    Schema {
        name: None,
        is_defined_elsewhere: false,
        about: "",
        types: Vec::new(),
        rules: Map::new(),
        limits: Vec::new(),
        fields: Vec::new(),
        items: None,
        variants: Vec::new(),
    }
}

/// A schema that is defined elsewhere in the document.
pub fn reference_to(name: &'static str) -> Schema {
    let mut schema = anything().named(name);
    schema.is_defined_elsewhere = true;
    schema
}

pub fn text() -> Schema {
    anything().of_type("string")
}

pub fn integer() -> Schema {
    anything().of_type("integer")
}

pub fn number() -> Schema {
    anything().of_type("number")
}

pub fn boolean() -> Schema {
    anything().of_type("boolean")
}

pub fn list(items: Schema) -> Schema {
    let mut schema = anything().of_type("array");
    schema.items = Some(Box::new(items));
    schema
}

/// A value that matches one of these schemas.
pub fn either(variants: Vec<Schema>) -> Schema {
    let mut schema = anything();
    schema.variants = variants;
    schema
}

/// An object that may have further members, which are ignored.
pub fn object(fields: Vec<SchemaField>) -> Schema {
    let mut schema = anything().of_type("object");
    schema.fields = fields;
    schema
}

/// An object with exactly these members, for responses.
pub fn exactly(fields: Vec<SchemaField>) -> Schema {
    object(fields).rule("additionalProperties", false)
}

impl Schema {
    fn of_type(mut self, name: &'static str) -> Self {
        self.types.push(name);
        self
    }

    pub fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    pub fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    pub fn nullable(self) -> Self {
        self.of_type("null")
    }

    /// A keyword of JSON Schema that has no text.
    pub fn rule(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.rules.insert(keyword.to_owned(), value.into());
        self
    }

    pub fn limit(mut self, words: impl Into<String>) -> Self {
        self.limits.push(words.into());
        self
    }

    pub fn characters(self, min: usize, max: usize) -> Self {
        self.rule("minLength", min)
            .rule("maxLength", max)
            .limit(format!("{min} to {max} characters"))
    }

    pub fn items(self, min: usize, max: usize) -> Self {
        self.rule("minItems", min)
            .rule("maxItems", max)
            .limit(format!("{min} to {max} items"))
    }

    /// A number outside of the range is refused.
    pub fn within<N: Into<Value> + Display + Copy>(self, min: N, max: N) -> Self {
        self.rule("minimum", min)
            .rule("maximum", max)
            .limit(format!("{min} to {max}"))
    }

    /// A number outside of the range is clamped, which no keyword of JSON Schema can express.
    pub fn clamped_to<N: Display>(self, min: N, max: N) -> Self {
        self.limit(format!("clamped to {min} to {max}"))
    }

    pub fn by_default(self, value: impl Into<Value>) -> Self {
        let value = value.into();
        let words = format!("default {value}");
        self.rule("default", value).limit(words)
    }

    pub fn one_of<'a>(self, words: impl IntoIterator<Item = &'a str>) -> Self {
        let words: Vec<&str> = words.into_iter().collect();
        let shown = words.join(", ");
        self.rule("enum", json!(words)).limit(shown)
    }

    pub fn always(self, value: impl Into<Value>) -> Self {
        let value = value.into();
        let words = format!("always {}", words_of(&value));
        self.rule("const", value).limit(words)
    }

    pub fn hex_digits(self, count: usize) -> Self {
        self.rule("pattern", format!("^[0-9a-f]{{{count}}}$"))
            .limit(format!("{count} hexadecimal digits, lower case"))
    }

    pub fn name(&self) -> Option<&'static str> {
        self.name
    }

    pub fn described(&self) -> &'static str {
        self.about
    }

    pub fn fields(&self) -> &[SchemaField] {
        &self.fields
    }

    pub fn element(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    pub fn variants(&self) -> &[Self] {
        &self.variants
    }

    pub fn limits(&self) -> String {
        self.limits.join("; ")
    }

    /// The type as text.
    pub fn kind(&self) -> String {
        if self.types.is_empty() {
            return "any JSON".to_owned();
        }
        self.types.join(" or ")
    }

    /// The definition, or a reference to it if it has a name.
    pub fn reference(&self) -> Value {
        match self.name {
            Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
            None => self.definition(),
        }
    }

    /// The definition, whether it has a name or not.
    pub fn definition(&self) -> Value {
        let mut out = self.rules.clone();
        match self.types.as_slice() {
            [] => {}
            [only] => drop(out.insert("type".to_owned(), json!(only))),
            several => drop(out.insert("type".to_owned(), json!(several))),
        }
        // A nullable enum must contain null.
        if let (true, Some(Value::Array(values))) =
            (self.types.contains(&"null"), out.get_mut("enum"))
        {
            values.push(Value::Null);
        }
        let description = self.description();
        if !description.is_empty() {
            out.insert("description".to_owned(), description.into());
        }
        if let Some(items) = &self.items {
            out.insert("items".to_owned(), items.reference());
        }
        if !self.variants.is_empty() {
            let variants: Vec<Value> = self.variants.iter().map(Self::reference).collect();
            out.insert("oneOf".to_owned(), variants.into());
        }
        if !self.fields.is_empty() {
            let properties: Map<String, Value> = self
                .fields
                .iter()
                .map(|field| (field.name.to_owned(), field.schema.reference()))
                .collect();
            out.insert("properties".to_owned(), properties.into());
            let required: Vec<&str> = self
                .fields
                .iter()
                .filter(|field| field.required)
                .map(|field| field.name)
                .collect();
            if !required.is_empty() {
                out.insert("required".to_owned(), json!(required));
            }
        }
        out.into()
    }

    /// The purpose, and the limits that no keyword expresses.
    fn description(&self) -> String {
        let stated = [
            "minLength",
            "minItems",
            "minimum",
            "enum",
            "const",
            "default",
        ];
        let unstated = !stated
            .iter()
            .any(|keyword| self.rules.contains_key(*keyword));
        match (self.about, self.limits()) {
            (about, limits) if limits.is_empty() || !unstated => about.to_owned(),
            ("", limits) => limits,
            (about, limits) => format!("{about} Limit: {limits}."),
        }
    }

    /// Calls `found` with every named schema in this one, itself included.
    pub fn each_named<'a>(&'a self, found: &mut impl FnMut(&'static str, &'a Self)) {
        if let Some(name) = self.name
            && !self.is_defined_elsewhere
        {
            found(name, self);
        }
        let inner = self.fields.iter().map(|field| &field.schema);
        for schema in inner.chain(self.items.as_deref()).chain(&self.variants) {
            schema.each_named(found);
        }
    }
}

/// A value as text: a string without its quotes.
fn words_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_tells_its_fields_and_which_of_them_it_needs() {
        let schema = exactly(vec![
            required("b", text().about("First.").characters(1, 3)),
            optional("a", integer().nullable().within(0, 9)),
        ]);
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["b"],
            "properties": {
                "a": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
                "b": {"type": "string", "minLength": 1, "maxLength": 3, "description": "First."},
            },
        });
        assert_eq!(schema.definition(), expected);
        assert_eq!(schema.fields()[0].name, "b", "in the order written");
    }

    #[test]
    fn what_has_a_name_is_referred_to() {
        let schema = list(text().named("Word"));
        let reference = json!({"$ref": "#/components/schemas/Word"});
        assert_eq!(schema.reference()["items"], reference);
        let mut names = Vec::new();
        schema.each_named(&mut |name, _| names.push(name));
        assert_eq!(names, ["Word"]);
    }

    #[test]
    fn null_is_among_the_words_of_a_value_that_may_be_null() {
        let schema = text().one_of(["a"]).nullable();
        assert_eq!(schema.definition()["enum"], json!(["a", null]));
    }

    #[test]
    fn a_limit_that_no_keyword_tells_is_told_in_words() {
        let schema = integer().about("Tries.").clamped_to(1, 20);
        let stated = "Tries. Limit: clamped to 1 to 20.";
        assert_eq!(schema.definition()["description"], stated);
    }
}
