//! Operations as an HTML page, without scripts and external resources.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use consign_kernel::error::Code;
use http::Method;

use super::operation::{Endpoint, Operation, ResponseContent, Tag};
use super::schema::Schema;
use crate::error_status;
use crate::html::escape;

const STYLE: &str = include_str!("page.css");

/// The parts of the page that only the protocol knows.
#[derive(Debug, Clone, Copy)]
pub struct PageTexts<'a> {
    /// HTML between the beginning of the body and the list of operations.
    pub header: &'a str,
    pub title: &'a str,
    pub tags: &'a [Tag],
    /// Credentials, the header that carries them, and their purpose.
    pub ways_in: &'a [(&'a str, &'a str, &'a str)],
    /// The table of errors, in this order.
    pub codes: &'a [Code],
    /// The meaning of a status in one sentence.
    pub meaning: fn(u16) -> &'static str,
    /// The address in example commands.
    pub example_server: &'a str,
    /// The values of path parameters in example commands.
    pub example_values: &'a [(&'a str, &'a str)],
}

pub fn page(endpoints: &[Endpoint], texts: &PageTexts<'_>) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>{}",
        escape(texts.title),
        texts.header,
    );
    contents(&mut page, endpoints, texts.tags);
    ways_in(&mut page, texts.ways_in);
    for tag in texts.tags {
        let _ = write!(
            page,
            "<section><h2>{}</h2><p class=\"soft\">{}</p>",
            tag.title, tag.about
        );
        for endpoint in endpoints.iter().filter(|one| one.operation.tag == *tag) {
            article(&mut page, endpoint, texts);
        }
        page.push_str("</section>");
    }
    shapes(&mut page, endpoints);
    errors(&mut page, texts);
    page.push_str("</main></body></html>");
    page
}

fn contents(page: &mut String, endpoints: &[Endpoint], tags: &[Tag]) {
    page.push_str("<nav aria-label=\"Operations\">");
    for tag in tags {
        let _ = write!(page, "<div><b>{}</b><ul>", tag.title);
        for route in endpoints.iter().filter(|one| one.operation.tag == *tag) {
            let _ = write!(
                page,
                "<li>{}<a href=\"#{}\">{}</a></li>",
                method(route),
                route.operation.id,
                escape(route.operation.summary)
            );
        }
        page.push_str("</ul></div>");
    }
    page.push_str(
        "<div><b>Reference</b><ul><li><a href=\"#ways-in\">Ways in</a></li>\
         <li><a href=\"#shapes\">Shapes</a></li><li><a href=\"#errors\">Errors</a></li></ul></div></nav>",
    );
}

fn ways_in(page: &mut String, ways: &[(&str, &str, &str)]) {
    page.push_str("<section id=\"ways-in\"><h2>Ways in</h2><div class=\"shape\">");
    let rows = ways.iter().map(|(name, header, about)| {
        [
            format!("<b>{name}</b>"),
            format!("<code>{}</code>", escape(header)),
            escape(about),
        ]
    });
    table(page, ["Credential", "Send", "For"], rows);
    page.push_str("</div></section>");
}

fn article(page: &mut String, route: &Endpoint, texts: &PageTexts<'_>) {
    let operation = &route.operation;
    let _ = write!(
        page,
        "<article id=\"{}\"><h3>{}<code>{}</code></h3><p class=\"summary\">{}</p>",
        operation.id,
        method(route),
        escape(route.path),
        escape(operation.summary),
    );
    if !operation.about.is_empty() {
        let _ = write!(page, "<p>{}</p>", escape(operation.about));
    }
    let _ = write!(
        page,
        "<p class=\"soft\">Needs {}.</p>",
        operation.access.words
    );
    takes(page, operation);
    let _ = write!(
        page,
        "<h4>Example</h4><pre>{}</pre>",
        escape(&curl(route, texts))
    );
    for response in operation.responses.iter().take(1) {
        if !response.example.is_empty() {
            let _ = write!(page, "<pre>{}</pre>", escape(response.example));
        }
    }
    answers(page, operation);
    refusals(page, operation, texts.meaning);
    page.push_str("</article>");
}

fn takes(page: &mut String, operation: &Operation) {
    let mut rows = Vec::new();
    for parameter in &operation.parameters {
        let location = parameter.location.name();
        let row = FieldRow::new(parameter.name.to_owned(), &parameter.schema);
        rows.push(row.note(location));
    }
    if let Some(body) = &operation.body {
        let mut fields = Vec::new();
        collect(&mut fields, "", &body.schema);
        rows.extend(fields.into_iter().map(|row| row.note("body")));
    }
    if rows.is_empty() {
        return;
    }
    page.push_str("<h4>Takes</h4>");
    table(
        page,
        ["Name", "Type", "Meaning"],
        rows.into_iter().map(FieldRow::cells),
    );
    if let Some(body) = &operation.body {
        let _ = write!(
            page,
            "<p class=\"limit\">The body may have {} bytes.</p>",
            body.bytes_max
        );
    }
}

fn answers(page: &mut String, operation: &Operation) {
    page.push_str("<h4>Answers</h4>");
    for response in &operation.responses {
        let what = match &response.content {
            ResponseContent::Nothing => "no body".to_owned(),
            ResponseContent::Text(kind) => format!("<code>{}</code>", escape(kind)),
            ResponseContent::Json(schema) => kind_of(schema),
        };
        let _ = write!(
            page,
            "<p><b>{}</b> {} <span class=\"soft\">({what})</span></p>",
            response.status.as_u16(),
            escape(response.about)
        );
        if let ResponseContent::Json(schema) = &response.content {
            let mut rows = Vec::new();
            if schema.name().is_none() {
                collect(&mut rows, "", schema);
            }
            if !rows.is_empty() {
                table(
                    page,
                    ["Name", "Type", "Meaning"],
                    rows.into_iter().map(FieldRow::cells),
                );
            }
        }
    }
}

fn refusals(page: &mut String, operation: &Operation, meaning: fn(u16) -> &'static str) {
    page.push_str("<details><summary>Refusals</summary>");
    let rows = operation.refusals().into_iter().map(|(status, codes)| {
        let codes: Vec<String> = codes
            .iter()
            .map(|code| format!("<code>{}</code>", code.name()))
            .collect();
        [
            format!("<b>{status}</b>"),
            meaning(status).to_owned(),
            codes.join(" "),
        ]
    });
    table(page, ["Status", "Meaning", "Codes"], rows);
    page.push_str("</details>");
}

fn shapes(page: &mut String, routes: &[Endpoint]) {
    let mut shapes: BTreeMap<&str, &Schema> = BTreeMap::new();
    for route in routes {
        let bodies = route.operation.body.iter().map(|body| &body.schema);
        let responses = route.operation.responses.iter();
        let answers = responses.filter_map(|response| match &response.content {
            ResponseContent::Json(schema) => Some(schema),
            ResponseContent::Nothing | ResponseContent::Text(_) => None,
        });
        for schema in bodies.chain(answers) {
            schema.each_named(&mut |name, named| {
                shapes.insert(name, named);
            });
        }
    }
    page.push_str("<section id=\"shapes\"><h2>Shapes</h2>");
    for (name, schema) in shapes {
        let _ = write!(
            page,
            "<div class=\"shape\" id=\"shape-{name}\"><h3>{name}</h3>"
        );
        let mut rows = Vec::new();
        collect(&mut rows, "", schema);
        table(
            page,
            ["Name", "Type", "Meaning"],
            rows.into_iter().map(FieldRow::cells),
        );
        page.push_str("</div>");
    }
    page.push_str("</section>");
}

fn errors(page: &mut String, texts: &PageTexts<'_>) {
    page.push_str("<section id=\"errors\"><h2>Errors</h2><div class=\"shape\">");
    let rows = texts.codes.iter().map(|code| {
        let status = error_status::of(*code).as_u16();
        [
            format!("<code>{}</code>", code.name()),
            status.to_string(),
            (texts.meaning)(status).to_owned(),
        ]
    });
    table(page, ["Code", "Status", "Meaning of the status"], rows);
    page.push_str("</div></section>");
}

/// One row of the table of fields.
struct FieldRow {
    name: String,
    kind: String,
    about: String,
    notes: Vec<&'static str>,
}

impl FieldRow {
    fn new(name: String, schema: &Schema) -> Self {
        let mut about = escape(schema.described());
        let limits = schema.limits();
        if !limits.is_empty() {
            let _ = write!(about, " <span class=\"limit\">{}</span>", escape(&limits));
        }
        Self {
            name,
            kind: kind_of(schema),
            about,
            notes: Vec::new(),
        }
    }

    fn note(mut self, note: &'static str) -> Self {
        self.notes.push(note);
        self
    }

    fn cells(self) -> [String; 3] {
        let notes = self.notes.join(", ");
        [
            format!(
                "<code>{}</code> <span class=\"must\">{notes}</span>",
                escape(&self.name)
            ),
            self.kind,
            self.about,
        ]
    }
}

/// The fields of a schema and of its parts, except parts that have a name of their own.
fn collect(rows: &mut Vec<FieldRow>, prefix: &str, schema: &Schema) {
    for field in schema.fields() {
        let name = format!("{prefix}{}", field.name);
        let row = FieldRow::new(name.clone(), &field.schema);
        rows.push(if field.required {
            row.note("required")
        } else {
            row
        });
        nested(rows, &name, &field.schema);
    }
    if let Some(element) = schema.element().filter(|element| element.name().is_none()) {
        collect(rows, "[].", element);
    }
    for variant in schema.variants() {
        match variant.name() {
            Some(_) => {}
            None => collect(rows, prefix, variant),
        }
    }
}

fn nested(rows: &mut Vec<FieldRow>, name: &str, schema: &Schema) {
    if schema.name().is_none() {
        for field in schema.fields() {
            let name = format!("{name}.{}", field.name);
            let row = FieldRow::new(name.clone(), &field.schema);
            rows.push(if field.required {
                row.note("required")
            } else {
                row
            });
            nested(rows, &name, &field.schema);
        }
    }
    if let Some(element) = schema.element() {
        nested(rows, &format!("{name}[]"), element);
    }
}

/// The type, with a link to its description.
fn kind_of(schema: &Schema) -> String {
    if let Some(name) = schema.name() {
        return format!("<a href=\"#shape-{name}\">{name}</a>");
    }
    if let Some(element) = schema.element() {
        return format!("list of {}", kind_of(element));
    }
    match schema.variants() {
        [] => escape(&schema.kind()),
        variants => {
            let kinds: Vec<String> = variants.iter().map(kind_of).collect();
            kinds.join(" or ")
        }
    }
}

/// An example command.
fn curl(route: &Endpoint, texts: &PageTexts<'_>) -> String {
    let operation = &route.operation;
    let mut line = String::from("curl");
    if route.method == Method::POST && operation.body.is_none() {
        line.push_str(" -X POST");
    }
    if !operation.access.example_header.is_empty() {
        let _ = write!(line, " -H \"{}\"", operation.access.example_header);
    }
    if let Some(body) = &operation.body {
        let _ = write!(line, " \\\n  -d '{}'", body.example);
    }
    let mut path = route.path.to_owned();
    for (name, value) in texts.example_values {
        path = path.replace(name, value);
    }
    let separator = if line.contains('\n') { " \\\n  " } else { " " };
    let query = match operation.example_query {
        "" => String::new(),
        query => format!("?{query}"),
    };
    let _ = write!(line, "{separator}'{}{path}{query}'", texts.example_server);
    line
}

fn method(route: &Endpoint) -> String {
    let name = route.method.as_str();
    let class = name.to_ascii_lowercase();
    format!("<span class=\"method {class}\">{name}</span>")
}

/// The cells contain HTML.
fn table(page: &mut String, columns: [&str; 3], rows: impl Iterator<Item = [String; 3]>) {
    page.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in columns {
        let _ = write!(page, "<th scope=\"col\">{column}</th>");
    }
    page.push_str("</tr></thead><tbody>");
    for row in rows {
        let [first, second, third] = row;
        let _ = write!(
            page,
            "<tr><td>{first}</td><td>{second}</td><td>{third}</td></tr>"
        );
    }
    page.push_str("</tbody></table></div>");
}
