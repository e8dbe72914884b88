package web

import (
	"context"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

const (
	apiRoot = "/api/v1"
	ruleKey = "rule"
	// bodyTime is how long a request body may take to arrive.
	bodyTime = 20 * time.Second
)

// route describes one operation: what the document says of it and who may call it.
type route struct {
	method, path string
	id           string // operationId
	tag          string
	summary, doc string
	rule         rule
	status       int // of success; 0 = 200, or 204 without a body
	// missing: the operation can answer 404.
	missing bool
	// conflicts are further statuses it can answer.
	conflicts []int
	// body bounds the request body; 0 = maxBody.
	body int64
	// takes documents a body that the handler parses itself, so that no digit passes through a float; by media type.
	takes map[string]any
	// gives documents an answer that the handler writes itself; by media type.
	gives map[string]any
	// optional: the body may be left out.
	optional bool
}

// addREST registers every operation of /api/v1 on mux and keeps the OpenAPI document they add up to.
func (w *Web) addREST(mux *http.ServeMux) {
	config := huma.DefaultConfig("Millrace", "1")
	// The library's own pages load scripts from elsewhere and its document handler is not safe for concurrent
	// first calls; both are served here instead. The hooks add $schema links, which no answer of ours has.
	config.DocsPath, config.OpenAPIPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil
	config.Transformers = []huma.Transformer{reshape}
	config.RejectUnknownQueryParameters = true
	config.Formats = map[string]huma.Format{"application/json": exactJSON, "json": exactJSON}
	config.Info.Description = "Devices' values, their topics and history, and who may send and see them. " +
		"Topics are paths within a workspace; numbers keep the digits the device sent."
	config.Tags = []*huma.Tag{
		{Name: "UNS", Description: "Topics, values, history"}, {Name: "Clients", Description: "Who may connect and what they may do"},
		{Name: "Session", Description: "Signing in and out, and the first start"}, {Name: "Users", Description: "People and their roles"},
		{Name: "Tokens", Description: "Access for people and scripts"}, {Name: "Audit", Description: "Who changed what"}, {Name: "Keys", Description: "Keys that seal and sign"}, {Name: "Pipelines", Description: "From stored values to derived ones: definitions, versions, what is deployed"}, {Name: "Runs", Description: "What pipelines did"}, {Name: "Broker", Description: "MQTT sessions"}, {Name: "Box", Description: "State of the box"},
	}
	config.Servers = []*huma.Server{{URL: apiRoot}}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "A personal access token, or an API client's access token"},
		"session": {Type: "apiKey", In: "cookie", Name: cookieName, Description: "A person's session; changes carry X-CSRF-Token, too"},
		"client":  {Type: "http", Scheme: "basic", Description: "An API client's id and secret"},
	}
	w.api = humago.NewWithPrefix(mux, apiRoot, config)
	w.api.UseMiddleware(w.guard)

	w.addSignIn()
	w.addMe()
	w.addTokens()
	w.addUsers()
	w.addAudit()
	w.addKeys()
	w.addClients()
	w.addTopics()
	w.addLatest()
	w.addViolations()
	w.addHistory()
	w.addPipelines()
	w.addExport()
	w.addPublish()
	w.addSessions()
	w.addLedger()
	w.addStatus()
	w.addBackup()

	document := w.api.OpenAPI()
	// Operations state their own problem shape; the library registers its error type all the same.
	schemas := document.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	text, err := json.Marshal(document)
	if err != nil {
		panic("web: the OpenAPI document cannot be written: " + err.Error())
	}
	w.openapi = newPage("application/json", text)
	mux.HandleFunc("GET "+apiRoot+"/openapi.json", w.openapi.serve)
}

// register adds one operation. The handler's errors go through the table in error.go.
func register[I, O any](w *Web, rt route, handle func(ctx context.Context, c *caller, in *I) (*O, error)) {
	schemas := w.api.OpenAPI().Components.Schemas
	if rt.body == 0 {
		rt.body = maxBody
	}
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Tags: []string{rt.tag},
		Summary: rt.summary, Description: rt.doc, DefaultStatus: rt.status,
		// The library refuses a body that has exactly the limit.
		MaxBodyBytes: rt.body + 1, BodyReadTimeout: bodyTime,
		Metadata:  map[string]any{ruleKey: rt.rule},
		Responses: map[string]*huma.Response{},
		Security:  []map[string][]string{{"token": {}}, {"session": {}}},
	}
	if rt.rule.clients {
		op.Security = append(op.Security, map[string][]string{"client": {}})
	}
	if rt.rule.loopback || rt.rule.anyone {
		op.Security = append(op.Security, map[string][]string{})
	}
	problems := []int{401, 403, 422, 429, 500, 503}
	if rt.rule.anyone && rt.method == http.MethodGet {
		problems = []int{401, 422, 429, 500, 503}
	}
	if rt.missing {
		problems = append(problems, 404)
	}
	if takesBody(reflect.TypeFor[I]()) {
		problems = append(problems, 400, 408, 413, 415)
	}
	fault := schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	for _, status := range append(problems, rt.conflicts...) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: fault}},
		}
	}
	if rt.gives != nil {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: media(schemas, rt.gives)}
	}
	if rt.takes != nil {
		op.SkipValidateBody = true
		op.RequestBody = &huma.RequestBody{}
	}
	if rt.takes != nil {
		op.Middlewares = huma.Middlewares{rt.holdKind}
	}
	huma.Register(w.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, callerOf(ctx), in)
		if err == nil {
			return out, nil
		}
		p := problemOf(err)
		if p.cause != nil {
			w.log.Error("request failed", "operation", rt.id, "error", p.cause)
		}
		return nil, p
	})
	if rt.takes != nil {
		op.RequestBody.Content = media(schemas, rt.takes)
		op.RequestBody.Required = !rt.optional
	}
}

// takesBody says whether an input has a request body, for the library or for the handler itself.
func takesBody(in reflect.Type) bool {
	for _, name := range []string{"Body", "RawBody"} {
		if _, ok := in.FieldByName(name); ok {
			return true
		}
	}
	return false
}

// holdKind refuses a body of a media type that the operation does not take. The library does that only for the
// bodies it parses. A body of no declared type is taken for the right one.
func (rt route) holdKind(ctx huma.Context, next func(huma.Context)) {
	kind, _, err := mime.ParseMediaType(ctx.Header("Content-Type"))
	if _, ok := rt.takes[kind]; !ok && ctx.Header("Content-Type") != "" {
		_, rw := humago.Unwrap(ctx)
		detail := "a body of " + kind + " is not taken here"
		if err != nil {
			detail = "the Content-Type cannot be read"
		}
		writeProblem(rw, problem(http.StatusUnsupportedMediaType, "unsupported_media_type", detail,
			"send it with Content-Type: "+strings.Join(slices.Sorted(maps.Keys(rt.takes)), " or ")))
		return
	}
	next(ctx)
}

// media documents bodies by media type; a nil sample is plain text.
func media(schemas huma.Registry, samples map[string]any) map[string]*huma.MediaType {
	content := map[string]*huma.MediaType{}
	for kind, sample := range samples {
		if sample == nil {
			content[kind] = &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
			continue
		}
		t := reflect.TypeOf(sample)
		content[kind] = &huma.MediaType{Schema: schemas.Schema(t, true, t.Name())}
	}
	return content
}

// exactJSON is the bodies that the library parses: what could be read in two ways is refused.
var exactJSON = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(text []byte, into any) error {
		if err := plainJSON(text); err != nil {
			return err
		}
		return huma.DefaultJSONFormat.Unmarshal(text, into)
	},
}

// written is an answer whose text the handler wrote itself.
type written struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	Body        []byte
}

func writtenJSON(text []byte) *written {
	return &written{ContentType: "application/json", Body: text}
}
