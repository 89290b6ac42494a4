{{- define "webhook.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "webhook.labels" -}}
app.kubernetes.io/name: webhook-service
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Of the pods of a component. Call with (list . "api"). */}}
{{- define "webhook.selector" -}}
app.kubernetes.io/name: webhook-service
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "webhook.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "webhook.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "webhook.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* Variables of a process. Call with (list . "api"). */}}
{{- define "webhook.environment" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
- name: ROLE
  value: {{ $role }}
{{- if not (or $root.Values.settings.TEMPORAL_CONFIG_FILE $root.Values.settings.TEMPORAL_PROFILE) }}
- name: TEMPORAL_ADDRESS
  value: {{ required "temporal.address is required: host:port of Temporal's frontend" $root.Values.temporal.address | quote }}
{{- end }}
{{- with $root.Values.temporal.namespace }}
- name: TEMPORAL_NAMESPACE
  value: {{ . | quote }}
{{- end }}
{{- if $root.Values.metrics.enabled }}
- name: METRICS_PORT
  value: {{ $root.Values.metrics.port | quote }}
{{- end }}
{{- if eq $role "api" }}
- name: SHUTDOWN_DELAY
  value: {{ $root.Values.api.shutdownDelay | quote }}
{{- if $root.Values.tls.secretName }}
- name: TLS_CERT
  value: /etc/webhook-tls/tls.crt
- name: TLS_KEY
  value: /etc/webhook-tls/tls.key
{{- end }}
{{- end }}
- name: DELIVERY_TIMEOUT
  value: {{ printf "%ds" (int $root.Values.worker.deliveryTimeoutSeconds) | quote }}
{{- range $name, $value := $root.Values.settings }}
- name: {{ $name }}
  {{- /* As text, a number would be 1e+06. */}}
  value: {{ ternary (toJson $value) $value (kindIs "float64" $value) | quote }}
{{- end }}
{{- include "webhook.secretEnvironment" $root }}
{{- end -}}

{{- define "webhook.secretEnvironment" -}}
{{- range $name, $key := .Values.secrets.keys }}
{{- if $key }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.secrets.name }}
      key: {{ $key }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "webhook.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "webhook.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "webhook.scheduling" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
