package meshdaemon

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// The corpus of canonical JSON and of fingerprints that daemon, broker and all clients share.
type corpus struct {
	Canonical    []struct{ In, Out string }
	Refused      []struct{ In, Why string }
	Fingerprints []struct {
		Name            string
		EnvelopeVersion int `json:"envelope_version"`
		Kind, Ref       string
		ReplyToID       *string `json:"reply_to_id"`
		Priority        string
		Meta            *string
		BodyHex         string `json:"body_hex"`
		Fingerprint     string
	}
}

func readCorpus(t *testing.T) corpus {
	t.Helper()
	text, err := os.ReadFile("../jcs-corpus.json")
	if err != nil {
		t.Fatal(err)
	}
	var read corpus
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func parseMeta(text string) (map[string]any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var meta map[string]any
	err := decoder.Decode(&meta)
	return meta, err
}

func TestCanonicalForms(t *testing.T) {
	for _, check := range readCorpus(t).Canonical {
		meta, err := parseMeta(check.In)
		if err != nil {
			t.Fatal(err)
		}
		out, err := CanonicalMeta(meta)
		if err != nil || out != check.Out {
			t.Errorf("%s: %q, %v", check.In, out, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, check := range readCorpus(t).Refused {
		// The decoder of the standard library replaces a lone surrogate; a string of Go cannot contain one.
		if check.Why == "lone surrogate" {
			continue
		}
		meta, err := parseMeta(check.In)
		if err != nil {
			continue
		}
		if out, err := CanonicalMeta(meta); !errors.Is(err, ErrNotCanonical) {
			t.Errorf("%s: %q, %v", check.In, out, err)
		}
	}
	if _, err := CanonicalMeta(map[string]any{"a": "\xed\xa0\x80"}); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("bytes that are not UTF-8: %v", err)
	}
	if _, err := CanonicalMeta(map[string]any{"a": 1e20}); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("an integer without exponent: %v", err)
	}
}

func TestFingerprints(t *testing.T) {
	for _, vector := range readCorpus(t).Fingerprints {
		input := FingerprintInput{
			EnvelopeVersion: vector.EnvelopeVersion,
			Kind:            vector.Kind,
			Ref:             vector.Ref,
			Priority:        vector.Priority,
		}
		if vector.ReplyToID != nil {
			input.ReplyToID = *vector.ReplyToID
		}
		var err error
		if vector.Meta != nil {
			if input.Meta, err = parseMeta(*vector.Meta); err != nil {
				t.Fatal(err)
			}
		}
		if input.Body, err = hex.DecodeString(vector.BodyHex); err != nil {
			t.Fatal(err)
		}
		if computed, err := input.Fingerprint(); err != nil || computed != vector.Fingerprint {
			t.Errorf("%s: %s, %v", vector.Name, computed, err)
		}
	}
}
