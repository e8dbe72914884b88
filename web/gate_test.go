package web_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"millrace/auth"
)

func TestManyRequestsAtOnce(t *testing.T) {
	b := newBox(t)
	var sent []string
	for i := range 500 {
		sent = append(sent, at(noon-1000+int64(i), fmt.Sprint(i)))
	}
	b.put("main", "line1/x", sent...)
	want := b.get("/uns/history", "topic", "line1/x").wants(t, 200).text
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			switch i % 4 {
			case 0, 1:
				if r, err := b.call(auth.RoleViewer, "GET", "/uns/history", "topic", "line1/x").try(); err != nil || r.text != want {
					t.Errorf("history %d: %v, %d bytes of %d", i, err, len(r.text), len(want))
				}
			case 2:
				if r, err := b.call(auth.RoleOperator, "POST", "/uns/publish").json(fmt.Sprintf(`{"topic":"p/%d","value":%d}`, i, i)).try(); err != nil || r.StatusCode != 200 {
					t.Errorf("publish %d: %v", i, err)
				}
			case 3:
				if r, err := b.call(auth.RoleViewer, "GET", "/status").try(); err != nil || r.StatusCode != 200 {
					t.Errorf("status %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

func TestTooManyLargeReadsWait(t *testing.T) {
	entered, release := make(chan struct{}, 64), make(chan struct{})
	b := newShelfBox(t)
	b.put("main", "a", at(noon-1, "1"))
	b.shelf.entered, b.shelf.release = entered, release
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if r, err := b.call(auth.RoleViewer, "GET", "/uns/history", "topic", "a").try(); err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("%v %d", err, r.StatusCode)
			}
		})
	}
	for range 8 {
		<-entered
	}
	select {
	case <-entered:
		t.Error("a ninth large read runs beside eight")
	default:
	}
	close(release)
	all.Wait()
}
