# Install from PyPI: grpcio, grpcio-tools, grpcio-status, googleapis-common-protos.
# Writes the modules beside this script, where Python finds them for grpcio.py; OUT_DIR names another folder.
here=$(cd "$(dirname "$0")" && pwd)
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
out=${OUT_DIR:-$here}

python3 -m grpc_tools.protoc -I"${PROTO_DIR:-$here/../../proto}" -I"$packages" --python_out="$out" --grpc_python_out="$out" \
  webhook/v1/event.proto webhook/v1/incident.proto webhook/v1/options.proto webhook/v1/request_settings.proto webhook/v1/webhook.proto
