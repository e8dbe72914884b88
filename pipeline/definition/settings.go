package definition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
)

// The defaults and bounds of settings.
const (
	defaultTimeout = 5 * time.Minute
	maxTimeout     = 24 * time.Hour
	defaultDepth   = 16
	defaultDelay   = time.Second
	defaultMax     = 5 * time.Minute
	maxRetries     = 100
)

// resolve reads the settings of the pipeline.
func (s *Settings) resolve(scripts *script.Engine, list *[]Fault) (r Resolved) {
	r.Lane = choice(list, "", "settings.priority", s.Priority, 1, "high", "normal", "low")
	r.Order = choice(list, "", "settings.runOrder", s.RunOrder, 0, "parallel", "ordered", "byKey")
	r.Parallel = choice(list, "", "settings.stepExecution", s.StepExecution, 0, "sequential", "parallel") == 1
	r.Detail = choice(list, "", "settings.historyDetail", s.HistoryDetail, 1, "minimal", "standard", "full")
	r.Timeout = span(list, "", "settings.timeout", s.Timeout, defaultTimeout, maxTimeout)
	switch r.MaxDepth = s.MaxDepth; {
	case r.MaxDepth == 0:
		r.MaxDepth = defaultDepth
	case r.MaxDepth < 1 || r.MaxDepth > defaultDepth:
		*list = append(*list, wrong("", "settings.maxDepth", node.CodeBounds, fmt.Sprintf("%d is not between 1 and %d", r.MaxDepth, defaultDepth)))
	}
	switch {
	case r.Order == OrderByKey && s.OrderKey == "":
		*list = append(*list, wrong("", "settings.orderKey", node.CodeMissing, "runOrder byKey needs an orderKey, for example {{ $trigger.topic }}"))
	case r.Order != OrderByKey && s.OrderKey != "":
		*list = append(*list, warn("", "settings.orderKey", node.CodeUnknown, "orderKey is used with runOrder byKey only"))
	case s.OrderKey != "":
		x, err := scripts.Expression(s.OrderKey)
		if err != nil {
			*list = append(*list, wrong("", "settings.orderKey", node.CodeScript, err.Error()))
		}
		r.Key = x
	}
	return r
}

// choice is the place of text among the options; empty is the default.
func choice(list *[]Fault, id, field, text string, missing uint8, options ...string) uint8 {
	if text == "" {
		return missing
	}
	if i := slices.Index(options, text); i >= 0 {
		return uint8(i)
	}
	*list = append(*list, wrong(id, field, node.CodeOption, fmt.Sprintf("%q is none of %s", text, strings.Join(options, ", "))))
	return missing
}

func span(list *[]Fault, id, field, text string, missing, most time.Duration) time.Duration {
	if text == "" {
		return missing
	}
	d, err := node.Duration(text)
	switch {
	case err != nil:
		*list = append(*list, wrong(id, field, node.CodeDuration, fmt.Sprintf("%q is no duration such as 20ms, 5s, 10m, 2h or 1d", text)))
	case d <= 0 || d > most:
		*list = append(*list, wrong(id, field, node.CodeBounds, fmt.Sprintf("%s is not between 0 and %s", text, most)))
	}
	return d
}

// resolveStep reads the settings of a node. led says that an edge leaves from its port error.
func resolveStep(list *[]Fault, id string, s *node.Settings, led bool) (r StepSettings) {
	r.Timeout = span(list, id, "settings.timeout", s.Timeout, 0, maxTimeout)
	r.Retries = s.Retry.Count
	if r.Retries < 0 || r.Retries > maxRetries {
		*list = append(*list, wrong(id, "settings.retry.count", node.CodeBounds, fmt.Sprintf("%d is not between 0 and %d", r.Retries, maxRetries)))
	}
	r.Exponential = choice(list, id, "settings.retry.backoff", s.Retry.Backoff, 0, "fixed", "exponential") == 1
	r.Delay = span(list, id, "settings.retry.delay", s.Retry.Delay, defaultDelay, maxTimeout)
	r.Max = span(list, id, "settings.retry.max", s.Retry.Max, defaultMax, maxTimeout)
	if r.Jitter = s.Retry.Jitter; !(r.Jitter >= 0 && r.Jitter <= 1) {
		*list = append(*list, wrong(id, "settings.retry.jitter", node.CodeBounds, fmt.Sprintf("%v is not between 0 and 1", r.Jitter)))
	}
	missing := ErrorStops
	if led {
		missing = ErrorOutput
	}
	r.OnError = choice(list, id, "settings.onError", s.OnError, missing, "stop", "continue", "output")
	if led && r.OnError != ErrorOutput {
		*list = append(*list, warn(id, "settings.onError", codePort, fmt.Sprintf("onError %s never takes the edge from port error", s.OnError)))
	}
	return r
}
