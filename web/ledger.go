package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
	"millrace/uns"
)

// Ledger tells, hour by hour, what became of the messages of one API client.
type Ledger interface {
	// Hours are those that began in [from, to) and in which something happened, oldest first.
	Hours(client string, from, to time.Time) ([]uns.Hour, error)
}

// LedgerCounts is what one client's messages came to.
type LedgerCounts struct {
	Accepted  uint64            `json:"accepted" doc:"Values stored"`
	Late      uint64            `json:"late" doc:"Of these, those whose own time lay before that of an earlier value of the topic"`
	Duplicate uint64            `json:"duplicate" doc:"Retransmissions of what was stored already: acknowledged, not stored again"`
	Gaps      uint64            `json:"gaps" doc:"Silences beyond three times a topic's expectedInterval that ended"`
	GapS      float64           `json:"gap_s" doc:"Seconds without values in these, the expected interval taken off"`
	Refused   map[string]uint64 `json:"refused" doc:"Messages refused, by reason"`
}

// LedgerHour is one hour of it.
type LedgerHour struct {
	Hour time.Time `json:"hour" doc:"When the hour began, UTC"`
	LedgerCounts
}

func counts(h *uns.Hour) LedgerCounts {
	c := LedgerCounts{Accepted: h.Accepted, Late: h.Late, Duplicate: h.Duplicate, Gaps: h.Gaps, GapS: h.Silent.Seconds(), Refused: h.Refused}
	if c.Refused == nil {
		c.Refused = map[string]uint64{}
	}
	return c
}

func (w *Web) addLedger() {
	type ledgerIn struct {
		ClientPath
		From string `query:"from" doc:"First moment: RFC 3339, epoch ms, or relative as -6h or -7d" default:"-24h" maxLength:"64"`
		To   string `query:"to" doc:"End, exclusive; as from" default:"now" maxLength:"64"`
	}
	type ledgerOut struct {
		Body struct {
			Client string       `json:"client" doc:"API client"`
			Hours  []LedgerHour `json:"hours" doc:"Hours in which something happened, oldest first; the last one may still be open"`
			Total  LedgerCounts `json:"total" doc:"All of them together"`
		} `nameHint:"ClientLedger"`
	}
	register(w, route{method: http.MethodGet, path: "/clients/{id}/ledger", id: "get-client-ledger", tag: "Clients",
		rule: rule{role: auth.RoleViewer}, missing: true, summary: "What became of an API client's messages, hour by hour",
		doc: "Stored, late, duplicate, refused by reason, and gaps, of the last 32 days. It outlives restarts; a kill loses at most the counts of its last minute."},
		func(_ context.Context, _ *caller, in *ledgerIn) (*ledgerOut, error) {
			if _, err := w.parts.Book.Client(in.ID); err != nil {
				return nil, ofClient(in.ID, err)
			}
			now := w.now()
			from, ok := parseMoment(in.From, now)
			if !ok {
				return nil, invalid("from", "cannot be read as a time", "send RFC 3339, milliseconds since 1970, now, or a distance as in -6h")
			}
			to, ok := parseMoment(in.To, now)
			if !ok {
				return nil, invalid("to", "cannot be read as a time", "send RFC 3339, milliseconds since 1970, now, or a distance as in -6h")
			}
			out := &ledgerOut{}
			out.Body.Client, out.Body.Hours = in.ID, []LedgerHour{}
			total := uns.Hour{}
			if w.parts.Ledger != nil {
				hours, err := w.parts.Ledger.Hours(in.ID, time.Unix(0, from).Add(1-time.Hour), time.Unix(0, to))
				if err != nil {
					return nil, err
				}
				for i := range hours {
					out.Body.Hours = append(out.Body.Hours, LedgerHour{hours[i].Start.UTC(), counts(&hours[i])})
					total.Add(&hours[i])
				}
			}
			out.Body.Total = counts(&total)
			return out, nil
		})
}
