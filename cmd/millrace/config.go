package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
	"millrace/backup"
	"millrace/broker"
	"millrace/historian"
	"millrace/pipeline"
	"millrace/uns"
	"millrace/web"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// Config is config.yaml: a section is a folder, and each folder owns the options of its section.
type Config struct {
	Data string `koanf:"data"`
	Log  struct {
		Level  string `koanf:"level"`
		Format string `koanf:"format"`
	} `koanf:"log"`
	Broker    broker.Options    `koanf:"broker"`
	Historian historian.Options `koanf:"historian"`
	UNS       uns.Options       `koanf:"uns"`
	Pipeline  pipeline.Options  `koanf:"pipeline"`
	Auth      auth.Options      `koanf:"auth"`
	Web       web.Options       `koanf:"web"`
	Backup    backup.Options    `koanf:"backup"`

	// source says where each key came from: default, FILE:LINE, the name of a variable, or a flag.
	source map[string]string
}

func defaultConfig() Config {
	c := Config{Data: "./data", Broker: broker.DefaultOptions(), Historian: historian.DefaultOptions(),
		UNS: uns.DefaultOptions(), Pipeline: pipeline.DefaultOptions(), Auth: auth.DefaultOptions(), Web: web.DefaultOptions(), Backup: backup.DefaultOptions(), source: map[string]string{}}
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

// setting is one key with its value, in the order of the file.
type setting struct {
	path  string
	value reflect.Value
}

func (c *Config) settings() []setting {
	var list []setting
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("koanf")
			if name == "" || name == "-" {
				continue
			}
			if f := v.Field(i); f.Kind() == reflect.Struct {
				walk(f, prefix+name+".")
			} else {
				list = append(list, setting{prefix + name, f})
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	return list
}

// text gives a value as config.yaml would write it. Every int64 among the options is a size in bytes.
func (s setting) text() string {
	switch v := s.value.Interface().(type) {
	case time.Duration:
		return formatDuration(v)
	case int64:
		return formatSize(v)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case string:
		if v == "" {
			return `""`
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

func envName(path string) string {
	return "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// envNotKeys are variables with our prefix that are not settings.
var envNotKeys = []string{"MILLRACE_ADMIN_PASSWORD", "MILLRACE_LONG"}

// configFault is one thing wrong with the settings and where it stands.
type configFault struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Place   string `json:"place,omitempty"` // of what stands in no file: a variable or a flag
	Message string `json:"message"`
}

func (f configFault) Error() string {
	switch {
	case f.Line > 0:
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
	case f.File != "":
		return f.File + ": " + f.Message
	case f.Place != "":
		return f.Place + ": " + f.Message
	}
	return f.Message
}

// configFaults is every fault there is, in the order of the file; one line each.
type configFaults []configFault

func (l configFaults) Error() string {
	lines := make([]string, len(l))
	for i, f := range l {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// reading is a configuration while its layers are read.
type reading struct {
	c      Config
	known  map[string]setting
	k      *koanf.Koanf
	at     map[string]configFault // where each key was set last, without a message
	faults configFaults
}

func (r *reading) fault(at configFault, format string, args ...any) {
	at.Message = strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	if !slices.Contains(r.faults, at) {
		r.faults = append(r.faults, at)
	}
}

// layer sets values over those before; a fault in one hides none of the others.
func (r *reading) layer(values map[string]any, place func(path string) configFault) {
	for path, v := range values {
		at := place(path)
		s, ok := r.known[path]
		_, empty := v.(map[string]any)
		switch {
		case empty && ok:
			r.fault(at, "%s: must be a %s, not a mapping", path, kindName(s.value.Type()))
		case empty && r.section(path): // {}: a section that sets nothing
		case !ok && r.section(path):
			r.fault(at, "%s: must be a mapping of keys, not %s", path, found(v))
		case !ok && r.within(path) != "":
			r.fault(at, "%s: must be a %s, not a mapping", r.within(path), kindName(r.known[r.within(path)].value.Type()))
		case !ok:
			r.fault(at, "unknown key %s%s", path, nearest(path, r.known))
		default:
			if err := try(s, path, v); err != nil {
				r.fault(at, "%s: %v", path, err)
			} else if err := r.k.Load(confmap.Provider(map[string]any{path: v}, "."), nil); err != nil {
				r.fault(at, "%s: %v", path, err)
			} else {
				r.at[path] = at
				r.c.source[path] = strings.TrimSuffix(at.Error(), ": ")
			}
		}
	}
}

// section says whether keys stand below path.
func (r *reading) section(path string) bool {
	for key := range r.known {
		if strings.HasPrefix(key, path+".") {
			return true
		}
	}
	return false
}

// within is the key that path was written below, "" for none.
func (r *reading) within(path string) string {
	for key := range r.known {
		if strings.HasPrefix(path, key+".") {
			return key
		}
	}
	return ""
}

// found words what stands in a section's place.
func found(v any) string {
	switch v.(type) {
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", v)
	}
	return fmt.Sprint(v)
}

// place finds where the key that a part's own fault begins with was set.
func (r *reading) place(message string) configFault {
	key, _, _ := strings.Cut(message, ":")
	key, _, _ = strings.Cut(key, "[")
	return r.at[key]
}

// flatten takes joined errors apart.
func flatten(err error) (list []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, flatten(e)...)
		}
		return list
	}
	if err != nil {
		list = append(list, err)
	}
	return list
}

// loadConfig reads the settings in the order default, file, environment, flag; the later wins. An empty file
// name means ./config.yaml if there is one. The error is configFaults: every fault there is.
func loadConfig(file string, environ []string, flags map[string]string) (Config, error) {
	r := &reading{c: defaultConfig(), known: map[string]setting{}, k: koanf.New("."), at: map[string]configFault{}}
	for _, s := range r.c.settings() {
		r.known[s.path] = s
		r.c.source[s.path] = "default"
	}
	if file == "" {
		if _, err := os.Stat("config.yaml"); err == nil {
			file = "config.yaml"
		}
	}
	if file != "" {
		values, lines, faults := readYAML(file)
		r.faults = append(r.faults, faults...)
		r.layer(values, func(path string) configFault { return configFault{File: file, Line: lines[path]} })
	}
	env := map[string]any{}
	byName := map[string]string{}
	for path := range r.known {
		byName[envName(path)] = path
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "MILLRACE_") || slices.Contains(envNotKeys, name) {
			continue
		}
		if path, ok := byName[name]; ok {
			env[path] = value
		} else {
			r.fault(configFault{Place: "environment"}, "unknown variable %s; a key's variable is MILLRACE_ and its path in capitals with _ for the dots", name)
		}
	}
	r.layer(env, func(path string) configFault { return configFault{Place: "environment " + envName(path)} })
	given := map[string]any{}
	for path, v := range flags {
		given[path] = v
	}
	r.layer(given, func(path string) configFault {
		return configFault{Place: "flag --" + strings.TrimPrefix(path, "broker.")}
	})

	for _, err := range flatten(decode(r.k.Raw(), &r.c)) {
		r.fault(r.place(err.Error()), "%v", err)
	}
	r.c.stayOnLoopback()
	for _, err := range flatten(r.c.validate()) {
		r.fault(r.place(err.Error()), "%v", err)
	}
	if len(r.faults) == 0 {
		return r.c, nil
	}
	slices.SortStableFunc(r.faults, func(a, b configFault) int {
		return cmp.Or(-strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Place, b.Place), strings.Compare(a.Message, b.Message))
	})
	return r.c, r.faults
}

// try decodes one value alone, so that a fault can be told with its line.
func try(s setting, path string, v any) error {
	target := reflect.New(s.value.Type())
	if err := decode(v, target.Interface()); err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		text := err.Error()
		if i := strings.LastIndex(text, "quantity: "); i >= 0 {
			return errors.New(text[i+len("quantity: "):])
		}
		return fmt.Errorf("%v does not fit: a %s is wanted", v, kindName(s.value.Type()))
	}
	return nil
}

func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[broker.PerMinute]():
		return "number a minute"
	case t.Kind() == reflect.Int64:
		return "size"
	case t.Kind() == reflect.Int:
		return "whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "list"
	}
	return "text"
}

func decode(from, to any) error {
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{TagName: "koanf", Result: to, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(decodeQuantity)})
	if err != nil {
		return err
	}
	return d.Decode(from)
}

// decodeQuantity turns what YAML or the environment holds into the type of an option.
func decodeQuantity(from, to reflect.Type, v any) (any, error) {
	quantity := func(v any, err error) (any, error) {
		if err != nil {
			return nil, fmt.Errorf("quantity: %w", err)
		}
		return v, nil
	}
	text, isText := v.(string)
	switch {
	case to == reflect.TypeFor[time.Duration]():
		if !isText {
			return nil, fmt.Errorf("quantity: %v has no unit; write 500ms, 5s, 1h30m or 7d", v)
		}
		return quantity(parseDuration(text))
	case to == reflect.TypeFor[broker.PerMinute]():
		return quantity(parsePerMinute(fmt.Sprint(v)))
	case to.Kind() == reflect.Int64:
		return quantity(parseSize(fmt.Sprint(v)))
	case to.Kind() == reflect.Int && isText:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("quantity: %q is not a whole number", text)
		}
		return n, nil
	case to.Kind() == reflect.Int && (from.Kind() == reflect.Float64 || from.Kind() == reflect.Uint64):
		// The decoder would cut a fraction off and let what is too large run over.
		n, err := strconv.Atoi(fmt.Sprint(v))
		if err != nil {
			return nil, fmt.Errorf("quantity: %v is not a whole number that fits", v)
		}
		return n, nil
	case to.Kind() == reflect.Bool && isText:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("quantity: %q is neither true nor false", text)
		}
		return b, nil
	case to.Kind() == reflect.Slice && isText:
		list := strings.Split(strings.Trim(text, "[]"), ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list, nil
	case to.Kind() == reflect.String && !isText:
		switch v.(type) {
		case map[string]any, []any, nil:
			return nil, fmt.Errorf("quantity: %v does not fit: text is wanted", v)
		}
		return fmt.Sprint(v), nil
	}
	return v, nil
}

// nearest proposes the key that was probably meant.
func nearest(path string, known map[string]setting) string {
	last := path[strings.LastIndexByte(path, '.')+1:]
	var hits []string
	for k := range known {
		if strings.EqualFold(k, path) || strings.EqualFold(k[strings.LastIndexByte(k, '.')+1:], last) {
			hits = append(hits, k)
		}
	}
	if len(hits) == 0 {
		return "; `millrace config print` lists every key"
	}
	slices.Sort(hits)
	return "; did you mean " + hits[0] + "?"
}

func (c *Config) validate() error {
	var faults []error
	if c.Data == "" {
		faults = append(faults, errors.New("data: empty; name a folder"))
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		faults = append(faults, fmt.Errorf("log.level: %q is none of debug, info, warn, error", c.Log.Level))
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		faults = append(faults, fmt.Errorf("log.format: %q is neither text nor json", c.Log.Format))
	}
	return errors.Join(append(faults, c.Broker.Validate(), c.Historian.Validate(), c.UNS.Validate(), c.Pipeline.Validate(), c.Auth.Validate(), c.Web.Validate(), c.Backup.Validate(), c.guestFault())...)
}
