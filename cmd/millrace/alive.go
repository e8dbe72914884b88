package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"millrace/web"
)

// pulse gives the question whether the box is alive. It asks every part something that takes its locks and, for web, the whole way through a listener. The answer is nil when all have
// answered; a part that hangs makes it hang. A store that takes no values because the disk is full or slow is alive: starting anew
// would mend nothing.
func (b *box) pulse() func(context.Context) error {
	mqtt, history, records, copies := b.broker, b.history, b.records, b.backups
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return web.DialSocket(ctx, b.socket()) }
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		_ = mqtt.Sessions()
		_, _ = mqtt.Drops()
		_ = history.State()
		_ = copies.State()
		if _, _, err := records.Get([]byte("alive")); err != nil {
			return err
		}
		return answers(ctx, client)
	}
}

// answers makes one request through the admin socket.
func answers(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://box/healthz", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz answers %s", res.Status)
	}
	return nil
}
