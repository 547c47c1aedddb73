{{- define "handoffd.name" -}}
{{- if contains "handoffd" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-handoffd" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "handoffd.selector" -}}
app.kubernetes.io/name: handoffd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: broker
{{- end }}

{{- define "handoffd.labels" -}}
app.kubernetes.io/name: handoffd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "handoffd.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{- define "handoffd.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "handoffd.name" .) }}
{{- end }}

{{- define "handoffd.claim" -}}
{{ .Values.persistence.existingClaim | default (printf "%s-data" (include "handoffd.name" .)) }}
{{- end }}

{{/* What cannot work ends the rendering, with the reason. */}}
{{- define "handoffd.check" -}}
{{- if eq .Values.store "postgres" }}
{{- if not .Values.secret.name }}{{ fail "store: postgres needs secret.name: an existing secret with the database's URL and the keys that all brokers share (docs/kubernetes.md)" }}{{ end }}
{{- range $key := list "databaseUrl" "masterKey" "signingKey" }}
{{- if not (index $.Values.secret.keys $key) }}{{ fail (printf "store: postgres needs secret.keys.%s: brokers without it would each make a key of their own" $key) }}{{ end }}
{{- end }}
{{- else }}
{{- if or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}{{ fail "store: sqlite serves one broker: set replicas to 1 and autoscaling.enabled to false, or store to postgres" }}{{ end }}
{{- end }}
{{- if and .Values.migration.servingRole (not .Values.migration.ownerDatabaseUrlKey) }}{{ fail "migration.servingRole needs migration.ownerDatabaseUrlKey: only the owner may give a role its rights" }}{{ end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}{{ fail "ingress.enabled needs ingress.host" }}{{ end }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add (int .Values.preStopSeconds) 25) }}{{ fail "terminationGracePeriodSeconds has to be 25 s (server.stop_timeout_ms) above preStopSeconds at least: what is in flight would be cut off" }}{{ end }}
{{- end }}

{{- define "handoffd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "handoffd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* One variable out of the secret; nothing where the entry has no name. Takes a list: root, variable, entry. */}}
{{- define "handoffd.secretVariable" -}}
{{- $root := index . 0 }}{{- $entry := index . 2 }}
{{- if and $root.Values.secret.name $entry }}
- name: {{ index . 1 }}
  valueFrom: {secretKeyRef: {name: {{ $root.Values.secret.name | quote }}, key: {{ $entry | quote }}}}
{{- end }}
{{- end }}
