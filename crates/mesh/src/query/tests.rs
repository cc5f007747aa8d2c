//! Decoding.

use super::*;

#[test]
fn pairs_are_decoded() {
    let query = QueryPairs::parse("a=1&b=x%20y+z&%74oken=s&c&a=2&d=%zz%4&e=gr%C3%BC%C3%9Fe");
    assert_eq!(query.get("a"), Some("1"));
    assert_eq!(query.get("b"), Some("x y z"));
    assert_eq!(query.get("token"), Some("s"));
    assert_eq!(query.get("c"), Some(""));
    assert_eq!(query.get("d"), Some("%zz%4"));
    assert_eq!(query.get("e"), Some("grüße"));
    assert!(!query.has("f"));
    assert_eq!(QueryPairs::parse("&&"), QueryPairs::default());
}
