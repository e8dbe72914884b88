package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Field cases on the program itself, which is killed, restarted and stopped; see field_test.go for the numbers.

// counter publishes 1, 2, 3… at QoS 1 with a window of 16 and sends again, as MQTT asks for, what was not acknowledged when its
// connection was lost. One goroutine has it at a time.
type counter struct {
	id, secret string
	version    byte
	acked      int // all up to here
}

func (c *counter) run(t *testing.T, addr string, stop <-chan struct{}) {
	o := opening{version: c.version, id: c.id, keep: true, user: c.id, password: c.secret}
	if c.version == 5 {
		o.props = prop4(0x11, 3600)
	}
	g, _ := enter(t, addr, o)
	const window = 16
	post := func(n int, dup bool) error {
		f := g.publishFrame(root+"count/"+c.id, fmt.Append(nil, n), uint16((n-1)%window+1), nil)
		if dup {
			f[0] |= 8
		}
		_, err := g.conn.Write(f)
		return err
	}
	sent := c.acked
	for again := c.acked > 0; ; again = false {
		for ; sent < c.acked+window; sent++ {
			if post(sent+1, again) != nil {
				return
			}
		}
		p, err := g.tryRead(10 * time.Second)
		if err != nil {
			return // killed
		}
		if p.kind != pubackKind || int(binary.BigEndian.Uint16(p.body)) != c.acked%window+1 || code(p) != 0 {
			t.Errorf("%s: after %d came kind %d % x", c.id, c.acked, p.kind, p.body)
			return
		}
		c.acked++
		select {
		case <-stop:
			return
		default:
		}
	}
}

// F01: publishers that count are killed away from their box over and over. Nothing acknowledged is missing and, since each says
// again what it heard nothing about, nothing is doubled.
func TestF01AcknowledgedOnceThroughKills(t *testing.T) {
	data := t.TempDir()
	rounds, publishers := 3, 10
	if os.Getenv("MILLRACE_LONG") != "" {
		rounds, publishers = 20, 50
	}
	var all []*counter
	for round := range rounds {
		p := serve(t, data)
		for i := range publishers {
			if round == 0 {
				id := fmt.Sprint("dev", i)
				all = append(all, &counter{id: id, secret: p.secret(id), version: byte(4 + i%2)})
			}
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, c := range all {
			wg.Go(func() { c.run(t, p.mqtt, stop) })
		}
		time.Sleep(time.Duration(100+rand.IntN(300)) * time.Millisecond) // a moment that nobody chose
		p.kill()
		wg.Wait()
	}
	p := serve(t, data)
	for _, c := range all {
		got := p.numbers("count/" + c.id)
		if len(got) < c.acked || len(got) > c.acked+16 {
			t.Errorf("%s: %d acknowledged, %d in history", c.id, c.acked, len(got))
		}
		for i, n := range got {
			if n != int64(i+1) {
				t.Errorf("%s: value %d is %d", c.id, i+1, n)
				break
			}
		}
	}
}

// F03: what a subscriber had not acknowledged when the box was killed comes to it again, with DUP and its identifier, and to
// nobody else; a QoS 2 publish cut between its halves is stored once.
func TestF03InFlightOverAKill(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	secret := p.secret("dev")
	stay := func(id string) *guest {
		g, _ := enter(t, p.mqtt, opening{id: id, keep: true, user: "dev", password: secret, props: prop4(0x11, 3600)})
		return g
	}
	s, pub := stay("s"), stay("p")
	s.listen(1, root+"line1/#")
	pub.send(letter{topic: root + "line1/a", payload: "1", qos: 1})
	pub.send(letter{topic: root + "line1/b", payload: "2", qos: 1})
	first, second := s.take(), s.take()
	pub.post(letter{topic: root + "line2/once", payload: "3", qos: 2, id: 900})
	if c := code(pub.next(pubrecKind)); c != 0 {
		t.Fatalf("PUBREC %#x", c)
	}
	time.Sleep(500 * time.Millisecond) // the identifier of a QoS 1 flight is noted within 100 ms; the promise is not sooner
	p.kill()

	p = serve(t, data)
	s, pub = stay("s"), stay("p")
	for _, want := range []letter{first, second} {
		if got := s.get(); !got.dup || got.id != want.id || got.payload != want.payload || got.topic != want.topic {
			t.Errorf("got %+v, want %+v again", got, want)
		}
	}
	pub.post(letter{topic: root + "line2/once", payload: "3", qos: 2, id: 900, dup: true})
	if c := code(pub.next(pubrecKind)); c != 0 {
		t.Errorf("PUBREC %#x", c)
	}
	pub.answer(pubrelKind, 2, 900)
	pub.next(pubcompKind)
	if len(pub.early) != 0 {
		t.Errorf("the publisher was sent %d packets that are not its own", len(pub.early))
	}
	if got := p.numbers("line2/once"); !slices.Equal(got, []int64{3}) {
		t.Errorf("stored %v", got)
	}
}

// F05: an offline subscriber's queue stops at its bound, what it lost is counted by client, a second subscriber loses
// nothing, and the first gets the newest in order while values go on coming.
func TestF05OfflineQueue(t *testing.T) {
	t.Setenv("MILLRACE_BROKER_LIMITS_MAXSUBSCRIBERQUEUE", "1000")
	p := serve(t, t.TempDir())
	away, busy, dev := p.secret("away"), p.secret("busy"), p.secret("dev")
	a, _ := enter(t, p.mqtt, opening{version: 4, id: "away", keep: true, user: "away", password: away})
	a.listen(1, root+"#")
	for range 2 { // the box has looked for retained values and found none; a look still owed would find those of later
		a.write([]byte{0xC0, 0})
		a.next(13)
	}
	a.bye()
	b, _ := enter(t, p.mqtt, opening{version: 4, id: "busy", user: "busy", password: busy})
	b.listen(1, root+"#")
	d, _ := enter(t, p.mqtt, opening{id: "dev", user: "dev", password: dev})
	const n = 5000
	value := func(i int) string { return fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", 190)) }
	for i := range n {
		d.send(letter{topic: root + "line1/a", payload: value(i), qos: 1})
		if d.sent != 0 {
			t.Fatalf("value %d: %#x", i, d.sent)
		}
		if got := b.get(); !strings.HasPrefix(got.payload, `{"value":`+value(i)) {
			t.Fatalf("the second subscriber missed %d: %.60s", i, got.payload)
		}
	}
	var list struct {
		Sessions []struct {
			MQTTID    string `json:"mqtt_id"`
			Queued    int
			Dropped   uint64
			DroppedBy map[string]uint64 `json:"dropped_by"`
		}
	}
	text := p.do("session", "list", "--json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, s := range list.Sessions {
		if s.MQTTID == "away" && (s.Queued != 1000 || s.Dropped != n-1000) || s.MQTTID == "busy" && s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
	}
	if len(list.Sessions) != 3 {
		t.Errorf("%d sessions: %s", len(list.Sessions), text)
	}
	a, present := enter(t, p.mqtt, opening{version: 4, id: "away", keep: true, user: "away", password: away})
	if !present {
		t.Error("the session is gone")
	}
	for i := n - 1000; i < n+200; i++ {
		if i < n-800 { // values go on coming while the queue drains
			d.send(letter{topic: root + "line1/a", payload: value(i + 1000), qos: 1})
			if d.sent != 0 {
				t.Fatalf("beside the drain: %#x", d.sent)
			}
		}
		if got := a.get(); !strings.HasPrefix(got.payload, `{"value":`+value(i)) {
			t.Fatalf("wanted %d, got %.60s", i, got.payload)
		}
	}
}

// F07: a will is published when a session without expiry is taken over, is not when its client is back before its delay is
// over, and what a topic cannot take never becomes a value.
func TestF07Wills(t *testing.T) {
	p := serve(t, t.TempDir())
	secret := p.secret("dev")
	p.do("client", "grant", "dev", "--allow-mqtt", "publish,subscribe plant/#")
	come := func(id string, expiry uint32, will *letter) *guest {
		o := opening{id: id, keep: true, user: "dev", password: secret, will: will}
		if expiry > 0 {
			o.props = prop4(0x11, expiry)
		}
		g, _ := enter(t, p.mqtt, o)
		return g
	}
	s := come("s", 0, nil)
	s.listen(1, "plant/#", root+"#")
	// a
	taken := come("press", 0, &letter{topic: "plant/press/state", payload: "offline", qos: 1})
	again := come("press", 0, nil)
	if c := taken.over(); c != 0x8E {
		t.Errorf("taken over: %#x", c)
	}
	if got := s.get(); got.topic != "plant/press/state" || got.payload != "offline" {
		t.Errorf("%+v", got)
	}
	again.bye()
	// b: the delay of one that stays away begins later and is over later, so by then the other's would have come
	delayed := func(name string) *letter {
		return &letter{topic: "plant/" + name, payload: "offline", qos: 1, props: prop4(0x18, 2)}
	}
	back := come("back", 60, delayed("back"))
	_ = back.conn.Close()
	come("back", 60, nil)
	_ = come("late", 60, delayed("late")).conn.Close()
	if got := s.get(); got.topic != "plant/late" {
		t.Errorf("%+v", got)
	}
	// c
	p.do("topic", "set", "line1/press/state", "--type", "number")
	dev := come("dev", 0, nil)
	dev.send(letter{topic: root + "line1/press/state", payload: "1", qos: 1})
	if got := s.get(); !strings.HasPrefix(got.payload, `{"value":1,`) {
		t.Errorf("%+v", got)
	}
	for _, payload := range []string{"offline", `"offline"`} {
		_ = come("dying", 0, &letter{topic: root + "line1/press/state", payload: payload, qos: 1}).conn.Close()
	}
	eventually(t, "both refusals are shown as the client's", func() bool {
		shown := p.do("client", "show", "dev")
		return strings.Contains(shown, "payload_invalid") && strings.Contains(shown, "type_mismatch")
	})
	if got := p.numbers("line1/press/state"); !slices.Equal(got, []int64{1}) {
		t.Errorf("history has %v", got)
	}
	for _, l := range s.early {
		t.Errorf("delivered besides: %q", l.body)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what + ": not within 15 s")
		}
	}
}

// F14: a controller that knows little: 3.1.1, one octet a segment, one message at a time, a will on a topic that names it twice.
// It gets no QoS above the granted one, a large retained value whole, and a FIN when the box stops; a client of MQTT 5 that
// says it has 512 octets is spared the value, which is counted, and is told 0x8B.
func TestF14Controller(t *testing.T) {
	data := t.TempDir()
	p := serve(t, data)
	secret := p.secret("plc")
	large := `"` + strings.Repeat("x", 4000) + `"`
	d, _ := enter(t, p.mqtt, opening{id: "d", user: "plc", password: secret})
	d.send(letter{topic: root + "plc/setpoint", payload: large, qos: 1, retain: true})
	d.bye()

	drip := func(g *guest, b []byte) {
		t.Helper()
		for i := range b {
			g.write(b[i : i+1])
		}
	}
	plc, _ := enter(t, p.mqtt, opening{version: 4, id: "plc", keepAlive: 10, user: "plc", password: secret,
		will: &letter{topic: root + "plc/plc/plc/state", payload: `"offline"`, qos: 1}})
	for i := range 20 {
		drip(plc, plc.publishFrame(root+"plc/value", fmt.Append(nil, i), uint16(i+1), nil))
		if id, code, _ := plc.ack(); int(id) != i+1 || code != 0 {
			t.Fatalf("ack %d %#x", id, code)
		}
	}
	drip(plc, frame(0x82, append(str([]byte{0, 77}, root+"plc/setpoint"), 0)))
	if p := plc.next(subackKind); p.body[2] != 0 {
		t.Errorf("SUBACK % x", p.body)
	}
	if got := plc.get(); got.qos != 0 || !got.retain || !strings.HasPrefix(got.payload, `{"value":`+large) {
		t.Errorf("got QoS %d, %d octets", got.qos, len(got.payload))
	}
	small, _ := enter(t, p.mqtt, opening{id: "small", user: "plc", password: secret, props: prop4(0x27, 512)})
	small.listen(1, root+"plc/setpoint", root+"plc/value")
	if got := small.get(); got.topic != root+"plc/value" {
		t.Errorf("got %+v", got)
	}
	small.write([]byte{0xC0, 0})
	small.next(pingresp)
	if shown := p.do("session", "show", "small"); !strings.Contains(shown, "too_large") {
		t.Errorf("what was left out is not counted: %s", shown)
	}
	p.stop()
	if c := small.over(); c != 0x8B {
		t.Errorf("stopping: %#x", c)
	}
	if rest, err := io.ReadAll(plc.conn); err != nil || len(rest) != 0 { // a FIN and no reset
		t.Errorf("at the stop the controller got % x, %v", rest, err)
	}
	p = serve(t, data) // and it comes back
	plc, _ = enter(t, p.mqtt, opening{version: 4, id: "plc", user: "plc", password: secret})
	drip(plc, plc.publishFrame(root+"plc/value", []byte("20"), 1, nil))
	plc.ack()
	if got := p.numbers("plc/value"); len(got) != 21 {
		t.Errorf("history has %v", got)
	}
	// One that says nothing within its keep-alive is told so in one line of the log.
	silent, _ := enter(t, p.mqtt, opening{version: 4, id: "silent", keepAlive: 1, user: "plc", password: secret})
	silent.over()
	p.stop()
	told := 0
	for line := range strings.Lines(p.told.String()) {
		if strings.Contains(line, "mqtt_id=silent") && strings.Contains(line, "keep") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d lines say why the silent client was dropped:\n%s", told, p.told.String())
	}
}

// F19: a retained value over five restarts is one point of the history with its first time, whoever subscribes; clearing
// it stores nothing and takes nothing out of the history.
func TestF19RetainedIsNoNewValue(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, data)
	secret := p.secret("dev")
	come := func() *guest {
		g, _ := enter(t, p.mqtt, opening{id: "bridge", user: "dev", password: secret})
		return g
	}
	d := come()
	d.send(letter{topic: root + "line1/temp", payload: "21.5", qos: 1, retain: true})
	first := ""
	for round := range 6 {
		g := come()
		g.listen(1|8, root+"line1/#") // retain as published, as a bridge subscribes
		m := g.get()
		if first == "" {
			first = m.payload
		}
		if m.payload != first || !m.retain {
			t.Errorf("round %d: %+v, want %s", round, m, first)
		}
		if round%2 == 0 {
			p.kill()
		} else {
			p.stop()
		}
		p = serve(t, data)
	}
	lines := strings.Fields(p.do("history", "get", "line1/temp", "--from", "-1h", "--format", "ndjson"))
	if len(lines) != 1 || !strings.Contains(lines[0], "21.5") {
		t.Errorf("history: %v", lines)
	}
	g := come()
	g.listen(1, root+"line1/#")
	g.get()
	if g.send(letter{topic: root + "line1/temp", qos: 1, retain: true}); g.sent != 0 {
		t.Errorf("clearing: %#x", g.sent)
	}
	if m := g.get(); m.payload != "" {
		t.Errorf("subscribers of a cleared value got %+v", m)
	}
	p.kill()
	p = serve(t, data)
	g = come()
	g.listen(1, root+"line1/#")
	d, _ = enter(t, p.mqtt, opening{id: "d", user: "dev", password: secret})
	d.send(letter{topic: root + "line1/other", payload: "1", qos: 1})
	if m := g.get(); m.topic != root+"line1/other" { // and not the cleared one
		t.Errorf("%+v", m)
	}
	if again := strings.Fields(p.do("history", "get", "line1/temp", "--from", "-1h", "--format", "ndjson")); !slices.Equal(again, lines) {
		t.Errorf("after clearing: %v, before: %v", again, lines)
	}
}
