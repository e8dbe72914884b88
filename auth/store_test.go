package auth_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"millrace/auth"
	"millrace/historian/kv"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

// The real record store under a Book: what was answered is there after reopening, in one write for a thousand clients.
func TestOnTheRealStore(t *testing.T) {
	disk := vfs.NewMem()
	reopen := func() (*kv.Store, *auth.Book) {
		store, err := kv.Open("kv", kv.Options{
			FS: disk, Log: slog.New(slog.DiscardHandler), Fatal: func(err error) { panic(errors.Join(errors.New("store"), err)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return store, open(t, store)
	}
	store, b := reopen()
	list := make([]auth.NewClient, 1000)
	for i := range list {
		list[i] = auth.NewClient{ID: fmt.Sprintf("device-%04d", i), Grants: rules("allow uns publish fleet/${client}/#")}
	}
	added, err := b.AddAll(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete("device-0001"); err != nil {
		t.Fatal(err)
	}
	_, token, err := b.AddToken("anna", auth.RoleAdmin, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := b.Clients()
	if err := errors.Join(b.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	store, b = reopen()
	if diff := cmp.Diff(want, b.Clients()); diff != "" {
		t.Error(diff)
	}
	signIn(t, b, "device-0999", added[999].Secret)
	if _, ok := b.Bearer(token); !ok || !refused(t, b, "device-0001", added[1].Secret) {
		t.Error("a token is lost or a deleted client is back")
	}
	if err := errors.Join(b.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
}
