package web

import (
	"context"
	"errors"
	"net/http"

	"millrace/pipeline"
	"millrace/pipeline/value"
)

// addHooks serves calls of webhooks. Whoever knows the secret may; no sign-in is looked at.
func (w *Web) addHooks() {
	type hookIn struct {
		PipelinePath
		Path    string `path:"path" doc:"Path of the trigger" maxLength:"64"`
		Secret  string `header:"X-Webhook-Secret" doc:"Secret of the trigger" maxLength:"1024"`
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/hooks/{id}/{path}", id: "call-webhook", tag: "Runs", rule: rule{anyone: true}, missing: true, optional: true,
		summary: "Call a webhook", doc: "Starts a run of the pipeline; the body, any JSON, is `$trigger.value`. It answers when the run is queued. A wrong secret and an unknown path are the same 404.",
		takes: map[string]any{"application/json": any(map[string]any{})}, gives: map[string]any{"application/json": RunStarted{}}},
		func(ctx context.Context, _ *caller, in *hookIn) (*written, error) {
			if len(in.RawBody) > 0 {
				if err := plainJSON(in.RawBody); err != nil {
					return nil, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), "send JSON, or nothing")
				}
			}
			ctx, cancel := context.WithTimeout(ctx, writeWait)
			defer cancel()
			id, err := w.parts.Pipelines.Engine.Webhook(ctx, in.ID, in.Path, in.Secret, in.RawBody)
			var refused *pipeline.Refused
			switch {
			case errors.As(err, &refused) && refused.Code == "input_too_large":
				return nil, problem(http.StatusRequestEntityTooLarge, "too_large", refused.Detail, "send less in one request")
			case errors.As(err, &refused):
				return nil, problem(http.StatusNotFound, "webhook_not_found", refused.Detail, "the header X-Webhook-Secret carries the secret of the trigger; the pipeline must be deployed and running")
			case err != nil:
				return nil, err
			}
			return answerOf(value.Object(value.Field{Name: "run", Value: value.Text(id.String())})), nil
		})
}
