package broker

import "millrace/uns"

// reasonCodes is the one table from verdicts to MQTT 5 reason codes (contract section 5).
var reasonCodes = [...]byte{
	uns.Stored:           codeSuccess,
	uns.Cleared:          codeSuccess,
	uns.NotAuthorized:    codeNotAuthorized,
	uns.TopicInvalid:     codeTopicInvalid,
	uns.PayloadInvalid:   codePayloadInvalid,
	uns.TypeMismatch:     codePayloadInvalid,
	uns.SchemaViolation:  codePayloadInvalid,
	uns.NumberOutOfRange: codePayloadInvalid,
	uns.TimestampInvalid: codePayloadInvalid,
	uns.TimestampFuture:  codePayloadInvalid,
	uns.TimestampTooOld:  codePayloadInvalid,
	uns.RateLimited:      codeQuota,
	uns.PayloadTooLarge:  codeQuota,
	uns.TopicLimit:       codeQuota,
	uns.Internal:         codeUnspecified,
}

// reasonCode maps what the table does not know to "unspecified error": a refusal must never look like success.
func reasonCode(r uns.Reason) byte {
	if int(r) < len(reasonCodes) {
		return reasonCodes[r]
	}
	return codeUnspecified
}

// maxReasonString bounds what a refusal's detail may add to an acknowledgement.
const maxReasonString = 1024

// appendVerdictAck appends the PUBACK or PUBREC of a message. A refusal carries `reason: detail` when the client wants to be told
// and its Maximum Packet Size has room [MQTT-3.4.2-2] [MQTT-3.1.2-29]. MQTT 3.1.1 can only be told "received".
func (c *conn) appendVerdictAck(b []byte, typ byte, id uint16, v uns.Verdict) []byte {
	if v.OK() || c.version < 5 || !c.problem {
		return appendAck(b, typ, id, reasonCode(v.Reason), c.version)
	}
	code, word, detail := reasonCode(v.Reason), v.Reason.String(), v.Detail
	if len(detail) > maxReasonString {
		detail = cutRunes(detail, maxReasonString)
	}
	text := len(word)
	if detail != "" {
		text += 2 + len(detail)
	}
	properties := 3 + text
	body := 3 + varintLen(properties) + properties
	if c.maxPacket > 0 && 1+varintLen(body)+body > int(c.maxPacket) {
		return appendAck(b, typ, id, code, c.version)
	}
	b = appendVarint(append(b, typ<<4), body)
	b = append(b, byte(id>>8), byte(id), code)
	b = appendVarint(b, properties)
	b = append(b, propReasonString, byte(text>>8), byte(text))
	b = append(b, word...)
	if detail != "" {
		b = append(append(b, ": "...), detail...)
	}
	return b
}

// cutRunes shortens s to at most n bytes without splitting a character.
func cutRunes(s string, n int) string {
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
