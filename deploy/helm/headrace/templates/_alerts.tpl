{{/* One alert. Runbooks are files of deploy/runbooks. */}}
{{- define "headrace.alert" -}}
- alert: {{ .name }}
  expr: {{ quote .expr }}
  for: {{ .for }}
  labels:
    severity: {{ .severity }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    summary: {{ quote .summary }}
    runbook: deploy/runbooks/{{ .runbook }}.md
{{ end -}}

{{/* A counter that rose within ten minutes; its series may only just have come, which `increase` does not see. */}}
{{- define "headrace.rose" -}}
increase({{ . }}[10m]) > 0 or ({{ . }} unless {{ . }} offset 10m) > 0
{{- end -}}

{{- define "headrace.alerts" -}}
{{- $v := .Values.prometheusRule -}}
{{- $labels := $v.alertLabels -}}
{{- /* The controller that leads is the only one that tells of fleets: its silence is the alarm. */ -}}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceDecidesNothing" "severity" "critical" "runbook" "lost-lease" "for" "1m"
  "expr" (printf "max by (fleet) (headrace_decision_age_seconds) > %v" $v.decisionAgeS)
  "summary" "Fleet {{ $labels.fleet }} has not been decided on for {{ $value | humanizeDuration }}") }}
{{- if $v.expectFleets }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceGone" "severity" "critical" "runbook" "lost-lease" "for" (printf "%vs" $v.decisionAgeS)
  "expr" "absent(headrace_decision_age_seconds)"
  "summary" "No controller tells of any fleet: nobody leads, or nobody is scraped") }}
{{- end }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceTwoLead" "severity" "critical" "runbook" "lost-lease" "for" "1m"
  "expr" "sum by (fleet) (headrace_controller_leading) > 1"
  "summary" "More than one controller says that it leads {{ $labels.fleet }}") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceNoticeSourceAway" "severity" "critical" "runbook" "notice-source-unhealthy" "for" "2m"
  "expr" "min by (fleet, source) (headrace_notice_available) == 0"
  "summary" "Notices do not come from {{ $labels.source }}") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceNoticesWait" "severity" "critical" "runbook" "notice-source-unhealthy" "for" "30s"
  "expr" (printf "max by (fleet, source) (headrace_notice_queue_age_seconds) > %v" $v.noticeQueueAgeS)
  "summary" "A notice in {{ $labels.source }} has waited {{ $value | humanizeDuration }} to be recorded") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceNoticesMalformed" "severity" "warning" "runbook" "notice-source-unhealthy" "for" "0m"
  "expr" "increase(headrace_notice_malformed_total[10m]) > 0"
  "summary" "{{ $labels.source }} brings messages that nobody can read") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceLedgerAway" "severity" "critical" "runbook" "store-away" "for" "2m"
  "expr" "min by (fleet) (headrace_ledger_available + headrace_ledger_refusing) == 0"
  "summary" "The ledger of {{ $labels.fleet }} does not answer: nothing is scaled, workers wait") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceLedgerRefuses" "severity" "critical" "runbook" "store-away" "for" "2m"
  "expr" "max by (fleet) (headrace_ledger_refusing) > 0"
  "summary" "The ledger of {{ $labels.fleet }} may not be used as it is: nothing is scaled") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadracePoolAway" "severity" "warning" "runbook" "reading-metrics" "for" "5m"
  "expr" "max by (fleet, pool) (headrace_pool_failed_lists) > 3"
  "summary" "Pool {{ $labels.pool }} of {{ $labels.fleet }} cannot be listed: it is held") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceTrainerUnprotected" "severity" "critical" "runbook" "trainer-findings" "for" "2m"
  "expr" "sum by (fleet, check) (headrace_trainer_findings{severity=\"alarm\"}) > 0"
  "summary" "A trainer of {{ $labels.fleet }} is not protected: {{ $labels.check }}") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceTrainerUnseen" "severity" "warning" "runbook" "trainer-findings" "for" "10m"
  "expr" "sum by (fleet, check) (headrace_trainer_findings{severity=\"unknown\"}) > 0"
  "summary" "A protection of a trainer of {{ $labels.fleet }} cannot be checked: {{ $labels.check }}") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceTrainerVeto" "severity" "critical" "runbook" "trainer-findings" "for" "0m"
  "expr" (include "headrace.rose" "headrace_trainer_vetoes_total")
  "summary" "A command of {{ $labels.fleet }} would have touched a trainer and was refused") }}
{{ include "headrace.alert" (dict "labels" $labels "name" "HeadraceConfigRejected" "severity" "warning" "runbook" "upgrade" "for" "0m"
  "expr" (include "headrace.rose" "headrace_config_reloads_total{result=\"rejected\"}")
  "summary" "A change of {{ $labels.fleet }} was refused: the configuration before it stays in use") }}
{{- end -}}
