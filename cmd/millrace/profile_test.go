package main

import (
	"strings"
	"testing"
)

// The conformance profile keeps to loopback by itself where no host is named, and is refused where another one is.
func TestConformanceProfileSettings(t *testing.T) {
	profile := map[string]string{"broker.profile": "conformance"}
	c, err := loadConfig("", nil, profile)
	if err != nil || c.Broker.Address != "127.0.0.1:1883" || c.Web.Address != "127.0.0.1:8080" {
		t.Errorf("%s %s %v", c.Broker.Address, c.Web.Address, err)
	}
	for variable, key := range map[string]string{
		"MILLRACE_BROKER_ADDRESS=0.0.0.0:1883": "broker.address: 0.0.0.0:1883",
		"MILLRACE_WEB_ADDRESS=[::]:8080":       "web.address: [::]:8080",
	} {
		if _, err := loadConfig("", []string{variable}, profile); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "use 127.0.0.1") {
			t.Errorf("%s: %v", variable, err)
		}
		if _, err := loadConfig("", []string{variable}, nil); err != nil {
			t.Errorf("%s without the profile: %v", variable, err)
		}
	}
	if _, err := loadConfig("", []string{"MILLRACE_BROKER_PROFILE=easy"}, nil); err == nil || !strings.Contains(err.Error(), `broker.profile: "easy"`) {
		t.Errorf("%v", err)
	}
}
