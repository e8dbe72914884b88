package uns_test

import (
	"strings"
	"testing"

	"millrace/uns"
)

func TestDefaultOptionsAreValid(t *testing.T) {
	o := uns.DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	o := uns.Options{Namespace: "a/b", Workspaces: []string{"main", "main", "_x", "", "a+", strings.Repeat("w", 65)}, LateWindow: "soon", MaxFuture: -1}
	o.Ingress.PerClientRatePerSec = -1
	o.Ingress.PerWorkspaceRatePerSec = 10_000_001
	o.LiveMirror.QoS = 3
	want := `uns.namespace: "a/b" holds '/', which no single topic level may
uns.workspaces[1]: "main" is listed twice
uns.workspaces[2]: "_x" starts with _ or $, which belong to the box
uns.workspaces[3]: "" is empty
uns.workspaces[4]: "a+" holds '+', which no single topic level may
uns.workspaces[5]: "` + strings.Repeat("w", 65) + `" is longer than 64 bytes
uns.ingress.perClientRatePerSec: -1 is below 0
uns.ingress.perWorkspaceRatePerSec: 10000001 is above 10000000
uns.ingress.maxTopics: 0 is below 1
uns.ingress.maxValueSize: 0 is below 1
uns.liveMirror.qos: 3 is above 2
uns.maxFuture: -1ns is below 0s
uns.lateWindow: "soon" is neither "retention" nor a duration above 0s, like 7d`
	if err := o.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
	o = uns.DefaultOptions()
	o.Workspaces, o.LateWindow = nil, "-1h"
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "uns.workspaces: is empty") || !strings.Contains(err.Error(), "uns.lateWindow") {
		t.Errorf("got %v", err)
	}
}
