package web_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"millrace/auth"
)

const doubler = `{"id":"double","name":"Double it","nodes":[{"id":"in","type":"trigger.manual","params":{"sample":{"a":1}}},
{"id":"calc","type":"transform.set","params":{"fields":[{"name":"twice","value":"{{ $json.value * 2 }}"}],"keepOnlySet":true}},
{"id":"out","type":"system.uns.publish","params":{"topic":"calc/double","value":"{{ $json.twice }}"}}],"edges":[{"from":"in","to":"calc"},{"from":"calc","to":"out"}],"layout":{"in":[1,2]}}`

// A pipeline from its first draft to its end, as a program drives it.
func TestPipelineOverREST(t *testing.T) {
	b := newBox(t)
	as := func(method, path string, body ...string) reply {
		t.Helper()
		a := b.call(auth.RoleDesigner, method, path)
		if len(body) > 0 {
			a.json(body[0])
		}
		return a.do()
	}
	broken := strings.NewReplacer("transform.set", "transform.sett", "calc/double", "calc//double").Replace(doubler)
	for _, path := range []string{"/pipelines", "/pipelines/double"} {
		r := as(map[string]string{"/pipelines": "POST", "/pipelines/double": "PUT"}[path], path, broken)
		r.refused(t, 422, "definition_invalid", "")
		if !strings.Contains(r.text, `"faults":[{"node":"calc","field":"type","code":"unknown_type"`) || !strings.Contains(r.text, `"node":"out","field":"params.topic"`) {
			t.Errorf("%s", r.text)
		}
	}
	if r := as("POST", "/pipelines/validate", broken).wants(t, 200); !strings.HasPrefix(r.text, `{"valid":false,"faults":[`) {
		t.Errorf("%s", r.text)
	}
	if r := as("POST", "/pipelines/validate", doubler).wants(t, 200); strings.TrimSpace(r.text) != `{"valid":true,"faults":[]}` {
		t.Errorf("%s", r.text)
	}
	as("GET", "/pipelines/double").refused(t, 404, "pipeline_not_found", "")
	made := as("POST", "/pipelines", doubler).wants(t, 201)
	if made.Header.Get("Location") != "/api/v1/pipelines/double" || !strings.Contains(made.text, `"state":"draft","version":0`) || !strings.Contains(made.text, `"layout":{"in":[1,2]}`) {
		t.Errorf("%v %s", made.Header, made.text)
	}
	as("POST", "/pipelines", doubler).refused(t, 409, "pipeline_exists", "")
	as("POST", "/pipelines/double/run").refused(t, 409, "not_deployed", "")
	if r := as("POST", "/pipelines/double/deploy", `{"comment":"first"}`).wants(t, 200); !strings.Contains(r.text, `"state":"running","version":1`) {
		t.Errorf("%s", r.text)
	}
	changed := strings.Replace(doubler, "* 2", "* 3", 1)
	b.call(auth.RoleDesigner, "PUT", "/pipelines/double").with("If-Match", `"999"`).json(changed).do().refused(t, 412, "changed_meanwhile", "")
	r := b.call(auth.RoleDesigner, "PUT", "/pipelines/double").with("If-Match", made.Header.Get("ETag")).json(changed).do().wants(t, 200)
	if r.Header.Get("ETag") == made.Header.Get("ETag") || !strings.Contains(r.text, `"changed":true`) {
		t.Errorf("%v %s", r.Header, r.text)
	}
	if r := as("GET", "/pipelines/double/versions/1/diff/draft").wants(t, 200); strings.TrimSpace(r.text) != `{"differences":[{"kind":"node","what":"changed","node":"calc","field":"params.fields[0].value","was":"{{ $json.value * 2 }}","is":"{{ $json.value * 3 }}"}]}` {
		t.Errorf("%s", r.text)
	}
	// Dry, the draft runs and nothing is stored.
	r = as("POST", "/pipelines/double/test", `{"value":1.5,"topic":"a"}`).wants(t, 200)
	if !strings.Contains(r.text, `"published":[{"node":"out","topic":"calc/double","value":4.5,"quality":"good"}]`) || !strings.Contains(r.text, `"status":"completed","mode":"test"`) || b.catalog.Lookup("main", "calc/double") != nil {
		t.Errorf("%s", r.text)
	}
	as("POST", "/pipelines/double/test", `{"value":1,"nonsense":2}`).refused(t, 422, "invalid", "")
	// By hand, the deployed version runs and its value is stored.
	var started struct{ Run string }
	must(t, json.Unmarshal([]byte(as("POST", "/pipelines/double/run", `{"value":9007199254740}`).wants(t, 200).text), &started))
	b.waitRun(started.Run)
	if r := b.get("/uns/latest", "filter", "calc/double"); !strings.Contains(r.text, `"value":18014398509480`) {
		t.Errorf("%s", r.text)
	}
	r = as("GET", "/runs/"+started.Run).wants(t, 200)
	if !strings.Contains(r.text, `"pipeline":"double","version":1,"status":"completed","mode":"manual"`) || !strings.Contains(r.text, `{"id":"calc","status":"completed"`) || !strings.Contains(r.text, `"out":{"twice":18014398509480}`) {
		t.Errorf("%s", r.text)
	}
	b.clock.add(time.Second)
	must(t, json.Unmarshal([]byte(as("POST", "/runs/"+started.Run+"/replay", `{"value":2}`).wants(t, 200).text), &started))
	b.waitRun(started.Run)
	var list struct {
		Runs []struct{ ID, Status, Mode string }
		Next string
	}
	must(t, json.Unmarshal([]byte(b.get("/pipelines/double/runs", "limit", "1").wants(t, 200).text), &list))
	if len(list.Runs) != 1 || list.Next == "" || list.Runs[0].Mode != "replay" {
		t.Errorf("%+v", list)
	}
	must(t, json.Unmarshal([]byte(b.get("/pipelines/double/runs", "cursor", list.Next).wants(t, 200).text), &list))
	if len(list.Runs) != 1 || list.Next != "" || list.Runs[0].Mode != "manual" {
		t.Errorf("%+v", list)
	}
	b.get("/pipelines/double/runs", "cursor", "x").refused(t, 422, "invalid", "cursor")
	if r := b.get("/pipelines/double/samples").wants(t, 200); !strings.Contains(r.text, `"value":2`) {
		t.Errorf("%s", r.text)
	}
	if r := b.get("/pipelines/double/stats").wants(t, 200); !strings.Contains(r.text, `"completed":2`) {
		t.Errorf("%s", r.text)
	}
	// What fails can be run again, what waits is shown.
	as("POST", "/pipelines/double/replay", `{"from":"-1h","version":"current"}`).wants(t, 200)
	waiting := b.aRun("there", true)
	if r := b.get("/pipelines/there/active").wants(t, 200); !strings.Contains(r.text, `"id":"`+waiting+`","pipeline":"there","version":1,"status":"parked"`) || !strings.Contains(r.text, `"node":"wait"`) {
		t.Errorf("%s", r.text)
	}
	if r := b.get("/runs/"+waiting).wants(t, 200); !strings.Contains(r.text, `"status":"parked"`) {
		t.Errorf("%s", r.text)
	}
	as("POST", "/runs/"+waiting+"/cancel").wants(t, 204)
	b.waitRun(waiting)
	as("POST", "/pipelines/double/pause").wants(t, 204)
	as("POST", "/pipelines/double/resume").wants(t, 204)
	as("POST", "/pipelines/double/deploy").wants(t, 200)
	if r := as("POST", "/pipelines/double/rollback", `{"version":1}`).wants(t, 200); !strings.Contains(r.text, `"version":1,"latest":2`) || !strings.Contains(r.text, "* 2") {
		t.Errorf("%s", r.text)
	}
	as("POST", "/pipelines/double/rollback", `{"version":7}`).refused(t, 404, "pipeline_not_found", "")
	if r := as("POST", "/pipelines/double/stop").wants(t, 200); !strings.Contains(r.text, `"state":"stopped"`) {
		t.Errorf("%s", r.text)
	}
	if r := b.get("/pipelines", "state", "stopped").wants(t, 200); !strings.Contains(r.text, `"id":"double"`) {
		t.Errorf("%s", r.text)
	}
	if r := b.get("/node-types").wants(t, 200); !strings.Contains(r.text, `"type":"system.uns.publish"`) {
		t.Errorf("%s", r.text)
	}
	// Work in progress may be wrong, and cannot be deployed.
	as("PUT", "/pipelines/double/draft", broken).wants(t, 200)
	as("POST", "/pipelines/double/deploy").refused(t, 422, "definition_invalid", "")
	as("DELETE", "/pipelines/double").wants(t, 204)
	as("GET", "/pipelines/double").refused(t, 404, "pipeline_not_found", "")
}

// A webhook needs its secret and nothing else.
func TestWebhook(t *testing.T) {
	b := newBox(t)
	b.call(auth.RoleDesigner, "POST", "/pipelines").json(`{"id":"orders","nodes":[{"id":"in","type":"trigger.webhook","params":{"path":"new","secret":"a-secret-of-24-characters"}}]}`).do().wants(t, 201)
	call := func(path, secret, body string) reply {
		return b.call("", "POST", path).with("X-Webhook-Secret", secret).json(body).do()
	}
	call("/hooks/orders/new", "a-secret-of-24-characters", `{"order":1}`).refused(t, 404, "webhook_not_found", "")
	b.call(auth.RoleDesigner, "POST", "/pipelines/orders/deploy").do().wants(t, 200)
	call("/hooks/orders/new", "another-secret-of-24-chars", `{"order":1}`).refused(t, 404, "webhook_not_found", "")
	call("/hooks/orders/old", "a-secret-of-24-characters", `{"order":1}`).refused(t, 404, "webhook_not_found", "")
	call("/hooks/orders/new", "a-secret-of-24-characters", `{"order":`).refused(t, 400, "malformed", "")
	var made struct{ Run string }
	must(t, json.Unmarshal([]byte(call("/hooks/orders/new", "a-secret-of-24-characters", `{"order":9007199254740993}`).wants(t, 200).text), &made))
	b.waitRun(made.Run)
	if r := b.get("/runs/"+made.Run).wants(t, 200); !strings.Contains(r.text, `"mode":"webhook"`) || !strings.Contains(r.text, `"value":{"order":9007199254740993}`) {
		t.Errorf("%s", r.text)
	}
}
