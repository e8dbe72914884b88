package node_test

import (
	"testing"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

var spec = node.Spec{Fields: []node.Field{
	{Name: "topic", Kind: node.TopicField, Required: true, Template: true},
	{Name: "filters", Kind: node.ListField, Of: &node.Field{Kind: node.FilterField}},
	{Name: "every", Kind: node.DurationField, Default: `"1s"`, Min: "1ms", Max: "1d"},
	{Name: "count", Kind: node.NumberField, Min: "0", Max: "100"},
	{Name: "on", Kind: node.SelectField, Options: []string{"every", "change"}, Default: `"every"`},
	{Name: "keep", Kind: node.BooleanField, Default: "false"},
	{Name: "fields", Kind: node.ListField, Of: &node.Field{Kind: node.GroupField, Fields: []node.Field{
		{Name: "name", Kind: node.TextField, Required: true}, {Name: "value", Kind: node.AnyField, Template: true}, {Name: "type", Kind: node.SelectField, Options: []string{"number", "text"}, Default: `"text"`},
	}}},
	{Name: "code", Kind: node.CodeField},
	{Name: "text", Kind: node.TextField, Template: true},
}}

func TestCheckReportsEveryFault(t *testing.T) {
	for params, want := range map[string][]string{
		`{"topic":"a/b"}`:              nil,
		`{"topic":"{{ $json.t }}/x+"}`: nil,
		`{"topic":"a","text":5}`:       nil,
		`{"topic":"a","every":"1d"}`:   nil,
		`{}`:                           {"topic missing_field"},
		`null`:                         {"topic missing_field"},
		`[]`:                           {" wrong_kind"},
		`{"topic":""}`:                 {"topic topic_invalid"},
		`{"topic":"a//b","tpoic":1}`:   {"tpoic unknown_field", "topic topic_invalid"},
		`{"topic":"a/+"}`:              {"topic topic_invalid"},
		`{"topic":5}`:                  {"topic wrong_kind"},
		`{"topic":"a","filters":["a/#","#/a","+/b","a+",1]}`:                                    {"filters[1] filter_invalid", "filters[3] filter_invalid", "filters[4] wrong_kind"},
		`{"topic":"a","every":"soon","count":"x","on":"now","keep":1}`:                          {"every duration_invalid", "count wrong_kind", "on not_an_option", "keep wrong_kind"},
		`{"topic":"a","every":"2d","count":101}`:                                                {"every out_of_bounds", "count out_of_bounds"},
		`{"topic":"a","every":"0s","count":-0.001}`:                                             {"every out_of_bounds", "count out_of_bounds"},
		`{"topic":"a","fields":[{"name":"x"},{"nam":"y"},{"name":"z","type":"q"},3],"text":{}}`: {"fields[1].nam unknown_field", "fields[1].name missing_field", "fields[2].type not_an_option", "fields[3] wrong_kind", "text wrong_kind"},
	} {
		v, err := value.Parse([]byte(params))
		if err != nil {
			t.Fatal(err)
		}
		_, faults := node.Check(&spec, v)
		var got []string
		for _, f := range faults {
			if f.Message == "" || f.Severity != node.SeverityError {
				t.Errorf("%s: %+v", params, f)
			}
			got = append(got, f.Field+" "+f.Code)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", params, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %q, want %q", params, got, want)
			}
		}
	}
}

func TestCheckFillsDefaultsIn(t *testing.T) {
	v, err := value.Parse([]byte(`{"topic":"a","fields":[{"name":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	filled, faults := node.Check(&spec, v)
	if got, want := string(filled.AppendJSON(nil)), `{"topic":"a","fields":[{"name":"x","type":"text"}],"every":"1s","on":"every","keep":false}`; got != want || len(faults) > 0 {
		t.Errorf("%s, %v, want %s", got, faults, want)
	}
}

func TestCheckGuesses(t *testing.T) {
	v, _ := value.Parse([]byte(`{"topic":"a","tpoic":1,"evry":2,"zzzzzz":3}`))
	_, faults := node.Check(&spec, v)
	for i, want := range []string{`there is no "tpoic" here; did you mean "topic"?`, `there is no "evry" here; did you mean "every"?`, `there is no "zzzzzz" here`} {
		if faults[i].Message != want {
			t.Errorf("%q, want %q", faults[i].Message, want)
		}
	}
}
