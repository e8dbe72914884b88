package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	yamlv "sigs.k8s.io/yaml"
)

const chartDir = "../helm/millrace"

// full is every value that switches something on.
const full = `
image: {repository: registry.plant/millrace, tag: 1.2.3, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
config: {historian: {defaultRetention: 90d}, log: {level: debug}, broker: {limits: {maxClients: 100}}}
admin: {existingSecret: millrace-admin, key: pw}
mqtts: {existingSecret: millrace-tls, clientCA: true}
web: {existingSecret: web-tls}
service: {type: LoadBalancer, externalTrafficPolicy: Local, annotations: {a: b}, nodePorts: {mqtt: 31883, mqtts: 31884, web: 31080}}
persistence: {size: 100Gi, storageClass: fast, accessMode: ReadWriteOncePod, annotations: {c: d}}
backup: {existingClaim: backups}
podAnnotations: {e: f}
podLabels: {g: h}
nodeSelector: {disk: ssd}
tolerations: [{key: edge, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Exists}]}]}}}
priorityClassName: high
serviceAccount: {annotations: {i: j}}
networkPolicy: {mqttFrom: [{ipBlock: {cidr: 10.0.0.0/8}}], webFrom: [{namespaceSelector: {}}], egress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}]}]}
serviceMonitor: {enabled: true, labels: {release: prometheus}, tokenSecret: {name: scrape, key: token}}
prometheusRule: {enabled: true}
grafanaDashboard: {enabled: true}
`

// objects is a rendered chart by kind and name.
type objects map[string]any

func get[T any](t *testing.T, o objects, name string) *T {
	t.Helper()
	v, ok := o[name].(*T)
	if !ok {
		t.Fatalf("there is no %s; there is %v", name, names(o))
	}
	return v
}

func names(o objects) (list []string) {
	for n := range o {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// render renders the chart as `helm install plant` would and decodes every object strictly: an unknown or misspelt field is a
// fault, as is a kind that nobody expects.
func render(t *testing.T, values string) (objects, error) {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var user map[string]any
	if err := yamlv.Unmarshal([]byte(values), &user); err != nil {
		t.Fatal(err)
	}
	caps := chartutil.DefaultCapabilities
	all, err := chartutil.ToRenderValues(c, user, chartutil.ReleaseOptions{Name: "plant", Namespace: "line", Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	out := objects{}
	for file, text := range files {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		r := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			doc, err := r.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(file, err)
			}
			var head struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
			}
			if err := yamlv.Unmarshal(doc, &head); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, doc)
			}
			if head.Kind == "" {
				continue
			}
			kinds := map[string]any{"v1 ConfigMap": &core.ConfigMap{}, "v1 Service": &core.Service{}, "v1 ServiceAccount": &core.ServiceAccount{},
				"apps/v1 StatefulSet": &apps.StatefulSet{}, "networking.k8s.io/v1 NetworkPolicy": &networking.NetworkPolicy{},
				"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{}, "monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{}}
			into, ok := kinds[head.APIVersion+" "+head.Kind]
			if !ok {
				t.Fatalf("%s: %s %s is nothing that this test knows", file, head.APIVersion, head.Kind)
			}
			if err := yamlv.UnmarshalStrict(doc, into); err != nil {
				t.Errorf("%s: %s: %v\n%s", file, head.Kind, err, doc)
			}
			name := head.Kind + " " + head.Metadata.Name
			if out[name] != nil {
				t.Errorf("%s is there twice", name)
			}
			out[name] = into
		}
	}
	return out, nil
}

func mustRender(t *testing.T, values string) objects {
	t.Helper()
	o, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestLint(t *testing.T) {
	for name, values := range map[string]string{"defaults": "", "full": full} {
		var user map[string]any
		if err := yamlv.Unmarshal([]byte(values), &user); err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All(chartDir, user, "line", true).Messages {
			if m.Severity == support.InfoSev && strings.Contains(m.Error(), "icon") {
				continue // a chart without a picture
			}
			t.Errorf("%s: %v", name, m)
		}
	}
}

// Whatever is switched on, the pod runs as nobody in particular, writes nowhere but on its volume and has no rights.
func TestPod(t *testing.T) {
	for name, values := range map[string]string{"defaults": "", "full": full} {
		t.Run(name, func(t *testing.T) {
			o := mustRender(t, values)
			set := get[apps.StatefulSet](t, o, "StatefulSet plant-millrace")
			pod := set.Spec.Template.Spec
			if *set.Spec.Replicas != 1 || o["Service "+set.Spec.ServiceName] == nil {
				t.Errorf("replicas %d, service %q", *set.Spec.Replicas, set.Spec.ServiceName)
			}
			for k, v := range set.Spec.Selector.MatchLabels {
				if set.Spec.Template.Labels[k] != v {
					t.Errorf("the selector asks for %s=%s, the pod has %q", k, v, set.Spec.Template.Labels[k])
				}
			}
			if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 ||
				pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || pod.HostNetwork || pod.HostPID {
				t.Errorf("pod: %+v", pod.SecurityContext)
			}
			c := pod.Containers[0]
			if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("container: %+v", s)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("resources: %+v", c.Resources)
			}
			for what, p := range map[string]*core.Probe{"/healthz startup": c.StartupProbe, "/healthz liveness": c.LivenessProbe, "/readyz readiness": c.ReadinessProbe} {
				path, _, _ := strings.Cut(what, " ")
				if p == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "web" || (p.HTTPGet.Scheme == core.URISchemeHTTPS) != (name == "full") {
					t.Errorf("%s: %+v", what, p)
				}
			}
			volumes := map[string]bool{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
			}
			for _, v := range set.Spec.VolumeClaimTemplates {
				volumes[v.Name] = true
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s is mounted and no volume", m.Name)
				}
				if !m.ReadOnly && m.MountPath != "/data" && m.MountPath != "/backups" {
					t.Errorf("%s can be written", m.MountPath)
				}
			}
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			want := map[string]int32{"mqtt": 1883, "web": 8080}
			if name == "full" {
				want["mqtts"] = 8883
			}
			if !reflect.DeepEqual(ports, want) {
				t.Errorf("ports %v, want %v", ports, want)
			}
			service := get[core.Service](t, o, "Service plant-millrace")
			for _, p := range service.Spec.Ports {
				if ports[p.TargetPort.StrVal] != p.Port {
					t.Errorf("the service's port %s %d leads to %q", p.Name, p.Port, p.TargetPort.StrVal)
				}
			}
			if len(service.Spec.Ports) != len(want) {
				t.Errorf("the service has %d ports", len(service.Spec.Ports))
			}
			policy := get[networking.NetworkPolicy](t, o, "NetworkPolicy plant-millrace")
			if len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Ingress) != 2 || (len(policy.Spec.Egress) == 0) != (name != "full") {
				t.Errorf("network policy: %+v", policy.Spec)
			}
			for _, in := range policy.Spec.Ingress {
				for _, p := range in.Ports {
					if ports[p.Port.StrVal] == 0 {
						t.Errorf("the network policy opens %q, which the pod has not", p.Port.StrVal)
					}
				}
			}
		})
	}
}

func TestFullValues(t *testing.T) {
	o := mustRender(t, full)
	want := []string{"ConfigMap plant-millrace", "ConfigMap plant-millrace-dashboard", "NetworkPolicy plant-millrace", "PrometheusRule plant-millrace",
		"Service plant-millrace", "Service plant-millrace-pod", "ServiceAccount plant-millrace", "ServiceMonitor plant-millrace", "StatefulSet plant-millrace"}
	if got := names(o); !slices.Equal(got, want) {
		t.Errorf("objects:\n%v\nwant\n%v", got, want)
	}
	c := get[apps.StatefulSet](t, o, "StatefulSet plant-millrace").Spec.Template.Spec.Containers[0]
	if i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "MILLRACE_ADMIN_PASSWORD" }); i < 0 || c.Env[i].ValueFrom.SecretKeyRef.Name != "millrace-admin" || c.Env[i].ValueFrom.SecretKeyRef.Key != "pw" {
		t.Errorf("the administrator's password: %+v", c.Env)
	}
	monitor := get[monitoring.ServiceMonitor](t, o, "ServiceMonitor plant-millrace").Spec.Endpoints[0]
	if monitor.Port != "web" || monitor.Authorization == nil || monitor.Authorization.Credentials.Name != "scrape" || monitor.TLSConfig == nil {
		t.Errorf("service monitor: %+v", monitor)
	}
	if rules := get[monitoring.PrometheusRule](t, o, "PrometheusRule plant-millrace"); len(rules.Spec.Groups) != 1 || len(rules.Spec.Groups[0].Rules) < 10 {
		t.Errorf("alerts: %d groups", len(rules.Spec.Groups))
	}
	var board any
	if err := json.Unmarshal([]byte(get[core.ConfigMap](t, o, "ConfigMap plant-millrace-dashboard").Data["millrace.json"]), &board); err != nil {
		t.Errorf("dashboard: %v", err)
	}
}

// The settings that the chart writes are settings of the box: each key is in config.yaml, and the chart decides over the user
// where the pod depends on it.
func TestSettings(t *testing.T) {
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var known map[string]any
	if err := yamlv.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]string{"defaults": "", "full": full} {
		var got map[string]any
		if err := yamlv.Unmarshal([]byte(get[core.ConfigMap](t, mustRender(t, values), "ConfigMap plant-millrace").Data["config.yaml"]), &got); err != nil {
			t.Fatal(err)
		}
		for _, path := range paths(got, "") {
			if !slices.Contains(paths(known, ""), path) {
				t.Errorf("%s: the box has no setting %s", name, path)
			}
		}
		if got["data"] != "/data" {
			t.Errorf("%s: data is %v", name, got["data"])
		}
	}
	o := mustRender(t, `{config: {broker: {address: ":1", limits: {maxClients: 7}}}, mqtt: {port: 0}, mqtts: {existingSecret: s}}`)
	settings := get[core.ConfigMap](t, o, "ConfigMap plant-millrace").Data["config.yaml"]
	if !strings.Contains(settings, `address: ""`) || !strings.Contains(settings, "maxClients: 7") || !strings.Contains(settings, "address: :8883") {
		t.Errorf("settings:\n%s", settings)
	}
}

func paths(m map[string]any, prefix string) (list []string) {
	for k, v := range m {
		if below, ok := v.(map[string]any); ok {
			list = append(list, paths(below, prefix+k+".")...)
		} else {
			list = append(list, prefix+k)
		}
	}
	return list
}

// What cannot work is refused before anything is installed.
func TestSchemaRefuses(t *testing.T) {
	for _, values := range []string{`{replicas: 2}`, `{web: {port: 80}}`, `{image: {repository: ""}}`, `{config: {data: /x}}`, `{persistence: {size: lots}}`, `{mqtts: {exsitingSecret: s}}`} {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s was taken", values)
		}
	}
}

// The copies inside the chart, which Helm cannot take from outside of it, are those of deploy.
func TestCopies(t *testing.T) {
	for copied, from := range map[string]string{"files/millrace.rules.yaml": "../prometheus/millrace.rules.yaml", "files/box.json": "../grafana/box.json", "files/history.json": "../grafana/history.json"} {
		a, errA := os.ReadFile(filepath.Join(chartDir, copied))
		b, errB := os.ReadFile(from)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not %s: copy it (%v %v)", copied, from, errA, errB)
		}
	}
}
