package uns

import (
	"fmt"
	"strconv"
)

// Reason of a verdict, contract section 5. Stored is the zero value.
type Reason uint8

// The reasons. Everything above Cleared is a refusal.
const (
	Stored Reason = iota
	Cleared
	NotAuthorized
	TopicInvalid
	PayloadInvalid
	TypeMismatch
	SchemaViolation
	NumberOutOfRange
	TimestampInvalid
	TimestampFuture
	TimestampTooOld
	RateLimited
	PayloadTooLarge
	TopicLimit
	Internal
	reasons // count
)

var reasonNames = [reasons]string{
	Stored:           "stored",
	Cleared:          "cleared",
	NotAuthorized:    "not_authorized",
	TopicInvalid:     "topic_invalid",
	PayloadInvalid:   "payload_invalid",
	TypeMismatch:     "type_mismatch",
	SchemaViolation:  "schema_violation",
	NumberOutOfRange: "number_out_of_range",
	TimestampInvalid: "timestamp_invalid",
	TimestampFuture:  "timestamp_future",
	TimestampTooOld:  "timestamp_too_old",
	RateLimited:      "rate_limited",
	PayloadTooLarge:  "payload_too_large",
	TopicLimit:       "topic_limit",
	Internal:         "internal",
}

// String returns the word used on the wire and as the metric label: stored, cleared, not_authorized …
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "reason(" + strconv.Itoa(int(r)) + ")"
}

// Reasons lists every reason in the order of their numbers, for tables that must cover all of them.
func Reasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Verdict is what became of one message. A refusal is a Verdict, never an error.
type Verdict struct {
	Reason Reason
	Detail string // names field, found, wanted; "" for stored
}

// OK tells whether the publisher gets success.
func (v Verdict) OK() bool { return v.Reason <= Cleared }

// String is the MQTT reason string of contract 5: "reason: detail".
func (v Verdict) String() string {
	if v.Detail == "" {
		return v.Reason.String()
	}
	return v.Reason.String() + ": " + v.Detail
}

// refuse builds a refusal. It formats, so it is for the refusing path only.
func refuse(r Reason, format string, args ...any) Verdict {
	return Verdict{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// AppendVerdict appends the verdict message of contract 5. s is the stored sample and nil for refusals.
func AppendVerdict(dst []byte, path string, v Verdict, s *Sample) []byte {
	if !v.OK() {
		dst = append(dst, `{"status":"refused","reason":`...)
		dst = appendQuoted(dst, v.Reason.String())
		dst = append(dst, `,"detail":`...)
		dst = appendQuoted(dst, v.Detail)
		dst = append(dst, `,"topic":`...)
		dst = appendQuoted(dst, path)
		return append(dst, '}')
	}
	dst = append(dst, `{"status":"`...)
	dst = append(dst, v.Reason.String()...)
	dst = append(dst, `","topic":`...)
	dst = appendQuoted(dst, path)
	if s != nil {
		dst = append(dst, `,"timestamp":"`...)
		dst = AppendTime(dst, s.Time, s.Scale)
		dst = append(dst, `","seq":`...)
		dst = strconv.AppendUint(dst, s.Seq, 10)
	}
	return append(dst, '}')
}
