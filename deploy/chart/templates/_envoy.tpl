{{/* The profile of deploy/envoy with the server of this pod as its one replica, in plain text over loopback. */}}
{{- define "svdserve.envoyProfile" -}}
{{- $profile := .Files.Get "files/envoy.yaml" | fromYaml -}}
{{- $chain := first (first $profile.static_resources.listeners).filter_chains -}}
{{- if not .Values.tls.enabled -}}
{{- $_ := unset $chain "transport_socket" -}}
{{- else if not .Values.tls.clientCa -}}
{{- $_ := unset $chain.transport_socket.typed_config "require_client_certificate" -}}
{{- $_ := unset $chain.transport_socket.typed_config.common_tls_context "validation_context_sds_secret_config" -}}
{{- end -}}
{{- $manager := (first $chain.filters).typed_config -}}
{{- $_ := set $manager "http_filters" (concat (initial $manager.http_filters) .Values.envoy.filters (list (last $manager.http_filters))) -}}
{{- $cluster := first $profile.static_resources.clusters -}}
{{- $_ := unset $cluster "transport_socket" -}}
{{- $_ := unset $cluster "cluster_type" -}}
{{- $_ := set $cluster "type" "STATIC" -}}
{{- $address := dict "socket_address" (dict "address" "127.0.0.1" "port_value" 50052) -}}
{{- $endpoints := list (dict "lb_endpoints" (list (dict "endpoint" (dict "address" $address)))) -}}
{{- $_ := set $cluster.load_assignment "endpoints" $endpoints -}}
{{- toYaml $profile -}}
{{- end -}}

{{/* A sidecar that starts before the server and ends after it, so that it is there while the server drains. */}}
{{- define "svdserve.envoyContainer" -}}
name: envoy
image: {{ with .Values.envoy }}{{ if .digest }}{{ regexReplaceAll ":[^:/]*$" .image "" }}@{{ .digest }}{{ else }}{{ .image }}{{ end }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args: [--config-path, /etc/envoy/envoy.yaml, --disable-hot-restart]
ports:
  - {name: grpc, containerPort: 50051}
  - {name: envoy-metrics, containerPort: 9902}
resources: {{- toYaml .Values.envoy.resources | nindent 2 }}
startupProbe:
  httpGet: {path: /ready, port: envoy-metrics}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /ready, port: envoy-metrics}
  periodSeconds: 10
  timeoutSeconds: 3
readinessProbe:
  httpGet: {path: /ready, port: envoy-metrics}
  periodSeconds: 2
  timeoutSeconds: 2
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: envoy, mountPath: /etc/envoy, readOnly: true}
  {{- if .Values.tls.enabled }}
  - {name: tls, mountPath: /tls, readOnly: true}
  {{- end }}
{{- end -}}
