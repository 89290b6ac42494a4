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
{{- if $root.Values.eventTypes.configMap }}
- name: EVENT_TYPES
  value: {{ printf "/etc/webhooks/events/%s" $root.Values.eventTypes.file | trimSuffix "/" }}
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

{{/* Of a resource: the chart's labels and commonLabels. */}}
{{- define "webhook.resourceLabels" -}}
{{- include "webhook.labels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The values of a component's pods, as YAML: those of the component, or else those of all pods. Call with (list . "api").
*/}}
{{- define "webhook.podValues" -}}
{{- $all := (index . 0).Values -}}
{{- $own := index $all (index . 1) -}}
{{- $values := dict -}}
{{- range list "podAnnotations" "podLabels" "podSecurityContext" "securityContext" "enableServiceLinks" "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "extraEnv" "extraEnvFrom" "volumes" "volumeMounts" "resources" }}
{{- $_ := set $values . (ternary (index $own .) (index $all .) (hasKey $own .)) -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* Metadata of a component's pods. Call with (list . "api" $pod), $pod being webhook.podValues. */}}
{{- define "webhook.podMetadata" -}}
{{- $pod := index . 2 -}}
labels:
  {{- include "webhook.selector" . | nindent 2 }}
  {{- with (index . 0).Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $pod.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $pod.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What all pods have, whatever their containers. Call with (list . $pod). */}}
{{- define "webhook.podSpec" -}}
{{- $root := index . 0 -}}
{{- $pod := index . 1 -}}
serviceAccountName: {{ include "webhook.serviceAccount" $root }}
automountServiceAccountToken: false
{{- if kindIs "bool" $pod.enableServiceLinks }}
enableServiceLinks: {{ $pod.enableServiceLinks }}
{{- end }}
{{- with $pod.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- $name := . }}
{{- with index $pod $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What all containers have. Call with (list . "api" $pod), "api" being the role. */}}
{{- define "webhook.container" -}}
{{- $root := index . 0 -}}
{{- $pod := index . 2 -}}
image: {{ include "webhook.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- with $pod.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  {{- include "webhook.environment" . | nindent 2 }}
  {{- with $pod.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $pod.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - { name: tmp, mountPath: /tmp }
  {{- if and $root.Values.tls.secretName (eq (index . 1) "api") }}
  - { name: tls, mountPath: /etc/webhook-tls, readOnly: true }
  {{- end }}
  {{- if $root.Values.eventTypes.configMap }}
  - { name: event-types, mountPath: /etc/webhooks/events, readOnly: true }
  {{- end }}
  {{- with $pod.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Call with (list . "api" $pod), "api" being the role. */}}
{{- define "webhook.volumes" -}}
{{- $root := index . 0 -}}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if and $root.Values.tls.secretName (eq (index . 1) "api") }}
  - name: tls
    secret:
      secretName: {{ $root.Values.tls.secretName }}
  {{- end }}
  {{- with $root.Values.eventTypes.configMap }}
  - name: event-types
    configMap:
      name: {{ . }}
  {{- end }}
  {{- with (index . 2).volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* A probe; with null there is none. Call with (list "livenessProbe" $probe $httpGet): it asks $httpGet unless it says how to ask. */}}
{{- define "webhook.probe" -}}
{{- $probe := index . 1 -}}
{{- if $probe -}}
{{ index . 0 }}:
  {{- if not (or $probe.httpGet $probe.tcpSocket $probe.exec $probe.grpc) }}
  httpGet:
    {{- toYaml (index . 2) | nindent 4 }}
  {{- end }}
  {{- toYaml $probe | nindent 2 }}
{{- end }}
{{- end -}}
