// Package meshdaemon is a thin client of the mesh daemon on this machine. It needs the standard library alone.
//
//	daemon, err := meshdaemon.Find("team")
//	sent, err := daemon.Send(ctx, "bob", "hello", meshdaemon.SendOptions{})
//
// The daemon encrypts, stores and repeats messages. After an error that leaves open whether a message was accepted, send it
// again with the same ClientMessageID: it is accepted once.
package meshdaemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Version is that of the local interface this client was written for.
const Version = "0.9.0"

// ErrNotRunning means that no daemon of the mesh can be reached.
var ErrNotRunning = errors.New("no daemon is running")

// APIError is a refusal of the daemon.
type APIError struct {
	Status int
	Body   map[string]any
}

func (e *APIError) Error() string {
	words := []string{}
	for _, key := range []string{"error", "conflict", "capability", "reason"} {
		if word, ok := e.Body[key].(string); ok {
			words = append(words, word)
		}
	}
	return fmt.Sprintf("%s (status %d)", strings.Join(words, ": "), e.Status)
}

// Transport selects how the daemon is reached.
type Transport int

const (
	// Auto uses the socket file if there is one, otherwise the loopback port.
	Auto Transport = iota
	// Unix uses the socket file.
	Unix
	// TCP uses the loopback port with its token.
	TCP
)

// Daemon is the daemon of one mesh.
type Daemon struct {
	// Directory has the files `sock`, `http.port` and `local_token`.
	Directory string
	Transport Transport
}

// SendOptions are the optional members of a message.
type SendOptions struct {
	// Priority is now, next or low.
	Priority string
	Meta     map[string]any
	// ReplyToID is the id of the answered message at the broker.
	ReplyToID       string
	ClientMessageID string
	// Mentions is for topics.
	Mentions []string
}

// PublishOptions are those of the Intent Protocol; times are seconds. What is zero is left out.
type PublishOptions struct {
	Namespace          string  `json:"namespace,omitempty"`
	Visibility         string  `json:"visibility,omitempty"`
	Priority           *int    `json:"priority,omitempty"`
	Delay              float64 `json:"delay,omitempty"`
	MaxAttempts        int     `json:"max_attempts,omitempty"`
	BackoffBase        float64 `json:"backoff_base,omitempty"`
	TargetWorker       string  `json:"target_worker,omitempty"`
	RequiredCapability string  `json:"required_capability,omitempty"`
	ClientMessageID    string  `json:"client_message_id,omitempty"`
}

// SendAnswer is what the daemon answers to an accepted message.
type SendAnswer struct {
	ClientMessageID string `json:"client_message_id"`
	Status          string `json:"status"`
	BrokerMessageID string `json:"broker_message_id"`
	HistoryID       string `json:"history_id"`
	Duplicate       bool   `json:"duplicate"`
}

// InboxItem is a received message. Body and Meta are nil if there is none.
type InboxItem struct {
	ID              string  `json:"id"`
	ClientMessageID string  `json:"client_message_id"`
	BrokerMessageID *string `json:"broker_message_id"`
	Mesh            string  `json:"mesh"`
	Topic           *string `json:"topic"`
	SenderPubkey    string  `json:"sender_pubkey"`
	SenderName      string  `json:"sender_name"`
	Body            *string `json:"body"`
	Meta            *string `json:"meta"`
	ReceivedAt      string  `json:"received_at"`
	ReplyToID       *string `json:"reply_to_id"`
}

// InboxFilter selects messages. Zero values select all.
type InboxFilter struct {
	Since string
	Topic string
	From  string
	Limit int
}

// Peer is a connected member.
type Peer struct {
	Pubkey       string  `json:"pubkey"`
	MemberPubkey string  `json:"memberPubkey"`
	DisplayName  string  `json:"displayName"`
	Status       string  `json:"status"`
	Summary      *string `json:"summary"`
	Mesh         string  `json:"mesh"`
}

// Find returns the daemon of a mesh. Without a name it is that of the only mesh in config.json.
func Find(mesh string) (*Daemon, error) {
	if directory := os.Getenv("CLAUDEMESH_DAEMON_DIR"); directory != "" {
		return &Daemon{Directory: directory}, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	if mesh == "" {
		if mesh, err = onlyMesh(home); err != nil {
			return nil, err
		}
	}
	return &Daemon{Directory: filepath.Join(home, ".claudemesh", "daemon", mesh)}, nil
}

func onlyMesh(home string) (string, error) {
	directory := os.Getenv("CLAUDEMESH_CONFIG_DIR")
	if directory == "" {
		directory = filepath.Join(home, ".claudemesh")
	}
	text, err := os.ReadFile(filepath.Join(directory, "config.json"))
	if err != nil {
		return "", fmt.Errorf("%w: no mesh is joined: %v", ErrNotRunning, err)
	}
	var config struct {
		Meshes []struct {
			Slug string `json:"slug"`
		} `json:"meshes"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return "", err
	}
	if len(config.Meshes) != 1 {
		return "", errors.New("several meshes are joined, or none: name one")
	}
	return config.Meshes[0].Slug, nil
}

// Send sends a message to a key, a name, #topic, @group, queue:NAME or *.
func (d *Daemon) Send(ctx context.Context, to, message string, options SendOptions) (*SendAnswer, error) {
	return d.send(ctx, "/v1/send", map[string]any{"to": to, "message": message}, options)
}

// PostTopic posts a message to a topic.
func (d *Daemon) PostTopic(ctx context.Context, topic, message string, options SendOptions) (*SendAnswer, error) {
	return d.send(ctx, "/v1/topic/post", map[string]any{"topic": topic, "message": message}, options)
}

// Publish publishes an intent at its server, through the outbox. The payload is encoded as JSON.
func (d *Daemon) Publish(ctx context.Context, goal string, payload any, options PublishOptions) (*SendAnswer, error) {
	body := struct {
		Goal    string `json:"goal"`
		Payload any    `json:"payload"`
		PublishOptions
	}{goal, payload, options}
	answer := &SendAnswer{}
	if err := d.call(ctx, http.MethodPost, "/v1/intents", body, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Subscribe receives the messages of a topic from now on.
func (d *Daemon) Subscribe(ctx context.Context, topic string) error {
	return d.call(ctx, http.MethodPost, "/v1/topic/subscribe", map[string]any{"topic": topic}, nil)
}

// Unsubscribe stops receiving the messages of a topic.
func (d *Daemon) Unsubscribe(ctx context.Context, topic string) error {
	return d.call(ctx, http.MethodPost, "/v1/topic/unsubscribe", map[string]any{"topic": topic}, nil)
}

// Inbox lists received messages, newest first.
func (d *Daemon) Inbox(ctx context.Context, filter InboxFilter) ([]InboxItem, error) {
	query := url.Values{}
	for key, value := range map[string]string{"since": filter.Since, "topic": filter.Topic, "from": filter.From} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if filter.Limit > 0 {
		query.Set("limit", strconv.Itoa(filter.Limit))
	}
	path := "/v1/inbox"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var answer struct {
		Items []InboxItem `json:"items"`
	}
	err := d.call(ctx, http.MethodGet, path, nil, &answer)
	return answer.Items, err
}

// Peers lists the connected members of the mesh.
func (d *Daemon) Peers(ctx context.Context) ([]Peer, error) {
	var answer struct {
		Peers []Peer `json:"peers"`
	}
	err := d.call(ctx, http.MethodGet, "/v1/peers", nil, &answer)
	return answer.Peers, err
}

// Health is the answer of /v1/health.
func (d *Daemon) Health(ctx context.Context) (map[string]any, error) {
	var answer map[string]any
	err := d.call(ctx, http.MethodGet, "/v1/health", nil, &answer)
	return answer, err
}

func (d *Daemon) send(ctx context.Context, path string, body map[string]any, options SendOptions) (*SendAnswer, error) {
	optional := map[string]string{
		"priority":          options.Priority,
		"reply_to_id":       options.ReplyToID,
		"client_message_id": options.ClientMessageID,
	}
	for key, value := range optional {
		if value != "" {
			body[key] = value
		}
	}
	if len(options.Mentions) > 0 {
		body["mentions"] = options.Mentions
	}
	canonical, err := CanonicalMeta(options.Meta)
	if err != nil {
		return nil, err
	}
	if canonical != "" {
		body["meta"] = json.RawMessage(canonical)
	}
	answer := &SendAnswer{}
	if err := d.call(ctx, http.MethodPost, path, body, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func (d *Daemon) call(ctx context.Context, method, path string, body any, answer any) error {
	response, err := d.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		refusal := &APIError{Status: response.StatusCode}
		// The status alone says what happened if the body is not JSON.
		_ = json.Unmarshal(text, &refusal.Body)
		return refusal
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

func (d *Daemon) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	network, address, err := d.address(request)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w in %s: %v", ErrNotRunning, d.Directory, err)
	}
	return response, err
}

func (d *Daemon) address(request *http.Request) (network, address string, err error) {
	sock := filepath.Join(d.Directory, "sock")
	if d.Transport != TCP && runtime.GOOS != "windows" {
		if _, err := os.Stat(sock); err == nil || d.Transport == Unix {
			return "unix", sock, nil
		}
	}
	port, err := os.ReadFile(filepath.Join(d.Directory, "http.port"))
	if err != nil {
		return "", "", fmt.Errorf("%w in %s: %v", ErrNotRunning, d.Directory, err)
	}
	token, err := os.ReadFile(filepath.Join(d.Directory, "local_token"))
	if err != nil {
		return "", "", fmt.Errorf("%w in %s: %v", ErrNotRunning, d.Directory, err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return "tcp", net.JoinHostPort("127.0.0.1", strings.TrimSpace(string(port))), nil
}
