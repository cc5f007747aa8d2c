//! The builder of `OpenAPI` 3.1 documents and of the HTML page, for all protocols.
//!
//! Invariant: it knows no protocol. A protocol lists its [`Endpoint`]s, renders its errors in a [`Dialect`], and passes titles
//! and security schemes as a frame.

mod document;
mod operation;
mod page;
pub mod schema;

pub use document::{Dialect, ErrorResponseSpec, VERSION, document, merge};
pub use operation::{
    Access, Endpoint, Operation, OperationLink, Parameter, ParameterIn, RequestBody,
    ResponseContent, ResponseSpec, Tag,
};
pub use page::{PageTexts, page};
