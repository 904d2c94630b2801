{{- define "headrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "headrace.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "headrace.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ include "headrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "headrace.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "headrace.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "headrace.image" -}}
{{- $repository := required "image.repository is needed: where your build of Headrace is" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Settings of the controller: kind Controller, as `headrace run --cluster -f` reads it. */}}
{{- define "headrace.controller" -}}
apiVersion: headrace.dev/v1alpha1
kind: Controller
metadata:
  name: {{ include "headrace.fullname" . }}
spec:
  namespaces: {{ toJson .Values.namespaces }}
  workerNamespaces: {{ toJson .Values.workerNamespaces }}
  {{- if .Values.aws.region }}
  aws:
    region: {{ .Values.aws.region }}
    {{- with .Values.aws.endpointUrl }}
    endpointUrl: {{ quote . }}
    {{- end }}
  {{- end }}
  notices:
    nodes: {{ .Values.notices.nodes }}
    instanceStatus: {{ .Values.aws.instanceStatus }}
    {{- with .Values.aws.queueUrl }}
    queue:
      url: {{ quote . }}
      {{- with $.Values.aws.deadLetterUrl }}
      deadLetterUrl: {{ quote . }}
      {{- end }}
    {{- end }}
  election:
    namespace: {{ .Release.Namespace }}
    name: {{ .Values.election.name }}
  api:
    requestsPerS: {{ .Values.api.perSecond }}
    burst: {{ .Values.api.burst }}
  listen: "0.0.0.0:{{ .Values.port }}"
  stateDir: /var/lib/headrace
{{- end -}}
