"""The corpus of canonical JSON and of fingerprints that daemon, broker and all clients share."""

import json
import unittest
from pathlib import Path

from consign_mesh import NotCanonical, canonical_meta, request_fingerprint

CORPUS = json.loads((Path(__file__).parent.parent / "jcs-corpus.json").read_text())


class Corpus(unittest.TestCase):
    def test_canonical_forms(self):
        for case in CORPUS["canonical"]:
            with self.subTest(case["in"]):
                self.assertEqual(canonical_meta(json.loads(case["in"])), case["out"])

    def test_refusals(self):
        for case in CORPUS["refused"]:
            with self.subTest(case["in"]), self.assertRaises(NotCanonical):
                canonical_meta(json.loads(case["in"]))

    def test_fingerprints(self):
        for case in CORPUS["fingerprints"]:
            with self.subTest(case["name"]):
                computed = request_fingerprint(
                    kind=case["kind"],
                    ref=case["ref"],
                    body=bytes.fromhex(case["body_hex"]),
                    priority=case["priority"],
                    meta=json.loads(case["meta"] or "null"),
                    reply_to_id=case["reply_to_id"],
                    envelope_version=case["envelope_version"],
                )
                self.assertEqual(computed, case["fingerprint"])


if __name__ == "__main__":
    unittest.main()
