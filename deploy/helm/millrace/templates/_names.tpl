{{- define "millrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "millrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "millrace.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "millrace.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "millrace.selector" -}}
app.kubernetes.io/name: {{ include "millrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "millrace.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "millrace.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The settings of the box: the user's, and over them what the chart decides. */}}
{{- define "millrace.config" -}}
{{- $broker := dict "address" (ternary (printf ":%d" (int .Values.mqtt.port)) "" (gt (int .Values.mqtt.port) 0)) -}}
{{- if .Values.mqtts.existingSecret -}}
{{- $tls := dict "address" (printf ":%d" (int .Values.mqtts.port)) "certFile" "/etc/millrace/mqtts/tls.crt" "keyFile" "/etc/millrace/mqtts/tls.key" -}}
{{- if .Values.mqtts.clientCA -}}
{{- $_ := set $tls "clientCAFile" "/etc/millrace/mqtts/ca.crt" -}}
{{- end -}}
{{- $_ := set $broker "tls" $tls -}}
{{- end -}}
{{- $web := dict "address" (printf ":%d" (int .Values.web.port)) -}}
{{- if .Values.web.existingSecret -}}
{{- $_ := set $web "tls" (dict "certFile" "/etc/millrace/web/tls.crt" "keyFile" "/etc/millrace/web/tls.key") -}}
{{- end -}}
{{- $ours := dict "data" "/data" "broker" $broker "web" $web -}}
{{- if .Values.backup.existingClaim -}}
{{- $_ := set $ours "backup" (dict "root" "/backups") -}}
{{- end -}}
{{- toYaml (mergeOverwrite (dict "log" (dict "format" "json")) (deepCopy .Values.config) $ours) -}}
{{- end -}}
