package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"millrace/auth"
)

const (
	// maxBulkClients bounds one bulk request.
	maxBulkClients = 20_000
	// maxLinesTold is how many lines at fault the problem's detail spells out; its lines name all.
	maxLinesTold = 20
)

func (w *Web) addBulk(by rule) {
	type bulkIn struct {
		RawBody []byte `contentType:"application/x-ndjson"`
	}
	register(w, route{method: http.MethodPost, path: "/clients/bulk", id: "add-clients", tag: "Clients", rule: by,
		body: maxBulkBody, summary: "Add many API clients, all or none",
		doc: "One client a line (NDJSON), or a JSON array. The answer is one result a line, in the same order. " +
			"A bad line refuses the whole request: the problem's `lines` names each.",
		takes: map[string]any{"application/x-ndjson": nil, "application/json": []auth.NewClient{}},
		gives: map[string]any{"application/x-ndjson": nil}},
		func(_ context.Context, by *caller, in *bulkIn) (*written, error) {
			list, lines, err := parseBulk(in.RawBody)
			if err != nil {
				return nil, err
			}
			added, err := w.as(by).AddAll(list)
			if err != nil {
				return nil, err
			}
			return bulkAnswer(added, lines)
		})
}

// parseBulk reads the clients and, beside each, its line. Every line that cannot be read is named.
func parseBulk(text []byte) (list []auth.NewClient, lines []bulkLine, err error) {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '[' {
		var items []json.RawMessage
		if err := json.Unmarshal(text, &items); err != nil {
			return nil, nil, problem(http.StatusBadRequest, "malformed", "the body is not a JSON array: "+jsonFault(err), "")
		}
		return parseBulkItems(items, func(i int) int { return i + 1 })
	}
	var items []json.RawMessage
	var at []int
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			items, at = append(items, line), append(at, number)
		}
	}
	return parseBulkItems(items, func(i int) int { return at[i] })
}

func parseBulkItems(items []json.RawMessage, line func(i int) int) (list []auth.NewClient, lines []bulkLine, err error) {
	if len(items) == 0 {
		return nil, nil, invalid("body", "the body names no client", "send one JSON object a line")
	}
	if len(items) > maxBulkClients {
		return nil, nil, invalid("body", fmt.Sprintf("the body names %d clients, more than %d", len(items), maxBulkClients), "send them in several requests")
	}
	for i, item := range items {
		var n auth.NewClient
		err := plainJSON(item)
		if err == nil {
			err = strictJSON(item, &n)
		}
		if err != nil {
			// Without an id the book refuses it, and with it all, but still tells what is wrong with the others.
			n = auth.NewClient{}
		}
		list, lines = append(list, n), append(lines, bulkLine{line(i), err})
	}
	return list, lines, nil
}

// bulkLine is where a client stood, and why it could not be read.
type bulkLine struct {
	number int
	fault  error
}

// bulkAnswer is one line a client, or the problem that names the lines at fault.
func bulkAnswer(added []auth.Added, lines []bulkLine) (*written, error) {
	var faults []LineFault
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i, a := range added {
		if lines[i].fault != nil {
			faults = append(faults, LineFault{Line: lines[i].number, Code: "malformed", Detail: jsonFault(lines[i].fault)})
			continue
		}
		if a.Err != nil {
			f := LineFault{Line: lines[i].number, ID: a.Client.ID, Code: "invalid", Detail: a.Err.Error()}
			var fault *auth.Fault
			if errors.As(a.Err, &fault) {
				f.Field, f.Detail = fault.Field, fault.Message
			} else if errors.Is(a.Err, auth.ErrExists) {
				f.Code, f.Field, f.Detail = "client_exists", "id", "a client of this id exists already"
			}
			faults = append(faults, f)
			continue
		}
		if err := enc.Encode(Credentials{a.Client.ID, a.Secret, a.Client.Workspace}); err != nil {
			return nil, err
		}
	}
	if len(faults) > 0 {
		return nil, bulkProblem(faults, len(added))
	}
	return &written{ContentType: "application/x-ndjson", Body: out.Bytes()}, nil
}

func bulkProblem(faults []LineFault, all int) *Problem {
	detail := fmt.Appendf(nil, "%d of %d lines are at fault, no client was added", len(faults), all)
	for i, f := range faults {
		if i == maxLinesTold {
			detail = append(detail, "; and more"...)
			break
		}
		detail = fmt.Appendf(detail, "; line %d: ", f.Line)
		if f.ID != "" {
			detail = fmt.Appendf(detail, "client %.80q: ", f.ID)
		}
		if f.Field != "" {
			detail = fmt.Appendf(detail, "%s: ", f.Field)
		}
		detail = append(detail, f.Detail...)
	}
	p := problem(http.StatusUnprocessableEntity, "bulk_refused", string(detail), "mend the lines named and send all again")
	p.Lines = faults
	return p
}
