package meshdaemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const safeIntegerMax = 1<<53 - 1

// ErrNotCanonical means that readers disagree about a value, so it cannot be meta.
var ErrNotCanonical = errors.New("not canonical")

// CanonicalMeta is the canonical JSON (RFC 8785) of meta; empty for none and for an empty object.
func CanonicalMeta(meta map[string]any) (string, error) {
	if len(meta) == 0 {
		return "", nil
	}
	var text strings.Builder
	if err := canonical(&text, meta); err != nil {
		return "", err
	}
	return text.String(), nil
}

// FingerprintInput is what the daemon compares requests with one id by.
type FingerprintInput struct {
	// EnvelopeVersion is 1 if it is zero.
	EnvelopeVersion int
	// Kind is topic, dm or queue.
	Kind      string
	Ref       string
	ReplyToID string
	// Priority is next if it is empty.
	Priority string
	Meta     map[string]any
	Body     []byte
}

// Fingerprint computes it, as hex. A conflict shows its first 16 digits.
func (f FingerprintInput) Fingerprint() (string, error) {
	meta, err := CanonicalMeta(f.Meta)
	if err != nil {
		return "", err
	}
	if f.EnvelopeVersion == 0 {
		f.EnvelopeVersion = 1
	}
	if f.Priority == "" {
		f.Priority = "next"
	}
	body := sha256.Sum256(f.Body)
	parts := []string{
		strconv.Itoa(f.EnvelopeVersion), f.Kind, f.Ref, f.ReplyToID, f.Priority, meta, hex.EncodeToString(body[:]),
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:]), nil
}

func canonical(text *strings.Builder, value any) error {
	switch value := value.(type) {
	case nil:
		text.WriteString("null")
		return nil
	case bool:
		text.WriteString(strconv.FormatBool(value))
		return nil
	case string:
		return canonicalString(text, value)
	case float64:
		return canonicalFloat(text, value)
	case float32:
		return canonicalFloat(text, float64(value))
	case int:
		return canonicalInt(text, int64(value))
	case int32:
		return canonicalInt(text, int64(value))
	case int64:
		return canonicalInt(text, value)
	case json.Number:
		return canonicalToken(text, value)
	case map[string]any:
		return canonicalObject(text, value)
	case []any:
		return canonicalArray(text, value)
	default:
		return fmt.Errorf("%w: %T has no JSON form here", ErrNotCanonical, value)
	}
}

func canonicalArray(text *strings.Builder, items []any) error {
	text.WriteByte('[')
	for at, item := range items {
		if at > 0 {
			text.WriteByte(',')
		}
		if err := canonical(text, item); err != nil {
			return err
		}
	}
	text.WriteByte(']')
	return nil
}

func canonicalObject(text *strings.Builder, object map[string]any) error {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(a, b int) bool { return isBefore(keys[a], keys[b]) })
	text.WriteByte('{')
	for at, key := range keys {
		if at > 0 {
			text.WriteByte(',')
		}
		if err := canonicalString(text, key); err != nil {
			return err
		}
		text.WriteByte(':')
		if err := canonical(text, object[key]); err != nil {
			return err
		}
	}
	text.WriteByte('}')
	return nil
}

// isBefore compares by UTF-16 code units.
func isBefore(a, b string) bool {
	left, right := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
	for at := 0; at < len(left) && at < len(right); at++ {
		if left[at] != right[at] {
			return left[at] < right[at]
		}
	}
	return len(left) < len(right)
}

func canonicalString(text *strings.Builder, value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%w: a string is not UTF-8", ErrNotCanonical)
	}
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`}
	text.WriteByte('"')
	for _, character := range value {
		if escape, ok := short[character]; ok {
			text.WriteString(escape)
		} else if character < 0x20 {
			fmt.Fprintf(text, `\u%04x`, character)
		} else {
			text.WriteRune(character)
		}
	}
	text.WriteByte('"')
	return nil
}

func canonicalInt(text *strings.Builder, value int64) error {
	if value > safeIntegerMax || value < -safeIntegerMax {
		return fmt.Errorf("%w: %d is beyond 2^53-1", ErrNotCanonical, value)
	}
	text.WriteString(strconv.FormatInt(value, 10))
	return nil
}

// canonicalToken writes a number that was read as text: an integer without an exponent must be exact.
func canonicalToken(text *strings.Builder, token json.Number) error {
	if !strings.ContainsAny(token.String(), ".eE") {
		value, err := strconv.ParseInt(token.String(), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %s is beyond 2^53-1", ErrNotCanonical, token)
		}
		return canonicalInt(text, value)
	}
	value, err := token.Float64()
	if err != nil {
		return fmt.Errorf("%w: %s is no double", ErrNotCanonical, token)
	}
	return canonicalFloat(text, value)
}

// canonicalFloat writes a double as ECMAScript prints it.
func canonicalFloat(text *strings.Builder, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("%w: a number is not finite", ErrNotCanonical)
	}
	if value == 0 {
		text.WriteByte('0')
		return nil
	}
	size := math.Abs(value)
	if size < 1e-6 || size >= 1e21 {
		scientific := strconv.FormatFloat(value, 'e', -1, 64)
		// Go pads the exponent to two digits.
		mantissa, exponent, _ := strings.Cut(scientific, "e")
		text.WriteString(mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0"))
		return nil
	}
	if size > safeIntegerMax && value == math.Trunc(value) {
		return fmt.Errorf("%w: %v is beyond 2^53-1", ErrNotCanonical, value)
	}
	text.WriteString(strconv.FormatFloat(value, 'f', -1, 64))
	return nil
}
