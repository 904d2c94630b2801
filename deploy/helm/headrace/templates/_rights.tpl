{{/*
What the controller may do, split by who needs it and where. `tests/deploy/test_rbac.py` runs it with exactly these rights and
fails where one is missing, or where one is granted that is never used and not explained there.
*/}}

{{/* Of the whole cluster, whatever namespaces are named. */}}
{{- define "headrace.rights.cluster" -}}
# Nodes are watched, and marked with one patch: taint, cordon, labels, annotations. Read again after a conflict.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch, patch]
# Its UID tells this cluster from others: the queue must carry it.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
# Whether the installed definition is the one that this release knows.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [rolloutfleets.headrace.dev]
  verbs: [get]
{{- if or .Values.trainers.watch .Values.karpenter.enabled }}
# Who else is on a trainer's node, and whether a node is empty before its NodeClaim goes: pods of any namespace.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- end }}
{{- if .Values.trainers.watch }}
# What protects trainers' pods.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list]
{{- end }}
{{- if .Values.karpenter.enabled }}
# The pool is looked at; claims of replicas that go are marked, and deleted by UID once their nodes are empty.
- apiGroups: [karpenter.sh]
  resources: [nodepools]
  verbs: [get{{ if .Values.trainers.watch }}, list{{ end }}]
- apiGroups: [karpenter.sh]
  resources: [nodeclaims]
  verbs: [list, watch, patch, delete]
{{- end }}
{{- end -}}

{{/* Where fleets are. */}}
{{- define "headrace.rights.fleets" -}}
# A fleet is read; only its status is written.
- apiGroups: [headrace.dev]
  resources: [rolloutfleets]
  verbs: [get, list, watch]
- apiGroups: [headrace.dev]
  resources: [rolloutfleets/status]
  verbs: [patch]
# A fleet's journal, owned by the fleet: what must outlive a crash is there before it is acted on.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, update]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Where workers are. */}}
{{- define "headrace.rights.workers" -}}
{{- $counted := or .Values.deployment.enabled .Values.leaderWorkerSet.enabled .Values.ray.enabled -}}
# Pods are found by their nodes{{ if or .Values.deployment.enabled .Values.ray.enabled }}; they are told the launch that they answer, and named as victims by their deletion cost{{ end }}.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch{{ if or .Values.deployment.enabled .Values.ray.enabled }}, patch{{ end }}]
{{- if .Values.aws.region }}
# Nodes of Auto Scaling and EKS groups are emptied by us: eviction first, deletion by UID five seconds before the deadline.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- end }}
{{- if $counted }}
# Who else writes a count.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
{{- end }}
{{- if .Values.deployment.enabled }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list]
{{- end }}
{{- if .Values.leaderWorkerSet.enabled }}
# One object a replica, copied from its template and deleted by UID.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, create, patch, delete]
{{- end }}
{{- if .Values.ray.enabled }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, patch]
{{- end }}
{{- end -}}

{{/* Where the guard may mend. */}}
{{- define "headrace.rights.repair" -}}
# Annotate trainers' pods, and read them again.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, patch]
# Make a missing budget, and read it again. Never change or delete one.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create]
{{- end -}}

{{/* Whose turn it is. A name cannot bind a creation. */}}
{{- define "headrace.rights.election" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .Values.election.name }}]
  verbs: [get, update]
{{- end -}}

{{/* What `headrace release` takes marks away with. */}}
{{- define "headrace.rights.release" -}}
- apiGroups: [headrace.dev]
  resources: [rolloutfleets]
  verbs: [get]
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
{{- if .Values.deployment.enabled }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, patch]
{{- end }}
{{- if .Values.leaderWorkerSet.enabled }}
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list, patch]
{{- end }}
{{- if .Values.ray.enabled }}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [list, patch]
{{- end }}
{{- if .Values.karpenter.enabled }}
- apiGroups: [karpenter.sh]
  resources: [nodeclaims]
  verbs: [list, patch]
{{- end }}
{{- end -}}
