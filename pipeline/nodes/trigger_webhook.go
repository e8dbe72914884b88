package nodes

import "millrace/pipeline/node"

// minSecret is the least length of a webhook's secret, as of a client's.
const minSecret = 24

// webhookTrigger starts a run for a call from outside.
func webhookTrigger() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "trigger.webhook", Title: "Webhook", Category: "trigger", Trigger: true,
			Doc: "Starts a run for a `POST /api/v1/hooks/{pipeline}/{path}` with the header `X-Webhook-Secret`. The body, JSON, is `$trigger.value`. The answer, with the id of the run, comes when the run is queued on disk.",
			Fields: []node.Field{
				{Name: "path", Kind: node.TextField, Title: "Path", Default: `"in"`, Doc: "The last part of the address: letters, digits, . _ and -."},
				{Name: "secret", Kind: node.TextField, Title: "Secret", Required: true, Doc: "At least 24 characters. Whoever may read the definition can read it."},
			},
			Outputs: []node.Port{{Name: "out", Doc: "The body as `$trigger.value`."}},
			Example: node.Example{Title: "Orders", Params: `{"path":"order","secret":"a-secret-of-24-characters"}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			w := &node.Webhook{Path: c.Params.Get("path").Text(), Secret: c.Params.Get("secret").Text()}
			var faults []node.Fault
			if !plainName(w.Path) {
				faults = append(faults, faultOf("path", node.CodeOption, "%q is no path: letters, digits, . _ and -, at most 64", w.Path))
			}
			if len(w.Secret) < minSecret {
				faults = append(faults, faultOf("secret", node.CodeBounds, "the secret has %d characters, at least %d are needed", len(w.Secret), minSecret))
			}
			return &trigger{node.Start{Webhook: w}}, faults
		},
	}
}

func plainName(s string) bool {
	if s == "" || len(s) > 64 || s == "." || s == ".." {
		return false
	}
	for _, c := range []byte(s) {
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
