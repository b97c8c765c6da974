//! What others rely on: the `OpenAPI` document, who may do what, the pages. And what we rely on
//! ourselves: which module may know of which.

mod authz;
mod docs;
mod imports;
mod openapi;

use std::{fs, path::PathBuf};

use http::Method;
use serde_json::Value;

use crate::support::client::{Call, Client};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The document as it is committed.
pub fn committed() -> Value {
    let text = fs::read_to_string(root().join("openapi/tollgate.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The document as the code makes it.
fn generated() -> Value {
    serde_json::to_value(tollgate::http::document()).unwrap()
}

/// One operation of the document.
struct Operation {
    id: String,
    method: Method,
    path: String,
    spec: Value,
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, spec) in item.as_object().unwrap() {
            let Ok(method) = Method::from_bytes(method.to_uppercase().as_bytes()) else { continue };
            let id =
                spec["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path}: no id"));
            let (id, path, spec) = (id.to_owned(), path.clone(), spec.clone());
            operations.push(Operation { id, method, path, spec });
        }
    }
    operations
}

impl Operation {
    fn parameters(&self) -> &[Value] {
        self.spec["parameters"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The path with the document's own example of each parameter.
    fn example_path(&self) -> String {
        let in_path = self.parameters().iter().filter(|parameter| parameter["in"] == "path");
        in_path.fold(self.path.clone(), |path, parameter| {
            let name = parameter["name"].as_str().unwrap();
            let example = parameter["example"].as_str();
            let example = example.unwrap_or_else(|| panic!("{}: {name} has no example", self.id));
            path.replace(&format!("{{{name}}}"), example)
        })
    }

    /// The document's own example of the body.
    fn example_body<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        let reference =
            &self.spec.get("requestBody")?["content"]["application/json"]["schema"]["$ref"];
        let schema = resolve(document, reference.as_str().unwrap());
        let example = schema.get("example");
        Some(example.unwrap_or_else(|| panic!("{}: the body has no example", self.id)))
    }

    /// A request made of the document's own examples.
    fn example_call(&self, document: &Value, client: &Client) -> Call {
        let call = client.request(self.method.clone(), &self.example_path());
        match self.example_body(document) {
            Some(body) => call.json(body),
            None => call,
        }
    }
}

/// What a `$ref` points to.
fn resolve<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let pointer = reference.strip_prefix('#').unwrap();
    document.pointer(pointer).unwrap_or_else(|| panic!("{reference} points nowhere"))
}
