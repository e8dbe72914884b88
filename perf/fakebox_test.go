package perf_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary doubles as a box: the harness starts its own executable with `serve`, which here is this one.
// The fake keeps each value in a file before it acknowledges, so kill -9 loses nothing, except where
// MILLRACE_FAKE_LOSE or MILLRACE_FAKE_DOUBLE make it break that promise for one value, and where
// MILLRACE_FAKE_BUFFER has it acknowledge that many values ahead of the file.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := fakeServe(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	before := goroutines()
	code := m.Run()
	// Everything that was started must have ended; what is ending gets a moment.
	for end := time.Now().Add(5 * time.Second); goroutines() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			var b [1 << 16]byte
			fmt.Fprintf(os.Stderr, "goroutines left over:\n%s\n", b[:runtime.Stack(b[:], true)])
			code = max(code, 1)
			break
		}
	}
	os.Exit(code)
}

// goroutines counts all but the one of os/signal, which a fuzzing run starts for itself and never ends.
func goroutines() (n int) {
	b := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if !strings.Contains(stack, "os/signal") {
			n++
		}
	}
	return n
}

type fakeBox struct {
	mu     sync.Mutex
	log    *os.File
	values map[string][]string
	count  int
	lose   int // number of the value to forget; 0 = none
	double int // number of the value to keep twice
	buffer int // values acknowledged ahead of the file
	ahead  []string
}

func fakeServe(args []string) error {
	var dir, config string
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "--data":
			dir = args[i+1]
		case "--config":
			config = args[i+1]
		}
	}
	if os.Getenv("MILLRACE_UNS_INGRESS_PERCLIENTRATEPERSEC") != "0" || os.Getenv("MILLRACE_UNS_INGRESS_PERWORKSPACERATEPERSEC") != "0" {
		return fmt.Errorf("the ingress rates are on")
	}
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(text), "broker:\n  address: ")
	address, _, _ := strings.Cut(rest, "\n")
	if err := os.MkdirAll(filepath.Join(dir, "historian"), 0o700); err != nil {
		return err
	}
	b := &fakeBox{values: map[string][]string{}}
	b.lose, _ = strconv.Atoi(os.Getenv("MILLRACE_FAKE_LOSE"))
	b.buffer, _ = strconv.Atoi(os.Getenv("MILLRACE_FAKE_BUFFER"))
	b.double, _ = strconv.Atoi(os.Getenv("MILLRACE_FAKE_DOUBLE"))
	if b.log, err = os.OpenFile(filepath.Join(dir, "historian", "values"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return err
	}
	for scan := bufio.NewScanner(b.log); scan.Scan(); {
		path, digits, ok := strings.Cut(scan.Text(), "\t")
		if ok {
			b.values[path] = append(b.values[path], digits)
			b.count++
		}
	}
	_ = os.Remove(filepath.Join(dir, "admin.sock"))
	admin, err := net.Listen("unix", filepath.Join(dir, "admin.sock"))
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(admin, b.routes()) }()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	fmt.Printf("listening mqtt tcp://%s\nready\n", l.Addr())
	a := &acceptor{values: map[string][]string{}, keep: b.keep, verdict: `{"status":"stored"}`}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { _ = a.serve(c); _ = c.Close() }()
	}
}

// keep stores one value; the caller acknowledges when it returns.
func (b *fakeBox) keep(topic, payload string) {
	path := strings.SplitN(topic, "/", 5)[4]
	digits := strings.TrimSuffix(strings.TrimPrefix(payload, `{"value": `), "}")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	times := 1
	switch b.count {
	case b.lose:
		times = 0
	case b.double:
		times = 2
	}
	for range times {
		b.values[path] = append(b.values[path], digits)
		if b.ahead = append(b.ahead, path+"\t"+digits+"\n"); len(b.ahead) > b.buffer {
			_, _ = b.log.WriteString(b.ahead[0])
			b.ahead = b.ahead[1:]
		}
	}
}

func (b *fakeBox) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/clients/bulk", func(w http.ResponseWriter, r *http.Request) {
		for scan := bufio.NewScanner(r.Body); scan.Scan(); {
			var c struct {
				ID, Secret, Workspace string
				Grants                []struct {
					Effect  string
					Actions []string
					Filter  string
				}
			}
			if err := json.Unmarshal(scan.Bytes(), &c); err != nil || c.ID == "" || len(c.Secret) < 24 || len(c.Grants) == 0 {
				http.Error(w, "bad client "+scan.Text(), http.StatusBadRequest)
			}
		}
	})
	mux.HandleFunc("GET /api/v1/uns/history", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		var list []json.RawMessage
		for _, v := range b.values[r.FormValue("topic")] {
			list = append(list, json.RawMessage(v))
		}
		at, _ := strconv.Atoi(r.FormValue("cursor"))
		next := ""
		if page := 50; at+page < len(list) {
			list, next = list[at:at+page], strconv.Itoa(at+page)
		} else {
			list = list[at:]
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"topics": []any{map[string]any{"topic": r.FormValue("topic"), "v": list}}, "next": next})
	})
	return mux
}
