//! The test vectors of the protocol, as published. Two other implementations computed and checked them.

pub(crate) const INTENT: &str = r#"{"action_dedup_key":"b7f3c0de5a1e4d2f","agent_id":"agent-7","agent_key":"ed25519:oJql9HpnWYAv+VX43C0qFKXJnSO+l/hkEn/5ODRVpPA=","amount_cents":1500,"currency":"EUR","expires_at":"2026-05-25T12:10:00.000Z","intent_id":"int_abc","issued_at":"2026-05-25T12:00:00.000Z","max_executions":1,"max_spend_cents":3000,"nonce":"n1","preconditions":[{"intent_id":"int_x","state":"settled"}],"purpose":"Buy a book ≤ €30","rail":{"name":"stripe","payment_method":"pm_1"},"scope":{"actions":["checkout","pay"],"domains":["shop.example"]},"site":"https://shop.example","type":"atp.intent.v1","user_id":"user-42"}"#;
pub(crate) const INTENT_SIGNATURE: &str =
    "oM7UatgpGczfvVMl6A4dtuicNrpTllMxFKtB9pyDLxSrmVXSAMaf1TmXDTS+R+2emmACfHQWE3+a0Yqr+8xcAg==";

pub(crate) const RECEIPT: &str = r#"{"agent_id":"agent-7","intent":{"authorized_at":"2026-05-25T12:00:01.000Z","currency":"EUR","hash":"sha256:bb0cbb929806030d51963b65c71fd23f2653a163a0b3b19f292648d176f2aab3","id":"int_abc","purpose":"Buy a book ≤ €30","scope":{"actions":["checkout","pay"],"domains":["shop.example"]},"spend_cap_cents":3000},"intent_id":"int_abc","issued_at":"2026-05-25T12:00:05.250Z","rail":{"name":"stripe","payment_id":"pi_123","reference":"atp_5de39e4d754d223fead27829ab3e5f8e67578f64"},"receipt_id":"atp_rcpt_0123456789abcdef0123456789abcdef","site":"https://shop.example","site_id":null,"steps":[{"action":"pay","attempts":1,"ended_at":"2026-05-25T12:00:05.000Z","seq":1,"started_at":"2026-05-25T12:00:02.000Z","state":"succeeded"}],"transaction":{"amount_cents":1500,"compensated_at":null,"completed_at":"2026-05-25T12:00:05.000Z","currency":"EUR","error":null,"id":"atp_tx_00112233445566778899aabbccddeeff","idempotency_key_hash":"sha256:14651078437e93d496f2f8133751ff54a550ea05b14da5059c6d526cd34d29b4","settled_at":"2026-05-25T12:00:05.250Z","started_at":"2026-05-25T12:00:02.000Z","status":"settled","summary":null},"type":"atp.receipt.v1"}"#;
pub(crate) const RECEIPT_SIGNATURE: &str =
    "p+T90k5Xa6J8WR7wyFQB8029iJrcgxWREiH0xtr069CkA7NCLJsTEYXpRs/eenFBFRmLYmSENqvfW9g31919CQ==";

pub(crate) const COMPENSATION: &str = r#"{"compensated_at":"2026-05-25T13:00:00.000Z","compensated_cents":1500,"currency":"EUR","intent_id":"int_abc","issued_at":"2026-05-25T13:00:00.000Z","original_receipt_hash":"sha256:3b8b06075177090cd444bdebd7c234c730547d61df182418582e733c94a88038","original_receipt_id":"atp_rcpt_0123456789abcdef0123456789abcdef","outcome":"refunded","previous_state":"settled","rail":{"name":"stripe","payment_id":"pi_123","reference":"atp_5de39e4d754d223fead27829ab3e5f8e67578f64","refund_id":"re_123","refund_reference":"atp_5de39e4d754d223fead27829ab3e5f8e67578f64_refund"},"reason":"user_cancelled","receipt_id":"atp_comp_fedcba9876543210fedcba9876543210","site":"https://shop.example","state":"compensated","transaction_id":"atp_tx_00112233445566778899aabbccddeeff","type":"atp.compensation.v1"}"#;
pub(crate) const COMPENSATION_SIGNATURE: &str =
    "mPlz8t+g1rMD9Xhw2mX/xLMuXhxJ0VwNgVn2BS+eF8v98FLw4j1c9GbNTatq1DreMJz8tUHYQ+J8/aCHKm7jAw==";

pub(crate) const VOID: &str = r#"{"compensated_at":"2026-05-25T12:00:03.000Z","compensated_cents":0,"currency":"EUR","intent_id":"int_def","issued_at":"2026-05-25T12:00:03.000Z","original_receipt_hash":null,"original_receipt_id":null,"outcome":"not_charged","previous_state":"executing","rail":{"name":"stripe","payment_id":"pi_124","reference":"atp_x","refund_id":null,"refund_reference":null},"reason":"card_declined","receipt_id":"atp_comp_00000000000000000000000000000001","site":"https://shop.example","state":"compensated","transaction_id":"atp_tx_00000000000000000000000000000002","type":"atp.compensation.v1"}"#;
pub(crate) const VOID_SIGNATURE: &str =
    "xCLbgViCpHBgqPbEjl5JJ+ARc0poXxNLMeaiJK7p2GBkVPON1DPR/Lv2Xdk5bXEZEAxRvnvLZKm6z6CpfQriBA==";

pub(crate) const AUTHORIZE: &str = r#"{"intent_id":"int_abc","nonce":"n1"}"#;
pub(crate) const AUTHORIZE_SIGNATURE: &str =
    "YyuF5RB9+idEaeal7RIs+9M4ZkybaRD5+7V44WDWHa6oL8GaynBysNBk2UkVUVimh5i4DNuM9SycWYAZjoTvDQ==";

pub(crate) const MANIFEST: &str = r#"{"atp":{"base":"/api/atp","keys":"/api/atp/keys","semantics":"atp/1"},"next_public_key":null,"previous_keys":[],"public_key":"ed25519:0EqyMnQrtKs6E2i9RhXk5tAiSrcaAWuvhSCjMsl3hzc=","schema_version":"wab/1","site":"https://shop.example"}"#;
pub(crate) const MANIFEST_SIGNATURE: &str =
    "ndMZbcWouhVyJabvSfB70zToOtddLy2X8QJK+yjBivcLx5WUnLQmwPv7nSmQyHFJ2c98o5kcYGnfHwKBkdPtAA==";

pub(crate) const EDGES_HEX: &str = "7b225c72223a2243617272696167652052657475726e222c2231223a224f6e65222c226e223a5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d32372c302c31652b32312c3130305d2c2273223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f222c22c280223a22436f6e74726f6c222c22c3b6223a224c6174696e20536d616c6c204c6574746572204f205769746820446961657265736973222c22e282ac223a224575726f205369676e222c22f09f9880223a22456d6f6a693a204772696e6e696e672046616365222c22efacb3223a22486562726577204c65747465722044616c6574205769746820446167657368227d";
pub(crate) const EDGES_SIGNATURE: &str =
    "rDUQgkQT/GibL7s17g00MspJckE0iW69dLSkNEZ8F8Q2KTIoH42uWKmVoKBClx9WigNTfcgvOvY71jBZ15kpBg==";

/// The receipt above, signed by the agent.
pub(crate) const FORGED_SIGNATURE: &str =
    "iSMvGUUvmrvQcyTXNOvp4okWP95tsy/zAMjfBBl4q7YXlH0OT11sR/rmTiahuw4vkAbpHawGUkTP9x+yK/ohAQ==";
