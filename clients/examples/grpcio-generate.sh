# Install from PyPI: grpcio, grpcio-tools, grpcio-status, googleapis-common-protos.
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

python3 -m grpc_tools.protoc -I"${PROTO_DIR:-proto}" -I"$packages" --python_out=. --grpc_python_out=. \
  webhook/v1/event.proto webhook/v1/options.proto webhook/v1/request_settings.proto webhook/v1/webhook.proto
