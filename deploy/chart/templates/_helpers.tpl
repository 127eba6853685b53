{{- define "svdserve.name" -}}
{{- if contains "svdserve" .Release.Name -}}{{ .Release.Name | trunc 63 }}{{- else -}}{{ printf "%s-svdserve" .Release.Name | trunc 63 }}{{- end -}}
{{- end -}}

{{- define "svdserve.selector" -}}
app.kubernetes.io/name: svdserve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "svdserve.labels" -}}
{{ include "svdserve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "svdserve.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}
