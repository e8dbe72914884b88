package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/auth"
)

// running is a box of this process on real ports, with everything but the process around it.
type running struct {
	t    testing.TB
	box  *box
	mqtt string
	web  string
	stop func()
}

// start opens a box in dir and serves it until the test ends or stop is called. change may alter the settings.
func start(t testing.TB, dir string, change func(*Config)) *running {
	t.Helper()
	c := defaultConfig()
	c.Data, c.Broker.Address, c.Web.Address = dir, "127.0.0.1:0", "127.0.0.1:0"
	c.Historian.MinFreeSpace = 0
	if change != nil {
		change(&c)
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b, err := openBox(c, log, func(err error) { panic(err) })
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, box: b, mqtt: b.broker.Addr(), web: "http://" + b.web.Addr()}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- b.serve(ctx, func() { close(ready) }) }()
	<-ready
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// client adds a client that may do everything below its workspace and hands back its secret.
func (r *running) client(id string, grants ...auth.Grant) string {
	r.t.Helper()
	if grants == nil {
		grants = []auth.Grant{{Effect: "allow", Actions: []auth.Action{"publish", "subscribe"}, Filter: "#"}}
	}
	added, err := r.box.book.AddAll([]auth.NewClient{{ID: id, Grants: grants}})
	if err != nil || added[0].Err != nil {
		r.t.Fatalf("adding %s: %v %v", id, err, added)
	}
	return added[0].Secret
}

// get makes one call as a client and returns status and body.
func (r *running) get(user, password, path string, query ...string) (int, string) {
	r.t.Helper()
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Add(query[i], query[i+1])
	}
	req, err := http.NewRequest(http.MethodGet, r.web+path+"?"+q.Encode(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// history reads every raw value of a topic from the beginning, in pages of size limit, as its JSON text.
func (r *running) history(user, password, topic, limit string) (values []string) {
	r.t.Helper()
	next := ""
	for {
		code, text := r.get(user, password, "/api/v1/uns/history", "topic", topic, "from", "2000-01-01T00:00:00Z", "to", "2100-01-01T00:00:00Z", "limit", limit, "cursor", next)
		if code != http.StatusOK {
			r.t.Fatalf("history of %s: %d %s", topic, code, text)
		}
		var got struct {
			Topics []rawShown
			Next   string
		}
		d := json.NewDecoder(strings.NewReader(text))
		if err := d.Decode(&got); err != nil {
			r.t.Fatalf("history of %s: %v in %s", topic, err, text)
		}
		for _, topic := range got.Topics {
			for _, v := range topic.V {
				values = append(values, string(v))
			}
		}
		if next = got.Next; next == "" {
			return values
		}
	}
}

// metric gives the value of one line of /metrics, or "".
func (r *running) metric(name string) string {
	_, text := r.get("", "", "/metrics")
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return v
		}
	}
	return ""
}
