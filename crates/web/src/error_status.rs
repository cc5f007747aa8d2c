//! The HTTP status of an error code, the same in all protocols.

use consign_kernel::error::{Class, Code};
use http::StatusCode;

pub const fn of(code: Code) -> StatusCode {
    match code.class() {
        Class::Invalid => StatusCode::BAD_REQUEST,
        Class::Unauthorized => StatusCode::UNAUTHORIZED,
        Class::Forbidden => StatusCode::FORBIDDEN,
        Class::NotFound => StatusCode::NOT_FOUND,
        Class::Method => StatusCode::METHOD_NOT_ALLOWED,
        Class::Timeout => StatusCode::REQUEST_TIMEOUT,
        Class::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Class::Conflict => StatusCode::CONFLICT,
        Class::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Class::BadGateway => StatusCode::BAD_GATEWAY,
        Class::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
        Class::Gone => StatusCode::GONE,
        Class::Unmet => StatusCode::PRECONDITION_FAILED,
        Class::TooEarly => StatusCode::TOO_EARLY,
        Class::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Class::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Class::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use consign_kernel::profile::Face;

    use super::*;

    /// The first column of the table on a page.
    const fn title(face: Face) -> &'static str {
        match face {
            Face::Intent => "Intent Protocol",
            Face::Automation => "Automations",
            Face::Transaction => "Agent transactions",
            Face::Mesh => "Mesh",
            Face::Beam => "Beam",
        }
    }

    #[test]
    fn the_page_of_a_code_has_its_status_in_each_protocol() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for code in Code::ALL {
            let name = code.name();
            let page = std::fs::read_to_string(pages.join(format!("{name}.md"))).unwrap();
            for face in code.faces() {
                let row = format!("| {} | ", title(*face));
                let stated = page.lines().find_map(|line| line.strip_prefix(&row));
                let stated = stated.unwrap_or_else(|| panic!("{name} has no row {row}"));
                // Only an item of a batch is refused with it.
                let status = if *code == Code::InvalidAction {
                    StatusCode::OK
                } else {
                    of(*code)
                };
                assert!(stated.contains(&status.to_string()), "{name}: {stated}");
                let rows = Code::of_face(*face).filter(|other| other.name() == name);
                let numbers = stated.split(|sign: char| !sign.is_ascii_digit());
                let numbers = numbers.filter(|word| word.len() == 3);
                assert_eq!(numbers.count(), rows.count(), "{name}: {stated}");
            }
        }
    }
}
