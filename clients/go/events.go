package meshdaemon

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// The longest line of an event: a message with its metadata.
const lineBytesMax = 1 << 20

// Event is one event of the daemon.
type Event struct {
	ID   string
	Kind string
	Data json.RawMessage
}

// Events is an open stream.
type Events struct {
	response *http.Response
	lines    *bufio.Scanner
}

// Events opens the stream. It ends with the context, or by Close.
func (d *Daemon) Events(ctx context.Context) (*Events, error) {
	response, err := d.open(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		refusal := &APIError{Status: response.StatusCode}
		_ = json.Unmarshal(text, &refusal.Body)
		return nil, refusal
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 0, 4096), lineBytesMax)
	return &Events{response: response, lines: lines}, nil
}

// Next waits for the next event. It returns io.EOF when the daemon closed the stream.
func (e *Events) Next() (*Event, error) {
	event := &Event{}
	var data []string
	for e.lines.Scan() {
		line := e.lines.Text()
		if line == "" {
			if len(data) > 0 {
				event.Data = json.RawMessage(strings.Join(data, "\n"))
				return event, nil
			}
			event = &Event{}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			event.ID = value
		case "event":
			event.Kind = value
		case "data":
			data = append(data, value)
		}
	}
	if err := e.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// Close ends the stream.
func (e *Events) Close() error {
	return e.response.Body.Close()
}
