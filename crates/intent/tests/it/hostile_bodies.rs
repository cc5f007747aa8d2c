//! Bodies that are invalid, ambiguous or malicious.

use serde_json::json;

use crate::publish::post;
use crate::world::World;

#[tokio::test]
async fn ip_089_of_repeated_members_the_last_counts() {
    let world = World::new();
    let body = r#"{"goal":5,"payload":1,"goal":"first","g\u006fal":"last","payload":[2]}"#;
    assert_eq!(post(&world, body).await.status, 201);
    let job = world.claim().await.unwrap();
    assert_eq!(
        (&job["goal"], &job["payload"]),
        (&json!("last"), &json!([2]))
    );
    post(&world, r#"{"goal":"g","payload":1,"goal":5}"#)
        .await
        .assert_refused(400, "invalid_goal");
}

#[tokio::test]
async fn ip_089_what_is_not_one_json_object_is_refused() {
    let world = World::new();
    let texts: &[&[u8]] = &[
        b"",
        b" \n",
        b"{",
        b"}",
        b"null",
        b"5",
        b"\"{}\"",
        b"[]",
        b"[{\"goal\":\"g\",\"payload\":1}]",
        b"goal=g&payload=1",
        b"{\"goal\":\"g\",\"payload\":1",
        b"{\"goal\":\"g\",\"payload\":1}}",
        b"{\"goal\":\"g\",\"payload\":1}{}",
        b"{\"goal\":\"g\",\"payload\":1} x",
        b"{\"goal\":\"g\",\"payload\":1,}",
        b"{\"goal\":\"g\",,\"payload\":1}",
        b"{\"goal\":\"g\" \"payload\":1}",
        b"{\"goal\"=\"g\",\"payload\":1}",
        b"{'goal':'g','payload':1}",
        b"{goal:\"g\",payload:1}",
        b"{\"goal\":\"g\",\"payload\":NaN}",
        b"{\"goal\":\"g\",\"payload\":Infinity}",
        b"{\"goal\":\"g\",\"payload\":-}",
        b"{\"goal\":\"g\",\"payload\":01}",
        b"{\"goal\":\"g\",\"payload\":1.}",
        b"{\"goal\":\"g\",\"payload\":.5}",
        b"{\"goal\":\"g\",\"payload\":+1}",
        b"{\"goal\":\"g\",\"payload\":1e}",
        b"{\"goal\":\"g\",\"payload\":0x1}",
        b"{\"goal\":\"g\",\"payload\":True}",
        b"{\"goal\":\"g\",\"payload\":nul}",
        b"{\"goal\":\"g\",\"payload\":[1}}",
        b"{\"goal\":\"g\",\"payload\":\"\\x41\"}",
        b"{\"goal\":\"g\",\"payload\":\"\\u12\"}",
        b"{\"goal\":\"g\",\"payload\":\"\\ud8\"}",
        b"{\"goal\":\"g\",\"payload\":\"a\nb\"}",
        b"{\"goal\":\"g\",\"payload\":\"a\0b\"}",
        b"{\"goal\":\"g\",\"payload\":1}\0",
        b"\0{\"goal\":\"g\",\"payload\":1}",
        b"{\"goal\":\"g\",/* */\"payload\":1}",
        b"{\"goal\":\"g\",\"payload\":1,\"\\ud800\":1}",
        b"\xef\xbb\xbf{\"goal\":\"g\",\"payload\":1}",
        b"{\"goal\":\"g\",\"payload\":\"\xff\"}",
        b"{\"goal\":\"g\",\"payload\":\"\xc0\xaf\"}",
        b"{\"goal\":\"g\",\"payload\":\"\xed\xa0\x80\"}",
        b"{\"goal\":\"g\",\"payload\":\"\xf5\x80\x80\x80\"}",
        b"{\"goal\":\"g\",\"payload\":\"\xc3\"}",
        b"\xff\xfe{\0}\0",
    ];
    for body in texts {
        let answer = post(&world, *body).await;
        assert_eq!(
            answer.status,
            400,
            "{}: {}",
            String::from_utf8_lossy(body),
            answer.text()
        );
        answer.assert_refused(400, "invalid_payload");
    }
    assert!(world.claim().await.is_none(), "none of them was published");
}

#[tokio::test]
async fn ip_089_ip_033_bodies_may_nest_128_levels() {
    let world = World::new();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for (levels, fits) in [
            (126, true),
            (127, true),
            (128, false),
            (129, false),
            (700, false),
        ] {
            // The body itself is the first level.
            let inner = if open == "[" { "" } else { "1" };
            let value = format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
            let answer = post(&world, format!("{{\"goal\":\"g\",\"payload\":{value}}}")).await;
            if fits {
                assert_eq!(answer.status, 201, "{levels}: {}", answer.text());
            } else {
                answer.assert_refused(400, "invalid_payload");
                assert!(
                    answer.text().contains("128"),
                    "the limit is named: {}",
                    answer.text()
                );
            }
        }
    }
    let unclosed = "{\"goal\":\"g\",\"payload\":".to_owned() + &"[".repeat(8_000);
    post(&world, unclosed)
        .await
        .assert_refused(400, "invalid_payload");
}
